//! `apus moderate`.

mod check;
pub(super) mod config;
pub(super) mod published;
mod queue;
mod say;
mod status;
pub(super) mod table;

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::knob::{Access, Coalesce, Rings, Setting as _, Value, napi_queues, napis_of};
use host::transaction::Steered;
use host::watch::NapiWatch;
use live::os::Signals;
use live::os::notify::ServiceManager;
use policy::moderation::{
    Direction, GoalModeration, GoalModerationConfig, Limits, Moderation, NetDim, PeriodMode, Profile, Static,
};
use policy::{Goal, LossBound};
use steer::moderation::Moderate as Controller;
use steer::moderation::place::{Place, Setter, Shared, Strictest};
use steer::moderation::watched::Watched;
use steer::{Actuator, Machine, Poll};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{BitRate, Instant, Monotonic, Nanos};

use super::ports;
use crate::args::moderate::{Command, Moderate, Place as TypedPlace, Policy};
use crate::documents::VERSION;
use crate::documents::moderate::{Document, Queue as SaidOfQueue, SCHEMA};
use crate::{Failure, Status, terminal};
use config::{Config, InterfaceConfig};
use published::Published;
use queue::{Dry, Queue};

const COMMAND: &str = "apus moderate";
/// Time between two publications of the state, and between two signs of life.
const PUBLISHED_EACH: Nanos = Nanos::from_secs(1);
/// DIM begins with the second of its five profiles (Linux, drivers' `dim_init`; lib/dim/net_dim.c).
const DIM_BEGINS: u8 = 1;
/// The longest timer that NAPI deferral takes, in microseconds: 2^31 - 1 ns (Documentation/netlink/specs/netdev.yaml).
const LONGEST_USECS: u32 = i32::MAX as u32 / 1_000;

type Any = Box<dyn Actuator<Monotonic, Setting = Profile>>;

/// A queue that was found.
struct Found<'a> {
    config: &'a InterfaceConfig,
    queue: u32,
    napi: u32,
}

impl Found<'_> {
    /// The queue's own goal, or that of its interface.
    fn goal(&self) -> Goal {
        let own = self.config.queues.iter().find(|(queue, _)| *queue == self.queue);
        own.map_or(self.config.goal, |(_, goal)| *goal)
    }
}

/// Runs `apus moderate`.
pub fn run(typed: &Moderate) -> anyhow::Result<Status> {
    match &typed.command {
        Some(Command::Check(typed)) => check::run(typed),
        Some(Command::Status(typed)) => status::run(typed),
        None => steer(typed),
    }
}

/// Steers until the end.
fn steer(typed: &Moderate) -> anyhow::Result<Status> {
    let config = Config::of(typed)?;
    let service = ServiceManager::of_environment()?;
    let signals = Signals::hold()?;
    for line in ports::take_back_left_behind(COMMAND)? {
        note(&line);
    }
    let access = Access::live()?;
    let found = queues_of(&access, &config)?;
    let ids: Vec<u32> = found.iter().map(|found| found.napi).collect();
    let watch = Arc::new(NapiWatch::new(&ids)?);
    if let Err(why) = watch.measures_datagrams() {
        note(&format!("UDP is not measured, so only other protocols count for the goal: {why}"));
    }
    let places = places(&access, &found)?;
    let (steered, actuators) = match typed.dry_run {
        true => (None, found.iter().map(|_| -> Any { Box::new(Dry) }).collect()),
        false => {
            let settings: Vec<_> = places.iter().map(Place::setting).collect();
            let steered = Steered::new(&access, "moderate", &settings, COMMAND, VERSION)?;
            let shared: Shared = Arc::new(Mutex::new(steered));
            let actuators = actuators(&shared, &places, &found);
            (Some(shared), actuators)
        }
    };
    let mut queues: Vec<Queue> = Vec::with_capacity(found.len());
    let mut bounds: Vec<(&str, Option<LossBound>)> = Vec::new();
    for ((number, found), actuator) in found.iter().enumerate().zip(actuators) {
        let loss = match bounds.iter().find(|(interface, _)| *interface == found.config.name) {
            Some((_, loss)) => *loss,
            None => {
                let loss = loss_bound(&access, found.config)?;
                bounds.push((&found.config.name, loss));
                loss
            }
        };
        let goal = found.goal();
        let controller = Controller::new(policy(found.config.policy, goal, loss), goal.quantile, Profile::IMMEDIATE);
        let machine = Machine::new(Watched::new(watch.clone(), number), controller, actuator);
        queues.push(Queue::new(found, machine, !typed.json));
    }
    let clock = MonotonicClock;
    let began = clock.now();
    let end = typed.duration.map(|duration| began + duration);
    let mut published = Published::new();
    told(service.ready(&format!("steers {} queues", queues.len())));
    let mut due = began;
    while let Some(next) = queues.iter().filter_map(Poll::poll_at).min() {
        let now = clock.now();
        if now >= due {
            let queues = queues.iter().map(Queue::said).collect();
            let document = document(typed, now.since(began).unwrap_or(Nanos::ZERO), queues, None);
            published.publish(&document).iter().for_each(|text| note(text));
            told(service.alive());
            due = now + PUBLISHED_EACH;
        }
        if now < next && wait(&signals, &clock, next.min(due), end).is_break() {
            break;
        }
        let now = clock.now();
        for queue in queues.iter_mut().filter(|queue| queue.poll_at().is_some_and(|at| at <= now)) {
            queue.poll(now);
        }
    }
    told(service.stopping());
    let lasted = clock.now().since(began).unwrap_or(Nanos::ZERO);
    // The actuators hold the settings too.
    let queues: Vec<_> = queues.into_iter().map(|queue| queue.said()).collect();
    let restored = steered.map(restore);
    say::result(typed, &document(typed, lasted, queues, restored))
}

/// What has become of the queues.
fn document(typed: &Moderate, lasted: Nanos, queues: Vec<SaidOfQueue>, restored: Option<bool>) -> Document {
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        dry_run: typed.dry_run,
        duration_ns: lasted.as_nanos(),
        queues,
        restored,
    }
}

/// Tells that the service manager was not reached: the watchdog, if it matters, says the rest.
fn told(result: Result<(), live::Error>) {
    if let Err(error) = result {
        note(&error.to_string());
    }
}

/// Tells something that is not part of the result.
fn note(text: &str) {
    let _ = writeln!(terminal::err(), "{}", terminal::line(text));
}

/// Waits until `next`, a signal, or the end.
fn wait(
    signals: &Signals,
    clock: &MonotonicClock,
    next: Instant<Monotonic>,
    end: Option<Instant<Monotonic>>,
) -> ControlFlow<()> {
    let until = end.map_or(next, |end| end.min(next));
    let left = until.since(clock.now()).unwrap_or(Nanos::ZERO);
    if signals.wait(Duration::from_nanos(left.as_nanos())).is_some() || end.is_some_and(|end| clock.now() >= end) {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// The receive queues of the interfaces, with their NAPI instances.
fn queues_of<'a>(access: &Access, config: &'a Config) -> anyhow::Result<Vec<Found<'a>>> {
    let mut all: Vec<Found<'a>> = Vec::new();
    for config in &config.interfaces {
        let interface = &config.name;
        let queues = napi_queues(access, interface)?;
        let napis = napis_of(access, interface, &queues)?;
        if napis.is_empty() {
            let exists = host::knob::interfaces(access)?.unwrap_or_default().contains(interface);
            return Err(match exists {
                false => Failure::wrong(
                    format!("cannot moderate {interface}"),
                    "there is no such network interface in this network namespace",
                    "ip -br link lists the interfaces",
                ),
                true => Failure::lacking(
                    format!("cannot moderate {interface}"),
                    "it has no NAPI instance: it is down, or its driver uses none",
                    format!(
                        "ip link set dev {interface} up; a veth has NAPI with GRO: ethtool -K {interface} gro on, and \
                         tso off at its peer"
                    ),
                ),
            }
            .into());
        }
        let found = |(napi, id): (host::knob::Napi, u32)| Found { config, queue: napi.queue, napi: id };
        all.extend(napis.into_iter().map(found));
    }
    Ok(all)
}

/// The settings that are steered: one for each queue, or one for each device.
fn places(access: &Access, found: &[Found<'_>]) -> anyhow::Result<Vec<Place>> {
    let mut places: Vec<Place> = Vec::new();
    for found in found {
        let interface = &found.config.name;
        if found.config.place == TypedPlace::Napi {
            places.push(Place::Deferral { interface: interface.clone(), queue: found.queue });
            continue;
        }
        if places.iter().any(|place| matches!(place, Place::Device { interface: other, .. } if other == interface)) {
            continue;
        }
        let value = Coalesce::new(interface).read(access)?;
        let has = |field: &str| value.as_ref().is_some_and(|value: &Value| value.field(field).is_some());
        if !has("rx-usecs") {
            let what = format!("cannot moderate {interface} with --place nic");
            let why = "its driver does not offer rx-usecs (ethtool -c shows what it offers)";
            return Err(Failure::lacking(what, why, "use --place napi, which works with every driver").into());
        }
        places.push(Place::Device {
            interface: interface.clone(),
            has_adaptive: has("adaptive-rx"),
            counts_frames: has("rx-max-frames"),
        });
    }
    Ok(places)
}

/// An actuator for each queue.
fn actuators(shared: &Shared, places: &[Place], found: &[Found<'_>]) -> Vec<Any> {
    let mut all: Vec<Any> = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let setter = Setter::new(shared.clone(), number, place.clone());
        match place {
            Place::Device { interface, .. } => {
                let queues = found.iter().filter(|found| found.config.name == *interface).count();
                all.extend(Strictest::of(setter, queues).into_iter().map(|one| -> Any { Box::new(one) }));
            }
            Place::Deferral { .. } | Place::Queue { .. } => all.push(Box::new(setter)),
        }
    }
    all
}

fn policy(policy: Policy, goal: Goal, loss: Option<LossBound>) -> Moderation<Monotonic> {
    match policy {
        Policy::Static(profile) => Moderation::Static(Static::new(profile)),
        Policy::NetDim => {
            let dim = NetDim::new(Direction::Rx, PeriodMode::Eqe, DIM_BEGINS);
            Moderation::NetDim(dim.expect("DIM has five profiles"))
        }
        Policy::Goal => Moderation::Goal(GoalModeration::new(GoalModerationConfig {
            goal: Some(goal),
            direction: Direction::Rx,
            loss,
            limits: Limits { usecs: LONGEST_USECS, usecs_step: 1, frames: 0 },
            remaining: None,
        })),
    }
}

/// The ring, and the rate at which it may fill. `None`, and a note that says so, if one of them is unknown.
fn loss_bound(access: &Access, config: &InterfaceConfig) -> anyhow::Result<Option<LossBound>> {
    /// Size of the shortest Ethernet frame in bytes, with its check sequence (IEEE 802.3-2018, 3.2.7).
    const SHORTEST_FRAME: u64 = 64;
    if config.policy != Policy::Goal {
        return Ok(None);
    }
    let interface = &config.name;
    let ring = Rings::new(interface).read(access)?;
    let descriptors = ring.as_ref().and_then(|ring| ring.field("rx")?.parse().ok());
    // A driver that does not know its speed says so by an error, or by -1.
    let speed = access.number(&format!("/sys/class/net/{interface}/speed")).ok().flatten();
    let line = speed.map(|megabits| BitRate::new(megabits * 1_000_000).frames_of(SHORTEST_FRAME));
    let why = match (descriptors, config.peak_rate.or(line)) {
        (Some(descriptors), Some(peak)) => return Ok(Some(LossBound { descriptors, peak })),
        (None, _) => "its driver does not report how large its ring is",
        (_, None) => "its driver does not report a line rate; state the peak rate",
    };
    note(&format!("{interface}: only the goal limits how long packets gather, and not the ring: {why}"));
    Ok(None)
}

/// Restores what was steered; whether all of it was.
fn restore(shared: Shared) -> bool {
    let Some(steered) = Arc::into_inner(shared).and_then(|inner| inner.into_inner().ok()) else { return false };
    match steered.release() {
        Ok(Some(back)) if !back.closed => {
            note(&format!(
                "not everything was restored; look at apus tune status, then run apus tune rollback {}",
                back.id
            ));
            false
        }
        Ok(_) => true,
        Err(error) => {
            note(&format!("the settings are not restored ({error}); try again with apus tune rollback"));
            false
        }
    }
}

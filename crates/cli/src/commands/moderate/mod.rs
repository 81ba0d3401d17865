//! `apus moderate`.

mod queue;
mod say;

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::knob::{Access, Coalesce, Rings, Setting as _, Value, napi_queues, napis_of};
use host::transaction::Steered;
use host::watch::NapiWatch;
use live::os::Signals;
use policy::LossBound;
use policy::moderation::{
    Direction, GoalModeration, GoalModerationConfig, Limits, Moderation, NetDim, PeriodMode, Profile, Static,
};
use steer::moderation::Moderate as Controller;
use steer::moderation::place::{Place, Setter, Shared, Strictest};
use steer::moderation::watched::Watched;
use steer::{Actuator, Machine, Poll, run as run_loops};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{BitRate, Instant, Monotonic, Nanos};

use super::ports;
use crate::args::moderate::{Moderate, Place as TypedPlace, Policy};
use crate::documents::VERSION;
use crate::{Failure, Status, terminal};
use queue::{Dry, Queue};

const COMMAND: &str = "apus moderate";
/// DIM begins with the second of its five profiles (Linux, drivers' `dim_init`; lib/dim/net_dim.c).
const DIM_BEGINS: u8 = 1;
/// The longest timer that NAPI deferral takes, in microseconds: 2^31 - 1 ns (Documentation/netlink/specs/netdev.yaml).
const LONGEST_USECS: u32 = i32::MAX as u32 / 1_000;

type Any = Box<dyn Actuator<Monotonic, Setting = Profile>>;

/// A queue that was found.
struct Found {
    interface: String,
    queue: u32,
    napi: u32,
}

/// Runs `apus moderate`.
pub fn run(typed: &Moderate) -> anyhow::Result<Status> {
    let signals = Signals::hold()?;
    for line in ports::take_back_left_behind(COMMAND)? {
        note(&line);
    }
    let access = Access::live()?;
    let found = queues_of(&access, &typed.interfaces)?;
    let ids: Vec<u32> = found.iter().map(|found| found.napi).collect();
    let watch = Arc::new(NapiWatch::new(&ids)?);
    if let Err(why) = watch.measures_datagrams() {
        note(&format!("UDP is not measured, so only other protocols count for the goal: {why}"));
    }
    let places = places(&access, typed, &found)?;
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
    let mut bounds: Vec<(String, Option<LossBound>)> = Vec::new();
    for ((number, found), actuator) in found.iter().enumerate().zip(actuators) {
        let loss = match bounds.iter().find(|(interface, _)| *interface == found.interface) {
            Some((_, loss)) => *loss,
            None => {
                let loss = loss_bound(&access, typed, &found.interface)?;
                bounds.push((found.interface.clone(), loss));
                loss
            }
        };
        let policy = policy(typed, loss);
        let controller = Controller::new(policy, typed.goal.quantile, Profile::IMMEDIATE);
        let machine = Machine::new(Watched::new(watch.clone(), number), controller, actuator);
        queues.push(Queue::new(found.interface.clone(), found.queue, found.napi, machine, !typed.json));
    }
    let clock = MonotonicClock;
    let began = clock.now();
    let end = typed.duration.map(|duration| began + duration);
    {
        let mut loops: Vec<&mut dyn Poll<Monotonic>> = queues.iter_mut().map(|queue| queue as _).collect();
        run_loops(&mut loops, || clock.now(), |next| wait(&signals, &clock, next, end));
    }
    let lasted = clock.now().since(began).unwrap_or(Nanos::ZERO);
    // The actuators hold the settings too.
    let queues: Vec<_> = queues.into_iter().map(|queue| queue.ended(typed.goal)).collect();
    let restored = steered.map(restore);
    say::result(typed, lasted, queues, restored)
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
fn queues_of(access: &Access, interfaces: &[String]) -> anyhow::Result<Vec<Found>> {
    let mut all: Vec<Found> = Vec::new();
    for interface in interfaces {
        if all.iter().any(|found| found.interface == *interface) {
            continue;
        }
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
        let found =
            |(napi, id): (host::knob::Napi, u32)| Found { interface: interface.clone(), queue: napi.queue, napi: id };
        all.extend(napis.into_iter().map(found));
    }
    Ok(all)
}

/// The settings that are steered: one for each queue, or one for each device.
fn places(access: &Access, typed: &Moderate, found: &[Found]) -> anyhow::Result<Vec<Place>> {
    if typed.place == TypedPlace::Napi {
        let deferral = |found: &Found| Place::Deferral { interface: found.interface.clone(), queue: found.queue };
        return Ok(found.iter().map(deferral).collect());
    }
    let mut places: Vec<Place> = Vec::new();
    for interface in found.iter().map(|found| &found.interface) {
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
fn actuators(shared: &Shared, places: &[Place], found: &[Found]) -> Vec<Any> {
    let mut all: Vec<Any> = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let setter = Setter::new(shared.clone(), number, place.clone());
        match place {
            Place::Device { interface, .. } => {
                let queues = found.iter().filter(|found| found.interface == *interface).count();
                all.extend(Strictest::of(setter, queues).into_iter().map(|one| -> Any { Box::new(one) }));
            }
            Place::Deferral { .. } | Place::Queue { .. } => all.push(Box::new(setter)),
        }
    }
    all
}

fn policy(typed: &Moderate, loss: Option<LossBound>) -> Moderation<Monotonic> {
    match typed.policy {
        Policy::Static(profile) => Moderation::Static(Static::new(profile)),
        Policy::NetDim => {
            let dim = NetDim::new(Direction::Rx, PeriodMode::Eqe, DIM_BEGINS);
            Moderation::NetDim(dim.expect("DIM has five profiles"))
        }
        Policy::Goal => Moderation::Goal(GoalModeration::new(GoalModerationConfig {
            goal: Some(typed.goal),
            direction: Direction::Rx,
            loss,
            limits: Limits { usecs: LONGEST_USECS, usecs_step: 1, frames: 0 },
            remaining: None,
        })),
    }
}

/// The ring, and the rate at which it may fill. `None`, and a note that says so, if one of them is unknown.
fn loss_bound(access: &Access, typed: &Moderate, interface: &str) -> anyhow::Result<Option<LossBound>> {
    /// Size of the shortest Ethernet frame in bytes, with its check sequence (IEEE 802.3-2018, 3.2.7).
    const SHORTEST_FRAME: u64 = 64;
    if typed.policy != Policy::Goal {
        return Ok(None);
    }
    let ring = Rings::new(interface).read(access)?;
    let descriptors = ring.as_ref().and_then(|ring| ring.field("rx")?.parse().ok());
    // A driver that does not know its speed says so by an error, or by -1.
    let speed = access.number(&format!("/sys/class/net/{interface}/speed")).ok().flatten();
    let line = speed.map(|megabits| BitRate::new(megabits * 1_000_000).frames_of(SHORTEST_FRAME));
    let why = match (descriptors, typed.peak_rate.or(line)) {
        (Some(descriptors), Some(peak)) => return Ok(Some(LossBound { descriptors, peak })),
        (None, _) => "its driver does not report how large its ring is",
        (_, None) => "its driver does not report a line rate; state --peak-rate",
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

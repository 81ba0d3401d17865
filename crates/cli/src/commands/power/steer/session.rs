//! The controlled CPUs, from the first frequency request until all settings are restored.
//!
//! ```text
//!   begin ──► publish ──► the CPUs' loops ──┬── each second: look at the idle limits, publish ──┐
//!                           ▲               │                                                   │
//!                           └───────────────┼───────────────────────────────────────────────────┘
//!                                           └── a signal, the end, no CPU left ──► restore, result
//! ```

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use host::knob::Access;
use live::os::Signals;
use policy::frequency::PStates;
use policy::frequency::outside::packets::PacketCost;
use policy::frequency::outside::{
    Fixed, Goal as GoalPolicy, GoalConfig, L3fwdPower, Outside, TimeOfDay, Transition, TwoLevel,
};
use steer::frequency::nic::NicSensor;
use steer::frequency::{Judge, Pace};
use steer::{Machine, Poll, run as run_loops};
use tester::clock::{MonotonicClock, TrialClock as _};
use tester::document::Name;
use units::{Hertz, Instant, Monotonic, Nanos};

use super::controls::Controls;
use super::core::{AnySensor, Clock, Core, time_of_day};
use super::hand::{Hand, Site};
use super::instance::Workers;
use super::note;
use super::shared::Need;
use super::targets::{Domains, Source, sources};
use crate::Failure;
use crate::args::power::steer::{Goal, Policy, PowerSteer};
use crate::commands::published::Published;
use crate::documents::VERSION;
use crate::documents::power_steer::{Document, Domain, SCHEMA};

/// Time between two publications of the state.
const PUBLISH_EVERY: Nanos = Nanos::from_secs(1);

/// The controlled CPUs, and the settings to restore at the end.
pub(super) struct Session<'a> {
    typed: &'a PowerSteer,
    goal: Goal,
    transition: Transition,
    cores: Vec<Core>,
    controls: Controls,
    began: Instant<Monotonic>,
}

/// Why the loops of the CPUs stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wake {
    /// The state must be published.
    Publish,
    /// A signal has arrived, the duration is over, or no CPU is left to control.
    End,
}

impl<'a> Session<'a> {
    /// Records the original settings, and starts to control the CPUs.
    pub(super) fn begin(typed: &'a PowerSteer, access: &Access) -> anyhow::Result<Self> {
        let domains = match typed.through_host {
            Some(_) => None,
            None => Some(Domains::read(access)?),
        };
        let (sources, goal) = sources(typed)?;
        if typed.uncore && sources.values().any(|source| matches!(source, Source::Nothing)) {
            let why = format!("with the policy {}, the command does not watch the load of the CPUs", typed.policy);
            let fix = "use a policy that watches the load (--policy goal), or omit --uncore";
            return Err(Failure::wrong("cannot control the uncore frequency", why, fix).into());
        }
        let cpus: Vec<u32> = sources.keys().copied().collect();
        let domains = domains.map(|domains| domains.of(typed, &cpus)).transpose()?;
        let transition = Transition { sequencing: typed.settling, stall: typed.stall };
        let (controls, hands) = Controls::take(typed, access, domains.as_ref(), &cpus)?;
        let policies = hands.iter().map(|hand| policy(typed, goal, transition, hand)).collect::<Result<Vec<_>, _>>();
        let policies = match policies {
            Ok(policies) => policies,
            Err(failure) => {
                drop(hands);
                controls.give_back(|| false);
                return Err(failure.into());
            }
        };
        let mut cores = Vec::new();
        for (((cpu, source), hand), policy) in sources.into_iter().zip(hands).zip(policies) {
            let asks_time = matches!(typed.policy, Policy::Clock(_));
            let (sensor, judge, watches): (AnySensor, _, _) = match source {
                Source::Workers(readers) => {
                    let names = readers.iter().map(|reader| {
                        let id = reader.snapshot().identity;
                        format!("{}/{}", id.instance, id.worker)
                    });
                    let names = names.collect::<Vec<_>>().join(", ");
                    let latency = match goal {
                        Goal::Latency(goal) => Some(goal),
                        Goal::Busy(_) => None,
                    };
                    (Box::new(Workers::new(readers, latency)), Judge::Loop, Some(names))
                }
                Source::Nic(counted, shown) => {
                    let sensor = NicSensor::new(counted);
                    let sensor = if asks_time { sensor.with_time_of_day(time_of_day) } else { sensor };
                    (Box::new(sensor), Judge::Packets(PacketCost::default()), Some(shown))
                }
                Source::Branches(sensor, judge, shown) => (Box::new(sensor), judge, Some(shown)),
                Source::Nothing => (Box::new(Clock), Judge::Nothing, None),
            };
            let pace = Pace::new(policy, judge, hand.in_force());
            cores.push(Core::new(cpu, watches, Machine::new(sensor, pace, hand), !typed.json));
        }
        let session = Self { typed, goal, transition, cores, controls, began: MonotonicClock.now() };
        if !typed.json {
            session.announce();
        }
        Ok(session)
    }

    /// Prints what is controlled, because the next line comes only when something changes, and the predicted cost of
    /// a frequency change.
    fn announce(&self) {
        let each = |core: &Core| match &core.watches {
            Some(watches) => format!("CPU {} ({watches})", core.cpu),
            None => format!("CPU {}", core.cpu),
        };
        let cores = self.cores.iter().map(each).collect::<Vec<_>>().join(", ");
        let goal = match self.typed.policy {
            Policy::Goal => format!(" and the goal {}", self.goal),
            _ => String::new(),
        };
        let what =
            if self.typed.dry_run { "only shows what it would request for" } else { "controls the frequency of" };
        note(&format!("{what} {cores}, with the policy {}{goal}; prints a line at each change", self.typed.policy));
        let quantile = match self.goal {
            Goal::Latency(goal) => Some(goal.quantile),
            Goal::Busy(_) => None,
        };
        let patience = self.transition.patience(quantile);
        note(&format!(
            "a frequency change takes up to {} and stalls the core for {}, so changes are at least {patience} apart, and stalls take at most {:.2} % of the time",
            self.transition.settling(),
            self.transition.stall,
            self.transition.share_ppm(1, patience) as f64 / 1e4
        ));
    }

    /// Controls the CPUs until a signal arrives, the duration is over, or no CPU is left to control.
    pub(super) fn run(mut self, signals: &Signals) -> Document {
        let clock = MonotonicClock;
        let end = self.typed.duration.map(|duration| self.began + duration);
        let mut published = Published::below(&self.typed.root);
        let mut publish = |session: &Self| {
            published.publish(&session.document(session.lasted())).into_iter().for_each(|failed| note(&failed));
        };
        publish(&self);
        let mut next = self.began + PUBLISH_EVERY;
        while self.steer(signals, next, end) == Wake::Publish {
            next = clock.now() + PUBLISH_EVERY;
            self.cores.iter_mut().for_each(Core::end_second);
            let need = self.take_needed();
            let is_turbo_off = self.controls.second(need);
            self.cores.iter_mut().for_each(|core| core.allow_turbo(!is_turbo_off));
            publish(&self);
        }
        let lasted = self.lasted();
        self.end(lasted, || signals.wait(Duration::ZERO).is_some())
    }

    /// Runs the loops of the CPUs until the state must be published at `next`, or until the end.
    fn steer(&mut self, signals: &Signals, next: Instant<Monotonic>, end: Option<Instant<Monotonic>>) -> Wake {
        let clock = MonotonicClock;
        let stop = end.map_or(next, |end| end.min(next));
        // The loops also stop when none of them is left.
        let wake = Cell::new(Wake::End);
        let wait = |due: Instant<Monotonic>| {
            let left = due.min(stop).since(clock.now()).unwrap_or(Nanos::ZERO);
            if signals.wait(Duration::from_nanos(left.as_nanos())).is_some() {
                return ControlFlow::Break(());
            }
            let now = clock.now();
            if now < stop {
                return ControlFlow::Continue(());
            }
            if end.is_none_or(|end| now < end) {
                wake.set(Wake::Publish);
            }
            ControlFlow::Break(())
        };
        let mut loops: Vec<&mut dyn Poll<Monotonic>> = self.cores.iter_mut().map(|core| core as _).collect();
        run_loops(&mut loops, || clock.now(), wait);
        wake.get()
    }

    /// Which shared settings the CPUs have needed since the last call.
    fn take_needed(&mut self) -> Need {
        let controlled = self.cores.iter_mut().filter(|core| !core.is_lost());
        controlled.map(Core::take_needed).fold(Need::default(), Need::or)
    }

    fn lasted(&self) -> Nanos {
        MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO)
    }

    /// Restores all settings, and returns the results. Waiting for the host ends early if `stop` returns true.
    fn end(self, lasted: Nanos, stop: impl Fn() -> bool) -> Document {
        let mut document = self.document(lasted);
        drop(self.cores);
        // The loops have ended, so nothing else holds the settings.
        document.restored = self.controls.give_back(stop);
        document
    }

    /// The state after the time `lasted`, before anything is restored.
    fn document(&self, lasted: Nanos) -> Document {
        let allowed = match self.goal {
            Goal::Latency(goal) => Some(goal.quantile.above_ppm()),
            Goal::Busy(_) => None,
        };
        let idle = |number, core: &Core| {
            let (limit, here) = self.controls.idle.as_ref()?.of(number);
            let is_host = self.typed.through_host.is_some();
            Some((limit, if is_host { core.hand().idle_trouble() } else { here }))
        };
        let cpus = self.cores.iter().enumerate().map(|(number, core)| core.document(allowed, idle(number, core)));
        let mut domains: Vec<Domain> = Vec::new();
        for core in &self.cores {
            let Site { domain, cpus, driver, via } = core.hand().site();
            if domains.iter().any(|known| known.domain == domain) {
                continue;
            }
            let changes = core.hand().changes();
            domains.push(Domain {
                domain,
                cpus,
                driver,
                via: Name::of(&via),
                changes,
                changes_per_second: changes as f64 * 1e9 / lasted.as_nanos().max(1) as f64,
                stall_ratio: self.transition.share_ppm(changes, lasted) as f64 / 1e6,
            });
        }
        let goal = (self.typed.policy == Policy::Goal).then(|| self.goal.to_string());
        Document {
            apus: VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            dry_run: self.typed.dry_run,
            duration_ns: lasted.as_nanos(),
            policy: self.typed.policy.to_string(),
            goal,
            change_ns: self.transition.settling().as_nanos(),
            stall_ns: self.transition.stall.as_nanos(),
            cpus: cpus.collect(),
            domains,
            shared: self.controls.shared.documents(lasted),
            restored: None,
        }
    }
}

/// Creates the policy of a CPU.
fn policy(typed: &PowerSteer, goal: Goal, transition: Transition, hand: &Hand) -> Result<Outside<Monotonic>, Failure> {
    let pstates = hand.pstates();
    let (busy_ppm, latency) = match goal {
        Goal::Latency(goal) => (policy::frequency::outside::HIGHEST_BUSY_PPM, Some(goal)),
        Goal::Busy(ppm) => (ppm, None),
    };
    Ok(match &typed.policy {
        Policy::Goal => Outside::Goal(GoalPolicy::new(GoalConfig { pstates, transition, busy_ppm, latency })),
        Policy::TwoLevel => Outside::TwoLevel(TwoLevel::new(&pstates)),
        Policy::L3fwdPower => Outside::L3fwdPower(L3fwdPower::new(pstates)),
        Policy::Fixed(frequency) => Outside::Fixed(Fixed(within(*frequency, &pstates, hand)?)),
        Policy::Clock(slots) => {
            for slot in slots {
                within(slot.frequency, &pstates, hand)?;
            }
            let now = time_of_day().unwrap_or(Nanos::ZERO);
            let day = TimeOfDay::new(slots, now).ok_or_else(|| {
                Failure::wrong(
                    "cannot use the policy",
                    "its times are not in ascending order",
                    "list them in ascending order",
                )
            })?;
            Outside::TimeOfDay(day)
        }
    })
}

/// Fails if the CPU cannot run at this frequency. Says so if it runs at the next higher one instead.
fn within(frequency: Hertz, pstates: &PStates, hand: &Hand) -> Result<Hertz, Failure> {
    let cpus = hand.site().cpus;
    if (pstates.lowest()..=pstates.highest()).contains(&frequency) {
        if let Some(next) = pstates.at_least(frequency).filter(|next| *next != frequency) {
            note(&format!("CPUs {cpus} have no frequency {frequency}: they run at the next higher one, {next}"));
        }
        return Ok(frequency);
    }
    let why = format!("CPUs {cpus} run at {} to {}", pstates.lowest(), pstates.highest());
    Err(Failure::wrong(format!("cannot use the frequency {frequency}"), why, "choose a frequency in this range"))
}

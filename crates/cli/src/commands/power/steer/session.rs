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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::knob::{Access, CpuLatency};
use host::transaction::{Steered, Target};
use live::os::Signals;
use policy::frequency::PStates;
use policy::frequency::outside::packets::PacketCost;
use policy::frequency::outside::{
    Fixed, Goal as GoalPolicy, GoalConfig, L3fwdPower, Outside, TimeOfDay, Transition, TwoLevel,
};
use steer::frequency::nic::NicSensor;
use steer::frequency::place::{Core as Hand, Highest, Place, Shared};
use steer::frequency::{Judge, Pace};
use steer::{Machine, Poll, run as run_loops};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Hertz, Instant, Monotonic, Nanos};

use super::core::{AnySensor, Clock, Core, time_of_day};
use super::idle::IdleLimits;
use super::instance::Workers;
use super::targets::{Source, Targets};
use super::{COMMAND, note};
use crate::Failure;
use crate::args::power::steer::{Goal, Policy, PowerSteer};
use crate::commands::published::Published;
use crate::documents::VERSION;
use crate::documents::power_steer::{Document, Domain, SCHEMA};

/// Time between two publications of the state.
const PUBLISH_EVERY: Nanos = Nanos::from_secs(1);
/// How long restoring settings waits for another transaction to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The controlled CPUs, and the settings to restore at the end.
pub(super) struct Session<'a> {
    typed: &'a PowerSteer,
    goal: Goal,
    transition: Transition,
    cores: Vec<Core>,
    idle: Option<IdleLimits>,
    steered: Option<Shared>,
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
        let targets = Targets::find(typed, access)?;
        let goal = targets.goal;
        let transition = Transition { sequencing: typed.settling, stall: typed.stall };
        let settings: Vec<Target> =
            targets.places.iter().flat_map(|place| place.settings().iter().cloned().map(Target::from)).collect();
        let frequencies = settings.len();
        let idle =
            typed.idle_latency.into_iter().flat_map(|_| &targets.cpus).map(|cpu| CpuLatency::new(cpu.cpu).into());
        let settings: Vec<Target> = settings.into_iter().chain(idle).collect();
        let mut steered = match typed.dry_run {
            true => None,
            false => Some(Steered::new(access, "power steer", &settings, COMMAND, VERSION)?),
        };
        let idle = match typed.idle_latency {
            None => None,
            Some(limit) => {
                let cpus = targets.cpus.iter().map(|cpu| cpu.cpu);
                Some(IdleLimits::set(limit, cpus, frequencies, steered.as_mut())?)
            }
        };
        let steered: Option<Shared> = steered.map(|steered| Arc::new(Mutex::new(steered)));
        let mut hands = hands(&targets, access, steered.as_ref());
        let mut cores = Vec::new();
        for cpu in targets.cpus {
            let place = &targets.places[cpu.place];
            let hand =
                hands[cpu.place].pop().ok_or_else(|| anyhow::anyhow!("a domain has fewer actuators than CPUs"))?;
            let policy = policy(typed, goal, transition, place)?;
            let asks_time = matches!(typed.policy, Policy::Clock(_));
            let (sensor, judge, watches): (AnySensor, _, _) = match cpu.source {
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
            cores.push(Core::new(cpu.cpu, watches, Machine::new(sensor, pace, hand), !typed.json));
        }
        let session = Self { typed, goal, transition, cores, idle, steered, began: MonotonicClock.now() };
        if !typed.json {
            session.announce();
        }
        Ok(session)
    }

    /// Prints the predicted cost of a frequency change.
    fn announce(&self) {
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
            if let (Some(idle), Some(steered)) = (&mut self.idle, &self.steered) {
                idle.look(&mut steered.lock().unwrap_or_else(PoisonError::into_inner));
            }
            publish(&self);
        }
        let lasted = self.lasted();
        self.end(lasted)
    }

    /// Runs the loops of the CPUs until the state must be published at `next`, or until the end.
    fn steer(&mut self, signals: &Signals, next: Instant<Monotonic>, end: Option<Instant<Monotonic>>) -> Wake {
        let clock = MonotonicClock;
        let stop = end.map_or(next, |end| end.min(next));
        // The loops also stop when none is left.
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

    fn lasted(&self) -> Nanos {
        MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO)
    }

    /// Restores all settings, and returns the results.
    fn end(self, lasted: Nanos) -> Document {
        let mut document = self.document(lasted);
        let none_left = self.cores.iter().all(Core::is_lost);
        drop(self.cores);
        // The loops are gone, and with them all other holders.
        let steered = self.steered.and_then(|steered| Arc::into_inner(steered)?.into_inner().ok());
        let released = match steered {
            Some(steered) => steered.release_within(PATIENCE),
            None => Ok(None),
        };
        document.restored = match released {
            Ok(None) => None,
            Ok(Some(back)) => {
                if !back.closed {
                    note("not all settings are restored; look at apus tune status, then run apus tune rollback");
                }
                Some(back.closed).filter(|closed| !(*closed && none_left))
            }
            Err(error) => {
                note(&format!("the settings are not restored ({error}); try again with apus tune rollback"));
                Some(false)
            }
        };
        document
    }

    /// The state after this time. Nothing is restored yet.
    fn document(&self, lasted: Nanos) -> Document {
        let allowed = match self.goal {
            Goal::Latency(goal) => Some(goal.quantile.above_ppm()),
            Goal::Busy(_) => None,
        };
        let idle = |number| self.idle.as_ref().map(|idle| idle.of(number));
        let cpus = self.cores.iter().enumerate().map(|(number, core)| core.document(allowed, idle(number)));
        let mut domains: Vec<Domain> = Vec::new();
        for core in &self.cores {
            let Place { domain, way, .. } = core.hand().place();
            if domains.iter().any(|known| known.domain == domain.policy) {
                continue;
            }
            let changes = core.hand().changes();
            domains.push(Domain {
                domain: domain.policy,
                cpus: domain.cpus.to_string(),
                driver: domain.driver,
                via: way.into(),
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
            restored: None,
        }
    }
}

/// The actuators of each domain's CPUs.
fn hands(targets: &Targets, access: &Access, steered: Option<&Shared>) -> Vec<Vec<Hand>> {
    let mut first = 0;
    let each = |(number, place): (usize, &Place)| {
        let cores = targets.cpus.iter().filter(|cpu| cpu.place == number).count();
        let settings = steered.map(|steered| (steered.clone(), first));
        first += place.settings().len();
        Highest::of(place.clone(), access, settings, cores)
    };
    targets.places.iter().enumerate().map(each).collect()
}

/// Creates the policy of a CPU.
fn policy(
    typed: &PowerSteer,
    goal: Goal,
    transition: Transition,
    place: &Place,
) -> Result<Outside<Monotonic>, Failure> {
    let pstates = place.pstates;
    let (busy_ppm, latency) = match goal {
        Goal::Latency(goal) => (policy::frequency::outside::HIGHEST_BUSY_PPM, Some(goal)),
        Goal::Busy(ppm) => (ppm, None),
    };
    Ok(match &typed.policy {
        Policy::Goal => Outside::Goal(GoalPolicy::new(GoalConfig { pstates, transition, busy_ppm, latency })),
        Policy::TwoLevel => Outside::TwoLevel(TwoLevel::new(&pstates)),
        Policy::L3fwdPower => Outside::L3fwdPower(L3fwdPower::new(pstates)),
        Policy::Fixed(frequency) => Outside::Fixed(Fixed(within(*frequency, &pstates, place)?)),
        Policy::Clock(slots) => {
            for slot in slots {
                within(slot.frequency, &pstates, place)?;
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

/// Fails if the frequency domain cannot run at this frequency.
fn within(frequency: Hertz, pstates: &PStates, place: &Place) -> Result<Hertz, Failure> {
    if (pstates.lowest()..=pstates.highest()).contains(&frequency) {
        return Ok(frequency);
    }
    let cpus = &place.domain.cpus;
    let why = format!("CPUs {cpus} run at {} to {}", pstates.lowest(), pstates.highest());
    Err(Failure::wrong(format!("cannot use the frequency {frequency}"), why, "choose a frequency in this range"))
}

//! Measures the platform profile: runs every probe, in several short rounds, so that profiles can be compared.
//!
//! ```text
//!   round 1:  timer  jitter  switch  interrupt  idle  clock  frequency
//!   round 2:  frequency  clock  idle  interrupt  switch  jitter  timer        and back again
//! ```
//! A slow drift affects all probes alike. Each round counts as one sample of a comparison, because the samples within a
//! round are not independent.

use std::collections::BTreeSet;

use units::Nanos;

use crate::clock::Clock;
use crate::frequency::Frequency;
use crate::idle::Idle;
use crate::interrupt::{Interrupt, Wait};
use crate::jitter::{Jitter, Traffic};
use crate::load::Load;
use crate::mark::{Mark, MarkKind};
use crate::measured::{Measured, Name};
use crate::observe::first_line;
use crate::switch::{Switch, Via};
use crate::timer::{Timer, Wait as TimerWait};
use crate::{Control, Error, Probe, place};

/// Default number of rounds: enough to show a difference in a single term when all terms of two profiles are compared.
/// A guest has more than a hundred terms, and a host with several idle states even more; see
/// [`rounds_needed`](crate::compare::rounds_needed).
pub const ROUNDS: u32 = 9;

/// Intervals of the clock_nanosleep timers, in addition to 1 ms, which all kinds of timers use. They cover the lengths
/// of waits that `adaptive` chooses: a core that slept longer wakes later.
const INTERVALS: [Nanos; 4] =
    [Nanos::from_micros(20), Nanos::from_micros(50), Nanos::from_micros(200), Nanos::from_millis(5)];

/// Time that a round takes in addition to its measurements: for creating labs and threads, and for measuring the rate
/// of the clocks.
const AROUND: Nanos = Nanos::from_secs(15);

/// What to measure for a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// CPU to measure.
    pub cpu: usize,
    /// A second CPU, which sends frames and wakes the measured one. `None` leaves out everything that needs a second
    /// CPU.
    pub peer: Option<usize>,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Number of rounds.
    pub rounds: u32,
    /// Duration of each single measurement in a round. At 1 ms per timer activation, at least 368 ms are needed for a
    /// 99th percentile per round.
    pub slice: Nanos,
    /// Name of the load that runs on the host during the measurement, such as `none` or `cpu`. It is only copied to
    /// [`Conditions`](crate::conditions::Conditions).
    pub load: String,
}

impl Plan {
    /// Creates a plan that measures the last CPU of this process, with the first as its peer: nine rounds, half a
    /// second per measurement.
    pub fn new() -> Result<Self, Error> {
        let allowed = place::allowed()?;
        let cpu = allowed.last().copied().unwrap_or(0);
        let peer = allowed.into_iter().find(|other| *other != cpu);
        let slice = Nanos::from_millis(500);
        Ok(Self { cpu, peer, priority: None, rounds: ROUNDS, slice, load: "none".into() })
    }

    /// Returns the probes of one round, in order.
    pub fn probes(&self) -> Vec<(Name, Box<dyn Probe + Sync>)> {
        let (cpu, priority, duration, load) = (self.cpu, self.priority, self.slice, || self.load.clone());
        let mut probes: Vec<(Name, Box<dyn Probe + Sync>)> = Vec::new();
        for wait in TimerWait::ALL {
            probes.push((Name::Timer, Box::new(Timer { priority, duration, wait, load: load(), ..Timer::new(cpu) })));
        }
        for interval in INTERVALS {
            let timer = Timer { priority, duration, interval, load: load(), ..Timer::new(cpu) };
            probes.push((Name::Timer, Box::new(timer)));
        }
        let jitter = Jitter { priority, duration, traffic: Traffic::default(), load: load(), ..Jitter::new(cpu) };
        probes.push((Name::Jitter, Box::new(jitter)));
        let short = duration / 4;
        for via in Via::ALL {
            for peer in [Some(cpu), self.peer].into_iter().flatten() {
                let switch = Switch { priority, duration: short, load: load(), ..Switch::new(cpu, peer, via) };
                probes.push((Name::Switch, Box::new(switch)));
            }
        }
        let senders = |wait: Wait| match wait {
            Wait::Block => vec![self.peer, Some(cpu)],
            _ => vec![self.peer],
        };
        for wait in Wait::ALL {
            for sender in senders(wait).into_iter().flatten() {
                let interrupt = Interrupt { priority, duration, load: load(), ..Interrupt::new(wait, cpu, sender) };
                probes.push((Name::Interrupt, Box::new(interrupt)));
            }
        }
        if !self.loaded() {
            let idle = Idle { priority, duration: short, load: load(), ..Idle::new(cpu, self.peer) };
            probes.push((Name::Idle, Box::new(idle)));
        }
        let cpus = [Some(cpu), self.peer].into_iter().flatten().collect();
        probes.push((Name::Clock, Box::new(Clock { priority, duration: short, load: load(), ..Clock::new(cpus) })));
        let changes = (duration.as_nanos() / Nanos::from_millis(50).as_nanos()).max(2) as u32;
        if !self.loaded() {
            let frequency = Frequency { priority, changes, load: load(), ..Frequency::new(cpu) };
            probes.push((Name::Frequency, Box::new(frequency)));
        }
        probes
    }

    /// Checks that the kernel lets threads run on both CPUs, at the priority.
    fn check(&self) -> Result<(), Error> {
        let cpus: Vec<usize> = [Some(self.cpu), self.peer].into_iter().flatten().collect();
        place::check_with(&cpus, self.priority)
    }

    /// Approximate duration of the whole profile, including idle states, frequencies and the network lab.
    pub fn duration(&self) -> Nanos {
        // Seven timers, jitter, five interrupts, six switches, and eleven idle times of a quarter slice each. Creating
        // labs and waiting takes as much time again.
        (self.slice * 24 + AROUND) * u64::from(self.rounds)
    }

    /// The probes that the profile leaves out, each with the reason.
    fn left_out(&self) -> Vec<(Name, String)> {
        let mut out = Vec::new();
        if self.peer.is_none() {
            let alone = |what: &str| format!("{what}: this process may use only one CPU");
            out.push((Name::Switch, alone("between two CPUs")));
            out.push((Name::Interrupt, alone("to a CPU other than the sender's")));
            out.push((Name::Idle, alone("woken by another CPU")));
        }
        if self.loaded() {
            let why = |what: &str| format!("the load would disturb what it measures: {what}");
            out.push((Name::Idle, why("a sleeping CPU")));
            out.push((Name::Frequency, why("the duration of a known piece of work")));
        }
        out
    }

    fn loaded(&self) -> bool {
        self.load != Load::None.to_string()
    }
}

/// A platform profile: the results of all probes on one host.
#[derive(Debug)]
pub struct Platform {
    /// Number of completed rounds.
    pub rounds: u32,
    /// The results of each probe and variant, merged over all rounds.
    pub measured: Vec<Measured>,
    /// What could not be measured on this host, and why.
    pub missing: Vec<(Name, String)>,
    /// The error that ended the measurement early: a probe could not restore the host's settings, and everything that
    /// is measured after that is measured with other settings. `None` if there was none.
    pub ended_by: Option<Error>,
}

/// Measures the profile. Probes that fail are left out of later rounds, and listed in [`Platform::missing`].
pub fn run(plan: &Plan, control: &Control) -> Result<Platform, Error> {
    plan.check()?;
    Ok(rounds(plan, &plan.probes(), control))
}

fn rounds(plan: &Plan, probes: &[(Name, Box<dyn Probe + Sync>)], control: &Control) -> Platform {
    let mut platform = Platform { rounds: 0, measured: Vec::new(), missing: plan.left_out(), ended_by: None };
    let mut failed: BTreeSet<usize> = BTreeSet::new();
    for round in 0..plan.rounds {
        let order: Vec<usize> =
            if round % 2 == 0 { (0..probes.len()).collect() } else { (0..probes.len()).rev().collect() };
        for index in order {
            if control.stopped() {
                return platform;
            }
            if failed.contains(&index) {
                continue;
            }
            let (name, probe) = &probes[index];
            control.say(format!("round {} of {}: {name}", round + 1, plan.rounds));
            match probe.run(control) {
                Ok(measured) => {
                    // An interrupted measurement is left out, because it is not comparable.
                    if !measured.interrupted {
                        merge_into(&mut platform.measured, measured);
                    }
                }
                Err(error) => {
                    let missing = (*name, first_line(&error));
                    if !platform.missing.contains(&missing) {
                        platform.missing.push(missing);
                    }
                    failed.insert(index);
                    if matches!(error, Error::NotRestored { .. }) {
                        platform.ended_by = Some(error);
                        return platform;
                    }
                }
            }
        }
        platform.rounds += 1;
    }
    platform.measured.sort_by(|a, b| (a.probe, &a.variant).cmp(&(b.probe, &b.variant)));
    platform
}

/// Adds a round to the earlier ones of the same probe and variant.
fn merge_into(all: &mut Vec<Measured>, round: Measured) {
    match all.iter_mut().find(|of| of.probe == round.probe && of.variant == round.variant) {
        Some(of) => {
            if let Err(error) = of.merge(&round) {
                of.marks.push(Mark::new(MarkKind::Suspect, format!("a round could not be added: {error}")));
            }
        }
        None => all.push(round),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_every_probe_and_one_cpu_is_enough() {
        let plan = Plan { peer: Some(0), cpu: 1, ..Plan::new().unwrap() };
        let names: BTreeSet<Name> = plan.probes().iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), 7, "{names:?}");
        let alone = Plan { peer: None, ..plan };
        assert!(alone.probes().iter().filter(|(name, _)| *name == Name::Interrupt).count() == 1);
        assert!(alone.probes().iter().filter(|(name, _)| *name == Name::Switch).count() == 3);
        let missing: Vec<Name> = alone.left_out().into_iter().map(|(name, _)| name).collect();
        assert_eq!(missing, [Name::Switch, Name::Interrupt, Name::Idle]);
    }

    #[test]
    fn under_a_load_neither_idleness_nor_frequency_is_measured() {
        let plan = Plan { peer: Some(0), cpu: 1, load: Load::Cpu.to_string(), ..Plan::new().unwrap() };
        let missing: Vec<Name> = plan.left_out().into_iter().map(|(name, _)| name).collect();
        assert_eq!(missing, [Name::Idle, Name::Frequency]);
        assert!(plan.probes().iter().all(|(name, _)| !missing.contains(name)));
    }

    #[test]
    fn a_run_that_was_stopped_before_is_empty() {
        let control = Control::new(None);
        control.stop();
        let platform = run(&Plan::new().unwrap(), &control).unwrap();
        assert_eq!((platform.rounds, platform.measured.len()), (0, 0));
    }

    #[test]
    fn a_cpu_or_peer_that_cannot_be_used_is_an_error_at_once() {
        let plan = Plan::new().unwrap();
        let control = Control::new(None);
        for wrong in [Plan { cpu: 5000, ..plan.clone() }, Plan { peer: Some(5000), ..plan.clone() }] {
            assert!(run(&wrong, &control).unwrap_err().lacks(), "{wrong:?}");
        }
        assert!(matches!(run(&Plan { peer: Some(plan.cpu), ..plan }, &control), Err(Error::Invalid { .. })));
    }

    #[test]
    fn probes_that_fail_leave_what_the_others_measured() {
        let control = Control::new(None);
        let (cpu, short) = (place::allowed().unwrap()[0], Nanos::from_millis(20));
        let timer: Box<dyn Probe + Sync> = Box::new(Timer { duration: short, ..Timer::new(cpu) });
        // This one is refused as wrong use.
        let jitter: Box<dyn Probe + Sync> = Box::new(Jitter { gap_over: Nanos::ZERO, ..Jitter::new(cpu) });
        let plan = Plan { cpu, peer: None, rounds: 2, ..Plan::new().unwrap() };
        let probes = [(Name::Timer, timer), (Name::Jitter, jitter)];
        // In a thread of its own, because the probes move the calling thread.
        let platform = std::thread::scope(|scope| scope.spawn(|| rounds(&plan, &probes, &control)).join().unwrap());
        assert_eq!((platform.rounds, platform.measured.len()), (2, 1));
        assert_eq!(platform.measured[0].terms[0].rounds.len(), 2);
        assert!(platform.missing.iter().any(|(name, why)| *name == Name::Jitter && why.contains("--gap-over")));
        assert!(platform.ended_by.is_none());
    }
}

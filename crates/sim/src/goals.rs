//! Which way of waiting holds a latency goal with the least power?
//!
//! One core forwards shortest frames that come at random (Poisson), on named machines, at several loads. What
//! Apus does (`adaptive` with the frequency policy `goal`) stands beside what others do, each with the
//! frequency that its users give it:
//!
//! | way | waits | frequency |
//! | --- | --- | --- |
//! | `poll` | never | base |
//! | `l3fwd-power` | polls, pauses, then the interrupt ([`Hybrid300`](policy::wait::Hybrid300)) | its own scheme |
//! | `backoff` | sleeps, up to a maximum ([`Backoff`](policy::wait::Backoff)) | base |
//! | `interrupt` | blocks at the first empty poll | base |
//! | `adaptive` | as the goal allows | as the goal allows |
//!
//! `backoff` is tried with several maxima, as its users would find the one that suits their goal.
//!
//! All ways get the same frames, to the nanosecond, and the same host: a FIFO thread on an isolated core, no
//! moderation, rings of 4,096 descriptors (the most that drivers of the 82599, X540 and XL710 take), descriptors
//! written back at once (on the XL710 they wait up to 32 us unless that is set: Intel 637284-001US, A.9), and no idle
//! state below C1, as profiles for latency have it. A goal is held if its quantile of all packets, the lost ones
//! taken as late for ever, is within its bound, and no packet was lost.
//!
//! A plan is a list of [`Run`]s, each a scenario's text of its own; [`Plan::cases`] judges what they gave. Who
//! carries the runs out, on how many threads and in which order, changes nothing.

use std::fmt;

use policy::Goal;
use units::{Microwatts, Nanos, Quantile};

use crate::hw::ModelError;
use crate::machine::{Machine, MachineError};
use crate::outcome::{Outcome, minimum_samples};
use crate::scenario::Scenario;
use crate::strict;
use crate::world;

/// The quantile of all goals.
pub const QUANTILE: Quantile = Quantile::P99_9;
/// The machines: a processor, and a controller of its time.
pub const MACHINES: [(&str, &str); 4] = [
    ("xeon-e5-2699v3", "x540"),
    ("xeon-platinum-8260l", "xl710"),
    ("xeon-platinum-8360y", "xl710"),
    ("xeon-gold-6338n", "82599"),
];
/// The bounds of the goals.
pub const GOALS: [Nanos; 3] = [Nanos::from_micros(20), Nanos::from_micros(50), Nanos::from_micros(100)];
/// The loads, in percent of [`full_rate`].
pub const LOADS: [u64; 4] = [1, 10, 50, 90];
/// The longest sleeps that `backoff` is tried with.
pub const BACKOFFS: [Nanos; 3] = [Nanos::from_micros(20), Nanos::from_micros(50), Nanos::from_micros(100)];
/// The peak that is stated to the policies that ask for one, as a multiple of the mean, but no more than
/// [`full_rate`]. Random arrivals at the rates here come no faster for as long as a ring lasts.
pub const PEAK_FACTOR: u64 = 2;
/// The time that counts for nothing: `l3fwd-power` begins at the base frequency, and goes down by 100 MHz in
/// 100 ms.
pub const WARM_UP: Nanos = Nanos::from_millis(2_000);
/// The time that counts.
pub const DURATION: Nanos = Nanos::from_millis(1_000);

/// A way of waiting with its way of choosing the frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Polls at the base frequency.
    Poll,
    /// As DPDK's l3fwd-power.
    L3fwdPower,
    /// Sleeps at most so long, at the base frequency.
    Backoff(Nanos),
    /// Blocks at the first empty poll, at the base frequency.
    Interrupt,
    /// Ours, for a goal with this bound.
    Adaptive(Nanos),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll => f.write_str("poll"),
            Self::L3fwdPower => f.write_str("l3fwd-power"),
            Self::Backoff(most) => write!(f, "backoff {most}"),
            Self::Interrupt => f.write_str("interrupt"),
            Self::Adaptive(_) => f.write_str("adaptive"),
        }
    }
}

/// What is to be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Names of a processor and of a controller.
    pub machines: Vec<(String, String)>,
    /// Bounds of the goals.
    pub goals: Vec<Nanos>,
    /// Loads in percent of [`full_rate`], from 1 to 100.
    pub loads: Vec<u64>,
    /// The time that counts for nothing.
    pub warm_up: Nanos,
    /// The time that counts.
    pub duration: Nanos,
    /// What all that is random follows from.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            machines: MACHINES.map(|(processor, nic)| (processor.to_owned(), nic.to_owned())).into(),
            goals: GOALS.into(),
            loads: LOADS.into(),
            warm_up: WARM_UP,
            duration: DURATION,
            seed: 1,
        }
    }
}

/// One simulation of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The processor.
    pub machine: String,
    /// The controller.
    pub nic: String,
    /// In percent of [`full_rate`].
    pub load: u64,
    /// Packets a second.
    pub rate_pps: u64,
    /// Who waits, and how.
    pub way: Way,
    /// The scenario, as `apus sim run` takes it.
    pub scenario: String,
}

/// What a run gave.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Packets that arrived.
    pub offered: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Their delay at [`QUANTILE`], lost packets taken as late for ever; `None` if it lies among those, or if
    /// there were too few packets.
    pub latency: Option<Nanos>,
    /// The core's mean power.
    pub power: Microwatts,
    /// The share of time in which the core worked, polled or paused, in parts per million.
    pub busy_ppm: u64,
    /// Times that the core was woken.
    pub wakeups: u64,
    /// Changes of frequency that were carried out.
    pub frequency_changes: u64,
}

impl Measured {
    /// Whether a goal with this bound was held.
    pub fn holds(&self, bound: Nanos) -> bool {
        self.lost == 0 && self.latency.is_some_and(|latency| latency <= bound)
    }
}

/// A machine, a load and a goal: what each way came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The processor.
    pub machine: String,
    /// The controller.
    pub nic: String,
    /// In percent of [`full_rate`].
    pub load: u64,
    /// Packets a second.
    pub rate_pps: u64,
    /// The goal.
    pub goal: Goal,
    /// The ways of others, in the order of [`Way`].
    pub others: Vec<(Way, Measured)>,
    /// Ours.
    pub ours: Measured,
}

impl Case {
    /// Whether ours held the goal.
    pub fn ours_holds(&self) -> bool {
        self.ours.holds(self.goal.latency)
    }

    /// Of the others that held the goal, the one with the least power.
    pub fn best_other(&self) -> Option<&(Way, Measured)> {
        let held = self.others.iter().filter(|(_, measured)| measured.holds(self.goal.latency));
        held.min_by_key(|(_, measured)| measured.power)
    }

    /// Ours holds what any other holds, and with no more power than any of those.
    pub fn is_won(&self) -> bool {
        match self.best_other() {
            Some((_, other)) => self.ours_holds() && self.ours.power <= other.power,
            None => true,
        }
    }
}

/// What one core of a machine forwards at its base frequency, in full bursts, or what the line carries if
/// that is less; packets a second.
pub fn full_rate(machine: &str, nic: &str) -> Result<u64, MachineError> {
    const BURST: u64 = crate::world::user::BURST as u64;
    let (machine, nic) = (Machine::named(machine)?, Machine::named(nic)?);
    let processor = machine.processor()?;
    let cycles = BURST * processor.work.frame.count() + processor.work.burst.count();
    let bears = processor.base.as_hertz() * BURST / cycles.max(1);
    let line = nic.nic()?.link.rate.frames_of(crate::traffic::SHORTEST_FRAME.into()).as_pps();
    Ok(bears.min(line))
}

impl Plan {
    /// All runs: for each machine and load the others, then ours for each goal.
    pub fn runs(&self) -> Result<Vec<Run>, MachineError> {
        let mut runs = Vec::new();
        for (machine, nic) in &self.machines {
            let full = full_rate(machine, nic)?;
            for &load in &self.loads {
                let rate_pps = full * load / 100;
                let peak_pps = (rate_pps * PEAK_FACTOR).min(full);
                for way in self.ways() {
                    let scenario = self.scenario((machine, nic), rate_pps, peak_pps, way);
                    runs.push(Run { machine: machine.clone(), nic: nic.clone(), load, rate_pps, way, scenario });
                }
            }
        }
        Ok(runs)
    }

    fn ways(&self) -> impl Iterator<Item = Way> {
        let others = [Way::Poll, Way::L3fwdPower].into_iter().chain(BACKOFFS.map(Way::Backoff)).chain([Way::Interrupt]);
        others.chain(self.goals.iter().map(|goal| Way::Adaptive(*goal)))
    }

    fn scenario(&self, (machine, nic): (&str, &str), rate_pps: u64, peak_pps: u64, way: Way) -> String {
        let Self { warm_up, duration, seed, .. } = self;
        let goal = match way {
            Way::Adaptive(bound) => {
                format!("\n[goal]\nlatency = \"{QUANTILE}={bound}\"\nloss = \"0%\"\npeak = \"{peak_pps}pps\"\n")
            }
            _ => String::new(),
        };
        let (wait, frequency) = match way {
            Way::Poll => ("wait = \"poll\"".to_owned(), "fixed"),
            Way::L3fwdPower => ("wait = \"hybrid300\"".to_owned(), "l3fwd-power"),
            Way::Backoff(most) => (format!("wait = \"backoff\"\nsleep_max = \"{most}\""), "fixed"),
            Way::Interrupt => ("wait = \"interrupt\"".to_owned(), "fixed"),
            Way::Adaptive(_) => ("wait = \"adaptive\"".to_owned(), "goal"),
        };
        format!(
            "machine = \"{machine}\"\nnic = \"{nic}\"\nseed = {seed}\nwarm_up = \"{warm_up}\"\nduration = \
             \"{duration}\"\n{goal}\n[[traffic]]\nkind = \"poisson\"\nrate = \
             \"{rate_pps}pps\"\n\n[queues]\nrx_descriptors = 4096\ntx_descriptors = 4096\nflush = \"0us\"\n\n[worker]\ndriver = \
             \"user\"\n{wait}\n\n[moderation]\npolicy = \"off\"\n\n[frequency]\npolicy = \
             \"{frequency}\"\n\n[idle]\ndeepest = \"C1\"\n"
        )
    }

    /// Judges what the runs gave, in their order.
    ///
    /// # Panics
    /// If there are not as many results as [`Plan::runs`].
    pub fn cases(&self, runs: &[Run], measured: &[Measured]) -> Vec<Case> {
        assert_eq!(runs.len(), measured.len(), "a result for each run");
        let pairs: Vec<(&Run, &Measured)> = runs.iter().zip(measured).collect();
        let same = |a: &Run, b: &Run| (&a.machine, &a.nic, a.load) == (&b.machine, &b.nic, b.load);
        let mut cases = Vec::new();
        for group in pairs.chunk_by(|(a, _), (b, _)| same(a, b)) {
            let others: Vec<(Way, Measured)> = group
                .iter()
                .filter(|(run, _)| !matches!(run.way, Way::Adaptive(_)))
                .map(|(run, measured)| (run.way, (*measured).clone()))
                .collect();
            for (run, ours) in group {
                let Way::Adaptive(latency) = run.way else { continue };
                cases.push(Case {
                    machine: run.machine.clone(),
                    nic: run.nic.clone(),
                    load: run.load,
                    rate_pps: run.rate_pps,
                    goal: Goal { quantile: QUANTILE, latency },
                    others: others.clone(),
                    ours: (*ours).clone(),
                });
            }
        }
        cases
    }
}

/// Why a run could not be carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// Its scenario is none: the times of the plan are out of range.
    #[error("{0}: give other times")]
    Scenario(strict::Error),
    /// No world could be so.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Run {
    /// A name: machine, load, way.
    pub fn name(&self) -> String {
        match self.way {
            Way::Adaptive(bound) => format!("{} {} % adaptive {bound}", self.machine, self.load),
            way => format!("{} {} % {way}", self.machine, self.load),
        }
    }

    /// Simulates it.
    pub fn carry_out(&self) -> Result<Measured, RunError> {
        let mut no_files = |_: &str| Err("there are no files here".to_owned());
        let scenario = Scenario::parse(&self.name(), &self.scenario, &[], &mut no_files).map_err(RunError::Scenario)?;
        let outcome = world::run(&scenario, None)?;
        Ok(Measured::of(&outcome))
    }
}

impl Measured {
    fn of(outcome: &Outcome) -> Self {
        let (departed, lost) = (outcome.departed(), outcome.lost());
        let core = &outcome.cores[0];
        Self {
            offered: outcome.offered(),
            lost,
            latency: quantile(outcome, departed + lost),
            power: outcome.core_power(),
            busy_ppm: core.busy_ppm(outcome.duration),
            wakeups: core.wakeups,
            frequency_changes: core.frequency_changes,
        }
    }
}

/// [`QUANTILE`] of `packets`, of which those that have no delay were lost.
fn quantile(outcome: &Outcome, packets: u64) -> Option<Nanos> {
    if packets < minimum_samples(QUANTILE) {
        return None;
    }
    let rank = (u128::from(packets) * u128::from(QUANTILE.as_ppm())).div_ceil(1_000_000);
    let mut below = 0;
    outcome.latency.counts().find_map(|(value, count)| {
        below += u128::from(count);
        (below >= rank).then_some(Nanos::from_nanos(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(us: u64, milliwatts: u64, lost: u64) -> Measured {
        Measured {
            offered: 10_000,
            lost,
            latency: Some(Nanos::from_micros(us)),
            power: Microwatts::new(milliwatts * 1_000),
            busy_ppm: 0,
            wakeups: 0,
            frequency_changes: 0,
        }
    }

    fn case(ours: Measured, others: &[Measured]) -> Case {
        Case {
            machine: String::new(),
            nic: String::new(),
            load: 1,
            rate_pps: 1,
            goal: Goal { quantile: QUANTILE, latency: Nanos::from_micros(50) },
            others: others.iter().map(|other| (Way::Poll, other.clone())).collect(),
            ours,
        }
    }

    #[test]
    fn a_case_is_won_by_holding_what_others_hold_with_no_more_power() {
        assert!(case(measured(50, 900, 0), &[measured(5, 900, 0), measured(60, 100, 0)]).is_won());
        assert!(!case(measured(50, 901, 0), &[measured(5, 900, 0)]).is_won(), "more power");
        assert!(!case(measured(51, 100, 0), &[measured(50, 900, 0)]).is_won(), "not held");
        assert!(!case(measured(5, 100, 1), &[measured(5, 900, 0)]).is_won(), "a packet was lost");
        assert!(case(measured(80, 900, 0), &[measured(51, 100, 0), measured(9, 100, 1)]).is_won(), "nobody holds it");
    }

    #[test]
    fn each_machine_has_a_rate_that_its_line_and_its_core_bear() {
        let rates = MACHINES.map(|(machine, nic)| full_rate(machine, nic).unwrap());
        // 10 Gbit/s of 84 octets; 2.4 GHz over 142.5 cycles a frame.
        assert_eq!(rates, [14_880_952, 16_842_105, 16_842_105, 14_880_952]);
    }

    #[test]
    fn a_plan_is_a_list_of_scenarios_and_their_judgement() {
        let plan = Plan {
            machines: vec![("xeon-gold-6338n".into(), "82599".into())],
            goals: vec![Nanos::from_micros(50)],
            loads: vec![1],
            warm_up: Nanos::from_millis(20),
            duration: Nanos::from_millis(60),
            seed: 1,
        };
        let runs = plan.runs().unwrap();
        assert_eq!(runs.len(), 2 + BACKOFFS.len() + 1 + 1);
        let measured: Vec<Measured> = runs.iter().map(|run| run.carry_out().unwrap()).collect();
        let cases = plan.cases(&runs, &measured);
        assert_eq!((cases.len(), cases[0].others.len(), cases[0].rate_pps), (1, 6, 148_809));
        // The same frames for all.
        assert!(cases[0].others.iter().all(|(_, m)| m.offered == cases[0].ours.offered), "{cases:?}");
        let none = Plan { duration: Nanos::ZERO, ..plan };
        let error = none.runs().unwrap()[0].carry_out().unwrap_err().to_string();
        assert!(error.contains("duration") && error.contains("give other times"), "{error}");
    }
}

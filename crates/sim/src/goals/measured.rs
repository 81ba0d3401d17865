//! What a way came to: one run, and its runs with all seeds.

use policy::Goal;
use policy::wait::{Reason, WaitKind};
use units::{Microwatts, Nanos, Quantile};

use super::Way;
use crate::outcome::{Outcome, minimum_samples};

/// What a run gave.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Packets that arrived.
    pub offered: u64,
    /// Those that left or were lost: what a goal's share is of.
    pub packets: u64,
    /// Those that were lost.
    pub lost: u64,
    /// For each bound, the packets that were later, the lost ones included. Delays are known to 0.1 %: one as near to the
    /// bound counts as late.
    pub late: Vec<(Nanos, u64)>,
    /// The delay at each quantile, lost packets taken as late for ever; `None` if it lies among those, or if there were
    /// too few packets.
    pub latency: Vec<(Quantile, Option<Nanos>)>,
    /// The core's mean power.
    pub power: Microwatts,
    /// The share of time in which the core worked, polled or paused, in parts per million.
    pub busy_ppm: u64,
    /// Times that the core was woken.
    pub wakeups: u64,
    /// Changes of frequency that were carried out.
    pub frequency_changes: u64,
    /// Decisions by reason, in [`Reason::ALL`]'s order.
    pub reasons: [u64; Reason::ALL.len()],
    /// Waits by kind, in [`WaitKind::ALL`]'s order, and the time that they took.
    pub waits: [(u64, Nanos); WaitKind::ALL.len()],
}

impl Measured {
    /// What `outcome` says of these goals.
    pub fn of(outcome: &Outcome, goals: &[Goal]) -> Self {
        let (lost, core) = (outcome.lost(), &outcome.cores[0]);
        let packets = outcome.departed() + lost;
        let mut bounds: Vec<Nanos> = goals.iter().map(|goal| goal.latency).collect();
        let mut quantiles: Vec<Quantile> = goals.iter().map(|goal| goal.quantile).collect();
        bounds.sort_unstable();
        bounds.dedup();
        quantiles.sort_unstable();
        quantiles.dedup();
        let late = |bound: Nanos| {
            let within = outcome.latency.counts().take_while(|(value, _)| *value <= bound.as_nanos());
            packets - within.map(|(_, count)| count).sum::<u64>()
        };
        Self {
            offered: outcome.offered(),
            packets,
            lost,
            late: bounds.into_iter().map(|bound| (bound, late(bound))).collect(),
            latency: quantiles.into_iter().map(|quantile| (quantile, at(outcome, quantile, packets))).collect(),
            power: outcome.core_power(),
            busy_ppm: core.busy_ppm(outcome.duration),
            wakeups: core.wakeups,
            frequency_changes: core.frequency_changes,
            reasons: core.reasons,
            waits: core.waits,
        }
    }

    /// Packets later than `bound`.
    ///
    /// # Panics
    /// If the run was not asked about this bound.
    pub fn late(&self, bound: Nanos) -> u64 {
        let found = self.late.iter().find(|(known, _)| *known == bound);
        found.expect("a run counts the late packets of each of its goals").1
    }

    /// The share of packets that were later than `bound`; 0 without packets.
    pub fn late_share(&self, bound: Nanos) -> f64 {
        if self.packets == 0 { 0.0 } else { self.late(bound) as f64 / self.packets as f64 }
    }
}

/// The quantile of `packets`, of which those that have no delay were lost.
fn at(outcome: &Outcome, quantile: Quantile, packets: u64) -> Option<Nanos> {
    if packets < minimum_samples(quantile) {
        return None;
    }
    let rank = (u128::from(packets) * u128::from(quantile.as_ppm())).div_ceil(1_000_000);
    let mut below = 0;
    outcome.latency.counts().find_map(|(value, count)| {
        below += u128::from(count);
        (below >= rank).then_some(Nanos::from_nanos(value))
    })
}

/// A way, and what each seed gave.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// The way.
    pub way: Way,
    /// One run a seed, from the plan's first seed on; at least one. A rival that one seed has ruled out has only that
    /// (see [`super::setting`]).
    pub runs: Vec<Measured>,
}

units::named! {
    /// Whether a way held a goal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Held {
        /// The share of late packets, of all seeds together, is at most the allowed one, and nothing was lost.
        Yes = "yes",
        /// It is above, but the 95 % interval of the share over the seeds reaches down to the allowed one; nothing was lost.
        WithinInterval = "within_interval",
        /// It is above by more than that, or packets were lost.
        No = "no",
        /// All seeds together had fewer packets than the quantile needs ([`minimum_samples`]).
        TooFew = "too_few_packets",
    }
}

impl Tried {
    /// Packets of all seeds.
    pub fn packets(&self) -> u64 {
        self.runs.iter().map(|run| run.packets).sum()
    }

    /// Lost packets of all seeds.
    pub fn lost(&self) -> u64 {
        self.runs.iter().map(|run| run.lost).sum()
    }

    /// Late packets of all seeds.
    pub fn late(&self, bound: Nanos) -> u64 {
        self.runs.iter().map(|run| run.late(bound)).sum()
    }

    /// The share of late packets of all seeds together; 0 without packets.
    pub fn late_share(&self, bound: Nanos) -> f64 {
        if self.packets() == 0 { 0.0 } else { self.late(bound) as f64 / self.packets() as f64 }
    }

    /// The 95 % interval of the share of late packets over the seeds; `None` with one.
    pub fn late_interval(&self, bound: Nanos) -> Option<(f64, f64)> {
        interval(&self.runs.iter().map(|run| run.late_share(bound)).collect::<Vec<_>>())
    }

    /// Whether it held the goal.
    pub fn held(&self, goal: Goal) -> Held {
        let allowed = f64::from(goal.quantile.above_ppm()) / 1e6;
        let above = u128::from(self.late(goal.latency)) * 1_000_000
            > u128::from(self.packets()) * u128::from(goal.quantile.above_ppm());
        if self.packets() < minimum_samples(goal.quantile) {
            Held::TooFew
        } else if self.lost() > 0 {
            Held::No
        } else if !above {
            Held::Yes
        } else if self.late_interval(goal.latency).is_some_and(|(low, _)| low <= allowed) {
            Held::WithinInterval
        } else {
            Held::No
        }
    }

    /// The mean power over the first `seeds` seeds, in microwatts.
    pub fn power(&self, seeds: usize) -> f64 {
        let runs = &self.runs[..seeds.clamp(1, self.runs.len())];
        runs.iter().map(|run| run.power.as_microwatts() as f64).sum::<f64>() / runs.len() as f64
    }

    /// The delay at the quantile, the middle one of the seeds; `None` if that lies among the lost packets or is not known.
    pub fn latency(&self, quantile: Quantile) -> Option<Nanos> {
        let one = |run: &Measured| run.latency.iter().find(|(known, _)| *known == quantile).and_then(|(_, at)| *at);
        let mut all: Vec<Nanos> = self.runs.iter().map(|run| one(run).unwrap_or(Nanos::MAX)).collect();
        all.sort_unstable();
        Some(all[all.len() / 2]).filter(|latency| *latency < Nanos::MAX)
    }
}

/// The 95 % interval of a mean of independent values: mean ± t(n - 1) s / √n. `None` of fewer than two.
///
/// Source: A. M. Law, "Simulation modeling and analysis", 4.5 and 9.4.1 (fixed-sample-size procedure).
pub(super) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let t = STUDENT.get(values.len().checked_sub(2)?).copied()?;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (n - 1.0);
    let half = t * (variance / n).sqrt();
    Some((mean - half, mean + half))
}

/// The most seeds, as far as [`STUDENT`] goes.
pub const MOST_SEEDS: u64 = 31;

/// The 97.5 % quantile of Student's distribution with 1, 2, 3... degrees of freedom. Source: NIST/SEMATECH, "e-Handbook of
/// statistical methods", 1.3.6.7.2.
const STUDENT: [f64; MOST_SEEDS as usize - 1] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

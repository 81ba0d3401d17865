//! The results of Apus or a rival: of one run, and of the runs with all seeds.

use policy::Goal;
use policy::wait::{Reason, WaitKind};
use units::{Microwatts, Nanos, Quantile};

use super::Way;
use crate::outcome::{Activity, Distribution, Outcome, Residency, minimum_samples};

/// The results of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Number of packets that arrived.
    pub offered: u64,
    /// Number of packets that departed or were lost.
    pub packets: u64,
    /// Number of packets that were lost.
    pub lost: u64,
    /// For each latency bound, the number of packets that took longer, including lost and overdue packets. Delays are
    /// recorded to 0.1 %; a packet whose delay cannot be told from the bound at this precision counts as late.
    pub late: Vec<(Nanos, u64)>,
    /// For each latency bound, the number of packets that were still in the system at the window's end although they
    /// had arrived longer ago than the bound.
    pub overdue: Vec<(Nanos, u64)>,
    /// The delay at each quantile. Lost packets, and packets that are overdue at this delay, count as infinitely late.
    /// `None` if the quantile lies among them, or if there were too few packets.
    pub latency: Vec<(Quantile, Option<Nanos>)>,
    /// Mean power of the core.
    pub power: Microwatts,
    /// Share of the time that the core spent working, polling or pausing, in ppm.
    pub busy_ppm: u64,
    /// Number of times the core was woken.
    pub wakeups: u64,
    /// Number of frequency changes that were carried out.
    pub frequency_changes: u64,
    /// Number of decisions per reason, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Number and total time of waits per kind, in the order of [`WaitKind::ALL`].
    pub waits: [(u64, Nanos); WaitKind::ALL.len()],
    /// Time and power of empty polls and pauses.
    pub polling: Spent,
    /// Time and power of work, wake-ups and the stalls of frequency changes.
    pub awake: Spent,
    /// Time and power in idle states.
    pub idle: Spent,
}

/// What a core spent on one kind of activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent {
    /// Time in the activity.
    pub time: Nanos,
    /// The activity's contribution to the core's mean power: its energy divided by the whole measured window.
    pub power: Microwatts,
}

impl Spent {
    /// No time and no power.
    pub const NONE: Self = Self { time: Nanos::ZERO, power: Microwatts::new(0) };

    fn of(outcome: &Outcome, kind: impl Fn(Activity) -> bool) -> Self {
        let book = &outcome.cores[0].book;
        let energy: u128 = book.entries.iter().filter(|e| kind(e.activity)).map(Residency::femtojoules).sum();
        let power = energy / u128::from(outcome.duration.as_nanos().max(1));
        Self { time: book.time_in(kind), power: Microwatts::new(u64::try_from(power).unwrap_or(u64::MAX)) }
    }
}

impl Measured {
    /// Evaluates `outcome` for `goals`.
    pub fn of(outcome: &Outcome, goals: &[Goal]) -> Self {
        let (lost, core) = (outcome.lost(), &outcome.cores[0]);
        let packets = outcome.departed() + lost;
        let mut bounds: Vec<Nanos> = goals.iter().map(|goal| goal.latency).collect();
        let mut quantiles: Vec<Quantile> = goals.iter().map(|goal| goal.quantile).collect();
        bounds.sort_unstable();
        bounds.dedup();
        quantiles.sort_unstable();
        quantiles.dedup();
        let overdue = |bound| above(&outcome.waiting, bound);
        let late = |bound| above(&outcome.latency, bound) + lost + overdue(bound);
        Self {
            offered: outcome.offered(),
            packets,
            lost,
            late: bounds.iter().map(|bound| (*bound, late(*bound))).collect(),
            overdue: bounds.iter().map(|bound| (*bound, overdue(*bound))).collect(),
            latency: quantiles.into_iter().map(|quantile| (quantile, at(outcome, quantile, packets))).collect(),
            power: outcome.core_power(),
            busy_ppm: core.busy_ppm(outcome.duration),
            wakeups: core.wakeups,
            frequency_changes: core.frequency_changes,
            reasons: core.reasons,
            waits: core.waits,
            polling: Spent::of(outcome, |activity| matches!(activity, Activity::Polling | Activity::Pausing)),
            awake: Spent::of(outcome, |activity| {
                matches!(activity, Activity::Working | Activity::Waking | Activity::Stalled)
            }),
            idle: Spent::of(outcome, |activity| matches!(activity, Activity::Idle(_))),
        }
    }

    /// Number of packets later than `bound`.
    ///
    /// # Panics
    /// Panics if the run was not evaluated for this bound.
    pub fn late(&self, bound: Nanos) -> u64 {
        by_bound(&self.late, bound)
    }

    /// Number of packets that are judged by `bound`: those that departed, were lost, or are overdue. The share of late
    /// packets is relative to this number.
    ///
    /// # Panics
    /// Panics if the run was not evaluated for this bound.
    pub fn judged(&self, bound: Nanos) -> u64 {
        self.packets + by_bound(&self.overdue, bound)
    }

    /// Share of the judged packets that were later than `bound`. 0 without packets.
    pub fn late_share(&self, bound: Nanos) -> f64 {
        share(self.late(bound), self.judged(bound))
    }
}

fn by_bound(counts: &[(Nanos, u64)], bound: Nanos) -> u64 {
    let found = counts.iter().find(|(known, _)| *known == bound);
    found.expect("a run counts the late packets of each of its goals").1
}

fn share(late: u64, packets: u64) -> f64 {
    if packets == 0 { 0.0 } else { late as f64 / packets as f64 }
}

/// Number of spans above `bound`.
fn above(spans: &Distribution, bound: Nanos) -> u64 {
    let within = spans.counts().take_while(|(value, _)| *value <= bound.as_nanos());
    spans.count() - within.map(|(_, count)| count).sum::<u64>()
}

/// The delay at `quantile`: the shortest by which all late packets would be at most the share that the quantile allows.
/// `packets` have departed or were lost.
fn at(outcome: &Outcome, quantile: Quantile, packets: u64) -> Option<Nanos> {
    let mut waiting = outcome.waiting.counts().peekable();
    let (mut departed, mut overdue) = (0u64, outcome.waiting.count());
    let found = outcome.latency.counts().find(|(value, count)| {
        departed += count;
        while let Some((_, count)) = waiting.next_if(|(waited, _)| waited <= value) {
            overdue -= count;
        }
        u128::from(departed) * 1_000_000 >= u128::from(packets + overdue) * u128::from(quantile.as_ppm())
    });
    found.filter(|_| packets + overdue >= minimum_samples(quantile)).map(|(value, _)| Nanos::from_nanos(value))
}

/// Apus or a rival, with its results for each seed.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// How Apus or the rival waits and chooses the frequency.
    pub way: Way,
    /// One run per seed, starting with the plan's first seed; at least one. A rival that its first seed ruled out has
    /// only that run (see [`super::setting`]).
    pub runs: Vec<Measured>,
}

units::named! {
    /// Whether Apus or a rival met a goal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Held {
        /// The share of late packets over all seeds is at most the allowed share, and no packet was lost.
        Yes = "yes",
        /// The share of late packets is above the allowed share, but its 95 % interval over the seeds includes the
        /// allowed share. No packet was lost.
        WithinInterval = "within_interval",
        /// The whole 95 % interval of the share of late packets is above the allowed share, or packets were lost.
        No = "no",
        /// All seeds together had fewer packets than the quantile needs ([`minimum_samples`]).
        TooFew = "too_few_packets",
    }
}

impl Tried {
    /// Number of packets that are judged by `bound`, over all seeds.
    pub fn judged(&self, bound: Nanos) -> u64 {
        self.runs.iter().map(|run| run.judged(bound)).sum()
    }

    /// Number of lost packets over all seeds.
    pub fn lost(&self) -> u64 {
        self.runs.iter().map(|run| run.lost).sum()
    }

    /// Number of packets later than `bound`, over all seeds.
    pub fn late(&self, bound: Nanos) -> u64 {
        self.runs.iter().map(|run| run.late(bound)).sum()
    }

    /// Share of packets later than `bound`, over all seeds. 0 without packets.
    pub fn late_share(&self, bound: Nanos) -> f64 {
        share(self.late(bound), self.judged(bound))
    }

    /// The 95 % interval over the seeds of the share of packets later than `bound`. `None` with one seed.
    pub fn late_interval(&self, bound: Nanos) -> Option<(f64, f64)> {
        interval(&self.runs.iter().map(|run| run.late_share(bound)).collect::<Vec<_>>())
    }

    /// Whether the goal was met.
    pub fn held(&self, goal: Goal) -> Held {
        let allowed = f64::from(goal.quantile.above_ppm()) / 1e6;
        let packets = self.judged(goal.latency);
        let above = u128::from(self.late(goal.latency)) * 1_000_000
            > u128::from(packets) * u128::from(goal.quantile.above_ppm());
        if packets < minimum_samples(goal.quantile) {
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

    /// Mean power over the first `seeds` seeds, in microwatts.
    pub fn power(&self, seeds: usize) -> f64 {
        let runs = &self.runs[..seeds.clamp(1, self.runs.len())];
        runs.iter().map(|run| run.power.as_microwatts() as f64).sum::<f64>() / runs.len() as f64
    }

    /// The median over the seeds of the delay at `quantile`. `None` if the median lies among the lost packets or is not
    /// known.
    pub fn latency(&self, quantile: Quantile) -> Option<Nanos> {
        let one = |run: &Measured| run.latency.iter().find(|(known, _)| *known == quantile).and_then(|(_, at)| *at);
        let mut all: Vec<Nanos> = self.runs.iter().map(|run| one(run).unwrap_or(Nanos::MAX)).collect();
        all.sort_unstable();
        Some(all[all.len() / 2]).filter(|latency| *latency < Nanos::MAX)
    }
}

/// The 95 % interval of a mean of independent values: mean ± t(n - 1) s / √n. `None` if there are fewer than two.
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

/// The maximum number of seeds; [`STUDENT`] has no entries beyond it.
pub const MOST_SEEDS: u64 = 31;

/// The 97.5 % quantile of Student's distribution with 1, 2, 3... degrees of freedom. Source: NIST/SEMATECH, "e-Handbook
/// of statistical methods", 1.3.6.7.2.
const STUDENT: [f64; MOST_SEEDS as usize - 1] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

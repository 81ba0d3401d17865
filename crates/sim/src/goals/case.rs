//! A case: one goal in one setting, and whether Apus or a rival did better.
//!
//! | verdict | Apus | rivals that meet the goal |
//! | --- | --- | --- |
//! | [`Won`](Verdict::Won) | meets the goal | none, or each draws over 1 % more power than Apus |
//! | [`Tied`](Verdict::Tied) | meets the goal | at least one draws less than that, but none beats Apus |
//! | [`Lost`](Verdict::Lost) | meets the goal | one draws over 1 % less power at its own settings |
//! | [`LostToTuned`](Verdict::LostToTuned) | meets the goal | one tuned in hindsight draws over 5 % less power |
//! | [`Missed`](Verdict::Missed) | misses the goal | at least one |
//! | [`Nobody`](Verdict::Nobody) | misses the goal | none |
//! | [`TooFew`](Verdict::TooFew) | had too few packets for a verdict | |
//!
//! **Meets the goal** means [`Held::Yes`] or [`Held::WithinInterval`] for Apus, and [`Held::Yes`] for a rival. Apus
//! steers towards a share of late packets close to the allowed one, so by chance some of its runs end slightly above
//! the allowed share. Rivals do not steer towards it, so they get no such tolerance. [`Case::is_marginal`] says whether
//! the tolerance made a difference. A lost packet counts as late, and so does a packet that the window's end found
//! overdue. The goals here allow no loss, so a single lost packet also breaks the goal.
//!
//! Apus and a rival are compared by their mean power over the seeds for which both were run.

use std::sync::Arc;

use policy::Goal;
use policy::wait::{AIM_EIGHTHS, Mode};
use units::{Microwatts, Nanos, PacketRate};

use super::measured::{Spent, interval};
use super::{Held, Measured, Setting, Tried};

/// Powers count as equal if they differ by at most this fraction.
pub const TIE: f64 = 0.01;
/// A rival tuned in hindsight beats Apus only if Apus draws over this fraction more power than the rival. The tuned
/// rival has an unfair advantage: its frequency was chosen after the traffic was known.
pub const TUNED: f64 = 0.05;
/// Apus aims at this share of the late packets that the goal allows.
const AIM: f64 = AIM_EIGHTHS as f64 / 8.0;

/// A setting and a goal, with the results of Apus and all rivals.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The machine, the traffic and the load.
    pub setting: Arc<Setting>,
    /// The latency goal by which Apus and the rivals are judged.
    pub goal: Goal,
    /// The peak rate that Apus was told. `None` if it was told none.
    pub peak: Option<PacketRate>,
    /// The rivals' results.
    pub others: Arc<Vec<Tried>>,
    /// The result of `adaptive` with this goal.
    pub ours: Tried,
    /// The result of Apus in its first second, which is not part of any other result. `None` if it was not requested.
    pub first_second: Option<Tried>,
    /// The minimum power needed to meet the goal by a policy that knows all arrivals in advance. `None` if it was not
    /// computed.
    pub bound: Option<Microwatts>,
    /// Time to fill the receive ring at the highest packet rate that Apus assumes. Apus never sleeps longer than this.
    pub ring: Nanos,
}

units::named! {
    /// The verdict on a case.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Verdict {
        /// Apus misses a goal that a rival meets.
        Missed = "missed",
        /// A rival at its own settings meets the goal with over 1 % less power.
        Lost = "lost",
        /// A rival at a frequency chosen in hindsight meets the goal with over 5 % less power.
        LostToTuned = "lost_to_tuned",
        /// Apus and the best rival meet the goal with about the same power.
        Tied = "tied",
        /// Apus meets the goal with over 1 % less power than any rival, or is the only one that meets it.
        Won = "won",
        /// Neither Apus nor any rival meets the goal.
        Nobody = "nobody_holds",
        /// There were too few packets for a verdict.
        TooFew = "too_few_packets",
    }
}

units::named! {
    /// Why a rival meets the goal with less power. The last four say in which activity the power of Apus exceeds the
    /// rival's most.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Because {
        /// The rival sleeps, or has its interrupts delayed, for longer than the receive ring takes to fill at the
        /// highest packet rate, so it would lose packets at that rate.
        Ring = "ring",
        /// The rival's share of late packets is higher than the one Apus aims at.
        Lateness = "lateness",
        /// Apus polls more, or at a higher frequency.
        Polling = "polling",
        /// Apus spends more time waking up and working.
        Awake = "awake",
        /// Apus works and wakes up at a higher frequency.
        Frequency = "frequency",
        /// Apus draws more power while it is idle: its idle states are less deep.
        Idle = "idle",
    }
}

impl Verdict {
    /// Whether Apus did worse than a rival.
    pub const fn is_beaten(self) -> bool {
        matches!(self, Self::Missed | Self::Lost | Self::LostToTuned)
    }
}

impl Case {
    /// Whether Apus met the goal, including [`Held::WithinInterval`].
    pub fn ours_holds(&self) -> bool {
        matches!(self.ours.held(self.goal), Held::Yes | Held::WithinInterval)
    }

    /// Whether Apus counts as meeting the goal only because its 95 % interval over the seeds includes the allowed
    /// share.
    pub fn is_marginal(&self) -> bool {
        self.ours.held(self.goal) == Held::WithinInterval
    }

    /// The rival with the lowest power, relative to Apus, among those that met the goal. If `tuned` is true, only
    /// rivals tuned in hindsight are considered; if false, only rivals at their own settings. `None` if none of them
    /// met the goal.
    pub fn best(&self, tuned: bool) -> Option<&Tried> {
        let held =
            self.others.iter().filter(|other| other.way.is_tuned() == tuned && other.held(self.goal) == Held::Yes);
        held.max_by(|a, b| self.ratio(a).total_cmp(&self.ratio(b)))
    }

    /// The rival with the lowest power, relative to Apus, among all rivals that met the goal. `None` if none did.
    pub fn best_of_all(&self) -> Option<&Tried> {
        [self.best(false), self.best(true)].into_iter().flatten().max_by(|a, b| self.ratio(a).total_cmp(&self.ratio(b)))
    }

    /// The power of Apus as a multiple of the power of `other`, over the seeds for which both were run.
    pub fn ratio(&self, other: &Tried) -> f64 {
        let seeds = other.runs.len();
        self.ours.power(seeds) / other.power(seeds).max(1.0)
    }

    /// The 95 % interval of [`Self::ratio`] over the seeds. `None` with one seed.
    pub fn ratio_interval(&self, other: &Tried) -> Option<(f64, f64)> {
        let power = |run: &Measured| run.power.as_microwatts() as f64;
        let pairs = self.ours.runs.iter().zip(&other.runs);
        interval(&pairs.map(|(ours, other)| power(ours) / power(other).max(1.0)).collect::<Vec<_>>())
    }

    /// The verdict on this case.
    pub fn verdict(&self) -> Verdict {
        let of = |best: Option<&Tried>| best.map(|best| self.ratio(best));
        let (own, tuned) = (of(self.best(false)), of(self.best(true)));
        if self.ours.held(self.goal) == Held::TooFew {
            return Verdict::TooFew;
        }
        if !self.ours_holds() {
            return if own.is_some() || tuned.is_some() { Verdict::Missed } else { Verdict::Nobody };
        }
        if own.is_some_and(|ratio| ratio > 1.0 + TIE) {
            Verdict::Lost
        } else if tuned.is_some_and(|ratio| ratio > 1.0 + TUNED) {
            Verdict::LostToTuned
        } else if [own, tuned].into_iter().flatten().any(|ratio| ratio >= 1.0 - TIE) {
            Verdict::Tied
        } else {
            Verdict::Won
        }
    }

    /// The rival to which the verdict refers: the one that beats Apus, or else the best of those that meet the goal.
    /// `None` if no rival meets it.
    pub fn rival(&self) -> Option<&Tried> {
        match self.verdict() {
            Verdict::Lost => self.best(false),
            Verdict::LostToTuned => self.best(true),
            // Apus missed the goal, so power does not decide. A rival that needs no hindsight says more.
            Verdict::Missed => self.best(false).or_else(|| self.best(true)),
            _ => self.best_of_all(),
        }
    }

    /// Why Apus draws more power than the rival. `None` unless the verdict is [`Verdict::Lost`] or
    /// [`Verdict::LostToTuned`].
    pub fn because(&self) -> Option<Because> {
        type Part = fn(&Measured) -> Spent;
        let rival = self.rival().filter(|_| matches!(self.verdict(), Verdict::Lost | Verdict::LostToTuned))?;
        if matches!(rival.way.wait, Mode::Backoff { max } if max > self.ring) || rival.way.delay > self.ring {
            return Some(Because::Ring);
        }
        let allowed = f64::from(self.goal.quantile.above_ppm()) / 1e6;
        if rival.late_share(self.goal.latency) > allowed * AIM {
            return Some(Because::Lateness);
        }
        let seeds = rival.runs.len().min(self.ours.runs.len());
        let sum = |tried: &Tried, of: Part| {
            let all = tried.runs[..seeds].iter().map(of);
            all.fold((0.0, 0.0), |(time, power), spent| {
                (time + spent.time.as_nanos() as f64, power + spent.power.as_microwatts() as f64)
            })
        };
        let parts: [(Because, Part); 3] =
            [(Because::Polling, |run| run.polling), (Because::Awake, |run| run.awake), (Because::Idle, |run| run.idle)];
        let more = |of: Part| sum(&self.ours, of).1 - sum(rival, of).1;
        let (because, of) = parts.into_iter().max_by(|a, b| more(a.1).total_cmp(&more(b.1)))?;
        // The excess has two parts: more time at the rival's power level, and a higher power level during the time of
        // Apus. The larger part gives the reason.
        let ((time, power), (its_time, its_power)) = (sum(&self.ours, of), sum(rival, of));
        let at_its_power = its_power * time / its_time.max(1.0);
        let faster = because == Because::Awake && power - at_its_power > at_its_power - its_power;
        Some(if faster { Because::Frequency } else { because })
    }

    /// The power of Apus as a multiple of [`Self::bound`]. `None` if the bound is not known, or if Apus missed the
    /// goal: then the bound does not limit its power.
    pub fn bound_multiple(&self) -> Option<f64> {
        let bound = self.bound.filter(|bound| bound.as_microwatts() > 0 && self.ours_holds())?;
        Some(self.ours.power(self.ours.runs.len()) / bound.as_microwatts() as f64)
    }

    /// The share of packets that were late in the first second under Apus, as a multiple of the allowed share. One
    /// value per seed that had packets.
    pub fn first_second_multiples(&self) -> Vec<f64> {
        let allowed = f64::from(self.goal.quantile.above_ppm()) / 1e6;
        let runs =
            self.first_second.iter().flat_map(|first| &first.runs).filter(|run| run.judged(self.goal.latency) > 0);
        runs.map(|run| run.late_share(self.goal.latency) / allowed).collect()
    }
}

/// The quartiles of a sample: minimum, first quartile, median, third quartile, maximum. A quartile between two values
/// is interpolated linearly. `None` without values.
///
/// Source: R. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", 1996, definition 7.
pub fn quartiles(values: &[f64]) -> Option<[f64; 5]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some([0, 1, 2, 3, 4].map(|quarter| {
        let (below, rest) = (last * quarter / 4, last * quarter % 4);
        let above = sorted[last.min(below + 1)];
        sorted[below] + (above - sorted[below]) * rest as f64 / 4.0
    }))
}

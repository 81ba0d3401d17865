//! The result of a probe. These types are written as JSON without conversion, so the name of each time contains its
//! unit. An unknown value is null, and comes with a reason.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Distribution;
use tester::host::Reading;
use units::Nanos;

use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::mark::{Mark, MarkKind};
use crate::observe::joined;
use crate::record::Recorder;

/// The result of one variant of a probe.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The probe that measured this result.
    pub probe: Name,
    /// Variant of the probe, such as `clock_nanosleep`.
    pub variant: String,
    /// The settings of the probe, by name, as they can be typed on the command line.
    pub settings: BTreeMap<String, String>,
    /// What the probe counts, the range of its samples, and what it cannot see.
    pub counter: Counter,
    /// The probe's own cost, measured on this host before the run.
    pub overhead: Vec<Overhead>,
    /// The state of the measuring threads and of the host.
    pub conditions: Conditions,
    /// Duration of the measurement in nanoseconds; null if an imported file does not contain it.
    pub duration_ns: Option<u64>,
    /// Whether the user interrupted the measurement before its time was over.
    pub interrupted: bool,
    /// The measured distributions.
    pub terms: Vec<Term>,
    /// Results of this probe that are not distributions.
    pub detail: Detail,
    /// The sample that exceeded the threshold and ended the run; null if there was none.
    pub exceeded: Option<Exceeded>,
    /// What to consider when reading the numbers.
    pub marks: Vec<Mark>,
}

units::named! {
    /// The probes of Apus.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Name {
        /// Lateness of a periodic timer.
        Timer = "timer",
        /// Gaps in a loop that never sleeps.
        Jitter = "jitter",
        /// Handover from one thread to another.
        Switch = "switch",
        /// Time to deliver a frame to user space.
        Interrupt = "interrupt",
        /// Time to wake from an idle state.
        Idle = "idle",
        /// Time and cost of a frequency change.
        Frequency = "frequency",
        /// Cost of reading clocks, and whether the CPUs' counters agree.
        Clock = "clock",
        /// Measured by another tool.
        Imported = "imported",
    }
}

/// What a probe counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Describes in words which two events a sample spans, and which clock measures it.
    pub counts: String,
    /// Resolution of a sample in nanoseconds.
    pub resolution_ns: u64,
    /// Largest value of the histogram's range, in nanoseconds. Larger samples are counted as overflow.
    pub highest_ns: u64,
    /// What can happen on the host without being visible in any sample, in words.
    pub blind_spots: Vec<String>,
}

/// A cost of the probe itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// The operation of the probe that was timed, in words.
    pub what: String,
    /// Median duration of the operation in nanoseconds.
    pub median_ns: u64,
    /// Whether every sample of the result includes the duration of this operation.
    pub in_samples: bool,
    /// Number of times that the operation was timed.
    pub n: u64,
}

/// A measured distribution: one term of the latency budget, or a part of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Name, such as `lateness`. Names are stable, so that profiles can be compared.
    pub name: String,
    /// The distribution of the samples as measured.
    pub raw: Distribution,
    /// The distribution of the samples plus one sample for each event that passed unmeasured during a stall. Null for
    /// terms that cannot miss events.
    pub back_filled: Option<Distribution>,
    /// Time that was lost in stalls; null if the term has no stalls.
    pub blocked: Option<Blocked>,
    /// Results of each run. If there are several, a comparison of profiles uses each run as one sample.
    pub rounds: Vec<Round>,
}

/// Time for which the measured thread should have run but did not.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocked {
    /// Number of stalls. A stall is a delay so long that at least one further event passed unmeasured; for gaps, each
    /// gap is a stall.
    pub stalls: u64,
    /// Total length of the stalls in nanoseconds.
    pub blocked_ns: u64,
    /// Total length of the stalls divided by the length of the run, 0 to 1; null if the run had no length.
    pub share: Option<f64>,
    /// Total lateness of all samples, stalls or not, divided by the length of the run; null if the run had no length.
    pub late_share: Option<f64>,
}

/// Summary of one run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Number of samples, including back-filled ones.
    #[serde(alias = "n")] // apus.probe/1, apus.platform/1
    pub count: u64,
    /// Median in nanoseconds, of the back-filled series, or of the raw one if there is none; null if there are too few
    /// samples.
    pub p50_ns: Option<u64>,
    /// 99th percentile in nanoseconds, of the same series as `p50_ns`; null if there are too few samples.
    pub p99_ns: Option<u64>,
    /// Largest sample in nanoseconds, of the same series as `p50_ns`; null without samples.
    pub max_ns: Option<u64>,
}

impl Term {
    /// Builds the term of one run.
    pub fn new(
        name: impl Into<String>,
        raw: Distribution,
        back_filled: Option<Distribution>,
        blocked: Option<Blocked>,
    ) -> Self {
        let of = back_filled.as_ref().unwrap_or(&raw);
        let round = Round { count: of.count, p50_ns: of.p50_ns, p99_ns: of.p99_ns, max_ns: of.max_ns };
        Self { name: name.into(), raw, back_filled, blocked, rounds: vec![round] }
    }
}

impl Measured {
    /// Adds another run of the same probe and variant. Distributions are merged, and each run stays available as a
    /// round. Quantiles that were refused in one run stay refused. Steal times add up. The probe's own details and the
    /// other conditions stay those of the first run.
    pub fn merge(&mut self, other: &Self) -> Result<(), crate::Error> {
        for mark in &other.marks {
            if !self.marks.contains(mark) {
                self.marks.push(mark.clone());
            }
        }
        let (before, more) = (self.duration_ns.unwrap_or(0), other.duration_ns.unwrap_or(0));
        for term in &other.terms {
            match self.terms.iter_mut().find(|of| of.name == term.name) {
                Some(of) => of.merge(term, (before, more))?,
                None => self.terms.push(term.clone()),
            }
        }
        self.duration_ns = self.duration_ns.zip(other.duration_ns).map(|(a, b)| a + b);
        let (steal, more) = (&mut self.conditions.steal_ms, &other.conditions.steal_ms);
        *steal = match (steal.value, more.value) {
            (Some(a), Some(b)) => Reading::known(a + b),
            (None, _) => steal.clone(),
            (_, None) => more.clone(),
        };
        self.interrupted |= other.interrupted;
        if self.exceeded.is_none() {
            self.exceeded.clone_from(&other.exceeded);
        }
        Ok(())
    }
}

/// Why all quantiles of a distribution are refused; `None` if they are not, or if only some lack samples.
fn refusal(of: &Distribution) -> Option<&String> {
    let first = of.quantiles.first()?.refused_because.as_ref()?;
    // The reason for too few samples names the quantile, so it differs.
    of.quantiles.iter().all(|quantile| quantile.refused_because.as_ref() == Some(first)).then_some(first)
}

impl Term {
    /// Merges the same term of another run into this one. The two runs lasted `before` and `more` nanoseconds.
    fn merge(&mut self, other: &Self, (before, more): (u64, u64)) -> Result<(), crate::Error> {
        let merged = |a: &Distribution, b: &Distribution| -> Result<Distribution, crate::Error> {
            let mut recorder = Recorder::try_from(a)?;
            recorder.add(&Recorder::try_from(b)?);
            let refused = [a, b].into_iter().filter_map(refusal).cloned().fold(None, |all, why| Some(joined(all, why)));
            Ok(recorder.series(refused.as_deref()))
        };
        self.raw = merged(&self.raw, &other.raw)?;
        self.back_filled = match (&self.back_filled, &other.back_filled) {
            (Some(a), Some(b)) => Some(merged(a, b)?),
            _ => None,
        };
        self.blocked = self.blocked.zip(other.blocked).map(|(a, b)| {
            let weighted = |a: Option<f64>, b: Option<f64>| {
                let sum = a? * before as f64 + b? * more as f64;
                (before + more > 0).then(|| sum / (before + more) as f64)
            };
            Blocked {
                stalls: a.stalls + b.stalls,
                blocked_ns: a.blocked_ns + b.blocked_ns,
                share: weighted(a.share, b.share),
                late_share: weighted(a.late_share, b.late_share),
            }
        });
        self.rounds.extend(&other.rounds);
        Ok(())
    }
}

/// The sample above the threshold that ended a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exceeded {
    /// The threshold in nanoseconds.
    pub threshold_ns: u64,
    /// The sample in nanoseconds.
    pub sample_ns: u64,
    /// When the measured event began, in nanoseconds from the start of the run.
    pub at_ns: u64,
    /// What happened during the sample, in words.
    pub explained: String,
}

/// Returns a mark for a suspicious series: zeros and equal samples come from a broken clock more often than from a
/// perfect host.
pub(crate) fn suspicion(name: &str, series: &Distribution) -> Option<Mark> {
    /// With at least this many samples, it is no coincidence if all are equal to the nanosecond.
    const MANY: u64 = 100;
    let text = match (series.min_ns, series.max_ns) {
        _ if series.count == 0 => format!("{name}: no sample: measure for longer, or find what occupies the CPU"),
        (_, Some(0)) => format!("{name}: all {} samples are 0 ns", series.count),
        (Some(min), Some(max)) if min == max && series.count >= MANY => {
            format!("{name}: all {} samples are {}", series.count, Nanos::from_nanos(min))
        }
        _ => return None,
    };
    Some(Mark::new(MarkKind::Suspect, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: impl IntoIterator<Item = u64>, refused: Option<&str>) -> Distribution {
        let mut recorder = Recorder::new();
        samples.into_iter().for_each(|ns| recorder.record(Nanos::from_nanos(ns)));
        recorder.series(refused)
    }

    #[test]
    fn too_few_samples_have_no_percentile() {
        let few = series(1..=367, None);
        assert_eq!((few.p50_ns.is_some(), few.p99_ns), (true, None));
        let p99 = few.quantiles.iter().find(|q| q.quantile == "p99").unwrap();
        assert_eq!(p99.refused_because.as_deref(), Some("367 samples; p99 needs 368"));
        assert!(series(1..=368, None).p99_ns.is_some());
    }

    #[test]
    fn a_refusal_takes_all_percentiles_and_leaves_the_samples() {
        let refused = series(1..=1000, Some("the clock was set"));
        assert_eq!((refused.p50_ns, refused.p99_ns, refused.count, refused.max_ns), (None, None, 1000, Some(1000)));
        assert!(refused.quantiles.iter().all(|q| q.refused_because.as_deref() == Some("the clock was set")));
        assert_eq!(refused.histogram.counts.iter().map(|(_, n)| n).sum::<u64>(), 1000);
    }

    #[test]
    fn runs_are_joined_and_stay_rounds() {
        let blocked = |share| Some(Blocked { stalls: 1, blocked_ns: 5, share: Some(share), late_share: Some(share) });
        let mut term = Term::new("x", series(1..=500, None), None, blocked(0.1));
        let other = Term::new("x", series(501..=1000, None), None, blocked(0.4));
        term.merge(&other, (1_000, 2_000)).unwrap();
        assert_eq!((term.raw.count, term.raw.min_ns, term.raw.max_ns), (1000, Some(1), Some(1000)));
        assert_eq!((term.rounds.len(), term.rounds[1].max_ns), (2, Some(1000)));
        let all = term.blocked.unwrap();
        assert!(all.stalls == 2 && (all.share.unwrap() - 0.3).abs() < 1e-12);
    }

    #[test]
    fn a_refusal_of_one_run_is_one_of_all() {
        let run = |refused| Term::new("x", series(1..=500, refused), Some(series(1..=500, refused)), None);
        let mut term = run(None);
        for refused in [Some("the clock was set"), None, Some("the clock ran backwards"), Some("the clock was set")] {
            term.merge(&run(refused), (1, 1)).unwrap();
            for of in [&term.raw, term.back_filled.as_ref().unwrap()] {
                assert_eq!(of.p50_ns, None);
            }
        }
        let why = term.raw.quantiles[0].refused_because.as_deref();
        assert_eq!(why, Some("the clock was set; the clock ran backwards"));
        // Too few samples are no reason to refuse what several runs have together.
        let mut few = Term::new("x", series(1..=2, None), None, None);
        few.merge(&Term::new("x", series(1..=498, None), None, None), (1, 1)).unwrap();
        assert!(few.raw.p50_ns.is_some());
    }

    #[test]
    fn steal_and_durations_of_runs_add_up_or_are_unknown() {
        let json = r#"{"file_version": 1, "thread": {"0": {"histogram": {"5": 6}, "cycles": 6, "min": 5, "max": 5}}}"#;
        let run = |steal_ms, duration_ns| {
            let mut run = crate::import::read("a.json", json).unwrap().measured;
            (run.conditions.steal_ms, run.duration_ns) = (steal_ms, duration_ns);
            run
        };
        let mut all = run(Reading::known(10), Some(5));
        all.merge(&run(Reading::known(20), Some(6))).unwrap();
        assert_eq!((all.conditions.steal_ms.value, all.duration_ns), (Some(30), Some(11)));
        all.merge(&run(Reading::unknown("no /proc/stat"), None)).unwrap();
        all.merge(&run(Reading::known(20), Some(6))).unwrap();
        assert_eq!((all.conditions.steal_ms, all.duration_ns), (Reading::unknown("no /proc/stat"), None));
    }

    #[test]
    fn zeros_and_equal_samples_are_suspect() {
        assert!(suspicion("x", &series([0, 0], None)).is_some());
        assert!(suspicion("x", &series([5; 100], None)).is_some());
        assert!(suspicion("x", &series([5; 99], None)).is_none());
        assert!(suspicion("x", &series([], None)).is_some_and(|mark| mark.text.contains("no sample")));
        assert!(suspicion("x", &series(1..=200, None)).is_none());
    }
}

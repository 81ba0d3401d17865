//! What a probe gives back. It leaves the program as it stands here, so units stand in every name; what
//! is not known is null beside its reason.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::histogram::{Histogram, HistogramDocument};
use tester::quantile::{QuantileEstimate, REPORTED, estimate};
use units::{Nanos, Quantile};

use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::mark::{Mark, MarkKind};

/// What a probe measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The probe.
    pub probe: Name,
    /// Which of the ways that the probe knows, such as `clock_nanosleep`.
    pub variant: String,
    /// What was asked for, as it can be typed.
    pub settings: BTreeMap<String, String>,
    /// What is counted, how far, and what cannot be seen.
    pub counter: Counter,
    /// What the probe costs itself, measured on this machine before the run.
    pub overhead: Vec<Overhead>,
    /// The state of the measuring threads and of the host.
    pub conditions: Conditions,
    /// How long was measured.
    pub duration_ns: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// The distributions.
    pub terms: Vec<Term>,
    /// What only this probe knows.
    pub detail: Detail,
    /// The sample that exceeded the threshold and ended the run; null if none did or none was set.
    pub exceeded: Option<Exceeded>,
    /// What to bear in mind.
    pub marks: Vec<Mark>,
}

/// The probes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// Lateness of a periodic timer.
    Timer,
    /// Gaps in a loop that never sleeps.
    Jitter,
    /// Handing over from one thread to another.
    Switch,
    /// Delivery of a frame to user space.
    Interrupt,
    /// What it takes to come out of an idle state.
    Idle,
    /// What a change of frequency costs.
    Frequency,
    /// What clocks cost, and whether the CPUs' counters agree.
    Clock,
    /// Measured by another tool.
    Imported,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timer => "timer",
            Self::Jitter => "jitter",
            Self::Switch => "switch",
            Self::Interrupt => "interrupt",
            Self::Idle => "idle",
            Self::Frequency => "frequency",
            Self::Clock => "clock",
            Self::Imported => "imported",
        })
    }
}

/// What a probe's counter counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// From which event to which other a sample runs, and on which clock.
    pub counts: String,
    /// The least that a sample can be told from zero or from another.
    pub resolution_ns: u64,
    /// The largest sample whose value is kept in the histogram; larger ones are counted as overflow.
    pub highest_ns: u64,
    /// What can happen without being seen in any sample.
    pub blind_spots: Vec<String>,
}

/// What the probe costs itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// What was timed, and whether it is part of the samples.
    pub what: String,
    /// The median cost.
    pub median_ns: u64,
    /// Whether every sample contains it.
    pub in_samples: bool,
    /// How often it was timed.
    pub n: u64,
}

/// One distribution: a term of the latency budget, or a part of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Such as `lateness`; stable, so that profiles can be compared term by term.
    pub name: String,
    /// Each sample once.
    pub raw: Series,
    /// With a sample for each one that a stall swallowed; null where nothing can be swallowed.
    pub back_filled: Option<Series>,
    /// How much of the time was spent blocked; null where the term has no such share.
    pub blocked: Option<Blocked>,
    /// The same for each run, if there was more than one: the run is the sample of a comparison.
    pub rounds: Vec<Round>,
}

/// Time in which something was due and did not happen.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocked {
    /// Stalls: samples that swallowed at least one other.
    pub stalls: u64,
    /// Their sum.
    pub blocked_ns: u64,
    /// Their sum as a share of the run, 0 to 1; null if no time passed.
    pub share: Option<f64>,
    /// The sum of all lateness, stalls or not, as a share of the run; null if no time passed.
    pub late_share: Option<f64>,
}

/// One of several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Samples, back-filled ones included.
    pub n: u64,
    /// Median of the back-filled series, or of the raw one where there is no other; null if refused.
    pub p50_ns: Option<u64>,
    /// The same of the 99th percentile.
    pub p99_ns: Option<u64>,
    /// The same of the largest sample.
    pub max_ns: Option<u64>,
}

/// A distribution of spans of time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Samples, those of the overflow included.
    pub n: u64,
    /// The least.
    pub min_ns: Option<u64>,
    /// Arithmetic mean, rounded down.
    pub mean_ns: Option<u64>,
    /// Median; null if refused.
    pub p50_ns: Option<u64>,
    /// 90th percentile; null if refused.
    pub p90_ns: Option<u64>,
    /// 99th percentile; null if refused.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile; null if refused.
    pub p99_9_ns: Option<u64>,
    /// 99.99th percentile; null if refused.
    pub p99_99_ns: Option<u64>,
    /// The greatest seen, exactly: a lower bound that grows with n and duration.
    pub max_ns: Option<u64>,
    /// The same quantiles with their 95 % confidence intervals, or why they are refused.
    pub quantiles: Vec<QuantileEstimate>,
    /// All of it.
    pub histogram: HistogramDocument,
}

impl Series {
    /// From a histogram; `extremes` are its least and greatest sample. With `refused`, no quantile is given.
    pub fn new(
        histogram: &Histogram,
        extremes: Option<(u64, u64)>,
        mean_ns: Option<u64>,
        refused: Option<&str>,
    ) -> Self {
        let quantiles: Vec<QuantileEstimate> = REPORTED
            .iter()
            .map(|quantile| match refused {
                Some(why) => QuantileEstimate {
                    quantile: quantile.to_string(),
                    latency_ns: None,
                    ci95_low_ns: None,
                    ci95_high_ns: None,
                    refused_because: Some(why.into()),
                },
                None => within(estimate(histogram, *quantile), extremes),
            })
            .collect();
        let of = |wanted: Quantile| {
            REPORTED.iter().zip(&quantiles).find(|(q, _)| **q == wanted).and_then(|(_, found)| found.latency_ns)
        };
        Self {
            n: histogram.len(),
            min_ns: extremes.map(|(min, _)| min),
            mean_ns,
            p50_ns: of(Quantile::P50),
            p90_ns: of(Quantile::P90),
            p99_ns: of(Quantile::P99),
            p99_9_ns: of(Quantile::P99_9),
            p99_99_ns: of(Quantile::P99_99),
            max_ns: extremes.map(|(_, max)| max),
            histogram: histogram.to_document(),
            quantiles,
        }
    }
}

/// A quantile is the upper end of its bucket: no quantile lies beyond the samples.
fn within(estimate: QuantileEstimate, extremes: Option<(u64, u64)>) -> QuantileEstimate {
    let Some((min, max)) = extremes else { return estimate };
    let within = |ns: Option<u64>| ns.map(|ns| ns.clamp(min, max));
    QuantileEstimate {
        latency_ns: within(estimate.latency_ns),
        ci95_low_ns: within(estimate.ci95_low_ns),
        ci95_high_ns: within(estimate.ci95_high_ns),
        ..estimate
    }
}

impl Term {
    /// A term of one run.
    pub fn new(name: impl Into<String>, raw: Series, back_filled: Option<Series>, blocked: Option<Blocked>) -> Self {
        let of = back_filled.as_ref().unwrap_or(&raw);
        let round = Round { n: of.n, p50_ns: of.p50_ns, p99_ns: of.p99_ns, max_ns: of.max_ns };
        Self { name: name.into(), raw, back_filled, blocked, rounds: vec![round] }
    }
}

/// A sample above the threshold.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exceeded {
    /// The threshold.
    pub threshold_ns: u64,
    /// The sample.
    pub sample_ns: u64,
    /// When it began, from the start of the run.
    pub at_ns: u64,
    /// What happened meanwhile, in words.
    pub explained: String,
}

/// What looks wrong about a series: zeros and equal samples are more often a broken clock than a perfect host.
pub(crate) fn suspicion(name: &str, series: &Series) -> Option<Mark> {
    /// Samples from which it is no chance that all are equal to the nanosecond.
    const MANY: u64 = 100;
    let text = match (series.min_ns, series.max_ns) {
        _ if series.n == 0 => format!("{name}: not one sample: measure for longer, or see what keeps the CPU"),
        (_, Some(0)) => format!("{name}: all {} samples are 0 ns", series.n),
        (Some(min), Some(max)) if min == max && series.n >= MANY => {
            format!("{name}: all {} samples are {}", series.n, Nanos::from_nanos(min))
        }
        _ => return None,
    };
    Some(Mark::new(MarkKind::Suspect, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;

    fn series(samples: impl IntoIterator<Item = u64>, refused: Option<&str>) -> Series {
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
        assert_eq!((refused.p50_ns, refused.p99_ns, refused.n, refused.max_ns), (None, None, 1000, Some(1000)));
        assert!(refused.quantiles.iter().all(|q| q.refused_because.as_deref() == Some("the clock was set")));
        assert_eq!(refused.histogram.counts.iter().map(|(_, n)| n).sum::<u64>(), 1000);
    }

    #[test]
    fn zeros_and_equal_samples_are_suspect() {
        assert!(suspicion("x", &series([0, 0], None)).is_some());
        assert!(suspicion("x", &series([5; 100], None)).is_some());
        assert!(suspicion("x", &series([5; 99], None)).is_none());
        assert!(suspicion("x", &series([], None)).is_some_and(|mark| mark.text.contains("not one sample")));
        assert!(suspicion("x", &series(1..=200, None)).is_none());
    }
}

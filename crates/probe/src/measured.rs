//! What a probe gives back. It leaves the program as it stands here, so units stand in every name; what
//! is not known is null beside its reason.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::histogram::{Histogram, HistogramDocument};
use tester::quantile::{QuantileEstimate, REPORTED, estimate};
use units::{Nanos, Quantile};

use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::mark::{Mark, MarkKind};

/// The result of one variant of a probe.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The probe.
    pub probe: Name,
    /// Variant of the probe, such as `clock_nanosleep`.
    pub variant: String,
    /// The settings, as they can be typed.
    pub settings: BTreeMap<String, String>,
    /// What is counted, its range, and what cannot be seen.
    pub counter: Counter,
    /// The probe's own cost, measured on this host before the run.
    pub overhead: Vec<Overhead>,
    /// The state of the measuring threads and of the host.
    pub conditions: Conditions,
    /// Duration of the measurement.
    pub duration_ns: u64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// The distributions.
    pub terms: Vec<Term>,
    /// Results that only this probe has.
    pub detail: Detail,
    /// The sample that exceeded the threshold and ended the run; null if there was none.
    pub exceeded: Option<Exceeded>,
    /// What to consider when reading the numbers.
    pub marks: Vec<Mark>,
}

units::named! {
    /// The probes.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Name {
        /// Lateness of a periodic timer.
        Timer = "timer",
        /// Gaps in a loop that never sleeps.
        Jitter = "jitter",
        /// Handing over from one thread to another.
        Switch = "switch",
        /// Delivery of a frame to user space.
        Interrupt = "interrupt",
        /// What it takes to come out of an idle state.
        Idle = "idle",
        /// What a change of frequency costs.
        Frequency = "frequency",
        /// What clocks cost, and whether the CPUs' counters agree.
        Clock = "clock",
        /// Measured by another tool.
        Imported = "imported",
    }
}

/// What a probe counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// The events between which a sample is measured, and the clock.
    pub counts: String,
    /// Resolution of a sample.
    pub resolution_ns: u64,
    /// Largest sample in the range of the histogram; larger ones are counted as overflow.
    pub highest_ns: u64,
    /// What can happen without being visible in any sample.
    pub blind_spots: Vec<String>,
}

/// A cost of the probe itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// What was timed.
    pub what: String,
    /// Median cost.
    pub median_ns: u64,
    /// Whether every sample includes it.
    pub in_samples: bool,
    /// Number of times that it was measured.
    pub n: u64,
}

/// A distribution: one term of the latency budget, or a part of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Name, such as `lateness`. Names are stable, so that profiles can be compared.
    pub name: String,
    /// Each sample once.
    pub raw: Series,
    /// The samples, plus one for each that a stall hid; null if none can be hidden.
    pub back_filled: Option<Series>,
    /// Share of time spent in stalls; null if the term has no such share.
    pub blocked: Option<Blocked>,
    /// Results of each run, if there were several: the runs are the samples of a comparison.
    pub rounds: Vec<Round>,
}

/// Time in which something was due but did not happen.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocked {
    /// Number of stalls: samples that hid at least one other.
    pub stalls: u64,
    /// Total length of the stalls.
    pub blocked_ns: u64,
    /// Their total as a share of the run, 0 to 1; null if no time passed.
    pub share: Option<f64>,
    /// Total lateness, stalls or not, as a share of the run; null if no time passed.
    pub late_share: Option<f64>,
}

/// One of several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Number of samples, including back-filled ones.
    pub n: u64,
    /// Median of the back-filled series, or of the raw one if there is no other; null if refused.
    pub p50_ns: Option<u64>,
    /// 99th percentile, of the same series as `p50_ns`; null if refused.
    pub p99_ns: Option<u64>,
    /// Largest sample, of the same series as `p50_ns`.
    pub max_ns: Option<u64>,
}

/// A distribution of times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Number of samples, including overflow.
    pub n: u64,
    /// Smallest sample.
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
    /// Largest sample, exact: a lower bound that grows with the number of samples and the duration.
    pub max_ns: Option<u64>,
    /// The quantiles with their 95 % confidence intervals, or why they are refused.
    pub quantiles: Vec<QuantileEstimate>,
    /// The whole histogram.
    pub histogram: HistogramDocument,
}

impl Series {
    /// Builds a series from a histogram; `extremes` are its smallest and largest sample. With `refused`, no quantile
    /// is given.
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

/// Limits a quantile, which is the upper end of its bucket, to the range of the samples.
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
    /// Builds the term of one run.
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
    /// What happened during the sample, in words.
    pub explained: String,
}

/// What looks wrong about a series: zeros and equal samples are more often a broken clock than a perfect host.
pub(crate) fn suspicion(name: &str, series: &Series) -> Option<Mark> {
    /// Number of samples from which it cannot be chance that all are equal to the nanosecond.
    const MANY: u64 = 100;
    let text = match (series.min_ns, series.max_ns) {
        _ if series.n == 0 => format!("{name}: no sample: measure for longer, or find what occupies the CPU"),
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
        assert!(suspicion("x", &series([], None)).is_some_and(|mark| mark.text.contains("no sample")));
        assert!(suspicion("x", &series(1..=200, None)).is_none());
    }
}

//! A distribution of times. Its JSON form is the same for times that the tester measured, that a worker counted, and
//! that were simulated.

use live::telemetry::{self, histogram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Nanos, Quantile};

use crate::histogram::{Histogram, HistogramDocument};
use crate::quantile::{QuantileEstimate, REPORTED, estimate_in};

/// A distribution of times.
///
/// A quantile q of n samples is the sample of rank ceil(q n), rounded up to the end of its bucket. A quantile is `null`
/// if there are too few samples for it; `quantiles` gives the reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Number of samples, including those above the histogram's range (the overflow).
    #[serde(alias = "n")] // apus.probe/1, apus.platform/1
    pub count: u64,
    /// The smallest sample: exact if a probe or the simulator kept it, otherwise the lower end of its bucket. `null` if
    /// no sample lies in the histogram's range.
    pub min_ns: Option<u64>,
    /// Arithmetic mean, rounded down. `null` if there are no samples, or if samples lie in the overflow and their
    /// values were not kept.
    pub mean_ns: Option<u64>,
    /// Median. `null` if there are fewer than 6 samples.
    pub p50_ns: Option<u64>,
    /// 90th percentile. `null` if there are fewer than 36 samples.
    pub p90_ns: Option<u64>,
    /// 99th percentile. `null` if there are fewer than 368 samples.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile. `null` if there are fewer than 3,688 samples.
    pub p99_9_ns: Option<u64>,
    /// 99.99th percentile. `null` if there are fewer than 36,887 samples.
    pub p99_99_ns: Option<u64>,
    /// The largest sample. `null` if there are no samples, or if the largest one lies in the overflow and its value was
    /// not kept.
    pub max_ns: Option<u64>,
    /// The median and the percentiles with their 95 % confidence intervals, or with the reason why one is `null`.
    pub quantiles: Vec<QuantileEstimate>,
    /// All samples, in buckets.
    pub histogram: HistogramDocument,
}

impl Distribution {
    /// Makes a distribution from bucket counts. The caller gives minimum, mean and maximum, because it may know them
    /// more exactly than the buckets do. If `refused` is given, every quantile is `null`, with `refused` as the reason.
    pub fn new(
        histogram: HistogramDocument,
        [min_ns, mean_ns, max_ns]: [Option<u64>; 3],
        refused: Option<&str>,
    ) -> Self {
        let quantiles = REPORTED.map(|quantile| match refused {
            Some(why) => QuantileEstimate::refused(quantile, why.to_owned()),
            None => within(estimate_in(&histogram, quantile), min_ns, max_ns),
        });
        let [p50_ns, p90_ns, p99_ns, p99_9_ns, p99_99_ns] = quantiles.each_ref().map(|found| found.latency_ns);
        Self {
            count: histogram.len(),
            min_ns,
            mean_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            p99_9_ns,
            p99_99_ns,
            max_ns,
            quantiles: quantiles.into(),
            histogram,
        }
    }

    /// One of the reported quantiles ([`REPORTED`]), in ns. `None` if there are too few samples for the quantile, or if
    /// it is not a reported one.
    pub fn quantile(&self, quantile: Quantile) -> Option<u64> {
        let name = quantile.to_string();
        self.quantiles.iter().find(|estimate| estimate.quantile == name).and_then(|estimate| estimate.latency_ns)
    }
}

/// Limits a quantile to the range of the samples. A quantile is the upper end of its bucket, which may lie above the
/// largest sample.
fn within(estimate: QuantileEstimate, min_ns: Option<u64>, max_ns: Option<u64>) -> QuantileEstimate {
    let within = |ns: Option<u64>| ns.map(|ns| ns.min(max_ns.unwrap_or(ns)).max(min_ns.unwrap_or(ns)));
    QuantileEstimate {
        latency_ns: within(estimate.latency_ns),
        ci95_low_ns: within(estimate.ci95_low_ns),
        ci95_high_ns: within(estimate.ci95_high_ns),
        ..estimate
    }
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Self {
        let complete = histogram.overflow() == 0;
        let mean = histogram.mean_ns().filter(|_| complete).map(|mean| mean as u64);
        let known = [histogram.min_ns(), mean, histogram.max_ns().filter(|_| complete)];
        Self::new(histogram.to_document(), known, None)
    }
}

/// Converts a worker's histogram. Mean and maximum are exact, and include the overflow. Exception: in a histogram that
/// is the difference of two telemetry samples, the maximum is the upper end of its bucket.
impl From<&telemetry::Histogram> for Distribution {
    fn from(counted: &telemetry::Histogram) -> Self {
        let document = HistogramDocument {
            significant_digits: 1, // an octave has SUB_BUCKETS (128) buckets: the error is at most 0.79 %
            lowest_ns: 1,
            highest_ns: histogram::OVERFLOW_NS - 1,
            counts: counted.buckets().map(|bucket| (bucket.high.as_nanos(), bucket.count)).collect(),
            overflow: counted.overflow(),
        };
        let least = counted.buckets().next().map(|bucket| bucket.low.as_nanos());
        let known = [least, counted.mean().map(Nanos::as_nanos), counted.max().map(Nanos::as_nanos)];
        Self::new(document, known, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_samples_have_no_quantile() {
        let mut counted = telemetry::Histogram::new();
        (0..367).for_each(|_| counted.record(Nanos::from_micros(5)));
        let few = Distribution::from(&counted);
        assert_eq!((few.p50_ns, few.p99_ns), (Some(5_000), None));
        assert_eq!(few.quantiles[2].refused_because.as_deref(), Some("367 samples; p99 needs 368"));
        counted.record(Nanos::from_micros(5));
        let enough = Distribution::from(&counted);
        assert_eq!((enough.p99_ns, enough.p99_9_ns, enough.count), (Some(5_000), None, 368));
    }

    #[test]
    fn what_a_worker_and_the_tester_counted_have_one_form() {
        let (mut counted, mut measured) = (telemetry::Histogram::new(), Histogram::new());
        for nanos in 1_000..2_000 {
            counted.record(Nanos::from_nanos(nanos));
            measured.record(nanos);
        }
        let (counted, measured) = (Distribution::from(&counted), Distribution::from(&measured));
        for (of, digits, most) in [(&counted, 1, 1.0 / 128.0), (&measured, 3, 0.001)] {
            assert_eq!((of.count, of.histogram.significant_digits, of.mean_ns), (1_000, digits, Some(1_499)));
            let p99 = of.p99_ns.unwrap();
            assert!(p99 >= 1_989 && (p99 as f64) < 1_989.0 * (1.0 + most) + 1.0, "{p99}");
            assert_eq!(of.p99_ns, of.quantile(Quantile::P99));
        }
        assert_eq!(counted.max_ns, Some(1_999));
    }

    #[test]
    fn what_lies_in_the_overflow_is_not_made_up() {
        let mut measured = Histogram::new();
        (0..400).for_each(|_| measured.record(5_000));
        measured.record(u64::MAX);
        let of = Distribution::from(&measured);
        assert_eq!((of.count, of.histogram.overflow, of.min_ns), (401, 1, Some(5_000)));
        assert_eq!((of.mean_ns, of.max_ns, of.p50_ns), (None, None, Some(5_003)));
    }

    #[test]
    fn a_refusal_takes_all_quantiles_and_leaves_the_samples() {
        let mut measured = Histogram::new();
        (1..=1_000).for_each(|ns| measured.record(ns));
        let of = Distribution::new(measured.to_document(), [Some(1), None, Some(1_000)], Some("the clock was set"));
        assert_eq!((of.p50_ns, of.count, of.max_ns), (None, 1_000, Some(1_000)));
        assert!(of.quantiles.iter().all(|q| q.refused_because.as_deref() == Some("the clock was set")));
    }
}

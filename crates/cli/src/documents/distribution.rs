//! A distribution of times.

use live::telemetry::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use units::Quantile;

/// A distribution of times. A quantile is `null` below the number of samples from which its 95 %
/// confidence interval has an upper end: n with q^n <= 0.025.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Number of samples, those of the overflow included.
    pub count: u64,
    /// Samples beyond the histogram's range, 2^36 ns.
    pub overflow: u64,
    /// Arithmetic mean, rounded down.
    pub mean_ns: Option<u64>,
    /// Median; from 6 samples on.
    pub p50_ns: Option<u64>,
    /// From 368 samples on.
    pub p99_ns: Option<u64>,
    /// From 3,688 samples on.
    pub p99_9_ns: Option<u64>,
    /// From 36,887 samples on.
    pub p99_99_ns: Option<u64>,
    /// The highest sample; in an interval, the upper bound of its bucket.
    pub max_ns: Option<u64>,
    /// The whole histogram but its overflow: the lowest value, the highest value (both inclusive,
    /// in nanoseconds) and the count of each bucket that is not empty.
    pub buckets_ns: Vec<(u64, u64, u64)>,
}

/// Samples from which a quantile means something.
const NEEDED: [(Quantile, u64); 4] =
    [(Quantile::P50, 6), (Quantile::P99, 368), (Quantile::P99_9, 3_688), (Quantile::P99_99, 36_887)];

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Self {
        let count = histogram.count();
        let [p50_ns, p99_ns, p99_9_ns, p99_99_ns] = NEEDED.map(|(quantile, needed)| {
            histogram.quantile(quantile).filter(|_| count >= needed).map(|value| value.as_nanos())
        });
        Self {
            count,
            overflow: histogram.overflow(),
            mean_ns: histogram.mean().map(|mean| mean.as_nanos()),
            p50_ns,
            p99_ns,
            p99_9_ns,
            p99_99_ns,
            max_ns: histogram.max().map(|max| max.as_nanos()),
            buckets_ns: histogram.buckets().map(|b| (b.low.as_nanos(), b.high.as_nanos(), b.count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    #[test]
    fn the_numbers_needed_follow_from_the_quantile() {
        for (quantile, needed) in NEEDED {
            let q = f64::from(quantile.as_ppm()) / 1e6;
            assert_eq!((0.025f64.ln() / q.ln()).ceil() as u64, needed, "{quantile}");
        }
    }

    #[test]
    fn too_few_samples_have_no_quantile() {
        let mut histogram = Histogram::new();
        (0..367).for_each(|_| histogram.record(Nanos::from_micros(5)));
        assert_eq!(Distribution::from(&histogram).p99_ns, None);
        histogram.record(Nanos::from_micros(5));
        let shown = Distribution::from(&histogram);
        assert_eq!((shown.p50_ns, shown.p99_ns, shown.p99_9_ns), (Some(5_000), Some(5_000), None));
    }
}

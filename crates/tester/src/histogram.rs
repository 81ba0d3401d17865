//! HDR histograms of latencies. Their JSON form preserves them exactly.

use hdrhistogram::Histogram as Hdr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Number of significant digits of each value: 3 means an error of at most 0.1 %.
pub const SIGNIFICANT_DIGITS: u8 = 3;
/// Lowest value that is distinguished from 0, in ns.
pub const LOWEST_NS: u64 = 1;
/// Highest value in ns; larger ones count as overflow.
pub const HIGHEST_NS: u64 = 4_000_000_000;

/// A histogram of times from 0 to 4 s in ns, with three significant digits. Longer times are counted as overflow.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    counts: Hdr<u64>,
    overflow: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Creates an empty histogram.
    #[allow(clippy::missing_panics_doc)] // the bounds are constants that a test checks
    pub fn new() -> Self {
        let counts = Hdr::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the constants are bounds that hdrhistogram takes");
        Self { counts, overflow: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.record_n(nanos, 1);
    }

    /// Counts the same value `n` times.
    pub fn record_n(&mut self, nanos: u64, n: u64) {
        if nanos > HIGHEST_NS || self.counts.record_n(nanos, n).is_err() {
            self.overflow += n;
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for step in other.counts.iter_recorded() {
            self.record_n(step.value_iterated_to().min(HIGHEST_NS), step.count_at_value());
        }
        self.overflow += other.overflow;
    }

    /// Number of samples, including overflow.
    pub fn len(&self) -> u64 {
        self.counts.len() + self.overflow
    }
    /// Whether the histogram has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of samples above [`HIGHEST_NS`].
    pub fn overflow(&self) -> u64 {
        self.overflow
    }
    /// Smallest value, to three digits; `None` without samples in range.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.min())
    }
    /// Largest value in range, to three digits; `None` without samples in range.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.max())
    }
    /// Mean of the samples in range; `None` without any.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.counts.is_empty()).then(|| self.counts.mean())
    }

    /// The samples at these ranks, which must be in ascending order; rank 1 is the smallest sample. Each value is the
    /// upper end of its sample's bucket, so it is never below the sample. `None` if the rank is 0, lies in the
    /// overflow, or exceeds the number of samples.
    pub fn at_ranks<const N: usize>(&self, ranks: [u64; N]) -> [Option<u64>; N] {
        at_ranks(self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())), ranks)
    }

    /// Number of samples in the buckets above the bucket of `nanos`, including overflow.
    pub fn count_above(&self, nanos: u64) -> u64 {
        let above =
            self.counts.iter_recorded().filter(|step| step.value_iterated_to() > self.counts.highest_equivalent(nanos));
        above.map(|step| step.count_at_value()).sum::<u64>() + self.overflow
    }

    /// The JSON form of the histogram.
    pub fn to_document(&self) -> HistogramDocument {
        HistogramDocument {
            significant_digits: SIGNIFICANT_DIGITS,
            lowest_ns: LOWEST_NS,
            highest_ns: HIGHEST_NS,
            counts: self.counts.iter_recorded().map(|s| (s.value_iterated_to(), s.count_at_value())).collect(),
            overflow: self.overflow,
        }
    }
}

/// Finds the values at these ascending ranks. `counts` are values in ascending order, each with its count.
fn at_ranks<const N: usize>(counts: impl Iterator<Item = (u64, u64)>, ranks: [u64; N]) -> [Option<u64>; N] {
    let mut found = [None; N];
    let (mut below, mut next) = (0u64, ranks.iter().position(|rank| *rank > 0).unwrap_or(N));
    for (value, count) in counts {
        below = below.saturating_add(count);
        while next < N && ranks[next] <= below {
            found[next] = Some(value);
            next += 1;
        }
    }
    found
}

/// A histogram in JSON. Two histograms with the same digits and bounds have the same buckets; add their counts to merge
/// them. Reading a histogram that the tester wrote gives back the same histogram.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistogramDocument {
    /// Number of significant digits that each value keeps. 3 means an error of at most 0.1 %; 1, as in a worker's
    /// histogram, means an error of at most 10 %.
    pub significant_digits: u8,
    /// Lowest value that is distinguished from 0.
    pub lowest_ns: u64,
    /// Highest value in range; larger ones are in `overflow`.
    pub highest_ns: u64,
    /// Pairs of a value (the upper end of its bucket, in ns) and its count, in ascending order of value, without zero
    /// counts.
    pub counts: Vec<(u64, u64)>,
    /// Number of samples above `highest_ns`.
    pub overflow: u64,
}

impl HistogramDocument {
    /// Number of samples, including overflow.
    pub fn len(&self) -> u64 {
        // Saturating, as a file may contain any count.
        self.counts.iter().fold(self.overflow, |sum, (_, count)| sum.saturating_add(*count))
    }
    /// Whether the histogram has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Latencies at the given ranks; see [`Histogram::at_ranks`].
    pub fn at_ranks<const N: usize>(&self, ranks: [u64; N]) -> [Option<u64>; N] {
        at_ranks(self.counts.iter().copied(), ranks)
    }
}

impl TryFrom<&HistogramDocument> for Histogram {
    type Error = Error;
    fn try_from(document: &HistogramDocument) -> Result<Self, Error> {
        let HistogramDocument { significant_digits, lowest_ns, highest_ns, counts, overflow } = document;
        if (*significant_digits, *lowest_ns, *highest_ns) != (SIGNIFICANT_DIGITS, LOWEST_NS, HIGHEST_NS) {
            return Err(Error::invalid(
                format!("histogram of {significant_digits} digits from {lowest_ns} to {highest_ns} ns"),
                format!("expected {SIGNIFICANT_DIGITS} digits from {LOWEST_NS} to {HIGHEST_NS} ns"),
            ));
        }
        let mut histogram = Self { overflow: *overflow, ..Self::new() };
        for (value, count) in counts {
            if *count == 0 || histogram.counts.record_n(*value, *count).is_err() {
                return Err(Error::invalid(
                    format!("histogram entry [{value}, {count}]"),
                    format!("expected a value up to {HIGHEST_NS} ns and a count from 1 on"),
                ));
            }
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_above_a_bound_are_counted_with_the_overflow() {
        let mut histogram = Histogram::new();
        histogram.record_n(40_000, 5);
        histogram.record_n(70_000, 3);
        histogram.record(HIGHEST_NS + 1);
        assert_eq!([30_000, 40_000, 69_000, 80_000].map(|ns| histogram.count_above(ns)), [9, 4, 4, 1]);
    }
    use proptest::prelude::*;

    #[test]
    fn overflow_is_counted_apart() {
        let mut histogram = Histogram::new();
        for nanos in [0, 1, 5_000, HIGHEST_NS, HIGHEST_NS + 1, u64::MAX] {
            histogram.record(nanos);
        }
        assert_eq!((histogram.len(), histogram.overflow()), (6, 2));
        assert_eq!(histogram.at_ranks([1, 2, 3, 5]), [Some(0), Some(1), Some(5_003), None]);
    }

    #[test]
    fn refuses_a_document_that_is_none() {
        let good = Histogram::new().to_document();
        assert!(Histogram::try_from(&HistogramDocument { significant_digits: 2, ..good.clone() }).is_err());
        assert!(Histogram::try_from(&HistogramDocument { counts: vec![(1, 0)], ..good.clone() }).is_err());
        assert!(Histogram::try_from(&HistogramDocument { counts: vec![(u64::MAX, 1)], ..good }).is_err());
    }

    proptest! {
        #[test]
        fn json_loses_nothing(values in proptest::collection::vec(0u64..5_000_000_000, 0..300)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.record(*v));
            let text = serde_json::to_string(&histogram.to_document()).unwrap();
            let back: HistogramDocument = serde_json::from_str(&text).unwrap();
            let read = Histogram::try_from(&back).unwrap();
            prop_assert_eq!(&read.to_document(), &histogram.to_document());
            prop_assert_eq!((read.min_ns(), read.max_ns()), (histogram.min_ns(), histogram.max_ns()));
            prop_assert_eq!(read, histogram);
        }

        #[test]
        fn a_rank_is_its_sample_to_three_digits(mut values in proptest::collection::vec(0u64..HIGHEST_NS, 1..300), at: prop::sample::Index) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.record(*v));
            values.sort_unstable();
            let i = at.index(values.len());
            let [got] = histogram.at_ranks([i as u64 + 1]);
            let got = got.unwrap();
            prop_assert!(got >= values[i] && got <= values[i] + values[i] / 1000 + 1, "{} for {}", got, values[i]);
        }
    }
}

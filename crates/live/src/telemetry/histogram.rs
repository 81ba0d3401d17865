//! A histogram of durations with log-linear buckets, like HdrHistogram.
//!
//! Values below 128 ns have a bucket each. Above that, each octave (from 2^n to 2^(n+1) - 1) has [`SUB_BUCKETS`]
//! buckets of equal width, so a bucket is at most 1/128 (0.79 %) of its lowest value wide. The buckets end below 2^36
//! ns (68 s). Larger values are counted separately as overflow, never in the last bucket.
//!
//! ```text
//!   value:  0 1 2 … 127 │ 128 129 … 255 │ 256,257  258,259 …  │ … │ … 2^36 - 1 │ overflow
//!   index:  0 1 2 … 127 │ 128 129 … 255 │ 256      257     …  │ … │     3839   │
//! ```
//! A worker writes [`HistogramCells`] in shared memory. [`Histogram`] is a copy in the reader's own memory.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use units::{Nanos, Quantile};

/// log2 of [`SUB_BUCKETS`].
const SUB_BUCKET_BITS: u32 = 7;
/// Number of buckets per octave.
pub const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;
/// The smallest value that is counted as overflow, in nanoseconds: 2^36, about 68 s.
pub const OVERFLOW_NS: u64 = 1 << OVERFLOW_BITS;
const OVERFLOW_BITS: u32 = 36;
/// Number of buckets: 128 buckets of 1 ns each below 128 ns, then 128 buckets per octave up to 2^36 ns.
pub const BUCKETS: usize = (OVERFLOW_BITS - SUB_BUCKET_BITS + 1) as usize * SUB_BUCKETS;

/// The index of the bucket that counts a value in nanoseconds. `None` if the value is [`OVERFLOW_NS`] or more.
#[inline]
pub const fn index_of(value_ns: u64) -> Option<usize> {
    if value_ns >= OVERFLOW_NS {
        return None;
    }
    // The OR sets the top bit to at least bit 7, so small values get a shift of 0. It does not change the top bit of
    // large values.
    let shift = u64::BITS - 1 - (value_ns | SUB_BUCKETS as u64).leading_zeros() - SUB_BUCKET_BITS;
    Some((shift as usize) * SUB_BUCKETS + (value_ns >> shift) as usize)
}

/// The lowest and the highest value of a bucket in nanoseconds, both inclusive. Panics if `index` is [`BUCKETS`] or
/// more.
pub const fn bounds_of(index: usize) -> (u64, u64) {
    assert!(index < BUCKETS, "no such bucket");
    if index < 2 * SUB_BUCKETS {
        return (index as u64, index as u64);
    }
    let shift = index / SUB_BUCKETS - 1;
    let mantissa = (index - shift * SUB_BUCKETS) as u64;
    (mantissa << shift, ((mantissa + 1) << shift) - 1)
}

/// A histogram in shared memory. One thread writes it, without locked instructions; any thread may read it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct HistogramCells {
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    overflow: AtomicU64,
    reserved: [AtomicU64; 5],
    buckets: [AtomicU64; BUCKETS],
}

impl HistogramCells {
    /// Makes an empty histogram that is not in shared memory.
    pub const fn new() -> Self {
        Self {
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            overflow: AtomicU64::new(0),
            reserved: [const { AtomicU64::new(0) }; 5],
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts one value. Only one thread may call this; otherwise counts are lost.
    #[inline]
    pub fn record(&self, value: Nanos) {
        let value = value.as_nanos();
        let cell = match index_of(value) {
            Some(index) => &self.buckets[index],
            None => &self.overflow,
        };
        cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
        self.sum_ns.store(self.sum_ns.load(Relaxed).wrapping_add(value), Relaxed);
        if value > self.max_ns.load(Relaxed) {
            self.max_ns.store(value, Relaxed);
        }
    }

    /// Makes a copy. A value recorded meanwhile may be in some fields of the copy and missing in others.
    pub fn snapshot(&self) -> Histogram {
        Histogram {
            counts: self.buckets.iter().map(|cell| cell.load(Relaxed)).collect(),
            overflow: self.overflow.load(Relaxed),
            sum_ns: u128::from(self.sum_ns.load(Relaxed)),
            max_ns: self.max_ns.load(Relaxed),
        }
    }
}

impl Default for HistogramCells {
    fn default() -> Self {
        Self::new()
    }
}

/// A histogram in the process's own memory, for example a copy of a worker's [`HistogramCells`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    overflow: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// A bucket that contains values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The lowest value of the bucket, inclusive.
    pub low: Nanos,
    /// The highest value of the bucket, inclusive.
    pub high: Nanos,
    /// Number of values in the bucket.
    pub count: u64,
}

impl Histogram {
    /// Makes an empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], overflow: 0, sum_ns: 0, max_ns: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, value: Nanos) {
        let value = value.as_nanos();
        match index_of(value) {
            Some(index) => self.counts[index] += 1,
            None => self.overflow += 1,
        }
        self.sum_ns += u128::from(value);
        self.max_ns = self.max_ns.max(value);
    }

    /// Number of values, including those counted as overflow.
    pub fn count(&self) -> u64 {
        // Saturates, because a file in shared memory may contain any numbers.
        self.counts.iter().fold(self.overflow, |sum, count| sum.saturating_add(*count))
    }

    /// Number of values that are [`OVERFLOW_NS`] or more.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The exact sum of all values, in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The largest value counted. `None` if the histogram is empty.
    ///
    /// The value is exact, with one exception: in a [difference](Histogram::since) without a new maximum, it is the
    /// upper bound of the highest bucket with a value.
    pub fn max(&self) -> Option<Nanos> {
        (self.count() > 0).then_some(Nanos::from_nanos(self.max_ns))
    }

    /// The mean, rounded down. `None` if the histogram is empty.
    pub fn mean(&self) -> Option<Nanos> {
        let mean = self.sum_ns.checked_div(u128::from(self.count()))?;
        Some(Nanos::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// A quantile of the values, for example p99: at least the share `quantile` of all values is at or below it. The
    /// result is the upper bound of a bucket, but at most the maximum. `None` if the histogram is empty.
    pub fn quantile(&self, quantile: Quantile) -> Option<Nanos> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = (u128::from(total) * u128::from(quantile.as_ppm())).div_ceil(1_000_000).max(1);
        let mut seen = 0u128;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if seen >= rank {
                return Some(Nanos::from_nanos(bounds_of(index).1.min(self.max_ns)));
            }
        }
        Some(Nanos::from_nanos(self.max_ns))
    }

    /// Number of values in the buckets that end at or below `bound`. All these values are at most `bound`.
    pub fn count_up_to(&self, bound: Nanos) -> u64 {
        let buckets = self.counts.iter().enumerate();
        buckets
            .take_while(|(index, _)| bounds_of(*index).1 <= bound.as_nanos())
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The buckets that contain values, in ascending order. Values counted as overflow are in no bucket.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, &count)| {
            let (low, high) = bounds_of(index);
            Bucket { low: Nanos::from_nanos(low), high: Nanos::from_nanos(high), count }
        })
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.overflow = self.overflow.saturating_add(other.overflow);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The values counted after the snapshot `earlier` of the same histogram. A count that is lower than in `earlier`
    /// (a snapshot of another histogram) gives 0.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts: Vec<u64> =
            self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then)).collect();
        let overflow = self.overflow.saturating_sub(earlier.overflow);
        let highest = counts.iter().rposition(|count| *count > 0);
        let max_ns = match highest {
            _ if self.max_ns > earlier.max_ns || overflow > 0 => self.max_ns,
            Some(index) => bounds_of(index).1.min(self.max_ns),
            None => 0,
        };
        Self { counts, overflow, sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns), max_ns }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(Nanos::from_nanos(value)));
        histogram
    }

    #[test]
    fn the_buckets_tile_the_range() {
        let mut next = 0;
        for index in 0..BUCKETS {
            let (low, high) = bounds_of(index);
            assert_eq!(low, next, "bucket {index}");
            assert_eq!((index_of(low), index_of(high)), (Some(index), Some(index)));
            next = high + 1;
        }
        assert_eq!(next, OVERFLOW_NS);
        assert_eq!(index_of(OVERFLOW_NS), None);
        assert_eq!(index_of(u64::MAX), None);
    }

    #[test]
    fn overflow_is_apart_and_still_counts() {
        let histogram = of(&[1, 2, OVERFLOW_NS, u64::MAX]);
        assert_eq!((histogram.count(), histogram.overflow()), (4, 2));
        assert_eq!(histogram.buckets().map(|b| b.count).sum::<u64>(), 2);
        assert_eq!(histogram.quantile(Quantile::P50), Some(Nanos::from_nanos(2)));
        assert_eq!(histogram.quantile(Quantile::P99), Some(Nanos::MAX));
        assert_eq!(histogram.sum_ns(), 3 + u128::from(OVERFLOW_NS) + u128::from(u64::MAX));
    }

    #[test]
    fn an_empty_one_has_no_quantile() {
        let empty = Histogram::new();
        assert_eq!((empty.quantile(Quantile::P50), empty.max(), empty.mean(), empty.count()), (None, None, None, 0));
    }

    #[test]
    fn the_maximum_of_a_difference_is_of_that_time() {
        let earlier = of(&[100, 1_000_000]);
        let mut later = earlier.clone();
        later.record(Nanos::from_nanos(2_000));
        let high = bounds_of(index_of(2_000).unwrap()).1;
        assert_eq!(later.since(&earlier).max(), Some(Nanos::from_nanos(high)));
        later.record(Nanos::from_nanos(3_000_000));
        assert_eq!(later.since(&earlier).max(), Some(Nanos::from_nanos(3_000_000)));
        assert_eq!(earlier.since(&earlier).max(), None);
    }

    proptest! {
        #[test]
        fn a_bucket_is_narrow_and_holds_its_value(value in 0..OVERFLOW_NS) {
            let (low, high) = bounds_of(index_of(value).unwrap());
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) * SUB_BUCKETS as u64 <= low);
        }

        #[test]
        fn a_greater_value_never_lies_in_a_lower_bucket(a in 0..OVERFLOW_NS, b in 0..OVERFLOW_NS) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(index_of(low) <= index_of(high));
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(0..OVERFLOW_NS, 1..200), ppm in 0u32..1_000_000,
        ) {
            let histogram = of(&values);
            values.sort_unstable();
            let rank = (values.len() as u64 * u64::from(ppm)).div_ceil(1_000_000).max(1);
            let exact = values[rank as usize - 1];
            let got = histogram.quantile(Quantile::from_ppm(ppm).unwrap()).unwrap().as_nanos();
            prop_assert!(exact <= got && got <= exact + exact / SUB_BUCKETS as u64);
        }

        #[test]
        fn merge_and_difference_are_inverse(
            a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let (first, second) = (of(&a), of(&b));
            let mut both = first.clone();
            both.merge(&second);
            let back = both.since(&first);
            prop_assert_eq!(back.buckets().collect::<Vec<_>>(), second.buckets().collect::<Vec<_>>());
            prop_assert_eq!((back.overflow(), back.sum_ns()), (second.overflow(), second.sum_ns()));
        }

        #[test]
        fn the_shared_and_the_owned_one_agree(values in prop::collection::vec(0u64..1 << 40, 0..100)) {
            let cells = HistogramCells::new();
            values.iter().for_each(|&value| cells.record(Nanos::from_nanos(value)));
            prop_assert_eq!(cells.snapshot(), of(&values));
        }
    }
}

//! Distributions of time spans, in memory that does not grow with the number of spans.

use hdrhistogram::Histogram;
use units::{Nanos, Quantile};

/// Number of significant digits that are kept, which means an error of at most 0.1 %. Measurements use the same digits
/// and bounds, so simulated and measured distributions can be plotted together.
pub const SIGNIFICANT_DIGITS: u8 = 3;
/// The lowest value other than 0, in nanoseconds.
pub const LOWEST_NS: u64 = 1;
/// The highest value, in nanoseconds. Larger values are counted as overflow.
pub const HIGHEST_NS: u64 = 4_000_000_000;

/// Collects time spans.
#[derive(Clone, Debug)]
pub struct Recorder {
    counts: Histogram<u64>,
    overflow: u64,
    sum: u128,
    least: u64,
    most: u64,
    /// The last value, in nanoseconds. Equal values in a row are counted in `run` and added at once, because most terms
    /// of a latency budget hardly vary.
    value: u64,
    run: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Makes an empty recorder that keeps [`SIGNIFICANT_DIGITS`] of each value.
    pub fn new() -> Self {
        Self::with_digits(SIGNIFICANT_DIGITS)
    }

    /// Makes an empty recorder that keeps two digits of each value: an error of at most 1 %, in an eighth of the
    /// memory.
    pub fn coarse() -> Self {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Self {
        let counts = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, digits)
            .expect("the constants are bounds that hdrhistogram takes");
        Self { counts, overflow: 0, sum: 0, least: u64::MAX, most: 0, value: 0, run: 0 }
    }

    /// Adds one span.
    #[inline]
    pub fn record(&mut self, span: Nanos) {
        self.record_n(span, 1);
    }

    /// Adds `n` equal spans.
    #[inline]
    pub fn record_n(&mut self, span: Nanos, n: u64) {
        let nanos = span.as_nanos();
        if nanos != self.value {
            self.settle();
            self.value = nanos;
        }
        self.run += n;
    }

    fn settle(&mut self) {
        let (value, run) = (self.value, std::mem::take(&mut self.run));
        if run == 0 {
            return;
        }
        self.sum += u128::from(value) * u128::from(run);
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        if value > HIGHEST_NS || self.counts.record_n(value, run).is_err() {
            self.overflow += run;
        }
    }

    /// The distribution of all added spans.
    pub fn finish(mut self) -> Distribution {
        self.settle();
        Distribution { counts: self.counts, overflow: self.overflow, sum: self.sum, least: self.least, most: self.most }
    }
}

/// A distribution of time spans.
#[derive(Clone, PartialEq, Debug)]
pub struct Distribution {
    counts: Histogram<u64>,
    overflow: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Distribution {
    /// Number of spans, including those beyond [`HIGHEST_NS`].
    pub fn count(&self) -> u64 {
        self.counts.len() + self.overflow
    }

    /// Number of spans beyond [`HIGHEST_NS`].
    pub const fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The exact sum of all spans, in nanoseconds.
    pub const fn sum_ns(&self) -> u128 {
        self.sum
    }

    /// The mean of the exact values, rounded down. `None` without samples.
    pub fn mean(&self) -> Option<Nanos> {
        let mean = self.sum.checked_div(u128::from(self.count()))?;
        Some(Nanos::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The shortest span, exact. `None` without samples.
    pub fn least(&self) -> Option<Nanos> {
        (self.count() > 0).then_some(Nanos::from_nanos(self.least))
    }

    /// The longest span, exact. `None` without samples.
    pub fn most(&self) -> Option<Nanos> {
        (self.count() > 0).then_some(Nanos::from_nanos(self.most))
    }

    /// The sample of rank ceil(q n), rounded up to the digits that are kept. `None` if there are fewer samples than
    /// [`minimum_samples`], or if the sample lies beyond [`HIGHEST_NS`].
    pub fn quantile(&self, quantile: Quantile) -> Option<Nanos> {
        if self.count() < minimum_samples(quantile) {
            return None;
        }
        let rank = (u128::from(self.count()) * u128::from(quantile.as_ppm())).div_ceil(1_000_000).max(1);
        let mut below = 0;
        for (value, count) in self.counts() {
            below += u128::from(count);
            if below >= rank {
                return Some(Nanos::from_nanos(value.min(self.most)));
            }
        }
        None
    }

    /// Pairs of a value (the upper end of its bucket, in nanoseconds) and its count, in ascending order. Empty buckets
    /// and the overflow are left out.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

/// The minimum number of samples for which the 95 % confidence interval of a quantile has two ends: the smallest n with
/// q^n <= 2.5 % and (1 - q)^n <= 2.5 %. p50 needs 6, p99 368, p99.9 3,688, p99.99 36,887 samples; for p0, no number is
/// enough ([`u64::MAX`]). Source: Hahn, Meeker, "Statistical intervals", 5.2.
pub fn minimum_samples(quantile: Quantile) -> u64 {
    let (q, above) = (f64::from(quantile.as_ppm()) / 1e6, f64::from(quantile.above_ppm()) / 1e6);
    samples_until(q).max(samples_until(above))
}

/// The smallest n with p^n <= 2.5 %. Uses only multiplications, whose result is the same on any machine.
fn samples_until(p: f64) -> u64 {
    const TAIL: f64 = 0.025;
    if p <= TAIL {
        return 1;
    }
    if p >= 1.0 {
        return u64::MAX;
    }
    // Double n until it is large enough, then find the largest n that is too small, bit by bit.
    let mut powers = vec![p];
    while powers[powers.len() - 1] > TAIL {
        let last = powers[powers.len() - 1];
        powers.push(last * last);
    }
    let (mut product, mut n) = (1.0, 0);
    for (bit, power) in powers.iter().enumerate().rev() {
        if product * power > TAIL {
            product *= power;
            n += 1u64 << bit;
        }
    }
    n + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn minimum_samples_of_the_design() {
        for (quantile, n) in [
            (Quantile::P50, 6),
            (Quantile::P90, 36),
            (Quantile::P99, 368),
            (Quantile::P99_9, 3_688),
            (Quantile::P99_99, 36_887),
        ] {
            assert_eq!(minimum_samples(quantile), n, "{quantile}");
        }
        assert_eq!(minimum_samples("p99.999".parse().unwrap()), 368_887);
        assert_eq!(minimum_samples("p1".parse().unwrap()), 368);
        // The search for this number took all memory.
        assert_eq!(minimum_samples("p0".parse().unwrap()), u64::MAX);
    }

    #[test]
    fn too_few_samples_have_no_quantile() {
        let mut recorder = Recorder::new();
        recorder.record_n(Nanos::from_micros(5), 367);
        assert_eq!(recorder.clone().finish().quantile(Quantile::P99), None);
        recorder.record(Nanos::from_micros(9));
        let read = recorder.finish();
        assert_eq!(read.quantile(Quantile::P99), Some(Nanos::from_nanos(5_003)));
        assert_eq!((read.least(), read.most()), (Some(Nanos::from_micros(5)), Some(Nanos::from_micros(9))));
        let empty = Recorder::new().finish();
        assert_eq!((empty.count(), empty.mean(), empty.least(), empty.most()), (0, None, None, None));
    }

    #[test]
    fn overflow_is_counted_apart_and_in_the_mean() {
        let mut recorder = Recorder::new();
        recorder.record_n(Nanos::from_secs(5), 3);
        recorder.record_n(Nanos::ZERO, 7);
        let read = recorder.finish();
        assert_eq!((read.count(), read.overflow(), read.mean()), (10, 3, Some(Nanos::from_millis(1_500))));
        assert_eq!(read.quantile(Quantile::P50), Some(Nanos::ZERO));
        assert_eq!(read.quantile("p85".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_samples(mut samples in prop::collection::vec(0u64..5_000_000, 400..900)) {
            let mut recorder = Recorder::new();
            samples.iter().for_each(|nanos| recorder.record(Nanos::from_nanos(*nanos)));
            let read = recorder.finish();
            samples.sort_unstable();
            for quantile in [Quantile::P50, Quantile::P90, Quantile::P99] {
                let exact = samples[(samples.len() * quantile.as_ppm() as usize).div_ceil(1_000_000) - 1];
                let got = read.quantile(quantile).unwrap().as_nanos();
                prop_assert!(got >= exact && got <= exact + exact / 500 + 1, "{quantile}: {got}, exactly {exact}");
            }
            prop_assert_eq!(read.sum_ns(), samples.iter().map(|n| u128::from(*n)).sum::<u128>());
        }
    }
}

//! Collects samples of durations: a histogram of the crate `tester`, together with the exact extremes and the exact
//! sum.

use tester::document::Distribution;
use tester::histogram::Histogram;
use units::Nanos;

/// Collects samples of durations. No probe uses it inside the measured time.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Creates an empty recorder.
    pub fn new() -> Self {
        Self { histogram: Histogram::new(), sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds one sample.
    #[inline]
    pub fn record(&mut self, sample: Nanos) {
        self.record_n(sample, 1);
    }

    /// Adds the same sample `n` times.
    #[inline]
    pub fn record_n(&mut self, sample: Nanos, n: u64) {
        if n == 0 {
            return;
        }
        let nanos = sample.as_nanos();
        self.histogram.record_n(nanos, n);
        self.sum_ns += u128::from(nanos) * u128::from(n);
        self.min_ns = self.min_ns.min(nanos);
        self.max_ns = self.max_ns.max(nanos);
    }

    /// Adds the samples of `other`.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }
    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }
    /// Largest sample, exact; `None` without samples.
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then(|| Nanos::from_nanos(self.max_ns))
    }
    /// Smallest sample, exact; `None` without samples.
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then(|| Nanos::from_nanos(self.min_ns))
    }
    /// Sum of all samples, saturating.
    pub fn sum(&self) -> Nanos {
        Nanos::from_nanos(u64::try_from(self.sum_ns).unwrap_or(u64::MAX))
    }
    /// Median, exact to three digits; `None` without samples in the range of the histogram. It is for a probe's own
    /// use: results contain [`Distribution`], which gives no quantile if there are too few samples.
    pub fn median(&self) -> Option<Nanos> {
        let [median] = self.histogram.at_ranks([self.len().div_ceil(2)]);
        median.map(|median| Nanos::from_nanos(median.clamp(self.min_ns, self.max_ns)))
    }

    /// Calls `take` with each value and its count, in ascending order. The value is the upper end of a histogram
    /// bucket, exact to three digits; only the largest value is fully exact. Samples above the range of the histogram
    /// are left out.
    pub fn each(&self, mut take: impl FnMut(Nanos, u64)) {
        for (nanos, n) in self.histogram.to_document().counts {
            take(Nanos::from_nanos(nanos.min(self.max_ns)), n);
        }
    }

    /// Converts the samples to the form that is written as JSON. If `refused` is given, every quantile is null, with
    /// this text as the reason.
    pub fn series(&self, refused: Option<&str>) -> Distribution {
        let mean_ns = (!self.is_empty()).then(|| (self.sum_ns / u128::from(self.len())) as u64);
        let [min_ns, max_ns] = [self.min_ns, self.max_ns].map(|ns| (!self.is_empty()).then_some(ns));
        Distribution::new(self.histogram.to_document(), [min_ns, mean_ns, max_ns], refused)
    }
}

/// Restores a recorder from the form that is written as JSON. Minimum and maximum are exact; the sum is computed from
/// the rounded mean.
impl TryFrom<&Distribution> for Recorder {
    type Error = crate::Error;
    fn try_from(series: &Distribution) -> Result<Self, crate::Error> {
        let histogram = Histogram::try_from(&series.histogram)?;
        let wrong = |why: &str| crate::Error::invalid("a series of samples", why);
        if histogram.len() != series.count {
            return Err(wrong("its histogram does not hold `count` samples"));
        }
        if histogram.is_empty() {
            return Ok(Self::new());
        }
        let (Some(min_ns), Some(max_ns), Some(mean_ns)) = (series.min_ns, series.max_ns, series.mean_ns) else {
            return Err(wrong("it has samples, but min_ns, mean_ns or max_ns is null"));
        };
        Ok(Self { sum_ns: u128::from(mean_ns) * u128::from(histogram.len()), histogram, min_ns, max_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extremes_are_exact_and_survive_the_way_out(values in proptest::collection::vec(0u64..6_000_000_000, 1..200)) {
            let mut recorder = Recorder::new();
            values.iter().for_each(|v| recorder.record(Nanos::from_nanos(*v)));
            let series = recorder.series(None);
            prop_assert_eq!(series.min_ns, values.iter().min().copied());
            prop_assert_eq!(series.max_ns, values.iter().max().copied());
            prop_assert_eq!(series.mean_ns, Some(values.iter().sum::<u64>() / values.len() as u64));
            for quantile in series.quantiles.iter().filter_map(|of| of.latency_ns) {
                prop_assert!(Some(quantile) >= series.min_ns && Some(quantile) <= series.max_ns, "{}", quantile);
            }
            let median = recorder.median();
            prop_assert!(median.is_none() || median >= recorder.min() && median <= recorder.max());
            let back = Recorder::try_from(&series).unwrap();
            prop_assert_eq!(back.series(None), series);
        }
    }

    #[test]
    fn a_series_that_contradicts_itself_is_refused() {
        let mut recorder = Recorder::new();
        recorder.record(Nanos::from_micros(3));
        let good = recorder.series(None);
        assert!(Recorder::try_from(&Distribution { count: 2, ..good.clone() }).is_err());
        assert!(Recorder::try_from(&Distribution { max_ns: None, ..good }).is_err());
        assert!(Recorder::try_from(&Recorder::new().series(None)).unwrap().is_empty());
    }
}

//! Quantiles with a confidence interval that assumes no distribution, or the reason why a quantile cannot be given.
//!
//! The 95 % confidence interval of the q-quantile of n samples goes from the l-th smallest to the u-th smallest sample.
//! The ranks come from the binomial distribution B(n, q): l is the largest rank with P(B < l) <= 2.5 %, u is the
//! smallest rank with P(B < u) >= 97.5 %. Source: Hahn, Meeker, "Statistical intervals", 5.2. The binomial sums are
//! exact, within rounding, for up to 20 million samples; above, the normal approximation is used.
//!
//! The interval assumes independent samples. Within a run, latencies are correlated (stalls cluster), so the real
//! uncertainty is larger than the interval: compare runs, not packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Quantile;

use crate::histogram::{Histogram, HistogramDocument};

/// Probability below the interval, and also above it.
const TAIL: f64 = 0.025;

/// The quantiles that a result lists.
pub const REPORTED: [Quantile; 5] = [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::P99_9, Quantile::P99_99];

/// A quantile and its 95 % confidence interval, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuantileEstimate {
    /// Name of the quantile, such as `p99.9`.
    pub quantile: String,
    /// The estimate: the sample of rank ceil(q n); null if there is no estimate.
    pub latency_ns: Option<u64>,
    /// Lower end of the 95 % confidence interval; null if there is no estimate.
    pub ci95_low_ns: Option<u64>,
    /// Upper end of the 95 % confidence interval; null if there is no estimate.
    pub ci95_high_ns: Option<u64>,
    /// Why there is no estimate, for example too few samples; null if there is one.
    pub refused_because: Option<String>,
}

impl QuantileEstimate {
    /// An entry without an estimate; `why` is the reason.
    pub fn refused(quantile: Quantile, why: String) -> Self {
        Self {
            quantile: quantile.to_string(),
            latency_ns: None,
            ci95_low_ns: None,
            ci95_high_ns: None,
            refused_because: Some(why),
        }
    }
}

/// Up to this number of samples, the binomial probabilities are summed exactly. This takes at most about 50,000
/// additions, which is fast enough for `apus top`, which computes it for every distribution that it shows. For more
/// samples, the normal approximation is used; the resulting ranks differ from the exact ones by at most two (a test
/// compares them).
const SUMMED: u64 = 20_000_000;
/// The 97.5th percentile of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// Smallest number of samples for which both ends of the interval are samples. Examples: 368 for p99, 3,688 for p99.9,
/// 36,887 for p99.99.
pub fn minimum_samples(quantile: Quantile) -> u64 {
    let q = f64::from(quantile.as_ppm()) / 1e6;
    let needed = |p: f64| if p > 0.0 { (TAIL.ln() / p.ln()).ceil() as u64 } else { 1 };
    needed(q).max(needed(1.0 - q)).max(1)
}

/// Estimates a quantile of the samples in `histogram`.
pub fn estimate(histogram: &Histogram, quantile: Quantile) -> QuantileEstimate {
    estimate_in(&histogram.to_document(), quantile)
}

/// Estimates a quantile from a histogram in a document.
pub fn estimate_in(histogram: &HistogramDocument, quantile: Quantile) -> QuantileEstimate {
    let refused = |why: String| QuantileEstimate::refused(quantile, why);
    let (n, needed) = (histogram.len(), minimum_samples(quantile));
    if n < needed {
        return refused(format!("{n} samples; {quantile} needs {needed}"));
    }
    let Some((low, high)) = interval_ranks(n, quantile) else {
        return refused(format!("{quantile} of {n} samples has no two-sided 95 % interval"));
    };
    // ceil(q n), computed without rounding in 128 bits.
    let rank = (u128::from(n) * u128::from(quantile.as_ppm())).div_ceil(1_000_000).max(1) as u64;
    match histogram.at_ranks([low, rank, high]) {
        [Some(low), Some(value), Some(high)] => QuantileEstimate {
            quantile: quantile.to_string(),
            latency_ns: Some(value),
            ci95_low_ns: Some(low),
            ci95_high_ns: Some(high),
            refused_because: None,
        },
        _ => refused(format!(
            "{quantile} or its interval lies above {} ns, where {} samples are only counted",
            histogram.highest_ns, histogram.overflow
        )),
    }
}

/// Ranks (from 1) of the two ends of the interval; `None` if an end would lie outside the samples.
pub fn interval_ranks(n: u64, quantile: Quantile) -> Option<(u64, u64)> {
    let q = f64::from(quantile.as_ppm()) / 1e6;
    if n == 0 || q <= 0.0 {
        return None;
    }
    if n > SUMMED {
        let (mean, sigma) = (n as f64 * q, (n as f64 * q * (1.0 - q)).sqrt());
        let (low, high) = ((mean - NORMAL * sigma).floor() as u64, (mean + NORMAL * sigma).ceil() as u64 + 1);
        return (low >= 1 && high <= n).then_some((low, high));
    }
    // Probabilities relative to that of the mode, in both directions from it until they are negligible. Each follows
    // from its neighbour: P(k + 1) / P(k) = (n - k) / (k + 1) * q / (1 - q). They are divided by their sum below.
    const NEGLIGIBLE: f64 = 1e-25;
    let odds = q / (1.0 - q);
    let mode = (((n + 1) as f64 * q) as u64).min(n);
    let mut down = Vec::new();
    let (mut weight, mut k) = (1.0, mode);
    while k > 0 && weight > NEGLIGIBLE {
        weight *= k as f64 / ((n - k + 1) as f64 * odds);
        k -= 1;
        down.push(weight);
    }
    let first = k;
    let mut weights: Vec<f64> = down.into_iter().rev().collect();
    (weight, k) = (1.0, mode);
    weights.push(weight);
    while k < n && weight > NEGLIGIBLE {
        weight *= (n - k) as f64 / (k + 1) as f64 * odds;
        k += 1;
        weights.push(weight);
    }
    let total: f64 = weights.iter().sum();
    let (mut below, mut low, mut high) = (0.0, first, None); // below: P(B < k)
    for (k, weight) in (first..).zip(&weights) {
        if below <= TAIL {
            low = k;
        }
        if below >= 1.0 - TAIL && high.is_none() {
            high = Some(k);
        }
        below += weight / total;
    }
    // For the first k above the last weight, P(B < k) is 1.
    let high = high.unwrap_or(first + weights.len() as u64);
    (low >= 1 && high <= n).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_samples_of_the_design() {
        let expected = [6, 36, 368, 3_688, 36_887];
        for (quantile, n) in REPORTED.into_iter().zip(expected) {
            assert_eq!(minimum_samples(quantile), n, "{quantile}");
            assert_eq!(interval_ranks(n - 1, quantile), None, "{quantile}");
            assert!(interval_ranks(n, quantile).is_some(), "{quantile}");
        }
        assert_eq!(minimum_samples("p99.999".parse().unwrap()), 368_887);
        assert_eq!(minimum_samples("p1".parse().unwrap()), 368);
    }

    #[test]
    fn ranks_for_the_median_as_tabulated() {
        // Conover, "Practical nonparametric statistics", sign-test intervals of the median, 95 %.
        for (n, ranks) in [(6, (1, 6)), (10, (2, 9)), (20, (6, 15)), (25, (8, 18)), (50, (18, 33)), (100, (40, 61))] {
            assert_eq!(interval_ranks(n, Quantile::P50), Some(ranks), "{n}");
        }
    }

    #[test]
    fn the_sums_hold_for_many_samples() {
        // At 20 million samples, the normal approximation is accurate to one or two ranks.
        let n = 20_000_000;
        let (low, high) = interval_ranks(n, Quantile::P99).unwrap();
        let (mean, sigma) = (n as f64 * 0.99, (n as f64 * 0.99 * 0.01).sqrt());
        assert!((low as f64 - (mean - 1.959_964 * sigma)).abs() < 2.0, "{low}");
        assert!((high as f64 - (mean + 1.959_964 * sigma)).abs() < 2.0, "{high}");
    }

    #[test]
    fn any_number_of_samples_has_an_interval_at_once() {
        let many = |n| interval_ranks(n, Quantile::P99).unwrap();
        // At the limit between them, the exact sum and the normal approximation agree.
        let (summed, normal) = (many(SUMMED), many(SUMMED + 1));
        assert!(summed.0.abs_diff(normal.0) <= 3 && summed.1.abs_diff(normal.1) <= 3, "{summed:?} {normal:?}");
        let (low, high) = many(13_333_333_333_333_333);
        assert!(low < high && high - low < 50_000_000, "{low} {high}");
        assert!(interval_ranks(u64::MAX, Quantile::P50).is_some());
    }

    #[test]
    fn estimates_or_refuses() {
        let mut histogram = Histogram::new();
        (1..=367).for_each(|i| histogram.record(i));
        let refused = estimate(&histogram, Quantile::P99);
        assert_eq!(refused.refused_because.as_deref(), Some("367 samples; p99 needs 368"));
        assert_eq!(refused.latency_ns, None);
        histogram.record(368);
        let p99 = estimate(&histogram, Quantile::P99);
        assert_eq!((p99.latency_ns, p99.ci95_high_ns), (Some(365), Some(368)));
        histogram.record(u64::MAX);
        let p99 = estimate(&histogram, Quantile::P99);
        assert!(p99.refused_because.unwrap().contains("1 samples are only counted"));
    }

    #[test]
    fn the_interval_covers_as_often_as_it_says() {
        let mut random = crate::Random::new(3);
        let q: Quantile = "p90".parse().unwrap();
        let (low, high) = interval_ranks(200, q).unwrap();
        let runs = 4_000;
        let covered = (0..runs)
            .filter(|_| {
                let below = (0..200).filter(|_| random.unit() <= 0.9).count() as u64;
                low <= below && below < high
            })
            .count();
        assert!((0.94..0.985).contains(&(covered as f64 / f64::from(runs))), "{covered}");
    }
}

//! Compares runs. Each run counts as one sample; packets are not samples.

use std::collections::BTreeMap;

use crate::Random;

/// Maximum number of runs in both groups together for an exact U test. The exact test counts all ways to distribute the
/// runs over the groups; up to 50 runs, the count fits into an f64 without rounding ("50 choose 25" is below 2^53).
const EXACT_UP_TO: usize = 50;

/// The median; `None` if there are no values or one is NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted_median(&sorted))
}

fn sorted_median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The confidence interval; `None` if there are too few values.
    pub ci95: Option<(f64, f64)>,
}

/// Mean of independent values with Student's confidence interval: mean ± t(n - 1) s / √n. The interval needs at least 2
/// values. Returns `None` if there are no values or one is not finite.
///
/// Source: A. M. Law, "Simulation modeling and analysis", 4.5 and 9.4.1 (fixed-sample-size procedure).
pub fn mean_interval(values: &[f64]) -> Option<Interval> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let ci95 = (values.len() > 1).then(|| {
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = student_975(values.len() as u64 - 1) * (variance / n).sqrt();
        (mean - half, mean + half)
    });
    Some(Interval { value: mean, ci95 })
}

/// Median with its confidence interval. The ends of the interval are two of the values; their ranks follow from the
/// binomial distribution. So the values may have any distribution. The interval needs at least 6 values.
///
/// Source: J.-Y. Le Boudec, "Performance evaluation of computer and communication systems", theorem 2.1.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let value = median(values)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ranks = crate::quantile::interval_ranks(values.len() as u64, units::Quantile::P50);
    let ci95 = ranks.map(|(low, high)| (sorted[low as usize - 1], sorted[high as usize - 1]));
    Some(Interval { value, ci95 })
}

/// The 97.5 % quantile of Student's distribution with `freedom` degrees of freedom, at least 1.
///
/// Sources: NIST/SEMATECH, "e-Handbook of statistical methods", 1.3.6.7.2, for up to 30 degrees of freedom; Abramowitz
/// and Stegun, 26.7.5, for more.
fn student_975(freedom: u64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    const NORMAL: f64 = 1.959_964;
    if let Some(value) = freedom.checked_sub(1).and_then(|index| TABLE.get(index as usize)) {
        return *value;
    }
    let (x, v) = (NORMAL, freedom as f64);
    x + (x.powi(3) + x) / (4.0 * v) + (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / (96.0 * v * v)
}

/// The result of a Mann-Whitney test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MannWhitney {
    /// U of the first group: number of pairs of one value from each group in which the value from the first group is
    /// greater. A tie counts as half a pair.
    pub u: f64,
    /// Two-sided p-value: share of the rearrangements whose U is at least as far from the mean of U as the observed U.
    pub p: f64,
    /// Whether `p` is exact. Otherwise it is a normal approximation with corrections for ties and continuity.
    pub exact: bool,
}

/// Tests whether two groups of runs differ in location. The values may have any distribution. The exact test also
/// handles ties: it rearranges mid-ranks. `None` if a group is empty or contains NaN.
///
/// Source: Mann, Whitney 1947; Hollander, Wolfe, Chicken, "Nonparametric statistical methods", 4.1.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    if a.is_empty() || b.is_empty() || a.iter().chain(b).any(|v| v.is_nan()) {
        return None;
    }
    let mut all: Vec<(f64, bool)> = a.iter().map(|v| (*v, true)).chain(b.iter().map(|v| (*v, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    // Mid-ranks, doubled so that they are whole numbers.
    let (mut ranks, mut sum_a, mut ties) = (Vec::with_capacity(all.len()), 0u64, 0.0);
    for group in all.chunk_by(|x, y| x.0 == y.0) {
        let first = ranks.len() as u64 + 1;
        let doubled = 2 * first + group.len() as u64 - 1;
        ranks.extend(group.iter().map(|_| doubled));
        sum_a += doubled * group.iter().filter(|(_, in_a)| *in_a).count() as u64;
        let t = group.len() as f64;
        ties += t * t * t - t;
    }
    let (n_a, n_b, n) = (a.len() as f64, b.len() as f64, all.len() as f64);
    let u = sum_a as f64 / 2.0 - n_a * (n_a + 1.0) / 2.0;
    if all.len() <= EXACT_UP_TO {
        return Some(MannWhitney { u, p: exact_p(&ranks, a.len(), sum_a), exact: true });
    }
    let variance = n_a * n_b / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    let distance = ((u - n_a * n_b / 2.0).abs() - 0.5).max(0.0);
    let p = if variance > 0.0 { normal_two_sided(distance / variance.sqrt()) } else { 1.0 };
    Some(MannWhitney { u, p, exact: false })
}

/// The smallest p-value that [`mann_whitney`] can return for groups of these sizes: all values of one group are above
/// all values of the other. Two of the rearrangements are that extreme, and 1 at most is all of them.
pub fn smallest_p(a: u64, b: u64) -> f64 {
    // "a + b choose a", as a product of factors of at least 1.
    let all: f64 = (1..=a).map(|k| (b + k) as f64 / k as f64).product();
    (2.0 / all).min(1.0)
}

/// Share of all choices of `size` of the `ranks` whose sum is at least as far from the mean sum as `seen`. The ranks
/// and `seen` are doubled, so that they are whole numbers.
fn exact_p(ranks: &[u64], size: usize, seen: u64) -> f64 {
    // ways[k] maps each possible sum of k chosen ranks to the number of choices with this sum.
    let mut ways: Vec<BTreeMap<u64, f64>> = vec![BTreeMap::new(); size + 1];
    ways[0].insert(0, 1.0);
    for rank in ranks {
        for k in (0..size).rev() {
            let (lower, upper) = ways.split_at_mut(k + 1);
            for (sum, n) in &lower[k] {
                *upper[0].entry(sum + rank).or_insert(0.0) += n;
            }
        }
    }
    // The mean sum is size * total / n. Everything is multiplied by n, to compare whole numbers.
    let (n, total) = (ranks.len() as u64, ranks.iter().sum::<u64>());
    let mean = size as u64 * total;
    let far = (seen * n).abs_diff(mean);
    let all: f64 = ways[size].values().sum();
    ways[size].iter().filter(|(sum, _)| (**sum * n).abs_diff(mean) >= far).map(|(_, n)| n).sum::<f64>() / all
}

/// P(|Z| >= z) for a standard normal Z, with a relative error below 1.2e-7.
///
/// Source: Press et al., "Numerical recipes", 6.2 (erfcc).
fn normal_two_sided(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    const C: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let series = C.iter().rev().fold(0.0, |sum, c| sum * t + c);
    (t * (-x * x + series).exp()).min(1.0)
}

/// A ratio and its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// Median of the first group divided by the median of the second.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub ci95_low: f64,
    /// Upper end of the 95 % interval.
    pub ci95_high: f64,
}

/// The ratio of two medians. Its confidence interval comes from a percentile bootstrap (Efron, Tibshirani, "An
/// introduction to the bootstrap", 13.3) of `resamples` resamples, drawn with the random seed `seed`.
///
/// `None` if a group has fewer than 6 runs (too few for the 95 % interval of a median), if there are fewer than 40
/// resamples, or if a value is not finite and above 0.
pub fn ratio_of_medians(a: &[f64], b: &[f64], resamples: usize, seed: u64) -> Option<Ratio> {
    const FEWEST_RUNS: usize = 6;
    let usable = |group: &[f64]| group.len() >= FEWEST_RUNS && group.iter().all(|v| *v > 0.0 && v.is_finite());
    if !usable(a) || !usable(b) || resamples < 40 {
        return None;
    }
    let mut random = Random::new(seed);
    let mut draw = |group: &[f64]| {
        let mut drawn: Vec<f64> =
            (0..group.len()).map(|_| group[random.up_to(group.len() as u64 - 1) as usize]).collect();
        drawn.sort_by(f64::total_cmp);
        sorted_median(&drawn)
    };
    let mut ratios: Vec<f64> = (0..resamples).map(|_| draw(a) / draw(b)).collect();
    ratios.sort_by(f64::total_cmp);
    let cut = resamples / 40; // 2.5 % on each side
    Some(Ratio { ratio: median(a)? / median(b)?, ci95_low: ratios[cut], ci95_high: ratios[resamples - 1 - cut] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_of_a_few_runs() {
        // The ten observations of Law, example 4.27: mean 1.343, variance 0.1675, t(9) = 2.262.
        let seen = [1.20, 1.50, 1.68, 1.89, 0.95, 1.49, 1.58, 1.55, 0.50, 1.09];
        let mean = mean_interval(&seen).unwrap();
        let (low, high) = mean.ci95.unwrap();
        assert!(
            (mean.value - 1.343).abs() < 1e-9 && (low - 1.0502).abs() < 1e-4 && (high - 1.6358).abs() < 1e-4,
            "{mean:?}"
        );
        // Ten values: the second and the ninth hold the median with 97.9 % (the first and the tenth with 99.8 %).
        let median = median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]).unwrap();
        assert_eq!((median.value, median.ci95), (5.5, Some((2.0, 9.0))));
        assert_eq!(mean_interval(&[3.0]), Some(Interval { value: 3.0, ci95: None }));
        assert_eq!(median_interval(&[1.0; 5]).unwrap().ci95, None);
        assert!(median_interval(&[1.0; 6]).unwrap().ci95.is_some());
        assert_eq!((mean_interval(&[]), mean_interval(&[1.0, f64::NAN])), (None, None));
    }

    #[test]
    fn students_quantiles() {
        for (freedom, expected) in
            [(1, 12.706), (9, 2.262), (30, 2.042), (31, 2.040), (60, 2.000), (120, 1.980), (9_999, 1.960)]
        {
            assert!((student_975(freedom) - expected).abs() < 6e-4, "{freedom}: {}", student_975(freedom));
        }
    }

    /// For many samples of ten uniformly distributed values, the 95 % intervals contain the true value about as often
    /// as they should.
    #[test]
    fn the_intervals_cover() {
        let mut random = Random::new(5);
        let (mut means, mut medians) = (0, 0);
        for _ in 0..2_000 {
            let values: Vec<f64> = (0..10).map(|_| random.up_to(1_000_000) as f64).collect();
            let holds = |interval: Interval| interval.ci95.is_some_and(|(low, high)| low <= 5e5 && 5e5 <= high);
            means += usize::from(holds(mean_interval(&values).unwrap()));
            medians += usize::from(holds(median_interval(&values).unwrap()));
        }
        assert!((1_860..=1_940).contains(&means) && medians >= 1_920, "{means} {medians}");
    }

    fn apart(n: usize) -> f64 {
        let a: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let b: Vec<f64> = (0..n).map(|i| 100.0 + i as f64).collect();
        mann_whitney(&a, &b).unwrap().p
    }

    #[test]
    fn smallest_p_as_tabulated() {
        assert!((apart(3) - 0.10).abs() < 1e-12);
        assert!((apart(4) - 2.0 / 70.0).abs() < 1e-12); // 0.029
        assert!((apart(5) - 2.0 / 252.0).abs() < 1e-12); // 0.008
    }

    #[test]
    fn examples_with_and_without_ties() {
        // Computed by hand: of the 6 choices of 2 of {1, 2, 3, 4}, 4 have a sum at least as far from 5 as 1 + 3.
        let test = mann_whitney(&[1.0, 3.0], &[2.0, 4.0]).unwrap();
        assert_eq!((test.u, test.exact), (1.0, true));
        assert!((test.p - 4.0 / 6.0).abs() < 1e-12);
        // The mid-ranks are 1, 2.5 | 2.5, 4. The sums are 3.5 (twice), 5 (twice) and 6.5 (twice): 4 of 6 are at least
        // as far from 5 as 3.5.
        let tied = mann_whitney(&[1.0, 2.0], &[2.0, 3.0]).unwrap();
        assert_eq!(tied.u, 0.5);
        assert!((tied.p - 4.0 / 6.0).abs() < 1e-12);
        assert_eq!(mann_whitney(&[1.0; 5], &[1.0; 5]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn the_approximation_meets_the_exact_test() {
        assert!((normal_two_sided(1.959_964) - 0.05).abs() < 1e-6);
        let mut random = Random::new(5);
        let a: Vec<f64> = (0..30).map(|_| random.unit()).collect();
        let b: Vec<f64> = (0..30).map(|_| random.unit() + 0.15).collect();
        let approximate = mann_whitney(&a, &b).unwrap();
        assert!(!approximate.exact);
        let exact = mann_whitney(&a[..25], &b[..25]).unwrap();
        assert!(exact.exact && exact.p > 0.0 && approximate.p < 1.0);
        assert!(mann_whitney(&[1.0; 40], &[1.0; 40]).unwrap().p == 1.0);
    }

    #[test]
    fn the_smallest_p_is_that_of_separate_groups() {
        for (a, b) in [(1, 1), (1, 40), (3, 3), (4, 4), (5, 7), (20, 20)] {
            let groups: [Vec<f64>; 2] =
                [(0..a).map(f64::from).collect(), (0..b).map(|n| 100.0 + f64::from(n)).collect()];
            let seen = mann_whitney(&groups[0], &groups[1]).unwrap().p;
            let smallest = smallest_p(a as u64, b as u64);
            assert!((seen - smallest).abs() <= 1e-9 * smallest, "{a}, {b}: {seen}, {smallest}");
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratio_needs_runs_and_repeats_itself() {
        let a = [2.0, 2.1, 1.9, 2.05, 1.95, 2.0, 2.2];
        let b = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02];
        let ratio = ratio_of_medians(&a, &b, 2_000, 9).unwrap();
        assert!((ratio.ratio - 2.0).abs() < 1e-9);
        assert!(ratio.ci95_low < 2.0 && ratio.ci95_high > 2.0 && ratio.ci95_low > 1.7 && ratio.ci95_high < 2.4);
        assert_eq!(Some(ratio), ratio_of_medians(&a, &b, 2_000, 9));
        assert_eq!(ratio_of_medians(&a[..5], &b, 2_000, 9), None);
        assert_eq!(ratio_of_medians(&[0.0; 6], &b, 2_000, 9), None);
    }

    proptest! {
        #[test]
        fn p_is_the_share_of_all_rearrangements(values in proptest::collection::vec(0u8..6, 2..9), size: prop::sample::Index) {
            let size = 1 + size.index(values.len() - 1);
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let (a, b) = values.split_at(size);
            let test = mann_whitney(a, b).unwrap();
            let u_of = |chosen: u32| {
                let mut u = 0.0;
                for (i, x) in values.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1) {
                    for (_, y) in values.iter().enumerate().filter(|(j, _)| *j != i && chosen >> j & 1 == 0) {
                        u += if x > y { 1.0 } else if x == y { 0.5 } else { 0.0 };
                    }
                }
                u
            };
            let choices = (0..1u32 << values.len()).filter(|c| c.count_ones() as usize == size);
            let middle = (a.len() * b.len()) as f64 / 2.0;
            let all: Vec<f64> = choices.map(u_of).collect();
            let far = all.iter().filter(|u| (*u - middle).abs() >= (test.u - middle).abs() - 1e-9).count();
            prop_assert!((test.p - far as f64 / all.len() as f64).abs() < 1e-9);
            prop_assert_eq!(test.u, u_of((1 << size) - 1));
        }
    }
}

//! The design of an experiment: which combinations of settings are run, and how effects are computed from the runs.

use crate::Error;

units::named! {
    /// How factors are combined.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Design {
        /// Runs the baseline with all factors off, then each factor on alone. Needs fewer runs, but cannot find factors
        /// that help only together.
        OneAtATime = "one-at-a-time",
        /// Runs balanced combinations of factors on and off. Also finds pairs that help or hurt only together. Runs all
        /// combinations of up to four factors. With more factors, runs a fraction of the combinations that still
        /// separates every main effect and every interaction of two factors (resolution V and above).
        Factorial = "factorial",
    }
}

/// Maximum number of factors of a factorial design.
pub const MOST_FACTORS: usize = 8;

/// The combinations of factors in one replicate, and the contrasts that estimate the effects from them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Layout {
    /// For each combination, the factors that are on, as bits. The first two combinations are both the baseline, so
    /// that the baseline can be compared with itself.
    pub combinations: Vec<u32>,
    /// The contrasts, one per effect.
    pub contrasts: Vec<Contrast>,
}

/// A weighted sum of the values of all combinations.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Contrast {
    pub kind: Kind,
    pub weights: Vec<f64>,
}

/// The effect that a contrast estimates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The difference between the two baselines; it should be 0.
    Null,
    /// The effect of a factor, averaged over the states of the other factors.
    Main(usize),
    /// How much larger the effect of the first factor is with the second factor on than with it off.
    Interaction(usize, usize),
}

/// Generators of two-level designs of resolution V and above. Each factor after the independent ones has one entry: the
/// indices of the independent factors whose product sets it.
///
/// Source: Montgomery, "Design and analysis of experiments", table 8.14: 2^(5-1) with E = ABCD, 2^(6-1) with F =
/// ABCDE, 2^(7-1) with G = ABCDEF, 2^(8-2) with G = ABCD and H = ABEF.
fn generators(factors: usize) -> &'static [&'static [usize]] {
    match factors {
        5 => &[&[0, 1, 2, 3]],
        6 => &[&[0, 1, 2, 3, 4]],
        7 => &[&[0, 1, 2, 3, 4, 5]],
        8 => &[&[0, 1, 2, 3], &[0, 1, 4, 5]],
        _ => &[],
    }
}

impl Layout {
    pub(super) fn new(design: Design, factors: usize) -> Result<Self, Error> {
        if factors == 0 || factors > 31 {
            return Err(Error::invalid(format!("an experiment with {factors} factors"), "expected 1 to 31"));
        }
        match design {
            Design::OneAtATime => Ok(Self::one_at_a_time(factors)),
            Design::Factorial if (2..=MOST_FACTORS).contains(&factors) => Ok(Self::factorial(factors)),
            Design::Factorial => Err(Error::invalid(
                format!("a factorial design of {factors} factors"),
                format!("expected 2 to {MOST_FACTORS}; try more than that one at a time first"),
            )),
        }
    }

    fn one_at_a_time(factors: usize) -> Self {
        let combinations: Vec<u32> = [0, 0].into_iter().chain((0..factors).map(|factor| 1 << factor)).collect();
        let mut contrasts = vec![null(combinations.len())];
        for factor in 0..factors {
            let mut weights = vec![0.0; combinations.len()];
            (weights[0], weights[1], weights[2 + factor]) = (-0.5, -0.5, 1.0);
            contrasts.push(Contrast { kind: Kind::Main(factor), weights });
        }
        Self { combinations, contrasts }
    }

    fn factorial(factors: usize) -> Self {
        let generated = generators(factors);
        let free = factors - generated.len();
        let balanced = (0..1u32 << free).map(|base| {
            generated.iter().enumerate().fold(base, |combination, (n, product)| {
                // A product of signs is + if an even number of its factors is off.
                let off = product.iter().filter(|factor| base >> **factor & 1 == 0).count();
                if off % 2 == 0 { combination | 1 << (free + n) } else { combination }
            })
        });
        let mut combinations = vec![0, 0];
        combinations.extend(balanced);
        let runs = (combinations.len() - 2) as f64;
        let sign = |combination: u32, factor: usize| if combination >> factor & 1 == 1 { 1.0 } else { -1.0 };
        let weights = |of: &dyn Fn(u32) -> f64| -> Vec<f64> {
            [0.0, 0.0].into_iter().chain(combinations[2..].iter().map(|combination| of(*combination))).collect()
        };
        let mut contrasts = vec![null(combinations.len())];
        for factor in 0..factors {
            let weights = weights(&|combination| sign(combination, factor) * 2.0 / runs);
            contrasts.push(Contrast { kind: Kind::Main(factor), weights });
        }
        for (first, second) in (0..factors).flat_map(|first| (first + 1..factors).map(move |second| (first, second))) {
            let weights = weights(&|combination| sign(combination, first) * sign(combination, second) * 4.0 / runs);
            contrasts.push(Contrast { kind: Kind::Interaction(first, second), weights });
        }
        Self { combinations, contrasts }
    }
}

fn null(combinations: usize) -> Contrast {
    let mut weights = vec![0.0; combinations];
    (weights[0], weights[1]) = (-1.0, 1.0);
    Contrast { kind: Kind::Null, weights }
}

impl Contrast {
    /// The value of the contrast, computed from one value for each combination.
    pub(super) fn of(&self, values: &[f64]) -> f64 {
        self.weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrasts for a device that gives the value `model` for each combination.
    fn contrasts(design: Design, factors: usize, model: impl Fn(u32) -> f64) -> Vec<(Kind, f64)> {
        let layout = Layout::new(design, factors).unwrap();
        let values: Vec<f64> = layout.combinations.iter().map(|combination| model(*combination)).collect();
        layout.contrasts.iter().map(|contrast| (contrast.kind, contrast.of(&values))).collect()
    }

    fn on(combination: u32, factor: usize) -> f64 {
        f64::from(combination >> factor & 1)
    }

    #[test]
    fn one_at_a_time_sees_each_factor_alone() {
        let found =
            contrasts(Design::OneAtATime, 3, |c| 7.0 + 2.0 * on(c, 0) - 3.0 * on(c, 2) + 9.0 * on(c, 0) * on(c, 1));
        assert_eq!(found, [(Kind::Null, 0.0), (Kind::Main(0), 2.0), (Kind::Main(1), 0.0), (Kind::Main(2), -3.0)]);
    }

    #[test]
    fn factorial_designs_keep_effects_and_pairs_apart() {
        for factors in 2..=MOST_FACTORS {
            // Every main effect and every interaction of two factors has a different size.
            let main = |i: usize| 1.0 + i as f64;
            let pair = |i: usize, j: usize| 100.0 + 10.0 * i as f64 + j as f64;
            let model = |c: u32| {
                let mains: f64 = (0..factors).map(|i| main(i) * on(c, i)).sum();
                let pairs: f64 = (0..factors)
                    .flat_map(|i| (i + 1..factors).map(move |j| (i, j)))
                    .map(|(i, j)| pair(i, j) * on(c, i) * on(c, j))
                    .sum();
                mains + pairs
            };
            for (kind, value) in contrasts(Design::Factorial, factors, model) {
                let right = match kind {
                    Kind::Null => 0.0,
                    // Averaged over the states of the other factors, each pair counts half.
                    Kind::Main(i) => {
                        main(i) + (0..factors).filter(|j| *j != i).map(|j| pair(i.min(j), i.max(j)) / 2.0).sum::<f64>()
                    }
                    Kind::Interaction(i, j) => pair(i, j),
                };
                assert!((value - right).abs() < 1e-9, "{factors} factors, {kind:?}: {value}, not {right}");
            }
        }
    }

    #[test]
    fn sizes() {
        let size = |factors| Layout::new(Design::Factorial, factors).unwrap().combinations.len() - 2;
        assert_eq!((2..=8).map(size).collect::<Vec<_>>(), [4, 8, 16, 16, 32, 64, 64]);
        assert!(Layout::new(Design::Factorial, 9).is_err() && Layout::new(Design::Factorial, 1).is_err());
        assert!(Layout::new(Design::OneAtATime, 0).is_err());
    }
}

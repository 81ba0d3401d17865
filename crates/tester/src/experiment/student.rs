//! Student's t distribution: how far a mean of a few values may lie from 0 by chance.

/// Probability that |T| >= |t|, for T with Student's t distribution with `degrees` degrees of freedom.
///
/// Source: Press et al., "Numerical recipes", 6.4: I(ν/(ν+t²); ν/2, 1/2).
pub fn two_sided(t: f64, degrees: f64) -> f64 {
    if !t.is_finite() || degrees < 1.0 {
        return if t.is_nan() { 1.0 } else { 0.0 };
    }
    incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5)
}

/// The t for which [`two_sided`] gives `p`, found by bisection.
pub fn quantile(p: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _halving in 0..200 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, degrees) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// A mean and its standard error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mean {
    /// Mean of the values.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Number of values.
    pub n: usize,
}

impl Mean {
    /// The mean of at least two finite values; otherwise `None`.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n < 2 || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0);
        Some(Self { mean, error: (square / n as f64).sqrt(), n })
    }

    /// Probability of a mean this far from 0 by chance alone.
    pub fn p(&self) -> f64 {
        match (self.error > 0.0, self.mean == 0.0) {
            (true, _) => two_sided(self.mean / self.error, self.n as f64 - 1.0),
            (false, true) => 1.0,
            (false, false) => 0.0,
        }
    }

    /// The interval that holds the true mean with probability `1 - alpha`.
    pub fn interval(&self, alpha: f64) -> (f64, f64) {
        let reach = quantile(alpha, self.n as f64 - 1.0) * self.error;
        (self.mean - reach, self.mean + reach)
    }
}

/// The incomplete beta function I_x(a, b), by its continued fraction (Numerical recipes, 6.4, modified Lentz's method).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut h = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for step in [even, odd] {
            d = 1.0 / away(1.0 + step * d);
            c = away(1.0 + step / c);
            h *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    h
}

/// ln Γ(x) for x > 0, to 2e-10 (Numerical recipes, 6.1, after Lanczos).
fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let base = x + 5.5;
    let series = C.iter().enumerate().fold(1.000_000_000_190_015, |sum, (i, c)| sum + c / (x + 1.0 + i as f64));
    (x + 0.5) * base.ln() - base + (2.506_628_274_631_000_5 * series / x).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_tabulated() {
        // Student's t, two-sided: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
        for (p, degrees, t) in
            [(0.05, 1.0, 12.706), (0.05, 3.0, 3.182), (0.05, 10.0, 2.228), (0.01, 5.0, 4.032), (0.001, 7.0, 5.408)]
        {
            assert!((quantile(p, degrees) - t).abs() < 1e-3, "{p} {degrees}: {}", quantile(p, degrees));
            assert!((two_sided(t, degrees) - p).abs() < 1e-4);
        }
    }

    #[test]
    fn means() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((mean.mean - 2.0).abs() < 1e-12 && (mean.error - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
        let (low, high) = mean.interval(0.05);
        assert!((high - 2.0 - 4.303 * mean.error).abs() < 1e-2 && (low + high - 4.0).abs() < 1e-9);
        assert_eq!(Mean::of(&[1.0]), None);
        assert_eq!(Mean::of(&[1.0, f64::NAN]), None);
        assert_eq!(Mean::of(&[0.0, 0.0]).unwrap().p(), 1.0);
        assert_eq!(Mean::of(&[1.0, 1.0]).unwrap().p(), 0.0);
    }
}

//! Integer arithmetic: products that do not overflow, the logarithm and the exponential.

/// `a * b / c`. A division of 128 bits takes several times as long as one of 64, so it is left for large products.
#[inline]
pub(super) fn product_over(a: u64, b: u64, c: u64) -> u128 {
    #[cold]
    fn large(a: u64, b: u64, c: u64) -> u128 {
        u128::from(a) * u128::from(b) / u128::from(c)
    }
    a.checked_mul(b).map_or_else(|| large(a, b, c), |product| u128::from(product / c))
}

/// -ln(x) for x up to 1, both in 2^-16. Computed from the leading bit and a parabola. The error is at most 1 % of ln 2.
pub(super) fn minus_ln(x: u64) -> u64 {
    const LN_2: u64 = 45_426;
    let x = x.clamp(1, 1 << 16);
    let leading = u64::from(x.ilog2());
    let part = (x << (16 - leading)) - (1 << 16);
    let log2 = (leading << 16) + part + ((part * ((1 << 16) - part)) >> 16) * 22_486 / 65_536;
    (((16 << 16) - log2.min(16 << 16)) * LN_2) >> 16
}

/// e^-x, both in 2^-16. Computed by halving and a parabola through 1, sqrt(1/2) and 1/2. The error is at most 0.3 %.
pub(super) fn exp_neg(x: u64) -> u64 {
    const LOG2_E: u64 = 94_548;
    let halvings = (x.min(1 << 24) * LOG2_E) >> 16;
    let whole = halvings >> 16;
    if whole > 16 {
        return 0;
    }
    let part = halvings & 0xffff;
    let root = (1 << 16) - ((part * (44_014 - ((part * 11_246) >> 16))) >> 16);
    root >> whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_exact_at_any_size() {
        let large = u64::MAX / 3;
        for (a, b, c) in [(7, 5, 2), (large, 3, 5), (large, large, 7), (u64::MAX, u64::MAX, 1), (0, large, 9)] {
            assert_eq!(product_over(a, b, c), u128::from(a) * u128::from(b) / u128::from(c));
        }
    }

    #[test]
    fn the_exponential_is_near() {
        for tenth in 0..80 {
            let x = f64::from(tenth) / 10.0;
            let found = exp_neg((x * 65_536.0) as u64) as f64 / 65_536.0;
            assert!((found - (-x).exp()).abs() < 0.003, "{x}: {found}");
        }
    }

    #[test]
    fn the_logarithm_is_near() {
        for thousandth in 1..=1_000 {
            let x = f64::from(thousandth) / 1_000.0;
            let found = minus_ln((x * 65_536.0) as u64) as f64 / 65_536.0;
            assert!((found + x.ln()).abs() < 0.01, "{x}: {found}");
        }
    }
}

//! Random numbers from an explicit seed: one stream per component, computed with integers only.
//!
//! Floating point is not used: logarithms can differ in the last bit between platforms, and then the results would
//! differ too.

use units::Nanos;

/// xoshiro256++: 256 bits of state, passes BigCrush, takes about a nanosecond per number.
///
/// Source: D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47(4), 2021; the state is
/// filled by SplitMix64, as the authors advise (prng.di.unimi.it).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// The stream of component `id` in a world with this `seed`. The streams of different components are independent,
    /// so adding a component does not change the numbers of the others.
    pub const fn stream(seed: u64, id: u64) -> Self {
        let mut fill = SplitMix(seed);
        // The id goes through the mixer too, so that neighbouring seeds and ids do not give the same stream.
        let mut fill = SplitMix(fill.next() ^ SplitMix(id).next().rotate_left(32));
        Self([fill.next(), fill.next(), fill.next(), fill.next()])
    }

    /// Draws 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Draws a number from 0 to `n - 1`, uniformly; 0 if `n` is 0. The bias is below `n / 2^64`.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// Draws true with a probability of `per_million` / 1,000,000.
    pub const fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < per_million as u64
    }

    /// Draws a span uniformly from `from` to `to`, both included. Returns `from` if `to` is not longer.
    pub const fn uniform(&mut self, from: Nanos, to: Nanos) -> Nanos {
        let range = to.saturating_sub(from).as_nanos().saturating_add(1);
        Nanos::from_nanos(from.as_nanos() + self.below(range))
    }

    /// Draws an exponentially distributed span, such as a gap of a Poisson process, with the mean `mean`. The span is
    /// rounded down to whole nanoseconds and at most 44 times the mean. The error is below 2e-7 of the mean.
    pub const fn exponential(&mut self, mean: Nanos) -> Nanos {
        let wide = mean.as_nanos() as u128 * self.negative_logarithm() as u128;
        let nanos = wide >> FRACTION_BITS;
        Nanos::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }

    /// Draws an approximately normal span, never below zero. It is the sum of twelve uniform numbers. Before the limit
    /// at zero, mean and standard deviation are exact, and no sample is more than six deviations from the mean.
    pub const fn normal(&mut self, mean: Nanos, deviation: Nanos) -> Nanos {
        let mut sum = 0u64;
        let mut i = 0;
        while i < 6 {
            let bits = self.next_u64();
            sum += (bits >> 32) + (bits & 0xffff_ffff);
            i += 1;
        }
        // `sum` is 6 +- 6 in units of 2^32.
        let centred = sum as i128 - (6i128 << 32);
        let sample = mean.as_nanos() as i128 + ((deviation.as_nanos() as i128 * centred) >> 32);
        Nanos::from_nanos(if sample < 0 { 0 } else { sample as u64 })
    }

    /// -ln(u) for u uniform in (0, 1], with [`FRACTION_BITS`] fractional bits.
    const fn negative_logarithm(&mut self) -> u64 {
        let bits = self.next_u64() | 1;
        let zeros = bits.leading_zeros();
        let fraction = (bits << zeros) << 1;
        let index = (fraction >> 54) as usize;
        let rest = (fraction << 10) >> 32;
        let step = LOG2[index + 1] - LOG2[index];
        let log2 = LOG2[index] + ((step as u128 * rest as u128) >> 32) as u64;
        let negative = ((zeros as u64 + 1) << FRACTION_BITS) - log2;
        ((negative as u128 * LN_2 as u128) >> 64) as u64
    }
}

/// Fractional bits of a logarithm. The other 8 bits hold the whole part, at most 64.
const FRACTION_BITS: u32 = 56;
/// ln 2, in units of 2^-64.
const LN_2: u64 = 0xb172_17f7_d1cf_79ab;
/// log2(1 + i/1024), in units of 2^-[`FRACTION_BITS`].
static LOG2: [u64; 1025] = log2_table();

const fn log2_table() -> [u64; 1025] {
    let mut table = [0; 1025];
    let mut i = 0;
    while i < 1024 {
        table[i] = log2((1 << 63) + ((i as u64) << 53));
        i += 1;
    }
    table[1024] = 1 << FRACTION_BITS;
    table
}

/// log2 of a number in [ 1, 2), given in units of 2^-63. Each squaring gives one bit.
const fn log2(number: u64) -> u64 {
    let mut x = number as u128;
    let mut result = 0u64;
    let mut bit = 0;
    while bit < FRACTION_BITS {
        x = (x * x) >> 63;
        result <<= 1;
        if x >> 64 != 0 {
            x >>= 1;
            result |= 1;
        }
        bit += 1;
    }
    result
}

/// SplitMix64, which fills the state of another generator.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, fig. 18.
struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_sequences() {
        // Reference outputs of xoshiro256plusplus.c for the state 1, 2, 3, 4, and of splitmix64.c for
        // seed 1234567 (prng.di.unimi.it).
        let mut random = Random([1, 2, 3, 4]);
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
        let mut fill = SplitMix(1_234_567);
        assert_eq!(fill.next(), 6_457_827_717_110_365_317);
        assert_eq!(fill.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn the_logarithms_are_right() {
        for (i, &log) in LOG2.iter().enumerate() {
            let exact = (1.0 + i as f64 / 1024.0).log2();
            assert!((log as f64 / (1u64 << FRACTION_BITS) as f64 - exact).abs() < 1e-12, "{i}");
        }
    }

    #[test]
    fn moments_of_the_distributions() {
        let mut random = Random::stream(7, 0);
        let n = 200_000u64;
        let mean = Nanos::from_micros(100);
        let samples: Vec<f64> = (0..n).map(|_| random.exponential(mean).as_nanos() as f64 / 100_000.0).collect();
        let average = samples.iter().sum::<f64>() / n as f64;
        let above = samples.iter().filter(|x| **x > 3.0).count() as f64 / n as f64;
        assert!((average - 1.0).abs() < 0.01, "mean {average}");
        assert!((above - (-3.0f64).exp()).abs() < 0.002, "above three means {above}");

        let samples: Vec<f64> =
            (0..n).map(|_| random.normal(mean, Nanos::from_micros(10)).as_nanos() as f64 / 1_000.0 - 100.0).collect();
        let average = samples.iter().sum::<f64>() / n as f64;
        let variance = samples.iter().map(|x| (x - average).powi(2)).sum::<f64>() / n as f64;
        assert!(average.abs() < 0.1 && (variance.sqrt() - 10.0).abs() < 0.1, "{average} {variance}");
    }

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, id| Random::stream(seed, id).next_u64();
        let all: std::collections::BTreeSet<u64> = (0..64).flat_map(|s| (0..64).map(move |i| first(s, i))).collect();
        assert_eq!(all.len(), 64 * 64);
        assert_eq!(first(3, 9), first(3, 9));
    }

    proptest! {
        #[test]
        fn uniform_stays_in_range(seed: u64, from in 0u64..1 << 40, span in 0u64..1 << 40) {
            let mut random = Random::stream(seed, 1);
            let (low, high) = (Nanos::from_nanos(from), Nanos::from_nanos(from + span));
            for _ in 0..20 {
                let got = random.uniform(low, high);
                prop_assert!(got >= low && got <= high);
            }
        }

        #[test]
        fn an_exponential_is_bounded(seed: u64, mean in 0u64..1 << 50) {
            let got = Random::stream(seed, 2).exponential(Nanos::from_nanos(mean));
            prop_assert!(got <= Nanos::from_nanos(mean).scale(45, 1));
        }
    }
}

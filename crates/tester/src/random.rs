//! Random numbers from an explicit seed.

/// The generator SplitMix64. It is small, passes the test suite BigCrush, and works with any seed.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, fig. 18.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with the seed `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniformly distributed integer from 0 to `last`, inclusive; the bias is below `last / 2^64`.
    pub const fn up_to(&mut self, last: u64) -> u64 {
        ((self.bits() as u128 * (last as u128 + 1)) >> 64) as u64
    }

    /// A uniformly distributed number in (0, 1], with 53 bits. It is never 0, so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// An exponentially distributed number with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sequence() {
        // Reference values of splitmix64.c (Vigna, prng.di.unimi.it) for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn stays_in_range() {
        let mut random = Random::new(1);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[random.up_to(3) as usize] = true;
            let unit = random.unit();
            assert!(unit > 0.0 && unit <= 1.0);
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(random.up_to(0), 0);
    }
}

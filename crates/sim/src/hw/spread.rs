//! A time span that varies at random.

use units::Nanos;

use super::{ModelError, check};
use crate::random::Random;

/// A span with a minimum, an exponential excess and a maximum. Most delays in hardware and kernel have this shape: the
/// shortest path takes a fixed time, and disturbances add to it at random.
///
/// A sample is `least` plus an exponentially distributed span of mean `excess`, limited to `most`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    least: Nanos,
    excess: Nanos,
    most: Nanos,
}

impl Spread {
    /// A span that is always `span`.
    pub const fn exactly(span: Nanos) -> Self {
        Self { least: span, excess: Nanos::ZERO, most: span }
    }

    /// A span of at least `least`, on average about `excess` more, and never above `most`. Returns an error if `most`
    /// is below `least`.
    pub fn new(least: Nanos, excess: Nanos, most: Nanos) -> Result<Self, ModelError> {
        check(least <= most, "spread", || format!("the minimum {least} exceeds the maximum {most}: swap them"))?;
        Ok(Self { least, excess, most })
    }

    /// A span from zero to `most`, exponentially distributed with a mean of about `mean`.
    pub const fn up_to(mean: Nanos, most: Nanos) -> Self {
        Self { least: Nanos::ZERO, excess: mean, most }
    }

    /// The shortest possible span.
    pub const fn least(self) -> Nanos {
        self.least
    }
    /// The longest possible span.
    pub const fn most(self) -> Nanos {
        self.most
    }
    /// Minimum plus mean excess. The true average is slightly lower, because samples are limited to [`Spread::most`].
    pub fn typical(self) -> Nanos {
        (self.least + self.excess).min(self.most)
    }

    /// Draws one span.
    pub fn sample(self, random: &mut Random) -> Nanos {
        if self.excess == Nanos::ZERO {
            return self.least;
        }
        (self.least + random.exponential(self.excess)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_floor_above_the_limit_is_refused() {
        let error = Spread::new(Nanos::from_micros(2), Nanos::ZERO, Nanos::from_micros(1)).unwrap_err();
        assert!(error.to_string().contains("2us"), "{error}");
    }

    proptest! {
        #[test]
        fn samples_lie_between(least in 0u64..10_000, excess in 0u64..10_000, room in 0u64..100_000, seed: u64) {
            let nanos = Nanos::from_nanos;
            let spread = Spread::new(nanos(least), nanos(excess), nanos(least + room)).unwrap();
            let mut random = Random::stream(seed, 0);
            for _ in 0..50 {
                let sample = spread.sample(&mut random);
                prop_assert!(sample >= spread.least() && sample <= spread.most());
            }
        }
    }
}

//! Quantiles of a distribution.

use core::fmt;
use core::str::FromStr;

use crate::parse::{ParseError, decimal};

/// A quantile in parts per million, below 1: `p99.9` is 999,000 ppm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Quantile(u32);

impl Quantile {
    /// The median: half of all samples lie above it.
    pub const P50: Self = Self(500_000);
    /// The 90th percentile: one sample in ten lies above it.
    pub const P90: Self = Self(900_000);
    /// The 99th percentile: one sample in a hundred lies above it.
    pub const P99: Self = Self(990_000);
    /// The 99.9th percentile: one sample in a thousand lies above it.
    pub const P99_9: Self = Self(999_000);
    /// The 99.99th percentile: one sample in ten thousand lies above it.
    pub const P99_99: Self = Self(999_900);

    /// Makes a quantile from parts per million. `None` if `ppm` is 1,000,000 or more, because no sample could lie above
    /// such a quantile.
    pub const fn from_ppm(ppm: u32) -> Option<Self> {
        if ppm < 1_000_000 { Some(Self(ppm)) } else { None }
    }
    /// Share of the samples at or below the quantile, in ppm.
    pub const fn as_ppm(self) -> u32 {
        self.0
    }
    /// Share of the samples above the quantile, in ppm. At least 1.
    pub const fn above_ppm(self) -> u32 {
        1_000_000 - self.0
    }
}

/// Reads `p50`, `p99.9` or `p99.9999`.
impl FromStr for Quantile {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const ERROR: ParseError = ParseError::expected("a quantile such as p99 or p99.9, from p0 to p99.9999");
        let percent = text.trim().strip_prefix('p').ok_or(ERROR)?;
        let ppm = decimal(percent, 10_000).ok_or(ERROR)?;
        u32::try_from(ppm).ok().and_then(Self::from_ppm).ok_or(ERROR)
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0 / 10_000)?;
        let mut rest = self.0 % 10_000;
        if rest > 0 {
            f.write_str(".")?;
        }
        let mut place = 1_000;
        while rest > 0 {
            write!(f, "{}", rest / place)?;
            rest %= place;
            place /= 10;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn reads_and_shows() {
        for text in ["p0", "p50", "p99", "p99.9", "p99.99", "p99.0009", "p99.9999"] {
            assert_eq!(text.parse::<Quantile>().unwrap().to_string(), text);
        }
        for text in ["p100", "99", "p99.99999", "p", "p-1", "p9_9"] {
            assert!(text.parse::<Quantile>().is_err(), "{text} was taken");
        }
    }
}

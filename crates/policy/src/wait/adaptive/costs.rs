//! What waits cost on a platform, measured before the start: what [`Adaptive`](super::Adaptive) would else have to
//! learn from packets that are late.
//!
//! It is a starting point and no more: what the policy then sees of its own waits counts beside it, and outweighs it
//! after [`WEIGHT`] waits of a kind.

use units::Nanos;

/// Lengths of timed waits that [`WakeCosts`] has room for.
pub const LENGTHS: usize = 8;
/// For so many waits of its own the measured distribution stands: enough for the policy to go by from the start, and
/// little against what it remembers (1,024 waits).
const WEIGHT: u16 = 128;

/// A distribution of lateness, by five of its quantiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// The median.
    pub p50: Nanos,
    /// The 75th percentile.
    pub p75: Nanos,
    /// The 90th percentile.
    pub p90: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 99.9th percentile, or as near to it as the measurement came.
    pub p999: Nanos,
}

impl Lateness {
    /// Samples that have these quantiles, [`WEIGHT`] in all: half at the median, up to three quarters at p75, up to
    /// nine tenths at p90, the rest but one at p99. Quantiles in the wrong order are taken for the largest below.
    pub(super) fn samples(&self) -> [(Nanos, u16); 5] {
        let p75 = self.p75.max(self.p50);
        let p90 = self.p90.max(p75);
        const TENTH: u16 = WEIGHT * 5 / 32;
        let rest = WEIGHT - WEIGHT / 2 - WEIGHT / 4 - TENTH - 1;
        let p99 = self.p99.max(p90);
        [(self.p50, WEIGHT / 2), (p75, WEIGHT / 4), (p90, TENTH), (p99, rest), (self.p999.max(p99), 1)]
    }
}

/// How late timed waits of one length end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedCost {
    /// The length of the waits.
    pub length: Nanos,
    /// How late they end.
    pub lateness: Lateness,
}

/// What waiting costs here. `None`: not measured, and learned as without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeCosts {
    /// Timed waits of several lengths. Of two in the same octave the later counts.
    pub timed: [Option<TimedCost>; LENGTHS],
    /// From a frame's arrival to the worker that its interrupt woke.
    pub interrupt: Option<Lateness>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_as_many_as_they_weigh_and_in_order() {
        let us = Nanos::from_micros;
        let samples = Lateness { p50: us(5), p75: us(4), p90: us(9), p99: us(7), p999: us(8) }.samples();
        assert_eq!(samples.iter().map(|(_, n)| *n).sum::<u16>(), WEIGHT);
        assert_eq!(samples.map(|(late, _)| late), [us(5), us(5), us(9), us(9), us(9)]);
    }
}

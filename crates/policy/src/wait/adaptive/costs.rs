//! What waits cost on a platform, measured before the start. Without them, [`Adaptive`](super::Adaptive) must learn the
//! costs from packets that are late.
//!
//! The values are only a starting point. What the policy learns from its own waits is added to them, and outweighs
//! them after [`WEIGHT`] waits of the same kind.

use units::Nanos;

/// Number of lengths of timed waits that [`WakeCosts`] can hold.
pub const LENGTHS: usize = 8;
/// A measured distribution counts as this many of the policy's own waits. That is enough to decide from the start, and
/// few compared with the 1,024 waits that the policy remembers.
const WEIGHT: u16 = 128;

/// Five quantiles of a distribution of lateness: how late waits end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// The median, at most `p75`.
    pub p50: Nanos,
    /// The 75th percentile, at most `p90`.
    pub p75: Nanos,
    /// The 90th percentile, at most `p99`.
    pub p90: Nanos,
    /// The 99th percentile, at most `p999`.
    pub p99: Nanos,
    /// The 99.9th percentile, or the nearest one that was measured.
    pub p999: Nanos,
}

impl Lateness {
    /// Samples that have these quantiles, [`WEIGHT`] in total. Half of them have the value of the median, a quarter
    /// that of p75, and about 15 % that of p90. The rest have that of p99, except for the last one, which has that of
    /// p999. A quantile that is smaller than a lower one is raised to the lower one.
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
    /// The requested length of the waits.
    pub length: Nanos,
    /// How much later than requested the waits of this kind and length end.
    pub lateness: Lateness,
}

/// What waiting costs on this platform. An entry that is `None` was not measured; the policy then learns it from its
/// own waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeCosts {
    /// Timed waits of several lengths. If two lengths are in the same octave, the later entry is used.
    pub timed: [Option<TimedCost>; LENGTHS],
    /// Time from a frame's arrival until the worker that its interrupt wakes is running.
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

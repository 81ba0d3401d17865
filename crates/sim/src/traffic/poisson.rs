//! Exponential gaps, as in the combined traffic of many independent senders.

use units::Nanos;

use super::{Frame, Pace, Sizes};
use crate::At;
use crate::random::Random;

/// A Poisson process. If the rate is in bits per second, the mean gap depends on the size of the frame before the gap.
#[derive(Debug)]
pub struct Source {
    pace: Pace,
    sizes: Sizes,
    random: Random,
    /// When the next frame is due, in 2^-16 ns. A `u64` covers three days.
    next: u64,
    /// The mean gap for the frame size `octets`, in 2^-16 ns.
    mean: u64,
    octets: u32,
}

impl Source {
    /// Makes a source whose first frame comes one random gap after `start`.
    pub fn new(pace: Pace, sizes: Sizes, start: At, random: Random) -> Self {
        let first = sizes.octets()[0];
        let mut source =
            Self { mean: pace.mean_gap(first), pace, sizes, random, next: start.as_nanos() << 16, octets: first };
        source.advance(first);
        source
    }

    fn advance(&mut self, octets: u32) {
        if octets != self.octets {
            (self.octets, self.mean) = (octets, self.pace.mean_gap(octets));
        }
        let gap = self.random.exponential(Nanos::from_nanos(self.mean)).as_nanos();
        self.next = self.next.saturating_add(gap);
    }

    /// Draws the next frame.
    #[inline]
    pub fn draw(&mut self) -> Frame {
        let (at, octets) = (At::from_nanos(self.next >> 16), self.sizes.draw());
        self.advance(octets);
        Frame { at, octets, tag: 0, queue: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BitRate, PacketRate};

    #[test]
    fn mean_and_spread_are_those_of_the_process() {
        let pace = super::super::Rate::Packets(PacketRate::new(14_880_952)).pace(BitRate::new(1));
        let mut source = Source::new(pace, Sizes::fixed(64).unwrap(), At::ORIGIN, Random::stream(5, 1));
        let n = 1_000_000;
        let times: Vec<u64> = (0..n).map(|_| source.draw().at.as_nanos()).collect();
        let mean = times[n - 1] as f64 / n as f64;
        assert!((mean - 67.2).abs() < 0.3, "{mean}");
        // The gaps' standard deviation equals their mean.
        let variance = times.windows(2).map(|w| ((w[1] - w[0]) as f64 - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.01, "{}", variance.sqrt());
    }
}

//! Bursts of equal gaps, with silence between them.

use units::{BitRate, Nanos};

use super::{Frame, Pace, Rate, Sizes};
use crate::At;
use crate::random::Random;

/// Parameters of on-off traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnOff {
    /// The rate within a burst.
    pub rate: Rate,
    /// Mean duration of a burst. Must be above 0.
    pub on: Nanos,
    /// Mean duration of the silence after a burst.
    pub off: Nanos,
    /// How the durations of bursts and silences vary.
    pub lengths: Lengths,
}

/// How durations vary around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lengths {
    /// The durations do not vary.
    #[default]
    Fixed,
    /// The durations are exponentially distributed, as in an interrupted Poisson process, but gaps within a burst are
    /// equal.
    Exponential,
}

/// Alternates between bursts and silence. Begins with a burst.
#[derive(Debug)]
pub struct Source {
    what: OnOff,
    pace: Pace,
    sizes: Sizes,
    random: Random,
    next: At,
    burst_ends: At,
}

impl Source {
    /// Makes a source that begins at `start`, on a wire with the rate `line`.
    pub fn new(what: &OnOff, line: BitRate, sizes: Sizes, start: At, random: Random) -> Self {
        let pace = what.rate.pace(line);
        let mut source = Self { what: *what, pace, sizes, random, next: start, burst_ends: start };
        source.burst_ends = start + source.length(what.on);
        source
    }

    fn length(&mut self, mean: Nanos) -> Nanos {
        match self.what.lengths {
            Lengths::Fixed => mean,
            Lengths::Exponential => self.random.exponential(mean),
        }
    }

    /// Draws the next frame. A burst has at least one frame.
    pub fn draw(&mut self) -> Frame {
        let (at, octets) = (self.next, self.sizes.draw());
        self.next = at + self.pace.gap(octets);
        if self.next >= self.burst_ends {
            let silence = self.length(self.what.off);
            // If the last frame of a burst ends after the burst and its silence, the next burst begins later.
            self.next = (self.burst_ends + silence).max(self.next);
            self.burst_ends = self.next + self.length(self.what.on);
            self.pace.restart();
        }
        Frame { at, octets, tag: 0, queue: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::PacketRate;

    fn source(lengths: Lengths) -> Source {
        let rate = Rate::Packets(PacketRate::new(1_000_000));
        let what = OnOff { rate, on: Nanos::from_micros(3), off: Nanos::from_micros(7), lengths };
        Source::new(&what, BitRate::new(1), Sizes::fixed(64).unwrap(), At::ORIGIN, Random::stream(1, 1))
    }

    #[test]
    fn three_frames_and_silence() {
        let mut source = source(Lengths::Fixed);
        let times: Vec<u64> = (0..7).map(|_| source.draw().at.as_nanos()).collect();
        assert_eq!(times, [0, 1_000, 2_000, 10_000, 11_000, 12_000, 20_000]);
    }

    #[test]
    fn random_lengths_keep_their_means() {
        let mut source = source(Lengths::Exponential);
        let n = 200_000;
        let last = (0..n).map(|_| source.draw().at.as_nanos()).last().unwrap();
        // A burst has 1 + floor(length / 1 us) frames, on average 1 / (1 - exp(-1 / 3)) = 3.53. Burst and silence
        // together last 10 us, and a little more if the last frame outlasts the burst.
        let mean = last as f64 / n as f64;
        assert!((2_700.0..3_000.0).contains(&mean), "{mean}");
    }
}

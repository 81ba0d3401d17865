//! One burst per period: the slots of a radio frame (5G: 0.5 ms), a control loop, an audio stream.

use units::Nanos;

use super::{Frame, Sizes};
use crate::At;
use crate::random::Random;

/// Parameters of slotted traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// Time from slot to slot, above 0.
    pub period: Nanos,
    /// Number of frames per slot, at least 1.
    pub burst: u32,
    /// Time from frame to frame within a slot. A burst must end before the next slot.
    pub spacing: Nanos,
    /// The maximum delay of a burst after the start of its slot; delays are uniformly distributed from 0 to this value.
    /// The burst and the jitter must together be shorter than a period. The slots themselves do not drift.
    pub jitter: Nanos,
}

impl Slots {
    /// Time from a slot's first frame to its last.
    pub fn burst_length(&self) -> Nanos {
        self.spacing * u64::from(self.burst.saturating_sub(1))
    }
}

/// Sends one burst per period.
#[derive(Debug)]
pub struct Source {
    what: Slots,
    sizes: Sizes,
    random: Random,
    /// When the current slot begins.
    slot: At,
    /// Delay of the current slot's burst.
    late: Nanos,
    /// Number of frames sent in the current slot.
    sent: u32,
}

impl Source {
    /// Makes a source whose first slot begins at `start`.
    pub fn new(what: &Slots, sizes: Sizes, start: At, random: Random) -> Self {
        let mut source = Self { what: *what, sizes, random, slot: start, late: Nanos::ZERO, sent: 0 };
        source.late = source.lateness();
        source
    }

    fn lateness(&mut self) -> Nanos {
        self.random.uniform(Nanos::ZERO, self.what.jitter)
    }

    /// Draws the next frame.
    pub fn draw(&mut self) -> Frame {
        let at = self.slot + self.late + self.what.spacing * u64::from(self.sent);
        self.sent += 1;
        if self.sent >= self.what.burst {
            self.slot = self.slot + self.what.period;
            self.late = self.lateness();
            self.sent = 0;
        }
        Frame { at, octets: self.sizes.draw(), tag: 0, queue: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_their_period_and_bursts_their_jitter() {
        let us = Nanos::from_micros;
        let what = Slots { period: us(500), burst: 2, spacing: us(3), jitter: us(10) };
        let mut source = Source::new(&what, Sizes::fixed(64).unwrap(), At::ORIGIN, Random::stream(2, 2));
        let (mut least, mut most) = (Nanos::MAX, Nanos::ZERO);
        for slot in 0..10_000u64 {
            let (first, second) = (source.draw().at, source.draw().at);
            assert_eq!(second.since(first), Some(us(3)));
            let late = first.since(At::ORIGIN + us(500) * slot).unwrap();
            (least, most) = (least.min(late), most.max(late));
        }
        assert!(least < Nanos::from_nanos(100) && most > Nanos::from_nanos(9_900) && most <= us(10), "{least} {most}");
    }
}

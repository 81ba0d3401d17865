//! Equal gaps, as from one sender at one rate.

use super::{Frame, Pace, Sizes};
use crate::At;

/// Sends frames at equal gaps, the first one at the start. If the rate is in bits per second, the gap after a frame
/// depends on the frame's size.
#[derive(Debug)]
pub struct Source {
    pace: Pace,
    sizes: Sizes,
    next: At,
}

impl Source {
    /// Makes a source whose first frame is due at `start`.
    pub fn new(pace: Pace, sizes: Sizes, start: At) -> Self {
        Self { pace, sizes, next: start }
    }

    /// Draws the next frame.
    #[inline]
    pub fn draw(&mut self) -> Frame {
        let (at, octets) = (self.next, self.sizes.draw());
        self.next = at + self.pace.gap(octets);
        Frame { at, octets, tag: 0, queue: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BitRate, PacketRate};

    #[test]
    fn gaps_are_equal() {
        let pace = super::super::Rate::Packets(PacketRate::new(3_000_000)).pace(BitRate::new(1));
        let mut source = Source::new(pace, Sizes::fixed(64).unwrap(), At::from_nanos(10));
        let times: Vec<u64> = (0..4).map(|_| source.draw().at.as_nanos()).collect();
        assert_eq!(times, [10, 343, 676, 1_010]);
    }
}

//! What to do when the driver's queue is full: wait a little, instead of losing a frame with each try.
//!
//! In copy mode a full queue shows only by a frame being taken and dropped. On veth with deferred
//! interrupts the peer empties its ring of 256 frames once in `gro_flush_timeout`; a burst that meets
//! it full would be lost frame by frame, at a system call each. It stays in the TX ring instead.

use units::{Instant, Monotonic, Nanos};

use crate::cpu::{Cpu, LinuxCpu};

/// The first pause: about as long as 16 frames take on veth.
const SHORTEST: Nanos = Nanos::from_micros(10);
/// The longest: less than half of a usual deferral (200 us), so that a burst still fits in after its end.
const LONGEST: Nanos = Nanos::from_micros(80);

/// Whether a refused frame ends a kick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnRefusal {
    /// Yes, and no other follows for a while.
    Pause,
    /// No: the rest is lost, or goes now.
    GoOn,
}

/// The pause that the driver's refusals led to, doubled with each in a row.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// `None` if the last kick was not refused: then no clock is read.
    until: Option<Instant<Monotonic>>,
    last: Nanos,
}

impl Refusals {
    /// Whether it is time to try.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.until.is_none_or(|until| LinuxCpu.now() >= until)
    }

    /// A frame was refused.
    pub(super) fn note(&mut self) {
        self.last = (self.last * 2).clamp(SHORTEST, LONGEST);
        self.until = Some(LinuxCpu.now() + self.last);
    }

    /// Frames were taken.
    #[inline]
    pub(super) fn end(&mut self) {
        (self.until, self.last) = (None, Nanos::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_with_each_refusal_and_ends_with_success() {
        let mut refusals = Refusals::default();
        assert!(refusals.is_over());
        for expected in [10, 20, 40, 80, 80] {
            refusals.note();
            assert_eq!(refusals.last, Nanos::from_micros(expected));
        }
        refusals.end();
        assert!(refusals.is_over());
        refusals.note();
        assert_eq!(refusals.last, SHORTEST);
    }
}

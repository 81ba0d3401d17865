//! Pauses sending while the driver's queue is full, because each attempt would lose a frame.
//!
//! In copy mode, the only sign of a full queue is that the driver accepts a frame and drops it. On veth with deferred
//! interrupts, the peer empties its ring of 256 frames only once per `gro_flush_timeout`. If a burst finds the peer's
//! ring full, each further frame would cost a system call and be lost. So the remaining frames stay in the TX ring
//! until the pause ends.

use units::{Instant, Monotonic, Nanos};

use crate::cpu::{Cpu, LinuxCpu};

/// Length of the first pause: about the time in which veth forwards 16 frames.
const SHORTEST: Nanos = Nanos::from_micros(10);
/// Length of the longest pause: less than half of a usual interrupt deferral (200 us), so that a burst can still be
/// sent after the pause.
const LONGEST: Nanos = Nanos::from_micros(80);

/// What to do when a frame is refused during a kick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnRefusal {
    /// End this attempt to send, and pause.
    Pause,
    /// Continue: each remaining frame is either sent now or lost.
    GoOn,
}

/// The pause after the driver refused a frame. It doubles with each consecutive refusal.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// End of the pause. `None` if there was no refusal; then the clock need not be read.
    until: Option<Instant<Monotonic>>,
    last: Nanos,
}

impl Refusals {
    /// Whether the pause is over.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.until.is_none_or(|until| LinuxCpu.now() >= until)
    }

    /// Records that the driver refused a frame, and starts a pause.
    pub(super) fn note(&mut self) {
        self.last = (self.last * 2).clamp(SHORTEST, LONGEST);
        self.until = Some(LinuxCpu.now() + self.last);
    }

    /// Records that frames were accepted, and ends the pause.
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

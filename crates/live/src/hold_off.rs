//! The hold-off of a worker's queues: NAPI delays frames so that one wake-up serves several. The policy chooses it.
//!
//! ```text
//!   worker: policy.hold_off ──► wanted ──► the program sets the queues' NAPI deferral ──► in force ──► worker
//! ```
//! This crate does not change the setting itself. Whoever runs the [instance](crate::instance::Instance) does, and reports
//! what is in force.
//!
//! **When a frame arrived.** A frame gets its stamp when NAPI receives it. With deferral, NAPI receives a frame at once
//! after a silence, and then polls once per timer until a poll finds nothing (Linux, net/core/dev.c,
//! `napi_complete_done`). So a frame that is received within a timer's length of the one before may have arrived at any
//! time between the two, and [`earliest`] takes the earliest of these times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{Instant, Monotonic, Nanos};

/// Time between two decisions on the hold-off. The policy needs six of them for a measurement.
pub const INTERVAL: Nanos = Nanos::from_millis(40);
/// A timer of NAPI may end this much late, and a quarter of its length: a frame that is received later than that after the
/// one before is not one that the timer held.
const LATE: Nanos = Nanos::from_micros(20);

/// The hold-off of one worker's queues. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct HoldOff(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// In nanoseconds.
    wanted: AtomicU64,
    /// In nanoseconds.
    in_force: AtomicU64,
}

impl HoldOff {
    /// The hold-off that the worker's policy wants. Zero means none.
    pub fn wanted(&self) -> Nanos {
        Nanos::from_nanos(self.0.wanted.load(Ordering::Relaxed))
    }

    /// The hold-off in force, as last reported.
    pub fn in_force(&self) -> Nanos {
        Nanos::from_nanos(self.0.in_force.load(Ordering::Relaxed))
    }

    /// Reports what is in force on the worker's queues: the longest, if they differ.
    pub fn report(&self, in_force: Nanos) {
        self.0.in_force.store(in_force.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn want(&self, wanted: Nanos) {
        self.0.wanted.store(wanted.as_nanos(), Ordering::Relaxed);
    }

    /// Frames are delayed by no more than this, also while the setting is being changed.
    pub(crate) fn longest(&self) -> Nanos {
        self.wanted().max(self.in_force())
    }
}

/// The earliest time at which a frame can have arrived that was stamped at `stamped`. `before` is the stamp of the frame
/// before it in its queue, and `hold_off` the longest time for which NAPI delays a frame.
pub(crate) fn earliest(
    stamped: Instant<Monotonic>,
    before: Option<Instant<Monotonic>>,
    hold_off: Nanos,
) -> Instant<Monotonic> {
    let since = before.and_then(|before| stamped.since(before));
    match since {
        Some(since) if hold_off > Nanos::ZERO && since <= hold_off + hold_off / 4 + LATE => {
            stamped.before(since.min(hold_off)).unwrap_or(stamped)
        }
        _ => stamped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_may_have_come_right_after_the_one_before_but_not_before_the_timer() {
        let at = |us: u64| Instant::<Monotonic>::from_nanos(us * 1_000);
        let us = Nanos::from_micros;
        let earliest = |stamped: u64, before: Option<u64>| earliest(at(stamped), before.map(at), us(100));
        assert_eq!(earliest(1_000, None), at(1_000), "nothing is known of the queue: its interrupt is on");
        assert_eq!(earliest(1_000, Some(970)), at(970));
        assert_eq!(earliest(1_000, Some(899)), at(900), "the timer was 1 us late");
        assert_eq!(earliest(1_000, Some(800)), at(1_000), "the timer ended before this frame came");
        assert_eq!(earliest(1_000, Some(1_010)), at(1_000));
        assert_eq!(super::earliest(at(1_000), Some(at(999)), Nanos::ZERO), at(1_000));
    }

    #[test]
    fn while_the_setting_changes_the_longer_one_counts() {
        let hold_off = HoldOff::default();
        hold_off.want(Nanos::from_micros(50));
        assert_eq!((hold_off.in_force(), hold_off.longest()), (Nanos::ZERO, Nanos::from_micros(50)));
        hold_off.report(Nanos::from_micros(50));
        hold_off.want(Nanos::ZERO);
        assert_eq!((hold_off.wanted(), hold_off.longest()), (Nanos::ZERO, Nanos::from_micros(50)));
    }
}

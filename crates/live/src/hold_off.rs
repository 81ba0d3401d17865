//! The hold-off of a worker's queues: NAPI delays frames so that one wake-up serves several. The policy chooses it.
//!
//! ```text
//!   worker: policy.hold_off ──► wish ──► the program sets the queues' NAPI deferral ──► in force ──► worker
//! ```
//! This crate does not change the setting itself. Whoever runs the [instance](crate::instance::Instance) does, and
//! reports what is in force. The policy is not asked again before its last wish was answered.
//!
//! **When a frame arrived.** A frame gets its stamp when NAPI receives it. With deferral, NAPI receives a frame at once
//! after a silence, and then polls once per timer until a poll finds nothing (Linux, net/core/dev.c,
//! `napi_complete_done`). So a frame that NAPI received within a timer's length of its poll before may have arrived at
//! any time between the two. [`Received::earliest`] returns the earliest of these times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{Instant, Monotonic, Nanos};

/// Minimum time between two decisions on the hold-off. The policy needs six of them for a measurement.
pub const INTERVAL: Nanos = Nanos::from_millis(40);
/// How much later than its end a timer of NAPI may run: a quarter of its length, but at least this.
const LATE: Nanos = Nanos::from_micros(20);

/// The hold-off of one worker's queues. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct HoldOff(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The last wish, in nanoseconds.
    wanted: AtomicU64,
    /// The hold-off that was last reported, in nanoseconds.
    in_force: AtomicU64,
    /// Number of wishes so far, and of those that were answered.
    wishes: AtomicU64,
    answered: AtomicU64,
}

/// What a worker's policy wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The wanted hold-off. Zero means none.
    pub hold_off: Nanos,
    number: u64,
}

impl HoldOff {
    /// What the worker's policy wants, until [`Self::report`] answers it. `None` if there is nothing to change.
    pub fn wish(&self) -> Option<Wish> {
        let number = self.0.wishes.load(Ordering::Acquire);
        let is_open = number != self.0.answered.load(Ordering::Acquire);
        is_open.then(|| Wish { hold_off: Nanos::from_nanos(self.0.wanted.load(Ordering::Relaxed)), number })
    }

    /// Reports what is in force on the worker's queues: the longest timer, if they differ. `answered` is the wish that
    /// was carried out or refused before. `None` if there was none.
    pub fn report(&self, in_force: Nanos, answered: Option<Wish>) {
        self.0.in_force.store(in_force.as_nanos(), Ordering::Relaxed);
        if let Some(wish) = answered {
            self.0.answered.store(wish.number, Ordering::Release);
        }
    }

    /// The hold-off in force, as last reported.
    pub fn in_force(&self) -> Nanos {
        Nanos::from_nanos(self.0.in_force.load(Ordering::Relaxed))
    }

    /// Lets the worker's policy choose, if its last wish was answered. `choose` gets the hold-off in force.
    pub(crate) fn choose(&self, choose: impl FnOnce(Nanos) -> Nanos) {
        if self.wish().is_some() {
            return;
        }
        let in_force = self.in_force();
        let wanted = choose(in_force);
        if wanted != in_force {
            self.0.wanted.store(wanted.as_nanos(), Ordering::Relaxed);
            self.0.wishes.fetch_add(1, Ordering::Release);
        }
    }

    /// Frames are delayed by no more than this, also while the setting is being changed.
    pub fn longest(&self) -> Nanos {
        self.in_force().max(self.wish().map_or(Nanos::ZERO, |wish| wish.hold_off))
    }
}

/// When NAPI received the frames of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The stamp of the last frame. `None` before the first one.
    last: Option<Instant<Monotonic>>,
    /// The stamp of the last frame of NAPI's poll before that. `None` if there was none.
    before: Option<Instant<Monotonic>>,
}

impl Received {
    /// The earliest time at which the frame can have arrived that NAPI received at `stamped`. `hold_off` is the longest
    /// time for which NAPI delays a frame.
    pub(crate) fn earliest(&mut self, stamped: Instant<Monotonic>, hold_off: Nanos) -> Instant<Monotonic> {
        // NAPI polls at most once per timer: frames with closer stamps are of the same poll.
        let is_of_next_poll = self.last.and_then(|last| stamped.since(last)).is_none_or(|since| since >= hold_off / 2);
        if is_of_next_poll {
            self.before = self.last;
        }
        self.last = Some(stamped);
        let since = self.before.and_then(|before| stamped.since(before));
        match since {
            Some(since) if hold_off > Nanos::ZERO && since <= hold_off + (hold_off / 4).max(LATE) => {
                stamped.before(since.min(hold_off)).unwrap_or(stamped)
            }
            _ => stamped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = Nanos::from_micros(1);

    fn at(us: u64) -> Instant<Monotonic> {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn a_frame_may_have_come_right_after_the_poll_before_but_not_before_the_timer() {
        let earliest = |stamped: u64, before: u64| {
            let mut received = Received { last: Some(at(before)), before: None };
            received.earliest(at(stamped), US * 100)
        };
        assert_eq!(Received::default().earliest(at(1_000), US * 100), at(1_000), "the queue's interrupt is on");
        assert_eq!(earliest(1_000, 930), at(930));
        assert_eq!(earliest(1_000, 899), at(900), "the timer was 1 us late");
        assert_eq!(earliest(1_000, 870), at(1_000), "the timer ended before this frame came");
        assert_eq!(earliest(1_000, 1_010), at(1_000), "a stamp before the last one");
        let mut received = Received { last: Some(at(999)), before: None };
        assert_eq!(received.earliest(at(1_000), Nanos::ZERO), at(1_000), "there is no hold-off");
    }

    /// The second part of a batch once counted as if it had come after the first.
    #[test]
    fn frames_of_one_poll_have_waited_since_the_poll_before() {
        let mut received = Received::default();
        let earliest = [500, 600, 601, 604, 700].map(|stamped| received.earliest(at(stamped), US * 100));
        assert_eq!(earliest, [500, 500, 501, 504, 604].map(at));
    }

    #[test]
    fn the_policy_is_asked_again_only_after_its_wish_was_answered() {
        let hold_off = HoldOff::default();
        let wanted = |hold_off: &HoldOff| hold_off.wish().map(|wish| wish.hold_off);
        hold_off.choose(|in_force| in_force);
        assert_eq!(wanted(&hold_off), None);
        // The original setting is no wish of the policy.
        hold_off.report(US * 30, None);
        assert_eq!((wanted(&hold_off), hold_off.in_force()), (None, US * 30));
        hold_off.choose(|in_force| in_force + US * 20);
        assert_eq!((wanted(&hold_off), hold_off.longest()), (Some(US * 50), US * 50));
        hold_off.choose(|_| panic!("its wish is not answered"));
        // A report that began before the wish is no answer to it.
        hold_off.report(US * 30, None);
        assert_eq!(wanted(&hold_off), Some(US * 50));
        // The driver rounded.
        hold_off.report(US * 48, hold_off.wish());
        assert_eq!((wanted(&hold_off), hold_off.longest()), (None, US * 48));
        hold_off.choose(|_| Nanos::ZERO);
        assert_eq!((wanted(&hold_off), hold_off.longest()), (Some(Nanos::ZERO), US * 48), "the longer one counts");
    }
}

//! What a wait that has ended shows: what ended it, and how late.

use units::{Instant, Nanos};

use super::super::{Arrivals, Ended, Queue, WaitKind};
use super::prices::Kind;

/// What a wait that has ended shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome<C> {
    /// What ended it, or was to end it.
    pub(super) kind: Kind,
    /// Its requested length or, if it was a wait for the device, its planned length, in nanoseconds.
    pub(super) length: u64,
    /// How long it lasted, in nanoseconds.
    pub(super) lasted: u64,
    /// When it was due to end, and how late it ended. `None` if that is unknown.
    pub(super) due: Option<(Instant<C>, Nanos)>,
}

impl<C> Outcome<C> {
    /// The outcome of a wait, with what the poll after it found in the `queues`. If the device ended the wait, it was
    /// `planned` to last so long (in nanoseconds), with a hold-off of `held`.
    #[inline]
    pub(super) fn of(wait: &Ended<C>, queues: &[Queue<C>], planned: u64, held: Nanos) -> Self {
        let lasted = wait.ended.since(wait.began).unwrap_or(Nanos::ZERO).as_nanos();
        let timer = wait.overshoot().and_then(|late| Some((wait.action.until(wait.began)?, late)));
        let sleeps = wait.action.kind() == WaitKind::Sleep;
        if let Some(due) = wait.action.until(wait.began).filter(|_| sleeps || timer.is_some()) {
            // A sleep that the caller cut short shows its cost, but no lateness. Nor does a block after which frames
            // without timestamps are found: an earlier one of them may have ended it.
            let length = due.since(wait.began).unwrap_or(Nanos::ZERO).as_nanos();
            let mut arrivals = queues.iter().filter_map(|queue| queue.arrivals.as_ref());
            let is_unclear = !sleeps && arrivals.any(|came| !came.stamped);
            return Self { kind: Kind::Timer, length, lasted, due: timer.filter(|_| !is_unclear) };
        }
        let stamped = |came: &&Arrivals<C>| came.stamped;
        let arrivals = queues.iter().filter_map(|queue| queue.arrivals.as_ref());
        let first = arrivals.filter(stamped).min_by_key(|came| came.first);
        // The interrupt is due when the hold-off of the first frame ends, but not before the wait began.
        let late = |came: &Arrivals<C>| {
            let due = (came.first + came.held.unwrap_or(held)).max(wait.began);
            (due, came.picked_up.since(due).unwrap_or(Nanos::ZERO))
        };
        Self { kind: Kind::Device, length: planned, lasted, due: first.map(late) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::Action;
    use units::Simulated;

    fn at(us: u64) -> Instant<Simulated> {
        Instant::from_nanos(us * 1_000)
    }

    fn wait(action: Action<Simulated>, ended: u64) -> Ended<Simulated> {
        Ended { action, began: at(100), ended: at(ended), spent: None, idle: Nanos::ZERO }
    }

    /// A frame that came at `came`, and was picked up 2 us after the wait ended.
    fn queue(came: u64, ended: u64) -> Queue<Simulated> {
        let arrivals = Some(Arrivals::stamped(at(came), at(came), at(ended + 2)));
        Queue { received: 1, fill: 1, arrivals }
    }

    #[test]
    fn a_timed_wait_is_late_by_its_overshoot() {
        let of = |action| Outcome::of(&wait(action, 155), &[queue(120, 155)], 7, Nanos::ZERO);
        for outcome in [of(Action::SleepUntil(at(150))), of(Action::BlockUntil(Some(at(150))))] {
            assert_eq!((outcome.kind, outcome.length, outcome.lasted), (Kind::Timer, 50_000, 55_000));
            assert_eq!(outcome.due, Some((at(150), Nanos::from_micros(5))));
        }
    }

    #[test]
    fn a_block_is_late_from_when_its_first_frame_was_due() {
        let of = |came: u64, held: u64| {
            let queues = [queue(came + 3, 155), queue(came, 155)];
            Outcome::of(&wait(Action::BlockUntil(None), 155), &queues, 7, Nanos::from_micros(held))
        };
        let outcome = of(147, 0);
        assert_eq!((outcome.kind, outcome.length, outcome.lasted), (Kind::Device, 7, 55_000));
        assert_eq!(outcome.due, Some((at(147), Nanos::from_micros(10))));
        assert_eq!(of(127, 20).due, outcome.due, "the hold-off was expected");
        assert_eq!(of(90, 0).due, Some((at(100), Nanos::from_micros(57))), "it came before the wait began");
        let nothing = Outcome::of(&wait(Action::BlockUntil(None), 155), &[], 7, Nanos::ZERO);
        assert_eq!(nothing.due, None);
    }

    /// The device may have ended the block at 120 us, and the worker may have taken 35 us to run again.
    #[test]
    fn a_block_with_frames_without_timestamps_shows_no_lateness() {
        let of = |action, queues: &[_]| Outcome::of(&wait(action, 155), queues, 7, Nanos::ZERO).due;
        let unstamped = Queue { arrivals: Some(Arrivals::unstamped(at(100), at(157))), ..queue(120, 155) };
        let late = Some((at(150), Nanos::from_micros(5)));
        assert_eq!(of(Action::BlockUntil(Some(at(150))), &[unstamped]), None);
        assert_eq!(of(Action::BlockUntil(Some(at(150))), &[]), late);
        assert_eq!(of(Action::SleepUntil(at(150)), &[unstamped]), late, "no frame ends a sleep");
    }

    /// The caller woke up earlier than the policy wanted, to check something else.
    #[test]
    fn a_sleep_that_was_cut_short_is_no_wait_for_the_device() {
        let outcome = Outcome::of(&wait(Action::SleepUntil(at(200)), 150), &[queue(120, 150)], 7, Nanos::ZERO);
        assert_eq!((outcome.kind, outcome.lasted, outcome.due), (Kind::Timer, 50_000, None));
    }
}

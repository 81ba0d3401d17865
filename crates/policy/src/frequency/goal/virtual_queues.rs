//! Simulates how every frequency would have served the observed traffic.

use units::{Hertz, Nanos};

use super::cost::Cost;
use crate::frequency::PStates;

/// One virtual queue per frequency. It computes how long the work would have taken at that frequency, and how many
/// frames would have been late.
///
/// The frames and the times between them are the observed ones. Their cost in cycles is learned. A poll takes the
/// frames that arrived during the previous poll, so the fixed cost of a poll is shared by more frames when more arrive.
/// The number of cycles is assumed not to depend on the frequency. In reality, work that waits for memory takes fewer
/// cycles at a lower frequency, so the estimates for lower frequencies err on the safe side.
#[derive(Clone, Debug)]
pub(super) struct VirtualQueues {
    /// One queue per frequency, in ascending order.
    queues: [Queue; PStates::MOST],
    count: usize,
    /// Number of frames in the largest poll so far.
    burst: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Queue {
    /// Time per frame, in ps.
    per_frame: u64,
    /// Time per poll in addition to its frames, in ps.
    per_poll: u64,
    /// Work that is not done yet, in ps.
    backlog: u64,
    /// Number of frames that were late in the present window.
    late: u64,
}

const PS: u64 = 1_000;

impl Queue {
    /// The fixed time of all polls that serve `frames`, which arrive within `available`. `own` is the time of the
    /// frames themselves.
    ///
    /// A poll takes the waiting frames, up to a burst. While no more frames arrive than wait, the size of the polls
    /// hardly changes. Otherwise the size approaches the one at which as many frames arrive during a poll as the poll
    /// takes: `frames * per_poll / (available - own)`. The growth is bounded. Let `c` be the number of frames that
    /// arrive during `per_poll`, and `w` the number of waiting frames. Each served frame adds `c / w` to `w`, minus the
    /// time left over from the frames' own work. So `w^2` grows by at most `2 * c` per frame.
    #[inline]
    fn polls(&self, frames: u64, own: u64, available: u64, burst: u64) -> u64 {
        let waiting = (self.backlog / self.per_frame.max(1)).max(1);
        let all = self.per_poll.saturating_mul(frames);
        let as_now = all / waiting.min(burst);
        let spare = available.saturating_sub(self.backlog).saturating_sub(own);
        if frames <= waiting || all <= spare {
            return as_now;
        }
        // Precision for the square root: 256ths of a frame.
        const ONE: u64 = 256;
        let part = |n: u64, of: u64, whole: u64| n.saturating_mul(of) / whole.max(1);
        let (from, burst_256ths) = (waiting.saturating_mul(ONE), burst.saturating_mul(ONE));
        let steady = part(all, ONE, available.saturating_sub(own)).min(burst_256ths);
        let until = |waits: u64| {
            let ends = available.saturating_add(part(self.per_frame, waits, ONE));
            ends.saturating_sub(self.backlog).saturating_sub(own)
        };
        if steady <= from {
            return as_now.max(until(steady));
        }
        let squared = part(all.saturating_mul(2), frames, available).saturating_mul(ONE * ONE);
        let grown = from.saturating_mul(from).saturating_add(squared).isqrt();
        let while_growing = part(available, grown.saturating_sub(from), frames.saturating_mul(ONE));
        let least = self.per_poll.saturating_mul(frames.div_ceil(burst));
        // No more frames can wait than waited before plus those that arrived.
        let most = steady.min(from.saturating_add(frames.saturating_mul(ONE)));
        as_now.min(until(grown.min(most)).max(while_growing).max(least))
    }
}

impl VirtualQueues {
    pub fn new(pstates: &PStates) -> Self {
        Self { queues: [Queue::default(); PStates::MOST], count: pstates.as_slice().len(), burst: 1 }
    }

    /// Sets the cost of frames and polls. Backlogs stay unchanged, because they are stored as times, not as numbers of
    /// frames.
    pub fn set_cost(&mut self, cost: Cost, pstates: &PStates) {
        for (queue, frequency) in self.queues.iter_mut().zip(pstates.as_slice()) {
            let ps = |cycles| Nanos::from_nanos(cycles).scale(1_000_000_000 * PS, frequency.as_hertz()).as_nanos();
            (queue.per_frame, queue.per_poll) = (ps(cost.per_frame), ps(cost.per_poll));
        }
    }

    /// Records that a poll returned `frames`.
    pub fn received(&mut self, frames: u64) {
        self.burst = self.burst.max(frames);
    }

    /// Number of frames in the largest poll so far.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Resets the counts of late frames.
    pub fn begin_window(&mut self) {
        for queue in &mut self.queues {
            queue.late = 0;
        }
    }

    /// Serves `frames` that arrived within `available`, at every frequency. A frame is late if a polling core would
    /// finish it later than `limit`.
    #[inline]
    pub fn serve(&mut self, frames: u64, available: Nanos, limit: Nanos) {
        let ps = |span: Nanos| span.as_nanos().saturating_mul(PS);
        let (available, limit) = (ps(available), ps(limit));
        for queue in &mut self.queues[..self.count] {
            let before = queue.backlog.saturating_sub(available);
            let own = queue.per_frame.saturating_mul(frames);
            let polls = queue.polls(frames, own, available, self.burst);
            let work = own.saturating_add(polls);
            // The frames arrived one after the other, and the core worked meanwhile.
            let after = queue.backlog.saturating_add(work).saturating_sub(available);
            // Limit the backlog: beyond twice the limit it adds no information, and would take long to disappear.
            queue.backlog = after.min(limit.saturating_mul(2));
            let alone = queue.per_frame.saturating_add(queue.per_poll);
            // A frame is sent when its whole poll is done, including the frames that arrived while it waited for that
            // poll.
            let followers = before.min(queue.per_frame.saturating_mul(self.burst));
            let done = after.max(before.saturating_add(alone));
            let longest = done.saturating_add(followers);
            if longest > limit {
                queue.late += frames.min((longest - limit) / queue.per_frame.max(1) + 1);
            }
        }
    }

    /// Records that the core left `left` frames in its ring at P-state `state`. Lower P-states get at least this
    /// backlog too, because they cannot have done better.
    pub fn correct(&mut self, state: usize, left: u64) {
        for queue in &mut self.queues[..=state] {
            queue.backlog = queue.backlog.max(queue.per_frame.saturating_mul(left));
        }
    }

    /// Adds `late` frames, which were late at P-state `state` but not computed to be late, to the counts of this
    /// P-state and all lower ones.
    pub fn add_late(&mut self, state: usize, late: u64) {
        for queue in &mut self.queues[..=state] {
            queue.late += late;
        }
    }

    /// Number of frames of this window that would have been late at P-state `state` (0 is the lowest).
    pub fn late(&self, state: usize) -> u64 {
        self.queues[state].late
    }

    /// Time that the unfinished work would take at P-state `state`.
    pub fn backlog(&self, state: usize) -> Nanos {
        Nanos::from_nanos(self.queues[state].backlog / PS)
    }

    /// Time that a frame takes at P-state `state` if its poll returns no other frame.
    pub fn alone(&self, state: usize) -> Nanos {
        let Queue { per_frame, per_poll, .. } = self.queues[state];
        Nanos::from_nanos(per_frame.saturating_add(per_poll) / PS)
    }

    /// The lowest frequency at which at most `late` frames of this window would have been late, and at most `backlog`
    /// of work would be left. `None` if there is no such frequency.
    pub fn lowest(&self, pstates: &PStates, late: u64, backlog: Nanos) -> Option<Hertz> {
        let good = |state: &usize| self.queues[*state].late <= late && self.backlog(*state) <= backlog;
        (0..self.count).find(good).map(|state| pstates.as_slice()[state])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::tests::pstates;
    use proptest::prelude::*;

    const LIMIT: Nanos = Nanos::from_micros(20);

    fn queues(cycles: u64) -> VirtualQueues {
        let mut queues = VirtualQueues::new(&pstates());
        queues.set_cost(Cost { per_poll: 0, per_frame: cycles }, &pstates());
        queues
    }

    #[test]
    fn a_rate_that_is_served_leaves_no_backlog_and_one_that_is_not_does() {
        // 400 cycles: 500 ns at 800 MHz, 200 ns at 2 GHz; a frame each 300 ns.
        let mut queues = queues(400);
        for _ in 0..1_000 {
            queues.serve(10, Nanos::from_nanos(3_000), LIMIT);
        }
        // 1.4 GHz take 286 ns, 1.3 GHz 308.
        assert_eq!(queues.backlog(6), Nanos::ZERO);
        assert_eq!(queues.backlog(5), LIMIT * 2);
        assert_eq!(queues.lowest(&pstates(), 0, LIMIT), Some(Hertz::new(1_400_000_000)));
    }

    #[test]
    fn a_burst_is_late_by_its_work() {
        let mut queues = queues(400);
        queues.serve(50, Nanos::ZERO, LIMIT);
        // 50 frames of 200 ns at 2 GHz: 10 us. At 800 MHz: 25 us, 11 of them over the limit.
        assert_eq!((queues.late(12), queues.late(0)), (0, 11));
    }

    #[test]
    fn a_poll_is_paid_by_the_frames_that_wait() {
        let mut queues = VirtualQueues::new(&pstates());
        queues.set_cost(Cost { per_poll: 800, per_frame: 400 }, &pstates());
        queues.received(32);
        // At 800 MHz: a poll of 1 us, a frame of 500 ns. For two within 3 us there is time for a poll each; four at
        // once share one.
        queues.serve(2, Nanos::from_micros(3), LIMIT);
        assert_eq!(queues.backlog(0), Nanos::ZERO);
        queues.serve(4, Nanos::ZERO, LIMIT);
        assert_eq!(queues.backlog(0), Nanos::from_micros(3));
        // Six wait, and each of the next pays a sixth of a poll.
        queues.serve(6, Nanos::ZERO, LIMIT);
        assert_eq!(queues.backlog(0), Nanos::from_micros(7));
        assert_eq!(queues.alone(0), Nanos::from_nanos(1_500));
    }

    /// What a core that polls has left to do after `available`, to the ps: `waiting` frames at first, `frames` more
    /// at equal distances.
    fn polled(waiting: u64, frames: u64, available: u64, per_poll: u64, per_frame: u64, burst: u64) -> u64 {
        let came = |now: u64| waiting + frames.min(now * frames / available.max(1));
        let (mut now, mut done) = (0, 0);
        while done < waiting + frames {
            let batch = (came(now) - done).min(burst);
            if batch == 0 {
                now = (done + 1 - waiting) * available.div_ceil(frames);
                continue;
            }
            done += batch;
            now += per_poll + batch * per_frame;
        }
        now.saturating_sub(available)
    }

    /// After a sleep many frames come in one piece, of which the first few found the core at work.
    #[test]
    fn many_frames_after_one_that_waits_share_polls() {
        // At 90 % of what a core bears: 260 frames within 33.4 us, 116 ns each, and 180 ns a poll. A poll for each would
        // leave 44 us.
        let (per_poll, per_frame, available) = (180_000, 116_000, 33_400_000);
        for waiting in 0..4 {
            let backlog = waiting * per_frame + per_frame / 2;
            let queue = Queue { per_frame, per_poll, backlog, late: 0 };
            let own = 260 * per_frame;
            let left = (backlog + own + queue.polls(260, own, available, 32)).saturating_sub(available);
            let exact = polled(waiting, 260, available, per_poll, per_frame, 32);
            assert!(left.abs_diff(exact) < 3_000_000, "{waiting}: {left} ps, and exactly {exact}");
        }
    }

    #[test]
    fn a_backlog_is_counted_up_to_twice_the_limit() {
        let mut queues = queues(400);
        queues.serve(1_000, Nanos::ZERO, LIMIT);
        assert_eq!(queues.backlog(0), LIMIT * 2);
        queues.serve(1, LIMIT * 2, LIMIT);
        assert_eq!(queues.backlog(0), Nanos::from_nanos(500));
    }

    #[test]
    fn what_is_left_in_the_ring_corrects_the_numbers() {
        let mut queues = queues(400);
        queues.correct(6, 100);
        assert_eq!(queues.backlog(0), Nanos::from_micros(50));
        assert_eq!(queues.backlog(7), Nanos::ZERO);
    }

    proptest! {
        #[test]
        fn a_higher_frequency_is_never_worse(
            cycles in 1u64..5_000,
            steps in prop::collection::vec((0u64..200, 0u64..50_000), 1..100),
        ) {
            let mut queues = queues(cycles);
            for (frames, available) in steps {
                queues.serve(frames, Nanos::from_nanos(available), LIMIT);
                for state in 1..15 {
                    prop_assert!(queues.backlog(state) <= queues.backlog(state - 1));
                    prop_assert!(queues.late(state) <= queues.late(state - 1));
                }
            }
        }

        /// However many frames come in one piece, and however few waited: what is left to do is what a core that polls
        /// would have left, to within half a burst.
        #[test]
        fn polls_grow_as_those_of_a_core_do(
            waiting in 0u64..80,
            frames in 1u64..400,
            load_percent in 30u64..110,
            poll_percent in 1u64..300,
        ) {
            let (per_frame, burst) = (100_000, 32);
            let (per_poll, own) = (per_frame * poll_percent / 100, per_frame * frames);
            let available = own * 100 / load_percent;
            let queue = Queue { per_frame, per_poll, backlog: waiting * per_frame, late: 0 };
            let left = (queue.backlog + own + queue.polls(frames, own, available, burst)).saturating_sub(available);
            let exact = polled(waiting, frames, available, per_poll, per_frame, burst);
            prop_assert!(left.abs_diff(exact) <= burst / 2 * per_frame, "{left} ps, and exactly {exact}");
        }

        #[test]
        fn nothing_overflows(cycles: u64, steps in prop::collection::vec((any::<u64>(), any::<u64>()), 1..50)) {
            let mut queues = queues(cycles);
            for (frames, available) in steps {
                queues.serve(frames % (1 << 32), Nanos::from_nanos(available), LIMIT);
            }
        }
    }
}

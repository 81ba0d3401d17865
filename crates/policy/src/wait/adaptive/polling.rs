//! When a core that polls all the time would have sent the same packets. This shows which late packets the policy could
//! not have avoided.

use units::{Instant, Nanos};

use super::super::{Arrivals, Sent};

/// A core that polls all the time and is given the same packets: it takes each when it comes, and needs as long for it as
/// the real core did.
///
/// The real core serves the packets that gathered during a wait together, and so needs less time for each. A stall in which
/// the real core slept is not part of its work. For both reasons, the core of this model is never busy for longer than one
/// that polls.
#[derive(Debug)]
pub(super) struct Polling<C> {
    /// When this core has served everything.
    done: Instant<C>,
}

/// The work on the packets of a poll, as the polling core does it.
#[derive(Debug)]
pub(super) struct Served<C> {
    began: Instant<C>,
    done: Instant<C>,
    took: Nanos,
}

impl<C> Polling<C> {
    pub(super) const fn new() -> Self {
        Self { done: Instant::ORIGIN }
    }

    /// Serves the packets of a poll. The real core has sent them at `now`.
    #[inline]
    pub(super) fn serve(&mut self, arrivals: &Arrivals<C>, now: Instant<C>) -> Served<C> {
        let took = now.since(arrivals.picked_up).unwrap_or(Nanos::ZERO);
        // The real core has sent them by now, and the polling one is no later.
        let began = self.done.max(arrivals.first).min(now);
        self.done = (began + took).max(arrivals.last).min(now);
        Served { began, done: self.done, took }
    }
}

impl<C> Served<C> {
    /// When the polling core sends the first and the last of the `frames`.
    pub(super) fn sent(&self, arrivals: &Arrivals<C>, frames: u64) -> Sent<C> {
        let each = self.took / frames.max(1);
        Sent { first: self.began + each, last: self.done.max(arrivals.last + each) }
    }
}

impl<C> Clone for Polling<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Polling<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    fn at(us: u64) -> Instant<Simulated> {
        Instant::from_nanos(us * 1_000)
    }

    /// Polls of `frames` that came from `first` to `last`, were picked up and sent then: the delays of the first and the
    /// last with polling, in microseconds.
    fn delays<const N: usize>(polls: [(u64, u64, u64, u64, u64); N]) -> [[u64; 2]; N] {
        let mut polling = Polling::new();
        polls.map(|(frames, first, last, picked_up, now)| {
            let arrivals = Arrivals::stamped(at(first), at(last), at(picked_up));
            let sent = polling.serve(&arrivals, at(now)).sent(&arrivals, frames);
            let of = |sent: Instant<_>, came: u64| sent.since(at(came)).unwrap_or(Nanos::ZERO).as_nanos() / 1_000;
            [of(sent.first, first), of(sent.last, last)]
        })
    }

    #[test]
    fn without_a_queue_each_packet_takes_its_own_time() {
        // A sleep that gathered ten packets; a block that was late.
        assert_eq!(delays([(10, 0, 90, 100, 120), (1, 200, 200, 240, 242)]), [[2, 2], [2, 2]]);
    }

    #[test]
    fn in_a_burst_polling_is_late_as_well() {
        // 100 packets within 50 us, of 2 us each, found 10 us after the first.
        assert_eq!(delays([(64, 0, 32, 10, 138), (36, 32, 50, 138, 210)]), [[2, 96], [98, 150]]);
        // After that the queue is empty.
        assert_eq!(delays([(64, 0, 32, 10, 138), (1, 500, 500, 501, 503)])[1], [2, 2]);
    }

    #[test]
    fn a_stall_during_the_work_makes_polling_late() {
        assert_eq!(delays([(1, 0, 0, 5, 300), (10, 20, 250, 300, 320)]), [[295, 295], [277, 65]]);
    }

    #[test]
    fn clocks_that_jump_change_nothing() {
        let mut polling = Polling::new();
        for (first, last, picked_up, now) in [(9, 8, 7, 6), (u64::MAX / 1_000, 0, 5, u64::MAX / 1_000), (0, 0, 0, 1)] {
            let arrivals = Arrivals::stamped(at(first), at(last), at(picked_up));
            polling.serve(&arrivals, at(now)).sent(&arrivals, 0);
            assert!(polling.done <= at(now));
        }
    }
}

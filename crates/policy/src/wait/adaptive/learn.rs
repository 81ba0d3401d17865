//! Learns from an observation: how the last wait ended, what came, and what of it was late.

use units::{Instant, Nanos};

use super::super::{Arrivals, Ended, Observation, Queue, WaitKind};
use super::choice::BLOCK;
use super::late::{ONE, came_before, delays, picked_up};
use super::outcome::Outcome;
use super::{Adaptive, BLIND_RESERVE_PART, reserve};

/// What a poll showed of the last wait, before its queues are looked at one by one.
struct Poll<C> {
    now: Instant<C>,
    /// Whether the core begins to work with this poll.
    begins: bool,
    /// Whether a wait has just ended.
    ended: bool,
    /// When the worker ran again, if the device ended a block.
    woke: Option<Instant<C>>,
    /// The first arrival of all queues. `None` if no frame came.
    oldest: Option<Instant<C>>,
}

impl<C> Adaptive<C> {
    /// Learns from a poll that returned frames or followed a wait.
    pub(super) fn learn(&mut self, seen: &Observation<'_, C>) {
        if let Some(wait) = &seen.ended {
            self.learned = Some(seen.now);
            self.ended_held = self.chosen.held;
            self.stalled = self.learn_wait(wait, seen).map(|due| [due, wait.ended]);
            self.charged = wait.action.kind() != WaitKind::Pause;
            self.service.rests();
        }
        let picked = picked_up(seen);
        let woke = seen.ended.filter(|wait| wait.action.kind() == WaitKind::Block && wait.overshoot().is_none());
        let poll = Poll {
            now: seen.now,
            begins: self.service.works(picked),
            ended: seen.ended.is_some(),
            woke: woke.map(|wait| wait.ended),
            oldest: seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).map(|came| came.first).min(),
        };
        self.learn_arrivals(seen.queues, poll.woke);
        let (mut received, mut late, mut unavoidable) = (0, 0, 0);
        for queue in seen.queues {
            let (Some(arrivals), frames) = (&queue.arrivals, u64::from(queue.received)) else { continue };
            received += frames;
            let polled = self.polling.serve(arrivals, poll.now);
            if self.charged {
                let late_of_queue = self.late_of(&poll, arrivals, frames);
                if late_of_queue > 0 {
                    let polled = Arrivals { sent: Some(polled.sent(arrivals, frames)), ..*arrivals };
                    unavoidable += (self.deadline.late(poll.now, &polled, frames) / ONE).min(late_of_queue);
                }
                late += late_of_queue;
                self.learn_departures(&poll, arrivals);
            }
        }
        if let Some(picked) = picked {
            self.learn_work(&poll, picked, received);
            for arrivals in seen.queues.iter().filter_map(|queue| queue.arrivals.as_ref()) {
                if let Some(service) = self.service.departed(arrivals, poll.now, poll.begins) {
                    self.plan.set_service(service);
                }
            }
        }
        self.account(poll.ended, received, late, unavoidable);
    }

    /// The same if the limit of the idle states has changed since the last wait began.
    #[cold]
    pub(super) fn learn_of_before(&mut self, seen: &Observation<'_, C>) {
        let present = self.plan.depth();
        self.plan.set_depth(self.chosen.depth);
        self.learn(seen);
        self.plan.set_depth(present);
    }

    /// Enters the packets of a poll in all accounts. `ended` says whether a wait has just ended. With polling,
    /// `unavoidable` of the late ones would be late as well.
    #[inline]
    fn account(&mut self, ended: bool, received: u64, late: u64, unavoidable: u64) {
        self.forgiveness.add(received);
        let mut late = late.min(received);
        if late > 0 {
            late -= self.forgiveness.forgive(if self.stalled.is_some() { late } else { late.min(unavoidable) });
        }
        self.packets += received;
        self.owed.packets(received, late);
        self.paid.add_packets(received, late, self.owed.share());
        if self.charged {
            // A block that ended while the hold-off changed says nothing of the new one.
            let is_present = self.chosen.slot != BLOCK || self.chosen.held.as_nanos() == self.plan.hold();
            if self.stalled.is_none() && is_present {
                self.plan.saw(self.chosen.slot, received, late, self.expected_of(ended, received));
            }
            // The frames of the wait may take several polls, and so may those that arrive meanwhile.
            self.charged = received > 0;
        }
    }

    /// Number of late packets, in millionths, that the model expected among the `received` ones of a poll. Those of a
    /// sleep are all expected when it has `ended`, however many packets came: how many come is part of what the model
    /// expects. After a block, at least one packet comes. Without timestamps, the number is less certain than the share.
    #[inline]
    fn expected_of(&self, ended: bool, received: u64) -> u64 {
        match self.chosen.slot {
            0..BLOCK if !self.plan.is_blind() => {
                if ended {
                    self.chosen.number
                } else {
                    0
                }
            }
            _ => received * self.chosen.expected,
        }
    }

    /// Learns for how long the core was awake since the last wait, or since the last decision if that was to poll on,
    /// and how much of that stalls took.
    #[inline]
    pub(super) fn learn_awake(&mut self, seen: &Observation<'_, C>, received: u32) {
        let work = self.plan.work();
        // Without timestamps, and before it is known, work may be anything that the application does.
        let is_known = received == 0 || !self.plan.is_blind() && work > 0;
        let until = if is_known { seen.now } else { picked_up(seen).unwrap_or(seen.now) };
        let ended = seen.ended.map(|wait| wait.ended);
        self.stalls.awake(ended, until, || u64::from(received).saturating_mul(work));
    }

    /// Adapts to the share of time that stalls take from an awake core.
    fn adapt_to_stalls(&mut self) {
        let allowed = self.goal.quantile.above_ppm();
        self.stalls_ppm = self.stalls.counted(allowed);
        self.forgiveness.set_limit(self.plan.mean_gap(), self.owed.batch());
        self.plan.set_trust(self.stalls.trust(allowed, self.owed.batch()));
    }

    /// Learns from a wait that has ended. If it met a stall of the machine, returns when the wait was due to end.
    #[inline]
    fn learn_wait(&mut self, wait: &Ended<C>, seen: &Observation<'_, C>) -> Option<Instant<C>> {
        if wait.action.kind() == WaitKind::Pause {
            return None;
        }
        let Outcome { kind, length, lasted, due } =
            Outcome::of(wait, seen.queues, self.chosen.planned, self.chosen.held);
        let late = due.map(|(_, late)| late);
        let stalled = due.filter(|(_, late)| self.plan.ended(kind, length, *late, self.stalls_ppm));
        self.measured |= wait.spent.is_some();
        if stalled.is_none() {
            // If costs are not measured, assume that a wait costs at least its wake-up time.
            let spent = wait.spent.or(late.filter(|_| !self.measured));
            // The core is also awake from the end of the wait until it has picked up the frames.
            let taking = picked_up(seen).unwrap_or(seen.now).since(wait.ended).unwrap_or(Nanos::ZERO);
            if let Some(spent) = spent {
                self.plan.spent(kind, lasted, (spent + taking).as_nanos(), wait.idle.as_nanos());
                self.paid.add_wait(lasted, spent.as_nanos());
            } else if self.measured {
                // A worker need not measure every wait: this one has cost as much as those like it.
                self.paid.add_wait(lasted, self.plan.price(kind, lasted).saturating_sub(taking.as_nanos()));
            }
        }
        stalled.map(|(due, _)| due)
    }

    /// Learns when the frames arrived, as one stream from all queues. `woke` is when the worker ran again, if the
    /// device ended the wait.
    #[inline]
    fn learn_arrivals(&mut self, queues: &[Queue<C>], woke: Option<Instant<C>>) {
        let mut known = queues.iter().filter_map(|queue| Some((queue.arrivals.as_ref()?, u64::from(queue.received))));
        match (known.next(), known.next()) {
            (Some((arrivals, frames)), None) => self.learn_stream(arrivals, frames, woke),
            (Some(_), Some(_)) => self.learn_streams(queues, woke),
            (None, _) => {}
        }
    }

    /// The same for several queues with frames. Those with timestamps are one stream, and those without another.
    #[cold]
    fn learn_streams(&mut self, queues: &[Queue<C>], woke: Option<Instant<C>>) {
        for stamped in [true, false] {
            if let Some((arrivals, frames)) = together(queues, stamped) {
                self.learn_stream(&arrivals, frames, woke);
            }
        }
    }

    #[inline]
    fn learn_stream(&mut self, arrivals: &Arrivals<C>, frames: u64, woke: Option<Instant<C>>) {
        if arrivals.stamped {
            return self.traffic.stamped(self.plan.gaps(), arrivals, frames);
        }
        if !self.plan.is_blind() {
            self.go_blind();
        }
        self.traffic.unstamped(self.plan.gaps(), arrivals, frames, woke);
    }

    /// The first frames without timestamps have come.
    #[cold]
    fn go_blind(&mut self) {
        self.plan.go_blind();
        if !self.knows_reserve {
            self.set_reserve(reserve(self.goal, BLIND_RESERVE_PART));
        }
    }

    /// Number of a queue's frames that were late because of the last wait. Where only their expected number is known,
    /// fractions are kept for the next polls.
    #[inline]
    fn late_of(&mut self, poll: &Poll<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
        let late = if !arrivals.stamped && poll.woke.is_some() {
            // The work after the wake-up is visible to the worker.
            let woken = Arrivals { first: arrivals.picked_up, last: arrivals.picked_up, ..*arrivals };
            frames * self.chosen.expected + self.deadline.late(poll.now, &woken, frames)
        } else if !arrivals.stamped && poll.ended && self.chosen.slot < BLOCK {
            self.late_after_sleep(poll.now, arrivals, frames)
        } else {
            self.deadline.late(poll.now, arrivals, frames)
        };
        if late == 0 {
            return 0;
        }
        let late = self.unseen.add(late);
        let Some(stall) = self.stalled.filter(|_| arrivals.stamped) else { return late };
        // A core that was awake would have been stalled as well, so the frames that came meanwhile are not late because
        // of the wait.
        let [before_it, until_its_end] = stall.map(|at| came_before(at, arrivals, frames));
        late.min(frames - until_its_end.saturating_sub(before_it))
    }

    /// Expected number of frames without timestamps that were late after a sleep ([`Phases`](super::phases::Phases)), in
    /// millionths of a frame. Those that came during a stall do not count.
    fn late_after_sleep(&mut self, now: Instant<C>, arrivals: &Arrivals<C>, frames: u64) -> u64 {
        let after = |at: Instant<C>| at.since(arrivals.first).unwrap_or(Nanos::ZERO);
        let [first, last] = arrivals.sent.map_or([now; 2], |sent| [sent.first, sent.last]);
        let left = first + last.since(first).unwrap_or(Nanos::ZERO) / 2;
        let over = after(left).saturating_sub(self.deadline.target);
        let over = self.stalled.map_or(over, |[due, _]| over.min(after(due)));
        frames * self.traffic.phases.share(over, arrivals.lateness())
    }

    /// Learns when the frames of a queue left after a block.
    #[inline]
    fn learn_departures(&mut self, poll: &Poll<C>, arrivals: &Arrivals<C>) {
        let held = arrivals.held.unwrap_or(self.chosen.held);
        // Unless the worker knows better, only the frame that ended the wait has waited for the hold-off.
        let ended_it = poll.ended && Some(arrivals.first) == poll.oldest;
        let shows = arrivals.stamped && (held == Nanos::ZERO || ended_it);
        if self.chosen.slot == BLOCK && shows && self.stalled.is_none() {
            // The first and the last frame represent all those between them.
            let [first, last] = delays(arrivals, poll.now);
            self.plan.departed(first, last, held);
        }
    }

    /// Learns how long the work on a poll's frames took since they were `picked` up, from some of the polls.
    #[inline]
    fn learn_work(&mut self, poll: &Poll<C>, picked: Instant<C>, frames: u64) {
        if self.service.polled() {
            let work = poll.now.since(picked).unwrap_or(Nanos::ZERO);
            self.plan.set_work(self.service.worked(work.as_nanos(), frames));
            self.owed.set_gap(self.plan.mean_gap());
            self.adapt_to_stalls();
        }
    }
}

/// The frames of all queues with timestamps, or of all without, as if they had come on one queue. `None` if there are
/// none.
fn together<C>(queues: &[Queue<C>], stamped: bool) -> Option<(Arrivals<C>, u64)> {
    let came = |arrivals: &Arrivals<C>| arrivals.first + arrivals.held.unwrap_or(Nanos::ZERO);
    let all = queues.iter().filter_map(|queue| Some((queue.arrivals?, u64::from(queue.received))));
    all.filter(|(arrivals, _)| arrivals.stamped == stamped).reduce(|(one, frames), (other, more)| {
        let first = one.first.min(other.first);
        // The frame that is the newest when it is picked up says how long frames are on the way.
        let newest = if one.picked_up.since(one.last) <= other.picked_up.since(other.last) { one } else { other };
        let (last, picked_up) = (one.last.max(other.last), one.picked_up.max(other.picked_up));
        let picked_up = match newest.picked_up.since(newest.last) {
            Some(on_the_way) if stamped => last + on_the_way,
            _ => picked_up,
        };
        let held = came(&one).min(came(&other)).since(first);
        (Arrivals { first, last, picked_up, stamped, held, sent: None }, frames + more)
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::{Action, WaitPolicy as _};
    use super::super::{AdaptiveConfig, Paid};
    use super::*;
    use units::Simulated;

    /// Waits of centuries, as a clock that jumps shows them.
    #[test]
    fn the_account_of_waits_does_not_overflow() {
        let mut policy = Adaptive::new(AdaptiveConfig { goal: None, loss: None, interrupts: true });
        let at = Instant::<Simulated>::from_nanos;
        let queues = [Queue { received: 0, fill: 0, arrivals: None }];
        for (began, ended) in [(0, u64::MAX / 2), (u64::MAX / 2, u64::MAX - 1)] {
            let wait = Ended {
                action: Action::BlockUntil(None),
                began: at(began),
                ended: at(ended),
                spent: Some(Nanos::ZERO),
                idle: Nanos::ZERO,
            };
            policy.decide(&Observation { now: at(ended), queues: &queues, ended: Some(wait) });
        }
        let (paid, _) = policy.paid_since(Paid::default(), Nanos::from_nanos(u64::MAX - 1));
        assert_eq!(paid, 0, "all of the time was saved");
    }

    #[test]
    fn without_timestamps_more_is_reserved_and_stalls_are_not_charged() {
        let goal = "p99=60us".parse().ok();
        let mut policy = Adaptive::<Simulated>::new(AdaptiveConfig { goal, ..Default::default() });
        assert_eq!(policy.deadline.target, Nanos::from_nanos(52_500));
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let arrivals = Arrivals::unstamped(at(0), at(200));
        policy.learn_stream(&arrivals, 4, None);
        assert_eq!(policy.deadline.target, Nanos::from_micros(48));
        // At first, all packets are assumed to have come at the beginning of the sleep.
        assert_eq!(policy.late_after_sleep(at(202), &arrivals, 4), 4 * ONE);
        policy.stalled = Some([at(0), at(200)]);
        assert_eq!(policy.late_after_sleep(at(202), &arrivals, 4), 0, "all of them came during the stall");
        policy.stalled = Some([at(40), at(200)]);
        assert_eq!(policy.late_after_sleep(at(202), &arrivals, 4), 4 * ONE, "they may have come before it");
        let mut known = Adaptive::<Simulated>::new(AdaptiveConfig { goal, ..Default::default() })
            .with_unseen(Nanos::from_micros(5), Nanos::ZERO);
        known.learn_stream(&arrivals, 4, None);
        assert_eq!(known.deadline.target, Nanos::from_micros(55));
    }

    /// Rounds of an application that works for 300 us whenever it received packets. An empty poll takes `other`.
    fn works_long(stamped: bool, other: Nanos) -> u32 {
        let mut policy = Adaptive::<Simulated>::new(AdaptiveConfig::default());
        let mut now = Instant::from_nanos(1_000_000);
        for round in 0..200_u32 {
            let received = u32::from(round % 2 == 0);
            let picked_up = now + if received == 0 { other } else { Nanos::from_micros(1) };
            let arrivals = if stamped {
                Arrivals::stamped(now, picked_up, picked_up)
            } else {
                Arrivals::unstamped(now, picked_up)
            };
            now = picked_up + Nanos::from_micros(300 * u64::from(received));
            let queues = [Queue { received, fill: received, arrivals: (received > 0).then_some(arrivals) }];
            policy.decide(&Observation { now, queues: &queues, ended: None });
            // As if the policy had decided to poll on.
            policy.stalls.polls_on(now);
        }
        policy.stalls.share()
    }

    #[test]
    fn work_on_packets_is_no_stall_but_other_gaps_are() {
        for stamped in [false, true] {
            assert_eq!(works_long(stamped, Nanos::from_micros(2)), 0, "stamped: {stamped}");
            assert!(works_long(stamped, Nanos::from_micros(150)) > 50_000, "stamped: {stamped}");
        }
    }

    /// Two queues, on each of which ten packets come in 100 us. Each takes 1 us.
    #[test]
    fn packets_of_several_queues_are_one_stream() {
        for stamped in [true, false] {
            let mut policy = Adaptive::<Simulated>::new(AdaptiveConfig::default());
            let at = |us: u64| Instant::from_nanos(us * 1_000);
            for polled in (1..=400).map(|round| round * 100) {
                let queue = |before: u64, picked_up: u64| {
                    let arrivals = if stamped {
                        Arrivals::stamped(at(polled - 96 + before), at(polled - 6 + before), at(picked_up))
                    } else {
                        Arrivals::unstamped(at(polled - 100), at(picked_up))
                    };
                    Queue { received: 10, fill: 10, arrivals: Some(arrivals) }
                };
                let queues = [queue(0, polled), queue(5, polled + 10)];
                policy.decide(&Observation { now: at(polled + 20), queues: &queues, ended: None });
            }
            let (gap, work) = (policy.mean_gap().as_nanos(), policy.plan.work());
            assert!((4_500..=5_500).contains(&gap), "stamped {stamped}: {gap} ns between packets");
            assert_eq!(work, 1_000, "stamped {stamped}");
        }
    }
}

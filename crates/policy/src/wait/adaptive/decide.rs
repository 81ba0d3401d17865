//! Decides what to do after a poll that left nothing in the rings.
//!
//! ```text
//!   a window of polls lasts ─► poll on       the core is idle ─► block       otherwise the cheapest of all candidates:
//!                                                                            sleep, block, wait for a burst, poll on
//! ```

use units::{Instant, Nanos};

use super::super::{Action, Decision, Reason};
use super::choice::{BLOCK, Choice, POLL, UNTIL};
use super::{Adaptive, Chosen, Compared, gaps};

/// After a silence of this length, only an interrupt ends the wait, whatever the goal is.
const IDLE_AFTER: Nanos = Nanos::from_millis(50);
/// If the mean gap between frames reaches this length, in nanoseconds, the core counts as idle.
const SPARSE: u64 = 45_000_000;
/// Only after a silence of this length, in nanoseconds, the limit of the idle states is lifted. An estimate: many times
/// what two changes of the limit take.
const RESTS_AFTER: u64 = 1_000_000;
/// If nothing was learned from waits for this long, known costs are trusted less.
const DOUBT_AFTER: Nanos = Nanos::from_millis(50);

impl<C> Adaptive<C> {
    /// Decides after a poll that left nothing in the rings. `polled` is when the rings were read; `traffic` says
    /// whether the poll returned frames.
    pub(super) fn decide_drained(&mut self, now: Instant<C>, polled: Instant<C>, traffic: bool) -> Decision<C> {
        if self.plan.is_blind() && self.traffic.phases.lasts(now) {
            return self.poll_on(now, Reason::Budget);
        }
        let silence = self.traffic.silence(polled);
        self.idle = silence.is_none_or(|silence| silence >= IDLE_AFTER) || self.plan.mean_gap() >= SPARSE;
        if self.plan.interrupts() && self.idle {
            if self.depths.is_limited() {
                // The limit is lifted before the next decision.
                self.compared = Compared::Nothing;
                return self.poll_on(now, Reason::Idle);
            }
            self.choose(BLOCK, 0, silence.map_or(0, Nanos::as_nanos));
            self.compared = Compared::Idle;
            return Decision { action: Action::BlockUntil(None), reason: Reason::Idle };
        }
        self.trust_less(now);
        let multiplier = self.owed.multiplier();
        let silence = silence.unwrap_or(Nanos::ZERO).as_nanos();
        let mut best = self.plan.best(gaps::octave(silence), multiplier, now.as_nanos());
        if let Some(forecast) = self.forecast(now, multiplier) {
            best.or(forecast);
            self.foretold += u64::from(best.slot != POLL);
        }
        if self.rests(silence, best, multiplier, now) {
            return self.poll_on(now, Reason::Budget);
        }
        self.compared = Compared::Waits(best, multiplier);
        self.chosen.held = Nanos::from_nanos(self.plan.hold());
        self.carry_out(best, now, polled, traffic)
    }

    /// Whether the core should rest: block without the limit of its idle states, for no frame has arrived for some time.
    /// The limit is lifted before the next decision.
    #[inline]
    fn rests(&mut self, silence: u64, best: Choice, multiplier: u64, now: Instant<C>) -> bool {
        self.reconsiders = None;
        if self.resting || !self.depths.is_limited() || best.slot != BLOCK {
            return false;
        }
        let Some(rest) = self.plan.rest(gaps::octave(silence.max(RESTS_AFTER)), multiplier) else { return false };
        let mut better = best;
        better.or(rest);
        if better.costs == best.costs && better.lasts == best.lasts {
            return false;
        }
        if silence < RESTS_AFTER {
            self.reconsiders = Some(now + Nanos::from_nanos(RESTS_AFTER - silence));
            return false;
        }
        self.resting = true;
        true
    }

    /// From time to time, trusts less in known costs, and in the known lateness of candidates that were not chosen.
    #[inline]
    fn trust_less(&mut self, now: Instant<C>) {
        if self.learned.is_none_or(|at| now.since(at).is_some_and(|since| since >= DOUBT_AFTER)) {
            self.learned = Some(now);
            self.plan.age();
        }
        let allowed_each = || Nanos::from_nanos(self.owed.each(self.plan.mean_gap()));
        if now.since(self.doubted).is_none_or(|since| since >= DOUBT_AFTER && since >= allowed_each()) {
            self.doubted = now;
            // A policy that owes many late packets makes no trials.
            if self.owed.multiplier() <= 256 {
                self.plan.doubt();
            }
        }
    }

    /// The best wait for the next burst that the period predicts. `None` if no burst is predicted.
    fn forecast(&mut self, now: Instant<C>, multiplier: u64) -> Option<Choice> {
        let burst = self.traffic.next_burst(now)?;
        self.plan.before_burst(burst.ahead, burst.polling, multiplier)
    }

    /// The action that carries out a choice.
    #[inline]
    fn carry_out(&mut self, best: Choice, now: Instant<C>, polled: Instant<C>, traffic: bool) -> Decision<C> {
        let wait = Nanos::from_nanos(best.wait);
        match best.slot {
            POLL => {
                let reason = match (traffic, self.owed.multiplier() > 0) {
                    (true, _) => Reason::Traffic,
                    (false, true) => Reason::Late,
                    (false, false) => Reason::GoalTooTight,
                };
                self.poll_on(now, reason)
            }
            BLOCK => {
                self.choose(BLOCK, best.late, best.wait);
                Decision { action: Action::BlockUntil(self.reconsiders), reason: Reason::Interrupt }
            }
            slot @ UNTIL.. => {
                self.choose(slot, best.late, best.wait);
                self.forecasts += 1;
                let until = now + wait;
                let action = if self.plan.interrupts() {
                    Action::BlockUntil(Some(until))
                } else {
                    Action::SleepUntil(until.min(now + self.longest_sleep))
                };
                Decision { action, reason: Reason::Periodic }
            }
            slot => {
                // The wait counts from when the rings were read: a frame that arrived since then waits no longer than
                // one that arrived just after.
                let until = polled + wait;
                if until.since(now).is_none_or(|left| left < wait / 2) {
                    self.compared = Compared::Nothing;
                    return self.poll_on(now, Reason::Traffic);
                }
                let reason = if best.cut { Reason::LossBound } else { Reason::Budget };
                let window = || now + Nanos::from_nanos(best.lasts);
                if self.plan.is_blind() && self.traffic.phases.opens(now, window()) {
                    return self.poll_on(now, reason);
                }
                self.choose(slot, best.late, self.chosen.planned);
                self.chosen.number = best.number;
                Decision { action: Action::SleepUntil(until), reason }
            }
        }
    }

    /// Notes the wait that was chosen.
    #[inline]
    pub(super) fn choose(&mut self, slot: usize, expected: u64, planned: u64) {
        let (held, depth) = (Nanos::from_nanos(self.plan.hold()), self.plan.depth());
        self.chosen = Chosen { slot, expected, number: 0, planned, held, depth };
    }

    #[inline]
    fn poll_on(&mut self, now: Instant<C>, reason: Reason) -> Decision<C> {
        self.stalls.polls_on(now);
        Decision { action: Action::Poll, reason }
    }
}

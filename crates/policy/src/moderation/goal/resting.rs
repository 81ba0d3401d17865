//! While there is no timer: at the beginning, and where a timer saves nothing or packets are late anyway.

use units::{Instant, Nanos};

use super::window::{Growth, Totals};
use super::{GoalModeration, LONGEST_PATIENCE, Next, PLAN_EVERY, Phase, SHORTEST_REST, SPARSE_PACKETS};
use crate::moderation::{Decision, Reason};

/// How long the policy measures without a timer at the beginning.
const BEGIN_FOR: Nanos = Nanos::from_millis(200);
/// How long the usual packet rate is measured when a rest begins. The measurement ends sooner if [`RISE_PACKETS`]
/// packets arrive.
const USUAL_FOR: Nanos = Nanos::from_millis(100);
/// Number of packets after which the resting policy checks whether a burst has doubled the rate.
const BURST_PACKETS: u64 = 64;
/// Number of packets after which the resting policy checks whether the rate has grown by a quarter. For Poisson
/// arrivals, this rise and that of [`BURST_PACKETS`] exceed five standard deviations.
const RISE_PACKETS: u64 = 512;

#[derive(Debug)]
pub(super) struct Rest<C> {
    pub(super) reason: Reason,
    until: Instant<C>,
    /// The usual mean time between packets, with which a burst is compared. `None` until it was measured without a
    /// timer: clients that wait for each answer send faster when no timer delays the answer.
    gap: Option<Nanos>,
    /// The counters from which the next check for a burst starts.
    burst: Option<Totals<C>>,
    rise: Option<Totals<C>>,
    /// Whether the next attempt was postponed because a timer would save nothing at the present rate.
    put_off: bool,
}

impl<C> GoalModeration<C> {
    /// Turns the timer off for a while.
    pub(super) fn rest(&mut self, now: Instant<C>, reason: Reason) -> Decision {
        let until = if reason != Reason::NoSaving {
            self.patient_until
        } else {
            let rest = self.rest;
            self.rest = (rest * 2).min(LONGEST_PATIENCE);
            now + rest
        };
        self.alarms = 0;
        self.change(now, Next::Resting(Rest::new(reason, until)), reason)
    }

    pub(super) fn resting(&mut self, totals: Totals<C>, seen: Growth, mut rest: Rest<C>) -> Decision {
        let now = totals.now;
        let in_force = self.in_force();
        if in_force > Nanos::ZERO {
            self.check_shared(in_force, rest.reason);
        } else if seen.packets >= SPARSE_PACKETS {
            self.without = Some(seen);
        }
        let risen = rest.has_risen(&totals, seen);
        self.phase = Phase::Resting(rest);
        if rest.reason == Reason::Measuring {
            return self.beginning(now, seen);
        }
        if let Some(gap) = risen.filter(|_| rest.reason == Reason::NoSaving) {
            self.learn_while_resting(now);
            if self.would_save(self.timer, Some(gap)) {
                self.rest = SHORTEST_REST;
                self.patience = PLAN_EVERY;
                return self.change(now, Next::Gathering, Reason::Burst);
            }
            self.phase = Phase::Resting(Rest { gap: Some(gap), ..rest });
        }
        if now < rest.until {
            // A forced rest ends as soon as it turns out to make more packets late.
            let is_forced = matches!(rest.reason, Reason::Late | Reason::GoalTooTight);
            let is_forced = is_forced && seen.span >= USUAL_FOR && self.may_change(now);
            if let Some(timer) = self.less_late_than_none(now).filter(|_| is_forced) {
                self.timer = timer;
                return self.change(now, Next::Gathering, Reason::GoalTooTight);
            }
            return Decision::keep(rest.reason);
        }
        self.learn_while_resting(now);
        self.next_attempt(now, seen, rest)
    }

    /// While this queue rests, another queue's timer `in_force` may delay its packets, if the device has one timer for
    /// all. If it makes them late, this queue accepts only a shorter one: as after a first alarm, at least half of it.
    fn check_shared(&mut self, in_force: Nanos, reason: Reason) {
        let accepts = matches!(reason, Reason::NoSaving | Reason::Measuring) && self.timer >= in_force;
        if let Some(excess) = self.window.alarm(self.enough).filter(|_| accepts) {
            let shorter = in_force.saturating_sub(excess * 2).max(in_force / 2);
            self.timer = self.possible(shorter.min(in_force.saturating_sub(self.step())));
            self.begin_window();
        }
    }

    /// Chooses the first timer once the other delays have been measured.
    fn beginning(&mut self, now: Instant<C>, seen: Growth) -> Decision {
        let is_unsure = seen.packets < self.enough || self.window.is_short_of(self.enough);
        if seen.span < BEGIN_FOR || (is_unsure && seen.span < PLAN_EVERY) {
            return Decision::keep(Reason::Measuring);
        }
        if seen.packets == 0 {
            self.begin_window();
            return Decision::keep(Reason::Measuring);
        }
        self.learn_while_resting(now);
        if let Some(timer) = self.promising(now, seen) {
            self.timer = timer;
            return self.change(now, Next::Gathering, Reason::Budget);
        }
        self.patient_until = now + self.patience;
        self.rest(now, if self.window.is_missed_anyway() { Reason::GoalTooTight } else { Reason::NoSaving })
    }

    /// A timer that is worth an attempt. `None` if there is none.
    fn promising(&self, now: Instant<C>, seen: Growth) -> Option<Nanos> {
        let gap = self.gap(seen);
        let less_late = self.less_late_than_none(now).filter(|timer| self.would_gather(*timer, gap));
        if less_late.is_some() {
            return less_late;
        }
        if self.timer > Nanos::ZERO && self.would_save(self.timer, gap) {
            return Some(self.timer);
        }
        // If the polls themselves make packets late, a timer that saves many of them may help.
        let half = self.untried(now, Nanos::ZERO, self.possible(self.goal.latency / 2));
        (self.window.observed() >= self.enough && self.would_gather(half, gap)).then_some(half)
    }

    /// Ends a rest, if an attempt is promising.
    fn next_attempt(&mut self, now: Instant<C>, seen: Growth, rest: Rest<C>) -> Decision {
        if let Some(timer) = self.promising(now, seen) {
            self.timer = timer;
            return self.change(now, Next::Gathering, Reason::Probe);
        }
        if self.timer == Nanos::ZERO {
            // Even without a timer, packets exceed the goal, or come so close to it that no timer fits.
            self.begin_window();
            self.wait_longer(now);
            let reason = Reason::GoalTooTight;
            self.phase = Phase::Resting(Rest { gap: rest.gap, ..Rest::new(reason, self.patient_until) });
            return Decision::keep(reason);
        }
        // The mean rate may hide bursts, so in the end a timer is tried anyway.
        if rest.reason == Reason::NoSaving && rest.put_off {
            return self.change(now, Next::Gathering, Reason::Probe);
        }
        let until = now + LONGEST_PATIENCE;
        self.phase = Phase::Resting(Rest { reason: Reason::NoSaving, put_off: true, until, ..rest });
        Decision::keep(Reason::NoSaving)
    }

    /// Uses the delays seen while resting to compute how long a timer may be. If another queue's timer was in force,
    /// the delays contain it.
    fn learn_while_resting(&mut self, now: Instant<C>) {
        if self.window.observed() < self.enough {
            return;
        }
        if self.window.hopeless() {
            self.timer = Nanos::ZERO;
        } else if let Some(delay) = self.window.quantile() {
            let timer = self.possible((self.in_force() + self.goal.latency).saturating_sub(delay));
            self.timer = self.untried(now, Nanos::ZERO, timer);
        }
    }
}

impl<C> Rest<C> {
    pub(super) fn new(reason: Reason, until: Instant<C>) -> Self {
        Self { reason, until, gap: None, burst: None, rise: None, put_off: false }
    }

    /// The mean time between packets if the rate has risen: doubled over a few packets, or grown by a quarter over
    /// many. Otherwise `None`.
    fn has_risen(&mut self, totals: &Totals<C>, seen: Growth) -> Option<Nanos> {
        let Some(usual) = self.gap else {
            let is_known = seen.packets >= SPARSE_PACKETS && (seen.span >= USUAL_FOR || seen.packets >= RISE_PACKETS);
            if is_known || seen.span >= PLAN_EVERY {
                self.gap = Some(seen.span / seen.packets.max(1));
            }
            return None;
        };
        let quicker = |mark: &mut Option<Totals<C>>, packets: u64, percent: u64| {
            let Some(growth) = mark.as_ref().and_then(|mark| totals.since(mark)) else {
                *mark = Some(*totals);
                return None;
            };
            if growth.packets < packets {
                return None;
            }
            *mark = Some(*totals);
            growth.gap().filter(|_| growth.span * percent < usual * growth.packets * 100)
        };
        let burst = quicker(&mut self.burst, BURST_PACKETS, 200);
        quicker(&mut self.rise, RISE_PACKETS, 125).or(burst)
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Rest<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Rest<C> {}

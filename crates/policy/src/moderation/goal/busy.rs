//! Where polls keep the CPU busy: shorter timers make more packets late, not fewer.
//!
//! ```text
//!   late packets
//!      │ none                     A shorter timer means more polls, which leave the application less time. A longer one
//!      │  ▼                       delays the packets itself. If no timer meets the goal, the policy stays near the lowest
//!      │  ╲                       point. It learns where that is from the timers that it has tried.
//!      │    ╲_            ╱
//!      │      ╲___    __╱
//!      │          ╲__╱
//!      └───────────────────── timer
//! ```

use units::{Instant, Nanos};

use super::tried::Share;
use super::{GoalModeration, Next, PLAN_EVERY};
use crate::moderation::{Decision, Reason};

/// A longer timer is tried only if more packets are late than this, in millionths, because a try may make even more of them
/// late. This number is an estimate.
const CLIMBS_ABOVE: u64 = 100_000;

impl<C> GoalModeration<C> {
    /// Called where the policy would change to a `shorter` timer, or to none. If that one (or a similar one) is known to miss
    /// the goal, and another timer makes far fewer packets late, returns the decision to use that instead.
    pub(super) fn keep_from(&mut self, now: Instant<C>, shorter: Nanos) -> Option<Decision> {
        let here = self.share(now);
        let (bad, known) = self.tried.about(now, self.enough, shorter, self.in_force())?;
        if known.ppm() <= self.allowed_ppm() {
            return None;
        }
        if here.packets < self.enough {
            return Some(Decision::keep(Reason::Measuring));
        }
        let other = self.tried.least_late(now, self.enough, self.in_force());
        if let Some(other) = other.filter(|(_, other)| other.is_far_below(here) && other.is_far_below(known)) {
            return Some(self.go_to(now, other));
        }
        if !here.is_far_below(known) {
            return None;
        }
        self.window.calm();
        // Between the two, there may be a better one.
        let between = self.possible((bad + self.timer) / 2);
        if bad > Nanos::ZERO && bad < self.timer.scale(3, 4) && self.is_new(now, between) {
            self.proven = None;
            self.timer = between;
            return Some(self.change(now, Next::Gathering, Reason::Late));
        }
        Some(Decision::keep(Reason::GoalTooTight))
    }

    /// Whether without a timer, far more packets were late than with the present one.
    pub(super) fn is_worse_without(&self, now: Instant<C>) -> bool {
        let none = self.tried.about(now, self.enough, Nanos::ZERO, Nanos::ZERO);
        none.is_some_and(|(_, none)| self.share(now).is_far_below(none))
    }

    /// If the goal is missed, and no shorter timer meets it: a timer with which far fewer packets were late than with the
    /// present one; or none, if the present timer makes over a quarter more packets late than none.
    pub(super) fn less_late(&self, now: Instant<C>) -> Option<(Nanos, Share)> {
        let here = self.share(now);
        if here.ppm() <= self.allowed_ppm() || self.timer == Nanos::ZERO || self.good(now).is_some() {
            return None;
        }
        let other = self.tried.least_late(now, self.enough, self.in_force());
        let other = other.filter(|(timer, other)| other.is_far_below(here) && !self.was_cut(*timer));
        let none = || self.tried.about(now, self.enough, Nanos::ZERO, Nanos::ZERO);
        other.or_else(|| none().filter(|(_, none)| here.ppm() > none.ppm() * 5 / 4))
    }

    /// Changes to a timer, or to none, with which fewer packets were late.
    pub(super) fn go_to(&mut self, now: Instant<C>, (timer, share): (Nanos, Share)) -> Decision {
        if timer == Nanos::ZERO {
            return self.give_up(now);
        }
        self.proven = None;
        if timer < self.timer {
            self.failed = Some((self.timer, now));
        }
        self.wait_longer(now);
        self.timer = self.possible(timer);
        let meets = share.ppm() <= self.allowed_ppm();
        self.change(now, Next::Gathering, if meets { Reason::Late } else { Reason::GoalTooTight })
    }

    /// If over a tenth of the packets are late, and far more were late with a shorter timer, or with none, polls keep the CPU
    /// busy. Then a longer timer may help: one that is longer by half, or between the present one and one that is too long.
    pub(super) fn longer_if_busy(&self, now: Instant<C>) -> Option<Nanos> {
        let here = self.share(now);
        let mut shorter = self.tried.below(now, self.enough, self.in_force());
        if here.ppm() <= CLIMBS_ABOVE || !shorter.any(|shorter| here.is_far_below(shorter)) {
            return None;
        }
        let longer = (self.timer + self.timer / 2).min(self.goal.latency.scale(7, 8));
        let bad = self.tried.bad(now, self.enough, self.allowed_ppm(), self.in_force());
        let longer = bad.filter(|bad| longer >= bad.scale(7, 8)).map_or(longer, |bad| (self.timer + bad) / 2);
        let longer = self.possible(longer);
        (self.is_worth(longer) && self.is_new(now, longer) && !self.was_cut(longer)).then_some(longer)
    }

    /// Tries a longer timer.
    pub(super) fn climb(&mut self, now: Instant<C>, longer: Nanos) -> Decision {
        self.proven = Some(self.timer);
        self.timer = longer;
        self.change(now, Next::Gathering, Reason::Probe)
    }

    /// Whether it is not known what share of the packets is late with this timer.
    fn is_new(&self, now: Instant<C>, timer: Nanos) -> bool {
        self.tried.of(now, timer).is_none_or(|known| known.packets < self.enough)
    }

    /// If the goal is missed without a timer: the timer with the smallest share of late packets, if far fewer were late. If most
    /// packets are late without a timer, after a second also one with which somewhat fewer were late, because it saves CPU
    /// time in any case.
    pub(super) fn less_late_than_none(&self, now: Instant<C>) -> Option<Nanos> {
        let none = self.window.share();
        let is_known = self.in_force() == Nanos::ZERO && none.packets >= self.enough;
        if !is_known || none.ppm() <= self.allowed_ppm() {
            return None;
        }
        // An alarm may have ended the timers after few packets.
        let (timer, least) = self.tried.least_late(now, self.enough / 4, Nanos::ZERO)?;
        let is_late = now.since(self.changed).is_some_and(|since| since >= PLAN_EVERY) && none.ppm() > 500_000;
        let is_better = least.is_far_below(none) || is_late && least.ppm() < none.ppm() * 19 / 20;
        is_better.then(|| self.possible(timer))
    }
}

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

use super::{GoalModeration, Next, PLAN_EVERY};
use crate::moderation::{Decision, Reason};

impl<C> GoalModeration<C> {
    /// If the goal is missed, and no shorter timer meets it: a timer with which far fewer packets were late than with the
    /// present one, or none, if the present one makes over a quarter more packets late.
    pub(super) fn less_late(&self, now: Instant<C>) -> Option<Nanos> {
        let here = self.share(now);
        if here.ppm() <= self.allowed_ppm() || self.timer == Nanos::ZERO {
            return None;
        }
        let least = self.tried.least_late(now, self.enough).filter(|(_, least)| least.is_far_below(here));
        if let Some((timer, least)) = least
            && (timer > self.timer || least.ppm() > self.allowed_ppm())
        {
            return Some(timer);
        }
        let none = self.tried.of(now, Nanos::ZERO).filter(|none| none.packets >= self.enough)?;
        (none.ppm() > self.allowed_ppm() && here.ppm() > none.ppm() * 5 / 4).then_some(Nanos::ZERO)
    }

    /// Whether with a shorter timer, or with none, far more packets were late than with the present one. Then polls keep
    /// the CPU busy, and a longer timer may help.
    pub(super) fn polls_make_late(&self, now: Instant<C>) -> bool {
        let here = self.share(now);
        self.tried.below(now, self.enough, self.timer).any(|shorter| here.is_far_below(shorter))
    }

    /// Goes back to a timer, or to none, with which fewer packets were late.
    pub(super) fn go_back(&mut self, now: Instant<C>, timer: Nanos) -> Decision {
        if timer == Nanos::ZERO {
            return self.give_up(now);
        }
        self.proven = None;
        if timer < self.timer {
            self.failed = Some((self.timer, now));
        }
        self.wait_longer(now);
        self.timer = self.possible(timer);
        self.change(now, Next::Gathering, Reason::GoalTooTight)
    }

    /// If timers about as short as `shorter`, or none, are known to miss the goal, and another to make far fewer packets late:
    /// that timer, or one between the two.
    fn instead_of(&self, now: Instant<C>, shorter: Nanos) -> Option<Nanos> {
        let here = self.share(now);
        let (bad, known) = self.tried.about(now, self.enough, shorter, self.timer)?;
        let least = self.tried.least_late(now, self.enough).filter(|(_, least)| least.ppm() < here.ppm());
        let (timer, least) = least.unwrap_or((self.timer, here));
        if known.ppm() <= self.allowed_ppm() || !least.is_far_below(known) {
            return None;
        }
        let between = self.possible((bad + self.timer) / 2);
        let is_new = bad > Nanos::ZERO && bad < self.timer.scale(3, 4) && self.tried.of(now, between).is_none();
        Some(if is_new && timer == self.timer { between } else { timer })
    }

    /// If a `shorter` timer, or none, would make far more packets late than another: the decision for that one, or to keep the
    /// present one.
    pub(super) fn keep_from(&mut self, now: Instant<C>, shorter: Nanos) -> Option<Decision> {
        let timer = self.instead_of(now, shorter)?;
        Some(if timer == self.timer { self.climb(now) } else { self.go_back(now, timer) })
    }

    /// Polls keep the CPU busy, and no timer is known with which far fewer packets are late: tries one that is longer by half,
    /// from time to time.
    pub(super) fn climb(&mut self, now: Instant<C>) -> Decision {
        let longer = (self.timer + self.timer / 2).min(self.goal.latency.scale(7, 8));
        // Between this one and a longer one that misses the goal as well, there may be a better one.
        let bad = self.tried.bad(now, self.enough, self.allowed_ppm(), self.timer);
        let longer = bad.filter(|bad| longer >= bad.scale(7, 8)).map_or(longer, |bad| (self.timer + bad) / 2);
        let longer = self.possible(longer);
        let is_due = now.since(self.changed).is_some_and(|since| since >= PLAN_EVERY);
        if !is_due || !self.is_worth(longer) || self.tried.of(now, longer).is_some() {
            self.begin_window();
            return Decision::keep(Reason::GoalTooTight);
        }
        self.proven = Some(self.timer);
        self.timer = longer;
        self.change(now, Next::Gathering, Reason::Probe)
    }

    /// If the goal is missed without a timer: the timer with which the fewest packets were late, far fewer than without.
    pub(super) fn less_late_than_none(&self, now: Instant<C>) -> Option<Nanos> {
        let none = self.window.share().and(self.tried.of(now, Nanos::ZERO));
        let (timer, least) = self.tried.least_late(now, self.enough)?;
        let is_better = none.packets >= self.enough && none.ppm() > self.allowed_ppm() && least.is_far_below(none);
        (is_better && timer > Nanos::ZERO).then(|| self.possible(timer))
    }
}

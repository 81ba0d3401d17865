//! While the timer lets packets gather: it becomes longer by what the goal leaves, and shorter if packets are late.

use units::{Instant, Nanos};

use super::tried::Share;
use super::window::Growth;
use super::{GoalModeration, Next, PLAN_EVERY, SHORTEST_REST};
use crate::moderation::{Decision, Reason};

/// A longer timer is not worth a change if it is longer by less than `1 / HYSTERESIS`.
const HYSTERESIS: u64 = 256;
/// The timer is turned off if most packets would be late even without it, in a window of at least this length. Stalls
/// of the machine are shorter.
const HOPELESS_FOR: Nanos = Nanos::from_millis(100);

/// A window grows no longer than this, so that it shows the present traffic.
const LONGEST_WINDOW: Nanos = Nanos::from_secs(4);

impl<C> GoalModeration<C> {
    pub(super) fn gather(&mut self, now: Instant<C>, seen: Growth) -> Decision {
        if let Some(excess) = self.window.alarm(self.enough).filter(|_| self.may_change(now)) {
            return self.shorten_at_once(now, seen, excess);
        }
        let is_hopeless = seen.span >= HOPELESS_FOR && self.window.observed() >= self.enough && self.window.hopeless();
        if is_hopeless && self.may_change(now) && !self.is_worse_without(now) {
            return self.give_up(now);
        }
        let since_change = now.since(self.changed).unwrap_or(Nanos::ZERO);
        let since_plan = now.since(self.planned).unwrap_or(Nanos::ZERO);
        if since_change < PLAN_EVERY || seen.span < PLAN_EVERY || since_plan < PLAN_EVERY {
            return Decision::keep(Reason::Measuring);
        }
        self.planned = now;
        let pointless = self.timer > Nanos::ZERO && self.is_pointless(seen);
        if seen.packets < self.enough || self.window.is_short_of(self.enough) {
            return if pointless { self.rest(now, Reason::NoSaving) } else { Decision::keep(Reason::Measuring) };
        }
        self.alarms = 0;
        if let Some(other) = self.less_late(now) {
            return self.go_to(now, other);
        }
        if self.share(now).ppm() > self.allowed_ppm()
            && self.good(now).is_none()
            && let Some(longer) = self.longer_if_busy(now)
        {
            return self.climb(now, longer);
        }
        let wanted = match self.window.quantile() {
            Some(_) if self.share(now).ppm() > 2 * self.allowed_ppm() && self.good(now).is_some() => {
                return self.avoid(now, seen);
            }
            Some(delay) if self.window.is_late() && self.share(now).ppm() > self.allowed_ppm() => {
                let shorter = self.timer.saturating_sub(delay.saturating_sub(self.goal.latency));
                let good = self.good(now).unwrap_or(Nanos::ZERO);
                let is_near = self.share(now).ppm() <= self.allowed_ppm() * 3 / 2;
                let least = if is_near { self.timer.scale(3, 4) } else { self.timer / 2 };
                return self.shorten(now, seen, shorter.max(good).max(least));
            }
            Some(_) if self.window.is_missed() && self.share(now).ppm() > self.allowed_ppm() => {
                return self.avoid(now, seen);
            }
            Some(_) if self.share(now).is_near(self.allowed_ppm()) && !self.window.is_missed() => self.timer,
            // Step by step, because late packets become more than the delays of a shorter timer let expect.
            Some(delay) => {
                self.timer + self.goal.latency.saturating_sub(delay).min(self.timer.max(self.goal.latency / 4) / 2)
            }
            None => self.blind,
        };
        // A longer timer may save interrupts even though this one does not.
        let wanted = self.possible(wanted);
        if pointless && !(self.is_worth(wanted) && self.would_save(wanted, self.gap(seen))) {
            return self.rest(now, Reason::NoSaving);
        }
        if !pointless {
            self.rest = SHORTEST_REST;
        }
        self.lengthen(now, seen, wanted)
    }

    /// What is known of the present timer, from this window and earlier ones.
    pub(super) fn share(&self, now: Instant<C>) -> Share {
        self.window.share().and(self.tried.of(now, self.in_force()))
    }

    /// With this timer the goal is missed, although a shorter one would not make these packets punctual. Goes back towards
    /// a timer with which it was met.
    fn avoid(&mut self, now: Instant<C>, seen: Growth) -> Decision {
        match self.good(now) {
            Some(good) => {
                let between = (good + self.timer) / 2;
                let is_far = self.share(now).ppm() > 2 * self.allowed_ppm();
                self.shorten(now, seen, if is_far || between >= self.timer.scale(7, 8) { good } else { between })
            }
            None => self.lengthen(now, seen, self.timer),
        }
    }

    /// Whether `longer` exceeds the present timer by enough to be worth a change.
    pub(super) fn is_worth(&self, longer: Nanos) -> bool {
        longer >= self.timer + self.step().max(self.timer / HYSTERESIS)
    }

    /// Whether the machine recently made such a timer shorter.
    pub(super) fn was_cut(&self, wanted: Nanos) -> bool {
        self.cut.is_some_and(|cut| wanted > cut.got && wanted <= cut.again_from())
    }

    /// Turns the timer off, because most packets would be late even without it.
    pub(super) fn give_up(&mut self, now: Instant<C>) -> Decision {
        self.timer = Nanos::ZERO;
        self.proven = None;
        self.wait_longer(now);
        self.rest(now, Reason::GoalTooTight)
    }

    /// Lengthens the timer if the gain is worth a change and the policy need not wait any longer.
    fn lengthen(&mut self, now: Instant<C>, seen: Growth, wanted: Nanos) -> Decision {
        let by_ring = self.longest.1 && wanted == self.possible(Nanos::MAX);
        if self.proven.take().is_some() {
            self.patience = (self.patience / 2).max(PLAN_EVERY);
        }
        self.failed = self.failed.filter(|(failed, _)| *failed > self.timer);
        let reason = if by_ring { Reason::LossBound } else { Reason::Steady };
        let reason = if self.window.is_missed_anyway() { Reason::GoalTooTight } else { reason };
        let wanted = self.untried(now, self.timer, wanted);
        let together = seen.packets / seen.events.max(1);
        let is_known = seen.span >= LONGEST_WINDOW || !self.window.is_short_of_bursts(self.enough, together);
        let is_worth = is_known && self.is_worth(wanted) && self.saves_more(seen, wanted);
        if !is_worth || self.was_cut(wanted) || now < self.patient_until {
            if seen.span >= LONGEST_WINDOW {
                self.begin_window();
            }
            return Decision::keep(reason);
        }
        self.proven = Some(self.timer);
        self.timer = wanted;
        self.change(now, Next::Gathering, if by_ring { Reason::LossBound } else { Reason::Budget })
    }

    /// Handles the alarm: shortens the timer by twice the excess. The first late packets may come from a stall. So the
    /// first alarm shortens the timer no further than to the previous one (or half of the present one if there is
    /// none), nor below the shortest worthwhile timer. A second alarm within a second at least halves the timer, and a
    /// third turns it off.
    fn shorten_at_once(&mut self, now: Instant<C>, seen: Growth, excess: Nanos) -> Decision {
        let since_change = now.since(self.changed).unwrap_or(Nanos::ZERO);
        self.alarms = if since_change < PLAN_EVERY { self.alarms + 1 } else { 1 };
        // Twice the excess, because the late packets came among punctual ones.
        let shorter = self.timer.saturating_sub(excess * 2);
        let half = self.timer / 2;
        let shorter = match self.alarms {
            1 => shorter.max(self.proven.unwrap_or(half)).max(self.shortest(seen)),
            2 => shorter.min(half),
            _ => Nanos::ZERO,
        };
        self.shorten(now, seen, shorter)
    }

    fn shorten(&mut self, now: Instant<C>, seen: Growth, shorter: Nanos) -> Decision {
        let shorter = self.possible(shorter.min(self.timer.saturating_sub(self.step())));
        let is_off = shorter == Nanos::ZERO || shorter + self.step() < self.shortest(seen);
        if let Some(decision) = self.keep_from(now, if is_off { Nanos::ZERO } else { shorter }) {
            return decision;
        }
        self.proven = None;
        self.failed = Some((self.timer, now));
        self.wait_longer(now);
        if is_off {
            self.timer = self.possible(self.timer / 2);
            return self.rest(now, Reason::Late);
        }
        self.timer = shorter;
        self.change(now, Next::Gathering, Reason::Late)
    }
}

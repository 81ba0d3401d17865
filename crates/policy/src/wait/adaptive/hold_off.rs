//! Chooses the hold-off: how long the device delays its interrupt after the first waiting frame.
//!
//! With a hold-off, one wake-up serves several frames, and the core rests for longer. The plan predicts what blocks
//! with another hold-off would cost. A prediction alone is not enough: observations of blocks correct the plan, and
//! there are none for a hold-off that was never used. So the policy tries it and compares the real costs:
//!
//! ```text
//!           ┌──────────── costs more: return, and wait twice as long before the next trial ────────────────┐
//!           ▼                                                                                              │
//!   PRESENT: measure the cost of a period ── another one should cost less ──► TRIAL: learn for a period,   │
//!           ▲                                                      then measure the cost of a period ──────┤
//!           └──────────────────────────────── costs less: keep it ─────────────────────────────────────────┘
//! ```
//! If the frequency changes during a trial, the cost before it is rescaled by what the plan expects of the earlier hold-off at
//! both frequencies.
//!
//! The cost of a period includes its late packets if the goal allows at least eight in that time. In shorter periods,
//! late packets only count through the waits that they make the policy choose.

use units::{Instant, Nanos};

use super::math::product_over;
use super::owed::Owed;
use super::paid::Paid;
use super::plan::Plan;

/// Number of calls in a period. With 40 ms between calls, bursts and pauses can alternate several times in it.
const PERIOD: u32 = 6;
/// A trial begins only if it should lower the cost by 1 / `WORTHWHILE`, and succeeds only if it does.
const WORTHWHILE: u64 = 32;
/// The maximum number of periods between two trials.
const MOST_PATIENCE: u32 = 64;
/// Minimum number of periods after a trial during which the traffic or the frequency changed. Without this limit, such
/// changes could keep the policy in trials most of the time.
const AFTER_CHANGE: u32 = 4;
/// A longer hold-off of a device counts as this long.
pub(super) const LONGEST: Nanos = Nanos::from_millis(100);
/// With a larger multiplier, in 256ths, a hold-off that delays the frames themselves is given up. This is five sixths
/// of the largest multiplier ([`Owed`]).
const GIVES_UP: u64 = 5 * 256 / 2;

/// The trials of hold-offs.
#[derive(Debug)]
pub(super) struct Trials<C> {
    /// Start of the current period, and the totals at that time. `None` before the first call.
    began: Option<(Instant<C>, Totals)>,
    calls: u32,
    /// The hold-off before the current trial. `None` if there is no trial.
    before: Option<Before>,
    /// Whether the first period of the current trial has ended, in which the policy learned what these blocks cost.
    learned: bool,
    /// Whether the frequency changed during the current trial.
    other_frequency: bool,
    /// Whether the limit of the idle states changed during the current trial.
    other_limit: bool,
    /// Number of periods before the next trial.
    wait: u32,
    /// The number of periods that the policy waited after the last failed trial.
    patience: u32,
}

/// Totals since the start of the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub(super) paid: Paid,
    /// Number of packets.
    pub(super) packets: u64,
    /// Number of waits for a forecast burst.
    pub(super) forecasts: u64,
}

/// The hold-off before a trial.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// Its place among the hold-offs that are compared.
    place: usize,
    /// Its length in nanoseconds.
    hold: u64,
    /// Its cost, as a share of a polling core, in 2^-16.
    cost: u64,
    /// Its expected cost at that time, in the same unit.
    expected: u64,
    /// The mean gap between packets in the period before the trial, in nanoseconds.
    gap: u64,
}

/// What to do at the end of a period.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Keep the present hold-off.
    Stay,
    /// Try another one, if one is expected to cost less.
    Try,
    /// Return to the one before the trial.
    Return(Before),
}

impl<C> Trials<C> {
    pub(super) const fn new() -> Self {
        Self {
            began: None,
            calls: 0,
            before: None,
            learned: false,
            other_frequency: false,
            other_limit: false,
            wait: 0,
            patience: 0,
        }
    }

    /// Chooses the hold-off, in nanoseconds, by the plan, and changes the plan to it. `in_force` is the present one.
    pub(super) fn choose(
        &mut self,
        now: Instant<C>,
        in_force: u64,
        plan: &mut Plan,
        owed: &Owed,
        totals: Totals,
    ) -> u64 {
        if in_force != plan.hold() {
            match self.refused(in_force) {
                Some(Before { place, hold, .. }) => plan.take_hold((place, hold)),
                None => plan.set_hold(in_force),
            }
        }
        if !plan.interrupts() || plan.is_blind() {
            plan.set_hold(0);
            return 0;
        }
        plan.can_change_hold();
        if plan.holds_frames() && owed.multiplier() > GIVES_UP {
            // With this hold-off, no wait is punctual, not even polling.
            if plan.hold() > 0 {
                self.give_up();
                plan.give_hold_up();
            }
            return 0;
        }
        if let Some((span, then)) = self.ends(now, totals) {
            let (_, cost) = totals.paid.since(then.paid, span, owed.each(plan.mean_gap()));
            let gap = span.as_nanos() / (totals.packets - then.packets).max(1);
            match self.judge(cost, gap, |before| plan.cost_with((before.place, before.hold))) {
                Next::Stay => {}
                // A wait for a forecast burst serves all of it without a hold-off, which would only delay bursts that
                // come early.
                Next::Try if totals.forecasts > then.forecasts => {}
                Next::Return(Before { place, hold, .. }) => plan.take_hold((place, hold)),
                Next::Try => {
                    // If the goal allows no late packet in a period, those of a trial would take long to pay for.
                    let safe = plan.holds_frames() || owed.each(gap) > span.as_nanos();
                    let other = plan.better_hold(safe, WORTHWHILE).filter(|_| !safe || plan.knows_blocks());
                    if let Some(other) = other {
                        let (place, hold) = plan.present_hold();
                        let expected = plan.cost_with((place, hold));
                        self.begin(Before { place, hold, cost, expected, gap });
                        plan.take_hold(other);
                    }
                }
            }
        }
        plan.hold()
    }

    /// The length of the period that ends with this call, and the totals at its start. `None` if no period ends.
    fn ends(&mut self, now: Instant<C>, totals: Totals) -> Option<(Nanos, Totals)> {
        self.calls += 1;
        let (began, then) = *self.began.get_or_insert((now, totals));
        if self.calls <= PERIOD {
            return None;
        }
        (self.began, self.calls) = (Some((now, totals)), 1);
        now.since(began).filter(|span| *span > Nanos::ZERO).map(|span| (span, then))
    }

    /// Judges a period that cost `cost`, as a share of a polling core. `gap` is the mean gap between its packets. `expected`
    /// returns what the hold-off before a trial is expected to cost at the present frequency.
    fn judge(&mut self, cost: u64, gap: u64, expected: impl FnOnce(&Before) -> u64) -> Next {
        let Some(before) = self.before else {
            let tries = self.wait == 0;
            self.wait = self.wait.saturating_sub(1);
            return if tries { Next::Try } else { Next::Stay };
        };
        if !self.learned {
            self.learned = true;
            return Next::Stay;
        }
        self.before = None;
        if self.other_limit || gap.abs_diff(before.gap) > before.gap / 4 {
            // The costs cannot be compared.
            self.wait = self.patience.max(AFTER_CHANGE);
            return Next::Return(before);
        }
        // A hold-off that saves much often makes another frequency the cheapest one.
        let cost_before = if self.other_frequency {
            let rescaled = product_over(before.cost, expected(&before), before.expected.max(1));
            u64::try_from(rescaled).unwrap_or(u64::MAX)
        } else {
            before.cost
        };
        if cost <= cost_before - cost_before / WORTHWHILE {
            (self.wait, self.patience) = (0, 0);
            return Next::Stay;
        }
        self.fail();
        Next::Return(before)
    }

    /// Ends a trial that the device refused: `in_force` is still the hold-off before it. `None` if it is not.
    fn refused(&mut self, in_force: u64) -> Option<Before> {
        let before = self.before.take_if(|before| before.hold == in_force)?;
        self.fail();
        Some(before)
    }

    /// Ends a trial, if there is one, and delays the next one as after a failed trial.
    fn give_up(&mut self) {
        (self.before, self.began, self.calls) = (None, None, 0);
        self.fail();
    }

    /// Starts the period anew, so that each is at one frequency.
    pub(super) fn frequency_changed(&mut self) {
        (self.began, self.calls, self.other_frequency) = (None, 0, true);
    }

    /// Starts the period anew, and soon tries other hold-offs: another limit of the idle states may have been chosen because
    /// of one of them. The costs before and after the change cannot be compared.
    pub(super) fn idle_limit_changed(&mut self) {
        (self.began, self.calls, self.other_limit, self.wait) = (None, 0, true, 0);
    }

    fn fail(&mut self) {
        self.patience = (2 * self.patience).clamp(1, MOST_PATIENCE);
        self.wait = self.patience;
    }

    /// Notes that a trial begins.
    fn begin(&mut self, before: Before) {
        (self.before, self.learned, self.other_frequency, self.other_limit) = (Some(before), false, false, false);
    }
}

impl<C> Clone for Trials<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Trials<C> {}

#[cfg(test)]
mod tests {
    use super::super::{Adaptive, AdaptiveConfig};
    use super::*;
    use crate::wait::{Action, Arrivals, Ended, Observation, Queue, WaitPolicy as _};
    use units::Simulated;

    const BEFORE: Before = Before { place: 0, hold: 0, cost: 1_000, expected: 2_000, gap: 100 };

    /// Judges a period at the frequency at which the trial began.
    fn judge(trials: &mut Trials<Simulated>, cost: u64, gap: u64) -> Next {
        trials.judge(cost, gap, |_| unreachable!("only after a change of frequency"))
    }

    #[test]
    fn a_period_takes_six_calls() {
        let mut trials = Trials::<Simulated>::new();
        let at = |call: u64| Instant::from_nanos(call * 100);
        let ends: [bool; 14] = core::array::from_fn(|call| trials.ends(at(call as u64), Totals::default()).is_some());
        assert_eq!(ends.iter().filter(|ends| **ends).count(), 2);
        assert!(ends[6] && ends[12]);
    }

    #[test]
    fn a_trial_that_saves_nothing_is_repeated_ever_less() {
        let mut trials = Trials::<Simulated>::new();
        let mut waited = || {
            let mut periods = 0;
            while !matches!(judge(&mut trials, 1_000, 100), Next::Try) {
                periods += 1;
            }
            trials.begin(BEFORE);
            assert!(matches!(judge(&mut trials, 5_000, 100), Next::Stay), "it learns first");
            assert!(matches!(judge(&mut trials, 990, 100), Next::Return(Before { hold: 0, .. })), "1 % is not enough");
            periods
        };
        assert_eq!([waited(), waited(), waited(), waited()], [0, 1, 2, 4]);
        (0..10).for_each(|_| assert!(waited() <= MOST_PATIENCE));
        trials.begin(BEFORE);
        (0..2).for_each(|_| assert!(matches!(judge(&mut trials, 900, 100), Next::Stay)));
        assert!(matches!(judge(&mut trials, 900, 100), Next::Try), "one that saves is followed by the next");
    }

    #[test]
    fn other_traffic_proves_nothing() {
        let mut trials = Trials::<Simulated>::new();
        trials.begin(BEFORE);
        judge(&mut trials, 500, 200);
        assert!(
            matches!(judge(&mut trials, 500, 200), Next::Return(_)),
            "it is cheaper only because fewer packets come"
        );
        (0..AFTER_CHANGE).for_each(|_| assert!(matches!(judge(&mut trials, 500, 200), Next::Stay)));
        assert!(matches!(judge(&mut trials, 500, 200), Next::Try));
        // Nor does another limit of the idle states.
        trials.begin(BEFORE);
        judge(&mut trials, 500, 100);
        trials.idle_limit_changed();
        assert!(matches!(judge(&mut trials, 500, 100), Next::Return(_)));
    }

    #[test]
    fn at_another_frequency_the_cost_before_a_trial_is_rescaled() {
        // Half of what was expected before: the hold-off before the trial would cost 500 now.
        for (cost, expected, succeeds) in [(480, 1_000, true), (490, 1_000, false), (1_900, 4_000, true)] {
            let mut trials = Trials::<Simulated>::new();
            trials.begin(BEFORE);
            judge(&mut trials, 800, 100);
            trials.frequency_changed();
            let next = trials.judge(cost, 100, |_| expected);
            assert_eq!(matches!(next, Next::Stay), succeeds, "{cost} {expected}: {next:?}");
        }
    }

    #[test]
    fn after_a_change_of_the_idle_limit_others_are_tried_soon() {
        let mut trials = Trials::<Simulated>::new();
        for _ in 0..5 {
            trials.fail();
        }
        assert!(matches!(judge(&mut trials, 1_000, 100), Next::Stay));
        trials.idle_limit_changed();
        assert!(matches!(judge(&mut trials, 1_000, 100), Next::Try));
    }

    #[test]
    fn a_refused_trial_is_over() {
        let mut trials = Trials::<Simulated>::new();
        trials.begin(BEFORE);
        assert!(trials.refused(30_000).is_none(), "a rounded value is no refusal");
        assert!(trials.refused(0).is_some() && trials.refused(0).is_none());
        assert!(matches!(judge(&mut trials, 900, 100), Next::Stay), "the next one waits");
    }

    /// `count` packets, 50 to 150 us apart. Each of them ends a block of 40 us that begins after the one before it.
    fn blocks(
        policy: &mut Adaptive<Simulated>,
        count: u64,
        mut each: impl FnMut(&mut Adaptive<Simulated>, Instant<Simulated>),
    ) {
        let us = Nanos::from_micros;
        let mut came = Instant::from_nanos(1_000_000);
        for number in 1..=count {
            came = came + Nanos::from_nanos(50_000 + number * 7_919 % 100_000);
            let (began, picked_up) =
                (came.before(us(40)).unwrap(), came + us(8) + Nanos::from_nanos(policy.plan.hold()));
            let arrivals = Some(Arrivals::stamped(came, came, picked_up));
            let action = Action::BlockUntil(None);
            let ended = Ended { action, began, ended: picked_up, spent: Some(us(20)), idle: us(10) };
            let queues = [Queue { received: 1, fill: 1, arrivals }];
            policy.decide(&Observation { now: picked_up + us(1), queues: &queues, ended: Some(ended) });
            each(policy, picked_up + us(1));
        }
    }

    /// A policy that knows that a sleep costs as much as polling for as long.
    fn with_goal(goal: &str) -> Adaptive<Simulated> {
        let mut policy = Adaptive::new(AdaptiveConfig { goal: goal.parse().ok(), ..AdaptiveConfig::default() });
        for length in [10, 30, 60, 120, 240, 480].into_iter().cycle().take(240).map(Nanos::from_micros) {
            let (began, due) = (Instant::ORIGIN, Instant::ORIGIN + length);
            let queues = [Queue { received: 0, fill: 0, arrivals: None }];
            let ended =
                Ended { action: Action::SleepUntil(due), began, ended: due, spent: Some(length), idle: Nanos::ZERO };
            policy.decide(&Observation { now: due, queues: &queues, ended: Some(ended) });
        }
        policy
    }

    #[test]
    fn a_hold_off_is_tried_where_it_gathers() {
        let (mut policy, mut in_force, mut longest) = (with_goal("p99=500us"), Nanos::ZERO, Nanos::ZERO);
        let mut packets = 0;
        blocks(&mut policy, 4_000, |policy, now| {
            packets += 1;
            if packets % 100 == 0 {
                in_force = policy.hold_off(now, in_force);
                longest = longest.max(in_force);
            }
        });
        assert!((Nanos::from_micros(60)..=Nanos::from_micros(500)).contains(&longest), "{longest}");
    }

    #[test]
    fn a_device_that_refuses_or_exaggerates_is_understood() {
        let mut policy = with_goal("p99=500us");
        let (mut asked, mut packets) = (false, 0);
        blocks(&mut policy, 4_000, |policy, now| {
            packets += 1;
            if packets % 100 == 0 {
                asked |= policy.hold_off(now, Nanos::ZERO) > Nanos::ZERO;
                // The next call shows that nothing has changed.
                policy.hold_off(now, Nanos::ZERO);
            }
        });
        assert!(asked);
        policy.hold_off(Instant::from_nanos(1 << 40), Nanos::ZERO);
        assert_eq!(policy.plan.present_hold(), (0, 0));
        let held = policy.hold_off(Instant::from_nanos(1 << 41), Nanos::MAX);
        assert_eq!((held, policy.plan.hold()), (Nanos::MAX, LONGEST.as_nanos()), "the policy changes nothing yet");
        blocks(&mut policy, 100, |_, _| {});
    }

    #[test]
    fn a_hold_off_that_delays_the_frames_themselves_is_given_up_if_they_are_late() {
        let mut policy = with_goal("p99=150us");
        policy.expect_held_frames(Nanos::MAX);
        // Somebody set it to 200 us, and the policy is asked once: no period ends, so no trial begins.
        blocks(&mut policy, 400, |policy, now| {
            if policy.plan.hold() == 0 {
                assert_eq!(policy.hold_off(now, Nanos::from_micros(200)), Nanos::from_micros(200));
            }
        });
        assert!(policy.owed.multiplier() > GIVES_UP);
        let now = Instant::from_nanos(1 << 40);
        assert_eq!(policy.hold_off(now, Nanos::from_micros(200)), Nanos::ZERO);
        assert_eq!(policy.plan.hold(), 0);
    }

    /// NAPI received the frame 30 us before it was picked up, and may have held it for 50 us before that.
    #[test]
    fn what_a_hold_off_takes_counts_for_the_goal_but_not_for_the_wake_up() {
        let mut policy = with_goal("p99=90us");
        let us = Nanos::from_micros;
        for number in 1..=100_u64 {
            let came = Instant::from_nanos(number * 1_000_000);
            let (began, picked_up) = (came.before(us(40)).unwrap(), came + us(80));
            let arrivals =
                Arrivals { first: came, last: came, picked_up, stamped: true, held: Some(us(50)), sent: None };
            let action = Action::BlockUntil(None);
            let ended = Ended { action, began, ended: picked_up, spent: Some(us(20)), idle: us(10) };
            let queues = [Queue { received: 1, fill: 1, arrivals: Some(arrivals) }];
            policy.decide(&Observation { now: picked_up + us(1), queues: &queues, ended: Some(ended) });
        }
        // The goal less the reserve is 78.75 us.
        assert!(policy.owed.multiplier() > 0, "each frame is late");
        let block = policy.plan.known_block_lateness();
        assert!((us(28)..=us(34)).contains(&block), "{block}");
    }

    #[test]
    fn without_interrupts_or_timestamps_there_is_no_hold_off() {
        let us = Nanos::from_micros;
        let deaf = AdaptiveConfig { interrupts: false, ..AdaptiveConfig::default() };
        assert_eq!(Adaptive::<Simulated>::new(deaf).hold_off(Instant::from_nanos(1), us(30)), Nanos::ZERO);
        let mut blind = with_goal("p99=500us");
        let at = Instant::from_nanos;
        let arrivals = Some(Arrivals::unstamped(at(1_000), at(50_000)));
        let queues = [Queue { received: 1, fill: 1, arrivals }];
        blind.decide(&Observation { now: at(51_000), queues: &queues, ended: None });
        assert_eq!(blind.hold_off(at(60_000), us(30)), Nanos::ZERO);
    }
}

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
//! The cost of a period includes its late packets if the goal allows at least eight in that time. In shorter periods,
//! late packets only count through the waits that they make the policy choose.

use units::{Instant, Nanos};

use super::Paid;

/// Number of calls in a period. With 40 ms between calls, bursts and pauses can alternate several times in it.
const PERIOD: u32 = 6;
/// A trial begins only if it should lower the cost by 1 / `WORTHWHILE`, and succeeds only if it does.
pub(super) const WORTHWHILE: u64 = 32;
/// The maximum number of periods between two trials.
const MOST_PATIENCE: u32 = 64;
/// Minimum number of periods after a trial during which the traffic or the frequency changed. Without this limit, such
/// changes could keep the policy in trials most of the time.
const AFTER_CHANGE: u32 = 4;

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
    mixed: bool,
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
pub(super) struct Before {
    /// Its place among the hold-offs that are compared.
    pub(super) place: usize,
    /// Its length in nanoseconds.
    pub(super) hold: u64,
    /// Its cost, as a share of a polling core, in 2^-16.
    pub(super) cost: u64,
    /// The mean gap between packets in the period before the trial, in nanoseconds.
    pub(super) gap: u64,
}

/// What to do at the end of a period.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Keep the present hold-off.
    Stay,
    /// Try another one, if one is expected to cost less.
    Try,
    /// Return to the one before the trial.
    Return(Before),
}

impl<C> Trials<C> {
    pub(super) const fn new() -> Self {
        Self { began: None, calls: 0, before: None, learned: false, mixed: false, wait: 0, patience: 0 }
    }

    /// The length of the period that ends with this call, and the totals at its start. `None` if no period ends.
    pub(super) fn ends(&mut self, now: Instant<C>, totals: Totals) -> Option<(Nanos, Totals)> {
        self.calls += 1;
        let (began, then) = *self.began.get_or_insert((now, totals));
        if self.calls <= PERIOD {
            return None;
        }
        (self.began, self.calls) = (Some((now, totals)), 1);
        now.since(began).filter(|span| *span > Nanos::ZERO).map(|span| (span, then))
    }

    /// Judges a period that cost `cost`, as a share of a polling core. `gap` is the mean gap between its packets.
    pub(super) fn judge(&mut self, cost: u64, gap: u64) -> Next {
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
        if self.mixed || gap.abs_diff(before.gap) > before.gap / 4 {
            // The costs cannot be compared.
            self.wait = self.patience.max(AFTER_CHANGE);
            return Next::Return(before);
        }
        if cost <= before.cost - before.cost / WORTHWHILE {
            (self.wait, self.patience) = (0, 0);
            return Next::Stay;
        }
        self.fail();
        Next::Return(before)
    }

    /// Ends a trial that the device refused: `in_force` is still the hold-off before it. `None` if it is not.
    pub(super) fn refused(&mut self, in_force: u64) -> Option<Before> {
        let before = self.before.take_if(|before| before.hold == in_force)?;
        self.fail();
        Some(before)
    }

    /// Ends a trial, if there is one, and delays the next one as after a failed trial.
    pub(super) fn give_up(&mut self) {
        (self.before, self.began, self.calls) = (None, None, 0);
        self.fail();
    }

    /// Starts the period anew, because the costs before and after a change of frequency cannot be compared.
    pub(super) fn frequency_changed(&mut self) {
        (self.began, self.calls, self.mixed) = (None, 0, true);
    }

    fn fail(&mut self) {
        self.patience = (2 * self.patience).clamp(1, MOST_PATIENCE);
        self.wait = self.patience;
    }

    /// Notes that a trial begins.
    pub(super) fn begin(&mut self, before: Before) {
        (self.before, self.learned, self.mixed) = (Some(before), false, false);
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
    use super::*;
    use units::Simulated;

    const BEFORE: Before = Before { place: 0, hold: 0, cost: 1_000, gap: 100 };

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
            while !matches!(trials.judge(1_000, 100), Next::Try) {
                periods += 1;
            }
            trials.begin(BEFORE);
            assert!(matches!(trials.judge(5_000, 100), Next::Stay), "it learns first");
            assert!(matches!(trials.judge(990, 100), Next::Return(Before { hold: 0, .. })), "1 % is not enough");
            periods
        };
        assert_eq!([waited(), waited(), waited(), waited()], [0, 1, 2, 4]);
        (0..10).for_each(|_| assert!(waited() <= MOST_PATIENCE));
        trials.begin(BEFORE);
        (0..2).for_each(|_| assert!(matches!(trials.judge(900, 100), Next::Stay)));
        assert!(matches!(trials.judge(900, 100), Next::Try), "one that saves is followed by the next");
    }

    #[test]
    fn other_traffic_proves_nothing() {
        let mut trials = Trials::<Simulated>::new();
        trials.begin(BEFORE);
        trials.judge(500, 200);
        assert!(matches!(trials.judge(500, 200), Next::Return(_)), "it is cheaper only because fewer packets come");
        (0..AFTER_CHANGE).for_each(|_| assert!(matches!(trials.judge(500, 200), Next::Stay)));
        assert!(matches!(trials.judge(500, 200), Next::Try));
        // Nor does another frequency.
        trials.begin(BEFORE);
        trials.judge(500, 100);
        trials.frequency_changed();
        assert!(matches!(trials.judge(500, 100), Next::Return(_)));
    }

    #[test]
    fn a_refused_trial_is_over() {
        let mut trials = Trials::<Simulated>::new();
        trials.begin(BEFORE);
        assert!(trials.refused(30_000).is_none(), "a rounded value is no refusal");
        assert!(trials.refused(0).is_some() && trials.refused(0).is_none());
        assert!(matches!(trials.judge(900, 100), Next::Stay), "the next one waits");
    }
}

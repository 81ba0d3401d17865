//! Decides when to save power by lowering a setting that many cores share, such as turbo or the frequency of the
//! uncore.
//!
//! ```text
//!   FULL ── no core has needed it for the hold time ──► SAVING
//!    ▲                                                    │
//!    └────────────── a core needs it: at once ────────────┘
//! ```
//! A change of a shared setting affects all cores of a package. So the setting follows the needs of all these cores,
//! and changes more rarely than the frequency of one core. The hold time starts at [`SHORTEST_HOLD`]. It doubles if the
//! full setting is needed again within a hold time after it was lowered, and halves when saving has lasted for
//! [`LASTED`] hold times.

use units::{Instant, Nanos};

/// The shortest hold time. With it, the setting changes at most six times per minute.
pub const SHORTEST_HOLD: Nanos = Nanos::from_secs(10);
/// The longest hold time.
pub const LONGEST_HOLD: Nanos = Nanos::from_secs(160);
/// Saving counts as confirmed after this many hold times; the hold time is then halved.
pub const LASTED: u64 = 10;

/// Decides when to save power by a shared setting. At first, the setting has its full value.
#[derive(Clone, Debug)]
pub struct Slow<C> {
    hold: Nanos,
    /// When the cores stopped needing the full value. `None` if a core needs it now.
    unneeded: Option<Instant<C>>,
    /// When saving began. `None` if the setting has its full value.
    saving: Option<Instant<C>>,
}

impl<C> Default for Slow<C> {
    fn default() -> Self {
        Self { hold: SHORTEST_HOLD, unneeded: None, saving: None }
    }
}

impl<C> Slow<C> {
    /// Whether power is being saved.
    pub fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// The hold time: the setting is lowered once no core has needed the full value for this long.
    pub fn hold(&self) -> Nanos {
        self.hold
    }

    /// Decides based on whether any core needs the full value now. `Some(true)`: lower the setting to save power;
    /// `Some(false)`: restore the full value; `None`: change nothing.
    pub fn decide(&mut self, now: Instant<C>, is_needed: bool) -> Option<bool> {
        let since = |at: Instant<C>| now.since(at).unwrap_or(Nanos::ZERO);
        if is_needed {
            self.unneeded = None;
            let saved = since(self.saving.take()?);
            if saved < self.hold {
                self.hold = (self.hold * 2).min(LONGEST_HOLD);
            } else if saved >= self.hold * LASTED {
                self.hold = (self.hold / 2).max(SHORTEST_HOLD);
            }
            return Some(false);
        }
        let unneeded = *self.unneeded.get_or_insert(now);
        if self.saving.is_some() || since(unneeded) < self.hold {
            return None;
        }
        self.saving = Some(now);
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    extern crate std;
    use std::vec::Vec;

    /// Asks once a second, and returns the seconds at which something changed, and what.
    fn run(slow: &mut Slow<Simulated>, from: u64, to: u64, is_needed: impl Fn(u64) -> bool) -> Vec<(u64, bool)> {
        let changes = (from..to).filter_map(|second| {
            let now = Instant::ORIGIN + Nanos::from_secs(second);
            slow.decide(now, is_needed(second)).map(|saving| (second, saving))
        });
        changes.collect()
    }

    #[test]
    fn saves_after_the_hold_time_and_restores_at_once() {
        let mut slow = Slow::default();
        assert_eq!(run(&mut slow, 0, 60, |second| second >= 40), [(10, true), (40, false)]);
        assert_eq!(slow.hold(), SHORTEST_HOLD, "30 s of saving were worth it");
    }

    #[test]
    fn a_need_that_comes_back_soon_makes_it_patient() {
        let mut slow = Slow::default();
        // Needed for one second in every fifteen: saving never lasts.
        let changes = run(&mut slow, 0, 600, |second| second % 15 == 14);
        assert_eq!(changes, [(10, true), (14, false)], "with a hold time of 20 s nothing is to be gained");
        assert_eq!(slow.hold(), SHORTEST_HOLD * 2);
        // After a long rest it is less patient again.
        assert_eq!(run(&mut slow, 600, 1_000, |second| second == 900), [(620, true), (900, false), (911, true)]);
        assert_eq!(slow.hold(), SHORTEST_HOLD);
    }

    #[test]
    fn the_hold_time_is_bounded() {
        let mut slow = Slow::default();
        for hold in 0..20 {
            let at = Instant::<Simulated>::ORIGIN + Nanos::from_secs(hold * 1_000);
            slow.decide(at, false);
            slow.decide(at + LONGEST_HOLD, false);
            assert_eq!(slow.decide(at + LONGEST_HOLD + Nanos::from_secs(1), true), Some(false));
        }
        assert_eq!(slow.hold(), LONGEST_HOLD);
    }
}

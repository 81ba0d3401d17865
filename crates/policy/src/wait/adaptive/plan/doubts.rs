//! Doubt in what was learned of candidates that are not chosen: it grows until the candidate is tried again.
//!
//! ```text
//!                     its turn has come, and the goal has allowed the late packets of a trial
//!           ┌────────────────────────────────────────────────────────────────────────────────────┐
//!           │                                                                                    ▼
//!   expected to be late ◄── tried, and a packet is late: four halvings fewer ── expected to be late half as often
//!      as learned       ◄── chosen: one halving fewer at a time ──────────────     (at most twelve halvings)
//! ```

use super::super::choice::SLOTS;
use super::record::ONE;

/// Doubt halves the expected number of late packets of a candidate at most this many times.
const DOUBTS: u8 = 12;
/// A late packet reverts this many halvings of the candidate's doubt.
const DISPROVED: u8 = 4;

/// The doubt in each candidate.
#[derive(Clone, Debug)]
pub(super) struct Doubts {
    /// How many times doubt has halved each candidate's expected late packets, because it was not chosen for a long
    /// time and should be tried again.
    halvings: [u8; SLOTS],
    /// For each candidate, the number of late packets that the goal has allowed for its trials since its last halving.
    allowed: [u32; SLOTS],
    /// Candidates that were chosen since the last turn, one bit each.
    taken: u32,
    /// Counts the turns, which determines the rule and the candidate of the next one.
    turn: usize,
}

impl Doubts {
    /// Number of turns after which they repeat: three rules, and each candidate in turn.
    pub(super) const TURNS: usize = 3 * SLOTS;

    pub(super) const fn new() -> Self {
        Self { halvings: [0; SLOTS], allowed: [0; SLOTS], taken: 0, turn: 0 }
    }

    /// How often the expected late packets of a candidate are halved.
    pub(super) fn halvings(&self, slot: usize) -> u8 {
        self.halvings[slot]
    }

    /// Notes that a candidate was chosen, and whether packets were late after it.
    #[inline]
    pub(super) fn took(&mut self, slot: usize, late: bool) {
        self.taken |= 1 << slot;
        if late {
            self.halvings[slot] = self.halvings[slot].saturating_sub(DISPROVED);
        }
    }

    /// Whether a candidate was chosen since the last turn.
    pub(super) fn is_taken(&self, slot: usize) -> bool {
        self.taken & (1 << slot) != 0
    }

    /// Begins the next turn, and returns its number, less than [`Self::TURNS`].
    pub(super) fn next_turn(&mut self) -> usize {
        self.turn = (self.turn + 1) % Self::TURNS;
        self.turn
    }

    /// Ends a turn, in which the goal has allowed another late packet for a trial of the candidate `slot`. If the trial
    /// is late, all of its `packets` (in millionths of a packet) may be late. Returns whether a trial is paid for, and
    /// the candidate was not chosen anyway. For candidates that were chosen, doubt decreases.
    pub(super) fn end_turn(&mut self, slot: usize, packets: u64) -> bool {
        self.allowed[slot] += 1;
        let is_paid = u64::from(self.allowed[slot]) * ONE >= packets;
        let tries = is_paid && !self.is_taken(slot);
        if tries {
            self.halvings[slot] = (self.halvings[slot] + 1).min(DOUBTS);
            self.allowed[slot] = 0;
        }
        for taken in 0..SLOTS {
            if self.is_taken(taken) {
                self.halvings[taken] = self.halvings[taken].saturating_sub(1);
                self.allowed[taken] = 0;
            }
        }
        self.taken = 0;
        tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_grows_as_trials_are_paid_for_and_falls_as_they_are_made() {
        let mut doubts = Doubts::new();
        let tries = (0..8).filter(|_| doubts.end_turn(3, 2 * ONE)).count();
        assert_eq!((tries, doubts.halvings(3)), (4, 4), "two packets allowed for each trial");
        doubts.took(3, false);
        assert!(!doubts.end_turn(3, 0), "it was chosen anyway");
        assert_eq!(doubts.halvings(3), 3);
        doubts.took(3, true);
        assert_eq!(doubts.halvings(3), 0);
        doubts.end_turn(3, 0);
        (0..100).for_each(|_| assert!(doubts.end_turn(3, 0)));
        assert_eq!(doubts.halvings(3), DOUBTS);
    }

    #[test]
    fn what_is_late_in_batches_is_tried_again_as_seldom() {
        let tries = |packets: u64| {
            let mut doubts = Doubts::new();
            (0..240).filter(|_| doubts.end_turn(3, packets * ONE)).count()
        };
        assert_eq!([1, 80].map(tries), [240, 3]);
    }

    #[test]
    fn each_candidate_has_its_turn() {
        let mut doubts = Doubts::new();
        let turns: [usize; Doubts::TURNS] = core::array::from_fn(|_| doubts.next_turn());
        let mut in_turn = [false; SLOTS];
        turns.into_iter().filter(|turn| turn % 3 == 0).for_each(|turn| in_turn[turn / 3] = true);
        assert_eq!(in_turn, [true; SLOTS]);
    }
}

//! The candidates among which the policy chooses, numbered by *slots*, and the choice.
//!
//! | slots | candidate |
//! | --- | --- |
//! | 0 to [`SLEEPS`] - 1 | timed sleeps; the last two take a half and a quarter of the time within the goal |
//! | [`BLOCK`] | a block until the next frame |
//! | [`UNTIL`] and the next one | a wait until shortly before a forecast burst, with little or much room for lateness |
//! | [`POLL`] | polling on |

use super::tail::PARTS;

/// Number of timed sleeps. Each of the first `PARTS` leaves room for one part of the distribution of lateness; the last
/// of them also leaves room for lateness that was not seen yet. The other two are short.
pub(super) const SLEEPS: usize = PARTS + 2;
/// Number of candidates: the sleeps, the block, and two kinds of waits for a forecast burst (one with little and one
/// with much room for lateness).
pub(super) const SLOTS: usize = SLEEPS + 3;
pub(super) const BLOCK: usize = SLEEPS;
pub(super) const UNTIL: usize = SLEEPS + 1;
/// The slot number that stands for polling without a wait.
pub(super) const POLL: usize = SLOTS;
/// Waits for a forecast burst share one record if they leave room for this part of the lateness or a later one, because
/// the same forecast errors make all of them late.
pub(super) const SAFE: usize = PARTS - 3;

/// The slot of a wait for a forecast burst that leaves room for `part` of the lateness.
pub(super) fn until(part: usize) -> usize {
    if part < SAFE { UNTIL } else { UNTIL + 1 }
}

/// A candidate with its expected result, as far as a decision needs it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Choice {
    pub(super) slot: usize,
    /// How long to wait, in nanoseconds. 0 if the wait is not possible.
    pub(super) wait: u64,
    /// Cost of the time `lasts` and of its late packets, in nanoseconds of a polling core.
    pub(super) costs: u64,
    /// Time from the start of the wait until its packets are served, in nanoseconds.
    pub(super) lasts: u64,
    /// The share of the wait's packets that the model expects to be late, in millionths.
    pub(super) late: u64,
    /// Number of late packets that the model expects, in millionths of a packet.
    pub(super) number: u64,
    /// Cost of the wait's late packets at a multiplier of one, in nanoseconds of a polling core.
    pub(super) weight: u64,
    /// Whether the ring, not the goal, limited the length of the wait.
    pub(super) cut: bool,
}

impl Choice {
    /// Polling: it costs as much as it lasts.
    pub(super) const POLL: Self =
        Self { slot: POLL, wait: 0, costs: 1, lasts: 1, late: 0, number: 0, weight: 0, cut: false };

    /// Replaces `self` by `other` if `other` costs less per unit of time.
    #[inline]
    pub(super) fn or(&mut self, other: Self) {
        let dear = u128::from(other.costs) * u128::from(self.lasts) >= u128::from(self.costs) * u128::from(other.lasts);
        if other.wait > 0 && !dear {
            *self = other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_of_two_waits_is_taken_if_it_is_possible() {
        let of = |slot, wait, costs, lasts| Choice { slot, wait, costs, lasts, ..Choice::default() };
        let mut best = Choice::POLL;
        for choice in [of(0, 10, 20, 20), of(1, 10, 9, 20), of(2, 0, 1, 20), of(3, 40, 18, 40), of(4, 50, 20, 50)] {
            best.or(choice);
        }
        assert_eq!(best.slot, 4, "the first costs as much as polling, the third is impossible, the fourth no less");
        best.or(of(5, 50, u64::MAX, u64::MAX));
        assert_eq!(best.slot, 4);
    }
}

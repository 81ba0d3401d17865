//! The candidates after silences of each octave, computed once and reused, because a decision must take nanoseconds.
//!
//! ```text
//!              forget ┌───────────────────────────────────────────────┐
//!                     ▼                                               │
//!   outdated: compute all candidates ──► up to date ── each few waits, one candidate is recomputed; after late
//!                                                      packets, their candidate is, before the next decision
//! ```

use super::super::choice::{Choice, SLEEPS};
use super::super::gaps::OCTAVES;
use super::super::slower::Slower;
use super::doubts::Doubts;
use super::expect::Cell;
use super::model::Model;

/// In each row, one candidate is recomputed once this many further waits have been learned. See [`STALE_FOR`] for the
/// minimum time between two recomputations.
pub(super) const STALE: u32 = 4;
/// Minimum time in nanoseconds between two recomputations in the same row, because each takes about a microsecond.
const STALE_FOR: u64 = 300_000;
/// [`STALE_FOR`] does not apply to this many first waits, because each of them changes much of what is known.
const YOUNG: u32 = 4_096;

/// The candidates for waits after a silence of one octave: the sleeps and the block.
#[derive(Clone, Copy, Debug)]
struct Row {
    cells: [Cell; SLEEPS + 1],
    /// The next candidate to recompute. `None` if the whole row must be recomputed.
    next: Option<usize>,
    /// State when a candidate was last recomputed: the number of waits learned by then, and (in `at`) the time.
    learned: u32,
    at: u64,
    /// Candidates that had late packets since they were last recomputed, one bit each.
    late: u32,
    /// The multiplier of the last comparison, and the candidate that was the cheapest with it.
    best: Option<(u64, Choice)>,
}

impl Row {
    const NONE: Self = Self { cells: [Cell::NONE; SLEEPS + 1], next: None, learned: 0, at: 0, late: 0, best: None };

    fn compare(&mut self, multiplier: u64) -> Choice {
        let mut best = Choice::POLL;
        for (slot, cell) in self.cells.iter().enumerate() {
            best.or(cell.at_price(slot, multiplier));
        }
        self.best = Some((multiplier, best));
        best
    }
}

/// The rows of all octaves.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    rows: [Row; OCTAVES],
    /// The row that was used last.
    last: usize,
}

impl Rows {
    pub(super) const fn new() -> Self {
        Self { rows: [Row::NONE; OCTAVES], last: 0 }
    }

    /// The cheapest candidate after a silence in this octave. `now` is the time in nanoseconds. From time to time, one
    /// candidate is recomputed.
    #[inline]
    pub(super) fn best(&mut self, model: &Model, doubts: &Doubts, octave: usize, multiplier: u64, now: u64) -> Choice {
        self.last = octave;
        let Row { next, learned, at, late, .. } = &self.rows[octave];
        let stale = model.learned.wrapping_sub(*learned) >= STALE
            && (model.learned < YOUNG || now.wrapping_sub(*at) >= STALE_FOR);
        if next.is_none() || stale || *late > 0 {
            self.renew(model, doubts, octave, now, stale);
        }
        let row = &mut self.rows[octave];
        match row.best {
            Some((at, best)) if at == multiplier => best,
            _ => row.compare(multiplier),
        }
    }

    #[cold]
    fn renew(&mut self, model: &Model, doubts: &Doubts, octave: usize, now: u64, stale: bool) {
        // Doubt reduces the expected late packets.
        let hopeful = |slot: usize| {
            let cell = model.candidate(octave, slot, Slower::NOT);
            Cell { weight: cell.weight >> doubts.halvings(slot), ..cell }
        };
        let row = &mut self.rows[octave];
        let Some(slot) = row.next else {
            let cells = core::array::from_fn(hopeful);
            *row = Row { cells, next: Some(0), learned: model.learned, at: now, late: 0, best: None };
            return;
        };
        for slot in (0..=SLEEPS).filter(|slot| row.late & (1 << slot) != 0) {
            row.cells[slot] = hopeful(slot);
        }
        row.late = 0;
        if stale {
            row.cells[slot] = hopeful(slot);
            row.next = Some((slot + 1) % (SLEEPS + 1));
            (row.learned, row.at) = (model.learned, now);
        }
        row.best = None;
    }

    /// Notes that packets of this candidate were late.
    pub(super) fn were_late(&mut self, slot: usize) {
        self.rows.iter_mut().for_each(|row| row.late |= 1 << slot);
    }

    /// Marks every row to be recomputed when it is next used.
    pub(super) fn forget(&mut self) {
        self.rows.iter_mut().for_each(|row| row.next = None);
    }

    /// Number of packets of a candidate in the row that was used last, in millionths of a packet.
    pub(super) fn packets(&self, slot: usize) -> u64 {
        self.rows[self.last].cells[slot].packets
    }

    /// The candidate of the row that was used last that would be the cheapest of those that `may` be chosen if no
    /// packet were late. `None` if none of them is possible.
    pub(super) fn cheapest(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let cells = &self.rows[self.last].cells;
        let others = (0..=SLEEPS).filter(|slot| may(*slot) && cells[*slot].wait > 0);
        others.min_by_key(|slot| (cells[*slot].costs << 16) / cells[*slot].lasts.max(1))
    }

    /// Cost of the late packets of a candidate in the row that was used last, at a multiplier of one.
    #[cfg(test)]
    pub(super) fn weight(&self, slot: usize) -> u64 {
        self.rows[self.last].cells[slot].weight
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::choice::BLOCK;
    use super::super::super::gaps::octave;
    use super::super::model::tests::{US, blocked, model};
    use super::*;

    #[test]
    fn what_was_learned_is_used_after_a_few_waits_and_at_once_after_late_packets() {
        let (mut model, doubts, mut rows) = (model(), Doubts::new(), Rows::new());
        (0..100).for_each(|_| blocked(&mut model, 5 * US, 8 * US));
        let weight = |model: &Model, rows: &mut Rows, now: u64| {
            rows.best(model, &doubts, octave(0), 0, now);
            rows.weight(BLOCK)
        };
        assert_eq!(weight(&model, &mut rows, 0), 0);
        // 40 us instead of 8 us, of 20 us. Each few waits, one of the ten candidates is recomputed.
        (0..STALE - 1).for_each(|_| blocked(&mut model, 30 * US, 40 * US));
        assert_eq!(weight(&model, &mut rows, 0), 0);
        for _ in 0..=SLEEPS {
            (0..STALE).for_each(|_| blocked(&mut model, 30 * US, 40 * US));
            weight(&model, &mut rows, 0);
        }
        let known = weight(&model, &mut rows, 0);
        assert!(known > 0);
        model.saw(BLOCK, 80, 80, 0);
        assert_eq!(weight(&model, &mut rows, 0), known, "no wait was learned");
        rows.were_late(BLOCK);
        assert!(weight(&model, &mut rows, 0) > known);
    }
}

//! What it would cost to meet the goal at another frequency, or with another hold-off.
//!
//! For each of several multipliers, the cheapest waits are chosen with their late packets included, and the value of
//! the allowed late packets is subtracted. The maximum of these differences over all multipliers is the cost of the
//! best mixture of waits that meets the goal: it solves the dual problem (S. Boyd and L. Vandenberghe, "Convex
//! Optimization", 2004, chapter 5).
//!
//! The length of a silence cannot be chosen. So each octave of silence is weighted by its share of the time.

use super::super::choice::SLEEPS;
use super::super::gaps::begins;
use super::super::slower::Slower;
use super::expect::Cell;
use super::model::Model;
use super::record::Record;

/// Number of multipliers that are tried.
const STEPS: usize = 17;
/// Values for each of these multipliers.
pub(super) type Steps = [u64; STEPS];
/// Evenly spaced multipliers from 0 to 1, in 2^-16. At 1, polling costs no more than a wait that makes as many packets
/// late as the policy aims at.
const EVEN: Steps = {
    let (mut steps, mut step) = ([0; STEPS], 0);
    while step < STEPS {
        steps[step] = ((step as u64) << 16) / (STEPS as u64 - 1);
        step += 1;
    }
    steps
};
/// 0, and multipliers from 2^-8 to 0.7 that grow by a factor of 1.41, in 2^-16. Hold-offs often differ in how many
/// packets they make late, and with the better of two, a late packet may be cheap.
pub(super) const FINE: Steps =
    [0, 256, 362, 512, 724, 1_024, 1_448, 2_048, 2_896, 4_096, 5_793, 8_192, 11_585, 16_384, 23_170, 32_768, 46_341];

/// Octaves with a smaller share of the time than this (in 2^-16) are ignored.
const LITTLE: u64 = 1 << 10;

/// What the cheapest waits are expected to cost, as shares of a polling core, in 2^-16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// Cost of the cheapest waits that meet the goal, as a share of a polling core, in 2^-16.
    pub costs: u64,
    /// Cost of the cheapest waits if no packet could be late, in the same unit. It is at most `costs`.
    pub free: u64,
}

impl Model {
    /// What the cheapest waits that meet the goal would cost if work and wake-ups took longer by `slower`.
    pub(super) fn outlook(&self, slower: Slower) -> Prospect {
        let [prospect] = self.prospects(slower, &EVEN, [(self.hold, self.seen_of_blocks())]);
        prospect
    }

    /// The same for each of several hold-offs in nanoseconds, with what was observed of blocks with them. `multipliers`
    /// are those that are tried, in 2^-16.
    pub(super) fn prospects<const N: usize>(
        &self,
        slower: Slower,
        multipliers: &Steps,
        holds: [(u64, &Record); N],
    ) -> [Prospect; N] {
        let (mut duals, mut covered): ([Steps; N], _) = ([[0; STEPS]; N], 0);
        for (octave, share) in self.gaps.shares().into_iter().enumerate().filter(|(_, share)| *share >= LITTLE) {
            covered += share;
            self.add_duals((octave, share), slower, multipliers, &holds.map(Some), &mut duals);
        }
        duals.map(|dual| Prospect::of(&dual, covered, multipliers))
    }

    /// Adds the least cost after silences of one octave at each of the `multipliers`, as shares of a polling core in 2^-16,
    /// times the octave's `share` of the time, to the sum of each of several hold-offs. `None` is left out.
    fn add_duals(
        &self,
        (octave, share): (usize, u64),
        slower: Slower,
        multipliers: &Steps,
        holds: &[Option<(u64, &Record)>],
        sums: &mut [Steps],
    ) {
        let sleeps = |hold: u64| -> [Cell; SLEEPS] {
            let wait = |slot: usize| self.wait_for(slot, slower);
            core::array::from_fn(|slot| self.sleep_held(slot, begins(octave), wait(slot), hold, slower))
        };
        let least = |cells: &[Cell], step: usize, most: u64| {
            let rate = |cell: &Cell| {
                let weight = (u128::from(cell.weight) * u128::from(multipliers[step])) >> 16;
                let costs = (u128::from(cell.costs) + weight) << 16;
                u64::try_from(costs / u128::from(cell.lasts.max(1))).unwrap_or(1 << 16)
            };
            cells.iter().filter(|cell| cell.wait > 0).map(rate).fold(most, u64::min)
        };
        let slept = |hold: u64| -> Steps {
            let sleeps = sleeps(hold);
            core::array::from_fn(|step| least(&sleeps, step, 1 << 16))
        };
        // Unless the hold-off delays the frames themselves, sleeps are the same with all of them.
        let of_all = slept(self.hold);
        let next = self.gaps.residual(begins(octave));
        for (hold, sum) in holds.iter().zip(sums).filter_map(|(hold, sum)| Some((hold.as_ref()?, sum))) {
            let block = if self.interrupts { self.block_held(next, *hold, slower) } else { Cell::NONE };
            let sleeping = if self.holds_frames && hold.0 != self.hold { slept(hold.0) } else { of_all };
            sum.iter_mut().enumerate().for_each(|(step, sum)| *sum += share * least(&[block], step, sleeping[step]));
        }
    }
}

impl Prospect {
    /// What cannot be estimated is expected to cost as much as polling.
    pub(super) const POLLS: Self = Self { costs: 1 << 16, free: 1 << 16 };

    /// Follows from the sum of the octaves' least costs at each of the `multipliers`, weighted by their shares of the time,
    /// and the sum of these shares.
    fn of(dual: &Steps, covered: u64, multipliers: &Steps) -> Self {
        if covered == 0 {
            return Self::POLLS;
        }
        let value = |step: usize| (dual[step] / covered).saturating_sub(multipliers[step]);
        Self { costs: (0..STEPS).map(value).max().unwrap_or(1 << 16), free: value(0) }
    }
}

/// The [`Prospect`]s with each of several hold-offs, computed in steps, because all of it takes tens of microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial<const N: usize> {
    octave: usize,
    duals: [Steps; N],
    covered: u64,
}

impl<const N: usize> Partial<N> {
    pub(super) const NONE: Self = Self { octave: 0, duals: [[0; STEPS]; N], covered: 0 };

    /// Adds the next octave, with these hold-offs in nanoseconds and what was observed of blocks with them. Returns the results
    /// if it was the last one: that of `None` says nothing.
    pub(super) fn go_on(&mut self, model: &Model, holds: &[Option<(u64, &Record)>; N]) -> Option<[Prospect; N]> {
        let shares = model.gaps.shares();
        let next = (self.octave..shares.len()).find(|octave| shares[*octave] >= LITTLE);
        let Some(octave) = next else { return Some(self.duals.map(|dual| Prospect::of(&dual, self.covered, &EVEN))) };
        self.octave = octave + 1;
        self.covered += shares[octave];
        model.add_duals((octave, shares[octave]), Slower::NOT, &EVEN, holds, &mut self.duals);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::prices::Kind;
    use super::super::super::slower::SAME;
    use super::super::model::tests::{US, blocked, model};
    use super::*;

    #[test]
    fn what_lateness_adds_to_the_cost_is_told_apart() {
        let mut model = model();
        (0..100).for_each(|_| blocked(&mut model, 10 * US, 17 * US));
        // A sleep is no way out.
        model.spent(Kind::Timer, 15 * US, 14 * US, 0);
        let now = model.outlook(Slower::NOT);
        assert_eq!(now.costs, now.free, "no packet is late");
        // 17 us become 21 us, of 20 us.
        let slower = Slower { work: SAME * 5 / 4, timer: SAME * 5 / 4, device: SAME * 5 / 4 };
        let then = model.outlook(slower);
        assert!(then.costs > then.free, "{then:?}");
        assert!(then.free <= now.free * 5 / 4, "{now:?} {then:?}");
    }
}

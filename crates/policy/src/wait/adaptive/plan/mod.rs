//! Models the result of each wait: how long it lasts, what it costs, and how many packets it makes late.
//!
//! ```text
//!   observed ──► model: lateness, prices, gaps, work; a record of each candidate
//!                  │
//!                  └► expect: a candidate's duration, cost, late packets
//!                       ├─► rows: the sleeps and the block after a silence; doubts: which are due for a trial
//!                       ├─► forecast: the waits for a forecast burst
//!                       └─► outlook: the cost of the best mixture of waits ─► holds: with other hold-offs
//! ```
//! Each file depends only on those before it.

mod doubts;
mod expect;
mod forecast;
mod holds;
mod lateness;
mod model;
mod outlook;
mod record;
mod rows;

use units::Nanos;

use super::choice::{BLOCK, Choice, SAFE, UNTIL, until};
use super::depth::Depth;
use super::gaps::Gaps;
use super::prices::Kind;
use super::slower::{SAME, Slower};
use super::tail::Tail;
use doubts::Doubts;
use expect::Cell;
use forecast::Forecasts;
use holds::Holds;
pub(super) use holds::{Expected, Expecting};
use model::Model;
pub use outlook::Prospect;
use rows::Rows;

/// A block without a limit is computed again after this many further waits.
const RESTS_FOR: u32 = 64;
/// What it costs to lift the limit of the idle states and to set it again, and to wake up for that, in nanoseconds of a
/// polling core: two system calls and a timer. An estimate, on the high side.
const LIFTS: u64 = 20_000;

/// Everything learned, and the plan that follows from it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    model: Model,
    rows: Rows,
    forecasts: Forecasts,
    doubts: Doubts,
    holds: Holds,
    /// A block without a limit of the idle states: after a silence of which octave, how many waits had been learned when
    /// it was computed, and what it is expected to lead to.
    rest: Option<(usize, u32, Cell)>,
}

impl Plan {
    /// `target` is the goal's latency less the reserve, `longest` the longest timed sleep, `ring` the time until the
    /// ring overflows, all in nanoseconds. `share` is the share of late packets that the policy aims at, in millionths.
    pub(super) fn new(target: u64, longest: u64, ring: u64, share: u64, interrupts: bool) -> Self {
        Self {
            model: Model::new(target, longest, ring, share, interrupts),
            rows: Rows::new(),
            forecasts: Forecasts::new(),
            doubts: Doubts::new(),
            holds: Holds::new(),
            rest: None,
        }
    }

    /// The gaps between packets, to add further ones.
    #[inline]
    pub(super) fn gaps(&mut self) -> &mut Gaps {
        &mut self.model.gaps
    }

    /// The recent mean gap between packets, in nanoseconds.
    #[inline]
    pub(super) fn mean_gap(&self) -> u64 {
        self.model.gaps.mean()
    }

    /// The mean work per packet, in nanoseconds. 0 until it is known.
    #[inline]
    pub(super) fn work(&self) -> u64 {
        self.model.work
    }

    /// Sets the mean work per packet, in nanoseconds.
    #[inline]
    pub(super) fn set_work(&mut self, work: u64) {
        self.model.work = work;
    }

    /// Sets the time in nanoseconds within which nine in ten packets leave after work began.
    #[inline]
    pub(super) fn set_service(&mut self, service: u64) {
        self.model.service = service;
    }

    /// Sets the weight of the model's expectation, in sixteenths.
    #[inline]
    pub(super) fn set_trust(&mut self, trust: u64) {
        self.model.trust = trust;
    }

    /// Sets the minimum time between the departures of two packets of a burst, in nanoseconds.
    pub(super) fn set_spacing(&mut self, spacing: u64) {
        self.model.spacing = spacing;
    }

    /// Sets the goal's latency less the reserve, in nanoseconds.
    pub(super) fn set_target(&mut self, target: u64) {
        self.model.target = target;
        self.forget();
    }

    /// Whether an arriving frame can end a block.
    #[inline]
    pub(super) fn interrupts(&self) -> bool {
        self.model.interrupts
    }

    /// Whether packets come without arrival timestamps.
    #[inline]
    pub(super) fn is_blind(&self) -> bool {
        self.model.blind
    }

    /// Packets come without arrival timestamps, so waits for the device show no lateness.
    pub(super) fn go_blind(&mut self) {
        self.model.blind = true;
    }

    /// Sets the lateness of waits of a kind to a measured distribution. `length` is the length of the waits in
    /// nanoseconds; `None` means all lengths.
    pub(super) fn know(&mut self, kind: Kind, length: Option<u64>, tail: &Tail) {
        self.model.know(kind, length, tail);
    }

    /// Learns how late a wait ended, see [`Model::ended`].
    #[inline]
    pub(super) fn ended(&mut self, kind: Kind, length: u64, late: Nanos, stalls_ppm: u32) -> bool {
        self.model.ended(kind, length, late, stalls_ppm)
    }

    /// Learns when packets left after a wait that the device ended, see [`Model::departed`].
    #[inline]
    pub(super) fn departed(&mut self, first: Nanos, last: Nanos, hold: Nanos) {
        self.model.departed(first, last, hold);
    }

    /// Learns what a wait of this kind cost. All times are in nanoseconds.
    #[inline]
    pub(super) fn spent(&mut self, kind: Kind, lasted: u64, spent: u64, idle: u64) {
        self.model.spent(kind, lasted, spent, idle);
    }

    /// The cost of a wait of this kind that lasted so long, as learned. All times are in nanoseconds.
    pub(super) fn price(&self, kind: Kind, lasted: u64) -> u64 {
        self.model.prices.of(kind, lasted, SAME)
    }

    /// Rescales everything that was learned by `slower`, because the frequency changed.
    pub(super) fn change(&mut self, slower: Slower) {
        self.model.change(slower);
        self.holds.change_frequency();
        self.forget();
    }

    /// Reduces trust in the known costs, because nothing was learned for a while.
    pub(super) fn age(&mut self) {
        self.model.prices.age();
        self.forget();
    }

    /// Learns that `late` of the `packets` after a wait were late. The model had expected `expected` late ones, in
    /// millionths of a packet.
    #[inline]
    pub(super) fn saw(&mut self, slot: usize, packets: u64, late: u64, expected: u64) {
        self.doubts.took(slot, late > 0);
        if late > 0 {
            self.rows.were_late(slot);
            self.forecasts.forget();
        }
        self.model.saw(slot, packets, late, expected);
    }

    /// Call this each time the goal allows another late packet. It picks one candidate that was not chosen for a wait
    /// since the last call, and saves the allowed packet for its trial. Once the saved packets cover a trial whose
    /// packets are all late, the candidate is expected to be late half as often. So it is eventually tried again, at
    /// the price of an occasional late packet.
    ///
    /// The pick alternates between three rules: each candidate in turn, the candidate that would save most if it caused
    /// no late packet, and the wait for a forecast burst. For candidates that were chosen for waits, doubt decreases.
    /// (Waits for a forecast burst have no doubt of their own: their records fade instead.)
    pub(super) fn doubt(&mut self) {
        let turn = self.doubts.next_turn();
        self.holds.fade(turn);
        let is_taken = |slot: usize| self.doubts.is_taken(slot);
        let chosen = match turn % 3 {
            0 => turn / 3,
            1 if self.forecasts.is_known() && !is_taken(UNTIL) && !is_taken(until(SAFE)) => until(SAFE),
            _ => self.rows.cheapest(|slot| !is_taken(slot)).unwrap_or(BLOCK),
        };
        // A wait for a forecast burst makes about as many packets late as a block.
        if self.doubts.end_turn(chosen, self.rows.packets(chosen.min(BLOCK))) {
            self.model.seen_mut(chosen).halve();
        }
        self.forget();
    }

    /// The cheapest sleep or block after a silence in this octave, or [`Choice::POLL`]. `now` is in nanoseconds,
    /// as the clock shows it.
    #[inline]
    pub(super) fn best(&mut self, octave: usize, multiplier: u64, now: u64) -> Choice {
        self.rows.best(&self.model, &self.doubts, octave, multiplier, now)
    }

    /// The cheapest wait for a burst that is expected in about `ahead` nanoseconds, see [`Forecasts::best`].
    #[inline]
    pub(super) fn before_burst(&mut self, ahead: u64, polling: u64, multiplier: u64) -> Option<Choice> {
        self.forecasts.best(&self.model, ahead, polling, multiplier)
    }

    /// The limit of the idle states.
    pub(super) fn depth(&self) -> Depth {
        self.model.depth()
    }

    /// Changes to another limit of the idle states: what was learned with that one counts from now on.
    pub(super) fn set_depth(&mut self, depth: Depth) {
        self.model.set_depth(depth);
        self.forget();
    }

    /// Goes on computing what the cheapest waits that meet the goal are expected to cost with this limit of the idle
    /// states, see [`Holds::expect`]. Returns it when it is known.
    pub(super) fn expect_with(&mut self, depth: Depth, so_far: &mut Expecting) -> Option<Expected> {
        let present = self.model.depth();
        self.model.set_depth(depth);
        let expected = self.holds.expect(&self.model, so_far);
        self.model.set_depth(present);
        expected
    }

    /// The block without a limit of the idle states, after a silence of one octave, while there is a limit. `None` if it
    /// is not known how late such blocks end.
    pub(super) fn rest(&mut self, octave: usize, multiplier: u64) -> Option<Choice> {
        let limit = self.model.depth();
        let known = self.rest.filter(|rest| rest.0 == octave && self.model.learned.wrapping_sub(rest.1) < RESTS_FOR);
        let cell = match known {
            Some((_, _, cell)) => cell,
            None => {
                self.model.set_depth(limit.without());
                let cell = self.model.candidate(octave, BLOCK, Slower::NOT);
                self.model.set_depth(limit);
                self.rest = Some((octave, self.model.learned, cell));
                cell
            }
        };
        (limit != limit.without() && cell.wait > 0).then(|| {
            let block = cell.at_price(BLOCK, multiplier);
            Choice { costs: block.costs + LIFTS, ..block }
        })
    }

    /// Whether costs include those of idle states. If not, they are CPU time.
    pub(super) fn weighs_idle(&self) -> bool {
        self.model.prices.weighs_idle()
    }

    /// Number of waits learned.
    pub(super) fn learned(&self) -> u32 {
        self.model.learned
    }

    /// Marks everything that was computed to be recomputed when it is next used.
    pub(super) fn forget(&mut self) {
        self.rows.forget();
        self.forecasts.forget();
        self.rest = None;
    }

    /// Cost of the cheapest waits that meet the goal, see [`Model::outlook`].
    pub(super) fn outlook(&self, slower: Slower) -> Prospect {
        self.model.outlook(slower)
    }

    /// Whether a few blocks have shown how late they end.
    pub(super) fn knows_blocks(&self) -> bool {
        self.model.knows_blocks()
    }

    /// A hold-off delays the frames themselves, so that no poll finds them earlier. `longest` is the longest one at
    /// which the ring that holds the frames does not overflow, in nanoseconds.
    pub(super) fn hold_frames(&mut self, longest: u64) {
        (self.model.holds_frames, self.holds.longest) = (true, longest);
    }

    /// The device has a hold-off that can be chosen.
    pub(super) fn can_change_hold(&mut self) {
        self.holds.can_change = true;
    }

    /// Whether a hold-off delays the frames themselves.
    pub(super) fn holds_frames(&self) -> bool {
        self.model.holds_frames
    }

    /// The present hold-off in nanoseconds.
    #[inline]
    pub(super) fn hold(&self) -> u64 {
        self.model.hold
    }

    /// The place of the present hold-off among those that are compared, and its length in nanoseconds.
    pub(super) fn present_hold(&self) -> (usize, u64) {
        (self.holds.present(), self.model.hold)
    }

    /// The place and the length in nanoseconds of the hold-off that is expected to cost least, see [`Holds::better`].
    pub(super) fn better_hold(&self, safe: bool, worthwhile: u64) -> Option<(usize, u64)> {
        self.holds.better(&self.model, safe, worthwhile)
    }

    /// What the cheapest waits that meet the goal are expected to cost with a hold-off, in 2^-16 of a polling core. The
    /// hold-off is given by its place and its length in nanoseconds.
    pub(super) fn cost_with(&self, hold: (usize, u64)) -> u64 {
        self.holds.cost_with(&self.model, hold)
    }

    /// Changes to another hold-off, given by its place and its length in nanoseconds.
    pub(super) fn take_hold(&mut self, (place, hold): (usize, u64)) {
        self.holds.take(place, &mut self.model);
        self.set_hold(hold);
    }

    /// Changes to no hold-off, because packets were late with the present one.
    pub(super) fn give_hold_up(&mut self) {
        if self.holds.present() == 0 {
            // What was observed with somebody else's hold-off says nothing of blocks without one.
            self.model.seen_with_each_limit(BLOCK).for_each(|seen| *seen = record::Record::NONE);
        }
        self.take_hold((0, 0));
    }

    /// Notes the hold-off that is in force from now on, in nanoseconds.
    pub(super) fn set_hold(&mut self, hold: u64) {
        if hold != self.model.hold {
            self.model.hold = hold;
            self.forget();
        }
    }

    /// How late blocks end in the median.
    #[cfg(test)]
    pub(super) fn known_block_lateness(&self) -> Nanos {
        Nanos::from_nanos(self.model.lateness.of(Kind::Device, 40_000).at[0])
    }
}

#[cfg(test)]
mod tests {
    use super::super::gaps::octave;
    use super::model::tests::{US, blocked, model};
    use super::*;

    #[test]
    fn lateness_that_the_model_did_not_expect_counts_at_once() {
        let mut plan = Plan { model: model(), ..Plan::new(20 * US, 20 * US, u64::MAX, 7_500, true) };
        (0..100).for_each(|_| blocked(&mut plan.model, 5 * US, 8 * US));
        let weight = |plan: &mut Plan| {
            plan.best(octave(0), 0, 0);
            plan.rows.weight(BLOCK)
        };
        assert_eq!(weight(&mut plan), 0);
        plan.saw(BLOCK, 80, 80, 0);
        assert!(weight(&mut plan) > 0, "the next decision is about what was seen");
        // A higher frequency may be the remedy.
        let faster = Slower { work: SAME / 2, timer: SAME / 2, device: SAME / 2 };
        assert_eq!(plan.model.block(100 * US, faster).weight, 0);
    }

    #[test]
    fn a_candidate_that_is_not_chosen_is_expected_to_be_late_less_often() {
        let mut plan = Plan { model: model(), ..Plan::new(20 * US, 20 * US, u64::MAX, 7_500, true) };
        (0..100).for_each(|_| blocked(&mut plan.model, 30 * US, 40 * US));
        let weight = |plan: &mut Plan| {
            plan.best(octave(0), 0, 0);
            plan.rows.weight(BLOCK)
        };
        let before = weight(&mut plan);
        (0..4 * Doubts::TURNS).for_each(|_| {
            plan.best(octave(0), 0, 0);
            plan.doubt();
        });
        assert!(weight(&mut plan) < before / 2, "{before} {}", weight(&mut plan));
    }
}

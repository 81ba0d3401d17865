//! The hold-offs that are compared: how long the device may delay its interrupt after the first waiting frame.

use super::super::choice::BLOCK;
use super::super::depth::DEPTHS;
use super::super::prices::Kind;
use super::super::slower::Slower;
use super::super::tail::PARTS;
use super::model::Model;
use super::outlook::{FINE, Partial, Prospect};
use super::record::Record;

/// Number of hold-offs that are compared.
const HOLDS: usize = PARTS + 2;
/// The same with the present one at the end, which somebody else may have set.
const WITH_PRESENT: usize = HOLDS + 1;
/// Hold-offs are whole multiples of this, in nanoseconds: `ethtool -C rx-usecs` takes whole microseconds.
const HOLD_STEP: u64 = 1_000;
/// A hold-off below 1 / `LEAST_HOLD` of the goal's latency is not used: it saves little, and is worth no system call.
const LEAST_HOLD: u64 = 8;

/// A place among the hold-offs that are compared, and the length in nanoseconds of the hold-off there.
pub(super) type Hold = (usize, u64);

/// What was observed of blocks with each hold-off.
#[derive(Clone, Debug)]
pub(super) struct Holds {
    /// The place of the present hold-off. What is observed with it is in the model.
    present: usize,
    /// What was observed with the other ones, for each limit of the idle states.
    others: [[Record; HOLDS]; DEPTHS],
    /// If a hold-off delays the frames themselves, the longest one at which the ring that holds them does not overflow,
    /// in nanoseconds.
    pub(super) longest: u64,
    /// Whether the device has a hold-off that can be chosen.
    pub(super) can_change: bool,
}

/// What the cheapest waits are expected to cost with one limit of the idle states, computed in steps.
#[derive(Clone, Copy, Debug)]
pub(in crate::wait::adaptive) struct Expecting {
    /// At the first step: the present hold-off, and the lengths in nanoseconds of the others that are compared.
    began: Option<(Hold, [Option<u64>; HOLDS])>,
    so_far: Partial<WITH_PRESENT>,
}

/// What the cheapest waits are expected to cost with one limit of the idle states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::wait::adaptive) struct Expected {
    /// With the present hold-off.
    pub(in crate::wait::adaptive) present: Prospect,
    /// With the hold-off with which they cost least.
    pub(in crate::wait::adaptive) best: Prospect,
}

impl Expected {
    pub(in crate::wait::adaptive) const POLLS: Self = Self { present: Prospect::POLLS, best: Prospect::POLLS };
}

impl Expecting {
    pub(in crate::wait::adaptive) const NONE: Self = Self { began: None, so_far: Partial::NONE };
}

impl Holds {
    pub(super) const fn new() -> Self {
        let others = [[Record::NONE; HOLDS]; DEPTHS];
        Self { present: 0, others, longest: u64::MAX, can_change: false }
    }

    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// What was observed lost weight, because the frequency changed.
    pub(super) fn change_frequency(&mut self) {
        self.others.as_flattened_mut().iter_mut().for_each(Record::change_frequency);
    }

    /// Halves one of the records: that of another hold-off at each turn.
    pub(super) fn fade(&mut self, turn: usize) {
        self.others.iter_mut().for_each(|others| others[turn % HOLDS].halve());
    }

    /// The hold-offs that are compared, in nanoseconds: none, a quarter and a half of the goal's latency, and those
    /// that leave room for a part of the lateness of blocks (not for the median alone). If `safe`, all of them leave
    /// room for so much of it that the goal allows the rest. As after a sleep, the ring has room for the packets that
    /// come during nearly every wake-up. Until a few waits have ended, there is no hold-off.
    fn lengths(&self, model: &Model, safe: bool) -> [u64; HOLDS] {
        if !model.lateness.knows(&[Kind::Timer, Kind::Device]) {
            return [0; HOLDS];
        }
        let budget = model.target.saturating_sub(model.service);
        let atoms = model.lateness.of(Kind::Device, budget + model.gaps.residual(0));
        let most = if safe { budget.saturating_sub(atoms.room(model.share)) } else { budget };
        let bounded = |hold: u64| {
            let ring = model.ring.saturating_sub(atoms.at[PARTS - 2]);
            let hold = hold.min(most).min(model.longest).min(ring).min(self.longest);
            if hold < budget / LEAST_HOLD { 0 } else { hold / HOLD_STEP * HOLD_STEP }
        };
        core::array::from_fn(|number| match number {
            0 => 0,
            1 => bounded(budget / 4),
            2 => bounded(budget / 2),
            _ => bounded(budget.saturating_sub(atoms.at[number - 2])),
        })
    }

    /// The hold-off that is expected to cost least. `None` if it does not save 1 / `worthwhile` of the cost of the
    /// present one. If `safe`, a hold-off counts only if the known lateness of blocks leaves room for it within the
    /// goal's latency.
    pub(super) fn better(&self, model: &Model, safe: bool, worthwhile: u64) -> Option<Hold> {
        let lengths = self.lengths(model, safe);
        let others = &self.others[model.depth().number()];
        let seen = |place: usize| if place == self.present { model.seen_of_blocks() } else { &others[place] };
        let prospects: [Prospect; HOLDS] =
            model.prospects(Slower::NOT, &FINE, core::array::from_fn(|place| (lengths[place], seen(place))));
        let stay = self.cost_with(model, (self.present, model.hold));
        // Nothing was observed at the places of hold-offs that came out as none.
        let others = (0..HOLDS).filter(|place| lengths[*place] != model.hold && (*place == 0 || lengths[*place] > 0));
        let best = others.min_by_key(|place| prospects[*place].costs)?;
        (prospects[best].costs < stay - stay / worthwhile).then_some((best, lengths[best]))
    }

    /// What the cheapest waits that meet the goal are expected to cost with this hold-off, in 2^-16 of a polling core.
    pub(super) fn cost_with(&self, model: &Model, (place, hold): Hold) -> u64 {
        let seen =
            if place == self.present { model.seen_of_blocks() } else { &self.others[model.depth().number()][place] };
        let [prospect] = model.prospects(Slower::NOT, &FINE, [(hold, seen)]);
        prospect.costs
    }

    /// Goes on computing what the cheapest waits that meet the goal are expected to cost with the model's limit of the idle
    /// states. Returns it when it is known. Only hold-offs are compared that leave room for the known lateness of blocks
    /// with the limit.
    pub(super) fn expect(&self, model: &Model, expecting: &mut Expecting) -> Option<Expected> {
        let present = (self.present, model.hold);
        if expecting.began.is_some_and(|(before, _)| before != present) {
            *expecting = Expecting::NONE;
        }
        let (_, lengths) = *expecting.began.get_or_insert_with(|| (present, self.others_to_expect(model)));
        let others = &self.others[model.depth().number()];
        let holds: [_; WITH_PRESENT] = core::array::from_fn(|place| match others.get(place) {
            Some(seen) => lengths[place].map(|length| (length, seen)),
            None => Some((model.hold, model.seen_of_blocks())),
        });
        let prospects = expecting.so_far.go_on(model, &holds)?;
        let compared = prospects.into_iter().zip(holds).filter_map(|(prospect, hold)| hold.map(|_| prospect));
        let present = prospects[HOLDS];
        let best = compared.min_by_key(|prospect| prospect.costs).unwrap_or(present);
        Some(Expected { present, best })
    }

    /// The lengths of the hold-offs other than the present one that are compared with a limit: each length once.
    fn others_to_expect(&self, model: &Model) -> [Option<u64>; HOLDS] {
        if !self.can_change {
            return [None; HOLDS];
        }
        let lengths = self.lengths(model, true);
        let is_other = |place: usize| place != self.present && !lengths[..place].contains(&lengths[place]);
        core::array::from_fn(|place| is_other(place).then_some(lengths[place]))
    }

    /// Changes to the records of another hold-off, which is at `place`.
    pub(super) fn take(&mut self, place: usize, model: &mut Model) {
        for (others, seen) in self.others.iter_mut().zip(model.seen_with_each_limit(BLOCK)) {
            others[self.present] = *seen;
            *seen = others[place];
        }
        self.present = place;
    }
}

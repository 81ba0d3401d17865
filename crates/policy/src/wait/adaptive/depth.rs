//! How deep the core may idle: a limit of the exit latency of its idle states, or none.
//!
//! What waits lead to is learned apart for each limit ([`prices`](super::prices), [`plan`](super::plan)).

use core::ops::Range;

use units::Nanos;

/// Number of limits that are compared, besides none: the shallowest states, because only tight goals need a limit.
pub(super) const LIMITS: usize = 3;
/// Number of limits including none.
pub(super) const DEPTHS: usize = LIMITS + 1;
/// An idle state, as Linux describes it (Documentation/admin-guide/pm/cpuidle.rst).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleState {
    /// The exit latency: at most this long after the wake-up, the core executes again.
    pub exit: Nanos,
    /// The target residency: in a shorter idle period, a shallower state is better.
    pub residency: Nanos,
}

/// How deep the core may idle: a limit, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Depth {
    /// 0 without a limit, else the number of the deepest allowed state among those that are limits, from 1 on.
    number: usize,
    /// Timed waits of these [classes](super::prices::class), made without a limit, end in this limit's deepest state.
    classes: (usize, usize),
    /// The exit latency of the deepest state with each number, in nanoseconds. 0 if there is no such limit.
    exits: [u64; DEPTHS],
}

impl Depth {
    /// No limit, of a core whose idle states are not known.
    pub(super) const NONE: Self = Self { number: 0, classes: (0, 0), exits: [0; DEPTHS] };

    /// Makes the limit with this `number`. `exits` are the exit latencies in nanoseconds of the deepest state with each
    /// number, 0 if there is no such limit. For timed waits without a limit of the `classes`, the deepest state that is
    /// allowed is chosen.
    pub(super) const fn new(number: usize, classes: (usize, usize), exits: [u64; DEPTHS]) -> Self {
        Self { number, classes, exits }
    }

    /// The number of the limit, 0 if there is none.
    pub(super) const fn number(self) -> usize {
        self.number
    }

    /// The number of the limit among all limits. `None` if there is no limit.
    pub(super) const fn limit(self) -> Option<usize> {
        self.number.checked_sub(1)
    }

    /// For timed waits of these [classes](super::prices::class), the deepest allowed state is chosen.
    pub(super) const fn classes(self) -> Range<usize> {
        self.classes.0..self.classes.1
    }

    /// The shallower limits, by their number among all limits, and by how many nanoseconds they end earlier.
    pub(super) fn shallower(self) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        let exits = self.exits;
        let end = self.limit().unwrap_or(LIMITS);
        let own = exits[self.number];
        let limits = (0..end).filter(move |limit| exits[limit + 1] > 0);
        limits.map(move |limit| (limit, own - exits[limit + 1]))
    }

    /// The deeper limits, by their [number](Self::number), and by how many nanoseconds they end later.
    pub(super) fn deeper(self) -> impl Iterator<Item = (usize, u64)> {
        let exits = self.exits;
        let own = exits[self.number];
        let limits = (self.number + 1..DEPTHS).filter(move |number| self.number > 0 && exits[*number] > 0);
        limits.chain((self.number > 0).then_some(0)).map(move |number| (number, exits[number] - own))
    }

    /// Whether the deepest allowed state is shallower than the other one's.
    pub(super) fn is_shallower(self, other: Self) -> bool {
        self.number > 0 && (other.number == 0 || self.number < other.number)
    }

    /// No limit, on the same core.
    pub(super) const fn without(self) -> Self {
        Self { number: 0, classes: (0, 0), ..self }
    }

    /// The exit latency of the deepest allowed state, in nanoseconds.
    pub(super) const fn exit(self) -> u64 {
        self.exits[self.number]
    }

    /// The longest exit latency of the allowed states, in nanoseconds: [`u64::MAX`] without a limit.
    pub(super) const fn longest(self) -> u64 {
        if self.number == 0 { u64::MAX } else { self.exit() }
    }
}

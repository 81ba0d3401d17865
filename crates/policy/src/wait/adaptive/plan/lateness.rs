//! How late waits end, by kind and class of length. A length that was not tried takes from its nearest neighbour.

use units::Nanos;

use super::super::depth::{Depth, LIMITS};
use super::super::prices::{CLASSES, Kind, class};
use super::super::tail::{Atoms, PARTS, Tail};

/// Minimum number of samples from which the lateness of a class of waits is used.
pub(super) const ENOUGH: u32 = 8;
/// The parts of a class's distribution of lateness are recomputed after this many samples.
const RENEW: u32 = 16;

/// How late waits of one kind and class end.
#[derive(Clone, Debug)]
pub(super) struct Lateness {
    tail: Tail,
    atoms: Atoms,
    since: u32,
}

impl Lateness {
    pub(super) const NONE: Self = Self { tail: Tail::new(), atoms: Atoms::NONE, since: 0 };

    /// Adds a sample. Returns true if it was a stall of the machine; stalls are not learned.
    #[inline]
    pub(super) fn add(&mut self, late: Nanos, stalls_ppm: u32, memory: u32) -> bool {
        if self.tail.add(late, stalls_ppm, memory) {
            return true;
        }
        self.added(1);
        false
    }

    /// Adds a sample twice, with the same result as two calls of [`Self::add`].
    pub(super) fn add_twice(&mut self, late: Nanos, stalls_ppm: u32, memory: u32) {
        // Otherwise, the first of the two may be the one after which the parts are recomputed.
        let later = self.since.is_multiple_of(2) && self.tail.samples() >= RENEW;
        if later && self.tail.add_twice(late, memory) {
            self.added(2);
        } else {
            self.add(late, stalls_ppm, memory);
            self.add(late, stalls_ppm, memory);
        }
    }

    #[inline]
    fn added(&mut self, samples: u32) {
        self.since += samples;
        if self.since >= RENEW || self.tail.samples() <= RENEW {
            self.since = 0;
            self.atoms = self.tail.atoms();
        }
    }

    /// Rescales all samples as if everything had taken longer by the factor `slower`, in 256ths.
    pub(super) fn scale(&mut self, slower: u64) {
        self.tail.scale(slower);
        self.atoms = self.tail.atoms();
    }

    pub(super) fn samples(&self) -> u32 {
        self.tail.samples()
    }

    pub(super) fn atoms(&self) -> &Atoms {
        &self.atoms
    }
}

/// The class with at least `enough` samples that is nearest to the class `at`. Longer classes are preferred, because a
/// longer wait is at least as late.
pub(super) fn nearest(classes: &[Lateness; CLASSES], at: usize, enough: u32) -> Option<usize> {
    let tried = |index: &usize| classes[*index].samples() >= enough;
    (at..CLASSES).find(tried).or_else(|| (0..at).rev().find(tried))
}

/// How late waits of both kinds end, by class of length.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    kinds: [[Lateness; CLASSES]; 2],
    /// The same with each limit of the idle states. The length is not told apart, because it does not decide the state.
    limited: [[Lateness; LIMITS]; 2],
    /// The limit with which lateness is learned and expected.
    pub(super) depth: Depth,
}

impl Waits {
    pub(super) const fn new() -> Self {
        Self {
            kinds: [const { [Lateness::NONE; CLASSES] }; 2],
            limited: [const { [Lateness::NONE; LIMITS] }; 2],
            depth: Depth::NONE,
        }
    }

    /// Sets the lateness of waits of a kind to a measured distribution. `length` is the length of the waits in
    /// nanoseconds; `None` means all lengths.
    pub(super) fn know(&mut self, kind: Kind, length: Option<u64>, tail: &Tail) {
        let classes = length.map_or(0..CLASSES, |length| class(length)..class(length) + 1);
        for lateness in &mut self.kinds[kind as usize][classes] {
            *lateness = Lateness { tail: tail.clone(), atoms: tail.atoms(), since: 0 };
        }
    }

    /// Learns how late a wait of this kind and length ended. Returns true if it was a stall of the machine; stalls are
    /// not learned.
    #[inline]
    pub(super) fn add(&mut self, kind: Kind, length: u64, late: Nanos, stalls_ppm: u32, memory: u32) -> bool {
        let lateness = match self.depth.limit() {
            Some(limit) => &mut self.limited[kind as usize][limit],
            None => &mut self.kinds[kind as usize][class(length)],
        };
        lateness.add(late, stalls_ppm, memory)
    }

    /// Rescales what was learned of a kind by the factor `slower`, in 256ths.
    pub(super) fn scale(&mut self, kind: Kind, slower: u64) {
        let limited = &mut self.limited[kind as usize];
        self.kinds[kind as usize].iter_mut().chain(limited).for_each(|lateness| lateness.scale(slower));
    }

    /// The lateness of waits of this kind without a limit of the idle states, by class of length.
    pub(super) fn classes(&self, kind: Kind) -> &[Lateness; CLASSES] {
        &self.kinds[kind as usize]
    }

    /// The lateness of waits of this kind with a limit of the idle states.
    pub(super) fn with_limit(&self, kind: Kind, limit: usize) -> &Lateness {
        &self.limited[kind as usize][limit]
    }

    /// Number of samples of a kind.
    pub(super) fn samples(&self, kind: Kind) -> u32 {
        self.classes(kind).iter().chain(&self.limited[kind as usize]).map(Lateness::samples).sum()
    }

    /// Whether a class of any of these kinds has enough samples to be used.
    pub(super) fn knows(&self, kinds: &[Kind]) -> bool {
        let knows = |lateness: &Lateness| lateness.samples() >= ENOUGH;
        kinds.iter().any(|kind| match self.depth.limit() {
            Some(limit) => knows(&self.limited[*kind as usize][limit]),
            None => self.classes(*kind).iter().any(knows),
        })
    }

    /// How late waits of this kind end with a limit of the idle states. Until some were tried, they are as late as those
    /// of the other kind; then as timed waits without a limit for which the deepest allowed state is chosen; and then as
    /// waits with the next shallower or else the next deeper limit, plus or minus the difference of the exit latencies.
    fn limited(&self, kind: Kind, limit: usize) -> Atoms {
        let own = |kind: Kind| Some(&self.limited[kind as usize][limit]).filter(|own| own.samples() >= ENOUGH);
        if let Some(own) = own(kind).or_else(|| own(kind.other())) {
            return own.atoms;
        }
        let classes = &self.classes(Kind::Timer)[self.depth.classes()];
        let without = classes.iter().rfind(|class| class.samples() >= ENOUGH).map(|class| class.atoms);
        let neighbour = |kind: Kind| self.by_shallower(kind).or_else(|| self.by_deeper(kind));
        without.or_else(|| neighbour(kind)).or_else(|| neighbour(kind.other())).unwrap_or(Atoms::NONE)
    }

    /// How late waits of this kind end, by the shallowest of the deeper limits with which some were tried.
    fn by_deeper(&self, kind: Kind) -> Option<Atoms> {
        let known = |(number, later): (usize, u64)| {
            let lateness = &self.limited[kind as usize][number.checked_sub(1)?];
            (lateness.samples() >= ENOUGH).then(|| lateness.atoms.earlier(later))
        };
        self.depth.deeper().find_map(known)
    }

    /// How late waits of this kind end, by the deepest of the shallower limits with which some were tried.
    fn by_shallower(&self, kind: Kind) -> Option<Atoms> {
        let known = |(limit, later): (usize, u64)| {
            let lateness = &self.limited[kind as usize][limit];
            (lateness.samples() >= ENOUGH).then(|| lateness.atoms.later(later))
        };
        self.depth.shallower().rev().find_map(known)
    }

    /// How late waits of this kind and length end, taken from the [nearest] class of lengths that was tried. If no
    /// class of this kind was tried, the other kind is used.
    ///
    /// A timed wait of a length that was hardly tried is assumed to be late by at most its own length or, if that is
    /// more, by as much as a shorter wait was. The reason: the time until the timer expires determines the idle state,
    /// and in the tables of server CPUs, an idle state's target residency exceeds its exit latency (Linux,
    /// drivers/idle/intel_idle.c: `target_residency` and `exit_latency`). This is not true of Bay Trail, and need not
    /// be true in a virtual machine. One or two trials then correct the assumption.
    pub(super) fn of(&self, kind: Kind, length: u64) -> Atoms {
        if let Some(limit) = self.depth.limit() {
            return self.limited(kind, limit);
        }
        if self.depth != Depth::NONE
            && !self.knows(&[Kind::Timer, Kind::Device])
            && let Some(atoms) = self.by_shallower(kind).or_else(|| self.by_shallower(kind.other()))
        {
            return atoms;
        }
        let at = class(length);
        let of = |kind: Kind, enough: u32| {
            let classes = self.classes(kind);
            nearest(classes, at, enough).map(|index| (index, &classes[index].atoms))
        };
        let own = of(kind, ENOUGH).or_else(|| of(kind, 1));
        let other = || of(kind.other(), ENOUGH).or_else(|| of(kind.other(), 1));
        let (from, atoms) = own.or_else(other).unwrap_or((at, &self.classes(kind)[at].atoms));
        if kind == Kind::Device || (own.is_some() && from <= at) {
            return *atoms;
        }
        let shorter = (0..=at).rev().find(|index| self.classes(kind)[*index].samples() > 0);
        let shorter = shorter.map_or([0; PARTS], |index| self.classes(kind)[index].atoms.at);
        atoms.at_most(core::array::from_fn(|part| shorter[part].max(length)))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const US: u64 = 1_000;

    proptest::proptest! {
        /// The shortcut for two equal samples learns what two samples teach: with stalls, and when counts are halved.
        #[test]
        fn a_sample_twice_is_two_samples(
            samples in proptest::collection::vec((0u64..2_000_000, 0u8..3), 1..400),
            memory in 20u32..60,
            ppm in 0u32..50_000,
        ) {
            let (mut once, mut twice) = (Lateness::NONE, Lateness::NONE);
            for (nanos, kind) in samples {
                // Mostly short, so that the long ones are stalls.
                let sample = Nanos::from_nanos(if nanos % 8 == 0 { nanos } else { nanos % 20_000 });
                if kind == 0 {
                    once.add(sample, ppm, memory);
                    twice.add(sample, ppm, memory);
                } else {
                    once.add(sample, ppm, memory);
                    once.add(sample, ppm, memory);
                    twice.add_twice(sample, ppm, memory);
                }
                proptest::prop_assert_eq!(std::format!("{once:?}"), std::format!("{twice:?}"));
            }
        }
    }

    /// Without timestamps, waits for the device show no lateness.
    #[test]
    fn waits_for_the_device_are_as_late_as_timers_with_the_same_limit() {
        let mut waits = Waits::new();
        waits.depth = Depth::new(2, (1, 3), [133_000, 2_000, 10_000, 0]);
        (0..ENOUGH).for_each(|_| assert!(!waits.add(Kind::Timer, 40 * US, Nanos::from_micros(14), 0, 1024)));
        let late = |waits: &Waits| waits.of(Kind::Device, 100 * US).at[0] / US;
        assert!((13..16).contains(&late(&waits)), "{}", late(&waits));
        // With another limit, the difference of the exit latencies is added or subtracted.
        waits.depth = Depth::new(1, (0, 1), [133_000, 2_000, 10_000, 0]);
        assert!((5..8).contains(&late(&waits)), "{}", late(&waits));
    }

    /// A single timer of 200 us was 8 us late, and many of 40 us were 15 to 30 us late.
    #[test]
    fn one_wait_of_the_other_kind_says_less_than_many() {
        let mut waits = Waits::new();
        assert!(!waits.add(Kind::Timer, 200 * US, Nanos::from_micros(8), 0, 1024));
        for _ in 0..ENOUGH {
            for late in [15, 30] {
                assert!(!waits.add(Kind::Timer, 40 * US, Nanos::from_micros(late), 0, 1024));
            }
        }
        assert_eq!(waits.of(Kind::Device, 100 * US).at[PARTS - 1] / US / 10, 3);
    }

    #[test]
    fn a_length_that_was_not_tried_is_as_late_as_the_next_longer_one() {
        let mut waits = Waits::new();
        assert_eq!(waits.of(Kind::Device, 40 * US).at, [0; PARTS], "nothing is known");
        let add = |waits: &mut Waits, kind, length: u64, late: u64| {
            (0..ENOUGH).for_each(|_| assert!(!waits.add(kind, length * US, Nanos::from_micros(late), 0, 1024)));
        };
        let late = |waits: &Waits, kind, length: u64| waits.of(kind, length * US).at[PARTS - 1] / US;
        add(&mut waits, Kind::Device, 100, 50);
        assert_eq!([20, 100, 2_000].map(|length| late(&waits, Kind::Device, length) / 10), [5; 3]);
        // Timed waits are as late as blocks, but by no more than they are long.
        assert_eq!(late(&waits, Kind::Timer, 20), 20);
        assert_eq!(late(&waits, Kind::Timer, 200) / 10, 5);
        add(&mut waits, Kind::Device, 500, 90);
        assert_eq!([20, 100, 200].map(|length| late(&waits, Kind::Device, length) / 10), [5, 5, 9]);
    }
}

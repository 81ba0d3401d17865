//! What was seen of waits at the frequency in force: prices, lateness, work, and how far the model was wrong.

use units::Nanos;

use super::plan::{SLOTS, UNTIL};
use super::prices::{CLASSES, Kind, Prices, SAME, class};
use super::tail::{Atoms, PARTS, Tail};

/// Samples from which on a class's lateness is believed.
pub(super) const ENOUGH: u32 = 8;
/// Samples of a class after which its parts are worked out anew.
const RENEW: u32 = 16;
/// Late packets are counted in millionths.
pub(super) const ONE: u64 = 1_000_000;
/// What was seen at another frequency makes the model as wrong as so many late packets did.
const CERTAIN: u64 = 8 * ONE;
/// What was seen of a candidate is halved after so many times as many packets as the goal allows one late among.
const MEMORY: u64 = 4;
/// So many packets after waits for a forecast outweigh the model: it takes the forecast for right, which it need not be.
const FORECASTS: u64 = 16;

/// How much longer things take at another frequency than at the one in force, in 256ths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slower {
    /// Work on packets.
    pub work: u64,
    /// The way back from a timed wait.
    pub timer: u64,
    /// The way back from a wait that the device ends.
    pub device: u64,
}

impl Slower {
    /// The frequency in force.
    pub const NOT: Self = Self { work: SAME, timer: SAME, device: SAME };
}

/// What was seen of waits at one frequency. A frequency policy keeps it while another is in force.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub(super) prices: Prices,
    lateness: [[Lateness; CLASSES]; 2],
    /// How long packets took, from arrival to departure, that a wait for the device was for, by its length.
    after: [Lateness; CLASSES],
    /// The class of the last such wait.
    blocked: usize,
    seen: [Seen; SLOTS],
    /// What a packet takes once it is picked up: with its poll, nearly always; and by itself, on average.
    pub(super) service: u64,
    pub(super) work: u64,
}

/// What was seen of a candidate: packets, late ones, and how many of them the model had expected. These in millionths.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    packets: u64,
    late: u64,
    expected: u64,
}

/// How late waits of a kind and class end.
#[derive(Clone, Debug)]
struct Lateness {
    tail: Tail,
    atoms: Atoms,
    since: u32,
}

impl Evidence {
    pub(super) const fn new() -> Self {
        const LATENESS: Lateness = Lateness { tail: Tail::new(), atoms: Atoms { at: [0; PARTS], mean: 0 }, since: 0 };
        Self {
            prices: Prices::new(),
            lateness: [const { [LATENESS; CLASSES] }; 2],
            after: [LATENESS; CLASSES],
            blocked: 0,
            seen: [Seen { packets: 0, late: 0, expected: 0 }; SLOTS],
            service: 0,
            work: 0,
        }
    }

    /// Starts a kind and class from what was measured.
    pub(super) fn know(&mut self, kind: Kind, length: Option<u64>, tail: &Tail) {
        let classes = length.map_or(0..CLASSES, |length| class(length)..class(length) + 1);
        for lateness in &mut self.lateness[kind as usize][classes] {
            *lateness = Lateness { tail: tail.clone(), atoms: tail.atoms(), since: 0 };
        }
    }

    /// A wait of this kind and length ended so late; says whether that was a stall, which is not learned.
    pub(super) fn ended(&mut self, kind: Kind, length: u64, late: Nanos, stalls_ppm: u32, samples: u32) -> bool {
        if kind == Kind::Device {
            self.blocked = class(length);
        }
        self.lateness[kind as usize][class(length)].add(late, stalls_ppm, samples)
    }

    /// After a wait for the device a packet took so long.
    pub(super) fn departed(&mut self, took: Nanos, samples: u32) {
        self.after[self.blocked].add(took, 0, samples);
    }

    /// Of the packets after a wait so many were late, where the model expected this share. `allowed`: the goal allows one
    /// late packet among so many.
    #[inline]
    pub(super) fn saw(&mut self, slot: usize, packets: u64, late: u64, expected: u64, allowed: u64) {
        let seen = &mut self.seen[slot];
        seen.packets += packets;
        seen.late += late * ONE;
        seen.expected += packets * expected;
        if seen.packets > MEMORY * allowed {
            seen.halve();
        }
    }

    /// What was seen of a candidate counts for half as much from now on.
    pub(super) fn doubt(&mut self, slot: usize) {
        self.seen[slot].halve();
    }

    /// Everything takes so much longer from now on. What was seen of the candidates was of another core.
    pub(super) fn change(&mut self, slower: Slower) {
        for class in 0..CLASSES {
            self.after[class].scale(self.slower_after(class, slower));
        }
        for (kind, slower) in [(Kind::Timer, slower.timer), (Kind::Device, slower.device)] {
            self.lateness[kind as usize].iter_mut().for_each(|lateness| lateness.scale(slower));
            self.prices.scale(kind, slower);
        }
        self.service = self.service * slower.work / SAME;
        self.work = self.work * slower.work / SAME;
        for seen in &mut self.seen {
            // How wrong the model was stays so, but is not as certain.
            let expected = seen.expected.min(CERTAIN);
            let late =
                u128::from(seen.late.min(seen.expected)) * u128::from(expected) / u128::from(seen.expected.max(1));
            *seen = Seen { packets: 0, late: late as u64, expected };
        }
    }

    /// How late waits of this kind and length end: of the nearest class that was tried, longer ones first, since
    /// a longer wait ends no earlier; then of the other kind.
    pub(super) fn lateness(&self, kind: Kind, length: u64) -> &Atoms {
        let at = class(length);
        let of = |kind: Kind, enough: u32| {
            let classes = &self.lateness[kind as usize];
            let tried = |index: &usize| classes[*index].tail.samples() >= enough;
            let nearest = (at..CLASSES).find(tried).or_else(|| (0..at).rev().find(tried));
            nearest.map(|index| &classes[index].atoms)
        };
        let own = of(kind, ENOUGH).or_else(|| of(kind, 1));
        own.or_else(|| of(kind.other(), 1)).unwrap_or(&self.lateness[kind as usize][at].atoms)
    }

    /// From arrival to departure after waits for the device of this length, where enough of them were seen.
    pub(super) fn after(&self, length: u64, slower: Slower) -> Option<Atoms> {
        let at = class(length);
        let after = &self.after[at];
        (after.tail.samples() >= ENOUGH).then(|| after.atoms.scaled(self.slower_after(at, slower)))
    }

    /// How much longer packets take after waits for the device: the way back and the work.
    fn slower_after(&self, class: usize, slower: Slower) -> u64 {
        let (back, all) = (self.lateness[Kind::Device as usize][class].atoms.mean, self.after[class].atoms.mean);
        let back = back.min(all);
        (back * slower.device + (all - back) * slower.work) / all.max(1)
    }

    /// What the model expects, set right by what was seen: as many times less as were late less than it had expected (and
    /// one late packet is taken for granted); and more by those that it had not expected, where so many packets stand for it as
    /// the goal allows one late among.
    pub(super) fn corrected(&self, slot: usize, packets: u64, late: u64, slower: Slower, allowed: u64) -> u64 {
        let seen = &self.seen[slot];
        let both = seen.late.min(seen.expected);
        let known = u128::from(late) * u128::from(ONE + both) / u128::from(ONE + seen.expected);
        // At a higher frequency they need not be late.
        let over = if slower.work < SAME { 0 } else { seen.late - both };
        let model = allowed.min(if slot >= UNTIL { FORECASTS } else { u64::MAX });
        let more = u128::from(packets) * u128::from(over) / u128::from(ONE) / u128::from(model + seen.packets);
        (known + more) as u64
    }
}

impl Seen {
    fn halve(&mut self) {
        *self = Self { packets: self.packets / 2, late: self.late / 2, expected: self.expected / 2 };
    }
}

impl Lateness {
    /// Says whether that was a stall, which is not learned.
    fn add(&mut self, late: Nanos, stalls_ppm: u32, memory: u32) -> bool {
        if self.tail.add(late, stalls_ppm, memory) {
            return true;
        }
        self.since += 1;
        if self.since >= RENEW || self.tail.samples() <= RENEW {
            self.since = 0;
            self.atoms = self.tail.atoms();
        }
        false
    }

    /// As if everything had taken longer by so much, in 256ths.
    fn scale(&mut self, slower: u64) {
        self.tail.scale(slower);
        self.atoms = self.tail.atoms();
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::BLOCK;
    use super::*;

    #[test]
    fn a_model_that_was_wrong_stays_so_at_another_frequency_for_less_sure() {
        let mut evidence = Evidence::new();
        let late = |evidence: &Evidence| evidence.corrected(BLOCK, ONE, ONE, Slower::NOT, 133);
        assert_eq!(late(&evidence), ONE);
        evidence.saw(BLOCK, 400, 0, ONE, 133);
        let here = late(&evidence);
        assert!(here < ONE / 300, "{here}");
        evidence.change(Slower { work: 300, timer: 300, device: 300 });
        assert!(late(&evidence) > here && late(&evidence) < ONE / 5, "{}", late(&evidence));
    }
}

//! What the policy knows of waits, work and traffic. What a wait leads to follows from it: [`expect`](super::expect).

use units::Nanos;

use super::super::choice::{BLOCK, SLOTS, UNTIL};
use super::super::depth::{DEPTHS, Depth, LIMITS};
use super::super::gaps::Gaps;
use super::super::math::product_over;
use super::super::prices::{CLASSES, Kind, Prices, class};
use super::super::slower::{SAME, Slower};
use super::super::tail::{Atoms, MEMORY as SAMPLES, MOST_MEMORY, Tail};
use super::lateness::{ENOUGH, Lateness, Waits, nearest};
use super::record::{ONE, Record};

/// Upper limit for the price of a candidate's late packets, in nanoseconds.
const MOST_WEIGHT: u64 = 1 << 33;
/// After this many packets that followed waits for a forecast burst, observation outweighs the model. The model assumes
/// that the forecast is right, but it may be wrong.
const FORECASTS: u64 = 16;
/// A candidate's record is halved after this many times as many packets as the [model](Model::trust) weighs.
const MEMORY: u64 = 4;

/// Everything learned, and the limits of the waits.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) gaps: Gaps,
    pub(super) prices: Prices,
    pub(super) lateness: Waits,
    /// Time from arrival to departure of the packets that ended waits for the device, by class of the wait's length.
    pub(super) after: [Lateness; CLASSES],
    /// The same with each limit of the idle states, for all lengths together.
    after_limited: [Lateness; LIMITS],
    /// The class of the last wait that the device ended.
    blocked: usize,
    /// The hold-off: how long the device delays the interrupt after the first waiting frame, in nanoseconds.
    pub(super) hold: u64,
    /// Whether a hold-off delays the frames themselves, so that no poll finds them earlier.
    pub(super) holds_frames: bool,
    /// What was observed of each candidate, with each limit of the idle states.
    seen: [[Record; SLOTS]; DEPTHS],
    /// The limit of the idle states: all that is learned and expected is with it.
    depth: Depth,
    /// The weight of the model's expectation, in sixteenths of N packets, where the policy aims at one late packet in
    /// N.
    pub(super) trust: u64,
    /// Number of waits learned.
    pub(super) learned: u32,
    /// The goal's latency minus the reserve, from arrival to departure as the worker sees it, in nanoseconds.
    pub(super) target: u64,
    /// The minimum time between the departures of two packets of a burst, in nanoseconds.
    pub(super) spacing: u64,
    /// The longest timed sleep, in nanoseconds.
    pub(super) longest: u64,
    /// The time until the ring overflows, in nanoseconds.
    pub(super) ring: u64,
    /// The share of late packets that the policy aims at, in millionths.
    pub(super) share: u64,
    /// At least half of this many recent samples of lateness are remembered. That is enough to include a few of the
    /// samples that the goal allows to be late.
    samples: u32,
    /// Time from the start of the core's work to the departure of a packet, in nanoseconds. At most one
    /// packet in ten takes longer.
    pub(super) service: u64,
    /// The mean work on one packet alone, in nanoseconds.
    pub(super) work: u64,
    /// Whether an arriving frame can end a block.
    pub(super) interrupts: bool,
    /// Whether packets come without arrival timestamps, so that waits for the device show no lateness.
    pub(super) blind: bool,
}

impl Model {
    pub(super) fn new(target: u64, longest: u64, ring: u64, share: u64, interrupts: bool) -> Self {
        Self {
            gaps: Gaps::new(),
            prices: Prices::new(),
            lateness: Waits::new(),
            after: [Lateness::NONE; CLASSES],
            after_limited: [Lateness::NONE; LIMITS],
            blocked: 0,
            hold: 0,
            holds_frames: false,
            seen: [[Record::NONE; SLOTS]; DEPTHS],
            depth: Depth::NONE,
            trust: 16,
            learned: 0,
            target,
            spacing: 0,
            longest,
            ring,
            share: share.max(1),
            samples: (4_000_000 / share.max(1)).clamp(u64::from(SAMPLES), u64::from(MOST_MEMORY)) as u32,
            service: 0,
            work: 0,
            interrupts,
            blind: false,
        }
    }

    /// Sets the lateness of waits of a kind to a measured distribution, see [`Waits::know`].
    pub(super) fn know(&mut self, kind: Kind, length: Option<u64>, tail: &Tail) {
        self.lateness.know(kind, length, tail);
    }

    /// Learns how late a wait of this kind and length ended, without the hold-off. Returns true if it was a stall of
    /// the machine; stalls are not learned.
    #[inline]
    pub(super) fn ended(&mut self, kind: Kind, length: u64, late: Nanos, stalls_ppm: u32) -> bool {
        if kind == Kind::Device {
            self.blocked = class(length);
        }
        if self.lateness.add(kind, length, late, stalls_ppm, self.samples) {
            return true;
        }
        self.learned = self.learned.wrapping_add(1);
        false
    }

    /// Learns the times from arrival to departure of the first and the last packet after a wait that the device ended.
    /// A hold-off delays the first packet by `hold`, and the others by less, so only the first one is learned.
    #[inline]
    pub(super) fn departed(&mut self, first: Nanos, last: Nanos, hold: Nanos) {
        let first = first.saturating_sub(hold);
        let last = if hold > Nanos::ZERO { first } else { last };
        let after = match self.depth.limit() {
            Some(limit) => &mut self.after_limited[limit],
            None => &mut self.after[self.blocked],
        };
        if first == last {
            after.add_twice(first, 0, self.samples);
        } else {
            after.add(first, 0, self.samples);
            after.add(last, 0, self.samples);
        }
    }

    /// Learns what a wait of this kind cost. All times are in nanoseconds.
    #[inline]
    pub(super) fn spent(&mut self, kind: Kind, lasted: u64, spent: u64, idle: u64) {
        self.prices.add(kind, lasted, spent, idle);
    }

    /// Rescales everything that was learned by `slower`. Observations of the candidates lose weight, because they were
    /// made at another frequency.
    pub(super) fn change(&mut self, slower: Slower) {
        for class in 0..CLASSES {
            let back = &self.lateness.classes(Kind::Device)[class];
            let slower = slower_after(back, &self.after[class], slower);
            self.after[class].scale(slower);
        }
        for (limit, after) in self.after_limited.iter_mut().enumerate() {
            after.scale(slower_after(self.lateness.with_limit(Kind::Device, limit), after, slower));
        }
        for (kind, slower) in [(Kind::Timer, slower.timer), (Kind::Device, slower.device)] {
            self.lateness.scale(kind, slower);
            self.prices.scale(kind, slower);
        }
        self.service = self.service * slower.work / SAME;
        self.work = self.work * slower.work / SAME;
        // How wrong forecasts are does not depend on the frequency.
        self.seen.iter_mut().flat_map(|seen| &mut seen[..UNTIL]).for_each(Record::change_frequency);
    }

    /// Learns that `late` of the `packets` after a wait were late. The model had expected `expected` late ones, in
    /// millionths of a packet.
    #[inline]
    pub(super) fn saw(&mut self, slot: usize, packets: u64, late: u64, expected: u64) {
        let memory = MEMORY * self.weighs();
        self.seen[self.depth.number()][slot].add(packets, late, expected, memory);
    }

    /// The weight of the model's expectation, in packets.
    fn weighs(&self) -> u64 {
        ONE / self.share * self.trust / 16
    }

    /// Corrects the number of late packets that the model expects of a candidate by what was `seen` of it.
    pub(super) fn corrected(&self, (slot, seen): (usize, &Record), packets: u64, late: u64, slower: Slower) -> u64 {
        let weighs = if slot >= UNTIL { FORECASTS.min(ONE / self.share) } else { self.weighs() };
        seen.correct(weighs, packets, late, slower.work < SAME)
    }

    /// Cost in nanoseconds of `late` packets (in millionths) at a multiplier of one: the time in which the policy aims
    /// at that many late packets.
    pub(super) fn weight(&self, late: u64) -> u64 {
        let weight = product_over(late, self.gaps.mean(), self.share);
        u64::try_from(weight).unwrap_or(MOST_WEIGHT).min(MOST_WEIGHT)
    }

    /// The times from arrival to departure after waits of this length that the device ended, and how much longer they
    /// are if work and wake-ups take longer by `slower`. `None` if too few are known.
    pub(super) fn after(&self, wait: u64, slower: Slower) -> Option<Atoms> {
        let (back, after) = match self.depth.limit() {
            Some(limit) => (self.lateness.with_limit(Kind::Device, limit), &self.after_limited[limit]),
            None => {
                let nearest = nearest(&self.after, class(wait), ENOUGH)?;
                (&self.lateness.classes(Kind::Device)[nearest], &self.after[nearest])
            }
        };
        (after.samples() >= ENOUGH).then(|| after.atoms().scaled(slower_after(back, after, slower)))
    }

    /// What was observed of a candidate.
    pub(super) fn seen(&self, slot: usize) -> &Record {
        &self.seen[self.depth.number()][slot]
    }

    /// The same, to change it.
    pub(super) fn seen_mut(&mut self, slot: usize) -> &mut Record {
        &mut self.seen[self.depth.number()][slot]
    }

    /// The same with each limit of the idle states, to change them.
    pub(super) fn seen_with_each_limit(&mut self, slot: usize) -> impl Iterator<Item = &mut Record> {
        self.seen.iter_mut().map(move |seen| &mut seen[slot])
    }

    /// The limit of the idle states.
    pub(super) fn depth(&self) -> Depth {
        self.depth
    }

    /// From now on, all is learned and expected with this limit of the idle states.
    pub(super) fn set_depth(&mut self, depth: Depth) {
        (self.depth, self.lateness.depth, self.prices.depth) = (depth, depth, depth);
    }

    /// Whether a few blocks have shown how late they end.
    pub(super) fn knows_blocks(&self) -> bool {
        self.lateness.knows(&[Kind::Device])
    }

    /// Whether nobody would see that a block is late: without timestamps, until some timed waits have ended.
    pub(super) fn cannot_judge_blocks(&self) -> bool {
        self.blind && self.lateness.samples(Kind::Device) == 0 && self.lateness.samples(Kind::Timer) < ENOUGH
    }

    /// What was observed of blocks with the present hold-off.
    pub(super) fn seen_of_blocks(&self) -> &Record {
        self.seen(BLOCK)
    }
}

/// How much longer packets take after a wait for the device, in 256ths: the factors of the wake-up and of the work,
/// weighted by the times that these take. `back` is the lateness of the wait, and `after` the time of the packets.
fn slower_after(back: &Lateness, after: &Lateness, slower: Slower) -> u64 {
    let (back, all) = (back.atoms().mean, after.atoms().mean);
    let back = back.min(all);
    (back * slower.device + (all - back) * slower.work) / all.max(1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const US: u64 = 1_000;

    /// 20 us, p99; a packet each 100 us, that takes 2 us.
    pub fn model() -> Model {
        let mut model = Model::new(20 * US, 20 * US, u64::MAX, 7_500, true);
        (0..1_000).for_each(|_| model.gaps.add(100 * US, 1));
        (model.service, model.work) = (2 * US, 2 * US);
        model
    }

    /// A block of 100 us that ended so late, and the time from arrival to departure.
    pub fn blocked(model: &mut Model, late: u64, took: u64) {
        model.ended(Kind::Device, 100 * US, Nanos::from_nanos(late), 0);
        model.departed(Nanos::from_nanos(took), Nanos::from_nanos(took), Nanos::ZERO);
        model.spent(Kind::Device, 100 * US, 10 * US, 5 * US);
    }

    #[test]
    fn at_another_frequency_packets_take_longer_by_their_parts() {
        let mut model = model();
        (0..100).for_each(|_| blocked(&mut model, 10 * US, 20 * US));
        let slower = Slower { work: 2 * SAME, timer: SAME, device: SAME };
        // The wake-up, about half of the 20 us, takes as long as before.
        let back = &model.lateness.classes(Kind::Device)[class(100 * US)];
        let after = slower_after(back, &model.after[class(100 * US)], slower);
        assert!((SAME * 29 / 20..=SAME * 31 / 20).contains(&after), "{after}");
        let before = model.after[class(100 * US)].atoms().mean;
        model.change(slower);
        let mean = model.after[class(100 * US)].atoms().mean;
        assert!((before * 7 / 5..=before * 8 / 5).contains(&mean), "{before} {mean}");
        assert_eq!((model.service, model.work), (4 * US, 4 * US));
    }

    #[test]
    fn forecasts_are_as_wrong_at_any_frequency() {
        let mut model = model();
        let slot = UNTIL + 1;
        model.saw(slot, 40, 20, 0);
        model.saw(BLOCK, 40, 20, 0);
        let wrong = |model: &Model, slot: usize| model.corrected((slot, model.seen(slot)), ONE, 0, Slower::NOT);
        let before = wrong(&model, slot);
        assert!(before > ONE / 10 && wrong(&model, BLOCK) > 0);
        model.change(Slower { work: SAME * 5 / 4, timer: SAME * 5 / 4, device: SAME * 5 / 4 });
        assert_eq!((wrong(&model, slot), wrong(&model, BLOCK)), (before, 0));
    }
}

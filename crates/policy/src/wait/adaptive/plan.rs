//! Models the result of each wait: how long it lasts, what it costs, and how many packets it makes late.

use super::arrivals::{Gaps, OCTAVES, begins, product_over};
use super::hold_off::WORTHWHILE;
use super::prices::{CLASSES, Kind, Prices, SAME, class};
use super::tail::{Atoms, MEMORY as SAMPLES, PARTS, Tail};

/// Number of timed sleeps. Each of the first `PARTS` leaves room for one part of the distribution of lateness; the last
/// of them also leaves room for lateness that was not seen yet. The other two are short.
const SLEEPS: usize = PARTS + 2;
/// Number of candidates: the sleeps, the block, and two kinds of waits for a forecast burst (one with little and one
/// with much room for lateness).
pub(super) const SLOTS: usize = SLEEPS + 3;
pub(super) const BLOCK: usize = SLEEPS;
pub(super) const UNTIL: usize = SLEEPS + 1;
/// Waits for a forecast burst share one record if they leave room for this part of the lateness or a later one, because
/// the same forecast errors make all of them late.
const SAFE: usize = PARTS - 3;
/// The slot number that stands for polling without a wait.
pub(super) const POLL: usize = SLOTS;
/// Minimum number of samples from which the lateness of a class of waits is used.
const ENOUGH: u32 = 8;
/// The parts of a class's distribution of lateness are recomputed after this many samples.
const RENEW: u32 = 16;
/// In each row, one candidate is recomputed once this many further waits have been learned. See [`STALE_FOR`] for the
/// minimum time between two recomputations.
const STALE: u32 = 4;
/// Minimum time in nanoseconds between two recomputations in the same row, because each takes about a microsecond.
const STALE_FOR: u64 = 300_000;
/// [`STALE_FOR`] does not apply to this many first waits, because each of them changes much of what is known.
const YOUNG: u32 = 4_096;
/// Upper limit for the price of a candidate's late packets, in nanoseconds.
const MOST_WEIGHT: u64 = 1 << 33;
/// After this many packets that followed waits for a forecast burst, observation outweighs the model. The model assumes
/// that the forecast is right, but it may be wrong.
const FORECASTS: u64 = 16;
/// Doubt halves the expected number of late packets of a candidate at most this many times.
const DOUBTS: u8 = 12;
/// A late packet reverts this many halvings of the candidate's doubt.
const DISPROVED: u8 = 4;
/// A busy period lasts at most this many times as long as the work that started it. Without this limit, no wait of an
/// overloaded core would ever end.
const MOST_BUSY: u64 = 64;
/// One packet. Late packets are counted in millionths of a packet.
const ONE: u64 = 1_000_000;
/// After a change of frequency, the record of the model's error keeps at most this weight: that of eight expected late
/// packets.
const CERTAIN: u64 = 8 * ONE;
/// A candidate's record is halved after this many times as many packets as the [model](Plan::trust) weighs.
const MEMORY: u64 = 4;

/// Number of hold-offs that are compared.
const HOLDS: usize = PARTS + 2;
/// Hold-offs are whole multiples of this, in nanoseconds: `ethtool -C rx-usecs` takes whole microseconds.
const HOLD_STEP: u64 = 1_000;
/// A hold-off below 1 / `LEAST_HOLD` of the goal's latency is not used: it saves little, and is worth no system call.
const LEAST_HOLD: u64 = 8;

/// Number of multipliers that [`Plan::outlook`] tries.
const STEPS: usize = 17;
/// Values for each of these multipliers.
type Steps = [u64; STEPS];
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
const FINE: Steps =
    [0, 256, 362, 512, 724, 1_024, 1_448, 2_048, 2_896, 4_096, 5_793, 8_192, 11_585, 16_384, 23_170, 32_768, 46_341];

/// How much longer work and wake-ups take at another frequency than at the current one, in 256ths. 256 means equally
/// long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slower {
    /// Factor for the work on packets, in 256ths.
    pub work: u64,
    /// Factor for the return from a timed wait, in 256ths.
    pub timer: u64,
    /// Factor for the return from a wait that the device ends, in 256ths.
    pub device: u64,
}

impl Slower {
    /// No difference, as at the current frequency.
    pub const NOT: Self = Self { work: SAME, timer: SAME, device: SAME };
}

/// What the cheapest waits are expected to cost, as shares of a polling core, in 2^-16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// Cost of the cheapest waits that meet the goal, as a share of a polling core, in 2^-16.
    pub costs: u64,
    /// Cost of the cheapest waits if no packet could be late, in the same unit. It is at most `costs`.
    pub free: u64,
}

/// The expected result of one candidate wait.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cell {
    /// How long to wait, in nanoseconds. 0 if the wait is not possible.
    pub(super) wait: u64,
    /// Time from the start of the wait until its packets are served, in nanoseconds.
    pub(super) lasts: u64,
    /// Cost of the time `lasts`, in nanoseconds of a polling core.
    pub(super) costs: u64,
    /// Cost of the wait's late packets at a multiplier of one, in nanoseconds of a polling core.
    pub(super) weight: u64,
    /// The share of the wait's packets that the model expects to be late, in millionths.
    pub(super) late: u64,
    /// Number of packets that arrive until the wait is over, in millionths of a packet.
    packets: u64,
    /// Whether the ring, not the goal, limited the length of the wait.
    pub(super) cut: bool,
}

/// The candidates for waits after a silence of one octave.
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
    fn compare(&mut self, multiplier: u64) -> Choice {
        let mut best = Choice::POLL;
        for (slot, cell) in self.cells.iter().enumerate() {
            let Cell { wait, lasts, weight, late, cut, .. } = *cell;
            let costs = cell.costs + weight * multiplier / 256;
            best.or(Choice { slot, wait, costs, lasts, late, weight, cut });
        }
        self.best = Some((multiplier, best));
        best
    }
}

/// A wait, its cost, its duration, and the cost of its late packets at a multiplier of one (`weight`).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Choice {
    pub(super) slot: usize,
    pub(super) wait: u64,
    pub(super) costs: u64,
    pub(super) lasts: u64,
    pub(super) late: u64,
    pub(super) weight: u64,
    /// Whether the ring, not the goal, limited the length of the wait.
    pub(super) cut: bool,
}

impl Choice {
    /// Polling: it costs as much as it lasts.
    const POLL: Self = Self { slot: POLL, wait: 0, costs: 1, lasts: 1, late: 0, weight: 0, cut: false };

    /// Replaces `self` by `other` if `other` costs less per unit of time.
    #[inline]
    pub(super) fn or(&mut self, other: Self) {
        let dear = u128::from(other.costs) * u128::from(self.lasts) >= u128::from(self.costs) * u128::from(other.lasts);
        if other.wait > 0 && !dear {
            *self = other;
        }
    }
}

/// What was observed of a candidate: its packets, the late ones among them, and those that the model expected to be
/// late. The last two are in millionths of a packet.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    packets: u64,
    late: u64,
    expected: u64,
}

/// The slot of a wait for a forecast burst that leaves room for `part` of the lateness.
pub(super) fn until(part: usize) -> usize {
    if part < SAFE { UNTIL } else { UNTIL + 1 }
}

impl Seen {
    fn halve(&mut self) {
        *self = Self { packets: self.packets / 2, late: self.late / 2, expected: self.expected / 2 };
    }
}

/// How late waits of one kind and class end.
#[derive(Clone, Debug)]
struct Lateness {
    tail: Tail,
    atoms: Atoms,
    since: u32,
}

impl Lateness {
    /// Adds a sample. Returns true if it was a stall of the machine; stalls are not learned.
    fn add(&mut self, late: units::Nanos, stalls_ppm: u32, memory: u32) -> bool {
        if self.tail.add(late, stalls_ppm, memory) {
            return true;
        }
        self.added(1);
        false
    }

    /// Adds a sample twice, with the same result as two calls of [`Self::add`].
    fn add_twice(&mut self, late: units::Nanos, stalls_ppm: u32, memory: u32) {
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
    fn scale(&mut self, slower: u64) {
        self.tail.scale(slower);
        self.atoms = self.tail.atoms();
    }
}

/// The possible waits for a forecast burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    /// How long before the burst each wait is requested to end, in nanoseconds.
    pub(super) margins: [u64; PARTS],
    /// Cost of each wait in nanoseconds. It includes the polls until the expected burst, but not those during the time
    /// window in which the burst may come.
    pub(super) costs: [u64; PARTS],
    pub(super) weights: [u64; PARTS],
    /// The share of late packets that the model expects of each wait, in millionths.
    pub(super) lates: [u64; PARTS],
    /// The alternative to these waits: blocking until the frame arrives.
    pub(super) block: Cell,
}

/// Everything learned, and the plan that follows from it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) gaps: Gaps,
    prices: Prices,
    lateness: [[Lateness; CLASSES]; 2],
    /// Time from arrival to departure of the packets that ended waits for the device, by class of the wait's length.
    after: [Lateness; CLASSES],
    /// The class of the last wait that the device ended.
    blocked: usize,
    /// The hold-off: how long the device delays the interrupt after the first waiting frame, in nanoseconds.
    pub(super) hold: u64,
    /// Whether a hold-off delays the frames themselves, so that no poll finds them earlier.
    pub(super) holds_frames: bool,
    /// Then, the longest hold-off at which the ring that holds the frames does not overflow, in nanoseconds.
    pub(super) longest_hold: u64,
    /// The place of the present hold-off among those that are compared. For each of the others, what was observed of
    /// blocks with it.
    held: (usize, [Seen; HOLDS]),
    seen: [Seen; SLOTS],
    /// The weight of the model's expectation, in sixteenths of N packets, where the policy aims at one late packet in N.
    pub(super) trust: u64,
    rows: [Row; OCTAVES],
    forecast: Option<(Forecast, u32)>,
    learned: u32,
    /// How often doubt has halved the expected late packets of each candidate, because the candidate had not been
    /// chosen for a long time.
    doubts: [u8; SLOTS],
    /// For each candidate, the number of late packets that the goal has allowed for its trials since its last halving.
    allowed: [u32; SLOTS],
    /// Candidates that were chosen since the last call of [`Plan::doubt`], one bit each.
    taken: u32,
    /// Counts the calls of [`Plan::doubt`], which determines the rule and the candidate that the next call uses.
    turn: usize,
    last: usize,
    /// The goal's latency minus the reserve, from arrival to departure as the worker sees it, in nanoseconds.
    pub(super) target: u64,
    /// The minimum time between the departures of two packets of a burst, in nanoseconds.
    pub(super) spacing: u64,
    /// The longest timed sleep, in nanoseconds.
    longest: u64,
    ring: u64,
    /// The share of late packets that the policy aims at, in millionths.
    share: u64,
    /// At least half of this many recent samples of lateness are remembered. That is enough to include a few of the
    /// samples that the goal allows to be late.
    samples: u32,
    /// Time to process a packet, including its poll, in nanoseconds. Nearly all packets take less. (`work` is the mean
    /// for one packet alone.)
    pub(super) service: u64,
    pub(super) work: u64,
    interrupts: bool,
    /// Whether packets come without arrival timestamps, so that waits for the device show no lateness.
    pub(super) blind: bool,
}

impl Plan {
    pub(super) fn new(target: u64, longest: u64, ring: u64, share: u64, interrupts: bool) -> Self {
        const LATENESS: Lateness = Lateness { tail: Tail::new(), atoms: Atoms::NONE, since: 0 };
        let row = Row { cells: [Cell::default(); SLEEPS + 1], next: None, learned: 0, at: 0, late: 0, best: None };
        Self {
            gaps: Gaps::new(),
            prices: Prices::new(),
            lateness: [const { [LATENESS; CLASSES] }; 2],
            after: [LATENESS; CLASSES],
            blocked: 0,
            hold: 0,
            holds_frames: false,
            longest_hold: u64::MAX,
            held: (0, [Seen::default(); HOLDS]),
            seen: [Seen::default(); SLOTS],
            trust: 16,
            rows: [row; OCTAVES],
            forecast: None,
            learned: 0,
            doubts: [0; SLOTS],
            allowed: [0; SLOTS],
            taken: 0,
            turn: 0,
            last: 0,
            target,
            spacing: 0,
            longest,
            ring,
            share: share.max(1),
            samples: (4_000_000 / share.max(1)).clamp(u64::from(SAMPLES), 1 << 16) as u32,
            service: 0,
            work: 0,
            interrupts,
            blind: false,
        }
    }

    /// Sets the lateness of waits of a kind to a measured distribution. `length` is the length of the waits in
    /// nanoseconds; `None` means all lengths.
    pub(super) fn know(&mut self, kind: Kind, length: Option<u64>, tail: &Tail) {
        let classes = length.map_or(0..CLASSES, |length| class(length)..class(length) + 1);
        for lateness in &mut self.lateness[kind as usize][classes] {
            *lateness = Lateness { tail: tail.clone(), atoms: tail.atoms(), since: 0 };
        }
    }

    /// Learns how late a wait of this kind and length ended, without the hold-off. Returns true if it was a stall of
    /// the machine; stalls are not learned.
    pub(super) fn ended(&mut self, kind: Kind, length: u64, late: units::Nanos, stalls_ppm: u32) -> bool {
        if kind == Kind::Device {
            self.blocked = class(length);
        }
        if self.lateness[kind as usize][class(length)].add(late, stalls_ppm, self.samples) {
            return true;
        }
        self.learned = self.learned.wrapping_add(1);
        false
    }

    /// Learns the times from arrival to departure of the first and the last packet after a wait that the device ended.
    /// A hold-off delays the first packet by `hold`, and the others by less, so only the first one is learned.
    pub(super) fn departed(&mut self, first: units::Nanos, last: units::Nanos, hold: units::Nanos) {
        let first = first.saturating_sub(hold);
        let last = if hold > units::Nanos::ZERO { first } else { last };
        let after = &mut self.after[self.blocked];
        if first == last {
            after.add_twice(first, 0, self.samples);
        } else {
            after.add(first, 0, self.samples);
            after.add(last, 0, self.samples);
        }
    }

    /// Learns what a wait of this kind cost. All times are in nanoseconds.
    pub(super) fn spent(&mut self, kind: Kind, lasted: u64, spent: u64, idle: u64) {
        self.prices.add(kind, lasted, spent, idle);
    }

    /// Rescales everything that was learned by `slower`. Observations of the candidates lose weight, because they were
    /// made at another frequency.
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
        for seen in self.seen.iter_mut().chain(&mut self.held.1) {
            // The error of the model is kept, but is less certain at another frequency.
            let expected = seen.expected.min(CERTAIN);
            let late =
                u128::from(seen.late.min(seen.expected)) * u128::from(expected) / u128::from(seen.expected.max(1));
            *seen = Seen { packets: 0, late: late as u64, expected };
        }
        self.forget();
    }

    /// Reduces trust in the known costs, because nothing was learned for a while.
    pub(super) fn age(&mut self) {
        self.prices.age();
        self.forget();
    }

    /// Learns that `late` of the `packets` after a wait were late. The model had expected the share `expected` (in
    /// millionths) to be late.
    #[inline]
    pub(super) fn saw(&mut self, slot: usize, packets: u64, late: u64, expected: u64) {
        self.taken |= 1 << slot;
        if late > 0 {
            self.doubts[slot] = self.doubts[slot].saturating_sub(DISPROVED);
            self.rows.iter_mut().for_each(|row| row.late |= 1 << slot);
            self.forecast = None;
        }
        let memory = MEMORY * self.model();
        let seen = &mut self.seen[slot];
        seen.packets += packets;
        seen.late += late * 1_000_000;
        seen.expected += packets * expected;
        if seen.packets > memory {
            seen.halve();
        }
    }

    /// The weight of the model's expectation, in packets.
    fn model(&self) -> u64 {
        ONE / self.share * self.trust / 16
    }

    /// Call this each time the goal allows another late packet. It picks one candidate that was not chosen for a wait
    /// since the last call, and saves the allowed packet for its trial. Once the saved packets cover a trial whose
    /// packets are all late, the candidate is expected to be late half as often. So it is eventually tried again, at
    /// the price of an occasional late packet.
    ///
    /// The pick alternates between three rules: each candidate in turn, the candidate that would save most if it caused
    /// no late packet, and the wait for a forecast burst. For candidates that were chosen for waits, doubt decreases.
    pub(super) fn doubt(&mut self) {
        let is_taken = |slot: usize| self.taken & (1 << slot) != 0;
        self.turn = (self.turn + 1) % (3 * SLOTS);
        self.held.1[self.turn % HOLDS].halve();
        let chosen = match self.turn % 3 {
            0 => self.turn / 3,
            1 if self.forecast.is_some() && !is_taken(UNTIL) && !is_taken(until(SAFE)) => until(SAFE),
            _ => {
                let cells = &self.rows[self.last].cells;
                let others = (0..=SLEEPS).filter(|slot| !is_taken(*slot) && cells[*slot].wait > 0);
                let rate = |slot: usize| (cells[slot].costs << 16) / cells[slot].lasts.max(1);
                others.min_by_key(|slot| rate(*slot)).unwrap_or(BLOCK)
            }
        };
        // If the trial is late, all of its packets may be late.
        self.allowed[chosen] += 1;
        let packets = match chosen {
            0..=SLEEPS => self.rows[self.last].cells[chosen].packets,
            _ => self.rows[self.last].cells[BLOCK].packets,
        };
        let can_pay = u64::from(self.allowed[chosen]) * ONE >= packets;
        if can_pay && !is_taken(chosen) {
            self.seen[chosen].halve();
        }
        for (slot, doubt) in self.doubts.iter_mut().enumerate() {
            if self.taken & (1 << slot) != 0 {
                *doubt = doubt.saturating_sub(1);
                self.allowed[slot] = 0;
            } else if can_pay && slot == chosen {
                *doubt = (*doubt + 1).min(DOUBTS);
                self.allowed[slot] = 0;
            }
        }
        self.taken = 0;
        self.forget();
    }

    /// How late waits of this kind and length end, taken from the nearest class of lengths that was tried. Longer
    /// classes are preferred, because a longer wait is at least as late. If no class of this kind was tried, the other
    /// kind is used.
    ///
    /// A timed wait of a length that was hardly tried is assumed to be late by at most its own length or, if that is
    /// more, by as much as a shorter wait was. The reason: the time until the timer expires determines the idle state,
    /// and in the tables of server CPUs, an idle state's target residency exceeds its exit latency (Linux,
    /// drivers/idle/intel_idle.c: `target_residency` and `exit_latency`). This is not true of Bay Trail, and need not
    /// be true in a virtual machine. One or two trials then correct the assumption.
    fn lateness(&self, kind: Kind, length: u64) -> Atoms {
        let at = class(length);
        let tried = |kind: Kind, index: usize| self.lateness[kind as usize][index].tail.samples();
        let of = |kind: Kind, enough: u32| {
            let tried = |index: &usize| tried(kind, *index) >= enough;
            let nearest = (at..CLASSES).find(tried).or_else(|| (0..at).rev().find(tried));
            nearest.map(|index| (index, &self.lateness[kind as usize][index].atoms))
        };
        let own = of(kind, ENOUGH).or_else(|| of(kind, 1));
        let (from, atoms) =
            own.or_else(|| of(kind.other(), 1)).unwrap_or((at, &self.lateness[kind as usize][at].atoms));
        if kind == Kind::Device || (own.is_some() && from <= at) {
            return *atoms;
        }
        let shorter = (0..=at).rev().find(|index| tried(kind, *index) > 0);
        let shorter = shorter.map_or([0; PARTS], |index| self.lateness[kind as usize][index].atoms.at);
        atoms.at_most(core::array::from_fn(|part| shorter[part].max(length)))
    }

    /// Corrects the model's number of late packets by observation. If fewer packets were late than expected, the number
    /// is reduced by the same factor, as if one more late packet had been both expected and seen. If more were late,
    /// the unexpected ones are added, in proportion to the weight of the packets that were seen and that of the [model](Self::model).
    fn corrected(&self, (slot, seen): (usize, &Seen), packets: u64, late: u64, slower: Slower) -> u64 {
        let both = seen.late.min(seen.expected);
        let known = product_over(late, ONE + both, ONE + seen.expected);
        // At a higher frequency these packets need not be late.
        let over = if slower.work < SAME { 0 } else { seen.late - both };
        let model = if slot >= UNTIL { FORECASTS.min(ONE / self.share) } else { self.model() };
        let more = product_over(packets, over, ONE * (model + seen.packets));
        (known + more) as u64
    }

    /// Cost in nanoseconds of `late` packets (in millionths) at a multiplier of one: the time in which the policy aims
    /// at that many late packets.
    fn weight(&self, late: u64) -> u64 {
        let weight = product_over(late, self.gaps.mean(), self.share);
        u64::try_from(weight).unwrap_or(MOST_WEIGHT).min(MOST_WEIGHT)
    }

    /// The candidate for a timed sleep of length `wait` after a silence of length `silence`.
    fn sleep(&self, slot: usize, silence: u64, wait: u64, slower: Slower) -> Cell {
        self.sleep_held(slot, silence, wait, self.hold, slower)
    }

    /// The same with a hold-off of `hold` nanoseconds.
    fn sleep_held(&self, slot: usize, silence: u64, wait: u64, hold: u64, slower: Slower) -> Cell {
        if wait == 0 {
            return Cell::default();
        }
        let lateness = self.lateness(Kind::Timer, wait);
        let cut = wait + lateness.at[PARTS - 2] >= self.ring;
        let atoms = lateness.scaled(slower.timer);
        let service = self.service * slower.work / SAME;
        let away = wait + atoms.mean;
        let packets = self.gaps.expected(silence, away);
        let held = if self.holds_frames { hold } else { 0 };
        let mut late = 0;
        for (at, share) in atoms.all() {
            let over = (held + wait + at + service).saturating_sub(self.target);
            if over > 0 {
                late += self.gaps.expected(silence, over.min(away)) * share / 1_000_000;
            }
        }
        let price = self.prices.of(Kind::Timer, away, slower.timer);
        Cell { cut, ..self.cell((slot, &self.seen[slot]), wait, away, price, packets, late, slower) }
    }

    /// How much longer packets take after a wait for the device, in 256ths, with the wake-up and the work weighted by
    /// their times.
    fn slower_after(&self, class: usize, slower: Slower) -> u64 {
        let (back, all) = (self.lateness[Kind::Device as usize][class].atoms.mean, self.after[class].atoms.mean);
        let back = back.min(all);
        (back * slower.device + (all - back) * slower.work) / all.max(1)
    }

    /// The candidate for a block when the next frame is expected after `wait` nanoseconds.
    fn block(&self, wait: u64, slower: Slower) -> Cell {
        self.block_held(wait, (self.hold, &self.seen[BLOCK]), slower)
    }

    /// The same with a hold-off of `hold` nanoseconds. `seen` is what was observed of blocks with it.
    fn block_held(&self, wait: u64, (hold, seen): (u64, &Seen), slower: Slower) -> Cell {
        let samples = |kind: Kind| self.lateness[kind as usize].iter().map(|of| of.tail.samples()).sum::<u32>();
        if self.blind && samples(Kind::Device) == 0 && samples(Kind::Timer) < ENOUGH {
            // Without timestamps, nobody would see that the block is late.
            return Cell::default();
        }
        let wait = wait + hold;
        let atoms = self.lateness(Kind::Device, wait).scaled(slower.device);
        let service = self.service * slower.work / SAME;
        let packets = 1_000_000 + self.gaps.follow(hold + atoms.mean);
        let mut late = 0;
        // Late are the first packet and those that come so soon after it that they are late, too.
        let mut add = |at: u64, share: u64| {
            let over = (hold + at).saturating_sub(self.target);
            if over > 0 {
                late += (ONE + self.gaps.follow(over)) * share / ONE;
            }
        };
        // As in `lateness`: longer waits first.
        let at = class(wait);
        let tried = |index: &usize| self.after[*index].tail.samples() >= ENOUGH;
        if let Some(nearest) = (at..CLASSES).find(tried).or_else(|| (0..at).rev().find(tried)) {
            let after = self.after[nearest].atoms.scaled(self.slower_after(nearest, slower));
            if hold > 0 {
                after.seen().for_each(|(at, share)| add(at, share));
            } else {
                let share: u64 = after.seen().filter(|(at, _)| *at > self.target).map(|(_, share)| share).sum();
                late = packets * share / ONE;
            }
        } else {
            atoms.seen().for_each(|(at, share)| add(at + service, share));
        }
        let away = wait + atoms.mean;
        let price = self.prices.of(Kind::Device, away, slower.device);
        self.cell((BLOCK, seen), wait, away, price, packets, late, slower)
    }

    /// The number of packets in a busy period: those that have gathered, those that arrive while the first ones are
    /// served, and so on until none is left (L. Kleinrock, "Queueing Systems", volume 1, 1975, section 5.8). Delays
    /// fall only as fast as the queue empties, so the number of late packets grows by the same factor.
    fn until_drained(&self, packets: u64, each: u64) -> u64 {
        let gap = self.gaps.mean();
        let rest = gap.saturating_sub(each).max(gap / MOST_BUSY).max(1);
        product_over(packets, gap, rest) as u64
    }

    #[expect(clippy::too_many_arguments)] // what a cell is made of
    fn cell(
        &self,
        (slot, seen): (usize, &Seen),
        wait: u64,
        away: u64,
        price: u64,
        packets: u64,
        late: u64,
        slower: Slower,
    ) -> Cell {
        let each = self.work * slower.work / SAME;
        let late = self.until_drained(late, each.max(self.spacing)).min(self.until_drained(packets, each));
        let packets = self.until_drained(packets, each);
        let work = product_over(packets, each, ONE) as u64;
        let share = product_over(late, ONE, packets.max(1)) as u64;
        let late = self.corrected((slot, seen), packets, late, slower);
        let (lasts, costs, weight) = (away + work, price + work, self.weight(late));
        Cell { wait, lasts, costs, weight, late: share.min(ONE), packets, cut: false }
    }

    /// The longest sleep that still ends in time if it is as late as this slot allows for.
    fn wait_for(&self, slot: usize, slower: Slower) -> u64 {
        let budget = self.target.saturating_sub(self.service * slower.work / SAME);
        let bounded = |wait: u64, late: u64| wait.min(self.longest).min(self.ring.saturating_sub(late));
        match slot {
            // The lateness depends on the class, the class on the sleep, and the sleep on the lateness: so compute it
            // twice.
            0..PARTS => {
                let late = |wait: u64| self.lateness(Kind::Timer, wait).scaled(slower.timer);
                let room = |atoms: &Atoms| if slot == PARTS - 1 { atoms.beyond } else { atoms.at[slot] };
                let first = budget.saturating_sub(room(&late(budget)));
                let of_first = late(first);
                let second = budget.saturating_sub(room(&of_first));
                let of_second = late(second);
                // The lateness of a shorter sleep underestimates that of a longer one.
                let (wait, atoms) =
                    if second + room(&of_second) <= budget { (second, of_second) } else { (first, of_first) };
                bounded(wait, atoms.at[PARTS - 2])
            }
            slot => {
                let wait = budget >> (slot - PARTS + 1);
                bounded(wait, self.lateness(Kind::Timer, wait).at[PARTS - 2])
            }
        }
    }

    fn work_out(&self, octave: usize, slot: usize, slower: Slower) -> Cell {
        let silence = begins(octave);
        if slot < SLEEPS {
            self.sleep(slot, silence, self.wait_for(slot, slower), slower)
        } else if self.interrupts {
            self.block(self.gaps.residual(silence), slower)
        } else {
            Cell::default()
        }
    }

    /// Computes a candidate. Doubt reduces its expected late packets.
    fn hopeful(&self, octave: usize, slot: usize) -> Cell {
        let cell = self.work_out(octave, slot, Slower::NOT);
        Cell { weight: cell.weight >> self.doubts[slot], ..cell }
    }

    /// The cheapest candidate after a silence in this octave. `now` is the time in nanoseconds. From time to time, one
    /// candidate is recomputed.
    #[inline]
    pub(super) fn best(&mut self, octave: usize, multiplier: u64, now: u64) -> Choice {
        self.last = octave;
        let Row { next, learned, at, late, .. } = &self.rows[octave];
        let stale = self.learned.wrapping_sub(*learned) >= STALE
            && (self.learned < YOUNG || now.wrapping_sub(*at) >= STALE_FOR);
        if next.is_none() || stale || *late > 0 {
            self.renew(octave, now, stale);
        }
        let row = &mut self.rows[octave];
        match row.best {
            Some((at, best)) if at == multiplier => best,
            _ => row.compare(multiplier),
        }
    }

    #[cold]
    fn renew(&mut self, octave: usize, now: u64, stale: bool) {
        let Row { next, late, .. } = self.rows[octave];
        let Some(slot) = next else { return self.fill(octave, now) };
        if late > 0 {
            self.reconsider(octave, late);
        }
        if stale {
            let cell = self.hopeful(octave, slot);
            let row = &mut self.rows[octave];
            row.cells[slot] = cell;
            row.next = Some((slot + 1) % (SLEEPS + 1));
            (row.learned, row.at) = (self.learned, now);
        }
        self.rows[octave].best = None;
    }

    /// Recomputes the candidates in `late`, which had late packets.
    fn reconsider(&mut self, octave: usize, late: u32) {
        for slot in (0..=SLEEPS).filter(|slot| late & (1 << slot) != 0) {
            self.rows[octave].cells[slot] = self.hopeful(octave, slot);
        }
        self.rows[octave].late = 0;
    }

    fn fill(&mut self, octave: usize, now: u64) {
        let cells = core::array::from_fn(|slot| self.hopeful(octave, slot));
        self.rows[octave] = Row { cells, next: Some(0), learned: self.learned, at: now, late: 0, best: None };
    }

    /// Marks every row to be recomputed when it is next used.
    pub(super) fn forget(&mut self) {
        self.rows.iter_mut().for_each(|row| row.next = None);
        self.forecast = None;
    }

    /// The possible waits for a burst that is expected in about `ahead` nanoseconds.
    pub(super) fn forecast(&mut self, ahead: u64) -> &Forecast {
        let stale = |learned: u32| self.learned.wrapping_sub(learned) >= 4 * STALE;
        if self.forecast.as_ref().is_none_or(|(_, learned)| stale(*learned)) {
            let atoms = self.lateness(Kind::Timer, ahead);
            let price = self.prices.of(Kind::Timer, ahead, SAME);
            let margins = atoms.at.map(|at| at + 1_000);
            let costs = margins.map(|margin| price + margin.saturating_sub(atoms.mean));
            let lates = margins.map(|margin| {
                let late = |at: u64| at + self.service > self.target + margin;
                atoms.seen().filter(|(at, _)| late(*at)).map(|(_, share)| share).sum()
            });
            let weights = core::array::from_fn(|part| {
                let slot = until(part);
                self.weight(self.corrected((slot, &self.seen[slot]), ONE, lates[part], Slower::NOT))
            });
            let block = if self.interrupts { self.block(ahead, Slower::NOT) } else { Cell::default() };
            self.forecast = Some((Forecast { margins, costs, weights, lates, block }, self.learned));
        }
        let (forecast, _) = self.forecast.as_ref().expect("just made");
        forecast
    }

    /// Cost of the cheapest waits that meet the goal, as a share of a polling core, in 2^-16. For each multiplier, the
    /// cheapest waits are chosen with their late packets included, and the value of the allowed late packets is
    /// subtracted. The result is the maximum of these differences over all multipliers. (This solves the dual problem;
    /// its value is that of the best mixture of waits.)
    ///
    /// The length of a silence cannot be chosen. So each octave of silence is weighted by its share of the time.
    pub(super) fn outlook(&self, slower: Slower) -> Prospect {
        let [prospect] = self.prospects(slower, &EVEN, [(self.hold, &self.seen[BLOCK])]);
        prospect
    }

    /// The same for each of several hold-offs in nanoseconds, with what was observed of blocks with them. `multipliers`
    /// are those that are tried, in 2^-16.
    fn prospects<const N: usize>(
        &self,
        slower: Slower,
        multipliers: &Steps,
        holds: [(u64, &Seen); N],
    ) -> [Prospect; N] {
        /// Octaves with a smaller share of the time than this (in 2^-16) are ignored.
        const LITTLE: u64 = 1 << 10;
        let (mut duals, mut covered): ([Steps; N], _) = ([[0; STEPS]; N], 0);
        for (octave, share) in self.gaps.shares().into_iter().enumerate().filter(|(_, share)| *share >= LITTLE) {
            covered += share;
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
            for (dual, hold) in duals.iter_mut().zip(holds) {
                let block = if self.interrupts { self.block_held(next, hold, slower) } else { Cell::default() };
                let sleeping = if self.holds_frames && hold.0 != self.hold { slept(hold.0) } else { of_all };
                for step in 0..STEPS {
                    dual[step] += share * least(&[block], step, sleeping[step]);
                }
            }
        }
        if covered == 0 {
            return [Prospect { costs: 1 << 16, free: 1 << 16 }; N];
        }
        duals.map(|dual| {
            let value = |step: usize| (dual[step] / covered).saturating_sub(multipliers[step]);
            Prospect { costs: (0..STEPS).map(value).max().unwrap_or(1 << 16), free: value(0) }
        })
    }

    /// The hold-offs that are compared, in nanoseconds: none, a quarter and a half of the goal's latency, and those
    /// that leave room for a part of the lateness of blocks (not for the median alone). If `safe`, all of them leave
    /// room for so much of it that the goal allows the rest. As after a sleep, the ring has room for the packets that
    /// come during nearly every wake-up. Until a few waits have ended, there is no hold-off.
    fn holds(&self, safe: bool) -> [u64; HOLDS] {
        if self.lateness.as_flattened().iter().all(|lateness| lateness.tail.samples() < ENOUGH) {
            return [0; HOLDS];
        }
        let budget = self.target.saturating_sub(self.service);
        let atoms = self.lateness(Kind::Device, budget + self.gaps.residual(0));
        let most = if safe { budget.saturating_sub(atoms.room(self.share)) } else { budget };
        let bounded = |hold: u64| {
            let ring = self.ring.saturating_sub(atoms.at[PARTS - 2]);
            let hold = hold.min(most).min(self.longest).min(ring).min(self.longest_hold);
            if hold < budget / LEAST_HOLD { 0 } else { hold / HOLD_STEP * HOLD_STEP }
        };
        core::array::from_fn(|number| match number {
            0 => 0,
            1 => bounded(budget / 4),
            2 => bounded(budget / 2),
            _ => bounded(budget.saturating_sub(atoms.at[number - 2])),
        })
    }

    /// Whether a few blocks have shown how late they end.
    pub(super) fn knows_blocks(&self) -> bool {
        self.lateness[Kind::Device as usize].iter().any(|lateness| lateness.tail.samples() >= ENOUGH)
    }

    /// How late blocks end in the median.
    #[cfg(test)]
    pub(super) fn known_block_lateness(&self) -> units::Nanos {
        units::Nanos::from_nanos(self.lateness(Kind::Device, 40_000).at[0])
    }

    /// The place and the length in nanoseconds of the present hold-off.
    pub(super) fn present_hold(&self) -> (usize, u64) {
        (self.held.0, self.hold)
    }

    /// The place and the length in nanoseconds of the hold-off that is expected to cost least. `None` if the present
    /// one costs about as little. If `safe`, a hold-off counts only if the known lateness of blocks leaves room for it
    /// within the goal's latency.
    pub(super) fn better_hold(&self, safe: bool) -> Option<(usize, u64)> {
        let (present, holds) = (self.held.0, self.holds(safe));
        let seen = |place: usize| if place == present { &self.seen[BLOCK] } else { &self.held.1[place] };
        let prospects =
            self.prospects::<HOLDS>(Slower::NOT, &FINE, core::array::from_fn(|place| (holds[place], seen(place))));
        let [Prospect { costs: stay, .. }] = self.prospects(Slower::NOT, &FINE, [(self.hold, &self.seen[BLOCK])]);
        // Nothing was observed at the places of hold-offs that came out as none.
        let others = (0..HOLDS).filter(|place| holds[*place] != self.hold && (*place == 0 || holds[*place] > 0));
        let best = others.min_by_key(|place| prospects[*place].costs)?;
        (prospects[best].costs < stay - stay / WORTHWHILE).then_some((best, holds[best]))
    }

    /// Changes to another hold-off, given by its place and its length in nanoseconds.
    pub(super) fn take_hold(&mut self, (place, hold): (usize, u64)) {
        self.held.1[self.held.0] = self.seen[BLOCK];
        self.seen[BLOCK] = self.held.1[place];
        self.held.0 = place;
        self.set_hold(hold);
    }

    /// Changes to no hold-off, because packets were late with the present one.
    pub(super) fn give_hold_up(&mut self) {
        if self.held.0 == 0 {
            // What was observed with somebody else's hold-off says nothing of blocks without one.
            self.seen[BLOCK] = Seen::default();
        }
        self.take_hold((0, 0));
    }

    /// Notes the hold-off that is in force from now on, in nanoseconds.
    pub(super) fn set_hold(&mut self, hold: u64) {
        if hold != self.hold {
            self.hold = hold;
            self.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use units::Nanos;

    const US: u64 = 1_000;

    /// 20 us, p99; a packet each 100 us, that takes 2 us.
    fn plan() -> Plan {
        let mut plan = Plan::new(20 * US, 20 * US, u64::MAX, 7_500, true);
        (0..1_000).for_each(|_| plan.gaps.add(100 * US, 1));
        (plan.service, plan.work) = (2 * US, 2 * US);
        plan.forget();
        plan
    }

    impl Plan {
        /// The candidates, as a decision finds them.
        fn cells(&mut self, octave: usize) -> &[Cell] {
            self.best(octave, 0, 0);
            &self.rows[octave].cells
        }
    }

    proptest::proptest! {
        /// The shortcut for two equal samples learns what two samples teach: with stalls, and when counts are halved.
        #[test]
        fn a_sample_twice_is_two_samples(
            samples in proptest::collection::vec((0u64..2_000_000, 0u8..3), 1..400), memory in 20u32..60, ppm in 0u32..50_000,
        ) {
            const NONE: Lateness = Lateness { tail: Tail::new(), atoms: Atoms::NONE, since: 0 };
            let (mut once, mut twice) = (NONE, NONE);
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

    /// A block of 100 us that ended so late, and the time from arrival to departure.
    fn blocked(plan: &mut Plan, late: u64, took: u64) {
        plan.ended(Kind::Device, 100 * US, Nanos::from_nanos(late), 0);
        plan.departed(Nanos::from_nanos(took), Nanos::from_nanos(took), Nanos::ZERO);
        plan.spent(Kind::Device, 100 * US, 10 * US, 5 * US);
    }

    #[test]
    fn a_block_is_as_late_as_packets_were_after_blocks() {
        let mut plan = plan();
        // By the sum of its parts it would be late: 19 us and 2 us.
        (0..100).for_each(|_| blocked(&mut plan, 19 * US, 15 * US));
        assert_eq!(plan.block(100 * US, Slower::NOT).late, 0);
        // Where everything takes twice as long, it is.
        let half = Slower { work: 2 * SAME, timer: 2 * SAME, device: 2 * SAME };
        assert_eq!(plan.block(100 * US, half).late, ONE);
        plan.change(half);
        assert_eq!(plan.block(100 * US, Slower::NOT).late, ONE);
    }

    /// 10 us and 9 us are together more than 18 us, but no packet took longer than 14 us.
    #[test]
    fn a_block_of_a_new_length_is_as_late_as_those_of_the_nearest_known_one() {
        let mut plan = plan();
        (plan.target, plan.service) = (18 * US, 9 * US);
        (0..100).for_each(|_| blocked(&mut plan, 10 * US, 14 * US));
        for wait in [20 * US, 100 * US, 2_000 * US] {
            assert_eq!(plan.block(wait, Slower::NOT).late, 0, "{wait}");
        }
        // Longer blocks say more than shorter ones.
        for _ in 0..ENOUGH {
            plan.ended(Kind::Device, 500 * US, Nanos::from_micros(30), 0);
            plan.departed(Nanos::from_micros(34), Nanos::from_micros(34), Nanos::ZERO);
        }
        assert_eq!((plan.block(100 * US, Slower::NOT).late, plan.block(200 * US, Slower::NOT).late), (0, ONE));
    }

    #[test]
    fn what_lateness_adds_to_the_cost_is_told_apart() {
        let mut plan = plan();
        (0..100).for_each(|_| blocked(&mut plan, 10 * US, 17 * US));
        // A sleep is no way out.
        plan.spent(Kind::Timer, 15 * US, 14 * US, 0);
        let now = plan.outlook(Slower::NOT);
        assert_eq!(now.costs, now.free, "no packet is late");
        // 17 us become 21 us, of 20 us.
        let slower = Slower { work: SAME * 5 / 4, timer: SAME * 5 / 4, device: SAME * 5 / 4 };
        let then = plan.outlook(slower);
        assert!(then.costs > then.free, "{then:?}");
        assert!(then.free <= now.free * 5 / 4, "{now:?} {then:?}");
    }

    /// A packet each 134 ns that takes 100 ns: after a sleep of 80 us the core works for three times as long, and not
    /// for 60 us.
    #[test]
    fn a_wait_lasts_until_what_came_during_the_work_is_served() {
        let mut plan = Plan::new(100 * US, 100 * US, u64::MAX, 750, true);
        (0..1_000).for_each(|_| plan.gaps.add(134, 1));
        (plan.service, plan.work) = (2 * US, 100);
        (0..100).for_each(|_| {
            plan.ended(Kind::Timer, 80 * US, Nanos::from_micros(1), 0);
            plan.spent(Kind::Timer, 80 * US, 2 * US, 0);
        });
        let cell = plan.sleep(0, 0, 80 * US, Slower::NOT);
        let share = cell.costs as f64 / cell.lasts as f64;
        assert!((0.74..0.80).contains(&share), "{cell:?}: {share}");
        // At two thirds of the frequency it has more to do than it can: no wait saves anything.
        let slower = Slower { work: SAME * 3 / 2, ..Slower::NOT };
        assert!(plan.outlook(slower).costs > (1 << 16) * 95 / 100, "{:?}", plan.outlook(slower));
    }

    /// A block that ended 160 us late says nothing against a sleep of 11 us: no idle state that is left so late is
    /// entered for that.
    #[test]
    fn a_sleep_that_was_not_tried_is_late_by_no_more_than_it_is_long() {
        let mut plan = Plan::new(44 * US, 50 * US, u64::MAX, 75, true);
        (0..1_000).for_each(|_| plan.gaps.add(7 * US, 1));
        plan.service = US;
        blocked(&mut plan, 160 * US, 170 * US);
        let (half, quarter) = (SLEEPS - 2, SLEEPS - 1);
        let asleep = |plan: &Plan, slot: usize| plan.sleep(slot, 0, plan.wait_for(slot, Slower::NOT), Slower::NOT);
        assert_eq!((asleep(&plan, half).weight, asleep(&plan, quarter).weight), (0, 0));
        assert!(asleep(&plan, half).wait > 20 * US);
        // Where each timer ends 60 us late, as in some virtual machines, one try says so of all lengths.
        plan.ended(Kind::Timer, 11 * US, Nanos::from_micros(60), 0);
        assert!(asleep(&plan, half).weight > 0 && asleep(&plan, quarter).weight > 0);
        // One that was tried is as late as it was.
        (0..ENOUGH).for_each(|_| assert!(!plan.ended(Kind::Timer, 22 * US, Nanos::from_micros(5), 0)));
        assert_eq!(asleep(&plan, half).weight, 0);
    }

    /// Of sleeps nothing is known, of blocks that they end late: no sleep takes all of the ring's time, or more than
    /// its own model bears.
    #[test]
    fn a_sleep_leaves_the_ring_room_whatever_is_known() {
        for (target, ring, late) in [(240, 68, 160), (240, 68, 300), (44, 50, 30), (90, 1_000, 80)] {
            let mut plan = Plan::new(target * US, target * US, ring * US, 750, true);
            (0..1_000).for_each(|_| plan.gaps.add(7 * US, 1));
            for tried in [None, Some(40 * US), Some(200 * US)] {
                plan.ended(Kind::Device, 100 * US, Nanos::from_micros(late), 0);
                if let Some(length) = tried {
                    let mut sleeps = |_| plan.ended(Kind::Timer, length, Nanos::from_micros(late), 0);
                    assert_eq!((0..ENOUGH).map(&mut sleeps).filter(|stall| *stall).count(), 0);
                }
                for slot in 0..SLEEPS {
                    let wait = plan.wait_for(slot, Slower::NOT);
                    let room = plan.lateness(Kind::Timer, wait).at[PARTS - 2];
                    assert!(
                        wait == 0 || wait + room <= ring * US,
                        "{target} {ring} {late} {tried:?} {slot}: {wait} {room}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_model_that_was_wrong_is_set_right() {
        let mut plan = plan();
        (0..100).for_each(|_| blocked(&mut plan, 30 * US, 40 * US));
        let expected = plan.block(100 * US, Slower::NOT);
        assert_eq!(expected.late, ONE, "all packets");
        plan.saw(BLOCK, 400, 0, expected.late);
        let corrected = plan.block(100 * US, Slower::NOT);
        assert!(corrected.weight < expected.weight / 300, "{} of {}", corrected.weight, expected.weight);
        // At another frequency the model is still taken to be wrong, but not for as sure.
        plan.change(Slower { work: 300, timer: 300, device: 300 });
        let elsewhere = plan.block(100 * US, Slower::NOT);
        assert!(elsewhere.weight > corrected.weight && elsewhere.weight < expected.weight / 5);
    }

    #[test]
    fn lateness_that_the_model_did_not_expect_counts_at_once() {
        let mut plan = plan();
        (0..100).for_each(|_| blocked(&mut plan, 5 * US, 8 * US));
        let octave = super::super::arrivals::octave(0);
        assert_eq!(plan.cells(octave)[BLOCK].weight, 0);
        plan.saw(BLOCK, 80, 80, 0);
        assert!(plan.cells(octave)[BLOCK].weight > 0, "the next decision is about what was seen");
        // A higher frequency may be the remedy.
        let faster = Slower { work: SAME / 2, timer: SAME / 2, device: SAME / 2 };
        assert_eq!(plan.block(100 * US, faster).weight, 0);
    }

    #[test]
    fn what_is_late_in_batches_is_tried_again_as_seldom() {
        let mut plan = plan();
        (0..100).for_each(|_| blocked(&mut plan, 30 * US, 40 * US));
        let tries = |plan: &mut Plan, packets: u64| {
            plan.best(0, 0, 0);
            (plan.doubts, plan.allowed) = ([0; SLOTS], [0; SLOTS]);
            plan.rows[0].cells[BLOCK].packets = packets * ONE;
            (0..3 * SLOTS as u32 * 8).for_each(|_| {
                let row = plan.rows[0];
                plan.doubt();
                plan.rows[0] = row;
            });
            plan.doubts[BLOCK]
        };
        let (alone, many) = (tries(&mut plan, 1), tries(&mut plan, 80));
        assert!(alone >= 4 * many.max(1), "{alone} and {many}");
    }
}

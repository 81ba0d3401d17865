//! What each wait would bring, as a model: how long it lasts, what it costs, how many packets it makes late.

use super::arrivals::{Gaps, OCTAVES, begins};
use super::prices::{CLASSES, Kind, Prices, SAME, class};
use super::tail::{Atoms, MEMORY as SAMPLES, PARTS, SHARE_PPM, Tail};

/// Timed sleeps: one for each part of the lateness that it leaves room for, and two short ones.
const SLEEPS: usize = PARTS + 2;
/// Places of candidates: the sleeps, the block, and the waits for a forecast, which are right or wrong together.
pub(super) const SLOTS: usize = SLEEPS + 2;
pub(super) const BLOCK: usize = SLEEPS;
pub(super) const UNTIL: usize = SLEEPS + 1;
/// No wait.
pub(super) const POLL: usize = SLOTS;
/// Samples from which on a class's lateness is believed.
const ENOUGH: u32 = 8;
/// Samples of a class after which its parts are worked out anew.
const RENEW: u32 = 16;
/// Waits that teach something, after which one candidate of a row is worked out anew.
const STALE: u32 = 4;
/// A price of lateness is no more than this, in nanoseconds.
const MOST_WEIGHT: u64 = 1 << 33;
/// So many packets after waits for a forecast outweigh the model: it takes the forecast for right, which it need not be.
const FORECASTS: u64 = 16;
/// What is expected of a candidate's late packets is halved at most so often...
const DOUBTS: u8 = 12;
/// ...and so many times less after a late one.
const DISPROVED: u8 = 4;
/// What was seen of a candidate is halved after so many times as many packets as the goal allows one late among.
const MEMORY: u64 = 4;

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

/// What a wait would bring.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cell {
    /// How long to wait; 0: it is no candidate.
    pub(super) wait: u64,
    /// From its beginning until its packets are served, in nanoseconds.
    pub(super) lasts: u64,
    /// What that costs, as the time of a core that polls.
    pub(super) costs: u64,
    /// What its late packets cost at a multiplier of one.
    pub(super) weight: u64,
}

/// The candidates after a silence.
#[derive(Clone, Copy, Debug)]
struct Row {
    cells: [Cell; SLEEPS + 1],
    /// The next one to be worked out anew; `None`: none has been.
    next: Option<usize>,
    /// What had been learned when that was done last.
    learned: u32,
}

/// What was seen of a candidate: packets, and late ones.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    packets: u64,
    late: u64,
}

/// How late waits of a kind and class end.
#[derive(Clone, Debug)]
struct Lateness {
    tail: Tail,
    atoms: Atoms,
    since: u32,
}

/// The waits for a forecast arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    /// How much before the arrival each is to end, at most.
    pub(super) margins: [u64; PARTS],
    /// What each costs, the polls until the arrival included, but for the forecast's own width.
    pub(super) costs: [u64; PARTS],
    pub(super) weights: [u64; PARTS],
    /// The block.
    pub(super) block: Cell,
}

/// Everything learned, and the plan that follows from it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) gaps: Gaps,
    prices: Prices,
    lateness: [[Lateness; CLASSES]; 2],
    seen: [Seen; SLOTS],
    rows: [Row; OCTAVES],
    forecast: Option<(Forecast, u32)>,
    learned: u32,
    /// How often what is expected of a candidate's late packets is halved, for it has not been taken for so long.
    doubts: [u8; SLOTS],
    /// The candidates that were taken since that was looked at last, a bit each.
    taken: u32,
    /// Whose turn it is to be doubted, and the silence, as an octave, at which was decided last.
    turn: usize,
    last: usize,
    /// From arrival to departure, as the worker sees it: the goal less the reserve.
    pub(super) target: u64,
    /// No timed sleep is longer.
    longest: u64,
    ring: u64,
    /// The share of late packets that is aimed at, in millionths.
    share: u64,
    /// Of so many samples of lateness at least half count: a few of those that the goal allows late.
    samples: u32,
    /// What a packet takes once it is picked up: with its poll, nearly always; and by itself, on average.
    pub(super) service: u64,
    pub(super) work: u64,
    interrupts: bool,
}

impl Plan {
    pub(super) fn new(target: u64, longest: u64, ring: u64, share: u64, interrupts: bool) -> Self {
        const LATENESS: Lateness = Lateness { tail: Tail::new(), atoms: Atoms { at: [0; PARTS], mean: 0 }, since: 0 };
        let row = Row { cells: [Cell::default(); SLEEPS + 1], next: None, learned: 0 };
        Self {
            gaps: Gaps::new(),
            prices: Prices::new(),
            lateness: [const { [LATENESS; CLASSES] }; 2],
            seen: [Seen::default(); SLOTS],
            rows: [row; OCTAVES],
            forecast: None,
            learned: 0,
            doubts: [0; SLOTS],
            taken: 0,
            turn: 0,
            last: 0,
            target,
            longest,
            ring,
            share: share.max(1),
            samples: (4_000_000 / share.max(1)).clamp(u64::from(SAMPLES), 1 << 16) as u32,
            service: 0,
            work: 0,
            interrupts,
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
    pub(super) fn ended(&mut self, kind: Kind, length: u64, late: units::Nanos, stalls_ppm: u32) -> bool {
        let lateness = &mut self.lateness[kind as usize][class(length)];
        if lateness.tail.add(late, stalls_ppm, self.samples) {
            return true;
        }
        lateness.since += 1;
        if lateness.since >= RENEW || lateness.tail.samples() <= RENEW {
            lateness.since = 0;
            lateness.atoms = lateness.tail.atoms();
        }
        self.learned = self.learned.wrapping_add(1);
        false
    }

    /// A wait of this kind lasted so long, and cost so much.
    pub(super) fn spent(&mut self, kind: Kind, lasted: u64, spent: u64, idle: u64) {
        self.prices.add(kind, lasted, spent, idle);
    }

    /// Everything takes so much longer from now on. What was seen of the candidates was of another core.
    pub(super) fn change(&mut self, slower: Slower) {
        for (kind, slower) in [(Kind::Timer, slower.timer), (Kind::Device, slower.device)] {
            for lateness in &mut self.lateness[kind as usize] {
                lateness.tail.scale(slower);
                lateness.atoms = lateness.tail.atoms();
            }
            self.prices.scale(kind, slower);
        }
        self.service = self.service * slower.work / SAME;
        self.work = self.work * slower.work / SAME;
        self.seen = [Seen::default(); SLOTS];
        self.forget();
    }

    /// Nothing was learned for a while.
    pub(super) fn age(&mut self) {
        self.prices.age();
        self.forget();
    }

    /// Of the packets after a wait so many were late.
    #[inline]
    pub(super) fn saw(&mut self, slot: usize, packets: u64, late: u64) {
        self.taken |= 1 << slot;
        if late > 0 {
            self.doubts[slot] = self.doubts[slot].saturating_sub(DISPROVED);
        }
        let seen = &mut self.seen[slot];
        seen.packets += packets;
        seen.late += late * 1_000_000;
        if seen.packets > MEMORY * (1_000_000 / self.share) {
            seen.packets /= 2;
            seen.late /= 2;
        }
    }

    /// The goal allowed a late packet since this was called last. Of the candidates that were not taken since, one is expected to
    /// be late half as often from now on, so that it is tried again by and by, at the price of a late packet now and then:
    /// in turn each of them, and the one that would save most if it was not late. Those that were taken are known the better.
    pub(super) fn doubt(&mut self) {
        let is_taken = |slot: usize| self.taken & (1 << slot) != 0;
        self.turn = (self.turn + 1) % (2 * SLOTS);
        let chosen = match self.turn % 2 {
            0 => self.turn / 2,
            _ => {
                let cells = &self.rows[self.last].cells;
                let others = (0..=SLEEPS).filter(|slot| !is_taken(*slot) && cells[*slot].wait > 0);
                let rate = |slot: usize| (cells[slot].costs << 16) / cells[slot].lasts.max(1);
                others.min_by_key(|slot| rate(*slot)).unwrap_or(BLOCK)
            }
        };
        for (slot, doubt) in self.doubts.iter_mut().enumerate() {
            if self.taken & (1 << slot) != 0 {
                *doubt = doubt.saturating_sub(1);
            } else if slot == chosen {
                *doubt = (*doubt + 1).min(DOUBTS);
            }
        }
        self.taken = 0;
        self.forget();
    }

    /// How late waits of this kind and length end: of the nearest class that was tried, longer ones first, since
    /// a longer wait ends no earlier; then of the other kind.
    fn lateness(&self, kind: Kind, length: u64) -> &Atoms {
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

    /// What a model expects, set right by what was seen: so many packets stand for the model as the goal allows one
    /// late among.
    fn corrected(&self, slot: usize, packets: u64, late: u64) -> u64 {
        let seen = &self.seen[slot];
        let model = (1_000_000 / self.share).min(if slot == UNTIL { FORECASTS } else { u64::MAX });
        let late = u128::from(late) * u128::from(model) + u128::from(packets) * u128::from(seen.late) / 1_000_000;
        (late / u128::from(model + seen.packets)) as u64
    }

    /// What so many late packets, in millionths, cost at a multiplier of one: the time in which the goal allows them.
    fn weight(&self, late: u64) -> u64 {
        let weight = u128::from(late) * u128::from(self.gaps.mean()) / u128::from(self.share);
        u64::try_from(weight).unwrap_or(MOST_WEIGHT).min(MOST_WEIGHT)
    }

    /// A timed sleep after a silence.
    fn sleep(&self, slot: usize, silence: u64, wait: u64, slower: Slower) -> Cell {
        if wait == 0 {
            return Cell::default();
        }
        let atoms = self.lateness(Kind::Timer, wait).scaled(slower.timer);
        let service = self.service * slower.work / SAME;
        let away = wait + atoms.mean;
        let packets = self.gaps.expected(silence, away);
        let mut late = 0;
        for (at, share) in atoms.at.iter().zip(SHARE_PPM) {
            let over = (wait + at + service).saturating_sub(self.target);
            if over > 0 {
                late += self.gaps.expected(silence, over.min(away)) * share / 1_000_000;
            }
        }
        let price = self.prices.of(Kind::Timer, away, slower.timer);
        self.cell(slot, wait, away, price, packets, late, slower)
    }

    /// A wait until the next frame, after a silence.
    fn block(&self, wait: u64, slower: Slower) -> Cell {
        let atoms = self.lateness(Kind::Device, wait).scaled(slower.device);
        let service = self.service * slower.work / SAME;
        let packets = 1_000_000 + self.gaps.follow(atoms.mean);
        let mut late = 0;
        for (at, share) in atoms.at.iter().zip(SHARE_PPM) {
            let over = (at + service).saturating_sub(self.target);
            if over > 0 {
                late += (1_000_000 + self.gaps.follow(over)) * share / 1_000_000;
            }
        }
        let away = wait + atoms.mean;
        let price = self.prices.of(Kind::Device, away, slower.device);
        self.cell(BLOCK, wait, away, price, packets, late, slower)
    }

    #[expect(clippy::too_many_arguments)] // what a cell is made of
    fn cell(&self, slot: usize, wait: u64, away: u64, price: u64, packets: u64, late: u64, slower: Slower) -> Cell {
        let work = (u128::from(packets) * u128::from(self.work * slower.work / SAME) / 1_000_000) as u64;
        // What was seen is of this frequency.
        let late = if slower == Slower::NOT { self.corrected(slot, packets, late) } else { late };
        Cell { wait, lasts: away + work, costs: price + work, weight: self.weight(late) }
    }

    /// How long a sleep is that ends in time although it ends later than usual.
    fn wait_for(&self, slot: usize, slower: Slower) -> u64 {
        let budget = self.target.saturating_sub(self.service * slower.work / SAME);
        let bounded = |wait: u64, late: u64| wait.min(self.longest).min(self.ring.saturating_sub(late));
        match slot {
            // The lateness depends on the class, the class on the sleep, and the sleep on the lateness.
            0..PARTS => {
                let late = |wait: u64| self.lateness(Kind::Timer, wait).scaled(slower.timer);
                let first = budget.saturating_sub(late(budget).at[slot]);
                let atoms = late(first);
                bounded(budget.saturating_sub(atoms.at[slot]), atoms.at[PARTS - 2])
            }
            slot => {
                let wait = budget >> (slot - PARTS + 1);
                bounded(wait, self.lateness(Kind::Timer, wait).at[PARTS - 2])
            }
        }
    }

    /// Whether the ring, and not the goal, cut a sleep of this length.
    pub(super) fn is_cut(&self, wait: u64) -> bool {
        wait + self.lateness(Kind::Timer, wait).at[PARTS - 2] >= self.ring
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

    /// The same, with what is doubted.
    fn hopeful(&self, octave: usize, slot: usize) -> Cell {
        let cell = self.work_out(octave, slot, Slower::NOT);
        Cell { weight: cell.weight >> self.doubts[slot], ..cell }
    }

    /// The candidates after a silence of this octave. One of them is worked out anew now and then.
    #[inline]
    pub(super) fn row(&mut self, octave: usize) -> &[Cell; SLEEPS + 1] {
        self.last = octave;
        let Row { next, learned, .. } = self.rows[octave];
        match next {
            Some(_) if self.learned.wrapping_sub(learned) < STALE => {}
            Some(slot) => {
                let cell = self.hopeful(octave, slot);
                let row = &mut self.rows[octave];
                row.cells[slot] = cell;
                row.next = Some((slot + 1) % (SLEEPS + 1));
                row.learned = self.learned;
            }
            None => self.fill(octave),
        }
        &self.rows[octave].cells
    }

    #[cold]
    fn fill(&mut self, octave: usize) {
        let cells = core::array::from_fn(|slot| self.hopeful(octave, slot));
        self.rows[octave] = Row { cells, next: Some(0), learned: self.learned };
    }

    /// Works everything out anew when it is asked for next.
    pub(super) fn forget(&mut self) {
        self.rows.iter_mut().for_each(|row| row.next = None);
        self.forecast = None;
    }

    /// The waits for an arrival that is about `ahead` away.
    pub(super) fn forecast(&mut self, ahead: u64) -> &Forecast {
        let stale = |learned: u32| self.learned.wrapping_sub(learned) >= 4 * STALE;
        if self.forecast.as_ref().is_none_or(|(_, learned)| stale(*learned)) {
            let atoms = *self.lateness(Kind::Timer, ahead);
            let price = self.prices.of(Kind::Timer, ahead, SAME);
            let margins = atoms.at.map(|at| at + 1_000);
            let costs = margins.map(|margin| price + margin.saturating_sub(atoms.mean));
            let weights = core::array::from_fn(|part| {
                let beyond = |at: &u64| at + self.service > self.target + margins[part];
                let late = atoms.at.iter().zip(SHARE_PPM).filter(|(at, _)| beyond(at)).map(|(_, share)| share).sum();
                self.weight(self.corrected(UNTIL, 1_000_000, late))
            });
            let block = if self.interrupts { self.block(ahead, Slower::NOT) } else { Cell::default() };
            self.forecast = Some((Forecast { margins, costs, weights, block }, self.learned));
        }
        let (forecast, _) = self.forecast.as_ref().expect("just made");
        forecast
    }

    /// What the cheapest waits cost that hold the goal, as a share of a core that polls, in 2^-16: the most, over all
    /// multipliers, of what the waits that are then chosen cost less what the allowed late packets are worth (the dual
    /// problem, whose value is that of the best mixture of waits).
    ///
    /// A silence is as long as it is; so the choices after each octave of it count for the time that it takes up.
    pub(super) fn outlook(&self, slower: Slower) -> u64 {
        /// The multiplier goes up to one, at which polling costs no more than a wait that makes as many late as are allowed.
        const STEPS: u64 = 16;
        /// A share of the time that is too small to matter, in 2^-16.
        const LITTLE: u64 = 1 << 10;
        let (mut dual, mut covered) = ([0u64; STEPS as usize + 1], 0);
        for (octave, share) in self.gaps.shares().into_iter().enumerate().filter(|(_, share)| *share >= LITTLE) {
            covered += share;
            let cells: [Cell; SLEEPS + 1] = core::array::from_fn(|slot| self.work_out(octave, slot, slower));
            for (step, sum) in (0..).zip(&mut dual) {
                let rate = |cell: &Cell| {
                    let costs = u128::from(cell.costs + cell.weight * step / STEPS) << 16;
                    u64::try_from(costs / u128::from(cell.lasts.max(1))).unwrap_or(1 << 16)
                };
                let least = cells.iter().filter(|cell| cell.wait > 0).map(rate).fold(1 << 16, u64::min);
                *sum += share * least;
            }
        }
        let value = |(step, sum): (u64, u64)| (sum / covered.max(1)).saturating_sub((step << 16) / STEPS);
        if covered == 0 {
            return 1 << 16;
        }
        (0..).zip(dual).map(value).max().unwrap_or(1 << 16)
    }
}

//! What a wait is expected to lead to: how long it lasts, what it costs, and how many packets it makes late.
//!
//! ```text
//!          ├──────────── wait ───────────┼─ lateness ─┼──────── work ────────┤
//!   sleep  packets that come early are late if the rest of the wait, the lateness and the work exceed the target
//!   block                  first packet ─┘ late if lateness and work exceed the target; so are those soon after it
//!          ├────────────────── away ──────────────────┤                      │
//!          ├────────────────────────────── lasts ────────────────────────────┤
//! ```

use super::super::choice::{BLOCK, Choice, SLEEPS};
use super::super::gaps::begins;
use super::super::math::product_over;
use super::super::prices::Kind;
use super::super::slower::{SAME, Slower};
use super::super::tail::{Atoms, PARTS};
use super::model::Model;
use super::record::{ONE, Record};

/// A busy period lasts at most this many times as long as the work that started it. Without this limit, no wait of an
/// overloaded core would ever end.
const MOST_BUSY: u64 = 64;

/// The expected result of one candidate wait.
#[derive(Clone, Copy, Debug)]
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
    pub(super) packets: u64,
    /// Whether the ring, not the goal, limited the length of the wait.
    pub(super) cut: bool,
}

impl Cell {
    /// A wait that is not possible.
    pub(super) const NONE: Self = Self { wait: 0, lasts: 0, costs: 0, weight: 0, late: 0, packets: 0, cut: false };

    /// The candidate with its late packets at their price, the multiplier (in 256ths).
    #[inline]
    pub(super) fn at_price(&self, slot: usize, multiplier: u64) -> Choice {
        let Self { wait, lasts, weight, late, cut, .. } = *self;
        let number = product_over(late, self.packets, ONE) as u64;
        Choice { slot, wait, costs: self.costs + weight * multiplier / 256, lasts, late, number, weight, cut }
    }
}

/// A wait before the work on its packets.
struct Away {
    wait: u64,
    /// The wait and its lateness, in nanoseconds.
    lasts: u64,
    /// What it costs, in nanoseconds of a polling core.
    costs: u64,
    /// Number of packets that come meanwhile, and how many of these are late, in millionths of a packet.
    packets: u64,
    late: u64,
}

impl Model {
    /// The candidate with the number `slot`, a sleep or the block, after a silence of one octave.
    pub(super) fn candidate(&self, octave: usize, slot: usize, slower: Slower) -> Cell {
        let silence = begins(octave);
        if slot < SLEEPS {
            self.sleep(slot, silence, self.wait_for(slot, slower), slower)
        } else if self.interrupts {
            self.block(self.gaps.residual(silence), slower)
        } else {
            Cell::NONE
        }
    }

    /// The candidate for a timed sleep of length `wait` after a silence of length `silence`.
    pub(super) fn sleep(&self, slot: usize, silence: u64, wait: u64, slower: Slower) -> Cell {
        self.sleep_held(slot, silence, wait, self.hold, slower)
    }

    /// The same with a hold-off of `hold` nanoseconds.
    pub(super) fn sleep_held(&self, slot: usize, silence: u64, wait: u64, hold: u64, slower: Slower) -> Cell {
        if wait == 0 {
            return Cell::NONE;
        }
        let lateness = self.lateness.of(Kind::Timer, wait);
        let cut = wait + lateness.at[PARTS - 2] >= self.ring;
        let atoms = lateness.scaled(slower.timer);
        let service = self.service * slower.work / SAME;
        let lasts = wait + atoms.mean;
        let packets = self.gaps.expected(silence, lasts);
        let held = if self.holds_frames { hold } else { 0 };
        let mut late = 0;
        for (at, share) in atoms.all() {
            let over = (held + wait + at + service).saturating_sub(self.target);
            if over > 0 {
                late += self.gaps.expected(silence, over.min(lasts)) * share / ONE;
            }
        }
        let costs = self.prices.of(Kind::Timer, lasts, slower.timer);
        Cell { cut, ..self.cell((slot, self.seen(slot)), &Away { wait, lasts, costs, packets, late }, slower) }
    }

    /// The candidate for a block when the next frame is expected after `wait` nanoseconds.
    pub(super) fn block(&self, wait: u64, slower: Slower) -> Cell {
        self.block_held(wait, (self.hold, self.seen_of_blocks()), slower)
    }

    /// The same with a hold-off of `hold` nanoseconds. `seen` is what was observed of blocks with it.
    pub(super) fn block_held(&self, wait: u64, (hold, seen): (u64, &Record), slower: Slower) -> Cell {
        if self.cannot_judge_blocks() {
            return Cell::NONE;
        }
        let wait = wait + hold;
        let atoms = self.lateness.of(Kind::Device, wait).scaled(slower.device);
        let service = self.service * slower.work / SAME;
        let packets = ONE + self.gaps.follow(hold + atoms.mean);
        let mut late = 0;
        // Late are the first packet and those that come so soon after it that they are late, too.
        let mut add = |at: u64, share: u64| {
            let over = (hold + at).saturating_sub(self.target);
            if over > 0 {
                late += (ONE + self.gaps.follow(over)) * share / ONE;
            }
        };
        if let Some(after) = self.after(wait, slower) {
            if hold > 0 {
                after.seen().for_each(|(at, share)| add(at, share));
            } else {
                let share: u64 = after.seen().filter(|(at, _)| *at > self.target).map(|(_, share)| share).sum();
                late = packets * share / ONE;
            }
        } else {
            atoms.seen().for_each(|(at, share)| add(at + service, share));
        }
        let lasts = wait + atoms.mean;
        let costs = self.prices.of(Kind::Device, lasts, slower.device);
        self.cell((BLOCK, seen), &Away { wait, lasts, costs, packets, late }, slower)
    }

    /// The number of packets in a busy period: those that have gathered, those that arrive while the first ones are
    /// served, and so on until none is left (L. Kleinrock, "Queueing Systems", volume 1, 1975, section 5.8). Delays
    /// fall only as fast as the queue empties, so the number of late packets grows by the same factor.
    fn until_drained(&self, packets: u64, each: u64) -> u64 {
        let gap = self.gaps.mean();
        let rest = gap.saturating_sub(each).max(gap / MOST_BUSY).max(1);
        product_over(packets, gap, rest) as u64
    }

    /// Adds the work on the packets, and corrects the late ones by what was `seen` of the candidate.
    fn cell(&self, (slot, seen): (usize, &Record), away: &Away, slower: Slower) -> Cell {
        let each = self.work * slower.work / SAME;
        let late = self.until_drained(away.late, each.max(self.spacing)).min(self.until_drained(away.packets, each));
        let packets = self.until_drained(away.packets, each);
        let work = product_over(packets, each, ONE) as u64;
        let share = product_over(late, ONE, packets.max(1)) as u64;
        // Packets that were late against expectation came against expectation as well: they count as often as packets come
        // in the mean, also where the model expects none.
        let usual = product_over(away.lasts, ONE, self.gaps.mean().max(1)) as u64;
        let late = self.corrected((slot, seen), packets.max(usual), late, slower);
        let (lasts, costs, weight) = (away.lasts + work, away.costs + work, self.weight(late));
        Cell { wait: away.wait, lasts, costs, weight, late: share.min(ONE), packets, cut: false }
    }

    /// The longest sleep that still ends in time if it is as late as this slot allows for.
    pub(super) fn wait_for(&self, slot: usize, slower: Slower) -> u64 {
        let budget = self.target.saturating_sub(self.service * slower.work / SAME);
        let bounded = |wait: u64, late: u64| wait.min(self.longest).min(self.ring.saturating_sub(late));
        match slot {
            // The lateness depends on the class, the class on the sleep, and the sleep on the lateness: so compute it
            // twice.
            0..PARTS => {
                let late = |wait: u64| self.lateness.of(Kind::Timer, wait).scaled(slower.timer);
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
                bounded(wait, self.lateness.of(Kind::Timer, wait).scaled(slower.timer).at[PARTS - 2])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lateness::ENOUGH;
    use super::super::model::tests::{US, blocked, model};
    use super::*;
    use units::Nanos;

    #[test]
    fn a_block_is_as_late_as_packets_were_after_blocks() {
        let mut model = model();
        // By the sum of its parts it would be late: 19 us and 2 us.
        (0..100).for_each(|_| blocked(&mut model, 19 * US, 15 * US));
        assert_eq!(model.block(100 * US, Slower::NOT).late, 0);
        // Where everything takes twice as long, it is.
        let half = Slower { work: 2 * SAME, timer: 2 * SAME, device: 2 * SAME };
        assert_eq!(model.block(100 * US, half).late, ONE);
        model.change(half);
        assert_eq!(model.block(100 * US, Slower::NOT).late, ONE);
    }

    /// 10 us and 9 us are together more than 18 us, but no packet took longer than 14 us.
    #[test]
    fn a_block_of_a_new_length_is_as_late_as_those_of_the_nearest_known_one() {
        let mut model = model();
        (model.target, model.service) = (18 * US, 9 * US);
        (0..100).for_each(|_| blocked(&mut model, 10 * US, 14 * US));
        for wait in [20 * US, 100 * US, 2_000 * US] {
            assert_eq!(model.block(wait, Slower::NOT).late, 0, "{wait}");
        }
        // Longer blocks say more than shorter ones.
        for _ in 0..ENOUGH {
            model.ended(Kind::Device, 500 * US, Nanos::from_micros(30), 0);
            model.departed(Nanos::from_micros(34), Nanos::from_micros(34), Nanos::ZERO);
        }
        assert_eq!((model.block(100 * US, Slower::NOT).late, model.block(200 * US, Slower::NOT).late), (0, ONE));
    }

    /// A packet each 134 ns that takes 100 ns: after a sleep of 80 us the core works for three times as long, and not
    /// for 60 us.
    #[test]
    fn a_wait_lasts_until_what_came_during_the_work_is_served() {
        let mut model = Model::new(100 * US, 100 * US, u64::MAX, 750, true);
        (0..1_000).for_each(|_| model.gaps.add(134, 1));
        (model.service, model.work) = (2 * US, 100);
        (0..100).for_each(|_| {
            model.ended(Kind::Timer, 80 * US, Nanos::from_micros(1), 0);
            model.spent(Kind::Timer, 80 * US, 2 * US, 0);
        });
        let cell = model.sleep(0, 0, 80 * US, Slower::NOT);
        let share = cell.costs as f64 / cell.lasts as f64;
        assert!((0.74..0.80).contains(&share), "{cell:?}: {share}");
        // At two thirds of the frequency it has more to do than it can: no wait saves anything.
        let slower = Slower { work: SAME * 3 / 2, ..Slower::NOT };
        assert!(model.outlook(slower).costs > (1 << 16) * 95 / 100, "{:?}", model.outlook(slower));
    }

    /// A block that ended 160 us late says nothing against a sleep of 11 us: no idle state that is left so late is
    /// entered for that.
    #[test]
    fn a_sleep_that_was_not_tried_is_late_by_no_more_than_it_is_long() {
        let mut model = Model::new(44 * US, 50 * US, u64::MAX, 75, true);
        (0..1_000).for_each(|_| model.gaps.add(7 * US, 1));
        model.service = US;
        blocked(&mut model, 160 * US, 170 * US);
        let (half, quarter) = (SLEEPS - 2, SLEEPS - 1);
        let asleep = |model: &Model, slot: usize| model.sleep(slot, 0, model.wait_for(slot, Slower::NOT), Slower::NOT);
        assert_eq!((asleep(&model, half).weight, asleep(&model, quarter).weight), (0, 0));
        assert!(asleep(&model, half).wait > 20 * US);
        // Where each timer ends 60 us late, as in some virtual machines, one try says so of all lengths.
        model.ended(Kind::Timer, 11 * US, Nanos::from_micros(60), 0);
        assert!(asleep(&model, half).weight > 0 && asleep(&model, quarter).weight > 0);
        // One that was tried is as late as it was.
        (0..ENOUGH).for_each(|_| assert!(!model.ended(Kind::Timer, 22 * US, Nanos::from_micros(5), 0)));
        assert_eq!(asleep(&model, half).weight, 0);
    }

    /// Of sleeps nothing is known, of blocks that they end late: no sleep takes all of the ring's time, or more than
    /// its own model bears.
    #[test]
    fn a_sleep_leaves_the_ring_room_whatever_is_known() {
        for (target, ring, late) in [(240, 68, 160), (240, 68, 300), (44, 50, 30), (90, 1_000, 80)] {
            let mut model = Model::new(target * US, target * US, ring * US, 750, true);
            (0..1_000).for_each(|_| model.gaps.add(7 * US, 1));
            for tried in [None, Some(40 * US), Some(200 * US)] {
                model.ended(Kind::Device, 100 * US, Nanos::from_micros(late), 0);
                if let Some(length) = tried {
                    let mut sleeps = |_| model.ended(Kind::Timer, length, Nanos::from_micros(late), 0);
                    assert_eq!((0..ENOUGH).map(&mut sleeps).filter(|stall| *stall).count(), 0);
                }
                let twice = Slower { timer: 2 * SAME, ..Slower::NOT };
                for (slot, slower) in (0..SLEEPS).flat_map(|slot| [(slot, Slower::NOT), (slot, twice)]) {
                    let wait = model.wait_for(slot, slower);
                    let room = model.lateness.of(Kind::Timer, wait).scaled(slower.timer).at[PARTS - 2];
                    assert!(
                        wait == 0 || wait + room <= ring * US,
                        "{target} {ring} {late} {tried:?} {slot} {slower:?}: {wait} {room}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_model_that_was_wrong_is_set_right() {
        let mut model = model();
        (0..100).for_each(|_| blocked(&mut model, 30 * US, 40 * US));
        let expected = model.block(100 * US, Slower::NOT);
        assert_eq!(expected.late, ONE, "all packets");
        model.saw(BLOCK, 400, 0, 400 * expected.late);
        let corrected = model.block(100 * US, Slower::NOT);
        assert!(corrected.weight < expected.weight / 300, "{} of {}", corrected.weight, expected.weight);
        // At another frequency the model is still taken to be wrong, but not for as sure.
        model.change(Slower { work: 300, timer: 300, device: 300 });
        let elsewhere = model.block(100 * US, Slower::NOT);
        assert!(elsewhere.weight > corrected.weight && elsewhere.weight < expected.weight / 5);
    }
}

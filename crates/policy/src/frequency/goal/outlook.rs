//! Estimates what it would cost to meet the goal at each frequency.

use units::{Instant, Nanos};

use crate::frequency::PStates;
use crate::frequency::{Observation, Platform};
use crate::wait::{Adaptive, Paid, Prospect, Slower, WaitKind};

/// A new sample of lateness moves the mean by 1/`MEMORY` of the difference.
const MEMORY: u32 = 16;
/// A sample is limited to this many times the mean, so that a stall of the machine changes the mean little.
const STALL_FACTOR: u32 = 4;
/// The factor 1 in units of 1/256, in which factors are stored.
const SAME: u64 = 256;
/// Number of windows after a change of frequency before the cost of the new frequency is judged.
const SETTLES: u8 = 2;
/// A judgement based on `n` windows stays valid for `TRUSTED * n` windows, but at most for 255.
const TRUSTED: u8 = 16;
/// After a return to a frequency, an earlier judgement of it is used again for this many windows. By then, what was
/// paid no longer includes packets that were late at another frequency.
const AGAIN: u8 = 16;
/// Lower limit for the ratio of paid to expected cost, in 256ths. Estimates for other frequencies use this ratio.
const LEAST: u64 = SAME / 4;
/// Number of windows for which a failure is remembered: a frequency cost more than expected. The number doubles with
/// each further failure, up to 64 times.
const REMEMBERED: u16 = 64;
/// The cost of a core that polls all the time: a share of 1, in units of 2^-16.
const POLLS: u64 = 1 << 16;
/// A higher P-state is requested for its cost only if it was the cheapest in this many windows in a row. The known cost of
/// the current P-state fluctuates from window to window, and a needless trial of a higher one is expensive.
const HIGHER: u8 = 4;
/// Number of other frequencies that are estimated after each window, in addition to the current frequency.
const LOOKS: usize = 4;

/// The lateness of waits at each frequency used so far, and the expected cost of meeting the goal at each frequency.
#[derive(Debug)]
pub(super) struct Outlook<C> {
    /// Mean lateness at each P-state in nanoseconds: first for timed waits, then for waits that the device ends. 0 if
    /// unknown.
    late: [[u32; PStates::MOST]; 2],
    /// Expected cost at each P-state, in 2^-16 of the platform's unit of power. 0 if unknown.
    costs: [u64; PStates::MOST],
    /// For each P-state, the number of windows for which its observed cost still takes precedence over estimates made
    /// at other P-states.
    trusted: [u8; PStates::MOST],
    /// One bit per P-state: whether it was in force so long that its known cost no longer includes earlier late
    /// packets.
    judged: u64,
    /// The mean gap between packets, in nanoseconds, for which the costs were determined. If the gap changes by more
    /// than a factor of 1.5, the costs must be determined anew.
    gap: u64,
    /// The P-state to estimate next.
    next: usize,
    /// Number of windows since the last change of frequency.
    settled: u8,
    /// When the first window after the last change of frequency ended, and the totals of [`Paid`] at that time.
    since: Option<(Instant<C>, Paid)>,
    /// The expected cost of the current frequency when it was chosen; raised if the frequency turns out to cost more. 0
    /// if it was not chosen for its cost.
    hoped: u64,
    /// The known or expected cost of the previous frequency when the current one was chosen for its lower cost.
    left: u64,
    /// The highest P-state that cost far more than expected, because waits made too many packets late. Estimates for
    /// this P-state and lower ones assume polling all the time. `None` if there was no such failure.
    failed: Option<usize>,
    /// What was paid at the current frequency, relative to the expected cost of its waits without late packets, in
    /// 256ths and at most 256. Waits at other frequencies are assumed to be cheaper by the same factor. Savings from
    /// fewer late packets are left out, because they say nothing about a lower frequency.
    less: u64,
    /// The highest cost of a chosen frequency relative to its expected cost, in 256ths. Estimates for other frequencies
    /// are assumed to be wrong by the same factor.
    wrong: u64,
    /// Number of windows for which `wrong` and `failed` are still remembered.
    remembered: u16,
    /// Number of consecutive failures: frequencies that cost more than expected.
    failures: u8,
    /// Number of consecutive windows in which a higher P-state was the cheapest.
    higher: u8,
    /// How often the wait policy had changed how deep the core may idle. Another limit makes other costs.
    idle_limits: u32,
}

impl<C> Outlook<C> {
    pub(super) fn new() -> Self {
        Self {
            late: [[0; PStates::MOST]; 2],
            costs: [0; PStates::MOST],
            trusted: [0; PStates::MOST],
            judged: 0,
            gap: 0,
            next: 0,
            settled: 0,
            since: None,
            hoped: 0,
            left: 0,
            failed: None,
            less: SAME,
            wrong: SAME,
            remembered: 0,
            failures: 0,
            higher: 0,
            idle_limits: 0,
        }
    }

    /// Learns how late a wait ended at the P-state with index `state`.
    #[inline]
    pub(super) fn learn(&mut self, seen: &Observation<'_, C>, state: usize) {
        if let Some(limits) =
            seen.waiting.map(Adaptive::idle_limit_changes).filter(|limits| *limits != self.idle_limits)
        {
            let Self { wrong, remembered, failures, .. } = *self;
            *self = Self { idle_limits: limits, wrong, remembered, failures, ..Self::new() };
        }
        let Some(wait) = seen.poll.ended.as_ref().filter(|wait| wait.action.kind() != WaitKind::Pause) else { return };
        let (kind, late) = match wait.overshoot() {
            Some(late) => (0, late),
            None => {
                let first = seen.poll.queues.iter().find_map(|queue| queue.arrivals.as_ref());
                let Some(first) = first else { return };
                // A hold-off takes equally long at each frequency.
                (1, first.lateness().saturating_sub(seen.waiting.map_or(Nanos::ZERO, Adaptive::ended_hold_off)))
            }
        };
        let late = u32::try_from(late.as_nanos()).unwrap_or(u32::MAX).max(1);
        let mean = &mut self.late[kind][state];
        *mean = match *mean {
            0 => late,
            old => {
                let new = late.min(old.saturating_mul(STALL_FACTOR));
                if new > old { old + (new - old).div_ceil(MEMORY) } else { old - (old - new) / MEMORY }
            }
        };
    }

    /// Judges the cost of the current frequency and estimates a few others. Costs observed at a frequency stay valid
    /// for a while. So, while the traffic does not change, the policy finds the best frequency and tries each frequency
    /// at most once.
    pub(super) fn look(&mut self, now: Instant<C>, platform: &Platform, waiting: &Adaptive<C>, state: usize) {
        let count = platform.pstates.as_slice().len();
        let gap = waiting.mean_gap().as_nanos().max(1);
        if gap > self.gap * 3 / 2 || self.gap > gap * 3 / 2 {
            (self.gap, self.trusted, self.judged) = (gap, [0; PStates::MOST], 0);
            (self.failed, self.wrong, self.failures) = (None, SAME, 0);
        }
        for left in &mut self.trusted {
            *left = left.saturating_sub(1);
        }
        self.remembered = self.remembered.saturating_sub(1);
        if self.remembered == 0 {
            (self.failed, self.wrong) = (None, SAME);
        }
        self.settled = self.settled.saturating_add(1);
        self.judge(now, platform, waiting, state);
        for _ in 0..LOOKS.min(count - 1) {
            self.next = (self.next + 1) % count;
            if self.next == state || self.trusted[self.next] > 0 {
                continue;
            }
            let share = match self.failed {
                Some(failed) if self.next <= failed => POLLS,
                _ => {
                    let expected = waiting.outlook(self.slower(platform, state, self.next));
                    (self.share(expected) * self.wrong / SAME).min(POLLS)
                }
            };
            self.costs[self.next] = platform.power(self.next) * share;
        }
    }

    /// Sets the cost of the current frequency: the expected cost, or the paid cost if that is lower. It is not lower
    /// while the policy is still making up for earlier late packets. After [`AGAIN`] windows, a paid cost that is more
    /// than a quarter higher counts instead, if possible with late packets included.
    fn judge(&mut self, now: Instant<C>, platform: &Platform, waiting: &Adaptive<C>, state: usize) {
        let (since, then) = *self.since.get_or_insert((now, waiting.paid()));
        let span = now.since(since).unwrap_or(Nanos::ZERO);
        let much_more = |than: u64, cost: u64| cost > than.saturating_add(than / 4);
        let (paid, with_late) = waiting.paid_since(then, span);
        // What an earlier period at this frequency has shown is better known than what was learned at another frequency
        // since.
        let known = self.trusted[state] > 0 && self.settled < AGAIN;
        let least = if known {
            self.costs[state]
        } else {
            let expected = waiting.outlook(Slower::NOT);
            let share = if self.settled < SETTLES { self.share(expected) } else { self.paid(paid, expected) };
            platform.power(state) * share
        };
        let (paid, with_late) = (platform.power(state) * paid, platform.power(state) * with_late);
        // A few late packets show no share of late packets, and older late packets are made up for in the end.
        let cost = match self.settled {
            AGAIN.. if much_more(least, with_late) => with_late,
            AGAIN.. if much_more(least, paid) => paid,
            _ => least,
        };
        self.costs[state] = cost;
        if self.settled < SETTLES {
            return;
        }
        self.trusted[state] = self.trusted[state].max(self.settled.saturating_mul(TRUSTED));
        if self.settled >= AGAIN {
            self.judged |= 1u64 << state;
        }
        if self.hoped > 0 && cost > self.hoped + self.hoped / 8 {
            if much_more(self.hoped, cost) && cost > self.left && self.failed.is_none_or(|failed| failed < state) {
                self.failed = Some(state);
            }
            self.disappointed(platform, state, cost);
        }
    }

    /// Updates `less` from `paid`, the cost paid as a share of a polling core's. Returns the share to use: `paid`, but
    /// at least a quarter of the expected share and at most all of it.
    fn paid(&mut self, paid: u64, expected: Prospect) -> u64 {
        self.less = (paid.min(expected.free) * SAME / expected.free.max(1)).max(LEAST);
        paid.clamp(expected.costs * LEAST / SAME, expected.costs)
    }

    /// The expected cost as a share of a polling core's, reduced if waits have cost less than expected.
    fn share(&self, expected: Prospect) -> u64 {
        expected.free * self.less / SAME + (expected.costs - expected.free)
    }

    /// Records that the current frequency costs more than expected. Raises the estimates for all other frequencies by
    /// the same factor, unless their cost is known.
    fn disappointed(&mut self, platform: &Platform, state: usize, cost: u64) {
        let wrong = (cost.saturating_mul(SAME) / self.hoped).max(self.wrong);
        // What a short time at another frequency has shown does not outweigh what a long time at this one has shown.
        let known = if self.settled < AGAIN { u64::MAX } else { self.judged };
        for other in (0..platform.pstates.as_slice().len()).filter(|other| *other != state) {
            if self.trusted[other] == 0 || known & (1u64 << other) == 0 {
                self.costs[other] = (self.costs[other] * wrong / self.wrong).min(platform.power(other) * POLLS);
            }
        }
        self.wrong = wrong;
        self.remembered = REMEMBERED << self.failures.min(6);
        self.failures = self.failures.saturating_add(1);
        self.hoped = cost;
    }

    /// Must be called when another frequency is requested.
    pub(super) fn change(&mut self) {
        (self.settled, self.higher) = (0, 0);
        self.since = None;
        self.hoped = 0;
    }

    /// Records that P-state `state` was requested because it should cost less than P-state `before`.
    pub(super) fn hope(&mut self, before: usize, state: usize) {
        (self.left, self.hoped) = (self.costs[before], self.costs[state]);
    }

    /// Whether the current frequency has been in force for long enough to be judged.
    pub(super) fn is_settled(&self) -> bool {
        self.settled >= SETTLES
    }

    /// The cheapest P-state among `least` and all higher ones. The current P-state is kept if the best one saves too
    /// little: less than a 32nd for a lower P-state, or less than an eighth for a higher one. A higher P-state must
    /// save more, because polling there costs more if waits turn out to be worse than expected, and it must do so in
    /// [`HIGHER`] windows in a row.
    pub(super) fn cheapest(&mut self, platform: &Platform, least: usize, state: usize) -> usize {
        let known = (least..platform.pstates.as_slice().len()).filter(|at| self.costs[*at] > 0);
        let Some(best) = known.min_by_key(|at| self.costs[*at]) else { return least.max(state) };
        let more = self.costs[best] / if best > state { 8 } else { 32 };
        let stays = state >= least && self.costs[state] > 0 && self.costs[state] <= self.costs[best] + more;
        let is_higher = !stays && state >= least && best > state;
        self.higher = if is_higher { self.higher.saturating_add(1) } else { 0 };
        if stays || (is_higher && self.higher < HIGHER) { state } else { best }
    }

    /// How much longer work and wake-ups take at P-state `to` than at P-state `from`.
    pub(super) fn slower(&self, platform: &Platform, from: usize, to: usize) -> Slower {
        let states = platform.pstates.as_slice();
        let (old, new) = (states[from].as_hertz(), states[to].as_hertz());
        let scale = |time: u64, by: u64, of: u64| Nanos::from_nanos(time).scale(by, of.max(1)).as_nanos();
        let work = scale(SAME, old, new);
        let late = |kind: usize| {
            let means = &self.late[kind];
            let (now, then) = (u64::from(means[from]), u64::from(means[to]));
            if now == 0 {
                return work;
            }
            if then > 0 {
                return scale(SAME, then, now);
            }
            // Lateness has a part that does not depend on the frequency, and a part in cycles. Both follow from a
            // second P-state that was in force: the farthest one.
            let others = (0..states.len()).filter(|at| means[*at] > 0 && *at != from);
            let Some(other) = others.max_by_key(|at| states[*at].as_hertz().abs_diff(old)) else { return work };
            let (there, hertz) = (u64::from(means[other]), states[other].as_hertz());
            // now = a + b / old; there = a + b / hertz: b / old = (there - now) / (old / hertz - 1).
            let cycles = match (there >= now, old >= hertz) {
                (true, true) => scale(there - now, hertz, old - hertz),
                (false, false) => scale(now - there, hertz, hertz - old),
                _ => 0,
            };
            let cycles = cycles.min(now);
            scale(SAME, now - cycles + scale(cycles, old, new), now)
        };
        Slower { work, timer: late(0), device: late(1) }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Outlook<C> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::tests::pstates;
    use crate::wait::AdaptiveConfig;
    use units::Simulated;

    fn platform() -> Platform {
        Platform { pstates: pstates(), power: None, sequencing: Nanos::ZERO, stall: Nanos::ZERO }
    }

    fn at(window: u64) -> Instant<Simulated> {
        Instant::from_nanos(window * 10_000_000)
    }

    #[test]
    fn what_failed_at_a_frequency_is_not_tried_below_it() {
        let (platform, mut outlook) = (platform(), Outlook::<Simulated>::new());
        // Who knows nothing expects to poll.
        let waiting = Adaptive::new(AdaptiveConfig::default());
        outlook.costs = [platform.power(0) * POLLS / 4; PStates::MOST];
        outlook.hope(15, 5);
        for window in 0..u64::from(SETTLES) {
            outlook.look(at(window), &platform, &waiting, 5);
        }
        assert_eq!(outlook.failed, Some(5));
        (2..12).for_each(|window| outlook.look(at(window), &platform, &waiting, 5));
        for below in 0..5 {
            assert_eq!(outlook.costs[below], platform.power(below) * POLLS, "at {below} it would poll");
        }
        assert_eq!(outlook.wrong, 4 * SAME * platform.power(5) / platform.power(0), "so much more than was hoped");
        // Not for ever, and not if the traffic changes.
        (12..12 + u64::from(REMEMBERED)).for_each(|window| outlook.look(at(window), &platform, &waiting, 5));
        assert_eq!((outlook.failed, outlook.wrong), (None, SAME));
    }

    /// The known cost of the present P-state rises for a moment.
    #[test]
    fn a_higher_frequency_is_tried_only_if_it_stays_the_cheapest() {
        let (platform, mut outlook) = (platform(), Outlook::<Simulated>::new());
        let mut cheapest = |here: u64, higher: u64, lower: u64| {
            outlook.costs = [1_000; PStates::MOST];
            (outlook.costs[3], outlook.costs[7], outlook.costs[12]) = (lower, here, higher);
            outlook.cheapest(&platform, 0, 7)
        };
        for _ in 0..3 {
            (1..HIGHER).for_each(|_| assert_eq!(cheapest(800, 500, 900), 7));
            assert_eq!(cheapest(520, 500, 900), 7, "nearly as cheap");
        }
        assert_eq!(cheapest(800, 900, 500), 3, "a lower one at once");
        (1..HIGHER).for_each(|_| assert_eq!(cheapest(800, 500, 900), 7));
        assert_eq!(cheapest(800, 500, 900), 12);
    }

    #[test]
    fn what_costs_more_than_hoped_but_less_than_before_has_not_failed() {
        let (platform, mut outlook) = (platform(), Outlook::<Simulated>::new());
        let waiting = Adaptive::new(AdaptiveConfig::default());
        outlook.costs = [platform.power(0) * POLLS / 4; PStates::MOST];
        // A core that polls at state 5 costs less than what was paid at 14.
        outlook.costs[14] = platform.power(14) * POLLS;
        outlook.hope(14, 5);
        (0..u64::from(SETTLES)).for_each(|window| outlook.look(at(window), &platform, &waiting, 5));
        assert_eq!(outlook.failed, None);
        assert!(outlook.wrong > SAME, "but it was not what was hoped for");
    }

    #[test]
    fn only_a_long_look_counts_against_a_short_one() {
        let (platform, waiting) = (platform(), Adaptive::new(AdaptiveConfig::default()));
        let disappointed = |windows: u64, judged: u64| {
            let mut outlook = Outlook::<Simulated>::new();
            outlook.costs = [platform.power(0) * POLLS / 16; PStates::MOST];
            outlook.trusted = [255; PStates::MOST];
            outlook.trusted[5] = 0;
            outlook.judged = judged;
            outlook.gap = waiting.mean_gap().as_nanos();
            outlook.hope(14, 5);
            let before = outlook.costs[10];
            for window in 0..windows {
                // All went as hoped, but for the last look.
                let last = window + 1 == windows;
                let hoped = platform.power(5) * POLLS / if last { 16 } else { 1 };
                (outlook.hoped, outlook.wrong) = (hoped, SAME);
                outlook.look(at(window), &platform, &waiting, 5);
            }
            outlook.costs[10] > before
        };
        assert!(!disappointed(u64::from(AGAIN) - 1, 0), "it was seen for as short a time");
        assert!(disappointed(u64::from(AGAIN) + 1, 0));
        assert!(!disappointed(u64::from(AGAIN) + 1, 1 << 10), "what was seen for long stands");
    }

    /// Half of what the waits should cost was paid. At a lower frequency they may cost half as well; that packets would
    /// be late there stays so.
    #[test]
    fn what_fewer_late_packets_save_is_not_expected_elsewhere() {
        let mut outlook = Outlook::<Simulated>::new();
        outlook.less = SAME / 2;
        let share = |costs, free| outlook.share(Prospect { costs: POLLS / 8 * costs, free: POLLS / 8 * free });
        assert_eq!((share(2, 2), share(8, 2), share(8, 8)), (POLLS / 8, POLLS / 8 * 7, POLLS / 2));
    }

    /// Waits should cost half of a polling core, and all of it with the late packets.
    #[test]
    fn waits_are_cheaper_than_expected_only_if_less_was_paid_than_they_cost_without_late_packets() {
        let expected = Prospect { costs: POLLS, free: POLLS / 2 };
        let after = |paid: u64| {
            let mut outlook = Outlook::<Simulated>::new();
            (outlook.paid(paid, expected), outlook.less)
        };
        assert_eq!(after(POLLS / 2), (POLLS / 2, SAME), "no packet was late, and the waits cost what they should");
        assert_eq!(after(POLLS / 8 * 3), (POLLS / 8 * 3, SAME / 4 * 3), "the waits cost less");
        assert_eq!(after(2 * POLLS), (POLLS, SAME), "older debts are paid");
        assert_eq!(after(0), (POLLS / 4, LEAST), "a short time shows little");
    }

    #[test]
    fn a_part_of_the_way_back_does_not_depend_on_the_frequency() {
        let (platform, mut outlook) = (platform(), Outlook::<Simulated>::new());
        // 4 us, and 8,800 cycles: 4 us at 2.2 GHz, 11 us at 800 MHz.
        (outlook.late[0][14], outlook.late[0][0]) = (8_000, 15_000);
        assert_eq!(outlook.slower(&platform, 14, 0), Slower { work: 704, timer: 480, device: 704 });
        // At 1.1 GHz: 4 us and 8 us.
        assert_eq!(outlook.slower(&platform, 14, 3).timer, 384);
    }

    #[test]
    fn a_little_less_is_no_reason_for_a_change() {
        let (platform, mut outlook) = (platform(), Outlook::<Simulated>::new());
        (outlook.costs[3], outlook.costs[7]) = (1_000_000, 900_000);
        assert_eq!(outlook.cheapest(&platform, 0, 3), 3);
        outlook.costs[7] = 880_000;
        (1..HIGHER).for_each(|_| assert_eq!(outlook.cheapest(&platform, 0, 3), 3));
        assert_eq!(outlook.cheapest(&platform, 0, 3), 7);
        (outlook.costs[3], outlook.costs[7]) = (990_000, 1_000_000);
        assert_eq!(outlook.cheapest(&platform, 0, 7), 7);
        outlook.costs[3] = 960_000;
        assert_eq!(outlook.cheapest(&platform, 0, 7), 3);
        assert_eq!(outlook.cheapest(&platform, 8, 3), 8, "what does not suffice is no candidate");
    }
}

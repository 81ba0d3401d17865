//! The frequency scheme of DPDK's l3fwd-power, reproduced from outside the loop.

use units::{Hertz, Instant, Nanos};

use super::{Decision, Occupancy, OutsidePolicy, Reason, Sample};
use crate::frequency::PStates;

// Source of the constants: DPDK `examples/l3fwd-power/main.c`, in the same version as for the policy inside the loop
// (`policy::frequency::L3fwdPower`).

/// Frames in a full burst, `MAX_PKT_BURST`.
const BURST: u64 = 32;
/// Thresholds for the number of frames per poll: above the first, the policy requests the highest frequency; above the
/// second, it adds 100 to the trend; above the third, it adds 1. `FREQ_GEAR3_RX_PACKET_THRESHOLD` to
/// `FREQ_GEAR1_RX_PACKET_THRESHOLD`.
const GEARS: [u64; 3] = [3 * BURST, 2 * BURST, BURST];
/// Trend added per poll above the second threshold (`FREQ_UP_TREND2_ACC`). `TREND_1` and `UP_ABOVE` are DPDK's
/// `FREQ_UP_TREND1_ACC` and `FREQ_UP_THRESHOLD`.
const TREND_2: u64 = 100;
const TREND_1: u64 = 1;
const UP_ABOVE: u64 = 10_000;
/// Period after which the frequency may fall: `TIMER_NUMBER_PER_SECOND` is 10.
const PERIOD: Nanos = Nanos::from_millis(100);
/// The frequency falls if the core slept for at least `1 / SLEPT_PART` of the period:
/// `SCALING_DOWN_TIME_RATIO_THRESHOLD` is 0.25.
const SLEPT_PART: u64 = 4;

/// The legacy mode of l3fwd-power, as far as it can be reproduced from outside the loop.
///
/// ```text
///   each span, frames a poll that found some:   > 96 ──► to the highest
///                                               > 64 ──► trend + 100 a poll ┐ above 10,000:
///                                               > 32 ──► trend + 1 a poll   ┘ a step up
///   each 100 ms:   slept a quarter of it or more ────────► a step down
///                  or less than 32 frames a poll ────────► a step down
/// ```
/// l3fwd-power compares its gears with the frames that a burst *left* in the queue, which cannot be seen from outside.
/// Instead, this policy uses the mean number of frames per poll. So it never requests a higher frequency for a loop
/// whose bursts have at most 32 frames; Apus's own bursts are larger. Everything else is as in DPDK, which also slows a
/// core down until it is saturated.
#[derive(Clone, Copy, Debug)]
pub struct L3fwdPower<C> {
    pstates: PStates,
    requested: Hertz,
    trend: u64,
    slept: Nanos,
    packets: u64,
    polls: u64,
    began: Option<Instant<C>>,
}

impl<C> L3fwdPower<C> {
    /// Creates a policy that starts at the highest frequency, as `rte_power_init()` does.
    pub fn new(pstates: PStates) -> Self {
        let requested = pstates.highest();
        Self { pstates, requested, trend: 0, slept: Nanos::ZERO, packets: 0, polls: 0, began: None }
    }
}

impl<C> OutsidePolicy<C> for L3fwdPower<C> {
    fn requested(&self) -> Hertz {
        self.requested
    }

    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        let before = self.requested;
        let (Some(packets), Some(polls)) = (sample.packets, sample.polls) else {
            self.requested = self.pstates.highest();
            let request = (self.requested != before).then_some(self.requested);
            return Decision { request, reason: Reason::Unsure };
        };
        let mut reason = Reason::Steady;
        self.slept += sample.slept.unwrap_or(Nanos::ZERO);
        self.packets = self.packets.saturating_add(packets);
        self.polls = self.polls.saturating_add(polls.all);
        let began = *self.began.get_or_insert(sample.now);
        let span = sample.now.since(began).unwrap_or(Nanos::ZERO);
        if span >= PERIOD {
            let slept = self.slept * SLEPT_PART >= span;
            let few = self.packets.checked_div(self.polls).is_none_or(|mean| mean < BURST);
            (self.slept, self.packets, self.polls, self.began) = (Nanos::ZERO, 0, 0, Some(sample.now));
            if slept || few {
                self.requested = self.pstates.down(self.requested);
                reason = Reason::LessLoad;
            }
        }
        let full = polls.all.saturating_sub(polls.empty);
        let mean = packets.checked_div(full).unwrap_or(0);
        if mean > GEARS[0] {
            (self.trend, self.requested, reason) = (0, self.pstates.highest(), Reason::Load);
        } else if mean > GEARS[1] {
            self.trend = self.trend.saturating_add(TREND_2.saturating_mul(full));
        } else if mean > GEARS[2] {
            self.trend = self.trend.saturating_add(TREND_1.saturating_mul(full));
        }
        if self.trend > UP_ABOVE {
            (self.trend, self.requested, reason) = (0, self.pstates.up(self.requested), Reason::Load);
        }
        // A loop that reports nothing does not count as idle.
        if matches!(sample.occupancy, Occupancy::Unsure(_)) && polls.all == 0 && sample.slept.is_none() {
            (self.requested, reason) = (self.pstates.highest(), Reason::Unsure);
        }
        let request = (self.requested != before).then_some(self.requested);
        Decision { request, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::outside::Polls;
    use crate::frequency::outside::tests::{mhz, pstates, sample};

    fn seen(policy: &mut L3fwdPower<units::Simulated>, at_ms: u64, packets: u64, polls: (u64, u64)) -> Decision {
        let polls = Some(Polls { all: polls.0, empty: polls.1 });
        policy.decide(&Sample {
            packets: Some(packets),
            polls,
            slept: Some(Nanos::ZERO),
            ..sample(at_ms, mhz(3_000), 0)
        })
    }

    #[test]
    fn a_step_down_each_100_ms_unless_polls_are_full_bursts() {
        let mut policy = L3fwdPower::new(pstates());
        for at in (0..100).step_by(10) {
            assert_eq!(seen(&mut policy, at, 3_100, (100, 0)).request, None);
        }
        assert_eq!(seen(&mut policy, 100, 3_100, (100, 0)).request, Some(mhz(2_600)));
        for at in (110..=300).step_by(10) {
            assert_eq!(seen(&mut policy, at, 3_200, (100, 0)).request, None, "{at}");
        }
    }

    #[test]
    fn long_queues_go_up() {
        let mut policy = L3fwdPower::new(pstates());
        policy.requested = mhz(800);
        assert_eq!(seen(&mut policy, 10, 97 * 10, (10, 0)).request, Some(mhz(3_000)));
        policy.requested = mhz(800);
        // 100 a poll: the step comes after more than 100 polls.
        assert_eq!(seen(&mut policy, 20, 65 * 100, (100, 0)).request, None);
        assert_eq!(seen(&mut policy, 30, 65, (1, 0)).request, Some(mhz(1_200)));
    }

    #[test]
    fn what_slept_a_quarter_of_the_time_slows_down() {
        let mut policy = L3fwdPower::new(pstates());
        let polls = Some(Polls { all: 10, empty: 0 });
        let full = |at_ms, slept_us| Sample {
            packets: Some(320),
            polls,
            slept: Some(Nanos::from_micros(slept_us)),
            ..sample(at_ms, mhz(3_000), 0)
        };
        policy.decide(&full(0, 0));
        assert_eq!(policy.decide(&full(100, 24_999)).request, None);
        assert_eq!(policy.decide(&full(200, 25_000)).request, Some(mhz(2_600)));
    }
}

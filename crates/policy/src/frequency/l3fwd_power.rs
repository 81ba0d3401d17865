//! The frequency scheme of DPDK's l3fwd-power.

use units::{Hertz, Instant, Nanos};

use super::{Decision, FrequencyPolicy, Observation, PStates, Reason};
use crate::wait::{Action as Wait, Queue};

// Source of the constants and rules below: DPDK `examples/l3fwd-power/main.c` (constants as of 38f72e500b, 2026-07; the
// loop as of 22.11).

/// Frames in a full burst, `MAX_PKT_BURST`.
const BURST: u32 = 32;
/// Thresholds for the number of frames left in a queue: above the first, the policy requests the highest frequency;
/// above the second, it adds 100 to the trend; above the third, it adds 1. `FREQ_GEAR3_RX_PACKET_THRESHOLD` to
/// `FREQ_GEAR1_RX_PACKET_THRESHOLD`.
const GEARS: [u32; 3] = [3 * BURST, 2 * BURST, BURST];
/// What a poll above the second threshold adds to the trend, `FREQ_UP_TREND2_ACC`.
const TREND_2: u32 = 100;
/// What a poll above the lowest threshold adds to the trend, `FREQ_UP_TREND1_ACC`.
const TREND_1: u32 = 1;
/// The trend above which the frequency rises by one step, `FREQ_UP_THRESHOLD`.
const UP_ABOVE: u32 = 10_000;
/// After more consecutive empty polls than this, a queue counts as idle (`MIN_ZERO_POLL_COUNT`). While all queues are
/// idle, no hint is applied.
const FREE_POLLS: u32 = 10;
/// Period of the timer that scales down: `TIMER_NUMBER_PER_SECOND` is 10.
const PERIOD: Nanos = Nanos::from_millis(100);
/// Number of queues that have their own hint, `MAX_RX_QUEUE_PER_LCORE`.
const MAX_QUEUES: usize = 16;
/// The frequency falls if the core slept for at least this long in one period: `SCALING_DOWN_TIME_RATIO_THRESHOLD` is
/// 0.25 of `SCALING_PERIOD`.
const SLEPT: Nanos = Nanos::from_millis(25);

/// The legacy mode of l3fwd-power, reproduced with its quirks.
///
/// ```text
///   after a poll, per queue with frames:   count > 96 ──► to the highest
///                                          count > 64 ──► trend + 100 ┐ above 10,000:
///                                          count > 32 ──► trend + 1   ┘ a step up
///   each 100 ms:   slept 25 ms or more  ────────────────► a step down
///                  or less than 32 frames an iteration ─► a step down
/// ```
/// Quirks that the diagram does not show are reproduced as well. A queue's hint stays until its next frame. Time
/// blocked in `epoll_wait` does not count as slept, because the loop skips the statement that adds it. The poll after
/// such a block does not count as an iteration and does not check the timer. The second condition for a step down holds
/// unless *every* poll returned a full burst; so, with one queue, the frequency falls whenever the core is not
/// saturated.
///
/// A queue's count is what `rte_eth_rx_queue_count` returns after the burst: the ring's fill minus the frames received.
/// Time slept is the sum of the 1 us spins ([`Wait::Pause`]) that [`Hybrid300`](crate::wait::Hybrid300) requests.
#[derive(Debug)]
pub struct L3fwdPower<C> {
    pstates: PStates,
    requested: Hertz,
    /// One hint per queue. All queues from number `MAX_QUEUES - 1` on share the last hint.
    hints: [Hint; MAX_QUEUES],
    empty_polls: [u32; MAX_QUEUES],
    trend: u32,
    slept: Nanos,
    received: u64,
    iterations: u64,
    /// When the timer fires next. `None` before the first poll.
    timer: Option<Instant<C>>,
}

/// The values of `enum freq_scale_hint_t` that are used here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Hint {
    Current,
    Higher,
    Highest,
}

impl<C> L3fwdPower<C> {
    /// Starts at the highest frequency, as `rte_power_init()` does (`drivers/power/acpi/acpi_cpufreq.c`: "Set freq to
    /// max by default").
    pub fn new(pstates: PStates) -> Self {
        Self {
            pstates,
            requested: pstates.highest(),
            hints: [Hint::Current; MAX_QUEUES],
            empty_polls: [0; MAX_QUEUES],
            trend: 0,
            slept: Nanos::ZERO,
            received: 0,
            iterations: 0,
            timer: None,
        }
    }

    /// Reimplements DPDK's `power_freq_scaleup_heuristic()`.
    fn hint(&mut self, queue: &Queue<C>) -> Hint {
        let count = queue.fill.saturating_sub(queue.received);
        if count > GEARS[0] {
            self.trend = 0;
            return Hint::Highest;
        }
        if count > GEARS[1] {
            self.trend += TREND_2;
        } else if count > GEARS[2] {
            self.trend += TREND_1;
        }
        if self.trend > UP_ABOVE {
            self.trend = 0;
            return Hint::Higher;
        }
        Hint::Current
    }

    /// Reimplements DPDK's `power_timer_cb()`. Returns whether the frequency falls. Called at the start of an
    /// iteration, which has already been counted.
    fn period_ends(&mut self) -> bool {
        let slept = self.slept >= SLEPT;
        let few = self.received.checked_div(self.iterations).is_none_or(|mean| mean < u64::from(BURST));
        (self.slept, self.received, self.iterations) = (Nanos::ZERO, 0, 0);
        slept || few
    }
}

impl<C> FrequencyPolicy<C> for L3fwdPower<C> {
    fn requested(&self) -> Hertz {
        self.requested
    }

    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision {
        let before = self.requested;
        let mut reason = Reason::Steady;
        let after = seen.poll.ended.as_ref().map(|wait| wait.action);
        if let Some(Wait::Pause(span)) = after {
            self.slept += span;
        }
        if !matches!(after, Some(Wait::SleepUntil(_) | Wait::BlockUntil(_))) {
            self.iterations += 1;
            let timer = *self.timer.get_or_insert(seen.poll.now + PERIOD);
            if seen.poll.now >= timer {
                self.timer = Some(seen.poll.now + PERIOD);
                if self.period_ends() {
                    self.requested = self.pstates.down(self.requested);
                    reason = Reason::LessLoad;
                }
            }
        }
        let mut idle = 0;
        for (index, queue) in seen.poll.queues.iter().enumerate() {
            let index = index.min(MAX_QUEUES - 1);
            self.received += u64::from(queue.received);
            if queue.received > 0 {
                self.empty_polls[index] = 0;
                self.hints[index] = self.hint(queue);
            } else {
                self.empty_polls[index] = self.empty_polls[index].saturating_add(1);
                idle += usize::from(self.empty_polls[index] > FREE_POLLS);
            }
        }
        if idle < seen.poll.queues.len() {
            let queues = seen.poll.queues.len().min(MAX_QUEUES);
            match self.hints[..queues].iter().max() {
                Some(Hint::Highest) => self.requested = self.pstates.highest(),
                Some(Hint::Higher) => self.requested = self.pstates.up(self.requested),
                Some(Hint::Current) | None => {}
            }
            if self.requested > before {
                reason = Reason::QueueFill;
            }
        }
        if self.requested == before { Decision::keep(reason) } else { Decision::request(self.requested, reason) }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for L3fwdPower<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for L3fwdPower<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::Action;
    use crate::frequency::tests::{MHZ, poll, poll_after, pstates};
    use crate::wait::Ended;
    use units::Simulated;

    const MS: u64 = 1_000_000;

    fn policy() -> L3fwdPower<Simulated> {
        L3fwdPower::new(pstates())
    }

    fn megahertz(n: u64) -> Action {
        Action::Request(Hertz::new(n * MHZ))
    }

    #[test]
    fn a_step_down_each_100_ms_unless_every_poll_is_a_full_burst() {
        let mut policy = policy();
        assert_eq!(poll(&mut policy, 0, &[(31, 31)]).action, Action::Keep);
        assert_eq!(poll(&mut policy, 99 * MS, &[(32, 32)]).action, Action::Keep);
        assert_eq!(poll(&mut policy, 100 * MS, &[(32, 32)]).action, megahertz(2_100));
        // The poll in which the timer fires counts as an iteration before, its frames after.
        assert_eq!(poll(&mut policy, 200 * MS, &[(32, 32)]).action, Action::Keep);
        assert_eq!(poll(&mut policy, 250 * MS, &[(0, 0)]).action, Action::Keep);
        assert_eq!(poll(&mut policy, 300 * MS, &[(32, 32)]).action, megahertz(2_000));
    }

    #[test]
    fn more_than_96_frames_left_mean_the_highest() {
        let mut policy = policy();
        policy.requested = Hertz::new(800 * MHZ);
        assert_eq!(poll(&mut policy, 0, &[(32, 128)]).action, Action::Keep);
        assert_eq!(poll(&mut policy, 0, &[(32, 129)]).action, megahertz(2_200));
    }

    #[test]
    fn the_trend_goes_up_a_step() {
        let mut policy = policy();
        policy.requested = Hertz::new(800 * MHZ);
        for _ in 0..100 {
            assert_eq!(poll(&mut policy, 0, &[(32, 97)]).action, Action::Keep);
        }
        assert_eq!(poll(&mut policy, 0, &[(32, 65)]).action, megahertz(900));
        assert_eq!(policy.trend, 0);
    }

    #[test]
    fn a_hint_stays_while_the_queue_is_empty_for_ten_polls() {
        let mut policy = policy();
        policy.requested = Hertz::new(800 * MHZ);
        poll(&mut policy, 0, &[(32, 200)]);
        policy.requested = Hertz::new(800 * MHZ);
        for _ in 0..10 {
            assert_eq!(poll(&mut policy, 0, &[(0, 0)]).action, megahertz(2_200));
            policy.requested = Hertz::new(800 * MHZ);
        }
        assert_eq!(poll(&mut policy, 0, &[(0, 0)]).action, Action::Keep);
    }

    #[test]
    fn spins_are_sleep_and_blocks_are_not() {
        let at = |ns| Instant::<Simulated>::from_nanos(ns);
        let ended = |action| Some(Ended { action, began: at(0), ended: at(0), spent: None, idle: Nanos::ZERO });
        let (mut spun, mut blocked) = (policy(), policy());
        for n in 0..25_000u64 {
            poll_after(&mut spun, n, &[(32, 32)], ended(Wait::Pause(Nanos::from_micros(1))));
            poll_after(&mut blocked, n, &[(32, 32)], ended(Wait::BlockUntil(None)));
        }
        assert_eq!((spun.slept, blocked.slept), (SLEPT, Nanos::ZERO));
        assert_eq!(poll(&mut spun, 100 * MS, &[(32, 32)]).action, megahertz(2_100));
        // No iteration yet, and so no timer.
        assert_eq!((blocked.iterations, blocked.timer), (0, None));
        poll(&mut blocked, 100 * MS, &[(32, 32)]);
        assert_eq!(blocked.timer, Some(at(200 * MS)));
    }
}

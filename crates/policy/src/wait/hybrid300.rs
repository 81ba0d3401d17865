//! The poll, pause, interrupt scheme of DPDK's l3fwd-power.

use units::Nanos;

use super::{Action, Decision, Observation, Reason, WaitPolicy};

/// Number of empty polls of a queue before the first wait: `MIN_ZERO_POLL_COUNT`. Source: DPDK
/// `examples/l3fwd-power/main.c` (38f72e500b, 2026-07), `power_idle_heuristic()`.
const FREE_POLLS: u32 = 10;
/// Number of empty polls after which the interrupts are armed: `SUSPEND_THRESHOLD`. Same source.
const SUSPEND_AFTER: u32 = 300;
/// Time to spin between two polls before the interrupts are armed: `MINIMUM_SLEEP_TIME`. Same source.
const SPIN: Nanos = Nanos::from_micros(1);
/// The longest time for which `epoll_wait` blocks, from `sleep_until_rx_interrupt()`. Same source.
const TIMEOUT: Nanos = Nanos::from_millis(10);

/// The idle loop of l3fwd-power in its legacy and interrupt-only modes. Unlike l3fwd-power, it polls once more after
/// arming the interrupts, because [`Action::BlockUntil`] always does.
///
/// ```text
///   frames of any queue ──► its count = 0                 counts are a queue's own;
///   count < 10  ──► poll                                  the worker takes the shortest wait
///   count < 300 ──► spin 1 us                             and acts only if all are idle
///   else        ──► arm, check, block up to 10 ms; then poll on (counts stay)
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hybrid300 {
    empty_polls: [u32; Self::MAX_QUEUES],
}

impl Hybrid300 {
    /// Number of queues that have their own count, l3fwd-power's `MAX_RX_QUEUE_PER_LCORE`. Queues past the end share
    /// the last count.
    pub const MAX_QUEUES: usize = 16;

    /// Creates a policy that has seen no empty poll yet.
    pub const fn new() -> Self {
        Self { empty_polls: [0; Self::MAX_QUEUES] }
    }
}

impl Default for Hybrid300 {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> WaitPolicy<C> for Hybrid300 {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        let mut least = u32::MAX;
        for (index, queue) in seen.queues.iter().enumerate() {
            let count = &mut self.empty_polls[index.min(Self::MAX_QUEUES - 1)];
            *count = if queue.received > 0 { 0 } else { count.saturating_add(1) };
            least = least.min(*count);
        }
        match least {
            0 => Decision { action: Action::Poll, reason: Reason::Traffic },
            1..=FREE_POLLS => Decision { action: Action::Poll, reason: Reason::Fixed },
            n if n < SUSPEND_AFTER => Decision { action: Action::Pause(SPIN), reason: Reason::Fixed },
            _ => Decision { action: Action::BlockUntil(Some(seen.now + TIMEOUT)), reason: Reason::Fixed },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::tests::{empty, frames};

    #[test]
    fn ten_free_polls_then_spins_then_the_interrupt() {
        let mut policy = Hybrid300::new();
        for _ in 0..10 {
            assert_eq!(empty(&mut policy, 0).action, Action::Poll);
        }
        for _ in 10..299 {
            assert_eq!(empty(&mut policy, 0).action, Action::Pause(SPIN));
        }
        let block = Action::BlockUntil(Some(units::Instant::from_nanos(10_000_000)));
        assert_eq!(empty(&mut policy, 0).action, block);
        assert_eq!(empty(&mut policy, 0).action, block);
        assert_eq!(frames(&mut policy, 0, 1).action, Action::Poll);
        assert_eq!(empty(&mut policy, 0).action, Action::Poll);
    }
}

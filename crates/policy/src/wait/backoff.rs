//! The timed sleep of OVS-DPDK.

use units::Nanos;

use super::{Action, Decision, Observation, Reason, WaitPolicy};

/// A queue is busy if it returns at least this many frames: half a batch of 32, `PMD_SLEEP_THRESH`. Source:
/// openvswitch/ovs `lib/dpif-netdev.c` (d6a632a9b, 2026-07).
const BUSY_FRAMES: u32 = 16;
/// Each iteration that is not busy lengthens the sleep by this, `PMD_SLEEP_INC_US`. Same source; 1 us since commits
/// f62629a55 and 948767a18.
const STEP: Nanos = Nanos::from_micros(1);

/// The sleep of OVS-DPDK with `pmd-sleep-max`, reproduced with its quirks.
///
/// ```text
///              a queue gave >= 16 frames: sleep = 0
///            ┌──────────────────────────────────────┐
///            ▼                                      │
///   sleep = 0, poll ── all queues gave < 16 ──► sleep += 1 us (at most max), sleep, poll
///                                                   │        ▲
///                                                   └────────┘ again < 16
/// ```
/// The core sleeps in every iteration that is not busy, even if 1 to 15 frames arrived.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    max: Nanos,
    sleep: Nanos,
}

impl Backoff {
    /// The longest maximum that OVS accepts, 10,000 us (its guide, `pmd-sleep-max`).
    pub const LONGEST_MAX: Nanos = Nanos::from_micros(10_000);

    /// Creates a policy that sleeps for at most `max`. The value 0 turns sleeping off, as in OVS. A `max` above
    /// [`Backoff::LONGEST_MAX`] is reduced to that limit.
    pub fn new(max: Nanos) -> Self {
        Self { max: max.min(Self::LONGEST_MAX), sleep: Nanos::ZERO }
    }
}

impl<C> WaitPolicy<C> for Backoff {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        if seen.queues.iter().any(|q| q.received >= BUSY_FRAMES) {
            self.sleep = Nanos::ZERO;
            return Decision { action: Action::Poll, reason: Reason::Traffic };
        }
        self.sleep = (self.sleep + STEP).min(self.max);
        if self.sleep == Nanos::ZERO {
            Decision { action: Action::Poll, reason: Reason::Fixed }
        } else {
            Decision { action: Action::SleepUntil(seen.now + self.sleep), reason: Reason::Fixed }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::tests::{empty, frames};

    #[test]
    fn grows_by_a_microsecond_to_the_maximum_and_falls_to_nothing() {
        let mut policy = Backoff::new(Nanos::from_micros(3));
        for us in [1, 2, 3, 3] {
            let decision = frames(&mut policy, 1_000, 15);
            assert_eq!(decision.action, Action::SleepUntil(units::Instant::from_nanos(1_000 + us * 1_000)));
        }
        assert_eq!(frames(&mut policy, 2_000, 16).action, Action::Poll);
        assert_eq!(empty(&mut policy, 3_000).action, Action::SleepUntil(units::Instant::from_nanos(4_000)));
    }

    #[test]
    fn a_maximum_of_nothing_is_off() {
        assert_eq!(empty(&mut Backoff::new(Nanos::ZERO), 0).action, Action::Poll);
    }
}

//! DPDK's power library, which switches between two frequencies.

use units::Hertz;

use super::{Decision, FrequencyPolicy, Observation, PStates, Reason};

/// A queue is idle after this many consecutive empty polls: `emptypoll_max`, 512 by default. Source: DPDK
/// `lib/power/rte_power_pmd_mgmt.c`, `rte_power_pmd_mgmt_set_emptypoll_max()` and the constructor, as of 108d30ab8d.
const EMPTY_POLLS: u32 = 512;

/// The `scale` mode of DPDK's `rte_power_pmd_mgmt`, reproduced with its quirks.
///
/// ```text
///              a queue gave a frame
///   MAX ◄───────────────────────────────┐
///    └── all queues empty, each more    │
///        than 512 times in a row ──► MIN┘
/// ```
/// The policy uses no frequency between these two, and has no hysteresis. While the core is idle, DPDK requests the
/// lowest frequency in every round, from the receive callback of the round's last queue. The power library drops a
/// request for the frequency that is already set, and so does this policy.
#[derive(Clone, Copy, Debug)]
pub struct TwoLevel {
    highest: Hertz,
    lowest: Hertz,
    requested: Hertz,
    /// Consecutive empty polls of each queue. Queues past the end share the last count.
    empty_polls: [u32; Self::MAX_QUEUES],
}

impl TwoLevel {
    /// Number of queues that have their own count. DPDK keeps an unbounded list.
    pub const MAX_QUEUES: usize = 16;

    /// Creates a policy that switches between the lowest and the highest of `pstates`. It starts at the highest, as
    /// `rte_power_init()` does (`drivers/power/acpi/acpi_cpufreq.c`: "Set freq to max by default").
    pub fn new(pstates: &PStates) -> Self {
        Self {
            highest: pstates.highest(),
            lowest: pstates.lowest(),
            requested: pstates.highest(),
            empty_polls: [0; Self::MAX_QUEUES],
        }
    }
}

impl<C> FrequencyPolicy<C> for TwoLevel {
    fn requested(&self) -> Hertz {
        self.requested
    }

    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision {
        let (mut traffic, mut all_idle) = (false, !seen.poll.queues.is_empty());
        for (index, queue) in seen.poll.queues.iter().enumerate() {
            let count = &mut self.empty_polls[index.min(Self::MAX_QUEUES - 1)];
            *count = if queue.received > 0 { 0 } else { count.saturating_add(1) };
            traffic |= queue.received > 0;
            all_idle &= *count > EMPTY_POLLS;
        }
        let (wanted, reason) = match (traffic, all_idle) {
            (true, _) => (self.highest, Reason::Traffic),
            (false, true) => (self.lowest, Reason::Idle),
            (false, false) => return Decision::keep(Reason::Fixed),
        };
        if wanted == self.requested {
            return Decision::keep(reason);
        }
        self.requested = wanted;
        Decision::request(wanted, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::Action;
    use crate::frequency::tests::{MHZ, poll, pstates};

    #[test]
    fn the_lowest_after_more_than_512_empty_polls_and_the_highest_at_a_frame() {
        let mut policy = TwoLevel::new(&pstates());
        assert_eq!(policy.requested, Hertz::new(2_200 * MHZ));
        for _ in 0..512 {
            assert_eq!(poll(&mut policy, 0, &[(0, 0)]).action, Action::Keep);
        }
        assert_eq!(poll(&mut policy, 0, &[(0, 0)]).action, Action::Request(Hertz::new(800 * MHZ)));
        assert_eq!(poll(&mut policy, 0, &[(0, 0)]).action, Action::Keep);
        assert_eq!(poll(&mut policy, 0, &[(1, 1)]).action, Action::Request(Hertz::new(2_200 * MHZ)));
    }

    #[test]
    fn every_queue_must_be_idle() {
        let mut policy = TwoLevel::new(&pstates());
        for round in 0..2_000 {
            let busy = u32::from(round % 512 == 0);
            assert_eq!(poll(&mut policy, 0, &[(0, 0), (busy, busy)]).action, Action::Keep, "round {round}");
        }
    }
}

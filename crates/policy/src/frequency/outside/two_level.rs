//! DPDK's power library, which switches between two frequencies, reproduced from outside the loop.

use units::{Hertz, Instant, Nanos};

use super::{Decision, Occupancy, OutsidePolicy, Reason, Sample};
use crate::frequency::PStates;

/// A queue is idle after this many consecutive empty polls: `emptypoll_max`, 512 by default (DPDK
/// `lib/power/rte_power_pmd_mgmt.c`).
const EMPTY_POLLS: u64 = 512;
/// If polls are not counted, a core is idle after this time without a packet. 512 polls of an idle queue take a few
/// tens of microseconds, which is too short to be seen from outside. This is the time of two samples.
const EMPTY_FOR: Nanos = Nanos::from_millis(20);

/// The `scale` mode of DPDK's `rte_power_pmd_mgmt`: the highest frequency as soon as a packet arrives, the lowest after
/// more than 512 consecutive empty polls.
///
/// The policy sees spans instead of single polls. Empty polls count as consecutive if no packet arrived in the span. If
/// neither packets nor polls are counted, useful work is taken as a sign of packets.
#[derive(Clone, Copy, Debug)]
pub struct TwoLevel<C> {
    highest: Hertz,
    lowest: Hertz,
    requested: Hertz,
    /// Number of empty polls since the last packet.
    empty: u64,
    /// When the last packet was seen.
    busy_at: Option<Instant<C>>,
}

impl<C> TwoLevel<C> {
    /// Creates a policy that switches between the lowest and the highest of `pstates`. It starts at the highest, as
    /// `rte_power_init()` does.
    pub fn new(pstates: &PStates) -> Self {
        let (highest, lowest) = (pstates.highest(), pstates.lowest());
        Self { highest, lowest, requested: highest, empty: 0, busy_at: None }
    }

    fn request(&mut self, wanted: Hertz, reason: Reason) -> Decision {
        if wanted == self.requested {
            return Decision::keep(reason);
        }
        self.requested = wanted;
        Decision { request: Some(wanted), reason }
    }
}

impl<C> OutsidePolicy<C> for TwoLevel<C> {
    fn requested(&self) -> Hertz {
        self.requested
    }

    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        let came = match (sample.packets, sample.occupancy) {
            (Some(packets), _) => packets > 0,
            (None, Occupancy::Share(share)) => share > 0,
            (None, Occupancy::Unsure(_)) => {
                self.busy_at = Some(sample.now);
                return self.request(self.highest, Reason::Unsure);
            }
        };
        let busy_at = *self.busy_at.get_or_insert(sample.now);
        if came {
            (self.empty, self.busy_at) = (0, Some(sample.now));
            return self.request(self.highest, Reason::Traffic);
        }
        let idle = match sample.polls {
            Some(polls) => {
                self.empty = self.empty.saturating_add(polls.empty);
                self.empty > EMPTY_POLLS
            }
            None => sample.now.since(busy_at).is_some_and(|since| since >= EMPTY_FOR),
        };
        if idle { self.request(self.lowest, Reason::Idle) } else { Decision::keep(Reason::Measuring) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::outside::tests::{mhz, pstates, sample};
    use crate::frequency::outside::{Polls, Unsure};

    #[test]
    fn the_lowest_after_512_empty_polls_and_the_highest_at_a_packet() {
        let mut policy = TwoLevel::new(&pstates());
        let mut polled = |at_ms: u64, packets: u64, empty: u64| {
            let polls = Some(Polls { all: empty + packets, empty });
            policy.decide(&Sample { packets: Some(packets), polls, ..sample(at_ms, mhz(3_000), 0) })
        };
        assert_eq!(polled(10, 0, 512).request, None);
        assert_eq!(polled(20, 0, 1), Decision { request: Some(mhz(800)), reason: Reason::Idle });
        assert_eq!(polled(30, 0, 5_000).request, None);
        assert_eq!(polled(40, 1, 5_000), Decision { request: Some(mhz(3_000)), reason: Reason::Traffic });
        assert_eq!(polled(50, 0, 512).request, None, "the count begins anew");
    }

    #[test]
    fn without_polls_time_counts_and_unsure_is_the_highest() {
        let mut policy = TwoLevel::new(&pstates());
        let seen = |at_ms: u64| Sample { packets: Some(0), ..sample(at_ms, mhz(3_000), 0) };
        assert_eq!(policy.decide(&seen(10)).request, None);
        assert_eq!(policy.decide(&seen(20)).request, None);
        assert_eq!(policy.decide(&seen(30)).request, Some(mhz(800)));
        let unsure = Sample { occupancy: Occupancy::Unsure(Unsure::Unlike), ..sample(40, mhz(800), 0) };
        assert_eq!(policy.decide(&unsure), Decision { request: Some(mhz(3_000)), reason: Reason::Unsure });
    }
}

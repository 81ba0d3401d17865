//! Computes what gaps mean for packets: how many packets a ring loses while its reader is away.

use units::{Nanos, PacketRate};

use crate::Error;
use crate::detail::jitter::Packets;

/// Packets are counted in billionths of a packet, so that a rate multiplied by nanoseconds is a whole number.
const PARTS: u128 = 1_000_000_000;

/// Assumed traffic and receive ring, for which the effect of gaps is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Rate of the evenly spaced packets. With `None`, only the highest rate without loss is computed.
    pub rate: Option<PacketRate>,
    /// Number of descriptors in the ring.
    pub ring: u32,
    /// Packets per second that the reader can process; `None` means that it empties the ring at once, the best case.
    pub capacity: Option<PacketRate>,
}

impl Default for Traffic {
    /// A ring of 1024 descriptors, as in the examples of DPDK and in many drivers.
    fn default() -> Self {
        Self { rate: None, ring: 1024, capacity: None }
    }
}

impl Traffic {
    pub(crate) fn check(&self) -> Result<(), Error> {
        match (self.rate, self.capacity) {
            _ if self.ring == 0 => Err(Error::invalid("a ring of 0 descriptors", "the ring must have at least one")),
            (None, Some(_)) => Err(Error::invalid("--capacity without --rate", "give the arrival rate with --rate")),
            (Some(rate), Some(capacity)) if capacity <= rate => Err(Error::invalid(
                format!("a reader that takes {capacity} of {rate}"),
                "it would lose packets even without a gap; --capacity must be above --rate",
            )),
            _ => Ok(()),
        }
    }
}

/// A ring whose reader is away in gaps.
///
/// ```text
///   in a gap of length g: level += rate × g; what is above the ring's size is lost
///   between gaps, r long: level −= (capacity − rate) × r, at least 0
/// ```
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    traffic: Traffic,
    level: u128,
    highest: u128,
    lost: u128,
    away: Nanos,
    longest: Nanos,
    passed: Nanos,
}

impl Backlog {
    pub(super) fn new(traffic: Traffic) -> Self {
        let zero = Nanos::ZERO;
        Self { traffic, level: 0, highest: 0, lost: 0, away: zero, longest: zero, passed: zero }
    }

    /// Records that the reader was present for `present`, and then away for `gap`.
    pub(super) fn gap(&mut self, present: Nanos, gap: Nanos) {
        self.passed += present + gap;
        self.away += gap;
        self.longest = self.longest.max(gap);
        let Some(rate) = self.traffic.rate.map(|rate| u128::from(rate.as_pps())) else { return };
        let drained = match self.traffic.capacity {
            Some(capacity) => u128::from(capacity.as_pps()).saturating_sub(rate) * u128::from(present.as_nanos()),
            None => u128::MAX,
        };
        self.level = self.level.saturating_sub(drained) + rate * u128::from(gap.as_nanos());
        self.highest = self.highest.max(self.level);
        let room = u128::from(self.traffic.ring) * PARTS;
        self.lost += self.level.saturating_sub(room);
        self.level = self.level.min(room);
    }

    /// Records that the reader was present for `present` until the end.
    pub(super) fn end(mut self, present: Nanos) -> Packets {
        self.passed += present;
        let whole = |parts: u128| u64::try_from(parts / PARTS).unwrap_or(u64::MAX);
        let rate = self.traffic.rate;
        let arrived = rate.map(|rate| u128::from(rate.as_pps()) * u128::from(self.passed.as_nanos()));
        Packets {
            ring: self.traffic.ring,
            rate_pps: rate.map(PacketRate::as_pps),
            capacity_pps: self.traffic.capacity.map(PacketRate::as_pps),
            arrived: arrived.map(whole),
            lost: rate.map(|_| whole(self.lost)),
            highest_backlog: rate.map(|_| whole(self.highest)),
            loss_free_pps: loss_free(self.traffic.ring, self.longest),
        }
    }
}

/// Highest rate at which `ring` holds all packets that arrive in `gap`; `None` without a gap.
fn loss_free(ring: u32, gap: Nanos) -> Option<u64> {
    (gap > Nanos::ZERO).then(|| (u128::from(ring) * PARTS / u128::from(gap.as_nanos())) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn traffic(rate: u64, ring: u32, capacity: Option<u64>) -> Traffic {
        Traffic { rate: Some(PacketRate::new(rate)), ring, capacity: capacity.map(PacketRate::new) }
    }
    fn us(n: u64) -> Nanos {
        Nanos::from_micros(n)
    }

    #[test]
    fn the_ring_of_the_design() {
        // 1024 frames of 1500 bytes at 40 Gbit/s take 307 us. So a gap of 300 us loses none, and a gap of 400 us loses
        // 309.
        let rate = 40_000_000_000 / (1500 * 8);
        for (gap, lost) in [(300, 0), (307, 0), (400, 309)] {
            let mut backlog = Backlog::new(traffic(rate, 1024, None));
            backlog.gap(us(1_000), us(gap));
            assert_eq!(backlog.end(us(0)).lost, Some(lost), "{gap} us");
        }
        assert_eq!(loss_free(1024, us(307)), Some(3_335_504));
    }

    #[test]
    fn a_slow_reader_has_not_recovered_when_the_next_gap_comes() {
        // 1 Mpps into 1000 descriptors, gaps of 800 us, 100 us apart.
        let run = |capacity: Option<u64>| {
            let mut backlog = Backlog::new(traffic(1_000_000, 1000, capacity));
            backlog.gap(us(0), us(800));
            backlog.gap(us(100), us(800));
            backlog.end(us(100))
        };
        assert_eq!(run(None).lost, Some(0));
        // A capacity of 2 Mpps reduces 800 packets by 100 in 100 us. So 700 + 800 - 1000 packets are lost.
        assert_eq!((run(Some(2_000_000)).lost, run(Some(2_000_000)).highest_backlog), (Some(500), Some(1500)));
        assert_eq!(run(None).arrived, Some(1800));
    }

    #[test]
    fn without_a_rate_only_the_bound_is_known() {
        let mut backlog = Backlog::new(Traffic::default());
        backlog.gap(us(10), us(64));
        let packets = backlog.end(us(1));
        assert_eq!((packets.lost, packets.arrived, packets.loss_free_pps), (None, None, Some(16_000_000)));
        assert_eq!(Backlog::new(Traffic::default()).end(us(1)).loss_free_pps, None);
    }

    #[test]
    fn refuses_what_cannot_be() {
        assert!(Traffic { ring: 0, ..Traffic::default() }.check().is_err());
        assert!(Traffic { capacity: Some(PacketRate::new(1)), ..Traffic::default() }.check().is_err());
        assert!(traffic(5, 1, Some(5)).check().is_err());
        assert!(traffic(5, 1, Some(6)).check().is_ok());
    }

    proptest! {
        /// Compares with a ring that is filled and emptied packet by packet, at 1 packet per microsecond.
        #[test]
        fn agrees_with_counting_packets(gaps in proptest::collection::vec((0u64..50, 1u64..60), 1..20), ring in 1u32..40) {
            let mut backlog = Backlog::new(traffic(1_000_000, ring, Some(3_000_000)));
            let (mut level, mut lost) = (0i64, 0i64);
            for (present, gap) in gaps {
                backlog.gap(us(present), us(gap));
                level = (level - 2 * present as i64).max(0) + gap as i64;
                lost += (level - i64::from(ring)).max(0);
                level = level.min(ring.into());
            }
            prop_assert_eq!(backlog.end(us(0)).lost, Some(lost as u64));
        }
    }
}

//! Estimates how busy a polling core is from the packets that its NIC receives.
//!
//! A polling process uses all of its CPU, whether or not it has work. Packets show more: if the process kept up with
//! `R` packets per second at a frequency `f`, a packet costs at most `f / R` cycles. This *bound* is learned from the
//! highest load that the process kept up with. If a packet costs about the same at every rate, the estimate is never
//! too low: a fraction of the highest rate seen needs the same fraction of the frequency.
//!
//! ```text
//!   LEARNING ── a stretch with packets and without loss ──► BOUNDED ── packets at most f / bound ──► a share
//!      ▲                                                      │
//!      └──────── loss at a rate that the bound says it can bear ◄┘
//! ```

use units::{Hertz, Nanos};

use super::{ONE, Occupancy, Unsure, scale};

/// A stretch consists of this many parts of length `PART`. Only the part with the fewest packets counts, because a ring
/// of a few thousand packets can hide for a while that the process does not keep up with a burst.
const PARTS: u32 = 4;
const PART: Nanos = Nanos::from_millis(50);
/// Minimum number of packets in a part, so that a single packet matters little.
const ENOUGH_PACKETS: u64 = 16;
/// After each loss that contradicts the bound, the bound grows by `1 / GROWS_BY` of its value.
const GROWS_BY: u64 = 2;

/// An upper bound for the number of cycles that a process needs per packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PacketCost {
    bound: Option<u64>,
    stretch: Stretch,
}

/// Consecutive spans at one frequency, with packets and without loss.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Stretch {
    running: u64,
    /// Length of the part that is not complete yet.
    span: Nanos,
    packets: u64,
    /// Number of complete parts, and the highest cost per packet in any of them, in cycles.
    parts: u32,
    cost: u64,
}

impl Stretch {
    /// Adds a span. Returns the cost per packet, in cycles, when the stretch is complete.
    fn add(&mut self, span: Nanos, packets: u64) -> Option<u64> {
        self.span += span;
        self.packets = self.packets.saturating_add(packets);
        if self.span < PART {
            return None;
        }
        if self.packets < ENOUGH_PACKETS {
            *self = Self { running: self.running, ..Self::default() };
            return None;
        }
        let cost = (scale(self.running, self.span.as_nanos(), 1_000_000_000) / self.packets).max(1);
        (self.span, self.packets) = (Nanos::ZERO, 0);
        (self.parts, self.cost) = (self.parts + 1, self.cost.max(cost));
        if self.parts < PARTS {
            return None;
        }
        let cost = self.cost;
        *self = Self { running: self.running, ..Self::default() };
        Some(cost)
    }
}

impl PacketCost {
    /// Creates an estimate from a known bound, in cycles per packet.
    pub fn known(cycles: u64) -> Self {
        Self { bound: Some(cycles.max(1)), stretch: Stretch::default() }
    }

    /// The learned bound, in cycles per packet. `None` if none was learned yet.
    pub fn bound(&self) -> Option<u64> {
        self.bound
    }

    /// Adds a span: the frequency in force, the packets received, and those that were lost because the core did not
    /// fetch them in time. Returns the core's occupancy.
    pub fn observe(&mut self, running: Hertz, span: Nanos, packets: u64, lost: u64) -> Occupancy {
        let hertz = running.as_hertz();
        let cycles = scale(hertz, span.as_nanos(), 1_000_000_000);
        if lost > 0 {
            self.stretch = Stretch::default();
            // According to the bound, the core could handle this rate, but it did not.
            if self.bound.is_some_and(|bound| packets.saturating_mul(bound) < cycles) {
                self.bound = self.bound.map(|bound| bound.saturating_add(bound.div_ceil(GROWS_BY)));
            }
            return Occupancy::Unsure(Unsure::Loss);
        }
        if packets == 0 {
            // Packets that were queued before are processed within the span.
            self.stretch = Stretch::default();
            return Occupancy::Share(0);
        }
        if self.stretch.running != hertz {
            self.stretch = Stretch { running: hertz, ..Stretch::default() };
        }
        if let Some(cost) = self.stretch.add(span, packets) {
            self.bound = Some(self.bound.map_or(cost, |bound| bound.min(cost)));
        }
        match self.bound {
            Some(bound) => {
                let share = scale(packets.saturating_mul(bound), u64::from(ONE), cycles);
                Occupancy::Share(u32::try_from(share).unwrap_or(ONE).min(ONE))
            }
            None => Occupancy::Unsure(Unsure::Learning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::outside::tests::mhz;
    use proptest::prelude::*;

    const SPAN: Nanos = Nanos::from_millis(10);

    fn for_spans(cost: &mut PacketCost, spans: u32, running: Hertz, packets: u64) -> Occupancy {
        (0..spans).map(|_| cost.observe(running, SPAN, packets, 0)).last().unwrap()
    }

    #[test]
    fn the_hardest_stretch_is_the_bound() {
        let mut cost = PacketCost::default();
        assert_eq!(for_spans(&mut cost, 19, mhz(3_000), 1_000), Occupancy::Unsure(Unsure::Learning));
        // 100,000 packets a second at 3 GHz: at most 30,000 cycles each. Nobody knows whether it could do more.
        assert_eq!(for_spans(&mut cost, 1, mhz(3_000), 1_000), Occupancy::Share(ONE));
        assert_eq!(cost.bound(), Some(30_000));
        assert_eq!(for_spans(&mut cost, 1, mhz(3_000), 250), Occupancy::Share(250_000));
        assert_eq!(for_spans(&mut cost, 1, mhz(1_500), 250), Occupancy::Share(500_000));
        assert_eq!(for_spans(&mut cost, 1, mhz(800), 0), Occupancy::Share(0));
        // Half the frequency bears it too: it costs half as much.
        for_spans(&mut cost, 20, mhz(1_500), 1_000);
        assert_eq!(cost.bound(), Some(15_000));
    }

    #[test]
    fn loss_is_unsure_and_raises_a_bound_that_it_contradicts() {
        let mut cost = PacketCost::known(1_000);
        assert_eq!(cost.observe(mhz(1_000), SPAN, 5_000, 1), Occupancy::Unsure(Unsure::Loss));
        assert_eq!(cost.bound(), Some(1_500), "it was to bear 10,000");
        cost.observe(mhz(1_000), SPAN, 9_000, 1);
        assert_eq!(cost.bound(), Some(1_500), "more than it was to bear");
    }

    #[test]
    fn a_short_burst_teaches_nothing() {
        let mut cost = PacketCost::default();
        for _ in 0..100 {
            for_spans(&mut cost, 10, mhz(800), 100_000);
            for_spans(&mut cost, 1, mhz(800), 0);
        }
        assert_eq!(cost.bound(), None, "a ring may have held them");
    }

    #[test]
    fn a_burst_within_a_stretch_teaches_nothing() {
        let mut cost = PacketCost::default();
        for_spans(&mut cost, 20, mhz(3_000), 100);
        assert_eq!(cost.bound(), Some(300_000));
        for _ in 0..10 {
            for_spans(&mut cost, 15, mhz(3_000), 100);
            for_spans(&mut cost, 5, mhz(3_000), 2_000);
        }
        assert_eq!(cost.bound(), Some(300_000), "a ring may have held them");
    }

    proptest! {
        /// Whatever comes: the frequency that the estimate demands never serves less than the rate that came, as long
        /// as the process kept up before.
        #[test]
        fn the_estimate_is_never_too_low(
            true_cost in 100u64..5_000,
            loads in prop::collection::vec((0u64..1_000_000, 1u32..60), 1..40),
        ) {
            let mut cost = PacketCost::default();
            for (millionths, spans) in loads {
                for _ in 0..spans {
                    // At 3 GHz, a load of this many millionths of what the process can do.
                    let packets = 30_000_000 / true_cost * millionths / 1_000_000;
                    let occupancy = cost.observe(mhz(3_000), SPAN, packets, 0);
                    if let Occupancy::Share(share) = occupancy {
                        let truly = packets * true_cost * 1_000_000 / 30_000_000;
                        prop_assert!(u64::from(share) + 1 >= truly, "{share} instead of {truly}");
                    }
                }
            }
        }
    }
}

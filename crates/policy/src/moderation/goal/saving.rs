//! How many polls a timer saves, or would save.

use units::Nanos;

use super::window::Growth;
use super::{ENOUGH_PACKETS, GoalModeration, SPARSE_PACKETS};

/// A timer that ends without an empty poll is worthwhile if it saves at least one interrupt per this many packets.
const WORTH_ONE_IN: u64 = 64;

impl<C> GoalModeration<C> {
    /// Whether the present timer saves too few interrupts.
    pub(super) fn is_pointless(&self, seen: Growth) -> bool {
        let alone = seen.packets >= SPARSE_PACKETS
            && seen.saved() == 0
            && seen.gap().is_some_and(|gap| gap >= self.timer * WORTH_ONE_IN);
        let unsaved = if self.ends_empty {
            let (polls, packets) = self.polls_without();
            u128::from(seen.events) * 2 * u128::from(packets) > u128::from(seen.packets) * u128::from(polls)
        } else {
            seen.saved() < seen.packets / WORTH_ONE_IN
        };
        alone || (seen.packets >= ENOUGH_PACKETS && unsaved)
    }

    /// Whether a timer would probably be worthwhile for packets with a mean gap of `gap`.
    pub(super) fn would_save(&self, timer: Nanos, gap: Option<Nanos>) -> bool {
        !self.ends_empty || self.would_gather(timer, gap)
    }

    /// Whether several packets would arrive within the timer, so that an attempt is promising. With Poisson arrivals,
    /// and one poll per packet without a timer, 1.5 packets per timer lead to 0.7 polls per packet, and 2.1 packets to
    /// the required 0.5. A timer for 1.5 packets is tried nevertheless, because packets also gather while polls are
    /// running.
    pub(super) fn would_gather(&self, timer: Nanos, gap: Option<Nanos>) -> bool {
        let (polls, packets) = self.polls_without();
        gap.is_some_and(|gap| timer.scale(2 * polls, packets) >= gap * 3)
    }

    /// Whether `longer` saves enough polls to be worth the risk of late packets: one per [`WORTH_ONE_IN`] polls without a
    /// timer, if polls become fewer in proportion.
    pub(super) fn saves_more(&self, seen: Growth, longer: Nanos) -> bool {
        if !self.ends_empty || longer == Nanos::ZERO || seen.packets == 0 {
            return true;
        }
        let (polls, packets) = self.polls_without();
        let saved = longer.saturating_sub(self.timer).scale(seen.events * WORTH_ONE_IN, seen.packets);
        saved.scale(packets, polls) >= longer
    }

    /// The shortest timer that would be worthwhile, assuming that a shorter timer needs proportionally more polls than
    /// the present one.
    pub(super) fn shortest(&self, seen: Growth) -> Nanos {
        if !self.ends_empty {
            return Nanos::ZERO;
        }
        let (polls, packets) = self.polls_without();
        let needed = u128::from(self.timer.as_nanos()) * u128::from(seen.events) * 2 * u128::from(packets);
        let shortest = needed.checked_div(u128::from(seen.packets) * u128::from(polls)).unwrap_or(u128::MAX);
        u64::try_from(shortest).map_or(Nanos::MAX, Nanos::from_nanos)
    }

    /// The mean time between packets as most packets see it: bursts weigh more. Falls back to the mean over the window.
    pub(super) fn gap(&self, seen: Growth) -> Option<Nanos> {
        self.rate.gap().or(seen.gap())
    }

    /// How many polls the packets took without a timer, and the number of these packets. If
    /// unknown, one poll and one packet.
    pub(super) fn polls_without(&self) -> (u64, u64) {
        self.without.map_or((1, 1), |seen| (seen.events.clamp(1, seen.packets), seen.packets))
    }
}

//! Measures the highest packet rate if the user did not state it.

use units::{Instant, Nanos, PacketRate};

/// A maximum is remembered for at least this long.
const MEMORY: Nanos = Nanos::from_secs(10);
/// No rate is reported until traffic has been observed for this long.
const FIRST: Nanos = Nanos::from_millis(500);
/// Safety factor: the rate to plan for is this many times the highest rate seen.
const MARGIN: u64 = 2;

/// Counts packets in time spans. A span is as long as a change of frequency, which the ring must outlast.
#[derive(Debug)]
pub(super) struct Peak<C> {
    span: Nanos,
    began: Option<Instant<C>>,
    first: Option<Instant<C>>,
    turned: Option<Instant<C>>,
    packets: u64,
    /// Maximum number of packets in one span: first in the current period of [`MEMORY`], then in the previous one.
    most: [u64; 2],
}

impl<C> Peak<C> {
    pub(super) const fn new(span: Nanos) -> Self {
        Self { span, began: None, first: None, turned: None, packets: 0, most: [0; 2] }
    }

    #[inline]
    pub(super) fn came(&mut self, now: Instant<C>, packets: u64) {
        let began = *self.began.get_or_insert(now);
        self.packets += packets;
        let Some(lasted) = now.since(began).filter(|lasted| *lasted >= self.span) else { return };
        // After a long silence, all packets of a poll may have arrived within one span.
        let whole = (lasted / self.span.as_nanos().max(1)).as_nanos().max(1);
        self.most[0] = self.most[0].max(if packets * 2 > self.packets { self.packets } else { self.packets / whole });
        (self.began, self.packets) = (Some(now), 0);
        let turned = *self.turned.get_or_insert(now);
        self.first.get_or_insert(now);
        if now.since(turned).is_some_and(|since| since >= MEMORY) {
            self.turned = Some(now);
            self.most = [0, self.most[0]];
        }
    }

    /// The rate to plan for, including the margin. `None` before it is known.
    pub(super) fn rate(&self, now: Instant<C>) -> Option<PacketRate> {
        now.since(self.first?).filter(|since| *since >= FIRST)?;
        let most = self.most[0].max(self.most[1]).max(1) * MARGIN;
        Some(PacketRate::new(Nanos::from_nanos(most).scale(1_000_000_000, self.span.as_nanos().max(1)).as_nanos()))
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Peak<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Peak<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    #[test]
    fn the_highest_rate_that_was_seen_counts_twice() {
        let mut peak = Peak::<Simulated>::new(Nanos::from_millis(1));
        // 100 packets a millisecond for a second, but 400 in one of them.
        for ms in 0..1_000u64 {
            let packets = if ms == 300 { 400 } else { 100 };
            peak.came(Instant::from_nanos(ms * 1_000_000), packets);
            if ms < 500 {
                assert_eq!(peak.rate(Instant::from_nanos(ms * 1_000_000)), None, "too early");
            }
        }
        let rate = peak.rate(Instant::from_nanos(1_000_000_000)).unwrap();
        assert!((800_000..1_100_000).contains(&rate.as_pps()), "{rate:?}");
        // Forgotten after twice the memory.
        for ms in 1_000..22_000u64 {
            peak.came(Instant::from_nanos(ms * 1_000_000), 100);
        }
        let rate = peak.rate(Instant::from_nanos(22_000_000_000)).unwrap();
        assert!((200_000..450_000).contains(&rate.as_pps()), "{rate:?}");
    }
}

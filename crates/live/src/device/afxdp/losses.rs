//! The losses that the kernel counts for a socket, by their reason.

use rustix::net::xdp::XdpStatistics;

use crate::device::Statistics;

/// How a socket receives. The reason of a loss depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reception {
    pub(super) zero_copy: bool,
    /// Whether a frame can take several descriptors.
    pub(super) multi_buffer: bool,
    /// Whether the pool had no free slot for the fill ring since the last reading.
    pub(super) starved: bool,
}

/// The kernel's counters when the socket was opened, and the losses that were already taken from them.
///
/// In copy mode, if a frame finds the fill ring empty, the kernel counts it twice: for the empty ring, and as dropped
/// (net/xdp/xsk.c, `__xsk_rcv`). It counts a jumbo frame that finds too few slots in the fill ring only as dropped; a
/// socket with multi-buffer support drops frames for no other reason. If the pool was empty at a refill, the pool is
/// too small; otherwise, the worker did not refill the ring in time. With zero copy, the kernel counts the driver's
/// attempts to get a slot, not frames; the lost frames are then in the driver's own counters (`ethtool -S`).
///
/// The kernel reads its counters one by one while frames arrive. So the difference of two counters is taken from their
/// totals: a frame that is in only one of them now is in both at the next reading.
#[derive(Debug)]
pub(super) struct Losses {
    first: XdpStatistics,
    without_slot: u64,
    ring_full: u64,
    rx_invalid: u64,
    tx_invalid: u64,
}

impl Losses {
    /// Counts losses from now on. `first` has the kernel's counters.
    pub(super) fn new(first: XdpStatistics) -> Self {
        Self { first, without_slot: 0, ring_full: 0, rx_invalid: 0, tx_invalid: 0 }
    }

    /// Adds what was lost since the last call to `counts`. `now` has the kernel's counters.
    pub(super) fn add(&mut self, now: &XdpStatistics, how: Reception, counts: &mut Statistics) {
        let first = &self.first;
        let since = |now: Option<u64>, then: Option<u64>| now.unwrap_or(0).saturating_sub(then.unwrap_or(0));
        let dropped = now.rx_dropped.saturating_sub(first.rx_dropped);
        let unfilled = since(now.rx_fill_ring_empty_descs, first.rx_fill_ring_empty_descs);
        let (without_slot, invalid) = match (how.zero_copy, how.multi_buffer) {
            (true, _) => (0, dropped),
            (false, true) => (dropped.max(unfilled), 0),
            (false, false) => (unfilled, dropped.saturating_sub(unfilled)),
        };
        let invalid = invalid + now.rx_invalid_descs.saturating_sub(first.rx_invalid_descs);
        counts.rx_ring_full += more(&mut self.ring_full, since(now.rx_ring_full, first.rx_ring_full));
        *(if how.starved { &mut counts.rx_no_buffer } else { &mut counts.rx_ring_full }) +=
            more(&mut self.without_slot, without_slot);
        counts.rx_invalid += more(&mut self.rx_invalid, invalid);
        counts.tx_invalid +=
            more(&mut self.tx_invalid, now.tx_invalid_descs.saturating_sub(self.first.tx_invalid_descs));
    }
}

/// By how much `total` exceeds the highest total so far, which becomes `total` then.
fn more(highest: &mut u64, total: u64) -> u64 {
    let more = total.saturating_sub(*highest);
    *highest += more;
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Reception = Reception { zero_copy: false, multi_buffer: false, starved: false };

    fn kernel(rx_dropped: u64, unfilled: u64) -> XdpStatistics {
        XdpStatistics {
            rx_dropped,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: Some(3),
            rx_fill_ring_empty_descs: Some(unfilled),
            tx_ring_empty_descs: None,
        }
    }

    /// Regression test: if a frame was lost while the kernel read its counters, it was counted twice, once as invalid.
    #[test]
    fn a_frame_that_is_lost_during_the_reading_counts_once() {
        let (mut losses, mut counts) = (Losses::new(kernel(0, 0)), Statistics::default());
        // The second counter was read after the sixth frame was lost.
        for now in [kernel(5, 6), kernel(7, 7), kernel(9, 9)] {
            losses.add(&now, COPY, &mut counts);
        }
        assert_eq!((counts.rx_ring_full, counts.rx_invalid), (9, 0));
    }

    #[test]
    fn each_loss_has_its_reason() {
        let after = |how: Reception, dropped: u64, unfilled: u64| {
            let (mut losses, mut counts) = (Losses::new(kernel(10, 20)), Statistics::default());
            losses.add(&kernel(10 + dropped, 20 + unfilled), how, &mut counts);
            losses.add(&kernel(10 + dropped, 20 + unfilled), how, &mut counts);
            (counts.rx_ring_full, counts.rx_no_buffer, counts.rx_invalid)
        };
        assert_eq!(after(COPY, 7, 5), (5, 0, 2), "two frames were too long");
        assert_eq!(after(Reception { starved: true, ..COPY }, 7, 5), (0, 5, 2));
        assert_eq!(after(Reception { multi_buffer: true, ..COPY }, 7, 5), (7, 0, 0), "two were jumbo frames");
        assert_eq!(after(Reception { zero_copy: true, ..COPY }, 2, 500), (0, 0, 2), "500 attempts of the driver");
    }
}

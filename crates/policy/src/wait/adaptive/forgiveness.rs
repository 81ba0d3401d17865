//! How many late packets are forgiven, that is, not charged to the policy: those of waits that met a stall of the machine,
//! and those that would be late with polling as well ([`polling`](super::polling)).

/// One packet. Forgiven packets are counted in millionths of a packet.
const ONE: u64 = 1_000_000;
/// At most as many late packets are forgiven at once as may be forgiven in this time, in nanoseconds, ...
const FORGIVEN_IN: u64 = 1_000_000_000;
/// ... or this many, ...
const FORGIVEN_LEAST: u64 = 8;
/// ... or this many times as many as are usually late at the same time.
const FORGIVEN_BATCHES: u64 = 2;

/// Late packets that are not charged to the wait: at most a fixed share of all packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgiveness {
    /// The share of all packets that may be forgiven, in millionths.
    share: u64,
    /// How many packets may be forgiven now, and at most, in millionths of a packet.
    now: u64,
    most: u64,
}

impl Forgiveness {
    /// `share` of all packets, in millionths, may be forgiven.
    pub(super) const fn new(share: u32) -> Self {
        Self { share: share as u64, now: FORGIVEN_LEAST * ONE, most: FORGIVEN_LEAST * ONE }
    }

    /// Sets the limit for the mean `gap` between packets in nanoseconds, and for the mean number of packets, in
    /// sixteenths, that are late at the same time.
    pub(super) fn set_limit(&mut self, gap: u64, batch: u64) {
        let least = FORGIVEN_LEAST.max(FORGIVEN_BATCHES * batch / 16) * ONE;
        self.most = (self.share * FORGIVEN_IN / gap.max(1)).max(least);
    }

    #[inline]
    pub(super) fn add(&mut self, packets: u64) {
        self.now = (self.now + packets * self.share).min(self.most);
    }

    /// How many of `late` packets are forgiven.
    pub(super) fn forgive(&mut self, late: u64) -> u64 {
        let forgiven = late.min(self.now / ONE);
        self.now -= forgiven * ONE;
        forgiven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_the_share_is_forgiven() {
        let mut forgiveness = Forgiveness::new(2_500);
        assert_eq!([forgiveness.forgive(5), forgiveness.forgive(5)], [5, 3], "8 at the start");
        forgiveness.set_limit(50_000, 0);
        let forgiven: u64 = (0..100_000)
            .map(|number| {
                forgiveness.add(1);
                if number % 100 == 0 { forgiveness.forgive(4) } else { 0 }
            })
            .sum();
        assert!((240..=250).contains(&forgiven), "{forgiven} of 100,000");
        (0..100_000).for_each(|_| forgiveness.add(1));
        assert_eq!(forgiveness.forgive(u64::MAX), 50, "as many as in a second");
        forgiveness.set_limit(u64::MAX, 16 * 10);
        (0..100_000).for_each(|_| forgiveness.add(1));
        assert_eq!(forgiveness.forgive(u64::MAX), 20, "two batches");
    }
}

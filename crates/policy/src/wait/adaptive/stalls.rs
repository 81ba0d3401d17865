//! How much time the machine takes from a core that is awake (other work, firmware, or the host of a virtual machine), and
//! how many late packets of waits that met it are forgiven.

use units::{Instant, Nanos};

/// A shorter time without a poll is no stall.
pub(super) const LEAST: Nanos = Nanos::from_micros(100);
/// Until the core was awake for some time, this much time in nanoseconds is assumed to have passed without a stall.
const FIRST: u64 = 100_000_000;
/// Both sums are halved when the core was awake for this long, in nanoseconds.
const MEMORY: u64 = 4_000_000_000;
/// Both sums are also halved after this time, so that a core that is rarely awake does not remember a stall for minutes.
const AGES: Nanos = Nanos::from_secs(10);
/// A longer time between two polls counts as this long, in nanoseconds.
const LONGEST: u64 = 1_000_000;
/// Work may take this many times as long as the mean. What exceeds that is a stall.
const WORK: u64 = 2;

/// The time in which the core was awake, and the part of it that stalls took, in nanoseconds.
///
/// A core that is awake polls all the time, so a longer gap between two polls that the work on frames does not explain
/// is a stall. A wait cannot have caused it. (Other work that an application does between its polls keeps packets
/// waiting just as a stall does, and counts as one.) So this shows how many of the waits that end very late are late
/// because of the machine, not because of the wait: waits end within stalls about as often as the core is stalled.
#[derive(Debug)]
pub(super) struct Stalls<C> {
    awake: u64,
    lost: u64,
    halved: Instant<C>,
}

impl<C> Stalls<C> {
    pub(super) const fn new() -> Self {
        Self { awake: 0, lost: 0, halved: Instant::ORIGIN }
    }

    /// Adds a time up to `now` in which the core was awake. `work`: the mean time of its frames, in nanoseconds.
    #[inline]
    pub(super) fn add(&mut self, span: Nanos, now: Instant<C>, work: impl FnOnce() -> u64) {
        self.awake += span.as_nanos().min(LONGEST);
        if span >= LEAST {
            self.stalled(span.as_nanos(), work());
        }
        if self.awake > MEMORY || now.since(self.halved).is_some_and(|since| since > AGES) {
            self.halve(now);
        }
    }

    /// Adds the part of a time in which the core was awake that the work does not explain. All times are in nanoseconds.
    #[cold]
    fn stalled(&mut self, span: u64, work: u64) {
        let lost = span.saturating_sub(work.saturating_mul(WORK)).min(LONGEST);
        if lost >= LEAST.as_nanos() {
            self.lost += lost;
        }
    }

    #[cold]
    fn halve(&mut self, now: Instant<C>) {
        *self = Self { awake: self.awake / 2, lost: self.lost / 2, halved: now };
    }

    /// The share of the time that stalls took, in millionths.
    pub(super) fn share(&self) -> u32 {
        (self.lost * 1_000_000 / (FIRST + self.awake)) as u32
    }
}

impl<C> Clone for Stalls<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Stalls<C> {}

/// One packet. Forgiven packets are counted in millionths of a packet.
const ONE: u64 = 1_000_000;
/// At most as many late packets are forgiven at once as may be forgiven in this time, in nanoseconds, ...
const FORGIVEN_IN: u64 = 1_000_000_000;
/// ... or this many, ...
const FORGIVEN_LEAST: u64 = 8;
/// ... or this many times as many as are usually late at the same time.
const FORGIVEN_BATCHES: u64 = 2;

/// Late packets of stalled waits that are not charged to the wait: at most a fixed share of all packets.
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
    use units::Simulated;

    /// Polls each 99 us, and a gap in each 10 ms, for some seconds of being awake within `per` times as many seconds.
    fn spend(stalls: &mut Stalls<Simulated>, now: &mut u64, gap: Nanos, seconds: u64, per: u64) -> u32 {
        for _ in 0..100 * seconds {
            for span in core::iter::repeat_n(Nanos::from_micros(99), 100).chain([gap]) {
                *now += span.as_nanos() * per;
                stalls.add(span, Instant::from_nanos(*now), || 0);
            }
        }
        stalls.share()
    }

    #[test]
    fn short_gaps_and_work_are_no_stalls() {
        let (mut stalls, at) = (Stalls::<Simulated>::new(), Instant::from_nanos);
        stalls.add(Nanos::from_micros(99), at(1_000_000), || 0);
        stalls.add(Nanos::from_micros(300), at(2_000_000), || 110_000);
        assert_eq!(stalls.share(), 0, "less than twice the work and a stall");
        stalls.add(Nanos::from_micros(300), at(3_000_000), || 50_000);
        assert_eq!(stalls.share(), 1_986, "200 us of 100.7 ms");
        stalls.add(Nanos::from_secs(1_000), at(4_000_000), || 0);
        assert_eq!(stalls.share(), 11_799, "a suspended machine counts as 1 ms");
    }

    #[test]
    fn the_share_follows_the_machine() {
        let (mut stalls, mut now) = (Stalls::new(), 0);
        let noisy = spend(&mut stalls, &mut now, Nanos::from_micros(200), 10, 1);
        assert!((18_000..21_000).contains(&noisy), "{noisy}: 200 us in each 10.1 ms");
        let longer = spend(&mut stalls, &mut now, Nanos::from_millis(5), 20, 1);
        assert!((80_000..100_000).contains(&longer), "{longer}: a gap counts as 1 ms at most");
        let calm = spend(&mut stalls, &mut now, Nanos::ZERO, 30, 1);
        assert!(calm < 1_000, "{calm}");
    }

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

    #[test]
    fn a_core_that_is_rarely_awake_forgets_as_fast() {
        let (mut stalls, mut now) = (Stalls::new(), 0);
        let noisy = spend(&mut stalls, &mut now, Nanos::from_micros(500), 2, 1);
        assert!(noisy > 30_000, "{noisy}");
        // Awake for 1 % of 100 s.
        let calm = spend(&mut stalls, &mut now, Nanos::ZERO, 1, 100);
        assert!(calm < 1_000, "{calm}");
    }
}

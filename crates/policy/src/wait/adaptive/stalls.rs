//! How much time the machine takes from a core that is awake: other work, firmware, or the host of a virtual machine.

use units::{Instant, Nanos};

/// A shorter time without a poll is no stall.
pub(super) const LEAST: Nanos = Nanos::from_micros(100);
/// Until the core was awake for some time, this much time in nanoseconds is assumed to have passed without a stall.
const FIRST: u64 = 100_000_000;
/// Both sums are halved when the core was awake for this long, in nanoseconds.
const MEMORY: u64 = 4_000_000_000;
/// Both sums are also halved after this time, so that a core that is rarely awake does not remember a stall for
/// minutes.
const AGES: Nanos = Nanos::from_secs(10);
/// A longer time between two polls counts as this long, in nanoseconds.
const LONGEST: u64 = 1_000_000;
/// Work may take this many times as long as the mean. What exceeds that is a stall.
const WORK: u64 = 2;
/// Waits may count as stalled in any case while they are at most `1 / STALLS_PART` of the share of late packets that
/// the goal allows. The same share of packets may be late after stalls without being charged.
const STALLS_PART: u32 = 4;
/// In addition, this many times as many waits may count as stalled as a core that is awake shows stalls, because both
/// numbers are small at first, and differ by chance. These additional waits are at most as many as the late packets
/// that the goal allows: other work of an application keeps the core from polling, and that looks like a stall.
const STALLS_SLACK: u32 = 2;
/// On a machine that stalls, the model's expectation of a candidate weighs up to this many times as much, multiplied by
/// the mean number of packets that are late at the same time. Otherwise, a few packets that stalls made late by chance
/// would rule a candidate out, and after one such moment for each candidate, only polling would be left.
const TRUST: u64 = 4;
/// It weighs that much if stalls take `1 / NOISY_PART` of the share of late packets that the goal allows, or more.
const NOISY_PART: u32 = 8;

/// The share of waits that may count as stalled in any case, if the goal allows `allowed` late packets. Both in ppm.
pub(super) const fn always_counted(allowed: u32) -> u32 {
    allowed / STALLS_PART
}

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
    /// When the last decision was made, if it was to poll on and no frames were left.
    polls_since: Option<Instant<C>>,
}

impl<C> Stalls<C> {
    pub(super) const fn new() -> Self {
        Self { awake: 0, lost: 0, halved: Instant::ORIGIN, polls_since: None }
    }

    /// Notes that the core polls on from `now`, and that no frames are left.
    #[inline]
    pub(super) fn polls_on(&mut self, now: Instant<C>) {
        self.polls_since = Some(now);
    }

    /// The core was awake until `until`: since the wait that has just `ended`, or since the last decision if that was
    /// to poll on. `work`: the mean time of its frames, in nanoseconds.
    #[inline]
    pub(super) fn awake(&mut self, ended: Option<Instant<C>>, until: Instant<C>, work: impl FnOnce() -> u64) {
        let polls_since = self.polls_since.take();
        if let Some(since) = ended.or(polls_since) {
            self.add(until.since(since).unwrap_or(Nanos::ZERO), until, work);
        }
    }

    /// Adds a time up to `now` in which the core was awake.
    #[inline]
    fn add(&mut self, span: Nanos, now: Instant<C>, work: impl FnOnce() -> u64) {
        self.awake += span.as_nanos().min(LONGEST);
        if span >= LEAST {
            self.stalled(span.as_nanos(), work());
        }
        if self.awake > MEMORY || now.since(self.halved).is_some_and(|since| since > AGES) {
            self.halve(now);
        }
    }

    /// Adds the part of a time in which the core was awake that the work does not explain. Both times are
    /// in nanoseconds.
    #[cold]
    fn stalled(&mut self, span: u64, work: u64) {
        let lost = span.saturating_sub(work.saturating_mul(WORK)).min(LONGEST);
        if lost >= LEAST.as_nanos() {
            self.lost += lost;
        }
    }

    #[cold]
    fn halve(&mut self, now: Instant<C>) {
        *self = Self { awake: self.awake / 2, lost: self.lost / 2, halved: now, ..*self };
    }

    /// The share of the time that stalls took, in millionths.
    pub(super) fn share(&self) -> u32 {
        (self.lost * 1_000_000 / (FIRST + self.awake)) as u32
    }

    /// The share of waits that may count as stalled, if the goal allows `allowed` late packets. Both in ppm.
    pub(super) fn counted(&self, allowed: u32) -> u32 {
        always_counted(allowed).saturating_add((self.share() * STALLS_SLACK).min(allowed))
    }

    /// The weight of the model's expectation, in sixteenths, if the goal allows `allowed` late packets (in ppm), and
    /// `batch` sixteenths of a packet are late at the same time. The more the machine stalls, the less a late packet
    /// says of the wait after which it was late.
    pub(super) fn trust(&self, allowed: u32, batch: u64) -> u64 {
        let most = 16 * TRUST * batch.max(16) / 16;
        let noisy = (allowed / NOISY_PART).max(1);
        16 + (most - 16) * u64::from(self.share().min(noisy)) / u64::from(noisy)
    }
}

impl<C> Clone for Stalls<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Stalls<C> {}

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
    fn a_machine_that_stalls_has_more_waits_counted_and_late_packets_trusted_less() {
        let mut stalls = Stalls::<Simulated>::new();
        assert_eq!((stalls.counted(10_000), stalls.trust(10_000, 0)), (2_500, 16));
        stalls.add(Nanos::from_micros(200), Instant::from_nanos(1), || 0);
        assert_eq!(stalls.share(), 1_996);
        assert_eq!((stalls.counted(10_000), stalls.trust(10_000, 40 * 16)), (2_500 + 2 * 1_996, 16 * 4 * 40));
        assert_eq!(stalls.counted(100), 25 + 100, "at most as many as the goal allows late packets");
    }

    #[test]
    fn the_core_is_awake_from_the_end_of_a_wait_or_from_the_last_poll() {
        let (mut stalls, at) = (Stalls::<Simulated>::new(), |us: u64| Instant::from_nanos(us * 1_000));
        stalls.awake(None, at(500), || 0);
        assert_eq!(stalls.awake, 0, "nothing is known of the time before");
        stalls.awake(Some(at(600)), at(601), || 0);
        stalls.polls_on(at(601));
        stalls.awake(None, at(603), || 0);
        stalls.awake(None, at(700), || 0);
        assert_eq!(stalls.awake, 3_000, "frames were left at the poll before");
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
    fn a_core_that_is_rarely_awake_forgets_as_fast() {
        let (mut stalls, mut now) = (Stalls::new(), 0);
        let noisy = spend(&mut stalls, &mut now, Nanos::from_micros(500), 2, 1);
        assert!(noisy > 30_000, "{noisy}");
        // Awake for 1 % of 100 s.
        let calm = spend(&mut stalls, &mut now, Nanos::ZERO, 1, 100);
        assert!(calm < 1_000, "{calm}");
    }
}

//! When packets arrive within a sleep, measured by polling instead of sleeping.
//!
//! Without arrival timestamps, a packet that a sleep delayed may have come at any time of the sleep. How many of them
//! are late depends on that: if arrivals have nothing to do with the sleeps, they are spread evenly, but packets that
//! come in pairs come when a sleep has just begun. So a few sleeps are replaced by polling for as long, and the polls
//! show when packets come:
//!
//! ```text
//!   sleep      ├──────────────────────────────┤  3 packets, at unknown times
//!   window     ├─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┤  packets by the part of the window in which they came
//! ```

use units::{Instant, Nanos};

/// A window is divided into this many parts.
const PARTS: usize = 64;
/// One sleep out of so many is replaced by a window, ...
const EACH: u32 = 64;
/// ... and one out of so many until [`KNOWN`] packets came in windows.
const EACH_AT_FIRST: u32 = 8;
const KNOWN: u32 = 128;
/// All counts are halved when they reach this many packets.
const MEMORY: u32 = 512;
/// So many packets are assumed to come at the beginning of a sleep, in addition to those that were counted. At first,
/// all packets are thus assumed to be as late as they can be.
const DOUBT: u32 = 2;
/// One packet. Late packets are counted in millionths of a packet.
const ONE: u64 = 1_000_000;

/// How the packets that come during a sleep are spread over it.
#[derive(Debug)]
pub(super) struct Phases<C> {
    counts: [u32; PARTS],
    total: u32,
    /// Number of sleeps until the next window.
    until: u32,
    random: u32,
    /// Beginning and end of the present window.
    window: Option<[Instant<C>; 2]>,
}

impl<C> Phases<C> {
    pub(super) const fn new() -> Self {
        Self { counts: [0; PARTS], total: 0, until: EACH_AT_FIRST, random: 1, window: None }
    }

    /// Whether the sleep until `until`, which would begin now, is to be replaced by a window.
    #[inline]
    pub(super) fn opens(&mut self, now: Instant<C>, until: Instant<C>) -> bool {
        self.until = self.until.saturating_sub(1);
        if self.until == 0 {
            self.open(now, until);
        }
        self.window.is_some()
    }

    /// Opens a window, and chooses at random how many sleeps follow until the next one: otherwise, the windows could
    /// keep step with the traffic.
    #[cold]
    fn open(&mut self, now: Instant<C>, until: Instant<C>) {
        self.window = Some([now, until]);
        let each = if self.total < KNOWN { EACH_AT_FIRST } else { EACH };
        // D. E. Knuth, "The Art of Computer Programming", volume 2, section 3.3.4, table 1, line 16.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.until = each / 2 + (self.random >> 16) % each + 1;
    }

    /// Whether a window is open.
    pub(super) fn in_window(&self) -> bool {
        self.window.is_some()
    }

    /// Whether the present window lasts on. Closes it otherwise.
    #[inline]
    pub(super) fn lasts(&mut self, now: Instant<C>) -> bool {
        self.window = self.window.filter(|[_, end]| now < *end);
        self.window.is_some()
    }

    /// Counts packets that arrived between two polls, if a window was open meanwhile.
    #[inline]
    pub(super) fn add(&mut self, after: Instant<C>, before: Instant<C>, packets: u64) {
        if let Some(window) = self.window {
            self.count(window, after, before, packets);
        }
    }

    #[cold]
    fn count(&mut self, [begins, ends]: [Instant<C>; 2], after: Instant<C>, before: Instant<C>, packets: u64) {
        let since = |at: Instant<C>| at.since(begins).unwrap_or(Nanos::ZERO).as_nanos();
        let (middle, lasts) = (since(after) / 2 + since(before) / 2, since(ends).max(1));
        // The poll that closes the window shows packets that came after its end, too.
        if middle < lasts {
            let packets = packets.min(u64::from(MEMORY / 2)) as u32;
            self.counts[(middle * PARTS as u64 / lasts) as usize] += packets;
            self.total += packets;
            if self.total >= MEMORY {
                self.counts.iter_mut().for_each(|count| *count /= 2);
                self.total = self.counts.iter().sum();
            }
        }
    }

    /// The expected share of the packets of a sleep of `lasted` that came in its first `over`, in millionths.
    pub(super) fn share(&self, over: Nanos, lasted: Nanos) -> u64 {
        if over == Nanos::ZERO {
            return 0;
        }
        if over >= lasted {
            return ONE;
        }
        // Below `PARTS`, in millionths.
        let at = u128::from(over.as_nanos()) * PARTS as u128 * u128::from(ONE) / u128::from(lasted.as_nanos());
        let (whole, rest) = ((at as u64 / ONE) as usize, at as u64 % ONE);
        let next = self.counts[whole];
        let seen: u32 = self.counts[..whole].iter().sum();
        // Within a part, packets may come early.
        let more = u64::from(next) * ONE.min(2 * rest);
        (u64::from(seen + DOUBT) * ONE + more) / u64::from(self.total + DOUBT)
    }
}

impl<C> Clone for Phases<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Phases<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    fn at(us: u64) -> Instant<Simulated> {
        Instant::from_nanos(us * 1_000)
    }

    /// Windows of 100 us with packets at these times, one window after another. The polls are 1 us apart.
    fn watched(packets: impl Fn(u64) -> u64, windows: u64) -> Phases<Simulated> {
        let mut phases = Phases::new();
        for number in 1..=windows {
            let begins = number * 1_000;
            phases.open(at(begins), at(begins + 100));
            let came = begins + packets(number);
            phases.add(at(came), at(came + 1), 1);
            assert!(phases.lasts(at(begins + 99)) && !phases.lasts(at(begins + 100)));
            phases.add(at(begins + 100), at(begins + 101), 1);
        }
        phases
    }

    fn share(phases: &Phases<Simulated>, over: u64) -> u64 {
        phases.share(Nanos::from_micros(over), Nanos::from_micros(100))
    }

    #[test]
    fn nothing_is_known_at_first() {
        let phases = Phases::<Simulated>::new();
        assert_eq!([0, 1, 100, 200].map(|over| share(&phases, over)), [0, ONE, ONE, ONE]);
        assert_eq!(phases.share(Nanos::ZERO, Nanos::ZERO), 0);
        assert_eq!(phases.share(Nanos::from_secs(1), Nanos::ZERO), ONE);
        assert_eq!(phases.share(Nanos::from_secs(1 << 33), Nanos::MAX), ONE, "a suspended machine");
    }

    #[test]
    fn packets_that_come_at_any_time_are_spread_evenly() {
        let phases = watched(|number| number * 37 % 100, 5_000);
        for over in [10, 50, 90] {
            let expected = over * ONE / 100;
            let share = share(&phases, over);
            assert!((expected..expected + 60_000).contains(&share), "{over} us of 100: {share}");
        }
    }

    #[test]
    fn packets_that_come_early_or_late_are_told_apart() {
        let phases = watched(|number| if number % 2 == 0 { 2 } else { 90 }, 1_000);
        assert!(share(&phases, 5) > 480_000 && share(&phases, 85) < 520_000);
        // The traffic changes.
        let mut phases = phases;
        for number in 0..2_000 {
            phases.open(at(number * 1_000), at(number * 1_000 + 100));
            phases.add(at(number * 1_000 + 50), at(number * 1_000 + 51), 1);
        }
        assert!(share(&phases, 40) < 130_000, "{}", share(&phases, 40));
    }

    #[test]
    fn windows_are_rare_and_irregular() {
        let mut phases = Phases::<Simulated>::new();
        phases.total = KNOWN;
        let (mut opened, mut last, mut gaps) = (0, 0, 0_u64);
        for us in 0..10_000 {
            if phases.opens(at(us), at(us + 1)) {
                gaps |= 1 << ((us - last) / 2);
                (opened, last) = (opened + 1, us);
            }
            phases.window = None;
        }
        assert!((120..200).contains(&opened), "{opened} of 10,000");
        assert!(gaps.count_ones() > 20, "{gaps:b}");
    }
}

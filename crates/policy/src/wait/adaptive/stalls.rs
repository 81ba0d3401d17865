//! How much time the machine takes from a core that is awake: other work, firmware, or the host of a virtual machine.

use units::Nanos;

/// A shorter time without a poll is no stall.
pub(super) const LEAST: Nanos = Nanos::from_micros(100);
/// Until the core was awake for some time, this much time in nanoseconds is assumed to have passed without a stall.
const FIRST: u64 = 100_000_000;
/// Both sums are halved when the core was awake for this long, in nanoseconds.
const MEMORY: u64 = 4_000_000_000;
/// A longer time between two polls counts as this long, in nanoseconds.
const LONGEST: u64 = 10_000_000;
/// Work may take this many times as long as the mean. What exceeds that is a stall.
const WORK: u64 = 2;

/// The time in which the core was awake, and the part of it that stalls took, in nanoseconds.
///
/// A core that is awake polls all the time, so a longer gap between two polls that the work on frames does not explain
/// counts as a stall (also if an application did other work meanwhile). A wait cannot have caused it. So this shows how many of the waits that end very late are late because of the
/// machine, and not because of the wait: a wait ends within a stall about as often as the core is stalled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stalls {
    awake: u64,
    lost: u64,
}

impl Stalls {
    pub(super) const fn new() -> Self {
        Self { awake: FIRST, lost: 0 }
    }

    /// Adds a time in which the core was awake. `work` is the mean time that its frames take, in nanoseconds.
    #[inline]
    pub(super) fn add(&mut self, span: Nanos, work: impl FnOnce() -> u64) {
        let lost = if span < LEAST { 0 } else { lost(span.as_nanos(), work()) };
        self.awake += span.as_nanos().min(LONGEST);
        self.lost += lost;
        if self.awake > MEMORY {
            (self.awake, self.lost) = (self.awake / 2, self.lost / 2);
        }
    }

    /// The share of the time that stalls took, in millionths.
    pub(super) fn share(&self) -> u32 {
        (self.lost * 1_000_000 / self.awake.max(1)) as u32
    }
}

/// The part of `span` that a stall took. All times are in nanoseconds.
#[cold]
fn lost(span: u64, work: u64) -> u64 {
    let lost = span.saturating_sub(work.saturating_mul(WORK));
    if lost < LEAST.as_nanos() { 0 } else { lost.min(LONGEST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_short_gaps_are_no_stalls() {
        let mut stalls = Stalls::new();
        stalls.add(Nanos::from_micros(99), || 0);
        stalls.add(Nanos::from_micros(300), || 110_000);
        assert_eq!(stalls.share(), 0, "less than twice the work and a stall");
        stalls.add(Nanos::from_micros(300), || 50_000);
        assert_eq!(stalls.share(), 1_986, "200 us of 100.7 ms");
    }

    #[test]
    fn the_share_follows_the_machine() {
        let mut stalls = Stalls::new();
        let mut spend = |stall: Nanos, seconds: u64| {
            for _ in 0..100 * seconds {
                (0..100).for_each(|_| stalls.add(Nanos::from_micros(99), || 0));
                stalls.add(stall, || 0);
            }
            stalls.share()
        };
        let noisy = spend(Nanos::from_micros(200), 10);
        assert!((19_000..21_000).contains(&noisy), "{noisy}: 200 us in each 10.1 ms");
        let asleep = spend(Nanos::from_secs(1_000), 20);
        assert!((400_000..600_000).contains(&asleep), "{asleep}: a suspended machine counts as 10 ms each");
        let calm = spend(Nanos::ZERO, 40);
        assert!(calm < 10_000, "{calm}");
    }
}

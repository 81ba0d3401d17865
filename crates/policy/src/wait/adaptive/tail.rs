//! How late waits have been of late: a small histogram that forgets.

use units::Nanos;

use super::costs::Lateness;

/// Eight buckets an octave from 1 us to 2 ms, and eight of 128 ns below.
const BUCKETS: usize = 96;
/// When so many samples are in, all counts are halved: older waits count for less and less.
/// Also what keeps a count within 16 bits.
const MEMORY: u32 = 1024;
/// A sample this many times the median...
const STALL_FACTOR: u64 = 8;
/// ...and at least this long may be no property of the wait but a stall of the machine, as long as
/// such samples are rare: a C-state exit costs at most some hundred microseconds
/// (drivers/idle/intel_idle.c: 290 us for C6 of Sapphire Rapids), and comes again and again.
const STALL_LEAST: Nanos = Nanos::from_micros(100);
/// Samples from which on there is a median to go by. Few, since one stall among the first hundred would be their p99, and
/// forbid sleeps that a ring leaves little time for.
const STALL_AFTER: u32 = 4;

/// A decaying distribution of lateness.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    counts: [u16; BUCKETS],
    total: u32,
    /// All samples lie in buckets from `first` to `last`: no search need look elsewhere.
    first: usize,
    last: usize,
    /// Samples of late that were taken for stalls.
    stalls: u32,
}

impl Tail {
    pub(super) const fn new() -> Self {
        Self { counts: [0; BUCKETS], total: 0, first: BUCKETS - 1, last: 0, stalls: 0 }
    }

    /// Takes in one sample; says whether it was a stall, which is not learned. More than the share
    /// `stalls_ppm` of the samples are no stalls, but how it is here.
    pub(super) fn add(&mut self, sample: Nanos, stalls_ppm: u32) -> bool {
        if self.total >= STALL_AFTER
            && sample >= STALL_LEAST
            && u64::from(self.stalls) * 1_000_000 <= u64::from(self.total) * u64::from(stalls_ppm)
            && sample > self.upper_quantile(500_000) * STALL_FACTOR
        {
            self.stalls += 1;
            return true;
        }
        let bucket = bucket(sample.as_nanos());
        self.counts[bucket] += 1;
        self.total += 1;
        self.first = self.first.min(bucket);
        self.last = self.last.max(bucket);
        if self.total >= MEMORY {
            self.total = 0;
            self.stalls /= 2;
            for count in &mut self.counts {
                *count /= 2;
                self.total += u32::from(*count);
            }
        }
        false
    }

    /// What was measured before the start, in place of samples of one's own.
    pub(super) fn from_measured(lateness: &Lateness) -> Self {
        let mut tail = Self::new();
        for (sample, n) in lateness.samples() {
            let bucket = bucket(sample.as_nanos());
            tail.counts[bucket] += n;
            tail.total += u32::from(n);
            tail.first = tail.first.min(bucket);
            tail.last = tail.last.max(bucket);
        }
        tail
    }

    /// Samples that still count.
    pub(super) const fn samples(&self) -> u32 {
        self.total
    }

    /// A bound that the share `ppm` of the samples keep (the upper edge of their bucket); nothing
    /// without samples.
    pub(super) fn upper_quantile(&self, ppm: u32) -> Nanos {
        let rank = (u64::from(self.total) * u64::from(ppm)).div_ceil(1_000_000);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate().take(self.last + 1).skip(self.first) {
            seen += u64::from(*count);
            if seen >= rank && seen > 0 {
                return upper_edge(index);
            }
        }
        Nanos::ZERO
    }
}

/// The bucket of a value in nanoseconds; the last one takes all that is longer.
fn bucket(nanos: u64) -> usize {
    if nanos < 1024 {
        return (nanos >> 7) as usize;
    }
    let octave = nanos.ilog2() as usize;
    let eighth = (nanos >> (octave - 3)) as usize & 7;
    (8 * (octave - 9) + eighth).min(BUCKETS - 1)
}

/// The least value that lies above the bucket.
fn upper_edge(index: usize) -> Nanos {
    let next = index as u64 + 1;
    if next < 8 {
        return Nanos::from_nanos(next << 7);
    }
    Nanos::from_nanos((8 + next % 8) << (next / 8 + 6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_and_buckets_agree() {
        for index in 0..BUCKETS - 1 {
            let edge = upper_edge(index).as_nanos();
            assert_eq!(bucket(edge - 1), index, "below {edge}");
            assert_eq!(bucket(edge), index + 1, "at {edge}");
        }
    }

    #[test]
    fn what_was_measured_has_its_quantiles() {
        let us = Nanos::from_micros;
        let tail = Tail::from_measured(&Lateness { p50: us(8), p75: us(11), p90: us(20), p99: us(70), p999: us(90) });
        // Upper edges: an eighth of an octave at most.
        for (ppm, least) in [(500_000, 8), (750_000, 11), (900_000, 20), (990_000, 70)] {
            let bound = tail.upper_quantile(ppm);
            assert!(bound > us(least) && bound <= us(least).scale(9, 8) + us(1), "{ppm}: {bound}");
        }
    }

    #[test]
    fn a_stall_is_told_apart() {
        let mut tail = Tail::new();
        for _ in 0..100 {
            assert!(!tail.add(Nanos::from_micros(8), 5_000));
        }
        assert!(!tail.add(Nanos::from_micros(60), 5_000));
        assert!(tail.add(Nanos::from_millis(5), 5_000));
        assert!(tail.upper_quantile(999_000) < Nanos::from_micros(150));
    }

    #[test]
    fn a_stall_among_the_first_is_told_apart_as_well() {
        let mut tail = Tail::new();
        assert!(!tail.add(Nanos::from_micros(180), 5_000), "nothing to compare it with");
        let mut tail = Tail::new();
        for _ in 0..STALL_AFTER {
            assert!(!tail.add(Nanos::from_micros(8), 5_000));
        }
        assert!(tail.add(Nanos::from_micros(180), 5_000));
        assert!(tail.upper_quantile(990_000) < Nanos::from_micros(10));
    }

    #[test]
    fn what_comes_again_and_again_is_no_stall() {
        let mut tail = Tail::new();
        for n in 0..500 {
            tail.add(Nanos::from_micros(if n % 10 == 9 { 290 } else { 5 }), 5_000);
        }
        assert!(tail.upper_quantile(980_000) >= Nanos::from_micros(290));
    }

    proptest! {
        #[test]
        fn quantile_bounds_its_share(samples in prop::collection::vec(0u64..200_000, 1..800), ppm in 1u32..1_000_000) {
            let mut tail = Tail::new();
            // Those that were learned.
            let mut samples = samples;
            samples.retain(|s| !tail.add(Nanos::from_nanos(*s), 0));
            let bound = tail.upper_quantile(ppm).as_nanos();
            let within = samples.iter().filter(|s| **s < bound).count() as u64;
            prop_assert!(within * 1_000_000 >= samples.len() as u64 * u64::from(ppm));
        }
    }
}

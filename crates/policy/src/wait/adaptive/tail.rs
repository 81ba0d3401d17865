//! How late recent waits ended: a small histogram that gradually forgets.

use units::Nanos;

use super::costs::Lateness;
use super::slower::SAME;

/// Base-2 logarithm of [`PER_OCTAVE`].
const PER_OCTAVE_LOG2: usize = 5;
/// Number of buckets per octave. A bucket is at most this part of its values wide: 3 %.
const PER_OCTAVE: usize = 1 << PER_OCTAVE_LOG2;
/// Number of buckets up to 131 us: [`PER_OCTAVE`] from 1 us on, and as many of 32 ns below that.
const FINE: usize = 8 * PER_OCTAVE;
/// Number of buckets per octave above that, up to 2 ms.
const COARSE_PER_OCTAVE: usize = 8;
/// Number of buckets.
const BUCKETS: usize = FINE + 4 * COARSE_PER_OCTAVE;
/// All counts are halved after this many samples, so that older waits gradually lose weight.
pub(super) const MEMORY: u32 = 1024;
/// Upper limit of the number of samples after which counts are halved.
pub(super) const MOST_MEMORY: u32 = u16::MAX as u32;
/// A sample counts as a stall of the machine only if it exceeds the median by more than this factor.
const STALL_FACTOR: u64 = 8;
/// A stall is also at least this long, and rare. Exits from C-states are shorter and frequent: they take a few hundred
/// microseconds at most (drivers/idle/intel_idle.c: 290 us for C6 of Sapphire Rapids).
const STALL_LEAST: Nanos = super::stalls::LEAST;
/// Minimum number of samples before stalls are recognised, because the median must be known. It is small because a
/// single stall among the first hundred samples would otherwise be their p99, and would rule out sleeps if a ring
/// leaves little time.
const STALL_AFTER: u32 = 4;

/// Number of parts into which a distribution is divided for planning.
pub(super) const PARTS: usize = 7;
/// The quantile at which each part ends, in millionths.
const UP_TO_PPM: [u32; PARTS] = [500_000, 750_000, 900_000, 990_000, 999_000, 999_900, 1_000_000];
/// The share of each part, in millionths.
const SHARE_PPM: [u64; PARTS] = [500_000, 250_000, 150_000, 90_000, 9_000, 900, 100];

/// A distribution, reduced to a few parts, in nanoseconds. All samples of a part are assumed to lie at its upper end.
///
/// An additional part stands for lateness that was not seen yet. Among `n + 1` samples in random order, each is equally
/// likely to be the maximum. So the next sample exceeds all `n` seen ones with probability 1 / (`n` + 1) (record
/// values). Such a sample is assumed to be twice the maximum seen, which is a guess. The shares of the other parts are
/// not reduced to make room for this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atoms {
    pub(super) at: [u64; PARTS],
    pub(super) mean: u64,
    /// Assumed value of a future sample that exceeds all samples seen so far, in nanoseconds.
    pub(super) beyond: u64,
    /// Probability that the next sample exceeds all samples seen, in millionths.
    unseen: u64,
}

impl Atoms {
    pub(super) const NONE: Self = Self { at: [0; PARTS], mean: 0, beyond: 0, unseen: 0 };

    /// Adds `more` nanoseconds to all times.
    pub(super) fn later(&self, more: u64) -> Self {
        let later = |at: u64| at.saturating_add(more);
        let (at, mean, beyond) = (self.at.map(later), later(self.mean), later(self.beyond));
        Self { at, mean, beyond, ..*self }
    }

    /// Subtracts `less` nanoseconds from all times.
    pub(super) fn earlier(&self, less: u64) -> Self {
        let [mean, beyond] = [self.mean, self.beyond].map(|at| at.saturating_sub(less));
        Self { at: self.at.map(|at| at.saturating_sub(less)), mean, beyond, ..*self }
    }

    /// Value (in nanoseconds) and share (in millionths) of each part that was seen.
    #[inline]
    pub(super) fn seen(&self) -> impl Iterator<Item = (u64, u64)> {
        self.at.into_iter().zip(SHARE_PPM)
    }

    /// The parts of the distribution, plus the one for samples not seen yet.
    #[inline]
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.seen().chain([(self.beyond, self.unseen)])
    }

    /// The lateness that at most `share` (in millionths) of the waits exceed, in nanoseconds.
    pub(super) fn room(&self, share: u64) -> u64 {
        let part = UP_TO_PPM.iter().position(|up_to| u64::from(*up_to) + share >= 1_000_000);
        self.at[part.unwrap_or(PARTS - 1)]
    }

    /// Limits the value of each part to its entry in `most`.
    pub(super) fn at_most(&self, most: [u64; PARTS]) -> Self {
        let at = core::array::from_fn(|part| self.at[part].min(most[part]));
        let mean = at.iter().zip(SHARE_PPM).map(|(at, share)| at * share / 1_000_000).sum::<u64>().min(self.mean);
        Self { at, mean, beyond: self.beyond.min(most[PARTS - 1]), unseen: self.unseen }
    }

    /// Multiplies all times by the factor `slower`, in 256ths.
    pub(super) fn scaled(&self, slower: u64) -> Self {
        if slower == SAME {
            return *self;
        }
        let scaled = |at: u64| at * slower / SAME;
        Self { at: self.at.map(scaled), mean: scaled(self.mean), beyond: scaled(self.beyond), ..*self }
    }
}

/// A distribution of lateness in which old samples fade.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// Less than [`MOST_MEMORY`] in all, so that each fits.
    counts: [u16; BUCKETS],
    total: u32,
    /// All samples lie in the buckets from `first` to `last`, so searches can skip the others.
    first: usize,
    last: usize,
    /// Number of recent samples that counted as stalls.
    stalls: u32,
}

impl Tail {
    pub(super) const fn new() -> Self {
        Self { counts: [0; BUCKETS], total: 0, first: BUCKETS - 1, last: 0, stalls: 0 }
    }

    /// Adds a sample. Returns true if it was a stall of the machine, which is not learned. If stalls are more frequent
    /// than `stalls_ppm`, they are normal on this machine and are learned. At least half of the last `memory` samples
    /// are remembered.
    #[inline]
    pub(super) fn add(&mut self, sample: Nanos, stalls_ppm: u32, memory: u32) -> bool {
        if sample >= STALL_LEAST && self.is_stall(sample, stalls_ppm) {
            self.stalls += 1;
            return true;
        }
        let bucket = bucket(sample.as_nanos());
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.total += 1;
        self.first = self.first.min(bucket);
        self.last = self.last.max(bucket);
        if self.total >= memory {
            self.fade();
        }
        false
    }

    /// Adds a sample twice. Returns false, and adds nothing, if that takes more than counting it: if the sample may be
    /// a stall, or if counts are due to be halved.
    #[inline]
    pub(super) fn add_twice(&mut self, sample: Nanos, memory: u32) -> bool {
        let counts = sample < STALL_LEAST && self.total + 2 < memory;
        if counts {
            let bucket = bucket(sample.as_nanos());
            self.counts[bucket] = self.counts[bucket].saturating_add(2);
            self.total += 2;
            self.first = self.first.min(bucket);
            self.last = self.last.max(bucket);
        }
        counts
    }

    /// Whether a sample of at least [`STALL_LEAST`] is a stall.
    #[cold]
    fn is_stall(&self, sample: Nanos, stalls_ppm: u32) -> bool {
        self.total >= STALL_AFTER
            && u64::from(self.stalls) * 1_000_000 <= u64::from(self.total) * u64::from(stalls_ppm)
            && sample > self.upper_quantile(500_000) * STALL_FACTOR
    }

    /// Halves all counts.
    #[cold]
    fn fade(&mut self) {
        self.total = 0;
        self.stalls /= 2;
        for count in &mut self.counts {
            *count /= 2;
            self.total += u32::from(*count);
        }
    }

    /// Starts from a measured distribution instead of from samples.
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

    /// Multiplies all samples by the factor `slower`, in 256ths.
    pub(super) fn scale(&mut self, slower: u64) {
        if self.total == 0 || slower == SAME {
            return;
        }
        let old = core::mem::replace(&mut self.counts, [0; BUCKETS]);
        // Below a scaled edge lie as many samples as lay below the edge before.
        let below = |edge: u64| -> u64 {
            let at = bucket(edge);
            let whole: u64 = old[..at].iter().map(|count| u64::from(*count)).sum();
            let from = lower_edge(at);
            let width = upper_edge(at).as_nanos() - from;
            whole + u64::from(old[at]) * (edge - from).min(width) / width
        };
        (self.first, self.last) = (BUCKETS - 1, 0);
        let mut seen = 0;
        for index in 0..BUCKETS {
            let all = u64::from(self.total);
            let upto =
                if index == BUCKETS - 1 { all } else { below(upper_edge(index).as_nanos() * SAME / slower.max(1)) };
            self.counts[index] = (upto - seen) as u16;
            if upto > seen {
                self.first = self.first.min(index);
                self.last = self.last.max(index);
            }
            seen = upto;
        }
    }

    /// Computes all parts in one pass. Samples are assumed to be spread evenly within a bucket.
    pub(super) fn atoms(&self) -> Atoms {
        let mut atoms = Atoms::NONE;
        if self.total == 0 {
            return atoms;
        }
        let (mut seen, mut next, mut sum) = (0u64, 0, 0u64);
        for (index, count) in self.counts.iter().enumerate().take(self.last + 1).skip(self.first) {
            let count = u64::from(*count);
            if count == 0 {
                continue;
            }
            let (from, to) = (lower_edge(index), upper_edge(index).as_nanos());
            sum += count * (from + to) / 2;
            while next < PARTS && (seen + count) * 1_000_000 >= u64::from(self.total) * u64::from(UP_TO_PPM[next]) {
                let part = (u64::from(self.total) * u64::from(UP_TO_PPM[next])).saturating_sub(seen * 1_000_000);
                atoms.at[next] = from + (to - from) * part / (count * 1_000_000);
                next += 1;
            }
            seen += count;
        }
        atoms.mean = sum / u64::from(self.total);
        atoms.beyond = 2 * atoms.at[PARTS - 1];
        atoms.unseen = 1_000_000 / (u64::from(self.total) + 1);
        atoms
    }

    /// Number of samples that still count. Halving the counts also halves this number.
    pub(super) const fn samples(&self) -> u32 {
        self.total
    }

    /// The value that the share `ppm` of the samples does not exceed, rounded up to the edge of a bucket. Zero without
    /// samples.
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

/// The bucket of a value in nanoseconds. The last bucket has no upper limit.
fn bucket(nanos: u64) -> usize {
    if nanos < 1024 {
        return (nanos >> (10 - PER_OCTAVE_LOG2)) as usize;
    }
    let octave = nanos.ilog2() as usize;
    if octave >= 17 {
        let part = (nanos >> (octave - 3)) as usize % COARSE_PER_OCTAVE;
        return (FINE + COARSE_PER_OCTAVE * (octave - 17) + part).min(BUCKETS - 1);
    }
    let part = (nanos >> (octave - PER_OCTAVE_LOG2)) as usize % PER_OCTAVE;
    PER_OCTAVE * (octave - 9) + part
}

/// The smallest value in the bucket, in nanoseconds.
fn lower_edge(index: usize) -> u64 {
    if index == 0 { 0 } else { upper_edge(index - 1).as_nanos() }
}

/// The smallest value above the bucket, as a duration.
fn upper_edge(index: usize) -> Nanos {
    let next = index + 1;
    if next < PER_OCTAVE {
        return Nanos::from_nanos((next << (10 - PER_OCTAVE_LOG2)) as u64);
    }
    if next >= FINE {
        let (octave, part) = ((next - FINE) / COARSE_PER_OCTAVE, (next - FINE) % COARSE_PER_OCTAVE);
        return Nanos::from_nanos(((COARSE_PER_OCTAVE + part) as u64) << (octave + 14));
    }
    let octave = next / PER_OCTAVE + 9 - PER_OCTAVE_LOG2;
    Nanos::from_nanos(((PER_OCTAVE + next % PER_OCTAVE) as u64) << octave)
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
        // Upper edges of buckets.
        for (ppm, least) in [(500_000, 8), (750_000, 11), (900_000, 20), (990_000, 70)] {
            let bound = tail.upper_quantile(ppm);
            assert!(bound > us(least) && bound <= us(least).scale(33, 32) + Nanos::from_nanos(32), "{ppm}: {bound}");
        }
    }

    #[test]
    fn a_stall_is_told_apart() {
        let mut tail = Tail::new();
        for _ in 0..100 {
            assert!(!tail.add(Nanos::from_micros(8), 5_000, MEMORY));
        }
        assert!(!tail.add(Nanos::from_micros(60), 5_000, MEMORY));
        assert!(tail.add(Nanos::from_millis(5), 5_000, MEMORY));
        assert!(tail.upper_quantile(999_000) < Nanos::from_micros(150));
    }

    #[test]
    fn a_stall_among_the_first_is_told_apart_as_well() {
        let mut tail = Tail::new();
        assert!(!tail.add(Nanos::from_micros(180), 5_000, MEMORY), "nothing to compare it with");
        let mut tail = Tail::new();
        for _ in 0..STALL_AFTER {
            assert!(!tail.add(Nanos::from_micros(8), 5_000, MEMORY));
        }
        assert!(tail.add(Nanos::from_micros(180), 5_000, MEMORY));
        assert!(tail.upper_quantile(990_000) < Nanos::from_micros(10));
    }

    #[test]
    fn what_comes_again_and_again_is_no_stall() {
        let mut tail = Tail::new();
        for n in 0..500 {
            tail.add(Nanos::from_micros(if n % 10 == 9 { 290 } else { 5 }), 5_000, MEMORY);
        }
        assert!(tail.upper_quantile(980_000) >= Nanos::from_micros(290));
    }

    proptest! {
        #[test]
        fn quantile_bounds_its_share(samples in prop::collection::vec(0u64..200_000, 1..800), ppm in 1u32..1_000_000) {
            let mut tail = Tail::new();
            // Those that were learned.
            let mut samples = samples;
            samples.retain(|s| !tail.add(Nanos::from_nanos(*s), 0, MEMORY));
            let bound = tail.upper_quantile(ppm).as_nanos();
            let within = samples.iter().filter(|s| **s < bound).count() as u64;
            prop_assert!(within * 1_000_000 >= samples.len() as u64 * u64::from(ppm));
        }
    }
}

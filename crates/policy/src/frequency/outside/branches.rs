//! Estimates how busy a polling core is from the processor's branch counters.
//!
//! A loop that polls an empty queue takes the same few branches again and again, and the processor predicts them all
//! correctly. Useful work takes other branches. So the share of mispredicted branches distinguishes an idle loop from a
//! busy one, without any help from the program.
//!
//! [`threshold`] is DPDK's test, with one threshold for all programs. A [`Signature`] is learned from an idle and a
//! busy phase of one program. It knows how reliably it can tell these apart, and recognises counts that match neither.

use units::Nanos;

use super::{ONE, Occupancy, Unsure, scale};

/// Counts of a core's branch counters over a span of time. All counters ran for the same part of the span.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Branches {
    /// Number of retired branches.
    pub branches: u64,
    /// Number of mispredicted branches.
    pub misses: u64,
    /// Cycles in which the core was not halted. `None` if they were not counted.
    pub cycles: Option<u64>,
    /// Time for which perf was asked to count: the length of the span.
    pub enabled: Nanos,
    /// Time for which the counters were actually running. It is shorter than `enabled` if perf shares the hardware
    /// counters with other users.
    pub counted: Nanos,
}

impl Branches {
    /// Whether the counters ran for long enough to be used.
    fn is_counted(&self) -> bool {
        self.enabled > Nanos::ZERO && self.counted * COUNTED_PART >= self.enabled
    }

    /// Mispredicted branches per million branches. `None` if no branches were counted.
    pub fn misses_ppm(&self) -> Option<u64> {
        (self.branches > 0).then(|| scale(self.misses, u64::from(ONE), self.branches))
    }
}

/// Counters that ran for less than `1 / COUNTED_PART` of the span are not used.
const COUNTED_PART: u64 = 20;

/// DPDK's threshold: 0.03 mispredicted branches in 100 (`RATIO_THRESHOLD`, DPDK examples/vm_power_manager/
/// oob_monitor_x86.c). Users of DPDK can set another one (`--core-branch-ratio`).
pub const DPDK_THRESHOLD_PPM: u64 = 300;
/// Minimum number of branches per microsecond of a polling loop. DPDK likewise ignores fewer than 10,000 branches in
/// its interval of 100 us (same source).
const LEAST_BRANCHES_PER_US: u64 = 100;

/// DPDK's test: with at least `threshold_ppm` mispredicted branches per million, the core counts as busy all the time,
/// otherwise as idle. If the core retires too few branches to be polling, the result is unsure.
pub fn threshold(seen: &Branches, threshold_ppm: u64) -> Occupancy {
    if !seen.is_counted() {
        return Occupancy::Unsure(Unsure::Uncounted);
    }
    if seen.branches < LEAST_BRANCHES_PER_US * seen.counted.as_micros_floor() {
        return Occupancy::Unsure(Unsure::Unlike);
    }
    match seen.misses_ppm() {
        Some(ppm) if ppm < threshold_ppm => Occupancy::Share(0),
        Some(_) => Occupancy::Share(ONE),
        None => Occupancy::Unsure(Unsure::Unlike),
    }
}

units::named! {
    /// The two phases from which a [`Signature`] is learned.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Phase {
        /// The program polls empty queues.
        Idle = "idle",
        /// The program processes packets.
        Load = "load",
    }
}

/// Number of spans of each phase that a signature needs.
pub const ENOUGH_SPANS: u32 = 50;
/// A signature is usable only if at most `1 / INDISTINCT_PART` of the spans look the same in both phases.
const INDISTINCT_PART: u64 = 50;
/// A span counts as idle only if it is more than this many times likelier in the idle phase than under load.
const LIKELIER: u64 = 8;
/// Number of histogram classes per feature. Each class covers a quarter of an octave.
const CLASSES: usize = 128;

/// The typical counts of one program when it is idle, and when it is busy.
///
/// A span is described by two features: mispredicted branches per branch, and branches per cycle. Each phase has a
/// histogram per feature, with classes of a quarter octave. A lookup adds half the counts of the two neighbouring
/// classes, so that values near a class boundary are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    idle: Histograms,
    load: Histograms,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Histograms {
    spans: u32,
    misses: [u32; CLASSES],
    density: [u32; CLASSES],
}

impl Default for Signature {
    fn default() -> Self {
        let none = Histograms { spans: 0, misses: [0; CLASSES], density: [0; CLASSES] };
        Self { idle: none, load: none }
    }
}

impl Signature {
    /// Learns one span of a phase. Returns whether the span was usable.
    pub fn learn(&mut self, phase: Phase, seen: &Branches) -> bool {
        let Some((misses, density)) = classes(seen) else { return false };
        let of = match phase {
            Phase::Idle => &mut self.idle,
            Phase::Load => &mut self.load,
        };
        if of.spans == u32::MAX / 4 {
            return true;
        }
        of.spans += 1;
        of.misses[misses] += 2;
        if let Some(density) = density {
            of.density[density] += 2;
        }
        true
    }

    /// Number of spans learned for a phase.
    pub fn spans(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Idle => self.idle.spans,
            Phase::Load => self.load.spans,
        }
    }

    /// How reliably one span tells the phases apart, in ppm: 1,000,000 minus the share of spans that look the same in
    /// both. `None` if too few spans were learned.
    pub fn confidence_ppm(&self) -> Option<u32> {
        if self.idle.spans.min(self.load.spans) < ENOUGH_SPANS {
            return None;
        }
        let same = |of: fn(&Histograms) -> &[u32; CLASSES]| {
            let likely = |histograms: &Histograms, class| {
                scale(weight(of(histograms), class), u64::from(ONE), total(of(histograms)))
            };
            (0..CLASSES).map(|class| likely(&self.idle, class).min(likely(&self.load, class))).sum::<u64>()
        };
        let mut overlap = same(|histograms| &histograms.misses);
        if self.has_density() {
            overlap = overlap.min(same(|histograms| &histograms.density));
        }
        Some(ONE - u32::try_from(overlap).unwrap_or(ONE).min(ONE))
    }

    /// Whether the phases can be told apart well enough to lower the frequency.
    pub fn is_distinct(&self) -> bool {
        self.confidence_ppm().is_some_and(|confidence| u64::from(ONE - confidence) * INDISTINCT_PART <= u64::from(ONE))
    }

    fn has_density(&self) -> bool {
        total(&self.idle.density) > 0 && total(&self.load.density) > 0
    }

    /// The core's occupancy in a span: 0 or 100 %. A span is idle only if it clearly matches the idle phase. If it
    /// matches neither phase, the occupancy is unsure.
    pub fn occupancy(&self, seen: &Branches) -> Occupancy {
        if !self.is_distinct() {
            let too_few = self.confidence_ppm().is_none();
            return Occupancy::Unsure(if too_few { Unsure::Learning } else { Unsure::Indistinct });
        }
        let Some((misses, density)) = classes(seen) else { return Occupancy::Unsure(Unsure::Uncounted) };
        let density = density.filter(|_| self.has_density());
        // Likelihood in parts per thousand for each feature, multiplied, because the features are assumed to be
        // independent.
        let likely = |of: &Histograms| {
            let part = |histogram: &[u32; CLASSES], class| scale(weight(histogram, class), 1_000, total(histogram));
            part(&of.misses, misses) * density.map_or(1_000, |density| part(&of.density, density))
        };
        let (idle, load) = (likely(&self.idle), likely(&self.load));
        match (idle, load) {
            (0, 0) => Occupancy::Unsure(Unsure::Unlike),
            _ if idle > load.saturating_mul(LIKELIER) => Occupancy::Share(0),
            _ => Occupancy::Share(ONE),
        }
    }
}

/// The count of a class, plus half the counts of its two neighbours.
fn weight(histogram: &[u32; CLASSES], class: usize) -> u64 {
    let at = |class: usize| u64::from(histogram.get(class).copied().unwrap_or(0));
    at(class) + (class.checked_sub(1).map_or(0, at) + at(class + 1)) / 2
}

fn total(histogram: &[u32; CLASSES]) -> u64 {
    histogram.iter().map(|count| u64::from(*count)).sum()
}

/// The classes of a span's features. `None` if the counts are too low.
fn classes(seen: &Branches) -> Option<(usize, Option<usize>)> {
    if !seen.is_counted() || seen.branches == 0 {
        return None;
    }
    // In parts of 2^30, so the range is from one misprediction in 2^30 branches to one per branch.
    let misses = class(scale(seen.misses, 1 << 30, seen.branches));
    let density = seen.cycles.filter(|cycles| *cycles > 0).map(|cycles| class(scale(seen.branches, 1 << 20, cycles)));
    Some((misses, density))
}

/// The histogram class of `value`: four times its binary logarithm, rounded down and limited to the last class.
fn class(value: u64) -> usize {
    let Some(octave) = value.checked_ilog2() else { return 0 };
    // The next two bits below the highest one.
    let quarter = if octave >= 2 { value >> (octave - 2) & 3 } else { value << (2 - octave) & 3 };
    ((octave as usize) * 4 + quarter as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A span of 10 ms with so many branches and mispredicted ones.
    fn span(branches: u64, misses: u64) -> Branches {
        let time = Nanos::from_millis(10);
        Branches { branches, misses, cycles: Some(30_000_000), enabled: time, counted: time }
    }

    #[test]
    fn dpdks_threshold() {
        assert_eq!(threshold(&span(10_000_000, 2_999), DPDK_THRESHOLD_PPM), Occupancy::Share(0));
        assert_eq!(threshold(&span(10_000_000, 3_000), DPDK_THRESHOLD_PPM), Occupancy::Share(ONE));
        assert_eq!(threshold(&span(999_999, 0), DPDK_THRESHOLD_PPM), Occupancy::Unsure(Unsure::Unlike));
        let short = Branches { counted: Nanos::from_micros(499), ..span(10_000_000, 0) };
        assert_eq!(threshold(&short, DPDK_THRESHOLD_PPM), Occupancy::Unsure(Unsure::Uncounted));
    }

    fn learned(idle: (u64, u64), load: (u64, u64)) -> Signature {
        let mut signature = Signature::default();
        for n in 0..u64::from(ENOUGH_SPANS) {
            assert!(signature.learn(Phase::Idle, &span(idle.0 + n * 1_000, idle.1 + n)));
            assert_eq!(signature.occupancy(&span(1, 1)), Occupancy::Unsure(Unsure::Learning));
            assert!(signature.learn(Phase::Load, &span(load.0 + n * 1_000, load.1 + n)));
        }
        signature
    }

    #[test]
    fn a_signature_tells_the_phases_apart_and_knows_what_it_does_not_know() {
        let signature = learned((12_000_000, 300), (6_000_000, 20_000));
        assert_eq!(signature.confidence_ppm(), Some(ONE));
        assert_eq!(signature.occupancy(&span(12_020_000, 310)), Occupancy::Share(0));
        assert_eq!(signature.occupancy(&span(6_010_000, 20_100)), Occupancy::Share(ONE));
        assert_eq!(signature.occupancy(&span(6_010_000, 900_000)), Occupancy::Unsure(Unsure::Unlike));
        let uncounted = Branches { counted: Nanos::ZERO, ..span(12_020_000, 310) };
        assert_eq!(signature.occupancy(&uncounted), Occupancy::Unsure(Unsure::Uncounted));
    }

    #[test]
    fn phases_that_look_alike_are_unsure() {
        let signature = learned((12_000_000, 300), (12_000_000, 300));
        assert!(signature.confidence_ppm().unwrap() < 100_000);
        assert_eq!(signature.occupancy(&span(12_020_000, 310)), Occupancy::Unsure(Unsure::Indistinct));
    }

    #[test]
    fn one_feature_suffices() {
        // The same share of mispredicted branches, but fewer branches a cycle under load.
        let signature = learned((12_000_000, 1_200), (3_000_000, 300));
        assert!(signature.confidence_ppm().unwrap() > 990_000);
        assert_eq!(signature.occupancy(&span(12_020_000, 1_210)), Occupancy::Share(0));
        assert_eq!(signature.occupancy(&span(3_010_000, 301)), Occupancy::Share(ONE));
    }

    #[test]
    fn classes_are_quarters_of_an_octave() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(class), [0, 0, 4, 6, 8, 9, 10, 11, 12]);
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }
}

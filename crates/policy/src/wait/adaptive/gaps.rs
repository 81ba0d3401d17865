//! Predicts when the next frames will arrive, from the gaps seen so far and the time since the last frame.
//!
//! Gaps are counted per octave of length. The survival of an octave is the share of gaps that are longer than the
//! octave, among those that reach it (E. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations",
//! Journal of the American Statistical Association 53, 1958). The negative logarithm of the survival is the octave's
//! hazard. For Poisson arrivals, the hazard is proportional to the octave's width. Between bursts, it falls as the
//! silence gets longer. Just before a regular arrival, it has a spike.

use super::math::{exp_neg, minus_ln, product_over};

/// Number of octaves. The first ends at 256 ns, the last begins at 134 ms.
pub(super) const OCTAVES: usize = 20;
/// Weight of one gap. It is more than 1 so that a rare gap still counts after its weight was halved a few times.
const UNIT: u64 = 64;
/// Weight of an imaginary gap that stands for gaps not seen yet, in the same unit as `UNIT`.
const DOUBT: u64 = UNIT / 16;
/// All counts are halved when their sum reaches this value, that is, after 2,048 gaps.
const MEMORY: u64 = 2048 * UNIT;
/// A gap counts as a silence between two bursts if it is more than about this many times as long as the mean gap. Poisson
/// arrivals have no such gaps. An estimate.
const SILENCE: u64 = 64;
/// If there are such silences, the counts are halved at most once in this time, in nanoseconds (an estimate). Otherwise,
/// the 2,048 gaps of a few milliseconds of a dense burst would push out the silence before it.
const PERIOD: u64 = 50_000_000;
/// At this sum, counts are halved in any case: a clock that stands still shows millions of packets in no time.
const MOST: u64 = 1 << 40;
/// The hazards are recomputed after this many gaps.
const RENEW: u32 = 64;
/// The mean is recomputed after this many gaps, or at once after a gap that is much longer than the mean.
const MEAN_EACH: u32 = 8;
/// The maximum of the expected time until the next packet, in nanoseconds. The loop polls its devices at least this
/// often anyway.
const LONGEST: u64 = 100_000_000;

/// The recent gaps between packets.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Gaps that ended in each octave, in units.
    ended: [u64; OCTAVES],
    /// Total time that these gaps spent in their last octave, weighted by their units.
    within: [u64; OCTAVES],
    total: u64,
    /// Hazard of each whole octave, in 2^-16.
    hazards: [u64; OCTAVES],
    /// Mean time that a gap spends in the octave in which it ends, in nanoseconds.
    inside: [u64; OCTAVES],
    since_renewal: u32,
    /// Number of packets. `span` is the time in which they arrived. Both are halved from time to time; their ratio is
    /// the mean rate.
    packets: u64,
    span: u64,
    /// The time since the counts of gaps were last halved, in nanoseconds.
    aged: u64,
    /// The mean gap in nanoseconds: `span` divided by `packets`, recomputed every [`MEAN_EACH`] gaps.
    mean: u64,
}

/// The octave in which a silence of this length lies.
pub(super) fn octave(nanos: u64) -> usize {
    (((nanos >> 8) + 1).ilog2() as usize).min(OCTAVES - 1)
}

/// The length at which an octave begins, in nanoseconds.
pub(super) const fn begins(octave: usize) -> u64 {
    ((1u64 << octave) - 1) << 8
}

const fn width(octave: usize) -> u64 {
    256 << octave
}

impl Gaps {
    pub(super) fn new() -> Self {
        let mut gaps = Self {
            ended: [0; OCTAVES],
            within: [0; OCTAVES],
            total: 0,
            hazards: [0; OCTAVES],
            inside: [0; OCTAVES],
            since_renewal: 0,
            packets: 0,
            span: 0,
            aged: 0,
            mean: LONGEST,
        };
        gaps.renew();
        gaps
    }

    /// Adds `count` gaps of `nanos` each.
    #[inline]
    pub(super) fn add(&mut self, nanos: u64, count: u64) {
        if count == 0 {
            return;
        }
        let index = octave(nanos);
        let units = UNIT * count;
        self.ended[index] += units;
        self.within[index] += (nanos - begins(index)).min(width(index)) * units;
        self.total += units;
        self.packets += count;
        self.span += nanos.min(LONGEST) * count;
        self.aged += nanos.min(LONGEST) * count;
        self.since_renewal += 1;
        if self.since_renewal >= RENEW || self.total <= 32 * UNIT {
            self.renew();
        }
        if self.since_renewal.is_multiple_of(MEAN_EACH) || nanos / 4 >= self.mean {
            self.mean = self.span.checked_div(self.packets).map_or(LONGEST, |gap| gap.max(1));
        }
    }

    fn renew(&mut self) {
        self.since_renewal = 0;
        // Halve after one second of packets, but keep at least a hundred packets.
        if self.span > 1_000_000_000 && self.packets > 200 {
            self.span /= 2;
            self.packets /= 2;
        }
        let is_old = || self.aged >= PERIOD || self.total >= MOST || !self.has_silences();
        if self.total >= MEMORY && is_old() {
            (self.total, self.aged) = (0, 0);
            for (ended, within) in self.ended.iter_mut().zip(&mut self.within) {
                *ended /= 2;
                *within /= 2;
                self.total += *ended;
            }
        }
        let mut outlast = 0;
        for index in (0..OCTAVES).rev() {
            let reach = outlast + self.ended[index];
            // If nothing is known of an octave, half of the silences that reach it are assumed to outlast it.
            let survive = ((outlast + DOUBT) << 16) / (reach + 2 * DOUBT);
            self.hazards[index] = minus_ln(survive);
            self.inside[index] = self.within[index].checked_div(self.ended[index]).unwrap_or(width(index) / 2);
            outlast = reach;
        }
    }

    /// Whether some of the counted gaps were silences between bursts.
    fn has_silences(&self) -> bool {
        let first = octave(self.mean.saturating_mul(SILENCE)) + 1;
        self.ended.get(first..).is_some_and(|longer| longer.iter().any(|units| *units > 0))
    }

    /// The mean gap in nanoseconds. [`LONGEST`] if nothing has arrived yet.
    #[inline]
    pub(super) fn mean(&self) -> u64 {
        self.mean
    }

    /// The share of time that the current silence spends in each octave, in 2^-16.
    pub(super) fn shares(&self) -> [u64; OCTAVES] {
        let (mut survivors, mut all) = (self.total, 0u128);
        let times: [u128; OCTAVES] = core::array::from_fn(|index| {
            survivors -= self.ended[index].min(survivors);
            let time = u128::from(survivors) * u128::from(width(index)) + u128::from(self.within[index]);
            all += time;
            time
        });
        times.map(|time| ((time << 16) / all.max(1)) as u64)
    }

    /// The hazard during the next `span` nanoseconds, after `silence` nanoseconds without a frame, in 2^-16.
    fn risk(&self, silence: u64, span: u64) -> u64 {
        let (mut index, mut from, mut left, mut risk) = (octave(silence), silence, span, 0u64);
        loop {
            let ends = if index == OCTAVES - 1 { u64::MAX } else { begins(index + 1) };
            let part = left.min(ends - from);
            risk +=
                if part >= width(index) { self.hazards[index] } else { (self.hazards[index] * part) >> (index + 8) };
            left -= part;
            if left == 0 || risk > 16 << 16 {
                return risk;
            }
            (from, index) = (ends, index + 1);
        }
    }

    /// Expected number of frames in the next `span` nanoseconds, after `silence` nanoseconds without a frame, in
    /// millionths. The first frame arrives according to its hazard; the others arrive at the rate that follows an
    /// arrival.
    pub(super) fn expected(&self, silence: u64, span: u64) -> u64 {
        if span == 0 {
            return 0;
        }
        let risk = self.risk(silence, span);
        let comes = (1 << 16) - exp_neg(risk);
        // The share of the span that is left after the first frame, if it arrives: x (1 + H) / (2 + H) for a constant
        // hazard.
        let one = 1u64 << 16;
        let left = product_over(span, one + risk, 2 * one + risk) as u64;
        let more = self.follow(left);
        ((u128::from(comes) * u128::from(1_000_000 + more)) >> 16) as u64
    }

    /// Expected number of further frames within `span` after a frame, in millionths.
    pub(super) fn follow(&self, span: u64) -> u64 {
        // A renewal process: the number of gaps that fit into the span, if each gap is cut at the span or at the first
        // octave.
        let reach = octave(span.max(1_024));
        let (mut events, mut exposed, mut survivors) = (0u64, 0u64, self.total);
        for index in 0..=reach {
            let ended = self.ended[index];
            survivors -= ended.min(survivors);
            events += ended;
            exposed = exposed.saturating_add(survivors.saturating_mul(width(index))).saturating_add(self.within[index]);
        }
        let frames = product_over(events * 1_000_000, span, exposed.max(1));
        u64::try_from(frames).unwrap_or(u64::MAX).min(1 << 40)
    }

    /// Mean time until the next frame, after `silence` nanoseconds without one. In nanoseconds, at most [`LONGEST`].
    pub(super) fn residual(&self, silence: u64) -> u64 {
        let (mut index, mut from, mut alive, mut mean) = (octave(silence), silence, 1u64 << 32, 0u64);
        while index < OCTAVES - 1 && alive > 64 {
            let ends = begins(index + 1);
            let part = ends - from;
            let survives = (alive * exp_neg((self.hazards[index] * part) >> (index + 8))) >> 16;
            // If the silence has already lasted for part of an octave, the rest of the gaps that end in it is scaled by
            // the part that remains.
            let inside = (u128::from(self.inside[index]) * u128::from(part) / u128::from(width(index))) as u64;
            mean += (survives * part + (alive - survives) * inside) >> 32;
            (alive, from, index) = (survives, ends, index + 1);
        }
        mean += (alive * LONGEST) >> 32;
        mean.clamp(1, LONGEST)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn poisson(mean: f64, seed: u64) -> Gaps {
        let (mut gaps, mut state) = (Gaps::new(), seed);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            gaps.add((-mean * uniform.ln()) as u64, 1);
        }
        gaps
    }

    fn near(value: u64, expected: f64, part: f64) {
        assert!((value as f64 - expected).abs() <= expected * part, "{value} is not near {expected}");
    }

    #[test]
    fn octaves_meet() {
        for index in 1..OCTAVES {
            assert_eq!(octave(begins(index)), index);
            assert_eq!(octave(begins(index) - 1), index - 1);
        }
    }

    #[test]
    fn random_arrivals_do_not_remember() {
        for mean in [1_000.0, 50_000.0, 500_000.0] {
            let gaps = poisson(mean, 3);
            near(gaps.mean(), mean, 0.15);
            for silence in [0.0, 0.5, 1.0, 2.0] {
                let silence = (silence * mean) as u64;
                near(gaps.residual(silence), mean, 0.25);
                for span in [0.1, 0.5, 1.0, 4.0] {
                    near(gaps.expected(silence, (span * mean) as u64), span * 1e6, 0.25);
                }
            }
        }
    }

    #[test]
    fn after_a_burst_comes_a_long_silence() {
        let mut gaps = Gaps::new();
        for _ in 0..40 {
            gaps.add(10_000, 999);
            gaps.add(40_000_000, 1);
        }
        near(gaps.mean(), 50_000.0, 0.2);
        assert!(gaps.residual(0) < 150_000, "{}", gaps.residual(0));
        assert!(gaps.residual(100_000) > 10_000_000, "{}", gaps.residual(100_000));
        assert!(gaps.expected(0, 20_000) > 1_000_000);
        assert!(gaps.expected(200_000, 20_000) < 20_000);
    }

    #[test]
    fn of_nothing_little_is_said() {
        let gaps = Gaps::new();
        assert!(gaps.residual(1_000_000) > 500_000);
        assert!(gaps.expected(10_000_000, 10_000) < 10_000);
    }

    /// Bursts of 7,440 packets, each followed by a silence of 40 ms.
    #[test]
    fn dense_bursts_do_not_push_out_the_silences_between_them() {
        let mut gaps = Gaps::new();
        for _ in 0..10 {
            (0..7_440).for_each(|_| gaps.add(1_344, 1));
            gaps.add(40_000_000, 1);
        }
        (0..7_440).for_each(|_| gaps.add(1_344, 1));
        let residual = gaps.residual(1_100_000);
        assert!((30_000_000..50_000_000).contains(&residual), "{residual}");
    }

    #[test]
    fn a_clock_that_stands_still_overflows_nothing() {
        let mut gaps = Gaps::new();
        (0..40_000).for_each(|_| gaps.add(0, 1 << 20));
        assert!(gaps.total < 1 << 41, "{gaps:?}");
    }
}

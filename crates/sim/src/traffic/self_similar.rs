//! Bursts at all time scales, as in the sum of many file transfers.
//!
//! Several senders each alternate between on and off. Both durations are Pareto-distributed with shape a between 1 and
//! 2, so their variance is infinite. The sum is asymptotically self-similar with Hurst parameter H = (3 - a) / 2.
//! Source: W. Willinger, M. S. Taqqu, R. Sherman, D. V. Wilson, "Self-similarity through high-variability", IEEE/ACM
//! ToN 5(1), 1997, theorem 1.
//!
//! **Limits.** Means converge slowly. In a short run the rate may be far from the requested one, which is typical of
//! self-similar traffic. On and off times are limited to [`LONGEST`], so the tail of their distribution ends there.

use units::{BitRate, Nanos};

use super::{Frame, Pace, Rate, Sizes};
use crate::At;
use crate::engine::Agenda;
use crate::random::Random;

/// The longest on or off time.
pub const LONGEST: Nanos = Nanos::from_secs(100);

/// Parameters of self-similar traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelfSimilar {
    /// The mean total rate of all senders.
    pub rate: Rate,
    /// Number of senders, at least 1.
    pub sources: u32,
    /// The rate of one sender while it is on. The sum over all senders must exceed `rate`.
    pub peak: Rate,
    /// Mean time for which a sender is on.
    pub burst: Nanos,
    /// The Hurst parameter in thousandths, 501 to 999; 500 would mean no self-similarity. 800 was observed on Ethernet
    /// (W. Leland and others, IEEE/ACM ToN 2(1), 1994).
    pub hurst_thousandths: u32,
}

impl SelfSimilar {
    /// Mean off time of a sender with which the senders' mean total rate is `rate`. `None` if the sum of their peak
    /// rates does not exceed `rate`.
    pub fn silence(&self, sizes: &Sizes, line: BitRate) -> Option<Nanos> {
        let all = u128::from(self.peak.on_wire(sizes, line).as_bps()) * u128::from(self.sources);
        let rate = u128::from(self.rate.on_wire(sizes, line).as_bps()).max(1);
        let above = all.checked_sub(rate).filter(|above| *above > 0)?;
        let nanos = u128::from(self.burst.as_nanos()) * above / rate;
        Some(Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// One of the senders.
#[derive(Debug)]
struct Sender {
    pace: Pace,
    burst_ends: At,
}

/// All senders of the traffic.
#[derive(Debug)]
pub struct Source {
    senders: Vec<Sender>,
    /// When each sender sends next.
    next: Agenda,
    sizes: Sizes,
    random: Random,
    on: Pareto,
    off: Pareto,
}

impl Source {
    /// Makes a source whose senders begin within a silence, each at a random point, so that they do not all begin at
    /// once.
    pub fn new(what: &SelfSimilar, line: BitRate, sizes: Sizes, start: At, mut random: Random) -> Self {
        let shape_thousandths = 3_000 - 2 * what.hurst_thousandths.clamp(501, 999);
        let on = Pareto::new(what.burst, shape_thousandths);
        let silence = what.silence(&sizes, line).unwrap_or(Nanos::ZERO);
        let off = Pareto::new(silence, shape_thousandths);
        let mut next = Agenda::new(what.sources as usize);
        let senders = (0..what.sources as usize)
            .map(|number| {
                let first = start + random.uniform(Nanos::ZERO, silence);
                next.set(number, Some(first));
                Sender { pace: what.peak.pace(line), burst_ends: first + on.draw(&mut random) }
            })
            .collect();
        Self { senders, next, sizes, random, on, off }
    }

    /// Draws the next frame. A burst has at least one frame.
    #[allow(clippy::missing_panics_doc)] // a sender always has a next frame
    pub fn draw(&mut self) -> Frame {
        let (at, number) = self.next.next().expect("every sender sends again");
        let octets = self.sizes.draw();
        let sender = &mut self.senders[number];
        let mut next = at + sender.pace.gap(octets);
        if next >= sender.burst_ends {
            next = (sender.burst_ends + self.off.draw(&mut self.random)).max(next);
            sender.burst_ends = next + self.on.draw(&mut self.random);
        }
        self.next.set(number, Some(next));
        Frame { at, octets, tag: 0, queue: None }
    }
}

/// Pareto-distributed durations: at least x, and longer than t with probability (x / t)^a.
#[derive(Clone, Copy, Debug)]
struct Pareto {
    /// The shortest duration, x.
    least: Nanos,
    shape_thousandths: u32,
}

impl Pareto {
    /// Makes a distribution with this mean: x = mean (a - 1) / a.
    fn new(mean: Nanos, shape_thousandths: u32) -> Self {
        let least = mean.scale(u64::from(shape_thousandths) - 1_000, shape_thousandths.into());
        Self { least, shape_thousandths }
    }

    /// Draws x u^(-1/a) for u uniform in (0, 1). With E = -ln u, which is exponential, it equals x 2^(E log2(e) / a).
    fn draw(&self, random: &mut Random) -> Nanos {
        /// log2(e), in units of 2^-32.
        const LOG2_E: u128 = 6_196_328_018;
        // Exponential of mean 1, in units of 2^-32.
        let exponential = u128::from(random.exponential(Nanos::from_nanos(1 << 32)).as_nanos());
        let exponent = ((exponential * LOG2_E) >> 32) * 1_000 / u128::from(self.shape_thousandths);
        let (whole, fraction) = ((exponent >> 32) as u32, exponent as u32);
        let length = ((u128::from(self.least.as_nanos()) * u128::from(exp2(fraction))) >> 32) << whole.min(48);
        Nanos::from_nanos(u64::try_from(length).unwrap_or(u64::MAX)).min(LONGEST)
    }
}

/// 2^(2^-1), 2^(2^-2), ..., 2^(2^-32), each minus 1 so that it fits, in units of 2^-64. Each power is the square root
/// of the one before.
static ROOTS: [u64; 32] = roots();

const fn roots() -> [u64; 32] {
    let mut all = [0; 32];
    // In units of 2^-62, so that the square fits into 128 bits.
    let mut root = 2u128 << 62;
    let mut i = 0;
    while i < 32 {
        root = (root << 62).isqrt();
        all[i] = ((root - (1 << 62)) << 2) as u64;
        i += 1;
    }
    all
}

/// 2^x for x below 1. Argument and result are in units of 2^-32.
fn exp2(x: u32) -> u64 {
    let mut result = 1u64 << 62;
    for (place, root) in ROOTS.iter().enumerate() {
        if (x >> (31 - place)) & 1 == 1 {
            // Times (1 + root / 2^64).
            result += ((u128::from(result) * u128::from(*root)) >> 64) as u64;
        }
    }
    result >> 30
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::PacketRate;

    #[test]
    fn powers_of_two() {
        for x in [0, 1, 1 << 20, 1 << 31, 3 << 30, u32::MAX] {
            let exact = (f64::from(x) / 4_294_967_296.0).exp2();
            let got = exp2(x) as f64 / 4_294_967_296.0;
            assert!((got / exact - 1.0).abs() < 1e-9, "{x}: {got} {exact}");
        }
    }

    #[test]
    fn the_tail_is_paretos() {
        let pareto = Pareto::new(Nanos::from_micros(300), 1_500);
        assert_eq!(pareto.least, Nanos::from_micros(100));
        let mut random = Random::stream(1, 2);
        let samples: Vec<u64> = (0..200_000).map(|_| pareto.draw(&mut random).as_nanos()).collect();
        for factor in [2u32, 10, 50] {
            let above = samples.iter().filter(|s| **s > 100_000 * u64::from(factor)).count() as f64 / 200_000.0;
            let exact = f64::from(factor).powf(-1.5);
            assert!((above / exact - 1.0).abs() < 0.1, "{factor}: {above} {exact}");
        }
        assert!(samples.iter().all(|s| *s >= 100_000));
    }

    #[test]
    fn rates_vary_at_long_time_scales_as_poissons_do_not() {
        let packets = |n| Rate::Packets(PacketRate::new(n));
        let what = SelfSimilar {
            rate: packets(100_000),
            sources: 16,
            peak: packets(20_000),
            burst: Nanos::from_millis(1),
            hurst_thousandths: 800,
        };
        let sizes = Sizes::fixed(64).unwrap();
        let line = BitRate::new(10_000_000_000);
        let mut source = Source::new(&what, line, sizes.clone(), At::ORIGIN, Random::stream(4, 4));
        // Frames per millisecond, over 20 s; then the index of dispersion for blocks of 1 ms and of 100 ms.
        let mut counts = vec![0u32; 20_000];
        loop {
            let frame = source.draw();
            match counts.get_mut((frame.at.as_nanos() / 1_000_000) as usize) {
                Some(count) => *count += 1,
                None => break,
            }
        }
        let mean = counts.iter().sum::<u32>() as f64 / 20_000.0;
        assert!((70.0..130.0).contains(&mean), "{mean} frames a millisecond");
        let dispersion = |block: usize| {
            let sums: Vec<f64> = counts.chunks(block).map(|c| f64::from(c.iter().sum::<u32>())).collect();
            let mean = sums.iter().sum::<f64>() / sums.len() as f64;
            sums.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / sums.len() as f64 / mean
        };
        let (short, long) = (dispersion(1), dispersion(100));
        // For Poisson traffic both would be 1. Here the index grows as t^(2H - 1), and 100^0.6 is 16.
        assert!(short > 2.0 && long > 4.0 * short, "{short} {long}");
    }

    #[test]
    fn silence_makes_the_rate() {
        let packets = |n| Rate::Packets(PacketRate::new(n));
        let sizes = Sizes::fixed(64).unwrap();
        let line = BitRate::new(10_000_000_000);
        let mut what = SelfSimilar {
            rate: packets(100),
            sources: 4,
            peak: packets(100),
            burst: Nanos::from_millis(3),
            hurst_thousandths: 800,
        };
        assert_eq!(what.silence(&sizes, line), Some(Nanos::from_millis(9)));
        what.sources = 1;
        assert_eq!(what.silence(&sizes, line), None);
    }
}

//! A rate as a user writes it, and the exact gaps between frames at that rate.

use std::fmt;
use std::str::FromStr;

use units::{BitRate, Nanos, PacketRate};

use super::{Sizes, WIRE_OVERHEAD};

/// A rate in frames, in bits on the wire, or as a share of the line rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// Frames per second.
    Packets(PacketRate),
    /// Bits per second on the wire, including preambles and gaps between frames.
    Bits(BitRate),
    /// A share of the line rate, in ppm.
    Line(u32),
}

/// Reads `14.88Mpps`, `2.5Gbps` or `99.8%`: whole numbers of pps or bps, or a percentage with up to four decimals.
impl FromStr for Rate {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "expected a rate above 0 such as 14.88Mpps (pps, kpps, Mpps), 2.5Gbps on the wire (bps, \
                             kbps, Mbps, Gbps), or 99.8% of the line rate (at most 100%)";
        let rate = if let Some(percent) = text.trim().strip_suffix('%') {
            Self::Line(ppm_of_percent(percent.trim_end()).filter(|ppm| *ppm <= 1_000_000).ok_or(ERROR)?)
        } else if let Ok(packets) = text.parse() {
            Self::Packets(packets)
        } else {
            Self::Bits(text.parse().map_err(|_| ERROR)?)
        };
        if rate.is_zero() { Err(ERROR) } else { Ok(rate) }
    }
}

/// Converts a percentage such as `99.8` to ppm. `None` if the result is not whole.
pub fn ppm_of_percent(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 4 {
        return None;
    }
    let fraction: u32 = format!("{fraction:0<4}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(fraction)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(rate) => rate.fmt(f),
            Self::Bits(rate) => write!(f, "{}bps", rate.as_bps()),
            Self::Line(ppm) => write!(f, "{}%", f64::from(*ppm) / 10_000.0),
        }
    }
}

impl Rate {
    const fn is_zero(self) -> bool {
        match self {
            Self::Packets(rate) => rate.as_pps() == 0,
            Self::Bits(rate) => rate.as_bps() == 0,
            Self::Line(ppm) => ppm == 0,
        }
    }

    /// The gaps between frames at this rate, on a wire with the rate `line`.
    pub fn pace(self, line: BitRate) -> Pace {
        match self {
            Self::Packets(rate) => Pace::new(false, 1_000_000_000, u128::from(rate.as_pps())),
            Self::Bits(rate) => Pace::new(true, 1_000_000_000, u128::from(rate.as_bps())),
            Self::Line(ppm) => Pace::new(true, 1_000_000_000_000_000, u128::from(line.as_bps()) * u128::from(ppm)),
        }
    }

    /// Bits per second on the wire for frames of `sizes` at this rate.
    pub fn on_wire(self, sizes: &Sizes, line: BitRate) -> BitRate {
        let bits = match self {
            Self::Packets(rate) => {
                u128::from(rate.as_pps()) * u128::from(sizes.wire_bits()) / sizes.octets().len() as u128
            }
            Self::Bits(rate) => u128::from(rate.as_bps()),
            Self::Line(ppm) => u128::from(line.as_bps()) * u128::from(ppm) / 1_000_000,
        };
        BitRate::new(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

/// The exact gaps between frames at a rate. The fraction of a nanosecond lost by rounding is carried to the next gap.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Whether a frame's cost is its number of bits on the wire. If false, the cost of each frame is 1.
    by_bits: bool,
    /// A gap is cost · numerator / denominator nanoseconds.
    numerator: u128,
    denominator: u64,
    /// The part of a nanosecond carried to the next gap, in units of a nanosecond divided by the denominator.
    rest: u64,
    /// Frame size for which `whole` and `part` of the gap were computed.
    octets: u32,
    whole: u64,
    part: u64,
}

impl Pace {
    fn new(by_bits: bool, numerator: u128, denominator: u128) -> Self {
        let divisor = gcd(numerator, denominator).max(1);
        let (numerator, denominator) = (numerator / divisor, (denominator / divisor).max(1));
        // 400 Gbit/s in millionths is below 2^63.
        let denominator = u64::try_from(denominator).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1);
        Self { by_bits, numerator, denominator, rest: 0, octets: 0, whole: 0, part: 0 }
    }

    fn cost(&self, octets: u32) -> u128 {
        if self.by_bits { u128::from(octets + WIRE_OVERHEAD) * 8 } else { 1 }
    }

    /// Time from the start of a frame of `octets` bytes to the start of the next.
    #[inline]
    pub fn gap(&mut self, octets: u32) -> Nanos {
        if octets != self.octets {
            let exact = self.cost(octets) * self.numerator;
            self.octets = octets;
            self.whole = u64::try_from(exact / u128::from(self.denominator)).unwrap_or(u64::MAX / 2);
            self.part = (exact % u128::from(self.denominator)) as u64;
        }
        self.rest += self.part;
        let carry = u64::from(self.rest >= self.denominator);
        self.rest -= carry * self.denominator;
        Nanos::from_nanos(self.whole + carry)
    }

    /// The mean gap after a frame of `octets` bytes, in 2^-16 ns.
    pub fn mean_gap(&self, octets: u32) -> u64 {
        let exact = ((self.cost(octets) * self.numerator) << 16) / u128::from(self.denominator);
        u64::try_from(exact).unwrap_or(u64::MAX)
    }

    /// Drops the fraction of a nanosecond that would be carried to the next gap.
    pub fn restart(&mut self) {
        self.rest = 0;
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_rates() {
        assert_eq!("14.88Mpps".parse(), Ok(Rate::Packets(PacketRate::new(14_880_000))));
        assert_eq!("10Gbps".parse(), Ok(Rate::Bits(BitRate::new(10_000_000_000))));
        assert_eq!("99.8%".parse(), Ok(Rate::Line(998_000)));
        for text in ["0pps", "0%", "101%", "99.80001%", "10", "%", "1.%", "-1pps", "5Mpp"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn line_rate_is_exact_over_time() {
        // 64 bytes at 10 Gbit/s: 67.2 ns each, 14,880,952.38 a second.
        let mut pace = Rate::Line(1_000_000).pace(BitRate::new(10_000_000_000));
        let total: u64 = (0..10_000_000).map(|_| pace.gap(64).as_nanos()).sum();
        assert_eq!(total, 672_000_000);
        assert_eq!(pace.mean_gap(64), (67.2 * 65_536.0) as u64);
    }

    proptest! {
        #[test]
        fn packets_a_second_are_exact(pps in 1u64..200_000_000) {
            let mut pace = Rate::Packets(PacketRate::new(pps)).pace(BitRate::new(1));
            let count = pps.min(10_000);
            let total: u64 = (0..count).map(|_| pace.gap(64).as_nanos()).sum();
            prop_assert_eq!(u128::from(total), u128::from(count) * 1_000_000_000 / u128::from(pps));
        }
    }
}

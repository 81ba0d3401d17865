//! Packet and bit rates.

use core::fmt;
use core::str::FromStr;

use crate::Nanos;
use crate::parse::{ParseError, scaled};

/// Bytes on an Ethernet wire per frame in addition to the frame itself: preamble and start delimiter (8) and the
/// inter-frame gap (12). IEEE 802.3-2018, 4.2.3.2.2 and 4.4.2.
const WIRE_OVERHEAD: u64 = 20;

/// A rate in packets per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PacketRate(u64);

impl PacketRate {
    /// Makes a rate of `n` packets per second.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The number of packets per second.
    pub const fn as_pps(self) -> u64 {
        self.0
    }
    /// The time in which `packets` packets arrive at this rate, rounded down. [`Nanos::MAX`] at rate 0.
    ///
    /// It also tells when a ring fills up: an empty ring of N descriptors is full N / rate after its reader stops.
    pub const fn time_for(self, packets: u64) -> Nanos {
        Nanos::from_nanos(packets).scale(1_000_000_000, self.0)
    }
    /// The number of packets that arrive within `span` at this rate, rounded up.
    pub const fn packets_in(self, span: Nanos) -> u64 {
        let billionths = span.as_nanos() as u128 * self.0 as u128;
        let packets = billionths.div_ceil(1_000_000_000);
        if packets > u64::MAX as u128 { u64::MAX } else { packets as u64 }
    }
}

/// Reads `20kpps`, `14.88Mpps` or `350pps`.
impl FromStr for PacketRate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const UNITS: &[(&str, u64)] = &[("pps", 1), ("kpps", 1_000), ("Mpps", 1_000_000), ("Gpps", 1_000_000_000)];
        scaled(text, UNITS, "a packet rate such as 20kpps or 14.88Mpps (pps, kpps, Mpps, Gpps)").map(Self)
    }
}

/// Writes three significant digits: `14.8Mpps`.
impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{}pps", self.0),
            1_000..1_000_000 => (1_000, "kpps"),
            1_000_000..1_000_000_000 => (1_000_000, "Mpps"),
            _ => (1_000_000_000, "Gpps"),
        };
        let whole = self.0 / unit;
        let thousandths = self.0 % unit * 1_000 / unit;
        match whole {
            0..10 => write!(f, "{whole}.{:02}{name}", thousandths / 10),
            10..100 => write!(f, "{whole}.{}{name}", thousandths / 100),
            _ => write!(f, "{whole}{name}"),
        }
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BitRate(u64);

impl BitRate {
    /// Makes a rate of `n` bits per second.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The number of bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// The number of frames per second at this line rate, rounded down. `octets` is the size of a frame in bytes, with
    /// its frame check sequence.
    ///
    /// At 10 Gbit/s there are 14,880,952 frames of 64 bytes per second.
    pub const fn frames_of(self, octets: u64) -> PacketRate {
        PacketRate(self.0 / ((octets + WIRE_OVERHEAD) * 8))
    }
}

/// Reads `10Gbps`, `100Mbps` or `64kbps`.
impl FromStr for BitRate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const UNITS: &[(&str, u64)] = &[("bps", 1), ("kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)];
        scaled(text, UNITS, "a bit rate such as 10Gbps (bps, kbps, Mbps, Gbps)").map(Self)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn line_rate_of_ten_gigabit() {
        let rate = "10Gbps".parse::<BitRate>().unwrap();
        assert_eq!(rate.frames_of(64).as_pps(), 14_880_952);
    }

    #[test]
    fn ring_time_of_the_design() {
        // 1024 frames of 1500 bytes at 40 Gbit/s take 307 us without preambles and gaps.
        let rate = PacketRate::new(40_000_000_000 / (1500 * 8));
        assert_eq!(rate.time_for(1024).as_micros_floor(), 307);
        assert_eq!(PacketRate::new(0).time_for(1), Nanos::MAX);
        assert_eq!(rate.packets_in(Nanos::from_micros(307)), 1_024);
        assert_eq!(PacketRate::new(u64::MAX).packets_in(Nanos::MAX), u64::MAX);
    }

    #[test]
    fn reads_and_shows() {
        assert_eq!("14.88Mpps".parse::<PacketRate>().unwrap().as_pps(), 14_880_000);
        assert_eq!(PacketRate::new(14_880_952).to_string(), "14.8Mpps");
        assert_eq!(PacketRate::new(350).to_string(), "350pps");
        assert!("14.88".parse::<PacketRate>().is_err());
        assert!("10Gpps".parse::<BitRate>().is_err());
    }
}

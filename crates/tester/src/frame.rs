//! The test frame: its sizes, its layout, how it is written and parsed.
//!
//! Sizes include the frame check sequence (RFC 2544, 9.1). A frame of size `64` has 60 bytes of data for the device to
//! send; the port adds the frame check sequence of 4 bytes. [`FrameSize`] holds the size with the frame check sequence;
//! [`FrameSize::data`] gives the size without it.
//!
//! ```text
//!  Ethernet (14), VLAN (4) │ IPv4 (20) or IPv6 (40) │ UDP (8) │ test header (18) │ fill 0x5a …
//!                          └─ not with Encapsulation::Ethernet ─┘
//!  test header, big endian:
//!   0 magic "Ap" │ 2 stream │ 4 sequence, low 32 bits │ 8 intended send time, ns │ 16 CRC-16 of 0..16
//! ```
//! A 64-byte UDP frame leaves only 18 bytes for the test header. So the header holds only the lower half of the
//! sequence number. The tester knows how many frames it has sent, and restores the upper half
//! ([`TestHeader::sequence_below`]). The CRC covers the test header, not the fill. The UDP checksum covers both, but
//! the tester does not check it.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use units::{Instant, Monotonic};

use crate::Error;
use crate::flows::{Family, Flow, Flows};

/// Length of the frame check sequence in bytes. IEEE 802.3-2018, 3.2.9.
pub const FCS: u32 = 4;
/// IEEE 802 local experimental EtherType 1. IEEE 802-2014, table 9-3.
pub const LOCAL_EXPERIMENTAL: u16 = 0x88b5;

const ETHERNET: usize = 14;
const VLAN: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const TEST_HEADER: usize = 18;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PROTOCOL_UDP: u8 = 17;
const MAGIC: [u8; 2] = *b"Ap";
const FILL: u8 = 0x5a;

/// Size of a frame in bytes, with frame check sequence: 64 to 9004.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrameSize(u32);

impl FrameSize {
    /// The smallest Ethernet frame, 64 bytes.
    pub const SMALLEST: Self = Self(64);
    /// The sizes of RFC 2544, 9.1, for Ethernet.
    pub const RFC2544: [Self; 7] = [Self(64), Self(128), Self(256), Self(512), Self(1024), Self(1280), Self(1518)];
    /// A jumbo frame with 9000 bytes of data.
    pub const LARGEST: Self = Self(9004);

    /// Makes a size from a number of bytes with the frame check sequence, as in RFC 2544: 64 to 9004.
    pub fn with_fcs(octets: u32) -> Result<Self, Error> {
        if !(Self::SMALLEST.0..=Self::LARGEST.0).contains(&octets) {
            return Err(Error::invalid(
                format!("frame size {octets}"),
                "expected 64 to 9004 bytes, including the 4-byte frame check sequence",
            ));
        }
        Ok(Self(octets))
    }

    /// Makes a size from a number of bytes without the frame check sequence, as a capture or a device shows it: 60 to
    /// 9000.
    pub fn from_data(octets: u32) -> Result<Self, Error> {
        Self::with_fcs(octets.saturating_add(FCS))
    }

    /// Size in bytes, with the frame check sequence.
    pub const fn octets(self) -> u32 {
        self.0
    }

    /// Size in bytes without the frame check sequence, which is what the device gets to send.
    pub const fn data(self) -> usize {
        (self.0 - FCS) as usize
    }
}

/// Parses a size in bytes with the frame check sequence, such as `64`.
impl FromStr for FrameSize {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let octets = text.trim().parse().map_err(|_| {
            Error::invalid(format!("frame size {text:?}"), "expected a number of bytes, such as 64 or 1518")
        })?;
        Self::with_fcs(octets)
    }
}

/// The protocol that carries the test header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encapsulation {
    /// The test header follows the Ethernet header directly.
    Ethernet {
        /// The EtherType, from 0x0600; not that of IPv4, IPv6 or a VLAN.
        ethertype: u16,
    },
    /// UDP over IPv4, with correct checksums.
    Udp {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
    },
    /// UDP over IPv4 or IPv6, with or without a VLAN tag. Successive frames use the flows in turn.
    Flows(Flows),
}

impl Encapsulation {
    /// The smallest frame that has room for the headers and the test header.
    pub fn smallest(&self) -> FrameSize {
        let headers = match self {
            Self::Ethernet { .. } => ETHERNET,
            Self::Udp { .. } => ETHERNET + IPV4 + UDP,
            Self::Flows(flows) => {
                let ip = if flows.family == Family::V4 { IPV4 } else { IPV6 };
                ETHERNET + flows.vlan.map_or(0, |_| VLAN) + ip + UDP
            }
        };
        FrameSize(((headers + TEST_HEADER) as u32 + FCS).max(FrameSize::SMALLEST.0))
    }
}

/// Properties that all frames of a trial have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// The protocol that carries the test header.
    pub encapsulation: Encapsulation,
    /// Frame size. A schedule from a capture ignores it and sets the size of each frame.
    pub size: FrameSize,
}

/// A prepared frame. For each send, only the flow, sequence number, time and checksums are filled in.
#[derive(Clone, Debug)]
pub struct Template {
    octets: Vec<u8>,
    header: usize,
    stream: u16,
    /// The headers of each flow, in order of flow number.
    heads: Vec<Head>,
}

/// The headers of a flow, up to the test header.
#[derive(Clone, Debug)]
struct Head {
    octets: Vec<u8>,
    /// Sum of all 16-bit words that the UDP checksum covers, with a test header of zeros; `None` without UDP.
    udp_sum: Option<u32>,
}

impl Template {
    /// Prepares a frame of size `size` for the stream number `stream`. Returns an error if the headers do not fit.
    pub fn new(layout: &Layout, size: FrameSize, stream: u16) -> Result<Self, Error> {
        let (flows, vlan): (Vec<Flow>, Option<u16>) = match layout.encapsulation {
            Encapsulation::Ethernet { ethertype } => {
                if ethertype < 0x0600 || [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN].contains(&ethertype) {
                    return Err(Error::invalid(
                        format!("EtherType {ethertype:#06x}"),
                        "expected one from 0x0600 that is not that of IPv4, IPv6 or a VLAN, such as 0x88b5 (local \
                         experimental)",
                    ));
                }
                let mut octets = ethernet(layout, None, ethertype);
                let header = octets.len();
                octets.resize(header + TEST_HEADER, 0);
                octets.resize(size.data(), FILL);
                let head = Head { octets: octets[..header].to_vec(), udp_sum: None };
                return Ok(Self { octets, header, stream, heads: vec![head] });
            }
            Encapsulation::Udp { source, destination, source_port, destination_port } => {
                let (source, destination) = (IpAddr::V4(source), IpAddr::V4(destination));
                (vec![Flow { source, destination, source_port, destination_port }], None)
            }
            Encapsulation::Flows(flows) => {
                flows.check()?;
                ((0..flows.count).map(|index| flows.flow(index)).collect(), flows.vlan)
            }
        };
        let mut heads = flows.iter().map(|flow| udp_head(layout, flow, vlan, size.data())).collect::<Vec<_>>();
        let header = heads.first().map_or(0, |head| head.octets.len());
        let least = header + TEST_HEADER;
        let smallest = layout.encapsulation.smallest();
        if size < smallest {
            return Err(Error::invalid(
                format!("frames of {} bytes", size.octets()),
                format!(
                    "these headers and the test header need at least {} bytes, including the FCS",
                    smallest.octets()
                ),
            ));
        }
        let mut octets = heads.first().map(|head| head.octets.clone()).unwrap_or_default();
        octets.resize(least, 0);
        octets.resize(size.data(), FILL);
        let fill = sum(&octets[header..]);
        heads.iter_mut().for_each(|head| head.udp_sum = head.udp_sum.map(|sum| sum + fill));
        Ok(Self { octets, header, stream, heads })
    }

    /// Size of the frame in bytes, without the frame check sequence.
    pub fn data(&self) -> usize {
        self.octets.len()
    }

    /// Writes the frame with sequence number `sequence` and due send time `intended` to `out`, which must be
    /// [`Template::data`] bytes long.
    #[inline]
    pub fn write(&self, out: &mut [u8], sequence: u64, intended: Instant<Monotonic>) {
        let flow = if self.heads.len() == 1 { 0 } else { (sequence % self.heads.len() as u64) as usize };
        let head = &self.heads[flow];
        out.copy_from_slice(&self.octets);
        if flow > 0 {
            out[..self.header].copy_from_slice(&head.octets);
        }
        let header = &mut out[self.header..self.header + TEST_HEADER];
        header[..2].copy_from_slice(&MAGIC);
        header[2..4].copy_from_slice(&self.stream.to_be_bytes());
        header[4..8].copy_from_slice(&(sequence as u32).to_be_bytes()); // the low 32 bits; see the module
        header[8..16].copy_from_slice(&intended.as_nanos().to_be_bytes());
        let crc = crc16(&header[..16]);
        header[16..].copy_from_slice(&crc.to_be_bytes());
        if let Some(rest) = head.udp_sum {
            let checksum = match !fold(rest + sum(header)) {
                0 => 0xffff, // 0 would mean "none": RFC 768
                other => other,
            };
            out[self.header - 2..self.header].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

fn ethernet(layout: &Layout, vlan: Option<u16>, ethertype: u16) -> Vec<u8> {
    let mut octets = [layout.destination, layout.source].concat();
    if let Some(vlan) = vlan {
        octets.extend(ETHERTYPE_VLAN.to_be_bytes());
        octets.extend(vlan.to_be_bytes()); // priority 0
    }
    octets.extend(ethertype.to_be_bytes());
    octets
}

/// Builds the headers of a flow in a frame of `data` bytes, and sums the header words that the UDP checksum covers.
fn udp_head(layout: &Layout, flow: &Flow, vlan: Option<u16>, data: usize) -> Head {
    let ethertype = if flow.source.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    let mut octets = ethernet(layout, vlan, ethertype);
    let total = data.saturating_sub(octets.len()) as u16; // at most 8986
    let (length, addresses) = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = [0; IPV4];
            ip[0] = 0x45; // version 4, header of 5 words
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[6] = 0x40; // do not fragment
            ip[8] = 64; // time to live, RFC 1700
            ip[9] = PROTOCOL_UDP;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            let checksum = !fold(sum(&ip));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            octets.extend(ip);
            (total.saturating_sub(IPV4 as u16), sum(&ip[12..20]))
        }
        (source, destination) => {
            let bytes = |address: IpAddr| match address {
                IpAddr::V6(v6) => v6.octets(),
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            };
            let length = total.saturating_sub(IPV6 as u16);
            let mut ip = [0; IPV6];
            ip[0] = 0x60; // version 6
            ip[4..6].copy_from_slice(&length.to_be_bytes());
            (ip[6], ip[7]) = (PROTOCOL_UDP, 64); // hop limit
            ip[8..24].copy_from_slice(&bytes(source));
            ip[24..40].copy_from_slice(&bytes(destination));
            octets.extend(ip);
            (length, sum(&ip[8..40]))
        }
    };
    let mut udp = [0; UDP];
    udp[..2].copy_from_slice(&flow.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&flow.destination_port.to_be_bytes());
    udp[4..6].copy_from_slice(&length.to_be_bytes());
    octets.extend(udp);
    let all = addresses + u32::from(PROTOCOL_UDP) + u32::from(length) + sum(&udp);
    Head { octets, udp_sum: Some(all) }
}

/// The content of the test header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestHeader {
    /// Stream number, which tells the frames of one trial from those of another.
    pub stream: u16,
    /// The low 32 bits of the sequence number.
    pub sequence_low: u32,
    /// When the frame was due to be sent.
    pub intended: Instant<Monotonic>,
}

impl TestHeader {
    /// The full sequence number. `next` is the first number not sent yet. Of the numbers below `next` that have the
    /// frame's low 32 bits, this is the largest; `None` if there is none. So a frame that was sent 2^32 or more frames
    /// ago is mistaken for a later one.
    pub fn sequence_below(&self, next: u64) -> Option<u64> {
        let last = next.checked_sub(1)?;
        let candidate = (last & !0xffff_ffff) | u64::from(self.sequence_low);
        if candidate <= last { Some(candidate) } else { candidate.checked_sub(1 << 32) }
    }
}

/// Kind of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// An intact test frame.
    Test(TestHeader),
    /// A test frame whose header is damaged.
    Corrupted,
    /// Any other frame.
    Foreign,
}

/// Looks for a test header in any received bytes. Accepts frames whose addresses, ports or time to live have changed on
/// the way.
#[inline]
pub fn parse(octets: &[u8]) -> Parsed {
    let Some(header) = test_header(octets) else { return Parsed::Foreign };
    if header[..2] != MAGIC {
        return Parsed::Foreign;
    }
    if crc16(&header[..16]) != u16::from_be_bytes([header[16], header[17]]) {
        return Parsed::Corrupted;
    }
    let (mut low, mut time) = ([0; 4], [0; 8]);
    low.copy_from_slice(&header[4..8]);
    time.copy_from_slice(&header[8..16]);
    Parsed::Test(TestHeader {
        stream: u16::from_be_bytes([header[2], header[3]]),
        sequence_low: u32::from_be_bytes(low),
        intended: Instant::from_nanos(u64::from_be_bytes(time)),
    })
}

fn test_header(octets: &[u8]) -> Option<&[u8; TEST_HEADER]> {
    let word = |at: usize| Some(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?]));
    let (mut at, mut ethertype) = (ETHERNET, word(12)?);
    if ethertype == ETHERTYPE_VLAN {
        (at, ethertype) = (at + VLAN, word(16)?);
    }
    let at = match ethertype {
        ETHERTYPE_IPV4 => {
            let ip = octets.get(at..at + IPV4)?;
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff; // more fragments, or an offset
            if ip[0] >> 4 != 4 || ip[0] & 15 < 5 || ip[9] != PROTOCOL_UDP || fragment != 0 {
                return None;
            }
            at + usize::from(ip[0] & 15) * 4 + UDP
        }
        ETHERTYPE_IPV6 => {
            let ip = octets.get(at..at + IPV6)?;
            if ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP {
                return None;
            }
            at + IPV6 + UDP
        }
        _ => at,
    };
    octets.get(at..at + TEST_HEADER)?.try_into().ok()
}

/// Sum of the 16-bit words (RFC 1071). An odd last byte is padded with zero. A frame has at most 4500 words, so the sum
/// cannot overflow.
fn sum(octets: &[u8]) -> u32 {
    octets.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// CRC-16/IBM-3740: polynomial 0x1021, initial value 0xffff. Detects every error burst of up to 16 bits.
fn crc16(octets: &[u8]) -> u16 {
    const TABLE: [u16; 256] = crc_table();
    octets.iter().fold(0xffff, |crc, octet| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ octet)])
}

const fn crc_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(encapsulation: Encapsulation) -> Layout {
        Layout { destination: [2, 0, 0, 0, 0, 2], source: [2, 0, 0, 0, 0, 1], encapsulation, size: FrameSize(64) }
    }
    fn udp() -> Encapsulation {
        Encapsulation::Udp {
            source: Ipv4Addr::new(198, 18, 0, 1),
            destination: Ipv4Addr::new(198, 18, 0, 2),
            source_port: 49_184,
            destination_port: 7,
        }
    }
    fn frame(encapsulation: Encapsulation, size: u32, sequence: u64, time: u64) -> Vec<u8> {
        let template = Template::new(&layout(encapsulation), FrameSize::with_fcs(size).unwrap(), 7).unwrap();
        let mut out = vec![0; template.data()];
        template.write(&mut out, sequence, Instant::from_nanos(time));
        out
    }

    #[test]
    fn crc_has_its_check_value() {
        assert_eq!(crc16(b"123456789"), 0x29b1); // Cook, catalogue of parametrised CRC algorithms
    }

    #[test]
    fn sizes_count_the_frame_check_sequence() {
        assert_eq!("64".parse::<FrameSize>().unwrap().data(), 60);
        assert_eq!(FrameSize::from_data(9000).unwrap(), FrameSize::LARGEST);
        for text in ["63", "9005", "", "64B", "-64"] {
            assert!(text.parse::<FrameSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_smallest_frame_has_room_for_the_headers_and_no_more() {
        let flows = |family, vlan| Encapsulation::Flows(Flows { family, vlan, count: 1, seed: 1, reverse: false });
        for (encapsulation, least) in [
            (Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL }, 64),
            (udp(), 64),
            (flows(Family::V4, None), 64),
            (flows(Family::V4, Some(7)), 68),
            (flows(Family::V6, None), 84),
            (flows(Family::V6, Some(7)), 88),
        ] {
            let smallest = encapsulation.smallest();
            assert_eq!(smallest.octets(), least, "{encapsulation:?}");
            assert!(Template::new(&layout(encapsulation), smallest, 1).is_ok());
            let smaller = FrameSize(least - 1);
            assert!(least == 64 || Template::new(&layout(encapsulation), smaller, 1).is_err(), "{encapsulation:?}");
        }
    }

    #[test]
    fn checksums_are_right_in_every_size() {
        for size in [64, 65, 128, 1518, 9004] {
            let frame = frame(udp(), size, 1, 123_456_789);
            assert_eq!(fold(sum(&frame[14..34])), 0xffff);
            let length = (frame.len() - 34) as u32;
            assert_eq!(u32::from(u16::from_be_bytes([frame[38], frame[39]])), length);
            assert_eq!(fold(sum(&frame[26..34]) + 17 + length + sum(&frame[34..])), 0xffff);
        }
    }

    #[test]
    fn survives_what_forwarding_changes() {
        let mut frame = frame(udp(), 64, 9, 5);
        frame.swap(0, 6);
        frame.swap(26, 30);
        frame[22] -= 1; // time to live
        assert!(matches!(parse(&frame), Parsed::Test(h) if h.sequence_low == 9 && h.stream == 7));
    }

    fn flows(family: crate::flows::Family, vlan: Option<u16>, count: u32) -> Encapsulation {
        Encapsulation::Flows(Flows { family, vlan, count, seed: 3, reverse: false })
    }

    #[test]
    fn each_frame_of_each_flow_is_right() {
        use crate::flows::Family;
        for (family, vlan, ip, least) in [
            (Family::V4, None, 14, 64),
            (Family::V4, Some(7), 18, 68),
            (Family::V6, None, 14, 84),
            (Family::V6, Some(7), 18, 88),
        ] {
            let header = if family == Family::V4 { 20 } else { 40 };
            for (size, sequence) in [(least, 0), (least, 1), (1518, 999), (9004, 12_345)] {
                let frame = frame(flows(family, vlan, 1000), size, sequence, 77);
                assert!(
                    matches!(parse(&frame), Parsed::Test(h) if h.sequence_low == sequence as u32),
                    "{family} {size}"
                );
                let udp = ip + header;
                let length = (frame.len() - udp) as u32;
                let addresses = if family == Family::V4 { &frame[ip + 12..udp] } else { &frame[ip + 8..udp] };
                assert_eq!(fold(sum(addresses) + 17 + length + sum(&frame[udp..])), 0xffff, "{family} {size}");
                if family == Family::V4 {
                    assert_eq!(fold(sum(&frame[ip..udp])), 0xffff);
                }
                if vlan.is_some() {
                    assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
                }
            }
            let layout = layout(flows(family, vlan, 1));
            let refused = Template::new(&layout, FrameSize::with_fcs(least.max(65) - 1).unwrap(), 0);
            assert!(least == 64 || refused.unwrap_err().to_string().contains(&format!("at least {least}")));
        }
        let ports: std::collections::BTreeSet<[u8; 2]> =
            (0..100).map(|n| frame(flows(Family::V4, None, 100), 64, n, 0)[34..36].try_into().unwrap()).collect();
        assert!(ports.len() > 90, "{}", ports.len());
    }

    #[test]
    fn refuses_an_ethertype_that_means_something_else() {
        for ethertype in [0x0800, 60] {
            assert!(Template::new(&layout(Encapsulation::Ethernet { ethertype }), FrameSize::SMALLEST, 0).is_err());
        }
    }

    #[test]
    fn restores_the_upper_half_of_a_sequence_number() {
        let header = |low| TestHeader { stream: 0, sequence_low: low, intended: Instant::ORIGIN };
        assert_eq!(header(0).sequence_below(0), None);
        assert_eq!(header(5).sequence_below(5), None);
        assert_eq!(header(4).sequence_below(5), Some(4));
        assert_eq!(header(0xffff_ffff).sequence_below((1 << 32) + 3), Some(0xffff_ffff));
        assert_eq!(header(2).sequence_below((1 << 32) + 3), Some((1 << 32) + 2));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sequence: u32, time: u64, size in 64u32..9005, over_udp: bool) {
            let encapsulation = if over_udp { udp() } else { Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL } };
            let expected = TestHeader { stream: 7, sequence_low: sequence, intended: Instant::from_nanos(time) };
            prop_assert_eq!(parse(&frame(encapsulation, size, sequence.into(), time)), Parsed::Test(expected));
        }

        #[test]
        fn a_flipped_bit_is_never_a_test_frame(bit in 0usize..18 * 8, over_udp: bool) {
            let encapsulation = if over_udp { udp() } else { Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL } };
            let at = if over_udp { 42 } else { 14 };
            let mut frame = frame(encapsulation, 64, 77, 99);
            frame[at + bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 16 { Parsed::Foreign } else { Parsed::Corrupted };
            prop_assert_eq!(parse(&frame), expected);
        }

        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(&octets);
        }
    }
}

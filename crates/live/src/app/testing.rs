//! Frames for the tests, and code that computes checksums independently of the code under test.

use super::headers::Mac;
use super::{
    AnyApp, PortInfo, drop::Drop, l2fwd::L2Fwd, l3fwd::L3Fwd, macswap::MacSwap, routes::Table, udp_echo::UdpEcho,
};
use proptest::prelude::*;
use std::net::Ipv6Addr;

/// The MAC address of the client. Our own MAC addresses are those of [`ports`]: the last byte of port `n` is `n` +
/// 0x10.
pub const CLIENT: Mac = Mac::new([2, 0, 0, 0, 0, 0xc]);
pub const OURS: Mac = Mac::new([2, 0, 0, 0, 0, 0x10]);

/// Makes `n` ports with the names p0, p1, ...
pub fn ports(n: u8) -> Vec<PortInfo> {
    (0..n).map(|n| PortInfo { name: format!("p{n}"), mac: Mac::new([2, 0, 0, 0, 0, 0x10 + n]) }).collect()
}

/// The folded sum, computed word by word as in RFC 1071 section 4.1.
pub fn slow_sum(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Builds a frame, by default from [`CLIENT`] to [`OURS`].
#[derive(Clone)]
pub struct Frame {
    macs: (Mac, Mac),
    tags: usize,
    v4: bool,
    addresses: Vec<u8>,
    ttl: u8,
    options: Vec<u8>,
    extensions: Vec<u8>,
    next: u8,
    protocol: u8,
    payload: Vec<u8>,
}

impl Frame {
    pub fn v4(source: [u8; 4], destination: [u8; 4]) -> Self {
        Self::new(true, [source, destination].concat())
    }

    pub fn v6(source: &str, destination: &str) -> Self {
        let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        Self::new(false, [octets(source), octets(destination)].concat())
    }

    fn new(v4: bool, addresses: Vec<u8>) -> Self {
        let (options, extensions, payload) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            macs: (OURS, CLIENT),
            tags: 0,
            v4,
            addresses,
            ttl: 17,
            options,
            extensions,
            next: 0,
            protocol: 0,
            payload,
        }
    }

    pub fn macs(self, destination: Mac, source: Mac) -> Self {
        Self { macs: (destination, source), ..self }
    }

    pub fn tags(self, tags: usize) -> Self {
        Self { tags, ..self }
    }

    pub fn ttl(self, ttl: u8) -> Self {
        Self { ttl, ..self }
    }

    pub fn options(self, options: &[u8]) -> Self {
        Self { options: options.to_vec(), ..self }
    }

    /// Adds IPv6 extension headers. `next` is the type of the first one. The next-header field of the last one must
    /// name the transport protocol.
    pub fn extensions(self, next: u8, extensions: &[u8]) -> Self {
        Self { next, extensions: extensions.to_vec(), ..self }
    }

    pub fn udp(self, source: u16, destination: u16, data: &[u8]) -> Self {
        let len = (8 + data.len() as u16).to_be_bytes();
        let header = [source.to_be_bytes(), destination.to_be_bytes(), len, [0, 0]].concat();
        self.transport(17, [&header, data].concat(), Some(6))
    }

    pub fn tcp(self, data: &[u8]) -> Self {
        let header = [0x13, 0x88, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
        self.transport(6, [&header, data].concat(), Some(16))
    }

    /// Adds an ICMP or ICMPv6 message, with its checksum.
    pub fn icmp(self, message: &[u8]) -> Self {
        let v4 = self.v4;
        let mut frame = self.transport(if v4 { 1 } else { 58 }, message.to_vec(), if v4 { None } else { Some(2) });
        if v4 {
            let sum = !slow_sum(message);
            frame.payload[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }

    /// Adds a transport header. `checksum_at` is the offset of its checksum, which covers a pseudo-header.
    pub fn transport(mut self, protocol: u8, payload: Vec<u8>, checksum_at: Option<usize>) -> Self {
        (self.protocol, self.payload) = (protocol, payload);
        if let Some(at) = checksum_at {
            let all = [&pseudo(&self.addresses, protocol, self.payload.len()), &self.payload[..]].concat();
            self.payload[at..at + 2].copy_from_slice(&(!slow_sum(&all)).to_be_bytes());
        }
        self
    }

    /// Builds the frame, padded to the shortest frame length (60 bytes).
    pub fn build(self) -> Vec<u8> {
        let mut frame = [self.macs.0.octets(), self.macs.1.octets()].concat();
        for tag in 0..self.tags {
            frame.extend(if tag == 0 && self.tags == 2 { [0x88, 0xa8, 0, 5] } else { [0x81, 0, 0, 6] });
        }
        let at = if self.v4 {
            frame.extend([8, 0]);
            let at = frame.len();
            let header_len = 20 + self.options.len();
            let total = ((header_len + self.payload.len()) as u16).to_be_bytes();
            frame.extend([
                0x40 | (header_len / 4) as u8,
                0,
                total[0],
                total[1],
                0x12,
                0x34,
                0x40,
                0,
                self.ttl,
                self.protocol,
                0,
                0,
            ]);
            frame.extend(&self.addresses);
            frame.extend(&self.options);
            Some(at)
        } else {
            frame.extend([0x86, 0xdd]);
            let len = ((self.extensions.len() + self.payload.len()) as u16).to_be_bytes();
            let next = if self.extensions.is_empty() { self.protocol } else { self.next };
            frame.extend([0x60, 0, 0, 0, len[0], len[1], next, self.ttl]);
            frame.extend(&self.addresses);
            frame.extend(&self.extensions);
            None
        };
        frame.extend(&self.payload);
        frame.resize(frame.len().max(60), 0xee);
        if let Some(at) = at {
            fix_ipv4_at(&mut frame, at);
        }
        frame
    }
}

/// An ARP packet from [`CLIENT`], padded to 60 bytes.
pub fn arp(destination: Mac, operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = [&destination.octets()[..], &CLIENT.octets(), &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend([&CLIENT.octets()[..], &sender, &[0; 6], &target].concat());
    frame.resize(60, 0);
    frame
}

fn pseudo(addresses: &[u8], protocol: u8, len: usize) -> Vec<u8> {
    [addresses, &[0, protocol], &(len as u16).to_be_bytes()].concat()
}

/// Computes the header checksum of an untagged IPv4 frame.
pub fn fix_ipv4(frame: &mut [u8]) {
    fix_ipv4_at(frame, 14);
}

fn fix_ipv4_at(frame: &mut [u8], at: usize) {
    frame[at + 10..at + 12].fill(0);
    let end = at + usize::from(frame[at] & 15) * 4;
    let sum = !slow_sum(&frame[at..end]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
}

/// The range of the addresses, the offsets of the transport header and of its segment's end, and the protocol number.
/// `frame` must come from [`Frame`] and have no extension headers.
fn layout(frame: &[u8]) -> (std::ops::Range<usize>, usize, usize, u8) {
    let mut at = 14;
    while matches!([frame[at - 2], frame[at - 1]], [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let len = |i: usize| usize::from(u16::from_be_bytes([frame[i], frame[i + 1]]));
    if frame[at] >> 4 == 4 {
        (at + 12..at + 20, at + usize::from(frame[at] & 15) * 4, at + len(at + 2), frame[at + 9])
    } else {
        (at + 8..at + 40, at + 40, at + 40 + len(at + 4), frame[at + 6])
    }
}

/// Panics unless the checksums of the IPv4 header and of the transport are right.
pub fn assert_intact(frame: &[u8]) {
    let (addresses, from, to, protocol) = layout(frame);
    if addresses.len() == 8 {
        assert_eq!(slow_sum(&frame[addresses.start - 12..from]), 0xffff, "IPv4 header");
    }
    let start = if protocol == 1 { Vec::new() } else { pseudo(&frame[addresses], protocol, to - from) };
    assert_eq!(slow_sum(&[&start, &frame[from..to]].concat()), 0xffff, "transport");
}

/// Replaces the TCP or UDP checksum by the pseudo-header's sum, as a Linux sender with offload does.
pub fn leave_checksum_to_hardware(frame: &mut [u8]) {
    let (addresses, from, to, protocol) = layout(frame);
    let sum = slow_sum(&pseudo(&frame[addresses], protocol, to - from)).to_be_bytes();
    let at = from + if protocol == 6 { 16 } else { 6 };
    frame[at..at + 2].copy_from_slice(&sum);
}

/// Our IPv4 address in [`apps`].
pub const OUR_V4: [u8; 4] = [10, 0, 0, 1];
pub const OUR_V6: &str = "fd00::1";

/// A router between p0 and p1.
pub fn router() -> L3Fwd {
    let text = r#"
        [[port]]
        name = "p0"
        addresses = ["10.0.0.1/24", "fd00::1/64"]
        [[port]]
        name = "p1"
        mac = "02:00:00:00:00:99"
        addresses = ["10.0.1.1/24"]
        [[route]]
        prefix = "10.1.0.0/16"
        port = "p1"
        mac = "02:00:00:00:00:21"
        [[route]]
        prefix = "10.1.2.0/24"
        port = "p0"
        mac = "02:00:00:00:00:22"
        [[route]]
        prefix = "fd01::/32"
        port = "p1"
        mac = "02:00:00:00:00:23"
    "#;
    L3Fwd::new(Table::parse(text, "routes.toml", &ports(2)).unwrap())
}

/// One application of each kind, with its options on and off.
pub fn apps() -> Vec<AnyApp> {
    let macs = [OURS, ports(2)[1].mac];
    let echo = |verify| UdpEcho::new(&macs, &[OUR_V4.into(), OUR_V6.parse().unwrap()], "any".parse().unwrap(), verify);
    vec![
        AnyApp::Drop(Drop),
        AnyApp::MacSwap(MacSwap),
        AnyApp::L2Fwd(L2Fwd::transparent().finish_checksums(true)),
        AnyApp::L2Fwd(L2Fwd::rewriting(macs)),
        AnyApp::UdpEcho(echo(false)),
        AnyApp::UdpEcho(echo(true)),
        AnyApp::L3Fwd(router()),
    ]
}

/// Makes a neighbour solicitation for [`OUR_V6`]. `options` follow the target address.
pub fn solicitation(source: &str, destination: &str, options: &[u8]) -> Frame {
    let target = OUR_V6.parse::<Ipv6Addr>().unwrap().octets();
    Frame::v6(source, destination).ttl(255).icmp(&[&[135, 0, 0, 0, 0, 0, 0, 0], &target[..], options].concat())
}

/// Well-formed frames of all kinds that the applications handle. Tests then modify them.
pub fn structured() -> impl Strategy<Value = Vec<u8>> {
    let data = || proptest::collection::vec(any::<u8>(), 0..200);
    let v4 = || Frame::v4([10, 0, 0, 7], OUR_V4);
    let v6 = || Frame::v6("fd00::7", OUR_V6);
    prop_oneof![
        (data(), 0usize..3, any::<u16>()).prop_map(move |(d, tags, port)| v4().tags(tags).udp(port, 7, &d).build()),
        (data(), 0usize..3).prop_map(move |(d, tags)| v6().tags(tags).udp(9, 7, &d).build()),
        data().prop_map(move |d| v6()
            .extensions(0, &[60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0])
            .udp(9, 7, &d)
            .build()),
        data().prop_map(move |d| v4()
            .options(&[7, 7, 4, 0, 0, 0, 0, 0])
            .icmp(&[&[8, 0, 0, 0, 1, 2, 3, 4], &d[..]].concat())
            .build()),
        data().prop_map(move |d| v6().icmp(&[&[128, 0, 0, 0, 1, 2, 3, 4], &d[..]].concat()).build()),
        data().prop_map(|d| Frame::v4([10, 0, 0, 7], [10, 1, 3, 3]).tcp(&d).build()),
        data().prop_map(|d| Frame::v6("fd00::7", "fd01::1").extensions(44, &[6, 0, 0, 0, 0, 0, 0, 1]).tcp(&d).build()),
        Just(arp(Mac::BROADCAST, 1, [10, 0, 0, 7], OUR_V4)),
        Just(solicitation("fd00::7", "ff02::1:ff00:1", &[1, 1, 2, 0, 0, 0, 0, 0xc]).build()),
        Just(solicitation("::", "ff02::1:ff00:1", &[14, 1, 1, 2, 3, 4, 5, 6]).build()),
    ]
}

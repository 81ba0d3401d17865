//! Answers what an address of ours must answer so that ordinary hosts can talk to it: ARP requests
//! (RFC 826), ICMP echo (RFC 792), ICMPv6 echo (RFC 4443) and neighbour solicitations (RFC 4861).
//!
//! Each answer is written over its question: same frame, same length, same VLAN tags, same IP options
//! and extension headers. What is addressed to somebody else, or asks for more, is not handled.
//! ICMP checksums need no finishing (see [`offload`](super::offload)): all senders compute them in
//! software, and so an answer's is derived from its question's: a corrupt question gets a corrupt
//! answer, which its receiver notices. Neighbour solicitations must be intact (RFC 4861 section 7.1.1).

use super::headers::checksum::pseudo_header;
use super::headers::{
    Arp, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Icmp, Ipv4, Ipv6, Mac, PROTOCOL_ICMP,
    PROTOCOL_ICMPV6, Sum, Upper, set_macs,
};
use crate::telemetry::DropReason;
use std::net::IpAddr;

/// Time to live, or hop limit, of what we send: the recommended default (RFC 1700, "IP TIME TO LIVE
/// PARAMETER").
pub const DEFAULT_TTL: u8 = 64;

/// What a neighbour message must have and gets (RFC 4861 sections 7.1.1 and 7.2.4).
const NEIGHBOR_HOP_LIMIT: u8 = 255;
/// Type, code, checksum, flags, target (RFC 4861 sections 4.3 and 4.4).
const NEIGHBOR_LEN: usize = 24;
/// A link-layer address option for Ethernet: type, length in 8 octets, address (RFC 4861 section 4.6.1).
const LINK_OPTION_LEN: usize = 8;
const SOURCE_LINK_OPTION: u8 = 1;
const TARGET_LINK_OPTION: u8 = 2;
/// The flags of a neighbour advertisement (RFC 4861 section 4.4).
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// All nodes of the link (RFC 4291 section 2.7.1), and its MAC address (RFC 2464 section 7).
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES_MAC: Mac = Mac::new([0x33, 0x33, 0, 0, 0, 1]);

/// One port's addresses, and the answers for them.
#[derive(Clone, Debug)]
pub struct Responder {
    mac: Mac,
    v4: Box<[[u8; 4]]>,
    v6: Box<[[u8; 16]]>,
}

/// The frame now holds the answer, to be sent out of the port it came from; or why there is none.
pub type Answer = Result<(), DropReason>;

impl Responder {
    /// Answers for `addresses`, which lie at `mac`.
    pub fn new(mac: Mac, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in addresses {
            match address {
                IpAddr::V4(address) => v4.push(address.octets()),
                IpAddr::V6(address) => v6.push(address.octets()),
            }
        }
        Self { mac, v4: v4.into(), v6: v6.into() }
    }

    /// The MAC address that it answers for.
    #[inline]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Whether `address` is one of ours.
    #[inline]
    pub fn has_v4(&self, address: [u8; 4]) -> bool {
        self.v4.contains(&address)
    }

    /// Whether `address` is one of ours.
    #[inline]
    pub fn has_v6(&self, address: [u8; 16]) -> bool {
        self.v6.contains(&address)
    }

    /// Answers whatever `frame` asks of this port's addresses.
    pub fn answer(&self, frame: &mut [u8]) -> Answer {
        let ethernet = Ethernet::parse(frame)?;
        match ethernet.ethertype {
            ETHERTYPE_ARP => self.answer_arp(frame, &ethernet),
            ETHERTYPE_IPV4 => {
                let ip = Ipv4::parse(&frame[ethernet.len..])?;
                if self.has_v4(ip.destination) {
                    self.answer_v4(frame, &ethernet, &ip)
                } else {
                    Err(DropReason::NotHandled)
                }
            }
            ETHERTYPE_IPV6 => {
                let ip = Ipv6::parse(&frame[ethernet.len..])?;
                if self.has_v6(ip.destination) || is_multicast_v6(&ip.destination) {
                    self.answer_v6(frame, &ethernet, &ip)
                } else {
                    Err(DropReason::NotHandled)
                }
            }
            _ => Err(DropReason::NotHandled),
        }
    }

    /// Answers an ARP request for one of our addresses ("Packet Reception", RFC 826).
    pub fn answer_arp(&self, frame: &mut [u8], ethernet: &Ethernet) -> Answer {
        let arp = Arp::parse(&frame[ethernet.len..])?.ok_or(DropReason::NotHandled)?;
        let to_us = ethernet.destination == self.mac || ethernet.destination == Mac::BROADCAST;
        if !to_us || arp.operation != Arp::REQUEST || !self.has_v4(arp.target) {
            return Err(DropReason::NotHandled);
        }
        if arp.sender_mac.is_group() {
            return Err(DropReason::Malformed);
        }
        set_macs(frame, arp.sender_mac, self.mac)?;
        let reply = Arp {
            operation: Arp::REPLY,
            sender_mac: self.mac,
            sender: arp.target,
            target_mac: arp.sender_mac,
            target: arp.sender,
        };
        Ok(reply.write(&mut frame[ethernet.len..])?)
    }

    /// Answers an ICMP echo; that `ip`, the header of `frame`, has an address of ours is the caller's word.
    pub fn answer_v4(&self, frame: &mut [u8], ethernet: &Ethernet, ip: &Ipv4) -> Answer {
        let packet = &mut frame[ethernet.len..];
        self.accept_v4(ethernet, ip, packet)?;
        if ip.protocol != PROTOCOL_ICMP {
            return Err(DropReason::NotHandled);
        }
        let message = &mut packet[ip.header_len..ip.total_len];
        let icmp = Icmp::parse(message)?;
        if message.len() < Icmp::ECHO_LEN {
            return Err(DropReason::Malformed);
        }
        if (icmp.kind, icmp.code) != (Icmp::ECHO, 0) {
            return Err(DropReason::NotHandled);
        }
        Icmp::set_kind(message, Icmp::ECHO_REPLY)?;
        self.return_v4(frame, ethernet)
    }

    /// Answers an ICMPv6 echo or a neighbour solicitation; that `ip`, the header of `frame`, has an
    /// address of ours or a multicast address is the caller's word.
    pub fn answer_v6(&self, frame: &mut [u8], ethernet: &Ethernet, ip: &Ipv6) -> Answer {
        let packet = &mut frame[ethernet.len..];
        let upper = ip.upper(packet)?;
        if upper.fragment || upper.routed || upper.protocol != PROTOCOL_ICMPV6 {
            return Err(DropReason::NotHandled);
        }
        let message = &mut packet[upper.at..ip.total_len];
        let icmp = Icmp::parse(message)?;
        match (icmp.kind, icmp.code) {
            (Icmp::NEIGHBOR_SOLICITATION, 0) => self.advertise(frame, ethernet, ip, &upper),
            (Icmp::V6_ECHO, 0) => {
                self.accept_v6(ethernet, ip)?;
                if message.len() < Icmp::ECHO_LEN {
                    return Err(DropReason::Malformed);
                }
                Icmp::set_kind(message, Icmp::V6_ECHO_REPLY)?;
                self.return_v6(frame, ethernet)
            }
            _ => Err(DropReason::NotHandled),
        }
    }

    /// Whether an IPv4 packet with an address of ours is one to answer: from one host to us alone, whole,
    /// and without a source route, which an answer would have to reverse (RFC 1122 section 3.2.1.8).
    #[inline]
    pub fn accept_v4(&self, ethernet: &Ethernet, ip: &Ipv4, packet: &[u8]) -> Answer {
        self.accept_macs(ethernet)?;
        // RFC 1122 section 3.2.1.3: a source is one host, so neither "this host" nor a group.
        let source_is_host = ip.source[0] != 0 && ip.source[0] < 224;
        let has_source_route = ip.header_len > Ipv4::MIN_LEN && ip.is_source_routed(packet);
        if ip.fragment || !source_is_host || has_source_route {
            return Err(DropReason::NotHandled);
        }
        Ok(())
    }

    /// Whether an IPv6 packet with an address of ours is one to answer: from one host to us alone.
    #[inline]
    pub fn accept_v6(&self, ethernet: &Ethernet, ip: &Ipv6) -> Answer {
        self.accept_macs(ethernet)?;
        if is_multicast_v6(&ip.source) || ip.source == [0; 16] || is_multicast_v6(&ip.destination) {
            return Err(DropReason::NotHandled);
        }
        Ok(())
    }

    /// To our MAC address (RFC 1122 section 3.3.6: not a broadcast that holds a unicast packet), and from
    /// one station.
    #[inline]
    fn accept_macs(&self, ethernet: &Ethernet) -> Answer {
        if ethernet.source.is_group() {
            return Err(DropReason::Malformed);
        }
        if ethernet.destination == self.mac { Ok(()) } else { Err(DropReason::NotHandled) }
    }

    /// Turns an IPv4 frame round: MAC addresses, IP addresses, a fresh time to live.
    #[inline]
    pub fn return_v4(&self, frame: &mut [u8], ethernet: &Ethernet) -> Answer {
        set_macs(frame, ethernet.source, self.mac)?;
        let packet = &mut frame[ethernet.len..];
        Ipv4::swap_addresses(packet)?;
        Ok(Ipv4::set_ttl(packet, DEFAULT_TTL)?)
    }

    /// Turns an IPv6 frame round: MAC addresses, IP addresses, a fresh hop limit.
    #[inline]
    pub fn return_v6(&self, frame: &mut [u8], ethernet: &Ethernet) -> Answer {
        set_macs(frame, ethernet.source, self.mac)?;
        let packet = &mut frame[ethernet.len..];
        Ipv6::swap_addresses(packet)?;
        Ok(Ipv6::set_hop_limit(packet, DEFAULT_TTL)?)
    }

    /// Answers a neighbour solicitation, validated as RFC 4861 section 7.1.1 demands.
    ///
    /// The advertisement carries our MAC address where the solicitation has room for it. A plain probe
    /// for duplicates (RFC 4862 section 5.4.2) has none; there the advertisement itself says it all.
    fn advertise(&self, frame: &mut [u8], ethernet: &Ethernet, ip: &Ipv6, upper: &Upper) -> Answer {
        let message = &frame[ethernet.len..][upper.at..ip.total_len];
        let sum = pseudo_header(ip.addresses_sum(), PROTOCOL_ICMPV6, message.len() as u16); // at most 2^16 - 1
        if ip.hop_limit != NEIGHBOR_HOP_LIMIT || message.len() < NEIGHBOR_LEN || !sum.and(Sum::of(message)).is_intact()
        {
            return Err(DropReason::Malformed);
        }
        let mut target = [0; 16];
        target.copy_from_slice(&message[8..NEIGHBOR_LEN]);
        let source_link = source_link_option(&message[NEIGHBOR_LEN..])?;
        let is_probe = ip.source == [0; 16];
        let solicited_node = solicited_node(&target);
        if is_multicast_v6(&target) || is_multicast_v6(&ip.source) || ethernet.source.is_group() {
            return Err(DropReason::Malformed);
        }
        if is_probe && (ip.destination != solicited_node || source_link.is_some()) {
            return Err(DropReason::Malformed);
        }
        let to_us = ethernet.destination == self.mac || ethernet.destination.is_group();
        if !to_us || !self.has_v6(target) || (ip.destination != target && ip.destination != solicited_node) {
            return Err(DropReason::NotHandled);
        }
        let has_room = message.len() >= NEIGHBOR_LEN + LINK_OPTION_LEN;
        if !has_room && !is_probe && ip.destination != target {
            return Err(DropReason::Malformed); // a multicast solicitation must say where it came from (section 4.3)
        }

        let (to, to_mac) = match (is_probe, source_link) {
            (true, _) => (ALL_NODES, ALL_NODES_MAC),
            (false, Some(mac)) if !mac.is_group() => (ip.source, mac),
            (false, Some(_)) => return Err(DropReason::Malformed),
            (false, None) => (ip.source, ethernet.source),
        };
        set_macs(frame, to_mac, self.mac)?;
        let packet = &mut frame[ethernet.len..];
        let len = if has_room { NEIGHBOR_LEN + LINK_OPTION_LEN } else { NEIGHBOR_LEN };
        let payload_len = (upper.at - Ipv6::LEN + len) as u16; // no more than the solicitation's
        packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
        packet[8..24].copy_from_slice(&target);
        packet[24..40].copy_from_slice(&to);
        let message = &mut packet[upper.at..ip.total_len];
        message.fill(0);
        message[0] = Icmp::NEIGHBOR_ADVERTISEMENT;
        message[4] = if is_probe { OVERRIDE } else { SOLICITED | OVERRIDE };
        message[8..NEIGHBOR_LEN].copy_from_slice(&target);
        if has_room {
            message[24] = TARGET_LINK_OPTION;
            message[25] = 1;
            message[26..32].copy_from_slice(&self.mac.octets());
        }
        let message = &mut message[..len];
        let addresses = Sum::of(&target).and(Sum::of(&to));
        let checksum = pseudo_header(addresses, PROTOCOL_ICMPV6, len as u16).and(Sum::of(message)).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// The MAC address in the first source link-layer address option; all options must have a length
/// (RFC 4861 sections 4.6 and 7.1.1).
fn source_link_option(mut options: &[u8]) -> Result<Option<Mac>, DropReason> {
    let mut found = None;
    while !options.is_empty() {
        let (kind, len) = match *options {
            [kind, units, ..] if units > 0 && usize::from(units) * 8 <= options.len() => (kind, usize::from(units) * 8),
            _ => return Err(DropReason::Malformed),
        };
        if let ([_, _, mac @ ..], SOURCE_LINK_OPTION, LINK_OPTION_LEN, None) = (&options[..len], kind, len, found) {
            found = mac.first_chunk().map(|octets| Mac::new(*octets));
        }
        options = &options[len..];
    }
    Ok(found)
}

/// ff00::/8 (RFC 4291 section 2.7).
#[inline]
pub(super) fn is_multicast_v6(address: &[u8; 16]) -> bool {
    address[0] == 0xff
}

/// The group in which a host listens for solicitations for its address (RFC 4291 section 2.7.1).
fn solicited_node(address: &[u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = *address;
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{CLIENT, Frame, OUR_V4, OUR_V6, OURS, arp, assert_intact, solicitation};

    const PEER: [u8; 4] = [10, 0, 0, 7];
    const GROUP: &str = "ff02::1:ff00:1";
    const LINK: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 0xc];

    fn responder() -> Responder {
        Responder::new(OURS, [IpAddr::from(OUR_V4), OUR_V6.parse().unwrap()])
    }

    fn answer(mut frame: Vec<u8>) -> Result<Vec<u8>, DropReason> {
        responder().answer(&mut frame).map(|()| frame)
    }

    #[test]
    fn arp_requests() {
        for to in [Mac::BROADCAST, OURS] {
            let reply = answer(arp(to, 1, PEER, OUR_V4)).unwrap();
            let mut expected = arp(CLIENT, 2, OUR_V4, PEER);
            expected[6..12].copy_from_slice(&OURS.octets());
            expected[22..28].copy_from_slice(&OURS.octets());
            expected[32..38].copy_from_slice(&CLIENT.octets());
            assert_eq!(reply, expected);
        }
        assert_eq!(answer(arp(OURS, 1, PEER, PEER)), Err(DropReason::NotHandled), "somebody else's address");
        assert_eq!(answer(arp(OURS, 2, PEER, OUR_V4)), Err(DropReason::NotHandled), "a reply");
        assert_eq!(answer(arp(CLIENT, 1, PEER, OUR_V4)), Err(DropReason::NotHandled), "to another station");
        assert_eq!(answer(arp(OURS, 1, PEER, OUR_V4)[..41].to_vec()), Err(DropReason::Malformed));
        let mut from_group = arp(OURS, 1, PEER, OUR_V4);
        from_group[22] = 1;
        assert_eq!(answer(from_group), Err(DropReason::Malformed));
    }

    #[test]
    fn ping() {
        let echo = [8, 0, 0, 0, 0x12, 0x34, 0, 1, b'o', b'd', b'd'];
        for tags in 0..3 {
            let reply = answer(Frame::v4(PEER, OUR_V4).tags(tags).icmp(&echo).build()).unwrap();
            let mut expected = echo;
            expected[0] = 0;
            let expected = Frame::v4(OUR_V4, PEER).macs(CLIENT, OURS).tags(tags).ttl(64).icmp(&expected).build();
            assert_eq!(reply, expected);
            assert_intact(&reply);
        }
        let with_options = Frame::v4(PEER, OUR_V4).options(&[7, 7, 4, 0, 0, 0, 0, 0]).icmp(&echo).build();
        assert_intact(&answer(with_options).unwrap());
    }

    #[test]
    fn pings_that_are_not_answered() {
        let echo = [8, 0, 0, 0, 0x12, 0x34, 0, 1];
        let not_handled = [
            Frame::v4(PEER, [10, 0, 0, 2]).icmp(&echo),
            Frame::v4([224, 0, 0, 1], OUR_V4).icmp(&echo),
            Frame::v4([0, 0, 0, 0], OUR_V4).icmp(&echo),
            Frame::v4(PEER, OUR_V4).macs(Mac::BROADCAST, CLIENT).icmp(&echo),
            Frame::v4(PEER, OUR_V4).options(&[131, 3, 4, 0]).icmp(&echo),
            Frame::v4(PEER, OUR_V4).icmp(&[0, 0, 0, 0, 0, 0, 0, 0]),
            Frame::v4(PEER, OUR_V4).icmp(&[8, 1, 0, 0, 0, 0, 0, 0]),
            Frame::v4(PEER, OUR_V4).tcp(b""),
            Frame::v6("fd00::7", "fd00::2").icmp(&[128, 0, 0, 0, 0, 0, 0, 0]),
            Frame::v6("fd00::7", "ff02::1").icmp(&[128, 0, 0, 0, 0, 0, 0, 0]),
            Frame::v6("fd00::7", OUR_V6).extensions(44, &[58, 0, 0, 1, 0, 0, 0, 1]).icmp(&[128, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (n, frame) in not_handled.into_iter().enumerate() {
            assert_eq!(answer(frame.build()), Err(DropReason::NotHandled), "{n}");
        }
        for frame in [
            Frame::v4(PEER, OUR_V4).icmp(&echo[..7]),
            Frame::v4(PEER, OUR_V4).macs(OURS, Mac::BROADCAST).icmp(&echo),
            Frame::v6("fd00::7", OUR_V6).icmp(&[128, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(answer(frame.build()), Err(DropReason::Malformed));
        }
        assert_eq!(answer([&[0; 12][..], &[0x88, 0xcc], &[0; 46]].concat()), Err(DropReason::NotHandled), "LLDP");
    }

    #[test]
    fn ping_over_ipv6() {
        let echo = [128, 0, 0, 0, 0x12, 0x34, 0, 1, b'o', b'd', b'd'];
        let reply = answer(Frame::v6("fd00::7", OUR_V6).icmp(&echo).build()).unwrap();
        let mut expected = echo;
        expected[0] = 129;
        assert_eq!(reply, Frame::v6(OUR_V6, "fd00::7").macs(CLIENT, OURS).ttl(64).icmp(&expected).build());
        assert_intact(&reply);
    }

    /// The advertisement that should come: from us, with our MAC address if `link`.
    fn advertisement(to: &str, to_mac: Mac, flags: u8, link: bool) -> Vec<u8> {
        let target = OUR_V6.parse::<std::net::Ipv6Addr>().unwrap().octets();
        let mut message = [&[136, 0, 0, 0, flags, 0, 0, 0], &target[..]].concat();
        if link {
            message.extend([&[2, 1][..], &OURS.octets()].concat());
        }
        Frame::v6(OUR_V6, to).ttl(255).macs(to_mac, OURS).icmp(&message).build()
    }

    #[test]
    fn neighbour_solicitations() {
        let group_mac = Mac::new([0x33, 0x33, 0xff, 0, 0, 1]);
        let multicast = solicitation("fd00::7", GROUP, &LINK).macs(group_mac, CLIENT).build();
        assert_eq!(answer(multicast), Ok(advertisement("fd00::7", CLIENT, 0x60, true)));
        let unicast = solicitation("fd00::7", OUR_V6, &[]).build();
        assert_eq!(answer(unicast), Ok(advertisement("fd00::7", CLIENT, 0x60, false)));
        let probe = solicitation("::", GROUP, &[]).macs(group_mac, CLIENT).build();
        assert_eq!(answer(probe), Ok(advertisement("ff02::1", ALL_NODES_MAC, 0x20, false)));
        // RFC 7527's nonce makes room for our MAC address.
        let enhanced = solicitation("::", GROUP, &[14, 1, 1, 2, 3, 4, 5, 6]).macs(group_mac, CLIENT).build();
        assert_eq!(answer(enhanced), Ok(advertisement("ff02::1", ALL_NODES_MAC, 0x20, true)));
        // What the solicitation had beyond that becomes padding.
        let long = solicitation("fd00::7", GROUP, &[LINK, [14, 1, 1, 2, 3, 4, 5, 6]].concat()).build();
        let expected = [advertisement("fd00::7", CLIENT, 0x60, true), vec![0; 8]].concat();
        assert_eq!(answer(long), Ok(expected));
    }

    #[test]
    fn invalid_solicitations() {
        let mut corrupt = solicitation("fd00::7", GROUP, &LINK).build();
        corrupt[14 + 40 + 4] ^= 1;
        for (n, frame) in [
            corrupt,
            solicitation("fd00::7", GROUP, &LINK).ttl(254).build(),
            solicitation("fd00::7", GROUP, &[]).build(),
            solicitation("fd00::7", GROUP, &[1, 0, 2, 0, 0, 0, 0, 0xc]).build(),
            solicitation("fd00::7", GROUP, &[1, 2, 2, 0, 0, 0, 0, 0xc]).build(),
            solicitation("fd00::7", GROUP, &[1, 1, 3, 0, 0, 0, 0, 0xc]).build(),
            solicitation("ff02::1", GROUP, &LINK).build(),
            solicitation("::", GROUP, &LINK).build(),
            solicitation("::", OUR_V6, &[]).build(),
            Frame::v6("fd00::7", OUR_V6).ttl(255).icmp(&[135, 0, 0, 0]).build(),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(answer(frame), Err(DropReason::Malformed), "{n}");
        }
        let mut other = [0; 32];
        (other[0], other[8], other[23]) = (135, 0xfd, 2);
        (other[24], other[25]) = (1, 1);
        let frame = Frame::v6("fd00::7", "ff02::1:ff00:2").ttl(255).icmp(&other).build();
        assert_eq!(answer(frame), Err(DropReason::NotHandled));
    }
}

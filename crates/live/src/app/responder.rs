//! Answers requests for our own addresses, so that ordinary hosts can talk to us: ARP requests (RFC 826), ICMP echo
//! (RFC 792), ICMPv6 echo (RFC 4443) and neighbour solicitations (RFC 4861).
//!
//! An answer overwrites its request. It has the same length, VLAN tags, IP options and extension headers. Requests to
//! other hosts and other kinds of requests are not handled. ICMP checksums need no completion (see
//! [`offload`](super::offload)), because all senders compute them in software. So the checksum of an answer is an
//! update of the request's checksum: a corrupt request gets a corrupt answer, which the receiver notices. Neighbour
//! solicitations, however, must be intact (RFC 4861 section 7.1.1).

use super::headers::{
    Arp, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Icmp, Ipv4, Ipv6, Mac, PROTOCOL_ICMP,
    PROTOCOL_ICMPV6, set_macs,
};
use crate::telemetry::DropReason;
use std::net::IpAddr;

/// Time to live, or hop limit, of the packets that we send: the recommended default (RFC 1700, "IP TIME TO LIVE
/// PARAMETER").
pub const DEFAULT_TTL: u8 = 64;

/// Answers requests for the addresses of one port.
#[derive(Clone, Debug)]
pub struct Responder {
    mac: Mac,
    v4: Box<[[u8; 4]]>,
    v6: Box<[[u8; 16]]>,
}

/// Result of a request. `Ok`: the frame now contains the answer; send it on the port on which the request arrived.
/// `Err`: why there is no answer.
pub type Answer = Result<(), DropReason>;

impl Responder {
    /// Creates a responder for a port with these IP addresses and this MAC address.
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

    /// The MAC address of the port.
    #[inline]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Whether `address` is one of the port's IPv4 addresses.
    #[inline]
    pub fn has_v4(&self, address: [u8; 4]) -> bool {
        self.v4.contains(&address)
    }

    /// Whether `address` is one of the port's IPv6 addresses.
    #[inline]
    pub fn has_v6(&self, address: [u8; 16]) -> bool {
        self.v6.contains(&address)
    }

    /// Answers any supported request in `frame` to this port's addresses.
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

    /// Answers an ARP request for one of our addresses (RFC 826, "Packet Reception").
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

    /// Answers an ICMP echo request. `ip` is the header of the packet in `frame`. The caller must have checked that its
    /// destination is one of our addresses.
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

    /// Answers an ICMPv6 echo request or a neighbour solicitation. `ip` is the header of the packet in `frame`. The
    /// caller must have checked that its destination is one of our addresses or a multicast address.
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

    /// Checks whether to answer an IPv4 packet to one of our addresses. Its source must be a unicast address, it must
    /// be addressed only to us, and it must not be a fragment. It must have no source route, because an answer would
    /// have to reverse the route (RFC 1122 section 3.2.1.8).
    #[inline]
    pub fn accept_v4(&self, ethernet: &Ethernet, ip: &Ipv4, packet: &[u8]) -> Answer {
        self.accept_macs(ethernet)?;
        // RFC 1122 section 3.2.1.3: the source must be a single host, so neither "this host" nor a group.
        let source_is_host = ip.source[0] != 0 && ip.source[0] < 224;
        let has_source_route = ip.header_len > Ipv4::MIN_LEN && ip.is_source_routed(packet);
        if ip.fragment || !source_is_host || has_source_route {
            return Err(DropReason::NotHandled);
        }
        Ok(())
    }

    /// Checks whether to answer an IPv6 packet to one of our addresses. It must come from a single host and be
    /// addressed only to us.
    #[inline]
    pub fn accept_v6(&self, ethernet: &Ethernet, ip: &Ipv6) -> Answer {
        self.accept_macs(ethernet)?;
        if is_multicast_v6(&ip.source) || ip.source == [0; 16] || is_multicast_v6(&ip.destination) {
            return Err(DropReason::NotHandled);
        }
        Ok(())
    }

    /// Checks whether the frame is addressed to our MAC address and comes from a single station. A broadcast frame must
    /// not contain a unicast packet (RFC 1122 section 3.3.6).
    #[inline]
    fn accept_macs(&self, ethernet: &Ethernet) -> Answer {
        if ethernet.source.is_group() {
            return Err(DropReason::Malformed);
        }
        if ethernet.destination == self.mac { Ok(()) } else { Err(DropReason::NotHandled) }
    }

    /// Turns an IPv4 frame into its answer: swaps the MAC addresses and the IP addresses, and sets a new time to live.
    #[inline]
    pub fn return_v4(&self, frame: &mut [u8], ethernet: &Ethernet) -> Answer {
        set_macs(frame, ethernet.source, self.mac)?;
        let packet = &mut frame[ethernet.len..];
        Ipv4::swap_addresses(packet)?;
        Ok(Ipv4::set_ttl(packet, DEFAULT_TTL)?)
    }

    /// Turns an IPv6 frame into its answer: swaps the MAC addresses and the IP addresses, and sets a new hop limit.
    #[inline]
    pub fn return_v6(&self, frame: &mut [u8], ethernet: &Ethernet) -> Answer {
        set_macs(frame, ethernet.source, self.mac)?;
        let packet = &mut frame[ethernet.len..];
        Ipv6::swap_addresses(packet)?;
        Ok(Ipv6::set_hop_limit(packet, DEFAULT_TTL)?)
    }
}

/// Whether the address is in ff00::/8 (RFC 4291 section 2.7).
#[inline]
pub(super) fn is_multicast_v6(address: &[u8; 16]) -> bool {
    address[0] == 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{CLIENT, Frame, OUR_V4, OUR_V6, OURS, arp, assert_intact};

    const PEER: [u8; 4] = [10, 0, 0, 7];

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
}

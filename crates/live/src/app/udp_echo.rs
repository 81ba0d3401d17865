//! `udp-echo`: sends each UDP datagram for one of our addresses back to its sender, as RFC 862 describes. It also
//! answers ARP requests, neighbour solicitations and ping, so that ordinary hosts can reach it.
//!
//! **Checksums.** Swapping source and destination does not change the checksum, so a reply keeps the checksum of its
//! request. If a datagram was corrupted on the way, its checksum stays wrong and its sender drops the reply. Only
//! checksums that the sender left to hardware (see [`offload`]) are completed.

use super::headers::checksum::pseudo_header;
use super::headers::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, Mac, PROTOCOL_UDP, Sum, Udp,
};
use super::offload::{self, Offloaded};
use super::responder::{Answer, Responder, is_multicast_v6};
use super::{App, Verdict};
use crate::Error;
use crate::telemetry::DropReason;
use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

/// A range of UDP ports: `any`, `7` or `5000-5010`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpPorts {
    first: u16,
    last: u16,
}

impl UdpPorts {
    /// All ports, 1-65535. Port 0 cannot be a destination (RFC 8085 section 5.1).
    pub const ANY: Self = Self { first: 1, last: u16::MAX };

    #[inline]
    fn contain(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// Formats the range as `any`, `7` or `5000-5010`, which can be parsed again.
impl fmt::Display for UdpPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            _ if *self == Self::ANY => f.write_str("any"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for UdpPorts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Invalid { what: format!("UDP ports {text:?}"), why: why.into() };
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
            _ => Err(wrong("not a port from 1 to 65535; write any, 7 or 5000-5010")),
        };
        if text == "any" {
            return Ok(Self::ANY);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = Self { first: port(first)?, last: port(last)? };
        if ports.first > ports.last {
            return Err(wrong("the first port is above the last; write the lower one first"));
        }
        Ok(ports)
    }
}

/// Returns UDP datagrams to their senders.
#[derive(Clone, Debug)]
pub struct UdpEcho {
    /// One responder per port.
    responders: Arc<[Responder]>,
    ports: UdpPorts,
    verify_checksum: bool,
}

impl UdpEcho {
    /// Answers for `addresses` on each port. `macs` are the ports' MAC addresses.
    ///
    /// If `verify_checksum` is true, datagrams with a wrong checksum are dropped as malformed. If it is false, they are
    /// returned with their wrong checksum; this is faster, because the data of the datagrams are not read.
    pub fn new(macs: &[Mac], addresses: &[IpAddr], ports: UdpPorts, verify_checksum: bool) -> Self {
        let responders = macs.iter().map(|mac| Responder::new(*mac, addresses.iter().copied())).collect();
        Self { responders, ports, verify_checksum }
    }

    #[inline]
    fn answer(&self, responder: &Responder, frame: &mut [u8]) -> Answer {
        let ethernet = Ethernet::parse(frame)?;
        match ethernet.ethertype {
            ETHERTYPE_IPV4 => {
                let packet = &mut frame[ethernet.len..];
                let ip = Ipv4::parse(packet)?;
                if !responder.has_v4(ip.destination) {
                    return Err(DropReason::NotHandled);
                }
                if ip.protocol != PROTOCOL_UDP {
                    return responder.answer_v4(frame, &ethernet, &ip);
                }
                responder.accept_v4(&ethernet, &ip, packet)?;
                let datagram = &mut packet[ip.header_len..ip.total_len];
                // RFC 768: a checksum of 0 means that the sender computed none. That is allowed.
                self.turn(datagram, ip.addresses_sum(), Ok(()))?;
                responder.return_v4(frame, &ethernet)
            }
            ETHERTYPE_IPV6 => {
                let packet = &mut frame[ethernet.len..];
                let ip = Ipv6::parse(packet)?;
                if !responder.has_v6(ip.destination) && !is_multicast_v6(&ip.destination) {
                    return Err(DropReason::NotHandled);
                }
                let upper = ip.upper(packet)?;
                if upper.fragment || upper.routed || upper.protocol != PROTOCOL_UDP {
                    return responder.answer_v6(frame, &ethernet, &ip);
                }
                responder.accept_v6(&ethernet, &ip)?;
                let datagram = &mut packet[upper.at..ip.total_len];
                // RFC 8200 section 8.1: with IPv6, the checksum is mandatory. Datagrams without one are dropped.
                self.turn(datagram, ip.addresses_sum(), Err(DropReason::Malformed))?;
                responder.return_v6(frame, &ethernet)
            }
            ETHERTYPE_ARP => responder.answer_arp(frame, &ethernet),
            _ => Err(DropReason::NotHandled),
        }
    }

    /// Swaps the ports of a datagram and completes its checksum if necessary. `without` is the result to return for a
    /// datagram without a checksum.
    #[inline]
    fn turn(&self, datagram: &mut [u8], addresses: Sum, without: Answer) -> Answer {
        let udp = Udp::parse(datagram)?;
        // RFC 768: source port 0 means that the sender expects no reply.
        if !self.ports.contain(udp.destination) || udp.source == 0 {
            return Err(DropReason::NotHandled);
        }
        let datagram = &mut datagram[..usize::from(udp.length)];
        if udp.checksum == 0 {
            without?;
        } else {
            let pseudo = pseudo_header(addresses, PROTOCOL_UDP, udp.length);
            let offloaded = offload::finish(datagram, Udp::CHECKSUM_AT, pseudo)?;
            if self.verify_checksum && offloaded == Offloaded::No && !pseudo.and(Sum::of(datagram)).is_intact() {
                return Err(DropReason::Malformed);
            }
        }
        Ok(Udp::swap_ports(datagram)?)
    }
}

impl App for UdpEcho {
    #[inline]
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict {
        let Some(responder) = self.responders.get(port) else {
            return Verdict::Drop(DropReason::NotHandled);
        };
        match self.answer(responder, frame) {
            Ok(()) => Verdict::Send(port),
            Err(reason) => Verdict::Drop(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{self, CLIENT, Frame, OUR_V4, OUR_V6, OURS, assert_intact};
    use proptest::prelude::*;

    const PEER: [u8; 4] = [10, 0, 0, 7];
    const PEER_V6: &str = "fd00::7";

    /// Handles a frame that arrived on p0, with these UDP ports.
    fn handle(ports: &str, verify: bool, frame: &mut [u8]) -> Verdict {
        let addresses = [OUR_V4.into(), OUR_V6.parse().unwrap()];
        UdpEcho::new(&[OURS], &addresses, ports.parse().unwrap(), verify).handle(0, frame)
    }

    #[test]
    fn datagrams_return() {
        for tags in 0..3 {
            let mut frame = Frame::v4(PEER, OUR_V4).tags(tags).udp(5000, 7, b"hello").build();
            assert_eq!(handle("7", true, &mut frame), Verdict::Send(0));
            let back = Frame::v4(OUR_V4, PEER).macs(CLIENT, OURS).tags(tags).ttl(64).udp(7, 5000, b"hello").build();
            assert_eq!(frame, back);
            let mut frame = Frame::v6(PEER_V6, OUR_V6).tags(tags).udp(5000, 7, b"hello").build();
            assert_eq!(handle("7", true, &mut frame), Verdict::Send(0));
            let back = Frame::v6(OUR_V6, PEER_V6).macs(CLIENT, OURS).tags(tags).ttl(64).udp(7, 5000, b"hello").build();
            assert_eq!(frame, back);
        }
    }

    #[test]
    fn checksums_left_to_hardware_are_finished() {
        for verify in [false, true] {
            for frame in [Frame::v4(PEER, OUR_V4), Frame::v6(PEER_V6, OUR_V6)] {
                let mut frame = frame.udp(5000, 7, b"hello").build();
                testing::leave_checksum_to_hardware(&mut frame);
                assert_eq!(handle("any", verify, &mut frame), Verdict::Send(0));
                assert_intact(&frame);
            }
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_or_is_dropped() {
        let mut frame = Frame::v4(PEER, OUR_V4).udp(5000, 7, b"hello").build();
        frame[14 + 28] ^= 1;
        assert_eq!(handle("any", true, &mut frame.clone()), Verdict::Drop(DropReason::Malformed));
        let sum = frame[14 + 26..14 + 28].to_vec();
        assert_eq!(handle("any", false, &mut frame), Verdict::Send(0));
        assert_eq!(frame[14 + 26..14 + 28], sum);
    }

    #[test]
    fn no_checksum() {
        let mut frame = Frame::v4(PEER, OUR_V4).udp(5000, 7, b"hello").build();
        frame[14 + 26..14 + 28].fill(0);
        assert_eq!(handle("any", true, &mut frame), Verdict::Send(0));
        assert_eq!(frame[14 + 26..14 + 28], [0, 0]);
        let mut frame = Frame::v6(PEER_V6, OUR_V6).udp(5000, 7, b"hello").build();
        frame[14 + 46..14 + 48].fill(0);
        assert_eq!(handle("any", false, &mut frame), Verdict::Drop(DropReason::Malformed));
    }

    #[test]
    fn what_is_not_ours() {
        let fragment = |mut frame: Vec<u8>| {
            frame[14 + 6] = 0x20;
            testing::fix_ipv4(&mut frame);
            frame
        };
        for (n, mut frame) in [
            Frame::v4(PEER, [10, 0, 0, 2]).udp(5000, 7, b"").build(),
            Frame::v4(PEER, OUR_V4).udp(5000, 8, b"").build(),
            Frame::v4(PEER, OUR_V4).udp(0, 7, b"").build(),
            Frame::v4(PEER, OUR_V4).tcp(b"").build(),
            fragment(Frame::v4(PEER, OUR_V4).udp(5000, 7, b"").build()),
            Frame::v4(PEER, OUR_V4).macs(CLIENT, CLIENT).udp(5000, 7, b"").build(),
            Frame::v6(PEER_V6, "ff02::1").udp(5000, 7, b"").build(),
            Frame::v6(PEER_V6, OUR_V6).extensions(44, &[17, 0, 0, 1, 0, 0, 0, 1]).udp(5000, 7, b"").build(),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(handle("7", false, &mut frame), Verdict::Drop(DropReason::NotHandled), "{n}");
        }
        let mut short = Frame::v4(PEER, OUR_V4).udp(5000, 7, b"").build();
        short[14 + 25] = 9; // longer than the packet, though not than the padded frame
        assert_eq!(handle("7", false, &mut short), Verdict::Drop(DropReason::Malformed));
    }

    #[test]
    fn ports_parse() {
        assert_eq!("any".parse::<UdpPorts>().unwrap(), UdpPorts::ANY);
        let range: UdpPorts = "5000-5010".parse().unwrap();
        assert!(range.contain(5000) && range.contain(5010) && !range.contain(4999) && !range.contain(5011));
        for wrong in ["", "0", "65536", "+7", "7-", "9-7", "all", "1-2-3"] {
            assert!(wrong.parse::<UdpPorts>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn twice_is_as_before(
            v4: bool, offload: bool, tags in 0usize..3, source in 1u16.., to in 1u16..,
            data in proptest::collection::vec(any::<u8>(), 0..1400),
        ) {
            let start = if v4 { Frame::v4(PEER, OUR_V4) } else { Frame::v6(PEER_V6, OUR_V6) };
            let whole = start.tags(tags).ttl(64).udp(source, to, &data).build();
            let mut frame = whole.clone();
            if offload {
                testing::leave_checksum_to_hardware(&mut frame);
            }
            // One application plays both ends: the client also echoes.
            let addresses: [IpAddr; 4] =
                [OUR_V4.into(), PEER.into(), OUR_V6.parse().unwrap(), PEER_V6.parse().unwrap()];
            let mut echo = UdpEcho::new(&[OURS, CLIENT], &addresses, UdpPorts::ANY, true);
            prop_assert_eq!(echo.handle(0, &mut frame), Verdict::Send(0));
            assert_intact(&frame);
            prop_assert_eq!(&frame[..6], &CLIENT.octets());
            prop_assert_eq!(&frame[6..12], &OURS.octets());
            prop_assert_ne!(&frame, &whole);
            prop_assert_eq!(echo.handle(1, &mut frame), Verdict::Send(1));
            prop_assert_eq!(&frame, &whole);
        }
    }
}

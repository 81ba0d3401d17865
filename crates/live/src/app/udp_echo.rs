//! `udp-echo`: returns each UDP datagram for our address to its sender, as RFC 862 describes; ARP,
//! neighbour solicitation and ping are answered too, so that an ordinary host can use it.
//!
//! **Checksums.** Swapping source and destination keeps the sum, so a reply carries its question's
//! checksum, and a datagram that was corrupted on the way stays recognisable: its sender drops the
//! echo. One thing has to be repaired: a checksum that its sender left to hardware (see
//! [`offload`](super::offload)) is finished here.

use super::headers::checksum::pseudo_header;
use super::headers::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, Mac, PROTOCOL_UDP, Sum, Udp,
};
use super::offload::{self, Offloaded};
use super::responder::{Answer, Responder, is_multicast_v6};
use super::{App, Verdict};
use crate::Error;
use crate::telemetry::DropReason;
use std::{net::IpAddr, str::FromStr, sync::Arc};

/// The UDP ports that are answered: `any`, `7` or `5000-5010`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpPorts {
    first: u16,
    last: u16,
}

impl UdpPorts {
    /// All of them; 0 is no port to send to (RFC 8085 section 5.1).
    pub const ANY: Self = Self { first: 1, last: u16::MAX };

    #[inline]
    fn contain(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
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

/// Echoes UDP datagrams.
#[derive(Clone, Debug)]
pub struct UdpEcho {
    /// One a port.
    responders: Arc<[Responder]>,
    ports: UdpPorts,
    verify_checksum: bool,
}

impl UdpEcho {
    /// Answers for `addresses` on each port, whose MAC addresses are `macs`.
    ///
    /// With `verify_checksum`, datagrams with a wrong checksum are dropped as malformed; without, they
    /// are returned as wrong as they came, and no datagram's data are read.
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
                // RFC 768: an all zero checksum means that the sender generated none.
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
                // RFC 8200 section 8.1: over IPv6 the checksum is not optional; without, discard.
                self.turn(datagram, ip.addresses_sum(), Err(DropReason::Malformed))?;
                responder.return_v6(frame, &ethernet)
            }
            ETHERTYPE_ARP => responder.answer_arp(frame, &ethernet),
            _ => Err(DropReason::NotHandled),
        }
    }

    /// Swaps the ports of a datagram for us and sees to its checksum; `without` is the answer to none.
    #[inline]
    fn turn(&self, datagram: &mut [u8], addresses: Sum, without: Answer) -> Answer {
        let udp = Udp::parse(datagram)?;
        // RFC 768: source port 0 says that no reply is expected.
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

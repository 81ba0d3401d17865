//! `l3fwd`: a router for IPv4 and IPv6 with static routes and static neighbours.
//!
//! A single longest-prefix match decides whether a packet is for the router itself, goes to a next hop, or has no
//! route. A packet for the router itself is answered by the port's [`Responder`](super::responder). The router checks
//! headers as RFC 1812 section 5.2.2 demands. It decrements the time to live and updates the checksum. It sends no ICMP
//! errors, and ignores the IP options of packets that it forwards. It leaves VLAN tags unchanged, so it routes only
//! within a VLAN.

use super::headers::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, set_macs};
use super::responder::{Responder, is_multicast_v6};
use super::routes::{Hop, Table};
use super::{App, Verdict, offload};
use crate::telemetry::DropReason;
use std::sync::Arc;

/// A router. All workers share its routing table.
#[derive(Clone, Debug)]
pub struct L3Fwd {
    table: Arc<Table>,
}

impl L3Fwd {
    /// Creates a router with the routing table `table`.
    pub fn new(table: Table) -> Self {
        Self { table: Arc::new(table) }
    }

    #[inline]
    fn forward(&self, port: usize, frame: &mut [u8]) -> Result<usize, DropReason> {
        let table = &*self.table;
        let responder = table.responders.get(port).ok_or(DropReason::NotHandled)?;
        let ethernet = Ethernet::parse(frame)?;
        match ethernet.ethertype {
            ETHERTYPE_IPV4 => {
                let packet = &mut frame[ethernet.len..];
                let ip = Ipv4::parse(packet)?;
                if !is_host_v4(ip.source) || !is_host_v4(ip.destination) {
                    return Err(DropReason::NotHandled);
                }
                match table.find_v4(ip.destination) {
                    None => Err(DropReason::NoRoute),
                    Some(Hop::Local) => responder.answer_v4(frame, &ethernet, &ip).map(|()| port),
                    Some(Hop::Broadcast) => Err(DropReason::NotHandled),
                    Some(Hop::Via { .. }) if !is_to(responder, &ethernet) => Err(DropReason::NotHandled),
                    Some(Hop::Via { .. }) if ip.ttl <= 1 => Err(DropReason::TtlExpired), // RFC 1812 section 5.3.1
                    Some(Hop::Via { port, destination, source }) => {
                        Ipv4::set_ttl(packet, ip.ttl - 1)?;
                        set_macs(frame, *destination, *source)?;
                        Ok(self.finished(frame, *port))
                    }
                }
            }
            ETHERTYPE_IPV6 => {
                let packet = &mut frame[ethernet.len..];
                let ip = Ipv6::parse(packet)?;
                if is_multicast_v6(&ip.destination) {
                    return responder.answer_v6(frame, &ethernet, &ip).map(|()| port);
                }
                let hop = table.find_v6(ip.destination);
                if hop == Some(&Hop::Local) {
                    return responder.answer_v6(frame, &ethernet, &ip).map(|()| port);
                }
                if !is_forwardable_v6(&ip.source) || !is_forwardable_v6(&ip.destination) {
                    return Err(DropReason::NotHandled);
                }
                match hop {
                    None => Err(DropReason::NoRoute),
                    Some(Hop::Via { port, destination, source }) if is_to(responder, &ethernet) => {
                        if ip.hop_limit <= 1 {
                            return Err(DropReason::TtlExpired); // RFC 8200 section 3
                        }
                        Ipv6::set_hop_limit(packet, ip.hop_limit - 1)?;
                        set_macs(frame, *destination, *source)?;
                        Ok(self.finished(frame, *port))
                    }
                    Some(_) => Err(DropReason::NotHandled),
                }
            }
            ETHERTYPE_ARP => responder.answer_arp(frame, &ethernet).map(|()| port),
            _ => Err(DropReason::NotHandled),
        }
    }

    #[inline]
    fn finished(&self, frame: &mut [u8], port: usize) -> usize {
        if self.table.finish_checksums {
            offload::finish_frame(frame);
        }
        port
    }
}

impl App for L3Fwd {
    #[inline]
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict {
        match self.forward(port, frame) {
            Ok(port) => Verdict::Send(port),
            Err(reason) => Verdict::Drop(reason),
        }
    }
}

/// Whether the frame is addressed to the MAC address of the port. A router must not forward other frames (RFC 1812
/// section 5.3.4).
#[inline]
fn is_to(responder: &Responder, ethernet: &Ethernet) -> bool {
    ethernet.destination == responder.mac()
}

/// Whether the address may belong to a host: not "this network", loopback, multicast, reserved or broadcast (RFC 1812
/// sections 4.2.2.11 and 5.3.7).
#[inline]
fn is_host_v4(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..)
}

/// Whether packets with this address may be forwarded: not unspecified, loopback, link-local or multicast (RFC 4291
/// sections 2.5.2, 2.5.3, 2.5.6, 2.7).
#[inline]
fn is_forwardable_v6(address: &[u8; 16]) -> bool {
    let address_bits = u128::from_be_bytes(*address);
    address_bits > 1 && address_bits >> 118 != 0xfe80 >> 6 && !is_multicast_v6(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::headers::Mac;
    use crate::app::testing::{self, CLIENT, Frame, OUR_V4, OURS, arp, assert_intact, router};

    const PEER: [u8; 4] = [10, 0, 0, 7];
    const FAR: [u8; 4] = [10, 1, 3, 3];
    const P1: Mac = Mac::new([2, 0, 0, 0, 0, 0x99]);
    const HOP: Mac = Mac::new([2, 0, 0, 0, 0, 0x21]);

    fn handle(port: usize, frame: Frame) -> (Verdict, Vec<u8>) {
        let mut frame = frame.build();
        (router().handle(port, &mut frame), frame)
    }

    #[test]
    fn forwarded_frames_are_one_hop_older() {
        for ttl in [2, 64, 255] {
            let (verdict, frame) = handle(0, Frame::v4(PEER, FAR).ttl(ttl).udp(1, 2, b"data"));
            assert_eq!(verdict, Verdict::Send(1));
            assert_eq!(frame, Frame::v4(PEER, FAR).macs(HOP, P1).ttl(ttl - 1).udp(1, 2, b"data").build());
            assert_intact(&frame);
            let (verdict, frame) = handle(0, Frame::v6("fd00::7", "fd01::1").tags(1).ttl(ttl).tcp(b"data"));
            assert_eq!(verdict, Verdict::Send(1));
            let hop = Mac::new([2, 0, 0, 0, 0, 0x23]);
            assert_eq!(frame, Frame::v6("fd00::7", "fd01::1").tags(1).macs(hop, P1).ttl(ttl - 1).tcp(b"data").build());
        }
        // The longer prefix wins.
        assert_eq!(handle(0, Frame::v4(PEER, [10, 1, 2, 3]).tcp(b"")).0, Verdict::Send(0));
    }

    #[test]
    fn reasons() {
        let v4 = |source, destination| Frame::v4(source, destination).tcp(b"");
        let v6 = |source, destination| Frame::v6(source, destination).tcp(b"");
        use DropReason::{Malformed, NoRoute, NotHandled, TtlExpired};
        for (n, (frame, reason)) in [
            (v4(PEER, [10, 2, 0, 1]), NoRoute),
            (v4(PEER, FAR).ttl(1), TtlExpired),
            (v4(PEER, FAR).ttl(0), TtlExpired),
            (v4(PEER, [10, 0, 0, 255]), NotHandled),
            (v4(PEER, [255; 4]), NotHandled),
            (v4(PEER, [224, 0, 0, 5]), NotHandled),
            (v4([127, 0, 0, 1], FAR), NotHandled),
            (v4([224, 0, 0, 1], FAR), NotHandled),
            (v4(PEER, FAR).macs(CLIENT, CLIENT), NotHandled),
            (v4(PEER, FAR).macs(Mac::BROADCAST, CLIENT), NotHandled),
            (v4(PEER, OUR_V4), NotHandled),
            (v6("fd00::7", "fd02::1"), NoRoute),
            (v6("fd00::7", "fd01::1").ttl(1), TtlExpired),
            (v6("fe80::7", "fd01::1"), NotHandled),
            (v6("fd00::7", "fe80::1"), NotHandled),
            (v6("::", "fd01::1"), NotHandled),
            (v6("::1", "fd01::1"), NotHandled),
            (v6("fd00::7", "ff02::1"), NotHandled),
            (v6("fd00::7", "fd01::1").macs(CLIENT, CLIENT), NotHandled),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(handle(0, frame).0, Verdict::Drop(reason), "{n}");
        }
        let mut corrupt = v4(PEER, FAR).build();
        corrupt[14 + 10] ^= 1;
        assert_eq!(router().handle(0, &mut corrupt), Verdict::Drop(Malformed));
        assert_eq!(router().handle(0, &mut v4(PEER, FAR).build()[..33]), Verdict::Drop(Malformed));
    }

    #[test]
    fn neighbours_can_resolve_and_ping_it() {
        let mut frame = arp(Mac::BROADCAST, 1, PEER, OUR_V4);
        assert_eq!(router().handle(0, &mut frame), Verdict::Send(0));
        assert_eq!(frame[6..12], OURS.octets());
        // ARP for an address is answered only on its own port, but ping on every port.
        let mut frame = arp(Mac::BROADCAST, 1, PEER, OUR_V4);
        assert_eq!(router().handle(1, &mut frame), Verdict::Drop(DropReason::NotHandled));
        let mut frame = arp(Mac::BROADCAST, 1, [10, 0, 1, 7], [10, 0, 1, 1]);
        assert_eq!(router().handle(1, &mut frame), Verdict::Send(1));
        assert_eq!(frame[6..12], P1.octets());
        let (verdict, frame) = handle(0, Frame::v4(PEER, [10, 0, 1, 1]).ttl(1).icmp(&[8, 0, 0, 0, 1, 2, 3, 4]));
        assert_eq!(verdict, Verdict::Send(0));
        assert_intact(&frame);
        let link = [1, 1, 2, 0, 0, 0, 0, 0xc];
        let mut frame = testing::solicitation("fd00::7", "ff02::1:ff00:1", &link).build();
        assert_eq!(router().handle(0, &mut frame), Verdict::Send(0));
        assert_intact(&frame);
        assert_eq!(handle(0, Frame::v6("fd00::7", "fd00::1").icmp(&[128, 0, 0, 0, 1, 2, 3, 4])).0, Verdict::Send(0));
    }

    #[test]
    fn checksums_are_finished_on_request_only() {
        let whole = Frame::v4(PEER, FAR).udp(1, 2, b"data").build();
        for (line, finished) in [("", false), ("finish_checksums = true\n", true)] {
            let text = format!("{line}[[route]]\nprefix = \"0.0.0.0/0\"\nport = \"p1\"\nmac = \"02:00:00:00:00:21\"");
            let table = Table::parse(&text, "routes.toml", &testing::ports(2)).unwrap();
            let mut frame = whole.clone();
            testing::leave_checksum_to_hardware(&mut frame);
            assert_eq!(L3Fwd::new(table).handle(0, &mut frame), Verdict::Send(1));
            assert_eq!(frame[14 + 26..14 + 28] == whole[14 + 26..14 + 28], finished);
        }
    }
}

//! `l3fwd`: a router for IPv4 and IPv6 with static routes and static neighbours.
//!
//! One longest-prefix match decides: to us (answered by the port's [`Responder`](super::responder)), to
//! a next hop, or nowhere. The header is checked as RFC 1812 section 5.2.2 demands, the time to live is
//! counted down with its checksum. It sends no ICMP errors, processes no IP options on the way, and keeps
//! VLAN tags as they are: it routes within a VLAN.

use super::headers::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, set_macs};
use super::responder::{Responder, is_multicast_v6};
use super::routes::{Hop, Table};
use super::{App, Verdict, offload};
use crate::telemetry::DropReason;
use std::sync::Arc;

/// Forwards by a table, which all workers share.
#[derive(Clone, Debug)]
pub struct L3Fwd {
    table: Arc<Table>,
}

impl L3Fwd {
    /// Forwards by `table`.
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

/// A router takes what is addressed to its own MAC address alone (RFC 1812 section 5.3.4).
#[inline]
fn is_to(responder: &Responder, ethernet: &Ethernet) -> bool {
    ethernet.destination == responder.mac()
}

/// Neither "this network", loopback, multicast, reserved nor broadcast (RFC 1812 sections 4.2.2.11 and 5.3.7).
#[inline]
fn is_host_v4(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..)
}

/// Neither unspecified, loopback, link-local nor multicast (RFC 4291 sections 2.5.2, 2.5.3, 2.5.6, 2.7).
#[inline]
fn is_forwardable_v6(address: &[u8; 16]) -> bool {
    let address_bits = u128::from_be_bytes(*address);
    address_bits > 1 && address_bits >> 118 != 0xfe80 >> 6 && !is_multicast_v6(address)
}

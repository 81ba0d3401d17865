//! Answers of the [`Responder`] to neighbour solicitations (RFC 4861).

use super::headers::checksum::pseudo_header;
use super::headers::{Ethernet, Icmp, Ipv6, Mac, PROTOCOL_ICMPV6, Sum, Upper, set_macs};
use super::responder::{Answer, Responder, is_multicast_v6};
use crate::telemetry::DropReason;

/// The hop limit of neighbour messages, both received and sent (RFC 4861 sections 7.1.1 and 7.2.4).
const NEIGHBOR_HOP_LIMIT: u8 = 255;
/// Length of type, code, checksum, flags and target, in bytes (RFC 4861 sections 4.3 and 4.4).
const NEIGHBOR_LEN: usize = 24;
/// Length of a link-layer address option for Ethernet, in bytes: type, length in units of 8 bytes, address (RFC 4861
/// section 4.6.1).
const LINK_OPTION_LEN: usize = 8;
const SOURCE_LINK_OPTION: u8 = 1;
const TARGET_LINK_OPTION: u8 = 2;
/// The flags of a neighbour advertisement (RFC 4861 section 4.4).
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// The all-nodes address of the link (RFC 4291 section 2.7.1), and its MAC address (RFC 2464 section 7).
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES_MAC: Mac = Mac::new([0x33, 0x33, 0, 0, 0, 1]);

impl Responder {
    /// Answers a neighbour solicitation after validating it as RFC 4861 section 7.1.1 demands.
    ///
    /// The advertisement contains our MAC address if the solicitation is long enough, because the answer must fit into
    /// the same frame. A plain probe for duplicate addresses (RFC 4862 section 5.4.2) is too short, but needs no MAC
    /// address.
    pub(super) fn advertise(&self, frame: &mut [u8], ethernet: &Ethernet, ip: &Ipv6, upper: &Upper) -> Answer {
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
        let to_us = ethernet.destination == self.mac() || ethernet.destination.is_group();
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
        set_macs(frame, to_mac, self.mac())?;
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
            message[26..32].copy_from_slice(&self.mac().octets());
        }
        let message = &mut message[..len];
        let addresses = Sum::of(&target).and(Sum::of(&to));
        let checksum = pseudo_header(addresses, PROTOCOL_ICMPV6, len as u16).and(Sum::of(message)).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// The MAC address in the first source link-layer address option; `None` if there is no such option. Every option must
/// have a length above 0 (RFC 4861 sections 4.6 and 7.1.1).
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

/// The multicast group in which a host receives solicitations for its address (RFC 4291 section 2.7.1).
fn solicited_node(address: &[u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = *address;
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{CLIENT, Frame, OUR_V4, OUR_V6, OURS, solicitation};
    use std::net::IpAddr;

    const GROUP: &str = "ff02::1:ff00:1";
    const LINK: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 0xc];

    fn answer(mut frame: Vec<u8>) -> Result<Vec<u8>, DropReason> {
        let responder = Responder::new(OURS, [IpAddr::from(OUR_V4), OUR_V6.parse().unwrap()]);
        responder.answer(&mut frame).map(|()| frame)
    }

    /// The expected advertisement. It contains our MAC address if `link`.
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
        // The nonce option of RFC 7527 makes the probe long enough for our MAC address.
        let enhanced = solicitation("::", GROUP, &[14, 1, 1, 2, 3, 4, 5, 6]).macs(group_mac, CLIENT).build();
        assert_eq!(answer(enhanced), Ok(advertisement("ff02::1", ALL_NODES_MAC, 0x20, true)));
        // If the solicitation is longer than the answer, the rest becomes padding.
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

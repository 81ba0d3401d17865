//! Answers to a router that asks for the link address of a host behind the tester: ARP (RFC 826) and neighbor
//! discovery (RFC 4861). The tester takes every frame from the kernel, so the kernel cannot answer.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::flows::Flows;

const VLAN: [u8; 2] = [0x81, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// Builds the reply to `frame` if `frame` asks for the link address of one of the tester's simulated hosts, which are
/// those that `flows` use; otherwise `None`. `mac` is the tester's own link address, which the reply gives. With a VLAN,
/// the reply has its tag. The request may lack the tag, because NICs and veths remove it from frames that they receive.
pub fn answer(frame: &[u8], mac: [u8; 6], flows: &Flows) -> Option<Vec<u8>> {
    let frame: Cow<'_, [u8]> = match frame.get(12..16)? {
        [a, b, tag @ ..] if [*a, *b] == VLAN => {
            let vlan = u16::from_be_bytes([tag[0], tag[1]]) & 0xfff;
            flows.vlan.filter(|ours| *ours == vlan)?;
            [&frame[..12], &frame[16..]].concat().into()
        }
        _ => frame.into(),
    };
    let mut reply = match frame.get(12..14)? {
        kind if kind == ARP => arp(&frame, mac, flows),
        kind if kind == IPV6 => neighbor(&frame, mac, flows),
        _ => None,
    }?;
    if let Some(vlan) = flows.vlan {
        reply.splice(12..12, VLAN.into_iter().chain(vlan.to_be_bytes())); // priority 0
    }
    Some(reply)
}

fn arp(frame: &[u8], mac: [u8; 6], flows: &Flows) -> Option<Vec<u8>> {
    let asked = frame.get(14..42)?;
    // An ARP request from IPv4 to Ethernet: hardware type 1, protocol 0x0800, addresses of 6 and 4 bytes, operation 1.
    if asked[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(asked[at], asked[at + 1], asked[at + 2], asked[at + 3]);
    let (sender, target) = (address(14), address(24));
    // A host that has just configured an address probes for it (sender 0.0.0.0) and announces it (sender = target). An
    // answer would tell it that its address is taken (RFC 5227, 2.1.1 and 2.4).
    if sender.is_unspecified() || sender == target || !flows.has(target.into()) {
        return None;
    }
    let mut out = vec![0; 60];
    out[..6].copy_from_slice(&asked[8..14]);
    out[6..12].copy_from_slice(&mac);
    out[12..14].copy_from_slice(&ARP);
    out[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
    out[22..28].copy_from_slice(&mac);
    out[28..32].copy_from_slice(&asked[24..28]);
    out[32..42].copy_from_slice(&asked[8..18]);
    Some(out)
}

fn neighbor(frame: &[u8], mac: [u8; 6], flows: &Flows) -> Option<Vec<u8>> {
    let ip = frame.get(14..54)?;
    let message = frame.get(54..78)?;
    if ip[6] != ICMPV6 || ip[7] != 255 || message[0] != SOLICITATION {
        return None;
    }
    let target: [u8; 16] = message[8..24].try_into().ok()?;
    let asker: [u8; 16] = ip[8..24].try_into().ok()?;
    // A solicitation from the unspecified address detects duplicates of an address that a host has just configured; an
    // answer would make the host give it up (RFC 4861, 7.2.4; RFC 4862, 5.4.4).
    if asker == [0; 16] || asker == target || !flows.has(IpAddr::V6(Ipv6Addr::from(target))) {
        return None;
    }
    let mut out = vec![0; 86];
    out[..6].copy_from_slice(&frame[6..12]);
    out[6..12].copy_from_slice(&mac);
    out[12..14].copy_from_slice(&IPV6);
    out[14] = 0x60;
    out[19] = 32; // payload
    (out[20], out[21]) = (ICMPV6, 255);
    out[22..38].copy_from_slice(&target);
    out[38..54].copy_from_slice(&asker);
    out[54] = ADVERTISEMENT;
    out[58] = 0x60; // solicited, override
    out[62..78].copy_from_slice(&target);
    (out[78], out[79]) = (2, 1); // target link-layer address, one unit of 8 bytes
    out[80..86].copy_from_slice(&mac);
    let pseudo = [0, 0, 0, 32, 0, 0, 0, ICMPV6];
    let words = out[22..].chunks(2).chain(pseudo.chunks(2));
    let mut sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    out[56..58].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::Family;
    use proptest::prelude::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn flows(family: Family, vlan: Option<u16>) -> Flows {
        Flows { family, vlan, count: 1_500, seed: 1, reverse: false }
    }

    fn request(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
        frame.extend(sender);
        frame.extend([0; 6]);
        frame.extend(target);
        frame
    }

    #[test]
    fn arp_is_answered_for_our_addresses_alone() {
        let answer = |frame: &[u8]| answer(frame, MAC, &flows(Family::V4, None));
        let router = [198, 18, 0, 254];
        let reply = answer(&request(router, [198, 19, 3, 7])).unwrap();
        assert_eq!(reply[..6], [2, 0, 0, 0, 0, 1]);
        assert_eq!(reply[20..22], [0, 2]);
        assert_eq!((&reply[22..28], &reply[28..32]), (&MAC[..], &[198, 19, 3, 7][..]));
        assert_eq!(reply[38..42], [198, 18, 0, 254]);
        assert_eq!(answer(&request(router, [10, 0, 0, 1])), None);
        assert_eq!(answer(&reply), None, "a reply is not answered");
        // The tester once claimed every address of its networks, also against a router that configured its own.
        assert_eq!(answer(&request([198, 19, 3, 9], [198, 19, 3, 1])), None, "no flow has this address");
        assert_eq!(answer(&request([0; 4], [198, 19, 3, 7])), None, "a probe");
        assert_eq!(answer(&request([198, 19, 3, 7], [198, 19, 3, 7])), None, "an announcement");
    }

    fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
        [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
    }

    #[test]
    fn requests_in_the_vlan_are_answered_in_the_vlan() {
        let request = request([198, 18, 0, 254], [198, 19, 3, 7]);
        let plain = answer(&request, MAC, &flows(Family::V4, None)).unwrap();
        let of = |frame: &[u8]| answer(frame, MAC, &flows(Family::V4, Some(7)));
        // 0xe000: the highest priority.
        for asked in [request.clone(), tagged(&request, 7), tagged(&request, 0xe007)] {
            assert_eq!(of(&asked), Some(tagged(&plain, 7)));
        }
        assert_eq!(of(&tagged(&request, 8)), None);
        assert_eq!(answer(&tagged(&request, 7), MAC, &flows(Family::V4, None)), None);
    }

    fn solicitation(asker: &str, target: Ipv6Addr) -> Vec<u8> {
        let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 7, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
        frame.extend(asker.parse::<Ipv6Addr>().unwrap().octets());
        frame.extend("ff02::1:ff00:7".parse::<Ipv6Addr>().unwrap().octets());
        frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.octets());
        frame.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        frame
    }

    #[test]
    fn a_solicitation_is_answered_with_a_right_checksum() {
        let target: Ipv6Addr = "2001:2:0:8003::7".parse().unwrap();
        let answer = |frame: &[u8]| answer(frame, MAC, &flows(Family::V6, None));
        assert_eq!(answer(&solicitation("::", target)), None, "duplicate address detection");
        assert_eq!(answer(&solicitation("fe80::1", "2001:2:0:8003::1".parse().unwrap())), None);
        let reply = answer(&solicitation("fe80::1", target)).unwrap();
        assert_eq!((reply[54], &reply[62..78], &reply[80..86]), (136, &target.octets()[..], &MAC[..]));
        // The sum over pseudo-header and message, with its checksum, is all ones.
        let mut sum: u32 = reply[22..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        sum += 32 + 58;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = answer(&frame, MAC, &flows(Family::V6, Some(5)));
        }
    }
}

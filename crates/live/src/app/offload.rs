//! Completes checksums that a sender on a veth pair left to its hardware, though a veth has none.
//!
//! With transmit checksum offload, a Linux sender on a veth pair writes only the sum of the pseudo-header into the TCP
//! or UDP checksum field. It marks the socket buffer `CHECKSUM_PARTIAL` (kernel documentation,
//! networking/checksum-offloads). AF_XDP loses this mark. A program that forwards such a frame must complete the
//! checksum, otherwise the receiver drops the frame as corrupt. The checksums of ICMP, ICMPv6 and the IPv4 header are
//! always computed in software, so they need no completion.

use super::headers::checksum::pseudo_header;
use super::headers::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, Malformed, PROTOCOL_TCP, PROTOCOL_UDP, Sum, Udp,
};

/// Offset of the checksum in a TCP header, in bytes (RFC 9293 section 3.1).
const TCP_CHECKSUM_AT: usize = 16;

/// Whether a TCP or UDP checksum had been left to hardware.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offloaded {
    /// The field contained only the sum of the pseudo-header. Now it contains the complete checksum.
    Finished,
    /// The field contains the sender's checksum, right or wrong, and was not changed.
    No,
}

/// Completes the checksum of `segment` if the sender left it to hardware. `segment` is a whole TCP segment or UDP
/// datagram, with its header and without padding. The checksum is at offset `at`, and `pseudo` is the sum of the
/// pseudo-header.
///
/// A complete checksum can equal the sum of the pseudo-header by chance. It is then computed again, which gives the
/// same value. Apart from that, the data are only read if the checksum was left to hardware.
#[inline]
pub fn finish(segment: &mut [u8], at: usize, pseudo: Sum) -> Result<Offloaded, Malformed> {
    let found = segment.get(at..).and_then(|rest| rest.first_chunk::<2>()).ok_or(Malformed)?;
    if u16::from_be_bytes(*found) != pseudo.fold() {
        return Ok(Offloaded::No);
    }
    segment[at..at + 2].fill(0);
    // UDP sends a checksum of 0 as 0xffff (RFC 768). For TCP, both values mean the same.
    let checksum = match pseudo.and(Sum::of(segment)).checksum() {
        0 => 0xffff,
        sum => sum,
    };
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(Offloaded::Finished)
}

/// Completes the TCP or UDP checksum of an Ethernet frame if the sender left it to hardware.
///
/// Frames of other protocols, fragments (their checksums are always computed in software) and frames that do not parse
/// stay unchanged.
pub fn finish_frame(frame: &mut [u8]) {
    // `None` means that there is nothing to do.
    let _ = locate(frame).and_then(|(from, to, at, pseudo)| finish(frame.get_mut(from..to)?, at, pseudo).ok());
}

/// Finds the TCP or UDP segment in a frame. Returns its start and end, the offset of its checksum, and the sum of its
/// pseudo-header; `None` if there is no such segment.
fn locate(frame: &[u8]) -> Option<(usize, usize, usize, Sum)> {
    let ethernet = Ethernet::parse(frame).ok()?;
    let packet = &frame[ethernet.len..];
    let (addresses, protocol, from, to) = match ethernet.ethertype {
        ETHERTYPE_IPV4 => {
            let ip = Ipv4::parse(packet).ok().filter(|ip| !ip.fragment)?;
            (ip.addresses_sum(), ip.protocol, ip.header_len, ip.total_len)
        }
        ETHERTYPE_IPV6 => {
            let ip = Ipv6::parse(packet).ok()?;
            let upper = ip.upper(packet).ok().filter(|upper| !upper.fragment && !upper.routed)?;
            (ip.addresses_sum(), upper.protocol, upper.at, ip.total_len)
        }
        _ => return None,
    };
    let (length, at) = match protocol {
        PROTOCOL_TCP => (u16::try_from(to - from).ok()?, TCP_CHECKSUM_AT),
        PROTOCOL_UDP => (Udp::parse(&packet[from..to]).ok()?.length, Udp::CHECKSUM_AT),
        _ => return None,
    };
    let from = ethernet.len + from;
    Some((from, from + usize::from(length), at, pseudo_header(addresses, protocol, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{self, Frame};

    #[test]
    fn what_the_sender_left_is_finished_and_the_rest_stays() {
        let frames = [
            Frame::v4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 7, b"odd").build(),
            Frame::v4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(b"data!").build(),
            Frame::v6("fd00::1", "fd00::2").udp(1000, 7, b"some data").build(),
            Frame::v6("fd00::1", "fd00::2").tcp(b"").tags(2).build(),
        ];
        for whole in frames {
            let mut frame = whole.clone();
            finish_frame(&mut frame);
            assert_eq!(frame, whole, "a finished checksum is left alone");
            testing::leave_checksum_to_hardware(&mut frame);
            assert_ne!(frame, whole);
            finish_frame(&mut frame);
            assert_eq!(frame, whole);
            // A checksum that is wrong for another reason stays wrong, so that the receiver notices it.
            let last = frame.len() - 1;
            let mut wrong = whole.clone();
            wrong[last.min(14 + 8 + 40 + 17)] ^= 0x55;
            let before = wrong.clone();
            finish_frame(&mut wrong);
            assert_eq!(wrong, before);
        }
    }

    #[test]
    fn fragments_stay() {
        let mut frame = Frame::v4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 7, b"data").build();
        testing::leave_checksum_to_hardware(&mut frame);
        frame[14 + 6] = 0x20; // more fragments
        testing::fix_ipv4(&mut frame);
        let before = frame.clone();
        finish_frame(&mut frame);
        assert_eq!(frame, before);
    }
}

//! Completes checksums that a sender left to hardware that does not exist.
//!
//! With transmit checksum offload, a Linux sender on a veth pair writes only the pseudo-header's sum into the TCP or
//! UDP checksum field. It marks the socket buffer `CHECKSUM_PARTIAL` (kernel documentation,
//! networking/checksum-offloads). The mark is lost on the way through AF_XDP. A program that passes such a frame on
//! must complete the sum, or the receiver drops the frame as corrupt. ICMP and ICMPv6 checksums and that of the IPv4
//! header are always computed in software and need no completion.

use super::headers::checksum::pseudo_header;
use super::headers::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, Malformed, PROTOCOL_TCP, PROTOCOL_UDP, Sum, Udp,
};

/// Offset of the checksum in a TCP header, in bytes (RFC 9293 section 3.1).
const TCP_CHECKSUM_AT: usize = 16;

/// What was found in a TCP or UDP checksum field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offloaded {
    /// The field contained only the pseudo-header's sum; now it contains the checksum.
    Finished,
    /// The field contained something else: the sender's own checksum, which may be right or wrong.
    No,
}

/// Completes the checksum of `segment` if its sender left it to hardware. `segment` is a whole TCP or UDP header with
/// its data and without padding. The checksum is at offset `at`, and the pseudo-header's sum is `pseudo`.
///
/// A complete checksum can by chance equal the pseudo-header's sum. It then does not change, because computing it again
/// gives the same value. The length of the data affects the cost only in this case.
#[inline]
pub fn finish(segment: &mut [u8], at: usize, pseudo: Sum) -> Result<Offloaded, Malformed> {
    let found = segment.get(at..).and_then(|rest| rest.first_chunk::<2>()).ok_or(Malformed)?;
    if u16::from_be_bytes(*found) != pseudo.fold() {
        return Ok(Offloaded::No);
    }
    segment[at..at + 2].fill(0);
    // UDP sends a sum of 0 as all ones (RFC 768); for TCP the two mean the same.
    let checksum = match pseudo.and(Sum::of(segment)).checksum() {
        0 => 0xffff,
        sum => sum,
    };
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(Offloaded::Finished)
}

/// Completes the TCP or UDP checksum of an Ethernet frame if its sender left it to hardware.
///
/// Frames of other protocols, fragments (their checksums are always computed in software) and frames that do not parse
/// stay unchanged.
pub fn finish_frame(frame: &mut [u8]) {
    // `None`: nothing to do, for whichever reason.
    let _ = locate(frame).and_then(|(from, to, at, pseudo)| finish(frame.get_mut(from..to)?, at, pseudo).ok());
}

/// Start and end of the segment, the offset of its checksum, and the pseudo-header's sum.
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
            // One that is wrong in another way stays wrong: its receiver shall notice.
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

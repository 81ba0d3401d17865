//! The protocol headers that the applications read and rewrite.
//!
//! Each `parse` function checks once that the data are as long as the header states. Its result has plain values and
//! valid offsets, which need no further check. Bytes after the end of an IP packet are padding (frames have at least 60
//! bytes) and are always accepted. Functions that rewrite headers work on arrays of fixed size, so that one length
//! check is enough.

pub mod checksum;
mod ethernet;
mod ip;
mod mac;
mod transport;

pub use checksum::Sum;
pub use ethernet::{Arp, Ethernet, set_macs, swap_macs};
pub use ip::{Ipv4, Ipv6, Upper};
pub use mac::Mac;
pub use transport::{Icmp, Udp};

use crate::telemetry::DropReason;

/// EtherType of IPv4 (RFC 894).
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP (RFC 826, "Definitions").
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6 (RFC 2464 section 3).
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Protocol number of ICMP (RFC 792).
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of TCP (RFC 9293 section 3.1).
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP (RFC 768).
pub const PROTOCOL_UDP: u8 = 17;
/// Next header value of ICMPv6 (RFC 4443 section 1).
pub const PROTOCOL_ICMPV6: u8 = 58;

/// The error for a header that is truncated or contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<Malformed> for DropReason {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

#[inline]
fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

//! UDP headers, and the fields that ICMP and ICMPv6 have in common.

use super::{Malformed, be16, checksum};

/// A UDP header (RFC 768).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp {
    /// UDP port of the sender. 0 means that the sender expects no reply.
    pub source: u16,
    /// UDP port of the receiver.
    pub destination: u16,
    /// Length of header and data in bytes, at least 8.
    pub length: u16,
    /// The checksum. 0 means that the sender computed none.
    pub checksum: u16,
}

impl Udp {
    /// Length of a UDP header, in bytes.
    pub const LEN: usize = 8;
    /// Offset of the checksum in the header, in bytes.
    pub const CHECKSUM_AT: usize = 6;

    /// Parses the header at the start of `datagram`, which is the payload of an IP packet without padding.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Self, Malformed> {
        let h = datagram.first_chunk::<{ Self::LEN }>().ok_or(Malformed)?;
        let length = be16(h, 4);
        if usize::from(length) < Self::LEN || usize::from(length) > datagram.len() {
            return Err(Malformed);
        }
        Ok(Self { source: be16(h, 0), destination: be16(h, 2), length, checksum: be16(h, 6) })
    }

    /// Swaps the ports, which keeps the checksum valid. Returns an error if `datagram` is too short.
    #[inline]
    pub fn swap_ports(datagram: &mut [u8]) -> Result<(), Malformed> {
        let h = datagram.first_chunk_mut::<{ Self::LEN }>().ok_or(Malformed)?;
        let [s0, s1, d0, d1, ..] = *h;
        h[..4].copy_from_slice(&[d0, d1, s0, s1]);
        Ok(())
    }
}

/// The first four bytes of an ICMP (RFC 792) or ICMPv6 (RFC 4443 section 2.1) message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// The message type, for example [`Icmp::ECHO`].
    pub kind: u8,
    /// The code, which refines the type. It is 0 in echo messages.
    pub code: u8,
    /// The checksum of the message. In ICMPv6, it also covers a pseudo-header.
    pub checksum: u16,
}

impl Icmp {
    /// Length of the header of an echo message, in bytes (RFC 792, RFC 4443 section 4).
    pub const ECHO_LEN: usize = 8;
    /// The type of an ICMP echo reply (RFC 792).
    pub const ECHO_REPLY: u8 = 0;
    /// The type of an ICMP echo request (RFC 792).
    pub const ECHO: u8 = 8;
    /// The type of an ICMPv6 echo request (RFC 4443 section 4.1).
    pub const V6_ECHO: u8 = 128;
    /// The type of an ICMPv6 echo reply (RFC 4443 section 4.2).
    pub const V6_ECHO_REPLY: u8 = 129;
    /// The type of a neighbour solicitation (RFC 4861 section 4.3).
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// The type of a neighbour advertisement (RFC 4861 section 4.4).
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;

    /// Parses the first four bytes of `message`.
    #[inline]
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let h = message.first_chunk::<4>().ok_or(Malformed)?;
        Ok(Self { kind: h[0], code: h[1], checksum: be16(h, 2) })
    }

    /// Sets the type and updates the checksum. Returns an error if `message` is too short.
    #[inline]
    pub fn set_kind(message: &mut [u8], kind: u8) -> Result<(), Malformed> {
        let h = message.first_chunk_mut::<4>().ok_or(Malformed)?;
        let checksum = checksum::updated(be16(h, 2), be16(h, 0), u16::from_be_bytes([kind, h[1]]));
        // An update cannot know whether all other words are zero. If they are, a checksum of 0 would be wrong (RFC 1624
        // section 3). 0xffff is equal to 0 in one's complement, and right in either case.
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        h[0] = kind;
        h[2..4].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_lengths() {
        let parse = |len: u8| Udp::parse(&[0x13, 0x88, 0, 7, 0, len, 0xab, 0xcd, 1, 2]);
        let udp = parse(9).unwrap();
        assert_eq!((udp.source, udp.destination, udp.length, udp.checksum), (5000, 7, 9, 0xabcd));
        assert!(parse(10).is_ok() && parse(8).is_ok());
        assert_eq!((parse(7), parse(11)), (Err(Malformed), Err(Malformed)));
        assert_eq!(Udp::parse(&[0; 7]), Err(Malformed));
    }

    #[test]
    fn an_echo_becomes_its_reply() {
        let mut message = [8, 0, 0xf7, 0xff, 0, 0, 0, 0]; // all but the type is zero
        Icmp::set_kind(&mut message, Icmp::ECHO_REPLY).unwrap();
        assert_eq!(message, [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(Icmp::set_kind(&mut message[..3], 0), Err(Malformed));
    }
}

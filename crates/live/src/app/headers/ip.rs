//! IPv4 and IPv6 headers.

use super::{Malformed, Sum, be16, checksum};

/// An IPv4 header (RFC 791 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4 {
    /// IPv4 address of the sender.
    pub source: [u8; 4],
    /// IPv4 address of the receiver.
    pub destination: [u8; 4],
    /// Protocol number of the payload, for example [`PROTOCOL_UDP`](super::PROTOCOL_UDP).
    pub protocol: u8,
    /// Time to live: how many more routers may forward the packet.
    pub ttl: u8,
    /// Whether this is a fragment: "more fragments" is set, or the offset is not 0.
    pub fragment: bool,
    /// Length of the header with options, 20 to 60 bytes.
    pub header_len: usize,
    /// Length of the packet without padding, in bytes; at least `header_len`.
    pub total_len: usize,
}

impl Ipv4 {
    /// Length of a header without options, in bytes.
    pub const MIN_LEN: usize = 20;

    /// Parses the header at the start of `packet`. Checks version, IHL, total length and header checksum, as RFC 1812
    /// section 5.2.2 demands.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let h = packet.first_chunk::<{ Self::MIN_LEN }>().ok_or(Malformed)?;
        let header_len = usize::from(h[0] & 0x0f) * 4;
        let total_len = usize::from(be16(h, 2));
        if h[0] >> 4 != 4 || header_len < Self::MIN_LEN || total_len < header_len || packet.len() < total_len {
            return Err(Malformed);
        }
        let sum = if header_len == Self::MIN_LEN { Sum::of(h) } else { Sum::of(&packet[..header_len]) };
        if !sum.is_intact() {
            return Err(Malformed);
        }
        Ok(Self {
            source: [h[12], h[13], h[14], h[15]],
            destination: [h[16], h[17], h[18], h[19]],
            protocol: h[9],
            ttl: h[8],
            fragment: be16(h, 6) & 0x3fff != 0, // all but "reserved" and "don't fragment"
            header_len,
            total_len,
        })
    }

    /// The sum of both addresses, for the pseudo-header.
    #[inline]
    pub fn addresses_sum(&self) -> Sum {
        Sum::of(&self.source).and(Sum::of(&self.destination))
    }

    /// Whether the options of `packet` contain a source route (RFC 791 section 3.1, types 131 and 137), or are
    /// malformed. `self` must be the header of `packet`.
    pub fn is_source_routed(&self, packet: &[u8]) -> bool {
        let mut options = &packet[Self::MIN_LEN..self.header_len];
        loop {
            match *options {
                [] | [0, ..] => return false,         // end of option list
                [1, ref rest @ ..] => options = rest, // no operation
                [131 | 137, ..] => return true,       // loose, strict source route
                [_, len, ..] if len >= 2 && usize::from(len) <= options.len() => options = &options[usize::from(len)..],
                _ => return true,
            }
        }
    }

    /// Sets the time to live and updates the checksum. Returns an error if `packet` is too short.
    #[inline]
    pub fn set_ttl(packet: &mut [u8], ttl: u8) -> Result<(), Malformed> {
        let h = packet.first_chunk_mut::<{ Self::MIN_LEN }>().ok_or(Malformed)?;
        let (old, new) = (be16(h, 8), u16::from_be_bytes([ttl, h[9]]));
        let checksum = checksum::updated(be16(h, 10), old, new);
        h[8] = ttl;
        h[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    /// Swaps the addresses, which keeps every checksum valid. Returns an error if `packet` is too short.
    #[inline]
    pub fn swap_addresses(packet: &mut [u8]) -> Result<(), Malformed> {
        let h = packet.first_chunk_mut::<{ Self::MIN_LEN }>().ok_or(Malformed)?;
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *h;
        h[12..].copy_from_slice(&[d0, d1, d2, d3, s0, s1, s2, s3]);
        Ok(())
    }
}

/// An IPv6 header (RFC 8200 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6 {
    /// IPv6 address of the sender.
    pub source: [u8; 16],
    /// IPv6 address of the receiver.
    pub destination: [u8; 16],
    /// The type of the header after the fixed one: an extension header or the transport protocol.
    pub next_header: u8,
    /// Hop limit: how many more routers may forward the packet.
    pub hop_limit: u8,
    /// Length of the packet in bytes, with its fixed header and without padding.
    pub total_len: usize,
}

/// The header that follows the IPv6 extension headers, usually the transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upper {
    /// Protocol number of the header, for example [`PROTOCOL_UDP`](super::PROTOCOL_UDP).
    pub protocol: u8,
    /// Offset of the header in the packet, in bytes.
    pub at: usize,
    /// Whether there is a fragment header before the payload. Atomic fragments, which RFC 8021 deprecates, also count
    /// as fragments.
    pub fragment: bool,
    /// Whether there is a routing header with segments left before the payload. If so, this node is not the final
    /// destination of the packet.
    pub routed: bool,
}

impl Ipv6 {
    /// Length of the fixed header, in bytes.
    pub const LEN: usize = 40;
    /// Maximum number of extension headers that are parsed: each of the four kinds once, destination options twice (RFC
    /// 8200 section 4.1), and some reserve. A packet with more is malformed; RFC 8883 section 2.4 describes such a
    /// limit.
    pub const MAX_EXTENSIONS: usize = 8;
    // RFC 8200 sections 4.3, 4.4, 4.5 and 4.6.
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION_OPTIONS: u8 = 60;

    /// Parses the fixed header at the start of `packet`. The payload of a jumbogram (RFC 2675) counts as empty.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let h = packet.first_chunk::<{ Self::LEN }>().ok_or(Malformed)?;
        let total_len = Self::LEN + usize::from(be16(h, 4));
        if h[0] >> 4 != 6 || packet.len() < total_len {
            return Err(Malformed);
        }
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&h[8..24]);
        destination.copy_from_slice(&h[24..40]);
        Ok(Self { source, destination, next_header: h[6], hop_limit: h[7], total_len })
    }

    /// The sum of both addresses, for the pseudo-header.
    #[inline]
    pub fn addresses_sum(&self) -> Sum {
        Sum::of(&self.source).and(Sum::of(&self.destination))
    }

    /// Skips the extension headers of `packet`, whose fixed header is `self`. Returns an error if an extension header
    /// is truncated, if a hop-by-hop header is not the first (RFC 8200 section 4.1), or if there are too many of them.
    #[inline]
    pub fn upper(&self, packet: &[u8]) -> Result<Upper, Malformed> {
        let packet = &packet[..self.total_len];
        let mut upper = Upper { protocol: self.next_header, at: Self::LEN, fragment: false, routed: false };
        for walked in 0..=Self::MAX_EXTENSIONS {
            match upper.protocol {
                Self::HOP_BY_HOP if walked > 0 => return Err(Malformed),
                Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::DESTINATION_OPTIONS => {}
                _ => return Ok(upper),
            }
            // All extension headers have at least 8 bytes: the next header, the length beyond 8 bytes in units of 8
            // bytes, ...
            let h = packet[upper.at..].first_chunk::<8>().ok_or(Malformed)?;
            let mut len = 8 + usize::from(h[1]) * 8;
            match upper.protocol {
                Self::ROUTING => upper.routed |= h[3] != 0, // segments left
                Self::FRAGMENT => {
                    upper.fragment = true;
                    len = 8; // h[1] is reserved
                    if be16(h, 2) & 0xfff8 != 0 {
                        return Ok(Upper { protocol: h[0], at: upper.at + len, ..upper }); // not the first: no more headers
                    }
                }
                _ => {}
            }
            if packet.len() - upper.at < len {
                return Err(Malformed);
            }
            upper.protocol = h[0];
            upper.at += len;
        }
        Err(Malformed)
    }

    /// Sets the hop limit, which no checksum covers. Returns an error if `packet` is too short.
    #[inline]
    pub fn set_hop_limit(packet: &mut [u8], hop_limit: u8) -> Result<(), Malformed> {
        packet.first_chunk_mut::<{ Self::LEN }>().ok_or(Malformed)?[7] = hop_limit;
        Ok(())
    }

    /// Swaps the addresses, which keeps every checksum valid. Returns an error if `packet` is too short.
    #[inline]
    pub fn swap_addresses(packet: &mut [u8]) -> Result<(), Malformed> {
        let h = packet.first_chunk_mut::<{ Self::LEN }>().ok_or(Malformed)?;
        let (source, destination) = h[8..].split_at_mut(16);
        source.swap_with_slice(destination);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{Frame, fix_ipv4};

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];

    #[test]
    fn a_real_ipv4_header() {
        // The header of a captured UDP packet of 115 bytes, with the checksum of its sender.
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 192, 168, 0, 1, 192, 168, 0, 199];
        let mut packet = [0; 115];
        packet[..20].copy_from_slice(&header);
        let ip = Ipv4::parse(&packet).unwrap();
        assert_eq!((ip.source, ip.destination, ip.ttl, ip.protocol), ([192, 168, 0, 1], [192, 168, 0, 199], 64, 17));
        assert_eq!((ip.header_len, ip.total_len, ip.fragment), (20, 115, false));
    }

    #[test]
    fn contradictions_in_ipv4() {
        let good = Frame::v4(A, B).udp(1, 2, b"data").build();
        let parse = |at: usize, octet: u8| {
            let mut frame = good.clone();
            frame[14 + at] = octet;
            if frame[14] & 15 == 5 {
                fix_ipv4(&mut frame);
            }
            Ipv4::parse(&frame[14..])
        };
        assert_eq!(parse(8, 1).unwrap().total_len, 32, "padding is not part of the packet");
        assert_eq!(parse(0, 0x65), Err(Malformed), "version");
        assert_eq!(parse(0, 0x44), Err(Malformed), "header shorter than 20");
        assert_eq!(parse(0, 0x4f), Err(Malformed), "header longer than the packet");
        assert_eq!(parse(3, 19), Err(Malformed), "packet shorter than its header");
        assert_eq!(parse(3, 47), Err(Malformed), "packet longer than the frame");
        assert_eq!(parse(3, 46).unwrap().total_len, 46);
        assert!(parse(6, 0x20).unwrap().fragment && parse(7, 1).unwrap().fragment);
        assert!(!parse(6, 0x40).unwrap().fragment);
        let mut frame = good.clone();
        frame[14 + 15] ^= 1;
        assert_eq!(Ipv4::parse(&frame[14..]), Err(Malformed), "checksum");
    }

    #[test]
    fn source_routes_are_seen() {
        let routed = |options: &[u8]| {
            let frame = Frame::v4(A, B).options(options).udp(1, 2, b"").build();
            Ipv4::parse(&frame[14..]).unwrap().is_source_routed(&frame[14..])
        };
        assert!(!routed(&[]) && !routed(&[1, 1, 1, 0]) && !routed(&[7, 7, 4, 1, 2, 3, 4, 0]));
        assert!(!routed(&[0, 131, 3, 4]), "behind the end of the list");
        assert!(routed(&[131, 3, 4, 0]) && routed(&[1, 137, 3, 4]) && routed(&[7, 3, 4, 131, 3, 4, 0, 0]));
        assert!(routed(&[7, 0, 0, 0]) && routed(&[7, 5, 0, 0]) && routed(&[1, 1, 1, 7]), "unreadable");
    }

    #[test]
    fn extension_headers() {
        let upper = |next: u8, headers: &[u8]| {
            let frame = Frame::v6("fd00::1", "fd00::2").extensions(next, headers).udp(1, 2, b"").build();
            Ipv6::parse(&frame[14..]).unwrap().upper(&frame[14..])
        };
        let at = |protocol, at| Ok(Upper { protocol, at, fragment: false, routed: false });
        assert_eq!(upper(17, &[]), at(17, 40));
        assert_eq!(upper(0, &[17, 0, 1, 4, 0, 0, 0, 0]), at(17, 48));
        assert_eq!(upper(0, &[60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), at(17, 64));
        assert_eq!(upper(60, &[0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]), Err(Malformed), "hop-by-hop second");
        assert_eq!(upper(60, &[17, 2, 1, 4, 0, 0, 0, 0]), Err(Malformed), "longer than the packet");
        assert!(upper(43, &[17, 0, 0, 1, 0, 0, 0, 0]).unwrap().routed);
        assert!(!upper(43, &[17, 0, 0, 0, 0, 0, 0, 0]).unwrap().routed);
        assert!(upper(44, &[17, 9, 0, 1, 0, 0, 0, 1]).unwrap().fragment);
        assert_eq!(upper(44, &[60, 0, 0, 8, 0, 0, 0, 1]).unwrap().protocol, 60, "nothing to walk in a later fragment");
        let many = |n: usize| [vec![[60, 0, 1, 4, 0, 0, 0, 0]; n - 1].concat(), vec![17, 0, 1, 4, 0, 0, 0, 0]].concat();
        assert_eq!(upper(60, &many(Ipv6::MAX_EXTENSIONS)), at(17, 40 + 64));
        assert_eq!(upper(60, &many(Ipv6::MAX_EXTENSIONS + 1)), Err(Malformed));
    }

    #[test]
    fn contradictions_in_ipv6() {
        let mut frame = Frame::v6("fd00::1", "fd00::2").udp(1, 2, b"data").build();
        assert_eq!(Ipv6::parse(&frame[14..]).unwrap().total_len, 52);
        assert_eq!(Ipv6::parse(&frame[14..53]), Err(Malformed));
        frame[14 + 5] = 13;
        assert_eq!(Ipv6::parse(&frame[14..]), Err(Malformed), "longer than the frame");
        frame[14] = 0x45;
        assert_eq!(Ipv6::parse(&frame[14..]), Err(Malformed));
    }
}

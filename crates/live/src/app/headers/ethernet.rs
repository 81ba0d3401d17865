//! Ethernet headers and ARP packets.

use super::{Mac, Malformed, be16};

/// EtherTypes of VLAN tags: IEEE 802.1Q (customer) and IEEE 802.1ad (service).
const ETHERTYPE_TAGS: [u16; 2] = [0x8100, 0x88a8];

/// An Ethernet header (IEEE 802.3 clause 3.1.1), with up to two VLAN tags (IEEE 802.1Q clause 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// MAC address of the receiver, or a group address.
    pub destination: Mac,
    /// MAC address of the sender.
    pub source: Mac,
    /// The EtherType after the tags. A value up to 1500 is a length instead, and an IEEE 802.2 header follows.
    pub ethertype: u16,
    /// Length of the header with its tags, in bytes: 14, 18 or 22.
    pub len: usize,
}

impl Ethernet {
    /// Length of a header without tags, in bytes.
    pub const MIN_LEN: usize = 14;

    /// Parses the header at the start of `frame`.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let header = frame.first_chunk::<{ Self::MIN_LEN }>().ok_or(Malformed)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let (mut ethertype, mut len) = (u16::from_be_bytes([t0, t1]), Self::MIN_LEN);
        // A tag consists of two bytes of control information and the next EtherType.
        while ETHERTYPE_TAGS.contains(&ethertype) && len < Self::MIN_LEN + 8 {
            let tag = frame[len..].first_chunk::<4>().ok_or(Malformed)?;
            ethertype = be16(tag, 2);
            len += 4;
        }
        Ok(Self {
            destination: Mac::new([d0, d1, d2, d3, d4, d5]),
            source: Mac::new([s0, s1, s2, s3, s4, s5]),
            ethertype,
            len,
        })
    }
}

/// The six bytes of an address that starts a [`word`].
const ADDRESS: u64 = (1 << 48) - 1;

/// The eight bytes from `at` on, the first as the lowest.
#[inline]
fn word(header: &[u8; Ethernet::MIN_LEN], at: usize) -> u64 {
    let mut octets = [0; 8];
    octets.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(octets)
}

/// Swaps source and destination MAC address. Returns an error if the frame has no complete Ethernet header.
#[inline]
pub fn swap_macs(frame: &mut [u8]) -> Result<(), Malformed> {
    let header = frame.first_chunk_mut::<{ Ethernet::MIN_LEN }>().ok_or(Malformed)?;
    // Two words that overlap: byte by byte, a compiler makes five loads and stores of it.
    let (start, end) = (word(header, 0), word(header, 6));
    header[..8].copy_from_slice(&end.to_le_bytes());
    header[6..].copy_from_slice(&(start & ADDRESS | end & !ADDRESS).to_le_bytes());
    Ok(())
}

/// Writes both MAC addresses. Returns an error if the frame has no complete Ethernet header.
#[inline]
pub fn set_macs(frame: &mut [u8], destination: Mac, source: Mac) -> Result<(), Malformed> {
    let header = frame.first_chunk_mut::<{ Ethernet::MIN_LEN }>().ok_or(Malformed)?;
    header[..6].copy_from_slice(&destination.octets());
    header[6..12].copy_from_slice(&source.octets());
    Ok(())
}

/// An ARP packet for IPv4 over Ethernet (RFC 826, "Packet format").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// The operation, ar$op: 1 is a request, 2 a reply.
    pub operation: u16,
    /// MAC address of the sender, ar$sha.
    pub sender_mac: Mac,
    /// IPv4 address of the sender, ar$spa.
    pub sender: [u8; 4],
    /// MAC address of the target, ar$tha.
    pub target_mac: Mac,
    /// IPv4 address of the target, ar$tpa.
    pub target: [u8; 4],
}

impl Arp {
    /// Length of an ARP packet for IPv4 over Ethernet, in bytes.
    pub const LEN: usize = 28;
    /// The operation of a request, ares_op$REQUEST.
    pub const REQUEST: u16 = 1;
    /// The operation of a reply, ares_op$REPLY.
    pub const REPLY: u16 = 2;
    /// The first fields of an ARP packet for IPv4 over Ethernet: ar$hrd = Ethernet, ar$pro = IPv4, ar$hln = 6, ar$pln =
    /// 4.
    const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

    /// Parses `packet`. `None` if the packet is not for IPv4 over Ethernet.
    pub fn parse(packet: &[u8]) -> Result<Option<Self>, Malformed> {
        if packet.first_chunk::<6>().ok_or(Malformed)? != &Self::KIND {
            return Ok(None);
        }
        let p = packet.first_chunk::<{ Self::LEN }>().ok_or(Malformed)?;
        Ok(Some(Self {
            operation: be16(p, 6),
            sender_mac: Mac::new([p[8], p[9], p[10], p[11], p[12], p[13]]),
            sender: [p[14], p[15], p[16], p[17]],
            target_mac: Mac::new([p[18], p[19], p[20], p[21], p[22], p[23]]),
            target: [p[24], p[25], p[26], p[27]],
        }))
    }

    /// Writes the ARP packet to the start of `packet`. Returns an error if `packet` is too short.
    pub fn write(&self, packet: &mut [u8]) -> Result<(), Malformed> {
        let p = packet.first_chunk_mut::<{ Self::LEN }>().ok_or(Malformed)?;
        p[..6].copy_from_slice(&Self::KIND);
        p[6..8].copy_from_slice(&self.operation.to_be_bytes());
        p[8..14].copy_from_slice(&self.sender_mac.octets());
        p[14..18].copy_from_slice(&self.sender);
        p[18..24].copy_from_slice(&self.target_mac.octets());
        p[24..28].copy_from_slice(&self.target);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{CLIENT, OURS, arp};

    #[test]
    fn up_to_two_tags_are_skipped() {
        let tagged = |tags: &[u8]| [&[0; 12], tags].concat();
        let parse = |tags: &[u8]| Ethernet::parse(&tagged(tags)).map(|e| (e.ethertype, e.len));
        assert_eq!(parse(&[8, 0]), Ok((0x0800, 14)));
        assert_eq!(parse(&[0x81, 0, 0, 1, 8, 0]), Ok((0x0800, 18)));
        assert_eq!(parse(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 6]), Ok((0x0806, 22)));
        assert_eq!(parse(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]), Ok((0x8100, 22)));
        assert_eq!(parse(&[0x81, 0, 0, 1, 8]), Err(Malformed));
        assert_eq!(parse(&[8]), Err(Malformed));
    }

    #[test]
    fn what_is_written_parses() {
        let frame = arp(OURS, 1, [10, 0, 0, 7], [10, 0, 0, 1]);
        let packet = Arp::parse(&frame[14..]).unwrap().unwrap();
        assert_eq!((packet.sender_mac, packet.sender, packet.target), (CLIENT, [10, 0, 0, 7], [10, 0, 0, 1]));
        let mut copy = [0; 28];
        packet.write(&mut copy).unwrap();
        assert_eq!(copy, frame[14..42]);
        assert_eq!(packet.write(&mut copy[..27]), Err(Malformed));
        assert_eq!(Arp::parse(&copy[..27]), Err(Malformed));
        copy[1] = 6; // IEEE 802 networks
        assert_eq!(Arp::parse(&copy), Ok(None));
    }
}

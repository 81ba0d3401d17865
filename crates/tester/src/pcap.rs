//! The timing and the sizes in a capture file.
//!
//! Classic pcap, microseconds or nanoseconds, either byte order. Source: draft-ietf-opsawg-pcap
//! (sections 4 and 5). pcapng is refused with the command that converts it.

use std::fs;
use std::path::Path;

use units::Nanos;

use crate::Error;
use crate::schedule::Arrival;

const GLOBAL_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const LINKTYPE_ETHERNET: u32 = 1;
/// Frames shorter than this were captured before the port padded them. IEEE 802.3-2018, 4.2.3.3.
const SHORTEST: u32 = 60;

/// Reads the offset from the first frame, and the size, of each frame in `path`.
///
/// A frame with an earlier time stamp than its predecessor (captures of several queues) is due at the same time as
/// that one.
pub fn arrivals(path: &Path) -> Result<Vec<Arrival>, Error> {
    let octets = fs::read(path).map_err(|source| Error::File { path: path.into(), source })?;
    parse(&octets).map_err(|why| Error::malformed(path, why))
}

/// Parses the content of a capture file. The error says what is wrong, and where.
pub fn parse(octets: &[u8]) -> Result<Vec<Arrival>, String> {
    let header = octets.get(..GLOBAL_HEADER).ok_or("shorter than a pcap header (24 bytes)")?;
    let magic = [header[0], header[1], header[2], header[3]];
    let (little, unit) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, 1_000),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, 1_000),
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, 1),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, 1),
        [0x0a, 0x0d, 0x0d, 0x0a] => return Err("is pcapng; convert it: editcap -F pcap FILE OUT.pcap".into()),
        _ => return Err(format!("starts with {magic:02x?}, which is not a pcap file")),
    };
    let word = |at: usize| {
        let bytes: [u8; 4] = octets[at..at + 4].try_into().unwrap_or_default();
        if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    };
    let link = word(20) & 0xffff; // the upper bits carry FCS information
    if link != LINKTYPE_ETHERNET {
        return Err(format!("link type {link}; expected Ethernet (1)"));
    }
    let mut arrivals = Vec::new();
    let (mut at, mut first, mut latest) = (GLOBAL_HEADER, None, 0);
    while at < octets.len() {
        let record = arrivals.len() + 1;
        if octets.len() - at < RECORD_HEADER {
            return Err(format!("record {record}, offset {at}: the file ends within the record's header"));
        }
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        let (captured, original) = (word(at + 8) as usize, word(at + 12));
        let rest = octets.len() - at - RECORD_HEADER;
        if captured > rest {
            return Err(format!(
                "record {record}, offset {at}: {captured} bytes captured, but only {rest} are left in the file"
            ));
        }
        latest = time.saturating_sub(*first.get_or_insert(time)).max(latest);
        arrivals.push(Arrival { offset: Nanos::from_nanos(latest), data_octets: Some(original.max(SHORTEST)) });
        at += RECORD_HEADER + captured;
    }
    if arrivals.is_empty() { Err("contains no frame".into()) } else { Ok(arrivals) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(magic: u32, records: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [magic, 0x0004_0002, 0, 0, 65535, 1] {
            out.extend(u32::to_le_bytes(word));
        }
        for (seconds, fraction, length) in records {
            for word in [*seconds, *fraction, 2, *length] {
                out.extend(u32::to_le_bytes(word));
            }
            out.extend([0, 0]);
        }
        out
    }

    #[test]
    fn reads_offsets_and_sizes() {
        let records = [(10, 999_999, 60), (11, 1, 1500), (11, 0, 20)];
        let read = parse(&file(0xa1b2_c3d4, &records)).unwrap();
        let seen: Vec<_> = read.iter().map(|a| (a.offset.as_nanos(), a.data_octets)).collect();
        assert_eq!(seen, [(0, Some(60)), (2_000, Some(1500)), (2_000, Some(60))]);
        let nanos = parse(&file(0xa1b2_3c4d, &[(1, 5, 60), (1, 9, 60)])).unwrap();
        assert_eq!(nanos[1].offset, Nanos::from_nanos(4));
    }

    #[test]
    fn says_where_a_file_is_wrong() {
        let good = file(0xa1b2_c3d4, &[(1, 0, 60)]);
        assert!(parse(&good[..good.len() - 1]).unwrap_err().contains("record 1, offset 24"));
        assert!(parse(&good[..30]).unwrap_err().contains("ends within"));
        assert!(parse(&good[..24]).unwrap_err().contains("no frame"));
        let mut next_generation = good.clone();
        next_generation[..4].copy_from_slice(&[0x0a, 0x0d, 0x0d, 0x0a]);
        assert!(parse(&next_generation).unwrap_err().contains("editcap"));
        assert!(arrivals(Path::new("/nonexistent.pcap")).unwrap_err().to_string().contains("/nonexistent.pcap"));
    }

    proptest! {
        #[test]
        fn any_octets_are_read(rest in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut octets = file(0xa1b2_c3d4, &[]);
            octets.extend(rest);
            let _ = parse(&octets);
        }
    }
}

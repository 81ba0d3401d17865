use super::*;
use proptest::prelude::*;

fn file(resolution: Resolution, frames: &[(Nanos, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapWriter::new("test", Vec::new(), resolution).unwrap();
    for (at, frame) in frames {
        writer.write(*at, frame).unwrap();
    }
    writer.finish().unwrap()
}

fn error_of(octets: &[u8]) -> String {
    let reader = match PcapReader::new("x.pcap", octets) {
        Ok(reader) => reader,
        Err(e) => return e.to_string(),
    };
    reader.map(|r| r.map(drop)).find_map(Result::err).expect("an error").to_string()
}

/// The same file with the byte order of a big-endian machine.
fn swapped(octets: &[u8]) -> Vec<u8> {
    let mut out = octets.to_vec();
    for (at, size) in [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        out[at..at + size].reverse();
    }
    let mut at = FILE_HEADER;
    while at < octets.len() {
        let len = u32::from_le_bytes(octets[at + 8..at + 12].try_into().unwrap()) as usize;
        out[at..at + RECORD_HEADER].chunks_exact_mut(4).for_each(<[u8]>::reverse);
        at += RECORD_HEADER + len;
    }
    out
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        frames in proptest::collection::vec((0u64..4_000_000_000_000_000_000, proptest::collection::vec(any::<u8>(), 0..200)), 0..20),
        nanos: bool, big: bool,
    ) {
        let resolution = if nanos { Resolution::Nanos } else { Resolution::Micros };
        let frames: Vec<_> = frames.into_iter().map(|(at, data)| (Nanos::from_nanos(at), data)).collect();
        let octets = file(resolution, &frames);
        let octets = if big { swapped(&octets) } else { octets };
        let mut reader = PcapReader::new("test", io::Cursor::new(octets)).unwrap();
        for _ in 0..2 {
            let mut latest = Nanos::ZERO;
            for (at, data) in &frames {
                let record = reader.next_record().unwrap().unwrap();
                let at = if nanos { *at } else { Nanos::from_micros(at.as_micros_floor()) };
                prop_assert_eq!((record.at, record.bytes), (at, &data[..]));
                prop_assert!(record.offset >= latest);
                latest = record.offset;
            }
            prop_assert_eq!(reader.next_record().unwrap(), None);
            reader.rewind().unwrap();
        }
    }

    #[test]
    fn garbage_never_panics(start in 0usize..5, rest in proptest::collection::vec(any::<u8>(), 0..400)) {
        // Most inputs get a valid header, so that the code after the header is tested too.
        let header = file(Resolution::Nanos, &[]);
        let octets = [&header[..[0, 4, 20, 24, 24][start]], &rest].concat();
        if let Ok(reader) = PcapReader::new("test", &octets[..]) {
            prop_assert!(reader.take(1000).count() < 1000);
        }
    }

    #[test]
    fn damage_is_found_or_harmless(at in 0usize..160, value: u8, cut in 0usize..161) {
        let frames = [(Nanos::from_secs(1), vec![1; 60]), (Nanos::from_secs(2), vec![2; 44])];
        let mut octets = file(Resolution::Micros, &frames);
        octets[at] = value;
        octets.truncate(cut);
        if let Ok(reader) = PcapReader::new("test", &octets[..]) {
            prop_assert!(reader.count() <= 11);
        }
    }
}

#[test]
fn messages_name_file_record_offset_and_remedy() {
    let octets = file(Resolution::Micros, &[(Nanos::from_secs(1), vec![1; 60]), (Nanos::from_secs(2), vec![2; 44])]);
    assert_eq!(
        error_of(&octets[..octets.len() - 1]),
        "x.pcap, record 2, offset 100: the record ends after 43 of 44 bytes of data; keep the 1 complete records before it with: editcap -F pcap -r IN OUT 1-1"
    );
    assert!(error_of(&octets[..105]).contains("record 2, offset 100: the record's header ends after 5 of 16"));
    for (at, value, text) in [
        (FILE_HEADER + 7, 255, "record 1, offset 28: 4278190080 of 1000000 parts"),
        (FILE_HEADER + 11, 255, "record 1, offset 32: 4278190140 bytes captured, more than any"),
        (FILE_HEADER + 8, 61, "record 1, offset 32: 61 bytes captured of a frame of 60"),
        (4, 1, "file header, offset 4: version 1.4, not 2.4"),
        (20, 113, "file header, offset 20: link type 0x71"),
        (23, 0x44, "file header, offset 20: link type 0x44000001"),
        (0, 7, "editcap -F pcap"),
    ] {
        let mut bad = octets.clone();
        bad[at] = value;
        assert!(error_of(&bad).contains(text), "{}", error_of(&bad));
    }
    assert!(error_of(b"\x0a\x0d\x0d\x0a\x1c\0\0\0").contains("convert it with: editcap -F pcap"));
    assert!(error_of(b"\x1f\x8b\x08\0").contains("gunzip"));
    assert!(error_of(b"").contains("only 0 bytes"));
    assert!(error_of(&octets[..10]).contains("after 10 of 24"));
}

#[test]
fn backwards_time_is_counted() {
    let at = Nanos::from_secs;
    let octets = file(Resolution::Nanos, &[(at(5), vec![1]), (at(7), vec![2]), (at(6), vec![3]), (at(9), vec![4])]);
    let mut reader = PcapReader::new("test", &octets[..]).unwrap();
    let offsets: Vec<u64> = reader.by_ref().map(|r| r.unwrap().0.as_nanos() / 1_000_000_000).collect();
    assert_eq!((offsets, reader.backwards()), (vec![0, 2, 2, 4], 1));
}

#[test]
fn refuses_what_the_format_cannot_hold() {
    let mut writer = PcapWriter::new("test", io::sink(), Resolution::Nanos).unwrap();
    assert!(writer.write(Nanos::from_secs(1 << 32), &[0]).is_err());
    assert!(writer.write(Nanos::from_secs((1 << 32) - 1), &[0]).is_ok());
    assert!(writer.write(Nanos::ZERO, &[0; LONGEST_RECORD + 1]).is_err());
}

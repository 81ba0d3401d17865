//! Any octets as a capture or a table of arrivals, for those that read one: the reader of captures, and the simulator.
//! Times never run backwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcap::PcapReader;
use sim::At;
use sim::traffic::replay;

fuzz_target!(|data: &[u8]| {
    if let Ok(mut reader) = PcapReader::new("fuzz", data) {
        let mut last = None;
        while let Ok(Some(record)) = reader.next_record() {
            assert!(last <= Some(record.offset));
            assert!(record.bytes.len() <= record.original_len as usize);
            last = Some(record.offset);
        }
    }
    if let Ok(records) = replay::parse(data) {
        assert!(records.is_sorted_by_key(|record| record.offset));
        let twice = records.len() * 2;
        let what = replay::Replay { file: String::new(), repeat: true };
        let mut source = replay::Source::new(&what, records, At::ORIGIN);
        for _ in 0..twice {
            assert!(source.draw().is_some());
        }
    }
});

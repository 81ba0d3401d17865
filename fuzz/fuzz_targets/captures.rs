//! Any octets as a capture or a table of arrivals, for the three that read one: the pcap device, the simulator and the
//! tester. Times never run backwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use live::device::pcap::PcapReader;
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
    if let Ok(arrivals) = tester::pcap::parse(data) {
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.offset));
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

//! Any contents of a worker's file in shared memory, of the right size and of any other: a second of them is told,
//! and what was counted in between.
//!
//! The file is a real worker's; an input is a list of 12 octets each: where (four, little-endian, times eight), and what.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use live::telemetry::Reader;
use units::{Instant, Nanos, Quantile};

/// A file as `apus run` makes it: its magic, version and size, and zeroes.
fn empty() -> &'static Vec<u8> {
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let size = live::telemetry::FILE_SIZE;
        let mut octets = vec![0; size];
        octets[..8].copy_from_slice(b"APUSTEL1");
        octets[8..16].copy_from_slice(&live::telemetry::FILE_VERSION.to_le_bytes());
        octets[16..24].copy_from_slice(&(size as u64).to_le_bytes());
        octets
    })
}

fn path() -> &'static PathBuf {
    static FOLDER: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("worker-0");
            (folder, path)
        })
        .1
}

fuzz_target!(|data: &[u8]| {
    let [cut, data @ ..] = data else { return };
    let mut octets = empty().clone();
    let cells = octets.len() / 8;
    for write in data.chunks_exact(12) {
        let at = u32::from_le_bytes([write[0], write[1], write[2], write[3]]) as usize % cells * 8;
        octets[at..at + 8].copy_from_slice(&write[4..]);
    }
    if *cut == 1 {
        octets.truncate(data.len() * 8);
    }
    fs::write(path(), &octets).expect("room for it");
    let Ok(reader) = Reader::open(path()) else { return };
    let (first, second) = (reader.snapshot(), reader.snapshot());
    let counts = second.counts.since(&first.counts);
    assert_eq!((counts.received_frames, counts.lateness.count()), (0, 0));
    for histogram in [&first.counts.lateness, &first.counts.service] {
        let _ = (histogram.mean(), histogram.quantile(Quantile::P99), histogram.max(), histogram.buckets().count());
        let _ = histogram.count_up_to(Nanos::from_micros(50));
    }
    let end = Instant::from_nanos(u64::MAX);
    let _ = (reader.gaps_between(Instant::from_nanos(0), end), reader.is_alive());
});

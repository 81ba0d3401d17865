//! How many frames a trial can have: the tester keeps a record of each in memory.

use std::fs;

use tester::ledger::OCTETS_PER_FRAME;
use units::{Nanos, PacketRate};

/// Frames for which every host has the memory (240 MB).
const LEAST: u64 = 20_000_000;

/// Maximum number of frames of all directions of a trial: their records may take half of the available memory.
pub fn most_frames() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&text).map_or(LEAST, |octets| (octets / 2 / OCTETS_PER_FRAME).max(LEAST))
}

/// Highest rate per direction at which trials of length `longest` in `directions` have at most `most` frames. `most` is
/// read only once for each command: the available memory changes while the command runs.
pub fn highest_pps(most: u64, longest: Nanos, directions: usize) -> u64 {
    let span = u128::from(longest.as_nanos()).max(1) * directions.max(1) as u128;
    u64::try_from(u128::from(most) * 1_000_000_000 / span).unwrap_or(u64::MAX)
}

/// Says why `rate` is too high for trials of length `longest`, and what would fit.
pub fn too_many(rate: PacketRate, longest: Nanos, most: u64) -> String {
    format!(
        "a trial of {longest} at {rate} needs more than half of the available memory ({OCTETS_PER_FRAME} bytes per frame); \
         at most {} fits",
        PacketRate::new(most)
    )
}

/// Available memory in bytes, from the text of /proc/meminfo (proc(5)).
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_from_memory_and_duration() {
        let text = "MemTotal:       24000000 kB\nMemFree:         1000 kB\nMemAvailable:   2343750 kB\n";
        assert_eq!(available(text), Some(2_400_000_000));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        // 1.2 GB hold 100 million frames: 60 s of 1.66 Mpps, or two directions of half of it.
        assert_eq!(highest_pps(100_000_000, Nanos::from_secs(60), 1), 1_666_666);
        assert_eq!(highest_pps(100_000_000, Nanos::from_secs(60), 2), 833_333);
        assert!(most_frames() >= LEAST);
    }
}

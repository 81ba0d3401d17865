//! The branch counters of a CPU, through perf.
//!
//! perf shares the processor's counters among all users of perf. So these counters disturb no other user, but do not
//! run all the time: each reading contains the time for which they ran.

use std::io;
use std::os::fd::OwnedFd;

use units::Nanos;

use crate::meter::sys;

/// include/uapi/linux/perf_event.h: `PERF_TYPE_HARDWARE`, and its events.
const HARDWARE: u32 = 0;
const CYCLES: u64 = 0;
const BRANCHES: u64 = 4;
const MISSES: u64 = 5;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `_TOTAL_TIME_RUNNING` and `_GROUP`.
const FORMAT: u64 = 1 | 2 | 8;

/// The values of a CPU's counters since they were opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Number of retired branches.
    pub branches: u64,
    /// Number of mispredicted branches.
    pub misses: u64,
    /// Number of cycles in which the CPU was not halted. `None` if the processor has no counter free for them.
    pub cycles: Option<u64>,
    /// Time since the counters were opened.
    pub enabled: Nanos,
    /// Time for which the counters were running. It is shorter than the time since they were opened if perf shares them
    /// with other users.
    pub counted: Nanos,
}

/// The branch counters of one CPU, for all threads that run on the CPU. All counters run at the same times.
#[derive(Debug)]
pub struct BranchCounters {
    leader: OwnedFd,
    /// The group's other counters. They count until they are closed.
    _members: Vec<OwnedFd>,
    has_cycles: bool,
}

impl BranchCounters {
    /// Opens the counters of a CPU. Needs CAP_PERFMON, or root. The error is `NotFound` if the processor has no such
    /// counters, as in most virtual machines.
    pub fn open(cpu: u32) -> io::Result<Self> {
        let leader = sys::open_in(HARDWARE, BRANCHES, cpu, None, FORMAT)?;
        let mut members = vec![sys::open_in(HARDWARE, MISSES, cpu, Some(&leader), FORMAT)?];
        // A processor with few counters may have none left for cycles.
        let cycles = sys::open_in(HARDWARE, CYCLES, cpu, Some(&leader), FORMAT);
        let has_cycles = cycles.is_ok();
        members.extend(cycles);
        Ok(Self { leader, _members: members, has_cycles })
    }

    /// Reads the counters.
    pub fn read(&self) -> io::Result<Counts> {
        let mut octets = [0; 6 * 8];
        let length = rustix::io::read(&self.leader, &mut octets)?;
        parse(&octets[..length], self.has_cycles).ok_or_else(|| io::Error::other("the counters are in an error state"))
    }
}

/// Parses a reading: the number of values, the times for which the counters were enabled and running, and the values in
/// the order in which the counters were opened (perf_event_open(2), "Reading results").
fn parse(octets: &[u8], has_cycles: bool) -> Option<Counts> {
    let (words, rest) = octets.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let (&[number, enabled, counted], values) = words.split_first_chunk::<3>()?;
    if !rest.is_empty() || usize::try_from(number) != Ok(values.len()) || values.len() != 2 + usize::from(has_cycles) {
        return None;
    }
    Some(Counts {
        branches: values[0],
        misses: values[1],
        cycles: values.get(2).copied(),
        enabled: Nanos::from_nanos(enabled),
        counted: Nanos::from_nanos(counted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_group_is_read_with_and_without_cycles() {
        let counts = parse(&octets(&[3, 1_000, 500, 70, 7, 90]), true).unwrap();
        assert_eq!((counts.branches, counts.misses, counts.cycles), (70, 7, Some(90)));
        assert_eq!((counts.enabled, counts.counted), (Nanos::from_nanos(1_000), Nanos::from_nanos(500)));
        assert_eq!(parse(&octets(&[2, 1, 1, 70, 7]), false).unwrap().cycles, None);
        for (bad, has_cycles) in
            [(&[][..], true), (&[3, 1, 1, 70, 7], true), (&[2, 1, 1, 70, 7], true), (&[2, 1], false)]
        {
            assert_eq!(parse(&octets(bad), has_cycles), None, "{bad:?}");
        }
        assert_eq!(parse(&octets(&[2, 1, 1, 70, 7])[..39], false), None);
    }

    #[test]
    fn this_machine_counts_or_says_why_not() {
        let counters = match BranchCounters::open(0) {
            Ok(counters) => counters,
            Err(error) => {
                let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(kinds.contains(&error.kind()), "{error:?}");
                return;
            }
        };
        let before = counters.read().unwrap();
        let sum = (0..1_000_000_u64).filter(|n| n.count_ones() % 2 == 0).sum::<u64>();
        let after = counters.read().unwrap();
        assert!(after.branches >= before.branches && after.enabled > before.enabled && sum > 0, "{before:?} {after:?}");
    }
}

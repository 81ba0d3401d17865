//! A host's state in one file, for those who judge it elsewhere.
//!
//! What is taken is listed in `paths.txt`, which the script `tools/apus-snapshot.sh` carries too (a test
//! compares them), so that both take the same. Bounded in size and time. No secret is in it: nothing is
//! taken that is not listed; of a text that can hold secrets, such as a command line, only what is known to be
//! none is kept (`kept.txt`); and messages are those of the kernel that rules look at. MAC addresses and serial
//! numbers are masked unless asked for.
//!
//! ```text
//! apus-snapshot      says what it is: when it was taken, how, which paths were looked at
//! proc/… sys/… etc/… files as on the host
//! again/proc/… …     the counters once more, some seconds later
//! commands/…         what is no file: ethtool, messages, device files
//! tasks/…            /proc/PID/task/TID/{stat,status}, one after the other
//! bundle/…           names and links
//! denied, unasked    paths that may not be read, and those whose reading would disturb isolated CPUs
//! ```

mod collect;
mod commands;
mod mask;
mod paths;
mod write;

use std::collections::BTreeMap;

use units::Nanos;

pub use mask::keeps_parameter;
pub use write::{Packing, WriteError};

use crate::facts::Root;

/// What to take beyond the usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Time between the two readings of the counters.
    pub interval: Nanos,
    /// Keep MAC addresses and serial numbers.
    pub unmask: bool,
    /// Take model-specific registers too, and what the kernel reads from them: interrupts every CPU.
    pub msrs: bool,
}

impl Default for Plan {
    /// Three seconds apart, masked, no registers.
    fn default() -> Self {
        Self { interval: Nanos::from_secs(3), unmask: false, msrs: false }
    }
}

/// A host's files, taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    files: BTreeMap<String, Vec<u8>>,
    complete: bool,
}

/// A snapshot is not larger than this before it is packed.
const SIZE_LIMIT: usize = 192 << 20;

impl Snapshot {
    /// Takes one of this host, which needs `plan.interval` and a little more. The calling thread stays on
    /// housekeeping CPUs meanwhile, and no isolated CPU is interrupted unless the plan says so.
    pub fn take(plan: Plan) -> Self {
        collect::take(&Root::live(), plan)
    }

    /// Takes one of another place: a folder or an archive, whose counters are read once.
    pub fn of(root: &Root, plan: Plan) -> Self {
        collect::take(root, plan)
    }

    /// Its files and their contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, contents)| (path.as_str(), contents.as_slice()))
    }

    /// Is everything in it that was looked for, or did it reach its bound?
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Its size before it is packed, in octets.
    pub fn size(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

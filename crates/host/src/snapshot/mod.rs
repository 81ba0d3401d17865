//! A host's state in one file, which can be examined on another machine.
//!
//! `paths.txt` lists what is taken. The script `tools/apus-snapshot.sh` contains the same list (a test compares them),
//! so both take the same files. Size and time are bounded. A snapshot contains no secrets: only listed files are taken,
//! and only the known harmless parts (`kept.txt`) of a file that can contain secrets, such as a command line. Only
//! kernel messages that rules need are kept. MAC addresses and serial numbers are masked by default.
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

/// Options for taking a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Time between the two readings of the counters.
    pub interval: Nanos,
    /// Whether to keep MAC addresses and serial numbers.
    pub unmask: bool,
    /// Whether to also record model-specific registers, and the files whose values the kernel reads from such
    /// registers. This interrupts every CPU.
    pub msrs: bool,
    /// Whether to sample sockets, queueing disciplines and NAPI instances between the two readings, for `apus
    /// diagnose`.
    pub watch: bool,
}

impl Default for Plan {
    /// Two readings three seconds apart, masked, without model-specific registers.
    fn default() -> Self {
        Self { interval: Nanos::from_secs(3), unmask: false, msrs: false, watch: false }
    }
}

/// The files of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    files: BTreeMap<String, Vec<u8>>,
    complete: bool,
}

/// Maximum size of a snapshot in bytes, before compression.
const SIZE_LIMIT: usize = 192 << 20;

impl Snapshot {
    /// Takes a snapshot of this host. This lasts a little longer than `plan.interval`. Meanwhile, the calling thread
    /// stays on housekeeping CPUs, and no isolated CPU is interrupted unless the plan allows it.
    pub fn take(plan: Plan) -> Self {
        collect::take(&Root::live(), plan)
    }

    /// Takes a snapshot from a folder or an archive. Its counters are read once.
    pub fn of(root: &Root, plan: Plan) -> Self {
        collect::take(root, plan)
    }

    /// The paths of the files, with their contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, contents)| (path.as_str(), contents.as_slice()))
    }

    /// Whether the snapshot is complete. False if it reached its size limit.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Size of the snapshot in bytes, before compression.
    pub fn size(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

//! Memory.

use std::collections::BTreeMap;

use super::{Fact, HugePages};

/// Memory as a whole; nodes are in [`super::Cpus::nodes`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    /// `/proc/meminfo`; sizes in bytes, counts as they are.
    pub meminfo: Fact<BTreeMap<String, u64>>,
    /// Huge pages of the host, by size (`/sys/kernel/mm/hugepages`, or /proc/meminfo for the default size).
    pub huge_pages: Vec<HugePages>,
    /// The chosen one of `always madvise never`.
    pub thp_enabled: Fact<String>,
    /// The chosen one of `always defer defer+madvise madvise never`.
    pub thp_defrag: Fact<String>,
    /// `khugepaged/defrag`.
    pub khugepaged_defrag: Fact<bool>,
    /// `ksm/run`: 0 stopped, 1 running, 2 stopped and unmerged.
    pub ksm_run: Fact<u32>,
    /// `ksm/pages_shared`.
    pub ksm_pages_shared: Fact<u64>,
    /// `/proc/swaps`.
    pub swaps: Fact<Vec<Swap>>,
    /// Mounted file systems, without paths of users' data: see [`Mount`].
    pub mounts: Fact<Vec<Mount>>,
    /// Memory modules (DMI type 17; needs root).
    pub modules: Fact<Vec<MemoryModule>>,
    /// EDAC controllers that are there (`/sys/devices/system/edac/mc/mc*`), by their names.
    pub edac: Fact<Vec<String>>,
    /// Patrol scrub rate of each controller, in bytes per second (`sdram_scrub_rate`).
    pub scrub_rate: Fact<Vec<u64>>,
}

impl Memory {
    /// Is a file system of this kind mounted? Some recordings hold a few lines of the table only: what is not among them
    /// is not known to be absent, and a whole table has a line for `/` (proc_mounts(5)).
    pub fn is_mounted(&self, kind: &str) -> Fact<bool> {
        self.mounts.as_ref().and_then(|mounts| {
            let source = self.mounts.source().clone();
            let found = mounts.iter().any(|mount| mount.kind == kind);
            match found || mounts.iter().any(|mount| mount.place == "/") {
                true => Fact::known(found, source),
                false => Fact::not_recorded(source),
            }
        })
    }
}

/// A swap area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swap {
    /// The device or file.
    pub name: String,
    /// `partition`, `file`.
    pub kind: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Of it used, in bytes.
    pub used_bytes: u64,
}

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where.
    pub place: String,
    /// `hugetlbfs`, `resctrl`, `cgroup2`, …
    pub kind: String,
    /// Options, separated by commas.
    pub options: String,
}

/// A place for a memory module (SMBIOS specification 3.7, section 7.18, Memory Device).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryModule {
    /// `DIMM_A1`.
    pub locator: String,
    /// `NODE 0 CHANNEL 0 DIMM 0`.
    pub bank: String,
    /// Its size in bytes; `None` for an empty place.
    pub size_bytes: Option<u64>,
    /// What it can do, in megatransfers per second.
    pub speed_mts: Option<u32>,
    /// What it does.
    pub configured_mts: Option<u32>,
}

//! Memory of the host.

use std::collections::BTreeMap;

use super::{Fact, HugePages};

/// Memory of the whole host. The memory of each NUMA node is in [`super::Cpus::nodes`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    /// The values of `/proc/meminfo`. Sizes are converted to bytes; counts are unchanged.
    pub meminfo: Fact<BTreeMap<String, u64>>,
    /// Huge pages of the host, by size (`/sys/kernel/mm/hugepages`, or /proc/meminfo for the default size).
    pub huge_pages: Vec<HugePages>,
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub thp_enabled: Fact<String>,
    /// When a page fault may compact memory to get a transparent huge page: `always`, `defer`, `defer+madvise`,
    /// `madvise` or `never`.
    pub thp_defrag: Fact<String>,
    /// Whether khugepaged compacts memory (`khugepaged/defrag`).
    pub khugepaged_defrag: Fact<bool>,
    /// State of kernel same-page merging (`ksm/run`): 0 stopped, 1 running, 2 stopped and all pages unmerged.
    pub ksm_run: Fact<u32>,
    /// Number of pages that kernel same-page merging shares (`ksm/pages_shared`).
    pub ksm_pages_shared: Fact<u64>,
    /// Swap areas, from `/proc/swaps`.
    pub swaps: Fact<Vec<Swap>>,
    /// Mounted file systems.
    pub mounts: Fact<Vec<Mount>>,
    /// Memory modules (DMI type 17; needs root).
    pub modules: Fact<Vec<MemoryModule>>,
    /// Names of the memory controllers that the kernel watches for errors (EDAC, `/sys/devices/system/edac/mc/mc*`).
    pub edac: Fact<Vec<String>>,
    /// Patrol scrub rate of each controller, in bytes per second (`sdram_scrub_rate`).
    pub scrub_rate: Fact<Vec<u64>>,
}

impl Memory {
    /// Whether a file system of this kind is mounted. Unknown if no mount of this kind is listed and the list of mounts
    /// is incomplete, as in some recordings. A complete list has a line for `/` (proc_mounts(5)).
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
    /// The path of the device or file.
    pub name: String,
    /// Kind of the swap space, `partition` or `file`.
    pub kind: String,
    /// Size of the swap space in bytes.
    pub size_bytes: u64,
    /// Used part of the swap space, in bytes.
    pub used_bytes: u64,
}

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The mount point.
    pub place: String,
    /// The type of the file system: `hugetlbfs`, `resctrl`, `cgroup2`, …
    pub kind: String,
    /// Mount options, separated by commas.
    pub options: String,
}

/// A slot for a memory module (SMBIOS specification 3.7, section 7.18, Memory Device).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryModule {
    /// The name of the slot, for example `DIMM_A1`.
    pub locator: String,
    /// The name of the bank, for example `NODE 0 CHANNEL 0 DIMM 0`.
    pub bank: String,
    /// The module's size in bytes. `None` for an empty slot.
    pub size_bytes: Option<u64>,
    /// The module's rated speed, in megatransfers per second.
    pub speed_mts: Option<u32>,
    /// The speed at which the module runs, in megatransfers per second.
    pub configured_mts: Option<u32>,
}

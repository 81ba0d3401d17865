//! Firmware, services, virtualisation, cache allocation.

use std::collections::{BTreeMap, BTreeSet};

use super::{CpuSet, Fact};

/// What the firmware says of the machine (`/sys/class/dmi/id`). Serial numbers are never read.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct Dmi {
    pub system_vendor: Fact<String>,
    pub product_name: Fact<String>,
    pub product_family: Fact<String>,
    pub board_name: Fact<String>,
    pub bios_vendor: Fact<String>,
    pub bios_version: Fact<String>,
    /// As the firmware writes it: mostly `month/day/year`.
    pub bios_date: Fact<String>,
    pub chassis_type: Fact<String>,
}

/// Services and their settings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Services {
    /// Units of systemd that run now, with their suffix: `irqbalance.service`.
    pub running: Fact<BTreeSet<String>>,
    /// Units that start at boot or by timer (`/etc/systemd/system/*.wants`).
    pub enabled: Fact<BTreeSet<String>>,
    /// `Key=value` of irqbalance's settings (`/etc/sysconfig/irqbalance`, `/etc/default/irqbalance`).
    pub irqbalance: Fact<BTreeMap<String, String>>,
    /// tuned's active profile (`/etc/tuned/active_profile`).
    pub tuned_profile: Fact<String>,
    /// systemd's `CPUAffinity=` (`/etc/systemd/system.conf` and its drop-ins).
    pub systemd_cpu_affinity: Fact<CpuSet>,
    /// Top-level `key: value` pairs of the kubelet's configuration.
    pub kubelet: Fact<BTreeMap<String, String>>,
    /// The kubelet's state of CPUs (`/var/lib/kubelet/cpu_manager_state`): policy, default set.
    pub cpu_manager: Fact<(String, CpuSet)>,
    /// `domain type item value` lines of `/etc/security/limits.conf` and `limits.d` for memlock and rtprio.
    pub limits: Fact<Vec<String>>,
}

/// Virtualisation, seen from a guest and from a host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Virtualisation {
    /// Is this a guest (CPU flag `hypervisor`)?
    pub guest: Fact<bool>,
    /// Which hypervisor: `kvm`, `vmware`, `microsoft`, `xen`, `firecracker`, … (DMI, /sys/hypervisor).
    pub hypervisor: Fact<String>,
    /// Can this host run guests (`/dev/kvm`, module kvm)?
    pub kvm_host: Fact<bool>,
    /// Guests that run here, one entry for each process with vCPU threads: see [`super::Task`].
    pub guests: Fact<Vec<Guest>>,
    /// Virtio devices by driver name (`virtio_balloon`, `virtio_net`) → how many.
    pub virtio: Fact<BTreeMap<String, u32>>,
}

/// A guest on this host: a process whose threads are called `CPU N/KVM`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guest {
    /// Its process.
    pub pid: u32,
    /// Its process' name.
    pub process: String,
    /// Threads of its virtual CPUs, by virtual CPU.
    pub vcpus: BTreeMap<u32, u32>,
    /// Other threads.
    pub others: Vec<u32>,
}

/// Cache and memory bandwidth allocation (`/sys/fs/resctrl`, Documentation/filesystems/resctrl.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Resctrl {
    /// Is it mounted?
    pub mounted: Fact<bool>,
    /// The groups; the default group has the name `/`.
    pub groups: Fact<Vec<ResctrlGroup>>,
    /// `info/L3/cbm_mask`.
    pub l3_mask: Fact<u64>,
    /// `info/L3/shareable_bits`: ways that devices may use too.
    pub l3_shareable: Fact<u64>,
    /// `info/L3/num_closids`.
    pub l3_groups: Fact<u32>,
}

/// One group of allocations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResctrlGroup {
    /// Its name.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// `L3` → domain → mask; `MB` → domain → percent or MiB/s.
    pub schemata: BTreeMap<String, BTreeMap<u32, u64>>,
}

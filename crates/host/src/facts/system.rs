//! Firmware, services, virtualisation and cache allocation.

use std::collections::{BTreeMap, BTreeSet};

use super::{CpuSet, Fact};

/// The firmware's description of the machine (`/sys/class/dmi/id`). Serial numbers are never read.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct Dmi {
    pub system_vendor: Fact<String>,
    pub product_name: Fact<String>,
    pub product_family: Fact<String>,
    pub board_name: Fact<String>,
    pub bios_vendor: Fact<String>,
    pub bios_version: Fact<String>,
    /// Release date of the firmware, as the firmware gives it, usually `month/day/year`.
    pub bios_date: Fact<String>,
    pub chassis_type: Fact<String>,
}

/// Services that affect latency, and the contents of their configuration files.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Services {
    /// systemd units that are running, with their suffix: `irqbalance.service`.
    pub running: Fact<BTreeSet<String>>,
    /// Units that start at boot or with another unit (links in `/etc/systemd/system/*.wants` and `*.requires`).
    pub enabled: Fact<BTreeSet<String>>,
    /// Settings of irqbalance as `Key=value` (`/etc/sysconfig/irqbalance`, `/etc/default/irqbalance`).
    pub irqbalance: Fact<BTreeMap<String, String>>,
    /// The active profile of tuned (`/etc/tuned/active_profile`).
    pub tuned_profile: Fact<String>,
    /// systemd's `CPUAffinity=` (`/etc/systemd/system.conf` and its drop-ins).
    pub systemd_cpu_affinity: Fact<CpuSet>,
    /// Top-level `key: value` pairs of the kubelet's configuration.
    pub kubelet: Fact<BTreeMap<String, String>>,
    /// The kubelet's CPU manager state (`/var/lib/kubelet/cpu_manager_state`): the policy and the default CPU set.
    pub cpu_manager: Fact<(String, CpuSet)>,
    /// The lines for memlock and rtprio in `/etc/security/limits.conf` and `limits.d`, each in the form
    /// `domain type item value`.
    pub limits: Fact<Vec<String>>,
}

/// Virtualisation: the hypervisor on which this host runs, and the guests that this host runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Virtualisation {
    /// Whether this host is a guest: the CPU flag `hypervisor` on x86; elsewhere the hypervisor's name in DMI,
    /// /sys/hypervisor or the device tree, without which it is unknown.
    pub guest: Fact<bool>,
    /// The hypervisor: `kvm`, `vmware`, `microsoft`, `xen`, `firecracker`, … (DMI, /sys/hypervisor, device tree).
    pub hypervisor: Fact<String>,
    /// Whether this host can run guests (`/dev/kvm`, or the module `kvm`).
    pub kvm_host: Fact<bool>,
    /// The guests that run on this host: one entry per process with vCPU threads (see [`super::Task`]).
    pub guests: Fact<Vec<Guest>>,
    /// Number of virtio devices, by driver name (`virtio_balloon`, `virtio_net`).
    pub virtio: Fact<BTreeMap<String, u32>>,
}

/// A guest on this host: a process with vCPU threads, such as `CPU 0/KVM`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guest {
    /// Number of the process that runs the guest, such as QEMU.
    pub pid: u32,
    /// Name of the process that runs the guest, such as `qemu-system-x86`.
    pub process: String,
    /// The thread number of each virtual CPU, by the number of the virtual CPU.
    pub vcpus: BTreeMap<u32, u32>,
    /// Numbers of the process's other threads.
    pub others: Vec<u32>,
}

/// Cache and memory bandwidth allocation (`/sys/fs/resctrl`, Documentation/filesystems/resctrl.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Resctrl {
    /// Whether resctrl is mounted.
    pub mounted: Fact<bool>,
    /// The groups; the default group has the name `/`.
    pub groups: Fact<Vec<ResctrlGroup>>,
    /// Mask of all ways of the third-level cache (`info/L3/cbm_mask`), one bit per way.
    pub l3_mask: Fact<u64>,
    /// Mask of the cache ways that devices may use too (`info/L3/shareable_bits`).
    pub l3_shareable: Fact<u64>,
    /// Maximum number of groups that the hardware supports (`info/L3/num_closids`).
    pub l3_groups: Fact<u32>,
}

/// A resctrl group: CPUs with their cache and memory bandwidth allocation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResctrlGroup {
    /// The group's name; `/` is the default group.
    pub name: String,
    /// The CPUs assigned to the group.
    pub cpus: CpuSet,
    /// Allocations by resource and domain: for `L3` a mask of cache ways, for `MB` a percentage or MiB/s.
    pub schemata: BTreeMap<String, BTreeMap<u32, u64>>,
}

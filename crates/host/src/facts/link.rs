//! Network interfaces.

use std::collections::BTreeMap;

use units::BitRate;

use super::{Channels, Coalescing, CpuSet, DimLevel, Fact, Feature, Napi, Rings, TimeStamping};

/// One network interface. Its statistics are in [`super::Counters::links`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Link {
    /// The interface's name.
    pub name: String,
    /// The interface's driver (`ethtool -i`, or the device's driver link).
    pub driver: Fact<String>,
    /// The driver's version, as the driver reports it.
    pub driver_version: Fact<String>,
    /// The firmware's version, as the driver reports it.
    pub firmware: Fact<String>,
    /// PCI address of the interface's device. Absent for virtual interfaces.
    pub pci: Fact<String>,
    /// The kind of link as an ARPHRD number (`type`): 1 Ethernet, 772 loopback.
    pub kind: Fact<u32>,
    /// Maximum transmission unit in bytes.
    pub mtu: Fact<u32>,
    /// Length of the transmit queue in packets (`tx_queue_len`).
    pub tx_queue_len: Fact<u32>,
    /// The operational state: `up`, `down`, `unknown`, …
    pub operstate: Fact<String>,
    /// Whether the interface has a carrier.
    pub carrier: Fact<bool>,
    /// How often the carrier appeared or disappeared.
    pub carrier_changes: Fact<u64>,
    /// The line rate. Absent if the driver reports none.
    pub speed: Fact<BitRate>,
    /// The duplex mode, `full` or `half`.
    pub duplex: Fact<String>,
    /// Whether autonegotiation is on.
    pub autoneg: Fact<bool>,
    /// The NUMA node of the interface's device. Known and `None` if the firmware does not report it.
    pub node: Fact<Option<u32>>,
    /// Interrupt moderation (`ethtool -c`).
    pub coalesce: Fact<Coalescing>,
    /// The levels of the kernel's adaptive receive moderation (`rx-profile` of `ethtool -c`, from Linux 6.11 on), in
    /// the driver's order (shortest delay first).
    pub rx_profile: Fact<Vec<DimLevel>>,
    /// Interrupt moderation by queue (`ethtool --per-queue … --show-coalesce`).
    pub queue_coalesce: BTreeMap<u32, Fact<Coalescing>>,
    /// Descriptor rings (`ethtool -g`).
    pub rings: Fact<Rings>,
    /// Channels (`ethtool -l`).
    pub channels: Fact<Channels>,
    /// Features by kernel name, such as `rx-gro`, `tx-tcp-segmentation`, `rx-lro`, `rx-ntuple-filter` (`ethtool -k`).
    pub features: Fact<BTreeMap<String, Feature>>,
    /// Flow control (`ethtool -a`).
    pub pause: Fact<Pause>,
    /// The driver's private flags (`ethtool --show-priv-flags`).
    pub private_flags: Fact<BTreeMap<String, bool>>,
    /// Which timestamps the interface can take (`ethtool -T`).
    pub time_stamping: Fact<TimeStamping>,
    /// Forward error correction in use (`ethtool --show-fec`).
    pub fec: Fact<String>,
    /// Whether energy-efficient Ethernet is on (`ethtool --show-eee`).
    pub eee: Fact<bool>,
    /// Receive side scaling: the queue of each entry of the indirection table (`ethtool -x`).
    pub rss_table: Fact<Vec<u32>>,
    /// Number of receive classification (n-tuple) rules (`ethtool -n`).
    pub flow_rules: Fact<u32>,
    /// The name of the root queueing discipline.
    pub qdisc: Fact<String>,
    /// Receive queues (`queues/rx-N`).
    pub rx_queues: Vec<RxQueue>,
    /// Transmit queues (`queues/tx-N`).
    pub tx_queues: Vec<TxQueue>,
    /// The interrupt of each queue, from the kernel (`netdev` netlink family) or from the names of the interrupts.
    pub queue_irqs: Vec<QueueIrq>,
    /// NAPI instances (`netdev` netlink family, from Linux 6.8 on).
    pub napi: Fact<Vec<Napi>>,
    /// The interface's `napi_defer_hard_irqs`: number of empty polls before interrupts are enabled again. 0 means that
    /// interrupts are not deferred.
    pub defer_hard_irqs: Fact<u32>,
    /// The interface's `gro_flush_timeout`, in nanoseconds. 0 means that the timer is off.
    pub gro_flush_timeout_ns: Fact<u64>,
    /// Whether kernel threads, not softirqs, poll the interface (`threaded`).
    pub threaded: Fact<bool>,
}

impl Link {
    /// Whether the interface belongs to a hardware device. `None` if that is not known.
    pub fn is_physical(&self) -> Option<bool> {
        self.pci.is_present()
    }

    /// Whether a feature is on. `None` if that is not known.
    pub fn feature(&self, name: &str) -> Option<bool> {
        self.features.value()?.get(name).map(|feature| feature.on)
    }
}

/// Flow control by pause frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Pause {
    pub autoneg: bool,
    pub rx: bool,
    pub tx: bool,
}

/// One receive queue.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct RxQueue {
    pub index: u32,
    /// The CPUs to which receive packet steering passes packets (`rps_cpus`). Empty if receive packet steering is off.
    pub rps_cpus: Fact<CpuSet>,
    pub rps_flow_cnt: Fact<u32>,
}

/// One transmit queue.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct TxQueue {
    pub index: u32,
    /// The CPUs that transmit through this queue (`xps_cpus`).
    pub xps_cpus: Fact<CpuSet>,
}

/// The interrupt of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueIrq {
    /// The number of the queue.
    pub queue: u32,
    /// Whether the queue receives.
    pub rx: bool,
    /// Whether the queue transmits.
    pub tx: bool,
    /// Number of the queue's interrupt.
    pub irq: u32,
}

/// Whether the kernel accepts this name for an interface (net/core/dev.c, `dev_valid_name`: 1 to 15 bytes, no space,
/// slash or colon) and a shell reads it as one plain word. People paste suggested commands into a root shell. A
/// recording could name an interface `$(reboot)`, for which this function returns false.
pub fn is_interface_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+' | '%' | ',' | '=');
    let special = name.starts_with('-') || matches!(name, "." | "..");
    (1..=15).contains(&name.len()) && !special && name.chars().all(plain)
}

#[cfg(test)]
mod name_tests {
    use super::*;

    #[test]
    fn what_a_shell_would_run_is_no_interface() {
        for name in ["eth0", "ens1f0np0", "enp4s0.100", "veth@if3", "br-lan", "wlan_0", "größe0"] {
            assert!(is_interface_name(name), "{name}");
        }
        for name in [
            "",
            "$(reboot)",
            "a;reboot",
            "`id`",
            "a b",
            "a\nb",
            "../x",
            "-i",
            "eth0|sh",
            "a\u{1b}[2J",
            "0123456789abcdef",
        ] {
            assert!(!is_interface_name(name), "{name}");
        }
    }
}

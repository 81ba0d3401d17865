//! Network interfaces.

use std::collections::BTreeMap;

use units::BitRate;

use super::{CpuSet, Fact};

/// One network interface. Its statistics are in [`super::Counters::links`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its driver (`ethtool -i`, or the device's driver link).
    pub driver: Fact<String>,
    /// The driver's version.
    pub driver_version: Fact<String>,
    /// The firmware's version.
    pub firmware: Fact<String>,
    /// The PCI device under it; absent for virtual interfaces.
    pub pci: Fact<String>,
    /// ARPHRD number of its kind (`type`): 1 Ethernet, 772 loopback.
    pub kind: Fact<u32>,
    /// Maximum transmission unit in octets.
    pub mtu: Fact<u32>,
    /// `tx_queue_len`.
    pub tx_queue_len: Fact<u32>,
    /// `up`, `down`, `unknown`, …
    pub operstate: Fact<String>,
    /// Has it a carrier?
    pub carrier: Fact<bool>,
    /// How often the carrier came or went.
    pub carrier_changes: Fact<u64>,
    /// Line rate; absent where the driver knows none.
    pub speed: Fact<BitRate>,
    /// `full` or `half`.
    pub duplex: Fact<String>,
    /// Autonegotiation.
    pub autoneg: Fact<bool>,
    /// NUMA node of its device; known and `None` where the firmware did not say.
    pub node: Fact<Option<u32>>,
    /// Interrupt moderation (`ethtool -c`).
    pub coalesce: Fact<Coalescing>,
    /// The levels among which the kernel's adaptive moderation of reception chooses (`rx-profile` of `ethtool -c`, from
    /// Linux 6.11 on), shortest first as the driver has them.
    pub rx_profile: Fact<Vec<DimLevel>>,
    /// The same by queue (`ethtool --per-queue … --show-coalesce`).
    pub queue_coalesce: BTreeMap<u32, Fact<Coalescing>>,
    /// Descriptor rings (`ethtool -g`).
    pub rings: Fact<Rings>,
    /// Channels (`ethtool -l`).
    pub channels: Fact<Channels>,
    /// Features (`ethtool -k`): is it on, by its kernel name (`rx-gro`, `tx-tcp-segmentation`, `rx-lro`, `rx-ntuple-filter`).
    pub features: Fact<BTreeMap<String, Feature>>,
    /// Flow control (`ethtool -a`).
    pub pause: Fact<Pause>,
    /// The driver's private flags (`ethtool --show-priv-flags`).
    pub private_flags: Fact<BTreeMap<String, bool>>,
    /// Time stamping (`ethtool -T`).
    pub time_stamping: Fact<TimeStamping>,
    /// Forward error correction in use (`ethtool --show-fec`).
    pub fec: Fact<String>,
    /// Is energy-efficient Ethernet on (`ethtool --show-eee`)?
    pub eee: Fact<bool>,
    /// Receive side scaling: the queue of each entry of the indirection table (`ethtool -x`).
    pub rss_table: Fact<Vec<u32>>,
    /// How many n-tuple rules there are (`ethtool -n`).
    pub flow_rules: Fact<u32>,
    /// Root queueing discipline.
    pub qdisc: Fact<String>,
    /// Receive queues (`queues/rx-N`).
    pub rx_queues: Vec<RxQueue>,
    /// Transmit queues (`queues/tx-N`).
    pub tx_queues: Vec<TxQueue>,
    /// Interrupts of its queues, by what is known of the names or from the kernel (`netdev` netlink family).
    pub queue_irqs: Vec<QueueIrq>,
    /// NAPI instances (`netdev` netlink family, from Linux 6.8 on).
    pub napi: Fact<Vec<Napi>>,
    /// `napi_defer_hard_irqs` of the device.
    pub defer_hard_irqs: Fact<u32>,
    /// `gro_flush_timeout` of the device, in nanoseconds.
    pub gro_flush_timeout_ns: Fact<u64>,
    /// `threaded` of the device.
    pub threaded: Fact<bool>,
}

impl Link {
    /// Has it a device under it, so that it is no mere software?
    pub fn is_physical(&self) -> Option<bool> {
        self.pci.is_present()
    }

    /// Is a feature on? `None` if that is not known.
    pub fn feature(&self, name: &str) -> Option<bool> {
        self.features.value()?.get(name).map(|feature| feature.on)
    }
}

/// One offload or other feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Feature {
    /// Is it on?
    pub on: bool,
    /// May it not be changed?
    pub fixed: bool,
}

/// Interrupt moderation (Documentation/networking/ethtool-netlink.rst, COALESCE_GET). A field that the
/// driver does not have is `None`. `*_usecs` are as the driver says them: with some (`ixgbe`, `igb`) 1
/// and 3 are modes, not times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Coalescing {
    pub adaptive_rx: Option<bool>,
    pub adaptive_tx: Option<bool>,
    pub rx_usecs: Option<u32>,
    pub rx_frames: Option<u32>,
    pub rx_usecs_irq: Option<u32>,
    pub rx_frames_irq: Option<u32>,
    pub tx_usecs: Option<u32>,
    pub tx_frames: Option<u32>,
    pub tx_usecs_irq: Option<u32>,
    pub tx_frames_irq: Option<u32>,
    pub stats_block_usecs: Option<u32>,
    pub pkt_rate_low: Option<u32>,
    pub rx_usecs_low: Option<u32>,
    pub rx_frames_low: Option<u32>,
    pub tx_usecs_low: Option<u32>,
    pub tx_frames_low: Option<u32>,
    pub pkt_rate_high: Option<u32>,
    pub rx_usecs_high: Option<u32>,
    pub rx_frames_high: Option<u32>,
    pub tx_usecs_high: Option<u32>,
    pub tx_frames_high: Option<u32>,
    pub sample_interval: Option<u32>,
    pub cqe_mode_rx: Option<bool>,
    pub cqe_mode_tx: Option<bool>,
}

/// One level of dynamic interrupt moderation (Documentation/networking/net_dim.rst).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DimLevel {
    /// Microseconds until an interrupt.
    pub usecs: u32,
    /// Or after this many frames, if the driver has such a bound.
    pub frames: Option<u32>,
}

/// Descriptor rings; `None` where the driver does not have the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Rings {
    pub rx: Option<u32>,
    pub rx_max: Option<u32>,
    pub tx: Option<u32>,
    pub tx_max: Option<u32>,
    pub rx_mini: Option<u32>,
    pub rx_jumbo: Option<u32>,
    pub rx_buf_len: Option<u32>,
    pub cqe_size: Option<u32>,
    pub tx_push: Option<bool>,
}

/// Channels; `None` where the driver does not have the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Channels {
    pub rx: Option<u32>,
    pub rx_max: Option<u32>,
    pub tx: Option<u32>,
    pub tx_max: Option<u32>,
    pub combined: Option<u32>,
    pub combined_max: Option<u32>,
    pub other: Option<u32>,
    pub other_max: Option<u32>,
}

/// Flow control by pause frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Pause {
    pub autoneg: bool,
    pub rx: bool,
    pub tx: bool,
}

/// What time stamps an interface can make.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeStamping {
    /// In hardware on transmission.
    pub hardware_tx: bool,
    /// In hardware on reception.
    pub hardware_rx: bool,
    /// Its clock, `/dev/ptpN`.
    pub phc: Option<u32>,
}

/// One receive queue.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct RxQueue {
    pub index: u32,
    /// Receive packet steering goes to these.
    pub rps_cpus: Fact<CpuSet>,
    pub rps_flow_cnt: Fact<u32>,
}

/// One transmit queue.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct TxQueue {
    pub index: u32,
    /// These CPUs transmit through it.
    pub xps_cpus: Fact<CpuSet>,
}

/// The interrupt of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueIrq {
    /// The queue.
    pub queue: u32,
    /// Does it receive?
    pub rx: bool,
    /// Does it transmit?
    pub tx: bool,
    /// Its interrupt.
    pub irq: u32,
}

/// One NAPI instance (Documentation/networking/napi.rst, Documentation/netlink/specs/netdev.yaml).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Napi {
    /// Its number.
    pub id: u32,
    /// Its interrupt.
    pub irq: Option<u32>,
    /// Its thread.
    pub pid: Option<u32>,
    /// `defer-hard-irqs`.
    pub defer_hard_irqs: Option<u32>,
    /// `gro-flush-timeout`, in nanoseconds.
    pub gro_flush_timeout_ns: Option<u64>,
    /// `irq-suspend-timeout`, in nanoseconds.
    pub irq_suspend_timeout_ns: Option<u64>,
    /// Has it a thread?
    pub threaded: Option<bool>,
}

/// Is it a name that the kernel would give an interface (net/core/dev.c, `dev_valid_name`: 1 to 15 octets, no space, slash
/// or colon), and that a shell takes as one plain word? Fixes are commands that somebody pastes as root: an interface that
/// a recording calls `$(reboot)` is none.
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

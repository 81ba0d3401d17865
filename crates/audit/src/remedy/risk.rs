//! What a fix puts at risk.

use super::Action;
use super::setting::{OfNetwork, Place, Setting};

units::named! {
    /// What a fix puts at risk.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Risk {
        /// The step takes effect only after a reboot.
        Reboot = "reboot",
        /// The step interrupts the traffic of an interface: the driver restarts it, its link goes down, or its flows
        /// move to other queues.
        Network = "network",
        /// The step weakens a protection of the host.
        Security = "security",
    }
}

impl Risk {
    /// The risk in words, as the report shows it, such as "needs a reboot".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Reboot => "needs a reboot",
            Self::Network => "interrupts the interface's traffic",
            Self::Security => "weakens a protection",
        }
    }
}

/// Kernel parameters that weaken a protection, each with the value that weakens it (`None`: any value). Source: Linux
/// Documentation/admin-guide/kernel-parameters.txt and admin-guide/hw-vuln. `iommu=pt` lets devices with kernel drivers
/// access the whole memory (x86/iommu.rst).
const OPEN: &[(&str, Option<&str>)] = &[
    ("apparmor", Some("0")),
    ("audit", Some("0")),
    ("enforcing", Some("0")),
    ("init_on_alloc", Some("0")),
    ("init_on_free", Some("0")),
    ("intel_iommu", Some("off")),
    ("iommu", None),
    ("kvm.nx_huge_pages", None),
    ("mce", Some("off")),
    ("mitigations", Some("off")),
    ("nokaslr", None),
    ("nopti", None),
    ("nospectre_v1", None),
    ("nospectre_v2", None),
    ("retbleed", Some("off")),
    ("selinux", Some("0")),
    ("spec_rstack_overflow", Some("off")),
    ("spec_store_bypass_disable", Some("off")),
    ("spectre_v2", Some("off")),
];

/// Substrings of commands that weaken a protection: the audit trail, the host's protection from guests (NX huge pages),
/// the firewall's connection tracking, firmware updates.
const OPEN_COMMANDS: &[&str] = &["auditctl -e 0", "kvm/parameters/nx_huge_pages", "notrack", "fwupd"];

/// Substrings of commands that interrupt an interface. In the common drivers, most options of ethtool restart the port
/// (Linux drivers/net/ethernet/intel: e1000e, igb, ixgbe, i40e and ice stop and start it for rings, channels, pause,
/// private flags and most features); so do changes to the MTU and to EEE. The other commands remove the interface.
const DOWN_COMMANDS: &[&str] = &[
    "--set-fec",
    "--set-eee",
    "--set-priv-flags",
    "ethtool -X",
    "ethtool -s ",
    "ethtool -L",
    "ip link set",
    "tc qdisc replace",
    "dpdk-devbind.py -b",
    "driverctl set-override",
    "rmmod",
    "flash the firmware",
    "reseat",
    "mtu ",
    "/devlink",
];

/// The risks of an action. `reboot` says whether the action takes effect only at the next boot.
pub(super) fn of(action: &Action, reboot: bool) -> std::collections::BTreeSet<Risk> {
    let says = |words: &[&str]| match action {
        Action::Run(text) | Action::Advise(text) => words.iter().any(|word| text.contains(word)),
        Action::Set(settings) => super::commands(settings).iter().any(|text| words.iter().any(|w| text.contains(w))),
        Action::Arguments { .. } | Action::Rerun(_) => false,
    };
    let restarts =
        |setting: &Setting| matches!(&setting.place, Place::Network(_, group, _) if *group != OfNetwork::Coalesce);
    let opens = match action {
        Action::Arguments { add, .. } => add.iter().any(|word| {
            let value = word.value.as_deref();
            let same = |name: &str| host::facts::same_name(&word.name, name);
            OPEN.iter().any(|(name, open)| same(name) && (open.is_none() || *open == value))
        }),
        _ => says(OPEN_COMMANDS) || says(&["mitigations=off"]),
    };
    let interrupts = match action {
        Action::Set(settings) if settings.iter().any(restarts) => true,
        _ => says(DOWN_COMMANDS),
    };
    let of_line = match action {
        Action::Arguments { .. } => true,
        // A change of the kernel command line that people must decide about.
        Action::Advise(_) => says(&["on the kernel command line"]),
        Action::Set(_) | Action::Run(_) | Action::Rerun(_) => false,
    };
    let reboots = !matches!(action, Action::Rerun(_)) && (reboot || of_line);
    let all = [(Risk::Reboot, reboots), (Risk::Network, interrupts), (Risk::Security, opens)];
    all.into_iter().filter(|(_, is)| *is).map(|(risk, _)| risk).collect()
}

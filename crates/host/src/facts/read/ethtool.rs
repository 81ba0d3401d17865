//! The ethtool(8) settings of an interface. On a live host they come from the kernel; in a recording they come from
//! ethtool's output.

use std::collections::BTreeMap;

use units::BitRate;

use super::ethtool_text as text;
use crate::facts::{Channels, Coalescing, DimLevel, Fact, Feature, Pause, Rings, Root, TimeStamping, Why};

/// The fields of [`crate::facts::Link`] that are not read from sysfs.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Ethtool {
    pub driver: Fact<String>,
    pub driver_version: Fact<String>,
    pub firmware: Fact<String>,
    pub bus: Fact<String>,
    pub speed: Fact<BitRate>,
    pub duplex: Fact<String>,
    pub autoneg: Fact<bool>,
    pub coalesce: Fact<Coalescing>,
    pub rx_profile: Fact<Vec<DimLevel>>,
    pub queue_coalesce: BTreeMap<u32, Fact<Coalescing>>,
    pub rings: Fact<Rings>,
    pub channels: Fact<Channels>,
    pub features: Fact<BTreeMap<String, Feature>>,
    pub pause: Fact<Pause>,
    pub private_flags: Fact<BTreeMap<String, bool>>,
    pub time_stamping: Fact<TimeStamping>,
    pub fec: Fact<String>,
    pub eee: Fact<bool>,
    pub rss_table: Fact<Vec<u32>>,
    pub flow_rules: Fact<u32>,
    pub qdisc: Fact<String>,
}

/// Reads the ethtool settings from the outputs in a recording.
pub(super) fn recorded(root: &Root, name: &str) -> Ethtool {
    let said = |option: &str| {
        let separator = if option.is_empty() { "" } else { " " };
        root.command(&format!("ethtool{separator}{option} {name}"))
    };
    let info = said("-i");
    let settings = said("");
    Ethtool {
        driver: field(&info, "driver"),
        driver_version: field(&info, "version"),
        firmware: field(&info, "firmware-version"),
        bus: field(&info, "bus-info"),
        speed: understood(settings.clone(), text::speed),
        duplex: field(&settings, "Duplex").map(|duplex| duplex.to_ascii_lowercase()),
        autoneg: field(&settings, "Auto-negotiation").map(|state| state == "on"),
        coalesce: understood(said("-c"), text::coalesce),
        // A missing profile proves nothing about the driver: older tools and kernels do not print it.
        rx_profile: said("-c").and_then(|text| match text::rx_profile(&text) {
            Some(levels) => Fact::known(levels, format!("ethtool -c {name}").as_str()),
            None => Fact::not_recorded(format!("ethtool -c {name}: rx-profile").as_str()),
        }),
        queue_coalesce: match root.command(&format!("ethtool --per-queue {name} --show-coalesce")) {
            Fact::Known { value, source } => text::queue_coalesce(&value)
                .into_iter()
                .map(|(queue, coalesce)| (queue, Fact::known(coalesce, source.clone())))
                .collect(),
            Fact::Missing { .. } => BTreeMap::new(),
        },
        rings: understood(said("-g"), text::sizes),
        channels: understood(said("-l"), text::sizes),
        features: understood(said("-k"), text::features),
        pause: understood(said("-a"), text::pause),
        private_flags: understood(said("--show-priv-flags"), text::private_flags),
        time_stamping: understood(said("-T"), text::time_stamping),
        fec: understood(said("--show-fec"), text::fec),
        eee: understood(said("--show-eee"), text::eee),
        rss_table: understood(said("-x"), text::indirection),
        flow_rules: understood(said("-n"), text::flow_rules),
        qdisc: root
            .command(&format!("tc qdisc show dev {name}"))
            .or_else(|| root.command("tc -s qdisc show"))
            .and_then(|all| match text::qdisc(&all, name) {
                Some(kind) => Fact::known(kind, format!("tc qdisc show dev {name}").as_str()),
                None => Fact::not_recorded(format!("tc qdisc show dev {name}").as_str()),
            }),
    }
}

/// The driver's own counters in a recording, from the output of `ethtool -S`.
pub(super) fn recorded_statistics(root: &Root, place: &str, name: &str) -> BTreeMap<String, u64> {
    let output = root.command_in(place, &format!("ethtool -S {name}"));
    output.value().map(|output| text::statistics(output)).unwrap_or_default()
}

fn field(output: &Fact<String>, key: &str) -> Fact<String> {
    output.clone().and_then(|text| match text::field(&text, key).filter(|value| !value.is_empty() && *value != "N/A") {
        Some(value) => Fact::known(value.to_owned(), output.source().clone()),
        None => Fact::absent(output.source().clone()),
    })
}

/// Parses ethtool's output. If it lacks the value, the fact is unsupported.
fn understood<T>(output: Fact<String>, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
    let source = output.source().clone();
    output.and_then(|text| match parse(&text) {
        Some(value) => Fact::known(value, source),
        None => Fact::missing(Why::Unsupported(refusal(&text).into()), source),
    })
}

/// The line of ethtool's output that says why a query was refused, or else the first line.
fn refusal(text: &str) -> String {
    let says_why = |line: &&str| ["not supported", "annot", "rror", "No such"].iter().any(|part| line.contains(part));
    let line = text.lines().find(says_why).or(text.lines().next()).unwrap_or("no answer");
    line.trim().chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn outputs_of_a_recording() {
        let facts = Facts::read(&Root::given([
            ("sys/class/net/eth0/mtu", "1500\n"),
            ("sys/class/net/eth0/speed", "-1\n"),
            (
                "commands/ethtool_-i_eth0",
                "driver: i40e\nversion: 6.1\nfirmware-version: 9.20\nbus-info: 0000:3b:00.0\n",
            ),
            ("commands/ethtool_-c_eth0", "Coalesce parameters for eth0:\nAdaptive RX: on  TX: off\nrx-usecs: 50\n"),
            ("commands/ethtool_-g_eth0", "netlink error: Operation not supported\n"),
            ("commands/ethtool_-S_eth0", "NIC statistics:\n     rx_missed: 7\n"),
        ]));
        let link = facts.link("eth0").unwrap();
        assert_eq!(link.driver.value().map(String::as_str), Some("i40e"));
        assert_eq!(link.pci.value().map(String::as_str), Some("0000:3b:00.0"));
        assert_eq!(link.coalesce.get().unwrap().rx_usecs, Some(50));
        assert_eq!(link.coalesce.source().as_str(), "ethtool -c eth0");
        assert!(matches!(link.rings.why(), Some(Why::Unsupported(why)) if why.contains("not supported")));
        assert!(link.speed.is_absent() && link.channels.is_unknown());
        assert_eq!((link.mtu.get(), facts.counters.links["eth0"]["ethtool.rx_missed"]), (Some(1500), 7));
    }

    #[test]
    fn a_report_without_sysfs_has_its_interfaces_all_the_same() {
        let facts = Facts::read(&Root::given([
            ("sos_commands/networking/ethtool_-i_eth1", "driver: ice\n"),
            ("sos_commands/networking/ethtool_eth1", "Settings for eth1:\n\tSpeed: 25000Mb/s\n\tDuplex: Full\n"),
            ("sos_commands/networking/ethtool_-S_eth1", "NIC statistics:\n     tx_busy: 1\n"),
        ]));
        let link = facts.link("eth1").unwrap();
        assert_eq!(link.speed.get(), Some(BitRate::new(25_000_000_000)));
        assert_eq!(link.duplex.value().map(String::as_str), Some("full"));
        assert_eq!(facts.counters.links["eth1"]["ethtool.tx_busy"], 1);
    }
}

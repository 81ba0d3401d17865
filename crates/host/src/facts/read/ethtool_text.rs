//! Parses the output of ethtool(8), option by option. A function returns `None` if the output lacks the values that it
//! looks for, which means that the driver does not support them.

use std::collections::BTreeMap;

use units::BitRate;

use crate::facts::{Coalescing, DimLevel, Feature, Pause, TimeStamping};
use crate::nic::{Field, Numbers};

/// Maximum number of lines that are read.
const MAX_LINES: usize = 100_000;
/// Old feature names that `ethtool -k` prints instead of the kernel's names (ethtool, common.c `off_flag_def`).
const OLD_NAMES: [(&str, &str); 12] = [
    ("rx-checksumming", "rx-checksum"),
    ("tx-checksumming", "tx-checksum"),
    ("scatter-gather", "tx-scatter-gather"),
    ("tcp-segmentation-offload", "tx-tcp-segmentation"),
    ("generic-segmentation-offload", "tx-generic-segmentation"),
    ("generic-receive-offload", "rx-gro"),
    ("large-receive-offload", "rx-lro"),
    ("rx-vlan-offload", "rx-vlan-hw-parse"),
    ("tx-vlan-offload", "tx-vlan-hw-insert"),
    ("ntuple-filters", "rx-ntuple-filter"),
    ("receive-hashing", "rx-hashing"),
    ("rx-vlan-filter", "rx-vlan-filter"),
];

/// The value after `key:`.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix(':').map(str::trim))
}

/// Parses `Speed: 25000Mb/s`.
pub(crate) fn speed(text: &str) -> Option<BitRate> {
    let mega: u64 = field(text, "Speed")?.strip_suffix("Mb/s")?.parse().ok()?;
    Some(BitRate::new(mega.checked_mul(1_000_000)?))
}

/// Parses the output of `ethtool -c`.
pub(crate) fn coalesce(text: &str) -> Option<Coalescing> {
    let mut all = Coalescing::default();
    for line in text.lines().take(MAX_LINES) {
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        let number = value.trim().parse::<u32>().ok();
        match key {
            "Adaptive RX" => (all.adaptive_rx, all.adaptive_tx) = both(value),
            "CQE mode RX" => (all.cqe_mode_rx, all.cqe_mode_tx) = both(value),
            _ => {
                let field = Coalescing::FIELDS.iter().find(|field| printed(field).as_deref() == Some(key));
                if let Some((field, number)) = field.zip(number) {
                    all.fill(field, number.into());
                }
            }
        }
    }
    (all != Coalescing::default()).then_some(all)
}

/// Parses the states of RX and TX on one line: `on  TX: off`.
fn both(value: &str) -> (Option<bool>, Option<bool>) {
    let (rx, tx) = value.split_once("TX:").unwrap_or((value, ""));
    (state(rx), state(tx))
}

fn state(text: &str) -> Option<bool> {
    match text.split_whitespace().next()? {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// The name under which `ethtool -c` prints a number. `None` for switches, which are printed in pairs.
pub(crate) fn printed(field: &Field) -> Option<String> {
    Some(match field.name {
        "adaptive-rx" | "adaptive-tx" | "cqe-mode-rx" | "cqe-mode-tx" => return None,
        "rate-sample-interval" => "sample-interval".to_owned(),
        name if name.starts_with("tx-aggr-") => name.to_owned(),
        name if name.ends_with("-low") || name.ends_with("-high") => name.replace("max-frames", "frame"),
        name => name.replace("max-frames", "frames"),
    })
}

/// Parses the levels of `rx-profile:` in `ethtool -c`, one per line: `{.usec =   8, .pkts = 256, .comp = n/a,},`.
pub(crate) fn rx_profile(text: &str) -> Option<Vec<DimLevel>> {
    let (_, rest) = text.split_once("rx-profile")?;
    let number = |line: &str, key: &str| {
        let value = line.split_once(key)?.1.trim_start().strip_prefix('=')?.trim_start();
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let lines = rest.lines().take(MAX_LINES).skip_while(|line| !line.contains(".usec"));
    let level = |line: &str| Some(DimLevel { usecs: number(line, ".usec")?, frames: number(line, ".pkts") });
    let levels: Vec<DimLevel> = lines.map_while(level).collect();
    (!levels.is_empty()).then_some(levels)
}

/// Parses the output of `ethtool --per-queue X --show-coalesce`: blocks that begin with `Queue: 3`.
pub(crate) fn queue_coalesce(text: &str) -> BTreeMap<u32, Coalescing> {
    let blocks = text.split("Queue:").skip(1);
    let block = |block: &str| {
        let (queue, rest) = block.split_once('\n')?;
        Some((queue.trim().parse().ok()?, coalesce(rest)?))
    };
    blocks.filter_map(block).collect()
}

/// Splits the output of `ethtool -g` or `-l` into the maximum values and the current values.
fn halves(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("Pre-set maximums:")?;
    rest.split_once("Current hardware settings:")
}

/// The name under which `ethtool -g` and `ethtool -l` print a field.
pub(crate) fn printed_size(field: &Field) -> &'static str {
    match field.name {
        "rx" => "RX",
        "rx-mini" => "RX Mini",
        "rx-jumbo" => "RX Jumbo",
        "tx" => "TX",
        "other" => "Other",
        "combined" => "Combined",
        "rx-buf-len" => "RX Buf Len",
        "tcp-data-split" => "TCP data split",
        "cqe-size" => "CQE Size",
        "tx-push" => "TX Push",
        "rx-push" => "RX Push",
        "tx-push-buf-len" => "TX push buff len",
        "hds-thresh" => "HDS thresh",
        name => name,
    }
}

/// Parses the output of `ethtool -g` or `ethtool -l`.
pub(crate) fn sizes<G: Numbers>(text: &str) -> Option<G> {
    let (max, now) = halves(text)?;
    let mut all = G::default();
    for size in G::FIELDS {
        let said = |half| {
            let value = field(half, printed_size(size))?;
            // ethtool prints the header/data split as on or off. In the kernel's numbers, 1 is off and 2 is on
            // (include/uapi/linux/ethtool.h).
            let on = |on| u64::from(on) + u64::from(size.name == "tcp-data-split");
            value.parse().ok().or_else(|| state(value).map(on))
        };
        if let Some(number) = said(now) {
            all.fill(size, number);
        }
        if let Some((most, number)) = size.most.zip(said(max)) {
            all.put(most, number);
        }
    }
    Some(all)
}

/// Parses the output of `ethtool -k`. Returns the features, keyed by the kernel's names for them.
pub(crate) fn features(text: &str) -> Option<BTreeMap<String, Feature>> {
    let feature = |line: &str| {
        let (name, value) = line.trim().split_once(':')?;
        let name = OLD_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new);
        let on = state(value)?;
        let wanted = if value.contains("[requested o") { !on } else { on };
        Some((name.to_owned(), Feature { on, wanted, fixed: value.contains("[fixed]") }))
    };
    let mut all = BTreeMap::new();
    for (name, feature) in text.lines().take(MAX_LINES).filter_map(feature) {
        // ethtool prints a group before its members. A member that has the group's kernel name replaces the group.
        all.insert(name, feature);
    }
    (!all.is_empty()).then_some(all)
}

/// Parses the output of `ethtool -a`.
pub(crate) fn pause(text: &str) -> Option<Pause> {
    let on = |key: &str| field(text, key).and_then(state);
    Some(Pause { autoneg: on("Autonegotiate").unwrap_or(false), rx: on("RX")?, tx: on("TX")? })
}

/// Parses the output of `ethtool --show-priv-flags`.
pub(crate) fn private_flags(text: &str) -> Option<BTreeMap<String, bool>> {
    let flag = |line: &str| {
        let (name, value) = line.rsplit_once(':')?;
        Some((name.trim().to_owned(), state(value)?))
    };
    let flags: BTreeMap<String, bool> = text.lines().take(MAX_LINES).filter_map(flag).collect();
    (!flags.is_empty()).then_some(flags)
}

/// Parses the output of `ethtool -T`.
pub(crate) fn time_stamping(text: &str) -> Option<TimeStamping> {
    let (_, rest) = text.split_once("Capabilities:")?;
    let has = |name: &str| rest.lines().any(|line| line.split_whitespace().next() == Some(name));
    let clock = field(text, "PTP Hardware Clock").or(field(text, "Hardware timestamp provider index"));
    Some(TimeStamping {
        hardware_tx: has("hardware-transmit"),
        hardware_rx: has("hardware-receive"),
        phc: clock.and_then(|clock| clock.parse().ok()),
    })
}

/// Parses the output of `ethtool --show-fec`.
pub(crate) fn fec(text: &str) -> Option<String> {
    field(text, "Active FEC encoding").or(field(text, "Active FEC encodings")).map(str::to_owned)
}

/// Parses the output of `ethtool --show-eee`: `enabled - active`, `disabled` or `not supported`.
pub(crate) fn eee(text: &str) -> Option<bool> {
    match field(text, "EEE status")?.split_whitespace().next()? {
        "enabled" => Some(true),
        "disabled" => Some(false),
        _ => None,
    }
}

/// Parses the indirection table of `ethtool -x`: lines like `    8:      0     1     2     3`. The hash key after the
/// table is not read.
pub(crate) fn indirection(text: &str) -> Option<Vec<u32>> {
    let rows = text.lines().take(MAX_LINES).take_while(|line| !line.starts_with("RSS hash key"));
    let numbers = |line: &str| -> Option<Vec<u32>> {
        let (index, queues) = line.split_once(':')?;
        index.trim().parse::<u32>().ok()?;
        queues.split_whitespace().map(|queue| queue.parse().ok()).collect()
    };
    let table: Vec<u32> = rows.filter_map(numbers).flatten().collect();
    (!table.is_empty()).then_some(table)
}

/// Parses the output of `ethtool -n`: `Total 3 rules`.
pub(crate) fn flow_rules(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.trim().strip_prefix("Total ")?.split(' ').next()?.parse().ok())
}

/// Parses the output of `tc qdisc show`: `qdisc mq 0: root` or `qdisc mq 0: dev eth0 root`.
pub(crate) fn qdisc(text: &str, name: &str) -> Option<String> {
    let of_link = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let device = words.iter().position(|word| *word == "dev").and_then(|at| words.get(at + 1));
        words.first() == Some(&"qdisc") && words.contains(&"root") && device.is_none_or(|device| *device == name)
    };
    text.lines().take(MAX_LINES).find(of_link)?.split_whitespace().nth(1).map(str::to_owned)
}

/// Parses the output of `ethtool -S`.
pub(crate) fn statistics(text: &str) -> BTreeMap<String, u64> {
    let counter = |line: &str| {
        let (name, value) = line.rsplit_once(':')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    };
    text.lines().take(MAX_LINES).filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::{Channels, Rings};

    #[test]
    fn moderation() {
        let text = "Coalesce parameters for eth0:\nAdaptive RX: on  TX: off\nstats-block-usecs: n/a\n\nrx-usecs: 8\n\
            rx-frames: 128\nrx-usecs-irq: n/a\ntx-frame-low: 3\n\nCQE mode RX: n/a  TX: on\n";
        let all = coalesce(text).unwrap();
        assert_eq!((all.adaptive_rx, all.adaptive_tx, all.cqe_mode_tx), (Some(true), Some(false), Some(true)));
        assert_eq!(
            (all.rx_usecs, all.rx_frames, all.rx_usecs_irq, all.tx_frames_low),
            (Some(8), Some(128), None, Some(3))
        );
        assert_eq!(coalesce("netlink error: Operation not supported"), None);
        let queues = queue_coalesce("Queue: 0\nAdaptive RX: off  TX: off\nrx-usecs: 1\n\nQueue: 9\nrx-usecs: 7\n");
        assert_eq!((queues[&0].rx_usecs, queues[&9].rx_usecs), (Some(1), Some(7)));
    }

    #[test]
    fn levels_of_adaptive_moderation() {
        let text = "Adaptive RX: on  TX: off\nrx-usecs: 8\n\nrx-profile:\n{.usec =   1, .pkts = 256, .comp = n/a,},\n\
            {.usec =  64, .pkts = n/a, .comp = n/a,}\n\ntx-profile:   n/a\n";
        let levels = rx_profile(text).unwrap();
        assert_eq!(levels[0], DimLevel { usecs: 1, frames: Some(256) });
        assert_eq!((levels.len(), levels[1]), (2, DimLevel { usecs: 64, frames: None }));
        assert_eq!(rx_profile("rx-profile: n/a\ntx-profile: n/a\n"), None);
        assert_eq!(rx_profile("rx-usecs: 8\n"), None);
    }

    #[test]
    fn rings_and_channels() {
        let text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t8160\nRX Mini:\tn/a\nTX:\t\t8160\n\
            Current hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX:\t\t1024\nTX Push:\toff\n";
        let all: Rings = sizes(text).unwrap();
        assert_eq!(
            (all.rx, all.rx_max, all.tx, all.rx_mini, all.tx_push),
            (Some(512), Some(8160), Some(1024), None, Some(false))
        );
        let text = "Pre-set maximums:\nRX: n/a\nCombined: 63\nCurrent hardware settings:\nRX: n/a\nCombined: 8\n";
        let all: Channels = sizes(text).unwrap();
        assert_eq!((all.combined, all.combined_max, all.rx), (Some(8), Some(63), None));
    }

    #[test]
    fn features_by_their_kernel_names() {
        let all = features(
            "Features for eth0:\nrx-checksumming: on\ntcp-segmentation-offload: off\n\ttx-tcp-segmentation: on\n\
            generic-receive-offload: on\nlarge-receive-offload: off [fixed]\nrx-gro-hw: off [requested on]\n",
        )
        .unwrap();
        assert!(all["rx-gro"].on && all["rx-checksum"].on && all["tx-tcp-segmentation"].on);
        assert_eq!((all["rx-lro"], all["rx-gro-hw"].on), (Feature { on: false, wanted: false, fixed: true }, false));
    }

    #[test]
    fn the_other_options() {
        assert_eq!(
            pause("Autonegotiate:\ton\nRX:\t\toff\nTX:\t\ton\n"),
            Some(Pause { autoneg: true, rx: false, tx: true })
        );
        assert!(!private_flags("Private flags for x:\nlegacy-rx : off\nMFP: on\n").unwrap()["legacy-rx"]);
        let stamps = "Capabilities:\n\thardware-transmit     (SOF)\n\tsoftware-receive\nPTP Hardware Clock: 3\n";
        assert_eq!(time_stamping(stamps), Some(TimeStamping { hardware_tx: true, hardware_rx: false, phc: Some(3) }));
        assert_eq!(fec("Active FEC encoding: RS\n").as_deref(), Some("RS"));
        assert_eq!((eee("\tEEE status: disabled\n"), eee("EEE status: not supported")), (Some(false), None));
        let table = "RX flow hash indirection table for eth0 with 2 RX ring(s):\n    0:      0     1\n    8:      0     1\nRSS hash key:\n12:34\n";
        assert_eq!(indirection(table), Some(vec![0, 1, 0, 1]));
        assert_eq!(flow_rules("8 RX rings available\nTotal 2 rules\n"), Some(2));
        let qdiscs =
            "qdisc noqueue 0: dev lo root refcnt 2\nqdisc mq 0: dev eth0 root\nqdisc fq 0: dev eth0 parent :1\n";
        assert_eq!((qdisc(qdiscs, "eth0").as_deref(), qdisc(qdiscs, "eth9")), (Some("mq"), None));
        assert_eq!(statistics("NIC statistics:\n     tx_queue_0_packets: 7\n  a: b: 9\n")["tx_queue_0_packets"], 7);
        assert_eq!(
            (speed("\tSpeed: 100000Mb/s"), speed("Speed: Unknown!")),
            (Some(BitRate::new(100_000_000_000)), None)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "((Queue|RX|Adaptive RX|Pre-set maximums|Current hardware settings|Total |qdisc |Capabilities|[0-9]{1,3}): ?\\PC{0,12}\n){0,9}") {
            let _ = (coalesce(&text), rx_profile(&text), sizes::<Rings>(&text), sizes::<Channels>(&text), features(&text), pause(&text));
            let _ = (private_flags(&text), time_stamping(&text), fec(&text), eee(&text), indirection(&text));
            let _ = (flow_rules(&text), qdisc(&text, "eth0"), statistics(&text), queue_coalesce(&text), speed(&text));
        }
    }
}

//! Writes the parts of a snapshot that do not come from files. They have the form in which the usual tools print them,
//! so the same reader serves all recordings.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use crate::facts::{Coalescing, DimLevel, Ethtool, Fact, Feature, MemoryModule, Queues, Why, printed, printed_size};
use crate::nic::{Field, Numbers};

/// What ethtool would print for one interface: pairs of a command and its output.
pub(super) fn ethtool(name: &str, said: &Ethtool, queues: &Queues) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut put = |command: String, text: Option<String>| all.extend(text.map(|text| (command, text)));
    let option = |option: &str| format!("ethtool {option} {name}");
    put(option("-i"), driver(said));
    put(
        format!("ethtool {name}"),
        answered(&said.autoneg, |on| format!("Settings:\n\tAuto-negotiation: {}\n", state(*on))),
    );
    let levels = said.rx_profile.value().map_or_else(String::new, |levels| profile(levels));
    put(option("-c"), answered(&said.coalesce, |said| coalesce(said) + &levels));
    if !said.queue_coalesce.is_empty() {
        let blocks = said.queue_coalesce.iter().filter_map(|(queue, fact)| Some((queue, fact.value()?)));
        let text = blocks.map(|(queue, fact)| format!("Queue: {queue}\n{}", coalesce(fact))).collect();
        put(format!("ethtool --per-queue {name} --show-coalesce"), Some(text));
    }
    put(option("-g"), answered(&said.rings, sizes));
    put(option("-l"), answered(&said.channels, sizes));
    put(
        option("-k"),
        answered(&said.features, |all| {
            let line = |(name, feature): (&String, &Feature)| {
                let more = match feature {
                    Feature { fixed: true, .. } => " [fixed]".to_owned(),
                    Feature { on, wanted, .. } if on == wanted => String::new(),
                    Feature { wanted, .. } => format!(" [requested {}]", state(*wanted)),
                };
                format!("{name}: {}{more}\n", state(feature.on))
            };
            all.iter().map(line).collect()
        }),
    );
    put(
        option("-a"),
        answered(&said.pause, |pause| {
            format!("Autonegotiate: {}\nRX: {}\nTX: {}\n", state(pause.autoneg), state(pause.rx), state(pause.tx))
        }),
    );
    put(
        option("--show-priv-flags"),
        answered(&said.private_flags, |flags| {
            flags.iter().map(|(name, on)| format!("{name}: {}\n", state(*on))).collect()
        }),
    );
    put(
        option("-T"),
        answered(&said.time_stamping, |stamps| {
            let mut text = String::from("Capabilities:\n");
            for (has, word) in [(stamps.hardware_tx, "hardware-transmit"), (stamps.hardware_rx, "hardware-receive")] {
                text.push_str(&if has { format!("\t{word}\n") } else { String::new() });
            }
            let clock = stamps.phc.map_or_else(|| "none".to_owned(), |clock| clock.to_string());
            text + &format!("PTP Hardware Clock: {clock}\n")
        }),
    );
    put(option("--show-fec"), answered(&said.fec, |mode| format!("Active FEC encoding: {mode}\n")));
    put(
        option("--show-eee"),
        answered(&said.eee, |on| format!("EEE status: {}\n", if *on { "enabled" } else { "disabled" })),
    );
    put(
        option("-x"),
        answered(&said.rss_table, |table| {
            let row = |(n, row): (usize, &[u32])| {
                let queues: Vec<String> = row.iter().map(u32::to_string).collect();
                format!("{}: {}\n", n * 8, queues.join(" "))
            };
            table.chunks(8).enumerate().map(row).collect()
        }),
    );
    put(option("-n"), answered(&said.flow_rules, |rules| format!("Total {rules} rules\n")));
    put(format!("tc qdisc show dev {name}"), answered(&said.qdisc, |kind| format!("qdisc {kind} 0: root\n")));
    put(format!("netdev {name}"), queues.napi.value().map(|_| crate::facts::write_queues(queues)));
    all
}

/// The output for a known fact. If the driver does not support the query, the output is an error; if the fact is
/// unknown for another reason, there is none.
fn answered<T>(fact: &Fact<T>, write: impl FnOnce(&T) -> String) -> Option<String> {
    match fact {
        Fact::Known { value, .. } => Some(write(value)),
        Fact::Missing { why: Why::Unsupported(why), .. } => Some(format!("error: {why}\n")),
        Fact::Missing { why: Why::Absent, .. } => Some("error: not supported\n".to_owned()),
        Fact::Missing { .. } => None,
    }
}

const fn state(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn driver(said: &Ethtool) -> Option<String> {
    let name = said.driver.value()?;
    let mut text = format!("driver: {name}\n");
    let more = [("version", &said.driver_version), ("firmware-version", &said.firmware), ("bus-info", &said.bus)];
    for (key, fact) in more {
        if let Some(value) = fact.value() {
            text.push_str(&format!("{key}: {value}\n"));
        }
    }
    Some(text)
}

fn or_none<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| value.to_string())
}

fn coalesce(said: &Coalescing) -> String {
    let on = |value: Option<bool>| or_none(value.map(state));
    let mut text = format!("Adaptive RX: {}  TX: {}\n", on(said.adaptive_rx), on(said.adaptive_tx));
    for field in Coalescing::FIELDS {
        if let Some(name) = printed(field) {
            text.push_str(&format!("{name}: {}\n", or_none(said.get(field))));
        }
    }
    text + &format!("CQE mode RX: {}  TX: {}\n", on(said.cqe_mode_rx), on(said.cqe_mode_tx))
}

fn profile(levels: &[DimLevel]) -> String {
    let line =
        |level: &DimLevel| format!("{{.usec = {}, .pkts = {}, .comp = n/a,}},\n", level.usecs, or_none(level.frames));
    format!("\nrx-profile:\n{}", levels.iter().map(line).collect::<String>())
}

fn sizes<G: Numbers>(said: &G) -> String {
    let line = |field: &Field, number: Option<u64>| {
        let name = printed_size(field);
        match field.name {
            "tx-push" | "rx-push" => format!("{name}: {}\n", or_none(number.map(|on| state(on != 0)))),
            "tcp-data-split" => format!("{name}: {}\n", or_none(number.map(|split| state(split > 1)))),
            _ => format!("{name}: {}\n", or_none(number)),
        }
    };
    let bounded = G::FIELDS.iter().filter(|field| field.most.is_some());
    let most: String = bounded.map(|field| line(field, said.most(field))).collect();
    let now: String = G::FIELDS.iter().map(|field| line(field, said.get(field))).collect();
    format!("Pre-set maximums:\n{most}Current hardware settings:\n{now}")
}

/// Writes the counters in the form of `ethtool -S`.
pub(super) fn statistics(counts: &BTreeMap<String, u64>) -> String {
    let line = |(name, count): (&String, &u64)| format!("     {name}: {count}\n");
    format!("NIC statistics:\n{}", counts.iter().map(line).collect::<String>())
}

/// Writes the memory modules in the form of `dmidecode -t 17`, without serial numbers.
pub(super) fn modules(modules: &[MemoryModule]) -> String {
    let mut text = String::new();
    for module in modules {
        let size =
            module.size_bytes.map_or_else(|| "No Module Installed".to_owned(), |size| format!("{} MB", size >> 20));
        let speed = |speed: Option<u32>| speed.map_or_else(|| "Unknown".to_owned(), |speed| format!("{speed} MT/s"));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "Memory Device\n\tSize: {size}\n\tLocator: {}\n\tBank Locator: {}\n\tSpeed: {}\n\tConfigured Memory Speed: {}\n\n",
            module.locator,
            module.bank,
            speed(module.speed_mts),
            speed(module.configured_mts)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::facts::{Channels, Facts, Napi, Pause, Rings, Root, TimeStamping, mangled};

    use super::*;

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let fact = |name: &str| format!("ethtool {name} eth0");
        let said = Ethtool {
            driver: Fact::known("ice".into(), fact("-i").as_str()),
            firmware: Fact::known("4.40 0x8001c967".into(), fact("-i").as_str()),
            coalesce: Fact::known(
                Coalescing {
                    rx_usecs: Some(50),
                    adaptive_rx: Some(true),
                    tx_frames_high: Some(3),
                    ..Coalescing::default()
                },
                fact("-c").as_str(),
            ),
            rx_profile: Fact::known(
                vec![DimLevel { usecs: 1, frames: Some(256) }, DimLevel { usecs: 8, frames: None }],
                "c",
            ),
            queue_coalesce: BTreeMap::from([(
                1,
                Fact::known(Coalescing { tx_usecs: Some(8), ..Coalescing::default() }, "q"),
            )]),
            rings: Fact::known(
                Rings {
                    rx: Some(2048),
                    tx_max: Some(8160),
                    tcp_data_split: Some(2),
                    rx_push: Some(false),
                    ..Rings::default()
                },
                "g",
            ),
            channels: Fact::known(Channels { combined: Some(8), combined_max: Some(64), ..Channels::default() }, "l"),
            features: Fact::known(
                BTreeMap::from([
                    ("rx-gro".to_owned(), Feature { on: true, wanted: true, fixed: true }),
                    ("rx-lro".to_owned(), Feature { on: false, wanted: true, fixed: false }),
                ]),
                "k",
            ),
            pause: Fact::known(Pause { autoneg: true, rx: false, tx: true }, "a"),
            private_flags: Fact::known(BTreeMap::from([("legacy-rx".to_owned(), true)]), "p"),
            time_stamping: Fact::known(TimeStamping { hardware_tx: true, hardware_rx: true, phc: Some(2) }, "T"),
            fec: Fact::known("RS".into(), "f"),
            eee: Fact::missing(Why::Unsupported("Operation not supported (os error 95)".into()), "e"),
            rss_table: Fact::known((0..20).map(|n| n % 8).collect(), "x"),
            flow_rules: Fact::known(3, "n"),
            qdisc: Fact::known("mq".into(), "q"),
            autoneg: Fact::known(false, "s"),
            ..Ethtool::default()
        };
        let napi = Napi { id: 8193, irq: Some(71), ..Napi::default() };
        let queues = Queues { irqs: Vec::new(), napi: Fact::known(vec![napi], "netlink") };
        let outputs = ethtool("eth0", &said, &queues);
        let files = outputs.iter().map(|(command, text)| (format!("commands/{}", mangled(command)), text.clone()));
        let facts = Facts::read(&Root::given(files));
        let link = facts.link("eth0").unwrap();
        assert_eq!(link.driver.value(), said.driver.value());
        assert_eq!(link.firmware.value(), said.firmware.value());
        assert_eq!(link.coalesce.value(), said.coalesce.value());
        assert_eq!(link.rx_profile.value(), said.rx_profile.value());
        assert_eq!(link.queue_coalesce[&1].value(), said.queue_coalesce[&1].value());
        assert_eq!(link.rings.value(), said.rings.value());
        assert_eq!(link.channels.value(), said.channels.value());
        assert_eq!(link.features.value(), said.features.value());
        assert_eq!(link.pause.value(), said.pause.value());
        assert_eq!(link.private_flags.value(), said.private_flags.value());
        assert_eq!(link.time_stamping.value(), said.time_stamping.value());
        assert_eq!((link.fec.value(), link.rss_table.value()), (said.fec.value(), said.rss_table.value()));
        assert!(matches!(link.eee.why(), Some(Why::Unsupported(why)) if why.contains("not supported")));
        assert_eq!((link.flow_rules.get(), link.qdisc.value().map(String::as_str)), (Some(3), Some("mq")));
        assert_eq!((link.autoneg.get(), link.napi.value()), (Some(false), Some(&vec![napi])));
    }

    #[test]
    fn memory_modules_are_read_back_the_same() {
        let module = MemoryModule {
            locator: "A1".into(),
            bank: "BANK 0".into(),
            size_bytes: Some(32 << 30),
            speed_mts: Some(3200),
            configured_mts: Some(2933),
        };
        let all = vec![module, MemoryModule { locator: "A2".into(), ..MemoryModule::default() }];
        let facts = Facts::read(&Root::given([("commands/dmidecode_-t_17", modules(&all))]));
        assert_eq!(facts.memory.modules.value(), Some(&all));
    }
}

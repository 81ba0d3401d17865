//! Network interfaces: `/sys/class/net`, and what ethtool reports about them.

use std::collections::{BTreeMap, BTreeSet};

use units::BitRate;

use super::ethtool::{self, Ethtool};
use super::queue_irqs;
use crate::facts::pci::is_address;
use crate::facts::{Context, Fact, Irqs, Link, Root, RxQueue, Source, TxQueue, Why, is_interface_name, live};
use crate::nic::{Client, Interface};

const PLACE: &str = "sys/class/net";
/// Maximum number of interfaces that are read.
const MAX_LINKS: usize = 1024;
/// Maximum number of queues of an interface that are read.
const MAX_QUEUES: usize = 4096;

pub(super) fn read(context: &Context, irqs: &Irqs) -> Fact<Vec<Link>> {
    let root = context.root;
    let listed = root.list(PLACE);
    let mut names: BTreeSet<String> = listed.value().cloned().unwrap_or_default().into_iter().collect();
    // Reports of sos contain the tool's output instead of the files.
    names.extend(root.commands_like("ethtool -i "));
    names.remove("bonding_masters");
    names.retain(|name| is_interface_name(name));
    let links = |names: BTreeSet<String>| -> Vec<Link> {
        let mut client = context.is_live().then(Client::new);
        names.into_iter().take(MAX_LINKS).map(|name| link(context, client.as_mut(), irqs, name)).collect()
    };
    match listed {
        Fact::Missing { why, source } if names.is_empty() => Fact::missing(why, source),
        Fact::Missing { .. } => Fact::known(links(names), "ethtool -i"),
        Fact::Known { source, .. } => Fact::known(links(names), source),
    }
}

fn link(context: &Context, client: Option<&mut Client>, irqs: &Irqs, name: String) -> Link {
    let root = context.root;
    let place = format!("{PLACE}/{name}");
    let text = |file: &str| root.text(&format!("{place}/{file}"));
    let index = root.number::<u32>(&format!("{place}/ifindex"));
    let (ethtool, queues) = match (client, index.get()) {
        (Some(client), Some(index)) => {
            let interface = Interface::new(name.as_str(), index);
            (live::ethtool(client, &interface), live::queues(client, &interface))
        }
        _ => (ethtool::recorded(root, &name), queue_irqs::recorded(root, &name)),
    };
    let Ethtool {
        driver,
        driver_version,
        firmware,
        bus,
        speed,
        duplex,
        autoneg,
        coalesce,
        rx_profile,
        queue_coalesce,
        rings,
        channels,
        features,
        pause,
        private_flags,
        time_stamping,
        fec,
        eee,
        rss_table,
        flow_rules,
        qdisc,
    } = ethtool;
    let device = root.link_target(&place);
    let pci = pci(root, &place, &device, &bus);
    let driver = driver.or_else(|| root.link_name(&format!("{place}/device/driver")));
    let virtio = root.link_name(&format!("{place}/device")).into_value();
    let queue_irqs = match queues.irqs.is_empty() {
        false => queues.irqs,
        true => queue_irqs::by_names(irqs, &name, pci.value().map(String::as_str), virtio.as_deref()),
    };
    Link {
        driver,
        driver_version,
        firmware,
        kind: root.number(&format!("{place}/type")),
        mtu: root.number(&format!("{place}/mtu")),
        tx_queue_len: root.number(&format!("{place}/tx_queue_len")),
        operstate: text("operstate"),
        carrier: root.switch(&format!("{place}/carrier")),
        carrier_changes: root.number(&format!("{place}/carrier_changes")),
        speed: megabits(text("speed")).or_else(|| speed),
        duplex: text("duplex").or_else(|| duplex),
        autoneg,
        node: numa_node(root, &place, &pci),
        coalesce,
        rx_profile,
        queue_coalesce,
        rings,
        channels,
        features,
        pause,
        private_flags,
        time_stamping,
        fec,
        eee,
        rss_table,
        flow_rules,
        qdisc,
        rx_queues: rx_queues(root, &place),
        tx_queues: tx_queues(root, &place),
        queue_irqs,
        napi: queues.napi,
        defer_hard_irqs: root.number(&format!("{place}/napi_defer_hard_irqs")),
        gro_flush_timeout_ns: root.number(&format!("{place}/gro_flush_timeout")),
        threaded: root.text(&format!("{place}/threaded")).map(|text| text != "0"),
        pci,
        name,
    }
}

/// The NUMA node of an interface's device, or of the PCI device below it (virtio).
fn numa_node(root: &Root, place: &str, pci: &Fact<String>) -> Fact<Option<u32>> {
    let read = |path: String| root.number::<i64>(&path).map(|node| u32::try_from(node).ok());
    let below = || match pci.value() {
        Some(address) => read(format!("sys/bus/pci/devices/{address}/numa_node")),
        None => Fact::not_recorded(format!("/{place}/device/numa_node").as_str()),
    };
    read(format!("{place}/device/numa_node")).or_else(below)
}

/// Parses a link speed in Mbit/s. -1 and impossible values mean that the speed is unknown (net/ethtool:
/// `SPEED_UNKNOWN`).
fn megabits(text: Fact<String>) -> Fact<BitRate> {
    let source = text.source().clone();
    match text.parse(|text| text.parse::<i64>()) {
        Fact::Known { value, source } => {
            match u64::try_from(value).ok().filter(|mega| *mega > 0 && *mega < u32::MAX.into()) {
                Some(mega) => Fact::known(BitRate::new(mega * 1_000_000), source),
                None => Fact::absent(source),
            }
        }
        // Reading the file fails with EINVAL while the link is down.
        Fact::Missing { why: Why::Unsupported(_), .. } => Fact::absent(source),
        Fact::Missing { why, source } => Fact::missing(why, source),
    }
}

/// The PCI address of an interface's device: from its device link, or from the driver's bus information.
fn pci(root: &Root, place: &str, device: &Fact<String>, bus: &Fact<String>) -> Fact<String> {
    let source = Source::new(format!("/{place}"));
    let on_way = |target: &String| target.rsplit('/').find(|part| is_address(part)).map(str::to_owned);
    if let Fact::Known { value, .. } = device {
        return match on_way(value) {
            Some(address) => Fact::known(address, source),
            None => Fact::absent(source),
        };
    }
    let from_bus = bus.clone().and_then(|bus| match is_address(&bus) {
        true => Fact::known(bus, "ethtool -i"),
        false => Fact::absent("ethtool -i"),
    });
    from_bus.or_else(|| {
        root.link_name(&format!("{place}/device")).parse(|name| match is_address(&name) {
            true => Ok(name),
            false => Err("its device is no PCI device"),
        })
    })
}

fn rx_queues(root: &Root, place: &str) -> Vec<RxQueue> {
    let queues = format!("{place}/queues");
    let read = |index| RxQueue {
        index,
        rps_cpus: root.cpu_mask(&format!("{queues}/rx-{index}/rps_cpus")),
        rps_flow_cnt: root.number(&format!("{queues}/rx-{index}/rps_flow_cnt")),
    };
    root.numbered(&queues, "rx-").into_iter().take(MAX_QUEUES).map(read).collect()
}

fn tx_queues(root: &Root, place: &str) -> Vec<TxQueue> {
    let queues = format!("{place}/queues");
    let read = |index| TxQueue { index, xps_cpus: root.cpu_mask(&format!("{queues}/tx-{index}/xps_cpus")) };
    root.numbered(&queues, "tx-").into_iter().take(MAX_QUEUES).map(read).collect()
}

/// The counters of all interfaces by name. The names of the driver's own counters begin with `ethtool.`.
pub(super) fn statistics(context: &Context, place: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let root = context.root;
    let names = root.list(&format!("{place}{PLACE}")).into_value().unwrap_or_default();
    let mut client = Client::new();
    let mut all = BTreeMap::new();
    for name in names.into_iter().filter(|name| name != "bonding_masters").take(MAX_LINKS) {
        let folder = format!("{place}{PLACE}/{name}/statistics");
        let files = root.list(&folder).into_value().unwrap_or_default();
        let mut counts: BTreeMap<String, u64> = files
            .into_iter()
            .filter_map(|file| Some((file.clone(), root.number(&format!("{folder}/{file}")).get()?)))
            .collect();
        let driver = match context.is_live() {
            true => live::statistics(&mut client, &name),
            false => ethtool::recorded_statistics(root, place, &name),
        };
        counts.extend(driver.into_iter().map(|(counter, n)| (format!("ethtool.{counter}"), n)));
        all.insert(name, counts);
    }
    if all.is_empty() {
        for name in root.commands_like("ethtool -S ") {
            let driver = ethtool::recorded_statistics(root, place, &name);
            all.insert(name, driver.into_iter().map(|(counter, n)| (format!("ethtool.{counter}"), n)).collect());
        }
    }
    all
}

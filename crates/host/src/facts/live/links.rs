//! Facts about an interface, from the kernel and the driver.

use std::collections::BTreeMap;

use super::attempt;
use crate::facts::read::{Ethtool, Queues};
use crate::facts::{Channels, Fact, Pause, QueueIrq, Rings, Source, Why};
use crate::nic::{self, Client, Direction, Interface};

/// Maximum number of queues of an interface that are queried one by one.
const MAX_QUEUES: u32 = 4096;

/// Turns the result of a request into a fact.
fn asked<T>(result: Result<T, nic::Error>, source: impl Into<Source>) -> Fact<T> {
    attempt(result.map_err(|error| error.as_io()), source)
}

/// The ethtool settings of an interface.
pub(crate) fn ethtool(client: &mut Client, interface: &Interface) -> Ethtool {
    let name = interface.name();
    let named = |option: &str| Source::new(format!("ethtool {option} {name}"));
    let info = asked(client.driver(interface), named("-i"));
    let part = |get: fn(&nic::Driver) -> &str| {
        info.as_ref().and_then(|info| match get(info) {
            "" | "N/A" => Fact::absent(named("-i")),
            text => Fact::known(text.to_owned(), named("-i")),
        })
    };
    let channels = asked(client.get::<Channels>(interface), named("-l"));
    let of_queues = queues_of(&channels).map(|queues| client.queues_coalescing(interface, queues));
    let of_queues = of_queues.and_then(Result::ok).unwrap_or_default();
    Ethtool {
        driver: part(|info| &info.name),
        driver_version: part(|info| &info.version),
        firmware: part(|info| &info.firmware),
        bus: part(|info| &info.bus),
        speed: Fact::not_recorded(named("")),
        duplex: Fact::not_recorded(named("")),
        autoneg: asked(client.autoneg(interface), named("")),
        coalesce: asked(client.get(interface), named("-c")),
        rx_profile: match client.rx_profile(interface) {
            Ok(levels) if levels.is_empty() => {
                Fact::missing(Why::Unsupported("not supported: no levels are told".into()), named("-c"))
            }
            levels => asked(levels, named("-c")),
        },
        queue_coalesce: (0..).zip(of_queues.into_iter().map(|all| Fact::known(all, named("--per-queue")))).collect(),
        rings: asked(client.get(interface), named("-g")).map(shown),
        channels,
        features: asked(client.features(interface), named("-k")),
        pause: asked(client.get(interface), named("-a")).and_then(|pause: nic::Pause| match pause {
            nic::Pause { autoneg, rx: Some(rx), tx: Some(tx) } => {
                Fact::known(Pause { autoneg: autoneg.unwrap_or(false), rx, tx }, named("-a"))
            }
            _ => Fact::missing(Why::Unsupported("not supported".into()), named("-a")),
        }),
        private_flags: asked(client.private_flags(interface), named("--show-priv-flags")),
        time_stamping: asked(client.time_stamping(interface), named("-T")),
        fec: asked(client.fec(interface), named("--show-fec")).and_then(|mode| match mode {
            Some(mode) => Fact::known(mode, named("--show-fec")),
            None => Fact::absent(named("--show-fec")),
        }),
        eee: asked(client.eee(interface), named("--show-eee")),
        rss_table: asked(client.rss_table(interface), named("-x")),
        flow_rules: asked(client.flow_rules(interface), named("-n")),
        qdisc: asked(client.qdisc(interface), Source::new(format!("ip link show {name}"))),
    }
}

/// Removes ring sizes and modes that are 0: a 0 means that the driver does not support them.
fn shown(rings: Rings) -> Rings {
    Rings {
        rx_buf_len: rings.rx_buf_len.filter(|len| *len > 0),
        cqe_size: rings.cqe_size.filter(|size| *size > 0),
        tcp_data_split: rings.tcp_data_split.filter(|split| *split > 0),
        ..rings
    }
}

/// The number of an interface's queues. `None` if it is unknown, 0, or more than [`MAX_QUEUES`].
fn queues_of(channels: &Fact<Channels>) -> Option<u32> {
    let channels = channels.get()?;
    let count = |n: Option<u32>| n.unwrap_or(0);
    let queues = count(channels.combined).saturating_add(count(channels.rx).max(count(channels.tx)));
    (1..=MAX_QUEUES).contains(&queues).then_some(queues)
}

/// The queues of an interface, with their NAPI instances and interrupts.
pub(crate) fn queues(client: &mut Client, interface: &Interface) -> Queues {
    let napis = client.napis(interface);
    let irq = |id: u32| napis.as_ref().ok()?.iter().find(|napi| napi.id == id)?.irq;
    let mut irqs: BTreeMap<(u32, u32), QueueIrq> = BTreeMap::new();
    for queue in client.queues(interface).unwrap_or_default() {
        let Some(irq) = queue.napi.and_then(irq) else { continue };
        let new = QueueIrq { queue: queue.number, irq, rx: false, tx: false };
        let entry = irqs.entry((queue.number, irq)).or_insert(new);
        match queue.direction {
            Direction::Rx => entry.rx = true,
            Direction::Tx => entry.tx = true,
        }
    }
    Queues { irqs: irqs.into_values().collect(), napi: asked(napis, "netlink netdev napi-get") }
}

/// The driver's own counters. Empty if the driver has none.
pub(crate) fn statistics(client: &mut Client, name: &str) -> BTreeMap<String, u64> {
    client.interface(name).and_then(|interface| client.driver_statistics(&interface)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface supports software timestamps. The reply shows the timestamps only if the request was
    /// correct.
    #[test]
    fn the_loopback_says_how_it_stamps() {
        let mut client = Client::new();
        let loopback = client.interface("lo").unwrap();
        let said = ethtool(&mut client, &loopback);
        let stamps = said.time_stamping.value().unwrap_or_else(|| panic!("{:?}", said.time_stamping));
        assert!(!stamps.hardware_tx && !stamps.hardware_rx && stamps.phc.is_none());
        assert!(matches!(said.coalesce.why(), Some(Why::Unsupported(why)) if why.starts_with("Operation not")));
    }
}

//! Rules on the PCI Express link: its data rate and its packet sizes.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::PciDevice;

use crate::rules::interfaces::{by_device, carries, gigabits, path};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

const DPDK: &str = "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms";
const TUNE: &str = "Mellanox mlnx-tools, mlnx_tune";
const SPEC: &str = "PCI Express Base Specification 5.0";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "pci.link",
        cause: Cause::PcieBandwidth,
        title: "The card's PCI Express link runs at its full speed and width",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: link,
        why: "Each frame crosses this link. A link that came up slower or narrower than the card supports takes longer \
              for each frame, and drops frames if it carries less than the port.",
        magnitude: Magnitude::untimed(
            "a frame of 1500 bytes takes 0.19 us over 8 lanes of generation 3, 1.5 us over one; below the port's \
                   rate all later frames wait or are lost",
            "arithmetic from the link's rate and code (PCI Express Base Specification, 4.2)",
        ),
        fix: Fix::boot(
            "reseat the card or use another slot; firmware settings: link speed Auto, bifurcation as the slot is \
             wired",
        ),
        cost: "Another card may need the slot.",
        references: &[DPDK, TUNE, "FlexRAN real-time platform slides (2018)"],
    },
    Rule {
        id: "pci.two-ports-one-slot",
        cause: Cause::PcieBandwidth,
        title: "A slot carries what all ports of its card can receive",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: shared,
        why: "The ports of one card share its link: 8 lanes of generation 3 carry 63 Gbit/s before headers, which is not \
         enough for two ports of 40 Gbit/s.",
        magnitude: Magnitude::untimed(
            "frames wait in the card and are dropped there, although each port alone is below its rate",
            "DPDK guide, older editions, How to get best performance with NICs on Intel platforms: one 40G port per card",
        ),
        fix: Fix::boot("use only one port per card, or put the card in a wider slot"),
        cost: "You need a second card.",
        references: &[DPDK],
    },
    Rule {
        id: "pci.mps",
        cause: Cause::PcieBandwidth,
        title: "PCI Express packets are as large as the whole path supports",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: payload,
        why: "A frame is cut into packets of at most MaxPayload bytes, each with a header of its own. The smallest \
              limit on the path decides.",
        magnitude: Magnitude::untimed(
            "about 20 to 24 bytes of header for each 128 or 256 bytes of data: 16 % or 9 % of the link",
            "PCI Express Base Specification, 2.2 (headers) and 7.5.3.4 (Device Control); the percentages follow by arithmetic",
        ),
        fix: Fix::boot("pci=pcie_bus_safe (the largest that all can take) or pci=pcie_bus_perf"),
        cost: "pcie_bus_perf breaks transfers between devices below different ports.",
        references: &["Linux Documentation/admin-guide/kernel-parameters.txt, pci=", TUNE],
    },
    Rule {
        id: "pci.mrrs",
        cause: Cause::PcieBandwidth,
        title: "The card may read 512 bytes or more at once",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: read_request,
        why: "The card fetches descriptors and frames to be sent with read requests of at most this size. Each request \
         is a round trip to memory.",
        magnitude: Magnitude::untimed(
            "about 1 us per round trip; with reads of 128 bytes, a frame of 1500 bytes needs 12 of them instead \
                   of 3",
            "the round trip is general knowledge; DPDK guide for mlx4 and mlx5, Performance tuning, asks for 1024",
        ),
        fix: Fix::boot("set bits 14:12 of the card's Device Control register to 2 (512 bytes) or 3 (1024 bytes)")
            .after("setpci -s {device} CAP_EXP+8.w"),
        cost: "A card that reads much at once delays others.",
        references: &["DPDK guide, nics/mlx5, Performance tuning", TUNE, "PCI Express Base Specification, 7.5.3.4"],
    },
    Rule {
        id: "pci.extended-tag",
        cause: Cause::PcieBandwidth,
        title: "The card may have more than 32 outstanding reads",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: tags,
        why: "Without extended tags a device can have at most 32 outstanding reads, then it waits for the first answer.",
        magnitude: Magnitude::untimed(
            "32 reads of 512 bytes in each microsecond are 131 Gbit/s: enough up to 100G, but a limit if reads \
                   are small or memory is far away",
            "PCI Express Base Specification, 2.2.6.2 (Tag field); the rate follows by arithmetic from a round trip of 1 us",
        ),
        fix: Fix::boot(
            "firmware settings: PCIe extended tag enabled (the kernel switches it on where the whole path can)",
        ),
        cost: "None known; a few old bridges fail with it.",
        references: &[SPEC, "Intel Ethernet 700 Series Linux performance tuning guide (334019)"],
    },
];

/// Share of the link's data rate, in percent, that is available for frames; headers and flow control take the rest.
/// This is an estimate, on which the guides of DPDK and of NIC vendors agree for packets of 256 octets.
const LEFT_FOR_FRAMES: u64 = 90;
/// Read request size, in octets, below which requests are small. It is the value after a reset (PCI Express).
const READ_REQUEST: u32 = 512;
/// The read request size, in octets, that DPDK's guides for mlx4 and mlx5 recommend.
const READ_REQUEST_OF_MLX: u32 = 1024;

/// The rate of the fastest port of a device, in bits per second.
fn port_rate(facts: &Facts, device: &PciDevice) -> Option<u64> {
    let links = device.interfaces.iter().filter_map(|name| facts.link(name));
    let under = facts
        .links
        .value()
        .into_iter()
        .flatten()
        .filter(|link| link.pci.is(|pci| *pci == device.address) == Some(true));
    links.chain(under).filter_map(|link| link.speed.get()).map(|speed| speed.as_bps()).max()
}

fn link(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let (speed, width) = (*known(&device.speed_mts)?, *known(&device.width)?);
        let (max_speed, max_width) = (*known(&device.max_speed_mts)?, *known(&device.max_width)?);
        let (now, capable) = (carries(speed, width), carries(max_speed, max_width));
        let text = |mts: u32, lanes: u32| format!("{}.{} GT/s x{lanes}", mts / 1000, mts / 100 % 10);
        let port = port_rate(facts, device);
        let needs = port.map_or(String::new(), |port| format!(", and its port needs {}", gigabits(port)));
        let judgement = if port.is_some_and(|port| port > now / 100 * LEFT_FOR_FRAMES) {
            Judgement::fail(format!("the link carries {}{needs}", gigabits(now)))
        } else if speed < max_speed || width < max_width {
            let found = format!("the link carries {} of {}{needs}", gigabits(now), gigabits(capable));
            Judgement::warn(found)
        } else {
            Judgement::pass(format!("the link carries all that the card can: {}", gigabits(now)))
        };
        Ok(judgement
            .see_as(text(speed, width), device.speed_mts.source())
            .see_as(format!("capable of {}", text(max_speed, max_width)), device.max_speed_mts.source()))
    })
}

/// The PCI address of the card to which a device belongs: the device's address without the function number.
fn card(device: &PciDevice) -> &str {
    device.address.rsplit_once('.').map_or(device.address.as_str(), |(card, _)| card)
}

fn shared(facts: &Facts, context: &Context) -> Judged {
    known(&facts.pci.devices)?;
    known(&facts.links)?;
    let mut cards: BTreeMap<&str, Vec<&PciDevice>> = BTreeMap::new();
    for link in context.links(facts) {
        let Some(device) = link.pci.value().and_then(|address| facts.pci.device(address)) else { continue };
        let ports = facts.pci.iter().filter(|other| {
            card(other) == card(device) && other.physical_function.is_none() && other.is_network() == Some(true)
        });
        cards.entry(card(device)).or_insert_with(|| ports.collect());
    }
    let mut judgements = Vec::new();
    for (card, ports) in cards.into_iter().filter(|(_, ports)| ports.len() > 1) {
        let subject = Subject::Device(card.to_owned());
        let rates: Vec<u64> = ports.iter().filter_map(|port| port_rate(facts, port)).collect();
        let judged = known(&ports[0].speed_mts).and_then(|speed| Ok((*speed, *known(&ports[0].width)?)));
        let (speed, width) = match judged {
            Ok(link) => link,
            Err(skip) => {
                judgements.push(Judgement::skipped(subject, skip));
                continue;
            }
        };
        if rates.is_empty() {
            judgements.push(Judgement::skipped(subject, Skip::unknown("the speed of its ports is not known")));
            continue;
        }
        let (now, need) = (carries(speed, width), rates.iter().sum::<u64>());
        let found =
            format!("{} ports with {} together on a link that carries {}", rates.len(), gigabits(need), gigabits(now));
        let judgement = match need > now / 100 * LEFT_FOR_FRAMES {
            true => Judgement::warn_for(subject, found),
            false => Judgement::pass_for(subject, found),
        };
        judgements.push(judgement.see_as(format!("{speed} MT/s, {width} lanes"), ports[0].speed_mts.source()));
    }
    match judgements.is_empty() {
        true if context.links(facts).all(|link| link.pci.is_unknown()) => {
            Err(Skip::unknown("it is not known which PCI devices the interfaces are"))
        }
        true => Err(Skip::not_applicable("no card has two ports")),
        false => Ok(judgements),
    }
}

fn payload(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let now = *known(&device.max_payload)?;
        known(&device.max_payload_capable)?;
        let path = path(facts, device);
        let capable = path.iter().filter_map(|port| port.max_payload_capable.get()).min().unwrap_or(now);
        let others: Vec<u32> = path.iter().filter_map(|port| port.max_payload.get()).collect();
        let judgement = if others.iter().any(|other| *other < now) {
            let lowest = others.iter().min().copied().unwrap_or(now);
            Judgement::fail(format!("the card sends {now} bytes at once, but a port above it accepts {lowest}"))
        } else if now < capable {
            Judgement::warn(format!("{now} bytes at once, although the whole path supports {capable}"))
        } else {
            Judgement::pass(format!("{now} bytes at once, the most that the path supports"))
        };
        let list: Vec<String> = path.iter().map(|port| format!("{} {}", port.address, port.max_payload)).collect();
        Ok(judgement.see_as(list.join(", "), device.max_payload.source()))
    })
}

fn read_request(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let now = *known(&device.max_read_request)?;
        let mlx = device.driver.is(|driver| driver.starts_with("mlx")) == Some(true);
        let wanted = if mlx { READ_REQUEST_OF_MLX } else { READ_REQUEST };
        let judgement = match now >= wanted {
            true => Judgement::pass(format!("the card reads up to {now} bytes at once")),
            false => Judgement::warn(format!("the card reads up to {now} bytes at once, not {wanted}")),
        };
        Ok(judgement.see(&device.max_read_request))
    })
}

fn tags(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let judgement = match *known(&device.extended_tag)? {
            true => Judgement::pass("up to 256 reads can be outstanding"),
            false => Judgement::warn("at most 32 reads can be outstanding"),
        };
        let judgement = judgement.see_whether(&device.extended_tag, "extended tags on", "extended tags off");
        Ok(match device.relaxed_ordering.get() {
            Some(on) => judgement.see_as(
                format!("relaxed ordering {}", if on { "on" } else { "off" }),
                device.relaxed_ordering.source(),
            ),
            None => judgement,
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{Case, Host, host};

    const PLACE: &str = "/sys/bus/pci/devices/0000:3b:00.0";

    /// An interface of 10 Gbit/s on a device of which nothing else is known.
    pub(crate) fn card() -> Host {
        host()
            .nic("eth0")
            .file(&format!("{PLACE}/class"), "0x020000\n")
            .file(&format!("{PLACE}/net/eth0/mtu"), "1500\n")
            .command("ethtool -i eth0", "driver: i40e\nbus-info: 0000:3b:00.0\n")
            .command("ethtool eth0", "\tSpeed: 10000Mb/s\n")
    }

    fn at(speed: &str, width: &str) -> Host {
        card()
            .file(&format!("{PLACE}/current_link_speed"), &format!("{speed} GT/s PCIe\n"))
            .file(&format!("{PLACE}/current_link_width"), &format!("{width}\n"))
            .file(&format!("{PLACE}/max_link_speed"), "8.0 GT/s PCIe\n")
            .file(&format!("{PLACE}/max_link_width"), "8\n")
    }

    fn two_ports(speed: &str) -> Host {
        at("8.0", "8")
            .file("/sys/bus/pci/devices/0000:3b:00.1/class", "0x020000\n")
            .command("ethtool -i eth1", "driver: i40e\nbus-info: 0000:3b:00.1\n")
            .command("ethtool eth1", &format!("\tSpeed: {speed}Mb/s\n"))
            .command("ethtool eth0", &format!("\tSpeed: {speed}Mb/s\n"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("pci.link", || at("8.0", "8")),
        Case::warn("pci.link", || at("8.0", "4")),
        Case::fail("pci.link", || at("2.5", "4")),
        Case::unknown("pci.link", card),
        Case::not_applicable("pci.link", || at("8.0", "4").guest()),
        Case::pass("pci.two-ports-one-slot", || two_ports("10000")),
        Case::warn("pci.two-ports-one-slot", || two_ports("40000")),
        Case::unknown("pci.two-ports-one-slot", || host().nic("eth0")),
        Case::not_applicable("pci.two-ports-one-slot", || at("8.0", "8")),
        Case::pass("pci.mps", || card().edit(|facts| payloads(facts, 256, 256))),
        Case::warn("pci.mps", || card().edit(|facts| payloads(facts, 128, 256))),
        Case::unknown("pci.mps", card),
        Case::pass("pci.mrrs", || card().edit(|facts| device(facts).max_read_request = of(512))),
        Case::warn("pci.mrrs", || card().edit(|facts| device(facts).max_read_request = of(128))),
        Case::unknown("pci.mrrs", card),
        Case::pass("pci.extended-tag", || card().edit(|facts| device(facts).extended_tag = of(true))),
        Case::warn("pci.extended-tag", || card().edit(|facts| device(facts).extended_tag = of(false))),
        Case::unknown("pci.extended-tag", card),
    ];

    pub(crate) fn of<T>(value: T) -> host::Fact<T> {
        host::Fact::known(value, "a case")
    }

    pub(crate) fn device(facts: &mut Facts) -> &mut PciDevice {
        match &mut facts.pci.devices {
            host::Fact::Known { value, .. } => value.first_mut().expect("the case has a device"),
            host::Fact::Missing { .. } => panic!("the case has no device"),
        }
    }

    fn payloads(facts: &mut Facts, now: u32, capable: u32) {
        device(facts).max_payload = of(now);
        device(facts).max_payload_capable = of(capable);
    }

    #[test]
    fn a_card_that_sends_more_than_its_port_takes_fails() {
        let host = card().edit(|facts| {
            payloads(facts, 256, 512);
            let mut port = PciDevice { address: "0000:3a:00.0".into(), ..PciDevice::default() };
            (port.max_payload, port.max_payload_capable) = (of(128), of(256));
            device(facts).upstream = Some(port.address.clone());
            if let host::Fact::Known { value, .. } = &mut facts.pci.devices {
                value.push(port);
            }
        });
        let judgements = host.judge("pci.mps");
        assert_eq!(judgements[0].verdict, crate::Verdict::Fail, "{judgements:?}");
        assert!(judgements[0].found.contains("accepts 128"), "{judgements:?}");
    }

    #[test]
    fn a_narrow_link_is_told_with_what_the_port_needs() {
        let judgements = at("8.0", "4").judge("pci.link");
        assert_eq!(judgements[0].found, "the link carries 31.5 Gbit/s of 63.0 Gbit/s, and its port needs 10.0 Gbit/s");
    }
}

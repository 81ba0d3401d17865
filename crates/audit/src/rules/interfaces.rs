//! Helpers for the judges of network interfaces and their devices.

use std::collections::{BTreeMap, BTreeSet};

use host::Facts;
use host::facts::{Fact, Irq, Link, PciDevice, Why};
use units::{BitRate, Nanos};

use crate::rules::interrupts::carries_name;
use crate::{Context, How, Judged, Judgement, Skip, Subject, known};

/// Octets on the wire in addition to each frame: preamble and gap (IEEE 802.3, clauses 3 and 4).
const AROUND_A_FRAME: u64 = 20;
/// Octets of header and check sequence of a frame (IEEE 802.3, clause 3).
const HEADER: u64 = 18;
/// Drivers that let a program in user space drive a device.
pub(super) const USER_SPACE: [&str; 3] = ["vfio-pci", "igb_uio", "uio_pci_generic"];
/// Maximum number of PCI ports that are followed from a device up to its root complex.
const MAX_PORTS: usize = 8;

/// Judges each interface of the intent. If no interface can be judged, the rule is skipped for the first one's reason.
pub(super) fn by_link(facts: &Facts, context: &Context, judge: impl Fn(&Link) -> Result<Judgement, Skip>) -> Judged {
    known(&facts.links)?;
    let each = context.nics.value.iter().map(|name| match facts.link(name) {
        Some(link) => (Subject::Link(name.clone()), judge(link)),
        None => (Subject::Link(name.clone()), Err(not_seen(facts, name))),
    });
    together(each)
}

/// Why the facts do not contain an interface of the intent: a program in user space may drive it.
fn not_seen(facts: &Facts, name: &str) -> Skip {
    let bound = facts.pci.device(name).and_then(|device| device.driver.value());
    match bound {
        Some(driver) => {
            Skip::not_applicable(format!("{name} is driven by {driver}, so the kernel has no interface for it"))
        }
        None => Skip::unknown(format!("{name} is not among the interfaces")),
    }
}

/// Judges each device of the intent: the devices of its interfaces, and those that the intent names by address. If no
/// interfaces were recorded, the names of interrupts show which device belongs to which interface.
///
/// Other devices are judged only if the user named no interface, or if the device of a named interface is not known.
/// These are the network devices driven from user space and, if no interfaces were recorded, all network devices with a
/// driver.
pub(super) fn by_device(
    facts: &Facts,
    context: &Context,
    judge: impl Fn(&PciDevice) -> Result<Judgement, Skip>,
) -> Judged {
    known(&facts.pci.devices)?;
    let mut addresses: Vec<(String, Option<Skip>)> = Vec::new();
    let mut by_interrupt: BTreeMap<&str, Vec<(&str, &Irq)>> = BTreeMap::new();
    let mut lost: Vec<&str> = Vec::new();
    for name in &context.nics.value {
        match facts.link(name) {
            Some(link) => match known(&link.pci) {
                Ok(address) => addresses.push((address.clone(), None)),
                Err(Skip::NotApplicable(_)) => {
                    let skip = Skip::not_applicable(format!("{name} has no PCI device"));
                    addresses.push((name.clone(), Some(skip)));
                }
                Err(skip) => addresses.push((name.clone(), Some(skip))),
            },
            None if facts.pci.device(name).is_some() => addresses.push((name.clone(), None)),
            None => match of_interrupts(facts, name) {
                Some((address, irq)) => {
                    by_interrupt.entry(address).or_default().push((name, irq));
                    addresses.push((address.to_owned(), None));
                }
                None => {
                    lost.push(name);
                    addresses.push((name.clone(), Some(not_seen(facts, name))));
                }
            },
        }
    }
    let named: BTreeSet<String> = addresses.iter().map(|(address, _)| address.clone()).collect();
    let nameless = facts.links.is_unknown();
    let is_given = context.nics.how == How::Given;
    let network = facts.pci.iter().filter(|device| device.is_network() == Some(true));
    for device in network.filter(|_| !is_given || !lost.is_empty()) {
        let is_used = |driver: &String| nameless || USER_SPACE.contains(&driver.as_str());
        if device.driver.is(is_used) != Some(true) {
            continue;
        }
        if nameless {
            addresses.retain(|(_, skip)| skip.is_none());
        }
        if !named.contains(&device.address) {
            addresses.push((device.address.clone(), None));
        }
    }
    let mut seen = BTreeSet::new();
    addresses.retain(|(address, _)| seen.insert(address.clone()));
    let each = addresses.into_iter().map(|(address, skip)| {
        let judged = match (skip, facts.pci.device(&address)) {
            (Some(skip), _) => Err(skip),
            (None, Some(device)) => judge(device),
            (None, None) => Err(Skip::unknown(format!("{address} is not among the PCI devices"))),
        };
        let judged = judged.map(|mut judgement| {
            if let Some(interfaces) = by_interrupt.get(address.as_str()) {
                // If the user named no interfaces, there may be many of them, and they are alike.
                if is_given {
                    let names: Vec<&str> = interfaces.iter().map(|(name, _)| *name).collect();
                    judgement.found.push_str(&format!("; it is the card of {}", names.join(", ")));
                }
                for (_, irq) in interfaces {
                    let chip = irq.chip.value().map_or("", String::as_str);
                    judgement = judgement.see_as(format!("{chip} {}", irq.name()), irq.actions.source());
                }
            } else if is_given && !named.contains(&address) {
                judgement.found.push_str(&format!("; which card is {} is not recorded", lost.join(", ")));
            }
            judgement
        });
        (Subject::Device(address), judged)
    });
    together(each)
}

/// Finds an interrupt whose name contains the interface's name. Returns the PCI address of the interrupt's device, and
/// the interrupt. `None` if there is no such interrupt.
fn of_interrupts<'a>(facts: &'a Facts, name: &str) -> Option<(&'a str, &'a Irq)> {
    let is_its = |irq: &&Irq| irq.actions.is(|users| users.iter().any(|user| carries_name(user, name))) == Some(true);
    facts.irqs.iter().filter(is_its).find_map(|irq| Some((irq.pci.as_deref()?, irq)))
}

fn together(each: impl Iterator<Item = (Subject, Result<Judgement, Skip>)>) -> Judged {
    let (mut told, mut open) = (Vec::new(), Vec::new());
    for (subject, judged) in each {
        match judged {
            Ok(judgement) => told.push(Judgement { subject, ..judgement }),
            Err(skip) => open.push((subject, skip)),
        }
    }
    if !told.is_empty() {
        told.extend(open.into_iter().map(|(subject, skip)| Judgement::skipped(subject, skip)));
        return Ok(told);
    }
    // A result that is unknown is more informative than one that is not applicable.
    let unknown = open.iter().position(|(_, skip)| matches!(skip, Skip::Unknown { .. }));
    let chosen = open.into_iter().nth(unknown.unwrap_or(0)).map(|(_, skip)| skip);
    Err(chosen.unwrap_or_else(|| Skip::not_applicable("no interface is named or found; name one with --nic")))
}

/// The value of a fact that not every driver supports. The error is [`Skip::NotApplicable`] if the driver does not
/// support it.
pub(super) fn offered<T>(fact: &Fact<T>) -> Result<&T, Skip> {
    match fact.why() {
        Some(Why::Unsupported(text)) if text.contains("not supported") => {
            Err(Skip::not_applicable(format!("{}: the driver does not offer it", fact.source())))
        }
        _ => known(fact),
    }
}

/// The counters of an interface, and the length of the interval in which they were counted. If there were not two
/// readings, the counters are totals since boot, and the length is `None`.
pub(super) fn counted<'a>(facts: &'a Facts, link: &Link) -> Result<(&'a BTreeMap<String, u64>, Option<Nanos>), Skip> {
    let during = facts.interval.value().filter(|interval| interval.length > Nanos::ZERO);
    let rates = during.and_then(|interval| Some((interval.change.links.get(&link.name)?, Some(interval.length))));
    let sums = || facts.counters.links.get(&link.name).map(|counts| (counts, None));
    let found = rates.or_else(sums).filter(|(counts, _)| !counts.is_empty());
    found.ok_or_else(|| Skip::unknown(format!("the counters of {} are not known", link.name)))
}

/// Formats an interval as `in 5s`, or as `since boot` for `None`.
pub(super) fn span(during: Option<Nanos>) -> String {
    during.map_or_else(|| "since boot".to_owned(), |during| format!("in {during}"))
}

/// A device and the known ports above it, starting with the device.
pub(super) fn path<'a>(facts: &'a Facts, device: &'a PciDevice) -> Vec<&'a PciDevice> {
    let mut path = vec![device];
    while path.len() <= MAX_PORTS
        && let Some(above) = path.last().and_then(|last| last.upstream.as_deref())
        && let Some(port) = facts.pci.device(above)
        && !path.iter().any(|other| other.address == port.address)
    {
        path.push(port);
    }
    path
}

/// The data rate of a link in bits per second, from its number of lanes, transfer rate and line code (PCI Express Base
/// Specification 4.2: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, FLIT mode with 236 of 256 octets above).
pub(super) fn carries(megatransfers: u32, lanes: u32) -> u64 {
    let raw = u64::from(megatransfers) * 1_000_000 * u64::from(lanes);
    match megatransfers {
        0..=5_000 => raw / 10 * 8,
        5_001..=32_000 => raw / 130 * 128,
        _ => raw / 256 * 236,
    }
}

/// Formats bits per second as `63.0 Gbit/s`.
pub(super) fn gigabits(bits: u64) -> String {
    format!("{}.{} Gbit/s", bits / 1_000_000_000, bits / 100_000_000 % 10)
}

/// The time that this number of octets takes on the wire at `speed`.
pub(super) fn on_wire(octets: u64, speed: BitRate) -> Nanos {
    let bits = u128::from(octets) * 8 * 1_000_000_000;
    Nanos::from_nanos((bits / u128::from(speed.as_bps().max(1))).min(u64::MAX.into()) as u64)
}

/// The time that a frame with a payload of `mtu` octets takes on the wire, including header, check sequence, preamble
/// and gap.
pub(super) fn frame_time(mtu: u32, speed: BitRate) -> Nanos {
    on_wire(u64::from(mtu) + HEADER + AROUND_A_FRAME, speed)
}

/// The time in which frames of 64 octets, at line rate, fill a ring of `slots` slots.
pub(super) fn shortest_ring(slots: u32, speed: BitRate) -> Nanos {
    on_wire(u64::from(slots) * (64 + AROUND_A_FRAME), speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates() {
        let ten = BitRate::new(10_000_000_000);
        // A frame of 1500 octets is 1538 on the wire: 1.23 us at 10 Gbit/s.
        assert_eq!(frame_time(1500, ten), Nanos::from_nanos(1230));
        assert_eq!(shortest_ring(1024, BitRate::new(40_000_000_000)), Nanos::from_nanos(17_203));
        // Generation 3 with 8 lanes: 63 Gbit/s; generation 1 with one: 2.
        assert_eq!(gigabits(carries(8_000, 8)), "63.0 Gbit/s");
        assert_eq!((carries(2_500, 1), on_wire(1, BitRate::new(0))), (2_000_000_000, Nanos::from_secs(8)));
    }
}

//! Reads PCI devices from the output of `lspci -vv`, for recordings that contain no sysfs.

use crate::facts::pci::{is_address, megatransfers};
use crate::facts::{Aspm, Fact, PciDevice, Root};

/// Maximum number of devices that are read.
const MAX_DEVICES: usize = 16_384;

pub(super) fn devices(root: &Root) -> Fact<Vec<PciDevice>> {
    let text =
        root.command("lspci -nnvv").or_else(|| root.command("lspci -nvv")).or_else(|| root.command("lspci -vvv"));
    text.map(|text| parse(&text))
}

/// Parses blocks that begin with `3b:00.0 Ethernet controller [0200]: … [8086:1583] (rev 02)`.
pub(crate) fn parse(text: &str) -> Vec<PciDevice> {
    let mut devices: Vec<PciDevice> = Vec::new();
    for line in text.lines() {
        if let Some(device) = heading(line) {
            if devices.len() == MAX_DEVICES {
                break;
            }
            devices.push(device);
        } else if let Some(device) = devices.last_mut() {
            note(device, line.trim());
        }
    }
    devices
}

fn heading(line: &str) -> Option<PciDevice> {
    let (address, rest) = line.split_once(' ')?;
    let address = if address.len() == 7 { format!("0000:{address}") } else { address.to_owned() };
    if !is_address(&address) {
        return None;
    }
    let hexadecimal = |text: &str| u32::from_str_radix(text, 16).ok();
    let brackets: Vec<&str> = rest.split('[').skip(1).filter_map(|part| part.split(']').next()).collect();
    let class = brackets.iter().find(|part| part.len() == 4).and_then(|part| hexadecimal(part));
    let ids = brackets.iter().find_map(|part| part.split_once(':').filter(|(a, b)| a.len() == 4 && b.len() == 4));
    let said = |value: Option<u32>| match value {
        Some(value) => Fact::known(value, "lspci"),
        None => Fact::not_recorded("lspci"),
    };
    let id = |text: Option<&str>| said(text.and_then(hexadecimal)).parse(u16::try_from);
    Some(PciDevice {
        address,
        vendor: id(ids.map(|(vendor, _)| vendor)),
        device: id(ids.map(|(_, device)| device)),
        class: said(class.map(|class| class << 8)),
        ..PciDevice::default()
    })
}

fn note(device: &mut PciDevice, line: &str) {
    let number = |key: &str| {
        let rest = line.split_once(key)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let set = |field: &mut Fact<u32>, value: Option<u32>| {
        if let Some(value) = value {
            *field = Fact::known(value, "lspci");
        }
    };
    let speed = || line.split_once("Speed ").and_then(|(_, rest)| megatransfers(rest.split([',', ' ']).next()?));
    if let Some(driver) = line.strip_prefix("Kernel driver in use:") {
        device.driver = Fact::known(driver.trim().to_owned(), "lspci");
    } else if line.starts_with("NUMA node:") {
        device.node = number("NUMA node:").map_or_else(Fact::default, |node| Fact::known(Some(node), "lspci"));
    } else if line.starts_with("DevCap:") {
        set(&mut device.max_payload_capable, number("MaxPayload"));
    } else if line.starts_with("MaxPayload") {
        set(&mut device.max_payload, number("MaxPayload"));
        set(&mut device.max_read_request, number("MaxReadReq"));
    } else if line.starts_with("LnkCap:") {
        set(&mut device.max_speed_mts, speed());
        set(&mut device.max_width, number("Width x"));
    } else if line.starts_with("LnkSta:") {
        set(&mut device.speed_mts, speed());
        set(&mut device.width, number("Width x"));
    } else if let Some(control) = line.strip_prefix("LnkCtl:") {
        let state = control.trim().split(';').next().unwrap_or_default();
        let on = |name: &str| !state.contains("Disabled") && state.contains(name);
        device.aspm = Fact::known(Aspm { l0s: on("L0s"), l1: on("L1") }, "lspci");
    } else if line.starts_with("RlxdOrd") {
        device.relaxed_ordering = Fact::known(line.contains("RlxdOrd+"), "lspci");
        device.extended_tag = Fact::known(line.contains("ExtTag+"), "lspci");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CARD: &str = "3b:00.0 Ethernet controller [0200]: Maker XL710 [8086:1583] (rev 02)\n\tNUMA node: 1\n\
        \t\tDevCap:\tMaxPayload 2048 bytes, PhantFunc 0\n\t\t\tRlxdOrd+ ExtTag- PhantFunc-\n\
        \t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n\
        \t\tLnkCap:\tPort #0, Speed 8GT/s, Width x8, ASPM L1\n\t\tLnkCtl:\tASPM L1 Enabled; RCB 64 bytes\n\
        \t\tLnkSta:\tSpeed 8GT/s (ok), Width x4 (downgraded)\n\tKernel driver in use: i40e\n\
        0001:00:1f.2 SATA controller: Other\n\t\tLnkCtl:\tASPM Disabled;\n";

    #[test]
    fn blocks_are_devices() {
        let devices = parse(CARD);
        let card = &devices[0];
        assert_eq!(
            (card.address.as_str(), card.vendor.get(), card.device.get()),
            ("0000:3b:00.0", Some(0x8086), Some(0x1583))
        );
        assert_eq!((card.is_network(), card.node.get()), (Some(true), Some(Some(1))));
        assert_eq!(
            (card.max_payload_capable.get(), card.max_payload.get(), card.max_read_request.get()),
            (Some(2048), Some(256), Some(512))
        );
        assert_eq!((card.max_width.get(), card.width.get(), card.speed_mts.get()), (Some(8), Some(4), Some(8000)));
        assert_eq!(card.aspm.get(), Some(Aspm { l0s: false, l1: true }));
        assert_eq!(card.driver.value().map(String::as_str), Some("i40e"));
        assert_eq!((devices.len(), devices[1].aspm.get()), (2, Some(Aspm::default())));
        assert!(devices[1].vendor.is_unknown());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "((3b:00.0 |\\t(LnkSta: Speed|MaxPayload |NUMA node:))\\PC{0,12}\n){0,9}") {
            parse(&text);
        }
    }
}

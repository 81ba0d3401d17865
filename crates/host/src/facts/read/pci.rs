//! PCI devices: `/sys/bus/pci/devices` (Documentation/ABI/testing/sysfs-bus-pci).

use std::collections::BTreeMap;

use super::memory::chosen;
use super::pci_config::Express;
use super::{lspci, pci_config};
use crate::facts::pci::{is_address, megatransfers};
use crate::facts::{Context, Fact, Pci, PciDevice, Root, Source, Why};

const PLACE: &str = "sys/bus/pci/devices";
const IOMMU: &str = "sys/kernel/iommu_groups";
/// Maximum number of PCI devices, and of IOMMU groups, that are read.
const MAX_DEVICES: usize = 16_384;
/// Power states of the link that can be enabled separately (drivers/pci/pcie/aspm.c).
const LINK_STATES: [&str; 6] = ["clkpm", "l0s_aspm", "l1_1_aspm", "l1_1_pcipm", "l1_2_aspm", "l1_aspm"];

pub(super) fn read(context: &Context) -> Pci {
    let root = context.root;
    let names = root.list(PLACE);
    let devices = names.map(|names| {
        names.into_iter().filter(|name| is_address(name)).take(MAX_DEVICES).map(|name| device(root, name)).collect()
    });
    Pci {
        devices: devices.or_else(|| lspci::devices(root)),
        aspm_policy: chosen(root, "sys/module/pcie_aspm/parameters/policy"),
        iommu_groups: root.list(IOMMU).map(|names| {
            let group =
                |name: String| Some((name.parse().ok()?, root.text(&format!("{IOMMU}/{name}/type")).into_value()?));
            names.into_iter().take(MAX_DEVICES).filter_map(group).collect()
        }),
    }
}

fn device(root: &Root, address: String) -> PciDevice {
    let place = format!("{PLACE}/{address}");
    let text = |name: &str| root.text(&format!("{place}/{name}"));
    let hexadecimal = |name: &str| text(name).parse(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16));
    let id = |name: &str| hexadecimal(name).parse(u16::try_from);
    let express = express(root, &place);
    let aer = |name: &str| text(name).parse(|text| total(&text).ok_or("no total"));
    let target = root.link_target(&place);
    let interfaces = root.list(&format!("{place}/net"));
    PciDevice {
        vendor: id("vendor"),
        device: id("device"),
        class: hexadecimal("class"),
        driver: root.link_name(&format!("{place}/driver")),
        node: root.number::<i64>(&format!("{place}/numa_node")).map(|node| u32::try_from(node).ok()),
        local_cpus: root.cpu_list(&format!("{place}/local_cpulist")),
        speed_mts: text("current_link_speed")
            .and_then(|t| speed(&t, &place))
            .or_else(|| part(&express, |e| e.speed_mts)),
        max_speed_mts: text("max_link_speed")
            .and_then(|t| speed(&t, &place))
            .or_else(|| part(&express, |e| e.max_speed_mts)),
        width: lanes(text("current_link_width")).or_else(|| part(&express, |e| e.width)),
        max_width: lanes(text("max_link_width")).or_else(|| part(&express, |e| e.max_width)),
        aspm: part(&express, |e| Some(e.aspm)),
        link_states: link_states(root, &place),
        max_payload: part(&express, |e| Some(e.max_payload)),
        max_payload_capable: part(&express, |e| Some(e.max_payload_capable)),
        max_read_request: part(&express, |e| Some(e.max_read_request)),
        extended_tag: part(&express, |e| Some(e.extended_tag)),
        relaxed_ordering: part(&express, |e| Some(e.relaxed_ordering)),
        power_control: text("power/control"),
        d3cold_allowed: root.switch(&format!("{place}/d3cold_allowed")),
        msi_irqs: root.list(&format!("{place}/msi_irqs")).map(|names| {
            let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
            numbers.sort_unstable();
            numbers
        }),
        sriov_numvfs: root.number(&format!("{place}/sriov_numvfs")),
        sriov_totalvfs: root.number(&format!("{place}/sriov_totalvfs")),
        physical_function: root.link_name(&format!("{place}/physfn")).into_value(),
        upstream: target.value().and_then(|target| upstream(target)),
        iommu_group: root.link_name(&format!("{place}/iommu_group")).parse(|name| name.parse()),
        aer_correctable: aer("aer_dev_correctable"),
        aer_nonfatal: aer("aer_dev_nonfatal"),
        aer_fatal: aer("aer_dev_fatal"),
        interfaces: interfaces.into_value().unwrap_or_default(),
        address,
    }
}

fn express(root: &Root, place: &str) -> Fact<Express> {
    let config = root.bytes(&format!("{place}/config"), 4096);
    config.and_then(|octets| pci_config::express(&octets, Source::new(format!("/{place}/config"))))
}

fn part<T>(express: &Fact<Express>, get: impl FnOnce(&Express) -> Option<T>) -> Fact<T> {
    express.as_ref().and_then(|express_now| match get(express_now) {
        Some(value) => Fact::known(value, express.source().clone()),
        None => Fact::absent(express.source().clone()),
    })
}

/// Parses a link speed such as `8.0 GT/s PCIe` into megatransfers per second. `Unknown` means that there is no link.
fn speed(text: &str, place: &str) -> Fact<u32> {
    match megatransfers(text) {
        Some(speed) => Fact::known(speed, format!("/{place}/*_link_speed").as_str()),
        None => Fact::missing(Why::Unsupported(text.into()), format!("/{place}/*_link_speed").as_str()),
    }
}

/// Parses a number of lanes. 0 or 255 means that there is no link (drivers/pci/pci.h, `PCIE_LNK_WIDTH_UNKNOWN`).
fn lanes(text: Fact<String>) -> Fact<u32> {
    text.parse(|text| match text.parse::<u32>() {
        Ok(0 | 255) => Err(format!("{text} lanes: there is no link")),
        Ok(lanes) => Ok(lanes),
        Err(error) => Err(error.to_string()),
    })
}

fn link_states(root: &Root, place: &str) -> BTreeMap<String, Fact<bool>> {
    let state = |name: &&str| ((*name).to_string(), root.switch(&format!("{place}/link/{name}")));
    LINK_STATES.iter().map(state).filter(|(_, fact)| fact.is_known()).collect()
}

/// Parses the total of the error counters: `TOTAL_ERR_COR 3`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The PCI address of the bridge or root port above a device, from the target of the device's link:
/// `../../../devices/pci0000:00/0000:00:02.0/0000:01:00.0`.
fn upstream(target: &str) -> Option<String> {
    let parent = target.rsplit('/').nth(1)?;
    is_address(parent).then(|| parent.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn a_device_of_sysfs() {
        let place = "sys/bus/pci/devices/0000:01:00.0";
        let file = |name: &str, text: &'static str| (format!("{place}/{name}"), text);
        let root = Root::given([
            file("vendor", "0x8086\n"),
            file("class", "0x020000\n"),
            file("numa_node", "-1\n"),
            file("current_link_speed", "8.0 GT/s PCIe\n"),
            file("max_link_speed", "Unknown\n"),
            file("current_link_width", "4\n"),
            file("max_link_width", "8\n"),
            file("link/l1_aspm", "1\n"),
            file("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 3\n"),
            file("msi_irqs/71", "msix\n"),
        ]);
        let pci = Facts::read(&root).pci;
        let device = pci.device("0000:01:00.0").unwrap();
        assert_eq!(
            (device.vendor.get(), device.is_network(), device.node.get()),
            (Some(0x8086), Some(true), Some(None))
        );
        assert_eq!(
            (device.speed_mts.get(), device.width.get(), device.max_width.get()),
            (Some(8000), Some(4), Some(8))
        );
        assert!(matches!(device.max_speed_mts.why(), Some(Why::Unsupported(_))));
        assert_eq!((device.aer_correctable.get(), device.link_states["l1_aspm"].get()), (Some(3), Some(true)));
        assert_eq!(device.msi_irqs.value(), Some(&vec![71]));
        assert!(device.driver.is_unknown() && device.max_payload.is_unknown());
    }

    #[test]
    fn the_port_above() {
        assert_eq!(upstream("../../../devices/pci0000:00/0000:00:02.0/0000:01:00.0").as_deref(), Some("0000:00:02.0"));
        assert_eq!(upstream("../../../devices/pci0000:00/0000:00:02.0"), None);
    }
}

//! PCI devices.

use std::collections::BTreeMap;

use super::{CpuSet, Fact};

/// One PCI device (`/sys/bus/pci/devices/*`, Documentation/ABI/testing/sysfs-bus-pci). Reading the capabilities in its
/// `config` file needs root; other users see only the first 64 bytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PciDevice {
    /// Address of the device, for example `0000:3b:00.0`.
    pub address: String,
    /// The vendor's PCI ID, for example 0x8086.
    pub vendor: Fact<u16>,
    /// The device's PCI ID, which the vendor assigns.
    pub device: Fact<u16>,
    /// Class, subclass and interface: `0x020000` is an Ethernet controller.
    pub class: Fact<u32>,
    /// The driver bound to the device. Absent if no driver is bound.
    pub driver: Fact<String>,
    /// The device's NUMA node. Known and `None` if the firmware does not report it (-1).
    pub node: Fact<Option<u32>>,
    /// The CPUs on the device's NUMA node.
    pub local_cpus: Fact<CpuSet>,
    /// The current link speed, in megatransfers per second (8 GT/s = 8000).
    pub speed_mts: Fact<u32>,
    /// Maximum link speed that the device supports, in megatransfers per second.
    pub max_speed_mts: Fact<u32>,
    /// Number of lanes that the device's link uses now.
    pub width: Fact<u32>,
    /// Maximum number of lanes that the device supports.
    pub max_width: Fact<u32>,
    /// Enabled states of active-state power management (Link Control, PCI Express Base Specification 7.5.3.7).
    pub aspm: Fact<Aspm>,
    /// Power states of the link that can be enabled separately (`link/l1_aspm`, `link/l1_1_aspm`, …), and whether they
    /// are enabled.
    pub link_states: BTreeMap<String, Fact<bool>>,
    /// The maximum payload size in use, in bytes (Device Control, 7.5.3.4).
    pub max_payload: Fact<u32>,
    /// Maximum payload size that the device supports, in bytes (Device Capabilities, 7.5.3.3).
    pub max_payload_capable: Fact<u32>,
    /// The maximum read request size in use, in bytes.
    pub max_read_request: Fact<u32>,
    /// Whether extended tags are on.
    pub extended_tag: Fact<bool>,
    /// Whether relaxed ordering is on.
    pub relaxed_ordering: Fact<bool>,
    /// The setting of `power/control`: `on` or `auto`.
    pub power_control: Fact<String>,
    /// Whether the device may enter D3cold (`d3cold_allowed`).
    pub d3cold_allowed: Fact<bool>,
    /// Numbers of the device's MSI and MSI-X interrupts.
    pub msi_irqs: Fact<Vec<u32>>,
    /// Number of virtual functions that are enabled.
    pub sriov_numvfs: Fact<u32>,
    /// Number of virtual functions that the device supports.
    pub sriov_totalvfs: Fact<u32>,
    /// PCI address of the physical function to which this virtual function belongs. `None` for all other devices.
    pub physical_function: Option<String>,
    /// PCI address of the bridge or root port to which the device is connected. `None` if the device is not below a
    /// bridge or root port, or if this is unknown.
    pub upstream: Option<String>,
    /// Number of the device's IOMMU group.
    pub iommu_group: Fact<u32>,
    /// Number of corrected errors (`aer_dev_correctable`, total).
    pub aer_correctable: Fact<u64>,
    /// Number of uncorrected nonfatal errors.
    pub aer_nonfatal: Fact<u64>,
    /// Number of uncorrected fatal errors.
    pub aer_fatal: Fact<u64>,
    /// Names of the device's network interfaces.
    pub interfaces: Vec<String>,
}

/// Which states of active-state power management are enabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aspm {
    /// Whether the link may enter L0s.
    pub l0s: bool,
    /// Whether the link may enter L1.
    pub l1: bool,
}

impl PciDevice {
    /// Whether the device is a network controller (class 0x02). `None` if the class is not known.
    pub fn is_network(&self) -> Option<bool> {
        self.class.is(|class| class >> 16 == 0x02)
    }
}

/// The host's PCI devices and PCI settings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pci {
    /// The devices, sorted by address.
    pub devices: Fact<Vec<PciDevice>>,
    /// The host's policy for active-state power management: `default`, `performance`, `powersave` or `powersupersave`
    /// (`/sys/module/pcie_aspm/parameters/policy`).
    pub aspm_policy: Fact<String>,
    /// The type of each IOMMU group's domain (`identity`, `DMA`, `DMA-FQ`), by group number.
    pub iommu_groups: Fact<BTreeMap<u32, String>>,
}

impl Pci {
    /// The device with this address. `None` if it is not known.
    pub fn device(&self, address: &str) -> Option<&PciDevice> {
        self.iter().find(|device| device.address == address)
    }

    /// All devices. Empty if they are not known.
    pub fn iter(&self) -> impl Iterator<Item = &PciDevice> {
        self.devices.value().into_iter().flatten()
    }
}

/// Parses a link speed such as `8.0 GT/s` or `8GT/s`. The result is in megatransfers per second.
pub(super) fn megatransfers(text: &str) -> Option<u32> {
    let number = text.split("GT/s").next().filter(|number| number.len() < text.len())?.trim();
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenth: u32 = tenth.get(..1)?.parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(tenth * 100)
}

/// Whether a string is a PCI address such as `0000:01:00.0`. The domain can have more than four digits (VMD).
pub(super) fn is_address(text: &str) -> bool {
    let Some((domain, rest)) = text.split_once(':') else { return false };
    let hexadecimal = |text: &str| text.bytes().all(|c| c.is_ascii_hexdigit());
    let shape = rest.len() == 7 && rest.as_bytes()[2] == b':' && rest.as_bytes()[5] == b'.';
    (4..=8).contains(&domain.len())
        && hexadecimal(domain)
        && shape
        && rest.is_ascii()
        && hexadecimal(&rest[..2])
        && hexadecimal(&rest[3..5])
        && hexadecimal(&rest[6..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_speeds() {
        assert!(is_address("0000:3b:00.1") && is_address("10000:e1:00.0"));
        assert!(!is_address("pci0000:00") && !is_address("0000:3b:00") && !is_address("virtio0"));
        assert_eq!(
            (megatransfers("2.5 GT/s PCIe"), megatransfers("16GT/s"), megatransfers("Unknown")),
            (Some(2500), Some(16000), None)
        );
    }
}

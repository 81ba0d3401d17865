//! PCI devices.

use std::collections::BTreeMap;

use super::{CpuSet, Fact};

/// One PCI device (`/sys/bus/pci/devices/*`, Documentation/ABI/testing/sysfs-bus-pci). What is read from
/// the capabilities in `config` needs root: others see 64 octets only.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PciDevice {
    /// `0000:3b:00.0`.
    pub address: String,
    /// Vendor number.
    pub vendor: Fact<u16>,
    /// Device number.
    pub device: Fact<u16>,
    /// Class, subclass, interface: `0x020000` is an Ethernet controller.
    pub class: Fact<u32>,
    /// The driver that is bound; absent if none.
    pub driver: Fact<String>,
    /// Its NUMA node; known and `None` where the firmware did not say (-1).
    pub node: Fact<Option<u32>>,
    /// The CPUs near it.
    pub local_cpus: Fact<CpuSet>,
    /// Link speed now, in megatransfers per second (8 GT/s = 8000).
    pub speed_mts: Fact<u32>,
    /// Link speed that it is capable of.
    pub max_speed_mts: Fact<u32>,
    /// Lanes now.
    pub width: Fact<u32>,
    /// Lanes that it is capable of.
    pub max_width: Fact<u32>,
    /// Active-state power management that is on (Link Control, PCI Express Base Specification 7.5.3.7).
    pub aspm: Fact<Aspm>,
    /// Single states that can be switched (`link/l1_aspm`, `link/l1_1_aspm`, …).
    pub link_states: BTreeMap<String, Fact<bool>>,
    /// Largest payload in use, in octets (Device Control, 7.5.3.4).
    pub max_payload: Fact<u32>,
    /// Largest payload that it is capable of (Device Capabilities, 7.5.3.3).
    pub max_payload_capable: Fact<u32>,
    /// Largest read request, in octets.
    pub max_read_request: Fact<u32>,
    /// Extended tags are on.
    pub extended_tag: Fact<bool>,
    /// Relaxed ordering is on.
    pub relaxed_ordering: Fact<bool>,
    /// `power/control`: `on` or `auto`.
    pub power_control: Fact<String>,
    /// `d3cold_allowed`.
    pub d3cold_allowed: Fact<bool>,
    /// Its MSI and MSI-X interrupts.
    pub msi_irqs: Fact<Vec<u32>>,
    /// Virtual functions that are on.
    pub sriov_numvfs: Fact<u32>,
    /// Virtual functions that it could have.
    pub sriov_totalvfs: Fact<u32>,
    /// The physical function that it belongs to.
    pub physical_function: Option<String>,
    /// The port above it.
    pub upstream: Option<String>,
    /// Its IOMMU group.
    pub iommu_group: Fact<u32>,
    /// Corrected errors (`aer_dev_correctable`, total).
    pub aer_correctable: Fact<u64>,
    /// Nonfatal errors.
    pub aer_nonfatal: Fact<u64>,
    /// Fatal errors.
    pub aer_fatal: Fact<u64>,
    /// Names of its network interfaces.
    pub interfaces: Vec<String>,
}

/// Active-state power management.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aspm {
    /// L0s.
    pub l0s: bool,
    /// L1.
    pub l1: bool,
}

impl PciDevice {
    /// Is it a network controller (class 0x02)?
    pub fn is_network(&self) -> Option<bool> {
        self.class.is(|class| class >> 16 == 0x02)
    }
}

/// PCI as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pci {
    /// The devices, by address.
    pub devices: Fact<Vec<PciDevice>>,
    /// The chosen one of `default performance powersave powersupersave`
    /// (`/sys/module/pcie_aspm/parameters/policy`).
    pub aspm_policy: Fact<String>,
    /// How each IOMMU group maps (`identity`, `DMA`, `DMA-FQ`), by number.
    pub iommu_groups: Fact<BTreeMap<u32, String>>,
}

impl Pci {
    /// One device by its address.
    pub fn device(&self, address: &str) -> Option<&PciDevice> {
        self.iter().find(|device| device.address == address)
    }

    /// All devices; none if they are not known.
    pub fn iter(&self) -> impl Iterator<Item = &PciDevice> {
        self.devices.value().into_iter().flatten()
    }
}

/// `8.0 GT/s` or `8GT/s`.
pub(super) fn megatransfers(text: &str) -> Option<u32> {
    let number = text.split("GT/s").next().filter(|number| number.len() < text.len())?.trim();
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenth: u32 = tenth.get(..1)?.parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(tenth * 100)
}

/// `0000:01:00.0`; the domain can be longer than four digits (VMD).
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

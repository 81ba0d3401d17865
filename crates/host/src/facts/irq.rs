//! Interrupts, with the CPUs that may handle them and the CPUs that handle them now.

use super::{CpuSet, Fact};

/// The host's interrupts. Their counts are in [`super::Counters::interrupts`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Irqs {
    /// The CPUs that may handle newly requested interrupts (`/proc/irq/default_smp_affinity`).
    pub default_affinity: Fact<CpuSet>,
    /// All device interrupts, sorted by number. Known and empty if there are none.
    pub list: Fact<Vec<Irq>>,
}

impl Irqs {
    /// The interrupt with this number. `None` if it is not listed.
    pub fn irq(&self, number: u32) -> Option<&Irq> {
        let list = self.list.value()?;
        list.binary_search_by_key(&number, |irq| irq.number).ok().map(|index| &list[index])
    }

    /// All interrupts. Empty if they are not known.
    pub fn iter(&self) -> impl Iterator<Item = &Irq> {
        self.list.value().into_iter().flatten()
    }
}

/// One device interrupt.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Irq {
    /// The interrupt's number in Linux.
    pub number: u32,
    /// The interrupt's chip and hardware number as in /proc/interrupts: `PCI-MSIX-0000:04:00.0 3-edge`.
    pub chip: Fact<String>,
    /// Names under which drivers registered the interrupt: `ens1f0-TxRx-3`, `nvme0q1`. Several names if it is shared.
    pub actions: Fact<Vec<String>>,
    /// The CPUs that may handle the interrupt (`smp_affinity_list`).
    pub affinity: Fact<CpuSet>,
    /// The CPUs that handle the interrupt now (`effective_affinity_list`).
    pub effective: Fact<CpuSet>,
    /// NUMA node of the device that raises the interrupt (`node`). Known and `None` if the kernel says -1.
    pub node: Fact<Option<u32>>,
    /// PCI address of the device that raises the interrupt, from the chip's name or the device's `msi_irqs`. `None` if
    /// the device is not a PCI device.
    pub pci: Option<String>,
    /// Whether the kernel manages the interrupt's affinity, so that users cannot change it. Known from the names of
    /// drivers whose interrupts the kernel always manages, or else from debugfs (`irq/irqs/N`,
    /// `IRQD_AFFINITY_MANAGED`).
    pub managed: Fact<bool>,
}

impl Irq {
    /// A readable name of the interrupt: the names that its drivers registered, or else its number.
    pub fn name(&self) -> String {
        match self.actions.value() {
            Some(actions) if !actions.is_empty() => actions.join(", "),
            _ => format!("irq {}", self.number),
        }
    }
}

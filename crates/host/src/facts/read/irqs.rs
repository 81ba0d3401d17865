//! Interrupts: `/proc/irq`, `/sys/kernel/irq`, and the names in `/proc/interrupts`.

use std::collections::BTreeMap;

use crate::facts::pci::is_address;
use crate::facts::{CountTable, Fact, Irq, Irqs, Root, Source};

/// Maximum number of interrupts that are read.
const MAX_IRQS: usize = 1 << 17;
/// An interrupt's description in `/proc/interrupts`: its chip with the hardware number, and the names of its users.
type Named = (String, Vec<String>);

pub(super) fn read(root: &Root, table: &Fact<CountTable>) -> Irqs {
    let default_affinity = root.cpu_mask("proc/irq/default_smp_affinity");
    let named: BTreeMap<u32, Named> = table
        .value()
        .into_iter()
        .flat_map(|table| &table.rows)
        .filter_map(|row| Some((row.irq()?, describe(&row.description))))
        .collect();
    let list = root.list("proc/irq").map(|names| {
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).take(MAX_IRQS).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|number| irq(root, table, named.get(&number), number)).collect()
    });
    Irqs { default_affinity, list }
}

fn irq(root: &Root, table: &Fact<CountTable>, named: Option<&Named>, number: u32) -> Irq {
    let place = format!("proc/irq/{number}");
    let sys = format!("sys/kernel/irq/{number}");
    let from_table = |get: fn(&Named) -> Option<String>| match (table, named.and_then(get)) {
        (Fact::Known { source, .. }, Some(text)) => Fact::known(text, source.clone()),
        (Fact::Known { source, .. }, None) => Fact::absent(source.clone()),
        (Fact::Missing { why, source }, _) => Fact::missing(why.clone(), source.clone()),
    };
    // sysfs also has the interrupts that /proc/interrupts lacks because no CPU has handled them yet.
    let users = from_table(|named| Some(named.1.join(","))).or_else(|| root.text(&format!("{sys}/actions")));
    let chip = from_table(|named| Some(named.0.clone()).filter(|chip| !chip.is_empty()))
        .or_else(|| root.text(&format!("{sys}/chip_name")));
    let split = |text: String| {
        text.split(',').map(str::trim).filter(|user| !user.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let actions = users.map(split);
    Irq {
        number,
        pci: chip.value().and_then(|chip| pci_address(chip)),
        affinity: root.cpu_list(&format!("{place}/smp_affinity_list")),
        effective: root.cpu_list(&format!("{place}/effective_affinity_list")),
        node: root.number::<i64>(&format!("{place}/node")).map(|node| u32::try_from(node).ok()),
        managed: managed(root, number, &actions),
        chip,
        actions,
    }
}

/// Whether the kernel manages the interrupt's affinity: true if the users' names show it, otherwise according to
/// debugfs (kernel/irq/debugfs.c).
fn managed(root: &Root, number: u32, actions: &Fact<Vec<String>>) -> Fact<bool> {
    if let Fact::Known { value, source } = actions
        && value.iter().any(|user| is_managed(user))
    {
        return Fact::known(true, source.clone());
    }
    let text = root.text(&format!("sys/kernel/debug/irq/irqs/{number}"));
    match text {
        Fact::Known { value, source } => Fact::known(value.contains("IRQD_AFFINITY_MANAGED"), source),
        // Without debugfs, the kernel does not tell whether it manages the interrupt. So a missing entry proves
        // nothing.
        Fact::Missing { why: crate::facts::Why::Absent, source } => Fact::missing(
            crate::facts::Why::Unsupported("only debugfs of a kernel with GENERIC_IRQ_DEBUGFS tells".into()),
            source,
        ),
        Fact::Missing { why, source } => Fact::missing(why, Source::new(source.as_str())),
    }
}

/// Whether the interrupt's user is a queue for which the driver requests managed vectors (`PCI_IRQ_AFFINITY`,
/// `irq_affinity`): drivers/nvme/host/pci.c (queue 0 is not managed), drivers/block/virtio_blk.c,
/// drivers/scsi/{megaraid,mpt3sas,smartpqi}.
fn is_managed(user: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let nvme = user.strip_prefix("nvme").and_then(|rest| rest.split_once('q'));
    let virtio = user.strip_prefix("virtio").and_then(|rest| rest.split_once("-req."));
    let storage = ["megasas", "mpt3sas", "smartpqi"].iter().any(|driver| user.starts_with(driver));
    nvme.is_some_and(|(device, queue)| digits(device) && digits(queue) && queue != "0")
        || virtio.is_some_and(|(device, queue)| digits(device) && digits(queue))
        || storage && user.contains("msix") && !user.ends_with("msix0")
}

/// Splits `PCI-MSIX-0000:04:00.0   2-edge   virtio3-req.1, other` into the chip with its hardware number, and the list
/// of users.
fn describe(description: &str) -> Named {
    let mut words = description.split_ascii_whitespace();
    let chip = words.by_ref().take(2).collect::<Vec<_>>().join(" ");
    let users = words.collect::<Vec<_>>().join(" ");
    (chip, users.split(',').map(str::trim).filter(|user| !user.is_empty()).map(str::to_owned).collect())
}

/// The PCI address in a chip's name: `0000:04:00.0` in `IR-PCI-MSIX-0000:04:00.0`. Linux 6.2 and later use such names
/// (drivers/pci/msi/irqdomain.c).
fn pci_address(chip: &str) -> Option<String> {
    let word = chip.split(' ').next()?;
    let (_, address) = word.rsplit_once('-')?;
    is_address(address).then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{CpuSet, Facts};

    #[test]
    fn an_interrupt_with_all_that_is_known_of_it() {
        let facts = Facts::read(&Root::given([
            ("proc/irq/default_smp_affinity", "0f\n"),
            ("proc/irq/71/smp_affinity_list", "0-3\n"),
            ("proc/irq/71/effective_affinity_list", "2\n"),
            ("proc/irq/71/node", "-1\n"),
            ("proc/irq/72/smp_affinity_list", "1\n"),
            ("proc/irq/71/eth0-rx-0", ""),
            ("proc/interrupts", "CPU0 CPU2\n 71: 3 4 IR-PCI-MSIX-0000:3b:00.0   2-edge   eth0-rx-0, other one\n"),
            ("sys/kernel/irq/72/actions", "nvme0q1\n"),
        ]));
        assert_eq!(facts.irqs.default_affinity.value(), Some(&CpuSet::from([0, 1, 2, 3])));
        let irq = facts.irqs.irq(71).unwrap();
        assert_eq!(irq.chip.value().map(String::as_str), Some("IR-PCI-MSIX-0000:3b:00.0 2-edge"));
        assert_eq!(irq.name(), "eth0-rx-0, other one");
        assert_eq!((irq.pci.as_deref(), irq.node.get()), (Some("0000:3b:00.0"), Some(None)));
        assert_eq!(irq.effective.value(), Some(&CpuSet::from([2])));
        assert!(irq.managed.is_unknown());
        let other = facts.irqs.irq(72).unwrap();
        assert_eq!((other.name().as_str(), other.pci.as_deref()), ("nvme0q1", None));
        assert!(facts.irqs.irq(9).is_none());
    }

    #[test]
    fn drivers_whose_queues_are_managed() {
        for user in ["nvme0q1", "nvme12q34", "virtio3-req.11", "megasas9-msix12"] {
            assert!(is_managed(user), "{user}");
        }
        for user in ["nvme0q0", "i40e-ens1f0-TxRx-1", "virtio0-input.0", "virtio3-config", "megasas9-msix0", "nvme-q1"]
        {
            assert!(!is_managed(user), "{user}");
        }
    }

    #[test]
    fn interrupts_that_were_not_recorded_are_not_none() {
        assert!(Facts::read(&Root::given([("proc/cmdline", "")])).irqs.list.is_unknown());
    }
}

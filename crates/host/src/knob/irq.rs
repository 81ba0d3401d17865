//! The CPUs that handle interrupts.
//!
//! Source: kernel documentation, core-api/irq/irq-affinity.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::file::text;
use super::{Access, Error, Setting, Value};
use crate::facts::CpuSet;

const FOLDER: &str = "/proc/irq";

/// The CPUs that may handle interrupt `irq`, as a CPU list.
///
/// A managed interrupt (of NVMe, virtio and other drivers that spread their queues themselves) rejects a change with
/// EIO. `effective_affinity_list` shows the CPUs that handle the interrupt now: usually one of the allowed CPUs.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct IrqAffinity {
    /// The interrupt's number in Linux.
    pub irq: u32,
}

/// The CPU that handles interrupt `irq` now. It depends on the current affinity mask and on the previous one.
///
/// When a wider mask includes the current CPU, the kernel leaves the interrupt there (arch/x86/kernel/apic/vector.c,
/// `assign_vector_locked`). So restoring a mask does not move the interrupt back.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct IrqEffective {
    /// The interrupt's number in Linux.
    pub irq: u32,
}

/// The CPUs that may handle newly requested interrupts, as a mask (`/proc/irq/default_smp_affinity`).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct IrqDefaultAffinity {}

/// The numbers of the interrupts that have an affinity.
pub fn irqs(access: &Access) -> Result<Vec<u32>, Error> {
    access.numbered(FOLDER, "")
}

impl IrqAffinity {
    /// Reads the mask repeatedly until it has stayed the same for a while. While a move is pending, the file can
    /// briefly show the previous mask: the kernel clears the pending mark before the new mask is in force
    /// (kernel/irq/migration.c, `irq_move_masked_irq`), and reads the mask without the lock (kernel/irq/proc.c,
    /// `show_irq_affinity`).
    fn settled(&self, access: &Access) -> Result<Option<Value>, Error> {
        /// Number of equal readings, one millisecond apart, after which a mask counts as settled. Hypervisors usually
        /// stop a virtual CPU for less than this time.
        const EQUAL: u32 = 25;
        const PATIENCE: Duration = Duration::from_millis(200);
        let (mut mask, mut equal) = (self.read(access)?, 0);
        let end = Instant::now() + PATIENCE;
        while access.is_live() && equal < EQUAL && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            let now = self.read(access)?;
            equal = if now == mask { equal + 1 } else { 0 };
            mask = now;
        }
        Ok(mask)
    }

    /// Makes the setting for interrupt `irq`.
    pub const fn new(irq: u32) -> Self {
        Self { irq }
    }

    fn file(&self, name: &str) -> String {
        format!("{FOLDER}/{}/{name}", self.irq)
    }

    /// The CPUs that handle the interrupt now. Empty if the interrupt is not in use; `None` if the kernel does not
    /// report the CPUs.
    pub fn effective(&self, access: &Access) -> Result<Option<CpuSet>, Error> {
        Ok(access.line(&self.file("effective_affinity_list"))?.and_then(|list| list.parse().ok()))
    }

    /// Why the interrupt cannot be moved. `None` if it can be moved, or if only a write would show that it cannot.
    ///
    /// From Linux 6.11 on, the files of an interrupt that cannot be moved are read-only (kernel/irq/proc.c,
    /// `register_irq_proc`). Before that, two interrupts of every PC are known by number and name: the timer
    /// (arch/x86/kernel/time.c, `IRQF_NOBALANCING`), and the cascade interrupt of the second interrupt controller
    /// (arch/x86/kernel/i8259.c), which never fires.
    pub fn fixed(&self, access: &Access) -> Result<Option<&'static str>, Error> {
        let of_kernel = |name: &str| access.line(&format!("/sys/kernel/irq/{}/{name}", self.irq));
        let platform = match self.irq {
            0 => of_kernel("actions")?.as_deref() == Some("timer"),
            2 => of_kernel("chip_name")?.as_deref() == Some("XT-PIC"),
            _ => false,
        };
        if platform {
            return Ok(Some("it is a platform interrupt"));
        }
        let read_only =
            access.is_live() && access.mode(&self.file("smp_affinity_list"))?.is_some_and(|m| m & 0o222 == 0);
        Ok(read_only.then_some("it is a managed interrupt, whose CPUs its driver chooses, or a platform interrupt"))
    }

    /// Whether the interrupt is handled only by CPUs in `cpus`.
    pub fn is_within(&self, access: &Access, cpus: &CpuSet) -> Result<bool, Error> {
        Ok(self.effective(access)?.is_some_and(|effective| effective.is_subset(cpus)))
    }

    fn refused(&self, why: &str) -> Error {
        Error::Refused {
            what: format!("move interrupt {}", self.irq),
            why: why.into(),
            fix: "boot with isolcpus=managed_irq,domain,CPUS, which keeps managed interrupts off those CPUs, or give the \
                  device fewer queues"
                .into(),
        }
    }
}

impl Setting for IrqAffinity {
    fn label(&self) -> String {
        format!("CPUs of interrupt {}", self.irq)
    }

    fn line_file(&self) -> Option<String> {
        Some(self.file("smp_affinity_list"))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let list = text(&self.label(), value)?;
        let Err(error) = access.write(&self.file("smp_affinity_list"), list) else { return Ok(()) };
        let Error::Refused { why, .. } = &error else { return Err(error) };
        // EIO: the interrupt cannot be moved (kernel/irq/proc.c, write_irq_affinity). The error depends on whether it
        // already is on allowed CPUs.
        if let Ok(cpus) = list.parse()
            && self.is_within(access, &cpus)?
        {
            let why = format!("it cannot be moved and stays on CPUs {cpus}");
            return Err(Error::NotThere { what: format!("move interrupt {}", self.irq), why });
        }
        Err(self.refused(&format!("the kernel does not allow it: {why}")))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        check_list(&self.label(), value)?;
        match self.fixed(access)? {
            Some(why) => Err(self.refused(why)),
            None => Ok(()),
        }
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        same_list(a, b)
    }

    /// Identifies an interrupt by the names of its actions, because a device that comes back may get the interrupt
    /// number that another device had.
    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        actions(access, self.irq)
    }
}

impl IrqEffective {
    /// Makes the setting for interrupt `irq`.
    pub const fn new(irq: u32) -> Self {
        Self { irq }
    }
}

impl Setting for IrqEffective {
    fn label(&self) -> String {
        format!("CPU that serves interrupt {}", self.irq)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let list = access.line(&format!("{FOLDER}/{}/effective_affinity_list", self.irq))?;
        Ok(list.filter(|list| !list.is_empty()).map(Value::Text))
    }

    /// Writes a mask with only the wanted CPU, waits until the interrupt has moved to this CPU, and then restores the
    /// mask. Without interrupt remapping, the interrupt moves when it next occurs (kernel/irq/migration.c); the
    /// function does not wait for an interrupt that does not occur.
    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_millis(20);
        let mask = IrqAffinity::new(self.irq);
        let absent = || Error::NotThere { what: self.label(), why: "the interrupt no longer exists".into() };
        let before = mask.settled(access)?.ok_or_else(absent)?;
        mask.write(access, value)?;
        let end = Instant::now() + PATIENCE;
        while access.is_live() && self.read(access)?.as_ref() != Some(value) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        mask.write(access, &before)
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        check_list(&self.label(), value)
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        same_list(a, b)
    }

    fn is_effect(&self) -> bool {
        true
    }

    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        actions(access, self.irq)
    }
}

/// The names under which drivers registered an interrupt.
fn actions(access: &Access, irq: u32) -> Result<Option<String>, Error> {
    let entries = access.list(&format!("{FOLDER}/{irq}"))?.unwrap_or_default();
    let known = [
        "affinity_hint",
        "effective_affinity",
        "effective_affinity_list",
        "node",
        "smp_affinity",
        "smp_affinity_list",
        "spurious",
    ];
    let actions: Vec<String> = entries.into_iter().filter(|entry| !known.contains(&entry.as_str())).collect();
    Ok((!actions.is_empty()).then(|| actions.join(",")))
}

impl Setting for IrqDefaultAffinity {
    fn label(&self) -> String {
        "CPUs of future interrupts".into()
    }

    fn line_file(&self) -> Option<String> {
        Some(format!("{FOLDER}/default_smp_affinity"))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        check_mask(&self.label(), value)
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        same_mask(a, b)
    }
}

/// Checks that the value is a list of CPUs with at least one CPU.
pub(super) fn check_list(what: &str, value: &Value) -> Result<(), Error> {
    match text(what, value)?.parse::<CpuSet>() {
        Ok(cpus) if cpus.is_empty() => Err(Error::invalid(what, "needs at least one CPU")),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::invalid(what, error.to_string())),
    }
}

/// Checks that the value is a mask of CPUs with at least one CPU.
pub(super) fn check_mask(what: &str, value: &Value) -> Result<(), Error> {
    match mask(text(what, value)?) {
        Some(cpus) if cpus.is_empty() => Err(Error::invalid(what, "needs at least one CPU")),
        Some(_) => Ok(()),
        None => Err(Error::invalid(what, "expected a mask of CPUs such as f or ff,00000003")),
    }
}

/// Parses a mask in the form that the kernel accepts: hexadecimal words of 32 bits, without a prefix (lib/bitmap-str.c,
/// `bitmap_parse`).
pub(super) fn mask(text: &str) -> Option<CpuSet> {
    let is_word = |word: &str| word.len() <= 8 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    text.trim().split(',').all(is_word).then(|| CpuSet::parse_mask(text).ok()).flatten()
}

pub(super) fn same_list(a: &str, b: &str) -> bool {
    matches!((a.parse::<CpuSet>(), b.parse::<CpuSet>()), (Ok(a), Ok(b)) if a == b)
}

pub(super) fn same_mask(a: &str, b: &str) -> bool {
    matches!((mask(a), mask(b)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn what_cannot_be_moved_is_known_before_it_is_tried() {
        let folder = Folder::new(&[
            ("sys/kernel/irq/0/actions", "timer\n"),
            ("proc/irq/0/effective_affinity_list", "0\n"),
            ("proc/irq/2/effective_affinity_list", "\n"),
            ("sys/kernel/irq/2/chip_name", "XT-PIC\n"),
            ("proc/irq/24/effective_affinity_list", "3\n"),
        ]);
        let access = folder.access();
        for (irq, fixed, within) in [(0, true, true), (2, true, true), (24, false, false)] {
            let irq = IrqAffinity::new(irq);
            assert_eq!(irq.fixed(&access).unwrap().is_some(), fixed, "{}", irq.label());
            assert_eq!(irq.is_within(&access, &"0-1".parse().unwrap()).unwrap(), within, "{}", irq.label());
            assert_eq!(irq.check(&access, &Value::text("0-1")).is_err(), fixed, "{}", irq.label());
        }
    }

    #[test]
    fn masks_that_the_kernel_refuses_are_refused() {
        assert_eq!(mask("00000000,00000003"), Some([0, 1].into()));
        for text in ["", "g", "123456789", "1,", ",1", "0x3"] {
            assert!(mask(text).is_none(), "{text:?} was taken");
        }
    }

    #[test]
    fn affinities_are_sets() {
        let folder = Folder::new(&[
            ("proc/irq/default_smp_affinity", "00000000,000000ff\n"),
            ("proc/irq/24/smp_affinity_list", "0-7\n"),
            ("proc/irq/24/effective_affinity_list", "3\n"),
            ("proc/irq/24/ACPI:Ged/x", ""),
        ]);
        let access = folder.access();
        assert_eq!(irqs(&access).unwrap(), [24]);
        let irq = Knob(IrqAffinity::new(24));
        assert_eq!(irq.0.identity(&access).unwrap().as_deref(), Some("ACPI:Ged"));
        assert_eq!(irq.0.effective(&access).unwrap(), Some("3".parse().unwrap()));
        assert!(irq.verify(&access, &Value::text("0,1,2,3,4,5,6,7"), None).unwrap().is_good());
        assert!(irq.set(&access, &Value::text("")).is_err(), "an interrupt goes somewhere");
        let default = Knob(IrqDefaultAffinity {});
        assert!(default.verify(&access, &Value::text("ff"), None).unwrap().is_good());
    }
}

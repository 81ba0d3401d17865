//! The frequency of the uncore, that is, of the mesh, the last-level cache and the memory controller.
//!
//! Source: kernel documentation, admin-guide/pm/intel_uncore_frequency_scaling; MSR_UNCORE_RATIO_LIMIT (0x620): the
//! upper limit is in bits 6:0, the lower limit in bits 14:8, both in units of 100 MHz
//! (drivers/platform/x86/intel/uncore-frequency).

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::cpufreq::{check_limits, limit_files, read_limits, write_limits};
use super::{Access, Error, Setting, Value, msr};
use crate::facts::CpuSet;

const FOLDER: &str = "/sys/devices/system/cpu/intel_uncore_frequency";
const RATIO_LIMIT: u32 = 0x620;

/// The limits of an uncore domain in sysfs: fields `min` and `max`, in kHz.
///
/// On processors whose uncore is controlled through TPMI, only sysfs works; MSR 0x620 has no effect there.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct UncoreLimits {
    /// Name of the domain's folder, such as `package_00_die_00` or `uncore03`.
    pub domain: String,
}

/// The limits of a die's uncore in MSR 0x620: fields `min` and `max`, in units of 100 MHz. A change keeps all other
/// bits of the register. All CPUs of a die share one such register.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct UncoreMsr {
    /// The CPU through which the register is read and written.
    pub cpu: u32,
}

/// The names of the uncore domains in sysfs. Empty if the driver is not loaded.
pub fn uncore_domains(access: &Access) -> Result<Vec<String>, Error> {
    let names = access.list(FOLDER)?.unwrap_or_default();
    Ok(names.into_iter().filter(|name| name.starts_with("package_") || name.starts_with("uncore")).collect())
}

/// The online CPUs of each die.
pub fn uncore_dies(access: &Access) -> Result<Vec<CpuSet>, Error> {
    let mut dies: Vec<CpuSet> = Vec::new();
    for cpu in super::online(access)?.iter() {
        if !dies.iter().any(|die| die.contains(cpu)) {
            dies.push(die_of(access, cpu)?);
        }
    }
    Ok(dies)
}

/// The online CPUs that share a die with `cpu`.
///
/// If the topology is not in sysfs (as in a recorded host), each socket in /proc/cpuinfo counts as one die.
fn die_of(access: &Access, cpu: u32) -> Result<CpuSet, Error> {
    for name in ["die_cpus_list", "package_cpus_list", "core_siblings_list"] {
        let list = access.line(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}"))?;
        if let Some(cpus) = list.and_then(|list| list.parse::<CpuSet>().ok()).filter(|cpus| cpus.contains(cpu)) {
            return Ok(cpus);
        }
    }
    let info = access.read("/proc/cpuinfo")?.unwrap_or_default();
    let mut sockets: Vec<(u32, &str)> = Vec::new();
    let mut processor = None;
    for line in info.lines() {
        match line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("processor", number)) => processor = number.parse().ok(),
            Some(("physical id", socket)) => sockets.extend(processor.map(|cpu| (cpu, socket))),
            _ => {}
        }
    }
    let socket = sockets.iter().find(|(number, _)| *number == cpu).map(|(_, socket)| *socket);
    let die: CpuSet = sockets.iter().filter(|(_, s)| Some(*s) == socket).map(|(number, _)| *number).collect();
    Ok(if die.is_empty() { [cpu].into_iter().collect() } else { die })
}

impl UncoreLimits {
    /// Makes the setting for the domain `domain`.
    pub fn new(domain: impl Into<String>) -> Self {
        Self { domain: domain.into() }
    }

    /// The value that fixes the domain at the minimum frequency that was allowed at boot. `None` if the driver does not
    /// report this frequency.
    pub fn lowest(&self, access: &Access) -> Result<Option<Value>, Error> {
        let least = access.number(&self.file("initial_min_freq_khz"))?;
        Ok(least.map(|khz| Value::fields([("min", khz), ("max", khz)])))
    }

    fn file(&self, name: &str) -> String {
        format!("{FOLDER}/{}/{name}", self.domain)
    }
}

impl Setting for UncoreLimits {
    fn label(&self) -> String {
        format!("uncore frequency limits of {}, in kHz", self.domain)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        read_limits(access, &self.file("min_freq_khz"), &self.file("max_freq_khz"))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        write_limits(access, value, &self.file("min_freq_khz"), &self.file("max_freq_khz"))
    }

    fn admit(&self) -> Result<(), Error> {
        let known = self.domain.starts_with("package_") || self.domain.starts_with("uncore");
        if known && self.domain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Ok(());
        }
        Err(Error::invalid(self.label(), "expected a domain such as package_00_die_00 or uncore03"))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        check_limits(&self.label(), value)?;
        let least = access.number(&self.file("initial_min_freq_khz"))?;
        let most = access.number(&self.file("initial_max_freq_khz"))?;
        let Some((least, most)) = least.zip(most) else { return Ok(()) };
        for (field, value) in value.as_fields().into_iter().flatten() {
            if value.parse::<u64>().is_ok_and(|n| !(least..=most).contains(&n)) {
                return Err(Error::invalid(
                    format!("{field}={value} kHz on the uncore of {}", self.domain),
                    format!("the firmware allows {least} to {most} kHz; choose a frequency in between"),
                ));
            }
        }
        Ok(())
    }

    /// The firmware's range may have changed, too: see the frequency limits of CPUs.
    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        check_limits(&self.label(), before)
    }

    fn files(&self, _: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        Ok(limit_files(wanted, self.file("min_freq_khz"), self.file("max_freq_khz")))
    }
}

impl UncoreMsr {
    /// Makes the setting for the die of CPU `cpu`.
    pub const fn new(cpu: u32) -> Self {
        Self { cpu }
    }
}

impl Setting for UncoreMsr {
    fn label(&self) -> String {
        format!("uncore ratio limits of CPU {}'s die (MSR {RATIO_LIMIT:#x})", self.cpu)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let register = msr::read(access, self.cpu, RATIO_LIMIT)?;
        Ok(register.map(|r| Value::fields([("min", msr::bits(r, 8, 14)), ("max", msr::bits(r, 0, 6))])))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let absent =
            || Error::NotThere { what: self.label(), why: "no such register; is the module msr loaded?".into() };
        let mut register = msr::read(access, self.cpu, RATIO_LIMIT)?.ok_or_else(absent)?;
        for (name, first, last) in [("min", 8, 14), ("max", 0, 6)] {
            if let Some(ratio) = value.field(name).and_then(|text| text.parse().ok()) {
                register = msr::with_bits(register, first, last, ratio);
            }
        }
        // On the running machine, the register is written through the chosen CPU.
        let scope = if access.is_live() { [self.cpu].into_iter().collect() } else { die_of(access, self.cpu)? };
        msr::write(access, &scope, RATIO_LIMIT, register)
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        check_limits(&self.label(), value)?;
        let fits = |text: &String| text.parse::<u64>().is_ok_and(|n| (1..128).contains(&n));
        if value.as_fields().into_iter().flatten().all(|(_, text)| fits(text)) {
            return Ok(());
        }
        Err(Error::invalid(self.label(), format!("{value}: ratios are 1 to 127")))
    }

    /// Also accepts 0, because a limit that was never set reads as 0.
    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        let fits = |(field, text): (&String, &String)| {
            ["min", "max"].contains(&field.as_str()) && text.parse::<u64>().is_ok_and(|n| n < 128)
        };
        if before.as_fields().is_some_and(|fields| fields.iter().all(fits)) {
            return Ok(());
        }
        Err(Error::invalid(self.label(), format!("{before}: expected min and max, ratios 0 to 127")))
    }

    fn capability(&self) -> CapabilitySet {
        CapabilitySet::SYS_RAWIO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    fn two_sockets() -> Folder {
        Folder::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nphysical id\t: 0\n\nprocessor\t: 1\nphysical id\t: 1\n\nprocessor\t: 2\nphysical id\t: 0\n\nprocessor\t: 3\nphysical id\t: 1\n",
            ),
            ("msr/0x620", "0 0x80000818\n1 0x818\n2 0x80000818\n3 0x818\n"),
        ])
    }

    #[test]
    fn the_register_is_one_for_the_die() {
        let folder = two_sockets();
        let access = folder.access();
        let dies: Vec<String> = uncore_dies(&access).unwrap().iter().map(CpuSet::to_string).collect();
        assert_eq!(dies, ["0,2", "1,3"]);
        let change = Knob(UncoreMsr::new(0)).set(&access, &Value::fields([("min", 0x15), ("max", 0x15)])).unwrap();
        assert!(change.verdict.is_good());
        assert_eq!(folder.read("msr/0x620"), "0 0x80001515\n1 0x818\n2 0x80001515\n3 0x818\n");
        assert!(Knob(UncoreMsr::new(0)).set(&access, &Value::fields([("max", 128)])).is_err());
    }

    #[test]
    fn sysfs_limits_are_those_of_the_firmware() {
        let file = |name: &str| format!("{FOLDER}/package_00_die_00/{name}");
        let folder = Folder::new(&[
            (&file("min_freq_khz"), "800000\n"),
            (&file("max_freq_khz"), "2400000\n"),
            (&file("initial_min_freq_khz"), "800000\n"),
            (&file("initial_max_freq_khz"), "2400000\n"),
        ]);
        let access = folder.access();
        assert_eq!(uncore_domains(&access).unwrap(), ["package_00_die_00"]);
        let knob = Knob(UncoreLimits::new("package_00_die_00"));
        assert!(knob.set(&access, &Value::fields([("min", 2_400_000)])).unwrap().verdict.is_good());
        assert!(knob.set(&access, &Value::fields([("max", 2_500_000)])).is_err());
    }
}

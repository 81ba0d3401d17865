//! Model-specific registers.

use std::collections::BTreeMap;

use super::{Fact, Why};

/// The registers that Apus reads from a host or accepts from a recording, as address and name (Intel 64 and IA-32
/// Software Developer's Manual, volume 4; 0x620: Intel document 336274, uncore performance monitoring).
pub const REGISTERS: [(u32, &str); 25] = [
    (0x34, "MSR_SMI_COUNT"),
    (0xCE, "MSR_PLATFORM_INFO"),
    (0xE1, "IA32_UMWAIT_CONTROL"),
    (0xE2, "MSR_PKG_CST_CONFIG_CONTROL"),
    (0x19C, "IA32_THERM_STATUS"),
    (0x1A0, "IA32_MISC_ENABLE"),
    (0x1A4, "MSR_MISC_FEATURE_CONTROL"),
    (0x1AD, "MSR_TURBO_RATIO_LIMIT"),
    (0x1AE, "MSR_TURBO_RATIO_LIMIT_CORES"),
    (0x1B0, "IA32_ENERGY_PERF_BIAS"),
    (0x1B1, "IA32_PACKAGE_THERM_STATUS"),
    (0x1FC, "MSR_POWER_CTL"),
    (0x606, "MSR_RAPL_POWER_UNIT"),
    (0x610, "MSR_PKG_POWER_LIMIT"),
    (0x614, "MSR_PKG_POWER_INFO"),
    (0x620, "MSR_UNCORE_RATIO_LIMIT"),
    (0x621, "MSR_UNCORE_PERF_STATUS"),
    (0x770, "IA32_PM_ENABLE"),
    (0x771, "IA32_HWP_CAPABILITIES"),
    (0x772, "IA32_HWP_REQUEST_PKG"),
    (0x773, "IA32_HWP_INTERRUPT"),
    (0x774, "IA32_HWP_REQUEST"),
    (0x777, "IA32_HWP_STATUS"),
    (0xC8B, "MSR_IIO_LLC_WAYS"),
    (0xC001_0015, "MSR_AMD_HWCR"),
];

/// Model-specific registers of a host, by address and CPU. Reading a register interrupts its CPU. So on a live host,
/// registers are read only if the user requests them; otherwise they are [`Why::NotAsked`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Msrs {
    /// The values of each register by CPU, for the CPUs that were read. The key is the register's address.
    pub registers: BTreeMap<u32, Fact<BTreeMap<u32, u64>>>,
    /// Why the registers that are missing from the map were not read. `None` if no reason is known.
    pub why: Option<Why>,
}

impl Msrs {
    /// The values of a register, by CPU.
    pub fn register(&self, address: u32) -> Fact<&BTreeMap<u32, u64>> {
        match self.registers.get(&address) {
            Some(fact) => fact.as_ref(),
            None => Fact::missing(self.why.clone().unwrap_or(Why::NotRecorded), source(address).as_str()),
        }
    }

    /// The value of a register on one CPU.
    pub fn of(&self, address: u32, cpu: u32) -> Fact<u64> {
        let source = format!("{} of CPU {cpu}", source(address));
        match self.register(address) {
            Fact::Known { value, .. } => match value.get(&cpu) {
                Some(value) => Fact::known(*value, source.as_str()),
                None => Fact::not_recorded(source.as_str()),
            },
            Fact::Missing { why, .. } => Fact::missing(why, source.as_str()),
        }
    }
}

/// The source name of a register: `MSR 0x1fc`.
pub fn source(address: u32) -> String {
    format!("MSR 0x{address:x}")
}

/// Bits `low` to `high`, both included, of a register's value, shifted down to bit 0.
pub const fn bits(value: u64, high: u32, low: u32) -> u64 {
    (value >> low) & (u64::MAX >> (63 - (high - low)))
}

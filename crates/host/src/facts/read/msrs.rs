//! Model-specific registers: from a recording (`msr/0xADDRESS`), or from the live host if the user requested them.

use std::collections::BTreeMap;

use crate::facts::root::TABLE_LIMIT;
use crate::facts::{Context, CpuSet, MAX_CPUS, Msrs, REGISTERS, Why, live, msr};

/// Maximum number of registers that are read from a recording.
const MAX_REGISTERS: usize = 4096;

pub(crate) fn read(context: &Context, online: &CpuSet) -> Msrs {
    if context.is_live() {
        if !context.reading.msrs {
            return Msrs { registers: BTreeMap::new(), why: Some(Why::NotAsked) };
        }
        let registers = REGISTERS.iter().map(|(address, _)| (*address, live::msr(*address, online)));
        return Msrs { registers: registers.collect(), why: None };
    }
    let names = context.root.list("msr").into_value().unwrap_or_default();
    let address = |name: &String| u32::from_str_radix(name.strip_prefix("0x")?, 16).ok();
    let registers = names.iter().filter_map(|name| Some((address(name)?, name))).take(MAX_REGISTERS);
    let read = |(address, name): (u32, &String)| {
        let values = context.root.text_up_to(&format!("msr/{name}"), TABLE_LIMIT).parse(|text| parse(&text));
        (address, values.named(msr::source(address).as_str()))
    };
    Msrs { registers: registers.map(read).collect(), why: None }
}

/// Parses the values of a register, one line per CPU: `17 0x1a00a40059`.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<u32, u64>, String> {
    let line = |line: &str| {
        let (cpu, value) = line.trim().split_once(' ')?;
        let cpu = cpu.parse().ok().filter(|cpu| *cpu < MAX_CPUS)?;
        Some((cpu, u64::from_str_radix(value.trim().strip_prefix("0x")?, 16).ok()?))
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|text| line(text).ok_or_else(|| format!("{text:?} is not CPU and 0xVALUE"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Root, bits};

    #[test]
    fn a_recorded_register_is_known_by_cpu() {
        let root = Root::given([("msr/0x1fc", "0 0x1a00a40059\n1 0x1a00a40058\n"), ("msr/0x34", "0 lots\n")]);
        let msrs = Facts::read(&root).msrs;
        assert_eq!(msrs.of(0x1fc, 1).get(), Some(0x1a00a40058));
        assert_eq!(msrs.of(0x1fc, 1).source().as_str(), "MSR 0x1fc of CPU 1");
        assert_eq!(msrs.of(0x1fc, 2).why(), Some(&Why::NotRecorded));
        assert_eq!(msrs.of(0x620, 0).why(), Some(&Why::NotRecorded));
        assert!(matches!(msrs.of(0x34, 0).why(), Some(Why::Malformed(_))));
    }

    #[test]
    fn fields_are_cut_out() {
        assert_eq!(bits(0x80002308, 31, 24), 0x80);
        assert_eq!(bits(0x80002308, 15, 8), 0x23);
        assert_eq!(bits(u64::MAX, 63, 0), u64::MAX);
    }
}

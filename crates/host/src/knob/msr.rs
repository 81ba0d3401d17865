//! Model-specific registers.
//!
//! On the running machine they are in `/dev/cpu/N/msr`: eight bytes at the register's address (msr(4)). Below another
//! root folder, as in recorded hosts, they are in the file `msr/0xADDRESS`, with a line `CPU 0xVALUE` for each CPU.

use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags};

use super::{Access, Error};
use crate::facts::CpuSet;

/// The value of a register on `cpu`. `None` if there is no such CPU, or if its registers are not accessible.
pub(super) fn read(access: &Access, cpu: u32, address: u32) -> Result<Option<u64>, Error> {
    if !access.is_live() {
        let Some(text) = access.read(&recorded(address))? else { return Ok(None) };
        return lines(&text).find(|line| line.cpu == cpu).map(|line| value(access, address, &line)).transpose();
    }
    let path = device(cpu);
    let mut octets = [0; 8];
    let file = access.open(&path, OFlags::RDONLY, Mode::empty());
    match file.and_then(|file| file.read_exact_at(&mut octets, address.into())) {
        Ok(()) => Ok(Some(u64::from_le_bytes(octets))),
        Err(e) => match Error::of(format!("read register {address:#x} of CPU {cpu}"), &e) {
            Error::NotThere { .. } => Ok(None),
            // The register does not exist, so reading it faulted (arch/x86/kernel/msr.c).
            Error::Refused { .. } => Ok(None),
            error => Err(error),
        },
    }
}

/// Sets a register that the CPUs `cpus` share (one CPU, or all CPUs of a die). On the running machine, it is written
/// once, on the first of these CPUs. Below another root folder, the line of each of these CPUs is changed.
pub(super) fn write(access: &Access, cpus: &CpuSet, address: u32, to: u64) -> Result<(), Error> {
    let cpu = cpus.iter().next().ok_or_else(|| Error::invalid(format!("register {address:#x}"), "names no CPU"))?;
    let what = || format!("write {to:#x} to register {address:#x} of CPU {cpu}");
    if !access.is_live() {
        let path = recorded(address);
        let absent = || Error::NotThere { what: what(), why: "the register was not recorded".into() };
        let text = access.read(&path)?.ok_or_else(absent)?;
        let mut whole = String::with_capacity(text.len() + 16);
        for line in lines(&text) {
            if cpus.contains(line.cpu) {
                whole.push_str(&format!("{} {to:#x}{}", line.cpu, line.end));
            } else {
                whole.push_str(line.whole);
            }
        }
        return access.replace(&path, &whole);
    }
    let file = access.open(&device(cpu), OFlags::WRONLY, Mode::empty()).map_err(|e| Error::of(what(), &e))?;
    let written = access.act("write", what(), || file.write_at(&to.to_le_bytes(), address.into()));
    match written {
        Ok(8) => Ok(()),
        Ok(_) => Err(Error::System { what: what(), why: "the kernel accepted only a part of it".into() }),
        Err(e) => Err(match Error::of(what(), &e) {
            Error::NotPermitted { what, why, .. } => Error::NotPermitted {
                what,
                why,
                fix: "needs root with CAP_SYS_RAWIO, no kernel lockdown, and msr.allow_writes=on".into(),
            },
            other => other,
        }),
    }
}

fn device(cpu: u32) -> String {
    format!("/dev/cpu/{cpu}/msr")
}

fn recorded(address: u32) -> String {
    format!("/msr/{address:#x}")
}

struct Line<'a> {
    cpu: u32,
    value: &'a str,
    end: &'a str,
    whole: &'a str,
}

/// The lines of a recorded register. A line that does not begin with a CPU number belongs to no CPU.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.split_inclusive('\n').map(|whole| {
        let bare = whole.trim_end_matches('\n');
        let (cpu, value) = bare.split_once(' ').unwrap_or(("", bare));
        Line { cpu: cpu.parse().unwrap_or(u32::MAX), value, end: &whole[bare.len()..], whole }
    })
}

fn value(access: &Access, address: u32, line: &Line<'_>) -> Result<u64, Error> {
    let number = line.value.trim().strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    number.ok_or_else(|| Error::unreadable(access.show(&recorded(address)), line.whole, "lines such as 21 0x80002308"))
}

/// The bits `first` to `last` of a register's value, shifted down to bit 0.
pub(super) const fn bits(register: u64, first: u32, last: u32) -> u64 {
    register >> first & (u64::MAX >> (63 - (last - first)))
}

/// A register's value with its bits `first` to `last` replaced by `value`. Higher bits of `value` are ignored.
pub(super) const fn with_bits(register: u64, first: u32, last: u32, value: u64) -> u64 {
    let mask = (u64::MAX >> (63 - (last - first))) << first;
    register & !mask | value << first & mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn bits_are_those_named() {
        assert_eq!(bits(0x8000_2308, 8, 15), 0x23);
        assert_eq!(bits(u64::MAX, 0, 63), u64::MAX);
        assert_eq!(with_bits(0x8000_2308, 8, 15, 0x08), 0x8000_0808);
        assert_eq!(with_bits(0, 8, 14, 0xfff), 0x7f00);
    }

    #[test]
    fn one_line_changes() {
        let folder = Folder::new(&[("msr/0x774", "0 0x80002308\n2 0x1\n21 0x80002308\n")]);
        let access = folder.access();
        assert_eq!(read(&access, 2, 0x774).unwrap(), Some(1));
        assert_eq!(read(&access, 1, 0x774).unwrap(), None);
        write(&access, &[2].into_iter().collect(), 0x774, 0x8000_0808).unwrap();
        assert_eq!(folder.read("msr/0x774"), "0 0x80002308\n2 0x80000808\n21 0x80002308\n");
        assert!(write(&access, &CpuSet::new(), 0x774, 0).is_err());
        assert_eq!(read(&access, 0, 0x775).unwrap(), None);
    }

    #[test]
    fn damaged_lines_are_errors() {
        let folder = Folder::new(&[("msr/0x774", "0 80002308\n")]);
        assert!(matches!(read(&folder.access(), 0, 0x774), Err(Error::Unreadable { .. })));
    }
}

//! Memory modules in the firmware's table (SMBIOS specification 3.7, sections 6.1 and 7.18), or as
//! dmidecode(8) prints them. Serial numbers and asset tags are left out.

use crate::facts::MemoryModule;

/// SMBIOS structure type of a memory device.
const MEMORY_DEVICE: u8 = 17;
/// Maximum number of modules that are read; no host has more slots.
const MAX_MODULES: usize = 4096;

/// Parses the memory devices in an SMBIOS table. If the table is damaged, returns the devices before the damage.
pub(crate) fn modules(table: &[u8]) -> Vec<MemoryModule> {
    let mut modules = Vec::new();
    let mut rest = table;
    while let [kind, length, ..] = *rest
        && length >= 4
        && let Some((fixed, tail)) = rest.split_at_checked(length.into())
        && modules.len() < MAX_MODULES
    {
        let end = tail.windows(2).position(|pair| pair == [0, 0]).unwrap_or(tail.len());
        let strings: Vec<&[u8]> = tail[..end].split(|octet| *octet == 0).collect();
        if kind == MEMORY_DEVICE {
            modules.extend(module(fixed, &strings));
        }
        rest = tail.get(end + 2..).unwrap_or_default();
    }
    modules
}

/// Reads the fields of a memory module at their offsets (table 76 of the specification).
fn module(fixed: &[u8], strings: &[&[u8]]) -> Option<MemoryModule> {
    let word = |at: usize| Some(u16::from_le_bytes(fixed.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_le_bytes(fixed.get(at..at + 4)?.try_into().ok()?));
    let text = |at: usize| {
        let number = usize::from(*fixed.get(at)?).checked_sub(1)?;
        strings.get(number).map(|text| String::from_utf8_lossy(text).trim().to_owned())
    };
    // 0 means unknown. 0xFFFF means that the 32-bit field at `extended` holds the value.
    let speed = |at: usize, extended: usize| match word(at)? {
        0 => None,
        0xFFFF => long(extended),
        speed => Some(speed.into()),
    };
    Some(MemoryModule {
        locator: text(0x10).unwrap_or_default(),
        bank: text(0x11).unwrap_or_default(),
        size_bytes: match word(0x0C)? {
            0 | 0xFFFF => None,
            0x7FFF => long(0x1C).map(|mebibytes| u64::from(mebibytes & 0x7FFF_FFFF) << 20),
            kibibytes if kibibytes & 0x8000 != 0 => Some(u64::from(kibibytes & 0x7FFF) << 10),
            mebibytes => Some(u64::from(mebibytes) << 20),
        },
        speed_mts: speed(0x15, 0x54),
        configured_mts: speed(0x20, 0x58),
    })
}

/// Parses the `Memory Device` blocks in the output of dmidecode(8).
pub(crate) fn modules_in_text(text: &str) -> Vec<MemoryModule> {
    let mut modules: Vec<MemoryModule> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if !line.starts_with([' ', '\t']) {
            inside = line.trim() == "Memory Device";
            if inside && modules.len() < MAX_MODULES {
                modules.push(MemoryModule::default());
            }
            continue;
        }
        let (Some((key, value)), Some(module), true) = (line.split_once(':'), modules.last_mut(), inside) else {
            continue;
        };
        let value = value.trim();
        match key.trim() {
            "Locator" => module.locator = value.into(),
            "Bank Locator" => module.bank = value.into(),
            "Size" => module.size_bytes = size(value),
            "Speed" => module.speed_mts = transfers(value),
            "Configured Memory Speed" | "Configured Clock Speed" => module.configured_mts = transfers(value),
            _ => {}
        }
    }
    modules
}

/// Parses a size: `32 GB`, `16384 MB` or `No Module Installed`.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let shift = match unit {
        "kB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses a speed: `2933 MT/s`, `2400 MHz` (older versions) or `Unknown`.
fn transfers(text: &str) -> Option<u32> {
    let (number, unit) = text.split_once(' ')?;
    matches!(unit, "MT/s" | "MHz").then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn structure(kind: u8, size: u16, speed: u16) -> Vec<u8> {
        let mut fixed = vec![0; 0x5C];
        fixed[0] = kind;
        fixed[1] = 0x5C;
        fixed[0x0C..0x0E].copy_from_slice(&size.to_le_bytes());
        (fixed[0x10], fixed[0x11]) = (1, 2);
        fixed[0x15..0x17].copy_from_slice(&speed.to_le_bytes());
        fixed[0x1C..0x20].copy_from_slice(&65536u32.to_le_bytes());
        fixed[0x20..0x22].copy_from_slice(&2666u16.to_le_bytes());
        fixed[0x54..0x58].copy_from_slice(&70000u32.to_le_bytes());
        [fixed.as_slice(), b"DIMM_A1\0BANK 0\0\0"].concat()
    }

    #[test]
    fn a_table_of_the_firmware() {
        let mut table = structure(1, 0, 0);
        table.extend(structure(MEMORY_DEVICE, 0x4000, 2933));
        table.extend(structure(MEMORY_DEVICE, 0x7FFF, 0xFFFF));
        table.extend(structure(MEMORY_DEVICE, 0, 0));
        let modules = modules(&table);
        assert_eq!(modules.len(), 3);
        assert_eq!((modules[0].locator.as_str(), modules[0].bank.as_str()), ("DIMM_A1", "BANK 0"));
        assert_eq!((modules[0].size_bytes, modules[0].speed_mts), (Some(16 << 30), Some(2933)));
        assert_eq!((modules[1].size_bytes, modules[1].speed_mts), (Some(64 << 30), Some(70000)));
        assert_eq!((modules[2].size_bytes, modules[2].speed_mts), (None, None));
    }

    #[test]
    fn the_text_of_dmidecode() {
        let text = "Handle 0x1100, DMI type 17, 84 bytes\nMemory Device\n\tSize: 32 GB\n\tLocator: A1\n\tSerial Number: X\n\
            \tSpeed: 3200 MT/s\n\tConfigured Memory Speed: 2933 MT/s\nSystem Slot\n\tLocator: B\n\
            Memory Device\n\tSize: No Module Installed\n\tSpeed: Unknown\n";
        let modules = modules_in_text(text);
        assert_eq!(modules.len(), 2);
        assert_eq!((modules[0].size_bytes, modules[0].configured_mts), (Some(32 << 30), Some(2933)));
        assert_eq!(modules[0].locator, "A1");
        assert_eq!((modules[1].size_bytes, modules[1].speed_mts), (None, None));
    }

    proptest! {
        #[test]
        fn any_octets_are_a_table(octets in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,60}") {
            let _ = modules(&octets);
            let _ = modules_in_text(&format!("Memory Device\n\t{text}\n Size: {text}"));
        }
    }
}

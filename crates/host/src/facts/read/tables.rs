//! `/proc/interrupts` and `/proc/softirqs`.

use crate::facts::root::TABLE_LIMIT;
use crate::facts::{CountRow, CountTable, Fact, MAX_CPUS, Root};

/// Maximum number of rows that are read from a table of interrupts. x86 has at most 224 vectors on each of 8192 CPUs; a
/// host uses a few thousand of them.
const MAX_ROWS: usize = 1 << 17;

pub(super) fn interrupts(root: &Root, place: &str) -> Fact<CountTable> {
    root.text_up_to(&format!("{place}proc/interrupts"), TABLE_LIMIT).parse(|text| parse(&text))
}

pub(super) fn softirqs(root: &Root, place: &str) -> Fact<CountTable> {
    root.text_up_to(&format!("{place}proc/softirqs"), TABLE_LIMIT).parse(|text| parse(&text))
}

/// Parses a table whose columns are CPUs (fs/proc/interrupts.c, kernel/irq/proc.c `show_interrupts`).
/// `/proc/interrupts` has columns for online CPUs, `/proc/softirqs` for possible CPUs.
pub(crate) fn parse(text: &str) -> Result<CountTable, String> {
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    let cpus: Option<Vec<u32>> = heading
        .split_ascii_whitespace()
        .map(|word| word.strip_prefix("CPU")?.parse().ok().filter(|cpu| *cpu < MAX_CPUS))
        .collect();
    let cpus = cpus.filter(|cpus| !cpus.is_empty() && cpus.is_sorted_by(|a, b| a < b));
    let cpus = cpus.ok_or_else(|| format!("the first line is {:?}, not CPU0 CPU1 …", start(heading)))?;
    let rows: Vec<CountRow> = lines.take(MAX_ROWS).filter_map(|line| row(line, cpus.len())).collect();
    Ok(CountTable { cpus, rows })
}

/// Parses a row of a table of interrupts: `  55:   0   5468  PCI-MSIX-0000:04:00.0   2-edge   virtio3-req.1`.
fn row(line: &str, columns: usize) -> Option<CountRow> {
    let (label, mut rest) = line.split_once(':')?;
    let mut counts = Vec::with_capacity(columns);
    while counts.len() < columns {
        let trimmed = rest.trim_ascii_start();
        let end = trimmed.bytes().position(|c| c.is_ascii_whitespace()).unwrap_or(trimmed.len());
        match number(&trimmed.as_bytes()[..end]) {
            Some(count) => counts.push(count),
            None => break,
        }
        rest = &trimmed[end..];
    }
    // A total has one number. A row with more numbers but fewer than the columns is an incomplete last line.
    if counts.is_empty() || (counts.len() > 1 && counts.len() < columns) {
        return None;
    }
    Some(CountRow { label: label.trim().into(), description: rest.trim().into(), counts: counts.into() })
}

/// Parses a decimal number. On millions of zeroes, this is much faster than `str::parse`.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { n.checked_mul(10)?.checked_add(digit.into()) }
    })
}

fn start(text: &str) -> String {
    text.trim().chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "           CPU0       CPU2
  9:          1          2  IR-IO-APIC    9-fasteoi   acpi
 71:        128          7  PCI-MSI-0000:00:1f.2   0-edge      ahci[0000:00:1f.2]
LOC:     297535     296718   Local timer interrupts
ERR:          0
";

    #[test]
    fn rows_have_a_number_for_each_column() {
        let table = parse(TABLE).unwrap();
        assert_eq!(table.cpus, [0, 2]);
        let disk = table.row("71").unwrap();
        assert_eq!((disk.irq(), disk.total()), (Some(71), 135));
        assert_eq!((table.on(disk, 2), table.on(disk, 1)), (Some(7), None));
        assert_eq!(&*disk.description, "PCI-MSI-0000:00:1f.2   0-edge      ahci[0000:00:1f.2]");
        assert_eq!(table.row("LOC").unwrap().irq(), None);
        let errors = table.row("ERR").unwrap();
        assert_eq!((table.on(errors, 0), errors.total()), (None, 0));
    }

    #[test]
    fn what_is_no_table_says_what_it_began_with() {
        assert!(parse("root:x:0:0").unwrap_err().contains("root:x:0:0"));
        assert!(parse("").is_err() && parse("CPU1 CPU0").is_err());
        let torn = parse("CPU0 CPU1 CPU2\n 55: 1 2\n").unwrap();
        assert!(torn.rows.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_a_table_or_an_error(text in "(CPU[0-9]{1,4} ?){0,3}\n(\\PC{0,40}\n){0,5}") {
            let _ = parse(&text);
        }
    }
}

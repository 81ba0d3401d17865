//! Any octets as `/proc/interrupts`, twice: rows have a number for each CPU, or one.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given([
        ("proc/interrupts", data),
        ("proc/softirqs", data),
        ("again/proc/interrupts", data),
        ("again/proc/softirqs", data),
    ]));
    if let Some(table) = facts.counters.interrupts.value() {
        assert!(table.rows.iter().all(|row| row.counts.len() == 1 || row.counts.len() == table.cpus.len()));
        let change = table.since(table);
        assert!(change.rows.iter().all(|row| row.counts.iter().all(|count| *count == 0)));
    }
});

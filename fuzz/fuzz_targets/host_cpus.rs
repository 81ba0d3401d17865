//! Any text as a set of CPUs, or a command line.
#![no_main]

use host::facts::{CommandLine, CpuSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for set in [CpuSet::parse_list(text), CpuSet::parse_mask(text)].into_iter().flatten() {
        assert_eq!(CpuSet::parse_mask(&set.to_mask()), Ok(set.clone()));
        if !set.is_empty() {
            assert_eq!(CpuSet::parse_list(&set.to_string()), Ok(set));
        }
    }
    let line = CommandLine::parse(text);
    for parameter in &line.parameters {
        assert!(line.has(&parameter.name));
        let _ = parameter.cpu_set(&CpuSet::below(8));
    }
});

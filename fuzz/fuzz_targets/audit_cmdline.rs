//! Any text as a kernel command line, judged alone; and as a baseline.
#![no_main]

use audit::{Context, cmdline, read_baseline};
use host::facts::{CommandLine, CpuSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let line = CommandLine::parse(text);
    let context = Context { isolated: audit::Intended::given(CpuSet::below(8)), ..Context::default() };
    for context in [Context::default(), context] {
        let _ = cmdline::judge(&line, &context);
    }
    let _ = read_baseline(text);
});

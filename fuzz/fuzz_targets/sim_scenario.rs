//! Any text as a scenario of the simulator, and as the files that it names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::scenario::Scenario;

fuzz_target!(|text: &str| {
    let (scenario, named) = text.split_once('\0').unwrap_or((text, text));
    if let Err(error) = Scenario::parse("fuzz", scenario, &[], &mut |_| Ok(named.as_bytes().to_vec())) {
        assert!(!error.to_string().is_empty());
    }
});

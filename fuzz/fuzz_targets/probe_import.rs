//! Any text as the result of another tool, shown as a report.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match probe::import::read("fuzz", text) {
    Ok(imported) => {
        let set = probe::report::Set { name: "", host: &imported.host, measured: &[imported.measured] };
        let _ = tester::report::render(&probe::report::report("fuzz", &[set], serde_json::Value::Null));
    }
    Err(error) => assert!(error.to_string().starts_with("fuzz")),
});

//! Any text as a profile of settings. Includes are not followed: they name files.
#![no_main]

use host::profile::Layer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Layer::parse("fuzz", None, text) {
        assert!(error.place.starts_with("fuzz") && !error.why.is_empty(), "{error:?}");
    }
});

//! Any octets as the parts of a snapshot that say what the others are.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given([
        ("apus-snapshot", data),
        ("bundle/paths", data),
        ("bundle/lines", data),
        ("bundle/links", data),
        ("denied", data),
        ("unasked", data),
    ]));
    drop(facts);
});

//! Any octets as the states of all threads.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given([("tasks/stat", data), ("tasks/status", data), ("tasks/cgroup", data)]));
    drop(facts);
});

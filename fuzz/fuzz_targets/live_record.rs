//! Any octets as recorded decisions of a policy, replayed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = live::record::replay(data, "fuzz");
});

//! Any octets as an archive of a host: it is read, within its bounds, or refused.
#![no_main]

use std::io::Write;

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a file to write to");
    file.write_all(data).expect("room for it");
    if let Ok(root) = Root::open(file.path()) {
        let _ = Facts::read(&root);
    }
});

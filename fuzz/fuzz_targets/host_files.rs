//! Any octets as any of the files that the reader asks for.
//!
//! Files follow one another, each as a line with its number in the list and its length, and then its octets.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

#[path = "../files.rs"]
mod files;

fuzz_target!(|data: &[u8]| {
    let _ = Facts::read(&Root::given(files::split(data)));
});

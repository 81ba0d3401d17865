//! Any octets as any files of a host of which a snapshot is taken: what is to be masked is, and what is kept is read
//! as it would be from the host.
#![no_main]

use host::facts::{Facts, Root};
use host::snapshot::{Plan, Snapshot};
use libfuzzer_sys::fuzz_target;
use units::Nanos;

#[path = "../files.rs"]
mod files;

fuzz_target!(|data: &[u8]| {
    let root = Root::given(files::split(data));
    let snapshot = Snapshot::of(&root, Plan { interval: Nanos::ZERO, ..Plan::default() });
    let _ = Facts::read(&Root::given(snapshot.files()));
});

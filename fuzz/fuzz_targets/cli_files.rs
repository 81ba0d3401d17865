//! Any octets as the files that commands read: recorded calls of DIM, results of `apus bench` and `apus probe`, the plan
//! of an experiment (its dry run). The first octet says which.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use apus::args::Args;
use clap::Parser;
use libfuzzer_sys::fuzz_target;

const COMMANDS: [&str; 6] = [
    "apus dim replay FILE",
    "apus dim replay --mode rdma --json FILE",
    "apus probe compare FILE FILE",
    "apus report FILE -o OUT",
    "apus probe import FILE --json",
    "apus experiment --dry-run FILE",
];

fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        (folder, path)
    };
    &FOLDER.get_or_init(make).1
}

fuzz_target!(|data: &[u8]| {
    let [which, contents @ ..] = data else { return };
    let (file, out) = (folder().join("file"), folder().join("out.html"));
    fs::write(&file, contents).expect("room for it");
    let words = COMMANDS[usize::from(*which) % COMMANDS.len()].split(' ').map(|word| match word {
        "FILE" => file.clone().into_os_string(),
        "OUT" => out.clone().into_os_string(),
        word => word.into(),
    });
    let typed = Args::try_parse_from(words).expect("a command of ours");
    if let Err(error) = apus::commands::run(typed.command) {
        assert!(!error.to_string().is_empty());
    }
});

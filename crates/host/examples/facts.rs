//! Prints all facts of a place: `cargo run -p host --example facts -- PATH`; without a path, of this host.

use std::process::ExitCode;
use std::time::Instant;

use host::facts::{Facts, Root};

fn main() -> ExitCode {
    let root = match std::env::args_os().nth(1) {
        None => Root::live(),
        Some(path) => match Root::open(path) {
            Ok(root) => root,
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        },
    };
    let start = Instant::now();
    let facts = Facts::read(&root);
    eprintln!("read in {:?}", start.elapsed());
    println!("{facts:#?}");
    ExitCode::SUCCESS
}

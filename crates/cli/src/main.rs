//! `apus`. All of it is in the library, so that tests can use it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    apus::main()
}

//! The program `apus`. All code is in the library, so that tests can use it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    apus::main()
}

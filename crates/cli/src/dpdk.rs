//! The program `apus-dpdk`: `apus` with support for ports of DPDK drivers. See `commands/run/dpdk.rs`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    apus::main()
}

//! `apus-dpdk`: `apus` with ports of DPDK drivers. See `commands/run/dpdk.rs`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    apus::main()
}

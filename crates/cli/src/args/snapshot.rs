//! `apus snapshot`.

use std::path::PathBuf;

use clap::Args as Arguments;
use units::Nanos;

/// `apus snapshot`
///
/// Holds what an audit reads, and two readings of every counter. Of texts that can hold secrets (kernel command
/// lines, environment files, settings of services) only names and values that are known to be harmless are kept;
/// of messages, the kernel's own that an audit looks at. MAC addresses, UUIDs and serial numbers are masked. Only
/// its owner can read the file. No isolated CPU is interrupted. Where Apus is not installed,
/// tools/apus-snapshot.sh does the same with a shell and tar.
#[derive(Arguments, Debug)]
pub struct Snapshot {
    /// Where it goes: a file .tar, .tar.gz or .tar.zst.
    #[arg(short, long, value_name = "FILE", default_value = "host.tar.zst")]
    pub output: PathBuf,
    /// Time between the two readings of the counters.
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = interval)]
    pub interval: Nanos,
    /// Keep MAC addresses and serial numbers. Secrets are masked all the same.
    #[arg(long)]
    pub unmask: bool,
    /// Take model-specific registers too. Reading them interrupts every CPU, isolated ones too; needs root
    /// and the kernel's module msr.
    #[arg(long)]
    pub msrs: bool,
    /// Take a masked snapshot of this folder or archive in place of this host.
    #[arg(long, value_name = "FILE-OR-FOLDER", conflicts_with_all = ["interval", "msrs"])]
    pub from: Option<PathBuf>,
    /// Print one JSON document (schema apus.snapshot/1) in place of a line.
    #[arg(long)]
    pub json: bool,
}

/// An interval in which something can count, and that one waits for.
fn interval(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(600);
    let interval: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    match (SHORTEST..=LONGEST).contains(&interval) {
        true => Ok(interval),
        false => Err(format!("expected {SHORTEST} to {LONGEST}")),
    }
}

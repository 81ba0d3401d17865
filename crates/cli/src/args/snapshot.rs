//! `apus snapshot`.

use std::path::PathBuf;

use clap::Args as Arguments;
use units::Nanos;

/// Arguments of `apus snapshot`.
#[derive(Arguments, Debug)]
pub struct Snapshot {
    /// Archive to write: FILE must end in .tar, .tar.gz or .tar.zst.
    #[arg(short, long, value_name = "FILE", default_value = "host.tar.zst")]
    pub output: PathBuf,
    /// Time between the two readings of the counters, from 10ms to 600s.
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = interval)]
    pub interval: Nanos,
    /// Keep MAC addresses, UUIDs and serial numbers. Secrets are still masked.
    #[arg(long)]
    pub unmask: bool,
    /// Also record model-specific registers. Reading them interrupts all CPUs, even isolated ones. Needs root and the
    /// kernel module msr.
    #[arg(long)]
    pub msrs: bool,
    /// Also record what `apus diagnose --from FILE` needs: between the two readings, sample sockets, queueing
    /// disciplines and NAPI instances every 10 ms. The archive then holds TCP and UDP ports and process IDs, but no IP
    /// addresses. Counting NAPI polls needs root, or CAP_BPF and CAP_PERFMON; without them, the archive has no such
    /// counts.
    #[arg(long)]
    pub watch: bool,
    /// Make a masked snapshot of a recorded host (a folder or an archive) instead of this host.
    #[arg(long, value_name = "FILE-OR-FOLDER", conflicts_with_all = ["interval", "msrs", "watch"])]
    pub from: Option<PathBuf>,
    /// Print one JSON document (schema apus.snapshot/1) instead of a line of text.
    #[arg(long)]
    pub json: bool,
}

/// Parses the time between the two readings: long enough for counters to move, short enough to wait for.
fn interval(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(600);
    let interval: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    match (SHORTEST..=LONGEST).contains(&interval) {
        true => Ok(interval),
        false => Err(format!("expected {SHORTEST} to {LONGEST}")),
    }
}

//! `apus power watch`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use units::Nanos;

use crate::args::interval;
use crate::args::values::span_with_hours;

/// Arguments of `apus power watch`.
#[derive(Args, Debug)]
pub struct Watch {
    /// Time between two readings, from 10ms to 1h.
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s")]
    pub interval: Nanos,
    /// Stop after DURATION, such as 30s or 10m [default: until Ctrl-C; with --json: one interval].
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours, conflicts_with = "listen")]
    pub duration: Option<Nanos>,
    /// Also read the frequency of isolated CPUs (from APERF and MPERF). Each reading interrupts the CPU.
    #[arg(long)]
    pub interrupt_isolated: bool,
    /// Print only one JSON document, at the end, for the whole duration (schema apus.power-watch/1).
    #[arg(long, conflicts_with = "listen")]
    pub json: bool,
    /// Print nothing; serve the counters to Prometheus on this address until Ctrl-C. Anyone who can connect can read
    /// them. Port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, Apus does not
    /// read perf events.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

//! `apus power learn`.

use std::path::PathBuf;

use clap::Args;
use policy::frequency::outside::branches::Phase;
use units::Nanos;

use crate::args::values::{one_of, span_with_hours};

/// Arguments of `apus power learn`.
#[derive(Args, Debug)]
pub struct Learn {
    /// What the program does during the recording: idle (it polls empty queues) or load (packets arrive).
    #[arg(value_parser = one_of::<Phase>())]
    pub phase: Phase,
    /// File to which to append the counts, one line of JSON for each 10 ms.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// CPU on which the program polls.
    #[arg(long, value_name = "CPU")]
    pub cpu: u32,
    /// Read the counts from FILE, written by an earlier run of this command, instead of from the CPU's counters.
    #[arg(long, value_name = "FILE")]
    pub counts: Option<PathBuf>,
    /// How long to count, from 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = span_with_hours)]
    pub duration: Nanos,
    /// Print the result as JSON (schema apus.power-learn/1).
    #[arg(long)]
    pub json: bool,
}

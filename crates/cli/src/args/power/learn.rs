//! `apus power learn`.

use std::path::PathBuf;

use clap::Args;
use policy::frequency::outside::branches::Phase;
use units::Nanos;

use crate::args::values::{one_of, span_with_hours};

/// Arguments of `apus power learn`.
#[derive(Args, Debug)]
pub struct Learn {
    /// What the program does during the recording.
    #[arg(value_parser = one_of::<Phase>())]
    pub phase: Phase,
    /// File to which Apus appends the counts, one line of JSON every 10 ms.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// CPU on which the program polls.
    #[arg(long, value_name = "CPU")]
    pub cpu: u32,
    /// Take the counts from FILE, which an earlier run of this command wrote, instead of from the CPU's counters.
    #[arg(long, value_name = "FILE")]
    pub counts: Option<PathBuf>,
    /// How long to count, such as 10s or 2m.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = span_with_hours)]
    pub duration: Nanos,
    /// Print the result as JSON (schema apus.power-learn/1).
    #[arg(long)]
    pub json: bool,
}

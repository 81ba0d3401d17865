//! `apus power sweep`.

use std::path::PathBuf;

use clap::Args;
use tester::schedule::Schedule;
use units::{Hertz, Nanos};

use crate::args::energy::Modelled;
use crate::args::values::span;

/// Arguments of `apus power sweep`.
#[derive(Args, Debug)]
pub struct Sweep {
    /// Time to forward frames with frequency changes, and again without.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "200s")]
    pub duration: Nanos,
    /// Time from one frequency change to the next, at least 4ms.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "100ms")]
    pub period: Nanos,
    /// Frequency to set, such as 800MHz. May be given several times: the frequencies are set in turn [default: the
    /// lowest and the highest frequency of the hardware].
    #[arg(long = "level", value_name = "FREQUENCY")]
    pub levels: Vec<Hertz>,
    /// Time to forward frames at each frequency, to measure its power and CPU time.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub at_each: Nanos,
    /// When to send frames, as in `apus bench latency --schedule`.
    #[arg(long, value_name = "SCHEDULE", default_value = "constant:20kpps")]
    pub schedule: Schedule,
    /// Name of the lab, which is created for the measurement and removed afterwards.
    #[arg(long, value_name = "NAME", default_value = "sweep")]
    pub name: String,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
    /// Folder that holds the host's root file system, in which the frequencies are set: `/` is the running host. Any
    /// other folder is a copy: the command then forwards real traffic, but does not change the frequency of the running
    /// host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print the result as JSON (schema apus.power-sweep/1).
    #[arg(long)]
    pub json: bool,
    /// Write a report, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Parses `--period`, which must be at least `SHORTEST_PERIOD`: most of each period should come after the frequency
/// change.
fn period(text: &str) -> Result<Nanos, String> {
    let period = span(text)?;
    let shortest = probe::frequency::SHORTEST_PERIOD;
    if period >= shortest { Ok(period) } else { Err(format!("expected at least {shortest}")) }
}

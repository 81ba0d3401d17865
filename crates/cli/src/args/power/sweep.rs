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
    /// How long to forward frames while the frequency changes. Apus also forwards frames for as long at an unchanged
    /// frequency: both together take twice DURATION.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "200s")]
    pub duration: Nanos,
    /// Time from one frequency change to the next, at least 4ms.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "100ms")]
    pub period: Nanos,
    /// Frequency to set, such as 800MHz. Give the option at least twice; Apus sets the frequencies in turn [default:
    /// the lowest and the highest frequency of the hardware].
    #[arg(long = "level", value_name = "FREQUENCY")]
    pub levels: Vec<Hertz>,
    /// How long to forward frames at each frequency, to measure power and CPU time.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub at_each: Nanos,
    /// When to send frames, as in `apus bench latency --schedule`.
    #[arg(long, value_name = "SCHEDULE", default_value = "constant:20kpps")]
    pub schedule: Schedule,
    /// Name of the lab that Apus creates for the measurement.
    #[arg(long, value_name = "NAME", default_value = "sweep")]
    pub name: String,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, the command sets
    /// the frequencies only in the files below it: it forwards real traffic, but the frequency of the running host does
    /// not change.
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

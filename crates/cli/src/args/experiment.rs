//! `apus experiment`: finds out which settings help.

use std::path::PathBuf;

use clap::Args;

use super::energy::Modelled;

/// Arguments of `apus experiment`.
#[derive(Args, Debug)]
pub struct Experiment {
    /// TOML file with the plan: what to measure, and which settings to try.
    pub plan: PathBuf,
    /// Print the result as JSON (schema apus.experiment/1).
    #[arg(long)]
    pub json: bool,
    /// Write a report, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the settings that the plan would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: Modelled,
}

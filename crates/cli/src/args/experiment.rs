//! `apus experiment`.

use std::path::PathBuf;

use clap::Args;

/// `apus experiment`
///
/// The plan says what is measured, and which settings are tried; docs/experiment.md has an example. Each run changes the
/// machine's settings by a transaction and takes them back.
#[derive(Args, Debug)]
pub struct Experiment {
    /// The plan, a TOML file.
    pub plan: PathBuf,
    /// Print the result as JSON (schema apus.experiment/1).
    #[arg(long)]
    pub json: bool,
    /// Write a report: one HTML file with a figure and the table.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}

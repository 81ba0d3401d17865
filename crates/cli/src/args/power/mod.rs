//! `apus power`: one file for each of its commands.

pub mod set;

use clap::Subcommand;

/// What to do with frequencies and power.
#[derive(Subcommand, Debug)]
pub enum Power {
    /// Fixes the frequency of cores and of the uncore; `apus tune rollback` undoes the change.
    Set(set::PowerSet),
}

//! `apus power`: one file for each of its commands.

pub mod set;
pub mod watch;

use clap::Subcommand;

/// What to do with frequencies and power.
#[derive(Subcommand, Debug)]
pub enum Power {
    /// Fixes the frequency of cores and of the uncore; `apus tune rollback` undoes the change.
    Set(set::PowerSet),
    /// Shows watts, frequencies and idle states, and who limits them.
    ///
    /// Reads the meters that this machine has (RAPL, ACPI, hwmon), and says what each includes. Where there is none, it says
    /// where it looked and why nothing is there. Changes nothing, and needs no root but for meters that the kernel shows
    /// to root alone.
    Watch(watch::Watch),
}

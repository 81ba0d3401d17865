//! The `apus` command. [`args`] parses the command line into types that carry its meaning. [`commands`] runs the
//! commands and has one file for each. [`documents`] defines the JSON that is printed.
//!
//! **Law:** this crate contains no knowledge of hosts, networks or power; the other crates do. Only this crate uses
//! `anyhow`: a command returns any error, and [`failure`] turns it into text and an exit status.
//!
//! To add a command, add a variant to [`args::Command`] and a file to [`commands`]. If the command prints JSON, also
//! add a document to [`documents`] and list it in [`documents::SCHEMAS`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod args;
pub mod commands;
pub mod documents;
pub mod failure;
mod terminal;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

pub use failure::{Failure, Status};

/// Runs `apus`: parses the command line, runs the command, and reports errors.
pub fn main() -> ExitCode {
    let typed = match args::Args::try_parse() {
        Ok(typed) => typed,
        Err(error) => {
            // `apus` without arguments is wrong use too, although it shows the help. Otherwise a script whose command
            // is an empty variable would go on although it did nothing.
            let status = if error.use_stderr() { Status::Wrong } else { Status::Good };
            // A failure to print is ignored.
            let _ = match error.use_stderr() {
                // The error repeats the typed text, which may be a file name that the shell filled in.
                true => write!(terminal::err(), "{}", error.render()),
                false => error.print(),
            };
            return status.into();
        }
    };
    /// Maximum time to wait for the readers of earlier lines. Who reads at all has read them by then.
    const PATIENCE: Duration = Duration::from_secs(5);
    let ran = commands::run(typed.command);
    terminal::aside::drain(Some(Instant::now() + PATIENCE));
    match ran {
        Ok(status) => status.into(),
        Err(error) => failure::report(&error).into(),
    }
}

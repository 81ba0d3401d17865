//! What to do: one file a command.

mod bench;
mod demo;
mod lab;
mod metrics;
mod replay;
mod report;
mod run;
mod top;

use std::io::{self, Write};

use anyhow::Context as _;
use serde::Serialize;

use crate::Status;
use crate::args::Command;

/// Does what was typed.
pub fn run(command: Command) -> anyhow::Result<Status> {
    match command {
        Command::Run(typed) => run::run(*typed),
        Command::Bench(typed) => bench::run(*typed),
        Command::Lab(typed) => lab::run(typed),
        Command::Report(typed) => report::run(&typed),
        Command::Replay(typed) => replay::run(&typed),
        Command::Top(typed) => top::run(&typed),
        Command::Metrics(typed) => metrics::run(&typed),
        Command::Demo(typed) => demo::run(&typed),
    }
}

/// Prints a document, as every `--json` does.
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)?;
    out.flush().context("write the document")
}

/// Whether the user asked for output without colours: NO_COLOR set and not empty (no-color.org).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

//! What to do: one file a command.

mod audit;
mod bench;
mod demo;
mod dim;
mod experiment;
mod generate;
mod irqs;
mod lab;
mod metrics;
mod ports;
mod probe;
mod replay;
mod report;
mod run;
mod sim;
mod snapshot;
mod top;
mod tune;

use std::io::Write;

use anyhow::Context as _;
use serde::Serialize;

use crate::Status;
use crate::args::Command;
use crate::terminal;

/// Does what was typed.
pub fn run(command: Command) -> anyhow::Result<Status> {
    match command {
        Command::Run(typed) => run::run(*typed),
        Command::Bench(typed) => bench::run(*typed),
        Command::Probe(typed) => probe::run(*typed),
        Command::Lab(typed) => lab::run(typed),
        Command::Report(typed) => report::run(&typed),
        Command::Replay(typed) => replay::run(&typed),
        Command::Dim(typed) => dim::run(&typed),
        Command::Top(typed) => top::run(&typed),
        Command::Metrics(typed) => metrics::run(&typed),
        Command::Snapshot(typed) => snapshot::run(&typed),
        Command::Demo(typed) => demo::run(&typed),
        Command::Sim(typed) => sim::run(&typed),
        Command::Tune(typed) => tune::run(typed),
        Command::Experiment(typed) => experiment::run(&typed),
        Command::Power(typed) => tune::power(typed),
        Command::Audit(typed) => audit::run(*typed),
        Command::Irqs(typed) => irqs::run(&typed),
        Command::Generate(typed) => generate::run(&typed),
    }
}

/// Prints a document, as every `--json` does.
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print_json_to(&mut terminal::out(), document)
}

/// The same to an output that is already held.
pub(crate) fn print_json_to(out: &mut impl Write, document: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)?;
    out.flush().context("write the document")
}

/// Whether the user asked for output without colours: NO_COLOR set and not empty (no-color.org).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

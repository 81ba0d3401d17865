//! The commands: one file per command.

mod audit;
mod bench;
mod demo;
mod diagnose;
mod dim;
mod energy;
mod experiment;
mod generate;
mod group;
mod irqs;
mod lab;
mod metrics;
mod moderate;
mod output;
mod ports;
mod power;
mod probe;
mod published;
mod replay;
mod report;
mod run;
mod shown;
mod sim;
mod snapshot;
mod top;
mod tune;

use crate::Status;
use crate::args::Command;

/// Runs the command that was typed.
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
        Command::Moderate(typed) => moderate::run(&typed),
        Command::Power(typed) => power::run(typed),
        Command::Audit(typed) => audit::run(*typed),
        Command::Diagnose(typed) => diagnose::run(&typed),
        Command::Irqs(typed) => irqs::run(&typed),
        Command::Generate(typed) => generate::run(&typed),
    }
}

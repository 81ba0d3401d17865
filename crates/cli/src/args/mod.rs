//! What was typed. Values are parsed into the types that mean them: durations into [`Nanos`], goals
//! into `policy::Goal`; nothing here does anything.

pub mod audit;
pub mod bench;
pub mod dim;
pub mod experiment;
pub mod lab;
pub mod probe;
pub mod run;
pub mod sim;
pub mod snapshot;
pub mod tune;
pub mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand};
use units::Nanos;

/// Moves packets on time with the least power, and proves it.
///
/// Exit status: 0 done and good; 1 findings or a goal missed; 2 wrong use or bad input; 3 the
/// environment lacks something.
#[derive(Parser, Debug)]
#[command(name = "apus", version, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Moves packets between ports, choosing the cheapest safe wait each time.
    ///
    /// Prints what it counted when it ends: at Ctrl-C, after --duration, or when its ports are exhausted.
    Run(Box<Run>),
    /// Measures what goes out of an interface and comes back: latency, loss, rate, and the CPU time that
    /// it costs.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Measures what waking up costs on this host, and who takes the CPU.
    ///
    /// Exit status 1: a sample exceeded --fail-over.
    #[command(subcommand)]
    Probe(Box<probe::Probe>),
    /// Network namespaces joined by veth pairs, to try and to measure without hardware.
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Makes one self-contained HTML file of results.
    Report(lab::Report),
    /// Feeds what a wait policy saw to a fresh one, and compares what they decide.
    Replay(lab::Replay),
    /// Linux's dynamic interrupt moderation (DIM), bit for bit: what would it do?
    #[command(subcommand)]
    Dim(dim::Dim),
    /// Shows what running instances do: rates, lateness, where the time goes, CPU.
    Top(Top),
    /// Serves the counters of running instances to Prometheus.
    Metrics(Metrics),
    /// Takes this host's state into one file, to be audited elsewhere.
    Snapshot(snapshot::Snapshot),
    /// Compares all ways of waiting on real packets: latency beside the CPU time that it costs.
    Demo(Demo),
    /// Tries things in a modelled world: no hardware is needed, nothing is measured.
    #[command(subcommand)]
    Sim(sim::Sim),
    /// Changes the machine's settings by profiles, and takes them back: after a crash, a kill, a reboot.
    #[command(subcommand)]
    Tune(tune::Tune),
    /// Finds out which settings help: interleaved runs, a noise floor, a ranked list.
    Experiment(experiment::Experiment),
    /// Fixes frequencies of cores and of the uncore.
    #[command(subcommand)]
    Power(tune::Power),
    /// Says what on this host, or on a recorded one, makes packets late, why, and what mends it.
    Audit(Box<audit::Audit>),
    /// Shows what hits a CPU: interrupts and softirqs, per second, by source.
    Irqs(audit::Irqs),
}

/// `apus run`
#[derive(Arguments, Debug)]
pub struct Run {
    /// What is done to each frame.
    #[command(subcommand)]
    pub app: run::App,
}

/// Where instances leave their counters.
#[derive(Arguments, Clone, Debug)]
pub struct Telemetry {
    /// Directory of the running instances' telemetry; by default, those of all users.
    #[arg(long = "telemetry", value_name = "DIR", default_value = live::telemetry::ROOT)]
    pub root: PathBuf,
}

/// `apus top`
#[derive(Arguments, Debug)]
pub struct Top {
    /// Show this instance only.
    pub instance: Option<String>,
    /// Print one table, from two samples, and end.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document (schema apus.top/1), from two samples, and end.
    #[arg(long)]
    pub json: bool,
    /// Time between two samples [default: 1s; with --once or --json 500ms].
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub interval: Option<Nanos>,
    /// Where the counters are.
    #[command(flatten)]
    pub telemetry: Telemetry,
}

/// `apus metrics`
///
/// The counters carry the label `instance`, the Apus instance's name. Prometheus names that
/// `exported_instance`, unless the scrape configuration says `honor_labels: true`.
#[derive(Arguments, Debug)]
pub struct Metrics {
    /// Address to serve on. Anyone who reaches it can read the counters; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9469")]
    pub listen: SocketAddr,
    /// Where the counters are.
    #[command(flatten)]
    pub telemetry: Telemetry,
}

/// `apus demo`
///
/// Makes a lab of two network namespaces, measures in it, and takes it down, also on Ctrl-C. Needs
/// root and two CPUs, which it keeps busy.
#[derive(Arguments, Debug)]
pub struct Demo {
    /// Where the report goes: one HTML file with figures and numbers.
    #[arg(short, long, value_name = "FILE", default_value = "demo-report.html")]
    pub output: PathBuf,
    /// Where the JSON document (schema apus.demo/1) goes; `-` prints it in place of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Time for all of it; less time means shorter and fewer runs.
    #[arg(long, value_name = "DURATION", default_value = "150s", value_parser = budget)]
    pub budget: Nanos,
    /// Name of the lab and of the instances in it.
    #[arg(long, value_name = "NAME", default_value = "demo")]
    pub name: String,
}

/// The time for a demo, an hour at the most.
fn budget(text: &str) -> Result<Nanos, String> {
    const LONGEST: Nanos = Nanos::from_secs(3600);
    let budget: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    if budget <= LONGEST { Ok(budget) } else { Err(format!("expected {LONGEST} at the most")) }
}

/// A sampling interval: long enough to mean something, short enough to answer a key.
fn interval(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(3600);
    let interval: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    if (SHORTEST..=LONGEST).contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("expected {SHORTEST} to {LONGEST}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_table_of_arguments_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn intervals_have_a_unit_and_a_range() {
        assert_eq!(interval("500ms"), Ok(Nanos::from_millis(500)));
        for text in ["1", "1us", "2h", "3601s", ""] {
            assert!(interval(text).is_err(), "{text:?} was taken");
        }
    }
}

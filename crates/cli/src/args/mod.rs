//! The arguments of all commands. Values are parsed into specific types, such as [`Nanos`] for durations and
//! `policy::Goal` for goals. This module only describes and parses arguments; it executes nothing.

pub mod audit;
pub mod bench;
pub mod diagnose;
pub mod dim;
pub mod energy;
pub mod experiment;
pub mod generate;
pub mod lab;
pub mod moderate;
mod overview;
pub mod power;
pub mod probe;
pub mod procedure;
pub mod run;
pub mod sim;
pub mod snapshot;
pub mod tune;
pub mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand};
use units::Nanos;

/// Moves packets on Linux at microsecond latency with as little CPU time and power as your latency goal allows.
///
/// Exit status: 0 success; 1 the command found problems or a goal was missed; 2 wrong usage, or input that is invalid or
/// cannot be read; 3 the environment lacks something that the command needs, or output cannot be written.
#[derive(Parser, Debug)]
#[command(name = "apus", version, max_term_width = overview::WIDTH, help_template = overview::template())]
pub struct Args {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `apus`. `apus --help` shows the first paragraph of each doc comment.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Moves packets between ports. By default, it waits for packets in the way that costs the least CPU time and still
    /// meets your latency goal.
    ///
    /// Runs until Ctrl-C, or until --duration has passed. If all ports are capture files (without repeat) or memory
    /// ports with frames=N, the run also ends when they have delivered their frames. Prints its counters at the end.
    Run(Box<Run>),
    /// Measures latency, loss, packet rate and CPU time of another program or device.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Measures how long a thread takes to wake up on this host, and what takes the CPU away from it.
    ///
    /// With --fail-over DURATION, the exit status is 1 if a sample takes longer than DURATION.
    #[command(subcommand)]
    Probe(Box<probe::Probe>),
    /// Creates network namespaces joined by veth pairs, to test and measure without a network card.
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Writes a self-contained HTML report from JSON results.
    Report(lab::Report),
    /// Replays a recorded run: checks that the waiting policy makes the same decisions again, and compares the run's
    /// CPU time with the minimum that could have met the goal.
    ///
    /// Exit status 1 if a decision differs.
    Replay(lab::Replay),
    /// Feeds recorded samples to an exact copy of Linux's dynamic interrupt moderation (DIM).
    #[command(subcommand)]
    Dim(dim::Dim),
    /// Shows the packet rates, lateness and CPU time of running instances of Apus, and how they wait for packets.
    Top(Top),
    /// Exports the counters of running instances of Apus to Prometheus.
    ///
    /// Each counter has the label `instance`, which holds the name of the Apus instance. Prometheus renames this label
    /// to `exported_instance` unless the scrape configuration sets `honor_labels: true`.
    Metrics(Metrics),
    /// Records this host's state in an archive, so that `apus audit` can judge the host on another machine.
    ///
    /// The archive holds what `apus audit` reads, with two readings of every counter. Kernel command lines, environment
    /// files and service settings may hold secrets, so Apus writes MASKED in place of everything in them that is not
    /// known to be harmless. It also masks MAC addresses, UUIDs and serial numbers. The only log lines in the archive
    /// are the kernel messages that the audit uses. Only the user who runs the command can read the archive. Taking a
    /// snapshot interrupts isolated CPUs only if --msrs is given. Exit status 1 if the archive
    /// reached its size limit and is incomplete.
    ///
    /// On a host without Apus, the script tools/apus-snapshot.sh does the same; it needs only a shell and tar.
    Snapshot(snapshot::Snapshot),
    /// Compares all waiting modes of `apus run` on real packets: latency side by side with CPU time.
    ///
    /// Creates a lab of two network namespaces, measures in it, and removes it again, even after Ctrl-C. Needs root and
    /// two CPUs, and keeps both CPUs busy. After Ctrl-C, the report has the measurements made so far, and the exit
    /// status is 1.
    Demo(Demo),
    /// Simulates packet processing on modelled hosts; measures nothing on this host.
    #[command(subcommand)]
    Sim(sim::Sim),
    /// Applies profiles of settings to the host, and can roll the changes back, even after a crash or a reboot.
    #[command(subcommand)]
    Tune(tune::Tune),
    /// Adapts the interrupt moderation of network interfaces to their traffic: as few interrupts as the latency goal
    /// allows.
    ///
    /// Meant for applications that use the kernel's network stack; these need no changes. For each receive queue,
    /// adjusts the timer, that is, how long an interrupt is delayed after a packet arrives. Runs until Ctrl-C, or until
    /// --duration has passed, and then restores the original settings. If the command is killed, `apus tune rollback
    /// --abandoned` or the next `apus moderate` restores them. Exit status 1 if a queue missed its goal (with the
    /// policy `goal`), if the driver refused the timer of a policy `static`, if Apus had to stop adjusting a queue, if an
    /// interface of the configuration file was not available at the end, or if a setting could not be restored; 3 if
    /// this host cannot adjust any of the interfaces.
    Moderate(moderate::Moderate),
    /// Finds out which settings help: tries them in alternating runs, and separates their effects from noise.
    ///
    /// The plan states what to measure and which settings to try; docs/experiment.md has an example. Each run changes
    /// the host's settings in a transaction, which is rolled back afterwards. Exit status 1 if the noise floor is not
    /// sound, if no effect could be judged, if too many runs failed, or after Ctrl-C.
    Experiment(experiment::Experiment),
    /// Shows power and frequencies, sets frequencies, and adapts them to the load or to requests from virtual machines.
    #[command(subcommand)]
    Power(power::Power),
    /// Finds what makes packets late on a host, explains why, and shows how to fix it.
    ///
    /// Reads the state of this host (with --from, that of a recorded host), and checks it against a list of rules.
    /// Changes nothing. Apus infers what the host is used for, unless you state it with --isolated, --nic and
    /// --workload. Exit status 1 if a finding is at or above --min-level (warn, if not given), or if fewer than one in
    /// twenty checks could be judged. Otherwise, checks that could not be judged do not count.
    Audit(Box<audit::Audit>),
    /// Ranks the likely causes of low throughput, high latency or drops, each with its evidence and an experiment that
    /// can confirm it.
    ///
    /// Watches one or both ends of a connection while your load runs: sockets, queues, rings, interrupt moderation, CPU
    /// time of threads. Changes nothing, except with --try, which rolls back its changes. If the ends are two hosts,
    /// record both at the same time with `apus snapshot --watch`, and name the two recordings with --from and --peer.
    /// Exit status 0 if no cause was found; 1 if one was found, or after Ctrl-C; 3 if there was no traffic to observe.
    Diagnose(Box<diagnose::Diagnose>),
    /// Shows how many interrupts and softirqs per second each CPU handles, by source.
    Irqs(audit::Irqs),
    /// Writes shell completions and manual pages, for packages; `make install` runs it.
    #[command(subcommand, hide = true)]
    Generate(generate::Generate),
}

/// Arguments of `apus run`.
#[derive(Arguments, Debug)]
pub struct Run {
    /// The application, which decides what happens to each frame.
    #[command(subcommand)]
    pub app: run::App,
}

/// Which running instances to read.
#[derive(Arguments, Clone, Debug)]
pub struct Telemetry {
    /// Folder in which running instances of Apus publish their telemetry. By default, Apus also reads the telemetry
    /// folders of other users (/dev/shm/apus-UID). If you give a DIR, it reads only that folder.
    #[arg(long = "telemetry", value_name = "DIR", default_value = live::telemetry::ROOT)]
    pub root: PathBuf,
}

/// Which running instances of `apus moderate` to read.
#[derive(Arguments, Clone, Debug)]
pub struct Moderation {
    /// Folder in which running instances of `apus moderate` publish their state.
    #[arg(long = "moderation", value_name = "DIR", default_value = moderate::ROOT)]
    pub folder: PathBuf,
}

/// Which running instances of `apus power steer` to read.
#[derive(Arguments, Clone, Debug)]
pub struct Steering {
    /// Folder in which running instances of `apus power steer` publish their state.
    #[arg(id = "steering", long, value_name = "DIR", default_value = power::steer::ROOT)]
    pub folder: PathBuf,
}

/// Arguments of `apus top`.
#[derive(Arguments, Debug)]
pub struct Top {
    /// Show only the instance with this name [default: all instances].
    pub instance: Option<String>,
    /// Take two samples, print one table, and exit.
    #[arg(long)]
    pub once: bool,
    /// Take two samples, print one JSON document (schema apus.top/2), and exit.
    #[arg(long)]
    pub json: bool,
    /// Time between two samples, from 10ms to 3600s [default: 1s; 500ms with --once or --json].
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub interval: Option<Nanos>,
    /// Which running instances to read.
    #[command(flatten)]
    pub telemetry: Telemetry,
    /// Which running instances of `apus moderate` to read.
    #[command(flatten)]
    pub moderation: Moderation,
    /// Which running instances of `apus power steer` to read.
    #[command(flatten)]
    pub steering: Steering,
}

/// Arguments of `apus metrics`.
#[derive(Arguments, Debug)]
pub struct Metrics {
    /// Serve the counters over HTTP at this address, under the path /metrics. Anyone who can connect can read them.
    /// Port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9469")]
    pub listen: SocketAddr,
    /// Which running instances to read.
    #[command(flatten)]
    pub telemetry: Telemetry,
    /// Which running instances of `apus moderate` to read.
    #[command(flatten)]
    pub moderation: Moderation,
    /// Which running instances of `apus power steer` to read.
    #[command(flatten)]
    pub steering: Steering,
    /// Folder in which running instances of `apus power serve` publish the state of their guests.
    #[arg(long, value_name = "DIR", default_value = power::serve::ROOT)]
    pub serve: PathBuf,
}

/// Arguments of `apus demo`.
#[derive(Arguments, Debug)]
pub struct Demo {
    /// Write the report, one HTML file, to FILE.
    #[arg(short, long, value_name = "FILE", default_value = "demo-report.html")]
    pub output: PathBuf,
    /// Write the result as JSON (schema apus.demo/2) to FILE; `-` prints it instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Total time for all runs, at most 3600s. With less time, the runs are shorter and fewer.
    #[arg(long, value_name = "DURATION", default_value = "150s", value_parser = budget)]
    pub budget: Nanos,
    /// Name of the lab, and of the Apus instances that run in it.
    #[arg(long, value_name = "NAME", default_value = "demo")]
    pub name: String,
    /// The machine whose energy to model.
    #[command(flatten)]
    pub modelled: energy::Modelled,
}

/// Parses `--budget`: at most one hour.
fn budget(text: &str) -> Result<Nanos, String> {
    const LONGEST: Nanos = Nanos::from_secs(3600);
    let budget: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    if budget <= LONGEST { Ok(budget) } else { Err(format!("expected at most {LONGEST}")) }
}

/// Parses `--interval`: from 10 ms to one hour.
pub fn interval(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(3600);
    let interval = values::span_with_hours(text)?;
    if (SHORTEST..=LONGEST).contains(&interval) { Ok(interval) } else { Err(format!("expected {SHORTEST} to 1h")) }
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
        assert_eq!(interval("1h"), Ok(Nanos::from_secs(3_600)));
        for text in ["1", "1us", "2h", "3601s", ""] {
            assert!(interval(text).is_err(), "{text:?} was taken");
        }
    }
}

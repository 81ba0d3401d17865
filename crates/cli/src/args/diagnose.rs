//! `apus diagnose`.

use std::path::PathBuf;

use audit::diagnosis::{Reference, SymptomKind};
use clap::Args as Arguments;
use policy::Goal;
use units::{BitRate, Nanos};

use super::values::{bit_rate, span, span_with_hours};

/// Arguments of `apus diagnose`.
#[derive(Arguments, Debug)]
#[command(after_help = "Examples:\n  apus diagnose --symptom slow --measured 3.4Gbps --expected 10Gbps\n  \
    apus diagnose --symptom late --ping 116us --expected-ping 17us\n  \
    apus snapshot --watch -o a.tar          # on each host, while the load runs\n  \
    apus diagnose --from a.tar --peer b.tar --symptom drops")]
pub struct Diagnose {
    /// What you noticed: slow (low throughput), late (high latency), drops (lost packets), or any.
    #[arg(long, value_name = "KIND", default_value = "any")]
    pub symptom: SymptomKind,
    /// Throughput that you measured, such as 3.4Gbps.
    #[arg(long, value_name = "RATE", value_parser = bit_rate)]
    pub measured: Option<BitRate>,
    /// Throughput that you expected, such as 10Gbps.
    #[arg(long, value_name = "RATE", value_parser = bit_rate)]
    pub expected: Option<BitRate>,
    /// Mean round-trip time that you measured, such as 116us.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub ping: Option<Nanos>,
    /// Round-trip time that you expected, such as 17us.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub expected_ping: Option<Nanos>,
    /// Where --expected and --expected-ping were measured: same-host (on this host, with another NIC or path) or
    /// elsewhere.
    #[arg(long, value_name = "WHERE", default_value = "elsewhere")]
    pub reference: Reference,
    /// Latency goal, such as p99=50us. The diagnosis also audits each end, and judges it by this goal, as `apus audit
    /// --goal` does [default: no goal].
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<Goal>,
    /// How long to watch while the load runs, from 1s to 600s.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = watch, conflicts_with = "from")]
    pub watch: Nanos,
    /// Interface to examine on this end [default: the one with the most packets].
    #[arg(long, value_name = "INTERFACE")]
    pub nic: Option<String>,
    /// Interface to examine on the other end [default: the one with the most packets].
    #[arg(long, value_name = "INTERFACE")]
    pub peer_nic: Option<String>,
    /// Watch the network namespace NAME instead of the current one; `ip netns list` shows the names.
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    pub netns: Option<String>,
    /// Also watch the network namespace NAME as the other end.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "peer"])]
    pub peer_netns: Option<String>,
    /// Diagnose a recording (made by `apus snapshot --watch`) instead of this host.
    #[arg(long, value_name = "FILE-OR-FOLDER")]
    pub from: Option<PathBuf>,
    /// Recording of the other end, made at the same time as the recording of this end.
    #[arg(long, value_name = "FILE-OR-FOLDER")]
    pub peer: Option<PathBuf>,
    /// Save the recording of this end to PREFIX.here.tar and, with --peer-netns, that of the other end to
    /// PREFIX.peer.tar.
    #[arg(long, value_name = "PREFIX", conflicts_with = "from")]
    pub keep: Option<PathBuf>,
    /// Of the causes that a changed setting can remove, test the most likely. Apus runs COMMAND several times,
    /// alternately with and without the change, compares the results, and rolls the change back (see `apus
    /// experiment`). All words after --try belong to COMMAND, which must print a number on its last line. COMMAND runs
    /// at this end (in the namespace of --netns, if given), even if the setting is at the other end.
    #[arg(long = "try", value_name = "COMMAND", conflicts_with = "from", num_args = 1.., allow_hyphen_values = true)]
    pub attempt: Option<Vec<String>>,
    /// With --try: a larger number is better [default: a smaller number is better].
    #[arg(long, requires = "attempt", conflicts_with = "from")]
    pub more_is_better: bool,
    /// With --try: maximum time for the experiment.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = span_with_hours, requires = "attempt", conflicts_with = "from")]
    pub budget: Nanos,
    /// Print one JSON document (schema apus.diagnose/1).
    #[arg(long)]
    pub json: bool,
}

/// Parses `--watch`: 1 s to 600 s. A shorter time would be too short for counters of CPU time, which move in steps of
/// 10 ms.
fn watch(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_secs(1);
    const LONGEST: Nanos = Nanos::from_secs(600);
    let watch: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    match (SHORTEST..=LONGEST).contains(&watch) {
        true => Ok(watch),
        false => Err(format!("expected {SHORTEST} to {LONGEST}")),
    }
}

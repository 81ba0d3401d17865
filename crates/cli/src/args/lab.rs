//! `apus lab`, `apus report`, `apus replay`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use policy::Goal;
use tester::lab::Preset;

/// What to do with a lab.
#[derive(Subcommand, Debug)]
pub enum Lab {
    /// Creates a lab; an existing lab of the same name is removed first.
    ///
    /// The preset `pair`, for most measurements, has two namespaces, tx and dut: interface tx0 in tx is joined to dut0
    /// in dut. The preset `wire`, for `apus run l2fwd`, has three namespaces, left, dut and right: left0 in left is
    /// joined to dutl in dut, and dutr in dut to right0 in right. The preset `routed`, for `apus run l3fwd`, is like
    /// `wire`, but left and right are in different subnets.
    Up(Up),
    /// Removes a lab; succeeds even if there is no such lab.
    Down {
        /// Name of the lab.
        #[arg(default_value = "demo")]
        name: String,
    },
    /// Lists the labs of this host.
    List {
        /// Print one JSON document (schema apus.lab/1).
        #[arg(long)]
        json: bool,
    },
    /// Runs a command in a namespace of a lab. Example: `apus lab exec demo tx -- ip address`.
    Exec {
        /// Name of the lab.
        name: String,
        /// Namespace of the lab: tx, dut, left or right.
        role: String,
        /// Command to run, with its arguments.
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

/// Arguments of `apus lab up`.
#[derive(Args, Debug)]
pub struct Up {
    /// Layout of the lab: pair, wire or routed.
    #[arg(default_value = "pair", value_name = "PRESET")]
    pub preset: Preset,
    /// Name of the lab. Its namespaces are called apus-NAME-tx, apus-NAME-dut and so on.
    #[arg(long, default_value = "demo")]
    pub name: String,
    /// Number of queues of each interface [default: 1].
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// MTU of each link in bytes [default: 1500].
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
}

/// Arguments of `apus report`.
#[derive(Args, Debug)]
pub struct Report {
    /// JSON results (-o or --json) of `apus bench latency` or `load`, of `apus bench rfc2544`, or of `apus probe`. One
    /// report cannot mix these three kinds.
    #[arg(required = true, value_name = "RESULT.json")]
    pub results: Vec<PathBuf>,
    /// Write the report, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Heading of the report [default: chosen from the results].
    #[arg(long)]
    pub title: Option<String>,
}

/// Arguments of `apus replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// File written by `apus run --record`.
    pub file: PathBuf,
    /// Latency goal, such as p99=60us, for which to compute the minimum CPU time [default: the goal of the recorded
    /// run].
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<Goal>,
    /// Print one JSON document (schema apus.replay/1).
    #[arg(long)]
    pub json: bool,
}

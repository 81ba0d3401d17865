//! `apus lab`, `apus report`, `apus replay`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use policy::Goal;
use tester::lab::Preset;

/// What to do with a lab.
#[derive(Subcommand, Debug)]
pub enum Lab {
    /// Makes a lab; one of the same name is taken down first.
    ///
    /// pair: tx0 in tx, joined to dut0 in dut, for measurements. wire: left0 and right0, with dutl and dutr
    /// between them, for l2fwd. routed: the same in two subnets, for l3fwd.
    Up(Up),
    /// Takes a lab down; nothing there is fine.
    Down {
        /// The lab's name.
        #[arg(default_value = "demo")]
        name: String,
    },
    /// Lists the labs of this machine.
    List {
        /// Print one JSON document (schema apus.lab/1).
        #[arg(long)]
        json: bool,
    },
    /// Runs a command in a namespace of a lab: apus lab exec demo tx -- ip address
    Exec {
        /// The lab's name.
        name: String,
        /// The namespace's role: tx, dut, left, right.
        role: String,
        /// The command.
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

/// `apus lab up`
#[derive(Args, Debug)]
pub struct Up {
    /// pair, wire or routed.
    #[arg(default_value = "pair", value_name = "PRESET")]
    pub preset: Preset,
    /// The lab's name: its namespaces are apus-NAME-ROLE.
    #[arg(long, default_value = "demo")]
    pub name: String,
    /// Queues of each interface.
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// The largest packet of each link, in octets.
    #[arg(long, value_name = "OCTETS")]
    pub mtu: Option<u32>,
}

/// `apus report`
#[derive(Args, Debug)]
pub struct Report {
    /// Results of `apus bench`, or of `apus probe`, as -o or --json wrote them.
    #[arg(required = true, value_name = "RESULT.json")]
    pub results: Vec<PathBuf>,
    /// The file to write: one HTML file that needs nothing else.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// The heading [default: what the results are of].
    #[arg(long)]
    pub title: Option<String>,
}

/// `apus replay`
#[derive(Args, Debug)]
pub struct Replay {
    /// What `apus run --record` wrote.
    pub file: PathBuf,
    /// Goal for which to compute the least possible CPU time, such as p99=60us. Default: that of the recorded mode.
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<Goal>,
    /// Print one JSON document (schema apus.replay/1).
    #[arg(long)]
    pub json: bool,
}

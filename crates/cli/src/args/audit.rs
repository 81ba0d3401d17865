//! `apus audit`, `apus irqs`.

use std::path::PathBuf;

use audit::{Level, Selector, Workload};
use clap::{Args, Subcommand};
use host::CpuSet;
use policy::Goal;
use units::Nanos;

/// Arguments of `apus audit`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    /// A subcommand that does something other than audit one host.
    #[command(subcommand)]
    pub command: Option<Special>,
    /// The host to audit, and its purpose.
    #[command(flatten)]
    pub host: Host,
    /// Print one JSON document (schema apus.audit/1).
    #[arg(long, conflicts_with = "explain")]
    pub json: bool,
    /// Write the findings to FILE as SARIF 2.1.0; `-` prints them.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Write a report, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write to FILE a profile, for `apus tune apply`, with the settings that fix warnings and failures; `-` prints it.
    /// --fix itself changes nothing on the host.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub fix: Option<PathBuf>,
    /// Explain the rule ID, and show its verdict for the host. `apus audit rules` lists the IDs.
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
    /// Show findings of this level and above. From low to high: all (also checks that passed), unknown (could not be
    /// judged), choice (good sources disagree; the choice is yours), warn, fail [default: warn; all with --json or
    /// --sarif].
    #[arg(long, value_name = "LEVEL")]
    pub min_level: Option<Level>,
    /// Check only these rules or groups (comma-separated; see `apus audit rules`).
    #[arg(long, value_name = "ID|GROUP", value_delimiter = ',')]
    pub only: Vec<Selector>,
    /// Skip these rules or groups (comma-separated).
    #[arg(long, value_name = "ID|GROUP", value_delimiter = ',')]
    pub skip: Vec<Selector>,
    /// Report only findings that FILE does not list. --write-baseline writes such a FILE.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write the findings of this audit to FILE, for --baseline in later audits.
    #[arg(long, value_name = "FILE")]
    pub write_baseline: Option<PathBuf>,
}

/// The host to audit, and its purpose.
#[derive(Args, Debug)]
pub struct Host {
    /// Judge a recorded host instead of this one: a folder or an archive made by apus snapshot, sosreport or
    /// must-gather.
    #[arg(long, value_name = "FILE-OR-FOLDER", conflicts_with_all = ["msr", "interval"])]
    pub from: Option<PathBuf>,
    /// CPUs reserved for the application, such as 2-5 [default: inferred].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// Network interfaces that carry the application's packets (comma-separated) [default: inferred].
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',')]
    pub nic: Vec<String>,
    /// What the host is used for (comma-separated): poll (applications poll the interface), interrupt (applications
    /// sleep until an interrupt arrives, or use the kernel's network stack), rt (the host has a real-time kernel),
    /// kvm-host (the host runs KVM guests), guest (the host is a virtual machine) [default: inferred].
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Latency goal: p99.9=50us means that 99.9 % of the packets must leave within 50 us of their arrival. The report
    /// then sorts findings by the delay that each can add, largest first, and marks those whose delay alone exceeds the
    /// goal [default: no goal].
    #[arg(long, value_name = "QUANTILE=DURATION")]
    pub goal: Option<Goal>,
    /// Also read model-specific registers of the CPUs. Reading a register interrupts its CPU, even an isolated one.
    #[arg(long)]
    pub msr: bool,
    /// Read the counters twice, DURATION apart (10ms to 600s), and judge their rates [default: judge the totals since
    /// boot].
    #[arg(long, value_name = "DURATION", value_parser = apart)]
    pub interval: Option<Nanos>,
}

/// What `apus audit` can do besides auditing one host.
#[derive(Subcommand, Debug)]
pub enum Special {
    /// Audits two hosts, or one host before and after a change, and compares the findings.
    ///
    /// Exit status 1 if the second audit has a finding that the first does not have, or a more severe one.
    Diff(Diff),
    /// Judges a kernel command line without auditing the rest of the host, or suggests one.
    ///
    /// Exit status 1 if the judged command line has a finding.
    Cmdline(Cmdline),
    /// Lists the rules that `apus audit` checks.
    Rules {
        /// Print the rules as Markdown; docs/rules.md is this output.
        #[arg(long)]
        markdown: bool,
    },
}

/// Arguments of `apus audit diff`.
#[derive(Args, Debug)]
pub struct Diff {
    /// Recording of the first host: a folder or an archive. `/` is this host as it is now.
    pub before: PathBuf,
    /// Recording of the second host: a folder or an archive. `/` is this host as it is now.
    pub after: PathBuf,
    /// CPUs reserved for the application on both hosts [default: inferred separately for each host].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// Network interfaces that carry the application's packets (comma-separated) [default: inferred separately for each
    /// host].
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',')]
    pub nic: Vec<String>,
    /// What both hosts are used for (comma-separated): poll, interrupt, rt, kvm-host, guest, as in `apus audit`
    /// [default: inferred separately for each host].
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Print one JSON document (schema apus.audit-diff/1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `apus audit cmdline`.
#[derive(Args, Debug)]
pub struct Cmdline {
    /// Kernel command line to judge, in quotes [default: the command line of this host].
    #[arg(value_name = "COMMAND-LINE", conflicts_with = "suggest")]
    pub line: Option<String>,
    /// Suggest a command line that isolates the CPUs given by --isolated.
    #[arg(long, requires = "isolated")]
    pub suggest: bool,
    /// CPUs reserved for the application, such as 2-5 [default: those that the command line isolates].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// Number of CPUs of the host [default: the number on this host; unknown if COMMAND-LINE is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(host::facts::MAX_CPUS)))]
    pub cpus: Option<u32>,
    /// What the host is used for (comma-separated): poll (applications poll the interface), interrupt (applications
    /// sleep until an interrupt arrives, or use the kernel's network stack), rt (the host has a real-time kernel),
    /// kvm-host (the host runs KVM guests), guest (the host is a virtual machine). Apus then also judges or suggests
    /// parameters that these uses need [default: no particular use].
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Print one JSON document (schema apus.cmdline/1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `apus irqs`.
#[derive(Args, Debug)]
pub struct Irqs {
    /// Show only these CPUs, such as 2-5 [default: the isolated CPUs; all if none is isolated].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuSet>,
    /// Read a recorded host instead of this one: a folder or an archive.
    #[arg(long, value_name = "FILE-OR-FOLDER", conflicts_with_all = ["watch", "interval"])]
    pub from: Option<PathBuf>,
    /// Print a new table after each --interval, until Ctrl-C [default: print one table].
    #[arg(long)]
    pub watch: bool,
    /// Time between two readings of the counters, from 10ms to 600s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = apart)]
    pub interval: Nanos,
    /// Print one JSON document (schema apus.irqs/1); with --watch, one document per sample, each on its own line.
    #[arg(long)]
    pub json: bool,
}

/// Parses the time between two readings of the counters: 10 ms to 600 s.
fn apart(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(600);
    let span: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    if (SHORTEST..=LONGEST).contains(&span) { Ok(span) } else { Err(format!("expected {SHORTEST} to {LONGEST}")) }
}

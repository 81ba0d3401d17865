//! `apus audit`, `apus irqs`.

use std::path::PathBuf;

use audit::{Level, Selector, Workload};
use clap::{Args, Subcommand};
use host::CpuSet;
use policy::Goal;
use units::Nanos;

/// `apus audit`
///
/// Reads this host, or what was recorded of another one, and judges it. What the host is for is inferred unless
/// it is said. Nothing is changed. Exit status 1 if there are findings at --min-level or above.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    /// Something else than an audit of one host.
    #[command(subcommand)]
    pub command: Option<Special>,
    /// The host, and what it is for.
    #[command(flatten)]
    pub host: Host,
    /// Print one JSON document (schema apus.audit/1), with all verdicts unless --min-level is given.
    #[arg(long, conflicts_with = "explain")]
    pub json: bool,
    /// Write the findings as SARIF 2.1.0; `-` prints it.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Write one self-contained HTML file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the warnings and failures that settings can mend as a profile for apus tune; `-` prints it. Changes nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub fix: Option<PathBuf>,
    /// Explain one rule, and what it says of this host.
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,
    /// Show findings from this level on: all, unknown, choice, warn, fail [default: warn].
    #[arg(long, value_name = "LEVEL")]
    pub min_level: Option<Level>,
    /// Only these rules or groups.
    #[arg(long, value_name = "ID|GROUP", value_delimiter = ',')]
    pub only: Vec<Selector>,
    /// Not these rules or groups.
    #[arg(long, value_name = "ID|GROUP", value_delimiter = ',')]
    pub skip: Vec<Selector>,
    /// Accept the findings that this file names.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write the findings of this audit as a baseline that accepts them.
    #[arg(long, value_name = "FILE")]
    pub write_baseline: Option<PathBuf>,
}

/// The host, and what it is for.
#[derive(Args, Debug)]
pub struct Host {
    /// Judge this instead of this host: a folder or an archive (apus snapshot, sosreport, must-gather).
    #[arg(long, value_name = "FILE-OR-FOLDER", conflicts_with_all = ["msr", "interval"])]
    pub from: Option<PathBuf>,
    /// CPUs that are kept for the application [default: inferred].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// Interfaces that matter [default: inferred].
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',')]
    pub nic: Vec<String>,
    /// What the host does: poll, interrupt, rt, kvm-host, guest; several with commas [default: inferred].
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// How late a packet may be: p99.9=50us. Findings are then ordered by what they take of it.
    #[arg(long, value_name = "QUANTILE=DURATION")]
    pub goal: Option<Goal>,
    /// Read model-specific registers too. Each reading interrupts the CPU that it reads, isolated ones too.
    #[arg(long)]
    pub msr: bool,
    /// Read the counters of this host twice, so far apart, and judge rates instead of counts since boot.
    #[arg(long, value_name = "DURATION", value_parser = apart)]
    pub interval: Option<Nanos>,
}

/// Something else than an audit of one host.
#[derive(Subcommand, Debug)]
pub enum Special {
    /// Compares two audits: of two recordings, or of one host before and after.
    ///
    /// Exit status 1 if the second has findings that the first does not have.
    Diff(Diff),
    /// Judges a kernel command line alone, or writes one.
    Cmdline(Cmdline),
    /// Lists the rules.
    Rules {
        /// As the Markdown document docs/rules.md.
        #[arg(long)]
        markdown: bool,
    },
}

/// `apus audit diff`
#[derive(Args, Debug)]
pub struct Diff {
    /// The first host: a folder or an archive; `/` is this host.
    pub before: PathBuf,
    /// The second host.
    pub after: PathBuf,
    /// CPUs that are kept for the application [default: inferred for each].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// Interfaces that matter [default: inferred for each].
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',')]
    pub nic: Vec<String>,
    /// What the hosts do [default: inferred for each].
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Print one JSON document (schema apus.audit-diff/1).
    #[arg(long)]
    pub json: bool,
}

/// `apus audit cmdline`
#[derive(Args, Debug)]
pub struct Cmdline {
    /// The command line, quoted; that of this host if it is left out.
    #[arg(value_name = "COMMAND-LINE", conflicts_with = "suggest")]
    pub line: Option<String>,
    /// Write a command line for --isolated.
    #[arg(long, requires = "isolated")]
    pub suggest: bool,
    /// CPUs that are kept for the application [default: those of the line].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// How many CPUs the host has [default without a line, and with --suggest: those of this host].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(host::facts::MAX_CPUS)))]
    pub cpus: Option<u32>,
    /// What the host does; adds words that are good for it.
    #[arg(long, value_name = "USE", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Print one JSON document (schema apus.cmdline/1).
    #[arg(long)]
    pub json: bool,
}

/// `apus irqs`
#[derive(Args, Debug)]
pub struct Irqs {
    /// These CPUs [default: the isolated ones, or all].
    #[arg(long, value_name = "CPUS")]
    pub cpu: Option<CpuSet>,
    /// Of this instead of this host: a folder or an archive.
    #[arg(long, value_name = "FILE-OR-FOLDER", conflicts_with_all = ["watch", "interval"])]
    pub from: Option<PathBuf>,
    /// Again and again, until Ctrl-C.
    #[arg(long)]
    pub watch: bool,
    /// Time between two samples.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = apart)]
    pub interval: Nanos,
    /// Print one JSON document (schema apus.irqs/1); with --watch one a line for each sample.
    #[arg(long)]
    pub json: bool,
}

/// The time between two readings.
fn apart(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(600);
    let span: Nanos = text.parse().map_err(|e: units::ParseError| e.to_string())?;
    if (SHORTEST..=LONGEST).contains(&span) { Ok(span) } else { Err(format!("expected {SHORTEST} to {LONGEST}")) }
}

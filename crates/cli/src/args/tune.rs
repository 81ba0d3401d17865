//! `apus tune`, `apus power`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use host::knob::Cpus;
use host::profile::Format;
use units::{Hertz, Nanos};

use super::values::span_with_hours;

/// What to do with the machine's settings.
#[derive(Subcommand, Debug)]
pub enum Tune {
    /// Lists the profiles, or shows what one would change here; changes nothing.
    Plan(PlanArgs),
    /// Changes the machine's settings to a profile's, so that they can be taken back.
    ///
    /// Each change is written to a journal (/var/lib/apus/tune) before it is made, and read back after. If one is
    /// refused, all are taken back.
    Apply(Apply),
    /// Takes back what was applied: all of it, or one transaction.
    ///
    /// Works after a crash, a kill and a reboot too. What someone else changed since is kept and reported.
    Rollback(Rollback),
    /// Shows what is applied, and how it stands now.
    Status(Show),
    /// Compares what is with what was wanted; exit status 1 if something differs.
    Verify(Verify),
    /// Shows what was changed: before, and now.
    Diff(Show),
    /// Writes a profile for another engine: tuned, systemd, a kernel command line, OpenShift, Ansible.
    Export(Export),
    /// Holds a request for an exit latency; started by apply.
    #[command(hide = true)]
    Hold {
        /// Root folder of the machine.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// Microseconds.
        micros: u32,
    },
    /// Takes back a transaction in time; started by apply.
    #[command(hide = true)]
    Guard(Guard),
}

/// Which profile, on which machine, for what.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Root folder of the machine: that of a recorded one, or of the host in a container.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// CPUs for the application [default: those that the kernel has isolated].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<Cpus>,
    /// Interface that the profile's "*" means; may be given several times [default: all with a device].
    #[arg(long = "interface", value_name = "INTERFACE")]
    pub interfaces: Vec<String>,
}

/// `apus tune plan`
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Name of a profile, or a file: poll, ./mine.toml [default: lists them].
    pub profile: Option<String>,
    /// The machine.
    #[command(flatten)]
    pub target: Target,
    /// Print one JSON document (schema apus.tune-plan/1).
    #[arg(long, requires = "profile")]
    pub json: bool,
}

/// `apus tune apply`
#[derive(Args, Debug)]
pub struct Apply {
    /// Name of a profile, or a file: poll, ./mine.toml.
    pub profile: String,
    /// The machine.
    #[command(flatten)]
    pub target: Target,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// Take it back by itself after this time: 90s, 10m, 2h.
    #[arg(long = "for", value_name = "DURATION", value_parser = span_with_hours, conflicts_with = "while_pid")]
    pub duration: Option<Nanos>,
    /// Take it back by itself when this process ends.
    #[arg(long, value_name = "PID")]
    pub while_pid: Option<u32>,
    /// What is refused is reported, and the rest is done.
    #[arg(long)]
    pub keep_going: bool,
    /// How it is done.
    #[command(flatten)]
    pub manner: Manner,
}

/// How changes are made.
#[derive(Args, Clone, Debug)]
pub struct Manner {
    /// Time to wait for another transaction to end.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub wait: Nanos,
    /// Print each operation that changes something, before it is done.
    #[arg(long)]
    pub trace: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// `apus tune rollback`
#[derive(Args, Debug)]
pub struct Rollback {
    /// Number of the transaction [default: all, the youngest first].
    pub transaction: Option<u32>,
    /// Root folder of the machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Only what nobody will take back by himself: unfinished, or its process died.
    #[arg(long, conflicts_with = "transaction")]
    pub abandoned: bool,
    /// Overwrite what someone else changed since.
    #[arg(long, conflicts_with = "keep")]
    pub overwrite: bool,
    /// Keep what someone else changed since, without asking.
    #[arg(long)]
    pub keep: bool,
    /// Take back what the whole lines of a damaged journal say.
    #[arg(long)]
    pub damaged: bool,
    /// Forget what cannot be taken back.
    #[arg(long)]
    pub forget: bool,
    /// How it is done.
    #[command(flatten)]
    pub manner: Manner,
}

/// `apus tune verify`
#[derive(Args, Debug)]
pub struct Verify {
    /// What to show.
    #[command(flatten)]
    pub show: Show,
    /// Look for the effects too, for so long: idle states entered, frequencies, interrupts.
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours)]
    pub watch: Option<Nanos>,
}

/// `apus tune status` and `diff`
#[derive(Args, Debug)]
pub struct Show {
    /// Root folder of the machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print one JSON document (schema apus.tune-status/1).
    #[arg(long)]
    pub json: bool,
}

/// `apus tune export`
#[derive(Args, Debug)]
pub struct Export {
    /// Name of a profile, or a file: poll, ./mine.toml.
    pub profile: String,
    /// The machine.
    #[command(flatten)]
    pub target: Target,
    /// For which engine: tuned, systemd, cmdline, openshift, openshift-tuned, ansible.
    #[arg(long, value_name = "ENGINE")]
    pub format: Format,
    /// Folder to write the files to [default: prints them].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// `apus tune guard`
#[derive(Args, Debug)]
pub struct Guard {
    /// Root folder of the machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// After this time.
    #[arg(long = "for", value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// When this process ends.
    #[arg(long)]
    pub while_pid: Option<u32>,
}

/// What to do with frequencies.
#[derive(Subcommand, Debug)]
pub enum Power {
    /// Fixes the frequency of cores and of the uncore; apus tune rollback takes it back.
    Set(PowerSet),
}

/// `apus power set`
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["frequency", "uncore"]))]
pub struct PowerSet {
    /// The cores: 21, 2-5.
    #[arg(long, value_name = "CPUS", required_unless_present = "uncore")]
    pub cpu: Option<Cpus>,
    /// Their frequency: 800MHz, 2.1GHz.
    #[arg(long, requires = "cpu", value_name = "FREQUENCY")]
    pub frequency: Option<Hertz>,
    /// The frequency of the uncore, of all dies.
    #[arg(long, value_name = "FREQUENCY")]
    pub uncore: Option<Hertz>,
    /// By registers (MSR 0x774 of each core, 0x620 of each die), or by the kernel's limits.
    #[arg(long, value_enum, default_value = "cpufreq")]
    pub via: Via,
    /// Root folder of the machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// How it is done.
    #[command(flatten)]
    pub manner: Manner,
}

/// How a frequency is fixed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// HWP request and uncore ratio limit registers.
    Hwp,
    /// cpufreq and intel_uncore_frequency.
    Cpufreq,
}

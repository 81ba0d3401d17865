//! `apus tune`, `apus power`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use host::knob::Cpus;
use host::profile::{Format, Via};
use units::{Hertz, Nanos};

use super::values::{one_of, span_with_hours};

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
    /// Compares the machine with what was applied, or with a profile; exit status 1 if something differs.
    ///
    /// With a profile it needs no root, and nothing has to be applied.
    Verify(Verify),
    /// Names the profile that fits this machine, and the reasons.
    Recommend(Show),
    /// Applies a profile and stays: devices and threads that appear later get its settings too.
    ///
    /// Ctrl-C or SIGTERM rolls everything back.
    Follow(Follow),
    /// Shows what was changed: before, and now.
    Diff(Show),
    /// Writes a profile for another engine: tuned, systemd, a kernel command line, OpenShift, Ansible.
    Export(Export),
    /// Applies a profile at each boot by a systemd unit, and prints what it writes. Does not apply it now.
    ///
    /// A reboot resets what the kernel holds; kernel arguments and irqbalance's configuration survive it.
    Enable(Enable),
    /// Removes what enable wrote. What is applied stays until `apus tune rollback`.
    Disable {
        /// Root folder of the machine.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
    },
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
    /// Value of one of the profile's variables; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
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

/// `apus tune enable`
#[derive(Args, Debug)]
pub struct Enable {
    /// Name of a profile, or a file: poll, ./mine.toml.
    pub profile: String,
    /// The machine.
    #[command(flatten)]
    pub target: Target,
    /// At boot, report what is refused and apply the rest.
    #[arg(long)]
    pub keep_going: bool,
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
    /// Print one JSON document (schema apus.tune-apply/1, or apus.tune-rollback/1 of a rollback).
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
    /// Only what nothing rolls back automatically any more: unfinished, or its process has ended.
    #[arg(long, conflicts_with = "transaction")]
    pub abandoned: bool,
    /// Overwrite what someone else changed since.
    #[arg(long, conflicts_with = "keep")]
    pub overwrite: bool,
    /// Keep what someone else changed since, without asking.
    #[arg(long)]
    pub keep: bool,
    /// Roll back what the intact lines of a damaged journal record, before and after the damaged ones.
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
    /// Name of a profile, or a file: poll, ./mine.toml [default: what is applied].
    pub profile: Option<String>,
    /// The machine.
    #[command(flatten)]
    pub target: Target,
    /// Print one JSON document (schema apus.tune-status/1; of a profile: apus.tune-plan/1).
    #[arg(long)]
    pub json: bool,
    /// Look for the effects too, for so long: idle states entered, frequencies, interrupts.
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours, conflicts_with = "profile")]
    pub watch: Option<Nanos>,
}

/// `apus tune follow`
#[derive(Args, Debug)]
pub struct Follow {
    /// Name of a profile, or a file: poll, ./mine.toml.
    pub profile: String,
    /// The machine.
    #[command(flatten)]
    pub target: Target,
    /// How often to look for new devices and threads.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = span_with_hours)]
    pub every: Nanos,
    /// Report what is refused, and apply the rest.
    #[arg(long)]
    pub keep_going: bool,
    /// Time to wait for another transaction to end.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub wait: Nanos,
}

/// `apus tune status` and `diff`
#[derive(Args, Debug)]
pub struct Show {
    /// Root folder of the machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print one JSON document (schema apus.tune-status/1, or apus.tune-recommend/1 of `recommend`).
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
    /// When that process started, in clock ticks after the boot: another of its number is not taken for it.
    #[arg(long, requires = "while_pid")]
    pub started: Option<u64>,
}

/// What to do with frequencies.
#[derive(Subcommand, Debug)]
pub enum Power {
    /// Fixes the frequency of cores and of the uncore; apus tune rollback undoes it.
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
    #[arg(long, value_parser = one_of::<Via>(), default_value_t = Via::Cpufreq)]
    pub via: Via,
    /// Root folder of the machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// How it is done.
    #[command(flatten)]
    pub manner: Manner,
}

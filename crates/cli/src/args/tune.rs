//! `apus tune`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use host::facts::CpuSet;
use host::profile::Format;
use units::Nanos;

use super::values::span_with_hours;

/// What to do with the host's settings.
#[derive(Subcommand, Debug)]
pub enum Tune {
    /// Lists the profiles, or shows what a profile would change on this host; changes nothing.
    Plan(PlanArgs),
    /// Applies a profile to the host; `apus tune rollback` undoes the changes.
    ///
    /// Writes each change to a journal (/var/lib/apus/tune) before making it, and reads the setting afterwards to check
    /// it. If the kernel refuses one change, all changes are rolled back, unless --keep-going is given. Exit status 1 if
    /// a setting is not in force as requested, or if the host has none of the settings.
    Apply(Apply),
    /// Rolls back all applied changes, or those of one transaction.
    ///
    /// Also works after a crash, a kill or a reboot. If someone else has changed a setting since Apus set it, the
    /// command asks, when everything else is rolled back, whether to keep the newer value. Without a terminal, it keeps
    /// that value and reports it. Exit status 1 if something remains to be rolled back.
    Rollback(Rollback),
    /// Shows the applied profiles, and the current value of each setting that they changed.
    ///
    /// Exit status 1 if a command was killed before it had rolled back its changes, or if a journal is damaged.
    Status(Show),
    /// Checks whether the host still has the settings that were applied, or those of a profile.
    ///
    /// Comparing with a profile needs no root privilege, and the profile need not be applied. Exit status 1 if a setting
    /// differs, if no profile is applied, if all settings belong to another network namespace or, in the comparison with
    /// a profile, if the host has none of its settings.
    Verify(Verify),
    /// Recommends the profile that suits this host, and gives the reasons.
    Recommend(RecommendArgs),
    /// Applies a profile, and keeps running to apply it to devices and threads that appear later.
    ///
    /// Ctrl-C or SIGTERM ends the command, and rolls back everything that it applied. Exit status 1 if a setting is
    /// refused at the first pass, without --keep-going, or if something remains to be rolled back.
    Follow(Follow),
    /// Shows each changed setting with its value before the change and its value now.
    Diff(Show),
    /// Converts a profile for another tool: tuned, systemd, the kernel command line, OpenShift or Ansible.
    Export(Export),
    /// Installs a systemd unit that applies a profile at each boot, and prints the unit. Does not apply the profile
    /// now.
    ///
    /// Most settings are lost at a reboot; the unit applies them again. Kernel arguments and irqbalance's configuration
    /// survive a reboot anyway.
    Enable(Enable),
    /// Removes what `apus tune enable` installed. Applied settings stay applied until `apus tune rollback`.
    Disable {
        /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
        /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder,
        /// and skips settings that are not files (ethtool, netlink, threads).
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
    },
    /// Keeps a request for an exit latency open until it is killed; `apus tune apply` starts this command.
    #[command(hide = true)]
    Hold {
        /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
        /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder,
        /// and skips settings that are not files (ethtool, netlink, threads).
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
        /// Exit latency to request, in us.
        micros: u32,
    },
    /// Rolls back a transaction later; `apus tune apply` starts this command.
    #[command(hide = true)]
    Guard(Guard),
}

/// The host to change, and its CPUs and interfaces.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
    /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder, and
    /// skips settings that are not files (ethtool, netlink, threads).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// CPUs for the application, such as 2-5 [default: the CPUs that the kernel has isolated].
    #[arg(long, value_name = "CPUS")]
    pub isolated: Option<CpuSet>,
    /// Interface to which the section `[network."*"]` of the profile applies; may be given several times [default: all
    /// interfaces backed by a hardware device].
    #[arg(long = "interface", value_name = "INTERFACE")]
    pub interfaces: Vec<String>,
    /// Set the profile's variable NAME to VALUE; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
}

/// Arguments of `apus tune plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Name or file of the profile, such as poll or ./mine.toml [default: list the profiles].
    pub profile: Option<String>,
    /// The host, and its CPUs and interfaces.
    #[command(flatten)]
    pub target: Target,
    /// Print one JSON document (schema apus.tune-plan/1).
    #[arg(long, requires = "profile")]
    pub json: bool,
}

/// Arguments of `apus tune apply`.
#[derive(Args, Debug)]
pub struct Apply {
    /// Name or file of the profile, such as poll or ./mine.toml.
    pub profile: String,
    /// The host, and its CPUs and interfaces.
    #[command(flatten)]
    pub target: Target,
    /// Apply without asking for confirmation.
    #[arg(short, long)]
    pub yes: bool,
    /// Roll back automatically after DURATION, such as 90s, 10m or 2h [default: stay applied].
    #[arg(long = "for", value_name = "DURATION", value_parser = span_with_hours, conflicts_with = "while_pid")]
    pub duration: Option<Nanos>,
    /// Roll back automatically when the process PID ends. With --root, PID is the number that the process has in /proc
    /// below that folder, if that is a host's /proc.
    #[arg(long, value_name = "PID")]
    pub while_pid: Option<u32>,
    /// If the kernel refuses some changes, report these and make the others, instead of rolling everything back.
    #[arg(long)]
    pub keep_going: bool,
    /// How to make the changes.
    #[command(flatten)]
    pub manner: Manner,
    /// Print one JSON document (schema apus.tune-apply/1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `apus tune enable`.
#[derive(Args, Debug)]
pub struct Enable {
    /// Name or file of the profile, such as poll or ./mine.toml.
    pub profile: String,
    /// The host, and its CPUs and interfaces.
    #[command(flatten)]
    pub target: Target,
    /// If the kernel refuses some changes at boot, report these and make the others, instead of rolling everything
    /// back.
    #[arg(long)]
    pub keep_going: bool,
}

/// How to make changes.
#[derive(Args, Clone, Debug)]
pub struct Manner {
    /// If another apus process is changing or rolling back settings, wait up to this long for it to finish, then give
    /// up.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub wait: Nanos,
    /// Print each operation that changes a setting or the journal, such as a write to a file, on standard error just
    /// before Apus carries it out.
    #[arg(long)]
    pub trace: bool,
}

/// Arguments of `apus tune rollback`.
#[derive(Args, Debug)]
pub struct Rollback {
    /// Number of the transaction, as `apus tune status` shows it [default: all, the newest first].
    pub transaction: Option<u32>,
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
    /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder, and
    /// skips settings that are not files (ethtool, netlink, threads).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Roll back only abandoned transactions. A transaction is abandoned if applying it was interrupted, or if the
    /// process that would have rolled it back died: for example, `apus tune follow`, `apus moderate`, or the background
    /// process of `apus tune apply --for`.
    #[arg(long, conflicts_with = "transaction")]
    pub abandoned: bool,
    /// Also roll back settings that someone else has changed since Apus set them.
    #[arg(long, conflicts_with = "keep")]
    pub overwrite: bool,
    /// Keep, without asking, the values of settings that someone else has changed since Apus set them.
    #[arg(long)]
    pub keep: bool,
    /// Roll back even transactions whose journal is damaged, as far as the intact lines of the journal allow.
    #[arg(long)]
    pub damaged: bool,
    /// Give up on changes that cannot be rolled back: remove them from the journal.
    #[arg(long)]
    pub forget: bool,
    /// How to make the changes.
    #[command(flatten)]
    pub manner: Manner,
    /// Print one JSON document (schema apus.tune-rollback/1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `apus tune verify`.
#[derive(Args, Debug)]
pub struct Verify {
    /// Name or file of the profile, such as poll or ./mine.toml [default: compare with the applied settings].
    pub profile: Option<String>,
    /// The host, and its CPUs and interfaces.
    #[command(flatten)]
    pub target: Target,
    /// Print one JSON document (schema apus.tune-status/1, or apus.tune-plan/1 if a profile is given).
    #[arg(long)]
    pub json: bool,
    /// Also observe for DURATION whether the settings take effect: which idle states the CPUs enter, their frequencies
    /// and their interrupts.
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours, conflicts_with = "profile")]
    pub watch: Option<Nanos>,
}

/// Arguments of `apus tune follow`.
#[derive(Args, Debug)]
pub struct Follow {
    /// Name or file of the profile, such as poll or ./mine.toml.
    pub profile: String,
    /// The host, and its CPUs and interfaces.
    #[command(flatten)]
    pub target: Target,
    /// Time between two searches for new devices and threads.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = span_with_hours)]
    pub every: Nanos,
    /// If the kernel refuses some changes, report these and make the others, instead of rolling everything back.
    #[arg(long)]
    pub keep_going: bool,
    /// If another apus process is changing or rolling back settings, wait up to this long for it to finish, then give
    /// up. The same holds for each transaction that is rolled back at the end.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub wait: Nanos,
}

/// Arguments of `apus tune status` and `diff`.
#[derive(Args, Debug)]
pub struct Show {
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
    /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder, and
    /// skips settings that are not files (ethtool, netlink, threads).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print one JSON document (schema apus.tune-status/1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `apus tune recommend`.
#[derive(Args, Debug)]
pub struct RecommendArgs {
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
    /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder, and
    /// skips settings that are not files (ethtool, netlink, threads).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print one JSON document (schema apus.tune-recommend/1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `apus tune export`.
#[derive(Args, Debug)]
pub struct Export {
    /// Name or file of the profile, such as poll or ./mine.toml.
    pub profile: String,
    /// The host, and its CPUs and interfaces.
    #[command(flatten)]
    pub target: Target,
    /// What to convert the profile into: tuned (a profile), systemd (a unit), cmdline (kernel arguments), openshift (a
    /// PerformanceProfile), openshift-tuned (a Tuned object) or ansible (a playbook).
    #[arg(long, value_name = "ENGINE")]
    pub format: Format,
    /// Write the converted files to the folder DIR [default: print them].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Arguments of `apus tune guard`, a hidden command.
#[derive(Args, Debug)]
pub struct Guard {
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
    /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder, and
    /// skips settings that are not files (ethtool, netlink, threads).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Roll back after DURATION.
    #[arg(long = "for", value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// Roll back when this process ends.
    #[arg(long)]
    pub while_pid: Option<u32>,
    /// Start time of the process `--while-pid`, in clock ticks after boot. It distinguishes the process from a later
    /// one with the same PID.
    #[arg(long, requires = "while_pid")]
    pub started: Option<u64>,
}

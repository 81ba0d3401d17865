//! `apus power serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use units::Nanos;

use crate::args::values::span_with_hours;

/// The folder with the manifests of the guests.
pub const GUESTS: &str = "/etc/apus/guests";
/// The folder in which running instances publish the state of their guests.
pub const ROOT: &str = "/run/apus/serve";

/// Arguments of `apus power serve`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Serve {
    /// A subcommand that does something other than serve requests.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Folder with the manifests: DIR/NAME.toml is the manifest of the guest NAME. On SIGHUP, Apus reads the manifests
    /// again.
    #[arg(long, value_name = "DIR", default_value = GUESTS)]
    pub guests: PathBuf,
    /// Append each request and its outcome to FILE, as one line of JSON (schema apus.power-serve-log/1), except
    /// repetitions with the same outcome. At 64 MiB, Apus renames FILE to FILE.1. On SIGHUP, it reopens FILE.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// End after DURATION, such as 90s, 10m or 2h [default: run until Ctrl-C].
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, Apus uses the
    /// /sys, /proc and libvirt files below it; sockets and manifests are still those of the running host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print only one JSON document, at the end (schema apus.power-serve/1).
    #[arg(long)]
    pub json: bool,
}

/// What `apus power serve` does instead of serving.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Checks the manifests, and prints what each guest may request. Exit status 2 if a manifest is invalid.
    ///
    /// Changes nothing, opens no socket and needs no privilege.
    Check(Check),
    /// Shows the guests of the running instances of `apus power serve`, and what each guest has requested.
    ///
    /// Exit status 1 if a request of a guest is not in force, if Apus cannot reach a guest, or if it cannot find out on
    /// which CPUs the guest's vCPUs run.
    Status(Show),
}

/// Arguments of `apus power serve check`.
#[derive(Args, Debug)]
pub struct Check {
    /// Manifest, or folder of manifests, to check [default: the folder of --guests].
    pub path: Option<PathBuf>,
    /// Folder with the manifests, as for `apus power serve`.
    #[arg(long, value_name = "DIR", default_value = GUESTS, conflicts_with = "path")]
    pub guests: PathBuf,
}

/// Arguments of `apus power serve status`.
#[derive(Args, Debug)]
pub struct Show {
    /// Print one JSON document (schema apus.power-serve-status/1).
    #[arg(long)]
    pub json: bool,
    /// Folder in which running instances of `apus power serve` publish the state of their guests.
    #[arg(long, value_name = "DIR", default_value = ROOT)]
    pub folder: PathBuf,
}

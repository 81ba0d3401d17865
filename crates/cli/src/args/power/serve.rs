//! `apus power serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use units::Nanos;

use crate::args::values::span_with_hours;

/// The folder with the manifests of the guests.
pub const GUESTS: &str = "/etc/apus/guests";
/// The folder in which running instances publish how the guests stand.
pub const ROOT: &str = "/run/apus/serve";

/// Arguments of `apus power serve`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Serve {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Folder with the manifests: DIR/NAME.toml is that of the guest NAME. SIGHUP reads them again.
    #[arg(long, value_name = "DIR", default_value = GUESTS)]
    pub guests: PathBuf,
    /// Append each request, with what became of it, to FILE as a line of JSON (schema apus.power-serve-log/1). SIGHUP
    /// opens FILE again.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// End after this time, from 1s to 24h.
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// Folder that holds the host's root file system: `/` is the running host. In any other folder, settings, threads
    /// and libvirt's files are read and changed; sockets and manifests are always those of the running host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print one JSON document at the end (schema apus.power-serve/1), and no lines before.
    #[arg(long)]
    pub json: bool,
}

/// What `apus power serve` does instead of serving.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Reads the manifests, and prints what the guests may do. Exit status 2 if one is wrong.
    ///
    /// Changes nothing, opens no socket and needs no privilege.
    Check(Check),
    /// Shows the guests that running instances of `apus power serve` serve, and what they have asked for.
    ///
    /// Exit status 1 if a wish is not in force, or if a guest cannot be reached.
    Status(Show),
}

/// Arguments of `apus power serve check`.
#[derive(Args, Debug)]
pub struct Check {
    /// A manifest, or a folder of manifests.
    #[arg(default_value = GUESTS)]
    pub path: PathBuf,
}

/// Arguments of `apus power serve status`.
#[derive(Args, Debug)]
pub struct Show {
    /// Print one JSON document (schema apus.power-serve-status/1).
    #[arg(long)]
    pub json: bool,
    /// Folder in which running instances publish how the guests stand.
    #[arg(long, value_name = "DIR", default_value = ROOT)]
    pub folder: PathBuf,
}

//! `apus snapshot`: records the state of a host.

use std::io::Write as _;

use host::facts::{Root, RootError};
use host::snapshot::{Packing, Plan, Snapshot, WriteError};

use crate::args::snapshot::Snapshot as Typed;
use crate::commands::output::unwritable;
use crate::documents::VERSION;
use crate::documents::snapshot::{Document, SCHEMA};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus snapshot`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    // Checks the file name first, before the snapshot takes its time.
    Packing::of(&typed.output).map_err(refused)?;
    let plan = Plan { interval: typed.interval, unmask: typed.unmask, msrs: typed.msrs, watch: typed.watch };
    let snapshot = match &typed.from {
        Some(from) => Snapshot::of(&Root::open(from).map_err(unreadable)?, plan),
        None => {
            if terminal::err_is_terminal() {
                writeln!(terminal::err(), "reading the counters twice, {} apart...", typed.interval)?;
            }
            Snapshot::take(plan)
        }
    };
    let size = snapshot.write(&typed.output).map_err(refused)?;
    let document = Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        file: typed.output.display().to_string(),
        size_octets: size,
        unpacked_octets: snapshot.size() as u64,
        files: snapshot.files().count() as u64,
        complete: snapshot.is_complete(),
        masked: !typed.unmask,
    };
    if typed.json {
        print_json(&document)?;
    } else {
        let cut = if document.complete { "" } else { "; truncated at the size limit" };
        let masked = if document.masked { "addresses and serial numbers masked" } else { "only secrets masked" };
        let files = document.files;
        writeln!(terminal::out(), "{}: {size} bytes, {files} files, {masked}{cut}", document.file)?;
    }
    Ok(if document.complete { Status::Good } else { Status::Findings })
}

fn refused(error: WriteError) -> Failure {
    match error {
        WriteError::Name(path) => Failure::wrong(
            format!("cannot write {}", path.display()),
            "the file name has no supported suffix",
            "end the name in .tar, .tar.gz or .tar.zst",
        ),
        WriteError::Write { path, error } => unwritable(&path, error),
    }
}

fn unreadable(error: RootError) -> Failure {
    match &error {
        RootError::Open { path, error } => Failure::wrong(
            format!("cannot open {}", path.display()),
            error,
            "give a folder or an archive with a host's files",
        ),
        RootError::NotAHost { path, reason } => Failure::wrong(
            format!("cannot read {}", path.display()),
            reason.clone(),
            "give a folder or an archive with a host's files",
        ),
    }
}

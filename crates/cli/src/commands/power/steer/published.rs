//! The state that running instances of `apus power steer` publish.

use std::path::Path;

use crate::args::power::steer::ROOT;
use crate::commands::published::{self, Running, State};
use crate::documents::power_steer::{Document, Instance};
use crate::documents::top::Leftover;

impl State for Document {
    const FOLDER: &'static str = ROOT;
    const SHOWN_BY: &'static str = "apus power steer status, apus top and apus metrics";
}

/// Reads the CPUs of all running instances, sorted by PID. Also returns the files that belong to no running instance.
pub(in crate::commands) fn all(folder: &Path) -> Result<(Vec<Instance>, Vec<Leftover>), live::Error> {
    let (running, leftovers) = published::all(folder)?;
    let instance = |Running { pid, silent_ns, document, .. }: Running<Document>| Instance { pid, silent_ns, document };
    Ok((running.into_iter().map(instance).collect(), leftovers))
}

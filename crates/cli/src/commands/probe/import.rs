//! `apus probe import`: converts the output of other measuring tools into probe results.

use std::fs;

use super::{check_writable, put};
use crate::args::probe::Import;
use tester::document::Energy;

use crate::documents::probe::Document;
use crate::{Failure, Status};

/// Runs `apus probe import`.
pub fn run(typed: &Import) -> anyhow::Result<Status> {
    check_writable(&typed.outputs.output, &typed.outputs.html)?;
    let mut hosts = Vec::new();
    let mut measured = Vec::new();
    for path in &typed.files {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| {
            let fix = "give the output of cyclictest --json, oslat --json or rtla hist";
            Failure::wrong(format!("cannot read {name}"), e, fix)
        })?;
        let imported = probe::import::read(&name, &text)?;
        hosts.push(imported.host);
        measured.push(imported.measured);
    }
    // The host on which the measurements were made, according to the first file. It may be another host than this one.
    let Some(host) = hosts.into_iter().next() else { return Ok(Status::Wrong) };
    put(&Document::new(host, measured, Energy::unmeasured("the imported file has no energy")), &typed.outputs)?;
    Ok(Status::Good)
}

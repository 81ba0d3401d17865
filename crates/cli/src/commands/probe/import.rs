//! `apus probe import`: converts the output of other measuring tools into probe results.

use std::fs;

use super::{check_writable, put};
use crate::args::probe::Import;
use probe::mark::{Mark, MarkKind};
use tester::document::Energy;
use tester::host::HostState;

use crate::documents::probe::Document;
use crate::{Failure, Status};

/// Runs `apus probe import`.
pub fn run(typed: &Import) -> anyhow::Result<Status> {
    check_writable(&typed.outputs.output, &typed.outputs.html)?;
    let mut first: Option<HostState> = None;
    let mut measured = Vec::new();
    for path in &typed.files {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| {
            let fix = "give the output of cyclictest --json, oslat --json or rtla hist";
            Failure::wrong(format!("cannot read {name}"), e, fix)
        })?;
        let probe::import::Imported { host, measured: mut of } = probe::import::read(&name, &text)?;
        // The document has one host, that of the first file. It may be another host than this one.
        let first = first.get_or_insert_with(|| host.clone());
        if let (Some(kernel), Some(other)) = (&host.kernel.value, &first.kernel.value)
            && kernel != other
        {
            let text = format!("{name} was measured with kernel {kernel}, and the first file with {other}");
            of.marks.push(Mark::new(MarkKind::Note, text));
        }
        measured.push(of);
    }
    probe::import::tell_apart(&mut measured);
    let Some(host) = first else { return Ok(Status::Wrong) };
    put(&Document::new(host, measured, Energy::unmeasured("the imported file has no energy")), &typed.outputs)?;
    Ok(Status::Good)
}

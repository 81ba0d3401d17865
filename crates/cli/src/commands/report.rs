//! `apus report`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use tester::report;
use tester::result::Document;

use super::probe::{File, read_measurements};
use crate::args::lab::Report as Typed;
use crate::documents::probe::{PLATFORM, PLATFORM_1, SCHEMA as PROBE, SCHEMA_1 as PROBE_1};
use crate::{Failure, Status, terminal};

/// Reads results, and writes the report.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let of_probes = typed.results.iter().filter(|path| is_of_probe(path)).count();
    if of_probes > 0 {
        if of_probes < typed.results.len() {
            let why = "some are of apus probe, and some are not";
            return Err(Failure::wrong("make one report of these results", why, "make a report of each kind").into());
        }
        return of_probe(typed);
    }
    let mut results = Vec::new();
    for path in &typed.results {
        let documents = read(path)?;
        let many = documents.len() > 1;
        for (number, document) in documents.into_iter().enumerate() {
            let name = if many { format!("{} {}", stem(path), number + 1) } else { stem(path) };
            results.push((name, document));
        }
    }
    let title = typed.title.as_deref().unwrap_or("Apus: latency beside CPU time");
    report::write(&report::of_results(title, &results), &typed.output)?;
    writeln!(terminal::out(), "{}: {} result(s)", typed.output.display(), results.len())?;
    Ok(Status::Good)
}

/// A report of what probes measured, the files beside each other.
fn of_probe(typed: &Typed) -> anyhow::Result<Status> {
    let files = typed.results.iter().map(|path| Ok((stem(path), read_measurements(path)?)));
    let files: Vec<(String, File)> = files.collect::<Result<_, Failure>>()?;
    let sets: Vec<probe::report::Set<'_>> = files
        .iter()
        .map(|(name, file)| {
            let name = if files.len() > 1 { name.as_str() } else { "" };
            probe::report::Set { name, host: &file.host, measured: &file.measured }
        })
        .collect();
    let results = files.iter().map(|(_, file)| serde_json::to_value(&file.measured)).collect::<Result<Value, _>>()?;
    let title = typed.title.as_deref().unwrap_or("Apus: what waking up costs");
    report::write(&probe::report::report(title, &sets, results), &typed.output)?;
    let number: usize = files.iter().map(|(_, file)| file.measured.len()).sum();
    writeln!(terminal::out(), "{}: {number} result(s)", typed.output.display())?;
    Ok(Status::Good)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file is a document of `apus probe`. One that cannot be read is none; reading it again says why.
fn is_of_probe(path: &Path) -> bool {
    let schema = fs::read_to_string(path).ok().and_then(|text| {
        let document: Value = serde_json::from_str(&text).ok()?;
        document["schema"].as_str().map(str::to_owned)
    });
    schema.is_some_and(|schema| [PROBE, PROBE_1, PLATFORM, PLATFORM_1].contains(&schema.as_str()))
}

/// A file holds one document, or several, one after the other (`--repeat`).
fn read(path: &Path) -> Result<Vec<Document>, Failure> {
    let what = || format!("read {}", path.display());
    let fix = "name a file that apus bench -o wrote";
    let text = fs::read_to_string(path).map_err(|e| Failure::wrong(what(), e.to_string(), fix))?;
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let documents: Vec<Value> =
        documents.collect::<Result<_, _>>().map_err(|e| Failure::wrong(what(), e.to_string(), fix))?;
    if documents.is_empty() {
        return Err(Failure::wrong(what(), "there is no result in it", fix));
    }
    // First the schema: a document of another version is not read as if it were this one.
    let read = |document: Value| match document["schema"].as_str() {
        Some(tester::result::SCHEMA) | None => {
            serde_json::from_value(document).map_err(|e| Failure::wrong(what(), e.to_string(), fix))
        }
        Some(other) => {
            let why = format!("its schema is {other:?}, but this program reads {:?}", tester::result::SCHEMA);
            Err(Failure::wrong(what(), why, "measure again, or use the version of Apus that wrote it"))
        }
    };
    documents.into_iter().map(read).collect()
}

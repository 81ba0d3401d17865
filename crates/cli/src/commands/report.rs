//! `apus report`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use tester::report;
use tester::result::Document;

use super::probe::{File, read_measurements};
use crate::args::lab::Report as Typed;
use crate::documents::probe::{PLATFORM, SCHEMA as PROBE};
use crate::{Failure, Status, terminal};

/// Runs `apus report`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let of_probes = typed.results.iter().filter(|path| is_of_probe(path)).count();
    if of_probes > 0 {
        if of_probes < typed.results.len() {
            let why = "some files are results of apus probe and others are not";
            return Err(Failure::wrong(
                "cannot put these results into one report",
                why,
                "run apus report once for each kind",
            )
            .into());
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
    let title = typed.title.as_deref().unwrap_or("Apus: latency and CPU time");
    report::write(&report::of_results(title, &results), &typed.output)?;
    writeln!(terminal::out(), "{}: {} result(s)", typed.output.display(), results.len())?;
    Ok(Status::Good)
}

/// Renders the report of probe results, with the files side by side.
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
    let title = typed.title.as_deref().unwrap_or("Apus: the cost of waking up");
    report::write(&probe::report::report(title, &sets, results), &typed.output)?;
    let number: usize = files.iter().map(|(_, file)| file.measured.len()).sum();
    writeln!(terminal::out(), "{}: {number} result(s)", typed.output.display())?;
    Ok(Status::Good)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file is a document of `apus probe`. An unreadable file is not; reading it again gives the reason.
fn is_of_probe(path: &Path) -> bool {
    let schema = fs::read_to_string(path).ok().and_then(|text| {
        let document: Value = serde_json::from_str(&text).ok()?;
        document["schema"].as_str().map(str::to_owned)
    });
    schema.is_some_and(|schema| schema == PROBE || schema == PLATFORM)
}

/// Reads a file with one document, or with several in a row (`--repeat`).
fn read(path: &Path) -> Result<Vec<Document>, Failure> {
    let what = || format!("read {}", path.display());
    let fix = "give a file that apus bench -o wrote";
    let text = fs::read_to_string(path).map_err(|e| Failure::wrong(what(), e.to_string(), fix))?;
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Document>();
    let documents: Vec<Document> =
        documents.collect::<Result<_, _>>().map_err(|e| Failure::wrong(what(), e.to_string(), fix))?;
    match documents.iter().find(|document| document.schema != tester::result::SCHEMA) {
        _ if documents.is_empty() => Err(Failure::wrong(what(), "the file contains no result", fix)),
        Some(other) => {
            let why = format!(
                "its schema is {:?}, but this version of Apus reads {:?}",
                other.schema,
                tester::result::SCHEMA
            );
            Err(Failure::wrong(what(), why, "measure again, or use the version of Apus that wrote it"))
        }
        None => Ok(documents),
    }
}

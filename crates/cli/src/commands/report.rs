//! `apus report`: writes a report from JSON results.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use tester::procedure::RFC2544_SCHEMA;
use tester::report;
use tester::result::Document;

use super::output;
use super::probe::{File, read_measurements};
use crate::args::lab::Report as Typed;
use crate::documents::probe::{PLATFORM, PLATFORM_1, SCHEMA as PROBE, SCHEMA_1 as PROBE_1};
use crate::{Failure, Status, terminal};

/// The results that a report can show. Results of the other procedures have a table only.
const SHOWN: &str = "give results of apus bench latency, load or rfc2544, or of apus probe: a report shows no others";
/// What to do about results of different kinds. Not every kind can be in a report.
const EACH: &str = "run apus report once for apus bench latency and load, once for rfc2544 and once for apus probe; a \
                    report shows no other results";

/// Runs `apus report`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let inputs: Vec<&Path> = typed.results.iter().map(AsRef::as_ref).collect();
    output::is_no_input(&typed.output, &inputs)?;
    let of_probes = typed.results.iter().filter(|path| is_of_probe(path)).count();
    if of_probes > 0 {
        if of_probes < typed.results.len() {
            let why = "some files are results of apus probe and others are not";
            return Err(Failure::wrong("cannot put these results into one report", why, EACH).into());
        }
        return of_probe(typed);
    }
    let of_procedures = typed.results.iter().filter(|path| schema(path).as_deref() == Some(RFC2544_SCHEMA)).count();
    if of_procedures > 0 {
        if of_procedures < typed.results.len() {
            let why = "some files are results of apus bench rfc2544 and others are not";
            return Err(Failure::wrong("cannot put these results into one report", why, EACH).into());
        }
        return of_rfc2544(typed);
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

/// Renders the report of results of `apus bench rfc2544`, side by side.
fn of_rfc2544(typed: &Typed) -> anyhow::Result<Status> {
    let results = typed.results.iter().map(|path| Ok((stem(path), super::bench::procedure::read(path)?)));
    let results: Vec<(String, tester::procedure::Rfc2544Document)> = results.collect::<Result<_, Failure>>()?;
    let title = typed.title.as_deref().unwrap_or("Apus: RFC 2544");
    report::write(&tester::procedure::report(title, &results), &typed.output)?;
    writeln!(terminal::out(), "{}: {} result(s)", typed.output.display(), results.len())?;
    Ok(Status::Good)
}

/// Whether a file is a document of `apus probe`. Returns `false` for an unreadable file; reading it again reports the
/// error.
fn is_of_probe(path: &Path) -> bool {
    schema(path).is_some_and(|schema| [PROBE, PROBE_1, PLATFORM, PLATFORM_1].contains(&schema.as_str()))
}

/// The schema that the document in a file names.
fn schema(path: &Path) -> Option<String> {
    let document: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    document["schema"].as_str().map(str::to_owned)
}

/// Reads a file with one document, or with several in a row (`--repeat`).
fn read(path: &Path) -> Result<Vec<Document>, Failure> {
    let what = || format!("cannot read {}", path.display());
    let fix = "give a file that apus bench -o wrote";
    let text = fs::read_to_string(path).map_err(|e| Failure::wrong(what(), e, fix))?;
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().map_err(|e| Failure::wrong(what(), e, fix))?;
    if documents.is_empty() {
        return Err(Failure::wrong(what(), "the file contains no result", fix));
    }
    // Checks the schema first, so that a document of another version is not misread.
    let read = |document: Value| match document["schema"].as_str() {
        Some(tester::result::SCHEMA) => serde_json::from_value(document).map_err(|e| Failure::wrong(what(), e, fix)),
        None => Err(Failure::wrong(what(), "it names no schema, so it is not a result of apus bench", fix)),
        Some(other) => {
            let why = format!("its schema is {other:?}, but this program reads {:?}", tester::result::SCHEMA);
            let name = |schema: &str| schema.split('/').next().unwrap_or_default().to_owned();
            let fix = match name(other) == name(tester::result::SCHEMA) {
                true => "measure again, or use the version of Apus that wrote it",
                false => SHOWN,
            };
            Err(Failure::wrong(what(), why, fix))
        }
    };
    documents.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "unknown field `causes`, expected one of `apus`, …" was the answer to a JSON file of somebody else.
    #[test]
    fn a_file_that_is_no_result_is_refused_with_the_reason() {
        let folder = std::env::temp_dir().join(format!("apus-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("other.json");
        for (text, why) in [
            ("{\"causes\": []}", "it names no schema"),
            ("", "contains no result"),
            ("{\"schema\": \"apus.bench/1\"}", "measure again"),
            ("{\"schema\": \"apus.bench-soak/1\"}", "a report shows no others"),
        ] {
            fs::write(&file, text).unwrap();
            let said = format!("{:?}", read(&file).unwrap_err());
            assert!(said.contains("cannot read") && said.contains(why), "{said}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

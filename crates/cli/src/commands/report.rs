//! `apus report`.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use tester::report;
use tester::result::Document;

use crate::args::lab::Report as Typed;
use crate::{Failure, Status};

/// Reads results, and writes the report.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let mut results = Vec::new();
    for path in &typed.results {
        let documents = read(path)?;
        let many = documents.len() > 1;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        for (number, document) in documents.into_iter().enumerate() {
            let name = if many { format!("{stem} {}", number + 1) } else { stem.clone().into_owned() };
            results.push((name, document));
        }
    }
    report::write(&report::of_results(&typed.title, &results), &typed.output)?;
    writeln!(io::stdout(), "{}: {} result(s)", typed.output.display(), results.len())?;
    Ok(Status::Good)
}

/// A file holds one document, or several, one after the other (`--repeat`).
fn read(path: &Path) -> Result<Vec<Document>, Failure> {
    let what = || format!("read {}", path.display());
    let fix = "name a file that apus bench -o wrote";
    let text = fs::read_to_string(path).map_err(|e| Failure::wrong(what(), e.to_string(), fix))?;
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Document>();
    let documents: Vec<Document> =
        documents.collect::<Result<_, _>>().map_err(|e| Failure::wrong(what(), e.to_string(), fix))?;
    match documents.iter().find(|document| document.schema != tester::result::SCHEMA) {
        _ if documents.is_empty() => Err(Failure::wrong(what(), "there is no result in it", fix)),
        Some(other) => {
            let why = format!("its schema is {:?}, but this program reads {:?}", other.schema, tester::result::SCHEMA);
            Err(Failure::wrong(what(), why, "measure again, or use the version of Apus that wrote it"))
        }
        None => Ok(documents),
    }
}

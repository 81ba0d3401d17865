//! `apus audit diff`: compares two audits.

use std::io::Write as _;
use std::path::Path;

use audit::{Difference, DifferenceKind, Intent, Report, audit, difference};
use host::facts::{Facts, Reading};

use super::document;
use crate::Status;
use crate::args::audit::Diff;
use crate::documents::VERSION;
use crate::documents::audit::{DIFF_SCHEMA, DiffDocument};
use crate::terminal;
use crate::terminal::print_json;

/// Compares the audits of two hosts (`apus audit diff`).
pub(super) fn run(typed: &Diff) -> anyhow::Result<Status> {
    let intent = Intent {
        isolated: typed.isolated.clone(),
        nics: (!typed.nic.is_empty()).then(|| typed.nic.clone()),
        workloads: (!typed.workload.is_empty()).then(|| typed.workload.clone()),
        goal: None,
    };
    let judged = |path: &Path| -> anyhow::Result<(Facts, Report)> {
        let facts = super::facts_of(Some(path), Reading::default())?;
        super::read::has(&facts, typed.isolated.as_ref(), &typed.nic)?;
        let report = audit(&facts, &intent);
        Ok((facts, report))
    };
    let (before, after) = (judged(&typed.before)?, judged(&typed.after)?);
    let differences = difference(&before.1, &after.1);
    let status = match differences.iter().any(|one| one.kind == DifferenceKind::Worse) {
        true => Status::Findings,
        false => Status::Good,
    };
    if typed.json {
        print_json(&DiffDocument {
            apus: VERSION.to_owned(),
            schema: DIFF_SCHEMA.to_owned(),
            before: document::host(&before.0),
            after: document::host(&after.0),
            differences: differences.iter().map(one).collect(),
        })?;
        return Ok(status);
    }
    let mut out = terminal::out();
    writeln!(out, "{} → {}", before.0.origin.name, after.0.origin.name)?;
    if differences.is_empty() {
        writeln!(out, "the two audits have the same findings")?;
    }
    let mut last = None;
    for one in &differences {
        if last != Some(one.kind) {
            writeln!(out, "\n{}", one.kind.name())?;
            last = Some(one.kind);
        }
        writeln!(out, "  {}", one.key)?;
        for (label, finding) in [("before", one.before), ("after", one.after)] {
            let said = finding.map_or("nothing".to_owned(), |finding| {
                let verdict = &finding.judgement.verdict;
                format!("{}: {}", verdict.name(), verdict.reason().unwrap_or(&finding.judgement.found))
            });
            writeln!(out, "    {label:<7}{said}")?;
        }
    }
    Ok(status)
}

fn one(difference: &Difference<'_>) -> crate::documents::audit::Difference {
    crate::documents::audit::Difference {
        kind: difference.kind.into(),
        key: difference.key.clone(),
        before: difference.before.map(document::finding),
        after: difference.after.map(document::finding),
    }
}

//! `apus moderate status`: shows what running instances control.

use std::io::Write as _;

use tester::document::Name;

use super::super::shown::{check_folder, leftover};
use super::{published, table};
use crate::args::moderate::{ROOT, Show};
use crate::documents::VERSION;
use crate::documents::moderate::Verdict;
use crate::documents::moderation::{Document, Instance, SCHEMA};
use crate::{Status, terminal};

/// Runs `apus moderate status`.
pub(super) fn run(typed: &Show) -> anyhow::Result<Status> {
    check_folder("--moderation", &typed.moderation.folder, ROOT)?;
    let (instances, leftovers) = published::all(&typed.moderation.folder)?;
    let document = Document { apus: VERSION.to_owned(), schema: SCHEMA.to_owned(), instances, leftovers };
    terminal::print(typed.json, &document, |out| {
        let lines = match document.instances.is_empty() {
            true => vec!["no instance of apus moderate is running".to_owned()],
            false => table::lines(&document.instances),
        };
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        let leftovers = document.leftovers.iter();
        leftovers.map(leftover).try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()
    })?;
    // Only the policy `goal` is blamed for a missed goal; other policies do not control for it.
    let missed = |queue: &crate::documents::moderation::Queue| {
        queue.lost.is_some() || queue.policy == "goal" && queue.verdict == Name::of(&Verdict::Missed)
    };
    let is_bad = |instance: &Instance| !instance.not_controlled.is_empty() || instance.queues.iter().any(missed);
    let is_bad = document.instances.iter().any(is_bad);
    Ok(if is_bad { Status::Findings } else { Status::Good })
}

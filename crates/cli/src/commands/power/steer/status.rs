//! `apus power steer status`: shows what running instances control.

use std::io::Write as _;

use super::{published, table};
use crate::args::power::steer::{ROOT, Show};
use crate::commands::shown::{check_folder, leftover};
use crate::documents::VERSION;
use crate::documents::power_steer::{STATUS, StatusDocument};
use crate::{Status, terminal};

/// Runs `apus power steer status`.
pub(super) fn run(typed: &Show) -> anyhow::Result<Status> {
    check_folder("--steering", &typed.steering.folder, ROOT)?;
    let (instances, leftovers) = published::all(&typed.steering.folder)?;
    let document = StatusDocument { apus: VERSION.to_owned(), schema: STATUS.to_owned(), instances, leftovers };
    terminal::print(typed.json, &document, |out| {
        let lines = match document.instances.is_empty() {
            true => vec!["no instance of apus power steer is running".to_owned()],
            false => table::lines(&document.instances),
        };
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        let leftovers = document.leftovers.iter();
        leftovers.map(leftover).try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()
    })?;
    let is_bad = document.instances.iter().any(|instance| instance.document.has_findings());
    Ok(if is_bad { Status::Findings } else { Status::Good })
}

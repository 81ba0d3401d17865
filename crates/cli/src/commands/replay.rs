//! `apus replay`.

use std::fs::File;
use std::io::{BufReader, Write as _};

use live::record::replay;

use crate::args::lab::Replay as Typed;
use crate::commands::print_json;
use crate::documents::VERSION;
use crate::documents::replay::{Difference, Document, SCHEMA};
use crate::{Failure, Status, terminal};

/// Compares a recorded file with what its policy decides now.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let name = typed.file.display().to_string();
    let file = File::open(&typed.file).map_err(|e| {
        Failure::wrong(format!("open {name}"), e.to_string(), "name a file that apus run --record wrote")
    })?;
    let found = replay(BufReader::new(file), &name)?;
    let difference = found.first_difference.map(|(line, recorded, now)| Difference { line, recorded, now });
    let document = Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        file: name,
        mode: found.mode.mode,
        goal: found.mode.goal,
        decisions: found.decisions,
        left_out: found.left_out,
        first_difference: difference,
    };
    let status = if document.first_difference.is_none() { Status::Good } else { Status::Findings };
    if typed.json {
        print_json(&document)?;
        return Ok(status);
    }
    let mut out = terminal::out();
    let goal = document.goal.map(|goal| format!(" {goal}")).unwrap_or_default();
    match document.first_difference {
        None => {
            writeln!(out, "{}{goal}: {} decisions, all the same", document.mode, document.decisions)?;
        }
        Some(Difference { line, recorded, now }) => {
            writeln!(out, "{}{goal}: line {line} of {} differs", document.mode, document.file)?;
            writeln!(out, "  recorded: {recorded}\n  now:      {now}")?;
        }
    }
    if document.left_out > 0 {
        writeln!(out, "{} later decisions of that run are not in the file (--record-limit)", document.left_out)?;
    }
    Ok(status)
}

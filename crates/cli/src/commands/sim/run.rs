//! `apus sim run`: simulates one scenario.

use std::io::Write as _;

use anyhow::Context as _;

use super::{read, report, say, status};
use crate::Status;
use crate::args::sim::Run as Typed;
use crate::commands::output;
use crate::documents::VERSION;
use crate::documents::sim::{Least, RUN, RunDocument};
use crate::terminal;
use crate::terminal::print_json;

/// Runs `apus sim run`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let source = read::Source::open(&typed.scenario)?;
    let mut inputs = Vec::new();
    let scenario = source.scenario(&typed.instead.set, &mut |path, _| inputs.push(path.to_owned()))?;
    output::are_apart(typed.output.as_slice(), &inputs)?;
    let mut case = read::simulate(&scenario, &typed.instead.set, typed.instead.seed)?;
    if scenario.goal.is_some() {
        let bound = sim::bound::least_power(&scenario, typed.instead.seed);
        case.least = Some(Least::new(bound, case.power.cores_uw));
    }
    let status = status([&case]);
    let document = RunDocument { apus: VERSION.to_owned(), schema: RUN.to_owned(), case };
    if let Some(path) = &typed.output {
        let results = serde_json::to_value(&document).context("cannot write the document")?;
        tester::report::write(&report::of_cases(std::slice::from_ref(&document.case), results), path)?;
    }
    if typed.json {
        print_json(&document)?;
        return Ok(status);
    }
    let mut out = terminal::out();
    out.write_all(say::one(&document.case).as_bytes())?;
    if let Some(path) = &typed.output {
        writeln!(out, "report: {}", path.display())?;
    }
    out.flush().context("cannot write the result")?;
    Ok(status)
}

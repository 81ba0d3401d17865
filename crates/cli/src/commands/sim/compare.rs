//! `apus sim compare`: simulates several scenarios.

use std::io::Write as _;

use anyhow::Context as _;

use super::{read, report, say, status};
use crate::Status;
use crate::args::sim::Compare as Typed;
use crate::commands::output;
use crate::documents::VERSION;
use crate::documents::sim::{COMPARE, Case, CompareDocument};
use crate::terminal;
use crate::terminal::print_json;

/// Runs `apus sim compare`: simulates all scenarios, each on its own thread.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    // Reads all scenarios before any is simulated, so that a mistake in the last one is reported at once.
    let mut inputs = Vec::new();
    let read_all = typed.scenarios.iter().map(|path| {
        let source = read::Source::open(path)?;
        source.scenario(&typed.instead.set, &mut |path, _| inputs.push(path.to_owned()))
    });
    let scenarios = read_all.collect::<Result<Vec<_>, _>>()?;
    output::are_apart(typed.output.as_slice(), &inputs)?;
    let simulate = |scenario| read::simulate(scenario, &typed.instead.set, typed.instead.seed);
    let cases: Vec<Case> = std::thread::scope(|scope| {
        let started: Vec<_> = scenarios.iter().map(|scenario| scope.spawn(move || simulate(scenario))).collect();
        let joined = started.into_iter().map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        joined.collect::<Result<_, _>>()
    })?;
    let status = status(&cases);
    let document = CompareDocument { apus: VERSION.to_owned(), schema: COMPARE.to_owned(), cases };
    if let Some(path) = &typed.output {
        let results = serde_json::to_value(&document).context("cannot write the document")?;
        tester::report::write(&report::of_cases(&document.cases, results), path)?;
    }
    if typed.json {
        print_json(&document)?;
        return Ok(status);
    }
    let mut out = terminal::out();
    out.write_all(say::several(&document.cases).as_bytes())?;
    if let Some(path) = &typed.output {
        writeln!(out, "report: {}", path.display())?;
    }
    out.flush().context("cannot write the results")?;
    Ok(status)
}

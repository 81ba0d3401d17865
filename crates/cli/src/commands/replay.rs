//! `apus replay`: replays the decisions of a recorded run, and reports the first one that differs.

use std::fs::File;
use std::io::{BufReader, Write as _};

use live::record::{Account, NoAccount, replay};
use policy::Goal;
use sim::bound::{Costs, least_cpu_time};
use units::Nanos;

use crate::args::lab::Replay as Typed;
use crate::documents::VERSION;
use crate::documents::replay::{Cpu, Difference, Document, SCHEMA};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus replay`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let name = typed.file.display().to_string();
    let file = File::open(&typed.file)
        .map_err(|e| Failure::wrong(format!("cannot open {name}"), e, "give a file that apus run --record wrote"))?;
    let found = replay(BufReader::new(file), &name)?;
    let difference = found.first_difference.map(|(line, recorded, now)| Difference { line, recorded, now });
    let mode = found.mode.parse()?;
    let goal = typed.goal.or(mode.goal());
    let document = Document {
        cpu: cpu(&found.account, goal),
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        file: name,
        mode: (&mode).into(),
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
            writeln!(out, "{}{goal}: {} decisions, all as recorded", document.mode, document.decisions)?;
        }
        Some(Difference { line, recorded, now }) => {
            writeln!(out, "{}{goal}: line {line} of {} differs", document.mode, document.file)?;
            writeln!(out, "  recorded: {recorded}\n  now:      {now}")?;
        }
    }
    writeln!(out, "{}", said(&document.cpu))?;
    if document.left_out > 0 {
        writeln!(
            out,
            "the run made {} more decisions, which are not in the file (see --record-limit of apus run)",
            document.left_out
        )?;
    }
    Ok(status)
}

/// Computes the CPU time of the run, and the minimum CPU time with which it could have met `goal`.
fn cpu(account: &Result<Account, NoAccount>, goal: Option<Goal>) -> Cpu {
    let known = account.as_ref().ok();
    let least = match (account, goal) {
        (Err(why), _) => Err(why.to_string()),
        (_, None) => Err("the recorded mode has no goal; give one with --goal".to_owned()),
        (Ok(account), Some(goal)) => {
            let costs = Costs { wake: account.wake, frame: account.frame };
            let came = account.came.iter().map(|came| (came.first, came.last, came.frames));
            match least_cpu_time(goal, account.window, came, costs) {
                Nanos::ZERO => Err("it is less than the time of one wake-up; record a longer run".to_owned()),
                least => Ok(least),
            }
        }
    };
    let spent_ns = known.map(|account| account.cpu.as_nanos());
    let least_ns = least.as_ref().ok().map(|least| least.as_nanos());
    Cpu {
        goal: goal.map(|goal| goal.to_string()),
        window_ns: known.map(|account| account.window.1 - account.window.0),
        spent_ns,
        least_ns,
        multiple: spent_ns.zip(least_ns).map(|(spent, least)| spent as f64 / least as f64),
        wake_ns: known.map(|account| account.wake.as_nanos()),
        frame_ns: known.map(|account| account.frame.as_nanos()),
        unknown_because: least.err(),
    }
}

/// Formats the CPU time as one line.
fn said(cpu: &Cpu) -> String {
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| Nanos::from_nanos(ns).to_string());
    match (cpu.spent_ns.zip(cpu.window_ns), cpu.multiple, &cpu.goal) {
        (Some((spent, window)), Some(multiple), Some(goal)) => format!(
            "CPU time {} of {} ({:.1} %), {multiple:.2} x the least possible for {goal} ({}, at {} per wake-up and {} per frame)",
            span(Some(spent)),
            span(Some(window)),
            spent as f64 * 100.0 / window.max(1) as f64,
            span(cpu.least_ns),
            span(cpu.wake_ns),
            span(cpu.frame_ns),
        ),
        _ => format!("the least possible CPU time is unknown: {}", cpu.unknown_because.as_deref().unwrap_or("-")),
    }
}

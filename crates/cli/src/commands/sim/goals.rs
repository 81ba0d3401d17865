//! `apus sim goals`: who holds a goal with the least power?

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use live::os::Signals;
use sim::goals::{Case, Measured, Plan, Run, RunError, Way};
use tester::report::model::{
    Axis, Cell, Column, Estimate, Fact, Goal, Report, Scale, Scatter, ScatterPanel, ScatterPoint, Section, Table,
};

use super::say::{micros, watts};
use super::sweep::Progress;
use crate::args::sim::Goals as Typed;
use crate::commands::print_json;
use crate::documents::goals::Document;
use crate::{Failure, Status, terminal};

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Simulates all, judges, and says so.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    // Before any thread is started: they inherit what is held back.
    let signals = Signals::hold()?;
    let plan = plan(typed);
    let runs =
        plan.runs().map_err(|error| Failure::wrong("plan the runs", error.to_string(), "name other machines"))?;
    if let Some(folder) = &typed.scenarios {
        keep(folder, &runs)?;
    }
    let (done, interrupted) = simulate(&runs, typed.jobs.map(usize::from), &signals)?;
    let (runs, measured) = finished(&runs, &done);
    let cases = plan.cases(&runs, &measured);
    let document = Document::new(&plan, &cases);
    if let Some(path) = &typed.output {
        let results = serde_json::to_value(&document).context("write the document")?;
        tester::report::write(&report(&plan, &cases, results), path)?;
    }
    if typed.json {
        print_json(&document)?;
    } else {
        let mut out = terminal::out();
        out.write_all(table(&cases).as_bytes())?;
        if interrupted {
            writeln!(out, "interrupted: {} runs were not carried out", done.iter().filter(|d| d.is_none()).count())?;
        }
        if let Some(path) = &typed.output {
            writeln!(out, "report: {}", path.display())?;
        }
        out.flush().context("write the table")?;
    }
    let all_won = !interrupted && cases.iter().all(Case::is_won);
    Ok(if all_won { Status::Good } else { Status::Findings })
}

fn plan(typed: &Typed) -> Plan {
    let mut plan = Plan { seed: typed.seed, ..Plan::default() };
    if !typed.machine.is_empty() {
        plan.machines.retain(|(machine, _)| typed.machine.contains(machine));
    }
    if !typed.goal.is_empty() {
        plan.goals.clone_from(&typed.goal);
    }
    if !typed.load.is_empty() {
        plan.loads.clone_from(&typed.load);
    }
    plan.warm_up = typed.warm_up.unwrap_or(plan.warm_up);
    plan.duration = typed.duration.unwrap_or(plan.duration);
    plan
}

/// Writes each run's scenario into a file of `folder`, for `apus sim run`.
fn keep(folder: &Path, runs: &[Run]) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::wrong(format!("write scenarios to {}", folder.display()), error.to_string(), "name another folder")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    for run in runs {
        let name = run.name().replace(" %", "").replace(' ', "-");
        terminal::file(&folder.join(format!("{name}.toml")), &run.scenario).map_err(failed)?;
    }
    Ok(())
}

/// What each run gave, and whether a signal came before all were done.
fn simulate(runs: &[Run], jobs: Option<usize>, signals: &Signals) -> anyhow::Result<(Vec<Option<Measured>>, bool)> {
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let (left, next) = (Arc::new(runs.to_vec()), Arc::new(AtomicUsize::new(0)));
    let (say, said) = mpsc::channel::<(usize, Result<Measured, RunError>)>();
    for _ in 0..jobs.min(runs.len()) {
        let (left, next, say) = (Arc::clone(&left), Arc::clone(&next), say.clone());
        std::thread::spawn(move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = left.get(number) else { return };
                if say.send((number, run.carry_out())).is_err() {
                    return;
                }
            }
        });
    }
    drop(say);
    let mut done: Vec<Option<Measured>> = vec![None; runs.len()];
    let mut progress = Progress::new(runs.len(), 0);
    let mut count = 0;
    while count < runs.len() {
        progress.show(count);
        // Not only when nothing comes: short runs come without a rest.
        if signals.wait(Duration::ZERO).is_some() {
            progress.clear();
            return Ok((done, true));
        }
        match said.recv_timeout(LOOK) {
            Ok((number, measured)) => {
                let name = || format!("simulate {}", runs[number].name());
                let measured = measured
                    .map_err(|error| Failure::wrong(name(), error.to_string(), "change --warm-up, --duration"))?;
                done[number] = Some(measured);
                count += 1;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("a thread ended before its run was done"),
        }
    }
    progress.clear();
    Ok((done, false))
}

/// The runs of those machines and loads of which all are done.
fn finished(runs: &[Run], done: &[Option<Measured>]) -> (Vec<Run>, Vec<Measured>) {
    let whole = |run: &Run| {
        let alike = runs.iter().zip(done).filter(|(other, _)| (&other.machine, other.load) == (&run.machine, run.load));
        alike.into_iter().all(|(_, done)| done.is_some())
    };
    let pairs = runs.iter().zip(done).filter(|(run, _)| whole(run));
    pairs.filter_map(|(run, done)| Some((run.clone(), done.clone()?))).unzip()
}

const HEADINGS: [&str; 9] = ["MACHINE", "LOAD", "GOAL", "WAY", "p99.9 us", "LOSS %", "CORE W", "WOKEN/s", ""];

fn table(cases: &[Case]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    for case in cases {
        let mut first = true;
        let ours = (Way::Adaptive(case.goal.latency), case.ours.clone());
        for (way, measured) in case.others.iter().chain([&ours]) {
            let held = measured.holds(case.goal.latency);
            let best = matches!(way, Way::Adaptive(_)) && held && case.is_won();
            let verdict = if best {
                "held, least power"
            } else if held {
                "held"
            } else {
                ""
            };
            let verdict = match way {
                Way::Adaptive(_) if !case.is_won() => format!("{verdict} LOST").trim().to_owned(),
                _ => verdict.to_owned(),
            };
            let place = [case.machine.clone(), format!("{} %", case.load), case.goal.to_string()];
            let [machine, load, goal] = if first { place } else { Default::default() };
            first = false;
            lines.push([
                machine,
                load,
                goal,
                way.to_string(),
                micros(measured.latency.map(units::Nanos::as_nanos)),
                loss(measured),
                watts(measured.power.as_microwatts()),
                measured.wakeups.to_string(),
                verdict,
            ]);
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if (4..8).contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    let won = cases.iter().filter(|case| case.is_won()).count();
    let _ = writeln!(
        text,
        "{won} of {} goals: adaptive holds what any other holds, with no more power than those that hold it",
        cases.len()
    );
    text
}

fn loss(measured: &Measured) -> String {
    match measured.offered {
        0 => "-".to_owned(),
        offered => format!("{:.3}", measured.lost as f64 * 100.0 / offered as f64),
    }
}

fn report(plan: &Plan, cases: &[Case], results: serde_json::Value) -> Report {
    let won = cases.iter().filter(|case| case.is_won()).count();
    let exact = |value: f64| Cell::Number(Estimate::exact(value));
    let rows = cases.iter().flat_map(|case| {
        let ours = (Way::Adaptive(case.goal.latency), case.ours.clone());
        let ways: Vec<(Way, Measured)> = case.others.iter().cloned().chain([ours]).collect();
        ways.into_iter().map(move |(way, measured)| {
            let latency = measured.latency.map_or_else(
                || Cell::Unknown("lost packets, or too few".into()),
                |latency| exact(latency.as_nanos() as f64 / 1e3),
            );
            vec![
                Cell::Text(case.machine.clone()),
                exact(case.load as f64),
                Cell::Text(case.goal.to_string()),
                Cell::Text(way.to_string()),
                latency,
                exact(measured.lost as f64 * 100.0 / measured.offered.max(1) as f64),
                exact(measured.power.as_microwatts() as f64 / 1e6),
                Cell::Text(if measured.holds(case.goal.latency) { "held" } else { "missed" }.into()),
            ]
        })
    });
    let columns = [
        ("machine", ""),
        ("load", "%"),
        ("goal", ""),
        ("way", ""),
        ("p99.9", "us"),
        ("lost", "%"),
        ("core", "W"),
        ("goal", ""),
    ];
    let numbers = Table {
        title: "Each goal".into(),
        caption: "Poisson arrivals of 64-octet frames, one core; load in percent of what it forwards at its base \
                  frequency. Power is that of the machine's model."
            .into(),
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: rows.collect(),
    };
    Report {
        title: "Apus: which way of waiting holds a goal with the least power".into(),
        lead: format!(
            "In {won} of {} cases adaptive holds what any other way holds, with no more power than those that hold it.",
            cases.len()
        ),
        host: Vec::new(),
        conditions: vec![
            Fact::new("Seed", plan.seed.to_string()),
            Fact::new("Time", format!("{} after {} of warm-up", plan.duration, plan.warm_up)),
        ],
        notes: vec!["Everything here is modelled: nothing was measured for this report.".into()],
        sections: vec![Section::Scatter(picture(cases)), Section::Table(numbers)],
        results,
    }
}

/// Delay beside power, a panel for each machine and load.
fn picture(cases: &[Case]) -> Scatter {
    let point = |way: &Way, measured: &Measured| {
        Some(ScatterPoint {
            series: way.to_string(),
            x: Estimate::exact(measured.power.as_microwatts() as f64 / 1e6),
            y: Estimate::exact(measured.latency?.as_nanos() as f64 / 1e3),
        })
    };
    let panels = cases.chunk_by(|a, b| (&a.machine, a.load) == (&b.machine, b.load)).map(|group| {
        let others = group[0].others.iter().filter_map(|(way, measured)| point(way, measured));
        let ours = group.iter().filter_map(|case| point(&Way::Adaptive(case.goal.latency), &case.ours));
        ScatterPanel {
            title: format!("{}, {} %", group[0].machine, group[0].load),
            points: others.chain(ours).collect(),
            goals: group
                .iter()
                .map(|case| Goal { label: case.goal.to_string(), value: case.goal.latency.as_nanos() as f64 / 1e3 })
                .collect(),
        }
    });
    let axis = |quantity: &str, unit: &str| Axis { quantity: quantity.into(), unit: unit.into(), scale: Scale::Linear };
    Scatter {
        title: "Delay beside power".into(),
        caption: "The least power under each line is what counts.".into(),
        x: axis("power of the core", "W"),
        y: axis("p99.9", "us"),
        panels: panels.collect(),
    }
}

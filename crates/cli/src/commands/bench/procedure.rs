//! `apus bench rfc2544`, `mlr`, `soak` and `compare`: runs a procedure as the arguments say, and prints the result.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use tester::procedure::{
    self, CompareDocument, Effort, MLR_SCHEMA, MlrDocument, MlrPlan, Plan, RFC2544_SCHEMA, Rfc2544Document,
    SOAK_SCHEMA, SoakDocument, SoakPlan, Test,
};
use units::Nanos;

use super::rig::{Rig, Wanted};
use crate::args::procedure::{Compare, Mlr, Ports, Rfc2544, Soak};
use crate::terminal::{self, Clean, print_json};
use crate::{Failure, Status};

/// Runs `apus bench rfc2544`.
pub fn rfc2544(typed: &Rfc2544) -> anyhow::Result<Status> {
    let tests = typed.tests();
    if tests.contains(&Test::Reset) && typed.reset_command.is_none() {
        let why = "this test needs a command that resets the device";
        return Err(Failure::wrong("cannot run the test reset", why, "add --reset-command COMMAND").into());
    }
    let alone = match &typed.tester {
        Some(path) => alone(path)?,
        None => Vec::new(),
    };
    let mut output = create(&typed.ports)?;
    let wanted =
        Wanted { max: typed.range.max_rate, line: typed.range.line, reset_command: typed.reset_command.as_deref() };
    let mut rig = Rig::open(&typed.ports, &typed.range.frame, wanted)?;
    let plan = Plan {
        sizes: typed.range.frame.clone(),
        tests,
        effort: typed.effort(),
        min_pps: typed.range.min_rate.as_pps(),
        max_pps: typed.range.max_rate.map(|rate| rate.as_pps()),
        line_bits_per_s: rig.line_bits_per_s(),
        alone,
        deviations: rig.deviations(),
    };
    let setup = rig.setup();
    if !typed.ports.json {
        announce(&rig, &plan);
    }
    let result = procedure::run(&mut rig, &plan, &mut progress(&typed.ports));
    let found_all = result.ended.complete && result.sizes.iter().all(|size| size.throughput_pps.value.is_some());
    let apus = env!("CARGO_PKG_VERSION").into();
    let document = Rfc2544Document { apus, schema: RFC2544_SCHEMA.into(), host: super::host(), setup, result };
    keep(&mut output, &document)?;
    say(&typed.ports, &document, || procedure::rfc2544_table(&document.result))?;
    Ok(if found_all { Status::Good } else { Status::Findings })
}

/// Runs `apus bench mlr`.
pub fn mlr(typed: &Mlr) -> anyhow::Result<Status> {
    let mut output = create(&typed.ports)?;
    let wanted = Wanted { max: typed.range.max_rate, line: typed.range.line, reset_command: None };
    let mut rig = Rig::open(&typed.ports, &typed.range.frame, wanted)?;
    let goals = if typed.goals.is_empty() { typed.preset.goals() } else { typed.goals.clone() };
    let pause = Effort { after_learning: Nanos::ZERO, between: typed.pause, residue: typed.pause, ..Effort::FULL };
    let plan = MlrPlan {
        sizes: typed.range.frame.clone(),
        goals,
        min_pps: typed.range.min_rate.as_pps(),
        max_pps: typed.range.max_rate.map(|rate| rate.as_pps()),
        line_bits_per_s: rig.line_bits_per_s(),
        warm_up: typed.warm_up,
        longest: typed.longest,
        effort: pause,
    };
    let setup = rig.setup();
    let result = procedure::run_mlr(&mut rig, &plan, &mut progress(&typed.ports));
    let reached = |size: &procedure::MlrSize| {
        !size.goals.is_empty() && size.goals.iter().all(|goal| goal.reached && goal.throughput_pps.value.is_some())
    };
    let found_all = result.ended.complete && result.sizes.iter().all(reached);
    let apus = env!("CARGO_PKG_VERSION").into();
    let document = MlrDocument { apus, schema: MLR_SCHEMA.into(), host: super::host(), setup, result };
    keep(&mut output, &document)?;
    say(&typed.ports, &document, || procedure::mlr_table(&document.result))?;
    Ok(if found_all { Status::Good } else { Status::Findings })
}

/// Runs `apus bench soak`.
pub fn soak(typed: &Soak) -> anyhow::Result<Status> {
    if typed.rate.as_pps() == 0 {
        return Err(Failure::wrong("--rate 0pps", "a rate of 0 sends nothing", "give at least 1pps").into());
    }
    let mut output = create(&typed.ports)?;
    let mut rig = Rig::open(&typed.ports, std::slice::from_ref(&typed.frame), Wanted::default())?;
    let plan = SoakPlan {
        sizes: typed.frame.clone(),
        load_pps: typed.rate.as_pps(),
        duration: typed.duration,
        window: typed.window.min(typed.duration),
    };
    let setup = rig.setup();
    let result = procedure::run_soak(&mut rig, &plan, &mut progress(&typed.ports));
    let good = result.ended.complete && result.sent > 0 && result.lost == 0;
    let apus = env!("CARGO_PKG_VERSION").into();
    let document = SoakDocument { apus, schema: SOAK_SCHEMA.into(), host: super::host(), setup, result };
    keep(&mut output, &document)?;
    say(&typed.ports, &document, || procedure::soak_table(&document.result))?;
    Ok(if good { Status::Good } else { Status::Findings })
}

/// Runs `apus bench compare`.
pub fn compare(typed: &Compare) -> anyhow::Result<Status> {
    let (a, b) = (read(&typed.a)?, read(&typed.b)?);
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (mut name_a, mut name_b) = (name(&typed.a), name(&typed.b));
    if name_a == name_b {
        (name_a, name_b) = (format!("{name_a} A"), format!("{name_b} B"));
    }
    let compared: CompareDocument = procedure::compare((&name_a, &a), (&name_b, &b));
    if let Some(path) = &typed.output {
        let report = procedure::report("Apus: two devices compared", &[(name_a, a), (name_b, b)]);
        tester::report::write(&report, path)?;
    }
    if typed.json {
        print_json(&compared)?;
    } else {
        for line in procedure::compare_table(&compared) {
            writeln!(terminal::out(), "{line}")?;
        }
    }
    Ok(Status::Good)
}

/// Reads a result of `apus bench rfc2544 -o`.
pub fn read(path: &Path) -> Result<Rfc2544Document, Failure> {
    let what = || format!("cannot read {}", path.display());
    let fix = "give a file that apus bench rfc2544 -o wrote";
    let text = fs::read_to_string(path).map_err(|e| Failure::wrong(what(), e, fix))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| Failure::wrong(what(), e, fix))?;
    match value["schema"].as_str() {
        Some(RFC2544_SCHEMA) => serde_json::from_value(value).map_err(|e| Failure::wrong(what(), e, fix)),
        other => {
            let why = format!("its schema is {:?}, not {RFC2544_SCHEMA:?}", other.unwrap_or("not stated"));
            Err(Failure::wrong(what(), why, fix))
        }
    }
}

/// Throughput of the tester alone at each frame size, from an earlier measurement with the tester's ports connected to
/// each other.
fn alone(path: &Path) -> Result<Vec<(String, f64)>, Failure> {
    let document = read(path)?;
    let of = |size: procedure::SizeResult| Some((size.frames, size.throughput_pps.value?.median));
    Ok(document.result.sizes.into_iter().filter_map(of).collect())
}

/// Prints how long the procedure can take. It prints this even if standard error is not a terminal, because the
/// procedure may take hours.
fn announce(rig: &Rig<'_>, plan: &Plan) {
    for sizes in &plan.sizes {
        // If there is no rate to search, the procedure itself says so.
        let Ok(tests) = plan.longest(rig.highest_pps(sizes)) else { continue };
        let all = tests.iter().fold(Nanos::ZERO, |sum, (_, time)| sum + *time);
        let each: Vec<String> = tests.iter().map(|(test, time)| format!("{} {}", test.name(), rough(*time))).collect();
        let _ = writeln!(terminal::err(), "{sizes}: up to {} ({})", rough(all), each.join(", "));
    }
}

/// A time in whole seconds, minutes, or hours and minutes, rounded up.
fn rough(time: Nanos) -> String {
    let seconds = time.as_nanos().div_ceil(1_000_000_000);
    let minutes = seconds.div_ceil(60);
    match (seconds, minutes) {
        (..120, _) => format!("{seconds} s"),
        (_, ..120) => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// Prints each step with the time since the start.
fn progress(typed: &Ports) -> impl FnMut(&str) {
    let shown = terminal::err_is_terminal() && !typed.json;
    let began = Instant::now();
    move |what: &str| {
        if shown {
            let elapsed = Nanos::from_secs(began.elapsed().as_secs());
            // A failure to print the progress does not stop the measurement.
            let _ = writeln!(terminal::err(), "after {}: {what}", rough(elapsed));
        }
    }
}

/// Creates the output file before anything is measured.
fn create(typed: &Ports) -> Result<Option<fs::File>, Failure> {
    let make = |path: &Path| {
        fs::File::create(path).map_err(|e| {
            let fix = "choose a file in a folder that you can write to";
            Failure::lacking(format!("cannot write {}", path.display()), e, fix)
        })
    };
    typed.output.as_deref().map(make).transpose()
}

fn keep(output: &mut Option<fs::File>, document: &impl Serialize) -> anyhow::Result<()> {
    if let Some(file) = output {
        serde_json::to_writer(Clean::new(&*file, false), document)?;
        writeln!(file).context("cannot write the result")?;
    }
    Ok(())
}

fn say(typed: &Ports, document: &impl Serialize, table: impl FnOnce() -> Vec<String>) -> anyhow::Result<()> {
    if typed.json {
        return print_json(document);
    }
    for line in table() {
        writeln!(terminal::out(), "{line}").context("cannot write the table")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rough_times_are_rounded_up() {
        let of = |millis| rough(Nanos::from_millis(millis));
        assert_eq!([0, 1, 119_000].map(of), ["0 s", "1 s", "119 s"]);
        assert_eq!([119_001, 121_000, 7_140_000].map(of), ["2 min", "3 min", "119 min"]);
        assert_eq!([7_140_001, 43_200_000].map(of), ["2 h 0 min", "12 h 0 min"]);
    }
}

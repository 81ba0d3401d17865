//! `apus bench rfc2544`, `mlr`, `soak` and `compare`: runs a procedure as the arguments say, and prints the result.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use tester::frame::FrameSize;
use tester::procedure::{
    self, CompareDocument, Effort, MLR_SCHEMA, MlrDocument, MlrPlan, Plan, RFC2544_SCHEMA, Rfc2544Document,
    SOAK_SCHEMA, SoakDocument, SoakPlan, Test,
};
use tester::sizes::Sizes;
use units::Nanos;

use super::rig::{self, Rig, Wanted};
use super::room;
use crate::args::procedure::{Compare, Mlr, Ports, Range, Rfc2544, Soak};
use crate::commands::output::{self, Output};
use crate::terminal::{self, print_json};
use crate::{Failure, Status};

/// Maximum number of windows of a soak: more than four months of windows of 10 s.
const MOST_WINDOWS: u64 = 1_000_000;

/// Runs `apus bench rfc2544`.
pub fn rfc2544(typed: &Rfc2544) -> anyhow::Result<Status> {
    let tests = typed.tests();
    check_tests(typed, &tests)?;
    let sizes = sizes(&typed.range.frame, &typed.ports)?;
    check_rates(&typed.range)?;
    let effort = typed.effort();
    let alone = match &typed.tester {
        Some(path) => alone(path)?,
        None => Vec::new(),
    };
    let output = Output::open_named(typed.ports.output.as_deref())?;
    let wanted = Wanted {
        max: typed.range.max_rate,
        line: typed.range.line,
        reset_command: typed.reset_command.as_deref(),
        longest: effort.longest_trial(&tests),
    };
    let mut rig = Rig::open(&typed.ports, &sizes, wanted)?;
    rig.check_least(typed.range.min_rate)?;
    let deviations = rig.deviations(&sizes);
    let plan = Plan {
        sizes,
        tests,
        effort,
        min_pps: typed.range.min_rate.as_pps(),
        max_pps: typed.range.max_rate.map(|rate| rate.as_pps()),
        line_bits_per_s: rig.line_bits_per_s(),
        alone,
        deviations,
    };
    let setup = rig.setup();
    if !typed.ports.json {
        announce(&rig, &plan);
    }
    let result = procedure::run(&mut rig, &plan, &mut progress(&typed.ports));
    let found_all = result.ended.complete && result.sizes.iter().all(|size| size.throughput_pps.value.is_some());
    let apus = env!("CARGO_PKG_VERSION").into();
    let document = Rfc2544Document { apus, schema: RFC2544_SCHEMA.into(), host: super::host(), setup, result };
    let output = output.filter(|_| document.result.sizes.iter().any(|size| !size.trials.is_empty()));
    keep(&typed.ports, output, &document, || procedure::rfc2544_table(&document.result))?;
    Ok(if found_all { Status::Good } else { Status::Findings })
}

/// Runs `apus bench mlr`.
pub fn mlr(typed: &Mlr) -> anyhow::Result<Status> {
    let output = Output::open_named(typed.ports.output.as_deref())?;
    let sizes = sizes(&typed.range.frame, &typed.ports)?;
    check_rates(&typed.range)?;
    let goals = if typed.goals.is_empty() { typed.preset.goals() } else { typed.goals.clone() };
    if let Some((_, twice)) = goals.iter().enumerate().find(|(n, goal)| goals[..*n].contains(goal)) {
        let fix = "give each goal once";
        return Err(Failure::wrong(format!("--goal {}", twice.code()), "two goals are the same", fix).into());
    }
    let longest = goals.iter().map(|goal| goal.final_trial).fold(typed.warm_up, Nanos::max);
    let wanted = Wanted { max: typed.range.max_rate, line: typed.range.line, reset_command: None, longest };
    let mut rig = Rig::open(&typed.ports, &sizes, wanted)?;
    rig.check_least(typed.range.min_rate)?;
    let pause = Effort { after_learning: Nanos::ZERO, between: typed.pause, residue: typed.pause, ..Effort::FULL };
    let plan = MlrPlan {
        sizes,
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
    let output = output.filter(|_| document.result.sizes.iter().any(|size| size.trials > 0));
    keep(&typed.ports, output, &document, || procedure::mlr_table(&document.result))?;
    Ok(if found_all { Status::Good } else { Status::Findings })
}

/// Runs `apus bench soak`.
pub fn soak(typed: &Soak) -> anyhow::Result<Status> {
    let frame = sizes(typed.frame.as_slice(), &typed.ports)?.swap_remove(0);
    let plan = SoakPlan {
        sizes: frame.clone(),
        load_pps: typed.rate.as_pps(),
        duration: typed.duration,
        window: typed.window.min(typed.duration),
    };
    if plan.windows() > MOST_WINDOWS {
        let why = format!("this makes {} windows, and a result has at most {MOST_WINDOWS}", plan.windows());
        return Err(Failure::wrong(format!("--window {}", plan.window), why, "choose longer windows").into());
    }
    let directions = if typed.ports.bidirectional { 2 } else { 1 };
    let fits = room::highest_pps(room::most_frames(), plan.window, directions);
    if plan.load_pps > fits {
        let why = room::too_many(typed.rate, plan.window, fits);
        return Err(Failure::wrong(format!("--rate {}", typed.rate), why, "lower --rate, or shorten --window").into());
    }
    let output = Output::open_named(typed.ports.output.as_deref())?;
    let mut rig = Rig::open(&typed.ports, &[frame], Wanted::default())?;
    let setup = rig.setup();
    let result = procedure::run_soak(&mut rig, &plan, &mut progress(&typed.ports));
    let good = result.ended.complete && result.sent > 0 && result.lost == 0;
    let apus = env!("CARGO_PKG_VERSION").into();
    let document = SoakDocument { apus, schema: SOAK_SCHEMA.into(), host: super::host(), setup, result };
    let output = output.filter(|_| !document.result.windows.is_empty());
    keep(&typed.ports, output, &document, || procedure::soak_table(&document.result))?;
    Ok(if good { Status::Good } else { Status::Findings })
}

/// Refuses options of tests that do not run.
fn check_tests(typed: &Rfc2544, tests: &[Test]) -> Result<(), Failure> {
    if tests.contains(&Test::Reset) && typed.reset_command.is_none() {
        let why = "this test needs a command that resets the device";
        return Err(Failure::wrong("cannot run the test reset", why, "add --reset-command COMMAND"));
    }
    let unused = [
        ("--reset-command", typed.reset_command.is_some(), Test::Reset),
        ("--streams", typed.streams.is_some(), Test::Latency),
        ("--bursts", typed.bursts.is_some(), Test::BackToBack),
    ];
    match unused.into_iter().find(|(_, given, test)| *given && !tests.contains(test)) {
        None => Ok(()),
        Some((option, _, test)) => {
            let why = format!("only the test {} uses it, and this test does not run", test.name());
            Err(Failure::wrong(option, why, format!("omit it, or add --test {}", test.name())))
        }
    }
}

/// The frame sizes that the user chose, or the default ones. The headers must fit into each.
fn sizes(typed: &[Sizes], ports: &Ports) -> Result<Vec<Sizes>, Failure> {
    let smallest = rig::encapsulation(ports, false).smallest();
    if typed.is_empty() {
        let rest = FrameSize::RFC2544.into_iter().filter(|size| *size > smallest);
        return Ok(std::iter::once(smallest).chain(rest).map(Sizes::one).collect());
    }
    for (number, one) in typed.iter().enumerate() {
        if one.shortest() < smallest {
            let why = format!("these headers need frames of at least {} bytes", smallest.octets());
            return Err(Failure::wrong(format!("--frame {one}"), why, "use larger frames, or omit --ip or --vlan"));
        }
        if typed[..number].contains(one) {
            return Err(Failure::wrong(format!("--frame {one}"), "this size is given twice", "give each size once"));
        }
    }
    Ok(typed.to_vec())
}

fn check_rates(range: &Range) -> Result<(), Failure> {
    match range.max_rate {
        Some(max) if max <= range.min_rate => Err(Failure::wrong(
            format!("--max-rate {max}"),
            format!("it must be above --min-rate, {}", range.min_rate),
            "raise --max-rate, or lower --min-rate",
        )),
        _ => Ok(()),
    }
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
    if compared.comparisons.is_empty() {
        let is_in_b = |frames| b.result.sizes.iter().any(|other| other.frames == frames);
        let has_common = a.result.sizes.iter().any(|size| is_in_b(size.frames.clone()));
        let why = match has_common {
            true => "at the frame sizes that they have in common, no quantity was measured in both".to_owned(),
            false => format!("they have no frame size in common: {}", compared.only_in_one.join(", ")),
        };
        return Err(
            Failure::wrong("cannot compare these results", why, "measure the same frame sizes and tests").into()
        );
    }
    if let Some(path) = &typed.output {
        output::is_no_input(path, &[&typed.a, &typed.b])?;
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
        let _ = writeln!(terminal::err(), "{sizes}: up to {}", sum_of(&tests));
    }
}

/// The sum of the times, and each time. The sum is that of the rounded times, as a reader adds them up.
fn sum_of(tests: &[(Test, Nanos)]) -> String {
    let all = tests.iter().fold(Nanos::ZERO, |sum, (_, time)| sum + rounded(*time));
    let each: Vec<String> = tests.iter().map(|(test, time)| format!("{} {}", test.name(), rough(*time))).collect();
    format!("{} ({})", rough(all), each.join(", "))
}

/// Rounds up to whole seconds, or to whole minutes from two minutes on.
fn rounded(time: Nanos) -> Nanos {
    let seconds = time.as_nanos().div_ceil(1_000_000_000);
    Nanos::from_secs(if seconds < 120 { seconds } else { seconds.div_ceil(60) * 60 })
}

/// A time in whole seconds, minutes, or hours and minutes, rounded up.
fn rough(time: Nanos) -> String {
    let seconds = rounded(time).as_nanos() / 1_000_000_000;
    let minutes = seconds / 60;
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

/// Prints a result and writes it to its file, if there is anything to keep: an interruption before the first trial must
/// not replace an earlier result. Prints the result even if the file cannot be written.
fn keep(
    typed: &Ports,
    output: Option<Output>,
    document: &impl Serialize,
    table: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<()> {
    let kept = output.map_or(Ok(()), |mut output| output.write_json(document));
    if typed.json {
        print_json(document)?;
    } else {
        for line in table() {
            writeln!(terminal::out(), "{line}").context("cannot write the table")?;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        typed: Rfc2544,
    }

    fn line(words: &[&str]) -> Rfc2544 {
        Line::try_parse_from(["rfc2544", "--tx", "a"].iter().chain(words)).unwrap().typed
    }

    /// `--ip ipv6` once failed at 64 bytes, the first of the default sizes, and measured none.
    #[test]
    fn the_default_sizes_have_room_for_the_headers() {
        let of = |words: &[&str]| {
            let typed = line(words);
            sizes(&typed.range.frame, &typed.ports).map(|sizes| sizes.iter().map(Sizes::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap(), ["64", "128", "256", "512", "1024", "1280", "1518"]);
        for (words, least) in [
            (&["--ip", "ipv4"] as &[&str], "64"),
            (&["--ip", "ipv4", "--vlan", "7"], "68"),
            (&["--ip", "ipv6"], "84"),
            (&["--ip", "ipv6", "--vlan", "7"], "88"),
        ] {
            assert_eq!(of(words).unwrap()[..2], [least, "128"], "{words:?}");
        }
        for (words, said) in [
            (&["--ip", "ipv6", "--frame", "128,64"] as &[&str], "at least 84 bytes"),
            (&["--ip", "ipv6", "--frame", "imix:ga"], "at least 84 bytes"),
            (&["--frame", "64,128,64"], "twice"),
        ] {
            let error = of(words).unwrap_err();
            assert!(error.status == Status::Wrong && error.to_string().contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn options_that_would_be_ignored_are_refused() {
        for (words, option) in [
            (&["--reset-command", "true"] as &[&str], "--reset-command"),
            (&["--test", "loss", "--bursts", "3"], "--bursts"),
            (&["--test", "loss", "--streams", "3"], "--streams"),
        ] {
            let typed = line(words);
            let error = check_tests(&typed, &typed.tests()).unwrap_err();
            assert!(error.status == Status::Wrong && error.what == option, "{error}");
        }
        let typed = line(&["--test", "reset,latency", "--reset-command", "true", "--streams", "3"]);
        assert!(check_tests(&typed, &typed.tests()).is_ok());
        assert!(check_rates(&line(&["--min-rate", "9kpps", "--max-rate", "9kpps"]).range).is_err());
        assert!(check_rates(&line(&["--min-rate", "9kpps", "--max-rate", "10kpps"]).range).is_ok());
    }

    #[test]
    fn the_times_add_up() {
        let times = [Test::Throughput, Test::Latency, Test::Loss].map(|test| (test, Nanos::from_millis(2_100)));
        assert_eq!(sum_of(&times), "9 s (throughput 3 s, latency 3 s, loss 3 s)");
    }

    #[test]
    fn rough_times_are_rounded_up() {
        let of = |millis| rough(Nanos::from_millis(millis));
        assert_eq!([0, 1, 119_000].map(of), ["0 s", "1 s", "119 s"]);
        assert_eq!([119_001, 121_000, 7_140_000].map(of), ["2 min", "3 min", "119 min"]);
        assert_eq!([7_140_001, 43_200_000].map(of), ["2 h 0 min", "12 h 0 min"]);
    }
}

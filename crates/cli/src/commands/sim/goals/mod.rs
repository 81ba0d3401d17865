//! `apus sim goals`: finds the wait mode that meets a goal with the least power. [`plan`] builds the grid of cases from
//! the arguments, [`say`] and [`report`] show the results, [`rows`] writes them as CSV.

mod plan;
mod report;
mod rows;
mod say;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use live::os::Signals;
use sim::goals::{Bound, Case, Files, RunError, Setting};

use super::csv;
use super::sweep::Progress;
use crate::args::sim::Goals as Typed;
use crate::commands::output::{self, Output};
use crate::documents::goals::Document;
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};
use plan::Planned;

/// Time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(100);
/// Computes the minimum power that a goal needs, over all seeds.
const BOUND: Option<Bound> =
    Some(|scenario, seeds| sim::bound::least_power_over(scenario, seeds).ok().map(|least| least.power));

/// Runs `apus sim goals`: simulates, judges and prints.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    let Planned { plan, settings, inputs } = plan::plan(typed)?;
    // Checked before the simulations, which take minutes.
    let outputs: Vec<&Path> = [&typed.csv, &typed.output].into_iter().flatten().map(PathBuf::as_path).collect();
    output::are_apart(&outputs, &inputs)?;
    for path in &outputs {
        drop(Output::open(path)?);
    }
    if let Some(folder) = &typed.scenarios {
        keep(folder, &settings, &plan.files, &inputs)?;
    }
    let planned = settings.iter().map(|setting| setting.goals.len()).sum();
    let (cases, ended) = simulate(&settings, &plan.files, typed.jobs.map(usize::from), &signals);
    let (interrupted, failure) = match ended {
        Ended::Done => (false, None),
        Ended::Interrupted => (true, None),
        Ended::Failed(failure) if cases.is_empty() => return Err(failure),
        Ended::Failed(failure) => (false, Some(failure)),
    };
    let document = Document::new(typed.grid, &plan, planned, &cases);
    // Printed even if a file cannot be written: the simulations may have taken days.
    let kept = files(typed, &document);
    if typed.json {
        print_json(&document)?;
    } else {
        let mut out = terminal::out();
        out.write_all(say::text(&document, typed.all, typed.ways).as_bytes())?;
        if cases.len() < planned {
            let why = if interrupted { "interrupted" } else { "a setting failed" };
            writeln!(out, "{why}; {} of {planned} cases are missing", planned - cases.len())?;
        }
        for path in outputs.iter().filter(|_| kept.is_ok()) {
            // Written to standard error, so that the result still ends with the number of cases.
            writeln!(terminal::err(), "written: {}", path.display())?;
        }
        out.flush().context("cannot write the table")?;
    }
    kept?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let beaten = cases.iter().any(|case| case.verdict().is_beaten());
    Ok(if beaten || interrupted { Status::Findings } else { Status::Good })
}

/// Writes the files that the user asked for.
fn files(typed: &Typed, document: &Document) -> anyhow::Result<()> {
    let csv = typed.csv.as_ref().map_or(Ok(()), |path| {
        csv::write_file(path, &rows::head(), &document.cases.iter().map(rows::row).collect::<Vec<_>>())
    });
    if let Some(path) = &typed.output {
        let results = serde_json::to_value(document).context("cannot write the document")?;
        tester::report::write(&report::report(document, results), path)?;
    }
    Ok(csv?)
}

/// Writes the scenario of each run to `folder`, for `apus sim run`, with the files that it uses. Files that are there
/// already, because the run reads them from this folder, stay.
fn keep(folder: &Path, settings: &[Arc<Setting>], files: &Files, inputs: &[PathBuf]) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::lacking(format!("cannot write scenarios to {}", folder.display()), error, "choose another folder")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in settings.iter().flat_map(|setting| setting.scenarios()) {
        let path = folder.join(name);
        output::are_apart(&[&path], inputs)?;
        terminal::file(&path, &text).map_err(failed)?;
    }
    for (name, octets) in files {
        let path = folder.join(name);
        if !inputs.iter().any(|input| output::is_same(&path, input)) {
            // Copies the bytes unchanged, because a capture is not text.
            fs::File::create(path).and_then(|mut file| file.write_all(octets)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Why a simulation ended.
enum Ended {
    Done,
    /// By a signal.
    Interrupted,
    /// A setting could not be simulated, or a thread ended.
    Failed(anyhow::Error),
}

/// Simulates the settings. Returns the judged cases, and why the simulation ended.
fn simulate(settings: &[Arc<Setting>], files: &Files, jobs: Option<usize>, signals: &Signals) -> (Vec<Case>, Ended) {
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let (next, order) = (Arc::new(AtomicUsize::new(0)), spread(settings.len()));
    let (say, said) = mpsc::channel::<(usize, Result<Vec<Case>, RunError>)>();
    for _ in 0..jobs.min(settings.len()) {
        let (settings, files, next, say) = (settings.to_vec(), files.clone(), Arc::clone(&next), say.clone());
        let order = order.clone();
        std::thread::spawn(move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(&number) = order.get(number) else { return };
                if say.send((number, settings[number].judge(&files, BOUND))).is_err() {
                    return;
                }
            }
        });
    }
    drop(say);
    let mut done: Vec<Vec<Case>> = vec![Vec::new(); settings.len()];
    let mut progress = Progress::new(settings.iter().map(|setting| setting.goals.len()).sum(), 0);
    let (mut left, mut judged) = (settings.len(), 0);
    let ended = loop {
        if left == 0 {
            break Ended::Done;
        }
        progress.show(judged);
        // Checks for a signal after each result too, because short runs finish without a pause.
        if signals.wait(Duration::ZERO).is_some() {
            break Ended::Interrupted;
        }
        match said.recv_timeout(LOOK) {
            Ok((number, Ok(cases))) => {
                judged += cases.len();
                done[number] = cases;
                left -= 1;
            }
            Ok((number, Err(error))) => {
                let what = format!("cannot simulate {}", settings[number].name());
                let fix = "change --warm-up, --duration, --traffic or --rival";
                break Ended::Failed(Failure::wrong(what, error, fix).into());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let why = "a simulating thread ended early; this is a bug in Apus, please report it";
                break Ended::Failed(anyhow::anyhow!(why));
            }
        }
    };
    progress.clear();
    (done.into_iter().flatten().collect(), ended)
}

/// Orders the numbers below `n` so that each prefix is spread over the whole grid. So an interrupted run is still
/// representative. Method: multiples of the golden ratio (Knuth, "The Art of Computer Programming", vol. 3, 6.4).
fn spread(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|number| (*number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tenth_is_from_all_of_the_grid() {
        let order = spread(1_000);
        let mut tenths: Vec<usize> = order[..100].iter().map(|number| number / 100).collect();
        tenths.sort_unstable();
        assert!((0..10).all(|tenth| (8..=12).contains(&tenths.iter().filter(|t| **t == tenth).count())), "{tenths:?}");
        let mut all = order;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1_000));
    }
}

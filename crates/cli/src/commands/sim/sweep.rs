//! `apus sim sweep`: simulates all combinations of values on all cores, each case independently.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use live::os::Signals;
use sim::scenario::Scenario;
use sim::strict::Override;

use super::{csv, read, seeds};
use crate::args::sim::{Sweep as Typed, Vary};
use crate::commands::output;
use crate::documents::VERSION;
use crate::documents::sim::{Case, Combination, SWEEP, SweepDocument};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// One combination of values to simulate.
struct Planned {
    /// Hash of everything that determines the result. It identifies the case in the CSV file.
    number: String,
    scenario: Arc<Scenario>,
    instead: Vec<Override>,
    seed: u64,
}

/// A message from a simulating thread: the index of a case, and its result.
type Said = (usize, Result<Case, Failure>);

/// Runs `apus sim sweep`: simulates the cases that are not yet in the CSV file, and adds them.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    let plan = plan(typed)?;
    let keys: Vec<&str> = typed.vary.iter().map(|vary| vary.key.as_str()).collect();
    let head = csv::head(&keys);
    let numbers: Vec<String> = plan.iter().map(|planned| planned.number.clone()).collect();
    let mut kept = typed.output.as_ref().map(|path| csv::Kept::open(path, &head, &numbers)).transpose()?;
    let mut rows: BTreeMap<String, Vec<String>> = kept.as_ref().map(|kept| kept.rows.clone()).unwrap_or_default();
    let order: Vec<(String, Vec<Override>)> =
        plan.iter().map(|planned| (planned.number.clone(), planned.instead.clone())).collect();
    let total = plan.len();
    let left: Vec<Planned> = plan.into_iter().filter(|planned| !rows.contains_key(&planned.number)).collect();
    let mut progress = Progress::new(total, total - left.len());
    let left = Arc::new(left);
    let said = start(&left, typed.jobs.map(usize::from));
    // Rows are written in the order of the cases, so that the same sweep gives the same file. Only --json needs the
    // whole cases, which are large.
    let mut waiting: BTreeMap<usize, (Vec<String>, Option<Case>)> = BTreeMap::new();
    let mut cases = Vec::new();
    let mut interrupted = false;
    let mut next = 0;
    while next < left.len() {
        progress.show(waiting.len() + next);
        // Checks for a signal after each result too, because short cases finish without a pause.
        if signals.wait(Duration::ZERO).is_some() {
            interrupted = true;
            break;
        }
        match said.recv_timeout(LOOK) {
            Ok((number, case)) => {
                let case = case?;
                let row = csv::row(&left[number].number, &keys, &case);
                waiting.insert(number, (row, typed.json.then_some(case)));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                anyhow::bail!("a simulating thread ended early; this is a bug in Apus, please report it")
            }
        }
        while let Some((row, case)) = waiting.remove(&next) {
            if let Some(kept) = &mut kept {
                kept.write(&row)?;
            }
            rows.insert(left[next].number.clone(), row);
            cases.extend(case);
            next += 1;
        }
    }
    progress.clear();
    if interrupted && typed.output.is_none() {
        let _ = writeln!(terminal::err(), "interrupted: {next} of {total} cases");
    }
    let combinations = combinations(&keys, &head, &order, &rows, typed.seeds);
    let document = || SweepDocument {
        apus: VERSION.to_owned(),
        schema: SWEEP.to_owned(),
        cases: Vec::new(),
        combinations: combinations.clone(),
    };
    if let Some(path) = &typed.report {
        let results = serde_json::to_value(document()).context("cannot write the document")?;
        let scenario = typed.scenario.display().to_string();
        tester::report::write(&seeds::report(&scenario, &keys, &combinations, results), path)?;
    }
    if typed.output.is_none() && typed.json {
        print_json(&SweepDocument { cases, ..document() })?;
        return Ok(if interrupted { Status::Findings } else { Status::Good });
    }
    let of_seeds = || combinations.iter().map(|combination| seeds::row(&keys, combination)).collect::<Vec<_>>();
    let mut out = terminal::out();
    match &typed.output {
        Some(path) => {
            writeln!(out, "{}: {} of {total} cases", path.display(), total - left.len() + next)?;
            if typed.seeds > 1 {
                let beside = beside(path);
                csv::write_file(&beside, &seeds::head(&keys), &of_seeds())?;
                let (count, n) = (combinations.len(), typed.seeds);
                writeln!(out, "{}: {count} combinations, mean and median over {n} seeds", beside.display())?;
            }
            if interrupted {
                writeln!(out, "interrupted; run the same command again to continue")?;
            }
        }
        None if typed.seeds > 1 => {
            csv::write_line(&mut out, &seeds::head(&keys))?;
            of_seeds().iter().try_for_each(|row| csv::write_line(&mut out, row))?;
        }
        None => {
            csv::write_line(&mut out, &head)?;
            let written = order.iter().filter_map(|(number, _)| rows.get(number));
            written.clone().try_for_each(|row| csv::write_line(&mut out, row))?;
        }
    }
    if let Some(path) = &typed.report {
        // Not printed among the rows, because another program may read the table.
        let said = format!("report: {}", path.display());
        if typed.output.is_some() { writeln!(out, "{said}")? } else { writeln!(terminal::err(), "{said}")? }
    }
    out.flush().context("cannot write the result")?;
    Ok(if interrupted { Status::Findings } else { Status::Good })
}

/// The combinations whose seeds are all simulated.
fn combinations(
    keys: &[&str],
    head: &[String],
    order: &[(String, Vec<Override>)],
    rows: &BTreeMap<String, Vec<String>>,
    seeds: u64,
) -> Vec<Combination> {
    let there: Vec<(BTreeMap<&str, &str>, &[String])> = order
        .iter()
        .filter_map(|(number, instead)| {
            // A later value wins, as in the scenario.
            let values = instead.iter().map(|replaced| (replaced.key.as_str(), replaced.value.as_str())).collect();
            Some((values, &rows.get(number)?[..]))
        })
        .collect();
    let groups = seeds::groups(keys, &there);
    groups.iter().filter(|group| group.rows.len() as u64 == seeds).map(|group| group.combination(head)).collect()
}

/// The file for the statistics over the seeds, next to the CSV file of the cases.
fn beside(csv: &Path) -> PathBuf {
    csv.with_extension("seeds.csv")
}

/// Builds all combinations, and checks them before any is simulated.
fn plan(typed: &Typed) -> Result<Vec<Planned>, Failure> {
    /// More cases than this count as a typing mistake.
    const MOST: usize = 1_000_000;
    let source = read::Source::open(&typed.scenario)?;
    let combinations = typed.vary.iter().try_fold(typed.seeds as usize, |n, vary| n.checked_mul(vary.values.len()));
    if combinations.is_none_or(|n| n > MOST) {
        let why = format!("there are more than {MOST} cases");
        return Err(Failure::wrong("cannot simulate all combinations", why, "give fewer values, keys or seeds"));
    }
    if let Some(twice) = twice(&typed.vary) {
        let why = format!("{twice} is given twice");
        return Err(Failure::wrong("--vary", why, "give each key once, with all its values"));
    }
    if typed.vary.iter().any(|vary| vary.key == "seed") {
        let why = "each seed would count as a combination of its own, without statistics over the seeds";
        return Err(Failure::wrong(
            "--vary seed",
            why,
            "give the first seed with --seed, and their number with --seeds",
        ));
    }
    for Vary { key, values } in &typed.vary {
        if let Some(twice) = repeated(values) {
            let why = format!("{key}={twice} is given twice");
            return Err(Failure::wrong("--vary", why, "give each value once; to repeat a case, use --seeds"));
        }
    }
    let (mut plan, mut inputs) = (Vec::new(), BTreeSet::new());
    for values in combined(&typed.vary) {
        let instead: Vec<Override> = typed.instead.set.iter().cloned().chain(values).collect();
        let mut octets = Digest::new();
        let scenario = source.scenario(&instead, &mut |path, seen| {
            octets.add(seen);
            inputs.insert(path.to_owned());
        })?;
        let scenario = Arc::new(scenario);
        let first = typed.instead.seed.unwrap_or(scenario.seed);
        for seed in (0..typed.seeds).map(|n| first.wrapping_add(n)) {
            let mut digest = octets.clone();
            digest.add(VERSION.as_bytes());
            instead.iter().for_each(|replaced| digest.add(replaced.to_string().as_bytes()));
            digest.add(&seed.to_le_bytes());
            let (scenario, instead) = (Arc::clone(&scenario), instead.clone());
            plan.push(Planned { number: digest.text(), scenario, instead, seed });
        }
    }
    let mut outputs: Vec<PathBuf> = [&typed.output, &typed.report].into_iter().flatten().cloned().collect();
    outputs.extend(typed.output.as_deref().filter(|_| typed.seeds > 1).map(beside));
    output::are_apart(&outputs, &inputs.into_iter().collect::<Vec<PathBuf>>())?;
    Ok(plan)
}

fn twice(vary: &[Vary]) -> Option<&str> {
    repeated(vary.iter().map(|vary| vary.key.as_str()))
}

/// The first value that occurs twice, if any.
fn repeated<T: Ord>(of: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = BTreeSet::new();
    of.into_iter().find_map(|item| seen.replace(item))
}

/// All combinations with one value per key; the last key varies fastest.
fn combined(vary: &[Vary]) -> Vec<Vec<Override>> {
    vary.iter().fold(vec![Vec::new()], |begun, vary| {
        let longer = |begun: &Vec<Override>, value: &String| {
            let mut longer = begun.clone();
            longer.push(Override { key: vary.key.clone(), value: value.clone() });
            longer
        };
        begun.iter().flat_map(|begun| vary.values.iter().map(move |value| longer(begun, value))).collect()
    })
}

/// Starts the simulating threads. They end with the program.
fn start(left: &Arc<Vec<Planned>>, jobs: Option<usize>) -> mpsc::Receiver<Said> {
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let (say, said) = mpsc::channel();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..jobs.min(left.len()) {
        let (left, next, say) = (Arc::clone(left), Arc::clone(&next), say.clone());
        std::thread::spawn(move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(planned) = left.get(number) else { return };
                let case = read::simulate(&planned.scenario, &planned.instead, Some(planned.seed));
                if say.send((number, case)).is_err() {
                    return;
                }
            }
        });
    }
    said
}

/// FNV-1a with 64 bits (draft-eastlake-fnv). It only needs to tell cases apart; it is not cryptographic.
#[derive(Clone)]
struct Digest(u64);

impl Digest {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a piece of text, with a separator.
    fn add(&mut self, octets: &[u8]) {
        for octet in octets.iter().chain(&(octets.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn text(&self) -> String {
        format!("{:016x}", self.0)
    }
}

/// The progress bar; shown only on a terminal.
pub(super) struct Progress {
    terminal: bool,
    total: usize,
    kept: usize,
    shown: Option<usize>,
}

impl Progress {
    /// Creates a progress bar that starts at `kept` of `total` cases.
    pub(super) fn new(total: usize, kept: usize) -> Self {
        Self { terminal: terminal::err_is_terminal(), total, kept, shown: None }
    }

    /// Shows `done` of the remaining cases.
    pub(super) fn show(&mut self, done: usize) {
        const WIDTH: usize = 30;
        let done = self.kept + done;
        if !self.terminal || self.shown == Some(done) {
            return;
        }
        self.shown = Some(done);
        let filled = WIDTH * done / self.total.max(1);
        let bar = format!("{}{}", "#".repeat(filled), "-".repeat(WIDTH - filled));
        let mut err = terminal::err();
        // A failure to draw is ignored.
        let _ = err.erase_line().and_then(|()| write!(err, "[{bar}] {done} of {} cases", self.total));
    }

    /// Removes the bar from the screen.
    pub(super) fn clear(&self) {
        if self.terminal {
            let _ = terminal::err().erase_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_key_varies_fastest() {
        let vary: Vec<Vary> = ["a=1,2", "b=x,y"].iter().map(|text| text.parse().unwrap()).collect();
        let all: Vec<String> = combined(&vary).iter().map(|c| format!("{} {}", c[0], c[1])).collect();
        assert_eq!(all, ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]);
        assert_eq!((repeated(["1", "2", "1"]), repeated(["1", "2"])), (Some("1"), None));
        assert_eq!(twice(&["a=1", "b=2", "a=3"].map(|text| text.parse().unwrap())), Some("a"));
    }

    #[test]
    fn digests_tell_pieces_apart() {
        let of = |pieces: &[&str]| {
            let mut digest = Digest::new();
            pieces.iter().for_each(|piece| digest.add(piece.as_bytes()));
            digest.text()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab"]), of(&["ab"]));
        assert_eq!(of(&["ab"]).len(), 16);
    }
}

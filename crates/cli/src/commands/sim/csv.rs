//! The CSV file with the finished cases of a sweep, and the file next to it with statistics over the seeds.
//!
//! Each row begins with an identifier of its case: a hash of everything that determines the result. A case that already
//! has a row is not simulated again. A file with rows of another sweep is not changed. The format follows RFC 4180.
//! Unknown values are empty.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use sim::outcome::{Drop, Term};
use tester::quantile::REPORTED;

use crate::Failure;
use crate::commands::output::unwritable;
use crate::documents::sim::Case;
use crate::terminal::{self, clean};

/// Column names of a sweep over `keys`.
pub fn head(keys: &[&str]) -> Vec<String> {
    let mut head = vec!["case".to_owned()];
    head.extend(keys.iter().map(|key| (*key).to_owned()));
    head.extend(["seed", "offered", "departed"].map(str::to_owned));
    head.extend(Drop::ALL.map(|why| format!("dropped_{}", why.name())));
    head.extend(["in_flight", "loss_ppm", "departed_pps", "latency_mean_ns"].map(str::to_owned));
    head.extend(REPORTED.map(|quantile| format!("latency_{}_ns", quantile.to_string().replace('.', "_"))));
    head.push("latency_max_ns".to_owned());
    head.extend(Term::ALL.map(|term| format!("{}_mean_ns", term.name())));
    head.extend(Term::ALL.map(|term| format!("{}_p99_ns", term.name())));
    let rest = [
        "goal",
        "goal_held",
        "late",
        "interrupts",
        "moderation_changes",
        "wakeups",
        "frequency_changes",
        "busy_ppm",
        "vacation_mean_ns",
        "cores_uw",
        "package_uw",
    ];
    head.extend(rest.map(str::to_owned));
    head
}

/// Formats the row of a case. `number` is the identifier of the case.
pub fn row(number: &str, keys: &[&str], case: &Case) -> Vec<String> {
    let known = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let of_cores = |count: fn(&crate::documents::sim::Core) -> u64| case.cores.iter().map(count).sum::<u64>();
    let mut row = vec![number.to_owned()];
    row.extend(keys.iter().map(|key| case.instead.get(*key).cloned().unwrap_or_default()));
    row.extend([case.seed, case.frames.offered, case.frames.departed].map(|value| value.to_string()));
    row.extend(Drop::ALL.map(|why| known(case.frames.dropped.get(why.name()).copied())));
    row.push(case.frames.in_flight.to_string());
    let lost: u64 = case.frames.dropped.values().sum();
    let loss = (case.frames.offered > 0).then(|| lost as f64 * 1e6 / case.frames.offered as f64);
    row.push(loss.map_or_else(String::new, |loss| format!("{loss:.3}")));
    row.push(format!("{:.3}", case.frames.departed_pps));
    row.push(known(case.latency.mean_ns));
    row.extend(REPORTED.map(|quantile| known(case.latency.quantile(quantile))));
    row.push(known(case.latency.max_ns));
    let term = |term: Term| case.budget.get(term.name());
    row.extend(Term::ALL.map(|t| known(term(t).and_then(|term| term.mean_ns))));
    row.extend(Term::ALL.map(|t| known(term(t).and_then(|term| term.p99_ns))));
    let goal = case.goal.as_ref();
    row.push(goal.map_or_else(String::new, |goal| goal.latency.clone()));
    row.push(goal.and_then(|goal| goal.held).map_or_else(String::new, |held| held.to_string()));
    row.push(known(goal.map(|goal| goal.late)));
    row.push(case.queues.iter().map(|queue| queue.interrupts).sum::<u64>().to_string());
    row.push(known(case.queues.iter().map(|queue| queue.moderation_changes).sum()));
    row.push(of_cores(|core| core.wakeups).to_string());
    row.push(of_cores(|core| core.frequency_changes).to_string());
    row.push((of_cores(|core| core.busy_ppm) / (case.cores.len() as u64).max(1)).to_string());
    row.push(known(vacation(case)));
    row.push(case.power.cores_uw.to_string());
    row.push(case.power.package_uw.to_string());
    row
}

/// Mean time for which no thread served a shared queue, averaged over all shared queues. `None` if there are none.
fn vacation(case: &Case) -> Option<u64> {
    let shared = || case.queues.iter().filter_map(|queue| queue.shared);
    let all: u64 = shared().map(|shared| shared.cycles).sum();
    let sum: u128 = shared().map(|s| u128::from(s.cycles) * u128::from(s.vacation_mean_ns.unwrap_or(0))).sum();
    u64::try_from(sum.checked_div(u128::from(all))?).ok()
}

/// Writes one line of CSV.
pub fn write_line(out: &mut impl Write, cells: &[String]) -> io::Result<()> {
    let quoted = cells.iter().map(|cell| {
        let plain = !cell.contains([',', '"', '\n', '\r']);
        if plain { cell.clone() } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
    });
    writeln!(out, "{}", clean(&quoted.collect::<Vec<_>>().join(",")))
}

/// Writes a whole table, replacing an existing file.
pub fn write_file(path: &Path, head: &[String], rows: &[Vec<String>]) -> Result<(), Failure> {
    let mut text = Vec::new();
    let written = write_line(&mut text, head).and_then(|()| rows.iter().try_for_each(|row| write_line(&mut text, row)));
    let written = written.and_then(|()| terminal::file(path, &String::from_utf8_lossy(&text)));
    written.map_err(|error| unwritable(path, error))
}

/// A CSV file that grows by one row per case.
pub struct Kept {
    file: File,
    name: String,
    /// The rows that the file already has, by case identifier.
    pub rows: BTreeMap<String, Vec<String>>,
}

impl Kept {
    /// Opens the CSV file of a sweep to continue it, or creates it. Fails if the header line of the file differs from
    /// `head`, or if it has rows of cases that are not in `cases`.
    pub fn open(path: &Path, head: &[String], cases: &[String]) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let lacking = |error: io::Error| unwritable(path, error);
        let mut line = Vec::new();
        write_line(&mut line, head).map_err(lacking)?;
        let first = String::from_utf8_lossy(&line).into_owned();
        let old = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::wrong(format!("cannot read {name}"), error, "choose another file with -o"));
            }
        };
        // A last row without a newline was being written when the program ended.
        let whole = old.rfind('\n').map_or("", |end| &old[..=end]);
        let other = |why: &str| {
            let fix = "choose another file with -o, or move this one away";
            Failure::wrong(format!("cannot continue {name}"), why.to_owned(), fix)
        };
        let rows = if whole.is_empty() {
            if !old.is_empty() && !first.starts_with(&old) {
                return Err(other("it was not written by apus sim sweep"));
            }
            BTreeMap::new()
        } else {
            let rows =
                whole.strip_prefix(first.as_str()).ok_or_else(|| other("its columns belong to another sweep"))?;
            by_number(rows)
        };
        if rows.keys().any(|number| !cases.contains(number)) {
            return Err(other(
                "it contains cases of another sweep (a different scenario, different values or another version of Apus)",
            ));
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(lacking)?;
        file.set_len(whole.len() as u64).map_err(lacking)?;
        let mut kept = Self { file, name: name.clone(), rows };
        io::Seek::seek(&mut kept.file, io::SeekFrom::End(0)).map_err(lacking)?;
        if whole.is_empty() {
            kept.write(head)?;
        }
        Ok(kept)
    }

    /// Appends a row with a single write.
    pub fn write(&mut self, cells: &[String]) -> Result<(), Failure> {
        let mut line = Vec::new();
        write_line(&mut line, cells).and_then(|()| self.file.write_all(&line)).map_err(|error| {
            Failure::lacking(
                format!("cannot write {}", self.name),
                error,
                "free some disk space, and run the same command again",
            )
        })
    }
}

/// Parses CSV rows, indexed by their first cell. Parsing stops at the first invalid row, because the file then does not
/// belong to a sweep.
fn by_number(rows: &str) -> BTreeMap<String, Vec<String>> {
    let reader = ::csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(rows.as_bytes());
    let rows = reader.into_records().map_while(Result::ok);
    rows.map(|row| row.iter().map(str::to_owned).collect::<Vec<String>>())
        .filter_map(|row| Some((row.first()?.clone(), row)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be_and_numbers_are_found_again() {
        let mut text = Vec::new();
        write_line(&mut text, &["a1".into(), "x,y".into(), "say \"hi\"\nyou,b".into()]).unwrap();
        write_line(&mut text, &["b2".into(), "plain".into(), String::new()]).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "a1,\"x,y\",\"say \"\"hi\"\"\nyou,b\"\nb2,plain,\n");
        let rows = by_number(&text);
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["a1", "b2"]);
        assert_eq!(rows["a1"][1..], ["x,y", "say \"hi\"\nyou,b"]);
    }

    #[test]
    fn a_row_has_a_cell_for_each_column_name() {
        let names = head(&["traffic.rate"]);
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert!(names.contains(&"latency_p99_9_ns".to_owned()) && names.contains(&"c_state_exit_p99_ns".to_owned()));
    }
}

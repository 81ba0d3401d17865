//! Reads recorded calls of DIM (the kernel's dynamic interrupt moderation) from CSV.

use std::fs::File;
use std::path::Path;

use crate::Failure;

/// The columns of DIM's state, in the order of [`Row::expected`].
pub const STATE_COLUMNS: [&str; 6] = ["state", "tune_state", "profile_ix", "steps_right", "steps_left", "tired"];
/// Index of the profile in [`STATE_COLUMNS`].
pub const PROFILE_IX: usize = 2;

/// One line of the file.
#[derive(Debug)]
pub struct Row {
    /// Line number in the file, from 1.
    pub line: u64,
    /// The call of DIM. `None` if the line starts a new instance of DIM.
    pub step: Option<Step>,
    /// The state after the call according to the file. `None` where a column is missing or empty.
    pub expected: [Option<u8>; STATE_COLUMNS.len()],
}

/// One call of DIM.
#[derive(Debug)]
pub struct Step {
    /// Whether the driver's work, which programs a profile, finished since the previous call.
    pub apply: bool,
    /// Kernel clock at the call in ns, as 64 raw bits (a negative value in the file is stored as two's complement).
    pub time_ns: u64,
    /// Kernel clock in ns at the beginning of the next measurement window, if one begins during the call.
    pub restart_time_ns: u64,
    /// The counters at this call, of a network queue or of an RDMA completion queue.
    pub counters: Counters,
}

/// Counters at a call.
#[derive(Clone, Copy, Debug)]
pub enum Counters {
    /// Running totals of a network queue.
    Net { events: u64, packets: u64, bytes: u64 },
    /// Completions since the previous call, for RDMA.
    Rdma { completions: u64 },
}

/// A line of the file that cannot be used, with the reason.
#[derive(Debug)]
pub struct Invalid {
    line: u64,
    why: String,
    fix: String,
}

impl Invalid {
    fn new(line: u64, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { line, why: why.into(), fix: fix.into() }
    }

    /// Adds the file name to the message, and returns the error that the user sees.
    pub fn in_file(self, file: &str) -> Failure {
        Failure::wrong(format!("{file}:{}", self.line), self.why, self.fix)
    }
}

impl Row {
    /// The error for a row that starts an instance at a profile that does not exist in `mode`.
    pub fn no_profile(&self, mode: &str) -> Invalid {
        let most = if mode == "rdma" { "0" } else { "0 to 4" };
        let index = self.expected[PROFILE_IX].unwrap_or(0);
        Invalid::new(
            self.line,
            format!("a new instance cannot start at profile_ix {index}"),
            format!("{mode} allows {most}"),
        )
    }
}

/// Reads a file of recorded calls. `rdma` is true if the calls are for RDMA, and false if they are for a network queue.
pub fn read(path: &Path, rdma: bool) -> Result<Vec<Row>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path)
        .map_err(|e| Failure::wrong(format!("cannot open {name}"), e, "give a CSV file with recorded calls"))?;
    parse(file, rdma).map_err(|invalid| invalid.in_file(&name))
}

fn parse(input: impl std::io::Read, rdma: bool) -> Result<Vec<Row>, Invalid> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(input);
    let header = reader.headers().map_err(|e| unreadable(&e, 1))?;
    let columns = Columns::find(header, rdma)?;
    let width = header.len();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| unreadable(&e, e.position().map_or(1, csv::Position::line)))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != width {
            let why = format!("the line has {} cells, but the header has {width}", record.len());
            return Err(Invalid::new(line, why, "give each line as many cells as the header has"));
        }
        rows.push(columns.row(&Cells { record: &record, line })?);
    }
    Ok(rows)
}

fn unreadable(error: &csv::Error, line: u64) -> Invalid {
    Invalid::new(line, error.to_string(), "write the file as CSV, in UTF-8")
}

/// The position of each column in the file.
struct Columns {
    apply: usize,
    time: usize,
    restart: Option<usize>,
    counters: CounterColumns,
    state: [Option<usize>; STATE_COLUMNS.len()],
}

enum CounterColumns {
    Net { events: usize, packets: usize, bytes: usize },
    Rdma { completions: usize },
}

impl Columns {
    fn find(header: &csv::StringRecord, rdma: bool) -> Result<Self, Invalid> {
        let counters: &[&str] = if rdma { &["completions"] } else { &["events", "packets", "bytes"] };
        let known = ["run", "apply", "time_ns", "restart_time_ns"];
        let known: Vec<&str> = known.into_iter().chain(counters.iter().copied()).chain(STATE_COLUMNS).collect();
        for (place, name) in header.iter().enumerate() {
            if !known.contains(&name) {
                let why = format!("there is no column {name:?}");
                return Err(Invalid::new(1, why, format!("the columns are {}", known.join(", "))));
            }
            if header.iter().take(place).any(|other| other == name) {
                return Err(Invalid::new(1, format!("there are two columns {name:?}"), "remove one of them"));
            }
        }
        let place = |name: &str| header.iter().position(|column| column == name);
        let needed = |name: &str| {
            let fix = "the first line must name the columns: apply, time_ns, then those of the mode (see --help)";
            place(name).ok_or_else(|| Invalid::new(1, format!("there is no column {name:?}"), fix))
        };
        let counters = if rdma {
            CounterColumns::Rdma { completions: needed("completions")? }
        } else {
            CounterColumns::Net { events: needed("events")?, packets: needed("packets")?, bytes: needed("bytes")? }
        };
        Ok(Self {
            apply: needed("apply")?,
            time: needed("time_ns")?,
            restart: place("restart_time_ns"),
            counters,
            state: STATE_COLUMNS.map(place),
        })
    }

    fn row(&self, cells: &Cells<'_>) -> Result<Row, Invalid> {
        let mut expected = [None; STATE_COLUMNS.len()];
        for ((place, name), expected) in self.state.into_iter().zip(STATE_COLUMNS).zip(&mut expected) {
            if let Some(place) = place {
                *expected = Some(cells.number(place, name, "a whole number from 0 to 255")?);
            }
        }
        let apply = match cells.text(self.apply) {
            "reset" => return Ok(Row { line: cells.line, step: None, expected }),
            "0" => false,
            "1" => true,
            other => {
                return Err(Invalid::new(cells.line, format!("apply is {other:?}"), "write reset, 0 or 1"));
            }
        };
        let total = |place, name| cells.number(place, name, "a whole number from 0 to 18446744073709551615");
        let time = |place, name| cells.time(place, name);
        let time_ns = time(self.time, "time_ns")?;
        let restart_time_ns = match self.restart {
            Some(place) => time(place, "restart_time_ns")?,
            None => time_ns,
        };
        let counters = match self.counters {
            CounterColumns::Net { events, packets, bytes } => Counters::Net {
                events: total(events, "events")?,
                packets: total(packets, "packets")?,
                bytes: total(bytes, "bytes")?,
            },
            CounterColumns::Rdma { completions } => Counters::Rdma { completions: total(completions, "completions")? },
        };
        Ok(Row { line: cells.line, step: Some(Step { apply, time_ns, restart_time_ns, counters }), expected })
    }
}

/// The cells of one line.
struct Cells<'a> {
    record: &'a csv::StringRecord,
    line: u64,
}

impl Cells<'_> {
    fn text(&self, place: usize) -> &str {
        &self.record[place]
    }

    fn number<T: std::str::FromStr>(&self, place: usize, name: &str, expected: &str) -> Result<T, Invalid> {
        let text = self.text(place);
        text.parse().map_err(|_| Invalid::new(self.line, format!("{name} is {text:?}"), format!("write {expected}")))
    }

    /// Parses a time in ns into the 64 bits that the kernel stores. Negative values are times before the clock's
    /// origin.
    fn time(&self, place: usize, name: &str) -> Result<u64, Invalid> {
        if self.text(place).starts_with('-') {
            let before: i64 = self.number(place, name, "whole nanoseconds, below 2^64")?;
            return Ok(before as u64);
        }
        self.number(place, name, "whole nanoseconds, below 2^64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "apply,time_ns,events,packets,bytes,profile_ix\n";

    fn why(text: &str) -> (u64, String) {
        let invalid = parse(text.as_bytes(), false).unwrap_err();
        assert!(!invalid.fix.is_empty());
        (invalid.line, invalid.why)
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "bytes,time_ns,apply,packets,events\n500,-1,1,400,70000\n";
        let rows = parse(text.as_bytes(), false).unwrap();
        let step = rows[0].step.as_ref().unwrap();
        assert_eq!((step.apply, step.time_ns, step.restart_time_ns), (true, u64::MAX, u64::MAX));
        assert!(matches!(step.counters, Counters::Net { events: 70_000, packets: 400, bytes: 500 }));
        assert_eq!((rows[0].line, rows[0].expected), (2, [None; 6]));
    }

    #[test]
    fn every_mistake_has_its_line() {
        let cases = [
            ("", 1, "there is no column \"events\""),
            ("apply,time,events,packets,bytes\n", 1, "there is no column \"time\""),
            ("apply,time_ns,events,packets\n", 1, "there is no column \"bytes\""),
            ("apply,time_ns,events,packets,bytes,bytes\n", 1, "there are two columns \"bytes\""),
        ];
        for (text, line, expected) in cases {
            assert_eq!(why(text), (line, expected.to_owned()), "{text}");
        }
        let good = "0,1,2,3,4,0\n";
        for (row, expected) in [
            ("0,1,2,3,4\n", "the line has 5 cells, but the header has 6"),
            ("2,1,2,3,4,0\n", "apply is \"2\""),
            ("0,now,2,3,4,0\n", "time_ns is \"now\""),
            ("0,1,-2,3,4,0\n", "events is \"-2\""),
            ("0,1,2,3,18446744073709551616,0\n", "bytes is \"18446744073709551616\""),
            ("0,1,2,3,4,256\n", "profile_ix is \"256\""),
            ("0,1,2,3,4,\n", "profile_ix is \"\""),
        ] {
            assert_eq!(why(&format!("{HEADER}{good}{row}")), (3, expected.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(text in ".*", rows in prop::collection::vec("[0-9a-z,\"-]{0,40}", 0..10)) {
            let _ = parse(text.as_bytes(), false);
            let _ = parse(format!("{HEADER}{}", rows.join("\n")).as_bytes(), true);
            let _ = parse(format!("{HEADER}{}", rows.join("\n")).as_bytes(), false);
        }
    }
}

//! `apus dim`: replays recorded samples through DIM, the kernel's dynamic interrupt moderation.

mod calls;

use std::io::{self, Write as _};

use policy::moderation::dim::{DimSample, NetDim, Outcome, RdmaDim, Snapshot};
use policy::moderation::{Direction, PeriodMode};
use units::{Instant, Monotonic};

use crate::Status;
use crate::args::dim::{Dim, Mode, Replay as Typed};
use crate::documents::VERSION;
use crate::documents::dim::{Call, Document, Mismatch, SCHEMA, Summary};
use crate::terminal;
use crate::terminal::print_json;
use calls::{Counters, Invalid, Row, STATE_COLUMNS, Step};

/// Number of mismatches shown without `--json`.
const SHOWN: usize = 10;

/// Runs `apus dim`.
pub fn run(typed: &Dim) -> anyhow::Result<Status> {
    match typed {
        Dim::Replay(typed) => replay(typed),
    }
}

fn replay(typed: &Typed) -> anyhow::Result<Status> {
    let file = typed.file.display().to_string();
    let rows = calls::read(&typed.file, typed.mode == Mode::Rdma)?;
    let (calls, summary) = replay_rows(&rows, typed.mode).map_err(|invalid| invalid.in_file(&file))?;
    let status = if summary.mismatches.is_empty() { Status::Good } else { Status::Findings };
    if typed.json {
        let (apus, schema, mode) = (VERSION.to_owned(), SCHEMA.to_owned(), typed.mode.into());
        print_json(&Document { apus, schema, file, mode, calls, summary })?;
    } else {
        say(&summary, &file, typed.mode)?;
    }
    Ok(status)
}

/// A DIM instance: for a network queue or for RDMA.
enum Instance {
    Net(NetDim<Monotonic>),
    Rdma(RdmaDim<Monotonic>),
}

impl Instance {
    /// Starts an instance at the profile `index`. `None` if the profile does not exist. For RDMA, the only valid index
    /// is 0.
    fn new(mode: Mode, index: u8) -> Option<Self> {
        let (direction, period) = match mode {
            Mode::RxEqe => (Direction::Rx, PeriodMode::Eqe),
            Mode::RxCqe => (Direction::Rx, PeriodMode::Cqe),
            Mode::TxEqe => (Direction::Tx, PeriodMode::Eqe),
            Mode::TxCqe => (Direction::Tx, PeriodMode::Cqe),
            Mode::Rdma => return (index == 0).then(|| Self::Rdma(RdmaDim::new())),
        };
        NetDim::new(direction, period, index).map(Self::Net)
    }

    fn finish_applying(&mut self) {
        match self {
            Self::Net(dim) => dim.finish_applying(),
            Self::Rdma(dim) => dim.finish_applying(),
        }
    }

    fn call(&mut self, step: &Step) -> (Outcome, Snapshot) {
        let (time, restart) = (Instant::from_nanos(step.time_ns), Instant::from_nanos(step.restart_time_ns));
        match (self, step.counters) {
            (Self::Net(dim), Counters::Net { events, packets, bytes }) => {
                let sample = DimSample {
                    time,
                    packets: packets as u32,
                    bytes: bytes as u32,
                    events: events as u16,
                    completions: 0,
                };
                (dim.step(&sample, restart), dim.snapshot())
            }
            (Self::Rdma(dim), Counters::Rdma { completions }) => (dim.step(time, completions, restart), dim.snapshot()),
            (Self::Net(_), Counters::Rdma { .. }) | (Self::Rdma(_), Counters::Net { .. }) => {
                unreachable!("the columns were read for the same mode")
            }
        }
    }
}

/// Replays all rows, and returns the state after each call and the mismatches.
fn replay_rows(rows: &[Row], mode: Mode) -> Result<(Vec<Call>, Summary), Invalid> {
    let mut calls = Vec::with_capacity(rows.len());
    let mut summary = Summary { calls: 0, instances: 0, profile_changes: 0, agreeing: None, mismatches: Vec::new() };
    let mut instance = None;
    for row in rows {
        let Some(step) = &row.step else {
            let index = row.expected[calls::PROFILE_IX].unwrap_or(0);
            instance = Some(Instance::new(mode, index).ok_or_else(|| row.no_profile(mode.name()))?);
            summary.instances += 1;
            continue;
        };
        let instance = instance.get_or_insert_with(|| {
            summary.instances += 1;
            Instance::new(mode, 0).expect("every table has a first profile")
        });
        if step.apply {
            instance.finish_applying();
        }
        let (outcome, state) = instance.call(step);
        let found = [
            state.state as u8,
            state.tune_state as u8,
            state.profile_ix,
            state.steps_right,
            state.steps_left,
            state.tired,
        ];
        let before = summary.mismatches.len();
        for ((column, expected), found) in STATE_COLUMNS.into_iter().zip(row.expected).zip(found) {
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                summary.mismatches.push(Mismatch { line: row.line, column: column.to_owned(), expected, found });
            }
        }
        if row.expected.iter().any(Option::is_some) {
            *summary.agreeing.get_or_insert(0) += u64::from(summary.mismatches.len() == before);
        }
        summary.calls += 1;
        summary.profile_changes += u64::from(outcome == Outcome::Changed);
        let [state, tune_state, profile_ix, steps_right, steps_left, tired] = found;
        calls.push(Call { state, tune_state, profile_ix, steps_right, steps_left, tired });
    }
    Ok((calls, summary))
}

fn say(summary: &Summary, file: &str, mode: Mode) -> io::Result<()> {
    let mut out = terminal::out();
    let Summary { calls, instances, profile_changes, agreeing, mismatches } = summary;
    write!(out, "{}: {calls} calls of {instances} instances, {profile_changes} profile changes", mode.name())?;
    match agreeing {
        None => writeln!(out, "; {file} has no states to compare with (--json prints DIM's states)")?,
        Some(agreeing) if mismatches.is_empty() => writeln!(out, "; all {agreeing} states agree with {file}")?,
        Some(agreeing) => {
            writeln!(out, "; {agreeing} states agree with {file}, {} differ", calls - agreeing)?;
            for Mismatch { line, column, expected, found } in mismatches.iter().take(SHOWN) {
                writeln!(out, "  {file}:{line}: {column} is {expected} in the file and {found} in DIM")?;
            }
            if mismatches.len() > SHOWN {
                writeln!(out, "  and {} more (--json lists all)", mismatches.len() - SHOWN)?;
            }
        }
    }
    out.flush()
}

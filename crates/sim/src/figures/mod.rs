//! The figures of the documents that Apus follows, beside what Apus says.
//!
//! A [`Figure`] is plain data: what the document shows, what came out here for the same, which parameters went in,
//! and why a number differs where it does. Latencies, rates and powers come from the simulated [`world`](crate::world),
//! by scenarios as `apus sim run` takes them. Each number has a [`Role`]:
//!
//! - **simulated**: the world gave it, and nothing was fitted to it. Only these count as predictions.
//! - **arithmetic**: it follows from the inputs in one line.
//! - **assumption**: it rests on a value that was chosen for it, because the document does not state it.
//! - **calibrated**: a parameter was set by it; it agrees by construction.
//!
//! Averages, medians, rates and powers are meant to agree within 15 %; extremes to be of the right order, a factor of
//! 2; bounds ("all above 22 us") hold or do not. Whatever differs has an explanation. Beside each prediction stands
//! what a **null model** says, a rule of one line without a simulator: rows that it gets right say little for the
//! simulator. **Sensitivity** says what becomes of a figure if one of its parameters is turned up and down.

mod forwarding;
mod interrupt_mode;
mod ixl;
mod microbenchmark;
mod power;
mod ring;
mod row;
mod setup;
mod tcp_rr;
mod throughput;
mod transition;
mod tuning;

use crate::hw::ModelError;
use crate::machine::{Machine, MachineError};
use crate::strict;

pub use row::{EXTREME_FACTOR, Kind, Role, Row, TYPICAL_PERCENT, Theirs, Verdict};
pub use tuning::{Knob, Standing};

use tuning::Tuning;

/// A table or plot of a document, and the same from Apus.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// A short name: `s0.4`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The document and section.
    pub document: &'static str,
    /// How it was made, and what had to be assumed for that.
    pub method: String,
    /// The rule of one line that stands beside the simulator; `None` where nothing is simulated.
    pub null_model: Option<&'static str>,
    /// The parameters that matter.
    pub inputs: Vec<Input>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Points, where the document has a plot.
    pub plots: Vec<Plot>,
    /// What becomes of the rows if a parameter is another.
    pub sensitivity: Vec<Sensitivity>,
}

/// A parameter that went in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// What it is: `processor.pstates.block of xeon-platinum-8260l`.
    pub name: String,
    /// Its value, with the unit.
    pub value: String,
    /// Where it is from.
    pub source: String,
}

/// What becomes of a figure's rows if one parameter is turned down and up.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivity {
    /// The parameter, and by how many percent it is turned.
    pub knob: Knob,
    /// Its value as it stands.
    pub value: String,
    /// Turned down...
    pub down: Shift,
    /// ...and up.
    pub up: Shift,
}

/// How the numbers of some figures turned out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Simulated numbers beside a number of a document...
    pub simulated: Share,
    /// ...and how often the null models get the same rows right.
    pub null: Share,
    /// Numbers that are arithmetic.
    pub arithmetic: Share,
    /// Numbers that rest on an assumption.
    pub assumption: Share,
    /// Numbers that a parameter was set by.
    pub calibrated: usize,
    /// Numbers of only one side.
    pub not_compared: usize,
}

/// So many of so many.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Share {
    /// Those that agree.
    pub agree: usize,
    /// All that stand beside a number of a document.
    pub compared: usize,
}

impl Share {
    const fn add(&mut self, agrees: bool) {
        self.agree += agrees as usize;
        self.compared += 1;
    }
}

impl Tally {
    /// Counts the rows of some figures.
    pub fn of<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Self {
        let mut tally = Self::default();
        for row in figures.into_iter().flat_map(|figure| &figure.rows) {
            let agrees = match row.verdict() {
                Verdict::Agrees => true,
                Verdict::Differs => false,
                Verdict::Calibrated => {
                    tally.calibrated += 1;
                    continue;
                }
                Verdict::NotCompared => {
                    tally.not_compared += 1;
                    continue;
                }
            };
            match row.role {
                Role::Simulated => {
                    tally.simulated.add(agrees);
                    if let Some(agrees) = row.null_agrees() {
                        tally.null.add(agrees);
                    }
                }
                Role::Arithmetic => tally.arithmetic.add(agrees),
                Role::Assumption => tally.assumption.add(agrees),
                Role::Calibrated => {}
            }
        }
        tally
    }
}

/// How a figure's rows move.
#[derive(Clone, PartialEq, Debug)]
pub struct Shift {
    /// The row that moves most: its case and quantity...
    pub row: String,
    /// ...and by how many percent of what it was.
    pub percent: f64,
    /// Rows beside a number of the document that agree then, calibrated ones included.
    pub agreement: Share,
}

/// Points to be drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis: quantity and unit.
    pub x: (&'static str, &'static str),
    /// The vertical axis.
    pub y: (&'static str, &'static str),
    /// The points: horizontal, vertical.
    pub points: Vec<(f64, f64)>,
    /// Lines across: what the document says, and where.
    pub lines: Vec<(String, f64)>,
}

/// A figure that cannot be made: a machine or scenario of ours is wrong.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A built-in machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A scenario of a figure.
    #[error(transparent)]
    Scenario(#[from] strict::Error),
    /// A world that cannot be.
    #[error(transparent)]
    World(#[from] ModelError),
}

/// What a figure is, and how to make it.
struct Plan {
    id: &'static str,
    title: &'static str,
    document: &'static str,
    null_model: Option<&'static str>,
    /// What is turned for the sensitivity: each is an input of the figure.
    knobs: &'static [Knob],
    make: fn(u64, &Tuning) -> Result<Made, FigureError>,
}

/// What making a figure gives.
struct Made {
    method: String,
    inputs: Vec<Input>,
    rows: Vec<Row>,
    plots: Vec<Plot>,
}

/// All figures, in the documents' order.
const PLANS: [Plan; 11] = [
    transition::PLAN,
    microbenchmark::PLAN,
    forwarding::PLAN,
    power::PLAN,
    interrupt_mode::IDLE_STATES,
    interrupt_mode::OPTIMISATION,
    tcp_rr::PLAN,
    throughput::NATIVE,
    throughput::VIRTUAL,
    ixl::PLAN,
    ring::PLAN,
];

/// All figures, in the documents' order. The same seed gives the same figures.
pub fn all(seed: u64) -> Result<Vec<Figure>, FigureError> {
    PLANS.iter().map(|plan| plan.figure(seed)).collect()
}

/// The figure called `id`; `None` if there is none.
pub fn named(id: &str, seed: u64) -> Option<Result<Figure, FigureError>> {
    PLANS.iter().find(|plan| plan.id == id).map(|plan| plan.figure(seed))
}

/// The identifiers of all figures, in their order.
pub fn ids() -> impl Iterator<Item = &'static str> {
    PLANS.iter().map(|plan| plan.id)
}

impl Plan {
    fn figure(&self, seed: u64) -> Result<Figure, FigureError> {
        let Made { method, inputs, rows, plots } = (self.make)(seed, &Tuning::NONE)?;
        let mut sensitivity = Vec::with_capacity(self.knobs.len());
        if !self.knobs.is_empty() {
            let base = (self.make)(seed, &Tuning::SHORT)?.rows;
            for knob in self.knobs {
                let share = f64::from(knob.percent) / 100.0;
                let turned = |factor| -> Result<Shift, FigureError> {
                    Ok(Shift::new(&base, &(self.make)(seed, &Tuning::with(knob.parameter, factor))?.rows))
                };
                let value = value_of(&inputs, knob.parameter);
                let (down, up) = (turned(1.0 - share)?, turned(1.0 + share)?);
                sensitivity.push(Sensitivity { knob: *knob, value, down, up });
            }
        }
        let Self { id, title, document, null_model, .. } = *self;
        Ok(Figure { id, title, document, method, null_model, inputs, rows, plots, sensitivity })
    }
}

impl Shift {
    /// How `rows` differ from `base`: the same rows, with other numbers.
    fn new(base: &[Row], rows: &[Row]) -> Self {
        let change = |(before, after): (&Row, &Row)| -> Option<f64> {
            let (before, after) = (before.modelled?, after.modelled?);
            (before != 0.0).then(|| (after - before) / before * 100.0)
        };
        let changes = base.iter().zip(rows).filter_map(|pair| Some((pair.0, change(pair)?)));
        let most = changes.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
        let agrees = |row: &Row| Row { role: Role::Simulated, ..row.clone() }.verdict();
        let verdicts: Vec<Verdict> = rows.iter().map(agrees).filter(|v| *v != Verdict::NotCompared).collect();
        Self {
            row: most.map_or_else(String::new, |(row, _)| format!("{}, {}", row.case, row.quantity)),
            percent: most.map_or(0.0, |(_, percent)| percent),
            agreement: Share {
                agree: verdicts.iter().filter(|verdict| **verdict == Verdict::Agrees).count(),
                compared: verdicts.len(),
            },
        }
    }
}

/// The value of the input `parameter`: of a machine, or the figure's own.
fn value_of(inputs: &[Input], parameter: &str) -> String {
    let own = |input: &&Input| input.name == parameter || input.name.ends_with(&format!(": {parameter}"));
    inputs.iter().find(own).map_or_else(String::new, |input| input.value.clone())
}

impl Input {
    fn new(name: &str, value: impl Into<String>, source: &str) -> Self {
        Self { name: name.to_owned(), value: value.into(), source: source.to_owned() }
    }
}

/// The inputs at `paths` of a machine.
fn inputs_of(machine: &Machine, paths: &[&str]) -> Vec<Input> {
    let all = paths.iter().flat_map(|path| {
        let below = format!("{path}.");
        machine.parameters.iter().filter(move |p| p.path == *path || p.path.starts_with(&below))
    });
    let name = &machine.name;
    all.map(|p| Input { name: format!("{name}: {}", p.path), value: p.value.clone(), source: p.source.clone() })
        .collect()
}

/// Nanoseconds as microseconds.
fn us(nanos: f64) -> f64 {
    nanos / 1_000.0
}

#[cfg(test)]
mod tests;

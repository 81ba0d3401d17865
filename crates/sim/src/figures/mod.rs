//! Published figures, compared with the results of the simulator.
//!
//! A [`Figure`] is plain data: the document's numbers, the simulator's numbers for the same case, the parameters used,
//! and the reason for each difference. Latencies, rates and powers come from the simulated [`world`](crate::world),
//! through scenarios that `apus sim run` accepts. Each number has a [`Role`]:
//!
//! - **simulated**: the world produced it, and no parameter was fitted to it. Only these numbers count as predictions.
//! - **arithmetic**: it follows from the inputs in one line.
//! - **assumption**: it depends on a value that was chosen for it, because the document does not state it.
//! - **calibrated**: a parameter was fitted to it, so it agrees by construction.
//!
//! Averages, medians, rates and powers should agree within 15 %, extremes within a factor of 2. Bounds ("all above 22
//! us") have no tolerance. Every difference has an explanation. Each prediction is compared with a **null model**, a
//! one-line rule without a simulator: if the null model gets a row right too, the row says little for the simulator.
//! **Sensitivity** shows how a figure changes if one of its parameters is increased or decreased.

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

/// A table or plot of a document, compared with the simulator's results for the same case.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// A short name, for example `s0.4`.
    pub id: &'static str,
    /// What the figure shows.
    pub title: &'static str,
    /// The document and section from which the figure is taken.
    pub document: &'static str,
    /// How the simulator's numbers were obtained, and what had to be assumed.
    pub method: String,
    /// The one-line rule that is compared with the simulator. `None` if nothing is simulated.
    pub null_model: Option<&'static str>,
    /// The parameters that influence the figure.
    pub inputs: Vec<Input>,
    /// The simulator's numbers, each with the document's number.
    pub rows: Vec<Row>,
    /// Points to draw, if the document has a plot.
    pub plots: Vec<Plot>,
    /// How the rows change if a parameter changes.
    pub sensitivity: Vec<Sensitivity>,
}

/// A parameter of a figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// Name of the parameter, for example `processor.pstates.block of xeon-platinum-8260l`.
    pub name: String,
    /// Value of the parameter, with the unit.
    pub value: String,
    /// The source of the value.
    pub source: String,
}

/// How a figure's rows change if one parameter is decreased and increased.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivity {
    /// The parameter, and by how many percent it is changed.
    pub knob: Knob,
    /// The parameter's original value.
    pub value: String,
    /// The effect of decreasing the parameter.
    pub down: Shift,
    /// The effect of increasing the parameter.
    pub up: Shift,
}

/// How many numbers of some figures agree with the documents, by [`Role`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Simulated numbers that agree with a number of the document.
    pub simulated: Share,
    /// Null-model numbers that agree with the document, for the rows counted in `simulated`.
    pub null: Share,
    /// Arithmetic numbers that agree with the document.
    pub arithmetic: Share,
    /// Numbers that depend on an assumption about a value that the document does not state, and that agree with the
    /// document.
    pub assumption: Share,
    /// Number of rows to which a parameter was fitted.
    pub calibrated: usize,
    /// Number of rows for which the document, the simulator or both have no number.
    pub not_compared: usize,
}

/// How many rows agree, out of those that can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Share {
    /// Number of rows that agree.
    pub agree: usize,
    /// Number of rows that have a number in the document.
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

/// How a figure's rows change when one parameter is changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Shift {
    /// The row that changes most: its case and quantity.
    pub row: String,
    /// Change of that row, in percent of its old value.
    pub percent: f64,
    /// Share of the rows that agree with the figure's document after the change, including calibrated rows.
    pub agreement: Share,
}

/// Points to draw.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// The title of the plot.
    pub title: String,
    /// Quantity and unit of the horizontal axis.
    pub x: (&'static str, &'static str),
    /// Quantity and unit of the vertical axis.
    pub y: (&'static str, &'static str),
    /// The points: horizontal, then vertical value.
    pub points: Vec<(f64, f64)>,
    /// Horizontal lines to draw: a statement of the document, and its value on the vertical axis.
    pub lines: Vec<(String, f64)>,
}

/// Why a figure cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A built-in machine is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A scenario of the figure is invalid.
    #[error(transparent)]
    Scenario(#[from] strict::Error),
    /// The scenario describes a world that cannot exist.
    #[error(transparent)]
    World(#[from] ModelError),
}

/// A figure's description, and the function that computes it.
struct Plan {
    id: &'static str,
    title: &'static str,
    document: &'static str,
    null_model: Option<&'static str>,
    /// The parameters to vary for the sensitivity. Each is an input of the figure.
    knobs: &'static [Knob],
    make: fn(u64, &Tuning) -> Result<Made, FigureError>,
}

/// What the function of a [`Plan`] returns.
struct Made {
    method: String,
    inputs: Vec<Input>,
    rows: Vec<Row>,
    plots: Vec<Plot>,
}

/// All figures, in the order of the documents.
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

/// All figures, in the order of the documents. The same seed gives the same figures.
pub fn all(seed: u64) -> Result<Vec<Figure>, FigureError> {
    PLANS.iter().map(|plan| plan.figure(seed)).collect()
}

/// The figure called `id`. `None` if there is none.
pub fn named(id: &str, seed: u64) -> Option<Result<Figure, FigureError>> {
    PLANS.iter().find(|plan| plan.id == id).map(|plan| plan.figure(seed))
}

/// The identifiers of all figures, in the order of [`all`].
pub fn ids() -> impl Iterator<Item = &'static str> {
    PLANS.iter().map(|plan| plan.id)
}

/// The identifiers of all figures, each with its title.
pub fn titles() -> impl Iterator<Item = (&'static str, &'static str)> {
    PLANS.iter().map(|plan| (plan.id, plan.title))
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
    /// How `rows` differ from `base`. Both have the same rows.
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

/// The value of the input `parameter`, of a machine or of the figure itself.
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

/// Converts nanoseconds to microseconds.
fn us(nanos: f64) -> f64 {
    nanos / 1_000.0
}

#[cfg(test)]
mod tests;

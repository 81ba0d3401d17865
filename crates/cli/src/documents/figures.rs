//! `apus sim figures --json`.

use schemars::JsonSchema;
use serde::Serialize;
use sim::figures::{
    Figure as Modelled, Kind, Role, Row as ModelledRow, Sensitivity as ModelledSensitivity, Share as ModelledShare,
    Standing, Tally, Theirs, Verdict,
};
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.sim.figures/2";

/// Published figures, and what Apus computes for the same quantities.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.sim.figures/2`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Random seed of the simulation.
    pub seed: u64,
    /// How many numbers agree.
    pub summary: Summary,
    /// The figures, in the order of the published documents.
    pub figures: Vec<Figure>,
}

/// How many numbers agree with the published ones, grouped by how Apus obtained them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema, Debug)]
pub struct Summary {
    /// Agreement of the simulated numbers.
    pub simulated: Share,
    /// Agreement of the null models' predictions for the rows in `simulated`.
    pub null_model: Share,
    /// Agreement of the numbers that follow from the inputs by simple arithmetic.
    pub arithmetic: Share,
    /// Agreement of the numbers that depend on an assumed value.
    pub assumption: Share,
    /// Number of values to which a parameter was fitted. They agree by construction.
    pub calibrated: usize,
    /// Number of values without a counterpart: only the document or only Apus has one.
    pub not_compared: usize,
}

/// How many numbers agree. Averages, rates and powers agree within 15 %, extremes within a factor of 2, and bounds if
/// they hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema, Debug)]
pub struct Share {
    /// Number of values that agree.
    pub agree: usize,
    /// Number of values compared.
    pub compared: usize,
}

/// A figure or table of a published document.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Figure {
    /// Short identifier, such as `s0.4`.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// Document and section.
    pub document: String,
    /// How the figure was computed, with the assumptions.
    pub method: String,
    /// The one-line rule against which the simulator is compared; `null` if nothing is simulated.
    pub null_model: Option<String>,
    /// How many of the figure's numbers agree.
    pub summary: Summary,
    /// The input parameters.
    pub inputs: Vec<Input>,
    /// The compared numbers.
    pub rows: Vec<Row>,
    /// Plotted points; empty unless the document has a plot.
    pub plots: Vec<Plot>,
    /// How the rows change if a parameter is lowered or raised.
    pub sensitivity: Vec<Sensitivity>,
}

/// A parameter that is varied.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Sensitivity {
    /// Name of the input.
    pub parameter: String,
    /// Value with its unit.
    pub value: String,
    /// How the value of the parameter is known.
    pub standing: Name<Standing>,
    /// Percentage by which the parameter is lowered and raised.
    pub percent: u32,
    /// The rows with the parameter lowered.
    pub down: Shift,
    /// The rows with the parameter raised.
    pub up: Shift,
}

/// How the rows change when a parameter is lowered or raised.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Shift {
    /// The row that changes most: case and quantity.
    pub row: String,
    /// Change of that row in percent.
    pub change_percent: f64,
    /// How many rows agree when the parameter is changed, including calibrated rows.
    pub agreement: Share,
}

/// An input parameter.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Input {
    /// Name of the parameter.
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// Document and section, or how the value was obtained.
    pub source: String,
}

/// One compared number.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Row {
    /// The case within the figure, such as a machine and a load.
    pub case: String,
    /// Name of the compared quantity.
    pub quantity: String,
    /// Unit of `theirs` and `modelled`; empty for a ratio.
    pub unit: String,
    /// How closely the two numbers should agree.
    pub kind: Name<Kind>,
    /// The number in the published document; `null` if the document does not give one.
    pub theirs: Option<Bounds>,
    /// The number that Apus computes; `null` if Apus computes none.
    pub modelled: Option<f64>,
    /// Prediction of the null model; `null` if the model predicts nothing for this row.
    pub null_model: Option<f64>,
    /// How `modelled` was obtained.
    pub role: Name<Role>,
    /// Deviation of `modelled` from the document's number, in percent of that number; 0 if it is within the document's
    /// range.
    pub deviation_percent: Option<f64>,
    /// The result of the comparison.
    pub verdict: Name<Verdict>,
    /// Why the number differs or is missing; `null` if it agrees.
    pub explanation: Option<String>,
}

/// The known range of a number. Both bounds are equal if the number is known exactly.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Bounds {
    /// Lower bound; `null` if unknown.
    pub least: Option<f64>,
    /// Upper bound; `null` if unknown.
    pub most: Option<f64>,
}

/// Points of a plot.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Plot {
    /// What the plot shows.
    pub title: String,
    /// The quantity on the horizontal axis.
    pub x: Axis,
    /// The quantity on the vertical axis.
    pub y: Axis,
    /// The points as pairs: horizontal, vertical.
    pub points: Vec<[f64; 2]>,
    /// Values from the document, drawn as horizontal lines across the plot.
    pub lines: Vec<Line>,
}

/// What an axis shows.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Axis {
    /// The quantity.
    pub quantity: String,
    /// Unit of the quantity; empty for a plain number.
    pub unit: String,
}

/// A horizontal line across a plot.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Line {
    /// Label of the line.
    pub label: String,
    /// Position on the vertical axis.
    pub value: f64,
}

impl Document {
    /// Builds the document of these figures.
    pub fn new(seed: u64, figures: &[Modelled]) -> Self {
        Self {
            apus: super::VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            seed,
            summary: Summary::of(figures),
            figures: figures.iter().map(Figure::from).collect(),
        }
    }
}

impl From<ModelledShare> for Share {
    fn from(share: ModelledShare) -> Self {
        Self { agree: share.agree, compared: share.compared }
    }
}

impl Summary {
    /// Counts the rows of some figures.
    pub fn of<'a>(figures: impl IntoIterator<Item = &'a Modelled>) -> Self {
        let Tally { simulated, null, arithmetic, assumption, calibrated, not_compared } = Tally::of(figures);
        Self {
            simulated: simulated.into(),
            null_model: null.into(),
            arithmetic: arithmetic.into(),
            assumption: assumption.into(),
            calibrated,
            not_compared,
        }
    }
}

impl From<&ModelledSensitivity> for Sensitivity {
    fn from(said: &ModelledSensitivity) -> Self {
        let shift = |shift: &sim::figures::Shift| Shift {
            row: shift.row.clone(),
            change_percent: shift.percent,
            agreement: shift.agreement.into(),
        };
        Self {
            parameter: said.knob.parameter.to_owned(),
            value: said.value.clone(),
            standing: said.knob.standing.into(),
            percent: said.knob.percent,
            down: shift(&said.down),
            up: shift(&said.up),
        }
    }
}

impl From<&Modelled> for Figure {
    fn from(figure: &Modelled) -> Self {
        let axis = |(quantity, unit): (&str, &str)| Axis { quantity: quantity.to_owned(), unit: unit.to_owned() };
        Self {
            id: figure.id.to_owned(),
            title: figure.title.to_owned(),
            document: figure.document.to_owned(),
            method: figure.method.clone(),
            null_model: figure.null_model.map(str::to_owned),
            summary: Summary::of([figure]),
            sensitivity: figure.sensitivity.iter().map(Sensitivity::from).collect(),
            inputs: figure
                .inputs
                .iter()
                .map(|i| Input { name: i.name.clone(), value: i.value.clone(), source: i.source.clone() })
                .collect(),
            rows: figure.rows.iter().map(Row::from).collect(),
            plots: figure
                .plots
                .iter()
                .map(|plot| Plot {
                    title: plot.title.clone(),
                    x: axis(plot.x),
                    y: axis(plot.y),
                    points: plot.points.iter().map(|&(x, y)| [x, y]).collect(),
                    lines: plot
                        .lines
                        .iter()
                        .map(|(label, value)| Line { label: label.clone(), value: *value })
                        .collect(),
                })
                .collect(),
        }
    }
}

impl From<&ModelledRow> for Row {
    fn from(row: &ModelledRow) -> Self {
        Self {
            case: row.case.clone(),
            quantity: row.quantity.to_owned(),
            unit: row.unit.to_owned(),
            kind: row.kind.into(),
            theirs: bounds(row.theirs),
            modelled: row.modelled,
            null_model: row.null,
            role: row.role.into(),
            deviation_percent: row.deviation_percent(),
            verdict: row.verdict().into(),
            explanation: row.explanation.clone(),
        }
    }
}

fn bounds(theirs: Theirs) -> Option<Bounds> {
    let (least, most) = match theirs {
        Theirs::Value(value) => (Some(value), Some(value)),
        Theirs::AtLeast(least) => (Some(least), None),
        Theirs::AtMost(most) => (None, Some(most)),
        Theirs::Between(least, most) => (Some(least), Some(most)),
        Theirs::Nothing => return None,
    };
    Some(Bounds { least, most })
}

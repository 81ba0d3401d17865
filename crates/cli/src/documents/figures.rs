//! `apus sim figures --json`.

use schemars::JsonSchema;
use serde::Serialize;
use sim::figures::{Figure as Modelled, Kind, Role, Row as ModelledRow, Theirs, Verdict};

/// The schema's name.
pub const SCHEMA: &str = "apus.sim.figures/1";

/// The figures of the source documents, beside the models'.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.figures/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The seed of all that is random.
    pub seed: u64,
    /// How the predictions turned out.
    pub summary: Summary,
    /// The figures, in the documents' order.
    pub figures: Vec<Figure>,
}

/// How the numbers turned out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Predictions that a number of a document stands beside.
    pub compared: u32,
    /// Of those: within 15 %; minima and maxima within a factor of 2.
    pub agree: u32,
    /// Of those: further off, and explained.
    pub differ: u32,
    /// Numbers that a parameter was set by: they agree by construction.
    pub calibrated: u32,
    /// Numbers of only one side.
    pub not_compared: u32,
}

/// A figure of a document.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// A short name: `s0.4`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The document and section.
    pub document: String,
    /// How the models were run, and what had to be assumed for that.
    pub method: String,
    /// The parameters that matter.
    pub inputs: Vec<Input>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Points, where the document has a plot.
    pub plots: Vec<Plot>,
}

/// A parameter that went in.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What it is.
    pub name: String,
    /// Its value, with the unit.
    pub value: String,
    /// Where it is from.
    pub source: String,
}

/// One number.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The case.
    pub case: String,
    /// What is counted.
    pub quantity: String,
    /// The unit of `theirs` and `modelled`; empty for a ratio.
    pub unit: String,
    /// `typical` (within 15 %) or `extreme` (within a factor of 2).
    pub kind: &'static str,
    /// What the document says; `null` if it shows no number.
    pub theirs: Option<Bounds>,
    /// What the models say; `null` if they say nothing.
    pub modelled: Option<f64>,
    /// `prediction` or `calibrated`.
    pub role: &'static str,
    /// How far off, in percent of the document's number; 0 within its range.
    pub deviation_percent: Option<f64>,
    /// `agrees`, `differs`, `calibrated` or `not_compared`.
    pub verdict: &'static str,
    /// Why it differs, or is absent.
    pub explanation: Option<String>,
}

/// A number (both bounds are equal), or what is known of one.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// At least this.
    pub least: Option<f64>,
    /// At most this.
    pub most: Option<f64>,
}

/// Points to be drawn.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The points: horizontal, vertical.
    pub points: Vec<[f64; 2]>,
    /// What the document says, and where that lies on the vertical axis.
    pub lines: Vec<Line>,
}

/// What an axis shows.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The quantity.
    pub quantity: String,
    /// Its unit; empty for a mere number.
    pub unit: String,
}

/// A line across a plot.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it says.
    pub label: String,
    /// Where it lies.
    pub value: f64,
}

impl Document {
    /// The document of these figures.
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

impl Summary {
    /// Counts the verdicts.
    pub fn of(figures: &[Modelled]) -> Self {
        let mut summary = Self::default();
        for row in figures.iter().flat_map(|figure| &figure.rows) {
            match row.verdict() {
                Verdict::Agrees => summary.agree += 1,
                Verdict::Differs => summary.differ += 1,
                Verdict::Calibrated => summary.calibrated += 1,
                Verdict::NotCompared => summary.not_compared += 1,
            }
        }
        summary.compared = summary.agree + summary.differ;
        summary
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
            kind: match row.kind {
                Kind::Typical => "typical",
                Kind::Extreme => "extreme",
            },
            theirs: bounds(row.theirs),
            modelled: row.modelled,
            role: match row.role {
                Role::Prediction => "prediction",
                Role::Calibrated => "calibrated",
            },
            deviation_percent: row.deviation_percent(),
            verdict: verdict_name(row.verdict()),
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

/// In snake case.
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Differs => "differs",
        Verdict::Calibrated => "calibrated",
        Verdict::NotCompared => "not_compared",
    }
}

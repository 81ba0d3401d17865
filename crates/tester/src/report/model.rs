//! What a report says, as plain data; how it looks is decided elsewhere.
//!
//! Values are in the unit that their [`Axis`] or [`Column`] names. A value that is not finite, or
//! not above zero on a logarithmic axis, cannot be drawn: the figure then says so, in words.

use serde::Serialize;

use crate::host::{HostState, Reading};

/// One report: one HTML file.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// One or two sentences: the result.
    pub lead: String,
    /// The machine: CPU model, kernel, governor, isolation…
    pub host: Vec<Fact>,
    /// What was done: durations, rates, frame sizes, the tester's own ceiling…
    pub conditions: Vec<Fact>,
    /// What to bear in mind when reading the figures.
    pub notes: Vec<String>,
    /// The figures and tables, in their order.
    pub sections: Vec<Section>,
    /// The results from which all this was made, embedded as they are.
    pub results: serde_json::Value,
}

/// A name and what is known under it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fact {
    /// "CPU", "kernel".
    pub name: String,
    /// The value, or why it is unknown.
    pub value: Known,
}

impl Fact {
    /// A fact.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: Known::Value(value.into()) }
    }
    /// Something that could not be found out, and why.
    pub fn unknown(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), value: Known::Unknown(reason.into()) }
    }
    /// A reading, as `show` writes it, or why there is none.
    pub fn of<T>(name: &str, reading: &Reading<T>, show: impl Fn(&T) -> String) -> Self {
        match (&reading.value, &reading.unknown_because) {
            (Some(value), _) => Self::new(name, show(value)),
            (None, why) => Self::unknown(name, why.clone().unwrap_or_default()),
        }
    }
    /// What is known of a host, in the order of every report.
    pub fn of_host(host: &HostState) -> Vec<Self> {
        let text = |text: &String| if text.is_empty() { "none".to_owned() } else { text.clone() };
        vec![
            Self::of("CPU", &host.cpu_model, text),
            Self::of("CPUs online", &host.cpus_online, text),
            Self::of("kernel", &host.kernel, text),
            Self::of("virtualised", &host.virtualised, |yes| if *yes { "yes" } else { "no" }.to_owned()),
            Self::of("governors", &host.governors, |all| all.join(", ")),
            Self::of("idle states", &host.c_states, |states| {
                format!("{}: {}", states.driver, states.enabled.join(", "))
            }),
            Self::of("isolated CPUs", &host.isolated_cpus, text),
            Self::of("CPUs without a tick", &host.nohz_full_cpus, text),
            Self::of("CPUs for new interrupts", &host.irq_affinity, text),
            Self::of("microcode", &host.microcode, text),
            Self::of("mitigations", &host.mitigations, |all| match all.is_empty() {
                true => "none".to_owned(),
                false => all.join("; "),
            }),
        ]
    }
}

/// A value, or the reason why there is none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The value.
    Value(String),
    /// Why it is unknown.
    Unknown(String),
}

/// A part of a report.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// One quantity against another, one mark a series.
    Scatter(Scatter),
    /// How much of a distribution lies above each value.
    Distribution(Distribution),
    /// One quantity over another, a line a series.
    Trace(Trace),
    /// One quantity, one bar a series.
    Bars(Bars),
    /// Numbers.
    Table(Table),
}

/// What an axis shows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Axis {
    /// The quantity: "CPU time".
    pub quantity: String,
    /// Its unit: "us", "% of one core".
    pub unit: String,
    /// How values are spread along it.
    pub scale: Scale,
}

impl Axis {
    /// An axis on which equal differences are equally far apart. It begins at 0.
    pub fn linear(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { quantity: quantity.into(), unit: unit.into(), scale: Scale::Linear }
    }
    /// An axis on which equal factors are equally far apart.
    pub fn log(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(quantity, unit) }
    }
}

/// How values are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal factors are equally far apart.
    Log,
}

/// A measured value with the interval that it is known to lie in.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The best guess.
    pub value: f64,
    /// The confidence interval, if there is one.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// A value without an interval.
    pub const fn exact(value: f64) -> Self {
        Self { value, interval: None }
    }
    /// A value between `low` and `high`.
    pub const fn between(value: f64, low: f64, high: f64) -> Self {
        Self { value, interval: Some((low, high)) }
    }
}

/// A line across a figure: what was asked for.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Goal {
    /// "p99 ≤ 60 us".
    pub label: String,
    /// Where it lies on the latency axis.
    pub value: f64,
}

/// One quantity against another; panels share their axes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scatter {
    /// What the figure shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// One plot a condition, side by side.
    pub panels: Vec<ScatterPanel>,
}

/// One plot of a [`Scatter`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScatterPanel {
    /// The condition: "Poisson, 20 kpps".
    pub title: String,
    /// The marks.
    pub points: Vec<ScatterPoint>,
    /// Lines across, on the vertical axis.
    pub goals: Vec<Goal>,
}

/// A mark.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScatterPoint {
    /// Whose it is. A series looks the same in all figures of a report.
    pub series: String,
    /// Where it is, horizontally.
    pub x: Estimate,
    /// Where it is, vertically.
    pub y: Estimate,
}

/// Complementary distributions: the share of samples above each value, both logarithmic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Distribution {
    /// What the figure shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The quantity.
    pub x: Axis,
    /// One plot a condition, one below the other.
    pub panels: Vec<DistributionPanel>,
}

/// One plot of a [`Distribution`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DistributionPanel {
    /// The condition.
    pub title: String,
    /// The lines.
    pub lines: Vec<TailLine>,
    /// Lines from top to bottom.
    pub goals: Vec<Goal>,
}

/// The distribution of one series.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TailLine {
    /// Whose it is.
    pub series: String,
    /// All samples: drawn thin.
    pub all: Vec<TailPoint>,
    /// Those outside the gaps in which the machine took the CPU away: drawn thick. Empty if they
    /// were not told apart; then `all` is drawn thick.
    pub clean: Vec<TailPoint>,
}

/// A point of a complementary distribution.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TailPoint {
    /// The value.
    pub value: f64,
    /// The share of samples above it, 0 to 1.
    pub above: f64,
}

/// One quantity over another, as lines through many points in their order; panels share their axes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// What the figure shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The horizontal axis, time as a rule.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// One plot a condition, one below the other.
    pub panels: Vec<TracePanel>,
}

/// One plot of a [`Trace`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TracePanel {
    /// The condition.
    pub title: String,
    /// The lines.
    pub lines: Vec<TraceLine>,
    /// What happened meanwhile: lines from top to bottom.
    pub events: Vec<TraceEvent>,
}

/// A line of a [`TracePanel`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceLine {
    /// Whose it is.
    pub series: String,
    /// Its points, horizontal and vertical.
    pub points: Vec<(f64, f64)>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceEvent {
    /// What, for those who hover over it.
    pub label: String,
    /// Where, on the horizontal axis.
    pub x: f64,
}

/// Horizontal bars from zero.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bars {
    /// What the figure shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The quantity, on a linear axis: a bar's length is its value.
    pub quantity: String,
    /// Its unit.
    pub unit: String,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// Whose it is.
    pub series: String,
    /// Its length.
    pub value: Estimate,
}

/// A table of numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The columns, from the left.
    pub columns: Vec<Column>,
    /// The rows, from the top; each has one cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// What a column shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Column {
    /// The quantity.
    pub quantity: String,
    /// Its unit; empty for text and for mere numbers.
    pub unit: String,
}

impl Column {
    /// A column of `quantity` in `unit`.
    pub fn new(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { quantity: quantity.into(), unit: unit.into() }
    }
}

/// What stands in a table.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Text.
    Text(String),
    /// A whole number, shown with every digit.
    Count(u64),
    /// A measured number, shown with three significant digits (four from 1000 on), with all of them
    /// on hovering and in the embedded data.
    Number(Estimate),
    /// A number that there is not, and why.
    Unknown(String),
}

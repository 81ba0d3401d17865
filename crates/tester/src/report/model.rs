//! The content of a report as plain data. Other modules decide how it looks.
//!
//! Values are in the unit that their [`Axis`] or [`Column`] names. A value cannot be drawn if it is not finite, or if
//! it is not above zero on a logarithmic axis. The figure then says in words that the value is missing.

use serde::Serialize;

use crate::host::{HostState, Reading};

/// A report: one HTML file.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Heading of the page.
    pub title: String,
    /// The result in one or two sentences.
    pub lead: String,
    /// Facts about the host: CPU model, kernel, governor, isolation and so on.
    pub host: Vec<Fact>,
    /// Conditions of the measurement: durations, rates, frame sizes, limits of the tester and so on.
    pub conditions: Vec<Fact>,
    /// Remarks that a reader must know to understand the figures, such as which samples are excluded.
    pub notes: Vec<String>,
    /// Figures and tables, in order.
    pub sections: Vec<Section>,
    /// The results from which the report was made, embedded unchanged as JSON; see [`super::without_histograms`].
    pub results: serde_json::Value,
}

/// A named value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fact {
    /// The name, such as "CPU" or "kernel".
    pub name: String,
    /// The value, or why it is unknown.
    pub value: Known,
}

impl Fact {
    /// A known fact.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: Known::Value(value.into()) }
    }
    /// An unknown fact, with the reason.
    pub fn unknown(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), value: Known::Unknown(reason.into()) }
    }
    /// A fact from a reading: the value formatted by `show`, or why it is unknown.
    pub fn of<T>(name: &str, reading: &Reading<T>, show: impl Fn(&T) -> String) -> Self {
        match (&reading.value, &reading.unknown_because) {
            (Some(value), _) => Self::new(name, show(value)),
            (None, why) => Self::unknown(name, why.clone().unwrap_or_default()),
        }
    }
    /// The facts about a host, in the same order in all reports.
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
            Self::of("tickless CPUs", &host.nohz_full_cpus, text),
            Self::of("CPUs for new interrupts", &host.irq_affinity, text),
            Self::of("microcode", &host.microcode, text),
            Self::of("mitigations", &host.mitigations, |all| match all.is_empty() {
                true => "none".to_owned(),
                false => all.join("; "),
            }),
        ]
    }
}

/// A value, or why it is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// A known value.
    Value(String),
    /// The reason why the value is unknown.
    Unknown(String),
}

/// A figure or table of a report.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// One quantity against another, with one mark per series.
    Scatter(Scatter),
    /// The share of a distribution above each value.
    Distribution(Distribution),
    /// One quantity over another, such as time, with one line per series.
    Trace(Trace),
    /// One quantity, with one bar per series.
    Bars(Bars),
    /// A table of numbers.
    Table(Table),
}

/// An axis of a figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Axis {
    /// The quantity, such as "CPU time".
    pub quantity: String,
    /// Unit of the axis, such as "us" or "% of one core".
    pub unit: String,
    /// Linear or logarithmic.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis, which starts at 0.
    pub fn linear(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { quantity: quantity.into(), unit: unit.into(), scale: Scale::Linear }
    }
    /// A logarithmic axis.
    pub fn log(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(quantity, unit) }
    }
}

/// How values are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences have equal distances.
    Linear,
    /// Equal ratios have equal distances.
    Log,
}

/// A measured value and its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The estimated value.
    pub value: f64,
    /// The 95 % confidence interval; None if unknown.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// A value without a confidence interval.
    pub const fn exact(value: f64) -> Self {
        Self { value, interval: None }
    }
    /// A value with the confidence interval from `low` to `high`.
    pub const fn between(value: f64, low: f64, high: f64) -> Self {
        Self { value, interval: Some((low, high)) }
    }
}

/// A latency goal, drawn as a line across a figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Goal {
    /// Label of the goal, such as "p99 ≤ 60 us".
    pub label: String,
    /// Position of the goal on the latency axis.
    pub value: f64,
}

/// A figure of one quantity against another, with one mark per series. All panels have the same axes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scatter {
    /// What the figure shows.
    pub title: String,
    /// Caption that explains how to read the plot or table.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// One plot per condition, side by side.
    pub panels: Vec<ScatterPanel>,
}

/// One plot of a [`Scatter`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScatterPanel {
    /// The condition, such as "Poisson, 20 kpps".
    pub title: String,
    /// The marks.
    pub points: Vec<ScatterPoint>,
    /// Goals, drawn as horizontal lines at their value on the vertical axis.
    pub goals: Vec<Goal>,
}

/// One mark of a scatter plot.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScatterPoint {
    /// Name of the mark's series. A series looks the same in all figures of a report.
    pub series: String,
    /// Value on the horizontal axis, with its confidence interval.
    pub x: Estimate,
    /// Value on the vertical axis, with its confidence interval.
    pub y: Estimate,
}

/// A figure of complementary distributions: the share of samples above each value, on logarithmic axes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Distribution {
    /// What the figure shows.
    pub title: String,
    /// Caption that explains how to read the plot or table.
    pub caption: String,
    /// The horizontal axis: the quantity whose distribution is shown.
    pub x: Axis,
    /// One plot per condition, one below the other.
    pub panels: Vec<DistributionPanel>,
}

/// One plot of a [`Distribution`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DistributionPanel {
    /// The condition, such as "Poisson, 20 kpps".
    pub title: String,
    /// One curve per series.
    pub lines: Vec<TailLine>,
    /// Goals, as vertical lines.
    pub goals: Vec<Goal>,
}

/// The distribution of one series.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TailLine {
    /// Name of the series.
    pub series: String,
    /// All samples, drawn as a thin line.
    pub all: Vec<TailPoint>,
    /// Samples that met no gap, drawn as a thick line. Empty if gaps were not recorded; then `all` is the thick line.
    pub clean: Vec<TailPoint>,
}

/// A point of a complementary distribution.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TailPoint {
    /// The value on the horizontal axis.
    pub value: f64,
    /// The share of samples above the value, 0 to 1.
    pub above: f64,
}

/// A figure of one quantity over another, as lines through many points in order. All panels have the same axes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// What the figure shows.
    pub title: String,
    /// Caption that explains how to read the plot or table.
    pub caption: String,
    /// The horizontal axis, usually time.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// One plot per condition, one below the other.
    pub panels: Vec<TracePanel>,
}

/// One plot of a [`Trace`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TracePanel {
    /// The title of the plot: the condition under which its traces were taken.
    pub title: String,
    /// One line per series.
    pub lines: Vec<TraceLine>,
    /// Events during the trace, as vertical lines.
    pub events: Vec<TraceEvent>,
}

/// A line of a [`TracePanel`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceLine {
    /// Name of the series.
    pub series: String,
    /// Points of the line, each with its horizontal and vertical value.
    pub points: Vec<(f64, f64)>,
}

/// An event during a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceEvent {
    /// Description, shown on hovering.
    pub label: String,
    /// Position on the horizontal axis.
    pub x: f64,
}

/// A figure of horizontal bars that start at zero.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bars {
    /// What the figure shows.
    pub title: String,
    /// Caption that explains how to read the plot or table.
    pub caption: String,
    /// The quantity; the length of a bar is its value.
    pub quantity: String,
    /// Unit of the quantity.
    pub unit: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// Name of the bar's series.
    pub series: String,
    /// Length of the bar.
    pub value: Estimate,
}

/// A table of numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// Caption that explains how to read the plot or table.
    pub caption: String,
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    /// The rows, from top to bottom, with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Column {
    /// Heading of the column: the name of its quantity.
    pub quantity: String,
    /// Unit of the column; empty for text and plain numbers.
    pub unit: String,
}

impl Column {
    /// A column of `quantity` in `unit`.
    pub fn new(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { quantity: quantity.into(), unit: unit.into() }
    }
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Plain text.
    Text(String),
    /// A whole number, shown with all digits.
    Count(u64),
    /// A measured number, shown to three significant digits (four for values of 1000 or more). The tooltip and the
    /// embedded data have all digits.
    Number(Estimate),
    /// An unknown number, with the reason.
    Unknown(String),
}

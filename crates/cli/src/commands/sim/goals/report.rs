//! Shows cases as a report: a plot of power against lateness, and a list of the cases that `adaptive` loses. Power is
//! relative to the best rival, and lateness to what the goal allows.

use tester::report::model::{
    Axis, Cell, Column, Distribution, DistributionPanel, Estimate, Fact, Goal, Report, Scatter, ScatterPanel,
    ScatterPoint, Section, Table, TailLine, TailPoint,
};
use units::Nanos;

use super::say::{of_allowed, why};
use crate::documents::goals::{Case, Document};

/// Builds the report; `results` is the JSON document to embed.
pub fn report(document: &Document, results: serde_json::Value) -> Report {
    let count = |verdict: &str| document.summary.verdicts.get(verdict).copied().unwrap_or(0);
    let cases = &document.cases;
    let mut sections = vec![Section::Scatter(picture(cases))];
    sections.extend(multiples(cases).map(Section::Distribution));
    sections.push(Section::Table(table(cases)));
    Report {
        title: "Apus: which waiting mode meets a goal with the least power".into(),
        lead: format!(
            "Of {} goals, adaptive wins {} and ties {}. It loses {} on power to rivals at their own settings and {} to rivals tuned in hindsight, and misses {} that a rival meets. No mode meets {}; {} had too few packets to judge.",
            cases.len(),
            count("won"),
            count("tied"),
            count("lost"),
            count("lost_to_tuned"),
            count("missed"),
            count("nobody_holds"),
            count("too_few_packets"),
        ),
        host: Vec::new(),
        conditions: vec![
            Fact::new("Grid", document.grid.as_str()),
            Fact::new("Seeds", format!("{}, from {}", document.seeds, document.seed)),
            Fact::new("Warm-up", Nanos::from_nanos(document.warm_up_ns).to_string()),
            Fact::new("Hold-off", if document.hold_off { "chosen by adaptive" } else { "none" }),
            Fact::new("Limit of idle states", if document.idle_limit { "chosen by adaptive" } else { "none" }),
        ],
        notes: vec!["All numbers are simulated; nothing was measured for this report.".into()],
        sections,
        results,
    }
}

/// Draws one panel per kind of traffic.
fn picture(cases: &[Case]) -> Scatter {
    let mut kinds: Vec<&str> = cases.iter().map(|case| case.traffic.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let point = |case: &Case| {
        let (low, high) = case.power_multiple_ci95.unzip();
        let power = case.power_multiple?;
        Some(ScatterPoint {
            series: case.verdict.replace('_', " "),
            x: low.zip(high).map_or(Estimate::exact(power), |(low, high)| Estimate::between(power, low.max(0.0), high)),
            y: Estimate::exact(of_allowed(case, case.ways.last()?)),
        })
    };
    let panels = kinds.into_iter().map(|kind| ScatterPanel {
        title: kind.to_owned(),
        points: cases.iter().filter(|case| case.traffic == kind).filter_map(point).collect(),
        goals: vec![Goal { label: "allowed".into(), value: 1.0 }],
    });
    Scatter {
        title: "Power against late packets, one mark per goal".into(),
        caption:
            "Left of 1: less power than the best rival that meets the goal. Below the line: no more late packets than the goal allows. Goals that no rival meets are not shown."
                .into(),
        x: Axis::linear("power of adaptive", "x that of the rival"),
        y: Axis::linear("late packets", "x the share that the goal allows"),
        panels: panels.collect(),
    }
}

/// Draws how the power of `adaptive` is distributed over the goals, relative to the best rival and to the minimum
/// possible power.
fn multiples(cases: &[Case]) -> Option<Distribution> {
    let line = |series: &str, of: fn(&Case) -> Option<f64>| {
        let mut values: Vec<f64> = cases.iter().filter_map(of).filter(|value| *value > 0.0).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let point = |(rank, value): (usize, f64)| TailPoint { value, above: (n - rank) as f64 / n as f64 };
        let all: Vec<TailPoint> = values.into_iter().enumerate().map(point).collect();
        (n > 1).then(|| TailLine { series: series.to_owned(), all, clean: Vec::new() })
    };
    let lines: Vec<TailLine> = [
        // The power of a case that adaptive misses says nothing.
        line("relative to the best rival", |case| case.power_multiple.filter(|_| case.verdict.as_str() != "missed")),
        line("relative to the least possible", |case| case.bound_multiple),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!lines.is_empty()).then(|| Distribution {
        title: "Power of adaptive, over all goals".into(),
        caption: "Share of goals in which adaptive draws at least this multiple of the power. Only goals that adaptive meets count.".into(),
        x: Axis::log("power of adaptive", "x"),
        panels: vec![DistributionPanel { title: "all goals".into(), lines, goals: Vec::new() }],
    })
}

fn table(cases: &[Case]) -> Table {
    let exact = |value: Option<f64>, why: &str| {
        value.map_or_else(|| Cell::Unknown(why.into()), |value| Cell::Number(Estimate::exact(value)))
    };
    let beaten = |case: &&Case| matches!(case.verdict.as_str(), "missed" | "lost" | "lost_to_tuned");
    let row = |case: &Case| {
        let ours = case.ways.last();
        let rival = case.ways.iter().find(|way| Some(&way.way) == case.rival.as_ref());
        let power = |way: Option<&crate::documents::goals::Way>| way.map(|way| way.power_uw as f64 / 1e6);
        vec![
            Cell::Text(case.machine.clone()),
            Cell::Text(case.traffic.clone()),
            exact(case.load_percent, "the traffic comes from a file"),
            Cell::Text(case.deepest.clone()),
            Cell::Text(if case.peak_pps.is_some() { "told" } else { "untold" }.into()),
            Cell::Text(case.goal.clone()),
            Cell::Text(case.verdict.replace('_', " ")),
            exact(power(ours), "not simulated"),
            exact(ours.map(|ours| of_allowed(case, ours)), "not simulated"),
            Cell::Text(case.rival.clone().unwrap_or_default()),
            exact(power(rival), "no rival meets the goal"),
            exact(case.power_multiple, "no rival meets the goal"),
            Cell::Text(why(case)),
            exact(case.bound_multiple, "not computed, or adaptive misses the goal"),
        ]
    };
    let columns = [
        ("machine", ""),
        ("traffic", ""),
        ("load", "%"),
        ("idle", ""),
        ("peak", ""),
        ("goal", ""),
        ("verdict", ""),
        ("adaptive", "W"),
        ("late", "x allowed"),
        ("rival", ""),
        ("rival", "W"),
        ("power", "x that of the rival"),
        ("because", ""),
        ("power", "x the least"),
    ];
    Table {
        title: "Goals that adaptive loses or misses".into(),
        caption: "64-byte frames on one core. Load is in percent of the packet rate that the core forwards at its base frequency. All goals are in the embedded data."
            .into(),
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: cases.iter().filter(beaten).map(row).collect(),
    }
}

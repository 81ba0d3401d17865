//! The table and the HTML report of `apus power sweep`.

use std::fmt::Write as _;

use tester::host::Reading;
use tester::report::model::{
    Axis, Cell, Column, Estimate, Fact, Report, Scatter, ScatterPanel, ScatterPoint, Section, Table,
};

use crate::documents::sweep::{Level, Sweep};

/// Formats the results as a table for a terminal.
pub fn table(document: &Sweep) -> String {
    let mut text = String::new();
    let us = |reading: &Reading<u64>| match (reading.value, &reading.unknown_because) {
        (Some(ns), _) => format!("{:.1} us", ns as f64 / 1e3),
        (None, why) => format!("unknown ({})", why.as_deref().unwrap_or("no reason given")),
    };
    let asked: u64 = document.blocks.iter().map(|block| block.asked).sum();
    let as_asked: u64 = document.blocks.iter().map(|block| block.as_asked).sum();
    let _ = writeln!(text, "CPU {} (policy {}), {}", document.cpu, document.policy, document.schedule);
    let _ = writeln!(
        text,
        "longest latency with {asked} frequency changes ({as_asked} carried out as requested): {}",
        us(&document.changing_longest_ns)
    );
    let _ = writeln!(text, "longest latency without frequency changes: {}", us(&document.steady_longest_ns));
    let _ = writeln!(text, "\n{:>10} {:>8} {:>14} {:>14}  energy", "frequency", "CPU %", "ns/frame", "longest");
    for level in &document.levels {
        let frequency = format!("{:.3} GHz", level.frequency_hz as f64 / 1e9);
        let cpu = level.cpu_percent.value.map_or("-".to_owned(), |percent| format!("{percent:.1}"));
        let service = level.service_time_ns.value.map_or("-".to_owned(), |ns| ns.to_string());
        let longest = level.longest_clean_ns.value.map_or("-".to_owned(), |ns| format!("{:.1} us", ns as f64 / 1e3));
        let refused = if level.as_asked { "" } else { "  NOT SET as requested" };
        let _ =
            writeln!(text, "{frequency:>10} {cpu:>8} {service:>14} {longest:>14}  {}{refused}", level.energy.says());
    }
    for note in &document.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Builds the report: plots like figures 6 and 7 of Intel's P-state guide (637284-001US), with one dot per second, and
/// a table of the frequencies.
pub fn report(document: &Sweep) -> anyhow::Result<Report> {
    let panel = |title: &str, changing: bool| {
        let blocks = document.blocks.iter().filter(|block| block.changing == changing);
        let point = |second: &crate::documents::sweep::Second| {
            let y = Estimate::exact(second.longest_clean_ns? as f64 / 1e3);
            Some(ScatterPoint { series: title.into(), x: Estimate::exact(second.second as f64), y })
        };
        let points = blocks.flat_map(|block| &block.seconds).filter_map(point).collect();
        ScatterPanel { title: title.into(), points, goals: Vec::new() }
    };
    let panels = [panel("frequency changes", true), panel("no changes", false)];
    let panels: Vec<ScatterPanel> = panels.into_iter().filter(|panel| !panel.points.is_empty()).collect();
    let mut sections = Vec::new();
    if !panels.is_empty() {
        sections.push(Section::Scatter(Scatter {
            title: "Longest latency of each second".into(),
            caption:
                "One dot per second. Frames under way while the tester or the forwarder had lost its CPU are left out."
                    .into(),
            x: Axis::linear("time", "s"),
            y: Axis::linear("longest latency", "us"),
            panels,
        }));
    }
    sections.push(Section::Table(levels(&document.levels)));
    let host = document.host.value.as_ref().map(Fact::of_host).unwrap_or_default();
    let fact = |name: &str, value: String| Fact::new(name, value);
    Ok(Report {
        title: "Apus: forwarding while the frequency changes".into(),
        lead: String::new(),
        host,
        conditions: vec![
            fact("CPU", document.cpu.to_string()),
            fact("traffic", document.schedule.clone()),
            fact("time between changes", format!("{} ms", document.period_ns / 1_000_000)),
        ],
        notes: document.notes.clone(),
        sections,
        results: serde_json::to_value(document)?,
    })
}

fn levels(levels: &[Level]) -> Table {
    let cell = |value: Option<f64>, why: Option<&String>| match value {
        Some(value) => Cell::Number(Estimate::exact(value)),
        None => Cell::Unknown(why.cloned().unwrap_or_default()),
    };
    let row = |level: &Level| {
        let measured = &level.energy.measured;
        let power = measured.value.as_ref().and_then(|of| of.power_uw).map(|uw| uw as f64 / 1e6);
        let service = &level.service_time_ns;
        vec![
            Cell::Number(Estimate::exact(level.frequency_hz as f64 / 1e9)),
            cell(power, measured.unknown_because.as_ref()),
            cell(level.cpu_percent.value, level.cpu_percent.unknown_because.as_ref()),
            cell(service.value.map(|ns| ns as f64), service.unknown_because.as_ref()),
            Cell::Text(if level.as_asked { "yes".into() } else { "no".into() }),
        ]
    };
    Table {
        title: "Power and CPU time at each frequency".into(),
        caption:
            "Measured while forwarding. A polling forwarder always uses its whole core, so only the time per frame shows the frequency."
                .into(),
        columns: vec![
            Column::new("frequency", "GHz"),
            Column::new("power", "W"),
            Column::new("CPU time", "%"),
            Column::new("time per frame", "ns"),
            Column::new("set as requested", ""),
        ],
        rows: levels.iter().map(row).collect(),
    }
}

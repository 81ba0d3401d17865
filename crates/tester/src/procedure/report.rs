//! The report on results of `apus bench rfc2544`: rate and latency against frame size, loss against load.

use super::result::{Rfc2544Document, SizeResult};
use crate::host::Reading;
use crate::report::model::{Axis, Cell, Column, Estimate, Fact, Report, Section, Table, Trace, TraceLine, TracePanel};
use crate::report::without_histograms;

/// Builds the report on several results, each with its name. Every figure and table shows them side by side.
pub fn report(title: &str, results: &[(String, Rfc2544Document)]) -> Report {
    let sections = [Section::Trace(rates(results)), Section::Trace(latencies(results))]
        .into_iter()
        .chain(loss(results).map(Section::Trace))
        .chain([Section::Table(table(results))])
        .chain(warnings(results).map(Section::Table));
    let standards = results.iter().map(|(name, document)| (name, document.result.standard.clone()));
    let deviations = results.iter().flat_map(|(name, document)| {
        document.result.deviations.iter().map(move |deviation| (name, format!("deviation: {deviation}")))
    });
    let mut notes = shared(results.len(), deviations);
    for (name, document) in results {
        notes.extend(document.result.ended.because.iter().map(|why| format!("{name} is incomplete: {why}.")));
    }
    let condition = |(name, document): &(String, Rfc2544Document)| {
        let setup = &document.setup;
        let ways = if setup.bidirectional { "both directions" } else { "one direction" };
        let device = setup.device.as_deref().unwrap_or("device not named");
        Fact::new(name, format!("{device}; {} to {}, {ways}; {}", setup.tx_port, setup.rx_port, setup.traffic))
    };
    let documents: Vec<&Rfc2544Document> = results.iter().map(|(_, document)| document).collect();
    Report {
        title: title.into(),
        lead: shared(results.len(), standards).join(" "),
        host: results.first().map(|(_, document)| Fact::of_host(&document.host)).unwrap_or_default(),
        conditions: results.iter().map(condition).collect(),
        notes,
        sections: sections.collect(),
        // A document is plain data, so its conversion to JSON cannot fail.
        results: without_histograms(serde_json::to_value(documents).unwrap_or_default()),
    }
}

/// Turns remarks on results into sentences. Identical remarks become one sentence, which names their results, or says
/// "all results" if all `many` results have the remark.
fn shared<'a>(many: usize, remarks: impl Iterator<Item = (&'a String, String)>) -> Vec<String> {
    let mut grouped: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, remark) in remarks {
        match grouped.iter_mut().find(|(known, _)| *known == remark) {
            Some((_, names)) => names.push(name),
            None => grouped.push((remark, vec![name])),
        }
    }
    let sentence = |(remark, names): (String, Vec<&str>)| {
        let whose = if names.len() == many && many > 1 { "all results".to_owned() } else { names.join(", ") };
        format!("{whose}: {remark}.")
    };
    grouped.into_iter().map(sentence).collect()
}

/// A table of the warnings of all results; `None` if there are none. The warnings have their own table, because there
/// can be many.
fn warnings(results: &[(String, Rfc2544Document)]) -> Option<Table> {
    let row = |name: &str, size: &SizeResult, warning: &str| {
        vec![Cell::Text(name.into()), Cell::Text(size.frames.clone()), Cell::Text(warning.into())]
    };
    let rows: Vec<Vec<Cell>> = results
        .iter()
        .flat_map(|(name, document)| document.result.sizes.iter().map(move |size| (name, size)))
        .flat_map(|(name, size)| size.warnings.iter().map(move |warning| row(name, size, warning)))
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: "Warnings".into(),
        caption: "What may make a result differ from what the device can do.".into(),
        columns: vec![Column::new("result", ""), Column::new("frame", "bytes"), Column::new("warning", "")],
        rows,
    })
}

fn panel(title: &str, lines: Vec<TraceLine>) -> TracePanel {
    TracePanel { title: title.into(), lines, events: Vec::new() }
}

fn by_size(
    results: &[(String, Rfc2544Document)],
    value: impl Fn(&SizeResult) -> Option<f64>,
) -> impl Iterator<Item = TraceLine> {
    results.iter().map(move |(name, document)| {
        let points = document.result.sizes.iter();
        let mut points: Vec<(f64, f64)> = points.filter_map(|size| Some((size.mean_octets, value(size)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        TraceLine { series: name.clone(), points }
    })
}

/// Throughput against frame size. RFC 2544, 26.1 requires the theoretical maximum in the same plot.
fn rates(results: &[(String, Rfc2544Document)]) -> Trace {
    let kpps = |pps: f64| pps / 1e3;
    let measured = |size: &SizeResult| size.throughput_pps.value.as_ref().map(|found| kpps(found.median));
    let mut lines: Vec<TraceLine> = by_size(results, measured).collect();
    let line = results.iter().max_by_key(|(_, document)| document.result.sizes.len());
    if let Some((_, document)) = line {
        let one = [("theoretical line rate".to_owned(), document.clone())];
        lines.extend(by_size(&one, |size| size.line_rate_pps.value.map(kpps)).filter(|line| !line.points.is_empty()));
    }
    Trace {
        title: "Throughput against frame size".into(),
        caption: "The highest rate without loss in each direction, and the theoretical maximum of the line. Where no frame was lost even at the highest rate tried, the table below marks the throughput with >=.".into(),
        x: Axis::linear("frame size", "bytes"),
        y: Axis::log("throughput", "kpps"),
        panels: vec![panel("throughput", lines)],
    }
}

fn latencies(results: &[(String, Rfc2544Document)]) -> Trace {
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    let all = |size: &SizeResult| size.latency.value.as_ref().map(|latency| latency.all.clone());
    let of = |pick: fn(&crate::document::Distribution) -> Option<u64>| {
        by_size(results, move |size| us(all(size).as_ref().and_then(pick))).collect()
    };
    Trace {
        title: "Latency against frame size".into(),
        caption: "At the throughput of each size, from the intended send time until the tester receives the frame."
            .into(),
        x: Axis::linear("frame size", "bytes"),
        y: Axis::log("latency", "us"),
        panels: vec![
            panel("minimum", of(|all| all.min_ns)),
            panel("average", of(|all| all.mean_ns)),
            panel("p99", of(|all| all.p99_ns)),
            panel("maximum", of(|all| all.max_ns)),
        ],
    }
}

/// Loss against load, with one plot for each frame size; `None` if no result has a loss curve.
fn loss(results: &[(String, Rfc2544Document)]) -> Option<Trace> {
    let mut panels: Vec<TracePanel> = Vec::new();
    for (name, document) in results {
        for size in &document.result.sizes {
            let Some(rows) = &size.loss.value else { continue };
            let mut points: Vec<(f64, f64)> =
                rows.iter().filter_map(|row| Some((row.load_percent, row.loss_percent?))).collect();
            points.reverse();
            let line = TraceLine { series: name.clone(), points };
            match panels.iter_mut().find(|panel| panel.title == size.frames) {
                Some(panel) => panel.lines.push(line),
                None => panels.push(panel(&size.frames, vec![line])),
            }
        }
    }
    (!panels.is_empty()).then(|| Trace {
        title: "Loss against load".into(),
        caption: "Share of sent frames that were not forwarded. The load is in percent of the highest rate.".into(),
        x: Axis::linear("load", "%"),
        y: Axis::linear("loss", "%"),
        panels,
    })
}

fn table(results: &[(String, Rfc2544Document)]) -> Table {
    let mut columns = vec![Column::new("result", ""), Column::new("frame", "bytes"), Column::new("throughput", "kpps")];
    for quantity in ["minimum", "average", "maximum", "p50", "p99", "p99.9", "worst case", "delay variation"] {
        columns.push(Column::new(quantity, "us"));
    }
    columns.extend([
        Column::new("buffer", "us"),
        Column::new("recovery", "us"),
        Column::new("tester can send", "kpps"),
    ]);
    let cell = |value: Option<f64>, why: &Option<String>| match value {
        Some(value) => Cell::Number(Estimate::exact(value)),
        None => Cell::Unknown(why.clone().unwrap_or_else(|| "too few samples".into())),
    };
    let row = |name: &str, size: &SizeResult| {
        let throughput = match (&size.throughput_pps.value, &size.throughput_pps.unknown_because) {
            (Some(found), _) if size.at_least => Cell::Text(format!(">= {:.1}", found.median / 1e3)),
            (Some(found), _) => Cell::Number(match found.ci95_low.zip(found.ci95_high) {
                Some((low, high)) => Estimate::between(found.mean / 1e3, low / 1e3, high / 1e3),
                None => Estimate::exact(found.median / 1e3),
            }),
            (None, why) => Cell::Unknown(why.clone().unwrap_or_default()),
        };
        let mut cells = vec![Cell::Text(name.into()), Cell::Text(size.frames.clone()), throughput];
        let latency = size.latency.value.as_ref();
        let why = &size.latency.unknown_because;
        let all = latency.map(|latency| &latency.all);
        let picks: [Option<u64>; 6] = [
            all.and_then(|all| all.min_ns),
            all.and_then(|all| all.mean_ns),
            all.and_then(|all| all.max_ns),
            all.and_then(|all| all.p50_ns),
            all.and_then(|all| all.p99_ns),
            all.and_then(|all| all.p99_9_ns),
        ];
        cells.extend(picks.map(|ns| cell(ns.map(|ns| ns as f64 / 1e3), why)));
        for of in [latency.map(|latency| &latency.worst_case_ns), latency.map(|latency| &latency.pdv_ns)] {
            let known = of.and_then(|reading| reading.value.as_ref()).map(|found| found.median / 1e3);
            cells.push(cell(known, of.map_or(why, |reading| &reading.unknown_because)));
        }
        let buffer: &Reading<_> = &size.back_to_back;
        cells.push(match &buffer.value {
            Some(found) if found.is_lower_bound() => Cell::Text(format!(">= {:.1}", found.corrected_buffer_ns / 1e3)),
            found => cell(found.as_ref().map(|found| found.corrected_buffer_ns / 1e3), &buffer.unknown_because),
        });
        let recovery = size.recovery_ns.value.as_ref().map(|found| found.mean / 1e3);
        cells.push(cell(recovery, &size.recovery_ns.unknown_because));
        let ceiling = size.tester_ceiling_pps.value.map(|pps| pps as f64 / 1e3);
        cells.push(cell(ceiling, &size.tester_ceiling_pps.unknown_because));
        cells
    };
    let rows = results.iter().flat_map(|(name, document)| document.result.sizes.iter().map(|size| row(name, size)));
    Table {
        title: "Each frame size".into(),
        caption: "Rates are per direction; >= marks a lower bound. Latency is at the throughput; the buffer is the corrected buffer time of RFC 9004."
            .into(),
        columns,
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_for_several_results_is_said_once() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let remarks =
            |of: &[(usize, &str)]| of.iter().map(|(n, text)| (&names[*n], (*text).to_owned())).collect::<Vec<_>>();
        let said = shared(3, remarks(&[(0, "x"), (0, "y"), (1, "x"), (2, "x"), (2, "z"), (1, "z")]).into_iter());
        assert_eq!(said, ["all results: x.", "a: y.", "c, b: z."]);
        assert_eq!(shared(1, remarks(&[(0, "x")]).into_iter()), ["a: x."]);
    }
}

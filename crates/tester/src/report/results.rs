//! Builds a report from the documents that `apus bench` writes.

use super::model::{
    Axis, Bar, Bars, Cell, Column, Distribution, DistributionPanel, Estimate, Fact, Goal, Report, Scatter,
    ScatterPanel, ScatterPoint, Section, Table, TailLine,
};
use super::{energy, tail, without_histograms};
use crate::host::{HostState, Reading};
use crate::result::{Document, FloodResult, LatencyResult, LoadResult, Measured};

/// Nanoseconds per microsecond.
const US: f64 = 1e3;

/// Builds the report of several results, each with its name.
pub fn of_results(title: &str, results: &[(String, Document)]) -> Report {
    let mut latencies: Vec<(&str, &LatencyResult)> = Vec::new();
    let (mut loads, mut floods) = (Vec::new(), Vec::new());
    for (name, document) in results {
        match &document.result {
            Measured::Latency(latency) => latencies.push((name, latency)),
            Measured::Load(load) => loads.push((name.as_str(), &**load)),
            Measured::Flood(flood) => floods.push((name.as_str(), &**flood)),
        }
    }
    let mut sections = Vec::new();
    if !latencies.is_empty() {
        sections.extend(scatter(&latencies).map(Section::Scatter));
        sections.push(Section::Distribution(distribution(&latencies)));
        sections.push(Section::Table(latency_table(&latencies)));
    }
    if !loads.is_empty() {
        sections.push(Section::Table(load_table(&loads)));
    }
    if !floods.is_empty() {
        sections.extend(flood_bars(&floods).map(Section::Bars));
        sections.push(Section::Table(flood_table(&floods)));
    }
    let energies = latencies.iter().map(|(name, result)| (*name, &result.energy));
    let energies = energies.chain(floods.iter().map(|(name, result)| (*name, &result.energy)));
    sections.extend(energy::bars(&energies.collect::<Vec<_>>()).into_iter().map(Section::Bars));
    let documents: Vec<&Document> = results.iter().map(|(_, document)| document).collect();
    Report {
        title: title.into(),
        lead: String::new(),
        host: results.first().map(|(_, document)| host(&document.host)).unwrap_or_default(),
        conditions: latencies.iter().map(|(name, result)| Fact::new(*name, conditions(result))).collect(),
        notes: notes(results, &latencies),
        sections,
        // A document is plain data, so its conversion to JSON cannot fail.
        results: without_histograms(serde_json::to_value(documents).unwrap_or_default()),
    }
}

fn notes(results: &[(String, Document)], latencies: &[(&str, &LatencyResult)]) -> Vec<String> {
    let mut notes = Vec::new();
    if !latencies.is_empty() {
        notes.push(
            "Thick lines and quantiles exclude samples from times when the host had stopped a busy loop; the table shows the excluded share. Thin lines include all samples."
                .into(),
        );
    }
    if results.iter().any(|(_, document)| document.host != results[0].1.host) {
        notes.push(
            "The results come from different hosts, or from one host in different states; the first host is shown."
                .into(),
        );
    }
    notes
}

fn host(host: &HostState) -> Vec<Fact> {
    let class =
        Fact::of("tester's class", &host.scheduling_class, |class| format!("{} {}", class.policy, class.rt_priority));
    Fact::of_host(host).into_iter().chain([class]).collect()
}

fn conditions(result: &LatencyResult) -> String {
    let seconds = (result.duration_ns - result.warm_up_ns.min(result.duration_ns)) as f64 / 1e9;
    format!("{}, {} bytes, {seconds:.1} s", result.schedule, result.frame_octets)
}

/// A quantile, in us, of the latencies of frames that met no gap; or why it is unknown.
fn quantile(result: &LatencyResult, name: &str) -> Result<Estimate, String> {
    let Some(found) = result.clean.quantiles.iter().find(|estimate| estimate.quantile == name) else {
        return Err("not recorded".into());
    };
    match (found.latency_ns, found.ci95_low_ns.zip(found.ci95_high_ns)) {
        (Some(ns), Some((low, high))) => Ok(Estimate::between(ns as f64 / US, low as f64 / US, high as f64 / US)),
        (Some(ns), None) => Ok(Estimate::exact(ns as f64 / US)),
        (None, _) => Err(found.refused_because.clone().unwrap_or_default()),
    }
}

fn number<T: Copy>(reading: &Reading<T>, scale: impl Fn(T) -> f64) -> Cell {
    match reading.value {
        Some(value) => Cell::Number(Estimate::exact(scale(value))),
        None => Cell::Unknown(reading.unknown_because.clone().unwrap_or_default()),
    }
}

/// CPU time in percent of one core.
fn cpu(result: &Reading<crate::result::CpuDocument>) -> Cell {
    match result.value {
        Some(used) => Cell::Number(Estimate::exact(100.0 * used.cpu_ns as f64 / used.interval_ns.max(1) as f64)),
        None => Cell::Unknown(result.unknown_because.clone().unwrap_or_default()),
    }
}

/// The schedules, in the order in which they first occur.
fn schedules<'a>(latencies: &[(&'a str, &'a LatencyResult)]) -> Vec<&'a str> {
    let mut known: Vec<&str> = Vec::new();
    for (_, result) in latencies {
        if !known.contains(&result.schedule.as_str()) {
            known.push(&result.schedule);
        }
    }
    known
}

/// Latency against CPU time; `None` if no result has both.
fn scatter(latencies: &[(&str, &LatencyResult)]) -> Option<Scatter> {
    let points = |schedule: &str| -> Vec<ScatterPoint> {
        let of = latencies.iter().filter(|(_, result)| result.schedule == schedule);
        of.filter_map(|(name, result)| {
            let Cell::Number(x) = cpu(&result.tested_cpu) else { return None };
            Some(ScatterPoint { series: (*name).into(), x, y: quantile(result, "p99").ok()? })
        })
        .collect()
    };
    let panels: Vec<ScatterPanel> = schedules(latencies)
        .into_iter()
        .map(|schedule| ScatterPanel {
            title: schedule.into(),
            points: points(schedule),
            goals: goals(latencies, schedule),
        })
        .filter(|panel| !panel.points.is_empty())
        .collect();
    (!panels.is_empty()).then(|| Scatter {
        title: "p99 latency against CPU time".into(),
        caption: "Lower left is better. Bars are 95 % confidence intervals.".into(),
        x: Axis::linear("CPU time", "% of one core"),
        y: Axis::log("p99 latency", "us"),
        panels,
    })
}

fn goals(latencies: &[(&str, &LatencyResult)], schedule: &str) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for (_, result) in latencies.iter().filter(|(_, result)| result.schedule == schedule) {
        if let Some(goal) = &result.goal
            && goals.iter().all(|known| known.label != goal.goal)
        {
            goals.push(Goal { label: goal.goal.clone(), value: goal.bound_ns as f64 / US });
        }
    }
    goals
}

fn distribution(latencies: &[(&str, &LatencyResult)]) -> Distribution {
    let panel = |schedule: &str| DistributionPanel {
        title: schedule.into(),
        lines: latencies
            .iter()
            .filter(|(_, result)| result.schedule == schedule)
            .map(|(name, result)| TailLine {
                series: (*name).into(),
                all: tail(&result.all.histogram),
                clean: tail(&result.clean.histogram),
            })
            .collect(),
        goals: goals(latencies, schedule),
    };
    Distribution {
        title: "Latency distribution".into(),
        caption: "Share of frames with a latency above each value.".into(),
        x: Axis::log("latency", "us"),
        panels: schedules(latencies).into_iter().map(panel).collect(),
    }
}

fn latency_table(latencies: &[(&str, &LatencyResult)]) -> Table {
    let quantiles = ["p50", "p90", "p99", "p99.9", "p99.99"];
    let mut columns = vec![Column::new("result", ""), Column::new("schedule", "")];
    columns.extend(quantiles.map(|name| Column::new(name, "us")));
    for (quantity, unit) in [("maximum", "us"), ("CPU time", "%"), ("wake-ups", "1/s"), ("lost", ""), ("left out", "%")]
    {
        columns.push(Column::new(quantity, unit));
    }
    columns.extend(energy::columns());
    columns.push(Column::new("goal", ""));
    let row = |(name, result): &(&str, &LatencyResult)| {
        let mut cells = vec![Cell::Text((*name).into()), Cell::Text(result.schedule.clone())];
        cells.extend(quantiles.map(|name| quantile(result, name).map_or_else(Cell::Unknown, Cell::Number)));
        cells.push(match result.clean.max_ns {
            Some(ns) => Cell::Number(Estimate::exact(ns as f64 / US)),
            None => Cell::Unknown("no samples, or some above the histogram's range".into()),
        });
        cells.push(cpu(&result.tested_cpu));
        cells.push(match result.tested_cpu.value {
            Some(used) => match used.wakeups_per_s {
                Some(rate) => Cell::Number(Estimate::exact(rate)),
                None => Cell::Unknown("no time passed".into()),
            },
            None => cpu(&result.tested_cpu),
        });
        cells.push(Cell::Count(result.frames.lost));
        cells.push(number(&result.exclusion.share_excluded, |share| share * 100.0));
        cells.extend(energy::cells(&result.energy));
        cells.push(Cell::Text(match &result.goal {
            None => String::new(),
            Some(goal) => match (goal.held.value, &goal.held.unknown_because) {
                (Some(true), _) => format!("{}: met", goal.goal),
                (Some(false), _) => format!("{}: missed", goal.goal),
                (None, why) => format!("{}: unknown: {}", goal.goal, why.as_deref().unwrap_or_default()),
            },
        }));
        cells
    };
    Table {
        title: "Latency".into(),
        caption: "Samples outside gaps, with 95 % confidence intervals; lost counts all frames.".into(),
        columns,
        rows: latencies.iter().map(row).collect(),
    }
}

fn load_table(loads: &[(&str, &LoadResult)]) -> Table {
    let columns = vec![
        Column::new("result", ""),
        Column::new("highest rate that passed", "kpps"),
        Column::new("lowest rate that failed", "kpps"),
        Column::new("end of the search", ""),
        Column::new("p99 there", "us"),
        Column::new("trials", ""),
    ];
    let row = |(name, load): &(&str, &LoadResult)| {
        let p99 = match (&load.latency.value, &load.latency.unknown_because) {
            (Some(latency), _) => quantile(latency, "p99").map_or_else(Cell::Unknown, Cell::Number),
            (None, why) => Cell::Unknown(why.clone().unwrap_or_default()),
        };
        vec![
            Cell::Text((*name).into()),
            number(&load.highest_loss_free_pps, |pps| pps as f64 / 1e3),
            number(&load.lowest_failing_pps, |pps| pps as f64 / 1e3),
            Cell::Text(format!("{:?}", load.end)),
            p99,
            Cell::Count(load.trials.len() as u64),
        ]
    };
    Table {
        title: "Highest rate within the loss limit".into(),
        caption: "Found by a search; the bounds are rates that passed and failed in its trials.".into(),
        columns,
        rows: loads.iter().map(row).collect(),
    }
}

/// Bars of the received rate under a flood; `None` if no flood received a frame.
fn flood_bars(floods: &[(&str, &FloodResult)]) -> Option<Bars> {
    let bar = |(name, flood): &(&str, &FloodResult)| {
        let value = Estimate::exact(flood.received_pps.value? / 1e3);
        Some(Bar { series: (*name).into(), value })
    };
    let bars: Vec<Bar> = floods.iter().filter_map(bar).collect();
    (!bars.is_empty()).then(|| Bars {
        title: "Rate received during a flood".into(),
        caption: "The tester sends as fast as it can; losses are expected.".into(),
        quantity: "received".into(),
        unit: "kpps".into(),
        bars,
    })
}

fn flood_table(floods: &[(&str, &FloodResult)]) -> Table {
    let columns = vec![
        Column::new("result", ""),
        Column::new("frame", "octets"),
        Column::new("sent", "kpps"),
        Column::new("received", "kpps"),
        Column::new("lost by the tester", ""),
        Column::new("CPU time", "%"),
    ];
    let row = |(name, flood): &(&str, &FloodResult)| {
        vec![
            Cell::Text((*name).into()),
            Cell::Count(flood.frame_octets.into()),
            number(&flood.sent_pps, |pps| pps / 1e3),
            number(&flood.received_pps, |pps| pps / 1e3),
            Cell::Count(flood.tester_rx_dropped),
            cpu(&flood.tested_cpu),
        ]
    };
    Table {
        title: "Floods".into(),
        caption: "Counted after the warm-up.".into(),
        columns,
        rows: floods.iter().map(row).collect(),
    }
}

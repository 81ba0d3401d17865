//! The demo's result as a report: figures, tables, and the notes that explain them.

use super::energy;
use super::plan::spaced;
use super::result::{DemoResult, LoadDocument, NEAR};
use super::summary::{Rate, Row, Spread, disturbance, lead, rates, rows};
use super::table;
use crate::Error;
use crate::host::{HostState, Reading};
use crate::report::model::{
    Axis, Bar, Bars, Cell, Column, Distribution, DistributionPanel, Estimate, Fact, Goal, Report, Scatter,
    ScatterPanel, ScatterPoint, Section, Table, TailLine,
};
use crate::report::{tail, without_histograms};

/// Builds the report of a demo.
pub fn report(result: &DemoResult) -> Result<Report, Error> {
    let rows = rows(result)?;
    let rates = rates(result);
    let results = serde_json::to_value(result).expect("plain data with text keys always has a JSON form");
    let results = without_histograms(results);
    Ok(Report {
        title: "Apus demo: latency against CPU time".into(),
        lead: lead(result, &rows),
        host: host(&result.host),
        conditions: conditions(result, &rows),
        notes: notes(result, &rows),
        sections: sections(result, &rows, &rates),
        results,
    })
}

fn sections(result: &DemoResult, rows: &[Row], rates: &[Rate]) -> Vec<Section> {
    let paced: Vec<&LoadDocument> = result.plan.loads.iter().filter(|load| load.id != NEAR).collect();
    let goals = goals(result);
    let bound = |goal: &Goal| Goal { label: format!("\u{2264} {} us", goal.value), value: goal.value };
    let bounds: Vec<Goal> = goals.iter().map(bound).collect();
    let of = |load: &LoadDocument| rows.iter().filter(|row| row.load.id == load.id).collect::<Vec<_>>();
    let panels = paced.iter().map(|load| ScatterPanel {
        title: load.title.clone(),
        points: of(load)
            .into_iter()
            .map(|row| ScatterPoint {
                series: row.mode.name.clone(),
                x: estimate(row.cpu_percent),
                y: estimate(row.p99_us),
            })
            .collect(),
        goals: goals.clone(),
    });
    let tails = result.plan.loads.iter().filter(|load| !of(load).is_empty()).map(|load| DistributionPanel {
        title: load.title.clone(),
        lines: of(load)
            .into_iter()
            .map(|row| TailLine {
                series: row.mode.name.clone(),
                all: tail(&row.all.to_document()),
                clean: tail(&row.clean.to_document()),
            })
            .collect(),
        // Only the latency bound is labelled: the quantile can be read from the other axis, and short labels fit side
        // by side.
        goals: if load.id == NEAR { Vec::new() } else { bounds.clone() },
    });
    let bars = rates.iter().map(|rate| Bar {
        series: rate.mode.name.clone(),
        value: match (rate.passed_pps, rate.failed_pps) {
            (Some(passed), Some(failed)) => {
                Estimate::between(passed as f64 / 1e3, passed as f64 / 1e3, failed as f64 / 1e3)
            }
            (Some(passed), None) => Estimate::exact(passed as f64 / 1e3),
            (None, _) => Estimate::exact(f64::NAN),
        },
    });
    let mut sections = vec![
        Section::Scatter(Scatter {
            title: "p99 latency against CPU time".into(),
            caption: "Lower is faster, further left uses less CPU time. Marks are medians over the runs; bars reach from the lowest to the highest run. Dashed lines are the goals of the adaptive modes."
                .into(),
            x: Axis::log("CPU time", "% of one core"),
            y: Axis::log("p99 latency", "us"),
            panels: panels.collect(),
        }),
        Section::Distribution(Distribution {
            title: "Latency distributions".into(),
            caption: "Share of packets with a latency above the value on the axis below, over all runs. Thick lines: without the times when the host stopped a CPU. Thin lines: all samples."
                .into(),
            x: Axis::log("latency", "us"),
            panels: tails.collect(),
        }),
    ];
    if !rates.is_empty() {
        sections.push(Section::Bars(Bars {
            title: "Highest loss-free rate".into(),
            caption: format!(
                "A short search with {}-byte frames, evenly spaced, on one core. The bar is the highest rate that passed; its whisker ends at the lowest rate that failed.",
                result.bed.frame_octets
            ),
            quantity: "rate without loss".into(),
            unit: "kpps".into(),
            bars: bars.collect(),
        }));
    }
    let tables = result.plan.loads.iter().filter(|load| !of(load).is_empty());
    sections.extend(tables.map(|load| Section::Table(numbers(load, &of(load)))));
    if !rates.is_empty() {
        sections.push(Section::Table(searches(rates)));
    }
    let named = energy::named(result);
    let named: Vec<_> = named.iter().map(|(name, energy)| (name.as_str(), *energy)).collect();
    sections.extend(crate::report::energy::bars(&named).into_iter().map(Section::Bars));
    sections
}

/// The latency goals of the modes in the plan, in us.
fn goals(result: &DemoResult) -> Vec<Goal> {
    let modes = result.plan.modes.iter();
    modes
        .filter_map(|mode| {
            let (goal, ns) = (mode.goal.as_deref()?, mode.goal_latency_ns?);
            Some(Goal { label: spaced(&goal.replace('=', " \u{2264} ")), value: ns as f64 / 1e3 })
        })
        .collect()
}

fn estimate(spread: Option<Spread>) -> Estimate {
    spread.map_or(Estimate::exact(f64::NAN), |s| match s.greatest > s.least {
        true => Estimate::between(s.median, s.least, s.greatest),
        false => Estimate::exact(s.median),
    })
}

fn numbers(load: &LoadDocument, rows: &[&Row]) -> Table {
    let cell = |spread: Option<Spread>| match spread {
        Some(spread) => Cell::Number(estimate(Some(spread))),
        None => Cell::Unknown("too few samples".into()),
    };
    let near = load.id == NEAR;
    let mut columns = vec![Column::new("mode", ""), Column::new("runs", "")];
    columns.extend(near.then(|| Column::new("received", "kpps")));
    columns.extend([
        Column::new("p50", "us"),
        Column::new("p99", "us"),
        Column::new("p99.9", "us"),
        Column::new("p99, all samples", "us"),
        Column::new("CPU", "% of one core"),
        Column::new("wake-ups", "1/s"),
        Column::new("lost", "frames"),
        Column::new("lost in gaps", "frames"),
        Column::new("excluded", "%"),
        Column::new("goal", ""),
    ]);
    let rows = rows.iter().map(|row| {
        let mut cells = vec![Cell::Text(row.mode.name.clone()), Cell::Count(row.runs as u64)];
        let received = row.received_pps.map(|pps| Cell::Number(Estimate::exact(pps / 1e3)));
        cells.extend(near.then(|| received.unwrap_or_else(|| Cell::Unknown("no frame came back".into()))));
        cells.extend([row.p50_us, row.p99_us, row.p99_9_us, row.all_p99_us].map(cell));
        let cpu = [row.cpu_percent, row.wakeups_per_s];
        cells.extend(
            cpu.map(|s| s.map_or_else(|| Cell::Unknown("not read".into()), |s| Cell::Number(estimate(Some(s))))),
        );
        cells.push(Cell::Count(row.lost_outside_gaps));
        cells.push(Cell::Count(row.lost.saturating_sub(row.lost_outside_gaps)));
        cells.push(row.left_out_percent.map_or_else(
            || Cell::Unknown("no frame was due".into()),
            |percent| Cell::Number(Estimate::exact((percent * 100.0).round() / 100.0)),
        ));
        cells.push(match (row.goal_held, &row.mode.goal) {
            (_, None) => Cell::Text(String::new()),
            _ if row.only_disturbed => Cell::Unknown("disturbed".into()),
            (Some(true), _) => Cell::Text("held".into()),
            (Some(false), _) => Cell::Text("missed".into()),
            (None, _) => Cell::Unknown("too few samples".into()),
        });
        cells
    });
    Table {
        title: format!("Numbers: {}", load.title),
        caption: "Medians over the runs, with the lowest and the highest run in brackets.".into(),
        columns,
        rows: rows.collect(),
    }
}

fn searches(rates: &[Rate]) -> Table {
    let kpps = |pps: Option<u64>, why: &str| match pps {
        Some(pps) => Cell::Number(Estimate::exact(pps as f64 / 1e3)),
        None => Cell::Unknown(why.into()),
    };
    let rows = rates.iter().map(|rate| {
        vec![
            Cell::Text(rate.mode.name.clone()),
            kpps(rate.passed_pps, "none passed"),
            kpps(rate.failed_pps, "none failed"),
            Cell::Text(table::end(rate.end).into()),
        ]
    });
    Table {
        title: "Numbers: highest loss-free rate".into(),
        caption: String::new(),
        columns: vec![
            Column::new("mode", ""),
            Column::new("highest that passed", "kpps"),
            Column::new("lowest that failed", "kpps"),
            Column::new("the search", ""),
        ],
        rows: rows.collect(),
    }
}

fn host(host: &Reading<HostState>) -> Vec<Fact> {
    match (&host.value, &host.unknown_because) {
        (Some(state), _) => Fact::of_host(state),
        (None, why) => vec![Fact::unknown("Host", why.clone().unwrap_or_default())],
    }
}

fn conditions(result: &DemoResult, rows: &[Row]) -> Vec<Fact> {
    let (bed, plan) = (&result.bed, &result.plan);
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    let cpu = |cpu: Option<u64>| cpu.map_or_else(|| "any CPU".into(), |cpu| format!("CPU {cpu}"));
    let class = bed.tested_fifo_priority.map_or_else(String::new, |n| format!(", SCHED_FIFO {n}"));
    let port = match (&bed.xdp_mode.value, bed.zero_copy.value) {
        (Some(mode), Some(zero_copy)) => {
            format!("AF_XDP, {mode}, {}", if zero_copy { "zero copy" } else { "copy mode" })
        }
        _ => "AF_XDP".into(),
    };
    let paced = plan.loads.iter().filter(|load| load.id != NEAR);
    let runs = rows.iter().filter(|row| row.load.id != NEAR).map(|row| row.runs);
    let runs = match (runs.clone().min(), runs.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    };
    // The tester's limits, from all runs.
    let idle = result.runs.iter().filter_map(|run| run.latency.tester.idle_round_ns.value);
    let ceiling = result.runs.iter().filter_map(|run| run.latency.tester.ceiling_pps.value).fold(0.0, f64::max);
    let looks = idle.fold(0.0, f64::max);
    let mut facts = vec![
        Fact::new("Under test", format!("macswap on a veth pair ({port}), {}{class}", cpu(bed.tested_cpu))),
        Fact::new(
            "Tester",
            format!("busy-looping on {}, open loop, at the other end of the pair", cpu(bed.tester_cpu)),
        ),
        Fact::new("Frames", format!("{} bytes with check sequence", bed.frame_octets)),
        Fact::new("Paced loads", paced.map(|load| load.title.clone()).collect::<Vec<_>>().join("; ")),
        Fact::new(
            "Runs",
            format!(
                "{runs} per mode and load, {} each after {} of learning, interleaved (A B B A)",
                seconds(plan.run_ns),
                seconds(plan.learn_ns)
            ),
        ),
        Fact::new("Loss bound", {
            let ring = bed.rx_descriptors.value.map_or_else(String::new, |n| format!("{n} descriptors at "));
            format!("{ring}at most {} Mpps", bed.peak_rate_pps as f64 / 1e6)
        }),
        Fact::new("Total time", seconds(result.elapsed_ns)),
    ];
    if ceiling > 0.0 {
        let text = format!("up to {:.0} kpps; polls every {looks:.0} ns when idle", ceiling / 1e3);
        facts.insert(2, Fact::new("Tester's limits", text));
    }
    facts
}

fn notes(result: &DemoResult, rows: &[Row]) -> Vec<String> {
    let mut notes = vec![
        "Latency is the round trip from the time at which a frame was due to be sent to its pick-up by the tester, measured with software clocks. It includes the time of the tester's loop and of the veth pair, which is the same for all modes."
            .to_owned(),
        "CPU time is that of the worker's thread during the run, as the kernel counts it. It does not include softirq time on the tester's CPU."
            .to_owned(),
    ];
    let virtualised = result.host.value.as_ref().and_then(|host| host.virtualised.value);
    if virtualised == Some(true) {
        notes.push(
            "This is a virtual machine: its host stops the CPUs now and then, and the cost of waking up depends on the hypervisor. Compare the modes with each other, not with bare metal."
                .into(),
        );
    }
    let (intended, left_out) = rows.iter().fold((0.0, 0.0), |(all, out), row| {
        let n = row.intended as f64;
        (all + n, out + n * row.left_out_percent.unwrap_or(0.0) / 100.0)
    });
    if intended > 0.0 {
        notes.push(format!(
            "Both busy loops notice when they are stopped. Frames under way during such a gap, or right after it, are excluded from the latencies unless marked “all samples”; these are {:.1} % of all frames. Whether a frame is excluded depends on when it was under way, never on its latency.",
            left_out * 100.0 / intended
        ));
    }
    if result.runs.iter().all(|run| run.latency.energy.measured.value.is_none()) {
        let why = energy::reason(result);
        notes.push(format!("Power is unknown: {why}. CPU time shows how long a core could rest."));
    }
    notes.push(format!(
        "Loss bound: no wait of the adaptive modes is longer than the receive ring takes to fill at {} Mpps, about the highest rate of this kind of veth pair.",
        result.bed.peak_rate_pps as f64 / 1e6
    ));
    if !result.searches.is_empty() {
        notes.push(
            "Highest loss-free rate: losses while the host had stopped a CPU do not count against a mode. A search of some seconds is enough for a demonstration; RFC 2544 asks for trials of 60 s."
                .into(),
        );
    }
    notes.extend(disturbance(rows));
    notes.extend((!result.not_done.is_empty()).then(|| format!("Not done: {}.", result.not_done.join("; "))));
    notes
}

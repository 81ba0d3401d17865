//! Shows measurements as a report: one self-contained HTML file, made with the tester's report.

use tester::document;
use tester::histogram::HistogramDocument;
use tester::host::HostState;
use tester::report::model::{
    Axis, Cell, Column, Distribution, DistributionPanel, Estimate, Fact, Goal, Report, Section, Table, TailLine,
    TailPoint, Trace, TraceEvent, TraceLine, TracePanel,
};

use crate::compare::{TermComparison, Verdict};
use crate::detail::Detail;
use crate::detail::frequency::FrequencyDetail;
use crate::detail::jitter::JitterDetail;
use crate::mark::MarkKind;
use crate::measured::{Measured, Name, Term};

/// Nanoseconds per microsecond.
const US: f64 = 1e3;
/// Largest number of lines in a figure; more are unreadable.
const LINES: usize = 8;

/// A named set of measurements, usually from one file.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// Name of the set; empty if there is only one.
    pub name: &'a str,
    /// The host on which the set was measured.
    pub host: &'a HostState,
    /// The measurements of the set.
    pub measured: &'a [Measured],
}

/// Builds the report of one set, or of several side by side. `results` is the JSON document that is embedded in the
/// report.
pub fn report(title: &str, sets: &[Set<'_>], results: serde_json::Value) -> Report {
    let mut sections = Vec::new();
    let mut probes: Vec<Name> = sets.iter().flat_map(|set| set.measured).map(|of| of.probe).collect();
    probes.sort_unstable();
    probes.dedup();
    // Results of other tools are shown next to those of Apus.
    let imported = probes.contains(&Name::Imported);
    for probe in probes.into_iter().filter(|probe| !(imported && *probe == Name::Imported)) {
        sections.push(Section::Distribution(distributions(probe, sets, imported)));
    }
    if sections.is_empty() && imported {
        sections.push(Section::Distribution(distributions(Name::Imported, sets, false)));
    }
    sections.push(Section::Table(table(sets)));
    for (set, measured) in each(sets) {
        match &measured.detail {
            Detail::Jitter(detail) => sections.push(Section::Table(causes(&label(set, measured), detail))),
            Detail::Frequency(detail) => sections.push(Section::Trace(trace(&label(set, measured), detail))),
            _ => {}
        }
    }
    Report {
        title: title.into(),
        lead: lead(sets),
        host: sets.first().map_or_else(Vec::new, |set| Fact::of_host(set.host)),
        conditions: conditions(sets),
        notes: notes(sets),
        sections,
        results,
    }
}

/// Builds the table of a comparison, as a section for the report of the two compared sets.
pub fn comparison(found: &[TermComparison]) -> Section {
    let columns = [
        ("probe", ""),
        ("variant", ""),
        ("term", ""),
        ("quantile", ""),
        ("A", "us"),
        ("B", "us"),
        ("B / A", ""),
        ("p, adjusted", ""),
        ("verdict", ""),
    ];
    let rows = found.iter().map(|of| {
        let missing = |why: &str| Cell::Unknown(why.into());
        let us = |ns: Option<f64>| ns.map_or_else(|| missing("no rounds"), |ns| Cell::Number(Estimate::exact(ns / US)));
        let ratio = match (of.ratio, of.ratio_low, of.ratio_high) {
            (Some(ratio), Some(low), Some(high)) => Cell::Number(Estimate::between(ratio, low, high)),
            _ => missing("fewer than 6 rounds"),
        };
        let p = of.p_adjusted.map_or_else(|| missing("no test"), |p| Cell::Number(Estimate::exact(p)));
        vec![
            Cell::Text(of.probe.to_string()),
            Cell::Text(of.variant.clone()),
            Cell::Text(of.term.clone()),
            Cell::Text(of.quantity.clone()),
            us(of.a_ns),
            us(of.b_ns),
            ratio,
            p,
            Cell::Text(verdict(of.verdict).into()),
        ]
    });
    Section::Table(Table {
        title: "All figures".into(),
        caption: "Each round of a profile is one sample. p is that of a Mann-Whitney test, adjusted for the number of tests (Holm). The ratio has a 95 % bootstrap interval."
            .into(),
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: rows.collect(),
    })
}

/// Returns the verdict in words, for tables.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Longer => "B is longer",
        Verdict::Shorter => "B is shorter",
        Verdict::NotShown => "no difference shown",
        Verdict::TooFewRounds => "too few rounds to judge",
        Verdict::TooFewSamples => "too few samples per round to judge",
        Verdict::OnlyInA => "in A only",
        Verdict::OnlyInB => "in B only",
    }
}

fn each<'a>(sets: &'a [Set<'a>]) -> impl Iterator<Item = (&'a Set<'a>, &'a Measured)> {
    sets.iter().flat_map(|set| set.measured.iter().map(move |measured| (set, measured)))
}

fn label(set: &Set<'_>, measured: &Measured) -> String {
    let mark = if measured.marks.iter().any(|mark| mark.kind == MarkKind::VirtualMachine) { " [VM]" } else { "" };
    let name = if set.name.is_empty() { String::new() } else { format!("{}: ", set.name) };
    format!("{name}{} {}{mark}", measured.probe, measured.variant)
}

/// One panel per variant, with one line per term. With several sets, one panel per term.
fn distributions(probe: Name, sets: &[Set<'_>], beside: bool) -> Distribution {
    let panels = each(sets).filter(|(_, measured)| measured.probe == probe).map(|(set, measured)| {
        let mut lines: Vec<TailLine> = measured.terms.iter().take(LINES).flat_map(|term| lines(term, "")).collect();
        if beside {
            let others = each(sets).filter(|(_, other)| other.probe == Name::Imported);
            lines.extend(others.flat_map(|(_, other)| {
                other.terms.iter().take(LINES).flat_map(|term| lines_of(term, &format!("{} ", other.variant)))
            }));
        }
        DistributionPanel { title: label(set, measured), lines, goals: goals(measured) }
    });
    Distribution {
        title: format!("{probe}: share above each value"),
        caption: "Both axes are logarithmic. “Stalls filled in” adds a sample for each one that a stall hid.".into(),
        x: Axis::log("time", "us"),
        panels: panels.collect(),
    }
}

fn lines(term: &Term, prefix: &str) -> Vec<TailLine> {
    lines_of(term, prefix).collect()
}

fn lines_of<'a>(term: &'a Term, prefix: &str) -> impl Iterator<Item = TailLine> + use<'a> {
    let line = |name: String, series: &document::Distribution| TailLine {
        series: name,
        all: tail(&series.histogram),
        clean: Vec::new(),
    };
    let raw = line(format!("{prefix}{}", term.name), &term.raw);
    let filled = term.back_filled.as_ref().filter(|filled| **filled != term.raw);
    let filled = filled.map(|filled| line(format!("{prefix}{}, stalls filled in", term.name), filled));
    [Some(raw), filled].into_iter().flatten()
}

/// The share of samples above each value; overflow counts as above all values.
fn tail(histogram: &HistogramDocument) -> Vec<TailPoint> {
    let n: u64 = histogram.counts.iter().map(|(_, count)| count).sum::<u64>() + histogram.overflow;
    let mut above = n;
    let point = |(value, count): &(u64, u64)| {
        above -= count;
        TailPoint { value: *value as f64 / US, above: above as f64 / n as f64 }
    };
    histogram.counts.iter().map(point).collect()
}

fn goals(measured: &Measured) -> Vec<Goal> {
    let of = |exceeded: &crate::measured::Exceeded| Goal {
        label: "threshold".into(),
        value: exceeded.threshold_ns as f64 / US,
    };
    measured.exceeded.iter().map(of).collect()
}

fn table(sets: &[Set<'_>]) -> Table {
    let quantiles = ["p50", "p90", "p99", "p99.9", "p99.99"];
    let mut columns = vec![Column::new("measurement", ""), Column::new("term", ""), Column::new("samples", "")];
    columns.push(Column::new("blocked", "% of the time"));
    columns.push(Column::new("minimum", "us"));
    columns.extend(quantiles.map(|name| Column::new(name, "us")));
    columns.push(Column::new("maximum", "us"));
    let number = |ns: Option<u64>| match ns {
        Some(ns) => Cell::Number(Estimate::exact(ns as f64 / US)),
        None => Cell::Unknown("no samples".into()),
    };
    let mut rows = Vec::new();
    for (set, measured) in each(sets) {
        for term in &measured.terms {
            let filled = term.back_filled.as_ref().filter(|filled| **filled != term.raw);
            for (name, series) in
                [(term.name.clone(), Some(&term.raw)), (format!("{}, stalls filled in", term.name), filled)]
            {
                let Some(series) = series else { continue };
                let mut row = vec![
                    Cell::Text(label(set, measured)),
                    Cell::Text(name),
                    Cell::Count(series.count),
                    match term.blocked.and_then(|blocked| blocked.share) {
                        Some(share) => Cell::Number(Estimate::exact(share * 100.0)),
                        None => Cell::Unknown("not of this term".into()),
                    },
                    number(series.min_ns),
                ];
                row.extend(quantiles.map(|name| quantile(series, name)));
                row.push(number(series.max_ns));
                rows.push(row);
            }
        }
    }
    Table {
        title: "Numbers".into(),
        caption: "With 95 % confidence intervals, for independent samples. A quantile without enough samples is not shown. A maximum is a lower bound that grows with the duration."
            .into(),
        columns,
        rows,
    }
}

fn quantile(series: &document::Distribution, name: &str) -> Cell {
    let Some(found) = series.quantiles.iter().find(|of| of.quantile == name) else {
        return Cell::Unknown("not recorded".into());
    };
    match (found.latency_ns, found.ci95_low_ns.zip(found.ci95_high_ns)) {
        (Some(ns), Some((low, high))) => {
            Cell::Number(Estimate::between(ns as f64 / US, low as f64 / US, high as f64 / US))
        }
        (Some(ns), None) => Cell::Number(Estimate::exact(ns as f64 / US)),
        (None, _) => Cell::Unknown(found.refused_because.clone().unwrap_or_default()),
    }
}

fn causes(title: &str, detail: &JitterDetail) -> Table {
    let mut rows = Vec::new();
    for cpu in &detail.cpus {
        for cause in &cpu.causes {
            rows.push(vec![
                Cell::Count(cpu.cpu as u64),
                Cell::Text(cause.cause.to_string()),
                Cell::Count(cause.disturbances),
                Cell::Number(Estimate::exact(cause.away_ns as f64 / US)),
                Cell::Number(Estimate::exact(cause.largest_ns as f64 / US)),
            ]);
        }
    }
    Table {
        title: format!("{title}: who took the CPU"),
        caption: "The main cause of each disturbance. Gaps less than 5 us apart are one disturbance.".into(),
        columns: [("CPU", ""), ("main cause", ""), ("disturbances", ""), ("time away", "us"), ("longest", "us")]
            .map(|(quantity, unit)| Column::new(quantity, unit))
            .into(),
        rows,
    }
}

fn trace(title: &str, detail: &FrequencyDetail) -> Trace {
    let ms = |ns: u64| ns as f64 / 1e6;
    let points = detail.batches_ns.iter().map(|(at, longest)| (ms(*at), *longest as f64 / US)).collect();
    let events = detail
        .changes
        .iter()
        .map(|change| TraceEvent { label: format!("{} MHz asked for", change.to_hz / 1_000_000), x: ms(change.at_ns) });
    Trace {
        title: format!("{title}: duration of a work item while the frequency changes"),
        caption: format!(
            "Each point is the slowest of {} work items; vertical lines are requests. A stall is a point above its neighbors at a request; the level between requests follows the frequency.",
            detail.batch_units
        ),
        x: Axis::linear("time", "ms"),
        y: Axis::linear("slowest work item of a batch", "us"),
        panels: vec![TracePanel {
            title: detail.via.clone(),
            lines: vec![TraceLine { series: "slowest work item".into(), points }],
            events: events.collect(),
        }],
    }
}

fn lead(sets: &[Set<'_>]) -> String {
    let number = each(sets).count();
    let vm = each(sets).any(|(_, measured)| measured.marks.iter().any(|mark| mark.kind == MarkKind::VirtualMachine));
    let mark = if vm {
        " Figures marked [VM] were measured in a virtual machine, or where that is unknown; they do not describe the hardware."
    } else {
        ""
    };
    let noun = if number == 1 { "measurement" } else { "measurements" };
    format!("{number} {noun} of the cost of waking up.{mark}")
}

fn conditions(sets: &[Set<'_>]) -> Vec<Fact> {
    let Some((_, first)) = each(sets).next() else { return Vec::new() };
    let of = &first.conditions;
    let cpus: Vec<String> = of.cpus.iter().map(usize::to_string).collect();
    vec![
        Fact::new("measured CPUs", cpus.join(", ")),
        Fact::of("class", &of.scheduling, |class| format!("{} {}", class.policy, class.rt_priority)),
        Fact::of("timer slack", &of.timer_slack_ns, |ns| format!("{ns} ns")),
        Fact::of("memory locked", &of.memory_locked, bool::to_string),
        Fact::of("cpu_dma_latency", &of.cpu_dma_latency_us, |us| format!("{us} us")),
        Fact::of("real-time runtime", &of.sched_rt_runtime_us, |us| format!("{us} us")),
        Fact::of("real-time period", &of.sched_rt_period_us, |us| format!("{us} us")),
        Fact::of("clock source", &of.clocksource, Clone::clone),
        Fact::of("SMT", &of.smt_active, bool::to_string),
        Fact::of("transparent huge pages", &of.transparent_hugepages, Clone::clone),
        Fact::new("load", of.load.clone()),
        Fact::of("load average", &of.load_average, Clone::clone),
        Fact::of("steal time", &of.steal_ms, |ms| format!("{ms} ms")),
    ]
}

fn notes(sets: &[Set<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut add = |text: String| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    };
    for (set, measured) in each(sets) {
        measured.marks.iter().for_each(|mark| add(mark.text.clone()));
        if let Some(exceeded) = &measured.exceeded {
            add(format!(
                "{}: {:.1} us exceeded the threshold of {:.1} us: {}",
                label(set, measured),
                exceeded.sample_ns as f64 / US,
                exceeded.threshold_ns as f64 / US,
                exceeded.explained
            ));
        }
        for overhead in &measured.overhead {
            add(format!("{}: own cost {} ns: {}", measured.probe, overhead.median_ns, overhead.what));
        }
        add(format!("What {} counts: {}.", measured.probe, measured.counter.counts));
        measured
            .counter
            .blind_spots
            .iter()
            .for_each(|spot| add(format!("{} has this blind spot: {spot}.", measured.probe)));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import;

    const JSON: &str = r#"{"file_version": 1, "thread": {"0": {"histogram": {"5": 600, "9": 400}, "cycles": 1000,
        "min": 5, "max": 9, "avg": 6.6, "cpu": 1}}}"#;

    #[test]
    fn results_stand_beside_each_other() {
        let other = import::read("a.json", JSON).unwrap();
        let mut ours = other.measured.clone();
        (ours.probe, ours.variant) = (Name::Timer, "clock_nanosleep".into());
        let measured = [ours, other.measured];
        let sets = [Set { name: "", host: &other.host, measured: &measured }];
        let report = report("T", &sets, serde_json::Value::Null);
        let Section::Distribution(figure) = &report.sections[0] else { panic!("not a distribution") };
        assert_eq!(figure.panels.len(), 1);
        let series: Vec<&str> = figure.panels[0].lines.iter().map(|line| line.series.as_str()).collect();
        assert_eq!(series, ["thread 0 on CPU 1", "cyclictest thread 0 on CPU 1"]);
        assert!(report.lead.contains("do not describe the hardware"));
        let html = tester::report::render(&report);
        assert!(html.contains("cyclictest") && html.contains("<svg"));
    }

    #[test]
    fn a_frequency_run_is_drawn_over_time() {
        let detail = FrequencyDetail {
            via: "limits of the policy".into(),
            levels_hz: vec![800_000_000, 2_100_000_000],
            units: 100,
            batch_units: 10,
            changes: Vec::new(),
            without_effect: 0,
            batches_ns: vec![(0, 10_000), (1_000_000, 22_000)],
        };
        let trace = trace("x", &detail);
        assert_eq!(trace.panels[0].lines[0].points, [(0.0, 10.0), (1.0, 22.0)]);
    }
}

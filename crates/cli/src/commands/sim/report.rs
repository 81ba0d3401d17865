//! Shows cases as a report.

use sim::outcome::Term;
use tester::report::model::{
    Axis, Bar, Bars, Cell, Column, Distribution, DistributionPanel, Estimate, Fact, Goal, Report, Scatter,
    ScatterPanel, ScatterPoint, Section, Table, TailLine, TailPoint,
};
use units::{Nanos, Quantile};

use super::say;
use crate::documents::sim::Case;

/// A case and its label.
type Named<'a> = (String, &'a Case);

/// Builds the report of one or several cases; `results` is the JSON document to embed.
pub fn of_cases(cases: &[Case], results: serde_json::Value) -> Report {
    let named: Vec<Named> = say::names(cases).into_iter().zip(cases).collect();
    let mut sections = vec![Section::Table(numbers(&named))];
    if cases.len() > 1 {
        sections.push(Section::Scatter(power_and_latency(&named)));
    }
    sections.push(Section::Distribution(delays(&named)));
    sections.push(Section::Table(budget(&named)));
    sections.extend(named.iter().map(|named| Section::Bars(terms(named))));
    sections.push(Section::Table(time_and_energy(&named)));
    Report {
        title: "Apus: simulated scenarios".into(),
        lead: lead(cases),
        host: Vec::new(),
        conditions: named
            .iter()
            .map(|(name, case)| {
                let window = Nanos::from_nanos(case.duration_ns);
                let said =
                    format!("{}, {}; {}; seed {}, {window}", case.machine, case.nic, say::policies(case), case.seed);
                Fact::new(name, said)
            })
            .collect(),
        notes: vec![
            "All numbers are simulated; nothing was measured for this report. The machine files give the source of each parameter."
                .into(),
            "A quantile is shown only if there were enough packets for its 95 % confidence interval.".into(),
        ],
        sections,
        results,
    }
}

fn lead(cases: &[Case]) -> String {
    let held = |verdict| cases.iter().filter(|c| c.goal.as_ref().is_some_and(|goal| goal.held == verdict)).count();
    let goals = cases.iter().filter(|case| case.goal.is_some()).count();
    if goals == 0 {
        return "No goal was set.".into();
    }
    let (held, missed, unknown) = (held(Some(true)), held(Some(false)), held(None));
    format!("Of {goals} goals, {held} were met and {missed} missed; {unknown} had too few packets to decide.")
}

fn exact(value: f64) -> Cell {
    Cell::Number(Estimate::exact(value))
}

fn micros(nanos: Option<u64>, why: &str) -> Cell {
    nanos.map_or_else(|| Cell::Unknown(why.into()), |nanos| exact(nanos as f64 / 1e3))
}

fn numbers(cases: &[Named]) -> Table {
    let columns = [
        ("case", ""),
        ("offered", "packets/s"),
        ("lost", "%"),
        ("p50", "us"),
        ("p99", "us"),
        ("p99.9", "us"),
        ("max", "us"),
        ("interrupts", "1/s"),
        ("cores", "W"),
        ("package", "W"),
        ("goal", ""),
    ];
    let rows = cases.iter().map(|(name, case)| {
        let a_second = |count: u64| exact(count as f64 * 1e9 / case.duration_ns as f64);
        let lost: u64 = case.frames.dropped.values().sum();
        let loss = match case.frames.offered {
            0 => Cell::Unknown("no packet arrived".into()),
            offered => exact(lost as f64 * 100.0 / offered as f64),
        };
        let quantile = |quantile| {
            micros(case.latency.quantile(quantile), &format!("{} packets are too few to judge", case.latency.count))
        };
        let goal = case.goal.as_ref().map_or_else(
            || "none".to_owned(),
            |goal| match goal.held {
                Some(true) => format!("{} met", goal.latency),
                Some(false) => format!("{} missed", goal.latency),
                None => format!("{}: too few packets to judge", goal.latency),
            },
        );
        vec![
            Cell::Text(name.clone()),
            a_second(case.frames.offered),
            loss,
            quantile(Quantile::P50),
            quantile(Quantile::P99),
            quantile(Quantile::P99_9),
            micros(case.latency.max_ns, "no packet departed"),
            a_second(case.queues.iter().map(|queue| queue.interrupts).sum()),
            exact(case.power.cores_uw as f64 / 1e6),
            exact(case.power.package_uw as f64 / 1e6),
            Cell::Text(goal),
        ]
    });
    Table {
        title: "Latency, loss and power".into(),
        caption: "Latency counts from the last bit of a packet received to the last bit of its answer sent. Power is computed by the machine model."
            .into(),
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: rows.collect(),
    }
}

fn goals(cases: &[Named]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for text in cases.iter().filter_map(|(_, case)| case.goal.as_ref()).map(|goal| &goal.latency) {
        let Ok(goal) = text.parse::<policy::Goal>() else { continue };
        let label = format!("{} ≤ {}", goal.quantile, goal.latency);
        if goals.iter().all(|known| known.label != label) {
            goals.push(Goal { label, value: goal.latency.as_nanos() as f64 / 1e3 });
        }
    }
    goals
}

fn power_and_latency(cases: &[Named]) -> Scatter {
    let points = cases.iter().filter_map(|(name, case)| {
        let latency = case.latency.quantile(Quantile::P99)?;
        Some(ScatterPoint {
            series: name.clone(),
            x: Estimate::exact(case.power.cores_uw as f64 / 1e6),
            y: Estimate::exact(latency as f64 / 1e3),
        })
    });
    Scatter {
        title: "Latency against power".into(),
        caption: "Lower and further left is better. Cases with too few packets for a p99 are left out.".into(),
        x: Axis::linear("power of the simulated cores", "W"),
        y: Axis::log("latency, p99", "us"),
        panels: vec![ScatterPanel { title: String::new(), points: points.collect(), goals: goals(cases) }],
    }
}

fn delays(cases: &[Named]) -> Distribution {
    let lines = cases.iter().map(|(name, case)| {
        let (mut above, count) = (case.latency.count, case.latency.count.max(1) as f64);
        let points = case.latency.histogram.counts.iter().map(|(value, n)| {
            above -= n;
            TailPoint { value: *value as f64 / 1e3, above: above as f64 / count }
        });
        // The share above the last point is zero, which a logarithmic axis cannot show.
        let all = points.filter(|point| point.above > 0.0).collect();
        TailLine { series: name.clone(), all, clean: Vec::new() }
    });
    Distribution {
        title: "Latency distribution".into(),
        caption: "Share of packets with a latency above each value.".into(),
        x: Axis::log("latency", "us"),
        panels: vec![DistributionPanel { title: String::new(), lines: lines.collect(), goals: goals(cases) }],
    }
}

fn budget(cases: &[Named]) -> Table {
    let mut columns = vec![Column::new("case", "")];
    columns.extend(Term::ALL.map(|term| Column::new(format!("{}, mean", term.name()), "us")));
    columns.extend(Term::ALL.map(|term| Column::new(format!("{}, p99", term.name()), "us")));
    let rows = cases.iter().map(|(name, case)| {
        let term = |term: Term| case.budget.get(term.name());
        let mut row = vec![Cell::Text(name.clone())];
        row.extend(Term::ALL.map(|t| micros(term(t).and_then(|term| term.mean_ns), "no packet departed")));
        row.extend(Term::ALL.map(|t| micros(term(t).and_then(|term| term.p99_ns), "too few packets")));
        row
    });
    Table {
        title: "The latency budget".into(),
        caption: "The means of the parts add up to the mean latency; their p99 do not add up to the p99.".into(),
        columns,
        rows: rows.collect(),
    }
}

fn terms((name, case): &Named) -> Bars {
    let bars = Term::ALL.into_iter().filter_map(|term| {
        let mean = case.budget.get(term.name())?.mean_ns?;
        (mean > 0).then(|| Bar { series: term.name().to_owned(), value: Estimate::exact(mean as f64 / 1e3) })
    });
    Bars {
        title: format!("Where the time of a packet goes: {name}"),
        caption: "Means.".into(),
        quantity: "share of the latency".into(),
        unit: "us".into(),
        bars: bars.collect(),
    }
}

fn time_and_energy(cases: &[Named]) -> Table {
    let columns = [
        ("case", ""),
        ("core", ""),
        ("state", ""),
        ("frequency", "MHz"),
        ("time", "%"),
        ("power", "W"),
        ("energy", "%"),
    ];
    let rows = cases.iter().flat_map(|(name, case)| {
        case.cores.iter().enumerate().flat_map(move |(number, core)| {
            core.residency.iter().map(move |entry| {
                let time = entry.time_ns as f64 / case.duration_ns as f64;
                vec![
                    Cell::Text(name.clone()),
                    Cell::Count(number as u64),
                    Cell::Text(entry.state.clone()),
                    exact(entry.frequency_hz as f64 / 1e6),
                    exact(time * 100.0),
                    exact(entry.power_uw as f64 / 1e6),
                    exact(time * 100.0 * entry.power_uw as f64 / (core.power_uw.max(1)) as f64),
                ]
            })
        })
    });
    Table {
        title: "Time and energy by state".into(),
        caption: "For each simulated core.".into(),
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: rows.collect(),
    }
}

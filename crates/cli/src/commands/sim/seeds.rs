//! Statistics over the seeds of a combination of values: mean and median of each column of the sweep, with confidence
//! intervals.
//!
//! Each seed is one independent replication, so the intervals are over seeds. The packets of one seed are not
//! independent of each other.

use std::collections::BTreeMap;

use tester::quantile::REPORTED;
use tester::report::model::{
    Axis, Cell, Column, Estimate, Fact, Report, Scatter, ScatterPanel, ScatterPoint, Section, Table,
};
use tester::statistics::{Interval, mean_interval, median_interval};
use units::{BitRate, Hertz, Nanos, PacketRate};

use crate::documents::sim::{Combination, Statistics};

/// Columns of a sweep for which statistics over the seeds are computed.
fn columns() -> Vec<String> {
    let quantiles = REPORTED.map(|quantile| format!("latency_{}_ns", quantile.to_string().replace('.', "_")));
    let first = ["loss_ppm", "departed_pps", "latency_mean_ns"].map(str::to_owned);
    let rest = ["latency_max_ns", "interrupts", "wakeups", "busy_ppm", "vacation_mean_ns", "cores_uw", "package_uw"]
        .map(str::to_owned);
    first.into_iter().chain(quantiles).chain(rest).collect()
}

/// One combination of values, with the rows of its seeds.
pub struct Group<'a> {
    /// The varied keys with their values.
    pub values: Vec<(&'a str, &'a str)>,
    /// One row per seed, with the columns of `head`.
    pub rows: Vec<&'a [String]>,
}

impl Group<'_> {
    /// Computes the statistics of one combination. If a column is unknown for any seed, its statistic is unknown,
    /// because the remaining seeds would be a biased sample.
    pub fn combination(&self, head: &[String]) -> Combination {
        let statistics = columns().into_iter().map(|name| {
            let at = head.iter().position(|column| *column == name);
            let values: Option<Vec<f64>> =
                self.rows.iter().map(|row| at.and_then(|at| row.get(at)).and_then(|cell| cell.parse().ok())).collect();
            (name, values.and_then(|values| statistics(&values)))
        });
        Combination {
            values: self.values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            seeds: self.rows.len() as u64,
            statistics: statistics.collect(),
        }
    }
}

fn statistics(values: &[f64]) -> Option<Statistics> {
    let Interval { value: mean, ci95: mean_ci95 } = mean_interval(values)?;
    let Interval { value: median, ci95: median_ci95 } = median_interval(values)?;
    Some(Statistics { mean, mean_ci95, median, median_ci95 })
}

/// Column names of the table of combinations.
pub fn head(keys: &[&str]) -> Vec<String> {
    let of = |name: &String| {
        ["mean", "mean_ci95_low", "mean_ci95_high", "median", "median_ci95_low", "median_ci95_high"]
            .map(|what| format!("{name}_{what}"))
    };
    let keys = keys.iter().map(|key| (*key).to_owned());
    keys.chain(["seeds".to_owned()]).chain(columns().iter().flat_map(of)).collect()
}

/// Formats the row of a combination.
pub fn row(keys: &[&str], combination: &Combination) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
    let mut row: Vec<String> =
        keys.iter().map(|key| combination.values.get(*key).cloned().unwrap_or_default()).collect();
    row.push(combination.seeds.to_string());
    for name in columns() {
        let of = combination.statistics.get(&name).copied().flatten();
        let ends = |interval: Option<(f64, f64)>| [interval.map(|(low, _)| low), interval.map(|(_, high)| high)];
        row.push(number(of.map(|s| s.mean)));
        row.extend(ends(of.and_then(|s| s.mean_ci95)).map(number));
        row.push(number(of.map(|s| s.median)));
        row.extend(ends(of.and_then(|s| s.median_ci95)).map(number));
    }
    row
}

/// The plotted columns: column, title, unit, and the factor from the column to that unit.
const PLOTTED: [(&str, &str, &str, f64); 5] = [
    ("latency_p50_ns", "latency, p50", "us", 1e-3),
    ("latency_p99_ns", "latency, p99", "us", 1e-3),
    ("latency_p99_9_ns", "latency, p99.9", "us", 1e-3),
    ("cores_uw", "power of the simulated cores", "W", 1e-6),
    ("loss_ppm", "loss", "ppm", 1.0),
];

/// Builds the report of a sweep.
pub fn report(scenario: &str, keys: &[&str], combinations: &[Combination], results: serde_json::Value) -> Report {
    let mut sections = vec![Section::Table(table(keys, combinations))];
    if let Some((key, axis)) = keys.iter().find_map(|key| Some((*key, numeric(key, combinations)?))) {
        sections.extend(PLOTTED.into_iter().filter_map(|plotted| over(key, &axis, plotted, combinations)));
    }
    sections.push(Section::Scatter(power_and_latency(combinations)));
    let seeds = combinations.iter().map(|combination| combination.seeds).max().unwrap_or(0);
    let varied = if keys.is_empty() { "the seed only".to_owned() } else { keys.join(", ") };
    Report {
        title: "Apus: a simulated sweep".into(),
        lead: match combinations.len() {
            1 => format!("One combination, {seeds} seeds."),
            n => format!("{n} combinations, {seeds} seeds each."),
        },
        host: Vec::new(),
        conditions: vec![Fact::new("scenario", scenario), Fact::new("varied", varied)],
        notes: vec![
            "All numbers are simulated; nothing was measured for this report.".into(),
            "Marks are means over the seeds; bars are their 95 % confidence intervals by Student's t (Law, Simulation modeling and analysis, 4.5). Medians are in the embedded data and in the CSV file, with intervals between order statistics (Le Boudec, Performance evaluation, theorem 2.1)."
                .into(),
        ],
        sections,
        results,
    }
}

/// The value of a combination in a plot, with its interval.
fn estimate(combination: &Combination, column: &str, factor: f64) -> Option<Estimate> {
    let Statistics { mean, mean_ci95, .. } = combination.statistics.get(column).copied().flatten()?;
    Some(Estimate { value: mean * factor, interval: mean_ci95.map(|(low, high)| (low * factor, high * factor)) })
}

fn name(combination: &Combination, without: &str) -> String {
    let others =
        combination.values.iter().filter(|(key, _)| *key != without).map(|(key, value)| format!("{key}={value}"));
    let name = others.collect::<Vec<_>>().join(" ");
    if name.is_empty() { "all".into() } else { name }
}

fn table(keys: &[&str], combinations: &[Combination]) -> Table {
    let mut columns: Vec<Column> = keys.iter().map(|key| Column::new(*key, "")).collect();
    columns.extend(PLOTTED.map(|(_, quantity, unit, _)| Column::new(quantity, unit)));
    let rows = combinations.iter().map(|combination| {
        let values = keys.iter().map(|key| Cell::Text(combination.values.get(*key).cloned().unwrap_or_default()));
        let numbers = PLOTTED.map(|(column, _, _, factor)| {
            estimate(combination, column, factor)
                .map_or_else(|| Cell::Unknown("a seed had too few packets".into()), Cell::Number)
        });
        values.chain(numbers).collect()
    });
    Table {
        title: "Means over the seeds".into(),
        caption: "With their 95 % confidence intervals, where there are several seeds.".into(),
        columns,
        rows: rows.collect(),
    }
}

/// Plots one quantity over a key with numeric values.
fn over(
    key: &str,
    (unit, at): &(&'static str, Vec<f64>),
    (column, quantity, of, factor): (&str, &str, &str, f64),
    combinations: &[Combination],
) -> Option<Section> {
    let points: Vec<ScatterPoint> = combinations
        .iter()
        .zip(at)
        .filter_map(|(combination, at)| {
            let y = estimate(combination, column, factor)?;
            Some(ScatterPoint { series: name(combination, key), x: Estimate::exact(*at), y })
        })
        .collect();
    // Without loss, no plot is needed.
    if points.iter().all(|point| point.y.value == 0.0) {
        return None;
    }
    let (least, most) = at.iter().fold((f64::MAX, 0f64), |(least, most), at| (least.min(*at), most.max(*at)));
    let x = if least > 0.0 && most > 20.0 * least { Axis::log(key, *unit) } else { Axis::linear(key, *unit) };
    Some(Section::Scatter(Scatter {
        title: format!("{quantity} over {key}"),
        caption: "Bars: 95 % confidence intervals of the means over the seeds.".into(),
        x,
        y: Axis::linear(quantity, of),
        panels: vec![ScatterPanel { title: String::new(), points, goals: Vec::new() }],
    }))
}

fn power_and_latency(combinations: &[Combination]) -> Scatter {
    let points = combinations.iter().filter_map(|combination| {
        let (x, y) = (estimate(combination, "cores_uw", 1e-6)?, estimate(combination, "latency_p99_ns", 1e-3)?);
        Some(ScatterPoint { series: name(combination, ""), x, y })
    });
    Scatter {
        title: "Latency and power".into(),
        caption: "Lower and further left is better. Bars: 95 % confidence intervals of the means over the seeds."
            .into(),
        x: Axis::linear("power of the simulated cores", "W"),
        y: Axis::log("latency, p99", "us"),
        panels: vec![ScatterPanel { title: String::new(), points: points.collect(), goals: Vec::new() }],
    }
}

/// The values of `key` as numbers in one unit; `None` if any is not a number.
fn numeric(key: &str, combinations: &[Combination]) -> Option<(&'static str, Vec<f64>)> {
    type Read = fn(&str) -> Option<f64>;
    const KINDS: [(&str, Read); 6] = [
        ("", |text| text.parse().ok().filter(|value: &f64| value.is_finite())),
        ("us", |text| text.parse::<Nanos>().ok().map(|span| span.as_nanos() as f64 / 1e3)),
        ("packets/s", |text| text.parse::<PacketRate>().ok().map(|rate| rate.as_pps() as f64)),
        ("Gbit/s", |text| text.parse::<BitRate>().ok().map(|rate| rate.as_bps() as f64 / 1e9)),
        ("GHz", |text| text.parse::<Hertz>().ok().map(|rate| rate.as_hertz() as f64 / 1e9)),
        ("%", |text| text.strip_suffix('%').and_then(|number| number.trim().parse().ok())),
    ];
    let values: Vec<&String> = combinations.iter().filter_map(|combination| combination.values.get(key)).collect();
    KINDS.into_iter().find_map(|(unit, read)| {
        let numbers: Option<Vec<f64>> = values.iter().map(|value| read(value)).collect();
        numbers.filter(|numbers| !numbers.is_empty()).map(|numbers| (unit, numbers))
    })
}

/// Groups rows with the same values, in the order of the rows.
pub fn groups<'a>(keys: &[&'a str], rows: &[(BTreeMap<&'a str, &'a str>, &'a [String])]) -> Vec<Group<'a>> {
    rows.chunk_by(|(a, _), (b, _)| a == b)
        .map(|rows| Group {
            values: keys.iter().filter_map(|key| Some((*key, *rows[0].0.get(key)?))).collect(),
            rows: rows.iter().map(|(_, row)| *row).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn a_combination_is_what_its_seeds_have_in_common() {
        let head_of_rows = words("case,traffic.rate,loss_ppm,cores_uw,latency_p99_ns");
        let rows: Vec<Vec<String>> = ["a,1kpps,0.000,10,5", "b,1kpps,0.000,20,", "c,2kpps,3.000,7,9"].map(words).into();
        let keyed: Vec<(BTreeMap<&str, &str>, &[String])> =
            rows.iter().map(|row| (BTreeMap::from([("traffic.rate", row[1].as_str())]), &row[..])).collect();
        let groups = groups(&["traffic.rate"], &keyed);
        let combinations: Vec<Combination> = groups.iter().map(|group| group.combination(&head_of_rows)).collect();
        assert_eq!(combinations.iter().map(|c| c.seeds).collect::<Vec<_>>(), [2, 1]);
        let power = combinations[0].statistics["cores_uw"].unwrap();
        assert_eq!((power.mean, power.median, power.median_ci95), (15.0, 15.0, None));
        // t(1) = 12.706, s / sqrt(2) = 5
        let (low, high) = power.mean_ci95.unwrap();
        assert!((low - (15.0 - 63.53)).abs() < 0.01 && (high - 78.53).abs() < 0.01, "{low} {high}");
        assert_eq!(combinations[0].statistics["latency_p99_ns"], None, "one of the seeds does not know it");
        assert_eq!(combinations[1].statistics["cores_uw"].unwrap().mean_ci95, None, "one seed has no interval");
        let (head, row) = (head(&["traffic.rate"]), row(&["traffic.rate"], &combinations[0]));
        assert_eq!(head.len(), row.len());
        let at = |name: &str| &row[head.iter().position(|column| column == name).unwrap()];
        assert_eq!((at("traffic.rate").as_str(), at("seeds").as_str()), ("1kpps", "2"));
        assert_eq!((at("cores_uw_mean").as_str(), at("cores_uw_mean_ci95_high").as_str()), ("15.000", "78.530"));
        assert_eq!(at("latency_p99_ns_mean"), "");
        assert_eq!(numeric("traffic.rate", &combinations), Some(("packets/s", vec![1_000.0, 2_000.0])));
    }
}

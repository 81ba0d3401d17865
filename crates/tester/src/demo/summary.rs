//! Summarises the runs as rows of a table. Each run counts as one sample: a row has the median of the runs, and their
//! spread.

use units::Quantile;

use super::plan::spaced;
use super::result::{DemoResult, LoadDocument, ModeDocument, Run};
use crate::Error;
use crate::document::Distribution;
use crate::histogram::Histogram;
use crate::quantile;
use crate::result::SearchEnd;
use crate::statistics;

/// A run counts as disturbed if the worker waited for its CPU for more than this percentage of the run, because another
/// thread had the CPU. A busy-looping worker waits 5 % of the time on any busy machine, because the kernel reserves
/// this 5 % for other threads (`sched_rt_runtime_us`, or its fair server).
pub const DISTURBED_PERCENT: f64 = 10.0;

/// Median and range of a value over several runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Median of the runs.
    pub median: f64,
    /// Lowest value of any run.
    pub least: f64,
    /// Highest value of any run.
    pub greatest: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = statistics::median(values)?;
        let (least, greatest) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
        Some(Self { median, least, greatest })
    }
}

/// The results of one mode at one load, over its complete runs. Disturbed runs, in which another process had the
/// worker's CPU, are left out unless all runs are disturbed. Whether a run counts as disturbed depends on how long the
/// worker waited for its CPU, never on the latencies.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The waiting mode.
    pub mode: ModeDocument,
    /// The load.
    pub load: LoadDocument,
    /// Number of runs that count.
    pub runs: usize,
    /// Number of complete runs in which another process had the worker's CPU for more than [`DISTURBED_PERCENT`].
    pub disturbed: usize,
    /// Whether all runs were disturbed, so that the numbers come from disturbed runs.
    pub only_disturbed: bool,
    /// Frames that came back, per second: median over the runs; `None` if no frame came back in any run.
    pub received_pps: Option<f64>,
    /// Median latency of frames that met no gap (see [`Gap`](crate::gaps::Gap)); `None` if no run had enough samples.
    pub p50_us: Option<Spread>,
    /// 99th percentile of the latency of frames that met no gap; `None` if no run had enough samples.
    pub p99_us: Option<Spread>,
    /// 99.9th percentile of the latency of frames that met no gap; `None` if no run had enough samples.
    pub p99_9_us: Option<Spread>,
    /// 99th percentile of the latency of all frames, including those that met a gap; `None` if no run had enough
    /// samples.
    pub all_p99_us: Option<Spread>,
    /// CPU time of the worker's thread, in percent of one CPU; `None` if it is unknown.
    pub cpu_percent: Option<Spread>,
    /// Wake-ups of the worker per second; `None` if they are unknown.
    pub wakeups_per_s: Option<Spread>,
    /// Frames due to be sent, over all runs.
    pub intended: u64,
    /// Frames lost, over all runs.
    pub lost: u64,
    /// Frames lost outside the gaps, over all runs.
    pub lost_outside_gaps: u64,
    /// Percentage of frames that the latencies exclude, because the frames met a gap or were not sent, over all runs;
    /// `None` if no frame was due.
    pub left_out_percent: Option<f64>,
    /// Whether the goal was met: the median over the runs is within the latency bound, and no frame was lost outside
    /// gaps. `None` if the mode has no goal, or if there were too few samples.
    pub goal_held: Option<bool>,
    /// Latencies of all frames of all runs.
    pub all: Histogram,
    /// Latencies of the frames that met no gap, of all runs.
    pub clean: Histogram,
}

/// One mode's highest loss-free rate.
#[derive(Clone, PartialEq, Debug)]
pub struct Rate {
    /// The waiting mode.
    pub mode: ModeDocument,
    /// Highest rate that passed; `None` if none did.
    pub passed_pps: Option<u64>,
    /// Lowest rate that failed; `None` if none did.
    pub failed_pps: Option<u64>,
    /// Why the search ended.
    pub end: SearchEnd,
}

/// The rows of all modes and loads that have a complete run, in the order of the plan, load by load.
pub fn rows(result: &DemoResult) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for load in &result.plan.loads {
        for mode in &result.plan.modes {
            let of = |run: &&Run| run.mode == mode.name && run.load == load.id && !run.latency.interrupted;
            let runs: Vec<&Run> = result.runs.iter().filter(of).collect();
            let (disturbed, calm): (Vec<&Run>, Vec<&Run>) = runs.into_iter().partition(|run| is_disturbed(run));
            let counted = if calm.is_empty() { &disturbed } else { &calm };
            if !counted.is_empty() {
                let row = row(mode, load, counted)?;
                rows.push(Row { disturbed: disturbed.len(), only_disturbed: calm.is_empty(), ..row });
            }
        }
    }
    Ok(rows)
}

/// The highest loss-free rates, in the order of the plan.
pub fn rates(result: &DemoResult) -> Vec<Rate> {
    let of = |mode: &ModeDocument| {
        let search = result.searches.iter().find(|search| search.mode == mode.name)?;
        Some(Rate {
            mode: mode.clone(),
            passed_pps: search.load.highest_loss_free_pps.value,
            failed_pps: search.load.lowest_failing_pps.value,
            end: search.load.end,
        })
    };
    result.plan.modes.iter().filter_map(of).collect()
}

fn is_disturbed(run: &Run) -> bool {
    let used = run.latency.tested_cpu.value;
    used.is_some_and(|used| used.run_delay_ns as f64 * 100.0 > used.interval_ns as f64 * DISTURBED_PERCENT)
}

/// A note about disturbed runs; `None` if there were none.
pub fn disturbance(rows: &[Row]) -> Option<String> {
    let disturbed: usize = rows.iter().map(|row| row.disturbed).sum();
    let total: usize =
        rows.iter().map(|row| if row.only_disturbed { row.runs } else { row.runs + row.disturbed }).sum();
    let only: Vec<String> = rows
        .iter()
        .filter(|row| row.only_disturbed)
        .map(|row| format!("{} at {}", row.mode.name, row.load.title))
        .collect();
    (disturbed > 0).then(|| {
        let mut text = format!(
            "In {disturbed} of {total} runs another process had the worker's CPU for more than {DISTURBED_PERCENT} % of the time; these runs do not count."
        );
        if !only.is_empty() {
            text += &format!(" These have no other run, so do not trust them: {}.", only.join("; "));
        }
        text + " On an otherwise idle machine there are no such runs."
    })
}

fn row(mode: &ModeDocument, load: &LoadDocument, runs: &[&Run]) -> Result<Row, Error> {
    let (mut all, mut clean) = (Histogram::new(), Histogram::new());
    let mut each = Vec::new();
    for run in runs {
        let of = |distribution: &Distribution| Histogram::try_from(&distribution.histogram);
        let (its_all, its_clean) = (of(&run.latency.all)?, of(&run.latency.clean)?);
        all.add(&its_all);
        clean.add(&its_clean);
        each.push((its_all, its_clean));
    }
    let us =
        |histogram: &Histogram, quantile| quantile::estimate(histogram, quantile).latency_ns.map(|ns| ns as f64 / 1e3);
    let over =
        |quantile: Quantile| Spread::of(&each.iter().filter_map(|(_, clean)| us(clean, quantile)).collect::<Vec<_>>());
    let cpu = || runs.iter().filter_map(|run| run.latency.tested_cpu.value);
    let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>();
    let intended = sum(|run| run.latency.exclusion.intended);
    let left_out = sum(|run| run.latency.exclusion.excluded + run.latency.exclusion.unsent);
    let received: Vec<f64> = runs.iter().filter_map(|run| run.latency.received_pps.value).collect();
    let goal = mode.goal_quantile_ppm.and_then(Quantile::from_ppm).zip(mode.goal_latency_ns);
    let lost_outside_gaps = sum(|run| run.latency.exclusion.lost_outside_gaps);
    // A goal also demands that no frame is lost (DESIGN.md: "p99.9 within 50 us, no loss").
    let goal_held = goal.and_then(|(quantile, bound)| match lost_outside_gaps {
        0 => over(quantile).map(|spread| spread.median * 1e3 <= bound as f64),
        _ => Some(false),
    });
    Ok(Row {
        mode: mode.clone(),
        load: load.clone(),
        runs: runs.len(),
        disturbed: 0,
        only_disturbed: false,
        received_pps: statistics::median(&received),
        p50_us: over(Quantile::P50),
        p99_us: over(Quantile::P99),
        p99_9_us: over(Quantile::P99_9),
        all_p99_us: Spread::of(&each.iter().filter_map(|(all, _)| us(all, Quantile::P99)).collect::<Vec<_>>()),
        cpu_percent: Spread::of(&cpu().filter_map(|used| used.share_of_one_cpu_percent).collect::<Vec<_>>()),
        wakeups_per_s: Spread::of(&cpu().filter_map(|used| used.wakeups_per_s).collect::<Vec<_>>()),
        intended,
        lost: sum(|run| run.latency.exclusion.lost),
        lost_outside_gaps,
        left_out_percent: (intended > 0).then(|| left_out as f64 * 100.0 / intended as f64),
        goal_held,
        all,
        clean,
    })
}

/// The result in one or two sentences. The first compares polling with the mode that used the least CPU time of those
/// that met their goal at all paced loads. The second lists the missed goals.
pub fn lead(result: &DemoResult, rows: &[Row]) -> String {
    let paced: Vec<&LoadDocument> = result.plan.loads.iter().filter(|load| load.id != super::result::NEAR).collect();
    let find =
        |mode: &str, load: &LoadDocument| rows.iter().find(|row| row.mode.name == mode && row.load.id == load.id);
    let held = |mode: &&ModeDocument| {
        mode.goal.is_some()
            && paced.iter().all(|load| {
                find(&mode.name, load).is_some_and(|row| row.goal_held == Some(true) && !row.only_disturbed)
            })
    };
    let cpu = |row: &Row| row.cpu_percent.map(|spread| spread.median);
    // Of the modes that met their goal, the one that used least CPU time.
    let total = |mode: &ModeDocument| paced.iter().filter_map(|load| find(&mode.name, load).and_then(cpu)).sum::<f64>();
    let best = result.plan.modes.iter().filter(held).min_by(|a, b| total(a).total_cmp(&total(b)));
    let mut text = match best {
        None if rows.is_empty() => return "Nothing was measured.".into(),
        None => "In this run, no latency goal was met at all paced loads.".into(),
        Some(mode) => {
            let parts: Vec<String> = paced
                .iter()
                .filter_map(|load| {
                    let row = find(&mode.name, load)?;
                    let polling = find("poll", load).and_then(|row| Some((cpu(row)?, row.p99_us?.median)));
                    let beside =
                        polling.map(|(cpu, p99)| format!(" (polling: {cpu:.0} % for {p99:.0} us)")).unwrap_or_default();
                    let p99 = row.p99_us?.median;
                    Some(format!("{}: p99 {p99:.0} us with {:.0} % of a core{beside}", load.title, cpu(row)?))
                })
                .collect();
            let goal = mode.goal.as_deref().unwrap_or_default().replace('=', " within ");
            format!("Adaptive waiting met the goal {}. {}.", spaced(&goal), capital(&parts.join("; ")))
        }
    };
    let missed: Vec<String> = rows
        .iter()
        .filter(|row| row.goal_held == Some(false) && !row.only_disturbed && row.load.id != super::result::NEAR)
        .map(|row| format!("{} at {}", row.mode.goal.as_deref().unwrap_or_default(), row.load.title))
        .collect();
    if !missed.is_empty() {
        text += &format!(" Missed: {}.", missed.join("; "));
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

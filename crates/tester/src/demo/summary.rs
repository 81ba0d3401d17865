//! From runs to rows: the run is the sample, so a row has the median over its runs, and their spread.

use units::Quantile;

use super::plan::spaced;
use super::result::{DemoResult, LoadDocument, ModeDocument, Run};
use crate::Error;
use crate::document::Distribution;
use crate::histogram::Histogram;
use crate::quantile;
use crate::result::SearchEnd;
use crate::statistics;

/// From this share of a run on, in hundredths, in which the worker was ready but another thread had its
/// CPU, the run says more of that thread than of the mode. A spinning worker loses 5 % on any busy
/// machine: the kernel keeps so much from real-time threads (`sched_rt_runtime_us`, or its fair server).
pub const DISTURBED_PERCENT: f64 = 10.0;

/// A value over runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = statistics::median(values)?;
        let (least, greatest) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
        Some(Self { median, least, greatest })
    }
}

/// One mode at one load, over its complete runs. Runs in which another process had the worker's CPU
/// are left out if there are others: told by how long the worker stood in the kernel's queue, never by
/// the latencies.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The mode.
    pub mode: ModeDocument,
    /// The load.
    pub load: LoadDocument,
    /// Runs that count.
    pub runs: usize,
    /// Complete runs in which another process had the worker's CPU for more than [`DISTURBED_PERCENT`].
    pub disturbed: usize,
    /// Whether there were no others, so that the numbers are those of disturbed runs.
    pub only_disturbed: bool,
    /// Frames a second that came back, median over the runs.
    pub received_pps: Option<f64>,
    /// Latency outside the gaps; `None` if no run had enough samples.
    pub p50_us: Option<Spread>,
    /// As `p50_us`.
    pub p99_us: Option<Spread>,
    /// As `p50_us`.
    pub p99_9_us: Option<Spread>,
    /// Of all samples, those in gaps too.
    pub all_p99_us: Option<Spread>,
    /// CPU time of the worker's thread, in hundredths of one CPU's.
    pub cpu_percent: Option<Spread>,
    /// Times a second that the worker was woken.
    pub wakeups_per_s: Option<Spread>,
    /// Frames intended, all runs together.
    pub intended: u64,
    /// Frames lost, all runs together.
    pub lost: u64,
    /// Of these, those outside the gaps.
    pub lost_outside_gaps: u64,
    /// Share of the frames that the latencies leave out, all runs together.
    pub left_out_percent: Option<f64>,
    /// Whether the goal was held in the median run and no frame was lost outside the gaps; `None` without a goal, or if that is not known.
    pub goal_held: Option<bool>,
    /// All samples of all runs.
    pub all: Histogram,
    /// Those outside the gaps.
    pub clean: Histogram,
}

/// One mode's highest loss-free rate.
#[derive(Clone, PartialEq, Debug)]
pub struct Rate {
    /// The mode.
    pub mode: ModeDocument,
    /// The highest rate that passed; `None` if none did.
    pub passed_pps: Option<u64>,
    /// The lowest rate that failed; `None` if none did.
    pub failed_pps: Option<u64>,
    /// Why the search ended.
    pub end: SearchEnd,
}

/// The rows of all modes at all loads that have a complete run, in the plan's order: load by load.
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

/// The rates, in the plan's order.
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

/// What is to be said of disturbed runs; `None` without any.
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
            "In {disturbed} of {total} runs another process had the worker's CPU for more than {DISTURBED_PERCENT} % \
             of the time; they do not count."
        );
        if !only.is_empty() {
            text += &format!(" Without another run, and so not to be trusted: {}.", only.join("; "));
        }
        text + " On a machine that is doing nothing else there are none."
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
    // A lost frame is later than any goal; none may be (DESIGN.md: "p99.9 within 50 us, no loss").
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

/// The result in one sentence or two, from the rows: the loosest goal that was held at all paced loads
/// beside what polling took; and what was missed.
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
    // Of those that were held, the one that saved most.
    let total = |mode: &ModeDocument| paced.iter().filter_map(|load| find(&mode.name, load).and_then(cpu)).sum::<f64>();
    let best = result.plan.modes.iter().filter(held).min_by(|a, b| total(a).total_cmp(&total(b)));
    let mut text = match best {
        None if rows.is_empty() => return "Nothing was measured.".into(),
        None => "No latency goal was seen to be held at all paced loads in this run.".into(),
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
            format!("Asked for {}, adaptive waiting held it. {}.", spaced(&goal), capital(&parts.join("; ")))
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

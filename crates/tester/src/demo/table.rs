//! The demo's result as text, in columns.

use std::fmt::Write as _;

use super::energy;
use super::result::DemoResult;
use super::summary::{Rate, Row, Spread, disturbance, lead, rates, rows};
use crate::Error;
use crate::layout::aligned;
use crate::result::SearchEnd;

const HEADINGS: [&str; 9] = ["mode", "p50 us", "p99 us", "p99.9 us", "CPU %", "wake-ups/s", "lost", "excluded", "goal"];

/// Renders the tables for the terminal.
pub fn render(result: &DemoResult) -> Result<String, Error> {
    let rows = rows(result)?;
    let rates = rates(result);
    let mut text = format!("{}\n", lead(result, &rows));
    for load in &result.plan.loads {
        let of: Vec<&Row> = rows.iter().filter(|row| row.load.id == load.id).collect();
        if of.is_empty() {
            continue;
        }
        let runs = of.iter().map(|row| row.runs).max().unwrap_or(0);
        let runs = if runs == 1 { "1 run".into() } else { format!("median of {runs} runs") };
        let _ = write!(text, "\n{} ({runs})\n", load.title);
        let lines = of.iter().map(|row| line(row)).collect::<Vec<_>>();
        text += &columns(&HEADINGS, &lines);
    }
    if !rates.is_empty() {
        text += "\nhighest loss-free rate\n";
        let lines: Vec<Vec<String>> = rates.iter().map(rate_line).collect();
        text += &columns(&["mode", "kpps", "fails at", "the search"], &lines);
    }
    text += "\nLatency: round trip from the due send time, without the times when the host stopped a CPU.\n\
             CPU: the worker's thread, in % of one core.\n";
    for line in energy::lines(result) {
        let _ = writeln!(text, "{line}");
    }
    text.extend(disturbance(&rows).map(|said| said + "\n"));
    for what in &result.not_done {
        let _ = writeln!(text, "not done: {what}");
    }
    Ok(text)
}

fn line(row: &Row) -> Vec<String> {
    let lost = match (row.lost, row.lost_outside_gaps) {
        (0, _) => "0".into(),
        (all, outside) => format!("{outside} (+{} in gaps)", all.saturating_sub(outside)),
    };
    let goal = match (row.goal_held, &row.mode.goal) {
        (_, None) => String::new(),
        _ if row.only_disturbed => "disturbed".into(),
        (Some(true), _) => "held".into(),
        (Some(false), _) => "missed".into(),
        (None, _) => "too few samples".into(),
    };
    vec![
        row.mode.name.clone(),
        number(row.p50_us, 1),
        number(row.p99_us, 1),
        number(row.p99_9_us, 1),
        number(row.cpu_percent, 1),
        number(row.wakeups_per_s, 0),
        lost,
        row.left_out_percent.map_or_else(|| "-".into(), |percent| format!("{percent:.1} %")),
        goal,
    ]
}

fn rate_line(rate: &Rate) -> Vec<String> {
    let kpps = |pps: Option<u64>| pps.map_or_else(|| "-".into(), |pps| format!("{:.0}", pps as f64 / 1e3));
    vec![rate.mode.name.clone(), kpps(rate.passed_pps), kpps(rate.failed_pps), end(rate.end).into()]
}

/// Why a search ended, in words.
pub(super) fn end(end: SearchEnd) -> &'static str {
    match end {
        SearchEnd::Converged => "converged",
        SearchEnd::MaximumPassed => "even the highest rate passed",
        SearchEnd::TesterLimited => "reached the tester's limit: at least this",
        SearchEnd::MinimumFailed => "even the lowest rate failed",
        SearchEnd::GaveUp => "ran out of trials: not confirmed",
        SearchEnd::Interrupted => "was interrupted: not confirmed",
    }
}

fn number(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or_else(|| "-".into(), |spread| format!("{:.decimals$}", spread.median))
}

/// Aligns text columns: the first and the last left, the others right.
fn columns(headings: &[&str], lines: &[Vec<String>]) -> String {
    let last = headings.len() - 1;
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(lines.iter().cloned()).collect();
    aligned(&rows, |column| column == 0 || column == last).iter().map(|line| format!("  {line}\n")).collect()
}

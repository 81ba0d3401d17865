//! Prints cases as text.

use std::fmt::Write as _;

use sim::outcome::Term;
use tester::layout::aligned;
use units::{Nanos, Quantile};

use crate::documents::sim::{Case, GoalDocument, Least};

/// Quantiles shown in tables.
const SHOWN: [Quantile; 4] = [Quantile::P50, Quantile::P99, Quantile::P99_9, Quantile::P99_99];

/// Renders one case in full.
pub fn one(case: &Case) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", name(case));
    if let Some(description) = &case.description {
        let _ = writeln!(text, "{description}");
    }
    let _ = writeln!(text, "simulated: {}, {}; {}", case.machine, case.nic, policies(case));
    let window = Nanos::from_nanos(case.duration_ns);
    let _ = writeln!(text, "seed {}, {window} after {} of warm-up", case.seed, Nanos::from_nanos(case.warm_up_ns));
    let frames = &case.frames;
    let _ = writeln!(
        text,
        "\nframes   {} offered, {} departed ({:.0}/s), {} dropped, {} in flight",
        frames.offered,
        frames.departed,
        frames.departed_pps,
        frames.dropped.values().sum::<u64>(),
        frames.in_flight
    );
    for (why, count) in frames.dropped.iter().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "         {count} {why}");
    }
    let shown = SHOWN.map(|quantile| format!("{quantile} {}", micros(case.latency.quantile(quantile))));
    let _ = writeln!(
        text,
        "latency  min {}, mean {}, {}, max {} us",
        micros(case.latency.min_ns),
        micros(case.latency.mean_ns),
        shown.join(", "),
        micros(case.latency.max_ns)
    );
    if let Some(goal) = &case.goal {
        let _ = writeln!(text, "goal     {}", verdict(goal));
    }
    text.push_str("\nbudget, us          mean       p99       max\n");
    for term in Term::ALL {
        if let Some(read) = case.budget.get(term.name()).filter(|read| read.max_ns.is_some_and(|max| max > 0)) {
            let [mean, p99, max] = [read.mean_ns, read.p99_ns, read.max_ns].map(micros);
            let _ = writeln!(text, "  {:<15}{mean:>9} {p99:>9} {max:>9}", term.name());
        }
    }
    let power = &case.power;
    let _ = writeln!(text, "\npower    cores {} W, package {} W", watts(power.cores_uw), watts(power.package_uw));
    if let Some(least) = &case.least {
        let _ = writeln!(text, "         {}", least_possible(least, case));
    }
    let interrupts: u64 = case.queues.iter().map(|queue| queue.interrupts).sum();
    let moderated: u64 = case.queues.iter().filter_map(|queue| queue.moderation_changes).sum();
    let _ = writeln!(text, "interrupts {interrupts}, changes of moderation {moderated}");
    for (number, shared) in case.queues.iter().enumerate().filter_map(|(n, queue)| Some((n, queue.shared?))) {
        let [vacation, busy] = [shared.vacation_mean_ns, shared.busy_mean_ns].map(micros);
        let _ = writeln!(
            text,
            "queue {number}  mean vacation {vacation} us, mean busy period {busy} us, {} cycles, lock taken {} times",
            shared.cycles, shared.refused
        );
    }
    for (number, core) in case.cores.iter().enumerate() {
        let _ = writeln!(
            text,
            "core {number}   busy {:.1} %, woken {}, polls {} ({} empty), frequency changes {}, changes of the idle limit {}",
            core.busy_ppm as f64 / 10_000.0,
            core.wakeups,
            core.polls,
            core.empty_polls,
            core.frequency_changes,
            core.idle_limit_changes
        );
        for entry in &core.residency {
            let share = entry.time_ns as f64 * 100.0 / case.duration_ns as f64;
            let mhz = entry.frequency_hz / 1_000_000;
            let _ =
                writeln!(text, "  {:<10} at {mhz:>4} MHz  {share:>6.2} %  {:>7} W", entry.state, watts(entry.power_uw));
        }
    }
    text
}

/// Renders several cases, one line each.
pub fn several(cases: &[Case]) -> String {
    const HEADINGS: [&str; 10] =
        ["CASE", "POLICIES", "OFFERED/s", "LOSS %", "p50 us", "p99 us", "p99.9 us", "MAX us", "CORES W", "GOAL"];
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(names(cases).into_iter().zip(cases).map(|(name, case)| line(name, case)));
    aligned(&lines, |column| !(2..9).contains(&column)).join("\n") + "\n"
}

fn line(name: String, case: &Case) -> [String; 10] {
    let offered = case.frames.offered as f64 * 1e9 / case.duration_ns as f64;
    let lost: u64 = case.frames.dropped.values().sum();
    let loss = match case.frames.offered {
        0 => "-".to_owned(),
        offered => format!("{:.3}", lost as f64 * 100.0 / offered as f64),
    };
    [
        name,
        policies(case),
        format!("{offered:.0}"),
        loss,
        micros(case.latency.quantile(Quantile::P50)),
        micros(case.latency.quantile(Quantile::P99)),
        micros(case.latency.quantile(Quantile::P99_9)),
        micros(case.latency.max_ns),
        watts(case.power.cores_uw),
        case.goal.as_ref().map_or_else(|| "-".to_owned(), |goal| format!("{} {}", goal.latency, held(goal))),
    ]
}

/// Labels of the cases: the file name without extension, and the replaced values. If several files have the same name,
/// as many of their folders precede it as it takes to tell them apart.
pub fn names(cases: &[Case]) -> Vec<String> {
    let one = |case: &Case| {
        let unique = |folders: &usize| {
            let mut others = cases.iter().filter(|other| other.scenario != case.scenario);
            others.all(|other| name_with(other, *folders) != name_with(case, *folders))
        };
        let all = case.scenario.matches('/').count();
        name_with(case, (0..all).find(unique).unwrap_or(all))
    };
    cases.iter().map(one).collect()
}

fn name(case: &Case) -> String {
    name_with(case, 0)
}

/// Label of a case, with its innermost `folders`.
fn name_with(case: &Case, folders: usize) -> String {
    let parts: Vec<&str> = case.scenario.split('/').collect();
    let path = parts[parts.len().saturating_sub(folders + 1)..].join("/");
    let stem = path.strip_suffix(".toml").unwrap_or(&path);
    let instead: String = case.instead.iter().map(|(key, value)| format!(" {key}={value}")).collect();
    format!("{stem}{instead}")
}

/// Names the policies that the case uses.
pub fn policies(case: &Case) -> String {
    let wait = case.wait.as_deref().unwrap_or(case.driver.as_str());
    let place = if case.virtual_machine { ", in a virtual machine" } else { "" };
    format!("{wait}, moderation {}, frequency {}{place}", case.moderation, case.frequency)
}

fn held(goal: &GoalDocument) -> &'static str {
    match goal.held {
        Some(true) => "held",
        Some(false) => "missed",
        None => "unknown",
    }
}

fn verdict(goal: &GoalDocument) -> String {
    let GoalDocument { latency, packets, late, lost, .. } = goal;
    let why = if goal.held.is_none() { ": too few packets to judge" } else { "" };
    format!("{latency} {}{why} ({late} of {packets} packets late, {lost} of them lost)", held(goal))
}

/// Power of the cores, compared with the minimum power that could meet the goal.
fn least_possible(least: &Least, case: &Case) -> String {
    let milli = |microwatts: u64| format!("{:.3} W", microwatts as f64 / 1e6);
    let drawn = milli(case.power.cores_uw);
    // The bound applies to runs that meet the goal. A run with too few packets for a verdict can have too many late
    // ones.
    let meets = case.goal.as_ref().is_some_and(|goal| goal.held != Some(false) && !goal.has_too_many_late());
    match (least.cores_uw, least.multiple) {
        (Some(bound), Some(multiple)) if meets => {
            format!("cores {drawn}, {multiple:.2} x the least possible ({})", milli(bound))
        }
        (Some(bound), _) => format!("cores {drawn}; meeting the goal takes at least {}", milli(bound)),
        _ => {
            let why = least.unknown_because.as_deref().unwrap_or("it was not computed");
            format!("the least possible is unknown: {why}")
        }
    }
}

/// Microseconds with about three digits; `-` if unknown.
pub fn micros(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), |nanos| rounded(nanos as f64 / 1e3))
}

/// Watts with about three digits; `-` if unknown.
pub fn watts(microwatts: u64) -> String {
    rounded(microwatts as f64 / 1e6)
}

fn rounded(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

//! The table of `apus power watch`.

use std::fmt::Write as _;

use tester::document::MeterEnergy;
use tester::host::Reading;

use crate::documents::power::{Core, IdleState, Watch};

/// Formats what happened in an interval as a table. A reason that applies to every CPU is printed only once.
pub fn render(document: &Watch) -> String {
    let mut text = String::new();
    let _ =
        writeln!(text, "{:.3} s; this command: {}", document.interval_ns as f64 / 1e9, own(&document.own_cpu_percent));
    power(document, &mut text);
    cores(&document.cores, &mut text);
    asked(document, &mut text);
    text
}

fn own(percent: &Reading<f64>) -> String {
    percent.value.map_or("CPU time unknown".to_owned(), |percent| format!("{percent:.2} % of one CPU"))
}

fn power(document: &Watch, text: &mut String) {
    match (&document.energy.measured.value, &document.energy.measured.unknown_because) {
        (Some(of), _) => {
            let _ = writeln!(text, "power     {} ({})", watts(of.power_uw), of.meter);
        }
        (None, why) => {
            let _ = writeln!(text, "power     unknown: {}", why.as_deref().unwrap_or("no reason given"));
        }
    }
    let meters = &document.energy.meters;
    let width = meters.iter().map(|meter| meter.meter.chars().count()).max().unwrap_or(0);
    for meter in meters {
        let _ = writeln!(text, "  {:<width$}  {}", meter.meter, one(meter));
    }
    if document.energy.measured.value.is_some() {
        for lack in document.lacks.iter().filter(|lack| lack.contains("no permission")) {
            let _ = writeln!(text, "  not readable: {lack}");
        }
    }
}

fn one(meter: &MeterEnergy) -> String {
    let value = match &meter.energy_uj.unknown_because {
        Some(why) => format!("unknown: {why}"),
        None => watts(meter.power_uw),
    };
    let counted = if meter.counted { "in the total" } else { "not in the total" };
    let step = meter.resolution_nj.map_or(String::new(), |nj| format!(", in steps of {:.1} uJ", nj as f64 / 1e3));
    format!("{value}  {counted}, {}{step}", meter.interface)
}

fn watts(uw: Option<u64>) -> String {
    uw.map_or("unknown".to_owned(), |uw| format!("{:.3} W", uw as f64 / 1e6))
}

fn cores(cores: &[Core], text: &mut String) {
    let names = names(cores);
    let source = cores.iter().find_map(|core| core.frequency_from.as_ref());
    match source {
        Some(source) => drop(writeln!(text, "frequency from {source}")),
        None => {
            let why = cores.iter().find_map(|core| core.frequency_hz.unknown_because.as_deref());
            let _ = writeln!(text, "frequency unknown: {}", why.unwrap_or("no CPU is online"));
        }
    }
    if names.is_empty() {
        let why = cores.iter().find_map(|core| core.idle_states.unknown_because.as_deref());
        let _ = writeln!(text, "idle states unknown: {}", why.unwrap_or("no CPU is online"));
    }
    let _ = write!(text, "{:<5}{:>9}{:>9}", "CPU", "GHz", "runs %");
    // The width of the name with its unit, and two spaces.
    let width = |name: &str| (name.chars().count() + 4).max(10);
    for name in &names {
        let _ = write!(text, "{:>width$}{:>9}", format!("{name} %"), "entries", width = width(name));
    }
    text.push('\n');
    for core in cores {
        let ghz = core.frequency_hz.value.map_or("-".to_owned(), |hz| format!("{:.3}", hz as f64 / 1e9));
        let _ = write!(text, "{:<5}{ghz:>9}{:>9}", core.cpu, number(core.running_percent));
        for name in &names {
            let state = core.idle_states.value.iter().flatten().find(|state| state.name == *name);
            let entries = state.and_then(|state| state.entries).map_or("-".to_owned(), |n| n.to_string());
            let share = number(state.and_then(|state| state.residency_percent));
            let _ = write!(text, "{share:>width$}{entries:>9}", width = width(name));
        }
        text.push('\n');
    }
}

/// The names of all idle states, in the order in which the CPUs list them.
fn names(cores: &[Core]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let states = cores.iter().flat_map(|core| core.idle_states.value.iter().flatten());
    for IdleState { name, .. } in states {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn number(percent: Option<f64>) -> String {
    percent.map_or("-".to_owned(), |percent| format!("{percent:.1}"))
}

fn asked(document: &Watch, text: &mut String) {
    let asked = &document.asked;
    let word = |reading: &Reading<String>| match (&reading.value, &reading.unknown_because) {
        (Some(value), _) => value.clone(),
        (None, why) => format!("unknown ({})", why.as_deref().unwrap_or("no reason given")),
    };
    let _ = writeln!(text, "idle driver {}, governor {}", word(&asked.idle_driver), word(&asked.idle_governor));
    let limit = match (asked.dma_latency_ns.value, asked.dma_latency_limits.value) {
        (Some(ns), Some(true)) => format!("at most {} us", ns / 1_000),
        (Some(_), _) => "none".to_owned(),
        (None, _) => format!("unknown ({})", asked.dma_latency_ns.unknown_because.as_deref().unwrap_or_default()),
    };
    let holders = match &asked.dma_latency_holders.value {
        Some(holders) if !holders.is_empty() => format!(", requested by {}", holders.join(", ")),
        _ => String::new(),
    };
    let _ = writeln!(text, "limit on the exit latency of all CPUs: {limit}{holders}");
    for of in &asked.resume_latency {
        let limit =
            if of.limit_ns == 0 { "no idle states".to_owned() } else { format!("at most {} us", of.limit_ns / 1_000) };
        let _ = writeln!(text, "  CPU {}: {limit} (pm_qos_resume_latency_us)", of.cpu);
    }
}

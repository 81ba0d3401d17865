//! `apus probe compare`: compares the measurements in two platform profiles.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use probe::Measured;
use probe::compare::{TermComparison, Verdict, compare, differences, rounds_needed};
use probe::report::{Set, comparison, verdict};
use serde_json::Value;
use tester::host::{CStates, HostState, Reading};
use tester::quantile::minimum_samples;
use units::Quantile;

use super::super::output;
use super::{check_writable, html};
use crate::args::probe::Compare;
use crate::documents::probe::{Comparison, Document, PLATFORM, PLATFORM_1, Platform, SCHEMA, SCHEMA_1};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus probe compare`.
pub fn run(typed: &Compare) -> anyhow::Result<Status> {
    if let Some(path) = &typed.html {
        output::is_no_input(path, &[&typed.a, &typed.b])?;
    }
    check_writable(&None, &typed.html)?;
    let (a, b) = (read(&typed.a)?, read(&typed.b)?);
    let name = |path: &Path| path.display().to_string();
    let terms = compare(&a.measured, &b.measured);
    let longer = terms.iter().any(|term| term.verdict == Verdict::Longer);
    let mut differences = differences(&a.measured, &b.measured);
    differences.splice(0..0, hosts(&a.host, &b.host));
    let document = Comparison::new(name(&typed.a), name(&typed.b), differences, terms);
    if let Some(path) = &typed.html {
        let sets = [
            Set { name: "A", host: &a.host, measured: &a.measured },
            Set { name: "B", host: &b.host, measured: &b.measured },
        ];
        let more = vec![comparison(&document.terms)];
        html("Apus: two profiles compared", &sets, serde_json::to_value(&document)?, more, path)?;
    }
    if typed.json {
        print_json(&document)?;
    } else {
        table(&document, &mut terminal::out()).context("cannot write the table")?;
    }
    Ok(if longer { Status::Findings } else { Status::Good })
}

/// Lists the properties in which the two hosts differ.
fn hosts(a: &HostState, b: &HostState) -> Vec<String> {
    let pairs = properties(a).into_iter().zip(properties(b));
    let differing = pairs.filter(|((_, a), (_, b))| a != b);
    differing.map(|((name, a), (_, b))| format!("{name}: {a} and {b}")).collect()
}

/// Each property of a host that may explain a difference, with its name.
fn properties(of: &HostState) -> [(&'static str, String); 11] {
    let HostState {
        cpu_model,
        cpus_online,
        kernel,
        virtualised,
        governors,
        c_states,
        isolated_cpus,
        nohz_full_cpus,
        microcode,
        mitigations,
        irq_affinity,
        // That of the observing thread. The conditions of each measurement have that of the measuring threads.
        scheduling_class: _,
    } = of;
    fn shown<T>(reading: &Reading<T>, show: impl Fn(&T) -> String) -> String {
        reading.value.as_ref().map_or("not known".to_owned(), |value| match show(value) {
            text if text.is_empty() => "none".to_owned(),
            text => text,
        })
    }
    let states = |of: &CStates| format!("{} with {}", of.driver, of.enabled.join(", "));
    [
        ("CPU", shown(cpu_model, String::clone)),
        ("kernel", shown(kernel, String::clone)),
        ("isolated CPUs", shown(isolated_cpus, String::clone)),
        ("tickless CPUs", shown(nohz_full_cpus, String::clone)),
        ("CPUs for new interrupts", shown(irq_affinity, String::clone)),
        ("microcode", shown(microcode, String::clone)),
        ("mitigations", shown(mitigations, |all| all.join("; "))),
        ("online CPUs", shown(cpus_online, String::clone)),
        ("governors", shown(governors, |all| all.join(", "))),
        ("idle states", shown(c_states, states)),
        ("virtual machine", shown(virtualised, bool::to_string)),
    ]
}

/// A file with measurements of probes.
pub struct File {
    pub host: HostState,
    pub measured: Vec<Measured>,
}

/// The schemas that can be read, for messages.
const READ: &str = "apus.platform/1 and /2 and apus.probe/1 and /2";

/// Reads a platform profile or the result of a probe.
pub fn read(path: &Path) -> Result<File, Failure> {
    let fix = "give a file that apus probe wrote with -o or --json";
    let wrong = |why: String| Failure::wrong(format!("cannot read {}", path.display()), why, fix);
    let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let document: Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    match document["schema"].as_str() {
        Some(PLATFORM | PLATFORM_1) => serde_json::from_value(document)
            .map(|Platform { host, measured, .. }| File { host, measured })
            .map_err(|e| wrong(e.to_string())),
        Some(SCHEMA | SCHEMA_1) => serde_json::from_value(document)
            .map(|Document { host, measured, .. }| File { host, measured })
            .map_err(|e| wrong(e.to_string())),
        Some(other) => Err(wrong(format!("its schema is {other:?}, but this version of Apus reads {READ}"))),
        None => Err(wrong(format!("it has no schema; expected {READ}"))),
    }
}

fn table(document: &Comparison, out: &mut impl Write) -> io::Result<()> {
    for difference in &document.differences {
        writeln!(out, "differs   {difference}")?;
    }
    writeln!(out, "{:<62}{:>10}{:>10}{:>8}  {:<15}{:>8}", "", "A", "B", "B / A", "95 % interval", "p")?;
    for term in &document.terms {
        row(term, out)?;
    }
    let shown = document.terms.iter().filter(|term| matches!(term.verdict, Verdict::Longer | Verdict::Shorter)).count();
    writeln!(
        out,
        "{shown} of {} figures differ by more than chance. All rounds of a profile run at about the same time: to compare two settings, make several profiles of each.",
        document.terms.len()
    )?;
    let tests = document.terms.iter().filter(|term| term.p.is_some()).count();
    if document.terms.iter().any(|term| term.verdict == Verdict::TooFewRounds) {
        writeln!(
            out,
            "Some figures have too few rounds to show any difference: {tests} tests need at least {} rounds in each profile (apus probe all --rounds).",
            rounds_needed(tests.max(1))
        )?;
    }
    if document.terms.iter().any(|term| term.verdict == Verdict::TooFewSamples) {
        writeln!(
            out,
            "Some figures have too few samples per round: p50 needs {}, and p99 needs {} (apus probe all --slice; for a single probe --duration).",
            minimum_samples(Quantile::P50),
            minimum_samples(Quantile::P99)
        )?;
    }
    out.flush()
}

fn row(term: &TermComparison, out: &mut impl Write) -> io::Result<()> {
    let name = format!("{} {}, {} {}", term.probe, term.variant, term.term, term.quantity);
    let us = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| super::say::us(ns.round() as u64));
    let ratio = term.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    let interval = match (term.ratio_low, term.ratio_high) {
        (Some(low), Some(high)) => format!("{low:.3} to {high:.3}"),
        _ => "-".to_owned(),
    };
    let p = term.p_adjusted.map_or("-".to_owned(), |p| format!("{p:.3}"));
    let (a, b) = (us(term.a_ns), us(term.b_ns));
    writeln!(out, "{name:<62}{a:>10}{b:>10}{ratio:>8}  {interval:<15}{p:>8}  {}", verdict(term.verdict))
}

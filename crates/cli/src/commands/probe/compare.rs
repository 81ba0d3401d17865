//! `apus probe compare`: compares the measurements in two platform profiles.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use probe::Measured;
use probe::compare::{TermComparison, Verdict, compare, differences, rounds_needed};
use probe::report::{Set, comparison, verdict};
use serde_json::Value;
use tester::host::{HostState, Reading};

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

/// Lists the properties in which the two hosts differ. Properties that are unknown for one of them are left out.
fn hosts(a: &HostState, b: &HostState) -> Vec<String> {
    let differs = |what: &str, a: &Reading<String>, b: &Reading<String>| {
        let (a, b) = (a.value.as_ref()?, b.value.as_ref()?);
        (a != b).then(|| format!("{what}: {a} and {b}"))
    };
    [
        differs("CPU", &a.cpu_model, &b.cpu_model),
        differs("kernel", &a.kernel, &b.kernel),
        differs("isolated CPUs", &a.isolated_cpus, &b.isolated_cpus),
        differs("tickless CPUs", &a.nohz_full_cpus, &b.nohz_full_cpus),
        differs("CPUs for new interrupts", &a.irq_affinity, &b.irq_affinity),
        differs("microcode", &a.microcode, &b.microcode),
        differs("mitigations", &joined(&a.mitigations), &joined(&b.mitigations)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn joined(all: &Reading<Vec<String>>) -> Reading<String> {
    Reading { value: all.value.as_ref().map(|all| all.join("; ")), unknown_because: all.unknown_because.clone() }
}

/// A file with measurements of probes.
pub struct File {
    pub host: HostState,
    pub measured: Vec<Measured>,
}

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
        Some(other) => {
            Err(wrong(format!("its schema is {other:?}, but this version of Apus reads {PLATFORM} and {SCHEMA}")))
        }
        None => Err(wrong(format!("it has no schema; expected {PLATFORM} or {SCHEMA}"))),
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

//! `apus audit cmdline`: judges a kernel command line, or suggests one.

use std::io::Write as _;

use audit::cmdline::{Kind, Remark, Suggestion, judge_on, suggest};
use audit::{Context, Intended};
use host::facts::{CommandLine, CpuSet, Reading};

use crate::args::audit::Cmdline;
use crate::documents::VERSION;
use crate::documents::audit::{self as documents, CMDLINE_SCHEMA, CmdlineDocument};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Judges a kernel command line, or suggests one (`apus audit cmdline`).
pub(super) fn run(typed: &Cmdline) -> anyhow::Result<Status> {
    let context = Context {
        isolated: typed.isolated.clone().map(Intended::given).unwrap_or_default(),
        workloads: Intended::given(typed.workload.clone()),
        ..Context::default()
    };
    match &typed.isolated {
        Some(isolated) if typed.suggest => write_one(typed, &context, isolated),
        _ => judge_one(typed, &context),
    }
}

fn judge_one(typed: &Cmdline, context: &Context) -> anyhow::Result<Status> {
    let given = typed.cpus.map(CpuSet::below);
    let (line, present) = match &typed.line {
        Some(text) => (CommandLine::parse(text), given),
        None => {
            let facts = super::facts_of(None, Reading::default())?;
            let present = given.or_else(|| facts.cpus.present.value().cloned());
            let line = facts.cmdline.into_value().ok_or_else(|| {
                Failure::lacking(
                    "cannot read this host's command line",
                    "/proc/cmdline is not readable",
                    "give the command line as an argument, in quotes",
                )
            })?;
            (line, present)
        }
    };
    if let (Some(isolated), Some(present)) = (&typed.isolated, &present) {
        leaves_some("judge", isolated, present)?;
    }
    let remarks = judge_on(&line, context, present.as_ref());
    let findings = remarks.len();
    let status = if findings > 0 { Status::Findings } else { Status::Good };
    if typed.json {
        print_json(&document(line.raw, &remarks, Suggestion::default()))?;
        return Ok(status);
    }
    let mut out = terminal::out();
    for remark in &remarks {
        writeln!(out, "{}: {}", remark.kind, remark.parameter)?;
        writeln!(out, "    {}", remark.text)?;
        match &remark.instead {
            Some(instead) if remark.kind == Kind::Missing => writeln!(out, "    add   {instead}")?,
            Some(instead) => writeln!(out, "    fix   {instead}")?,
            None => {}
        }
        writeln!(out, "    says  {}", remark.source)?;
    }
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    writeln!(out, "{}, {}", count(line.parameters.len(), "parameter"), count(findings, "finding"))?;
    Ok(status)
}

fn write_one(typed: &Cmdline, context: &Context, isolated: &CpuSet) -> anyhow::Result<Status> {
    let present = match typed.cpus {
        Some(cpus) => CpuSet::below(cpus),
        None => super::facts_of(None, Reading::default())?.cpus.all(),
    };
    leaves_some("write", isolated, &present)?;
    let suggestion = suggest(context, &present);
    if typed.json {
        print_json(&document(suggestion.line(), &[], suggestion))?;
        return Ok(Status::Good);
    }
    let mut out = terminal::out();
    writeln!(out, "{suggestion}\n")?;
    for suggested in &suggestion.parameters {
        writeln!(out, "{}\n    {}", suggested.parameter, suggested.why)?;
    }
    for note in &suggestion.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(Status::Good)
}

/// Fails if `isolated` contains CPUs that the host does not have, or all of its CPUs.
fn leaves_some(what: &str, isolated: &CpuSet, present: &CpuSet) -> Result<(), Failure> {
    match isolated.is_subset(present) && !present.is_subset(isolated) {
        true => Ok(()),
        false => Err(Failure::wrong(
            format!("cannot {what} a command line that isolates CPUs {isolated}"),
            format!("the host has CPUs {present}, and at least one must remain for housekeeping"),
            "choose fewer or other CPUs, or give the number of CPUs of another host with --cpus",
        )),
    }
}

fn document(line: String, remarks: &[Remark], suggestion: Suggestion) -> CmdlineDocument {
    let remarks = remarks.iter().map(|remark| documents::Remark {
        kind: remark.kind.into(),
        parameter: remark.parameter.clone(),
        text: remark.text.clone(),
        instead: remark.instead.clone(),
        source: remark.source.to_owned(),
    });
    let suggested = suggestion
        .parameters
        .iter()
        .map(|word| documents::Suggested { parameter: word.parameter.clone(), why: word.why.to_owned() });
    CmdlineDocument {
        apus: VERSION.to_owned(),
        schema: CMDLINE_SCHEMA.to_owned(),
        line,
        remarks: remarks.collect(),
        suggested: suggested.collect(),
        notes: suggestion.notes,
    }
}

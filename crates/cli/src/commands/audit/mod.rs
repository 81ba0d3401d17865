//! `apus audit`: judges a host's settings, and shows the result in one of several forms.

mod cmdline;
mod diff;
mod document;
mod page;
mod read;
mod sarif;
mod text;
mod wording;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use audit::{Level, Report, Selection, Selector, audit_with, read_baseline, rules, write_baseline};
use host::Facts;

use crate::args::audit::{Audit, Special};
use crate::commands::output::unwritable;
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

pub(super) use read::{facts_of, intent_of, read, root_of, stay_away};

/// Runs `apus audit` and its subcommands.
pub fn run(typed: Audit) -> anyhow::Result<Status> {
    match &typed.command {
        Some(Special::Diff(diff)) => diff::run(diff),
        Some(Special::Cmdline(cmdline)) => cmdline::run(cmdline),
        Some(Special::Rules { markdown }) => list(*markdown),
        None => one_host(&typed),
    }
}

fn one_host(typed: &Audit) -> anyhow::Result<Status> {
    let explained = typed.explain.as_deref().map(rule).transpose()?;
    let prints_sarif = typed.sarif.as_deref() == Some(Path::new("-"));
    let prints_plan = typed.fix.as_deref() == Some(Path::new("-"));
    if [prints_sarif, prints_plan, typed.json, explained.is_some()].iter().filter(|prints| **prints).count() > 1 {
        let why = "standard output can hold only one of them";
        return Err(
            Failure::wrong("cannot print two documents at once", why, "give --sarif or --fix a file name").into()
        );
    }
    let facts = read(&typed.host)?;
    let _away = stay_away(&facts, typed.host.isolated.as_ref());
    let intent = intent_of(&typed.host, &facts)?;
    let selection = match explained {
        Some(rule) => Selection { only: vec![Selector::Rule(rule.id)], skip: Vec::new() },
        None => Selection { only: typed.only.clone(), skip: typed.skip.clone() },
    };
    let mut report = audit_with(&facts, &intent, &selection);
    let unused = match &typed.baseline {
        Some(path) => report.accept(&read_baseline(&contents(path)?)),
        None => Vec::new(),
    };
    let unlocks = match selection.only.is_empty() {
        true => audit::unlocks(&facts, &intent, &report),
        // The user selected some rules, so advice about others is left out.
        false => Vec::new(),
    };
    outputs(typed, &facts, &report, &unlocks)?;
    let level = typed.min_level.unwrap_or(Level::Warn);
    let status = match report.at_least(level.max(Level::Choice)).next() {
        Some(_) => Status::Findings,
        // A host of which nothing is known is not a host without problems.
        None if explained.is_none() && report.tally(None).says_nothing() => Status::Findings,
        None => Status::Good,
    };
    if let Some(rule) = explained {
        text::explain(&mut terminal::out(), rule, &report)?;
    } else if typed.json {
        let level = typed.min_level.unwrap_or(Level::All);
        print_json(&document::of(&facts, &report, &unlocks, level, unused))?;
    } else if !prints_sarif && !prints_plan {
        let advice = audit::advise(&report, level);
        let typed = text::Typed { from: typed.host.from.as_deref(), options: options(typed) };
        text::report(&mut terminal::out(), &facts, &report, &advice, (&unlocks, level, &unused), &typed)?;
    }
    Ok(status)
}

/// The options that decide which findings there are, as the user typed them: a suggested command must repeat them.
fn options(typed: &Audit) -> String {
    let host = &typed.host;
    let list = |of: &[Selector]| of.iter().map(Selector::name).collect::<Vec<_>>().join(",");
    let workloads = host.workload.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let values = [
        ("--isolated", host.isolated.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("--nic", host.nic.join(",")),
        ("--workload", workloads),
        ("--goal", host.goal.map(|goal| goal.to_string()).unwrap_or_default()),
        ("--interval", host.interval.map(|span| span.to_string()).unwrap_or_default()),
        ("--only", list(&typed.only)),
        ("--skip", list(&typed.skip)),
        ("--baseline", path(&typed.baseline)),
    ];
    let given = values.iter().filter(|(_, value)| !value.is_empty());
    let words = given.map(|(option, value)| format!(" {option} {}", audit::shell_word(value)));
    words.chain(host.msr.then(|| " --msr".to_owned())).collect()
}

/// Writes the output files: SARIF, HTML and baseline.
fn outputs(typed: &Audit, facts: &Facts, report: &Report, unlocks: &[audit::Unlock]) -> anyhow::Result<()> {
    let level = typed.min_level.unwrap_or(Level::All);
    if let Some(path) = &typed.sarif {
        let text = serde_json::to_string_pretty(&sarif::of(report, level))? + "\n";
        if path == Path::new("-") {
            terminal::out().write_all(text.as_bytes())?;
        } else {
            write(path, &text)?;
        }
    }
    if let Some(path) = &typed.fix {
        plan(path, report)?;
    }
    if let Some(path) = &typed.output {
        write(path, &page::of(&document::of(facts, report, unlocks, Level::All, Vec::new())))?;
    }
    if let Some(path) = &typed.write_baseline {
        write(path, &write_baseline(report))?;
    }
    Ok(())
}

/// Writes the profile of `--fix`, and says what to do with it next.
fn plan(path: &Path, report: &Report) -> anyhow::Result<()> {
    let plan = audit::plan(report);
    if path == Path::new("-") {
        return Ok(terminal::out().write_all(plan.toml().as_bytes())?);
    }
    write(path, &plan.toml())?;
    let isolated = isolated(report);
    let file = path.display().to_string();
    // Without a slash or the ending .toml, `apus tune` would take the name for a built-in profile.
    let file = if file.contains('/') || file.ends_with(".toml") { file } else { format!("./{file}") };
    let _ = writeln!(
        terminal::err(),
        "{file} fixes {} findings; {} others need you (see its comments). Next: apus tune plan {file}{isolated}",
        plan.mends,
        plan.left.len()
    );
    Ok(())
}

/// The option with which `apus tune` resolves a profile for the report's isolated CPUs; empty if there are none.
fn isolated(report: &Report) -> String {
    let isolated = &report.context.isolated.value;
    if isolated.is_empty() { String::new() } else { format!(" --isolated {isolated}") }
}

fn list(markdown: bool) -> anyhow::Result<Status> {
    let mut out = terminal::out();
    if markdown {
        out.write_all(audit::markdown().as_bytes())?;
        return Ok(Status::Good);
    }
    for (group, rule) in rules::by_group() {
        writeln!(out, "{:<28} {:<15} {}", rule.id, group.name(), rule.title)?;
    }
    Ok(Status::Good)
}

fn rule(id: &str) -> Result<&'static audit::Rule, Failure> {
    rules::find(id).ok_or_else(|| {
        let near: Vec<&str> = rules::all().map(|rule| rule.id).filter(|known| near(known, id)).take(5).collect();
        let fix = match near.is_empty() {
            true => "apus audit rules lists them".to_owned(),
            false => format!("did you mean {}? apus audit rules lists them all", near.join(", ")),
        };
        Failure::wrong(format!("cannot explain rule {id}"), "there is no such rule", fix)
    })
}

/// Whether two rule names share a word, for the suggestion after a typing mistake.
fn near(known: &str, typed: &str) -> bool {
    let words = |text: &str| -> Vec<String> { text.split(['.', '-', '_']).map(str::to_lowercase).collect() };
    let typed = words(typed);
    words(known).iter().any(|word| word.len() > 2 && typed.contains(word))
}

fn contents(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        Failure::wrong(
            format!("cannot read the baseline {}", path.display()),
            error,
            "give a file that apus audit --write-baseline wrote",
        )
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    terminal::file(path, text).map_err(|error| unwritable(path, error))
}

//! `apus irqs`: shows what interrupts CPUs.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use audit::{Context, Hits, Intent, hits};
use host::facts::{CpuSet, Facts, Reading};
use live::os::Signals;
use units::Nanos;

use super::audit::{root_of, stay_away};
use crate::args::audit::Irqs;
use crate::documents::VERSION;
use crate::documents::irqs::{Document, SCHEMA, Source};
use crate::{Failure, Status, terminal};

/// Maximum number of rows shown; rarer sources are summed up.
const ROWS: usize = 40;

/// Runs `apus irqs`: prints what interrupts CPUs, per second and by source.
pub fn run(typed: &Irqs) -> anyhow::Result<Status> {
    let signals = typed.watch.then(Signals::hold).transpose()?;
    let root = root_of(typed.from.as_deref())?;
    // A signal ends the interval, and its counts are not shown.
    let pause = |length: Nanos| {
        let length = Duration::from_nanos(length.as_nanos());
        match &signals {
            Some(signals) => signals.wait(length).map_or(Ok(()), Err),
            None => {
                thread::sleep(length);
                Ok(())
            }
        }
    };
    loop {
        let reading = Reading { interval: typed.from.is_none().then_some(typed.interval), ..Reading::default() };
        let Ok(facts) = Facts::try_read_with(&root, reading, pause) else { return Ok(Status::Good) };
        let cpus = cpus_of(typed, &facts)?;
        let _away = stay_away(&facts, None);
        let hits = hits(&facts, &cpus).ok_or_else(|| {
            let fact = &facts.counters.interrupts;
            let why = fact.why().map_or_else(|| "it is empty".to_owned(), ToString::to_string);
            Failure::lacking(
                format!("cannot count the interrupts of CPUs {cpus}"),
                format!("{}: {why}", fact.source()),
                "use a recording that contains /proc/interrupts, or run the command on the host itself",
            )
        })?;
        let mut out = terminal::out();
        match (typed.json, typed.watch) {
            (true, true) => {
                serde_json::to_writer(&mut out, &document(&cpus, &hits))?;
                writeln!(out)?;
            }
            (true, false) => terminal::print_json_to(&mut out, &document(&cpus, &hits))?,
            (false, _) => table(&mut out, &cpus, &hits)?,
        }
        out.flush().context("cannot write what was counted")?;
        match &signals {
            Some(signals) if signals.wait(Duration::ZERO).is_none() => {}
            _ => return Ok(Status::Good),
        }
    }
}

/// The CPUs given on the command line; otherwise the isolated ones; otherwise all.
fn cpus_of(typed: &Irqs, facts: &Facts) -> Result<CpuSet, Failure> {
    let all = facts.cpus.all();
    match &typed.cpu {
        Some(cpus) if !all.is_empty() && !cpus.is_subset(&all) => Err(Failure::wrong(
            format!("cannot count the interrupts of CPUs {cpus}"),
            format!("the host has CPUs {all}, but not {}", cpus.difference(&all)),
            "choose from these CPUs",
        )),
        Some(cpus) => Ok(cpus.clone()),
        None => Ok(Context::of(facts, &Intent::default()).critical(facts)),
    }
}

fn per_second(count: u64, during: Nanos) -> f64 {
    count as f64 * 1e9 / during.as_nanos().max(1) as f64
}

fn document(cpus: &CpuSet, hits: &Hits) -> Document {
    let source = |hit: &audit::Hit| Source {
        label: hit.label.clone(),
        name: hit.name.clone(),
        kind: hit.kind.into(),
        count: hit.total,
        per_second: hits.during.map(|during| per_second(hit.total, during)),
        by_cpu: hit.counts.iter().copied().collect(),
    };
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        cpus: cpus.to_string(),
        during_ns: hits.during.map(Nanos::as_nanos),
        sources: hits.list.iter().map(source).collect(),
    }
}

fn table(out: &mut impl Write, cpus: &CpuSet, hits: &Hits) -> io::Result<()> {
    match hits.during {
        Some(during) => {
            writeln!(out, "CPUs {cpus}, counted over {}", Nanos::from_millis(during.as_nanos() / 1_000_000))?
        }
        None => writeln!(out, "CPUs {cpus}, since boot")?,
    }
    let unit = if hits.during.is_some() { "per second" } else { "count" };
    writeln!(out, "{unit:>12}  {:<8}  {:<8}  {:<16}  what", "kind", "label", "CPUs")?;
    for hit in hits.list.iter().take(ROWS) {
        let on: CpuSet = hit.counts.iter().map(|(cpu, _)| *cpu).collect();
        let much = match hits.during {
            Some(during) => format!("{:.1}", per_second(hit.total, during)),
            None => hit.total.to_string(),
        };
        writeln!(out, "{much:>12}  {:<8}  {:<8}  {:<16}  {}", hit.kind.name(), hit.label, on.to_string(), hit.name)?;
    }
    if hits.list.is_empty() {
        writeln!(out, "{:>12}  no interrupt or softirq on these CPUs", "-")?;
    }
    if hits.list.len() > ROWS {
        let rest: u64 = hits.list[ROWS..].iter().map(|hit| hit.total).sum();
        writeln!(out, "and {} rarer sources with {rest} in total; --json lists them all", hits.list.len() - ROWS)?;
    }
    Ok(())
}

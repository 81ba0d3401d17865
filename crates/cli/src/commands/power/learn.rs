//! `apus power learn`: records the branch counters of a polling program while it is idle and while it has load.

use std::io::Write as _;
use std::time::Duration;

use live::os::Signals;
use policy::frequency::outside::branches::Phase;
use steer::frequency::INTERVAL;
use tester::clock::{MonotonicClock, TrialClock as _};
use tester::document::Name;

use super::branches;
use crate::args::power::learn::Learn;
use crate::documents::VERSION;
use crate::documents::power_learn::{Document, SCHEMA};
use crate::{Failure, Status, terminal};

/// Runs `apus power learn`.
pub(super) fn run(typed: &Learn) -> anyhow::Result<Status> {
    // Checks the file first, before time is spent on measuring.
    if typed.file.exists() {
        branches::spans(&typed.file)?;
    }
    let mut counters = match &typed.counts {
        Some(path) => branches::recorded(path)?,
        None => branches::counters(typed.cpu)?,
    };
    let signals = Signals::hold()?;
    let (mut seen, end) = (Vec::new(), MonotonicClock.now() + typed.duration);
    while MonotonicClock.now() < end && signals.wait(Duration::from_nanos(INTERVAL.as_nanos())).is_none() {
        let failed = |blind: steer::Blind| Failure::lacking("cannot learn", blind.to_string(), "try again");
        seen.extend(counters.span().map_err(failed)?);
    }
    branches::add(&typed.file, typed.phase, &seen)?;
    let signature = branches::signature(&branches::spans(&typed.file)?);
    let document = Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        file: typed.file.display().to_string(),
        cpu: typed.cpu,
        phase: Name::of(&typed.phase),
        spans: seen.len() as u64,
        idle_spans: signature.spans(Phase::Idle),
        load_spans: signature.spans(Phase::Load),
        confidence_ratio: signature.confidence_ppm().map(|ppm| f64::from(ppm) / 1e6),
        is_enough: signature.is_distinct(),
    };
    terminal::print(typed.json, &document, |out| {
        let Document { idle_spans, load_spans, .. } = document;
        writeln!(out, "{}: {idle_spans} spans idle, {load_spans} with load", terminal::line(&document.file))?;
        match document.confidence_ratio {
            None => writeln!(out, "Too few of one phase: learn the other one too."),
            Some(ratio) if document.is_enough => {
                writeln!(out, "One span tells them apart in {:.1} % of the cases.", 100.0 * ratio)
            }
            Some(ratio) => writeln!(
                out,
                "One span tells them apart in only {:.1} % of the cases. apus power steer would always request the highest frequency.",
                100.0 * ratio
            ),
        }
    })?;
    Ok(if document.confidence_ratio.is_some() && !document.is_enough { Status::Findings } else { Status::Good })
}

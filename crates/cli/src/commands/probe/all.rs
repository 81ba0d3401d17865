//! `apus probe all`: runs every probe in short rounds, and writes the results as a platform profile, for comparisons
//! between hosts. (It is unrelated to the platform profile of ACPI.)

use std::io::Write as _;

use anyhow::Context as _;
use live::os::Signals;
use probe::Control;
use probe::platform::{self, Plan};
use probe::report::Set;

use super::{Watched, check_writable, host, html, keep, last, peer, say, start, unloaded, watch};
use crate::Status;
use crate::args::probe::All;
use crate::documents::probe::Platform;
use crate::terminal;
use crate::terminal::print_json;

/// Runs `apus probe all`: measures and writes the platform profile.
pub fn run(typed: &All) -> anyhow::Result<Status> {
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    check_writable(&typed.output, &typed.html)?;
    let cpu = last(typed.cpu)?;
    let plan = Plan {
        cpu,
        peer: peer(typed.peer, cpu)?,
        priority: typed.priority,
        rounds: typed.rounds,
        slice: typed.slice,
        load: typed.load.to_string(),
    };
    let mut watched = Watched::start(&typed.modelled)?;
    let load = start(typed.load, plan.duration())?;
    let control = Control::new(None);
    let (mut profile, interrupted) = watch::follow(control, &signals, !typed.json, |control| {
        Ok((platform::run(&plan, control)?, control.stopped()))
    })?;
    let energy = watched.stop();
    let ended_by = profile.ended_by.take();
    unloaded(load, &mut profile.measured, interrupted);
    let document = Platform::new(host(), profile, interrupted, energy);
    if typed.json {
        print_json(&document)?;
    } else {
        let mut out = terminal::out();
        say::table(&document.measured, &mut out).context("cannot write the table")?;
        for missing in &document.missing {
            writeln!(out, "[not measured] {}: {}", missing.probe, missing.why)?;
        }
        writeln!(out, "{} rounds{}", document.rounds, if interrupted { ", interrupted" } else { "" })?;
        out.flush().context("cannot write the table")?;
    }
    // After the table: a full disk does not lose the measurement.
    keep(&document, typed.output.as_deref())?;
    if let Some(path) = &typed.html {
        let sets = [Set { name: "", host: &document.host, measured: &document.measured }];
        html("Apus: platform profile", &sets, serde_json::to_value(&document)?, Vec::new(), path)?;
    }
    match ended_by {
        Some(error) => Err(error.into()),
        None if document.measured.is_empty() && !interrupted => Ok(Status::Lacking),
        None => Ok(Status::Good),
    }
}

//! `apus run`: [`meaning`] builds an instance from the arguments, and [`say`] prints its results.

mod dpdk;
mod hold_off;
mod idle_limit;
mod meaning;
mod platform;
mod say;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use host::transaction::{Deferred, DeferredQueues};
use live::instance::{Instance, Outcome};
use live::os::Signals;
use live::port::PortKind;
use tester::document::EnergyMeter as _;
use units::Nanos;

use crate::args::Run as Typed;
use crate::commands::energy::Wattmeter;
use crate::commands::output::Output;
use crate::commands::ports;
use crate::failure::describe;
use crate::terminal::{self, print_json};
use crate::{Failure, Status};
use hold_off::HoldOffs;
use idle_limit::IdleLimits;
use meaning::Meaning;

/// Runs `apus run` until it is asked to stop, and prints its counters.
pub fn run(typed: Typed) -> anyhow::Result<Status> {
    let mut meaning = meaning::of(typed.app)?;
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    let outputs = Outputs::open(&meaning)?;
    let mut meter = Wattmeter::open(&meaning.modelled)?;
    if let Some(netns) = &meaning.netns {
        tester::lab::enter(netns)?;
    }
    meaning.fit_slots();
    if meaning.config.hold_off {
        let (longest, warnings) = hold_off::longest(&meaning.interfaces, meaning.instance.peak_rate)?;
        meaning.instance.longest_hold_off = Some(longest);
        meaning.warnings.extend(warnings);
    }
    let changes_settings = !meaning.interfaces.is_empty() || meaning.config.limit_idle;
    let left_behind = if changes_settings { ports::take_back_left_behind(COMMAND)? } else { Vec::new() };
    left_behind.iter().for_each(|line| tell(line));
    let Started { instance, deferred, mut hold_offs, mut idle_limits } = match start(&mut meaning) {
        Ok(started) => started,
        Err(error) => {
            if meaning.json {
                print_json(&say::not_started(&meaning, describe(&error).0))?;
            }
            return Err(error);
        }
    };
    // The workers dropped their privileges before their first frame.
    ports::give_up_privileges(deferred.iter().any(Option::is_some) || hold_offs.is_some())?;
    let (ports, mode) = (instance.ports().to_vec(), instance.mode());
    let deferred_queues: Vec<Option<DeferredQueues>> =
        deferred.iter().map(|one| one.as_ref().map(|one| one.queues().clone())).collect();
    for line in say::start(&ports, &deferred_queues, mode) {
        tell(&line);
    }
    if let Some(longest) = meaning.instance.longest_hold_off {
        let most = if longest == Nanos::MAX { String::new() } else { format!(", at most {longest}") };
        tell(&format!("adaptive chooses a hold-off{most}; the queues' own NAPI deferral is restored at the end"));
    }
    idle_limits.iter().flat_map(IdleLimits::lines).for_each(|line| tell(&line));
    meaning.warnings.extend(say::unserved_warnings(&ports, &meaning.without_queues));
    meaning.warnings.extend(say::generic_warnings(&ports));
    meaning.warnings.iter().for_each(|warning| tell(&format!("warning: {warning}")));
    let (mut dead, mut lost, mut links) = (Vec::new(), Vec::new(), say::Links::default());
    meter.start();
    let outcome = instance.run(&signals, meaning.duration, |instance| {
        if let Some(hold_offs) = &mut hold_offs {
            for warning in hold_offs.poll(instance.hold_offs()) {
                tell(&format!("warning: {warning}"));
                lost.push(warning);
            }
        }
        for warning in idle_limits.as_mut().map(IdleLimits::poll).unwrap_or_default() {
            tell(&format!("warning: {warning}"));
            lost.push(warning);
        }
        let snapshots = instance.snapshots();
        for warning in links.look(say::link_warnings(&ports, &snapshots), Instant::now()) {
            tell(&format!("warning: {warning}"));
        }
        for warning in say::busy_poll_warnings(&snapshots) {
            if !dead.contains(&warning) {
                tell(&format!("warning: {warning}"));
                dead.push(warning);
            }
        }
    });
    let (frames, work) = say::work(&outcome);
    let energy = meter.stop(Some(frames), work);
    let changes = hold_offs.as_ref().map(HoldOffs::changes);
    let idle_changes = idle_limits.as_ref().map(IdleLimits::changes);
    let mut left: Vec<String> = deferred.into_iter().flatten().filter_map(ports::end).collect();
    left.extend(hold_offs.and_then(HoldOffs::end));
    left.extend(idle_limits.into_iter().flat_map(IdleLimits::end));
    left.iter().for_each(|warning| tell(&format!("warning: {warning}")));
    let unkept = outputs.keep(&outcome);
    let mut document = say::document(&meaning, (&ports, &deferred_queues), mode, &outcome, energy);
    for (worker, changes) in document.workers.iter_mut().zip(changes.into_iter().flatten()) {
        worker.hold_off_changes = Some(changes);
    }
    for (worker, changes) in document.workers.iter_mut().zip(idle_changes.into_iter().flatten()) {
        worker.idle_limit_changes = Some(changes);
    }
    document.warnings.extend(lost);
    document.warnings.extend(left);
    let line = |error: &anyhow::Error| match error.downcast_ref::<Failure>() {
        Some(Failure { what, why, .. }) => format!("{what}: {why}"),
        None => format!("{error:#}"),
    };
    document.warnings.extend(unkept.iter().map(line));
    if meaning.json {
        print_json(&document)?;
    } else {
        say::summary(&document, &mut terminal::out()).context("cannot write the summary")?;
    }
    let failed = outcome.workers.into_iter().find_map(|worker| worker.result.err());
    match unkept.into_iter().next().or(failed.map(Into::into)) {
        Some(error) => Err(error),
        None => Ok(Status::Good),
    }
}

/// The command as recorded in the journal of changes.
const COMMAND: &str = "apus run";

/// A running instance, and the settings that are restored at its end.
struct Started {
    instance: Instance,
    /// The interrupt deferral of each port. `None` if the port has none.
    deferred: Vec<Option<Deferred>>,
    /// The hold-offs. `None` unless the workers choose them.
    hold_offs: Option<HoldOffs>,
    /// The limits of the exit latency. `None` unless the workers choose them.
    idle_limits: Option<IdleLimits>,
}

/// Starts the instance, and applies the interrupt deferral of its ports.
fn start(meaning: &mut Meaning) -> anyhow::Result<Started> {
    // The workers write the limits, and drop the privileges to open them.
    let idle_limits = match meaning.config.limit_idle {
        true => Some(IdleLimits::begin(&meaning.instance.workers)?),
        false => None,
    };
    meaning.instance.idle_limits = idle_limits.as_ref().map(IdleLimits::limits).unwrap_or_default();
    let instance = Instance::start(&meaning.instance)?;
    // A veth without GRO has NAPI instances only since the XDP program is attached. A killed run left their settings.
    if !meaning.interfaces.is_empty() {
        match ports::take_back_left_behind(COMMAND) {
            Ok(lines) => lines.iter().for_each(|line| tell(line)),
            Err(error) => {
                instance.finish();
                return Err(error);
            }
        }
    }
    let mut deferred = Vec::new();
    for port in instance.ports() {
        let interface = port.driver.as_ref().filter(|_| port.kind == PortKind::AfXdp);
        let one = match (interface, meaning.defer) {
            (Some(driver), Some(wanted)) => match ports::defer(&port.name, &driver.queues, wanted, COMMAND) {
                Ok(deferred) => Some(deferred),
                Err(error) => {
                    instance.finish();
                    return Err(error);
                }
            },
            _ => None,
        };
        deferred.push(one);
    }
    if meaning.instance.longest_hold_off.is_none() {
        return Ok(Started { instance, deferred, hold_offs: None, idle_limits });
    }
    match HoldOffs::begin(&instance) {
        Ok(hold_offs) => Ok(Started { instance, deferred, hold_offs: Some(hold_offs), idle_limits }),
        Err(error) => {
            instance.finish();
            Err(error)
        }
    }
}

/// Prints to standard error, because standard output is for the result.
fn tell(line: &str) {
    // A failure to print is ignored.
    let _ = writeln!(terminal::err(), "{line}");
}

/// The output files. They are opened before the ports, so that an unwritable one is reported at once and no privilege
/// is needed later.
struct Outputs {
    record: Option<Output>,
    trace: Option<Output>,
}

impl Outputs {
    fn open(meaning: &Meaning) -> anyhow::Result<Self> {
        let open = |path: &Option<PathBuf>| Output::open_named(path.as_deref());
        let outputs = Self { record: open(&meaning.record)?, trace: open(&meaning.trace)? };
        if let (Some(record), Some(trace)) = (&outputs.record, &outputs.trace) {
            record.differs_from(trace)?;
        }
        Ok(outputs)
    }

    /// Writes the output files. Returns the errors of those that could not be written: one of them does not keep the
    /// others from being written.
    fn keep(self, outcome: &Outcome) -> Vec<anyhow::Error> {
        let mut errors = Vec::new();
        if let Some(mut output) = self.record
            && let Some(record) = outcome.workers.iter().find_map(|worker| worker.record.as_ref())
        {
            errors.extend(output.write(&String::from_utf8_lossy(record)).err());
        }
        if let Some(mut output) = self.trace {
            errors.extend(output.write(&trace(outcome)).err());
        }
        let captures = outcome.wrappers.iter().filter_map(|wrapper| wrapper.capture.as_ref());
        let incomplete = captures.filter_map(|(path, meter)| Some(incomplete(path, meter.error()?).into()));
        errors.extend(incomplete);
        errors
    }
}

fn incomplete(capture: &Path, why: &str) -> Failure {
    Failure::lacking(
        format!("the capture {} is incomplete", capture.display()),
        why,
        "free space on its disk, or capture to another file",
    )
}

fn trace(outcome: &Outcome) -> String {
    let mut text = String::new();
    for wrapper in &outcome.wrappers {
        let Some(log) = &wrapper.trace else { continue };
        text.push_str(&format!("# worker {}, port {}\n", wrapper.worker, wrapper.port));
        for line in log.lines() {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

//! `apus run`: [`meaning`] builds an instance from the arguments, and [`say`] prints its results.

mod dpdk;
mod meaning;
mod platform;
mod say;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use host::transaction::{Deferred, DeferredQueues};
use live::instance::{Instance, Outcome};
use live::os::Signals;
use live::port::PortKind;
use tester::document::EnergyMeter as _;

use crate::args::Run as Typed;
use crate::commands::energy::Wattmeter;
use crate::commands::output::Output;
use crate::commands::ports;
use crate::failure::describe;
use crate::terminal::{self, print_json};
use crate::{Failure, Status};
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
    let left_behind = if meaning.interfaces.is_empty() { Vec::new() } else { ports::take_back_left_behind(COMMAND)? };
    left_behind.iter().for_each(|line| tell(line));
    let (instance, deferred) = match start(&meaning) {
        Ok(started) => started,
        Err(error) => {
            if meaning.json {
                print_json(&say::not_started(&meaning, describe(&error).0))?;
            }
            return Err(error);
        }
    };
    // The workers dropped their privileges before their first frame.
    ports::give_up_privileges(deferred.iter().any(Option::is_some))?;
    let (ports, mode) = (instance.ports().to_vec(), instance.mode());
    let deferred_queues: Vec<Option<DeferredQueues>> =
        deferred.iter().map(|one| one.as_ref().map(|one| one.queues().clone())).collect();
    for line in say::start(&ports, &deferred_queues, mode) {
        tell(&line);
    }
    meaning.warnings.iter().for_each(|warning| tell(&format!("warning: {warning}")));
    let mut dead = Vec::new();
    meter.start();
    let outcome = instance.run(&signals, meaning.duration, |instance| {
        for warning in say::busy_poll_warnings(&instance.snapshots()) {
            if !dead.contains(&warning) {
                tell(&format!("warning: {warning}"));
                dead.push(warning);
            }
        }
    });
    let (frames, work) = say::work(&outcome);
    let energy = meter.stop(Some(frames), work);
    let left: Vec<String> = deferred.into_iter().flatten().filter_map(ports::end).collect();
    left.iter().for_each(|warning| tell(&format!("warning: {warning}")));
    let kept = outputs.keep(&outcome);
    let mut document = say::document(&meaning, (&ports, &deferred_queues), mode, &outcome, energy);
    document.warnings.extend(left);
    if let Err(error) = &kept {
        document.warnings.push(format!("{error:#}"));
    }
    if meaning.json {
        print_json(&document)?;
    } else {
        say::summary(&document, &mut terminal::out()).context("cannot write the summary")?;
    }
    kept?;
    let failed = outcome.workers.into_iter().find_map(|worker| worker.result.err());
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Status::Good),
    }
}

/// The command as recorded in the journal of changes.
const COMMAND: &str = "apus run";

/// Starts the instance, and applies the interrupt deferral of its ports. Returns one entry per port, `None` if the port
/// has no deferral.
fn start(meaning: &Meaning) -> anyhow::Result<(Instance, Vec<Option<Deferred>>)> {
    let instance = Instance::start(&meaning.instance)?;
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
    Ok((instance, deferred))
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

    /// Writes the output files.
    fn keep(self, outcome: &Outcome) -> anyhow::Result<()> {
        if let Some(mut output) = self.record
            && let Some(record) = outcome.workers.iter().find_map(|worker| worker.record.as_ref())
        {
            output.write(&String::from_utf8_lossy(record))?;
        }
        if let Some(mut output) = self.trace {
            output.write(&trace(outcome))?;
        }
        let captures = outcome.wrappers.iter().filter_map(|wrapper| wrapper.capture.as_ref());
        for (path, meter) in captures {
            if let Some(why) = meter.error() {
                return Err(unwritable(path, &std::io::Error::other(why.to_owned())).into());
            }
        }
        Ok(())
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::lacking(
        format!("cannot write {}", path.display()),
        error,
        "choose a file in a folder that you can write to",
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

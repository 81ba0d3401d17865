//! `apus probe`: builds a probe from the arguments, and turns its results into documents.

mod all;
mod compare;
mod import;
mod say;
mod watch;

pub(super) use compare::{File, read as read_measurements};

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use live::os::Signals;
use probe::clock::Clock;
use probe::frequency::Frequency;
use probe::idle::Idle;
use probe::interrupt::{Bed, Interrupt, Wait};
use probe::jitter::{Jitter, Traffic};
use probe::load::Load;
use probe::mark::{Mark, MarkKind};
use probe::measured::Name;
use probe::report::Set;
use probe::switch::{Switch, Via};
use probe::timer::Timer;
use probe::{Measured, Probe};
use tester::document::{Energy, EnergyMeter as _, Work};
use tester::host::HostState;
use tester::report::model::Section;
use units::Nanos;

use crate::args::energy::Modelled;
use crate::args::probe::{self as args, Conditions, CpuList, Outputs, Probe as Typed};
use crate::commands::energy::{Wattmeter, own_work};
use crate::commands::output::{Output, unwritable};
use crate::documents::probe::Document;
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus probe`.
pub fn run(typed: Typed) -> anyhow::Result<Status> {
    match typed {
        Typed::Timer(typed) => {
            let probe = Timer {
                cpus: cpus(typed.cpu.as_ref())?,
                priority: typed.conditions.priority,
                slack: typed.slack,
                interval: typed.interval,
                duration: typed.duration,
                wait: typed.wait,
                load: typed.conditions.load.to_string(),
            };
            one(&[&probe], typed.duration, &typed.conditions, &typed.outputs)
        }
        Typed::Jitter(typed) => {
            let probe = Jitter {
                cpus: cpus(typed.cpu.as_ref())?,
                priority: typed.conditions.priority,
                duration: typed.duration,
                gap_over: typed.gap_over,
                explain_over: typed.explain_over,
                causes: typed.causes,
                traffic: Traffic { rate: typed.rate, ring: typed.ring, capacity: typed.capacity },
                load: typed.conditions.load.to_string(),
            };
            one(&[&probe], typed.duration, &typed.conditions, &typed.outputs)
        }
        Typed::Switch(typed) => {
            let probes = switches(&typed)?;
            let probes: Vec<&(dyn Probe + Sync)> = probes.iter().map(|probe| probe as &(dyn Probe + Sync)).collect();
            alone(peer(typed.peer, last(typed.cpu)?)?, "switches between two CPUs");
            one(&probes, typed.duration, &typed.conditions, &typed.outputs)
        }
        Typed::Interrupt(typed) => {
            let probes = interrupts(&typed)?;
            let probes: Vec<&(dyn Probe + Sync)> = probes.iter().map(|probe| probe as &(dyn Probe + Sync)).collect();
            if typed.port.is_none() {
                alone(peer(typed.sender, last(typed.cpu)?)?, "delivery to a CPU other than the sender's");
            }
            one(&probes, typed.duration, &typed.conditions, &typed.outputs)
        }
        Typed::Idle(typed) => {
            let cpu = last(typed.cpu)?;
            let peer = peer(typed.peer, cpu)?;
            let mut probe = Idle {
                how: typed.how,
                sleeps: typed.sleep,
                priority: typed.priority,
                duration: typed.duration,
                ..Idle::new(cpu, peer)
            };
            if typed.source.is_empty() {
                alone(peer, "wake-ups by another CPU");
            } else {
                probe.sources = typed.source;
            }
            one(&[&probe], typed.duration, &NO_LOAD, &typed.outputs)
        }
        Typed::Frequency(typed) => {
            let probe = Frequency {
                cpu: last(typed.cpu)?,
                priority: typed.priority,
                via: typed.via,
                levels: typed.levels,
                work: typed.work,
                period: typed.period,
                changes: typed.changes,
                batch: typed.batch,
                load: Load::None.to_string(),
            };
            one(&[&probe], probe.duration(), &NO_LOAD, &typed.outputs)
        }
        Typed::Clock(typed) => {
            let cpus = match &typed.cpu {
                Some(list) => list.0.clone(),
                None => probe::place::allowed()?,
            };
            let load = typed.conditions.load.to_string();
            let probe = Clock { cpus, priority: typed.conditions.priority, duration: typed.duration, load };
            one(&[&probe], typed.duration, &typed.conditions, &typed.outputs)
        }
        Typed::All(typed) => all::run(&typed),
        Typed::Compare(typed) => compare::run(&typed),
        Typed::Import(typed) => import::run(&typed),
    }
}

/// The switch probes to run: each wake-up mechanism, on one CPU and across two. The user can select one mechanism and
/// one peer CPU.
fn switches(typed: &args::Switch) -> anyhow::Result<Vec<Switch>> {
    let cpu = last(typed.cpu)?;
    let peers: Vec<usize> = match typed.peer {
        Some(peer) => vec![peer],
        None => [Some(cpu), peer(None, cpu)?].into_iter().flatten().collect(),
    };
    let ways = typed.via.map_or(Via::ALL.to_vec(), |via| vec![via]);
    let of = |peer: usize| {
        let typed = &typed;
        ways.clone().into_iter().map(move |via| Switch {
            priority: typed.conditions.priority,
            pause: typed.pause,
            duration: typed.duration,
            load: typed.conditions.load.to_string(),
            ..Switch::new(cpu, peer, via)
        })
    };
    Ok(peers.into_iter().flat_map(of).collect())
}

/// Warns on standard error about what cannot be measured without a second CPU.
fn alone(peer: Option<usize>, what: &str) {
    if peer.is_none() {
        let _ = writeln!(terminal::err(), "warning: cannot measure {what}, because this process may use one CPU only");
    }
}

/// Conditions for probes that an artificial load would disturb too much, because their CPU must sleep or work
/// undisturbed.
const NO_LOAD: Conditions = Conditions { priority: None, load: Load::None, fail_over: None };

/// The CPU given by the user. The default is the last CPU that this process may use, because CPU 0 usually has the most
/// other work.
fn last(typed: Option<usize>) -> anyhow::Result<usize> {
    Ok(typed.or(probe::place::allowed()?.last().copied()).unwrap_or(0))
}

/// The second CPU given by the user. The default is the first CPU that this process may use, other than `cpu`.
fn peer(typed: Option<usize>, cpu: usize) -> anyhow::Result<Option<usize>> {
    Ok(typed.or(probe::place::allowed()?.into_iter().find(|other| *other != cpu)))
}

/// Runs the probes one after another, each for `duration`, and prints the results.
fn one(
    probes: &[&(dyn Probe + Sync)],
    duration: Nanos,
    conditions: &Conditions,
    outputs: &Outputs,
) -> anyhow::Result<Status> {
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    check_writable(&outputs.output, &outputs.html)?;
    let time = duration * probes.len() as u64;
    let mut watched = Watched::start(&outputs.modelled)?;
    let load = start(conditions.load, time)?;
    let mut measured = watch::run(probes, conditions.fail_over, &signals, !outputs.json)?;
    let energy = watched.stop();
    let interrupted = measured.iter().any(|of| of.interrupted);
    unloaded(load, &mut measured, interrupted);
    finish(measured, energy, outputs)
}

/// Energy and CPU time of this process during a measurement.
struct Watched {
    meter: Wattmeter,
    before: Result<Work, String>,
}

impl Watched {
    fn start(modelled: &Modelled) -> anyhow::Result<Self> {
        let mut meter = Wattmeter::open(modelled)?;
        meter.start();
        Ok(Self { meter, before: own_work() })
    }

    fn stop(&mut self) -> Energy {
        let work = own_work().and_then(|after| {
            let before = self.before.as_ref().map_err(Clone::clone)?;
            Ok(Work { cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns), wakeups: None })
        });
        self.meter.stop(None, work)
    }
}

/// Stops the load, and marks the measurements if the load ended early.
fn unloaded(load: probe::load::Running, measured: &mut [Measured], interrupted: bool) {
    if let Some(text) = load.end().filter(|_| !interrupted) {
        measured.iter_mut().for_each(|of| of.marks.push(Mark::new(MarkKind::Suspect, text.clone())));
    }
}

/// The interrupt probes to run: each wait method with a sender on another CPU, and blocking with a sender on the same
/// CPU. The user can select one wait method, one sender CPU, or a port with its queue.
fn interrupts(typed: &args::Interrupt) -> anyhow::Result<Vec<Interrupt>> {
    let cpu = last(typed.cpu)?;
    let of = |wait: Wait, sender: usize| Interrupt {
        priority: typed.conditions.priority,
        interval: typed.interval,
        duration: typed.duration,
        load: typed.conditions.load.to_string(),
        ..Interrupt::new(wait, cpu, sender)
    };
    if let Some(interface) = &typed.port {
        let bed = Bed::Port {
            interface: interface.clone(),
            queue: typed.queue,
            namespace: typed.netns.clone(),
            destination: typed.mac,
        };
        let waits = typed.wait.map_or(vec![Wait::Block, Wait::Spin, Wait::Busy], |wait| vec![wait]);
        return Ok(waits.into_iter().map(|wait| Interrupt { bed: bed.clone(), ..of(wait, cpu) }).collect());
    }
    let waits = typed.wait.map_or(Wait::ALL.to_vec(), |wait| vec![wait]);
    let mut probes: Vec<Interrupt> = Vec::new();
    for wait in waits {
        probes.extend(peer(typed.sender, cpu)?.map(|sender| of(wait, sender)));
        // Also measures on the receiver's CPU, where a blocking receiver lets the sender run.
        if typed.sender.is_none() && wait == Wait::Block {
            probes.push(of(wait, cpu));
        }
    }
    if probes.is_empty() {
        let (what, why) = ("cannot measure delivery to another CPU", "this process may use one CPU only");
        return Err(Failure::lacking(what, why, "allow it a second CPU, or use --wait block").into());
    }
    Ok(probes)
}

fn start(load: Load, time: Nanos) -> Result<probe::load::Running, probe::Error> {
    load.start(time)
}

/// Prints and writes the measurements in the requested formats.
fn finish(measured: Vec<Measured>, energy: Energy, outputs: &Outputs) -> anyhow::Result<Status> {
    let exceeded = measured.iter().any(|of| of.exceeded.is_some());
    // A stopped measurement may have no samples yet. Otherwise the machine or the other end lacks something, as the
    // marks show.
    let empty = |of: &Measured| of.terms.iter().all(|term| term.raw.histogram.counts.is_empty());
    // Only for the jitter probe, no samples are a result: a quiet CPU has no gaps.
    let nothing = measured.iter().all(|of| of.probe != Name::Jitter && !of.interrupted && empty(of));
    let document = Document::new(host(), measured, energy);
    put(&document, outputs)?;
    Ok(match (exceeded, nothing) {
        (true, _) => Status::Findings,
        (false, true) => Status::Lacking,
        (false, false) => Status::Good,
    })
}

/// Prints a document, and then writes it to its files: a full disk does not lose the measurement.
fn put(document: &Document, outputs: &Outputs) -> anyhow::Result<()> {
    if outputs.json {
        print_json(document)?;
    } else {
        say::table(&document.measured, &mut terminal::out()).context("cannot write the table")?;
    }
    keep(document, outputs.output.as_deref())?;
    if let Some(path) = &outputs.html {
        let sets = [Set { name: "", host: &document.host, measured: &document.measured }];
        html("Apus: the cost of waking up", &sets, serde_json::to_value(document)?, Vec::new(), path)?;
    }
    Ok(())
}

/// Writes a document to a file, if one was given.
fn keep(document: &impl serde::Serialize, path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string(document).context("cannot write the document")?;
    Ok(terminal::file(path, &(text + "\n")).map_err(|error| unwritable(path, error))?)
}

/// Writes an HTML report.
fn html(
    title: &str,
    sets: &[Set<'_>],
    results: serde_json::Value,
    more: Vec<Section>,
    path: &Path,
) -> anyhow::Result<()> {
    let mut report = probe::report::report(title, sets, results);
    report.sections.splice(0..0, more);
    tester::report::write(&report, path)?;
    Ok(())
}

fn host() -> HostState {
    let pid = std::process::id();
    HostState::read(Path::new("/"), pid, pid)
}

fn cpus(typed: Option<&CpuList>) -> anyhow::Result<Vec<usize>> {
    typed.map_or_else(|| Ok(vec![last(None)?]), |list| Ok(list.0.clone()))
}

/// Checks before measuring that the output files are writable. Does not change their contents yet.
fn check_writable(json: &Option<PathBuf>, page: &Option<PathBuf>) -> Result<(), Failure> {
    let is_page = |path: &&PathBuf| path.extension().is_some_and(|of| of == "html" || of == "htm");
    if let Some(path) = json.as_ref().filter(is_page) {
        let (what, fix) = (format!("cannot write JSON to {}", path.display()), format!("--html {}", path.display()));
        return Err(Failure::wrong(what, "-o writes JSON, but this name is that of an HTML page", fix));
    }
    [json, page].into_iter().flatten().try_for_each(|path| Output::open(path).map(drop))
}

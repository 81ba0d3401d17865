//! `apus demo`: runs the tester's demo until it ends or the user stops it, and writes the result.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use live::os::{Scheduling, Signals, place_this_thread};
use rustix::fs::{Access, access};
use tester::bed::BedConfig;
use tester::demo::{self, DemoResult, Plan};

use crate::args::Demo;
use crate::commands::energy::Wattmeter;
use crate::commands::output::unwritable;
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// SCHED_FIFO priority of the thread that handles signals. Above the measured threads, which busy-loop and would
/// otherwise delay a Ctrl-C.
const SIGNALS_PRIORITY: u8 = 60;

pub(super) fn run(typed: &Demo) -> anyhow::Result<Status> {
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    let plan = Plan::for_budget(typed.budget).map_err(of_tester)?;
    let config = BedConfig::new(typed.name.clone()).map_err(of_tester)?;
    check_writable(&typed.output)?;
    if let Some(json) = typed.json.as_deref().filter(|path| !is_stdout(path)) {
        check_writable(json)?;
    }
    let mut meter = Wattmeter::open(&typed.modelled)?;
    let stop = Arc::new(AtomicBool::new(false));
    watch_signals(signals, Arc::clone(&stop))?;

    let mut progress = Progress::new();
    progress.line(&plan.to_string());
    let ended = demo::run(&plan, config, &mut meter, &stop, &mut |what| progress.now(what)).map_err(of_tester)?;
    progress.clear();
    write(typed, &ended.result)?;
    match ended.failure {
        Some(error) => Err(of_tester(error)),
        None if ended.result.interrupted => Ok(Status::Findings),
        None => Ok(Status::Good),
    }
}

fn write(typed: &Demo, result: &DemoResult) -> anyhow::Result<()> {
    let report = demo::report::report(result).map_err(of_tester)?;
    tester::report::write(&report, &typed.output)?;
    match typed.json.as_deref() {
        Some(path) if is_stdout(path) => print_json(result)?,
        Some(path) => {
            let text = serde_json::to_string(result).context("cannot write the document")?;
            terminal::file(path, &(text + "\n")).map_err(|error| unwritable(path, error))?;
        }
        None => {}
    }
    let mut out = terminal::out();
    if !typed.json.as_deref().is_some_and(is_stdout) {
        out.write_all(demo::table::render(result).map_err(of_tester)?.as_bytes()).context("cannot write the table")?;
        writeln!(out, "report: {}", typed.output.display()).context("cannot write the table")?;
    }
    out.flush().context("cannot write the table")
}

/// Sets `stop` when a termination signal arrives.
pub(super) fn watch_signals(signals: Signals, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
    let wait = move || {
        // Ignores a missing privilege, because the demo itself reports it.
        let _ = place_this_thread(Scheduling { cpu: None, fifo: Some(SIGNALS_PRIORITY) });
        loop {
            if signals.wait(Duration::from_secs(3600)).is_some() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread for signals")?;
    Ok(())
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Checks that the output files are writable before the measurement, which takes minutes.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let why = if path.is_dir() {
        Some("it is a directory".to_owned())
    } else if path.exists() {
        access(path, Access::WRITE_OK).err().map(|e| e.to_string())
    } else {
        access(folder, Access::WRITE_OK).err().map(|e| format!("{}: {e}", folder.display()))
    };
    why.map_or(Ok(()), |why| {
        Err(Failure::lacking(
            format!("cannot write {}", path.display()),
            why,
            "name another file: see apus demo --help",
        ))
    })
}

/// Turns the tester's errors about wrong use into messages with a fix. Other errors do not change.
fn of_tester(error: tester::Error) -> anyhow::Error {
    match error {
        tester::Error::Device(error) => error.into(),
        tester::Error::Invalid { what, expected } => Failure::wrong(what, expected, "see apus demo --help").into(),
        other => other.into(),
    }
}

/// The progress line; shown only on a terminal.
struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: terminal::err_is_terminal() }
    }
    fn line(&self, text: &str) {
        if self.terminal {
            let _ = writeln!(terminal::err(), "{text}");
        }
    }
    /// Replaces the text of the progress line.
    fn now(&mut self, text: &str) {
        if self.terminal {
            let mut err = terminal::err();
            let _ = err.erase_line().and_then(|()| write!(err, "{text}"));
        }
    }
    fn clear(&mut self) {
        self.now("");
    }
}

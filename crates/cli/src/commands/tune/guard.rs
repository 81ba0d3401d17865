//! The guardian: a small process that rolls a transaction back when its time is up or when a given process ends.
//!
//! It is started before anything is changed. On its standard output it says its own PID and start time, as the journal of
//! the host names them: they differ from those that its parent sees if the parent runs in a container. From its standard input it reads the number of the transaction that it
//! guards. If the input ends without a number, the process that applied the transaction died or failed; the guardian
//! then rolls unfinished changes back at once. If the guardian itself is killed, the transaction counts as abandoned,
//! and the next apply or rollback rolls it back.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::journal::{Lease, Processes};
use host::knob::Access;
use host::privilege;
use host::transaction::{Which, rollback_ours, rollback_own, transactions};
use live::os::Signals;
use units::Nanos;

use super::{command_line, machine_to_change};
use crate::args::tune::Guard as Typed;
use crate::{Failure, Status, terminal};

/// A running guardian process that does not know the number of its transaction yet.
pub struct Guard {
    child: Child,
    lease: Lease,
}

impl Guard {
    /// Starts a guardian. It rolls the transaction back after `duration`, or when the process `pid` of the host ends.
    pub fn start(access: &Access, root: &Path, duration: Option<Nanos>, pid: Option<u32>) -> anyhow::Result<Self> {
        let process = match pid {
            None => None,
            Some(pid) => {
                let none = || {
                    Failure::wrong(
                        format!("--while-pid {pid}"),
                        "there is no such process",
                        "give the PID of a running process; with --root, the PID that it has in /proc below that folder",
                    )
                };
                Some((pid, Processes::of(access)?.started(pid)?.ok_or_else(none)?))
            }
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["tune", "guard", "--root"]).arg(root);
        if let Some(duration) = duration {
            command.args(["--for", &format!("{}ns", duration.as_nanos())]);
        }
        if let Some((pid, started)) = process {
            command.args(["--while-pid", &pid.to_string(), "--started", &started.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut said)?;
        }
        let said =
            said.trim().split_once(' ').and_then(|(pid, started)| Some((pid.parse().ok()?, started.parse().ok()?)));
        let (pid, started) = said.ok_or_else(|| {
            Failure::lacking(
                "cannot start the process that rolls back later",
                "it exited immediately, or the host's /proc does not show it",
                "try again; in a container, mount the host's /proc",
            )
        })?;
        Ok(Self { child, lease: Lease::Process { pid, started } })
    }

    /// The lease to store with the transaction. It names the guardian process that will roll it back.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Tells the guardian that transaction `id` is complete, and leaves it running.
    pub fn keep(mut self, id: u32) -> io::Result<()> {
        match self.child.stdin.take() {
            Some(mut input) => writeln!(input, "{id}"),
            None => Ok(()),
        }
    }
}

/// Runs `apus tune guard`: waits, and then rolls the transaction back.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.root, false)?;
    let signals = Signals::hold()?;
    // A new session, because the terminal of the applying process may close.
    let _ = rustix::process::setsid();
    if let Some((pid, started)) = Processes::of(&access)?.own()? {
        let mut out = terminal::out();
        writeln!(out, "{pid} {started}")?;
        out.flush()?;
    }
    let mut told = String::new();
    io::stdin().lock().read_to_string(&mut told)?;
    let Ok(id) = told.trim().parse() else {
        rollback_ours(&access, Which::Abandoned, &command_line(), PATIENCE)?;
        return Ok(Status::Good);
    };
    let known = transactions(&access)?;
    let entries = known.iter().filter(|one| one.id == id).flat_map(|one| one.open_entries());
    if access.is_live() {
        privilege::keep_only(privilege::needed(entries.map(|entry| &entry.intent.setting)))?;
    }
    wait(&access, &signals, typed)?;
    // Another command may hold the journal, or a later transaction has changed the same setting: nobody else will roll
    // this one back while its guardian lives.
    while let Err(error) = rollback_own(&access, id, &command_line(), PATIENCE) {
        if signals.wait(AGAIN).is_some() {
            return Err(error.into());
        }
    }
    Ok(Status::Good)
}

/// Maximum time to wait for another command that holds the journal, and time until the next attempt.
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(10);

/// Waits until the time is up, the process has ended, or a signal arrives.
fn wait(access: &Access, signals: &Signals, typed: &Typed) -> anyhow::Result<()> {
    /// Time between two checks of the process.
    const PAUSE: Duration = Duration::from_millis(100);
    let processes = Processes::of(access)?;
    let end = typed.duration.map(|duration| Instant::now() + Duration::from_nanos(duration.as_nanos()));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let over = left == Some(Duration::ZERO);
        let ended = match typed.while_pid {
            Some(pid) => typed.started.is_none() || processes.started(pid)? != typed.started,
            None => false,
        };
        let pause = if typed.while_pid.is_some() { PAUSE } else { left.unwrap_or(PAUSE).min(Duration::from_secs(60)) };
        if over || ended || signals.wait(pause).is_some() {
            return Ok(());
        }
    }
}

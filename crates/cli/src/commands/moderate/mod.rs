//! `apus moderate`: controls the interrupt moderation of receive queues.

mod check;
pub(super) mod config;
mod interface;
pub(super) mod published;
mod queue;
mod record;
mod say;
mod session;
mod status;
pub(super) mod table;
mod verdict;

use host::knob::Access;
use live::os::Signals;
use live::os::notify::ServiceManager;

use super::ports;
use crate::args::moderate::{Command, Moderate, Policy};
use crate::{Failure, Status, terminal};
use config::Config;
use interface::Options;
use session::Session;

const COMMAND: &str = "apus moderate";

/// Runs `apus moderate`.
pub fn run(typed: &Moderate) -> anyhow::Result<Status> {
    match &typed.command {
        Some(Command::Check(typed)) => check::run(typed),
        Some(Command::Status(typed)) => status::run(typed),
        None => steer(typed),
    }
}

/// Controls the queues until the end.
fn steer(typed: &Moderate) -> anyhow::Result<Status> {
    let config = Config::of(typed)?;
    if typed.record.is_some() && config.interfaces.iter().all(|interface| interface.policy != Policy::NetDim) {
        let why = "only DIM's calls are recorded, and no interface has the policy net-dim";
        return Err(Failure::wrong("cannot use --record", why, "add --policy net-dim, or omit --record").into());
    }
    let signals = Signals::hold()?;
    let access = Access::live()?;
    match typed.dry_run {
        true => left_behind(&access)?.iter().for_each(|line| note(line)),
        false => ports::take_back_left_behind(COMMAND)?.iter().for_each(|line| note(line)),
    }
    let options =
        Options { access: &access, dry_run: typed.dry_run, aloud: !typed.json, record: typed.record.as_deref() };
    let manager = ServiceManager::of_environment()?;
    let session = Session::begin(typed, options, config)?;
    let ended = session.run(&signals, &manager)?;
    // All settings are restored, so Ctrl-C may end a wait for the reader of the output.
    signals.released(|| {
        terminal::aside::drain(None);
        say::result(typed.json, ended)
    })?
}

/// The transactions that a killed process left behind. A dry run leaves their settings as they are.
fn left_behind(access: &Access) -> anyhow::Result<Vec<String>> {
    let all = match host::transaction::transactions(access) {
        // Another user's journal does not concern this one.
        Err(host::knob::Error::NotPermitted { .. }) => return Ok(Vec::new()),
        other => other?,
    };
    let line = |id: u32| {
        format!("transaction {id}: a process was killed and left its settings changed: apus tune rollback --abandoned")
    };
    Ok(all.iter().filter(|one| one.is_abandoned()).map(|one| line(one.id)).collect())
}

/// Prints a message that is not part of the result.
fn note(text: &str) {
    terminal::aside::eprint(terminal::line(&one_line(text)));
}

/// A message of several lines, such as a [`Failure`], as one line.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("; ")
}

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

use std::io::Write as _;

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
    for line in ports::take_back_left_behind(COMMAND)? {
        note(&line);
    }
    let access = Access::live()?;
    let options =
        Options { access: &access, dry_run: typed.dry_run, aloud: !typed.json, record: typed.record.as_deref() };
    let manager = ServiceManager::of_environment()?;
    let session = Session::begin(typed, options, config)?;
    say::result(typed.json, session.run(&signals, &manager)?)
}

/// Prints a message that is not part of the result.
fn note(text: &str) {
    let _ = writeln!(terminal::err(), "{}", terminal::line(&text.replace('\n', "; ")));
}

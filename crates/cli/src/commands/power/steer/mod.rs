//! `apus power steer`: controls the frequency of CPUs.

mod controls;
mod core;
mod hand;
mod idle;
mod instance;
pub(in crate::commands) mod published;
mod say;
mod session;
mod shared;
mod status;
pub(in crate::commands) mod table;
mod targets;
mod through_host;

use host::knob::Access;
use host::transaction::take_back_abandoned;
use live::os::Signals;

use crate::args::power::steer::{Command, PowerSteer};
use crate::{Failure, Status, terminal};
use session::Session;

const COMMAND: &str = "apus power steer";

/// Runs `apus power steer`.
pub fn run(typed: &PowerSteer) -> anyhow::Result<Status> {
    match &typed.command {
        Some(Command::Status(typed)) => status::run(typed),
        None => steer(typed),
    }
}

/// Controls the CPUs until the end.
fn steer(typed: &PowerSteer) -> anyhow::Result<Status> {
    let access = Access::below(&typed.root)?;
    let is_here = typed.through_host.is_none();
    if is_here && access.is_live() && !typed.dry_run && !rustix::process::geteuid().is_root() {
        let why = "this needs root: it writes below /sys/devices/system/cpu, and keeps a journal in /var/lib/apus";
        let fix = "run it with sudo, or with --dry-run, which changes nothing";
        return Err(Failure::lacking("cannot control frequencies", why, fix).into());
    }
    let signals = Signals::hold()?;
    if is_here && !typed.dry_run {
        for recovered in take_back_abandoned(&access, COMMAND)? {
            note(&super::super::tune::recovered(&recovered));
        }
    }
    let session = Session::begin(typed, &access)?;
    let document = session.run(&signals);
    // All settings are restored, so Ctrl-C may end a wait for the reader of the output.
    signals.released(|| {
        terminal::aside::drain(None);
        say::result(typed.json, &document)
    })?
}

/// Prints a message that is not part of the result.
fn note(text: &str) {
    terminal::aside::eprint(terminal::line(&text.replace('\n', "; ")));
}

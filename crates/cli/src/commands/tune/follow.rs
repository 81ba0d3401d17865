//! `apus tune follow`: a profile for what is there, and for what comes.
//!
//! Each look resolves the profile anew. What it means that was not there before (a device, a thread, an interrupt) is
//! applied as a transaction of its own. What someone else changed is not set again: only what is new.
//!
//! ```text
//!   resolve ─► new settings? ─► apply ─► wait ─┐
//!      ▲                                       │ every 5 s
//!      └───────────────────────────────────────┘ signal ─► roll back all, the youngest first
//! ```

use std::collections::HashSet;
use std::io::Write as _;
use std::time::Duration;

use host::journal::Lease;
use host::knob::{Access, AnySetting, Setting as _, Theirs, Thread, Value};
use host::transaction::{Applied, ApplyOptions, Plan, RollbackOptions, Which, apply, rollback};
use live::os::Signals;

use super::{command_line, machine_to_change, resolve, say};
use crate::args::tune::Follow;
use crate::documents::VERSION;
use crate::{Failure, Status, terminal};

/// A setting, and the device behind its name: one that comes back under the same name is new.
type Key = (AnySetting, Option<String>);

/// `apus tune follow`
pub fn run(typed: &Follow) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.target.root, false)?;
    let signals = Signals::hold()?;
    let pid = std::process::id();
    let us = Thread::find(&Access::live()?, pid)?;
    let started =
        us.ok_or_else(|| Failure::lacking("follow", "/proc does not show this process", "mount /proc"))?.started;
    let options = ApplyOptions {
        command: command_line(),
        version: VERSION.into(),
        patience: Duration::from_nanos(typed.wait.as_nanos()),
        lease: Lease::Process { pid, started },
        keep_going: typed.keep_going,
    };
    let every = Duration::from_nanos(typed.every.as_nanos());
    let mut known: HashSet<Key> = HashSet::new();
    let mut ours: Vec<u32> = Vec::new();
    loop {
        let first = known.is_empty();
        match look(&access, typed, &mut known, &options) {
            Ok(Some(applied)) => ours.extend(applied.id),
            Ok(None) => {}
            // A profile that cannot be applied at all ends it; a device that refuses does not.
            Err(error) if first => return Err(error),
            Err(error) => drop(writeln!(terminal::err(), "{error:#}")),
        }
        if signals.wait(every).is_some() {
            return end(&access, &ours);
        }
    }
}

/// Applies what is new.
fn look(
    access: &Access,
    typed: &Follow,
    known: &mut HashSet<Key>,
    options: &ApplyOptions,
) -> anyhow::Result<Option<Applied>> {
    let (_, resolved) = resolve(access, &typed.profile, &typed.target)?;
    let first = known.is_empty();
    let mut plan = Plan::new(&resolved.plan.name);
    for item in resolved.plan.items {
        if known.insert((item.setting.clone(), item.setting.identity(access)?)) {
            plan.push(item);
        }
    }
    if plan.items.is_empty() && !first {
        return Ok(None);
    }
    let applied = apply(access, &plan, options)?;
    let notes = if first { &resolved.notes[..] } else { &[] };
    say::applied(access, &applied, notes, &mut terminal::out())?;
    Ok(Some(applied))
}

/// Rolls back what was applied.
fn end(access: &Access, ours: &[u32]) -> anyhow::Result<Status> {
    let mut all_closed = true;
    for id in ours.iter().rev() {
        let mut decide = |_: &AnySetting, _: &Value, _: &Value| Theirs::Keep;
        let mut options = RollbackOptions {
            command: command_line(),
            patience: Duration::from_secs(10),
            damaged: false,
            // What a device took with it when it went needs nobody to restore it.
            forget: false,
            decide: &mut decide,
        };
        let rolled_back = rollback(access, Which::One(*id), &mut options)?;
        say::rolled_back(&rolled_back, &mut terminal::out())?;
        all_closed &= rolled_back.iter().all(|one| one.closed);
    }
    Ok(if all_closed { Status::Good } else { Status::Findings })
}

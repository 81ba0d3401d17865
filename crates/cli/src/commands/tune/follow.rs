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
    let mut first = true;
    loop {
        let looked = look(&access, typed, &mut known, &options, first);
        // Before a word of it is said: what cannot be said must still be rolled back.
        ours.extend(looked.as_ref().ok().and_then(|(applied, _)| applied.as_ref()?.id));
        let said = looked.and_then(|(applied, notes)| match applied {
            Some(applied) => Ok(say::applied(&access, &applied, &notes, &mut terminal::out())?),
            None => Ok(()),
        });
        match said {
            Ok(()) => {}
            // A profile that cannot be applied, or an output that takes nothing, ends it; a device that refuses does not.
            Err(error) if first => {
                end(&access, &ours)?;
                return Err(error);
            }
            Err(error) => drop(writeln!(terminal::err(), "{error:#}")),
        }
        first = false;
        if signals.wait(every).is_some() {
            return end(&access, &ours);
        }
    }
}

/// Applies what is new, and returns what a person should know of it.
fn look(
    access: &Access,
    typed: &Follow,
    known: &mut HashSet<Key>,
    options: &ApplyOptions,
    first: bool,
) -> anyhow::Result<(Option<Applied>, Vec<String>)> {
    let (_, resolved) = resolve(access, &typed.profile, &typed.target)?;
    let mut plan = Plan::new(&resolved.plan.name);
    for item in resolved.plan.items {
        if known.insert((item.setting.clone(), item.setting.identity(access)?)) {
            plan.push(item);
        }
    }
    if plan.items.is_empty() && !first {
        return Ok((None, Vec::new()));
    }
    let applied = apply(access, &plan, options)?;
    Ok((Some(applied), if first { resolved.notes } else { Vec::new() }))
}

/// Rolls back what was applied. What fails, or cannot be said, does not keep the rest from it.
fn end(access: &Access, ours: &[u32]) -> anyhow::Result<Status> {
    let mut all_closed = true;
    let mut failed = None;
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
        let back =
            rollback(access, Which::One(*id), &mut options).map_err(anyhow::Error::from).and_then(|rolled_back| {
                all_closed &= rolled_back.iter().all(|one| one.closed);
                Ok(say::rolled_back(&rolled_back, &mut terminal::out())?)
            });
        failed = failed.or(back.err());
    }
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(if all_closed { Status::Good } else { Status::Findings })
}

//! The subcommands that change the machine: `apply`, `rollback`, `power set`.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use host::journal::Lease;
use host::knob::{Access, AnySetting, Setting as _, Theirs, Value};
use host::privilege;
use host::profile::Power;
use host::transaction::{
    Applied, ApplyOptions, Became, Meets, Plan, RollbackOptions, Transaction, Which, apply as apply_plan,
    rollback as take_back, rollback_ours, transactions,
};
use live::os::Signals;

use super::{command_line, guard, machine_to_change, resolve, say};
use crate::args::power::set::PowerSet;
use crate::args::tune::{Apply, Manner, Rollback};
use crate::documents::VERSION;
use crate::documents::tune::{Apply as ApplyDocument, Rollback as RollbackDocument};
use crate::failure::NotSet;
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus tune apply`.
pub fn apply(typed: &Apply) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.target.root, typed.manner.trace)?;
    let (_, resolved) = resolve(&access, &typed.profile, &typed.target)?;
    let previews = resolved.plan.preview(&access);
    if !typed.yes {
        say::plan(&resolved, &previews, &mut terminal::err())?;
        let changes = previews.iter().filter(|preview| matches!(preview.meets, Meets::Other { .. })).count();
        if !asked(&format!("change {changes} settings"))? {
            return Ok(Status::Good);
        }
    }
    let signals = Signals::hold()?;
    let guard = match (typed.duration, typed.while_pid) {
        (None, None) => None,
        (duration, pid) => Some(guard::Guard::start(&access, &typed.target.root, duration, pid)?),
    };
    least(&access, Some(&resolved.plan), Which::Abandoned)?;
    let options = ApplyOptions {
        lease: guard.as_ref().map_or(Lease::Open, guard::Guard::lease),
        keep_going: typed.keep_going,
        ..options(&typed.manner)
    };
    let applied = apply_plan(&access, &resolved.plan, &options).map_err(NotSet)?;
    if let Some(why) = interrupted(&signals, &access, &applied)? {
        return Err(Failure::interrupted("the profile was not applied", why, "run the command again").into());
    }
    if let (Some(guard), Some(id)) = (guard, applied.id)
        && let Err(error) = guard.keep(id)
    {
        let back = take_back_one(&access, id)?;
        let stands = if back { "all settings are as before" } else { "apus tune status shows what is left" };
        return Err(Failure::lacking(
            "the profile was not applied",
            format!("the process that rolls it back later has ended ({error}); {stands}"),
            "run the command again",
        )
        .into());
    }
    finish(&access, &resolved.plan, &applied, typed.json, &resolved.notes)
}

/// Runs `apus power set`.
pub fn power(typed: &PowerSet) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.root, typed.manner.trace)?;
    let wish = Power {
        cpus: typed.cpu.clone().unwrap_or_default(),
        frequency: typed.frequency,
        uncore: typed.uncore,
        via: typed.via,
    };
    let plan = wish.plan(&access)?;
    let notes = wish.notes(&access)?;
    // The user named each setting, so a missing one is an error, not a note.
    if let Some(missing) = plan.preview(&access).into_iter().find(|preview| preview.meets == Meets::NotThere) {
        return Err(Failure::lacking(
            format!("cannot set {}", missing.item.setting.label()),
            "this host has no such setting, or its driver is not loaded",
            "for --via hwp run modprobe msr; check that the CPUs are in /sys/devices/system/cpu/online",
        )
        .into());
    }
    let signals = Signals::hold()?;
    least(&access, Some(&plan), Which::Abandoned)?;
    let applied = apply_plan(&access, &plan, &options(&typed.manner)).map_err(NotSet)?;
    if let Some(why) = interrupted(&signals, &access, &applied)? {
        return Err(Failure::interrupted("the frequency was not set", why, "run it again").into());
    }
    finish(&access, &plan, &applied, typed.json, &notes)
}

/// Runs `apus tune rollback`.
pub fn rollback(typed: &Rollback) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.root, typed.manner.trace)?;
    let which = match (typed.transaction, typed.abandoned) {
        (Some(id), _) => Which::One(id),
        (None, true) => Which::Abandoned,
        (None, false) => Which::All,
    };
    // Ctrl-C takes effect only when the rollback is complete, because half a rollback is of no use. The questions
    // come after that.
    let signals = Signals::hold()?;
    least(&access, None, which)?;
    let is_asked = !typed.overwrite && !typed.keep && io::stdin().is_terminal();
    let mut ask = |setting: &AnySetting, now: &Value, before: &Value| {
        signals.released(|| ask_about_theirs(setting, now, before)).unwrap_or(Theirs::Keep)
    };
    let mut options = RollbackOptions {
        command: command_line(),
        patience: Duration::from_nanos(typed.manner.wait.as_nanos()),
        damaged: typed.damaged,
        forget: typed.forget,
        theirs: if typed.overwrite { Theirs::Overwrite } else { Theirs::Keep },
        ask: if is_asked { Some(&mut ask) } else { None },
    };
    let rolled_back = take_back(&access, which, &mut options)?;
    let document = RollbackDocument::of(&rolled_back);
    let said = terminal::print(typed.json, &document, |out| say::rolled_back(&rolled_back, out));
    unless_said(said, "the rollback is done; apus tune status shows whether anything is left")?;
    Ok(if rolled_back.iter().all(|one| one.closed) { Status::Good } else { Status::Findings })
}

fn options(manner: &Manner) -> ApplyOptions {
    ApplyOptions {
        command: command_line(),
        version: VERSION.into(),
        patience: Duration::from_nanos(manner.wait.as_nanos()),
        lease: Lease::Open,
        keep_going: false,
    }
}

/// Drops the privileges that neither the settings of `plan` nor the transactions to roll back need. Does this only on
/// the running host, where the files belong to root.
fn least(access: &Access, plan: Option<&Plan>, back: Which) -> anyhow::Result<()> {
    if !access.is_live() {
        return Ok(());
    }
    let known = transactions(access)?;
    let back: Vec<&Transaction> = known
        .iter()
        .filter(|one| match back {
            Which::All => true,
            Which::One(id) => one.id == id,
            Which::Abandoned => one.is_abandoned() || one.is_past,
        })
        .collect();
    let wanted = plan.into_iter().flat_map(|plan| &plan.items).map(|item| &item.setting);
    let wanted = privilege::needed_to_change(access, wanted)?;
    let undone = back.iter().flat_map(|one| one.open_entries()).map(|entry| &entry.intent.setting);
    let look = back.iter().map(|one| one.capability_to_look(access));
    let needed = look.fold(wanted | privilege::needed(undone), |needed, look| needed | look);
    Ok(privilege::keep_only(needed)?)
}

/// If Ctrl-C was pressed during the changes, rolls them back, and returns what happened.
fn interrupted(signals: &Signals, access: &Access, applied: &Applied) -> anyhow::Result<Option<String>> {
    let Some(id) = applied.id.filter(|_| signals.wait(Duration::ZERO).is_some()) else { return Ok(None) };
    Ok(Some(match take_back_one(access, id)? {
        true => format!("it was interrupted; transaction {id} was rolled back"),
        false => {
            format!("it was interrupted; transaction {id} is rolled back in part: apus tune status shows what is left")
        }
    }))
}

/// Rolls back the transaction that was just made. Returns whether all of its changes are undone.
fn take_back_one(access: &Access, id: u32) -> anyhow::Result<bool> {
    let back = rollback_ours(access, Which::One(id), &command_line(), Duration::from_secs(10))?;
    Ok(back.iter().all(|one| one.closed))
}

/// Turns a failed output (a full disk, a closed pipe) into an error that also says what was changed.
fn unless_said(said: anyhow::Result<()>, stands: &str) -> anyhow::Result<()> {
    match said {
        // A reader may stop early: `| head -1`.
        Err(error) if !crate::failure::is_broken_pipe(&error) => {
            Err(Failure::lacking("cannot print the result", format!("{error:#}"), stands).into())
        }
        _ => Ok(()),
    }
}

fn finish(access: &Access, plan: &Plan, applied: &Applied, json: bool, notes: &[String]) -> anyhow::Result<Status> {
    let said = if json {
        print_json(&ApplyDocument::of(&plan.name, applied, notes))
    } else {
        say::applied(access, applied, notes, &mut terminal::out()).map_err(Into::into)
    };
    let stands = match applied.id {
        Some(id) => format!(
            "the settings are changed, as transaction {id}; apus tune status shows it, apus tune rollback {id} undoes it"
        ),
        None => "no setting was changed".into(),
    };
    unless_said(said, &stands)?;
    // Settings that this machine lacks are reported. They are a failure only if it lacks all of them.
    let there = applied.items.iter().filter(|(_, became)| *became != Became::NotThere);
    let wished = !applied.items.is_empty() || !notes.is_empty();
    let nothing = wished && there.clone().next().is_none();
    let good = there.clone().all(|(_, became)| became.is_good()) && !nothing;
    Ok(if good { Status::Good } else { Status::Findings })
}

/// Asks the user on the terminal. Fails if there is no terminal.
fn asked(what: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Failure::wrong(
            what,
            "it needs a confirmation, but standard input is not a terminal",
            "check with apus tune plan, then add --yes",
        )
        .into());
    }
    Ok(answered(&format!("{what}? [y/N] "))?)
}

fn answered(question: &str) -> io::Result<bool> {
    let mut err = terminal::err();
    write!(err, "{question}")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn ask_about_theirs(setting: &AnySetting, now: &Value, before: &Value) -> Theirs {
    let question = format!("{}: something else set it to {now}; restore {before}? [y/N] ", setting.label());
    if answered(&question).unwrap_or(false) { Theirs::Overwrite } else { Theirs::Keep }
}

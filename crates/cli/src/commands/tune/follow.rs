//! `apus tune follow`: applies a profile to existing devices and threads, and to those that appear later.
//!
//! Each pass resolves the profile again. Settings of devices, threads or interrupts that match for the first time are
//! applied as a separate transaction. Refused settings are tried again. A setting that someone else has changed is not
//! set again.
//!
//! ```text
//!   resolve ─► new settings? ─► apply ─► refused before, and due? ─► apply, device by device ─► wait ─┐
//!      ▲                                                                                             │ every 5 s
//!      └─────────────────────────────────────────────────────────────────────────────────────────────┘
//!                                                             signal ─► roll back all, the youngest first
//! ```

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::time::Duration;

use host::journal::{Lease, Processes};
use host::knob::{Access, AnySetting, Setting as _};
use host::transaction::{Applied, ApplyOptions, Became, Plan, RolledBack, apply, rollback_own};
use live::os::Signals;

use super::{command_line, machine_to_change, resolve, say};
use crate::args::tune::Follow;
use crate::documents::VERSION;
use crate::failure::NotSet;
use crate::{Failure, Status, terminal};

/// A setting and the device behind its name. A device that disappears and returns under the same name counts as new.
type Key = (AnySetting, Option<String>);

/// Runs `apus tune follow`.
pub fn run(typed: &Follow) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.target.root, false)?;
    let signals = Signals::hold()?;
    let hidden =
        || Failure::lacking("cannot follow the host", "its /proc does not show this process", "mount the host's /proc");
    let (pid, started) = Processes::of(&access)?.own()?.ok_or_else(hidden)?;
    let options = ApplyOptions {
        command: command_line(),
        version: VERSION.into(),
        patience: Duration::from_nanos(typed.wait.as_nanos()),
        lease: Lease::Process { pid, started },
        keep_going: typed.keep_going,
    };
    let every = Duration::from_nanos(typed.every.as_nanos());
    let mut follower = Follower { access: &access, typed, options, tried: Tried::default(), ours: Vec::new(), look: 0 };
    loop {
        match follower.look() {
            Ok(()) => {}
            // If the profile cannot be applied or the output fails at the first pass, the command ends. A device that
            // refuses does not end it.
            Err(error) if follower.look == 0 => {
                end(&access, &follower.ours, follower.options.patience)?;
                return Err(error);
            }
            Err(error) => drop(writeln!(terminal::err(), "{error:#}")),
        }
        follower.look += 1;
        if signals.wait(every).is_some() {
            return end(&access, &follower.ours, follower.options.patience);
        }
    }
}

struct Follower<'a> {
    access: &'a Access,
    typed: &'a Follow,
    options: ApplyOptions,
    tried: Tried,
    /// Transactions to roll back at the end, the oldest first.
    ours: Vec<u32>,
    /// Number of passes before this one.
    look: u64,
}

impl Follower<'_> {
    /// Applies new settings, and refused ones that are due again, and prints the outcome.
    fn look(&mut self) -> anyhow::Result<()> {
        let (_, resolved) = resolve(self.access, &self.typed.profile, &self.typed.target)?;
        let mut new = Plan::new(&resolved.plan.name);
        // One plan per device, so that a device that still refuses does not block others.
        let mut due: BTreeMap<Option<String>, Plan> = BTreeMap::new();
        for item in resolved.plan.items {
            let key = (item.setting.clone(), item.setting.identity(self.access)?);
            match self.tried.is_due(&key, self.look) {
                None => new.push(item),
                Some(true) => due.entry(key.1).or_insert_with(|| Plan::new(&resolved.plan.name)).push(item),
                Some(false) => {}
            }
        }
        let mut failed = None;
        if !new.items.is_empty() || self.look == 0 {
            let notes = if self.look == 0 { resolved.notes } else { Vec::new() };
            failed = self.attempt(&new, &notes, false).err();
        }
        for plan in due.values() {
            failed = failed.or(self.attempt(plan, &[], true).err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Applies a plan, records the outcome of each setting, and prints what is new.
    fn attempt(&mut self, plan: &Plan, notes: &[String], again: bool) -> anyhow::Result<()> {
        let key =
            |item: &host::transaction::Item| anyhow::Ok((item.setting.clone(), item.setting.identity(self.access)?));
        let keys = plan.items.iter().map(key).collect::<Result<Vec<Key>, _>>()?;
        let mut news = !again;
        let applied = match apply(self.access, plan, &self.options) {
            Ok(applied) => applied,
            Err(error) => {
                let why = error.to_string();
                keys.into_iter().for_each(|key| news |= self.tried.again(key, self.look, &why));
                return if news { Err(NotSet(error).into()) } else { Ok(()) };
            }
        };
        let mut holds = false;
        for (key, (_, became)) in keys.into_iter().zip(&applied.items) {
            match became {
                Became::Refused(error) => news |= self.tried.again(key, self.look, &error.to_string()),
                Became::NotThere => news |= self.tried.again(key, self.look, "not there"),
                Became::Changed { .. } | Became::Already { .. } | Became::Otherwise { .. } => {
                    (news, holds) = (true, true);
                    self.tried.settle(key);
                }
            }
        }
        // Records the transaction before printing: if the output fails, it must still be rolled back.
        if let Some(id) = applied.id {
            // The first refusal stays in the journal, for `verify`. Later ones would pile up there.
            let closed = again
                && !holds
                && roll_back(self.access, id, self.options.patience).is_ok_and(|all| all.iter().all(|one| one.closed));
            if !closed {
                self.ours.push(id);
            }
        }
        if news { self.say(&applied, notes) } else { Ok(()) }
    }

    fn say(&self, applied: &Applied, notes: &[String]) -> anyhow::Result<()> {
        Ok(say::applied(self.access, applied, notes, &mut terminal::out())?)
    }
}

/// The outcome of the last attempt to change a setting. A look is one pass over the profile.
///
/// ```text
///   new ─► settled
///    │        ▲
///    └─► refused, due in 1, 2, 4, … 64 looks ─┐
///             ▲──────────────────────────────┘
/// ```
enum Standing {
    /// Applied once. The setting is not applied again, even if someone changes it.
    Settled,
    /// Refused, or not available; to be tried again.
    Refused {
        /// Number of the pass in which to try again.
        due: u64,
        /// Number of passes from this refusal to the next attempt. It doubles with each refusal, up to
        /// [`Tried::LONGEST`].
        pause: u64,
        /// Reason of the refusal.
        why: String,
    },
}

/// The settings tried so far.
#[derive(Default)]
struct Tried(HashMap<Key, Standing>);

impl Tried {
    /// Longest pause between two attempts, in passes: about five minutes with the default interval. A busy or
    /// restarting device is ready much sooner. For a device that never becomes ready, these attempts cost almost
    /// nothing.
    const LONGEST: u64 = 64;

    /// Whether to try a setting in pass number `look`. `None` if it was never tried.
    fn is_due(&self, key: &Key, look: u64) -> Option<bool> {
        self.0.get(key).map(|standing| matches!(standing, Standing::Refused { due, .. } if *due <= look))
    }

    fn settle(&mut self, key: Key) {
        self.0.insert(key, Standing::Settled);
    }

    /// Records a refusal. Returns whether the reason differs from that of the last refusal.
    fn again(&mut self, key: Key, look: u64, why: &str) -> bool {
        let (pause, news) = match self.0.get(&key) {
            Some(Standing::Refused { pause, why: before, .. }) => ((pause * 2).min(Self::LONGEST), before != why),
            _ => (1, true),
        };
        self.0.insert(key, Standing::Refused { due: look + pause, pause, why: why.to_owned() });
        news
    }
}

fn roll_back(access: &Access, id: u32, patience: Duration) -> anyhow::Result<Vec<RolledBack>> {
    Ok(rollback_own(access, id, &command_line(), patience)?)
}

/// Rolls back all transactions of this command. If one fails, the others are still rolled back. `patience` is how long
/// each of them waits for another command.
fn end(access: &Access, ours: &[u32], patience: Duration) -> anyhow::Result<Status> {
    let mut all_closed = true;
    let mut failed = None;
    for id in ours.iter().rev() {
        let back = roll_back(access, *id, patience).and_then(|rolled_back| {
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

#[cfg(test)]
mod tests {
    use host::knob::Sysctl;

    use super::*;

    #[test]
    fn what_was_refused_is_tried_again_less_and_less_often() {
        let key: Key = (Sysctl::new("vm.stat_interval").into(), Some("7".into()));
        let mut tried = Tried::default();
        assert_eq!(tried.is_due(&key, 0), None);
        let mut looks = Vec::new();
        assert!(tried.again(key.clone(), 0, "busy"));
        for look in 1..=400 {
            if tried.is_due(&key, look) == Some(true) {
                looks.push(look);
                assert!(!tried.again(key.clone(), look, "busy"), "nothing new");
            }
        }
        assert_eq!(looks, [1, 3, 7, 15, 31, 63, 127, 191, 255, 319, 383]);
        assert!(tried.again(key.clone(), 447, "read-only"), "another reason is news");
        tried.settle(key.clone());
        assert_eq!(tried.is_due(&key, 10_000), Some(false));
        assert_eq!(tried.is_due(&(key.0, Some("8".into())), 0), None, "another device of its name is new");
    }
}

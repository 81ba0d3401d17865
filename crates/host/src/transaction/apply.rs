//! Doing what a plan says, so that it can be taken back.
//!
//! ```text
//!            ┌────────────────────────── next ───────────────────────────┐
//!            ▼                                                           │
//!  begin ─► read ─► journal: intent, synced ─► change ─► read back ─► journal: done ─► kept
//!                                                │            │
//!                                                └── refused ─┴─► taken back: this one (Report) or all (RollBack)
//! ```

use std::time::Duration;

use super::entry::{Entry, State};
use super::rollback::{Outcome, again, take_back};
use super::{Error, Item, OnRefusal, Plan};
use crate::journal::{Begin, Durable, Intent, Journal, Lease, Lock, Record};
use crate::knob::{Access, Error as KnobError, Knob, Setting as _, Theirs, Value, Verdict};
use crate::vault::Vault;

/// How a plan is applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What was typed, for the journal and for those who wait.
    pub command: String,
    /// The version of Apus.
    pub version: String,
    /// How long to wait for another transaction to end.
    pub patience: Duration,
    /// How long it is to last.
    pub lease: Lease,
    /// Whether a refusal is reported only, whatever the item says.
    pub keep_going: bool,
}

/// A plan that was applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The transaction's number; `None` if there was nothing to change.
    pub id: Option<u32>,
    /// What became of each item.
    pub items: Vec<(Item, Became)>,
    /// Transactions that were found unfinished, and were taken back first.
    pub recovered: Vec<u32>,
}

/// What became of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Became {
    /// Changed, and as wanted.
    Changed {
        /// What it was.
        before: Value,
        /// What it is.
        now: Value,
    },
    /// It was as wanted.
    Already {
        /// What it is.
        now: Value,
    },
    /// Changed, but to something else than wanted.
    Otherwise {
        /// What it was.
        before: Value,
        /// What it is.
        now: Value,
        /// The reason, where the machine says it.
        why: Option<String>,
    },
    /// The machine has no such setting.
    NotThere,
    /// It is as it was: the change was refused, or had no effect.
    Refused(KnobError),
}

impl Became {
    /// Whether it is as wanted.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Changed { .. } | Self::Already { .. })
    }
}

/// Applies `plan`. Either all of it is as wanted, not there, or refused and reported by its own [`OnRefusal`]; or
/// everything is as before.
pub fn apply(access: &Access, plan: &Plan, options: &Options) -> Result<Applied, Error> {
    let vault = Vault::create(access)?;
    let lock = Lock::take(&vault, &options.command, options.patience)?;
    access.settle()?;
    let recovered = super::rollback::recover(access, &vault)?;
    let applied = Work { access, vault: &vault, options, journal: None, made: Vec::new(), next: 0 }.run(plan);
    drop(lock);
    applied.map(|(id, items)| Applied { id, items, recovered })
}

struct Work<'a> {
    access: &'a Access,
    vault: &'a Vault,
    options: &'a Options,
    journal: Option<Journal>,
    /// What was changed, the oldest first.
    made: Vec<Entry>,
    next: u32,
}

type Items = Vec<(Item, Became)>;

impl Work<'_> {
    fn run(mut self, plan: &Plan) -> Result<(Option<u32>, Items), Error> {
        let mut items = Vec::with_capacity(plan.items.len());
        for item in &plan.items {
            match self.item(plan, item) {
                Ok(became) => items.push((item.clone(), became)),
                Err(error) => return Err(self.give_up(item, error)),
            }
        }
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.append(self.vault, &Record::Kept, Durable::Now)
        {
            let last = plan.items.last().cloned();
            return Err(last.map_or(Error::Knob(error.clone()), |item| self.give_up(&item, error)));
        }
        Ok((self.journal.as_ref().map(Journal::id), items))
    }

    /// One item. An error is one that ends the transaction.
    fn item(&mut self, plan: &Plan, item: &Item) -> Result<Became, KnobError> {
        match self.change(plan, item) {
            Err(error) if error.journal => Err(error.error),
            Err(error) if error.error.is_absent() => Ok(Became::NotThere),
            Err(error) if self.goes_on(item) => Ok(Became::Refused(error.error)),
            Err(error) => Err(error.error),
            Ok(became) => Ok(became),
        }
    }

    fn goes_on(&self, item: &Item) -> bool {
        self.options.keep_going || item.on_refusal == OnRefusal::Report
    }

    fn change(&mut self, plan: &Plan, item: &Item) -> Result<Became, Failure> {
        let (access, setting) = (self.access, &item.setting);
        let knob = Knob(setting);
        let Some(before) = knob.read(access)? else { return Ok(Became::NotThere) };
        if knob.holds(&before, &item.wanted) {
            if let Some(vain) = knob.vain(access, &item.wanted, &before)? {
                return Err(vain.into());
            }
            let record = Record::Already { setting: setting.clone(), wanted: item.wanted.clone() };
            self.append(plan, &record, Durable::Soon)?;
            return Ok(Became::Already { now: before });
        }
        setting.check(access, &item.wanted)?;
        let number = self.next;
        let intent = Intent {
            number,
            setting: setting.clone(),
            identity: setting.identity(access)?,
            before: before.clone(),
            wanted: item.wanted.clone(),
        };
        self.append(plan, &Record::Intent(intent.clone()), Durable::Now)?;
        self.next += 1;
        self.made.push(Entry { intent, state: State::InDoubt });
        let refused = match knob.change(access, &item.wanted, &before) {
            Ok(Verdict::AsWanted { now }) => {
                self.done(plan, number, &now)?;
                return Ok(Became::Changed { before, now });
            }
            Ok(Verdict::Otherwise { now, why }) if self.goes_on(item) => {
                self.done(plan, number, &now)?;
                return Ok(Became::Otherwise { before, now, why });
            }
            Ok(Verdict::Otherwise { now, why }) => otherwise(item, &now, why),
            Ok(Verdict::Unmoved { now, why }) => unmoved(item, &now, why),
            Ok(Verdict::Gone) => knob.absent(),
            Err(error) => error,
        };
        // Refused; but a part of it may have been done before the refusal.
        if self.goes_on(item) || refused.is_absent() {
            let entry = self.made.last().cloned().expect("it was just added");
            let outcome = take_back(access, &entry, Theirs::Keep);
            if outcome.is_settled() {
                self.append(plan, &Record::Undone { number }, Durable::Soon)?;
                self.made.pop();
            }
        }
        Err(refused.into())
    }

    fn done(&mut self, plan: &Plan, number: u32, now: &Value) -> Result<(), Failure> {
        if let Some(entry) = self.made.last_mut() {
            entry.state = State::Ours(now.clone());
        }
        self.append(plan, &Record::Done { number, now: now.clone() }, Durable::Soon)
    }

    fn append(&mut self, plan: &Plan, record: &Record, durable: Durable) -> Result<(), Failure> {
        let of_journal = |error| Failure { error, journal: true };
        if self.journal.is_none() {
            let begin = self.begin(plan).map_err(of_journal)?;
            self.journal = Some(Journal::create(self.vault, begin).map_err(of_journal)?);
        }
        match &mut self.journal {
            Some(journal) => journal.append(self.vault, record, durable).map_err(of_journal),
            None => Ok(()),
        }
    }

    fn begin(&self, plan: &Plan) -> Result<Begin, KnobError> {
        let network = super::network::network(self.access);
        Ok(Begin {
            format: crate::journal::FORMAT,
            apus: self.options.version.clone(),
            name: plan.name.clone(),
            command: self.options.command.clone(),
            at_unix_s: std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            boot: super::boot(self.access)?,
            network_cookie: network.as_ref().and_then(|network| network.cookie),
            network_handle: network.as_ref().and_then(|network| network.handle.clone()),
            network: network.map(|network| network.name),
            lease: self.options.lease.clone(),
        })
    }

    /// Takes back all of it, the last change first.
    fn give_up(&mut self, item: &Item, why: KnobError) -> Error {
        let back = self.made.drain(..).rev().map(|entry| {
            let outcome = take_back(self.access, &entry, Theirs::Keep);
            (entry, outcome)
        });
        let mut back: Vec<(Entry, Outcome)> = back.collect();
        again(self.access, &mut back);
        let left = back.into_iter().filter(|(_, outcome)| !outcome.is_settled());
        let left: Vec<_> = left.map(|(entry, outcome)| (entry.intent.setting, outcome)).collect();
        if left.is_empty()
            && let Some(journal) = &self.journal
        {
            // Should this fail, the next look finds that there is nothing left to take back.
            let _ = crate::journal::close(self.vault, journal.id());
        }
        let id = self.journal.as_ref().map(Journal::id);
        Error::RolledBack { setting: item.setting.label(), why, left: left_over(id, &left) }
    }
}

/// An error, and whether it is the journal's own: then nothing may be changed any more.
struct Failure {
    error: KnobError,
    journal: bool,
}

impl From<KnobError> for Failure {
    fn from(error: KnobError) -> Self {
        Self { error, journal: false }
    }
}

fn otherwise(item: &Item, now: &Value, why: Option<String>) -> KnobError {
    KnobError::Refused {
        what: format!("set {} to {}", item.setting.label(), item.wanted),
        why: format!("it became {now}{}", why.map_or(String::new(), |why| format!(": {why}"))),
        fix: "ask for a value that can be had, or pass --keep-going".into(),
    }
}

fn unmoved(item: &Item, now: &Value, why: Option<String>) -> KnobError {
    KnobError::Refused {
        what: format!("set {} to {}", item.setting.label(), item.wanted),
        why: format!(
            "the write was taken, and it still is {now}{}",
            why.map_or(String::new(), |why| format!(": {why}"))
        ),
        fix: "the kernel, the driver or the firmware ignores it: leave this setting out".into(),
    }
}

fn left_over(id: Option<u32>, left: &[(crate::knob::AnySetting, Outcome)]) -> Option<String> {
    let id = id.filter(|_| !left.is_empty())?;
    let names: Vec<String> = left.iter().map(|(setting, outcome)| format!("{} ({outcome})", setting.label())).collect();
    Some(format!("not taken back: {}; apus tune rollback {id} tries again", names.join(", ")))
}

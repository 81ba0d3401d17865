//! A transaction as recorded in its journal.

use super::Whereabouts;
use crate::journal::moves::Left;
use crate::journal::{self, Begin, Found, Intent, Lease, Processes, Record, Rest, moves};
use crate::knob::interface::{self, Place};
use crate::knob::{Access, AnySetting, Error, Knob, Lasts, Setting as _, Value};
use crate::vault::Vault;

/// A change recorded in a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The announced change.
    pub intent: Intent,
    /// The result of the announced change.
    pub state: State,
    /// Whether a controller moves the setting.
    pub steered: bool,
}

/// The result of an announced change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Unknown: the process ended shortly before, during or after the change.
    InDoubt,
    /// The change was made. This value was read back.
    Ours(Value),
    /// The setting no longer exists: another change of the transaction removed it.
    Vanished,
    /// The change was rolled back.
    Undone,
}

/// A transaction that was not rolled back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The number of the transaction.
    pub id: u32,
    /// The transaction's first record. `None` if not even that is intact.
    pub begin: Option<Begin>,
    /// The transaction's changes, oldest first.
    pub entries: Vec<Entry>,
    /// Settings that already had the wanted value and should keep it.
    pub already: Vec<(AnySetting, Value)>,
    /// Settings that were refused, with the wanted value and the reason, while the transaction continued.
    pub refused: Vec<(AnySetting, Value, String)>,
    /// Whether the transaction was completed.
    pub kept: bool,
    /// What follows the intact records of the journal.
    pub rest: Rest,
    /// Whether the transaction is from an earlier boot.
    pub is_past: bool,
    /// Whether the process to which the transaction was bound has ended. False if that cannot be known, because the
    /// root folder is a recording or belongs to a host whose processes are not visible.
    pub lost_process: bool,
    /// Whether that process gave the transaction up before everything was rolled back.
    pub released: bool,
}

/// The current state of a changed setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stands {
    /// The setting still has the value that Apus set.
    Ours {
        /// The current value.
        now: Value,
    },
    /// The setting has its previous value.
    Before {
        /// The current value.
        now: Value,
    },
    /// Someone else changed the setting.
    Theirs {
        /// The current value.
        now: Value,
    },
    /// The setting, or the device to which it belonged, is gone.
    Gone,
    /// The setting ended with its thread.
    Ended,
    /// A reboot undid the change.
    Past,
    /// The setting belongs to another network namespace.
    Elsewhere,
    /// The setting ended with its network namespace.
    NamespaceGone,
    /// The setting cannot be read.
    Unknown(Error),
}

/// All transactions that were not rolled back, oldest first.
pub fn transactions(access: &Access) -> Result<Vec<Transaction>, Error> {
    match Vault::open(access)? {
        Some(vault) => all(access, &vault),
        None => Ok(Vec::new()),
    }
}

pub(super) fn all(access: &Access, vault: &Vault) -> Result<Vec<Transaction>, Error> {
    let boot = super::boot(access)?;
    let processes = Processes::of(access)?;
    let mut all = Vec::new();
    for id in journal::ids(vault)? {
        let read = || -> Result<Option<Transaction>, Error> {
            let Some(found) = journal::find(vault, id)? else { return Ok(None) };
            Ok(Some(Transaction::of(found, &moves::last(vault, id)?, boot.as_deref())))
        };
        let Some(mut transaction) = read()? else { continue };
        if transaction.has_lost_its_process(&processes) {
            // The process may have rolled the transaction back after this journal was read, and then ended. Now that it
            // has ended, a second reading is final.
            let Some(now) = read()? else { continue };
            transaction = now;
            transaction.lost_process = true;
        }
        transaction.released |= super::held::is_given_up(vault, id);
        all.push(transaction);
    }
    Ok(all)
}

impl Transaction {
    /// Interprets a journal. `moves` contains the last state of each setting that a controller moved, with the number
    /// of the setting's intent.
    pub(super) fn of(found: Found, moves: &[(u32, Left)], boot: Option<&str>) -> Self {
        let Found { id, records, rest } = found;
        let mut transaction = Self {
            id,
            begin: None,
            entries: Vec::new(),
            already: Vec::new(),
            refused: Vec::new(),
            kept: false,
            rest,
            is_past: false,
            lost_process: false,
            released: false,
        };
        for record in records {
            match record {
                Record::Begin(begin) => {
                    transaction.is_past = begin.boot.as_deref() != boot;
                    transaction.begin = Some(begin);
                }
                Record::Intent(intent) => {
                    transaction.entries.push(Entry { intent, state: State::InDoubt, steered: false })
                }
                Record::Done { number, now } => transaction.set(number, State::Ours(now)),
                Record::Steered { number } => {
                    let left = moves.iter().find(|(moved, _)| *moved == number);
                    transaction.set(
                        number,
                        match left {
                            None => State::InDoubt,
                            Some((_, Left::At(at))) => State::Ours(at.clone()),
                            Some((_, Left::LetGo)) => State::Undone,
                        },
                    );
                    transaction.entry(number).into_iter().for_each(|entry| entry.steered = true);
                }
                Record::Vanished { number } => transaction.set(number, State::Vanished),
                Record::InDoubt { number } => transaction.set(number, State::InDoubt),
                Record::Undone { number } => transaction.set(number, State::Undone),
                Record::Refused { setting, wanted, why } => transaction.refused.push((setting, wanted, why)),
                Record::Already { setting, wanted } => transaction.already.push((setting, wanted)),
                Record::Kept => transaction.kept = true,
                Record::Released => transaction.released = true,
            }
        }
        if transaction.begin.is_none() {
            // The boot of the transaction is unknown. So a setting counts as set by Apus only if it has the wanted
            // value.
            for entry in transaction.entries.iter_mut().filter(|entry| entry.state == State::InDoubt) {
                entry.state = State::Ours(entry.intent.wanted.clone());
            }
        }
        transaction
    }

    fn set(&mut self, number: u32, state: State) {
        if let Some(entry) = self.entry(number) {
            entry.state = state;
        }
    }

    fn entry(&mut self, number: u32) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.intent.number == number)
    }

    /// Whether nothing will roll the transaction back automatically: it was not completed, or the process to which it
    /// was bound has ended or gave it up.
    pub fn is_abandoned(&self) -> bool {
        !self.kept || self.lost_process || self.released
    }

    fn has_lost_its_process(&self, processes: &Processes) -> bool {
        let Some(Begin { lease: Lease::Process { pid, started }, seen_from, .. }) = &self.begin else { return false };
        // No process survives a reboot. A process with the same number and start time is another one.
        self.is_past || processes.has_ended(*pid, *started, seen_from.as_deref())
    }

    /// The transaction's changes that were not rolled back.
    pub fn open_entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state != State::Undone)
    }

    /// The changes that were requested; side effects are left out.
    pub fn wanted_entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.open_entries().filter(|entry| entry.intent.along.is_none())
    }
}

impl Entry {
    /// Whether a reboot undoes the change.
    pub(super) fn ended_with_the_boot(&self) -> bool {
        self.intent.setting.lasts() != Lasts::AcrossReboots
    }

    /// Whether the setting belonged to a network namespace that no longer exists.
    pub(super) fn ended_with(&self, place: &Whereabouts) -> bool {
        self.intent.setting.is_of_network() && matches!(place, Whereabouts::Gone { .. })
    }

    /// The current state of the changed setting. `is_past` is [`Transaction::is_past`] of the entry's transaction, and
    /// `place` is the result of its [`Transaction::whereabouts`].
    pub fn stands(&self, access: &Access, is_past: bool, place: &Whereabouts) -> Stands {
        let Intent { setting, before, identity, .. } = &self.intent;
        if is_past && self.ended_with_the_boot() {
            return Stands::Past;
        }
        if setting.is_of_network() {
            match place {
                Whereabouts::Here => {}
                Whereabouts::Elsewhere { .. } => return Stands::Elsewhere,
                Whereabouts::Gone { .. } => return Stands::NamespaceGone,
            }
        }
        let looked = || -> Result<Stands, Error> {
            let Place::Here(setting) = interface::find(access, setting, identity.as_deref())? else {
                return Ok(Stands::Gone);
            };
            let knob = Knob(&setting);
            let Some(now) = knob.read(access)? else {
                return Ok(if setting.is_of_thread() { Stands::Ended } else { Stands::Gone });
            };
            let ours = match &self.state {
                State::Ours(ours) => ours,
                State::InDoubt | State::Vanished | State::Undone => &self.intent.wanted,
            };
            Ok(if knob.holds(&now, before) {
                Stands::Before { now }
            } else if knob.is_ours(&now, ours) {
                Stands::Ours { now }
            } else {
                Stands::Theirs { now }
            })
        };
        looked().unwrap_or_else(Stands::Unknown)
    }
}

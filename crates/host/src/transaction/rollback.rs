//! Rolls changes back, the last one first. Settings that someone else has changed since keep their values.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Error;
use super::entry::{Entry, State, Transaction, all};
use super::network::Whereabouts;
use crate::journal::{self, Begin, Durable, Journal, Lease, Lock, Record, Rest};
use crate::knob::interface::{self, Place};
use crate::knob::{Access, AnySetting, Error as KnobError, IrqAffinity, Knob, Restored, Setting as _, Theirs, Value};
use crate::vault::Vault;

/// Which transactions to roll back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All, the newest first.
    All,
    /// The transaction with this number.
    One(u32),
    /// Abandoned transactions, which no process will roll back: they are unfinished, or their process has ended.
    Abandoned,
}

/// How transactions are rolled back.
pub struct Options<'a> {
    /// The command line that was typed. It is shown to other processes that wait for the lock.
    pub command: String,
    /// How long to wait for another transaction to end.
    pub patience: Duration,
    /// Whether to roll back a transaction whose journal is damaged. All intact lines of the journal are then used, even
    /// those after a damaged line.
    pub damaged: bool,
    /// Whether to remove from the journal the changes that cannot be rolled back now.
    pub forget: bool,
    /// What to do with a setting that someone else has changed since the transaction.
    pub theirs: Theirs,
    /// Asks whether to overwrite a value that `theirs` keeps: with the setting, its current value and its value before
    /// the transaction. `None` if nobody is asked.
    ///
    /// A user may take long to answer. So it is called when everything else is rolled back, and without the lock that
    /// keeps other transactions waiting.
    pub ask: Option<&'a mut Ask<'a>>,
}

/// A function for [`Options::ask`].
pub type Ask<'a> = dyn FnMut(&AnySetting, &Value, &Value) -> Theirs + 'a;

/// A transaction that was rolled back as far as possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolledBack {
    /// The number of the transaction.
    pub id: u32,
    /// Name of the transaction. `None` if the journal's first record is damaged.
    pub name: Option<String>,
    /// The outcome of rolling back each change, the last change first.
    pub entries: Vec<(Entry, Outcome)>,
    /// Whether nothing of the transaction is left.
    pub closed: bool,
    /// Whether the journal ended in an incomplete record. The change of that record was not begun.
    pub torn: bool,
    /// Why no part of the transaction was rolled back. `None` if a rollback was made.
    pub left_alone: Option<String>,
}

units::named! {
    /// The outcome of rolling back one change.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Outcome {
        /// The previous value was written and is in force.
        Restored = "restored",
        /// The setting already had its previous value.
        Already = "already",
        /// A reboot has undone the change.
        Past = "past",
        /// Someone else has changed the setting since Apus set it. Their value was kept.
        Theirs {
            /// The current value.
            now: Value,
        } = "theirs",
        /// The setting is gone.
        Gone = "gone",
        /// The setting ended with its network namespace.
        NamespaceGone = "namespace_gone",
        /// The setting's thread has ended, and the setting with it.
        Ended = "ended",
        /// The name now belongs to another device, which has its own settings; nothing is restored.
        Another = "another",
        /// The setting that caused this side effect is restored, but the side effect remains. For example, an interrupt
        /// stays on its CPU.
        Stayed {
            /// The current value.
            now: Value,
        } = "stayed",
        /// The machine did not accept the previous value.
        Failed(KnobError) = "failed",
    }
}

impl Outcome {
    /// Whether nothing is left to do for this change.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Restored | Self::Already | Self::Past | Self::Another | Self::NamespaceGone | Self::Ended => true,
            Self::Stayed { .. } => true,
            Self::Theirs { .. } | Self::Gone | Self::Failed(_) => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored => f.write_str("restored"),
            Self::Already => f.write_str("had its old value already"),
            Self::Past => f.write_str("reset by the reboot"),
            Self::Theirs { now } => write!(f, "kept: something else set it to {now}"),
            Self::Gone => f.write_str("gone"),
            Self::NamespaceGone => f.write_str("gone with its network namespace"),
            Self::Ended => f.write_str("not needed: its thread has ended"),
            Self::Another => f.write_str("kept: it belongs to another device now"),
            Self::Stayed { now } => {
                write!(f, "restored, but it stays at {now} until the kernel next moves it")
            }
            Self::Failed(error) => write!(f, "failed: {}", error.to_string().replace('\n', "; ")),
        }
    }
}

/// Rolls back transactions.
///
/// If one transaction fails, the others are still rolled back. A transaction that was not rolled back completely keeps
/// its journal, so that the rollback can be tried again. A transaction that was made in another network namespace is
/// skipped; if it is the only one, an error is returned. If that namespace no longer exists, the transaction's
/// machine-wide changes are rolled back; its other changes ended with the namespace.
pub fn rollback(access: &Access, which: Which, options: &mut Options<'_>) -> Result<Vec<RolledBack>, Error> {
    let Some(vault) = Vault::open(access)? else {
        return match which {
            Which::One(id) => Err(unknown(id)),
            Which::All | Which::Abandoned => Ok(Vec::new()),
        };
    };
    let lock = Lock::take(&vault, &options.command, options.patience)?;
    access.settle()?;
    let known = all(access, &vault)?;
    let mut done = chosen(access, &vault, which, &known, options)?;
    drop(lock);
    overwrite_as_asked(access, &vault, &known, &mut done, options);
    Ok(done)
}

/// Rolls back the chosen ones of the transactions `known`, without asking.
fn chosen(
    access: &Access,
    vault: &Vault,
    which: Which,
    known: &[Transaction],
    options: &Options<'_>,
) -> Result<Vec<RolledBack>, Error> {
    let chosen: Vec<&Transaction> = match which {
        Which::All => known.iter().collect(),
        Which::Abandoned => known.iter().filter(|transaction| transaction.is_abandoned()).collect(),
        Which::One(id) => {
            let one = known.iter().find(|transaction| transaction.id == id).ok_or_else(|| unknown(id))?;
            not_below_another(one, known.iter())?;
            vec![one]
        }
    };
    let own = super::held::own_lease(access)?;
    // Before anything is changed, checks that all chosen transactions can be rolled back.
    let mut begun = Vec::with_capacity(chosen.len());
    let mut left_alone = Vec::new();
    for transaction in &chosen {
        match &transaction.rest {
            Rest::Damaged { .. } if options.damaged => {}
            bad @ (Rest::Damaged { .. } | Rest::Untrusted { .. }) => {
                return Err(journal::unreadable(vault, transaction.id, bad).into());
            }
            Rest::Nothing | Rest::Torn => {}
        }
        if let Some(pid) = steered_by(transaction, &own) {
            let why = Error::Knob(KnobError::Refused {
                what: format!("roll back transaction {}", transaction.id),
                why: format!("process {pid} steers its settings"),
                fix: format!("end that process, which restores them: kill {pid}"),
            });
            left_alone.push((*transaction, why));
            continue;
        }
        match reachable(access, transaction, options.forget) {
            Ok(place) => begun.push((*transaction, place)),
            Err(why) => left_alone.push((*transaction, why)),
        }
    }
    // From the newest on: an older transaction is left alone too if a newer one that changed the same setting is.
    begun.reverse();
    begun.retain(|(transaction, _)| {
        let below = not_below_another(transaction, left_alone.iter().map(|(other, _)| *other));
        below.map_err(|why| left_alone.push((transaction, why))).is_ok()
    });
    if begun.is_empty() && !left_alone.is_empty() {
        return Err(left_alone.swap_remove(0).1);
    }
    let theirs = |_: &Entry, _: &Value| options.theirs;
    let forget = match (options.forget, options.ask.is_some()) {
        (false, _) => Forget::Nothing,
        (true, true) => Forget::AllButTheirs,
        (true, false) => Forget::All,
    };
    let taken_back =
        begun.into_iter().map(|(transaction, place)| one(access, vault, transaction, &place, &theirs, forget));
    left_alone.sort_by_key(|(transaction, _)| std::cmp::Reverse(transaction.id));
    let left_alone = left_alone.iter().map(|(transaction, why)| {
        Ok(RolledBack {
            id: transaction.id,
            name: name_of(transaction),
            entries: Vec::new(),
            closed: false,
            torn: transaction.rest == Rest::Torn,
            left_alone: Some(why.to_string()),
        })
    });
    taken_back.chain(left_alone).collect()
}

fn has_theirs(entries: &[(Entry, Outcome)]) -> bool {
    entries.iter().any(|(_, outcome)| matches!(outcome, Outcome::Theirs { .. }))
}

/// Asks what to do with the settings that someone else has changed, and restores those that the answers name. `known`
/// are the transactions as they were before the rollback, `done` is what became of them.
///
/// A setting is asked for once, although several transactions may have changed it. Between question and answer, others
/// may change it again; then it keeps its value.
fn overwrite_as_asked(
    access: &Access,
    vault: &Vault,
    known: &[Transaction],
    done: &mut [RolledBack],
    options: &mut Options<'_>,
) {
    let Some(ask) = options.ask.as_deref_mut() else { return };
    let mut answers: Vec<(AnySetting, Value, Theirs)> = Vec::new();
    for one in &*done {
        let kept = |main: u32| {
            let mut entries = one.entries.iter();
            entries.any(|(other, outcome)| other.intent.number == main && matches!(outcome, Outcome::Theirs { .. }))
        };
        for (entry, outcome) in &one.entries {
            let (setting, Outcome::Theirs { now }) = (&entry.intent.setting, outcome) else { continue };
            // What goes along with a setting that is kept is kept too.
            if entry.intent.along.is_some_and(kept) || answers.iter().any(|(known, ..)| known == setting) {
                continue;
            }
            answers.push((setting.clone(), now.clone(), ask(setting, now, &entry.intent.before)));
        }
    }
    let is_to_restore = |entry: &Entry| {
        answers.iter().any(|(setting, _, answer)| *setting == entry.intent.setting && *answer == Theirs::Overwrite)
    };
    let theirs = |entry: &Entry, now: &Value| {
        let is_asked = answers.iter().any(|(setting, then, _)| *setting == entry.intent.setting && then == now);
        if is_asked && is_to_restore(entry) { Theirs::Overwrite } else { Theirs::Keep }
    };
    for one in done.iter_mut().filter(|one| has_theirs(&one.entries)) {
        let restores = one.entries.iter().any(|(entry, outcome)| !outcome.is_settled() && is_to_restore(entry));
        if !restores && !options.forget {
            continue;
        }
        // Others may have rolled the transaction back meanwhile, and another one may have its number now.
        let begin = known.iter().find(|then| then.id == one.id).and_then(|then| then.begin.as_ref());
        match second(access, vault, one.id, begin, &theirs, options) {
            Ok(again) => one.take(again),
            Err(Error::Knob(why) | Error::RolledBack { why, .. }) => {
                for (entry, outcome) in &mut one.entries {
                    if !outcome.is_settled() && is_to_restore(entry) {
                        *outcome = Outcome::Failed(why.clone());
                    }
                }
            }
        }
    }
}

/// Rolls back what is left of transaction `id` that began with `begin`.
fn second(
    access: &Access,
    vault: &Vault,
    id: u32,
    begin: Option<&Begin>,
    theirs: &dyn Fn(&Entry, &Value) -> Theirs,
    options: &Options<'_>,
) -> Result<RolledBack, Error> {
    let _lock = Lock::take(vault, &options.command, options.patience)?;
    let known = all(access, vault)?;
    let transaction =
        known.iter().find(|now| now.id == id && now.begin.as_ref() == begin).ok_or_else(|| unknown(id))?;
    not_below_another(transaction, known.iter())?;
    let place = reachable(access, transaction, options.forget)?;
    one(access, vault, transaction, &place, theirs, if options.forget { Forget::All } else { Forget::Nothing })
}

impl RolledBack {
    /// Takes over what a second rollback of the same transaction did.
    fn take(&mut self, again: Self) {
        for (entry, outcome) in again.entries {
            if let Some((_, first)) =
                self.entries.iter_mut().find(|(first, _)| first.intent.number == entry.intent.number)
            {
                *first = outcome;
            }
        }
        self.closed = again.closed;
    }
}

/// The side effects of a transaction's changes, during its rollback.
struct Companions<'a> {
    transaction: &'a Transaction,
    /// Values that someone else has set since the change, by the number of the change.
    theirs: BTreeMap<u32, Value>,
}

impl<'a> Companions<'a> {
    fn of(&self, main: &Entry) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let number = main.intent.number;
        self.transaction.open_entries().filter(move |entry| entry.intent.along == Some(number))
    }

    /// Called before `main` is rolled back: finds the settings that `main` affected and that someone else has changed
    /// since. The other affected settings count as set by Apus, whatever the rollback of `main` does to them. The
    /// journal records this, because the process may be killed in between.
    fn look(&mut self, access: &Access, vault: &Vault, journal: &mut Option<Journal>, main: &Entry) {
        for entry in self.of(main).filter(|entry| !entry.intent.setting.is_effect()) {
            let after = match &entry.state {
                State::Ours(after) => Some(after),
                State::Vanished => None,
                State::InDoubt | State::Undone => continue,
            };
            let knob = Knob(&entry.intent.setting);
            let now = knob.read(access).ok().flatten();
            let known = |now: &Value| {
                knob.holds(now, &entry.intent.before) || after.is_some_and(|after| knob.holds(now, after))
            };
            match now.filter(|now| !known(now)) {
                Some(now) => drop(self.theirs.insert(entry.intent.number, now)),
                None => note(vault, journal, &Record::InDoubt { number: entry.intent.number }),
            }
        }
    }

    /// Keeps the current values of the settings that `main` affected. Called when someone else's value of `main` is
    /// kept.
    fn keep(&mut self, access: &Access, main: &Entry) {
        for entry in self.of(main) {
            if let Ok(Some(now)) = entry.intent.setting.read(access)
                && !Knob(&entry.intent.setting).holds(&now, &entry.intent.before)
            {
                self.theirs.insert(entry.intent.number, now);
            }
        }
    }
}

fn name_of(transaction: &Transaction) -> Option<String> {
    transaction.begin.as_ref().map(|begin| begin.name.clone())
}

/// What was done with an earlier transaction before a new one began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovered {
    /// The transaction was unfinished, or its process has ended: it was rolled back.
    TakenBack {
        /// Number of the transaction.
        id: u32,
    },
    /// The transaction is from an earlier boot.
    Past {
        /// Number of the transaction.
        id: u32,
        /// Number of changes of the transaction that a reboot undid.
        undone: usize,
        /// Number of changes that last across reboots. They stay until the transaction is rolled back.
        stays: usize,
    },
}

/// Rolls back unfinished transactions, and drops changes that a reboot undid. The caller holds the lock.
pub(super) fn recover(access: &Access, vault: &Vault) -> Result<Vec<Recovered>, Error> {
    let mut recovered = Vec::new();
    for transaction in all(access, vault)?.into_iter().rev() {
        let abandoned = transaction.is_abandoned();
        if !abandoned && !transaction.is_past {
            continue;
        }
        // Transactions that are damaged, belong to another user or to another network namespace are left unchanged.
        // They do not block new ones.
        if matches!(transaction.rest, Rest::Damaged { .. } | Rest::Untrusted { .. }) {
            continue;
        }
        if !abandoned {
            recovered.extend(drop_past(vault, &transaction)?);
            continue;
        }
        let Ok(place) = reachable(access, &transaction, false) else { continue };
        // Later transactions may have been rolled back above. If one is left that needs the setting, this one waits for it.
        if not_below_another(&transaction, all(access, vault)?.iter()).is_err() {
            continue;
        }
        if one(access, vault, &transaction, &place, &|_, _| Theirs::Keep, Forget::Nothing)?.closed {
            recovered.push(Recovered::TakenBack { id: transaction.id });
        }
    }
    Ok(recovered)
}

/// Drops the changes of a completed transaction that a reboot undid. Changes that last across reboots stay, and the
/// transaction stays as long as it has such changes. `None` if there was nothing to drop.
fn drop_past(vault: &Vault, transaction: &Transaction) -> Result<Option<Recovered>, Error> {
    let id = transaction.id;
    let (undone, stays): (Vec<&Entry>, Vec<&Entry>) =
        transaction.open_entries().partition(|entry| entry.ended_with_the_boot());
    let wanted = |entries: &[&Entry]| entries.iter().filter(|entry| entry.intent.along.is_none()).count();
    let counts = Recovered::Past { id, undone: wanted(&undone), stays: wanted(&stays) };
    if stays.is_empty() {
        journal::close(vault, id)?;
        return Ok(Some(counts));
    }
    if undone.is_empty() {
        return Ok(None);
    }
    let mut journal = Some(Journal::open(vault, id)?.0);
    undone.into_iter().for_each(|entry| self::undone(vault, &mut journal, entry));
    Ok(Some(counts))
}

/// The changes that are removed from the journal although they could not be rolled back.
#[derive(Clone, Copy)]
enum Forget {
    Nothing,
    /// Every one of them, unless someone else's value was kept: the user is still to be asked about it.
    AllButTheirs,
    All,
}

/// Rolls back one transaction. `theirs` says what to do with a setting that someone else has changed, given
/// its current value.
fn one(
    access: &Access,
    vault: &Vault,
    transaction: &Transaction,
    place: &Whereabouts,
    theirs: &dyn Fn(&Entry, &Value) -> Theirs,
    forget: Forget,
) -> Result<RolledBack, Error> {
    // No record is added to a damaged journal. It is removed when all of its readable changes are settled.
    let damaged = matches!(transaction.rest, Rest::Damaged { .. });
    let mut journal = if damaged { None } else { Some(Journal::open(vault, transaction.id)?.0) };
    let mut entries: Vec<(Entry, Outcome)> = Vec::new();
    let mut companions = Companions { transaction, theirs: BTreeMap::new() };
    for entry in transaction.open_entries().rev() {
        let cause = cause(entry, &entries).cloned();
        if let Some(cause) = &cause {
            note(vault, &mut journal, &Record::InDoubt { number: cause.intent.number });
        }
        let outcome = match () {
            () if transaction.is_past && entry.ended_with_the_boot() => Outcome::Past,
            () if entry.ended_with(place) => Outcome::NamespaceGone,
            () => {
                companions.look(access, vault, &mut journal, entry);
                let companion = companions.theirs.remove(&entry.intent.number);
                let outcome = match companion.or_else(|| kept_later(entry, &entries)) {
                    Some(now) => Outcome::Theirs { now },
                    None => take_back(access, entry, Theirs::Keep),
                };
                let outcome = match outcome {
                    Outcome::Theirs { now } => match theirs(entry, &now) {
                        Theirs::Keep => Outcome::Theirs { now },
                        Theirs::Overwrite => take_back(access, entry, Theirs::Overwrite),
                    },
                    outcome => outcome,
                };
                if matches!(outcome, Outcome::Theirs { .. }) {
                    companions.keep(access, entry);
                }
                outcome
            }
        };
        // Records this at once. A later step of the rollback may remove this setting's object (for example offloads,
        // and with them a veth's NAPI). If the process is killed then, the next rollback must not look for the setting
        // again.
        if outcome.is_settled() {
            undone(vault, &mut journal, entry);
        }
        if let Some(cause) = &cause {
            undone(vault, &mut journal, cause);
        }
        entries.push((entry.clone(), outcome));
    }
    let first: Vec<bool> = entries.iter().map(|(_, outcome)| outcome.is_settled()).collect();
    again(access, &mut entries);
    for ((entry, outcome), before) in entries.iter().zip(first) {
        if outcome.is_settled() && !before {
            undone(vault, &mut journal, entry);
        }
    }
    let mut left = entries
        .iter()
        .filter(|(entry, outcome)| is_left(&entries, entry, outcome) && !over(access, transaction, entry, outcome));
    let is_forgotten = match forget {
        Forget::Nothing => false,
        Forget::AllButTheirs => !has_theirs(&entries),
        Forget::All => true,
    };
    let closed = left.next().is_none() || is_forgotten;
    if closed {
        journal::close(vault, transaction.id)?;
    }
    Ok(RolledBack {
        id: transaction.id,
        name: name_of(transaction),
        entries,
        closed,
        torn: transaction.rest == Rest::Torn,
        left_alone: None,
    })
}

/// The rolled-back change of an interrupt's affinity mask that caused the side effect `entry`, the interrupt's
/// effective CPU. To restore that CPU, the mask is written twice; if the process is killed in between, the mask has a
/// value that nobody wanted.
fn cause<'a>(entry: &Entry, restored: &'a [(Entry, Outcome)]) -> Option<&'a Entry> {
    let AnySetting::IrqEffective(effect) = &entry.intent.setting else { return None };
    let mask = IrqAffinity::new(effect.irq).into();
    let is_it = |(other, outcome): &&(Entry, Outcome)| other.intent.setting == mask && outcome.is_settled();
    restored.iter().find(is_it).map(|(other, _)| other)
}

/// Someone else's value of a setting in doubt, if it was kept for a later change of the same setting. What a setting in
/// doubt shows does not tell who set it.
fn kept_later(entry: &Entry, restored: &[(Entry, Outcome)]) -> Option<Value> {
    if entry.state != State::InDoubt {
        return None;
    }
    restored.iter().find_map(|(other, outcome)| match outcome {
        Outcome::Theirs { now } if other.intent.setting == entry.intent.setting => Some(now.clone()),
        _ => None,
    })
}

/// Records that a change was rolled back. A failure to record it is ignored: a full disk must not prevent the rest of
/// the rollback, and a second rollback finds that the setting already has its previous value.
fn undone(vault: &Vault, journal: &mut Option<Journal>, entry: &Entry) {
    note(vault, journal, &Record::Undone { number: entry.intent.number });
}

fn note(vault: &Vault, journal: &mut Option<Journal>, record: &Record) {
    if let Some(journal) = journal {
        let _ = journal.append(vault, record, Durable::Soon);
    }
}

/// Whether a setting is gone for good: its device is gone, and the change was to last only as long as a process.
/// Changes that a user meant to last stay in the journal in case the device comes back. So do settings that are missing
/// while their device exists: drivers that use `netif_napi_add_config` restore the values of a NAPI instance when the
/// interface goes up (Linux 6.13, net/core/dev.c, `napi_restore_config`).
fn over(access: &Access, transaction: &Transaction, entry: &Entry, outcome: &Outcome) -> bool {
    let for_a_time = matches!(transaction.begin.as_ref().map(|begin| &begin.lease), Some(Lease::Process { .. }));
    let identity = entry.intent.identity.as_deref();
    let is_there = || match interface::find(access, &entry.intent.setting, identity) {
        Ok(Place::Here(setting)) => {
            identity.is_some() && setting.identity(access).ok().flatten().as_deref() == identity
        }
        Ok(Place::Another) | Err(_) => false,
    };
    for_a_time && entry.intent.setting.is_of_network() && *outcome == Outcome::Gone && !is_there()
}

/// The running process, other than this one, that controls settings of the transaction. `None` if there is none. If the
/// journal were removed, that process would stop controlling the settings, or the original values would be lost.
fn steered_by(transaction: &Transaction, own: &Lease) -> Option<u32> {
    let lease = transaction.begin.as_ref().map(|begin| &begin.lease);
    let Some(Lease::Process { pid, .. }) = lease.filter(|lease| *lease != own) else { return None };
    let is_steered = transaction.open_entries().any(|entry| entry.steered) && !transaction.is_abandoned();
    is_steered.then_some(*pid)
}

/// Retries failed rollbacks until no retry succeeds. One setting can prevent the rollback of another until it has been
/// rolled back itself: with the governor `performance`, intel_pstate rejects every other preference. A side effect can
/// disappear when its cause is rolled back.
pub(super) fn again(access: &Access, entries: &mut [(Entry, Outcome)]) {
    let again = |entry: &Entry, outcome: &Outcome| match outcome {
        Outcome::Failed(_) => true,
        Outcome::Gone => entry.intent.along.is_some(),
        _ => false,
    };
    loop {
        let mut helped = false;
        for (entry, outcome) in entries.iter_mut().filter(|(entry, outcome)| again(entry, outcome)) {
            *outcome = take_back(access, entry, Theirs::Keep);
            helped |= !again(entry, outcome);
        }
        if !helped {
            return;
        }
    }
}

/// Whether the rollback of a change is unfinished. A side effect whose setting is gone although its cause was rolled
/// back (an interrupt that has another number now) is gone for good.
pub(super) fn is_left(all: &[(Entry, Outcome)], entry: &Entry, outcome: &Outcome) -> bool {
    let main_is_left =
        |main: u32| all.iter().any(|(other, outcome)| other.intent.number == main && !outcome.is_settled());
    match (outcome, entry.intent.along) {
        (Outcome::Gone, Some(main)) => main_is_left(main),
        _ => !outcome.is_settled(),
    }
}

/// Rolls back one change. A side effect counts as set by Apus here, because an earlier check found the settings that
/// someone else has changed.
pub(super) fn take_back(access: &Access, entry: &Entry, theirs: Theirs) -> Outcome {
    let ours = match &entry.state {
        State::Undone => return Outcome::Already,
        State::Ours(ours) if entry.intent.along.is_none() => Some(ours),
        State::Ours(_) | State::Vanished | State::InDoubt => None,
    };
    let restore = || -> Result<Outcome, KnobError> {
        let Place::Here(setting) = interface::find(access, &entry.intent.setting, entry.intent.identity.as_deref())?
        else {
            return Ok(Outcome::Another);
        };
        let (knob, before) = (Knob(&setting), &entry.intent.before);
        let is_interrupted = entry.state == State::InDoubt && entry.intent.along.is_none();
        let restored = match entry.steered {
            _ if is_interrupted && !setting.shows_within().is_zero() => knob.put_back(access, before)?,
            true => knob.restore_fields(access, before, ours, theirs)?,
            false => knob.restore(access, before, ours, theirs)?,
        };
        Ok(match restored {
            Restored::Restored => Outcome::Restored,
            Restored::Already => Outcome::Already,
            Restored::Theirs { now } => Outcome::Theirs { now },
            Restored::Gone if setting.is_of_thread() => Outcome::Ended,
            // Apus's last value was the previous one, so the setting needs nothing if it comes back.
            Restored::Gone if ours.is_some_and(|ours| knob.holds(ours, before)) => Outcome::Already,
            Restored::Gone => Outcome::Gone,
            Restored::Failed { now } if setting.is_effect() => Outcome::Stayed { now },
            Restored::Failed { now } => Outcome::Failed(KnobError::Refused {
                what: format!("restore {} to {}", setting.label(), entry.intent.before),
                why: format!("it is still {now}"),
                fix: "find what holds it, and try again".into(),
            }),
        })
    };
    restore().unwrap_or_else(|error| {
        let setting = &entry.intent.setting;
        match setting.is_effect().then(|| setting.read(access).ok().flatten()).flatten() {
            Some(now) => Outcome::Stayed { now },
            None if error.is_absent() => {
                if setting.is_of_thread() {
                    Outcome::Ended
                } else {
                    Outcome::Gone
                }
            }
            None => Outcome::Failed(error),
        }
    })
}

/// Rolls back without asking. A setting that someone else has changed in the meantime keeps its new value, and no
/// change is removed from the journal. `command` and `patience` have the same meaning as in [`Options`].
pub fn rollback_ours(
    access: &Access,
    which: Which,
    command: &str,
    patience: Duration,
) -> Result<Vec<RolledBack>, Error> {
    let (damaged, forget, theirs, ask) = (false, false, Theirs::Keep, None);
    rollback(access, which, &mut Options { command: command.to_owned(), patience, damaged, forget, theirs, ask })
}

/// Rolls back the transaction `id` like [`rollback_ours`], if it is bound to this process. Otherwise does nothing:
/// somebody has rolled the transaction back, and another one has its number now.
pub fn rollback_own(access: &Access, id: u32, command: &str, patience: Duration) -> Result<Vec<RolledBack>, Error> {
    let own = super::held::own_lease(access)?;
    let is_own = |one: &Transaction| one.id == id && one.begin.as_ref().is_none_or(|begin| begin.lease == own);
    match super::entry::transactions(access)?.iter().any(is_own) {
        true => rollback_ours(access, Which::One(id), command, patience),
        false => Ok(Vec::new()),
    }
}

fn unknown(id: u32) -> Error {
    KnobError::invalid(format!("transaction {id}"), "there is no such transaction; apus tune status lists them").into()
}

/// Returns an error if a later transaction changed the same setting: the rollback would undo the later change as well.
fn not_below_another<'a>(one: &Transaction, known: impl Iterator<Item = &'a Transaction>) -> Result<(), Error> {
    for later in known.filter(|other| other.id > one.id) {
        let shared = later.open_entries().find(|entry| one.open_entries().any(|ours| same(one, ours, later, entry)));
        // A later transaction that found the setting as it wanted it relies on it too.
        let is_in_force = !later.is_past && !later.is_abandoned();
        let relies =
            |entry: &&Entry| is_in_force && later.already.iter().any(|(setting, _)| *setting == entry.intent.setting);
        if let Some(entry) = shared.or_else(|| one.open_entries().find(relies)) {
            return Err(Error::Knob(KnobError::Refused {
                what: format!("roll back transaction {}", one.id),
                why: format!("the later transaction {} also wants {}", later.id, entry.intent.setting.label()),
                fix: format!("roll back transaction {} first, or all: apus tune rollback", later.id),
            }));
        }
    }
    Ok(())
}

/// Whether two entries are about the same setting: of the same device, and in the same network namespace.
fn same(one: &Transaction, ours: &Entry, other: &Transaction, theirs: &Entry) -> bool {
    let differ = |one: Option<&String>, other: Option<&String>| one.zip(other).is_some_and(|(one, other)| one != other);
    let network = |of: &Transaction| {
        let begin = of.begin.as_ref();
        (begin.and_then(|begin| begin.network.clone()), begin.and_then(|begin| begin.network_cookie))
    };
    let ((name, cookie), (other_name, other_cookie)) = (network(one), network(other));
    let elsewhere =
        differ(name.as_ref(), other_name.as_ref()) || cookie.zip(other_cookie).is_some_and(|(one, other)| one != other);
    ours.intent.setting == theirs.intent.setting
        && !differ(ours.intent.identity.as_ref(), theirs.intent.identity.as_ref())
        && !(elsewhere && ours.intent.setting.is_of_network())
}

/// Returns an error if the transaction belongs to another network namespace that exists: the interfaces and net sysctls
/// of this namespace are not those that the transaction changed. If it is unknown whether the other namespace exists,
/// it counts as existing, unless `forget` is true.
fn reachable(access: &Access, transaction: &Transaction, forget: bool) -> Result<Whereabouts, Error> {
    let of_network = transaction.open_entries().any(|entry| entry.intent.setting.is_of_network());
    match transaction.whereabouts(access) {
        Whereabouts::Elsewhere { name, doubt: Some(_) } if of_network && forget => Ok(Whereabouts::Gone { name }),
        Whereabouts::Elsewhere { name, doubt } if of_network => Err(Error::Knob(KnobError::Refused {
            what: format!("roll back transaction {}", transaction.id),
            why: format!(
                "it was made in the network namespace {name}, but this is {}{}",
                super::network::network(access).map_or("a folder".into(), |now| now.name),
                doubt.map_or(String::new(), |doubt| format!("; whether that namespace still exists is unknown: {doubt}"))
            ),
            fix: "run it in that namespace: ip netns exec NAME apus tune rollback (lsns -t net shows its processes); if you know \
                  that the namespace no longer exists, add --forget"
                .into(),
        })),
        place => Ok(place),
    }
}

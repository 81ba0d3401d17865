//! Carries out a plan so that it can be rolled back.
//!
//! ```text
//!            ┌────────────────────────── next ───────────────────────────┐
//!            ▼                                                           │
//!  begin ─► read, and what it takes along ─► journal: intents, synced ─► change ─► read back ─► journal: done ─► kept
//!                                                │            │
//!                                                └── refused ─┴─► taken back: this one (Report) or all (RollBack)
//! ```

use std::time::{Duration, Instant};

use super::entry::{Entry, State, Transaction};
use super::network::Whereabouts;
use super::rollback::{Outcome, Recovered, again, is_left, take_back};
use super::{Error, Item, OnRefusal, Plan, Target};
use crate::journal::{Begin, Durable, Intent, Journal, Lease, Lock, Processes, Record};
use crate::knob::interface::{self, Place};
use crate::knob::{Access, AnySetting, Error as KnobError, Knob, Setting as _, Theirs, Value, Verdict, along};
use crate::vault::Vault;

/// Options for applying a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The command line that was typed. It is stored in the journal and shown to processes that wait for this
    /// transaction.
    pub command: String,
    /// The version of Apus.
    pub version: String,
    /// How long to wait for another transaction to end before giving up.
    pub patience: Duration,
    /// How long the transaction lasts.
    pub lease: Lease,
    /// Whether a refused item is only reported, even if its [`OnRefusal`] says otherwise.
    pub keep_going: bool,
}

/// The result of applying a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The number of the transaction. `None` if there was nothing to change.
    pub id: Option<u32>,
    /// The result of each item.
    pub items: Vec<(Item, Became)>,
    /// Side effects of the changes: settings that nobody requested and that a rollback restores.
    pub along: Vec<Along>,
    /// Earlier transactions that were unfinished or from an earlier boot, and what was done with them before the plan
    /// was applied.
    pub recovered: Vec<Recovered>,
}

/// A setting that a change affected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Along {
    /// The affected setting.
    pub setting: AnySetting,
    /// The setting whose change affected it.
    pub with: AnySetting,
    /// Previous value of the setting. An error if the setting could not be read; it is then not restored.
    pub before: Result<Value, KnobError>,
    /// Current value of the setting. `None` if it disappeared.
    pub now: Option<Value>,
}

units::named! {
    /// The result of one item of a plan.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Became {
        /// The setting was changed and has the wanted value.
        Changed {
            /// The previous value.
            before: Value,
            /// The current value.
            now: Value,
        } = "changed",
        /// The setting already had the wanted value.
        Already {
            /// The current value.
            now: Value,
        } = "already",
        /// The setting was changed, but not to the wanted value.
        Otherwise {
            /// The previous value.
            before: Value,
            /// The current value.
            now: Value,
            /// The reason. `None` if the machine does not report it.
            why: Option<String>,
        } = "otherwise",
        /// The machine has no such setting.
        NotThere = "not_there",
        /// The setting was not changed: the change was refused or had no effect.
        Refused(KnobError) = "refused",
    }
}

impl Became {
    /// Whether the setting has the wanted value.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Changed { .. } | Self::Already { .. })
    }
}

/// Applies `plan`. Afterwards either every item has its wanted value, does not exist, or was refused and reported
/// according to its [`OnRefusal`]; or the whole plan was rolled back.
pub fn apply(access: &Access, plan: &Plan, options: &Options) -> Result<Applied, Error> {
    let vault = Vault::create(access)?;
    let lock = Lock::take(&vault, &options.command, options.patience)?;
    access.settle()?;
    let recovered = super::rollback::recover(access, &vault)?;
    not_steered(access, &vault, plan)?;
    let work = Work::new(access, &vault, options);
    let applied = work.run(plan);
    drop(lock);
    applied.map(|(id, items, along)| Applied { id, items, along, recovered })
}

/// For each announced setting, the number of its intent record and its current value.
pub(super) type Announced = Vec<(u32, Value)>;

/// Records the current values of `targets` durably, before a controller moves them; changes nothing. Returns the
/// transaction and the announced settings.
pub(super) fn announce(
    access: &Access,
    name: &str,
    targets: &[Target],
    options: &Options,
) -> Result<(Applied, Announced), Error> {
    let vault = Vault::create(access)?;
    let lock = Lock::take(&vault, &options.command, options.patience)?;
    access.settle()?;
    let recovered = super::rollback::recover(access, &vault)?;
    not_anothers(access, &vault, targets)?;
    let mut work = Work::new(access, &vault, options);
    let announced = work.announce_all(name, targets);
    let id = work.journal.as_ref().map(Journal::id);
    if let (Err(_), Some(id)) = (&announced, id) {
        // No setting was changed, so the journal can be removed.
        let _ = crate::journal::close(&vault, id);
    }
    drop(lock);
    Ok((Applied { id, items: Vec::new(), along: Vec::new(), recovered }, announced?))
}

/// Returns an error if another process holds one of the settings: each process would mistake the other's value for the
/// original one.
fn not_anothers(access: &Access, vault: &Vault, targets: &[Target]) -> Result<(), KnobError> {
    for transaction in super::entry::all(access, vault)? {
        for entry in held_here(access, &transaction) {
            if let Some(setting) =
                targets.iter().map(|target| &target.setting).find(|setting| is_of(access, entry, setting))
            {
                return Err(held_by(&transaction, "steer", setting));
            }
        }
    }
    Ok(())
}

/// Returns an error if a controller moves a setting of the plan: the controller would mistake the plan's value for
/// someone else's and stop controlling the setting.
fn not_steered(access: &Access, vault: &Vault, plan: &Plan) -> Result<(), KnobError> {
    let all = super::entry::all(access, vault)?;
    let steered: Vec<(&Transaction, &Entry)> = all
        .iter()
        .flat_map(|transaction| held_here(access, transaction).map(move |entry| (transaction, entry)))
        .filter(|(_, entry)| entry.steered)
        .collect();
    if steered.is_empty() {
        return Ok(());
    }
    for item in &plan.items {
        let along = along::along(access, &item.setting).unwrap_or_default();
        for setting in std::iter::once(&item.setting).chain(&along) {
            if let Some((transaction, _)) = steered.iter().find(|(_, entry)| is_of(access, entry, setting)) {
                return Err(held_by(transaction, "set", &item.setting));
            }
        }
    }
    Ok(())
}

/// The changes that were not rolled back, if a running process holds the transaction. Changes in another network
/// namespace are left out.
fn held_here<'a>(access: &'a Access, transaction: &'a Transaction) -> impl Iterator<Item = &'a Entry> {
    let by_process = matches!(transaction.begin.as_ref().map(|begin| &begin.lease), Some(Lease::Process { .. }));
    let holds = by_process && !transaction.is_abandoned();
    let is_here = holds && transaction.whereabouts(access) == Whereabouts::Here;
    transaction.open_entries().filter(move |entry| holds && (is_here || !entry.intent.setting.is_of_network()))
}

/// Whether `entry` is about `setting`, even if the setting's interface has been renamed since the change.
fn is_of(access: &Access, entry: &Entry, setting: &AnySetting) -> bool {
    match interface::find(access, &entry.intent.setting, entry.intent.identity.as_deref()) {
        Ok(Place::Here(now)) => now == *setting,
        Ok(Place::Another) => false,
        // If the interface cannot be looked up, its name decides.
        Err(_) => entry.intent.setting == *setting,
    }
}

fn held_by(transaction: &Transaction, what: &str, setting: &AnySetting) -> KnobError {
    let pid = match transaction.begin.as_ref().map(|begin| &begin.lease) {
        Some(Lease::Process { pid, .. }) => pid.to_string(),
        Some(Lease::Open) | None => "?".to_owned(),
    };
    KnobError::Refused {
        what: format!("{what} {}", setting.label()),
        why: format!("process {pid} holds it (transaction {}, see apus tune status)", transaction.id),
        fix: "end that process, or leave this setting to it".into(),
    }
}

struct Work<'a> {
    access: &'a Access,
    vault: &'a Vault,
    options: &'a Options,
    journal: Option<Journal>,
    /// The changes made so far, oldest first.
    made: Vec<Entry>,
    along: Vec<Along>,
    late: Late,
    next: u32,
}

/// Side effects that the kernel carries out only some time after the change that causes them.
#[derive(Default)]
struct Late {
    /// The numbers of their records, each with the setting whose change affects it.
    numbers: Vec<(u32, AnySetting)>,
    /// When the last of them shows. `None` if there are none.
    by: Option<Instant>,
}

type Items = Vec<(Item, Became)>;

impl<'a> Work<'a> {
    fn new(access: &'a Access, vault: &'a Vault, options: &'a Options) -> Self {
        let late = Late::default();
        Self { access, vault, options, journal: None, made: Vec::new(), along: Vec::new(), late, next: 0 }
    }

    fn run(mut self, plan: &Plan) -> Result<(Option<u32>, Items, Vec<Along>), Error> {
        let mut items = Vec::with_capacity(plan.items.len());
        for item in &plan.items {
            match self.item(plan, item) {
                Ok(became) => items.push((item.clone(), became)),
                Err(error) => return Err(self.give_up(item, error)),
            }
        }
        if let Err(error) = self.complete(plan, &items) {
            let last = plan.items.last().cloned();
            return Err(last.map_or(Error::Knob(error.clone()), |item| self.give_up(&item, error)));
        }
        Ok((self.journal.as_ref().map(Journal::id), items, self.along))
    }

    fn announce_all(&mut self, name: &str, targets: &[Target]) -> Result<Announced, KnobError> {
        let plan = Plan::new(name);
        let mut announced = Vec::with_capacity(targets.len());
        for target in targets {
            let setting = &target.setting;
            let knob = Knob(setting);
            let now = target.part(knob.read(self.access)?.ok_or_else(|| knob.absent())?);
            setting.check_back(self.access, &now)?;
            let along = along::along_when_steered(self.access, setting)?;
            self.announce_along(&plan, setting, along).map_err(|failure| failure.error)?;
            let number = self.announce(&plan, setting, &now, &now, None).map_err(|failure| failure.error)?;
            self.append(&plan, &Record::Steered { number }, Durable::Soon).map_err(|failure| failure.error)?;
            announced.push((number, now));
        }
        if let Some(journal) = &mut self.journal {
            journal.append(self.vault, &Record::Kept, Durable::Now)?;
        }
        Ok(announced)
    }

    /// Records in the journal which settings were refused, and that the transaction is complete.
    fn complete(&mut self, plan: &Plan, items: &Items) -> Result<(), KnobError> {
        self.look_late(plan).map_err(|failure| failure.error)?;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        for (item, became) in items {
            if let Became::Refused(error) = became {
                let (setting, wanted) = (item.setting.clone(), item.wanted.clone());
                let record = Record::Refused { setting, wanted, why: error.to_string() };
                journal.append(self.vault, &record, Durable::Soon)?;
            }
        }
        journal.append(self.vault, &Record::Kept, Durable::Now)
    }

    /// Applies one item. An error ends the transaction.
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
        setting.check_back(access, &before)?;
        let along = self.announce_along(plan, setting, along::along(access, setting)?)?;
        let number = self.announce(plan, setting, &before, &item.wanted, None)?;
        let refused = match knob.change(access, &item.wanted, &before) {
            Ok(Verdict::AsWanted { now }) => {
                self.done(plan, number, Some(&now))?;
                self.look_along(plan, setting, along)?;
                return Ok(Became::Changed { before, now });
            }
            Ok(Verdict::Otherwise { now, why }) if self.goes_on(item) => {
                self.done(plan, number, Some(&knob.ours(&now, &item.wanted)))?;
                self.look_along(plan, setting, along)?;
                return Ok(Became::Otherwise { before, now, why });
            }
            Ok(Verdict::Otherwise { now, why }) => otherwise(item, &now, why),
            Ok(Verdict::Unmoved { now, why }) => unmoved(item, &now, why),
            Ok(Verdict::Gone) => knob.absent(),
            Err(error) => error,
        };
        // The change was refused, but a part of it may have taken effect before.
        if self.goes_on(item) || refused.is_absent() {
            let own = |entry: &Entry| entry.intent.number == number || entry.intent.along == Some(number);
            let first = self.made.iter().position(own).unwrap_or(self.made.len());
            let (back, left) = back(access, self.made.split_off(first));
            for (entry, _) in back {
                if left.iter().any(|(other, _)| other.intent.number == entry.intent.number) {
                    self.made.push(entry);
                } else {
                    self.append(plan, &Record::Undone { number: entry.intent.number }, Durable::Soon)?;
                }
            }
        }
        Err(refused.into())
    }

    /// Records the settings that the change of `setting` may affect, in the reverse of the order in which they are
    /// restored, and returns the numbers of the records. The records are synced to disk together with the record of the
    /// change itself.
    fn announce_along(
        &mut self,
        plan: &Plan,
        setting: &AnySetting,
        along: Vec<AnySetting>,
    ) -> Result<Vec<u32>, Failure> {
        let mut known: Vec<(AnySetting, Value)> = Vec::new();
        for other in along {
            if other == *setting || known.iter().any(|(known, _)| *known == other) {
                continue;
            }
            let read = other.read(self.access).and_then(|before| {
                let before = before.map(|before| other.steady(before));
                before.as_ref().map_or(Ok(()), |before| other.check_back(self.access, before)).map(|()| before)
            });
            match read {
                Ok(Some(before)) => known.push((other, before)),
                Ok(None) => {}
                Err(error) if error.is_absent() => {}
                Err(error) => {
                    self.along.push(Along { setting: other, with: setting.clone(), before: Err(error), now: None });
                }
            }
        }
        let main = self.next + known.len() as u32;
        let mut numbers = Vec::with_capacity(known.len());
        for (other, before) in known.into_iter().rev() {
            numbers.push(self.announce(plan, &other, &before, &before, Some(main))?);
        }
        Ok(numbers)
    }

    /// Records a change that is about to be made, and returns the number of the record.
    fn announce(
        &mut self,
        plan: &Plan,
        setting: &AnySetting,
        before: &Value,
        wanted: &Value,
        along: Option<u32>,
    ) -> Result<u32, Failure> {
        let number = self.next;
        let intent = Intent {
            number,
            setting: setting.clone(),
            identity: setting.identity(self.access)?,
            before: before.clone(),
            wanted: wanted.clone(),
            along,
        };
        let durable = if along.is_some() { Durable::Soon } else { Durable::Now };
        self.append(plan, &Record::Intent(intent.clone()), durable)?;
        self.next += 1;
        self.made.push(Entry { intent, state: State::InDoubt, steered: false });
        Ok(number)
    }

    /// Checks which settings the change of `with` affected. Those that show an effect only later are looked at when all
    /// changes are made.
    fn look_along(&mut self, plan: &Plan, with: &AnySetting, numbers: Vec<u32>) -> Result<(), Failure> {
        for number in numbers {
            let Some(entry) = self.made.iter().find(|entry| entry.intent.number == number) else { continue };
            let within = entry.intent.setting.shows_within();
            if within.is_zero() {
                self.look_at(plan, with, number)?;
            } else {
                self.late.numbers.push((number, with.clone()));
                self.late.by = self.late.by.max(Some(Instant::now() + within));
            }
        }
        Ok(())
    }

    /// Checks whether the side effect with this number occurred.
    fn look_at(&mut self, plan: &Plan, with: &AnySetting, number: u32) -> Result<(), Failure> {
        let Some(entry) = self.made.iter().find(|entry| entry.intent.number == number) else { return Ok(()) };
        let (setting, before) = (entry.intent.setting.clone(), entry.intent.before.clone());
        // A setting that cannot be read now stays in doubt: a rollback treats any value as set by Apus.
        let Ok(now) = setting.read(self.access) else { return Ok(()) };
        self.done(plan, number, now.as_ref())?;
        if now.as_ref().is_none_or(|now| !Knob(&setting).holds(now, &before)) && !setting.is_effect() {
            self.along.push(Along { setting, with: with.clone(), before: Ok(before), now });
        }
        Ok(())
    }

    /// Waits until the late side effects show, and checks them. If they stayed in doubt, a rollback could not tell
    /// another's later value from theirs, and would overwrite it.
    ///
    /// If the transaction has a later record of the same setting, only that record can be checked. The earlier one stays
    /// in doubt, and a rollback treats it like the later one.
    fn look_late(&mut self, plan: &Plan) -> Result<(), Failure> {
        let Late { mut numbers, by } = std::mem::take(&mut self.late);
        numbers.retain(|(number, _)| {
            let mut from = self.made.iter().skip_while(|entry| entry.intent.number != *number);
            from.next().is_some_and(|entry| from.all(|later| later.intent.setting != entry.intent.setting))
        });
        if let Some(by) = by.filter(|_| !numbers.is_empty()) {
            std::thread::sleep(by.saturating_duration_since(Instant::now()));
        }
        numbers.into_iter().try_for_each(|(number, with)| self.look_at(plan, &with, number))
    }

    fn done(&mut self, plan: &Plan, number: u32, now: Option<&Value>) -> Result<(), Failure> {
        let (state, record) = match now {
            Some(now) => (State::Ours(now.clone()), Record::Done { number, now: now.clone() }),
            None => (State::Vanished, Record::Vanished { number }),
        };
        if let Some(entry) = self.made.iter_mut().find(|entry| entry.intent.number == number) {
            entry.state = state;
        }
        self.append(plan, &record, Durable::Soon)
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
            seen_from: Processes::of(self.access)?.seen_from().map(str::to_owned),
            lease: self.options.lease.clone(),
        })
    }

    /// Rolls back the whole transaction, the last change first.
    fn give_up(&mut self, item: &Item, why: KnobError) -> Error {
        let (_, left) = back(self.access, std::mem::take(&mut self.made));
        let left: Vec<_> = left.into_iter().map(|(entry, outcome)| (entry.intent.setting, outcome)).collect();
        if left.is_empty()
            && let Some(journal) = &self.journal
        {
            // If this fails, the next check of the journal finds that nothing is left to roll back.
            let _ = crate::journal::close(self.vault, journal.id());
        }
        let id = self.journal.as_ref().map(Journal::id);
        Error::RolledBack { setting: item.setting.label(), why, left: left_over(id, &left) }
    }
}

type Undone = Vec<(Entry, Outcome)>;

/// Rolls back changes that were just made, the last first. Returns all of them with their outcomes, and those that were
/// not rolled back completely.
fn back(access: &Access, made: Vec<Entry>) -> (Undone, Undone) {
    let take_back = |entry: Entry| {
        let outcome = take_back(access, &entry, Theirs::Keep);
        (entry, outcome)
    };
    let mut all: Undone = made.into_iter().rev().map(take_back).collect();
    again(access, &mut all);
    let left = all.iter().filter(|(entry, outcome)| is_left(&all, entry, outcome)).cloned().collect();
    all.reverse();
    (all, left)
}

/// An error, and whether writing the journal failed. In that case, nothing more may be changed.
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
        why: format!("it has the value {now}{}", why.map_or(String::new(), |why| format!(": {why}"))),
        fix: "choose a value that the host supports, or pass --keep-going".into(),
    }
}

fn unmoved(item: &Item, now: &Value, why: Option<String>) -> KnobError {
    KnobError::Refused {
        what: format!("set {} to {}", item.setting.label(), item.wanted),
        why: format!(
            "the write succeeded, but the value is still {now}{}",
            why.map_or(String::new(), |why| format!(": {why}"))
        ),
        fix: "the kernel, the driver or the firmware ignores it: remove this setting from the profile".into(),
    }
}

fn left_over(id: Option<u32>, left: &[(AnySetting, Outcome)]) -> Option<String> {
    let id = id.filter(|_| !left.is_empty())?;
    let names: Vec<String> = left.iter().map(|(setting, outcome)| format!("{} ({outcome})", setting.label())).collect();
    Some(format!("not rolled back: {}; try again with apus tune rollback {id}", names.join(", ")))
}

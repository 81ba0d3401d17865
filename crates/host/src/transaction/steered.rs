//! Settings that a controller changes repeatedly, and that are still restored to their original values.
//!
//! ```text
//!   announce: original ─► journal, synced        (once, before the first move)
//!
//!   move: read ── as we left it ──► slot: moving ─► write ─► read back ─► slot: this value is ours
//!           │
//!           └──── somebody else's ──► let go: from now on the setting is theirs
//!
//!   release, drop, or after a kill the next apus: what is still ours gets its original value
//! ```
//!
//! The kernel may carry out a write later: [`Steered::steer`] waits for it, [`Steered::steer_within`] only for a time.
//!
//! A move needs no fsync: the value that Apus set last is in a file that survives the process
//! (`/var/lib/apus/tune/NNNNNN.moves`). After a reboot the file is not needed, because settings that survive a reboot
//! are not accepted.

use std::time::{Duration, Instant};

use super::apply::Announced;
use super::rollback::RolledBack;
use super::{Error, Held};
use crate::journal::moves::Moves;
use crate::knob::interface::{self, Place};
use crate::knob::{Access, AnySetting, Error as KnobError, Knob, Lasts, Setting as _, Value, Verdict};
use crate::vault::Vault;

/// Settings that a controller changes repeatedly. Their original values are recorded durably when this value is
/// created, and restored when it is dropped. If the process is killed, the next `apus tune apply`, `apus tune
/// rollback`, `apus run` or `apus moderate` of any user restores them.
#[derive(Debug)]
pub struct Steered {
    access: Access,
    vault: Vault,
    moves: Moves,
    slots: Vec<Slot>,
    held: Held,
}

/// A setting that a controller changes repeatedly, or some fields of such a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The setting.
    pub setting: AnySetting,
    /// The fields that the controller changes. Changes of other fields are neither noticed nor restored. If empty, the
    /// controller changes the whole setting.
    pub fields: Vec<String>,
}

impl Target {
    /// Makes a target for only some fields of a setting.
    pub fn fields(setting: impl Into<AnySetting>, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { setting: setting.into(), fields: fields.into_iter().map(Into::into).collect() }
    }

    /// The part of the setting's value that the controller changes. A field that is missing keeps its present value.
    pub(super) fn part(&self, value: Value) -> Value {
        match value {
            Value::Fields(mut fields) if !self.fields.is_empty() => {
                fields.retain(|field, _| self.fields.contains(field));
                let unshown = |field: &String| Some((field.clone(), self.setting.unshown(field)?.to_owned()));
                let missing: Vec<_> =
                    self.fields.iter().filter(|field| !fields.contains_key(*field)).filter_map(unshown).collect();
                fields.extend(missing);
                Value::Fields(fields)
            }
            value => value,
        }
    }

    /// Whether a value contains only fields that the controller changes.
    fn takes(&self, wanted: &Value) -> bool {
        match wanted {
            Value::Fields(wanted) => self.fields.is_empty() || wanted.keys().all(|field| self.fields.contains(field)),
            Value::Text(_) => true,
        }
    }
}

impl<S: Into<AnySetting>> From<S> for Target {
    fn from(setting: S) -> Self {
        Self { setting: setting.into(), fields: Vec::new() }
    }
}

/// A setting, and the value that Apus set last.
#[derive(Debug)]
struct Slot {
    target: Target,
    setting: AnySetting,
    identity: Option<String>,
    /// Number of the setting's intent record in the journal.
    number: u32,
    original: Value,
    /// The value that belongs to Apus: the original value, or the result of the last move.
    ours: Value,
    /// Whether the setting was moved. Before the first move, there is nothing to restore.
    is_moved: bool,
    /// The instance of the setting that has the value `ours` ([`crate::knob::Setting::read_instance`]).
    instance: Option<u64>,
    hold: Hold,
    /// The last write, while the setting does not show its value yet. Until then, any value counts as ours.
    written: Option<Written>,
}

/// A write, and the value before it.
#[derive(Clone, Debug)]
struct Written {
    setting: AnySetting,
    wanted: Value,
    before: Value,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Hold {
    Ours,
    /// Somebody else set the setting to this value.
    Theirs(Value),
    Gone,
}

/// A move that was begun: the journal knows that the setting is being written.
#[derive(Debug)]
#[must_use = "a move that was begun must be ended"]
pub struct Moving {
    place: usize,
    setting: AnySetting,
    before: Value,
    wanted: Value,
}

impl Moving {
    /// Writes the wanted value.
    pub fn write(&self, access: &Access) -> Result<(), KnobError> {
        self.setting.write(access, &self.wanted)
    }
}

/// The result of a move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The setting has the wanted value.
    AsWanted {
        /// The value that was read back.
        now: Value,
    },
    /// The setting has a different value: the driver rounded or limited the wanted one.
    Otherwise {
        /// The value that was read back.
        now: Value,
        /// The reason. `None` if the machine does not report it.
        why: Option<String>,
    },
    /// The write was accepted but changed nothing.
    Unmoved {
        /// The value that was read back.
        now: Value,
        /// The reason. `None` if the machine does not report it.
        why: Option<String>,
    },
    /// Somebody else has changed the setting since the last move, or during the present one. Apus no longer controls
    /// the setting.
    LetGo {
        /// The value that somebody else set.
        now: Value,
    },
    /// The setting does not exist now, although its device does: the interface is down. It can be moved again when the
    /// interface is up.
    Away,
    /// The device to which the setting belonged is gone.
    Gone,
}

/// The state of a setting that a controller owns, between two moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// The setting still has the value that the controller set last.
    Ours,
    /// The setting disappeared and came back with the kernel's own value, because the interface went down and up. The
    /// controller still owns it, and must set it again.
    Fresh,
    /// The setting does not exist now, because the interface is down.
    Away,
    /// Somebody else has set the setting. The controller gives it up.
    LetGo {
        /// The value that somebody else set.
        now: Value,
    },
    /// The device to which the setting belonged is gone. The controller gives the setting up.
    Gone,
}

impl Moved {
    /// Whether the setting has the wanted value.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::AsWanted { .. })
    }

    /// Whether the controller still controls the setting and can move it again.
    pub fn is_held(&self) -> bool {
        !matches!(self, Self::LetGo { .. } | Self::Gone)
    }
}

impl Steered {
    /// Records the current values of `targets` durably. Changes nothing yet.
    ///
    /// `name` names the transaction in `apus tune status`; `command` and `version` are the command line and the version
    /// of this process. Returns an error if a setting does not exist, could not be restored, or would outlive a reboot.
    pub fn new(access: &Access, name: &str, targets: &[Target], command: &str, version: &str) -> Result<Self, Error> {
        /// The wait is short, because a running controller also has to serve its other settings.
        const PATIENCE: Duration = Duration::from_secs(2);
        Self::open(access, name, targets, command, version, PATIENCE)
    }

    /// Same as [`Self::new`], but waits at most `patience` for another transaction to end, instead of 2 s. The same
    /// holds when the value is dropped.
    pub fn new_within(
        access: &Access,
        name: &str,
        targets: &[Target],
        command: &str,
        version: &str,
        patience: Duration,
    ) -> Result<Self, Error> {
        let mut steered = Self::open(access, name, targets, command, version, patience)?;
        steered.held.drop_within(patience);
        Ok(steered)
    }

    fn open(
        access: &Access,
        name: &str,
        targets: &[Target],
        command: &str,
        version: &str,
        patience: Duration,
    ) -> Result<Self, Error> {
        for (place, Target { setting, .. }) in targets.iter().enumerate() {
            if setting.lasts() == Lasts::AcrossReboots {
                let why = "a controller moves only settings that a reboot resets";
                return Err(KnobError::invalid(setting.label(), why).into());
            }
            if targets[..place].iter().any(|other| other.setting == *setting) {
                return Err(KnobError::invalid(setting.label(), "it is named twice").into());
            }
        }
        let (held, announced) = Held::announced(access, name, targets, command, version, patience)?;
        let id = held.applied().id.ok_or_else(|| KnobError::invalid(name, "it names no setting"))?;
        let vault = Vault::create(access)?;
        let mut moves = Moves::create(&vault, id)?;
        let slots = slots(access, targets, announced)?;
        for (place, slot) in slots.iter().enumerate() {
            moves.end(&vault, place, slot.number, &slot.ours)?;
        }
        Ok(Self { access: access.clone(), vault, moves, slots, held })
    }

    /// The original value of the setting with index `place`, which is restored at the end. `None` if there is no such
    /// setting.
    pub fn original(&self, place: usize) -> Option<&Value> {
        self.slots.get(place).map(|slot| &slot.original)
    }

    /// The transaction's number.
    pub fn id(&self) -> Option<u32> {
        self.held.applied().id
    }

    /// Checks the state of the setting with index `place`. If somebody else has changed a controlled field, or if the
    /// device is gone, Apus gives up the setting.
    pub fn look(&mut self, place: usize) -> Result<Look, KnobError> {
        let access = self.access.clone();
        Ok(match self.find(&access, place)? {
            Ok((_, _, fresh)) => {
                if fresh {
                    Look::Fresh
                } else {
                    Look::Ours
                }
            }
            Err(Moved::LetGo { now }) => Look::LetGo { now },
            Err(Moved::Away) => Look::Away,
            Err(_) => Look::Gone,
        })
    }

    /// The present value of the setting with index `place`, whoever set it. `None` if it does not exist now.
    pub fn value(&self, place: usize) -> Result<Option<Value>, KnobError> {
        let Some(slot) = self.slots.get(place) else { return Ok(None) };
        match interface::find(&self.access, &slot.setting, slot.identity.as_deref())? {
            Place::Here(setting) => setting.read(&self.access),
            _ => Ok(None),
        }
    }

    /// Sets the setting with index `place` to `wanted`, unless somebody else has changed it since the last move. Waits
    /// until the machine shows the value, at most as long as it may take.
    ///
    /// `wanted` may only contain fields of its target. After an error, the setting can be moved again.
    pub fn steer(&mut self, place: usize, wanted: &Value) -> Result<Moved, KnobError> {
        match self.begin(place, wanted)? {
            Ok(moving) => {
                let written = moving.write(&self.access);
                self.end(moving, written)
            }
            Err(moved) => Ok(moved),
        }
    }

    /// Does the same as [`Self::steer`], but waits for at most `patience`, which it reduces by the time that it waited.
    /// `None` if the machine does not show the value by then: [`Self::settle`] has the outcome later.
    pub fn steer_within(
        &mut self,
        place: usize,
        wanted: &Value,
        patience: &mut Duration,
    ) -> Result<Option<Moved>, KnobError> {
        match self.begin(place, wanted)? {
            Ok(moving) => {
                let written = moving.write(&self.access);
                self.end_within(moving, written, patience)
            }
            Err(moved) => Ok(Some(moved)),
        }
    }

    /// Begins a move as [`Self::steer`] does, but leaves the write ([`Moving::write`]) and the end of the move
    /// ([`Self::end`]) to the caller, who can then time the write alone. `Err` if there is nothing to write.
    ///
    /// Until the move ends, every value of the setting counts as set by Apus, also after a kill.
    pub fn begin(&mut self, place: usize, wanted: &Value) -> Result<Result<Moving, Moved>, KnobError> {
        let access = self.access.clone();
        let (setting, before, _) = match self.find(&access, place)? {
            Ok(found) => found,
            Err(lost) => return Ok(Err(lost)),
        };
        let slot = self.slot(place)?;
        if !slot.target.takes(wanted) {
            let why = format!("{wanted} names fields that are not steered");
            return Err(KnobError::invalid(setting.label(), why));
        }
        let knob = Knob(&setting);
        // If a limit holds our own value back, the setting may show the wanted value only because of the limit. Then
        // the value is written, because the limit may end.
        let is_held_back = slot.is_moved && !knob.holds(&before, &slot.ours);
        if knob.holds(&before, wanted) && !is_held_back && slot.written.is_none() {
            slot.is_moved = true;
            let ours = slot.target.part(before.clone());
            if slot.ours != ours {
                self.keep(place, ours)?;
            }
            return Ok(Err(Moved::AsWanted { now: before }));
        }
        setting.admit()?;
        // What this machine accepted once is always restored, even if its range has shrunk since.
        if knob.holds(&slot.original, wanted) {
            setting.check_back(&access, wanted)?;
        } else {
            setting.check(&access, wanted)?;
        }
        let number = slot.number;
        self.moves.begin(&self.vault, place, number)?;
        Ok(Ok(Moving { place, setting, before, wanted: wanted.clone() }))
    }

    /// Ends a move: waits until the machine shows the value, at most as long as it may take, and records it as set by
    /// Apus. `written` is the result of [`Moving::write`].
    pub fn end(&mut self, moving: Moving, written: Result<(), KnobError>) -> Result<Moved, KnobError> {
        let (place, mut patience) = (moving.place, moving.setting.shows_within());
        match self.end_within(moving, written, &mut patience)? {
            Some(moved) => Ok(moved),
            None => Ok(self.settle(place, true)?.unwrap_or(Moved::Gone)),
        }
    }

    /// Ends a move as [`Self::steer_within`] does.
    fn end_within(
        &mut self,
        moving: Moving,
        written: Result<(), KnobError>,
        patience: &mut Duration,
    ) -> Result<Option<Moved>, KnobError> {
        let access = self.access.clone();
        let Moving { place, setting, before, wanted } = moving;
        let slot = self.slot(place)?;
        slot.is_moved = true;
        if let Err(error) = written {
            // A refused write may have taken effect in part.
            slot.written = None;
            let Some(now) = setting.read(&access)? else { return Ok(Some(Moved::Away)) };
            let ours = slot.target.part(now);
            self.keep(place, ours)?;
            return Err(error);
        }
        slot.written = Some(Written { setting: setting.clone(), wanted: wanted.clone(), before });
        if let Some(moved) = self.settle(place, false)? {
            return Ok(Some(moved));
        }
        let began = Instant::now();
        let read = Knob(&setting).read_written(&access, &wanted, *patience);
        *patience = patience.saturating_sub(began.elapsed());
        read?;
        self.settle(place, false)
    }

    /// The outcome of the last [`Self::steer_within`]. `None` if the machine does not show the value yet, unless
    /// `is_over` says that it has had enough time (`Setting::shows_within`). Also `None` if no move is pending.
    pub fn settle(&mut self, place: usize, is_over: bool) -> Result<Option<Moved>, KnobError> {
        let access = self.access.clone();
        let Some(Written { setting, wanted, before }) = self.slot(place)?.written.clone() else { return Ok(None) };
        let knob = Knob(&setting);
        let verdict = knob.verify(&access, &wanted, Some(&before))?;
        let is_shown = verdict.now().is_none_or(|now| knob.holds(now, &wanted));
        if !is_shown && !is_over && !setting.shows_within().is_zero() {
            return Ok(None);
        }
        let slot = self.slot(place)?;
        slot.written = None;
        let number = slot.number;
        let Some(now) = verdict.now() else { return Ok(Some(Moved::Away)) };
        if setting.is_taken(&wanted, now) {
            let now = now.clone();
            slot.hold = Hold::Theirs(now.clone());
            self.moves.let_go(&self.vault, place, number)?;
            return Ok(Some(Moved::LetGo { now }));
        }
        let ours = slot.target.part(knob.ours(now, &wanted));
        self.keep(place, ours)?;
        Ok(Some(match verdict {
            Verdict::AsWanted { now } => Moved::AsWanted { now },
            Verdict::Otherwise { now, why } => Moved::Otherwise { now, why },
            Verdict::Unmoved { now, why } => Moved::Unmoved { now, why },
            Verdict::Gone => Moved::Away,
        }))
    }

    /// Records that `ours` is the value that belongs to Apus.
    fn keep(&mut self, place: usize, ours: Value) -> Result<(), KnobError> {
        let slot = self.slot(place)?;
        slot.ours = ours.clone();
        let number = slot.number;
        self.moves.end(&self.vault, place, number, &ours)
    }

    /// Restores the original values of all settings that Apus still controls. `None` if that has already been done.
    pub fn release(self) -> Result<Option<RolledBack>, Error> {
        self.held.release()
    }

    /// Like [`Self::release`], but waits at most `patience` for another transaction to end. After an error, the
    /// settings are restored later: when this process has ended, the next Apus command that checks for abandoned
    /// transactions restores them.
    pub fn release_within(self, patience: Duration) -> Result<Option<RolledBack>, Error> {
        self.held.release_within(patience)
    }

    /// Finds the setting as it exists now, and reads its value. If Apus has lost the setting, the moves file records
    /// it, so that a later clean-up leaves the setting alone.
    fn find(&mut self, access: &Access, place: usize) -> Result<Result<(AnySetting, Value, bool), Moved>, KnobError> {
        let slot = self.slot(place)?;
        let (was, number) = (slot.hold.clone(), slot.number);
        let found = slot.now(access)?;
        if slot.hold != was {
            self.moves.let_go(&self.vault, place, number)?;
        }
        Ok(found)
    }

    fn slot(&mut self, place: usize) -> Result<&mut Slot, KnobError> {
        let many = self.slots.len();
        let none = || KnobError::invalid(format!("setting {place}"), format!("{many} settings are steered"));
        self.slots.get_mut(place).ok_or_else(none)
    }
}

impl Slot {
    /// Finds the setting as it exists now. Returns the setting, its value, and whether it is a new instance instead of
    /// the one that was moved; `Err` if it cannot be moved.
    fn now(&mut self, access: &Access) -> Result<Result<(AnySetting, Value, bool), Moved>, KnobError> {
        match &self.hold {
            Hold::Ours => {}
            Hold::Theirs(now) => return Ok(Err(Moved::LetGo { now: now.clone() })),
            Hold::Gone => return Ok(Err(Moved::Gone)),
        }
        let Place::Here(setting) = interface::find(access, &self.setting, self.identity.as_deref())? else {
            self.hold = Hold::Gone;
            return Ok(Err(Moved::Gone));
        };
        let Some((now, instance)) = setting.read_instance(access)? else {
            // An interface that is down still has its index. A device that is gone has none.
            if self.identity.is_some() && setting.identity(access)? == self.identity {
                return Ok(Err(Moved::Away));
            }
            self.hold = Hold::Gone;
            return Ok(Err(Moved::Gone));
        };
        if instance != self.instance {
            self.instance = instance;
            self.written = None;
            // These count as the kernel's own values. A value that somebody set between the return of the setting and
            // this look cannot be distinguished from them.
            self.ours = self.target.part(now.clone());
            return Ok(Ok((setting, now, std::mem::take(&mut self.is_moved))));
        }
        if self.is_moved && self.written.is_none() && !Knob(&setting).is_ours(&now, &self.ours) {
            self.hold = Hold::Theirs(now.clone());
            return Ok(Err(Moved::LetGo { now }));
        }
        Ok(Ok((setting, now, false)))
    }
}

fn slots(access: &Access, targets: &[Target], announced: Announced) -> Result<Vec<Slot>, KnobError> {
    let slot = |(target, (number, original)): (&Target, (u32, Value))| {
        let setting = target.setting.clone();
        let identity = setting.identity(access)?;
        let instance = setting.read_instance(access)?.and_then(|(_, instance)| instance);
        let (target, ours) = (target.clone(), original.clone());
        let (is_moved, hold, written) = (false, Hold::Ours, None);
        Ok(Slot { target, setting, identity, number, original, ours, is_moved, instance, hold, written })
    };
    targets.iter().zip(announced).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{BootFragment, File, Limits};
    use crate::testing::Folder;
    use crate::transaction::{Outcome, State, transactions};

    const MOVES: &str = "var/lib/apus/tune/000001.moves";
    const LIMITS: &str = "sys/devices/system/cpu/cpufreq/policy0";

    fn folder() -> Folder {
        Folder::new(&[
            ("sys/a", "1\n"),
            ("sys/b", "2\n"),
            (&format!("{LIMITS}/scaling_min_freq"), "800000\n"),
            (&format!("{LIMITS}/scaling_max_freq"), "3500000\n"),
            ("proc/sys/kernel/random/boot_id", "boot-1\n"),
        ])
    }

    fn steered(folder: &Folder, targets: &[Target]) -> Steered {
        Steered::new(&folder.access(), "steering", targets, "a test", "0").unwrap()
    }

    fn limits(fields: [&str; 1]) -> Target {
        Target::fields(Limits::new(0), fields)
    }

    fn two(folder: &Folder) -> Steered {
        steered(folder, &[File::new("/sys/a").into(), File::new("/sys/b").into()])
    }

    #[test]
    fn moved_often_and_restored() {
        let folder = folder();
        let mut it = two(&folder);
        let journal = folder.read("var/lib/apus/tune/000001.journal");
        assert_eq!(it.original(1), Some(&Value::text("2")));
        for n in 10..200 {
            assert!(it.steer(0, &Value::text(n)).unwrap().is_good());
            assert_eq!(folder.read("sys/a"), format!("{n}\n"));
        }
        assert_eq!(folder.read("var/lib/apus/tune/000001.journal"), journal, "the journal does not grow");
        assert_eq!(folder.path(MOVES).metadata().unwrap().len(), 2 * 4096);
        let back = it.release().unwrap().unwrap();
        assert!(back.closed);
        assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("1\n".into(), "2\n".into()));
        assert!(!folder.path(MOVES).exists() && transactions(&folder.access()).unwrap().is_empty());
        drop(two(&folder));
        assert!(transactions(&folder.access()).unwrap().is_empty());
    }

    /// A queue that was not there when its interface was let go of is there again.
    #[test]
    fn what_could_not_be_restored_does_not_bar_the_way_back() {
        let folder = folder();
        let mut it = two(&folder);
        it.steer(0, &Value::text(10)).unwrap();
        it.steer(1, &Value::text(20)).unwrap();
        std::fs::remove_file(folder.path("sys/b")).unwrap();
        assert!(!it.release().unwrap().unwrap().closed);
        assert!(folder.read("var/lib/apus/tune/000001.journal").contains("released"), "for other processes");
        assert!(transactions(&folder.access()).unwrap()[0].is_abandoned());
        folder.put("sys/b", "20\n");
        let it = two(&folder);
        assert_eq!((it.original(0), it.original(1)), (Some(&Value::text("1")), Some(&Value::text("2"))));
        assert!(it.release().unwrap().unwrap().closed);
        assert!(transactions(&folder.access()).unwrap().is_empty());
    }

    #[test]
    fn what_had_no_time_to_be_restored_is_restored_at_the_next_beginning() {
        let folder = folder();
        let access = folder.access();
        let mut it = two(&folder);
        it.steer(0, &Value::text(10)).unwrap();
        let lock = crate::journal::Lock::take(&Vault::create(&access).unwrap(), "another", Duration::ZERO).unwrap();
        it.release_within(Duration::ZERO).unwrap_err();
        assert_eq!(folder.read("sys/a"), "10\n");
        drop(lock);
        let mut it = two(&folder);
        assert_eq!((it.original(0), folder.read("sys/a").as_str()), (Some(&Value::text("1")), "1\n"));
        // The new transaction has the number of the old one, and is not given up.
        assert_eq!(it.id(), Some(1));
        it.steer(0, &Value::text(30)).unwrap();
        assert!(!transactions(&access).unwrap()[0].is_abandoned());
        let error = Steered::new(&access, "x", &[File::new("/sys/a").into()], "a test", "0").unwrap_err();
        assert!(error.to_string().contains("holds it"), "{error}");
        assert!(it.release().unwrap().unwrap().closed);
    }

    #[test]
    fn somebody_elses_change_is_left_alone() {
        let folder = folder();
        let mut it = two(&folder);
        assert_eq!(it.look(0).unwrap(), Look::Ours);
        it.steer(0, &Value::text(10)).unwrap();
        folder.put("sys/a", "77\n");
        let theirs = Moved::LetGo { now: Value::text("77") };
        assert_eq!(it.look(0).unwrap(), Look::LetGo { now: Value::text("77") });
        assert_eq!(it.steer(0, &Value::text(11)).unwrap(), theirs);
        // The setting stays given up even if they set it to the value that Apus set last.
        folder.put("sys/a", "10\n");
        assert_eq!(it.steer(0, &Value::text(11)).unwrap(), theirs);
        assert!(it.steer(1, &Value::text(20)).unwrap().is_good(), "the others are steered on");
        folder.put("sys/a", "77\n");
        let back = it.release().unwrap().unwrap();
        let outcomes: Vec<&Outcome> = back.entries.iter().map(|(_, outcome)| outcome).collect();
        assert_eq!((back.closed, outcomes), (true, vec![&Outcome::Restored]));
        assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("77\n".into(), "2\n".into()));
    }

    #[test]
    fn only_the_fields_that_are_moved_are_ours() {
        let folder = folder();
        let mut it = steered(&folder, &[limits(["max"])]);
        it.steer(0, &Value::fields([("max", 2_000_000)])).unwrap();
        folder.put(&format!("{LIMITS}/scaling_min_freq"), "1000000\n");
        assert!(it.steer(0, &Value::fields([("max", 1_500_000)])).unwrap().is_good());
        let other = it.steer(0, &Value::fields([("min", 900_000)])).unwrap_err().to_string();
        assert!(other.contains("not steered"), "{other}");
        assert!(it.release().unwrap().unwrap().closed, "what is nobody's concern leaves nothing open");
        assert_eq!(folder.read(&format!("{LIMITS}/scaling_max_freq")), "3500000\n");
        assert_eq!(folder.read(&format!("{LIMITS}/scaling_min_freq")), "1000000\n", "theirs");
    }

    #[test]
    fn the_journal_knows_what_is_ours_after_a_kill() {
        let folder = folder();
        let mut it = two(&folder);
        it.steer(0, &Value::text(10)).unwrap();
        it.steer(1, &Value::text(20)).unwrap();
        let states = || -> Vec<State> {
            let all = transactions(&folder.access()).unwrap();
            all[0].entries.iter().map(|entry| entry.state.clone()).collect()
        };
        assert_eq!(states(), [State::Ours(Value::text("10")), State::Ours(Value::text("20"))]);
        // After a kill in the middle of a move, any value counts as set by Apus.
        let number = it.slots[0].number;
        it.moves.begin(&it.vault, 0, number).unwrap();
        assert_eq!(states(), [State::InDoubt, State::Ours(Value::text("20"))]);
        folder.put("sys/a", "11\n");
        folder.put("sys/b", "99\n");
        drop(it);
        assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("1\n".into(), "99\n".into()));
    }

    #[test]
    fn what_was_let_go_of_is_not_restored_after_a_kill() {
        let folder = folder();
        let mut it = two(&folder);
        it.steer(0, &Value::text(10)).unwrap();
        it.steer(1, &Value::text(20)).unwrap();
        folder.put("sys/a", "77\n");
        assert_eq!(it.look(0).unwrap(), Look::LetGo { now: Value::text("77") });
        // A setting that was given up stays unchanged, even with the value that Apus set last.
        folder.put("sys/a", "10\n");
        let states = || -> Vec<State> {
            let all = transactions(&folder.access()).unwrap();
            all[0].entries.iter().map(|entry| entry.state.clone()).collect()
        };
        assert_eq!(states(), [State::Undone, State::Ours(Value::text("20"))]);
        // Another controller may control the setting now.
        drop(steered(&folder, &[File::new("/sys/a").into()]));
        drop(it);
        assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("10\n".into(), "2\n".into()));
        assert!(transactions(&folder.access()).unwrap().is_empty());
    }

    #[test]
    fn only_what_was_moved_is_looked_at() {
        let folder = folder();
        let mut it = steered(&folder, &[limits(["max"]), File::new("/sys/a").into()]);
        folder.put("sys/a", "5\n");
        folder.put(&format!("{LIMITS}/scaling_min_freq"), "1000000\n");
        assert_eq!([it.look(0).unwrap(), it.look(1).unwrap()], [Look::Ours, Look::Ours]);
        it.steer(0, &Value::fields([("max", 2_000_000)])).unwrap();
        folder.put(&format!("{LIMITS}/scaling_min_freq"), "900000\n");
        assert_eq!(it.look(0).unwrap(), Look::Ours);
        folder.put(&format!("{LIMITS}/scaling_max_freq"), "2100000\n");
        assert!(matches!(it.look(0).unwrap(), Look::LetGo { .. }));
    }

    #[test]
    fn a_plan_does_not_set_what_is_steered() {
        use crate::transaction::{ApplyOptions, Plan, apply};
        let folder = folder();
        let it = two(&folder);
        let options = ApplyOptions {
            command: "a test".into(),
            version: "0".into(),
            patience: std::time::Duration::ZERO,
            lease: crate::journal::Lease::Open,
            keep_going: true,
        };
        let plan = |file: &str| Plan::new("a plan").with(File::new(file), Value::text("9"));
        let error = apply(&folder.access(), &plan("/sys/b"), &options).unwrap_err().to_string();
        assert!(error.contains(&format!("process {} holds it", std::process::id())), "{error}");
        assert_eq!(folder.read("sys/b"), "2\n");
        drop(it);
        apply(&folder.access(), &plan("/sys/b"), &options).unwrap();
    }

    #[test]
    fn what_cannot_go_back_is_not_steered() {
        let folder = folder();
        let new = |targets: &[Target]| Steered::new(&folder.access(), "x", targets, "a test", "0").unwrap_err();
        let a = || Target::from(File::new("/sys/a"));
        for (settings, why) in [
            (vec![BootFragment {}.into()], "a reboot resets"),
            (vec![a(), a()], "twice"),
            (vec![a(), File::new("/sys/none").into()], "no such setting"),
            (vec![], "names no setting"),
        ] {
            let error = new(&settings).to_string();
            assert!(error.contains(why), "{error}");
            assert!(transactions(&folder.access()).unwrap().is_empty(), "{error}");
        }
    }

    /// A firmware limit reduces our speed to a value that is wanted next. The value must be written all the same;
    /// otherwise the old speed returns when the limit ends.
    #[test]
    fn what_a_limit_holds_back_is_written() {
        #[derive(Default)]
        struct Speeds(std::sync::atomic::AtomicU32);
        impl crate::knob::Gate for Speeds {
            fn before(&self, act: &crate::knob::Act) {
                let is_speed = act.operation == "rename" && act.object.ends_with("scaling_setspeed");
                self.0.fetch_add(u32::from(is_speed), std::sync::atomic::Ordering::Relaxed);
            }
        }
        let folder = folder();
        let file = |name: &str| format!("{LIMITS}/{name}");
        folder.put(&file("scaling_governor"), "performance\n");
        folder.put(&file("scaling_setspeed"), "<unsupported>\n");
        let speeds = std::sync::Arc::new(Speeds::default());
        let access = folder.access().with_gate(speeds.clone());
        let governor = crate::knob::Governor::new(0);
        let mut steered = Steered::new(&access, "steering", &[governor.into()], "a test", "0").unwrap();
        let speed = |mhz: u64| crate::knob::Governor::set_speed(units::Hertz::new(mhz * 1_000_000));
        assert!(steered.steer(0, &speed(3_000)).unwrap().is_good());
        folder.put(&file("scaling_setspeed"), "2200000\n");
        folder.put(&file("bios_limit"), "2200000\n");
        assert_eq!(steered.look(0).unwrap(), Look::Ours);
        let written = || speeds.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(written(), 1);
        assert!(steered.steer(0, &speed(2_200)).unwrap().is_good());
        assert_eq!(written(), 2);
        assert!(steered.steer(0, &speed(2_200)).unwrap().is_good());
        assert_eq!(written(), 2, "it is ours now");
        assert!(steered.release().unwrap().unwrap().closed);
        assert_eq!(folder.read(&file("scaling_governor")), "performance\n");
    }

    /// A cooling device lowers the kernel's limits below the fixed frequency, and later no longer does.
    #[test]
    fn limits_that_the_kernel_lowers_and_raises_again_are_kept_and_restored() {
        let folder = folder();
        let mut it = steered(&folder, &[Limits::new(0).into()]);
        assert!(it.steer(0, &fixed(3_000_000)).unwrap().is_good());
        for khz in ["2400000\n", "1200000\n", "3000000\n", "2400000\n"] {
            put_limits(&folder, khz, khz);
            assert_eq!(it.look(0).unwrap(), Look::Ours, "{khz}");
        }
        assert!(it.release().unwrap().unwrap().closed);
        assert_eq!(limits_now(&folder), ["800000\n", "3500000\n"]);
    }

    /// The cooling device is already active when Apus fixes the frequency: the kernel shows the limit, and the fixed
    /// frequency only when the limit ends.
    #[test]
    fn what_the_kernel_limits_at_once_is_ours_when_the_limit_ends() {
        let folder = folder();
        let (mut it, _) = clamped(&folder);
        assert_eq!(
            it.steer_within(0, &fixed(3_000_000), &mut Duration::default()).unwrap(),
            None,
            "the kernel may still carry it out"
        );
        assert_eq!(it.look(0).unwrap(), Look::Ours);
        assert_eq!(it.settle(0, false).unwrap(), None);
        let Some(Moved::Otherwise { why: Some(why), .. }) = it.settle(0, true).unwrap() else {
            panic!("no limit told")
        };
        assert!(why.contains("at most 2400000 kHz"), "{why}");
        assert_eq!(it.settle(0, true).unwrap(), None, "nothing is pending");
        put_limits(&folder, "3000000\n", "3000000\n");
        assert_eq!(it.look(0).unwrap(), Look::Ours);
        put_limits(&folder, "3100000\n", "3100000\n");
        assert!(matches!(it.look(0).unwrap(), Look::LetGo { .. }));
    }

    #[test]
    fn a_pending_move_is_settled_when_the_machine_shows_it_and_rolled_back_before_that() {
        let folder = folder();
        let (mut it, hot) = clamped(&folder);
        assert_eq!(it.steer_within(0, &fixed(3_000_000), &mut Duration::default()).unwrap(), None);
        put_limits(&folder, "3000000\n", "3000000\n");
        assert!(it.settle(0, false).unwrap().unwrap().is_good());
        assert_eq!(it.steer_within(0, &fixed(2_900_000), &mut Duration::default()).unwrap(), None);
        let states = transactions(&folder.access()).unwrap()[0].entries[0].state.clone();
        assert_eq!(states, State::InDoubt);
        // Even if the kernel shows the original limits now, it may carry out the move later.
        put_limits(&folder, "800000\n", "3500000\n");
        hot.is_active.store(false, std::sync::atomic::Ordering::Relaxed);
        let back = it.release().unwrap().unwrap();
        assert_eq!((back.closed, &back.entries[0].1), (true, &Outcome::Restored));
    }

    /// Turbo was switched off meanwhile, so the hardware accepts less; the original limits are restored all the same.
    #[test]
    fn the_original_limits_are_set_although_the_hardware_has_less_now() {
        let folder = folder();
        let range = |most: &str| {
            folder.put(&format!("{LIMITS}/cpuinfo_min_freq"), "800000\n");
            folder.put(&format!("{LIMITS}/cpuinfo_max_freq"), most);
        };
        range("3500000\n");
        let mut it = steered(&folder, &[Limits::new(0).into()]);
        it.steer(0, &fixed(800_000)).unwrap();
        range("2100000\n");
        assert!(it.steer(0, &fixed(3_000_000)).unwrap_err().to_string().contains("800000 to 2100000"));
        let original = it.original(0).unwrap().clone();
        assert!(it.steer(0, &original).unwrap().is_good());
        assert_eq!(limits_now(&folder), ["800000\n", "3500000\n"]);
    }

    fn fixed(khz: u64) -> Value {
        Value::fields([("min", khz), ("max", khz)])
    }

    fn put_limits(folder: &Folder, min: &str, max: &str) {
        folder.put(&format!("{LIMITS}/scaling_min_freq"), min);
        folder.put(&format!("{LIMITS}/scaling_max_freq"), max);
    }

    fn limits_now(folder: &Folder) -> [String; 2] {
        ["min", "max"].map(|end| folder.read(&format!("{LIMITS}/scaling_{end}_freq")))
    }

    fn clamped(folder: &Folder) -> (Steered, std::sync::Arc<crate::testing::Hot>) {
        let (access, hot) = folder.hot();
        (Steered::new(&access, "steering", &[Limits::new(0).into()], "a test", "0").unwrap(), hot)
    }

    /// Somebody else sets another governor between our write and our reading. It counts as theirs, not as the result of
    /// our write.
    #[test]
    fn a_governor_that_is_set_during_a_move_is_somebody_elses() {
        struct Interferes(std::path::PathBuf);
        impl crate::knob::Gate for Interferes {
            fn before(&self, act: &crate::knob::Act) {
                if act.operation == "rename" && act.object.ends_with("scaling_setspeed") {
                    std::fs::write(&self.0, "powersave\n").unwrap();
                }
            }
        }
        let folder = folder();
        let file = |name: &str| format!("{LIMITS}/{name}");
        folder.put(&file("scaling_governor"), "performance\n");
        folder.put(&file("scaling_setspeed"), "<unsupported>\n");
        let interferes = std::sync::Arc::new(Interferes(folder.path(&file("scaling_governor"))));
        let access = folder.access().with_gate(interferes);
        let governor = crate::knob::Governor::new(0);
        let mut steered = Steered::new(&access, "steering", &[governor.into()], "a test", "0").unwrap();
        let speed = crate::knob::Governor::set_speed(units::Hertz::new(1_200_000_000));
        assert_eq!(steered.steer(0, &speed).unwrap(), Moved::LetGo { now: Value::text("powersave") });
        assert_eq!(steered.look(0).unwrap(), Look::LetGo { now: Value::text("powersave") });
        steered.release().unwrap();
        assert_eq!(folder.read(&file("scaling_governor")), "powersave\n");
    }

    #[test]
    fn nobody_steers_what_another_process_holds() {
        let folder = folder();
        let it = two(&folder);
        let error = Steered::new(&folder.access(), "x", &[File::new("/sys/b").into()], "a test", "0").unwrap_err();
        assert!(error.to_string().contains(&format!("process {} holds it", std::process::id())), "{error}");
        drop(it);
        drop(steered(&folder, &[File::new("/sys/b").into()]));
    }

    #[test]
    fn a_setting_that_is_gone_is_let_go_of() {
        let folder = folder();
        let mut it = two(&folder);
        it.steer(0, &Value::text(10)).unwrap();
        std::fs::remove_file(folder.path("sys/a")).unwrap();
        assert_eq!(it.steer(0, &Value::text(11)).unwrap(), Moved::Gone);
        folder.put("sys/a", "5\n");
        assert_eq!(it.steer(0, &Value::text(11)).unwrap(), Moved::Gone, "another one of the same name");
        assert!(it.steer(2, &Value::text(1)).unwrap_err().to_string().contains("2 settings are steered"));
    }
}

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
//! A setting in a file may also be *lent* to a thread of this process, which then writes it itself, without the journal:
//!
//! ```text
//!   lend: slot: moving, so any value counts as ours ─► the thread writes ─► end of the loan: its last value is ours
//! ```
//!
//! The kernel may carry out a write later: [`Steered::steer`] waits for it, [`Steered::steer_within`] only for a time.
//!
//! A move needs no fsync: the value that Apus set last is in a file that survives the process
//! (`/var/lib/apus/tune/NNNNNN.moves`). After a reboot the file is not needed, because settings that survive a reboot
//! are not accepted.

mod outcome;
mod slot;
mod target;

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::rollback::RolledBack;
use super::{Error, Held};
use crate::journal::moves::Moves;
use crate::knob::interface::{self, Place};
use crate::knob::{Access, AnySetting, Error as KnobError, Knob, Lasts, Setting as _, Value, Verdict};
use crate::vault::Vault;
use slot::{Hold, Slot, Written, slots};

pub use outcome::{Look, Moved};
pub use target::Target;

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

    /// Lends the setting with index `place` to a thread of this process, which changes it too often, or too urgently, to
    /// change it through the journal. Returns the setting's file, open for reading and writing.
    ///
    /// Until [`Self::end_loan`], every value of the setting counts as set by Apus, also after a kill, and the setting
    /// must not be moved. The thread itself has to notice somebody else's changes.
    pub fn lend(&mut self, place: usize) -> Result<File, KnobError> {
        let access = self.access.clone();
        let setting = match self.find(&access, place)? {
            Ok((setting, ..)) => setting,
            Err(_) => return Err(Knob(&self.slot(place)?.setting).absent()),
        };
        setting.admit()?;
        let none = || KnobError::invalid(setting.label(), "only a setting with a file of its own can be lent");
        let path = setting.line_file().ok_or_else(none)?;
        let failed = |e| KnobError::of(format!("write {}", access.show(&path)), &e);
        let file = access.open(&path, OFlags::RDWR, Mode::empty()).map_err(failed)?;
        let number = self.slot(place)?.number;
        self.moves.begin(&self.vault, place, number)?;
        Ok(file)
    }

    /// Ends a loan: `last` is the value that the thread wrote last, or the original value if it wrote none. If the
    /// setting has another value, somebody else has set it, and Apus gives up the setting.
    pub fn end_loan(&mut self, place: usize, last: &Value) -> Result<Look, KnobError> {
        self.slot(place)?.is_moved = true;
        self.keep(place, last.clone())?;
        self.look(place)
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

#[cfg(test)]
mod tests;

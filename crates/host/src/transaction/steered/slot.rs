//! One setting that a controller changes: its original value, the value that Apus set last, and whose the setting is.

use super::{Moved, Target};
use crate::knob::interface::{self, Place};
use crate::knob::{Access, AnySetting, Error as KnobError, Knob, Setting as _, Value};
use crate::transaction::apply::Announced;

/// A setting, and the value that Apus set last.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) target: Target,
    pub(super) setting: AnySetting,
    pub(super) identity: Option<String>,
    /// Number of the setting's intent record in the journal.
    pub(super) number: u32,
    pub(super) original: Value,
    /// The value that belongs to Apus: the original value, or the result of the last move.
    pub(super) ours: Value,
    /// Whether the setting was moved. Before the first move, there is nothing to restore.
    pub(super) is_moved: bool,
    /// The instance of the setting that has the value `ours` ([`crate::knob::Setting::read_instance`]).
    pub(super) instance: Option<u64>,
    pub(super) hold: Hold,
    /// The last write, while the setting does not show its value yet. Until then, any value counts as ours.
    pub(super) written: Option<Written>,
}

/// A write, and the value before it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) setting: AnySetting,
    pub(super) wanted: Value,
    pub(super) before: Value,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    Ours,
    /// Somebody else set the setting to this value.
    Theirs(Value),
    Gone,
}

impl Slot {
    /// Finds the setting as it exists now. Returns the setting, its value, and whether it is a new instance instead of
    /// the one that was moved; `Err` if it cannot be moved.
    pub(super) fn now(&mut self, access: &Access) -> Result<Result<(AnySetting, Value, bool), Moved>, KnobError> {
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

pub(super) fn slots(access: &Access, targets: &[Target], announced: Announced) -> Result<Vec<Slot>, KnobError> {
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

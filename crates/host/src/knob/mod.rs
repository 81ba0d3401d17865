//! Knobs: the machine's settings. The same code reads, changes, verifies and restores all of them.
//!
//! A kind of setting is a type that implements [`Setting`]. The type defines where the setting is, and how to read and
//! write it. [`Knob`] is the code that all kinds share. [`AnySetting`] is a setting of any kind, as used in a plan and
//! in the journal.
//!
//! ```text
//!   read ──► before ──► write wanted ──► read back ──► as wanted │ otherwise │ unmoved │ gone
//!                 └──────────────── restore ◄── only what is still ours
//! ```

mod access;
pub(crate) mod along;
mod any;
mod boot;
mod cgroup;
pub(crate) mod config;
mod cpufreq;
mod cpuidle;
pub mod effect;
mod epp;
mod error;
mod ethtool;
mod file;
pub mod hold;
mod hwp;
pub(crate) mod interface;
mod irq;
mod irqbalance;
pub mod memory;
mod msr;
mod napi;
mod pmqos;
mod sysctl;
mod thread;
mod turbo;
mod uncore;
mod value;
mod workqueue;

pub use access::{Access, Act, Gate, Open};
pub use any::AnySetting;
pub use boot::BootFragment;
pub use cgroup::{CgroupController, CgroupFile, CgroupFolder, CpusetMount, cpuset_mount};
pub use cpufreq::{Domain, Governor, Limits, Speeds, current_speed, most_now, policies, policy_cpus, speeds};
pub use cpuidle::{IdleState, State, states};
pub use epp::Epp;
pub use error::Error;
pub use ethtool::{Channels, Coalesce, CoalesceQueue, Features, Pause, PrivateFlags, Rings, driver_of, is_offload};
pub use file::File;
pub use hold::{DmaLatency, Holder};
pub use hwp::{HwpRequest, ratio};
pub use interface::{interface_index, interface_name, interfaces};
pub use irq::{IrqAffinity, IrqDefaultAffinity, IrqEffective, irqs};
pub use irqbalance::IrqbalanceBans;
pub use memory::HugePages;
pub use napi::{
    DeviceDeferral, Napi, NapiDeferral, deferral_of, defers_each_queue, lists_napis, napi_queues, napis_of,
};
pub use pmqos::{CpuLatency, ResumeLatency};
pub use sysctl::Sysctl;
pub(crate) use thread::process_started;
pub use thread::{Thread, ThreadAffinity, ThreadClass, threads};
pub use turbo::Turbo;
pub use uncore::{UncoreLimits, UncoreMsr, uncore_dies, uncore_domains};
pub use value::Value;
pub use workqueue::CpuMask;

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::facts::CpuSet;
use rustix::thread::CapabilitySet;

/// The CPUs that are online.
///
/// If the kernel's list was not recorded, a CPU counts as online unless its own file `online` contains `0`.
pub fn online(access: &Access) -> Result<CpuSet, Error> {
    const FOLDER: &str = "/sys/devices/system/cpu";
    if let Some(list) = access.line(&format!("{FOLDER}/online"))? {
        let what = || format!("read {}", access.show(&format!("{FOLDER}/online")));
        return list.parse().map_err(|_| Error::unreadable(what(), &list, "a list of CPUs such as 0-3"));
    }
    let mut cpus = Vec::new();
    for cpu in access.numbered(FOLDER, "cpu")? {
        if access.line(&format!("{FOLDER}/cpu{cpu}/online"))?.as_deref() != Some("0") {
            cpus.push(cpu);
        }
    }
    if cpus.is_empty() {
        let why = "it lists no CPU: is this the root folder of a host?".into();
        return Err(Error::NotThere { what: format!("read {}", access.show(FOLDER)), why });
    }
    Ok(cpus.into_iter().collect())
}

/// A kind of setting of the machine.
pub trait Setting {
    /// A readable name of the setting: "governor of CPU policy 3".
    fn label(&self) -> String;

    /// Path of the file that contains the setting as one line. `None` if there is no such file. The default
    /// [`Self::read`], [`Self::write`] and [`Self::files`] use this file; a setting without such a file must implement
    /// them.
    fn line_file(&self) -> Option<String> {
        None
    }

    /// Current value of the setting. `None` if the machine has no such setting.
    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        Ok(access.line(&line_file(self)?)?.map(Value::Text))
    }

    /// Sets the setting to `value`. If the setting consists of fields, `value` may contain only some of them; the
    /// others do not change.
    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        access.write(&line_file(self)?, file::text(&self.label(), value)?)
    }

    /// Returns an error if the setting's name refers to something other than this kind of setting. Names can also come
    /// from a journal, so every write is preceded by this check, even during a rollback.
    fn admit(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns an error if `before` could not be restored because no machine accepts it. Called before the change, and
    /// again before a rollback writes the value. A value that only this machine rejects now is not an error.
    fn check_back(&self, access: &Access, before: &Value) -> Result<(), Error> {
        match self.check(access, before) {
            Err(error @ Error::Invalid { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the setting is only a side effect of another setting. If such a setting cannot be restored, the failure
    /// is reported, and the rollback is not tried again.
    fn is_effect(&self) -> bool {
        false
    }

    /// Whether the setting belongs to a thread and ends with that thread.
    fn is_of_thread(&self) -> bool {
        false
    }

    /// Returns an error if no machine accepts the value, or if this machine reports that it rejects the value. Called
    /// before anything changes.
    fn check(&self, _access: &Access, _value: &Value) -> Result<(), Error> {
        Ok(())
    }

    /// Whether two strings are the same value of the setting (or of its field `field`).
    fn same(&self, _field: Option<&str>, a: &str, b: &str) -> bool {
        a.split_whitespace().eq(b.split_whitespace())
    }

    /// The value that a field has while the driver does not show the field: some drivers show a field only if it is not
    /// zero. `None` if this value is not known.
    fn unshown(&self, _field: &str) -> Option<&'static str> {
        None
    }

    /// The group of fields to which `field` belongs, if its fields act together. If someone else changed one field of a
    /// group after Apus did, no field of the group is restored, because the result would be a mixture that nobody
    /// chose. `None` if the field acts alone.
    fn group(&self, _field: &str) -> Option<&'static str> {
        None
    }

    /// Removes the fields that the kernel or the driver changes by itself from a value.
    fn steady(&self, value: Value) -> Value {
        value
    }

    /// Reads the setting and the ID of its instance. For example, a NAPI instance may be replaced by a new one, which
    /// has another ID and the kernel's default values. The ID is `None` for settings without instances. The result is
    /// `None` if the machine has no such setting.
    fn read_instance(&self, access: &Access) -> Result<Option<(Value, Option<u64>)>, Error> {
        Ok(self.read(access)?.map(|value| (value, None)))
    }

    /// How long a change of the setting lasts.
    fn lasts(&self) -> Lasts {
        Lasts::UntilReboot
    }

    /// The network interface to which the setting belongs. `None` if it belongs to none. The default
    /// [`Self::capability`], [`Self::is_of_network`] and [`Self::identity`] depend on it.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// The capabilities that a process with user ID 0 needs to change the setting. It can drop all other capabilities.
    fn capability(&self) -> CapabilitySet {
        if self.interface().is_some() { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() }
    }

    /// Whether the setting belongs to the calling thread's network namespace and not to the whole machine.
    fn is_of_network(&self) -> bool {
        self.interface().is_some()
    }

    /// Identifies the device to which the setting belongs, so that another device with the same name can be detected.
    /// `None` if no other device can get the name.
    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        Ok(self.interface().and_then(|interface| ethtool::identity(access, interface)))
    }

    /// Why the machine shows `now` although `wanted` was written. `None` if the reason is not known.
    fn explain(&self, _access: &Access, _wanted: &Value, _now: &Value) -> Option<String> {
        None
    }

    /// Whether someone else changed the setting between the write of `wanted` and the reading of `now`. `false` for
    /// settings whose value the machine itself may change after the write.
    fn is_taken(&self, _wanted: &Value, _now: &Value) -> bool {
        false
    }

    /// Why `now` has no effect although it equals the wanted value, for example because of a firmware limit. `None` if
    /// the machine reports no reason.
    fn overruled(&self, _access: &Access, _wanted: &Value, _now: &Value) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// What the machine shows while `ours` is requested, if it shows `now` at present. This differs from `ours` if the
    /// machine limits a requested value by itself, for example after the firmware lowered its limit. A setting that
    /// shows this was not changed by anybody else.
    fn shown(&self, ours: &Value, _now: &Value) -> Value {
        ours.clone()
    }

    /// The files that another program would write to set `wanted`, with their contents, in the order in which to write
    /// them. Empty if the setting has no files.
    fn files(&self, _access: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        let Some(path) = self.line_file() else { return Ok(Vec::new()) };
        let text = file::text(&path, wanted)?.to_owned();
        Ok(vec![(path, text)])
    }

    /// Maximum time until the machine shows a change that it accepted. Some changes are carried out only after the
    /// write has returned.
    fn shows_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Removes temporary files that an interrupted write left behind.
    fn settle(&self, _access: &Access) -> Result<(), Error> {
        Ok(())
    }
}

/// [`AnySetting`] and references to settings implement [`Setting`] by forwarding to the setting that they contain.
impl<P: Deref<Target: Setting>> Setting for P {
    fn label(&self) -> String {
        (**self).label()
    }
    fn line_file(&self) -> Option<String> {
        (**self).line_file()
    }
    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        (**self).read(access)
    }
    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        (**self).write(access, value)
    }
    fn admit(&self) -> Result<(), Error> {
        (**self).admit()
    }
    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        (**self).check(access, value)
    }
    fn check_back(&self, access: &Access, before: &Value) -> Result<(), Error> {
        (**self).check_back(access, before)
    }
    fn is_effect(&self) -> bool {
        (**self).is_effect()
    }
    fn is_of_thread(&self) -> bool {
        (**self).is_of_thread()
    }
    fn same(&self, field: Option<&str>, a: &str, b: &str) -> bool {
        (**self).same(field, a, b)
    }
    fn unshown(&self, field: &str) -> Option<&'static str> {
        (**self).unshown(field)
    }
    fn group(&self, field: &str) -> Option<&'static str> {
        (**self).group(field)
    }
    fn steady(&self, value: Value) -> Value {
        (**self).steady(value)
    }
    fn read_instance(&self, access: &Access) -> Result<Option<(Value, Option<u64>)>, Error> {
        (**self).read_instance(access)
    }
    fn lasts(&self) -> Lasts {
        (**self).lasts()
    }
    fn capability(&self) -> CapabilitySet {
        (**self).capability()
    }
    fn is_of_network(&self) -> bool {
        (**self).is_of_network()
    }
    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        (**self).identity(access)
    }
    fn explain(&self, access: &Access, wanted: &Value, now: &Value) -> Option<String> {
        (**self).explain(access, wanted, now)
    }
    fn is_taken(&self, wanted: &Value, now: &Value) -> bool {
        (**self).is_taken(wanted, now)
    }
    fn overruled(&self, access: &Access, wanted: &Value, now: &Value) -> Result<Option<String>, Error> {
        (**self).overruled(access, wanted, now)
    }
    fn shown(&self, ours: &Value, now: &Value) -> Value {
        (**self).shown(ours, now)
    }
    fn files(&self, access: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        (**self).files(access, wanted)
    }
    fn shows_within(&self) -> Duration {
        (**self).shows_within()
    }
    fn settle(&self, access: &Access) -> Result<(), Error> {
        (**self).settle(access)
    }
}

/// How long a change lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasts {
    /// The change lasts until the next boot.
    UntilReboot,
    /// The change is stored on disk and lasts across reboots.
    AcrossReboots,
    /// The change lasts as long as a process keeps it in force.
    WhileHeld,
}

/// A setting, with the methods that are common to all kinds of settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Knob<S>(pub S);

/// The state of a setting after a change was attempted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The setting has the wanted value.
    AsWanted {
        /// The value that was read.
        now: Value,
    },
    /// The kernel, the driver or the firmware set another value: rounded, limited, or changed together with another
    /// setting. This variant also stands for a value that reads as wanted but has no effect.
    Otherwise {
        /// The value that was read.
        now: Value,
        /// The reason for the other value or the missing effect. `None` if the machine does not report it.
        why: Option<String>,
    },
    /// The write was accepted but changed nothing.
    Unmoved {
        /// The value that was read.
        now: Value,
        /// The reason why nothing changed. `None` if the machine does not report it.
        why: Option<String>,
    },
    /// The setting no longer exists.
    Gone,
}

impl Verdict {
    /// Whether the setting has the wanted value.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::AsWanted { .. })
    }

    /// The value that was read. `None` if the setting no longer exists.
    pub fn now(&self) -> Option<&Value> {
        match self {
            Self::AsWanted { now } | Self::Otherwise { now, .. } | Self::Unmoved { now, .. } => Some(now),
            Self::Gone => None,
        }
    }
}

/// The result of restoring a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// The previous value was written. It is in force, or will be when the machine no longer limits it.
    Restored,
    /// The setting already had its previous value.
    Already,
    /// Someone else has changed the setting since Apus set it. The other user's value was kept.
    Theirs {
        /// The current value.
        now: Value,
    },
    /// The device, CPU or thread to which the setting belonged is gone.
    Gone,
    /// The previous value was written, but the machine shows another value.
    Failed {
        /// The value that was read.
        now: Value,
    },
}

/// What to do with values that someone else set after Apus.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Theirs {
    /// Keep the values that someone else set, and report them.
    #[default]
    Keep,
    /// Overwrite the values that someone else set with the values from before the transaction.
    Overwrite,
}

impl<S: Setting> Knob<S> {
    /// The current value. `None` if the machine has no such setting.
    pub fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        self.0.read(access)
    }

    /// Changes the setting from `before` to `wanted`, and reads it back.
    ///
    /// The caller must be able to roll the change back; outside this crate, the journal does so.
    pub(crate) fn change(&self, access: &Access, wanted: &Value, before: &Value) -> Result<Verdict, Error> {
        self.0.write(access, wanted)?;
        self.read_written(access, wanted, self.0.shows_within())?;
        self.verify(access, wanted, Some(before))
    }

    /// Reads a setting that was just written until the machine shows the wanted value, or until `within` has passed.
    pub(crate) fn read_written(
        &self,
        access: &Access,
        wanted: &Value,
        within: Duration,
    ) -> Result<Option<Value>, Error> {
        let until = Instant::now() + within;
        loop {
            let now = self.read(access)?;
            if now.as_ref().is_none_or(|now| self.holds(now, wanted)) || Instant::now() >= until {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Compares the current value with the wanted value. With `before`, the previous value, the result distinguishes a
    /// write that changed nothing from a write that led to another value.
    pub fn verify(&self, access: &Access, wanted: &Value, before: Option<&Value>) -> Result<Verdict, Error> {
        let Some(now) = self.read(access)? else { return Ok(Verdict::Gone) };
        if self.holds(&now, wanted) {
            return Ok(match self.0.overruled(access, wanted, &now)? {
                None => Verdict::AsWanted { now },
                why => Verdict::Otherwise { now, why },
            });
        }
        let why = self.0.explain(access, wanted, &now);
        Ok(match before {
            Some(before) if self.holds(&now, before) => Verdict::Unmoved { now, why },
            _ => Verdict::Otherwise { now, why },
        })
    }

    /// Whether `now` equals `wanted` in all fields that `wanted` names.
    pub fn holds(&self, now: &Value, wanted: &Value) -> bool {
        match (now, wanted) {
            (Value::Text(now), Value::Text(wanted)) => self.0.same(None, now, wanted),
            (Value::Fields(now), Value::Fields(wanted)) => wanted.iter().all(|(field, wanted)| {
                let now = now.get(field).map(String::as_str).or_else(|| self.0.unshown(field));
                now.is_some_and(|now| self.0.same(Some(field), now, wanted))
            }),
            _ => false,
        }
    }

    /// Whether `now` is `ours`, the value that Apus set, or the result of limits that the machine applied to `ours`.
    pub fn is_ours(&self, now: &Value, ours: &Value) -> bool {
        self.holds(now, &self.0.shown(ours, now))
    }

    /// The value that belongs to Apus after it wrote `wanted` and the machine showed `now`. What the machine only limits
    /// is what returns when the limit ends.
    pub(crate) fn ours(&self, now: &Value, wanted: &Value) -> Value {
        let is_limited = !self.holds(now, wanted) && self.is_ours(now, wanted);
        if is_limited { now.clone().overlaid(wanted) } else { now.clone() }
    }

    /// The error for a setting that has the wanted value but no effect. `None` if the setting has an effect.
    pub(crate) fn vain(&self, access: &Access, wanted: &Value, now: &Value) -> Result<Option<Error>, Error> {
        let why = self.0.overruled(access, wanted, now)?;
        Ok(why.map(|why| Error::Refused {
            what: format!("set {} to {wanted}", self.0.label()),
            why: format!("it has this value already, but {why}"),
            fix: "raise the power limit in the firmware, or choose a lower value".into(),
        }))
    }

    /// Restores `before`, unless someone else has changed the setting since it had the value `ours`.
    ///
    /// `ours` is the value that was read after Apus's change, or the requested value if the machine only limits it. It
    /// is `None` if the process was killed before it could read the value; then every value other than `before` counts as
    /// set by Apus. A field that is missing in `before` is restored to the value that it has while the driver does not
    /// show it ([`Setting::unshown`]).
    pub fn restore(
        &self,
        access: &Access,
        before: &Value,
        ours: Option<&Value>,
        theirs: Theirs,
    ) -> Result<Restored, Error> {
        self.restore_as(access, before, ours, theirs, &|now| now.clone())
    }

    /// Does the same as [`Self::restore`], but ignores fields that are missing in `before`.
    pub fn restore_fields(
        &self,
        access: &Access,
        before: &Value,
        ours: Option<&Value>,
        theirs: Theirs,
    ) -> Result<Restored, Error> {
        self.restore_as(access, before, ours, theirs, &|now| now.fields_of(before))
    }

    fn restore_as(
        &self,
        access: &Access,
        before: &Value,
        ours: Option<&Value>,
        theirs: Theirs,
        known: &dyn Fn(&Value) -> Value,
    ) -> Result<Restored, Error> {
        self.0.admit()?;
        self.0.check_back(access, before)?;
        if ours.is_none() {
            self.0.settle(access)?;
        }
        let Some(now) = self.read(access)? else { return Ok(Restored::Gone) };
        let ours = if theirs == Theirs::Overwrite { None } else { ours };
        let ours = ours.map(|ours| Ours { asked: ours, shown: self.0.shown(ours, &now) });
        let way_back = self.way_back(before, ours.as_ref(), &known(&now));
        let failed = way_back.write.as_ref().map_or(Ok(None), |write| self.write_back(access, write))?;
        Ok(match (failed, way_back) {
            (Some(failed), _) => failed,
            (None, WayBack { theirs: true, .. }) => Restored::Theirs { now },
            (None, WayBack { write: Some(_), .. }) => Restored::Restored,
            (None, WayBack { write: None, .. }) => Restored::Already,
        })
    }

    /// Writes `before` even if the setting shows it: the kernel may still carry out a change that was interrupted.
    pub(crate) fn put_back(&self, access: &Access, before: &Value) -> Result<Restored, Error> {
        self.0.admit()?;
        self.0.check_back(access, before)?;
        self.0.settle(access)?;
        if self.read(access)?.is_none() {
            return Ok(Restored::Gone);
        }
        Ok(self.write_back(access, before)?.unwrap_or(Restored::Restored))
    }

    /// Writes a previous value. `None` if it is in force then, or only limited by the machine.
    fn write_back(&self, access: &Access, write: &Value) -> Result<Option<Restored>, Error> {
        self.0.write(access, write)?;
        let Some(now) = self.read_written(access, write, self.0.shows_within())? else {
            return Ok(Some(Restored::Gone));
        };
        let is_restored = self.is_ours(&now, &self.0.steady(write.clone()));
        Ok((!is_restored).then_some(Restored::Failed { now }))
    }

    /// The error for a setting that does not exist.
    pub(crate) fn absent(&self) -> Error {
        Error::NotThere { what: self.0.label(), why: "this host has no such setting".into() }
    }

    /// Determines what a rollback writes, from three values of the setting: before the change, after the change, and
    /// now. A value that the machine limits is written even if the setting shows the previous value because of the
    /// limit: otherwise the requested value would return when the limit ends.
    pub(in crate::knob) fn way_back(&self, before: &Value, ours: Option<&Ours<'_>>, now: &Value) -> WayBack {
        match (before, now) {
            (Value::Fields(before), Value::Fields(now)) => {
                let mut write = std::collections::BTreeMap::new();
                let mut theirs = false;
                let mut their_groups = Vec::new();
                for (field, now) in now {
                    let same = |a: &str, b: &str| self.0.same(Some(field), a, b);
                    let Some(before) = before.get(field).map(String::as_str).or_else(|| self.0.unshown(field)) else {
                        continue;
                    };
                    let is_ours = ours.is_none_or(|ours| ours.shown.field(field).is_none_or(|ours| same(ours, now)));
                    let asked = ours.and_then(|ours| ours.asked.field(field)).filter(|_| is_ours).unwrap_or(now);
                    if same(before, asked) {
                    } else if is_ours {
                        write.insert(field.clone(), before.to_owned());
                    } else {
                        theirs |= !same(before, now);
                        their_groups.extend(self.0.group(field).filter(|_| !same(before, now)));
                    }
                }
                write.retain(|field, _| self.0.group(field).is_none_or(|group| !their_groups.contains(&group)));
                WayBack { write: (!write.is_empty()).then_some(Value::Fields(write)), theirs }
            }
            _ => {
                let is_ours = ours.is_none_or(|ours| self.holds(now, &ours.shown));
                let asked = ours.filter(|_| is_ours).map_or(now, |ours| ours.asked);
                match self.holds(asked, before) {
                    true => WayBack { write: None, theirs: false },
                    false => WayBack { write: is_ours.then(|| before.clone()), theirs: !is_ours },
                }
            }
        }
    }
}

/// The value that Apus requested, and what the machine shows of it now.
pub(in crate::knob) struct Ours<'a> {
    pub(in crate::knob) asked: &'a Value,
    pub(in crate::knob) shown: Value,
}

/// The result of a change: the previous value, and the outcome.
#[cfg(test)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) before: Value,
    pub(crate) verdict: Verdict,
}

#[cfg(test)]
impl<S: Setting> Knob<S> {
    /// Checks and changes one setting, as a transaction does, but without a journal.
    pub(crate) fn set(&self, access: &Access, wanted: &Value) -> Result<Change, Error> {
        let before = self.read(access)?.ok_or_else(|| self.absent())?;
        self.0.check(access, wanted)?;
        let verdict = self.change(access, wanted, &before)?;
        Ok(Change { before, verdict })
    }
}

fn line_file(setting: &(impl Setting + ?Sized)) -> Result<String, Error> {
    let why = "it has neither a file of one line nor its own way of reading and writing";
    setting.line_file().ok_or_else(|| Error::invalid(setting.label(), why))
}

/// Whether `path` is absolute and has no empty, `.` or `..` components.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether the content of a file in sysfs or procfs depends on the calling thread's network namespace (sysfs(5),
/// "/sys/class/net"; proc_sys(5), "/proc/sys/net").
fn is_file_of_network(path: &str) -> bool {
    ["/sys/class/net/", "/proc/sys/net/", "/proc/net/"].iter().any(|folder| path.starts_with(folder))
        || path.starts_with("/sys/devices/") && path.contains("/net/")
}

pub(in crate::knob) struct WayBack {
    pub(in crate::knob) write: Option<Value>,
    pub(in crate::knob) theirs: bool,
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod late {
    use std::cell::Cell;

    use super::*;
    use crate::testing::Folder;

    /// A test setting that shows a written value only in the third reading after the write.
    #[derive(Debug)]
    struct Late {
        looks: Cell<u32>,
        within: Duration,
    }

    impl Setting for Late {
        fn label(&self) -> String {
            "a late one".into()
        }
        fn read(&self, _: &Access) -> Result<Option<Value>, Error> {
            self.looks.set(self.looks.get().saturating_sub(1));
            Ok(Some(Value::text(if self.looks.get() > 0 { "before" } else { "wanted" })))
        }
        fn write(&self, _: &Access, _: &Value) -> Result<(), Error> {
            self.looks.set(3);
            Ok(())
        }
        fn shows_within(&self) -> Duration {
            self.within
        }
    }

    #[test]
    fn what_is_carried_out_after_the_write_is_waited_for() {
        let access = Folder::new(&[]).access();
        let change = |within| {
            let knob = Knob(Late { looks: Cell::new(0), within });
            knob.change(&access, &Value::text("wanted"), &Value::text("before")).unwrap()
        };
        assert!(change(Duration::from_secs(10)).is_good());
        assert!(matches!(change(Duration::ZERO), Verdict::Unmoved { .. }));
    }
}

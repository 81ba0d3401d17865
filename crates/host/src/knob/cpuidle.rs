//! Idle states of CPUs.
//!
//! Source: kernel documentation, admin-guide/pm/cpuidle, "Representation of Idle States".

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::file::text;
use super::{Access, Error, Setting, Value};

const CPUS: &str = "/sys/devices/system/cpu";

/// Whether an idle state is disabled on a CPU: `1` (disabled) or `0` (enabled).
///
/// The kernel no longer *requests* a disabled state. States that the hardware enters by itself (C1E, package states)
/// are not affected.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// The number of the CPU.
    pub cpu: u32,
    /// The number of the state on its CPU, N in `stateN`.
    pub state: u32,
}

/// An idle state as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Number of the state, N in `stateN`. The deeper the state, the higher the number.
    pub number: u32,
    /// Name of the state: POLL, C1, C6. `None` if the driver gives none.
    pub name: Option<String>,
    /// The exit latency that the kernel assumes. `None` if the driver gives none.
    pub latency: Option<Nanos>,
    /// The shortest stay for which the state saves energy, as the kernel assumes. `None` if the driver gives none.
    pub residency: Option<Nanos>,
    /// How often the kernel has requested the state since boot. `None` if the kernel does not report it.
    pub usage: Option<u64>,
    /// How long the kernel has requested the state since boot. The hardware may have spent less time in it. `None` if
    /// the kernel does not report it.
    pub time: Option<Nanos>,
    /// Whether the state is disabled. `None` if that is not known.
    pub disabled: Option<bool>,
}

/// The idle states of a CPU, from the shallowest to the deepest. Empty if there is no cpuidle.
pub fn states(access: &Access, cpu: u32) -> Result<Vec<State>, Error> {
    let folder = format!("{CPUS}/cpu{cpu}/cpuidle");
    let mut states = Vec::new();
    for number in access.numbered(&folder, "state")? {
        let file = |name: &str| format!("{folder}/state{number}/{name}");
        states.push(State {
            number,
            name: access.line(&file("name"))?,
            latency: access.number(&file("latency"))?.map(Nanos::from_micros),
            residency: access.number(&file("residency"))?.map(Nanos::from_micros),
            usage: access.number(&file("usage"))?,
            time: access.number(&file("time"))?.map(Nanos::from_micros),
            disabled: access.number(&file("disable"))?.map(|n| n != 0),
        });
    }
    Ok(states)
}

impl IdleState {
    /// Makes the setting for state `state` of CPU `cpu`.
    pub const fn new(cpu: u32, state: u32) -> Self {
        Self { cpu, state }
    }

    /// The value that disables the state (`disabled` is true) or enables it (`disabled` is false).
    pub fn disabled(disabled: bool) -> Value {
        Value::text(u8::from(disabled))
    }

    fn file(&self, name: &str) -> String {
        format!("{CPUS}/cpu{}/cpuidle/state{}/{name}", self.cpu, self.state)
    }
}

impl Setting for IdleState {
    fn label(&self) -> String {
        format!("idle state {} of CPU {} disabled", self.state, self.cpu)
    }

    fn line_file(&self) -> Option<String> {
        Some(self.file("disable"))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        match text(&self.label(), value)? {
            "0" | "1" => Ok(()),
            _ => Err(Error::invalid(self.label(), "expected 1 (disabled) or 0")),
        }
    }

    fn capability(&self) -> CapabilitySet {
        CapabilitySet::SYS_ADMIN // drivers/cpuidle/sysfs.c, `store_state_disable`
    }

    /// Identifies the idle driver, because another driver numbers its states differently.
    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        access.line(&self.file("name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn states_are_read_and_disabled() {
        let folder = Folder::new(&[
            ("sys/devices/system/cpu/cpu3/cpuidle/state0/name", "POLL\n"),
            ("sys/devices/system/cpu/cpu3/cpuidle/state10/name", "C6\n"),
            ("sys/devices/system/cpu/cpu3/cpuidle/state10/latency", "170\n"),
            ("sys/devices/system/cpu/cpu3/cpuidle/state10/residency", "600\n"),
            ("sys/devices/system/cpu/cpu3/cpuidle/state10/disable", "0\n"),
        ]);
        let access = folder.access();
        let states = states(&access, 3).unwrap();
        assert_eq!(states.iter().map(|s| s.number).collect::<Vec<_>>(), [0, 10]);
        assert_eq!((states[0].latency, states[1].latency), (None, Some(Nanos::from_micros(170))));
        assert_eq!((states[0].residency, states[1].residency), (None, Some(Nanos::from_micros(600))));
        let knob = Knob(IdleState::new(3, 10));
        assert!(knob.set(&access, &IdleState::disabled(true)).unwrap().verdict.is_good());
        assert_eq!(folder.read("sys/devices/system/cpu/cpu3/cpuidle/state10/disable"), "1\n");
        assert!(Knob(IdleState::new(3, 0)).read(&access).unwrap().is_none());
        assert!(knob.set(&access, &Value::text("2")).is_err());
    }
}

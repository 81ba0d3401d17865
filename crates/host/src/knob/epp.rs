//! The energy-performance preference of a frequency policy.
//!
//! Source: kernel documentation, admin-guide/pm/intel_pstate, "Energy vs Performance Hints", and
//! admin-guide/pm/amd-pstate.

use serde::{Deserialize, Serialize};

use super::cpufreq::file;
use super::file::text;
use super::{Access, Error, Setting, Value};

/// The energy-performance preference of a policy: a word from `energy_performance_available_preferences`, or a number
/// from 0 (performance) to 255 (power saving).
///
/// In intel_pstate's active mode, the governor `performance` overrides the preference, and the kernel rejects writes
/// with EBUSY.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Epp {
    /// The number of the policy.
    pub policy: u32,
}

impl Epp {
    /// Makes the setting for policy number `policy`.
    pub const fn new(policy: u32) -> Self {
        Self { policy }
    }

    fn path(&self) -> String {
        file(self.policy, "energy_performance_preference")
    }
}

impl Setting for Epp {
    fn label(&self) -> String {
        format!("energy-performance preference of CPU policy {}", self.policy)
    }

    fn line_file(&self) -> Option<String> {
        Some(self.path())
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        access.write(&self.path(), text(&self.label(), value)?).map_err(|error| match error {
            Error::Refused { what, why, .. } => Error::Refused {
                what,
                why,
                fix: "the governor performance overrides the preference: set the governor powersave first".into(),
            },
            other => other,
        })
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wanted = text(&self.label(), value)?;
        let known = access.line(&file(self.policy, "energy_performance_available_preferences"))?.unwrap_or_default();
        if wanted.parse::<u8>().is_ok() || known.split_whitespace().any(|word| word == wanted) {
            return Ok(());
        }
        Err(Error::Refused {
            what: format!("set the energy-performance preference {wanted} on CPU policy {}", self.policy),
            why: format!("supported are {known}"),
            fix: "choose one of these, or 0 (performance) to 255 (power)".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn words_and_numbers_are_taken() {
        let folder = Folder::new(&[
            ("sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference", "balance_performance\n"),
            (
                "sys/devices/system/cpu/cpufreq/policy0/energy_performance_available_preferences",
                "default performance power \n",
            ),
        ]);
        let knob = Knob(Epp::new(0));
        for wanted in ["performance", "128"] {
            assert!(knob.set(&folder.access(), &Value::text(wanted)).unwrap().verdict.is_good(), "{wanted}");
        }
        for wrong in ["fast", "256", ""] {
            assert!(knob.set(&folder.access(), &Value::text(wrong)).is_err(), "{wrong:?} was taken");
        }
    }
}

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

    /// The number for a preference: 0 (performance) to 255 (power). The kernel shows some numbers as words, and amd_pstate
    /// takes only words (drivers/cpufreq/intel_pstate.c and amd-pstate.c, `epp_values`). `None` for the word `default`,
    /// whose number is that of the firmware, and for other words.
    pub fn number(preference: &str) -> Option<u8> {
        match preference {
            "performance" => Some(0),
            "balance_performance" => Some(128),
            "balance_power" => Some(192),
            "power" => Some(255),
            number => number.parse().ok(),
        }
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

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        let (a, b) = (a.trim(), b.trim());
        a == b || Self::number(a).is_some_and(|a| Self::number(b) == Some(a))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wanted = text(&self.label(), value)?;
        access.write(&self.path(), wanted).map_err(|error| match error {
            Error::Refused { what, why, .. } => {
                let number =
                    if wanted.parse::<u8>().is_ok() { ", or the driver takes only words: use one" } else { "" };
                let fix = "the governor performance overrides the preference: set the governor powersave first";
                Error::Refused { what, why, fix: format!("{fix}{number}") }
            }
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

    /// The kernel shows some numbers as words.
    #[test]
    fn a_word_is_the_same_as_its_number() {
        let epp = Epp::new(0);
        for (number, word) in [("0", "performance"), ("128", "balance_performance"), ("192", "balance_power")] {
            assert!(epp.same(None, number, word) && epp.same(None, word, number), "{word}");
        }
        assert!(epp.same(None, "255", "power") && epp.same(None, "default", "default"));
        assert!(!epp.same(None, "127", "balance_performance") && !epp.same(None, "0", "default"));
    }

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

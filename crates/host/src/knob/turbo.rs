//! Turbo: frequencies above the nominal frequency.
//!
//! Source: kernel documentation, admin-guide/pm/intel_pstate, `no_turbo`; admin-guide/pm/cpufreq,
//! "The boost File in sysfs".

use serde::{Deserialize, Serialize};

use super::file::text;
use super::{Access, Error, Setting, Value};

const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";

/// Whether turbo is allowed on all CPUs: `on` or `off`. Set through `intel_pstate/no_turbo`, whose value is inverted,
/// or `cpufreq/boost`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Turbo {}

impl Turbo {
    /// The value `on` if `on` is true, `off` otherwise.
    pub fn value(on: bool) -> Value {
        Value::text(if on { "on" } else { "off" })
    }
}

impl Setting for Turbo {
    fn label(&self) -> String {
        "turbo".into()
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        if let Some(off) = access.number(NO_TURBO)? {
            return Ok(Some(Self::value(off == 0)));
        }
        Ok(access.number(BOOST)?.map(|on| Self::value(on != 0)))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let on = value.as_text() == Some("on");
        if access.exists(NO_TURBO) {
            access.write(NO_TURBO, if on { "0" } else { "1" })
        } else {
            access.write(BOOST, if on { "1" } else { "0" })
        }
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        match text("turbo", value)? {
            "on" | "off" => Ok(()),
            other => Err(Error::invalid("turbo", format!("{other:?}: expected on or off"))),
        }
    }

    fn files(&self, access: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        let on = wanted.as_text() == Some("on");
        let inverted = access.exists(NO_TURBO);
        let path = if inverted { NO_TURBO } else { BOOST };
        Ok(vec![(path.into(), u8::from(on != inverted).to_string())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn both_files_mean_the_same() {
        for (path, on, off) in [(NO_TURBO, "0\n", "1\n"), (BOOST, "1\n", "0\n")] {
            let folder = Folder::new(&[(path, on)]);
            let (knob, access) = (Knob(Turbo {}), folder.access());
            assert_eq!(knob.read(&access).unwrap(), Some(Turbo::value(true)));
            assert!(knob.set(&access, &Turbo::value(false)).unwrap().verdict.is_good());
            assert_eq!(folder.read(path), off);
        }
        assert!(Knob(Turbo {}).read(&Folder::new(&[]).access()).unwrap().is_none());
    }
}

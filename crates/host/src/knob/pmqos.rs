//! PM QoS: the exit latency allowed for idle CPUs.
//!
//! Source: kernel documentation, power/pm_qos_interface and ABI/testing/sysfs-devices-power,
//! `pm_qos_resume_latency_us`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::file::text;
use super::{Access, Error, Setting, Value};

/// The exit latency allowed for one CPU. The file holds a single request that all users share.
///
/// **A zero in the file is inverted:** `0` means no limit, and `n/a` means a limit of zero. [`ResumeLatency`] does the
/// conversion.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CpuLatency {
    /// The number of the CPU.
    pub cpu: u32,
}

/// The latency limit in the file `pm_qos_resume_latency_us`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResumeLatency {
    /// Any idle state is allowed (the file contains `0`).
    NoLimit,
    /// No exit latency is allowed, so the idle CPU polls (the file contains `n/a`).
    Zero,
    /// At most this exit latency is allowed, in whole microseconds.
    AtMost(Nanos),
}

impl ResumeLatency {
    /// The string to write to the file. The latency is rounded down to microseconds, so that the limit is never
    /// exceeded. Less than one microsecond becomes [`ResumeLatency::Zero`].
    pub fn value(self) -> Value {
        Value::text(match self {
            Self::NoLimit => "0".into(),
            Self::AtMost(limit) if limit.as_micros_floor() > 0 => limit.as_micros_floor().to_string(),
            Self::Zero | Self::AtMost(_) => "n/a".into(),
        })
    }

    /// Parses the contents of the file. `None` if they are not valid.
    pub fn of_file(text: &str) -> Option<Self> {
        match text.trim() {
            "0" => Some(Self::NoLimit),
            "n/a" => Some(Self::Zero),
            // The kernel stores the value in an s32 (drivers/base/power/sysfs.c).
            number => number.parse::<i32>().ok().filter(|n| *n > 0).map(|n| Self::AtMost(Nanos::from_micros(n as u64))),
        }
    }
}

/// Parses `none`, `0us`, or a time such as `20us`.
impl FromStr for ResumeLatency {
    type Err = units::ParseError;
    fn from_str(text: &str) -> Result<Self, units::ParseError> {
        Ok(match text {
            "none" => Self::NoLimit,
            _ => match text.parse()? {
                Nanos::ZERO => Self::Zero,
                limit => Self::AtMost(limit),
            },
        })
    }
}

impl fmt::Display for ResumeLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str("none"),
            Self::Zero => f.write_str("0us"),
            Self::AtMost(limit) => limit.fmt(f),
        }
    }
}

impl CpuLatency {
    /// Makes the setting for CPU `cpu`.
    pub const fn new(cpu: u32) -> Self {
        Self { cpu }
    }

    fn path(&self) -> String {
        format!("/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", self.cpu)
    }
}

impl Setting for CpuLatency {
    fn label(&self) -> String {
        format!("resume latency allowed on CPU {} (0: no limit, n/a: zero)", self.cpu)
    }

    fn line_file(&self) -> Option<String> {
        Some(self.path())
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        let text = text(&self.label(), value)?;
        let known = ResumeLatency::of_file(text).map(|_| ());
        known.ok_or_else(|| Error::invalid(self.label(), format!("{text:?}: expected n/a, 0 or whole microseconds")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    #[test]
    fn the_zero_is_inverted() {
        let value = |text: &str| text.parse::<ResumeLatency>().unwrap().value();
        assert_eq!(value("none"), Value::text("0"));
        assert_eq!(value("0us"), Value::text("n/a"));
        assert_eq!(value("20us"), Value::text("20"));
        assert_eq!(value("1.9us"), Value::text("1"), "never more than was promised");
        assert_eq!(value("900ns"), Value::text("n/a"));
        for text in ["none", "0us", "20us"] {
            let latency: ResumeLatency = text.parse().unwrap();
            assert_eq!(ResumeLatency::of_file(latency.value().as_text().unwrap()), Some(latency));
            assert_eq!(latency.to_string(), text);
        }
        assert_eq!(ResumeLatency::of_file("-1"), None, "the kernel refuses negative numbers");
    }

    #[test]
    fn a_limit_is_set_on_one_cpu() {
        let path = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
        let folder = Folder::new(&[(path, "0\n")]);
        let knob = Knob(CpuLatency::new(1));
        assert!(knob.set(&folder.access(), &ResumeLatency::Zero.value()).unwrap().verdict.is_good());
        assert_eq!(folder.read(path), "n/a\n");
        assert!(knob.set(&folder.access(), &Value::text("-3")).is_err());
    }
}

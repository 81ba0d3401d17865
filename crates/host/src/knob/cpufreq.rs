//! CPU frequency policies: governors, limits and fixed speeds.
//!
//! Source: kernel documentation, admin-guide/pm/cpufreq, "Policy Interface in sysfs".

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Hertz;

use super::file::text;
use super::{Access, Error, Setting, Value};
use crate::facts::CpuSet;

const FOLDER: &str = "/sys/devices/system/cpu/cpufreq";

/// The governor of a policy: `powersave`, or `userspace 800000` with the fixed speed in kHz.
///
/// Governor and speed form one setting because `scaling_setspeed` works only with the governor `userspace`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Governor {
    /// The number of the policy, N in `policyN`. The kernel uses the number of the policy's first CPU.
    pub policy: u32,
}

/// The frequency limits of a policy: fields `min` and `max`, in kHz.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The number of the policy.
    pub policy: u32,
}

/// The numbers of the frequency policies. Empty if there is no cpufreq.
pub fn policies(access: &Access) -> Result<Vec<u32>, Error> {
    access.numbered(FOLDER, "policy")
}

/// The CPUs of a policy, online or not. Empty if there is no such policy, or if it is inactive because all its CPUs are
/// offline: newer kernels then report EBUSY (drivers/cpufreq/cpufreq.c, `show`).
pub fn policy_cpus(access: &Access, policy: u32) -> Result<CpuSet, Error> {
    let list = match access.line(&file(policy, "related_cpus")) {
        Err(Error::Refused { .. }) => None,
        other => other?,
    };
    let list = list.unwrap_or_default();
    // The kernel separates the numbers with spaces (drivers/cpufreq/cpufreq.c, cpufreq_show_cpus).
    let wrong = || Error::unreadable(file(policy, "related_cpus"), &list, "CPU numbers separated by spaces");
    list.split_whitespace().map(|cpu| cpu.parse().map_err(|_| wrong())).collect()
}

/// The frequencies that a policy can have, in kHz.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Speeds {
    /// The hardware's minimum frequency (`cpuinfo_min_freq`).
    pub least: u64,
    /// The hardware's maximum frequency (`cpuinfo_max_freq`).
    pub most: u64,
    /// The frequencies that the hardware supports, in ascending order (`scaling_available_frequencies`). Empty if the
    /// driver lists none and accepts any frequency.
    pub available: Vec<u64>,
    /// The highest frequency without turbo. `None` if there is no turbo, or if the driver does not report it.
    pub nominal: Option<u64>,
}

/// Reads the frequencies of a policy. `None` if there is no such policy, or if the driver does not report the
/// hardware's limits.
pub fn speeds(access: &Access, policy: u32) -> Result<Option<Speeds>, Error> {
    let Some((least, most)) = Limits::new(policy).hardware(access)? else { return Ok(None) };
    let path = file(policy, "scaling_available_frequencies");
    let list = access.line(&path)?.unwrap_or_default();
    let wrong = || Error::unreadable(path.clone(), &list, "frequencies in kHz separated by spaces");
    let available: Result<Vec<u64>, _> = list.split_whitespace().map(|khz| khz.parse().map_err(|_| wrong())).collect();
    let mut available = available?;
    available.sort_unstable();
    available.dedup();
    // The ACPI driver shows turbo as a frequency 1 MHz above the nominal one (drivers/cpufreq/acpi-cpufreq.c,
    // `acpi_cpufreq_cpu_init`); intel_pstate and amd_pstate show the nominal one in base_frequency.
    let above = match available[..] {
        [.., nominal, turbo] if turbo == nominal + 1_000 => Some(nominal),
        _ => None,
    };
    let base = access.number(&file(policy, "base_frequency"))?.filter(|base| (least..most).contains(base));
    Ok(Some(Speeds { least, most, available, nominal: above.or(base) }))
}

/// The policy's current frequency or the frequency last requested, in kHz (`scaling_cur_freq`; the driver determines
/// which one). `None` if it is not known.
pub fn current_speed(access: &Access, policy: u32) -> Result<Option<u64>, Error> {
    access.number(&file(policy, "scaling_cur_freq"))
}

/// The firmware's frequency limit for a policy, in kHz (`bios_limit`, from ACPI's _PPC). `None` if the driver reports
/// none.
pub fn firmware_limit(access: &Access, policy: u32) -> Result<Option<u64>, Error> {
    access.number(&file(policy, "bios_limit"))
}

/// A frequency policy: its CPUs, its driver, and its frequencies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domain {
    /// The number of the policy.
    pub policy: u32,
    /// The CPUs that share the frequency, online or not.
    pub cpus: CpuSet,
    /// Name of the cpufreq driver. `None` if the kernel does not report it.
    pub driver: Option<String>,
    /// The frequencies that the driver lists, in ascending order. Empty if the driver lists none and accepts any
    /// frequency between the limits.
    pub frequencies: Vec<Hertz>,
    /// The hardware's minimum and maximum frequency. `None` if they are not known.
    pub hardware: Option<(Hertz, Hertz)>,
    /// The highest frequency without turbo. `None` if there is no turbo, or if the driver does not report it.
    pub nominal: Option<Hertz>,
    /// Whether the governor `userspace` is available.
    pub has_userspace: bool,
    /// Whether the policy has an energy-performance preference.
    pub has_epp: bool,
    /// The time that a frequency change takes, according to the driver. `None` if the driver does not report it.
    pub transition: Option<units::Nanos>,
}

impl Domain {
    /// Reads policy number `policy`.
    pub fn read(access: &Access, policy: u32) -> Result<Self, Error> {
        let list = |name: &str| -> Result<Vec<u64>, Error> {
            let text = access.line(&file(policy, name))?.unwrap_or_default();
            let wrong = || Error::unreadable(file(policy, name), &text, "frequencies in kHz");
            text.split_whitespace().map(|word| word.parse().map_err(|_| wrong())).collect()
        };
        // The kernel lists turbo frequencies in a separate file (drivers/cpufreq/freq_table.c, `scaling_boost_freqs`).
        let (listed, boost) = (list("scaling_available_frequencies")?, list("scaling_boost_frequencies")?);
        let below_boost = listed.iter().max().copied().filter(|_| !boost.is_empty());
        let mut frequencies = [listed, boost].concat();
        frequencies.sort_unstable();
        frequencies.dedup();
        let governors = access.line(&file(policy, "scaling_available_governors"))?.unwrap_or_default();
        // CPUFREQ_ETERNAL, `-1` as an unsigned number, means that the driver does not know the time
        // (include/linux/cpufreq.h).
        let transition = access.number(&file(policy, "cpuinfo_transition_latency"))?;
        let transition = transition.filter(|ns| (1..u64::from(u32::MAX)).contains(ns));
        Ok(Self {
            policy,
            cpus: policy_cpus(access, policy)?,
            driver: access.line(&file(policy, "scaling_driver"))?,
            nominal: below_boost
                .or(speeds(access, policy)?.and_then(|speeds| speeds.nominal))
                .map(|khz| Hertz::new(khz * 1_000)),
            frequencies: frequencies.into_iter().map(|khz| Hertz::new(khz * 1_000)).collect(),
            hardware: Limits::new(policy)
                .hardware(access)?
                .map(|(min, max)| (Hertz::new(min * 1_000), Hertz::new(max * 1_000))),
            has_userspace: governors.split_whitespace().any(|word| word == "userspace"),
            has_epp: access.exists(&file(policy, "energy_performance_preference")),
            transition: transition.map(units::Nanos::from_nanos),
        })
    }

    /// The highest frequency that the firmware allows now, or else the hardware's highest frequency. `None` if neither
    /// is known.
    pub fn ceiling(&self, access: &Access) -> Result<Option<Hertz>, Error> {
        let limit = access.number(&file(self.policy, "bios_limit"))?.map(|khz| Hertz::new(khz * 1_000));
        Ok(match (limit, self.hardware) {
            (Some(limit), Some((_, highest))) => Some(limit.min(highest)),
            (limit, hardware) => limit.or(hardware.map(|(_, highest)| highest)),
        })
    }

    /// The current frequency according to the kernel (`scaling_cur_freq`). `None` if the kernel does not report it.
    pub fn current(&self, access: &Access) -> Result<Option<Hertz>, Error> {
        Ok(access.number(&file(self.policy, "scaling_cur_freq"))?.map(|khz| Hertz::new(khz * 1_000)))
    }
}

pub(super) fn file(policy: u32, name: &str) -> String {
    format!("{FOLDER}/policy{policy}/{name}")
}

impl Governor {
    /// Makes the setting for policy number `policy`.
    pub const fn new(policy: u32) -> Self {
        Self { policy }
    }

    /// The value for a fixed speed, rounded down to kHz, as the userspace governor does.
    pub fn set_speed(speed: Hertz) -> Value {
        Value::text(format_args!("userspace {}", speed.as_hertz() / 1_000))
    }
}

impl Setting for Governor {
    fn label(&self) -> String {
        format!("governor of CPU policy {}", self.policy)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let Some(governor) = access.line(&file(self.policy, "scaling_governor"))? else { return Ok(None) };
        if governor != "userspace" {
            return Ok(Some(Value::Text(governor)));
        }
        let speed = access.line(&file(self.policy, "scaling_setspeed"))?;
        let speed = speed.filter(|speed| speed.parse::<u64>().is_ok());
        Ok(Some(Value::Text(speed.map_or(governor.clone(), |speed| format!("{governor} {speed}")))))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let text = text(&self.label(), value)?;
        let (governor, speed) = text.split_once(' ').map_or((text, None), |(governor, speed)| (governor, Some(speed)));
        let path = file(self.policy, "scaling_governor");
        if access.line(&path)?.as_deref() != Some(governor) {
            access.write(&path, governor)?;
        }
        match speed {
            Some(speed) => access.write(&file(self.policy, "scaling_setspeed"), speed),
            None => Ok(()),
        }
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let text = text(&self.label(), value)?;
        let (governor, speed) = text.split_once(' ').map_or((text, None), |(governor, speed)| (governor, Some(speed)));
        if speed.is_some_and(|speed| governor != "userspace" || speed.parse::<u64>().is_err()) {
            return Err(Error::invalid(
                self.label(),
                format!("{text:?}: expected a governor, or userspace and a speed in kHz"),
            ));
        }
        if let Some(known) = access.line(&file(self.policy, "scaling_available_governors"))?
            && !known.split_whitespace().any(|word| word == governor)
        {
            return Err(Error::Refused {
                what: format!("set the governor {governor} on CPU policy {}", self.policy),
                why: format!("supported are {known}"),
                fix: "choose one of these, or another driver (intel_pstate=passive, amd_pstate=passive)".into(),
            });
        }
        Ok(())
    }

    fn explain(&self, access: &Access, _: &Value, _: &Value) -> Option<String> {
        limited(access, self.policy)
    }

    /// Whether someone else changed the governor. The kernel never sets a governor other than the requested one. A
    /// different speed does not count, because the kernel rounds speeds.
    fn is_taken(&self, wanted: &Value, now: &Value) -> bool {
        let governor = |value: &Value| value.as_text().and_then(|text| text.split(' ').next()).map(str::to_owned);
        governor(wanted) != governor(now)
    }

    /// Reports a firmware limit below the requested frequency: `performance` requests the highest frequency,
    /// `userspace` the fixed speed. The CPU then runs at the firmware's limit, although the governor is set as wanted.
    fn overruled(&self, access: &Access, wanted: &Value, _: &Value) -> Result<Option<String>, Error> {
        let Some(limit) = access.number(&file(self.policy, "bios_limit"))? else { return Ok(None) };
        let words: Vec<&str> = wanted.as_text().unwrap_or_default().split(' ').collect();
        let asked = match words[..] {
            // `performance` requests `scaling_max_freq`. This is never above the firmware's limit. If it is lower, a
            // user chose it; otherwise the request is the hardware's maximum.
            ["performance"] => match access.number(&file(self.policy, "scaling_max_freq"))? {
                Some(most) if most < limit => Some(most),
                _ => access.number(&file(self.policy, "cpuinfo_max_freq"))?,
            },
            ["userspace", speed] => speed.parse().ok(),
            _ => None,
        };
        Ok(asked.filter(|asked| *asked > limit).and_then(|_| limited(access, self.policy)))
    }

    /// Whether the policy's upper limit is below the fixed speed of the governor `userspace`. If so, `scaling_setspeed`
    /// shows the limit. The governor returns to the fixed speed by itself when the limit rises
    /// (drivers/cpufreq/cpufreq_userspace.c, `cpufreq_userspace_policy_limits`).
    fn held_back(&self, access: &Access, ours: &Value, now: &Value) -> Result<bool, Error> {
        let speed = |value: &Value| value.as_text()?.strip_prefix("userspace ")?.parse::<u64>().ok();
        let Some((ours, now)) = speed(ours).zip(speed(now)) else { return Ok(false) };
        if now >= ours {
            return Ok(false);
        }
        Ok(highest(access, self.policy)?.is_some_and(|most| most < ours && now <= most))
    }

    fn files(&self, _: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        let text = text(&self.label(), wanted)?;
        let (governor, speed) = text.split_once(' ').map_or((text, None), |(governor, speed)| (governor, Some(speed)));
        let speed = speed.map(|speed| (file(self.policy, "scaling_setspeed"), speed.to_owned()));
        Ok([(file(self.policy, "scaling_governor"), governor.to_owned())].into_iter().chain(speed).collect())
    }
}

impl Limits {
    /// Makes the setting for policy number `policy`.
    pub const fn new(policy: u32) -> Self {
        Self { policy }
    }

    /// The value for a frequency between `min` and `max`, both rounded down to kHz.
    pub fn value(min: Hertz, max: Hertz) -> Value {
        Value::fields([("min", min.as_hertz() / 1_000), ("max", max.as_hertz() / 1_000)])
    }

    /// The hardware's limits in kHz: `cpuinfo_min_freq` and `cpuinfo_max_freq`. `None` if they are not known.
    pub fn hardware(&self, access: &Access) -> Result<Option<(u64, u64)>, Error> {
        let min = access.number(&file(self.policy, "cpuinfo_min_freq"))?;
        let max = access.number(&file(self.policy, "cpuinfo_max_freq"))?;
        Ok(min.zip(max))
    }
}

impl Setting for Limits {
    fn label(&self) -> String {
        format!("frequency limits of CPU policy {}, in kHz", self.policy)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        read_limits(access, &file(self.policy, "scaling_min_freq"), &file(self.policy, "scaling_max_freq"))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        write_limits(access, value, &file(self.policy, "scaling_min_freq"), &file(self.policy, "scaling_max_freq"))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        check_limits(&self.label(), value)?;
        let Some((least, most)) = self.hardware(access)? else { return Ok(()) };
        for (field, value) in value.as_fields().into_iter().flatten() {
            if value.parse::<u64>().is_ok_and(|n| !(least..=most).contains(&n)) {
                return Err(Error::invalid(
                    format!("{field}={value} kHz on CPU policy {}", self.policy),
                    format!("the hardware supports {least} to {most} kHz; choose a frequency in between"),
                ));
            }
        }
        Ok(())
    }

    /// The hardware's range can shrink while the limits are changed: it ends with turbo, for example. The kernel then
    /// lowers a restored limit itself.
    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        check_limits(&self.label(), before)
    }

    /// Allows time for the change, because a write is only a request: a work item changes the policy later
    /// (drivers/cpufreq/cpufreq.c, `cpufreq_notifier_max`).
    fn shows_within(&self) -> Duration {
        Duration::from_millis(500)
    }

    /// Reports a lower limit above the firmware's limit. Such a lower limit has no effect: the frequency only looks
    /// fixed.
    fn overruled(&self, access: &Access, wanted: &Value, _: &Value) -> Result<Option<String>, Error> {
        let Some(limit) = access.number(&file(self.policy, "bios_limit"))? else { return Ok(None) };
        let least = wanted.field("min").and_then(|text| text.parse::<u64>().ok());
        Ok(least.filter(|least| *least > limit).and_then(|_| limited(access, self.policy)))
    }

    fn explain(&self, access: &Access, _: &Value, _: &Value) -> Option<String> {
        limited(access, self.policy)
    }

    /// Whether the limits are lower only because of the firmware's limit. The kernel never shows limits above it
    /// (drivers/cpufreq/cpufreq.c, `cpufreq_set_policy`).
    fn held_back(&self, access: &Access, ours: &Value, now: &Value) -> Result<bool, Error> {
        let Some(limit) = access.number(&file(self.policy, "bios_limit"))? else { return Ok(false) };
        let (Some(ours), Some(now)) = (ours.as_fields(), now.as_fields()) else { return Ok(false) };
        let number = |text: &String| text.parse::<u64>().ok();
        let mut lower = false;
        for (field, ours) in ours {
            let (Some(ours), Some(now)) = (number(ours), now.get(field).and_then(number)) else { return Ok(false) };
            if now != ours && now != ours.min(limit) {
                return Ok(false);
            }
            lower |= now < ours;
        }
        Ok(lower)
    }

    fn files(&self, _: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        Ok(limit_files(wanted, file(self.policy, "scaling_min_freq"), file(self.policy, "scaling_max_freq")))
    }
}

/// The maximum frequency that a policy allows now, in kHz: the lower of `scaling_max_freq` and the firmware's limit.
/// `None` if neither is known.
fn highest(access: &Access, policy: u32) -> Result<Option<u64>, Error> {
    let most = access.number(&file(policy, "scaling_max_freq"))?;
    let limit = access.number(&file(policy, "bios_limit"))?;
    Ok(most.into_iter().chain(limit).min())
}

/// A sentence about the firmware's limit (`bios_limit`, from ACPI's _PPC), if it is below the hardware's maximum.
fn limited(access: &Access, policy: u32) -> Option<String> {
    let limit = access.number(&file(policy, "bios_limit")).ok()??;
    let most = access.number(&file(policy, "cpuinfo_max_freq")).ok()??;
    (limit < most).then(|| format!("the firmware limits the frequency to {limit} kHz of {most} (bios_limit)"))
}

/// Reads two files that contain a lower and an upper limit.
pub(super) fn read_limits(access: &Access, min: &str, max: &str) -> Result<Option<Value>, Error> {
    let limits = access.line(min)?.zip(access.line(max)?);
    Ok(limits.map(|(least, most)| Value::fields([("min", least), ("max", most)])))
}

/// Writes a lower and an upper limit, in the order in which the lower limit never exceeds the upper one. In the
/// opposite order, the kernel would reject or change the limits.
pub(super) fn write_limits(access: &Access, value: &Value, min: &str, max: &str) -> Result<(), Error> {
    let (least, most) = (value.field("min"), value.field("max"));
    let upper_now = access.number(max)?;
    let rises = least.and_then(|n| n.parse::<u64>().ok()).zip(upper_now).is_some_and(|(least, upper)| least > upper);
    let lower = |access: &Access| least.map_or(Ok(()), |least| access.write(min, least));
    let upper = |access: &Access| most.map_or(Ok(()), |most| access.write(max, most));
    if rises {
        upper(access)?;
        lower(access)
    } else {
        lower(access)?;
        upper(access)
    }
}

/// The files that a program must write, with their contents, if it does not know the current limits. The upper limit is
/// written both first and last, so that the kernel always accepts the lower limit.
pub(super) fn limit_files(wanted: &Value, min: String, max: String) -> Vec<(String, String)> {
    let upper = wanted.field("max").map(|most| (max, most.to_owned()));
    let lower = wanted.field("min").map(|least| (min, least.to_owned()));
    [upper.clone(), lower, upper].into_iter().flatten().collect()
}

/// Checks that the fields `min` and `max` are whole numbers, and that `min` is not above `max`.
pub(super) fn check_limits(what: &str, value: &Value) -> Result<(), Error> {
    let wrong = || Error::invalid(what, format!("{value}: expected min and max as whole numbers, min <= max"));
    let fields = value.as_fields().filter(|fields| !fields.is_empty()).ok_or_else(wrong)?;
    let number = |name: &str| fields.get(name).map(|text| text.parse::<u64>().map_err(|_| wrong())).transpose();
    let (least, most) = (number("min")?, number("max")?);
    let known = fields.keys().all(|field| field == "min" || field == "max");
    if known && least.zip(most).is_none_or(|(least, most)| least <= most) { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::access::{Act, Gate};
    use crate::knob::{Knob, Restored, Theirs, Verdict};
    use crate::testing::Folder;
    use std::sync::{Arc, Mutex};

    fn policy(governor: &str) -> Folder {
        let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy2/{name}");
        let folder = Folder::new(&[]);
        for (name, text) in [
            ("scaling_governor", governor),
            ("scaling_setspeed", "<unsupported>"),
            ("scaling_available_governors", "performance powersave userspace"),
            ("scaling_min_freq", "800000"),
            ("scaling_max_freq", "2000000"),
            ("cpuinfo_min_freq", "800000"),
            ("cpuinfo_max_freq", "3500000"),
        ] {
            folder.put(&file(name), &format!("{text}\n"));
        }
        folder
    }

    #[derive(Default)]
    struct Writes(Mutex<Vec<String>>);
    impl Gate for Writes {
        fn before(&self, act: &Act) {
            if act.operation == "rename" {
                self.0.lock().unwrap().push(act.object.rsplit('/').next().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn a_limit_above_what_the_hardware_has_now_is_restored() {
        let folder = policy("powersave");
        let access = folder.access();
        let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy2/{name}");
        folder.put(&file("scaling_max_freq"), "3500000\n");
        let knob = Knob(Limits::new(2));
        let change = knob.set(&access, &Value::fields([("max", 1_200_000)])).unwrap();
        // Without turbo, the hardware's highest frequency is lower.
        folder.put(&file("cpuinfo_max_freq"), "2100000\n");
        knob.0.check_back(&access, &change.before).unwrap();
        assert!(knob.0.check(&access, &change.before).is_err(), "nobody can ask for it now");
        knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
        assert_eq!(folder.read(&file("scaling_max_freq")), "3500000\n");
    }

    #[test]
    fn a_set_speed_belongs_to_its_governor() {
        let folder = policy("powersave");
        let access = folder.access();
        let knob = Knob(Governor::new(2));
        assert_eq!(knob.read(&access).unwrap(), Some(Value::text("powersave")), "an unsupported speed is no speed");
        let change = knob.set(&access, &Governor::set_speed(Hertz::new(800_000_000))).unwrap();
        assert_eq!(change.verdict, Verdict::AsWanted { now: Value::text("userspace 800000") });
        let restored = knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
        assert_eq!(restored, Restored::Restored);
        assert_eq!(knob.read(&access).unwrap(), Some(Value::text("powersave")));
    }

    #[test]
    fn speeds_are_listed_or_bounded() {
        let folder = policy("powersave");
        let access = folder.access();
        let range = Speeds { least: 800_000, most: 3_500_000, available: Vec::new(), nominal: None };
        assert_eq!(speeds(&access, 2).unwrap(), Some(range.clone()));
        assert_eq!(speeds(&access, 3).unwrap(), None);
        let put = |name: &str, text: &str| folder.put(&format!("sys/devices/system/cpu/cpufreq/policy2/{name}"), text);
        put("base_frequency", "2100000\n");
        assert_eq!(speeds(&access, 2).unwrap(), Some(Speeds { nominal: Some(2_100_000), ..range }));
        put("scaling_available_frequencies", "3500000 3499000 800000 \n");
        let listed = speeds(&access, 2).unwrap().unwrap();
        assert_eq!((&listed.available[..], listed.nominal), (&[800_000, 3_499_000, 3_500_000][..], Some(3_499_000)));
        put("scaling_available_frequencies", "fast\n");
        assert!(speeds(&access, 2).is_err());
        put("scaling_cur_freq", "1200000\n");
        put("bios_limit", "2200000\n");
        assert_eq!(current_speed(&access, 2).unwrap(), Some(1_200_000));
        assert_eq!((firmware_limit(&access, 2).unwrap(), firmware_limit(&access, 3).unwrap()), (Some(2_200_000), None));
    }

    #[test]
    fn governors_that_are_not_there_are_named() {
        let folder = policy("powersave");
        let error = Knob(Governor::new(2)).set(&folder.access(), &Value::text("ondemand")).unwrap_err();
        assert!(error.to_string().contains("performance powersave userspace"), "{error}");
        assert!(Knob(Governor::new(2)).set(&folder.access(), &Value::text("performance 800000")).is_err());
        assert!(Knob(Governor::new(7)).set(&folder.access(), &Value::text("performance")).unwrap_err().is_absent());
    }

    #[test]
    fn limits_never_cross() {
        let folder = policy("powersave");
        for (min, max, order) in [
            (2_500_000, 3_000_000, ["scaling_max_freq", "scaling_min_freq"]),
            (900_000, 1_000_000, ["scaling_min_freq", "scaling_max_freq"]),
        ] {
            let writes = Arc::new(Writes::default());
            let access = folder.access().with_gate(writes.clone());
            let wanted = Limits::value(Hertz::new(min * 1_000), Hertz::new(max * 1_000));
            assert!(Knob(Limits::new(2)).set(&access, &wanted).unwrap().verdict.is_good());
            assert_eq!(*writes.0.lock().unwrap(), order);
        }
    }

    #[test]
    fn limits_are_those_of_the_hardware() {
        let folder = policy("powersave");
        let access = folder.access();
        let error = Knob(Limits::new(2)).set(&access, &Value::fields([("max", 4_000_000)])).unwrap_err();
        assert!(error.to_string().contains("3500000"), "{error}");
        assert!(Knob(Limits::new(2)).set(&access, &Value::fields([("min", 2), ("max", 1)])).is_err());
        assert!(Knob(Limits::new(2)).set(&access, &Value::fields([("mux", 900_000)])).is_err());
    }

    #[test]
    fn a_firmware_limit_is_named() {
        let folder = policy("performance");
        folder.put("sys/devices/system/cpu/cpufreq/policy2/bios_limit", "1800000\n");
        let knob = Knob(Limits::new(2));
        let verdict = knob.verify(&folder.access(), &Value::fields([("max", 3_500_000)]), None).unwrap();
        let Verdict::Otherwise { why: Some(why), .. } = verdict else { panic!("{verdict:?}") };
        assert!(why.contains("1800000"), "{why}");
    }

    /// The driver shows the requested limits even if the firmware's limit is lower.
    #[test]
    fn a_fixed_frequency_above_the_firmwares_limit_is_no_success() {
        let folder = policy("performance");
        let bios_limit = "sys/devices/system/cpu/cpufreq/policy2/bios_limit";
        folder.put(bios_limit, "1800000\n");
        let set = |min: u64, max: u64| {
            let wanted = Limits::value(Hertz::new(min * 1_000_000), Hertz::new(max * 1_000_000));
            Knob(Limits::new(2)).set(&folder.access(), &wanted).unwrap().verdict
        };
        let Verdict::Otherwise { why: Some(why), .. } = set(2_500, 2_500) else { panic!("called a success") };
        assert!(why.contains("limits the frequency to 1800000 kHz"), "{why}");
        assert!(set(1_800, 1_800).is_good() && set(800, 3_500).is_good(), "a range is no promise of its upper end");
        folder.put(bios_limit, "3500000\n");
        assert!(set(2_500, 2_500).is_good());
    }

    /// A value that Apus set still counts as set by Apus after the firmware limited it.
    #[test]
    fn what_the_firmware_holds_back_is_still_ours() {
        let folder = policy("userspace");
        let access = folder.access();
        let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy2/{name}");
        let before = Value::text("performance");
        let ours = Governor::set_speed(Hertz::new(2_000_000_000));
        let restore = |speed: &str, limit: &str| {
            folder.put(&file("scaling_governor"), "userspace\n");
            folder.put(&file("scaling_setspeed"), speed);
            folder.put(&file("bios_limit"), limit);
            Knob(Governor::new(2)).restore(&access, &before, Some(&ours), Theirs::Keep).unwrap()
        };
        assert_eq!(restore("1800000\n", "1800000\n"), Restored::Restored);
        assert!(matches!(restore("1800000\n", "3500000\n"), Restored::Theirs { .. }), "nothing held it back");
        assert!(matches!(restore("2000000\n", "1800000\n"), Restored::Restored));
        folder.put(&file("bios_limit"), "1800000\n");
        folder.put(&file("scaling_max_freq"), "1800000\n");
        let limits = Knob(Limits::new(2));
        let now = limits.read(&access).unwrap().unwrap();
        let held = |min: u64, max: u64| limits.is_ours(&access, &now, &Value::fields([("min", min), ("max", max)]));
        assert!(held(800_000, 2_500_000).unwrap());
        assert!(!held(800_000, 1_500_000).unwrap() && !held(900_000, 2_500_000).unwrap());
    }

    #[test]
    fn a_governor_that_the_firmware_overrules_is_no_success() {
        let folder = policy("powersave");
        let access = folder.access();
        let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy2/{name}");
        folder.put(&file("scaling_max_freq"), "1800000\n");
        folder.put(&file("bios_limit"), "1800000\n");
        let set = |wanted: &str| Knob(Governor::new(2)).set(&access, &Value::text(wanted)).unwrap().verdict;
        let Verdict::Otherwise { now, why: Some(why) } = set("performance") else { panic!("called a success") };
        assert!(
            now == Value::text("performance") && why.contains("limits the frequency to 1800000 kHz"),
            "{now} {why}"
        );
        assert!(!set("userspace 2000000").is_good());
        assert!(set("userspace 1800000").is_good() && set("powersave").is_good());
        // A request below the firmware's limit is fulfilled.
        folder.put(&file("scaling_max_freq"), "1200000\n");
        assert!(set("performance").is_good());
        folder.put(&file("bios_limit"), "3500000\n");
        folder.put(&file("scaling_max_freq"), "3500000\n");
        assert!(Knob(Governor::new(2)).verify(&access, &Value::text("performance"), None).unwrap().is_good());
    }
}

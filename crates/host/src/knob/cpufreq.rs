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
    /// The energy-performance preferences that the driver lists, if it takes no numbers. Empty if it takes numbers.
    pub epp_words: Vec<String>,
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
        let driver = access.line(&file(policy, "scaling_driver"))?;
        // drivers/cpufreq/amd-pstate.c, `store_energy_performance_preference`, takes only the words that it lists.
        let epp_words = match driver.as_deref() {
            Some("amd-pstate-epp") => access.line(&file(policy, "energy_performance_available_preferences"))?,
            _ => None,
        };
        Ok(Self {
            policy,
            cpus: policy_cpus(access, policy)?,
            driver,
            nominal: below_boost
                .or(speeds(access, policy)?.and_then(|speeds| speeds.nominal))
                .map(|khz| Hertz::new(khz * 1_000)),
            frequencies: frequencies.into_iter().map(|khz| Hertz::new(khz * 1_000)).collect(),
            hardware: Limits::new(policy)
                .hardware(access)?
                .map(|(min, max)| (Hertz::new(min * 1_000), Hertz::new(max * 1_000))),
            has_userspace: governors.split_whitespace().any(|word| word == "userspace"),
            has_epp: access.exists(&file(policy, "energy_performance_preference")),
            epp_words: epp_words.unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            transition: transition.map(units::Nanos::from_nanos),
        })
    }

    /// The highest frequency that the domain allows now, and what limits it, in words. `None` if it is not known.
    pub fn ceiling(&self, access: &Access) -> Result<Option<(Hertz, &'static str)>, Error> {
        Ok(most_now(access, self.policy)?.map(|(khz, by)| (Hertz::new(khz * 1_000), by)))
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

    /// Under the governor `userspace`, the kernel changes the speed by itself: `scaling_setspeed` shows a lower one while
    /// a limit is lower, and the present one after a suspend or after all CPUs of the policy were offline
    /// (drivers/cpufreq/cpufreq_userspace.c, `cpufreq_userspace_policy_limits` and `cpufreq_userspace_policy_start`).
    /// So the governor alone tells whether somebody else has changed the setting.
    fn shown(&self, ours: &Value, now: &Value) -> Value {
        let is_userspace = |value: &Value| value.as_text().is_some_and(|text| text.starts_with("userspace"));
        if is_userspace(ours) && is_userspace(now) { now.clone() } else { ours.clone() }
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

    fn explain(&self, access: &Access, wanted: &Value, now: &Value) -> Option<String> {
        let most = now.field("max").filter(|_| now.fields_of(wanted) == self.shown(wanted, now));
        let held = |most| format!("a cooling device, the firmware or the driver allows at most {most} kHz now");
        limited(access, self.policy).or_else(|| most.map(held))
    }

    /// The kernel keeps the requested limits, and shows them lowered to the lowest upper limit that anybody requests: a
    /// cooling device, the firmware (_PPC), or a driver whose turbo is off (drivers/cpufreq/cpufreq.c,
    /// `cpufreq_set_policy`). Somebody else's lower upper limit looks the same.
    fn shown(&self, ours: &Value, now: &Value) -> Value {
        let number = |value: &Value, field: &str| value.field(field).and_then(|text| text.parse::<u64>().ok());
        let most = number(now, "max").filter(|most| number(ours, "max").is_none_or(|ours| *most <= ours));
        match (ours.as_fields(), most) {
            (Some(fields), Some(most)) => Value::fields(fields.iter().map(|(field, text)| {
                let is_above = text.parse::<u64>().is_ok_and(|ours| ours > most);
                (field.clone(), if is_above { most.to_string() } else { text.clone() })
            })),
            _ => ours.clone(),
        }
    }

    fn files(&self, _: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        Ok(limit_files(wanted, file(self.policy, "scaling_min_freq"), file(self.policy, "scaling_max_freq")))
    }
}

/// The maximum frequency that a policy allows now, in kHz, and what limits it, in words. It changes at run time: the
/// driver lowers it while turbo is off (`cpuinfo_max_freq`), and the firmware at any time (`bios_limit`). `None` if
/// neither is known.
pub fn most_now(access: &Access, policy: u32) -> Result<Option<(u64, &'static str)>, Error> {
    let most = access.number(&file(policy, "cpuinfo_max_freq"))?.map(|khz| (khz, "the driver"));
    let limit = access.number(&file(policy, "bios_limit"))?.map(|khz| (khz, "the firmware"));
    Ok(most.into_iter().chain(limit).min_by_key(|(khz, _)| *khz))
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
        assert_eq!(most_now(&access, 3).unwrap(), None);
        assert_eq!(most_now(&access, 2).unwrap(), Some((2_200_000, "the firmware")));
        put("cpuinfo_max_freq", "2100000\n");
        assert_eq!(most_now(&access, 2).unwrap(), Some((2_100_000, "the driver")), "turbo is off");
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

    /// A suspend, or an offline and online of all CPUs, leaves another speed under the governor `userspace`; a limit
    /// lowers it. Nobody but Apus has set the governor.
    #[test]
    fn a_governor_is_ours_at_any_speed() {
        let folder = policy("userspace");
        let access = folder.access();
        let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy2/{name}");
        let ours = Governor::set_speed(Hertz::new(2_000_000_000));
        let restore = |before: &str, governor: &str, speed: &str| {
            folder.put(&file("scaling_governor"), governor);
            folder.put(&file("scaling_setspeed"), speed);
            Knob(Governor::new(2)).restore(&access, &Value::text(before), Some(&ours), Theirs::Keep).unwrap()
        };
        for speed in ["1800000\n", "2000000\n", "3100000\n"] {
            assert_eq!(restore("performance", "userspace\n", speed), Restored::Restored);
            assert_eq!(folder.read(&file("scaling_governor")), "performance\n");
        }
        assert!(matches!(restore("performance", "powersave\n", "<unsupported>\n"), Restored::Theirs { .. }));
        assert_eq!(restore("userspace 1800000", "userspace\n", "1800000\n"), Restored::Restored);
    }

    /// A cooling device, the firmware or a driver whose turbo is off lowers both limits. They are still ours, and what
    /// Apus requested must not return when that ends.
    #[test]
    fn limits_that_the_kernel_lowers_are_still_ours() {
        let folder = policy("performance");
        let access = folder.access();
        let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy2/{name}");
        let knob = Knob(Limits::new(2));
        let value = |min: u64, max: u64| Value::fields([("min", min), ("max", max)]);
        let put = |min: u64, max: u64| {
            folder.put(&file("scaling_min_freq"), &format!("{min}\n"));
            folder.put(&file("scaling_max_freq"), &format!("{max}\n"));
        };
        let restore = |before: &Value, ours: &Value| {
            let restored = knob.restore(&access, before, Some(ours), Theirs::Keep).unwrap();
            let now = |name: &str| folder.read(&file(name)).trim().parse::<u64>().unwrap();
            (restored, now("scaling_min_freq"), now("scaling_max_freq"))
        };
        let before = value(800_000, 3_500_000);
        for min in [800_000, 3_000_000] {
            put(min.min(2_400_000), 2_400_000);
            let restored = restore(&before, &value(min, 3_000_000));
            assert_eq!(restored, (Restored::Restored, 800_000, 3_500_000), "{min}");
        }
        // The lowered limit happens to be the original one.
        put(2_400_000, 2_400_000);
        let writes = Arc::new(Writes::default());
        let restored = Knob(Limits::new(2)).restore(
            &folder.access().with_gate(writes.clone()),
            &value(800_000, 2_400_000),
            Some(&value(3_000_000, 3_000_000)),
            Theirs::Keep,
        );
        assert_eq!(restored.unwrap(), Restored::Restored);
        assert_eq!(*writes.0.lock().unwrap(), ["scaling_min_freq", "scaling_max_freq"]);
        // Somebody else's limits: a higher one, and a lower limit that is neither ours nor the upper one.
        put(3_100_000, 3_100_000);
        assert!(matches!(
            restore(&before, &value(3_000_000, 3_000_000)),
            (Restored::Theirs { .. }, 3_100_000, 3_100_000)
        ));
        put(1_000_000, 2_400_000);
        let restored = restore(&before, &value(3_000_000, 3_000_000));
        assert!(matches!(restored, (Restored::Theirs { .. }, 1_000_000, 3_500_000)), "{restored:?}");
    }

    /// The kernel may carry out a change of the limits after the process was killed.
    #[test]
    fn limits_in_doubt_are_written_even_if_they_look_unchanged() {
        let folder = policy("performance");
        let writes = Arc::new(Writes::default());
        let access = folder.access().with_gate(writes.clone());
        let before = Value::fields([("min", 800_000), ("max", 2_000_000)]);
        assert_eq!(Knob(Limits::new(2)).put_back(&access, &before).unwrap(), Restored::Restored);
        assert_eq!(*writes.0.lock().unwrap(), ["scaling_min_freq", "scaling_max_freq"]);
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

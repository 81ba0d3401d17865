//! The state of the host that every result records.
//!
//! Provisional: `Facts::read` of the crate `host` will replace this module. After that, `tester` will no longer read
//! /proc or /sys itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value, or why it is unknown. An unknown value is never 0.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading<T> {
    /// The value; null if unknown.
    pub value: Option<T>,
    /// Why the value is unknown; null if it is known.
    pub unknown_because: Option<String>,
}

impl<T> Reading<T> {
    /// A known value.
    pub fn known(value: T) -> Self {
        Self { value: Some(value), unknown_because: None }
    }
    /// An unknown value, with the reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self { value: None, unknown_because: Some(why.into()) }
    }
    /// The given value, or an unknown value with the reason `why`.
    pub fn or_unknown(value: Option<T>, why: &str) -> Self {
        value.map_or_else(|| Self::unknown(why), Self::known)
    }
}

impl<T> Default for Reading<T> {
    /// An unknown value. It stands for a field that did not exist when the document was written.
    fn default() -> Self {
        Self::unknown("not in the document")
    }
}

impl<T> From<Result<T, String>> for Reading<T> {
    fn from(result: Result<T, String>) -> Self {
        result.map_or_else(Self::unknown, Self::known)
    }
}

/// The state of the host that affects latencies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostState {
    /// CPU model from /proc/cpuinfo.
    pub cpu_model: Reading<String>,
    /// Online CPUs as a list, such as `0-1`.
    pub cpus_online: Reading<String>,
    /// Release of the running kernel.
    pub kernel: Reading<String>,
    /// Whether the machine is virtual: the hypervisor sets bit 31 of ECX in CPUID leaf 1.
    pub virtualised: Reading<bool>,
    /// The frequency governors in use, each listed once even if several CPUs use it.
    pub governors: Reading<Vec<String>>,
    /// The cpuidle driver, and the enabled idle states of CPU 0.
    pub c_states: Reading<CStates>,
    /// CPUs isolated from the scheduler (`isolcpus=`), as a list; empty if there are none.
    pub isolated_cpus: Reading<String>,
    /// CPUs whose periodic tick can stop (`nohz_full=`), as a list; empty if there are none.
    pub nohz_full_cpus: Reading<String>,
    /// Microcode revision of CPU 0.
    #[serde(default)]
    pub microcode: Reading<String>,
    /// Mitigation of each processor vulnerability, such as `meltdown: Mitigation: PTI`. Vulnerabilities that do not
    /// affect the processor are left out.
    #[serde(default)]
    pub mitigations: Reading<Vec<String>>,
    /// CPUs that new interrupts may use (/proc/irq/default_smp_affinity), as a hexadecimal mask.
    #[serde(default)]
    pub irq_affinity: Reading<String>,
    /// Scheduling class of the tester's thread.
    pub scheduling_class: Reading<SchedulingClass>,
}

/// The idle states of a CPU.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CStates {
    /// Name of the cpuidle driver, such as `intel_idle`; `none` if there is no driver.
    pub driver: String,
    /// Names of the enabled states of CPU 0, the shallowest first.
    pub enabled: Vec<String>,
}

/// How a thread is scheduled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulingClass {
    /// `other`, `fifo`, `rr`, `batch`, `idle`, `deadline` or `ext`.
    pub policy: String,
    /// Real-time priority; 0 outside the real-time classes.
    pub rt_priority: u32,
}

impl HostState {
    /// Reads the state from the files below `root` (`/`, or the folder of a recorded host). The scheduling class is
    /// that of thread `tid` of process `pid`.
    pub fn read(root: &Path, pid: u32, tid: u32) -> Self {
        let cpuinfo = text(root, "proc/cpuinfo");
        Self {
            microcode: cpuinfo.clone().and_then(|info| field(&info, "microcode").map(str::to_owned)).into(),
            mitigations: mitigations(root).into(),
            irq_affinity: text(root, "proc/irq/default_smp_affinity").into(),
            cpu_model: cpuinfo.clone().and_then(|info| field(&info, "model name").map(str::to_owned)).into(),
            cpus_online: text(root, "sys/devices/system/cpu/online").into(),
            kernel: text(root, "proc/sys/kernel/osrelease").into(),
            virtualised: cpuinfo
                .and_then(|info| field(&info, "flags").map(|f| f.split(' ').any(|flag| flag == "hypervisor")))
                .into(),
            governors: governors(root).into(),
            c_states: c_states(root).into(),
            isolated_cpus: text(root, "sys/devices/system/cpu/isolated").into(),
            nohz_full_cpus: text(root, "sys/devices/system/cpu/nohz_full").into(),
            scheduling_class: scheduling_class(root, pid, tid).into(),
        }
    }
}

/// The content of the file `path` below `root`, without white space at either end, or why the file cannot be read.
pub fn text(root: &Path, path: &str) -> Result<String, String> {
    let path = root.join(path);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The value of the first line `NAME : VALUE` in /proc/cpuinfo.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Result<&'a str, String> {
    let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let found = pairs.find(|(key, _)| key.trim() == name);
    found.map(|(_, value)| value.trim()).ok_or_else(|| format!("proc/cpuinfo has no \"{name}\" on this architecture"))
}

fn mitigations(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("sys/devices/system/cpu/vulnerabilities");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found = Vec::new();
    for name in entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok()) {
        let says = text(&folder, &name)?;
        if says != "Not affected" {
            found.push(format!("{name}: {says}"));
        }
    }
    found.sort();
    Ok(found)
}

fn governors(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("sys/devices/system/cpu");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let found: BTreeSet<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| text(&entry.path(), "cpufreq/scaling_governor").ok())
        .collect();
    if found.is_empty() {
        return Err("no CPU has cpufreq/scaling_governor: the kernel does not control the frequency".into());
    }
    Ok(found.into_iter().collect())
}

fn c_states(root: &Path) -> Result<CStates, String> {
    let driver = text(root, "sys/devices/system/cpu/cpuidle/current_driver")?;
    let mut enabled = Vec::new();
    for state in 0.. {
        let folder = format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}");
        if !root.join(&folder).exists() {
            break;
        }
        if text(root, &format!("{folder}/disable"))? == "0" {
            enabled.push(text(root, &format!("{folder}/name"))?);
        }
    }
    if enabled.is_empty() && driver == "none" {
        return Err("no cpuidle driver: the hypervisor or the firmware controls idle states".into());
    }
    Ok(CStates { driver, enabled })
}

/// Parses fields 40 and 41 of /proc/PID/task/TID/stat (proc_pid_stat(5)); policy names are as in sched(7).
fn scheduling_class(root: &Path, pid: u32, tid: u32) -> Result<SchedulingClass, String> {
    let path = format!("proc/{pid}/task/{tid}/stat");
    let stat = text(root, &path)?;
    // The name of the thread, field 2, is in parentheses, and may itself contain parentheses and spaces.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let number = |n: usize| rest.split_ascii_whitespace().nth(n - 3).and_then(|word| word.parse::<u32>().ok());
    let (Some(rt_priority), Some(policy)) = (number(40), number(41)) else {
        return Err(format!("{path} has no fields 40 and 41"));
    };
    let policy = match policy {
        0 => "other",
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        7 => "ext",
        other => return Err(format!("{path}: unknown scheduling policy {other}")),
    };
    Ok(SchedulingClass { policy: policy.into(), rt_priority })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_host_below_a_folder() {
        let root = std::env::temp_dir().join(format!("apus-host-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
        write("sys/devices/system/cpu/vulnerabilities/spectre_v1", "Mitigation: usercopy barriers\n");
        write("proc/irq/default_smp_affinity", "3\n");
        write("proc/cpuinfo", "processor\t: 0\nmodel name\t: X 1\nmicrocode\t: 0x2b\nflags\t\t: fpu hypervisor\n");
        write("proc/sys/kernel/osrelease", "6.18\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
        write("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
        for (state, name, disable) in [(0, "POLL", "0"), (1, "C1", "0"), (2, "C6", "1")] {
            write(&format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}/name"), name);
            write(&format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}/disable"), disable);
        }
        let fields: Vec<String> = (3..=52).map(|n| if n == 41 { "1" } else { "50" }.to_owned()).collect();
        write("proc/7/task/8/stat", &format!("8 (a) b) {}\n", fields.join(" ")));
        let state = HostState::read(&root, 7, 8);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(state.cpu_model, Reading::known("X 1".into()));
        assert_eq!(state.microcode, Reading::known("0x2b".into()));
        assert_eq!(
            state.mitigations.value.as_deref(),
            Some(&["spectre_v1: Mitigation: usercopy barriers".to_owned()][..])
        );
        assert_eq!(state.irq_affinity, Reading::known("3".into()));
        assert_eq!(state.virtualised, Reading::known(true));
        assert_eq!(state.governors.value.unwrap(), ["performance"]);
        assert_eq!(state.c_states.value.unwrap().enabled, ["POLL", "C1"]);
        assert_eq!(state.scheduling_class.value.unwrap(), SchedulingClass { policy: "fifo".into(), rt_priority: 50 });
        assert!(state.isolated_cpus.unknown_because.unwrap().contains("isolated"));
    }

    #[test]
    fn nothing_is_unknown_without_a_reason() {
        let state = HostState::read(Path::new("/nonexistent"), 1, 1);
        let json = serde_json::to_value(&state).unwrap();
        // An older document, from before these fields existed.
        let mut earlier = json.clone();
        for name in ["microcode", "mitigations", "irq_affinity"] {
            earlier.as_object_mut().unwrap().remove(name).unwrap();
        }
        let earlier: HostState = serde_json::from_value(earlier).unwrap();
        assert!(earlier.microcode.unknown_because.unwrap().contains("not in the document"));
        for (name, reading) in json.as_object().unwrap() {
            assert!(reading["value"].is_null() && reading["unknown_because"].is_string(), "{name}");
        }
    }
}

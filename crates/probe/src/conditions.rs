//! The state of the measuring thread and of the host, as far as it affects latency, read at the time of the
//! measurement.
//!
//! The JSON document contains the state of the host ([`tester::host::HostState`]: CPU model, kernel, governors,
//! C-states, isolation) only once. This module contains the conditions of a single measurement.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::{HostState, Reading, SchedulingClass, text};

use crate::mark::{Mark, MarkKind};

/// The conditions of one measurement. They are read back from the host, not copied from the settings.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// The measured CPUs.
    pub cpus: Vec<usize>,
    /// Scheduling class and priority of the first measuring thread.
    pub scheduling: Reading<SchedulingClass>,
    /// Timer slack of the first measuring thread, in nanoseconds. The kernel ignores timer slack in the real-time
    /// classes.
    pub timer_slack_ns: Reading<u64>,
    /// Whether the memory of the measuring process was locked (mlockall(2)).
    pub memory_locked: Reading<bool>,
    /// Lowest exit latency limit that any process requests through /dev/cpu_dma_latency, in microseconds.
    pub cpu_dma_latency_us: Reading<i32>,
    /// Time that real-time threads may use in each period of `sched_rt_period_us`, in microseconds; -1 means no limit.
    pub sched_rt_runtime_us: Reading<i64>,
    /// Length of the period for which `sched_rt_runtime_us` limits real-time threads, in microseconds.
    pub sched_rt_period_us: Reading<i64>,
    /// Clock source of the kernel, such as `tsc`.
    pub clocksource: Reading<String>,
    /// Whether simultaneous multithreading (SMT) is active.
    pub smt_active: Reading<bool>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_hugepages: Reading<String>,
    /// Load averages at the start of the measurement, as in /proc/loadavg.
    pub load_average: Reading<String>,
    /// Load that was generated during the measurement: `none`, `cpu`, `memory`, `network` or `io`.
    pub load: String,
    /// Steal time of the measured CPUs during the run, in milliseconds, in steps of 10 ms per CPU: the CPUs had work,
    /// but the hypervisor ran something else.
    pub steal_ms: Reading<u64>,
    /// Whether the host is a virtual machine whose hypervisor announces itself.
    pub virtualised: Reading<bool>,
}

impl Conditions {
    /// Reads the conditions below `root` for the calling thread, which measures on `cpus`.
    pub fn of_this_thread(root: &Path, cpus: &[usize], memory_locked: &Reading<bool>, load: &str) -> Self {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let state = HostState::read(root, pid, tid);
        let slack = rustix::thread::current_timer_slack().map_err(|e| e.to_string());
        let selected = |text: String| {
            let chosen = text.split(['[', ']']).nth(1).map(str::to_owned);
            chosen.ok_or_else(|| format!("no [choice] in {text:?}"))
        };
        Self {
            cpus: cpus.to_vec(),
            scheduling: state.scheduling_class,
            timer_slack_ns: slack.into(),
            memory_locked: memory_locked.clone(),
            cpu_dma_latency_us: dma_latency(root).into(),
            sched_rt_runtime_us: number(root, "proc/sys/kernel/sched_rt_runtime_us").into(),
            sched_rt_period_us: number(root, "proc/sys/kernel/sched_rt_period_us").into(),
            clocksource: text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource").into(),
            smt_active: number(root, "sys/devices/system/cpu/smt/active").map(|n| n != 0).into(),
            transparent_hugepages: text(root, "sys/kernel/mm/transparent_hugepage/enabled").and_then(selected).into(),
            load_average: text(root, "proc/loadavg").into(),
            load: load.into(),
            steal_ms: Reading::unknown("the run has not ended"),
            virtualised: state.virtualised,
        }
    }

    /// Creates conditions in which only the CPUs are known. `why` says why everything else is unknown.
    pub fn unknown(cpus: Vec<usize>, why: &str) -> Self {
        Self {
            cpus,
            scheduling: Reading::unknown(why),
            timer_slack_ns: Reading::unknown(why),
            memory_locked: Reading::unknown(why),
            cpu_dma_latency_us: Reading::unknown(why),
            sched_rt_runtime_us: Reading::unknown(why),
            sched_rt_period_us: Reading::unknown(why),
            clocksource: Reading::unknown(why),
            smt_active: Reading::unknown(why),
            transparent_hugepages: Reading::unknown(why),
            load_average: Reading::unknown(why),
            load: "unknown".into(),
            steal_ms: Reading::unknown(why),
            virtualised: Reading::unknown(why),
        }
    }

    /// The conditions without those of the calling thread, which does not measure. `why` says why the measuring
    /// thread's are unknown.
    pub(crate) fn of_another_thread(self, why: &str) -> Self {
        Self { scheduling: Reading::unknown(why), timer_slack_ns: Reading::unknown(why), ..self }
    }

    /// Whether the measuring thread is in a real-time class.
    pub fn is_real_time(&self) -> bool {
        self.scheduling.value.as_ref().is_some_and(|class| class.rt_priority > 0)
    }

    /// Returns the marks that these conditions add to a result, such as
    /// [`MarkKind::VirtualMachine`].
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        match self.virtualised.value {
            Some(true) => marks.push(Mark::new(
                MarkKind::VirtualMachine,
                "measured in a virtual machine: every figure includes the scheduling of its host, so none describes the hardware; compare only with runs in the same machine",
            )),
            Some(false) => {}
            None => marks.push(Mark::new(
                MarkKind::VirtualMachine,
                format!(
                    "unknown whether this is a virtual machine ({}): no figure may be taken as one of the hardware",
                    self.virtualised.unknown_because.as_deref().unwrap_or("no reason given")
                ),
            )),
        }
        if let (true, Some(runtime), Some(period)) =
            (self.is_real_time(), self.sched_rt_runtime_us.value, self.sched_rt_period_us.value)
            && (0..period).contains(&runtime)
        {
            marks.push(Mark::new(
                MarkKind::RealTimeThrottling,
                format!(
                    "real-time threads get at most {runtime} us of every {period} us when others wait for the CPU \
                     (kernel.sched_rt_runtime_us): a thread that spins loses up to {} ms a second, one that \
                     mostly sleeps loses nothing",
                    (period - runtime) * 1_000 / period.max(1)
                ),
            ));
        }
        marks
    }
}

/// Steal time of `cpus` since boot in ms: field 8 of their lines in /proc/stat, in units of 1/USER_HZ = 10 ms
/// (proc_stat(5)).
pub fn steal_ms(root: &Path, cpus: &[usize]) -> Result<u64, String> {
    const TICK_MS: u64 = 10;
    let stat = text(root, "proc/stat")?;
    let mut ticks = 0;
    for cpu in cpus {
        let name = format!("cpu{cpu}");
        let line = stat.lines().find(|line| line.split(' ').next() == Some(&name));
        let field = line.and_then(|line| line.split_ascii_whitespace().nth(8)).and_then(|n| n.parse::<u64>().ok());
        ticks += field.ok_or_else(|| format!("/proc/stat has no steal time of CPU {cpu}"))?;
    }
    Ok(ticks * TICK_MS)
}

fn number(root: &Path, path: &str) -> Result<i64, String> {
    let text = text(root, path)?;
    text.parse().map_err(|_| format!("{path} is not a number: {text:?}"))
}

/// Reads the effective exit latency limit, a signed 32-bit number in the host's byte order (kernel documentation,
/// power/pm_qos_interface).
fn dma_latency(root: &Path) -> Result<i32, String> {
    use std::io::Read as _;
    let path = root.join("dev/cpu_dma_latency");
    let mut value = [0; 4];
    let read = fs::File::open(&path).and_then(|mut file| file.read_exact(&mut value));
    read.map(|()| i32::from_ne_bytes(value)).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Root(PathBuf);
    impl Root {
        fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
            let root = std::env::temp_dir().join(format!("apus-conditions-{name}-{}", std::process::id()));
            for (path, content) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self(root)
        }
    }
    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read(root: &Path) -> Conditions {
        Conditions::of_this_thread(root, &[1], &Reading::known(true), "none")
    }

    #[test]
    fn what_is_absent_is_unknown_with_its_reason() {
        let conditions = read(Path::new("/nonexistent"));
        let json = serde_json::to_value(&conditions).unwrap();
        for name in ["cpu_dma_latency_us", "sched_rt_runtime_us", "clocksource", "smt_active", "virtualised"] {
            assert!(json[name]["value"].is_null() && json[name]["unknown_because"].is_string(), "{name}");
        }
        assert!(conditions.marks().iter().any(|m| m.kind == MarkKind::VirtualMachine && m.text.contains("unknown")));
    }

    #[test]
    fn a_guest_and_a_throttled_thread_are_marked() {
        let root = Root::new(
            "marks",
            &[
                ("proc/cpuinfo", b"flags\t\t: fpu hypervisor\n"),
                ("proc/sys/kernel/sched_rt_runtime_us", b"950000\n"),
                ("proc/sys/kernel/sched_rt_period_us", b"1000000\n"),
                ("dev/cpu_dma_latency", &20i32.to_ne_bytes()),
                ("sys/kernel/mm/transparent_hugepage/enabled", b"always [madvise] never\n"),
            ],
        );
        let mut conditions = read(&root.0);
        assert_eq!(conditions.cpu_dma_latency_us.value, Some(20));
        assert_eq!(conditions.transparent_hugepages.value.as_deref(), Some("madvise"));
        conditions.scheduling = Reading::known(SchedulingClass { policy: "fifo".into(), rt_priority: 95 });
        let kinds: Vec<MarkKind> = conditions.marks().iter().map(|mark| mark.kind).collect();
        assert_eq!(kinds, [MarkKind::VirtualMachine, MarkKind::RealTimeThrottling]);
        assert!(conditions.marks()[1].text.contains("50 ms a second"));
        conditions.sched_rt_runtime_us = Reading::known(-1);
        assert_eq!(conditions.marks().len(), 1);
    }

    #[test]
    fn steal_of_the_named_cpus() {
        let root =
            Root::new("steal", &[("proc/stat", b"cpu  1 2 3\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 1 1 1 1 1 1 30 0 0\n")]);
        assert_eq!(steal_ms(&root.0, &[0, 1]), Ok(380));
        assert!(steal_ms(&root.0, &[7]).is_err());
    }
}

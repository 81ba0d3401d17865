//! The kernel: version, configuration, modules, messages, tracing and clock.

use std::collections::BTreeMap;
use std::fmt;

use super::Fact;

/// The running kernel.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kernel {
    /// `uname -r` (from /proc/sys/kernel/osrelease, /proc/version, or the boot image's name).
    pub release: Fact<String>,
    /// The release as three numbers.
    pub version: Fact<KernelVersion>,
    /// The build string, `uname -v`, such as `#1 SMP PREEMPT_RT …`.
    pub build: Fact<String>,
    /// Whether the kernel is a PREEMPT_RT kernel (`/sys/kernel/realtime`, the build string, or the configuration).
    pub realtime: Fact<bool>,
    /// Whether a crash kernel is loaded (`/sys/kernel/kexec_crash_loaded`).
    pub crash_kernel: Fact<bool>,
    /// The preemption mode in use: `none`, `voluntary`, `full` or `lazy` (`/sys/kernel/debug/sched/preempt`).
    pub preemption: Fact<String>,
    /// The kernel's configuration (`/proc/config.gz`, `/boot/config-RELEASE`).
    pub config: Fact<KernelConfig>,
    /// Loaded modules (`/proc/modules`).
    pub modules: Fact<Vec<String>>,
    /// Module parameters that the audit rules use, by name, such as `kvm.halt_poll_ns`.
    pub parameters: BTreeMap<String, Fact<String>>,
    /// Command lines for the next boot (`/boot/loader/entries`, `/etc/default/grub`), each with its file.
    pub next_boot: Vec<Fact<super::CommandLine>>,
    /// Kernel messages (`/dev/kmsg`, `dmesg`), oldest first. Only the last 20,000 are kept.
    pub messages: Fact<Vec<String>>,
    /// The current tracer (`tracing/current_tracer`).
    pub tracer: Fact<String>,
    /// Whether the kernel writes traces to the trace buffer (`tracing/tracing_on`).
    pub tracing_on: Fact<bool>,
    /// Number of enabled trace events (`tracing/set_event`).
    pub trace_events: Fact<u32>,
    /// Number of defined kernel probes (`tracing/kprobe_events`).
    pub kprobes: Fact<u32>,
    /// The current clock source (`clocksource0/current_clocksource`).
    pub clocksource: Fact<String>,
    /// The available clock sources (`clocksource0/available_clocksource`).
    pub clocksources: Fact<Vec<String>>,
    /// Budget of the deadline server that runs normal (`SCHED_OTHER`) tasks, by CPU, in nanoseconds per period
    /// (`/sys/kernel/debug/sched/fair_server/cpuN/runtime`).
    pub fair_server_ns: BTreeMap<u32, Fact<u64>>,
    /// Values under `/proc/sys`, by their dotted names: `kernel.nmi_watchdog`. [`super::Facts::sysctl`] looks one up.
    pub sysctls: BTreeMap<String, Fact<String>>,
}

/// A kernel version as three numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[allow(missing_docs)]
pub struct KernelVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl KernelVersion {
    /// The first release of a series: `KernelVersion::new(6, 12)`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, patch: 0 }
    }

    /// Reads the numbers at the start of a release: `5.14.0-427.el9`, `6.18.44`, `7.0-rc1`. `None` if the release does
    /// not start with at least two numbers.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let dot = |n: usize| {
            release.trim().split('.').nth(n).is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        };
        let major = numbers.next()?.ok()?;
        let minor = if dot(1) { numbers.next()?.ok()? } else { return None };
        let patch = if dot(2) { numbers.next().and_then(Result::ok).unwrap_or(0) } else { 0 };
        Some(Self { major, minor, patch })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The kernel's build configuration. The names of options lack the prefix `CONFIG_`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelConfig {
    /// Options that are set, each with its value: `y`, `m`, a number, or a string without quotes. Options that are not
    /// set are missing.
    pub options: BTreeMap<String, String>,
}

impl KernelConfig {
    /// Whether an option is built in or built as a module.
    pub fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("y" | "m"))
    }

    /// An option's value. The name may begin with `CONFIG_`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.options.get(name.strip_prefix("CONFIG_").unwrap_or(name)).map(String::as_str)
    }
}

//! The kernel: version, configuration, modules, messages, tracing, time.

use std::collections::BTreeMap;
use std::fmt;

use super::Fact;

/// The running kernel.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kernel {
    /// `uname -r` (from /proc/sys/kernel/osrelease, /proc/version, or the boot image's name).
    pub release: Fact<String>,
    /// The version's numbers.
    pub version: Fact<KernelVersion>,
    /// `uname -v`, such as `#1 SMP PREEMPT_RT …`.
    pub build: Fact<String>,
    /// Is it a PREEMPT_RT kernel (`/sys/kernel/realtime`, the build text, the configuration)?
    pub realtime: Fact<bool>,
    /// Is a kernel loaded that takes over after a crash (`/sys/kernel/kexec_crash_loaded`)?
    pub crash_kernel: Fact<bool>,
    /// Preemption in force: `none`, `voluntary`, `full`, `lazy` (`/sys/kernel/debug/sched/preempt`).
    pub preemption: Fact<String>,
    /// Its configuration (`/proc/config.gz`, `/boot/config-RELEASE`).
    pub config: Fact<KernelConfig>,
    /// Loaded modules (`/proc/modules`).
    pub modules: Fact<Vec<String>>,
    /// Parameters of modules that matter here, as `kvm.halt_poll_ns`.
    pub parameters: BTreeMap<String, Fact<String>>,
    /// Boot parameters set for the next boot (`/boot/loader/entries`, `/etc/default/grub`), each with its file.
    pub next_boot: Vec<Fact<super::CommandLine>>,
    /// Messages (`/dev/kmsg`, `dmesg`), oldest first; at most the last 20,000.
    pub messages: Fact<Vec<String>>,
    /// The current tracer (`tracing/current_tracer`).
    pub tracer: Fact<String>,
    /// Is the trace buffer on (`tracing/tracing_on`)?
    pub tracing_on: Fact<bool>,
    /// How many trace events are on (`tracing/set_event`).
    pub trace_events: Fact<u32>,
    /// How many kernel probes are set (`tracing/kprobe_events`).
    pub kprobes: Fact<u32>,
    /// `clocksource0/current_clocksource`.
    pub clocksource: Fact<String>,
    /// `clocksource0/available_clocksource`.
    pub clocksources: Fact<Vec<String>>,
    /// Budget of the deadline server for fair tasks by CPU, in nanoseconds
    /// (`/sys/kernel/debug/sched/fair_server/cpuN/runtime`).
    pub fair_server_ns: BTreeMap<u32, Fact<u64>>,
    /// Values under `/proc/sys`, by their dotted names: `kernel.nmi_watchdog`. Use [`super::Facts::sysctl`].
    pub sysctls: BTreeMap<String, Fact<String>>,
}

/// Three numbers.
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

    /// The numbers that a release begins with: `5.14.0-427.el9`, `6.18.44`, `7.0-rc1`.
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

/// A kernel's configuration, without `CONFIG_`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelConfig {
    /// What is set: `y`, `m`, a number or a text without quotes. What is not set is not here.
    pub options: BTreeMap<String, String>,
}

impl KernelConfig {
    /// Is an option built in or a module?
    pub fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("y" | "m"))
    }

    /// An option's value; with or without `CONFIG_` before its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.options.get(name.strip_prefix("CONFIG_").unwrap_or(name)).map(String::as_str)
    }
}

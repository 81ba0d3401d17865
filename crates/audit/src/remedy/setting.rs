//! A setting that `apus tune` can apply: what it changes, its value, its key in a profile, and the command that makes
//! the same change by hand.

use host::facts::CpuSet;

/// A setting that `apus tune` can apply and roll back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Setting {
    /// Which setting of the host is changed.
    pub place: Place,
    /// The value as written in a profile, such as `performance`, `10us` or `0-1`.
    pub value: String,
}

/// Identifies what is set on the host. Two different values for the same `Place` contradict each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// A sysctl, by its dotted name.
    Sysctl(String),
    /// A file below /sys, by its path.
    File(String),
    /// A power setting of these CPUs.
    Cpus(CpuSet, OfCpus),
    /// A limit of the uncore's frequency.
    Uncore(Bound),
    /// A setting of memory management.
    Memory(OfMemory),
    /// The CPUs that may handle interrupts, or that irqbalance must leave alone.
    Interrupts(OfInterrupts),
    /// The CPUs on which unbound kernel workqueues may run.
    Workqueues(OfWorkqueues),
    /// A setting of a network interface: name of the interface, group, and name of the field in ethtool(8).
    Network(String, OfNetwork, String),
}

/// Power settings of a CPU, in the order in which they must be applied. For example, setting the governor resets the
/// energy-performance preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum OfCpus {
    Governor,
    MinFrequency,
    MaxFrequency,
    /// The energy-performance preference of the CPU.
    Preference,
    /// The longest exit latency that idle states may have (PM QoS, `pm_qos_resume_latency_us`).
    ResumeLatency,
}

/// The upper or lower limit of a range. The upper limit is raised first, because the kernel rejects a minimum above the
/// maximum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Bound {
    Highest,
    Lowest,
}

/// The settings of memory management.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum OfMemory {
    TransparentHugePages,
    Defrag,
    SamePageMerging,
}

/// The settings that decide which CPUs handle interrupts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OfInterrupts {
    /// The CPUs for interrupts that will be requested later (`default_smp_affinity`).
    Default,
    /// The CPUs for all existing interrupts that can be moved.
    All,
    /// The CPUs to which irqbalance must not move interrupts.
    Banned,
}

/// The CPU masks of workqueues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum OfWorkqueues {
    All,
    Writeback,
}

/// Groups of settings of a network interface, as in ethtool(8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum OfNetwork {
    PrivateFlags,
    Channels,
    Rings,
    Features,
    Pause,
    Coalesce,
}

impl OfNetwork {
    const ALL: [Self; 6] =
        [Self::PrivateFlags, Self::Channels, Self::Rings, Self::Features, Self::Pause, Self::Coalesce];

    /// The group's option in ethtool(8), and its key in a profile.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::PrivateFlags => ("--set-priv-flags", "private_flags"),
            Self::Channels => ("-L", "channels"),
            Self::Rings => ("-G", "rings"),
            Self::Features => ("-K", "features"),
            Self::Pause => ("-A", "pause"),
            Self::Coalesce => ("-C", "coalesce"),
        }
    }

    pub(super) fn of_option(option: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.names().0 == option)
    }
}

impl OfCpus {
    /// Key of the setting in a profile.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Governor => "governor",
            Self::MinFrequency => "min_frequency",
            Self::MaxFrequency => "max_frequency",
            Self::Preference => "preference",
            Self::ResumeLatency => "resume_latency",
        }
    }
}

impl OfMemory {
    pub(super) const ALL: [Self; 3] = [Self::TransparentHugePages, Self::Defrag, Self::SamePageMerging];

    /// The setting's file name, and its key in a profile.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::TransparentHugePages => ("/sys/kernel/mm/transparent_hugepage/enabled", "transparent_huge_pages"),
            Self::Defrag => ("/sys/kernel/mm/transparent_hugepage/defrag", "defrag"),
            Self::SamePageMerging => ("/sys/kernel/mm/ksm/run", "same_page_merging"),
        }
    }
}

impl OfWorkqueues {
    pub(super) const ALL: [Self; 2] = [Self::All, Self::Writeback];

    /// The setting's file name, and its key in a profile.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::All => ("/sys/devices/virtual/workqueue/cpumask", "cpus"),
            Self::Writeback => ("/sys/devices/virtual/workqueue/writeback/cpumask", "writeback"),
        }
    }
}

/// The command that makes irqbalance leave the isolated CPUs alone. Debian reads its settings from /etc/default, Red
/// Hat from /etc/sysconfig.
pub(crate) const BAN_ISOLATED: &str = "for f in /etc/default/irqbalance /etc/sysconfig/irqbalance; do if [ -f $f ]; then \
     echo IRQBALANCE_BANNED_CPULIST={isolated} >> $f; fi; done; systemctl restart irqbalance";
/// The file that sets the CPUs for interrupts that will be requested later.
pub(super) const DEFAULT_AFFINITY: &str = "/proc/irq/default_smp_affinity";

impl Setting {
    /// The setting as in a profile: section, key and value.
    pub fn toml(&self) -> (String, String, String) {
        let value = &self.value;
        let plain = |section: &str, key: &str| (section.to_owned(), key.to_owned(), quoted(value));
        match &self.place {
            Place::Sysctl(name) => ("sysctl".into(), quoted(name), scalar(value)),
            Place::File(path) => ("sysfs".into(), quoted(path), scalar(value)),
            Place::Cpus(cpus, what) => plain(&format!("cpus.{}", quoted(&cpus.to_string())), what.key()),
            Place::Uncore(Bound::Lowest) => plain("power", "uncore_min"),
            Place::Uncore(Bound::Highest) => plain("power", "uncore_max"),
            Place::Memory(what) => ("memory".into(), what.names().1.into(), scalar(value)),
            Place::Interrupts(OfInterrupts::Default) => plain("interrupts", "default"),
            Place::Interrupts(OfInterrupts::All) => plain("interrupts", "all"),
            Place::Interrupts(OfInterrupts::Banned) => plain("interrupts", "banned"),
            Place::Workqueues(what) => plain("workqueues", what.names().1),
            Place::Network(interface, group, field) => {
                let section = format!("network.{}.{}", quoted(interface), group.names().1);
                (section, quoted(field), scalar(value))
            }
        }
    }

    /// The beginning that the command shares with those of similar settings. Settings with the same beginning are
    /// joined into one command. `None` if the setting's command cannot be joined.
    fn stem(&self) -> Option<String> {
        match &self.place {
            Place::Sysctl(_) => Some("sysctl -w".into()),
            Place::Cpus(cpus, OfCpus::MinFrequency | OfCpus::MaxFrequency | OfCpus::Governor) => {
                Some(format!("cpupower -c {cpus} frequency-set"))
            }
            Place::Network(interface, group, _) => Some(format!("ethtool {} {interface}", group.names().0)),
            _ => None,
        }
    }

    /// The part of the command after [`Self::stem`].
    fn word(&self) -> String {
        let value = &self.value;
        match &self.place {
            Place::Sysctl(name) => format!("{name}={value}"),
            Place::Cpus(_, OfCpus::MinFrequency) => format!("-d {value}"),
            Place::Cpus(_, OfCpus::MaxFrequency) => format!("-u {value}"),
            Place::Cpus(_, OfCpus::Governor) => format!("-g {value}"),
            Place::Network(_, OfNetwork::Coalesce, field) if field.starts_with("adaptive-") => {
                format!("{field} {}", if value == "0" { "off" } else { "on" })
            }
            Place::Network(_, _, field) => format!("{field} {value}"),
            _ => String::new(),
        }
    }

    /// The command for this setting alone.
    fn own_command(&self) -> String {
        const CPU: &str = "/sys/devices/system/cpu";
        let value = &self.value;
        let mask = || CpuSet::parse_list(value).map_or_else(|_| value.clone(), |cpus| cpus.to_mask());
        match &self.place {
            Place::File(path) => format!("echo {value} > {path}"),
            Place::Cpus(cpus, OfCpus::Preference) => {
                let file = "cpufreq/energy_performance_preference";
                format!("for n in {}; do echo {value} > {CPU}/cpu$n/{file}; done", words(cpus))
            }
            Place::Cpus(cpus, OfCpus::ResumeLatency) => {
                let limit: host::knob::ResumeLatency = value.parse().unwrap_or(host::knob::ResumeLatency::NoLimit);
                let (limit, file) = (limit.value(), "power/pm_qos_resume_latency_us");
                format!("for n in {}; do echo {limit} > {CPU}/cpu$n/{file}; done", words(cpus))
            }
            Place::Uncore(bound) => {
                let end = if *bound == Bound::Lowest { "min" } else { "max" };
                format!(
                    "for n in {CPU}/intel_uncore_frequency/*/; do cat $n/initial_{value}_freq_khz > $n/{end}_freq_khz; done"
                )
            }
            Place::Memory(what) => format!("echo {value} > {}", what.names().0),
            Place::Interrupts(OfInterrupts::Default) => format!("echo {} > {DEFAULT_AFFINITY}", mask()),
            Place::Interrupts(OfInterrupts::All) => {
                format!("for i in /proc/irq/[0-9]*; do echo {value} > $i/smp_affinity_list; done")
            }
            Place::Interrupts(OfInterrupts::Banned) => BAN_ISOLATED.replace("{isolated}", value),
            Place::Workqueues(what) => format!("echo {} > {}", mask(), what.names().0),
            Place::Sysctl(_) | Place::Cpus(..) | Place::Network(..) => {
                format!("{} {}", self.stem().unwrap_or_default(), self.word())
            }
        }
    }
}

/// Returns shell commands that make these settings by hand.
pub fn commands(settings: &[Setting]) -> Vec<String> {
    let mut commands: Vec<(Option<String>, String)> = Vec::new();
    for setting in settings {
        let stem = setting.stem();
        match commands.last_mut() {
            Some((last, command)) if stem.is_some() && *last == stem => {
                command.push(' ');
                command.push_str(&setting.word());
            }
            _ => commands.push((stem, setting.own_command())),
        }
    }
    commands.into_iter().map(|(_, command)| command).collect()
}

/// Formats CPUs as the words of a shell loop: `2 3 4`, and `$(seq 2 31)` for many consecutive ones.
pub(crate) fn words(cpus: &CpuSet) -> String {
    let list = cpus.to_string();
    let range = |part: &str| {
        let ends = part.split_once('-').and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)));
        match ends {
            Some((first, last)) if last - first >= 8 => format!("$(seq {first} {last})"),
            Some((first, last)) => (first..=last).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(" "),
            None => part.to_owned(),
        }
    };
    list.split(',').map(range).collect::<Vec<_>>().join(" ")
}

/// Formats a TOML string (TOML 1.0, basic strings).
pub(crate) fn quoted(text: &str) -> String {
    let mut safe = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => safe.extend(['\\', c]),
            c if c.is_control() => safe.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe.push('"');
    safe
}

/// Formats a number as it is, and any other text as a TOML string.
fn scalar(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => quoted(text),
    }
}

//! A profile as it is written: TOML, with nothing in it that is not known.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::Error;

/// A profile's file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// What it is for, in one line.
    pub summary: String,
    /// Profiles that come before this one, by their name, or by a file's path relative to this one.
    #[serde(default)]
    pub include: Vec<Spanned<String>>,
    /// Texts that `{NAME}` stands for in this file and in those that it includes, unless whoever includes this one, or
    /// the command line, says otherwise.
    #[serde(default)]
    pub variables: BTreeMap<String, Spanned<Scalar>>,
    /// Kernel parameters: `"kernel.nmi_watchdog" = 0`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, Spanned<Scalar>>,
    /// Files below /sys and /proc.
    #[serde(default)]
    pub sysfs: BTreeMap<String, Spanned<Scalar>>,
    /// CPUs, by `all`, `isolated`, `housekeeping` or a list.
    #[serde(default)]
    pub cpus: BTreeMap<String, CpuSection>,
    /// What holds for the whole machine.
    #[serde(default)]
    pub power: PowerSection,
    /// Interrupts.
    #[serde(default)]
    pub interrupts: InterruptSection,
    /// Kernel work that is bound to no CPU.
    #[serde(default)]
    pub workqueues: WorkqueueSection,
    /// Threads, by the beginning of their name, or by a pattern: `irq/*-mlx5*`.
    #[serde(default)]
    pub threads: BTreeMap<String, ThreadSection>,
    /// Interfaces, by name, by a pattern (`ens*`; `*` is all that were named, or all with a device), or by their driver
    /// (`driver:ice`).
    #[serde(default)]
    pub network: BTreeMap<String, NetworkSection>,
    /// Memory.
    #[serde(default)]
    pub memory: MemorySection,
    /// A partition of CPUs.
    #[serde(default)]
    pub cpuset: Option<CpusetSection>,
    /// The kernel's command line.
    #[serde(default)]
    pub kernel: KernelSection,
}

/// A number, a text or a boolean.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// 0 or 1, as the kernel writes them.
    Boolean(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(yes) => u8::from(*yes).fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// `[cpus.…]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuSection {
    /// The frequency governor.
    pub governor: Option<Spanned<String>>,
    /// The lowest frequency: `min` and `max` of the hardware, `base`, or `2.1GHz`.
    pub min_frequency: Option<Spanned<String>>,
    /// The highest frequency.
    pub max_frequency: Option<Spanned<String>>,
    /// The energy-performance preference.
    pub preference: Option<Spanned<Scalar>>,
    /// Idle states that take longer to leave are disabled.
    pub idle_latency: Option<Spanned<String>>,
    /// PM QoS: the exit latency allowed; `none` for no limit, `0us` to poll.
    pub resume_latency: Option<Spanned<String>>,
}

/// `[power]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerSection {
    /// Frequencies above the nominal one.
    pub turbo: Option<Spanned<bool>>,
    /// The exit latency allowed on all CPUs: a request that a process holds.
    pub latency: Option<Spanned<String>>,
    /// The lowest frequency of the uncore: `min`, `max`, or `2.1GHz`.
    pub uncore_min: Option<Spanned<String>>,
    /// The highest frequency of the uncore.
    pub uncore_max: Option<Spanned<String>>,
}

/// `[interrupts]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptSection {
    /// CPUs of interrupts to come.
    pub default: Option<Spanned<String>>,
    /// CPUs of all interrupts that can be moved.
    pub all: Option<Spanned<String>>,
    /// CPUs that irqbalance keeps away from.
    pub banned: Option<Spanned<String>>,
}

/// `[workqueues]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkqueueSection {
    /// CPUs of all of it.
    pub cpus: Option<Spanned<String>>,
    /// CPUs of writeback.
    pub writeback: Option<Spanned<String>>,
}

/// `[threads."…"]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadSection {
    /// CPUs on which they may run.
    pub cpus: Option<Spanned<String>>,
    /// Scheduling class: `fifo 2`, `other 0`.
    pub class: Option<Spanned<String>>,
}

/// Fields of a group, such as `{ rx-usecs = 0 }`.
pub type Fields = BTreeMap<String, Scalar>;

/// `[network.…]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSection {
    /// Interrupt coalescing of the device.
    pub coalesce: Option<Spanned<Fields>>,
    /// Interrupt coalescing of queues, by `0` or `0-3`.
    #[serde(default)]
    pub coalesce_queue: BTreeMap<String, Spanned<Fields>>,
    /// Descriptors.
    pub rings: Option<Spanned<Fields>>,
    /// Queues.
    pub channels: Option<Spanned<Fields>>,
    /// Offloads, on or off.
    pub features: Option<Spanned<Fields>>,
    /// The driver's own flags, on or off.
    pub private_flags: Option<Spanned<Fields>>,
    /// Flow control.
    pub pause: Option<Spanned<Fields>>,
    /// NAPI of all receive queues; times may have a unit.
    pub napi: Option<Spanned<Fields>>,
    /// CPUs of receive packet steering, `none` for off.
    pub rps_cpus: Option<Spanned<String>>,
}

/// `[memory]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySection {
    /// Transparent huge pages: always, madvise, never.
    pub transparent_huge_pages: Option<Spanned<String>>,
    /// Their defragmentation.
    pub defrag: Option<Spanned<String>>,
    /// Merging of equal pages: 0, 1, 2.
    pub same_page_merging: Option<Spanned<Scalar>>,
    /// Huge pages.
    #[serde(default)]
    pub huge_pages: Vec<Spanned<HugePageSection>>,
}

/// `[[memory.huge_pages]]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HugePageSection {
    /// `2MB` or `1GB`.
    pub size: String,
    /// How many.
    pub count: u64,
    /// On which NUMA node.
    pub node: Option<u32>,
}

/// `[cpuset]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpusetSection {
    /// The control group's name.
    pub name: Spanned<String>,
    /// Its CPUs.
    pub cpus: Spanned<String>,
}

/// `[kernel]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelSection {
    /// Arguments; `{isolated}` and `{housekeeping}` stand for lists of CPUs.
    #[serde(default)]
    pub arguments: Vec<Spanned<String>>,
}

/// A file that was read, and how to point at a place in it.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// Its name, for people.
    pub name: String,
    /// Its folder, for what it includes; `None` for a built-in one.
    pub folder: Option<PathBuf>,
    /// What it says.
    pub file: ProfileFile,
    text: String,
}

/// Variables, by their name.
pub type Variables = BTreeMap<String, String>;

/// What is read of a file before its variables are known.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    variables: BTreeMap<String, Spanned<Scalar>>,
}

/// Names that the machine gives its meaning: they are filled in later.
pub(super) const OF_MACHINE: [&str; 2] = ["isolated", "housekeeping"];

/// Refuses what would not stay one word of the file, or one variable.
pub(super) fn check_variable(name: &str, value: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{name:?}: the name of a variable consists of letters, digits, - and _"));
    }
    if OF_MACHINE.contains(&name) {
        return Err(format!("{name} comes from the host and cannot be set; use --isolated"));
    }
    if value.contains(['"', '\'', '\\', '{', '}']) || value.chars().any(char::is_control) {
        return Err("the value of a variable must not contain quotes, backslashes, braces or control characters".into());
    }
    Ok(())
}

impl Layer {
    /// Reads a profile's text.
    pub fn parse(name: &str, folder: Option<&Path>, text: &str) -> Result<Self, Error> {
        Self::parse_with(name, folder, text, &Variables::new())
    }

    /// The same, with variables that go before its own.
    pub fn parse_with(name: &str, folder: Option<&Path>, text: &str, outer: &Variables) -> Result<Self, Error> {
        // One that is no TOML is refused below, with its place.
        let own = toml::from_str::<Head>(text).map(|head| head.variables).unwrap_or_default();
        let mut filled = text.to_owned();
        for (variable, value) in &own {
            let at = Some(value.span().start);
            let value = value.get_ref().to_string();
            check_variable(variable, &value).map_err(|why| Error { place: place(name, text, at), why })?;
            // Values have no line ends, so places stay right.
            filled = filled.replace(&format!("{{{variable}}}"), outer.get(variable).unwrap_or(&value));
        }
        for (variable, value) in outer.iter().filter(|(variable, _)| !own.contains_key(*variable)) {
            filled = filled.replace(&format!("{{{variable}}}"), value);
        }
        let text = filled.as_str();
        let file = toml::from_str(text).map_err(|e: toml::de::Error| Error {
            place: place(name, text, e.span().map(|span| span.start)),
            why: e.message().trim().replace('\n', "; "),
        })?;
        Ok(Self { name: name.into(), folder: folder.map(Path::to_owned), file, text: text.into() })
    }

    /// A profile that stands in a larger file, whose text is `text`; its includes are relative to `folder`.
    pub fn within(name: &str, folder: Option<&Path>, text: &str, file: ProfileFile) -> Self {
        Self { name: name.into(), folder: folder.map(Path::to_owned), file, text: text.into() }
    }

    /// Where something stands: `poll.toml:12`.
    pub fn place<T>(&self, what: &Spanned<T>) -> String {
        place(&self.name, &self.text, Some(what.span().start))
    }

    /// An error about something in the file.
    pub fn wrong<T>(&self, what: &Spanned<T>, why: impl fmt::Display) -> Error {
        Error { place: self.place(what), why: why.to_string() }
    }
}

fn place(name: &str, text: &str, offset: Option<usize>) -> String {
    let before = offset.and_then(|offset| text.get(..offset));
    before.map_or(name.to_owned(), |before| format!("{name}:{}", before.matches('\n').count() + 1))
}

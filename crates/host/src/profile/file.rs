//! The format of a profile: TOML in which unknown keys are errors.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::Error;

/// The contents of a profile file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// The purpose of the profile, in one line.
    pub summary: String,
    /// Profiles that are applied before this one, each given by its name, or by a path relative to this file.
    #[serde(default)]
    pub include: Vec<Spanned<String>>,
    /// Values of variables. In this file and in included files, `{NAME}` is replaced by the value of `NAME`. A profile
    /// that includes this one, or the command line, can override the values.
    #[serde(default)]
    pub variables: BTreeMap<String, Spanned<Scalar>>,
    /// Kernel parameters: `"kernel.nmi_watchdog" = 0`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, Spanned<Scalar>>,
    /// Files below /sys and /proc, with the values to write.
    #[serde(default)]
    pub sysfs: BTreeMap<String, Spanned<Scalar>>,
    /// Settings of CPUs. The key selects the CPUs: `all`, `isolated`, `housekeeping` or a list.
    #[serde(default)]
    pub cpus: BTreeMap<String, CpuSection>,
    /// Settings of turbo, of exit latency for all CPUs, and of the uncore.
    #[serde(default)]
    pub power: PowerSection,
    /// The CPUs that may handle interrupts.
    #[serde(default)]
    pub interrupts: InterruptSection,
    /// The CPUs on which kernel work that is not bound to a CPU may run.
    #[serde(default)]
    pub workqueues: WorkqueueSection,
    /// Settings of threads. The key is the beginning of their name, or a pattern such as `irq/*-mlx5*`.
    #[serde(default)]
    pub threads: BTreeMap<String, ThreadSection>,
    /// Settings of interfaces. The key is a name, a pattern such as `ens*`, or a driver (`driver:ice`). The pattern `*`
    /// means the interfaces that the user named, or else all interfaces with a device.
    #[serde(default)]
    pub network: BTreeMap<String, NetworkSection>,
    /// Settings of memory.
    #[serde(default)]
    pub memory: MemorySection,
    /// A partition of CPUs for the application.
    #[serde(default)]
    pub cpuset: Option<CpusetSection>,
    /// Arguments for the kernel's command line.
    #[serde(default)]
    pub kernel: KernelSection,
}

/// A number, a string or a boolean.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A boolean, which becomes 0 or 1 for the kernel.
    Boolean(bool),
    /// A whole number.
    Number(i64),
    /// A string.
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

/// The section `[cpus.…]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuSection {
    /// The name of the frequency governor.
    pub governor: Option<Spanned<String>>,
    /// The minimum frequency: the hardware's `min`, `max` or `base` frequency, or a value such as `2.1GHz`.
    pub min_frequency: Option<Spanned<String>>,
    /// The maximum frequency: the hardware's `min`, `max` or `base` frequency, or a value such as `2.1GHz`.
    pub max_frequency: Option<Spanned<String>>,
    /// The energy-performance preference: a word, or a number from 0 to 255.
    pub preference: Option<Spanned<Scalar>>,
    /// Maximum exit latency, such as `20us`. Idle states with a longer exit latency are disabled.
    pub idle_latency: Option<Spanned<String>>,
    /// The exit latency allowed by PM QoS, such as `20us`. `none` means no limit, `0us` makes idle CPUs poll.
    pub resume_latency: Option<Spanned<String>>,
}

/// The section `[power]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerSection {
    /// Whether frequencies above the nominal frequency are allowed.
    pub turbo: Option<Spanned<bool>>,
    /// The exit latency allowed for all CPUs, or `none`. A background process keeps the request in force.
    pub latency: Option<Spanned<String>>,
    /// The minimum frequency of the uncore: `min`, `max`, or a value such as `2.1GHz`.
    pub uncore_min: Option<Spanned<String>>,
    /// The maximum frequency of the uncore: `min`, `max`, or a value such as `2.1GHz`.
    pub uncore_max: Option<Spanned<String>>,
}

/// The section `[interrupts]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptSection {
    /// CPUs that may handle newly requested interrupts (`/proc/irq/default_smp_affinity`).
    pub default: Option<Spanned<String>>,
    /// CPUs that may handle the existing interrupts; interrupts that cannot be moved are left as they are.
    pub all: Option<Spanned<String>>,
    /// CPUs that irqbalance must not use.
    pub banned: Option<Spanned<String>>,
}

/// The section `[workqueues]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkqueueSection {
    /// CPUs for all work that is not bound to a CPU.
    pub cpus: Option<Spanned<String>>,
    /// CPUs for writing dirty pages back to disk (the workqueue `writeback`).
    pub writeback: Option<Spanned<String>>,
}

/// The section `[threads."…"]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadSection {
    /// CPUs on which the threads may run.
    pub cpus: Option<Spanned<String>>,
    /// The scheduling class with its priority or nice value, such as `fifo 2` or `other 0`.
    pub class: Option<Spanned<String>>,
}

/// Fields of a setting with their values, such as `{ rx-usecs = 0 }`.
pub type Fields = BTreeMap<String, Scalar>;

/// The section `[network.…]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSection {
    /// Interrupt coalescing of the device.
    pub coalesce: Option<Spanned<Fields>>,
    /// Interrupt coalescing of single queues. The key is a queue number or a range: `0` or `0-3`.
    #[serde(default)]
    pub coalesce_queue: BTreeMap<String, Spanned<Fields>>,
    /// Sizes of the descriptor rings.
    pub rings: Option<Spanned<Fields>>,
    /// Numbers of receive, transmit and combined queues.
    pub channels: Option<Spanned<Fields>>,
    /// Offloads to turn on or off.
    pub features: Option<Spanned<Fields>>,
    /// The driver's private flags to turn on or off.
    pub private_flags: Option<Spanned<Fields>>,
    /// Ethernet flow control.
    pub pause: Option<Spanned<Fields>>,
    /// NAPI settings of all receive queues. Times may have a unit, such as `200us`.
    pub napi: Option<Spanned<Fields>>,
    /// CPUs to which receive packet steering passes packets; `none` turns steering off.
    pub rps_cpus: Option<Spanned<String>>,
}

/// The section `[memory]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySection {
    /// Mode of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<Spanned<String>>,
    /// When the kernel may compact memory to make transparent huge pages.
    pub defrag: Option<Spanned<String>>,
    /// Merging of identical pages: 0, 1 or 2.
    pub same_page_merging: Option<Spanned<Scalar>>,
    /// The pools of huge pages to reserve.
    #[serde(default)]
    pub huge_pages: Vec<Spanned<HugePageSection>>,
}

/// A section `[[memory.huge_pages]]`: one pool of huge pages.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HugePageSection {
    /// Page size: `2MB` or `1GB`.
    pub size: String,
    /// Number of pages.
    pub count: u64,
    /// The NUMA node. `None` spreads the pages over all nodes.
    pub node: Option<u32>,
}

/// The section `[cpuset]`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpusetSection {
    /// Name of the control group that becomes the partition.
    pub name: Spanned<String>,
    /// The CPUs of the partition.
    pub cpus: Spanned<String>,
}

/// The section `[kernel]`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelSection {
    /// The kernel arguments. `{isolated}` and `{housekeeping}` are replaced by CPU lists.
    #[serde(default)]
    pub arguments: Vec<Spanned<String>>,
}

/// A profile file that was read. It keeps the file's text, so that errors can name file and line.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// Name of the profile, for messages.
    pub name: String,
    /// Folder of the profile, in which relative paths of included files start. `None` for a built-in profile.
    pub folder: Option<PathBuf>,
    /// Parsed contents of the profile file.
    pub file: ProfileFile,
    text: String,
}

/// The values of variables, by name.
pub type Variables = BTreeMap<String, String>;

/// The part of a profile file that is read before its variables are replaced.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    variables: BTreeMap<String, Spanned<Scalar>>,
}

/// Variables whose values depend on the machine. They are replaced when the profile is resolved.
pub(super) const OF_MACHINE: [&str; 2] = ["isolated", "housekeeping"];

/// Returns an error if the name of a variable is invalid, or if its value could change the syntax of the file.
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
    /// Parses the text of a profile.
    pub fn parse(name: &str, folder: Option<&Path>, text: &str) -> Result<Self, Error> {
        Self::parse_with(name, folder, text, &Variables::new())
    }

    /// Parses the text of a profile. The variables in `outer` override those of the profile.
    pub fn parse_with(name: &str, folder: Option<&Path>, text: &str, outer: &Variables) -> Result<Self, Error> {
        // A text that is not TOML gives an error below, with its position.
        let own = toml::from_str::<Head>(text).map(|head| head.variables).unwrap_or_default();
        let mut filled = text.to_owned();
        for (variable, value) in &own {
            let at = Some(value.span().start);
            let value = value.get_ref().to_string();
            check_variable(variable, &value).map_err(|why| Error { place: place(name, text, at), why })?;
            // Values contain no newline, so line numbers in errors stay right.
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

    /// Makes a layer from a profile that is part of a larger file. `text` is the text of the larger file. Paths of
    /// included files are relative to `folder`.
    pub fn within(name: &str, folder: Option<&Path>, text: &str, file: ProfileFile) -> Self {
        Self { name: name.into(), folder: folder.map(Path::to_owned), file, text: text.into() }
    }

    /// File and line of an item: `poll.toml:12`.
    pub fn place<T>(&self, what: &Spanned<T>) -> String {
        place(&self.name, &self.text, Some(what.span().start))
    }

    /// Makes an error about an item of the file, with file and line.
    pub fn wrong<T>(&self, what: &Spanned<T>, why: impl fmt::Display) -> Error {
        Error { place: self.place(what), why: why.to_string() }
    }
}

fn place(name: &str, text: &str, offset: Option<usize>) -> String {
    let before = offset.and_then(|offset| text.get(..offset));
    before.map_or(name.to_owned(), |before| format!("{name}:{}", before.matches('\n').count() + 1))
}

//! The list of files that a snapshot records, and the paths that it stands for on a host.

use crate::facts::Root;

/// The files to record, with when and how to record each.
const LIST: &str = include_str!("paths.txt");

/// One line of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Whether both readings of the snapshot contain the file.
    pub twice: bool,
    pub how: How,
    /// The path below the host's root. `*` stands for any part of a name, `RELEASE` for the release of the running
    /// kernel.
    pub pattern: &'static str,
}

/// How a file is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// A short text file.
    Lines,
    /// The file is recorded unchanged, even if it is long or binary.
    Whole,
    /// A file of the unified control group hierarchy (v2), recorded unchanged if that hierarchy is mounted.
    Unified,
    /// A text file. To fill it, the kernel reads a register of a CPU, which interrupts that CPU.
    Register,
    /// `/proc/cpuinfo`. On some kernels, reading it interrupts CPUs.
    CpuInfo,
    /// A command line: values that can hold a secret are masked.
    CommandLine,
    /// A boot loader's settings. Only the kernel command lines in them are recorded, masked.
    Loader,
    /// Mounted file systems of the types that rules need.
    Mounts,
    /// The first 256 bytes of a PCI configuration space. The rest can contain serial numbers.
    PciConfig,
    /// The kernel's configuration, compressed or not.
    Config,
    /// Loaded modules, without their addresses.
    Modules,
    /// Free text, written by people or programs. Addresses and keys are masked.
    Prose,
    /// Only the number of lines of the file is recorded, not its content.
    Count,
    /// Swap areas, without paths.
    Swaps,
    /// `NAME=value` lines. Only values of known names are kept.
    Settings,
    /// A symbolic link's target.
    Link,
    /// A directory. Only the names of its files are recorded.
    Names,
    /// The kubelet's settings that audit rules use.
    Kubelet,
    /// The kubelet's CPU manager state, without the names of containers.
    CpuManager,
    /// Limits on locked memory and real-time priority.
    Limits,
    /// Recorded only if the snapshot is not masked.
    Unmasked,
}

/// All lines of the list.
pub(super) fn wanted() -> impl Iterator<Item = Wanted> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(parse)
}

fn parse(line: &'static str) -> Option<Wanted> {
    let mut words = line.split(' ');
    let (when, how, pattern) = (words.next()?, words.next()?, words.next()?);
    let how = match how {
        "lines" => How::Lines,
        "unified" => How::Unified,
        "whole" => How::Whole,
        "register" => How::Register,
        "cpuinfo" => How::CpuInfo,
        "cmdline" => How::CommandLine,
        "loader" => How::Loader,
        "mounts" => How::Mounts,
        "pciconfig" => How::PciConfig,
        "config" => How::Config,
        "modules" => How::Modules,
        "prose" => How::Prose,
        "count" => How::Count,
        "swaps" => How::Swaps,
        "settings" => How::Settings,
        "link" => How::Link,
        "names" => How::Names,
        "kubelet" => How::Kubelet,
        "cpumanager" => How::CpuManager,
        "limits" => How::Limits,
        "unmasked" => How::Unmasked,
        _ => return None,
    };
    Some(Wanted { twice: when == "twice", how, pattern })
}

/// The paths on the host that match `pattern`. The caller has to check whether the last part exists.
pub(super) fn expand(root: &Root, pattern: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for part in pattern.split('/') {
        let names = |path: &String| -> Vec<String> {
            let joined = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            match part.split_once('*') {
                None => vec![joined(part)],
                Some((start, end)) => {
                    let names = root.list(path).into_value().unwrap_or_default();
                    let fits = |name: &&String| {
                        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
                    };
                    names.iter().filter(fits).map(|name| joined(name)).collect()
                }
            }
        };
        paths = paths.iter().flat_map(names).collect();
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_understood() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(wanted().count(), lines);
        assert!(lines > 300 && wanted().all(|wanted| !wanted.pattern.starts_with('/')));
    }

    #[test]
    fn what_readers_ask_for_by_name_is_listed() {
        let listed = |path: &str| wanted().any(|wanted| wanted.pattern == path);
        for name in crate::facts::sysctls() {
            assert!(listed(&format!("proc/sys/{}", name.replace('.', "/"))), "{name}");
        }
        for name in crate::facts::parameters() {
            assert!(listed(&format!("sys/module/{}", name.replacen('.', "/parameters/", 1))), "{name}");
        }
    }

    #[test]
    fn patterns_mean_files() {
        let root =
            Root::given([("sys/cpu/cpu0/x", ""), ("sys/cpu/cpu1/x", ""), ("sys/cpu/cpufreq/x", ""), ("proc/a", "")]);
        assert_eq!(expand(&root, "sys/cpu/cpu*/x"), ["sys/cpu/cpu0/x", "sys/cpu/cpu1/x", "sys/cpu/cpufreq/x"]);
        assert_eq!(expand(&root, "proc/a"), ["proc/a"]);
        assert!(expand(&root, "nowhere/*/x").is_empty());
    }
}

//! The input of every reader: the root of the host's files, and the CPUs that must not be interrupted.

use crate::facts::{CommandLine, CpuSet, Fact, Kind, Reading, Root, Why};

/// The root of the host's files, and the CPUs that must not be interrupted.
pub(crate) struct Context<'a> {
    pub root: &'a Root,
    pub reading: Reading,
    /// CPUs of the live host that must not be interrupted. Empty for recordings, and if the user requested registers.
    pub spared: CpuSet,
}

impl<'a> Context<'a> {
    pub(crate) fn new(root: &'a Root, reading: Reading) -> Self {
        let spared = match root.kind() {
            Kind::Live if !reading.msrs => isolated(root).union(&reading.isolated),
            _ => CpuSet::new(),
        };
        Self { root, reading, spared }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.root.kind() == Kind::Live
    }

    /// Reads a file of a CPU, unless this CPU must not be interrupted. Use it for files whose reading interrupts the
    /// CPU.
    pub(crate) fn on<T>(&self, cpu: u32, path: &str, read: impl FnOnce(&Root, &str) -> Fact<T>) -> Fact<T> {
        if self.spared.contains(cpu) {
            return Fact::missing(Why::NotAsked, format!("/{path}").as_str());
        }
        read(self.root, path)
    }
}

/// The CPUs that a host reserves for its applications: `isolcpus=`, `nohz_full=`, and isolated cpuset partitions.
pub(crate) fn isolated(root: &Root) -> CpuSet {
    let boot = "sys/devices/system/cpu";
    let lists = [
        root.cpu_list(&format!("{boot}/isolated")),
        root.cpu_list(&format!("{boot}/nohz_full")),
        root.cpu_list("sys/fs/cgroup/cpuset.cpus.isolated"),
    ];
    let mut set = lists.iter().filter_map(Fact::value).fold(CpuSet::new(), |set, more| set.union(more));
    if let Fact::Known { value, .. } = root.text("proc/cmdline") {
        let present = root.cpu_list(&format!("{boot}/present")).into_value().unwrap_or_default();
        let line = CommandLine::parse(&value);
        for parameter in line.all("isolcpus").chain(line.all("nohz_full")) {
            set = set.union(&parameter.cpu_set(&present).unwrap_or_default());
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_by_any_of_its_ways() {
        let root = Root::given([
            ("proc/cmdline", "ro isolcpus=managed_irq,domain,2-3 nohz_full=4-N"),
            ("sys/devices/system/cpu/present", "0-9\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/fs/cgroup/cpuset.cpus.isolated", "1\n"),
        ]);
        assert_eq!(isolated(&root), "1-9".parse().unwrap());
        assert_eq!(isolated(&Root::given([("proc/cmdline", "ro quiet")])), CpuSet::new());
    }
}

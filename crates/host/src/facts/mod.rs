//! Everything that is known about a host.
//!
//! [`Facts::read`] is the one reader for all sources: the live host, a folder, a snapshot, a sosreport, a must-gather
//! archive, or a FreeBSD snapshot; a [`Root`] says which one. [`Facts::read`] never fails: if something cannot be read,
//! its [`Fact`] says why.

mod change;
mod cmdline;
mod counters;
mod cpu;
mod cpuset;
mod fact;
mod freebsd;
mod irq;
mod kernel;
mod link;
mod live;
mod memory;
mod msr;
mod observed;
mod pci;
mod power;
mod read;
mod root;
mod system;
mod taking;
mod task;

pub use crate::nic::{Channels, Coalescing, DimLevel, Feature, Napi, NapiSettings, Rings, TimeStamping};
pub use cmdline::{CommandLine, Parameter, same_name};
pub use counters::{
    CountRow, CountTable, Counters, CpuTimes, IdleCounts, Interval, Softirqs, Softnet, TaskCounts, Throttles,
};
pub use cpu::{Cpu, Cpus, Frequency, Generation, HugePages, IdleState, MachineCheck, Node, ResumeLatency, Vendor};
pub use cpuset::{CpuSet, CpuSetError, MAX_CPUS};
pub use fact::{Fact, Source, Why};
pub use freebsd::{BsdInterface, BsdInterrupt, BsdThread, FreeBsd};
pub use irq::{Irq, Irqs};
pub use kernel::{Kernel, KernelConfig, KernelVersion};
pub use link::{Link, Pause, QueueIrq, RxQueue, TxQueue, is_interface_name};
pub use live::Housekeeping;
pub use memory::{Memory, MemoryModule, Mount, Swap};
pub use msr::{Msrs, REGISTERS, bits};
pub use observed::{NapiSeen, Observed, QdiscSeen, SocketSeen, TcpSeen};
pub use pci::{Aspm, Pci, PciDevice};
pub use power::{Idle, PowerLimit, PowerZone, Scaling, Uncore};
pub use root::{Kind, Root, RootError};
pub use system::{Dmi, Guest, Resctrl, ResctrlGroup, Services, Virtualisation};
pub use task::{Cgroup, Cgroups, SchedClass, Task, Workqueues};

pub(crate) use live::{THREAD_STATUS, dma_latency, holders, messages as raw_messages, thread_files};
pub(crate) use read::{
    Context, Ethtool, OBSERVED, Queues, guest, matters as message_matters, printed, printed_size, write as write_queues,
};
pub(crate) use root::mangled;
pub(crate) use taking::{LiveLinks, away_from_isolated, isolated_cpus};
#[cfg(test)]
pub(crate) use taking::{parameters, sysctls};
use units::Nanos;

/// Everything that is known about one host, at one time and, for counters, over one interval.
///
/// The default contains no values: every fact is [`Why::NotRecorded`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// Where the facts were read from.
    pub origin: Origin,
    /// The running kernel's command line.
    pub cmdline: Fact<CommandLine>,
    /// The running kernel.
    pub kernel: Kernel,
    /// CPUs, topology, NUMA nodes, and the idle states and frequencies of each CPU.
    pub cpus: Cpus,
    /// Settings of idle states for the whole host.
    pub idle: Idle,
    /// Settings of frequencies for the whole host.
    pub scaling: Scaling,
    /// Uncore frequency domains. Absent if there is no such driver.
    pub uncore: Fact<Vec<Uncore>>,
    /// RAPL power zones and their limits.
    pub power_zones: Fact<Vec<PowerZone>>,
    /// The model-specific registers that were read.
    pub msrs: Msrs,
    /// Interrupts and their affinities.
    pub irqs: Irqs,
    /// Threads of users and of the kernel.
    pub tasks: Fact<Vec<Task>>,
    /// Workqueues and their CPU masks.
    pub workqueues: Workqueues,
    /// Control groups with their CPU settings.
    pub cgroups: Cgroups,
    /// Memory, huge pages and swap.
    pub memory: Memory,
    /// PCI devices and their links.
    pub pci: Pci,
    /// Network interfaces, sorted by name.
    pub links: Fact<Vec<Link>>,
    /// The firmware's description of the machine.
    pub dmi: Dmi,
    /// Running and enabled services, and their settings.
    pub services: Services,
    /// Virtualisation: the hypervisor below this host, and the guests on it.
    pub virtualisation: Virtualisation,
    /// Cache and memory bandwidth allocation.
    pub resctrl: Resctrl,
    /// Facts of a FreeBSD host. Absent on Linux.
    pub freebsd: Fact<FreeBsd>,
    /// The values of all counters since boot, in the first reading.
    pub counters: Counters,
    /// Changes of counters between two readings. Missing if the counters were read once.
    pub interval: Fact<Interval>,
    /// Sockets, queueing disciplines and NAPI instances, sampled between the two readings. Only snapshots taken with
    /// `--watch` contain samples.
    pub observed: Fact<Observed>,
}

/// Where facts were read from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The kind of source.
    pub kind: Kind,
    /// A readable name of the source: `this host`, or the path that was opened.
    pub name: String,
    /// The operating system of the host.
    pub os: Os,
    /// When the snapshot was taken, according to its manifest. `None` if the manifest has no date.
    pub taken: Option<String>,
    /// Notes on what was left out while reading, and why: files above the size limits, archive entries with paths
    /// outside the archive.
    pub notes: Vec<String>,
}

/// An operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum Os {
    #[default]
    Linux,
    FreeBsd,
}

/// What to read in addition to the usual facts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Whether to read model-specific registers of a live host, and the files whose values the kernel reads from such
    /// registers (energy-performance preference and bias, measured frequencies). Each read interrupts a CPU, even an
    /// isolated CPU. If false, no registers are read, and such files are read only for CPUs that are not isolated.
    pub msrs: bool,
    /// The time between two readings of a live host's counters. `None` means a single reading.
    pub interval: Option<Nanos>,
    /// CPUs of a live host that are reserved for applications, in addition to those that the kernel reports as
    /// isolated. The calling thread does not run on them while it reads.
    pub isolated: CpuSet,
}

impl Facts {
    /// A value under `/proc/sys` by its dotted name, such as `kernel.sched_rt_runtime_us`.
    pub fn sysctl(&self, name: &str) -> Fact<&str> {
        match self.kernel.sysctls.get(name) {
            Some(fact) => fact.as_ref().map(String::as_str),
            None => Fact::not_recorded(format!("/proc/sys/{}", name.replace('.', "/")).as_str()),
        }
    }

    /// A value under `/proc/sys` as a number.
    pub fn sysctl_number(&self, name: &str) -> Fact<i64> {
        self.sysctl(name).parse(|text| text.trim().parse::<i64>())
    }

    /// A module parameter, such as `kvm.halt_poll_ns`.
    pub fn parameter(&self, name: &str) -> Fact<&str> {
        match self.kernel.parameters.get(name) {
            Some(fact) => fact.as_ref().map(String::as_str),
            None => Fact::not_recorded(format!("/sys/module/{}", name.replacen('.', "/parameters/", 1)).as_str()),
        }
    }

    /// The interface with this name. `None` if it is not known.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.value()?.iter().find(|link| link.name == name)
    }

    /// All threads. Empty if the threads are not known.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.value().into_iter().flatten()
    }
}

//! What is known about a host.
//!
//! [`Facts::read`] is the one reader: of the live host, a folder, a snapshot, a sosreport, a must-gather
//! archive, or a FreeBSD snapshot; a [`Root`] says which. It never fails: what cannot be read is a
//! [`Fact`] that says why.

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
mod pci;
mod power;
mod read;
mod root;
mod system;
mod taking;
mod task;

pub use cmdline::{CommandLine, Parameter, same_name};
pub use counters::{CountRow, CountTable, Counters, CpuTimes, IdleCounts, Interval, Softnet, TaskCounts, Throttles};
pub use cpu::{Cpu, Cpus, Frequency, Generation, HugePages, IdleState, MachineCheck, Node, ResumeLatency, Vendor};
pub use cpuset::{CpuSet, CpuSetError, MAX_CPUS};
pub use fact::{Fact, Source, Why};
pub use freebsd::{BsdInterface, BsdInterrupt, BsdThread, FreeBsd};
pub use irq::{Irq, Irqs};
pub use kernel::{Kernel, KernelConfig, KernelVersion};
pub use link::{
    Channels, Coalescing, DimLevel, Feature, Link, Napi, Pause, QueueIrq, Rings, RxQueue, TimeStamping, TxQueue,
    is_interface_name,
};
pub use live::Housekeeping;
pub use memory::{Memory, MemoryModule, Mount, Swap};
pub use msr::{Msrs, REGISTERS, bits};
pub use pci::{Aspm, Pci, PciDevice};
pub use power::{Idle, PowerLimit, PowerZone, Scaling, Uncore};
pub use root::{Kind, Root, RootError};
pub use system::{Dmi, Guest, Resctrl, ResctrlGroup, Services, Virtualisation};
pub use task::{Cgroup, Cgroups, SchedClass, Task, Workqueues};

pub(crate) use live::{THREAD_STATUS, messages as raw_messages, thread_files};
pub(crate) use read::{Context, Ethtool, Queues, matters as message_matters, write as write_queues};
pub(crate) use root::mangled;
pub(crate) use taking::{LiveLinks, away_from_isolated, isolated_cpus};
#[cfg(test)]
pub(crate) use taking::{parameters, sysctls};
use units::Nanos;

/// Everything known about one host, at one time or over one interval.
///
/// The default knows nothing: every fact is [`Why::NotRecorded`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// Where it was read from.
    pub origin: Origin,
    /// The running kernel's command line.
    pub cmdline: Fact<CommandLine>,
    /// The kernel.
    pub kernel: Kernel,
    /// CPUs, topology, NUMA nodes, idle states and frequencies by CPU.
    pub cpus: Cpus,
    /// Idle states as a whole.
    pub idle: Idle,
    /// Frequencies as a whole.
    pub scaling: Scaling,
    /// Uncore domains; absent where there is no such driver.
    pub uncore: Fact<Vec<Uncore>>,
    /// RAPL zones.
    pub power_zones: Fact<Vec<PowerZone>>,
    /// Model-specific registers.
    pub msrs: Msrs,
    /// Interrupts.
    pub irqs: Irqs,
    /// Threads.
    pub tasks: Fact<Vec<Task>>,
    /// Workqueues.
    pub workqueues: Workqueues,
    /// Control groups.
    pub cgroups: Cgroups,
    /// Memory.
    pub memory: Memory,
    /// PCI devices.
    pub pci: Pci,
    /// Network interfaces, by name.
    pub links: Fact<Vec<Link>>,
    /// Firmware's description of the machine.
    pub dmi: Dmi,
    /// Services.
    pub services: Services,
    /// Virtualisation.
    pub virtualisation: Virtualisation,
    /// Cache allocation.
    pub resctrl: Resctrl,
    /// FreeBSD; absent on Linux.
    pub freebsd: Fact<FreeBsd>,
    /// Counters since boot.
    pub counters: Counters,
    /// What counted between two readings, if there were two.
    pub interval: Fact<Interval>,
}

/// Where facts were read from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// What kind of place.
    pub kind: Kind,
    /// Its name for people: `this host`, or a file's name.
    pub name: String,
    /// Which operating system.
    pub os: Os,
    /// When a snapshot was taken, as it says.
    pub taken: Option<String>,
    /// What was left out while reading, and why: files above the limits, entries that lead outside.
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

/// What to read beyond the usual.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Read model-specific registers of a live host, and files that the kernel fills from them (energy-performance
    /// preference and bias, measured frequencies). Each read interrupts the CPU that it reads, isolated ones
    /// too; without this, such files are read for the other CPUs only.
    pub msrs: bool,
    /// Read the counters of a live host twice, this far apart.
    pub interval: Option<Nanos>,
    /// CPUs of a live host that are kept for applications, besides those of which the kernel says so: the reader keeps
    /// away from them too.
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

    /// The same as a number.
    pub fn sysctl_number(&self, name: &str) -> Fact<i64> {
        self.sysctl(name).parse(|text| text.trim().parse::<i64>())
    }

    /// A module's parameter, such as `kvm.halt_poll_ns`.
    pub fn parameter(&self, name: &str) -> Fact<&str> {
        match self.kernel.parameters.get(name) {
            Some(fact) => fact.as_ref().map(String::as_str),
            None => Fact::not_recorded(format!("/sys/module/{}", name.replacen('.', "/parameters/", 1)).as_str()),
        }
    }

    /// One interface by its name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.value()?.iter().find(|link| link.name == name)
    }

    /// The threads; none if they are not known.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.value().into_iter().flatten()
    }
}

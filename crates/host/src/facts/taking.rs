//! The parts of a snapshot that do not come from files. The fact readers produce them.

use std::collections::BTreeMap;

use units::Nanos;

use super::live::{self, Housekeeping};
use super::read;
use super::{Context, CpuSet, Ethtool, Fact, Facts, MemoryModule, Msrs, Queues, Reading, Root};
use crate::nic::{Client, Interface};

/// The interfaces of the live host.
pub(crate) struct LiveLinks;

impl LiveLinks {
    /// The ethtool settings and the queues of each interface.
    pub(crate) fn all(root: &Root) -> Vec<(String, Ethtool, Queues)> {
        let mut client = Client::new();
        let ask = |name: String| {
            let index = root.number::<u32>(&format!("sys/class/net/{name}/ifindex")).get()?;
            let interface = Interface::new(name.as_str(), index);
            let said = live::ethtool(&mut client, &interface);
            let queues = live::queues(&mut client, &interface);
            Some((name, said, queues))
        };
        root.list("sys/class/net").into_value().unwrap_or_default().into_iter().filter_map(ask).collect()
    }

    /// The drivers' own counters, by interface. Interfaces without such counters are left out.
    pub(crate) fn statistics() -> Vec<(String, BTreeMap<String, u64>)> {
        let names = Root::live().list("sys/class/net").into_value().unwrap_or_default();
        let mut client = Client::new();
        let counts = names.into_iter().map(|name| (name.clone(), live::statistics(&mut client, &name)));
        counts.filter(|(_, counts)| !counts.is_empty()).collect()
    }
}

/// Command outputs that do not concern interfaces.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub dma_latency: Fact<Nanos>,
    pub dma_latency_holders: Fact<Vec<String>>,
    pub modules: Fact<Vec<MemoryModule>>,
}

impl Facts {
    /// Samples sockets, queueing disciplines and NAPI instances for `length`; returns [`super::Observed`] as text.
    pub(crate) fn observe(root: &Root, length: Nanos) -> String {
        serde_json::to_string(&live::observe(root, length)).unwrap_or_default()
    }

    pub(crate) fn outputs(root: &Root) -> Outputs {
        Outputs {
            dma_latency: live::dma_latency(),
            dma_latency_holders: live::holders(),
            modules: read::memory_modules(root),
        }
    }

    /// Reads every register in [`super::REGISTERS`] on every online CPU.
    pub(crate) fn registers(root: &Root) -> Msrs {
        let online = root.cpu_list("sys/devices/system/cpu/online").into_value().unwrap_or_default();
        read::registers(&Context::new(root, Reading { msrs: true, ..Reading::default() }), &online)
    }

    /// Whether /proc/cpuinfo can be read without interrupting the CPUs in `spared`.
    pub(crate) fn cpuinfo_is_quiet(root: &Root, spared: &CpuSet) -> bool {
        read::cpuinfo_is_quiet(root, spared)
    }
}

impl Root {
    /// The release of the kernel.
    pub(crate) fn kernel_release(&self) -> Fact<String> {
        let cmdline = self.text("proc/cmdline").map(|text| super::CommandLine::parse(&text));
        read::release(self, &cmdline)
    }
}

/// The CPUs that are reserved for applications.
pub(crate) fn isolated_cpus(root: &Root) -> CpuSet {
    read::isolated(root)
}

/// Keeps the calling thread off the isolated CPUs until the returned value is dropped.
pub(crate) fn away_from_isolated() -> Housekeeping {
    Housekeeping::enter(&isolated_cpus(&Root::live()))
}

/// Names of the sysctls that the fact readers use.
#[cfg(test)]
pub(crate) fn sysctls() -> impl Iterator<Item = &'static str> {
    read::SYSCTLS.into_iter()
}

/// Names of the module parameters that the fact readers use.
#[cfg(test)]
pub(crate) fn parameters() -> impl Iterator<Item = &'static str> {
    read::PARAMETERS.into_iter()
}

//! Counters, since boot and during an interval.

use std::collections::BTreeMap;

use units::Nanos;

use super::Fact;

/// All counters at one time, or their increase between two readings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counters {
    /// Interrupts per source and CPU, from `/proc/interrupts`.
    pub interrupts: Fact<CountTable>,
    /// Softirqs per vector and CPU, from `/proc/softirqs`.
    pub softirqs: Fact<CountTable>,
    /// How each CPU spent its time, from `/proc/stat`.
    pub cpu_times: Fact<BTreeMap<u32, CpuTimes>>,
    /// Context switches of the whole host (`ctxt` of `/proc/stat`).
    pub context_switches: Fact<u64>,
    /// The network backlog of each CPU, from `/proc/net/softnet_stat`.
    pub softnet: Fact<BTreeMap<u32, Softnet>>,
    /// Counters of `/proc/net/snmp` and `/proc/net/netstat`, with names such as `Udp.RcvbufErrors`.
    pub snmp: Fact<BTreeMap<String, u64>>,
    /// Usage of idle states, by CPU and state number.
    pub idle: BTreeMap<(u32, u32), IdleCounts>,
    /// Thermal throttling events by CPU, from `thermal_throttle`.
    pub throttles: BTreeMap<u32, Throttles>,
    /// Number of system management interrupts since boot, by CPU (MSR 0x34).
    pub smis: Fact<BTreeMap<u32, u64>>,
    /// Statistics by interface name: the kernel's statistics in `/sys/class/net/X/statistics`, and the driver's
    /// statistics (`ethtool -S`) with the prefix `ethtool.`.
    pub links: BTreeMap<String, BTreeMap<String, u64>>,
    /// CPU time, page faults and context switches of each thread, by thread ID.
    pub tasks: BTreeMap<u32, TaskCounts>,
    /// Memory events (`/proc/vmstat`).
    pub vmstat: Fact<BTreeMap<String, u64>>,
    /// Number of corrected memory errors, summed over all memory controllers
    /// (`/sys/devices/system/edac/mc/mc*/ce_count`).
    pub corrected_errors: Fact<u64>,
}

/// Changes of counters between two readings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Interval {
    /// The time between the two readings.
    pub length: Nanos,
    /// The differences. A counter is left out if only one reading contains it, or if its value decreased.
    pub change: Counters,
}

/// A table of counts with one row per source and one column per CPU.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CountTable {
    /// The CPU of each column.
    pub cpus: Vec<u32>,
    /// The rows, in the order of the file.
    pub rows: Vec<CountRow>,
}

/// One row of a table of counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CountRow {
    /// The first field, for example `55`, `LOC` or `NET_RX`.
    pub label: Box<str>,
    /// The rest of the line: chip, hardware number and users of an interrupt, or an explanation of the label.
    pub description: Box<str>,
    /// One number per CPU column. Rows with only a total (`ERR`, `MIS`) have one number that belongs to no CPU.
    pub counts: Box<[u64]>,
}

impl CountTable {
    /// The row with this label. `None` if there is none.
    pub fn row(&self, label: &str) -> Option<&CountRow> {
        self.rows.iter().find(|row| &*row.label == label)
    }

    /// The count of a row on a CPU. `None` if the table does not contain it.
    pub fn on(&self, row: &CountRow, cpu: u32) -> Option<u64> {
        if row.counts.len() != self.cpus.len() {
            return None;
        }
        self.cpus.binary_search(&cpu).ok().map(|column| row.counts[column])
    }

    /// The count of a row, summed over the CPUs of a set.
    pub fn within(&self, row: &CountRow, set: &super::CpuSet) -> u64 {
        if row.counts.len() != self.cpus.len() {
            return 0;
        }
        self.cpus.iter().zip(&row.counts).filter(|(cpu, _)| set.contains(**cpu)).map(|(_, n)| n).sum()
    }
}

impl CountRow {
    /// The count summed over all CPUs.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The interrupt's number. `None` for rows whose label has letters, which are not device interrupts.
    pub fn irq(&self) -> Option<u32> {
        self.label.parse().ok()
    }
}

/// How a CPU spent its time (proc(5), `/proc/stat`), at the resolution of USER_HZ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct CpuTimes {
    pub user: Nanos,
    pub nice: Nanos,
    pub system: Nanos,
    pub idle: Nanos,
    pub iowait: Nanos,
    pub irq: Nanos,
    pub softirq: Nanos,
    /// Time that the hypervisor took for other guests.
    pub steal: Nanos,
    pub guest: Nanos,
    pub guest_nice: Nanos,
}

/// Softirqs of one CPU since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Softirqs {
    /// Time in softirqs of all kinds, from `/proc/stat`, at the resolution of USER_HZ. Without
    /// CONFIG_IRQ_TIME_ACCOUNTING, the kernel estimates it at its timer's ticks.
    pub time: Nanos,
    /// Number of times that the CPU ran NET_RX, the softirq that receives packets, from `/proc/softirqs`. `None` if
    /// unknown.
    pub net_rx: Option<u64>,
}

/// A CPU's row of `/proc/net/softnet_stat` (net/core/net-procfs.c).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Softnet {
    /// Number of packets processed.
    pub processed: u64,
    /// Number of packets dropped because the backlog was full.
    pub dropped: u64,
    /// Number of times that NET_RX stopped with packets left because its budget or its time had run out
    /// (`time_squeeze`).
    pub squeezed: u64,
    /// Number of inter-processor interrupts that the CPU received for receive packet steering.
    pub received_rps: u64,
}

/// Use of one idle state by one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleCounts {
    /// Number of times that the CPU entered the state.
    pub usage: u64,
    /// Time for which the kernel requested the state, in microseconds. The hardware may have stayed in it for a shorter
    /// time.
    pub time_us: u64,
    /// Number of times that the CPU woke so early that a shallower state would have been better.
    pub above: u64,
    /// Number of times that the CPU slept so long that a deeper state would have been better.
    pub below: u64,
    /// Number of times that the CPU could not enter the state.
    pub rejected: u64,
}

/// Thermal throttling of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Throttles {
    /// Number of times that the core was throttled (`core_throttle_count`).
    pub core: u64,
    /// Number of times that the package was throttled (`package_throttle_count`).
    pub package: u64,
}

/// CPU time, page faults and context switches of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskCounts {
    /// Time in user mode.
    pub user: Nanos,
    /// Time in the kernel.
    pub system: Nanos,
    /// Number of page faults that needed a read from disk.
    pub major_faults: u64,
    /// Number of page faults that needed no read from disk.
    pub minor_faults: u64,
    /// Number of context switches because the thread waited. `None` if not recorded.
    pub voluntary_switches: Option<u64>,
    /// Number of context switches because another thread took the CPU. `None` if not recorded.
    pub involuntary_switches: Option<u64>,
}

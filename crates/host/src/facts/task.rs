//! Threads of the kernel and of users, workqueues and control groups, and the CPUs on which they may run.

use std::collections::BTreeMap;

use super::{CpuSet, Fact};

/// One thread. Names come from `comm`. Arguments are never read, because they can contain secrets.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Task {
    /// Number of the thread's process.
    pub pid: u32,
    /// The number of the thread.
    pub tid: u32,
    /// Name of the thread, at most 15 bytes (longer for kernel workers).
    pub comm: String,
    /// Name of the thread's process.
    pub process: String,
    /// Whether the thread is a kernel thread (`PF_KTHREAD`, include/linux/sched.h).
    pub kernel: bool,
    /// Whether the thread is bound to its CPU and cannot be moved (`PF_NO_SETAFFINITY`).
    pub no_setaffinity: bool,
    /// The CPUs on which the thread may run (`Cpus_allowed_list` in `status`).
    pub affinity: Fact<CpuSet>,
    /// The CPU on which the thread last ran. `None` if that is unknown.
    pub last_cpu: Option<u32>,
    /// The thread's scheduling class.
    pub class: SchedClass,
    /// Real-time priority, 1 to 99. 0 for other classes.
    pub rt_priority: u32,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// State of the thread: `R`, `S`, `D`, `I`, …
    pub state: char,
    /// Locked memory of the thread's process, in bytes (`VmLck`).
    pub locked_bytes: Fact<u64>,
    /// Memory of the thread's process in huge pages of hugetlbfs, in bytes (`HugetlbPages`).
    pub huge_bytes: Fact<u64>,
    /// Control group of the thread's process.
    pub cgroup: Fact<String>,
}

/// Scheduling classes (include/uapi/linux/sched.h).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[allow(missing_docs)]
pub enum SchedClass {
    #[default]
    Normal,
    Fifo,
    RoundRobin,
    Batch,
    Idle,
    Deadline,
    Ext,
    /// Another class, with its number.
    Other(u32),
}

impl SchedClass {
    /// The class with this number.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Normal,
            1 => Self::Fifo,
            2 => Self::RoundRobin,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Ext,
            other => Self::Other(other),
        }
    }

    /// Whether the class is `SCHED_FIFO` or `SCHED_RR`.
    pub fn is_realtime(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin)
    }
}

/// Workqueues (`/sys/devices/virtual/workqueue`, Documentation/core-api/workqueue.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Workqueues {
    /// CPUs on which work that is not bound to a CPU may run (`cpumask`).
    pub cpumask: Fact<CpuSet>,
    /// The CPUs that the user requested for unbound work (`cpumask_requested`).
    pub requested: Fact<CpuSet>,
    /// The CPUs that isolated cpuset partitions removed from the mask (`cpumask_isolated`).
    pub isolated: Fact<CpuSet>,
    /// CPU masks of the unbound workqueues that have a mask of their own, such as `writeback` and `efi_runtime`.
    pub each: BTreeMap<String, Fact<CpuSet>>,
}

/// Control groups with CPU settings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cgroups {
    /// Version of the control groups: 2 for the unified hierarchy; 1 if cpuset is mounted as a separate hierarchy.
    pub version: Fact<u32>,
    /// The groups; parents precede their children.
    pub groups: Fact<Vec<Cgroup>>,
}

/// One control group (Documentation/admin-guide/cgroup-v2.rst; v1: cgroup-v1/cpusets.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cgroup {
    /// The group's path below the mount point; `/` for the root group.
    pub path: String,
    /// CPUs assigned to the group (`cpuset.cpus`).
    pub cpus: Fact<CpuSet>,
    /// CPUs that the group can actually use (`cpuset.cpus.effective`).
    pub effective: Fact<CpuSet>,
    /// CPUs that are exclusive to the group (`cpuset.cpus.exclusive`).
    pub exclusive: Fact<CpuSet>,
    /// CPUs of isolated partitions (`cpuset.cpus.isolated`, root group only).
    pub isolated: Fact<CpuSet>,
    /// The kind of the group's partition (`cpuset.cpus.partition`): `member`, `root`, `isolated`, or `isolated invalid
    /// (…)`.
    pub partition: Fact<String>,
    /// NUMA nodes from which the group may take memory (`cpuset.mems`).
    pub mems: Fact<CpuSet>,
    /// Version 1: whether the scheduler balances load within the group (`cpuset.sched_load_balance`).
    pub load_balance: Fact<bool>,
    /// The CPU quota (`None` means no limit) and its period, both in microseconds (`cpu.max`, or `cpu.cfs_quota_us` and
    /// `cpu.cfs_period_us`).
    pub quota: Fact<(Option<u64>, u64)>,
    /// Number of periods in which the quota stopped the group, and the total time in microseconds for which it was
    /// stopped (`cpu.stat`: `nr_throttled`, `throttled_usec`).
    pub throttled: Fact<(u64, u64)>,
    /// Whether the group contains processes (`cgroup.procs` is not empty).
    pub populated: Fact<bool>,
}

//! Threads, of the kernel and of users, and what may run where.

use std::collections::BTreeMap;

use super::{CpuSet, Fact};

/// One thread. Names are those of `comm`; arguments are never read, for they can hold secrets.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Task {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// Its name, at most 15 octets (workers of the kernel: more).
    pub comm: String,
    /// The name of its process.
    pub process: String,
    /// Is it a thread of the kernel (`PF_KTHREAD`, include/linux/sched.h)?
    pub kernel: bool,
    /// Is it bound and may not be moved (`PF_NO_SETAFFINITY`)?
    pub no_setaffinity: bool,
    /// Where it may run (`Cpus_allowed_list` of its status).
    pub affinity: Fact<CpuSet>,
    /// Where it ran last.
    pub last_cpu: Option<u32>,
    /// Scheduling class.
    pub class: SchedClass,
    /// Real-time priority, 1 to 99; 0 for the other classes.
    pub rt_priority: u32,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// `R`, `S`, `D`, `I`, …
    pub state: char,
    /// Locked memory of its process, in bytes (`VmLck`).
    pub locked_bytes: Fact<u64>,
    /// Huge pages of its process from hugetlbfs, in bytes (`HugetlbPages`).
    pub huge_bytes: Fact<u64>,
    /// The control group of its process.
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
    /// A number that is none of these.
    Other(u32),
}

impl SchedClass {
    /// By its number.
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

    /// `SCHED_FIFO` or `SCHED_RR`?
    pub fn is_realtime(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin)
    }
}

/// Workqueues (`/sys/devices/virtual/workqueue`, Documentation/core-api/workqueue.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Workqueues {
    /// Where work that is not bound to a CPU may run (`cpumask`).
    pub cpumask: Fact<CpuSet>,
    /// What was asked for (`cpumask_requested`).
    pub requested: Fact<CpuSet>,
    /// What isolation took away (`cpumask_isolated`).
    pub isolated: Fact<CpuSet>,
    /// Each unbound workqueue with a mask of its own, such as `writeback`, `efi_runtime`.
    pub each: BTreeMap<String, Fact<CpuSet>>,
}

/// Control groups that say something of CPUs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cgroups {
    /// 2 for the unified hierarchy, 1 for the old one (cpuset mounted on its own).
    pub version: Fact<u32>,
    /// The groups, parents first.
    pub groups: Fact<Vec<Cgroup>>,
}

/// One control group (Documentation/admin-guide/cgroup-v2.rst; v1: cgroup-v1/cpusets.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cgroup {
    /// Its path below the mount; `/` for the root.
    pub path: String,
    /// `cpuset.cpus`.
    pub cpus: Fact<CpuSet>,
    /// `cpuset.cpus.effective`.
    pub effective: Fact<CpuSet>,
    /// `cpuset.cpus.exclusive`.
    pub exclusive: Fact<CpuSet>,
    /// `cpuset.cpus.isolated` (root group only).
    pub isolated: Fact<CpuSet>,
    /// `cpuset.cpus.partition`: `member`, `root`, `isolated`, or `isolated invalid (…)`.
    pub partition: Fact<String>,
    /// `cpuset.mems`.
    pub mems: Fact<CpuSet>,
    /// v1: `cpuset.sched_load_balance`.
    pub load_balance: Fact<bool>,
    /// `cpu.max`, or `cpu.cfs_quota_us` and `cpu.cfs_period_us`: quota in microseconds, `None` for no limit; period.
    pub quota: Fact<(Option<u64>, u64)>,
    /// Times and microseconds that the quota stopped it (`cpu.stat`: `nr_throttled`, `throttled_usec`).
    pub throttled: Fact<(u64, u64)>,
    /// Has it processes of its own (`cgroup.procs` not empty)?
    pub populated: Fact<bool>,
}

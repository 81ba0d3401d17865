//! CPUs, their topology, idle states and frequencies.

use std::collections::{BTreeMap, BTreeSet};

use units::{Hertz, Nanos};

use super::{CpuSet, Fact};

/// The CPUs of a host and what holds for all of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cpus {
    /// CPUs that are there (`/sys/devices/system/cpu/present`).
    pub present: Fact<CpuSet>,
    /// CPUs that run (`online`).
    pub online: Fact<CpuSet>,
    /// CPUs that could come (`possible`).
    pub possible: Fact<CpuSet>,
    /// CPUs out of the scheduler's domains since boot (`isolated`: `isolcpus=domain`), and from 6.9 on
    /// those of isolated cpuset partitions.
    pub isolated: Fact<CpuSet>,
    /// CPUs that may stop their tick (`nohz_full`). The empty set where the kernel says `(null)`.
    pub nohz_full: Fact<CpuSet>,
    /// Is any core running two threads (`smt/active`)?
    pub smt_active: Fact<bool>,
    /// `on`, `off`, `forceoff`, `notsupported` or `notimplemented` (`smt/control`).
    pub smt_control: Fact<String>,
    /// The maker, from `vendor_id` of /proc/cpuinfo (`CPU implementer` on Arm).
    pub vendor: Fact<Vendor>,
    /// CPU family (decimal, as in /proc/cpuinfo).
    pub family: Fact<u32>,
    /// CPU model number.
    pub model: Fact<u32>,
    /// Stepping.
    pub stepping: Fact<u32>,
    /// Model name for people.
    pub model_name: Fact<String>,
    /// Generation, where family and model are known ones.
    pub generation: Fact<Generation>,
    /// Feature flags that every CPU has (`flags` of /proc/cpuinfo).
    pub flags: Fact<BTreeSet<String>>,
    /// Known vulnerabilities and their state (`/sys/devices/system/cpu/vulnerabilities/*`).
    pub vulnerabilities: Fact<BTreeMap<String, String>>,
    /// Each CPU that is present, by number.
    pub list: Vec<Cpu>,
    /// NUMA nodes, by number.
    pub nodes: Vec<Node>,
}

impl Cpus {
    /// One CPU by its number.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.list.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.list[index])
    }

    /// The CPUs that are online, or else present, or else listed; empty if none is known.
    pub fn all(&self) -> CpuSet {
        let known = self.online.value().or(self.present.value()).cloned();
        known.unwrap_or_else(|| self.list.iter().map(|cpu| cpu.id).collect())
    }

    /// Has every CPU this feature flag? `None` if the flags are not known.
    pub fn has_flag(&self, flag: &str) -> Option<bool> {
        self.flags.is(|flags| flags.contains(flag))
    }

    /// The node that a CPU belongs to.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.is(|cpus| cpus.contains(cpu)) == Some(true)).map(|node| node.id)
    }
}

/// Who made the CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// `GenuineIntel`.
    Intel,
    /// `AuthenticAMD`.
    Amd,
    /// `HygonGenuine`.
    Hygon,
    /// Any Arm implementer.
    Arm,
    /// Another one.
    Other,
}

/// Server generations whose latency behaviour differs (family 6 models of Intel: arch/x86/include/asm/intel-family.h;
/// AMD families 0x17, 0x19, 0x1A: arch/x86/kernel/cpu/amd.c).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Generation {
    Haswell,
    Broadwell,
    Skylake,
    CascadeLake,
    CooperLake,
    IceLake,
    SapphireRapids,
    EmeraldRapids,
    GraniteRapids,
    SierraForest,
    Zen1,
    Zen2,
    Zen3,
    Zen4,
    Zen5,
}

/// One CPU (a hardware thread).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// Is it running (`cpuN/online`)? CPU 0 often has no such file and is then running.
    pub online: Fact<bool>,
    /// Its socket (`topology/physical_package_id`, or /proc/cpuinfo).
    pub package: Fact<u32>,
    /// Its die within the socket.
    pub die: Fact<u32>,
    /// Its core within the socket.
    pub core: Fact<u32>,
    /// The hardware threads of its core, itself included (`topology/thread_siblings_list`, or from /proc/cpuinfo).
    pub siblings: Fact<CpuSet>,
    /// The CPUs that share its last-level cache (`cache/index3/shared_cpu_list`).
    pub l3: Fact<CpuSet>,
    /// Microcode revision (/proc/cpuinfo).
    pub microcode: Fact<u64>,
    /// Its frequency as /proc/cpuinfo says it (`cpu MHz`).
    pub cpuinfo_frequency: Fact<Hertz>,
    /// Its idle states, shallow ones first; absent where the kernel offers none (see [`super::Idle::driver`]).
    pub idle_states: Fact<Vec<IdleState>>,
    /// Frequency scaling.
    pub frequency: Frequency,
    /// The wake-up time that a process asked of this CPU (`power/pm_qos_resume_latency_us`).
    pub resume_latency: Fact<ResumeLatency>,
    /// Energy-performance bias, 0 (performance) to 15 (`power/energy_perf_bias`, MSR 0x1B0).
    pub energy_perf_bias: Fact<u8>,
    /// Machine checks of this CPU.
    pub machine_check: MachineCheck,
}

/// `/sys/devices/system/machinecheck/machinecheckN`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MachineCheck {
    /// Corrected errors are not looked at (`ignore_ce`).
    pub ignore_ce: Fact<bool>,
    /// How often the banks are polled, in seconds; 0 is never (`check_interval`).
    pub check_interval_s: Fact<u64>,
}

/// What `power/pm_qos_resume_latency_us` holds (Documentation/ABI/testing/sysfs-devices-power).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResumeLatency {
    /// `0`: no limit. Not "no latency".
    NoLimit,
    /// `n/a`: no latency at all is accepted; the CPU only polls.
    Zero,
    /// A limit.
    AtMost(Nanos),
}

/// One idle state of one CPU (`cpuidle/stateN`, Documentation/admin-guide/pm/cpuidle.rst). Its usage
/// counters are in [`super::Counters`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IdleState {
    /// N of `stateN`.
    pub index: u32,
    /// `POLL`, `C1`, `C1E`, `C6`, …
    pub name: Fact<String>,
    /// What it stands for, such as `MWAIT 0x20` or `ACPI IOPORT 0x414`.
    pub description: Fact<String>,
    /// Time to leave it.
    pub exit_latency: Fact<Nanos>,
    /// Shortest stay that pays.
    pub residency: Fact<Nanos>,
    /// Was it disabled for this CPU?
    pub disabled: Fact<bool>,
}

/// Frequency scaling of one CPU (`cpufreq/policyN` that it belongs to,
/// Documentation/admin-guide/pm/cpufreq.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frequency {
    /// `intel_pstate`, `intel_cpufreq`, `amd-pstate-epp`, `acpi-cpufreq`, …
    pub driver: Fact<String>,
    /// The governor.
    pub governor: Fact<String>,
    /// Lowest frequency that the governor may choose.
    pub scaling_min: Fact<Hertz>,
    /// Highest frequency that the governor may choose.
    pub scaling_max: Fact<Hertz>,
    /// What the governor last asked for, or what was measured; depends on the driver.
    pub current: Fact<Hertz>,
    /// Lowest frequency of the hardware.
    pub hardware_min: Fact<Hertz>,
    /// Highest frequency of the hardware, turbo included.
    pub hardware_max: Fact<Hertz>,
    /// Highest frequency without turbo (`base_frequency`).
    pub base: Fact<Hertz>,
    /// Highest frequency that the firmware allows (`bios_limit`, ACPI's _PPC).
    pub firmware_max: Fact<Hertz>,
    /// Energy-performance preference: a name or 0 to 255.
    pub epp: Fact<String>,
    /// How long a change of frequency takes, as the driver says.
    pub transition_latency: Fact<Nanos>,
    /// CPUs that share the frequency (`affected_cpus`).
    pub shared_with: Fact<CpuSet>,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs (`cpulist`).
    pub cpus: Fact<CpuSet>,
    /// Distances to all nodes in their order (`distance`); 10 is the node itself.
    pub distances: Fact<Vec<u32>>,
    /// Its huge pages.
    pub huge_pages: Vec<HugePages>,
    /// Its memory, in bytes (`meminfo`, MemTotal).
    pub memory_bytes: Fact<u64>,
    /// Of it free, in bytes.
    pub free_bytes: Fact<u64>,
}

/// A pool of huge pages of one size, of a node or of the host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HugePages {
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: Fact<u64>,
    /// Of these, free.
    pub free: Fact<u64>,
    /// Beyond the pool's size.
    pub surplus: Fact<u64>,
}

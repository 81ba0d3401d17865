//! CPUs, their topology, idle states and frequencies.

use std::collections::{BTreeMap, BTreeSet};

use units::{Hertz, Nanos};

use super::{CpuSet, Fact};

/// The CPUs of a host, and the facts that are the same for all of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cpus {
    /// CPUs that are present (`/sys/devices/system/cpu/present`).
    pub present: Fact<CpuSet>,
    /// CPUs that are running (`online`).
    pub online: Fact<CpuSet>,
    /// CPUs that may be added later (`possible`).
    pub possible: Fact<CpuSet>,
    /// CPUs outside the scheduler's domains (`isolated`): the CPUs of `isolcpus=domain` and, from Linux 6.9 on, also
    /// the CPUs of isolated cpuset partitions.
    pub isolated: Fact<CpuSet>,
    /// CPUs that may stop their tick (`nohz_full`). Empty if the kernel shows `(null)`.
    pub nohz_full: Fact<CpuSet>,
    /// Whether any core runs two threads (`smt/active`).
    pub smt_active: Fact<bool>,
    /// The SMT switch: `on`, `off`, `forceoff`, `notsupported` or `notimplemented` (`smt/control`).
    pub smt_control: Fact<String>,
    /// The manufacturer, from `vendor_id` of /proc/cpuinfo (`CPU implementer` on Arm).
    pub vendor: Fact<Vendor>,
    /// CPU family (decimal, as in /proc/cpuinfo).
    pub family: Fact<u32>,
    /// CPU model number.
    pub model: Fact<u32>,
    /// The stepping: the revision of the CPU model.
    pub stepping: Fact<u32>,
    /// The model name, such as `Intel(R) Xeon(R) Gold 6338N CPU @ 2.20GHz`.
    pub model_name: Fact<String>,
    /// The server generation. Missing if Apus does not know the family and model.
    pub generation: Fact<Generation>,
    /// Feature flags that all CPUs have (`flags` of /proc/cpuinfo). Absent on Arm.
    pub flags: Fact<BTreeSet<String>>,
    /// Known vulnerabilities and their state (`/sys/devices/system/cpu/vulnerabilities/*`).
    pub vulnerabilities: Fact<BTreeMap<String, String>>,
    /// Each CPU that is present, sorted by number.
    pub list: Vec<Cpu>,
    /// NUMA nodes, sorted by number.
    pub nodes: Vec<Node>,
}

impl Cpus {
    /// The CPU with this number. `None` if it is not listed.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.list.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.list[index])
    }

    /// The online CPUs. If these are unknown, the present CPUs; if those are unknown too, the listed ones. Empty if
    /// none are known.
    pub fn all(&self) -> CpuSet {
        let known = self.online.value().or(self.present.value()).cloned();
        known.unwrap_or_else(|| self.list.iter().map(|cpu| cpu.id).collect())
    }

    /// The NUMA node to which a CPU belongs. `None` if it is not known.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.is(|cpus| cpus.contains(cpu)) == Some(true)).map(|node| node.id)
    }
}

/// The manufacturer of the CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// Intel (vendor ID `GenuineIntel`).
    Intel,
    /// AMD (vendor ID `AuthenticAMD`).
    Amd,
    /// Hygon (vendor ID `HygonGenuine`).
    Hygon,
    /// Any Arm implementer.
    Arm,
    /// Any other manufacturer.
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
    /// CPU number in Linux.
    pub id: u32,
    /// Whether the CPU is online (`cpuN/online`). CPU 0 often has no such file, and then it is online.
    pub online: Fact<bool>,
    /// The CPU's socket (`topology/physical_package_id`, or /proc/cpuinfo).
    pub package: Fact<u32>,
    /// Number of the CPU's die within the socket.
    pub die: Fact<u32>,
    /// Number of the CPU's core within the socket.
    pub core: Fact<u32>,
    /// The hardware threads of the CPU's core, the CPU itself included (`topology/thread_siblings_list` or
    /// /proc/cpuinfo).
    pub siblings: Fact<CpuSet>,
    /// The CPUs that share a last-level cache with this CPU (`cache/index3/shared_cpu_list`).
    pub l3: Fact<CpuSet>,
    /// The CPU's microcode revision (/proc/cpuinfo).
    pub microcode: Fact<u64>,
    /// The CPU's frequency according to /proc/cpuinfo (`cpu MHz`).
    pub cpuinfo_frequency: Fact<Hertz>,
    /// The CPU's idle states, from shallow to deep. Absent if the kernel offers none (see [`super::Idle::driver`]).
    pub idle_states: Fact<Vec<IdleState>>,
    /// The CPU's frequency scaling.
    pub frequency: Frequency,
    /// The longest wake-up time allowed for this CPU (`power/pm_qos_resume_latency_us`).
    pub resume_latency: Fact<ResumeLatency>,
    /// Energy-performance bias, from 0 (performance) to 15 (power saving) (`power/energy_perf_bias`, MSR 0x1B0).
    pub energy_perf_bias: Fact<u8>,
    /// The CPU's settings for machine checks.
    pub machine_check: MachineCheck,
}

/// Settings in `/sys/devices/system/machinecheck/machinecheckN`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MachineCheck {
    /// Whether corrected errors are ignored (`ignore_ce`).
    pub ignore_ce: Fact<bool>,
    /// Time between two polls of the machine-check banks, in seconds (`check_interval`). 0 means that they are never
    /// polled.
    pub check_interval_s: Fact<u64>,
}

/// The value of `power/pm_qos_resume_latency_us` (Documentation/ABI/testing/sysfs-devices-power).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResumeLatency {
    /// `0`: there is no limit. It does not mean zero latency.
    NoLimit,
    /// `n/a`: no wake-up time is allowed, so the idle CPU only polls.
    Zero,
    /// The longest wake-up time allowed.
    AtMost(Nanos),
}

/// One idle state of one CPU (`cpuidle/stateN`, Documentation/admin-guide/pm/cpuidle.rst). Its usage
/// counters are in [`super::Counters`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IdleState {
    /// The number N of `stateN`.
    pub index: u32,
    /// The state's name: `POLL`, `C1`, `C1E`, `C6`, …
    pub name: Fact<String>,
    /// The driver's description of the state, such as `MWAIT 0x20` or `ACPI IOPORT 0x414`.
    pub description: Fact<String>,
    /// The time that the CPU needs to leave the state.
    pub exit_latency: Fact<Nanos>,
    /// The shortest stay for which the state saves energy.
    pub residency: Fact<Nanos>,
    /// Whether the state is disabled for this CPU.
    pub disabled: Fact<bool>,
}

/// Frequency scaling of one CPU, from the CPU's `cpufreq/policyN` (Documentation/admin-guide/pm/cpufreq.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frequency {
    /// The driver: `intel_pstate`, `intel_cpufreq`, `amd-pstate-epp`, `acpi-cpufreq`, …
    pub driver: Fact<String>,
    /// The governor, for example `performance`.
    pub governor: Fact<String>,
    /// The lowest frequency that the governor may choose.
    pub scaling_min: Fact<Hertz>,
    /// The highest frequency that the governor may choose.
    pub scaling_max: Fact<Hertz>,
    /// The current frequency (`scaling_cur_freq`): the governor's last request or a measurement, depending on the
    /// driver.
    pub current: Fact<Hertz>,
    /// The lowest frequency of the hardware.
    pub hardware_min: Fact<Hertz>,
    /// The highest frequency of the hardware, including turbo.
    pub hardware_max: Fact<Hertz>,
    /// The highest frequency without turbo (`base_frequency`).
    pub base: Fact<Hertz>,
    /// The frequency of the highest performance that the CPU can sustain, according to the firmware
    /// (`acpi_cppc/nominal_freq`, Documentation/admin-guide/acpi/cppc_sysfs.rst). Absent if the firmware reports 0.
    pub nominal: Fact<Hertz>,
    /// The highest frequency that the firmware allows (`bios_limit`, ACPI's _PPC).
    pub firmware_max: Fact<Hertz>,
    /// Energy-performance preference (`energy_performance_preference`): a name, or a number from 0 (performance) to 255
    /// (power saving).
    pub epp: Fact<String>,
    /// How long a change of frequency takes, according to the driver.
    pub transition_latency: Fact<Nanos>,
    /// CPUs that share the frequency (`affected_cpus`).
    pub shared_with: Fact<CpuSet>,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Node {
    /// The node's number.
    pub id: u32,
    /// The CPUs of the node (`cpulist`).
    pub cpus: Fact<CpuSet>,
    /// Distances to all nodes, in the order of the node numbers (`distance`). The distance of a node to itself is 10.
    pub distances: Fact<Vec<u32>>,
    /// The node's huge pages: one pool for each page size.
    pub huge_pages: Vec<HugePages>,
    /// Total memory of the node in bytes (`meminfo`, MemTotal).
    pub memory_bytes: Fact<u64>,
    /// Free memory of the node in bytes.
    pub free_bytes: Fact<u64>,
}

/// A pool of huge pages of one size, of a node or of the whole host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HugePages {
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// Number of pages in the pool.
    pub total: Fact<u64>,
    /// Number of free pages in the pool.
    pub free: Fact<u64>,
    /// Number of pages beyond the configured size of the pool.
    pub surplus: Fact<u64>,
}

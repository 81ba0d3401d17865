//! Settings of power management that affect more than one CPU.

use units::{Hertz, Microwatts, Nanos};

use super::Fact;

/// Settings of cpuidle for the whole host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Idle {
    /// The idle driver: `intel_idle`, `acpi_idle`, `haltpoll`, `none`. Absent if the kernel has no cpuidle.
    pub driver: Fact<String>,
    /// The idle governor: `menu`, `teo`, `ladder`, `haltpoll`.
    pub governor: Fact<String>,
    /// The governors that can be selected.
    pub governors: Fact<Vec<String>>,
    /// The wake-up latency that the kernel currently allows: the strictest request of all processes
    /// (`/dev/cpu_dma_latency`). The default of 2,000 s means no limit.
    pub dma_latency: Fact<Nanos>,
    /// Processes that hold `/dev/cpu_dma_latency` open, as `comm (pid)`.
    pub dma_latency_holders: Fact<Vec<String>>,
    /// Whether UMWAIT and TPAUSE may enter C0.2, which is deeper than C0.1 (`umwait_control/enable_c02`).
    pub umwait_c02: Fact<bool>,
    /// Maximum time for which UMWAIT and TPAUSE may wait, in TSC ticks (`umwait_control/max_time`). 0 means no limit.
    pub umwait_max_ticks: Fact<u64>,
}

/// Settings of frequency scaling for the whole host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scaling {
    /// Mode of the intel_pstate driver: `active`, `passive` or `off` (`intel_pstate/status`).
    pub intel_pstate: Fact<String>,
    /// Mode of the amd_pstate driver: `active`, `passive`, `guided` or `disable` (`amd_pstate/status`).
    pub amd_pstate: Fact<String>,
    /// Whether turbo is off (`intel_pstate/no_turbo`).
    pub no_turbo: Fact<bool>,
    /// Whether boost is on (`cpufreq/boost`).
    pub boost: Fact<bool>,
    /// Lower performance limit, in percent of the highest performance (`intel_pstate/min_perf_pct`).
    pub min_perf_pct: Fact<u32>,
    /// Upper performance limit, in percent of the highest performance (`intel_pstate/max_perf_pct`).
    pub max_perf_pct: Fact<u32>,
    /// Whether intel_pstate briefly raises a CPU's minimum frequency when a task continues after waiting for I/O
    /// (`intel_pstate/hwp_dynamic_boost`).
    pub hwp_dynamic_boost: Fact<bool>,
    /// The firmware's platform profile (`/sys/firmware/acpi/platform_profile`).
    pub platform_profile: Fact<String>,
}

impl Scaling {
    /// Whether turbo or boost is allowed, according to the setting that this host has (`no_turbo` or `boost`).
    pub fn turbo(&self) -> Fact<bool> {
        self.no_turbo.clone().map(|off| !off).or_else(|| self.boost.clone())
    }
}

/// One uncore domain (`/sys/devices/system/cpu/intel_uncore_frequency/*`,
/// Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Uncore {
    /// Name of the uncore domain, such as `package_00_die_00` or `uncore00`.
    pub name: String,
    /// Number of the domain's socket.
    pub package: Fact<u32>,
    /// Number of the domain's die (`domain_id` on processors with TPMI).
    pub die: Fact<u32>,
    /// The minimum frequency allowed now.
    pub min: Fact<Hertz>,
    /// The maximum frequency allowed now.
    pub max: Fact<Hertz>,
    /// The minimum frequency that was allowed at boot.
    pub initial_min: Fact<Hertz>,
    /// The maximum frequency that was allowed at boot.
    pub initial_max: Fact<Hertz>,
    /// The uncore frequency at the time of reading.
    pub current: Fact<Hertz>,
    /// Efficiency latency control: the minimum frequency at low utilisation.
    pub elc_floor: Fact<Hertz>,
    /// Efficiency latency control: utilisation in percent below which [`Self::elc_floor`] is the minimum frequency.
    pub elc_low_threshold_pct: Fact<u32>,
    /// Efficiency latency control: utilisation in percent above which the frequency rises.
    pub elc_high_threshold_pct: Fact<u32>,
    /// Efficiency latency control: whether [`Self::elc_high_threshold_pct`] is in use.
    pub elc_high_threshold: Fact<bool>,
}

/// One RAPL zone (`/sys/class/powercap/intel-rapl:*`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PowerZone {
    /// Identifier of the power zone, for example `intel-rapl:0`.
    pub id: String,
    /// Name of the power zone: `package-0`, `dram` or `psys`.
    pub name: Fact<String>,
    /// Whether the zone is enabled.
    pub enabled: Fact<bool>,
    /// The zone's power limits, in the kernel's order.
    pub limits: Vec<PowerLimit>,
}

/// One limit of a RAPL zone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PowerLimit {
    /// The name of the limit: `long_term`, `short_term`, `peak_power`.
    pub name: Fact<String>,
    /// The power limit (`constraint_N_power_limit_uw`).
    pub limit: Fact<Microwatts>,
    /// The rated power of the processor (`constraint_N_max_power_uw`).
    pub max: Fact<Microwatts>,
    /// The time window over which power is averaged (`constraint_N_time_window_us`).
    pub window: Fact<Nanos>,
}

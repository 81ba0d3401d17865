//! Power management that concerns more than one CPU.

use units::{Hertz, Microwatts, Nanos};

use super::Fact;

/// cpuidle as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Idle {
    /// `intel_idle`, `acpi_idle`, `haltpoll`, `none`; absent where the kernel has no cpuidle.
    pub driver: Fact<String>,
    /// `menu`, `teo`, `ladder`, `haltpoll`.
    pub governor: Fact<String>,
    /// What one may choose from.
    pub governors: Fact<Vec<String>>,
    /// The longest wake-up that all processes together accept (`/dev/cpu_dma_latency`);
    /// 2,000 s is the default and means no limit.
    pub dma_latency: Fact<Nanos>,
    /// Who holds `/dev/cpu_dma_latency` open, as `comm (pid)`.
    pub dma_latency_holders: Fact<Vec<String>>,
    /// `umwait_control/enable_c02`: may UMWAIT and TPAUSE sleep deeper?
    pub umwait_c02: Fact<bool>,
    /// `umwait_control/max_time`, in TSC ticks.
    pub umwait_max_ticks: Fact<u64>,
}

/// Frequency scaling as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scaling {
    /// `active`, `passive`, `off` (`intel_pstate/status`).
    pub intel_pstate: Fact<String>,
    /// `active`, `passive`, `guided`, `disable` (`amd_pstate/status`).
    pub amd_pstate: Fact<String>,
    /// Turbo is off (`intel_pstate/no_turbo`).
    pub no_turbo: Fact<bool>,
    /// Boost is on (`cpufreq/boost`).
    pub boost: Fact<bool>,
    /// `intel_pstate/min_perf_pct`.
    pub min_perf_pct: Fact<u32>,
    /// `intel_pstate/max_perf_pct`.
    pub max_perf_pct: Fact<u32>,
    /// `intel_pstate/hwp_dynamic_boost`.
    pub hwp_dynamic_boost: Fact<bool>,
    /// `/sys/firmware/acpi/platform_profile`.
    pub platform_profile: Fact<String>,
}

impl Scaling {
    /// Is turbo or boost allowed, by whichever switch this host has?
    pub fn turbo(&self) -> Fact<bool> {
        self.no_turbo.clone().map(|off| !off).or_else(|| self.boost.clone())
    }
}

/// One uncore domain (`/sys/devices/system/cpu/intel_uncore_frequency/*`,
/// Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Uncore {
    /// `package_00_die_00` or `uncore00`.
    pub name: String,
    /// Its socket.
    pub package: Fact<u32>,
    /// Its die (`domain_id` on TPMI parts).
    pub die: Fact<u32>,
    /// Lowest frequency now.
    pub min: Fact<Hertz>,
    /// Highest frequency now.
    pub max: Fact<Hertz>,
    /// Lowest frequency at boot.
    pub initial_min: Fact<Hertz>,
    /// Highest frequency at boot.
    pub initial_max: Fact<Hertz>,
    /// Frequency at the time of reading.
    pub current: Fact<Hertz>,
    /// Efficiency latency control: frequency below which it does not fall.
    pub elc_floor: Fact<Hertz>,
    /// Utilisation below which the floor applies, in percent.
    pub elc_low_threshold_pct: Fact<u32>,
    /// Utilisation above which the frequency rises, in percent.
    pub elc_high_threshold_pct: Fact<u32>,
    /// Does the high threshold act?
    pub elc_high_threshold: Fact<bool>,
}

/// One RAPL zone (`/sys/class/powercap/intel-rapl:*`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PowerZone {
    /// `intel-rapl:0`.
    pub id: String,
    /// `package-0`, `dram`, `psys`.
    pub name: Fact<String>,
    /// `enabled`.
    pub enabled: Fact<bool>,
    /// Its limits, in the kernel's order.
    pub limits: Vec<PowerLimit>,
}

/// One limit of a RAPL zone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PowerLimit {
    /// `long_term`, `short_term`, `peak_power`.
    pub name: Fact<String>,
    /// The limit (`constraint_N_power_limit_uw`).
    pub limit: Fact<Microwatts>,
    /// What the part is made for (`constraint_N_max_power_uw`).
    pub max: Fact<Microwatts>,
    /// Averaged over (`constraint_N_time_window_us`).
    pub window: Fact<Nanos>,
}

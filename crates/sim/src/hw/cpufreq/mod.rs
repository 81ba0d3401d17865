//! The governors that request a core's frequency if no policy of Apus does: Linux's cpufreq governors, and NMAP.
//!
//! ```text
//!   the core wakes, works ──► Load: time, time idle, packets ──► Governor::decide ──► a request, or none
//! ```
//! As in the kernel (`cpufreq_update_util()`), a governor is asked only while the core runs. A sample that is due
//! during an idle period is taken at the next wake-up.
//!
//! | governor | goes by | source |
//! | --- | --- | --- |
//! | `performance`, `powersave` | nothing: the highest, the lowest | `drivers/cpufreq/cpufreq_performance.c`, `cpufreq_powersave.c` |
//! | `ondemand`, `conservative` | the share of time that was not idle, once a sampling period | `cpufreq_ondemand.c`, `cpufreq_conservative.c`, `cpufreq_governor.c` |
//! | `schedutil` | the scheduler's utilisation (PELT) | `kernel/sched/cpufreq_schedutil.c`, `kernel/sched/pelt.c` |
//! | `nmap` | NAPI's change from interrupts to polling; else `ondemand` | K.-D. Kang et al., MICRO 2021 |
//!
//! Kernel sources are those of Linux 6.6. **Not modelled:** policies of several CPUs (each core has its own),
//! `powersave_bias`, `ignore_nice_load`, I/O wait boosts, schedutil's estimate of a task's utilisation when it wakes
//! (`util_est`), utilisation clamps other than the default for real-time threads, intel_pstate's own algorithms,
//! hardware-managed P-states.

mod dbs;
mod nmap;
mod pelt;
mod schedutil;

pub use dbs::{ConservativeModel, OndemandModel};
pub use nmap::NmapModel;
pub use schedutil::SchedutilModel;

use policy::frequency::PStates;
use units::{Hertz, Nanos};

use crate::At;

/// Default time between two samples, and schedutil's default rate limit: 1,000 times the driver's transition latency,
/// at most 10 ms (`cpufreq_policy_transition_delay_us()`, Linux 6.6). acpi-cpufreq reports 10 us on most servers. Later
/// kernels use less (at most 2 ms, then 1.5 times the latency), but never less than two ticks for ondemand and
/// conservative.
pub const SAMPLING: Nanos = Nanos::from_millis(10);

units::named! {
    /// A governor and its tunables.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum GovernorModel {
        /// Requests the highest frequency.
        Performance = "performance",
        /// Requests the lowest frequency.
        Powersave = "powersave",
        /// Requests the highest frequency at high load, otherwise a frequency in proportion to the load.
        Ondemand(OndemandModel) = "ondemand",
        /// Raises the frequency by a step at high load, and lowers it by a step at low load.
        Conservative(ConservativeModel) = "conservative",
        /// Follows the scheduler's utilisation.
        Schedutil(SchedutilModel) = "schedutil",
        /// Follows NAPI's mode: polling or interrupts.
        Nmap(NmapModel) = "nmap",
    }
}

/// What a governor is told about its core. Counts are totals since the start of the simulation, unless stated
/// otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Load {
    /// Total idle time of the core.
    pub idle: Nanos,
    /// Number of packets that NAPI took in the first poll after an interrupt.
    pub interrupt_packets: u64,
    /// Number of packets that NAPI took in further polls, while the interrupt stayed masked.
    pub polled_packets: u64,
    /// Number of packets that NAPI took in further polls since the last interrupt. Not a total.
    pub polled_in_a_row: u64,
}

/// The governor of one core.
#[derive(Clone, Debug)]
pub struct Governor {
    scheme: Scheme,
    range: PStates,
    requested: Hertz,
}

#[derive(Clone, Debug)]
enum Scheme {
    Fixed,
    Ondemand(dbs::Ondemand),
    Conservative(dbs::Conservative),
    Schedutil(schedutil::Schedutil),
    Nmap(nmap::Nmap),
}

impl Governor {
    /// Makes a governor that may request the frequencies of `range`. `realtime` says whether a FIFO thread runs on the
    /// core.
    pub fn new(model: GovernorModel, range: PStates, realtime: bool) -> Self {
        let (scheme, requested) = match model {
            GovernorModel::Performance => (Scheme::Fixed, range.highest()),
            GovernorModel::Powersave => (Scheme::Fixed, range.lowest()),
            GovernorModel::Ondemand(model) => (Scheme::Ondemand(dbs::Ondemand::new(model)), range.highest()),
            GovernorModel::Conservative(model) => {
                (Scheme::Conservative(dbs::Conservative::new(model, range.highest())), range.highest())
            }
            GovernorModel::Schedutil(model) => {
                (Scheme::Schedutil(schedutil::Schedutil::new(model, realtime)), range.highest())
            }
            GovernorModel::Nmap(model) => (Scheme::Nmap(nmap::Nmap::new(model)), range.highest()),
        };
        Self { scheme, range, requested }
    }

    /// The last requested frequency. Until the first request it is the initial one: the highest, as after a boot, or
    /// the lowest for `powersave`.
    pub const fn requested(&self) -> Hertz {
        self.requested
    }

    /// Whether the governor never changes its request.
    pub const fn is_fixed(&self) -> bool {
        matches!(self.scheme, Scheme::Fixed)
    }

    /// Tells the governor what the core did up to `now`, and the frequency `running` at which it ran. Returns the
    /// frequency to request, or `None` if the request does not change.
    pub fn decide(&mut self, now: At, running: Hertz, load: &Load) -> Option<Hertz> {
        let (range, requested) = (&self.range, self.requested);
        let wanted = match &mut self.scheme {
            Scheme::Fixed => None,
            Scheme::Ondemand(scheme) => scheme.decide(now, load, range, requested),
            Scheme::Conservative(scheme) => scheme.decide(now, load, range),
            Scheme::Schedutil(scheme) => scheme.decide(now, running, load, range, requested),
            Scheme::Nmap(scheme) => scheme.decide(now, load, range, requested),
        };
        let wanted = wanted.filter(|wanted| *wanted != self.requested)?;
        self.requested = wanted;
        Some(wanted)
    }
}

/// `CPUFREQ_RELATION_L`: the lowest frequency that is at least `wanted`.
fn at_least(range: &PStates, wanted: Hertz) -> Hertz {
    range.at_least(wanted).unwrap_or_else(|| range.highest())
}

/// `CPUFREQ_RELATION_H`: the highest frequency that is at most `wanted`.
fn at_most(range: &PStates, wanted: Hertz) -> Hertz {
    range.as_slice().iter().copied().rev().find(|frequency| *frequency <= wanted).unwrap_or_else(|| range.lowest())
}

/// `CPUFREQ_RELATION_C`: the closest frequency. Of two equally close ones, the lower.
fn closest(range: &PStates, wanted: Hertz) -> Hertz {
    let (below, above) = (at_most(range, wanted), at_least(range, wanted));
    let distance = |frequency: Hertz| frequency.as_hertz().abs_diff(wanted.as_hertz());
    if distance(below) <= distance(above) { below } else { above }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub const fn mhz(n: u64) -> Hertz {
        Hertz::new(n * 1_000_000)
    }

    /// 800 MHz to 2.2 GHz.
    pub fn range() -> PStates {
        PStates::steps(mhz(800), mhz(2_200), mhz(100)).unwrap()
    }

    /// Lets the governor decide once a millisecond, `milliseconds` times, while the core is busy for `busy` percent of
    /// each millisecond. Returns its last request.
    pub fn loaded(governor: &mut Governor, from: &mut u64, idle: &mut u64, milliseconds: u64, busy: u64) -> Hertz {
        for _ in 0..milliseconds {
            *from += 1_000_000;
            *idle += (100 - busy) * 10_000;
            let load = Load { idle: Nanos::from_nanos(*idle), ..Load::default() };
            let running = governor.requested();
            governor.decide(At::from_nanos(*from), running, &load);
        }
        governor.requested()
    }

    #[test]
    fn performance_and_powersave_never_change() {
        for (model, frequency) in [(GovernorModel::Performance, 2_200), (GovernorModel::Powersave, 800)] {
            let mut governor = Governor::new(model, range(), false);
            assert!(governor.is_fixed());
            assert_eq!(loaded(&mut governor, &mut 0, &mut 0, 100, 50), mhz(frequency));
        }
    }

    #[test]
    fn relations_are_the_kernels() {
        let range = range();
        assert_eq!((at_least(&range, mhz(1_210)), at_most(&range, mhz(1_290))), (mhz(1_300), mhz(1_200)));
        assert_eq!((closest(&range, mhz(1_250)), closest(&range, mhz(1_251))), (mhz(1_200), mhz(1_300)));
        assert_eq!((at_least(&range, mhz(9_000)), at_most(&range, mhz(1))), (mhz(2_200), mhz(800)));
    }
}

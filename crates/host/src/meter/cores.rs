//! The frequency and the idle states of each core between two readings, and the limits of the idle states.
//!
//! The frequency comes from APERF and MPERF where they can be read: MPERF counts at a fixed rate while the core runs,
//! APERF at the core's current frequency (Intel SDM, volume 3, 15.2; AMD APM, volume 2, 17.4). The ratio of APERF to
//! MPERF gives the frequency while the core ran. The ratio of MPERF to the TSC gives the share of time for which the
//! core ran. Reading these registers interrupts the CPU, so those of isolated CPUs are read only on request. Without
//! these registers, the frequency comes from `scaling_cur_freq`, which is the last request or a measurement, depending
//! on the driver.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use units::{Hertz, Nanos};

use super::{perf, sys, why};
use crate::facts::{CpuSet, Fact, Kind, ResumeLatency, Root, Why, dma_latency, holders};

const CPUS: &str = "sys/devices/system/cpu";
const PMU: &str = "sys/bus/event_source/devices/msr";
/// Addresses of IA32_MPERF, IA32_APERF and IA32_TIME_STAMP_COUNTER.
const REGISTERS: [u64; 3] = [0xE7, 0xE8, 0x10];

units::named! {
    /// The source of a core's frequency.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum FrequencySource {
        /// APERF and MPERF through perf's PMU `msr`: the frequency while the core ran.
        PerfMsr = "perf_aperf_mperf",
        /// APERF and MPERF through `/dev/cpu/N/msr`.
        Msr = "msr_aperf_mperf",
        /// `scaling_cur_freq` at the time of reading: the requested or the measured frequency, depending on the driver.
        Scaling = "scaling_cur_freq",
    }
}

/// The cores of a machine, with open files of their counters.
#[derive(Debug)]
pub struct Cores {
    cores: Vec<Core>,
}

#[derive(Debug)]
struct Core {
    cpu: u32,
    states: Result<Vec<State>, Why>,
    clock: Result<Clock, Why>,
}

#[derive(Debug)]
struct State {
    name: String,
    usage: File,
    time: File,
}

#[derive(Debug)]
enum Clock {
    /// perf events of MPERF, APERF and TSC.
    Perf([OwnedFd; 3]),
    Msr(File),
    Scaling(File),
}

/// One reading of the counters of all cores.
#[derive(Clone, Debug)]
pub struct Counts {
    at: Nanos,
    cores: Vec<CoreCounts>,
}

/// The counters of a core.
#[derive(Clone, Debug)]
struct CoreCounts {
    /// Number of entries and total time in microseconds, for each idle state.
    states: Vec<Result<(u64, u64), Why>>,
    ticks: Result<Ticks, Why>,
}

#[derive(Clone, Copy, Debug)]
enum Ticks {
    /// Counts of MPERF, APERF and TSC.
    Counted([u64; 3]),
    Now(Hertz),
}

/// The frequency and the idle states of a core between two readings.
#[derive(Clone, PartialEq, Debug)]
pub struct CoreUse {
    /// Number of the CPU.
    pub cpu: u32,
    /// Mean frequency while the core ran, or why the frequency is unknown.
    pub frequency: Result<Hertz, String>,
    /// Source of the frequency. `None` if the frequency is unknown.
    pub frequency_by: Option<FrequencySource>,
    /// Share of time for which the core ran (C0), in ppm, from MPERF and TSC. `None` if these registers cannot be read.
    pub running_ppm: Option<u32>,
    /// The idle states, from shallow to deep, or why they are unknown.
    pub states: Result<Vec<StateUse>, String>,
}

/// The use of an idle state between two readings. The kernel counts the states that it requests; the hardware may have
/// chosen a shallower state.
#[derive(Clone, PartialEq, Debug)]
pub struct StateUse {
    /// Name of the idle state: `POLL`, `C1`, `C6`, …
    pub name: String,
    /// How often the kernel requested the state. `None` if the counter could not be read.
    pub entries: Option<u64>,
    /// Total time for which the kernel requested the state. `None` if the counter could not be read.
    pub residency: Option<Nanos>,
    /// `residency` as a share of the time between the two readings, in ppm. It may be slightly above 1,000,000, because
    /// the kernel's clocks differ. `None` if the counter could not be read.
    pub residency_ppm: Option<u32>,
}

/// The idle driver and governor, and the latency limits that restrict the idle states.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    /// The cpuidle driver, such as `intel_idle`.
    pub driver: Fact<String>,
    /// The cpuidle governor, such as `menu`.
    pub governor: Fact<String>,
    /// The exit latency that the kernel currently allows: the strictest request of all processes
    /// (`/dev/cpu_dma_latency`).
    pub dma_latency: Fact<Nanos>,
    /// Processes that hold `/dev/cpu_dma_latency` open, as `comm (pid)`.
    pub holders: Fact<Vec<String>>,
    /// Exit latency limits by CPU, for the CPUs that have their own limit (`power/pm_qos_resume_latency_us`).
    pub resume_latency: BTreeMap<u32, ResumeLatency>,
}

impl Cores {
    /// Opens the counters of the online CPUs. If `isolated` is true, APERF and MPERF of isolated CPUs are read too, and
    /// each reading interrupts the isolated CPUs.
    pub fn open(root: &Root, isolated: bool) -> Self {
        let online = root.cpu_list(&format!("{CPUS}/online")).into_value();
        let online = online.unwrap_or_else(|| root.numbered(CPUS, "cpu").into_iter().collect());
        let quiet = match isolated {
            true => CpuSet::new(),
            false => {
                let of = |name: &str| root.cpu_list(&format!("{CPUS}/{name}")).into_value().unwrap_or_default();
                of("isolated").union(&of("nohz_full"))
            }
        };
        let events = events(root);
        let core =
            |cpu: u32| Core { cpu, states: states(root, cpu), clock: clock(root, cpu, quiet.contains(cpu), &events) };
        Self { cores: online.iter().map(core).collect() }
    }

    /// Reads all counters. `now` is the current time, measured from an arbitrary fixed moment.
    pub fn read(&self, now: Nanos) -> Counts {
        let read = |core: &Core| {
            let states = core.states.as_ref().map_or(Vec::new(), |states| {
                states.iter().map(|state| Ok((number(&state.usage)?, number(&state.time)?))).collect()
            });
            CoreCounts { states, ticks: core.clock.as_ref().map_err(Clone::clone).and_then(Clock::read) }
        };
        Counts { at: now, cores: self.cores.iter().map(read).collect() }
    }

    /// The frequency and idle states of each core between two readings.
    pub fn between(&self, earlier: &Counts, later: &Counts) -> Vec<CoreUse> {
        let span = later.at.checked_sub(earlier.at).unwrap_or(Nanos::ZERO);
        let readings = earlier.cores.iter().zip(&later.cores);
        self.cores.iter().zip(readings).map(|(core, (earlier, later))| core.used(earlier, later, span)).collect()
    }
}

impl Core {
    fn used(&self, earlier: &CoreCounts, later: &CoreCounts, span: Nanos) -> CoreUse {
        let states = self.states.as_ref().map_err(|why| format!("idle states: {why}"));
        let states = states.map(|states| {
            let readings = earlier.states.iter().zip(&later.states);
            states.iter().zip(readings).map(|(state, (earlier, later))| state.used(earlier, later, span)).collect()
        });
        let (frequency, running_ppm) = match (&earlier.ticks, &later.ticks) {
            (Ok(earlier), Ok(later)) => frequency(*earlier, *later, span),
            (Err(why), _) | (_, Err(why)) => (Err(format!("APERF, MPERF and scaling_cur_freq: {why}")), None),
        };
        let frequency_by = self.clock.as_ref().ok().filter(|_| frequency.is_ok()).map(Clock::source);
        CoreUse { cpu: self.cpu, frequency, frequency_by, running_ppm, states }
    }
}

impl State {
    fn used(&self, earlier: &Result<(u64, u64), Why>, later: &Result<(u64, u64), Why>, span: Nanos) -> StateUse {
        let both = earlier.as_ref().ok().zip(later.as_ref().ok());
        let entries = both.and_then(|(earlier, later)| later.0.checked_sub(earlier.0));
        let residency = both.and_then(|(earlier, later)| later.1.checked_sub(earlier.1)).map(Nanos::from_micros);
        let residency_ppm = residency.and_then(|residency| ratio_ppm(residency.as_nanos(), span.as_nanos()));
        StateUse { name: self.name.clone(), entries, residency, residency_ppm }
    }
}

/// The frequency while the core ran, and the share of time for which it ran, in ppm.
fn frequency(earlier: Ticks, later: Ticks, span: Nanos) -> (Result<Hertz, String>, Option<u32>) {
    let (earlier, later) = match (earlier, later) {
        (Ticks::Counted(earlier), Ticks::Counted(later)) => (earlier, later),
        (_, Ticks::Now(hertz)) => return (Ok(hertz), None),
        (Ticks::Now(_), Ticks::Counted(_)) => return (Err("the source of the frequency changed".into()), None),
    };
    let difference = |n: usize| later[n].wrapping_sub(earlier[n]);
    let [mperf, aperf, tsc] = [difference(0), difference(1), difference(2)];
    if mperf == 0 || span == Nanos::ZERO {
        return (Err("the core did not run, or a hypervisor hides APERF and MPERF".into()), None);
    }
    // MPERF counts at the rate of the TSC.
    let hertz = u128::from(tsc) * 1_000_000_000 / u128::from(span.as_nanos()) * u128::from(aperf) / u128::from(mperf);
    (
        u64::try_from(hertz).map(Hertz::new).map_err(|_| "the counters contradict each other".into()),
        ratio_ppm(mperf, tsc),
    )
}

fn ratio_ppm(part: u64, whole: u64) -> Option<u32> {
    let ppm = u128::from(part) * 1_000_000 / u128::from((whole > 0).then_some(whole)?);
    u32::try_from(ppm).ok()
}

impl Clock {
    fn source(&self) -> FrequencySource {
        match self {
            Self::Perf(_) => FrequencySource::PerfMsr,
            Self::Msr(_) => FrequencySource::Msr,
            Self::Scaling(_) => FrequencySource::Scaling,
        }
    }

    fn read(&self) -> Result<Ticks, Why> {
        let failed = |error: std::io::Error| why(&error);
        match self {
            Self::Perf([mperf, aperf, tsc]) => {
                let count = |event| sys::count(event).map_err(failed);
                Ok(Ticks::Counted([count(mperf)?, count(aperf)?, count(tsc)?]))
            }
            Self::Msr(file) => {
                let mut ticks = [0; 3];
                for (tick, address) in ticks.iter_mut().zip(REGISTERS) {
                    let mut octets = [0; 8];
                    file.read_exact_at(&mut octets, address).map_err(failed)?;
                    *tick = u64::from_le_bytes(octets);
                }
                Ok(Ticks::Counted(ticks))
            }
            Self::Scaling(file) => {
                let kilo = number(file)?;
                let hertz = kilo.checked_mul(1_000).filter(|hertz| *hertz > 0);
                hertz
                    .map(|hertz| Ticks::Now(Hertz::new(hertz)))
                    .ok_or_else(|| Why::Malformed(format!("{kilo} kHz").into()))
            }
        }
    }
}

/// Type number of perf's PMU `msr`, and the numbers of its events `mperf`, `aperf` and `tsc`.
fn events(root: &Root) -> Option<(u32, [u64; 3])> {
    let event = |name: &str| perf::config(root.text(&format!("{PMU}/events/{name}")).value()?);
    Some((root.number(&format!("{PMU}/type")).get()?, [event("mperf")?, event("aperf")?, event("tsc")?]))
}

/// The best readable source of a CPU's frequency. If there is none, the error says why the last source failed.
fn clock(root: &Root, cpu: u32, quiet: bool, events: &Option<(u32, [u64; 3])>) -> Result<Clock, Why> {
    let live = root.kind() == Kind::Live;
    if live && !quiet {
        if let Some((kind, [mperf, aperf, tsc])) = events {
            let open = |config: &u64| sys::open(*kind, *config, cpu);
            if let (Ok(mperf), Ok(aperf), Ok(tsc)) = (open(mperf), open(aperf), open(tsc)) {
                return Ok(Clock::Perf([mperf, aperf, tsc]));
            }
        }
        if let Ok(file) = root.reopened(&format!("dev/cpu/{cpu}/msr")) {
            let clock = Clock::Msr(file);
            // Under a hypervisor, the registers may read 0.
            if matches!(clock.read(), Ok(Ticks::Counted([mperf, aperf, _])) if mperf > 0 && aperf > 0) {
                return Ok(clock);
            }
        }
    }
    let scaling = Clock::Scaling(root.reopened(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq"))?);
    scaling.read().map(|_| scaling)
}

fn states(root: &Root, cpu: u32) -> Result<Vec<State>, Why> {
    let folder = format!("{CPUS}/cpu{cpu}/cpuidle");
    let numbers = root.numbered(&folder, "state");
    if numbers.is_empty() {
        return Err(root.list(&folder).why().cloned().unwrap_or(Why::Absent));
    }
    let state = |number: u32| {
        let path = format!("{folder}/state{number}");
        Ok(State {
            name: root.text(&format!("{path}/name")).into_value().unwrap_or_else(|| format!("state{number}")),
            usage: root.reopened(&format!("{path}/usage"))?,
            time: root.reopened(&format!("{path}/time"))?,
        })
    };
    numbers.into_iter().map(state).collect()
}

/// Reads a number from an open file.
fn number(file: &File) -> Result<u64, Why> {
    let mut text = [0; 64];
    let read = file.read_at(&mut text, 0).map_err(|error| why(&error))?;
    let text = String::from_utf8_lossy(&text[..read]);
    text.trim().parse().map_err(|_| Why::Malformed(format!("{:?} is not a number", text.trim()).into()))
}

impl Asked {
    /// Reads the idle driver, the governor and the latency limits. Searches all processes for those that hold a limit.
    pub fn read(root: &Root) -> Self {
        let live = root.kind() == Kind::Live;
        let text = |name: &str| root.text(&format!("{CPUS}/cpuidle/{name}"));
        let mut resume_latency = BTreeMap::new();
        for cpu in root.numbered(CPUS, "cpu") {
            let text = root.text(&format!("{CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us"));
            let limit = match text.value().map(String::as_str) {
                Some("n/a") => Some(ResumeLatency::Zero),
                Some(text) => {
                    text.parse().ok().filter(|us| *us > 0).map(|us| ResumeLatency::AtMost(Nanos::from_micros(us)))
                }
                None => None,
            };
            if let Some(limit) = limit {
                resume_latency.insert(cpu, limit);
            }
        }
        let recorded = |name: &str| Fact::not_recorded(name);
        Self {
            driver: text("current_driver"),
            governor: text("current_governor").or_else(|| text("current_governor_ro")),
            dma_latency: if live { dma_latency() } else { recorded("/dev/cpu_dma_latency") },
            holders: if live { holders() } else { Fact::not_recorded("/proc/*/fd") },
            resume_latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn counted(earlier: [u64; 3], later: [u64; 3]) -> (Result<Hertz, String>, Option<u32>) {
        frequency(Ticks::Counted(earlier), Ticks::Counted(later), Nanos::from_secs(1))
    }

    #[test]
    fn the_frequency_is_that_while_the_core_ran() {
        // The TSC runs at 2 GHz. The core ran at 3 GHz for a quarter of the time.
        let (hertz, running) = counted([0, 0, 0], [500_000_000, 750_000_000, 2_000_000_000]);
        assert_eq!((hertz, running), (Ok(Hertz::new(3_000_000_000)), Some(250_000)));
        // Here the counters wrap around.
        let (hertz, _) = counted([u64::MAX, u64::MAX, u64::MAX], [499_999_999, 749_999_999, 1_999_999_999]);
        assert_eq!(hertz, Ok(Hertz::new(3_000_000_000)));
        assert!(counted([7, 7, 7], [7, 7, 9]).0.is_err(), "a core that did not run has no frequency");
    }

    #[test]
    fn residency_entries_and_frequency_below_a_root() {
        let state = |n: u32, file: &str| format!("sys/devices/system/cpu/cpu0/cpuidle/state{n}/{file}");
        let folder = Folder::new(&[
            ("sys/devices/system/cpu/online", "0-1\n"),
            (&state(0, "name"), "POLL\n"),
            (&state(0, "usage"), "5\n"),
            (&state(0, "time"), "100\n"),
            (&state(1, "name"), "C6\n"),
            (&state(1, "usage"), "7\n"),
            (&state(1, "time"), "1000\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n"),
            ("sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "50\n"),
            ("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "n/a\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
            ("proc/cpuinfo", "\n"),
        ]);
        let root = Root::open(folder.path("")).unwrap();
        let cores = Cores::open(&root, false);
        let first = cores.read(Nanos::ZERO);
        folder.put(&state(1, "usage"), "17\n");
        folder.put(&state(1, "time"), "751000\n");
        let used = cores.between(&first, &cores.read(Nanos::from_secs(1)));
        let states = used[0].states.as_ref().unwrap();
        assert_eq!((states[0].name.as_str(), states[0].entries, states[0].residency_ppm), ("POLL", Some(0), Some(0)));
        assert_eq!((states[1].entries, states[1].residency_ppm), (Some(10), Some(750_000)));
        assert_eq!(used[0].frequency, Ok(Hertz::new(1_800_000_000)));
        assert_eq!(used[0].frequency_by, Some(FrequencySource::Scaling));
        assert!(used[1].states.is_err() && used[1].frequency.is_err() && used[1].frequency_by.is_none());
        let asked = Asked::read(&root);
        assert_eq!(asked.driver.value().map(String::as_str), Some("intel_idle"));
        assert_eq!(asked.resume_latency[&0], ResumeLatency::AtMost(Nanos::from_micros(50)));
        assert_eq!(asked.resume_latency[&1], ResumeLatency::Zero);
    }
}

//! `apus power watch --json`.

use host::facts::{Fact, ResumeLatency};
use host::meter::cores::{Asked as AskedFacts, CoreUse, FrequencySource, StateUse};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::{Energy, Name};
use tester::host::Reading;
use units::{Hertz, Nanos};

/// Name and version of the schema.
pub const WATCH: &str = "apus.power-watch/1";

/// Power, frequencies and idle states of a host over a span of time.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Watch {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-watch/1`.
    #[schemars(extend("const" = WATCH))]
    pub schema: String,
    /// Length of the measurement, in ns.
    pub interval_ns: u64,
    /// Energy that the host's meters counted.
    pub energy: Energy,
    /// Meters and interfaces that cannot be read, each with the reason.
    pub lacks: Vec<String>,
    /// The CPUs that are online.
    pub cores: Vec<Core>,
    /// What limits the idle states, and what chooses among them.
    pub asked: Asked,
    /// CPU time of this command, in percent of one CPU.
    pub own_cpu_percent: Reading<f64>,
}

/// The frequency and the idle states of a CPU.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Core {
    /// The CPU's number.
    pub cpu: u32,
    /// Mean frequency while the CPU was running, in Hz. If the source is `scaling_cur_freq`, it is the frequency at the
    /// time of the last reading.
    pub frequency_hz: Reading<u64>,
    /// Source of the frequency; `null` if the frequency is unknown.
    pub frequency_from: Option<Name<FrequencySource>>,
    /// Share of time in which the CPU was running, in percent, from the counters MPERF and TSC; `null` if these are not
    /// available.
    pub running_percent: Option<f64>,
    /// The idle states of the CPU, from shallow to deep.
    pub idle_states: Reading<Vec<IdleState>>,
}

/// The use of an idle state, as requested by the kernel. The hardware may have chosen a shallower state.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct IdleState {
    /// Name of the state, such as `C6`.
    pub name: String,
    /// Number of times that the state was entered; `null` if it could not be read.
    pub entries: Option<u64>,
    /// Total time in the state, in ns; `null` if it could not be read.
    pub residency_ns: Option<u64>,
    /// Time in the state, in percent of the measurement; `null` if it could not be read.
    pub residency_percent: Option<f64>,
}

/// What limits the idle states, and what chooses among them.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Asked {
    /// Name of the cpuidle driver.
    pub idle_driver: Reading<String>,
    /// Name of the cpuidle governor.
    pub idle_governor: Reading<String>,
    /// Lowest exit latency limit, in ns, among the limits of all processes (`/dev/cpu_dma_latency`).
    pub dma_latency_ns: Reading<u64>,
    /// Whether `dma_latency_ns` limits the idle states. The default of 2,000 s does not.
    pub dma_latency_limits: Reading<bool>,
    /// Processes that hold `/dev/cpu_dma_latency` open, as `comm (pid)`.
    pub dma_latency_holders: Reading<Vec<String>>,
    /// The CPUs that have their own exit latency limit (`power/pm_qos_resume_latency_us`).
    pub resume_latency: Vec<ResumeLimit>,
}

/// The exit latency limit of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct ResumeLimit {
    /// The CPU's number.
    pub cpu: u32,
    /// Longest exit latency allowed on this CPU, in ns. 0 means that no idle state is allowed.
    pub limit_ns: u64,
}

/// PM QoS's default of `/dev/cpu_dma_latency`: no limit (include/linux/pm_qos.h, 2000 s).
const NO_LIMIT: Nanos = Nanos::from_secs(2_000);

impl From<&CoreUse> for Core {
    fn from(used: &CoreUse) -> Self {
        let states = used.states.as_ref().map(|states| states.iter().map(IdleState::from).collect());
        Self {
            cpu: used.cpu,
            frequency_hz: used.frequency.as_ref().map(|hertz| Hertz::as_hertz(*hertz)).map_err(Clone::clone).into(),
            frequency_from: used.frequency_by.map(Into::into),
            running_percent: used.running_ppm.map(percent),
            idle_states: states.map_err(Clone::clone).into(),
        }
    }
}

impl From<&StateUse> for IdleState {
    fn from(used: &StateUse) -> Self {
        Self {
            name: used.name.clone(),
            entries: used.entries,
            residency_ns: used.residency.map(Nanos::as_nanos),
            residency_percent: used.residency_ppm.map(percent),
        }
    }
}

impl From<&AskedFacts> for Asked {
    fn from(asked: &AskedFacts) -> Self {
        let limits = asked.dma_latency.as_ref().map(|limit| *limit < NO_LIMIT);
        let resume = asked.resume_latency.iter().map(|(cpu, limit)| ResumeLimit {
            cpu: *cpu,
            limit_ns: match limit {
                ResumeLatency::AtMost(limit) => limit.as_nanos(),
                ResumeLatency::Zero | ResumeLatency::NoLimit => 0,
            },
        });
        Self {
            idle_driver: reading(asked.driver.clone()),
            idle_governor: reading(asked.governor.clone()),
            dma_latency_ns: reading(asked.dma_latency.clone().map(Nanos::as_nanos)),
            dma_latency_limits: reading(limits),
            dma_latency_holders: reading(asked.holders.clone()),
            resume_latency: resume.collect(),
        }
    }
}

fn percent(ppm: u32) -> f64 {
    f64::from(ppm) / 1e4
}

fn reading<T>(fact: Fact<T>) -> Reading<T> {
    match fact {
        Fact::Known { value, .. } => Reading::known(value),
        Fact::Missing { why, source } => Reading::unknown(format!("{source}: {why}")),
    }
}

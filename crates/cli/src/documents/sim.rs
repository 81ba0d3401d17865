//! `apus sim run --json`, `compare --json`, `sweep --json`.

use std::collections::BTreeMap;

use policy::frequency;
use policy::moderation::{self, PeriodMode};
use policy::wait::{Reason, WaitKind};
use schemars::JsonSchema;
use serde::Serialize;
use sim::bound::{Bound, By, Why};
use sim::outcome::{Activity, CoreOutcome, Cycle, Drop, GoalOutcome, Outcome, QueueOutcome, Term, Verdict};
use sim::scenario::{FrequencyPlan, ModerationPlan, Scenario, Wait, Worker};
use tester::document::{Distribution, Name, by_name};
use tester::histogram::HistogramDocument;
use units::{Microwatts, Nanos, Quantile};

use super::top::Wait as Waits;

/// Name and version of the schema of one simulation.
pub const RUN: &str = "apus.sim.run/2";
/// Name and version of the schema of a comparison.
pub const COMPARE: &str = "apus.sim.compare/2";
/// Name and version of the schema of a sweep.
pub const SWEEP: &str = "apus.sim.sweep/2";

/// One simulated scenario. All numbers are simulated.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct RunDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.sim.run/2`.
    #[schemars(extend("const" = RUN))]
    pub schema: String,
    /// What was simulated, and the result.
    pub case: Case,
}

/// Several simulated scenarios.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct CompareDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.sim.compare/2`.
    #[schemars(extend("const" = COMPARE))]
    pub schema: String,
    /// The results of the scenarios, in the order in which they were typed.
    pub cases: Vec<Case>,
}

/// One scenario, simulated with varied values.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct SweepDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.sim.sweep/2`.
    #[schemars(extend("const" = SWEEP))]
    pub schema: String,
    /// The results of all combinations of values. The last key varies fastest, and the seeds faster still.
    pub cases: Vec<Case>,
    /// Statistics over the seeds of each combination.
    pub combinations: Vec<Combination>,
}

/// Statistics of one combination of values over its seeds.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Combination {
    /// The varied keys with their values.
    pub values: BTreeMap<String, String>,
    /// Number of seeds.
    pub seeds: u64,
    /// Statistics by CSV column; `null` if the column is unknown for any of the seeds.
    pub statistics: BTreeMap<String, Option<Statistics>>,
}

/// Statistics of one number over independent seeds.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Statistics {
    /// Mean over the seeds.
    pub mean: f64,
    /// Student's 95 % confidence interval of the mean, mean ± t(n - 1) s / √n; `null` with one seed.
    pub mean_ci95: Option<(f64, f64)>,
    /// Median over the seeds.
    pub median: f64,
    /// The 95 % confidence interval of the median, from order statistics; `null` with fewer than 6 seeds.
    pub median_ci95: Option<(f64, f64)>,
}

/// What was simulated, and the result.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Case {
    /// Name of the scenario file.
    pub scenario: String,
    /// The description in the file; `null` if it has none.
    pub description: Option<String>,
    /// Values from the command line that replaced values of the file, by key.
    pub instead: BTreeMap<String, String>,
    /// Name of the machine model that describes the processor and the kernel.
    pub machine: String,
    /// Name of the machine model that describes the NIC.
    pub nic: String,
    /// What moves the frames: a loop in user space, or the kernel.
    pub driver: Name<Driver>,
    /// The wait policy; `null` if the kernel moved the frames.
    pub wait: Option<Name<Wait>>,
    /// The policy of interrupt moderation.
    pub moderation: Name<ModerationPlan>,
    /// The frequency policy.
    pub frequency: Name<FrequencyPlan>,
    /// Whether the worker ran in a virtual machine.
    pub virtual_machine: bool,
    /// Random seed of the simulation.
    pub seed: u64,
    /// Simulated time before the measured window, in ns.
    pub warm_up_ns: u64,
    /// Length of the measured window, in ns.
    pub duration_ns: u64,
    /// The frames that arrived within the window.
    pub frames: Frames,
    /// Latency in ns, from the reception of a frame's last bit to the transmission of the last bit of its answer.
    pub latency: Distribution,
    /// The components of the latency, with two significant digits. For each frame they add up to its latency.
    pub budget: BTreeMap<Name<Term>, TermDocument>,
    /// The goal and whether it was met; `null` if the scenario has no goal.
    pub goal: Option<GoalDocument>,
    /// Simulated power and energy.
    pub power: Power,
    /// Minimum power with which the goal could be met; `null` without a goal, and in comparisons and sweeps.
    pub least: Option<Least>,
    /// The results of each queue.
    pub queues: Vec<Queue>,
    /// The results of each simulated core.
    pub cores: Vec<Core>,
}

units::named! {
    /// What moves the frames.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Driver {
        /// A loop in user space.
        User = "user",
        /// NAPI and the kernel's stack.
        Kernel = "kernel",
    }
}

/// Counts of frames: offered = departed + dropped + in flight.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Frames {
    /// Frames that arrived.
    pub offered: u64,
    /// Frames whose answer was sent within the window.
    pub departed: u64,
    /// Lost frames, by reason.
    pub dropped: BTreeMap<Name<Drop>, u64>,
    /// Frames that were still in the system at the end of the window.
    pub in_flight: u64,
    /// Bytes sent, including check sequences.
    pub departed_octets: u64,
    /// Answers sent per second.
    pub departed_pps: f64,
}

/// One component of the latency.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct TermDocument {
    /// Mean of the exact values in ns, rounded down; `null` without samples.
    pub mean_ns: Option<u64>,
    /// 99th percentile in ns; `null` with fewer than 368 samples.
    pub p99_ns: Option<u64>,
    /// Exact maximum in ns; `null` without samples.
    pub max_ns: Option<u64>,
}

/// The latency goal and its result. A lost packet counts as late, and so does a packet that had already waited for
/// longer than the goal's latency when the window ended.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct GoalDocument {
    /// The goal, such as `p99.9=50us`.
    pub latency: String,
    /// Share of packets that may be lost, in parts per million; `null` if it is the share that may be late.
    pub loss_ppm: Option<u32>,
    /// Packets that departed, were lost, or were already late when the window ended.
    pub packets: u64,
    /// Late packets. They include lost packets, and those that were already late when the window ended.
    pub late: u64,
    /// Lost packets.
    pub lost: u64,
    /// Whether the goal was met; `null` if too few packets arrived to judge.
    pub held: Option<bool>,
}

impl GoalDocument {
    /// Whether more packets were late than the goal allows, even if they were too few for a verdict.
    pub fn has_too_many_late(&self) -> bool {
        let allowed = |goal: policy::Goal| u128::from(self.packets) * u128::from(goal.quantile.above_ppm());
        self.latency.parse().is_ok_and(|goal| u128::from(self.late) * 1_000_000 > allowed(goal))
    }
}

/// Mean power over the window, and energy, both computed by the machine model.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Power {
    /// Total power of all simulated cores, in uW.
    pub cores_uw: u64,
    /// Power of all processor packages in uW: the simulated cores, the cores that the scenario's `alike` adds as copies
    /// of them, the remaining idle cores, and the uncore.
    pub package_uw: u64,
    /// Number of processor packages needed for the simulated cores and their `alike` copies.
    pub packages: u64,
    /// Total energy of all simulated cores, in nJ.
    pub cores_energy_nj: u64,
    /// Energy of all processor packages, in nJ.
    pub package_energy_nj: u64,
}

/// Lower bound of the mean power that the simulated cores need to meet the goal with these arrivals, in any mode. It
/// assumes that all arrivals are known in advance, and that each wake-up costs as little as possible.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Least {
    /// The bound in uW; `null` if it is unknown.
    pub cores_uw: Option<u64>,
    /// Power of the simulated cores divided by the bound; `null` if the bound is unknown. Below 1 only if more packets
    /// were late than the goal allows.
    pub multiple: Option<f64>,
    /// What determines the bound: the wake-ups that the deadlines require, or the cycles of the packets. `null` if the
    /// bound is unknown.
    pub set_by: Option<Name<By>>,
    /// Why the bound is unknown; `null` if it is known.
    pub unknown_because: Option<String>,
}

impl Least {
    /// Builds the entry from the bound, or from the reason why it is unknown. `cores_uw` is the power of the simulated
    /// cores.
    pub fn new(bound: Result<Bound, Why>, cores_uw: u64) -> Self {
        match bound {
            Ok(bound) => Self {
                cores_uw: Some(bound.power.as_microwatts()),
                multiple: Some(bound.multiple(Microwatts::new(cores_uw))),
                set_by: Some(bound.by.into()),
                unknown_because: None,
            },
            Err(why) => Self { cores_uw: None, multiple: None, set_by: None, unknown_because: Some(why.to_string()) },
        }
    }
}

/// A receive queue.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Queue {
    /// Frames that arrived at the queue.
    pub offered: u64,
    /// Frames whose answer was sent.
    pub departed: u64,
    /// Lost frames, by reason.
    pub dropped: BTreeMap<Name<Drop>, u64>,
    /// Frames that were still in the system at the end of the window.
    pub in_flight: u64,
    /// Number of interrupts.
    pub interrupts: u64,
    /// Number of times that the queue's interrupt moderation changed; `null` if no policy controls the moderation.
    pub moderation_changes: Option<u64>,
    /// Time under each moderation profile.
    pub moderation: Vec<Profile>,
    /// Lock statistics if several threads share the queue, as Metronome's do; otherwise `null`.
    pub shared: Option<Shared>,
}

/// Lock statistics of a queue that several threads share, as Metronome's do.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Shared {
    /// Number of times that a thread took the lock and emptied the queue.
    pub cycles: u64,
    /// Number of times that a thread found the lock held by another.
    pub refused: u64,
    /// Mean time in ns for which no thread held the lock (called vacation in the Metronome paper); `null` if no thread
    /// ever took the lock.
    pub vacation_mean_ns: Option<u64>,
    /// Mean time in ns for which a thread held the lock; `null` if no thread ever took the lock.
    pub busy_mean_ns: Option<u64>,
}

/// How long one moderation profile was in effect.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Profile {
    /// Delay of the profile in us (ethtool's `rx-usecs`).
    pub usecs: u32,
    /// Frame limit of the profile (ethtool's `rx-frames`).
    pub frames: u32,
    /// Which event starts the timer of `usecs`.
    pub mode: Name<PeriodMode>,
    /// Time in ns for which the profile was in effect.
    pub time_ns: u64,
}

/// A simulated core.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Core {
    /// Number of polls. A poll of a user-space loop covers all queues of the core; one of the kernel covers one queue.
    pub polls: u64,
    /// Number of polls that found no frame.
    pub empty_polls: u64,
    /// Decisions of the wait policy, by reason.
    pub wait_reasons: BTreeMap<Name<Reason>, u64>,
    /// Number and time of the waits, by kind.
    pub waits: BTreeMap<Name<WaitKind>, Waits>,
    /// Decisions of the frequency policy, by reason.
    pub frequency_reasons: BTreeMap<Name<frequency::Reason>, u64>,
    /// Decisions of the moderation policies, by reason.
    pub moderation_reasons: BTreeMap<Name<moderation::Reason>, u64>,
    /// Number of wake-ups.
    pub wakeups: u64,
    /// Number of frequency requests.
    pub frequency_requests: u64,
    /// Number of frequency changes that took effect.
    pub frequency_changes: u64,
    /// Number of times that the wait policy changed how deep the core may idle (`worker.limits_idle`).
    pub idle_limit_changes: u64,
    /// Share of time in which the core was neither idle nor running another task, in ppm.
    pub busy_ppm: u64,
    /// Mean power over the window, in uW.
    pub power_uw: u64,
    /// Time in each activity and at each frequency; the times add up to the window.
    pub residency: Vec<Residency>,
    /// The counters that cpuidle would show for each idle state, from the start of the simulation.
    pub idle_states: Vec<IdleState>,
}

/// Time in one state at one frequency.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Residency {
    /// `working`, `polling`, `pausing`, `stalled` (its frequency changed), `waking`, `other` (another task), or the
    /// name of an idle state.
    pub state: String,
    /// Frequency of the core in Hz. In an idle state, the frequency at which it will wake up.
    pub frequency_hz: u64,
    /// Time in this state at this frequency, in ns.
    pub time_ns: u64,
    /// Mean power in this state, in uW.
    pub power_uw: u64,
}

/// The counters that cpuidle would show for an idle state.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct IdleState {
    /// Name of the idle state.
    pub name: String,
    /// Number of times that the state was entered.
    pub usage: u64,
    /// Time in the state, in ns.
    pub time_ns: u64,
    /// Number of times that the idle period was shorter than the target residency of this state.
    pub above: u64,
    /// Number of times that a deeper state would have saved energy.
    pub below: u64,
}

impl Case {
    /// Builds the document of a simulated scenario. `instead` contains the values that replaced values of its file.
    pub fn new(scenario: &Scenario, instead: BTreeMap<String, String>, outcome: &Outcome) -> Self {
        let (driver, wait) = match scenario.worker {
            Worker::User { wait, .. } => (Driver::User, Some(wait.into())),
            Worker::Kernel { .. } => (Driver::Kernel, None),
        };
        let idle_names: Vec<String> =
            scenario.host.processor.cstates.states.iter().map(|state| state.name.clone()).collect();
        let nanojoules = |femtojoules: u128| u64::try_from(femtojoules / 1_000_000).unwrap_or(u64::MAX);
        Self {
            scenario: scenario.name.clone(),
            description: scenario.description.clone(),
            instead,
            machine: scenario.host.machine.clone(),
            nic: scenario.host.nic_name.clone(),
            driver: driver.into(),
            wait,
            moderation: scenario.moderation.into(),
            frequency: scenario.frequency.into(),
            virtual_machine: scenario.host.vcpu.is_some(),
            seed: outcome.seed,
            warm_up_ns: scenario.warm_up.as_nanos(),
            duration_ns: outcome.duration.as_nanos(),
            frames: Frames {
                offered: outcome.offered(),
                departed: outcome.departed(),
                dropped: by_name(Drop::ALL.map(|why| (why, outcome.dropped(why)))),
                in_flight: outcome.in_flight(),
                departed_octets: outcome.octets,
                departed_pps: outcome.departed_per_second(),
            },
            latency: distribution(&outcome.latency),
            budget: by_name(Term::ALL.map(|term| (term, TermDocument::new(outcome.term(term))))),
            goal: outcome.goal.map(GoalDocument::from),
            power: Power {
                cores_uw: outcome.core_power().as_microwatts(),
                package_uw: outcome.package.power(outcome.duration).as_microwatts(),
                packages: scenario.packages(),
                cores_energy_nj: nanojoules(outcome.package.simulated),
                package_energy_nj: nanojoules(outcome.package.femtojoules()),
            },
            least: None,
            queues: outcome.queues.iter().map(Queue::from).collect(),
            cores: outcome.cores.iter().map(|core| Core::new(core, &idle_names, outcome.duration)).collect(),
        }
    }
}

/// Leaves out counts of 0.
fn counted<T: units::Named>(counts: impl IntoIterator<Item = (T, u64)>) -> BTreeMap<Name<T>, u64> {
    by_name(counts.into_iter().filter(|(_, count)| *count > 0))
}

fn nanos(span: Option<Nanos>) -> Option<u64> {
    span.map(Nanos::as_nanos)
}

/// Converts a distribution. Its sum and extremes are exact, because the simulator records them.
fn distribution(delays: &sim::outcome::Distribution) -> Distribution {
    let histogram = HistogramDocument {
        significant_digits: sim::outcome::SIGNIFICANT_DIGITS,
        lowest_ns: sim::outcome::LOWEST_NS,
        highest_ns: sim::outcome::HIGHEST_NS,
        counts: delays.counts().collect(),
        overflow: delays.overflow(),
    };
    Distribution::new(histogram, [delays.least(), delays.mean(), delays.most()].map(nanos), None)
}

impl TermDocument {
    fn new(term: &sim::outcome::Distribution) -> Self {
        let (mean_ns, p99_ns) = (nanos(term.mean()), nanos(term.quantile(Quantile::P99)));
        Self { mean_ns, p99_ns, max_ns: nanos(term.most()) }
    }
}

impl From<GoalOutcome> for GoalDocument {
    fn from(goal: GoalOutcome) -> Self {
        let held = match goal.verdict {
            Verdict::Held => Some(true),
            Verdict::Missed => Some(false),
            Verdict::TooFew => None,
        };
        let GoalOutcome { goal: latency, loss_ppm, packets, late, lost, .. } = goal;
        Self { latency: latency.to_string(), loss_ppm, packets, late, lost, held }
    }
}

impl From<&QueueOutcome> for Queue {
    fn from(queue: &QueueOutcome) -> Self {
        let profiles = queue.moderation.iter().flat_map(|moderated| &moderated.profiles);
        Self {
            offered: queue.offered,
            departed: queue.departed,
            dropped: by_name(Drop::ALL.map(|why| (why, queue.dropped[why as usize]))),
            in_flight: queue.in_flight,
            interrupts: queue.interrupts,
            moderation_changes: queue.moderation.as_ref().map(|moderated| moderated.changes),
            moderation: profiles
                .map(|(profile, time)| Profile {
                    usecs: profile.usecs,
                    frames: profile.frames,
                    mode: profile.mode.into(),
                    time_ns: time.as_nanos(),
                })
                .collect(),
            shared: Shared::new(&queue.shared),
        }
    }
}

impl Shared {
    fn new(cycle: &Cycle) -> Option<Self> {
        let mean = |total: Nanos| total.as_nanos().checked_div(cycle.count);
        (*cycle != Cycle::default()).then(|| Self {
            cycles: cycle.count,
            refused: cycle.refused,
            vacation_mean_ns: mean(cycle.vacation),
            busy_mean_ns: mean(cycle.busy),
        })
    }
}

impl Core {
    fn new(core: &CoreOutcome, idle_names: &[String], duration: Nanos) -> Self {
        let waits = WaitKind::ALL.map(|kind| {
            let (count, time) = core.waits[kind as usize];
            (kind, Waits { count, time_ns: time.as_nanos() })
        });
        let reasons = Reason::ALL.map(|reason| (reason, core.reasons[reason as usize]));
        let of_frequency = frequency::Reason::ALL.map(|r| (r, core.frequency_reasons[r as usize]));
        let of_moderation = moderation::Reason::ALL.map(|r| (r, core.moderation_reasons[r as usize]));
        Self {
            polls: core.polls,
            empty_polls: core.empty_polls,
            wait_reasons: counted(reasons),
            waits: by_name(waits.into_iter().filter(|(_, waits)| waits.count > 0)),
            frequency_reasons: counted(of_frequency),
            moderation_reasons: counted(of_moderation),
            wakeups: core.wakeups,
            frequency_requests: core.frequency_requests,
            frequency_changes: core.frequency_changes,
            idle_limit_changes: core.idle_limit_changes,
            busy_ppm: core.busy_ppm(duration),
            power_uw: core.power(duration).as_microwatts(),
            residency: core
                .book
                .entries
                .iter()
                .map(|entry| Residency {
                    state: state_name(entry.activity, idle_names),
                    frequency_hz: entry.frequency.as_hertz(),
                    time_ns: entry.time.as_nanos(),
                    power_uw: entry.power.as_microwatts(),
                })
                .collect(),
            idle_states: core
                .idle
                .iter()
                .map(|(name, count)| IdleState {
                    name: name.clone(),
                    usage: count.usage,
                    time_ns: count.time.as_nanos(),
                    above: count.too_deep,
                    below: count.too_shallow,
                })
                .collect(),
        }
    }
}

fn state_name(activity: Activity, idle_names: &[String]) -> String {
    match activity {
        Activity::Working => "working",
        Activity::Polling => "polling",
        Activity::Pausing => "pausing",
        Activity::Stalled => "stalled",
        Activity::Waking => "waking",
        Activity::Other => "other",
        Activity::Idle(index) => return idle_names.get(index).cloned().unwrap_or_else(|| format!("idle {index}")),
    }
    .to_owned()
}

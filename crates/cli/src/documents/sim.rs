//! `apus sim run --json`, `compare --json`, `sweep --json`.

use std::collections::BTreeMap;

use policy::frequency;
use policy::moderation::{self, PeriodMode};
use policy::wait::{Reason, WaitKind};
use schemars::JsonSchema;
use serde::Serialize;
use sim::bound::{Bound, By, Why};
use sim::outcome::{CoreOutcome, Drop, GoalOutcome, Outcome, QueueOutcome, Term, Verdict};
use sim::scenario::{FrequencyPlan, ModerationPlan, Scenario, Wait, Worker};
use sim::world::{Activity, Cycle};
use tester::document::{Distribution, Name, by_name};
use tester::histogram::HistogramDocument;
use units::{Microwatts, Nanos, Quantile};

use super::top::Wait as Waits;

/// The schema of a run.
pub const RUN: &str = "apus.sim.run/2";
/// The schema of a comparison.
pub const COMPARE: &str = "apus.sim.compare/2";
/// The schema of a sweep.
pub const SWEEP: &str = "apus.sim.sweep/2";

/// One scenario, simulated. All of it is modelled: nothing was measured.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct RunDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.run/2`
    #[schemars(extend("const" = RUN))]
    pub schema: String,
    /// What was simulated, and what came of it.
    pub case: Case,
}

/// Several scenarios, simulated.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct CompareDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.compare/2`
    #[schemars(extend("const" = COMPARE))]
    pub schema: String,
    /// The scenarios, in the order in which they were named.
    pub cases: Vec<Case>,
}

/// One scenario with values that vary, simulated.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct SweepDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.sweep/2`
    #[schemars(extend("const" = SWEEP))]
    pub schema: String,
    /// All combinations: the last key varies fastest, and seeds faster still.
    pub cases: Vec<Case>,
    /// Statistics over the seeds of each combination.
    pub combinations: Vec<Combination>,
}

/// Statistics of one combination of values over its seeds.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Combination {
    /// The varied keys and their values.
    pub values: BTreeMap<String, String>,
    /// How many seeds.
    pub seeds: u64,
    /// Statistics by CSV column; `null` if the number is unknown for any of the seeds.
    pub statistics: BTreeMap<String, Option<Statistics>>,
}

/// Statistics of one number over independent seeds.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// The mean.
    pub mean: f64,
    /// Student's 95 % confidence interval of the mean, mean ± t(n - 1) s / √n; `null` with one seed.
    pub mean_ci95: Option<(f64, f64)>,
    /// The median.
    pub median: f64,
    /// The 95 % confidence interval of the median, between order statistics; `null` with fewer than 6 seeds.
    pub median_ci95: Option<(f64, f64)>,
}

/// What was simulated, and what came of it.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The scenario's file.
    pub scenario: String,
    /// What the file says that it is for.
    pub description: Option<String>,
    /// Values that stood in for those of the file.
    pub instead: BTreeMap<String, String>,
    /// The named model of processor and kernel.
    pub machine: String,
    /// The named model of the NIC.
    pub nic: String,
    /// What moved the frames.
    pub driver: Name<Driver>,
    /// The policy of waiting; `null` in the kernel.
    pub wait: Option<Name<Wait>>,
    /// The policy of moderation.
    pub moderation: Name<ModerationPlan>,
    /// The policy of the frequency.
    pub frequency: Name<FrequencyPlan>,
    /// Whether the worker ran in a virtual machine.
    pub virtual_machine: bool,
    /// The seed of all that is random.
    pub seed: u64,
    /// The time before the window, which counts for nothing.
    pub warm_up_ns: u64,
    /// The window.
    pub duration_ns: u64,
    /// The frames that arrived within the window.
    pub frames: Frames,
    /// From a frame's last bit in to its answer's last bit out.
    pub latency: Distribution,
    /// What the latency is made of: the terms add up to it, frame by frame. To two digits.
    pub budget: BTreeMap<Name<Term>, TermDocument>,
    /// What was to be held; `null` if nothing was.
    pub goal: Option<GoalDocument>,
    /// Power and energy, modelled.
    pub power: Power,
    /// The least power that could hold the goal; `null` without a goal, and in comparisons and sweeps.
    pub least: Option<Least>,
    /// Each queue.
    pub queues: Vec<Queue>,
    /// Each simulated core.
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

/// Frames: offered = departed + dropped + in flight.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// Came off the wire.
    pub offered: u64,
    /// Their answer left within the window.
    pub departed: u64,
    /// Lost, by reason.
    pub dropped: BTreeMap<Name<Drop>, u64>,
    /// Still under way at the window's end.
    pub in_flight: u64,
    /// Octets that left, check sequences included.
    pub departed_octets: u64,
    /// Answers a second.
    pub departed_pps: f64,
}

/// One term of the latency budget.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct TermDocument {
    /// The mean, of exact values, rounded down.
    pub mean_ns: Option<u64>,
    /// From 368 samples on.
    pub p99_ns: Option<u64>,
    /// The largest, exactly.
    pub max_ns: Option<u64>,
}

/// What a goal came to. A lost packet is later than any bound.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct GoalDocument {
    /// Such as `p99.9=50us`.
    pub latency: String,
    /// The share of packets that could be lost, in parts per million; `null`: as many as could be late.
    pub loss_ppm: Option<u32>,
    /// Packets that departed or were lost.
    pub packets: u64,
    /// Those that were late, the lost ones included.
    pub late: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Whether it was held; `null` if too few packets came to tell.
    pub held: Option<bool>,
}

/// Mean power over the window, and energy. Modelled, from the machine's model.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// The simulated cores together.
    pub cores_uw: u64,
    /// All packages: the simulated cores, their `alike` copies, the idle rest, and the uncore.
    pub package_uw: u64,
    /// Number of packages that the simulated cores and their `alike` copies fill.
    pub packages: u64,
    /// The simulated cores together.
    pub cores_energy_nj: u64,
    /// The package.
    pub package_energy_nj: u64,
}

/// The least mean power of the simulated cores with which any mode could hold the goal on these arrivals: a bound that
/// knows all arrivals ahead and pays the least for each wake-up.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Least {
    /// The bound; `null` if there is none.
    pub cores_uw: Option<u64>,
    /// The power of the simulated cores as a multiple of it. Below 1 only if the goal was missed.
    pub multiple: Option<f64>,
    /// What sets it: the wake-ups that the deadlines ask for, or the cycles of the packets.
    pub set_by: Option<Name<By>>,
    /// Why there is none; `null` if there is one.
    pub unknown_because: Option<String>,
}

impl Least {
    /// The bound, or why there is none, beside the power that was drawn.
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

/// A queue.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Frames that came off the wire for it.
    pub offered: u64,
    /// Frames whose answer left.
    pub departed: u64,
    /// Frames that were lost, by reason.
    pub dropped: BTreeMap<Name<Drop>, u64>,
    /// Frames under way at the window's end.
    pub in_flight: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Times that its moderation was changed; `null` where the kernel does not drive it.
    pub moderation_changes: Option<u64>,
    /// The time under each profile of moderation.
    pub moderation: Vec<Profile>,
    /// Lock statistics, if threads share the queue (Metronome); otherwise `null`.
    pub shared: Option<Shared>,
}

/// A queue that threads share (Metronome).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// How often a thread took the lock and emptied the queue.
    pub cycles: u64,
    /// How often a thread found the lock taken.
    pub refused: u64,
    /// Mean time for which no thread held the lock (Metronome's vacation); `null` without a cycle.
    pub vacation_mean_ns: Option<u64>,
    /// Mean time for which a thread held the lock; `null` without a cycle.
    pub busy_mean_ns: Option<u64>,
}

/// The time under a profile of moderation.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// `rx-usecs`
    pub usecs: u32,
    /// `rx-frames`
    pub frames: u32,
    /// What the time counts from.
    pub mode: Name<PeriodMode>,
    /// How long it was in force.
    pub time_ns: u64,
}

/// A core.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Polls: of all its queues; in the kernel, of one queue.
    pub polls: u64,
    /// Those that found nothing.
    pub empty_polls: u64,
    /// Decisions of the wait policy, by reason.
    pub wait_reasons: BTreeMap<Name<Reason>, u64>,
    /// Waits by kind.
    pub waits: BTreeMap<Name<WaitKind>, Waits>,
    /// Decisions of the frequency policy, by reason.
    pub frequency_reasons: BTreeMap<Name<frequency::Reason>, u64>,
    /// Decisions of the moderation policies, by reason.
    pub moderation_reasons: BTreeMap<Name<moderation::Reason>, u64>,
    /// Times that it was woken.
    pub wakeups: u64,
    /// Requests for a frequency.
    pub frequency_requests: u64,
    /// Changes of frequency that were carried out.
    pub frequency_changes: u64,
    /// Time in which it was neither idle nor with another task, in parts per million.
    pub busy_ppm: u64,
    /// Mean power.
    pub power_uw: u64,
    /// Where the time went; the times add up to the window.
    pub residency: Vec<Residency>,
    /// What cpuidle would count of each idle state, from the world's beginning.
    pub idle_states: Vec<IdleState>,
}

/// Time in one state at one frequency.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Residency {
    /// `working`, `polling`, `pausing`, `stalled` (its frequency changed), `waking`, `other` (another task), or
    /// the name of an idle state.
    pub state: String,
    /// The frequency; in an idle state, that which the core has when it wakes.
    pub frequency_hz: u64,
    /// How long.
    pub time_ns: u64,
    /// The power meanwhile.
    pub power_uw: u64,
}

/// What cpuidle would count of an idle state.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// Times entered.
    pub usage: u64,
    /// Time in it.
    pub time_ns: u64,
    /// Times that the idle period was shorter than its target residency.
    pub above: u64,
    /// Times that a deeper state would have paid.
    pub below: u64,
}

impl Case {
    /// What `outcome` is of `scenario`, some of whose values were `instead`.
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
                packages: sim::outcome::packages(scenario),
                cores_energy_nj: nanojoules(outcome.package.simulated),
                package_energy_nj: nanojoules(outcome.package.femtojoules()),
            },
            least: None,
            queues: outcome.queues.iter().map(Queue::from).collect(),
            cores: outcome.cores.iter().map(|core| Core::new(core, &idle_names, outcome.duration)).collect(),
        }
    }
}

/// The values that came up.
fn counted<T: units::Named>(counts: impl IntoIterator<Item = (T, u64)>) -> BTreeMap<Name<T>, u64> {
    by_name(counts.into_iter().filter(|(_, count)| *count > 0))
}

fn nanos(span: Option<Nanos>) -> Option<u64> {
    span.map(Nanos::as_nanos)
}

/// Sum and extremes are exact: the simulator keeps them.
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

//! `apus sim goals --json`.

use schemars::JsonSchema;
use serde::Serialize;
use sim::goals::{Case as Judged, Measured, Plan, Way as Kind};

/// The schema's name.
pub const SCHEMA: &str = "apus.sim.goals/1";

/// Which way of waiting holds a goal with the least power. All of it is modelled.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.goals/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The seed of all that is random.
    pub seed: u64,
    /// The time before the window, which counts for nothing.
    pub warm_up_ns: u64,
    /// The window.
    pub duration_ns: u64,
    /// Each machine, load and goal.
    pub cases: Vec<Case>,
}

/// A machine, a load and a goal.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The processor.
    pub machine: String,
    /// The NIC.
    pub nic: String,
    /// The load in percent of what the core forwards at its base frequency.
    pub load_percent: u64,
    /// Packets a second.
    pub rate_pps: u64,
    /// Such as `p99.9=50us`.
    pub goal: String,
    /// Each way of waiting; the last is `adaptive`.
    pub ways: Vec<Way>,
    /// Whether `adaptive` holds what any other holds, with no more power than any of those that hold it.
    pub adaptive_is_best: bool,
}

/// What a way of waiting came to.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Its name: `poll`, `l3fwd-power`, `backoff 50us`, `interrupt`, `adaptive`.
    pub way: String,
    /// Packets that arrived.
    pub offered: u64,
    /// Those that were lost.
    pub lost: u64,
    /// The delay at p99.9, lost packets taken as late for ever; `null` if it lies among those, or if there were too
    /// few packets.
    pub p99_9_ns: Option<u64>,
    /// The core's mean power.
    pub power_uw: u64,
    /// The share of time in which the core was neither idle nor with another task, in parts per million.
    pub busy_ppm: u64,
    /// Times that it was woken within the window.
    pub wakeups: u64,
    /// Changes of frequency that were carried out.
    pub frequency_changes: u64,
    /// Whether the goal was held, and nothing lost.
    pub held: bool,
}

impl Document {
    /// The document of these cases.
    pub fn new(plan: &Plan, cases: &[Judged]) -> Self {
        Self {
            apus: super::VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            seed: plan.seed,
            warm_up_ns: plan.warm_up.as_nanos(),
            duration_ns: plan.duration.as_nanos(),
            cases: cases.iter().map(Case::from).collect(),
        }
    }
}

impl From<&Judged> for Case {
    fn from(case: &Judged) -> Self {
        let way = |kind: &Kind, measured: &Measured| Way {
            way: kind.to_string(),
            offered: measured.offered,
            lost: measured.lost,
            p99_9_ns: measured.latency.map(units::Nanos::as_nanos),
            power_uw: measured.power.as_microwatts(),
            busy_ppm: measured.busy_ppm,
            wakeups: measured.wakeups,
            frequency_changes: measured.frequency_changes,
            held: measured.holds(case.goal.latency),
        };
        let others = case.others.iter().map(|(kind, measured)| way(kind, measured));
        Self {
            machine: case.machine.clone(),
            nic: case.nic.clone(),
            load_percent: case.load,
            rate_pps: case.rate_pps,
            goal: case.goal.to_string(),
            ways: others.chain([way(&Kind::Adaptive(case.goal.latency), &case.ours)]).collect(),
            adaptive_is_best: case.is_won(),
        }
    }
}

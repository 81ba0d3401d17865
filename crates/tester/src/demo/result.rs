//! The document `apus.demo/2`: every run with its histograms, every search with its trials.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::{self, NEAR_PERCENT, Plan};
use crate::host::{HostState, Reading};
use crate::result::{LatencyResult, LoadResult};

/// Name and version of the document's schema.
pub const SCHEMA: &str = "apus.demo/2";
/// The id of the load that is another one for each mode.
pub const NEAR: &str = "near_highest";

/// What the demo measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemoResult {
    /// Version of the program.
    pub apus: String,
    /// `apus.demo/2`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The host on which it was measured.
    pub host: Reading<HostState>,
    /// What was intended.
    pub plan: PlanDocument,
    /// The test bed.
    pub bed: BedDocument,
    /// Every run, in the order in which they were done.
    pub runs: Vec<Run>,
    /// Every search, in the order in which they were done.
    pub searches: Vec<Search>,
    /// What of the plan was not done, and why; empty if all was.
    pub not_done: Vec<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// How long all of it took.
    pub elapsed_ns: u64,
}

/// What was intended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// The time for all of it.
    pub budget_ns: u64,
    /// What is compared, in the order of the tables.
    pub modes: Vec<ModeDocument>,
    /// The loads, in the order of the tables; the last is `near_highest`.
    pub loads: Vec<LoadDocument>,
    /// Times that all modes were to be run at the paced loads.
    pub rounds: u32,
    /// Traffic before each run, left out.
    pub learn_ns: u64,
    /// A run at a paced load.
    pub run_ns: u64,
    /// A search.
    pub search_ns: u64,
    /// A run near the highest loss-free rate.
    pub near_ns: u64,
}

/// A way of waiting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeDocument {
    /// As it is called in runs and tables: `adaptive p99=60us`.
    pub name: String,
    /// The goal that it was given: `p99=60us`; null if it takes none.
    pub goal: Option<String>,
    /// The goal's quantile, in millionths.
    pub goal_quantile_ppm: Option<u32>,
    /// The goal's bound.
    pub goal_latency_ns: Option<u64>,
}

/// A load.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadDocument {
    /// As runs refer to it: the schedule, or `near_highest`.
    pub id: String,
    /// In words.
    pub title: String,
}

/// The test bed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BedDocument {
    /// The lab's name.
    pub name: String,
    /// The tester's CPU.
    pub tester_cpu: Option<u64>,
    /// The CPU of the worker under test.
    pub tested_cpu: Option<u64>,
    /// SCHED_FIFO priority of the worker under test; null: the normal class.
    pub tested_fifo_priority: Option<u8>,
    /// Size of the frames, with frame check sequence.
    pub frame_octets: u32,
    /// The highest rate that the loss bound reckons with.
    pub peak_rate_pps: u64,
    /// Descriptors of the tested port's receive ring.
    pub rx_descriptors: Reading<u32>,
    /// Where the XDP program of the tested port ran: `native` or `generic`.
    pub xdp_mode: Reading<String>,
    /// Whether the tested port's driver received straight into the worker's memory.
    pub zero_copy: Reading<bool>,
}

/// One run of one mode at one load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The mode's name.
    pub mode: String,
    /// The load's id.
    pub load: String,
    /// The round, from 0.
    pub round: u32,
    /// Latencies, frames, CPU time.
    pub latency: LatencyResult,
    /// How often the policy decided for which reason.
    pub reasons: BTreeMap<String, u64>,
}

/// The search for one mode's highest loss-free rate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The mode's name.
    pub mode: String,
    /// What was found. Losses in gaps, in which the host had taken a CPU, are not counted in it.
    pub load: LoadResult,
}

impl From<&Plan> for PlanDocument {
    fn from(plan: &Plan) -> Self {
        let paced = plan.loads.iter().map(|load| LoadDocument { id: load.to_string(), title: plan::title(load) });
        let near = LoadDocument { id: NEAR.into(), title: format!("{NEAR_PERCENT} % of its highest loss-free rate") };
        Self {
            budget_ns: plan.budget.as_nanos(),
            modes: plan
                .modes
                .iter()
                .map(|mode| ModeDocument {
                    name: mode.to_string(),
                    goal: mode.goal().map(|goal| goal.to_string()),
                    goal_quantile_ppm: mode.goal().map(|goal| goal.quantile.as_ppm()),
                    goal_latency_ns: mode.goal().map(|goal| goal.latency.as_nanos()),
                })
                .collect(),
            loads: paced.chain([near]).collect(),
            rounds: plan.rounds,
            learn_ns: plan.learn.as_nanos(),
            run_ns: plan.run.as_nanos(),
            search_ns: plan.search.as_nanos(),
            near_ns: plan.near.as_nanos(),
        }
    }
}

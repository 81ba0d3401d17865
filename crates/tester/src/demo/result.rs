//! The document `apus.demo/2`: every run with its histograms, every search with its trials.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::{self, NEAR_PERCENT, Plan};
use crate::host::{HostState, Reading};
use crate::result::{LatencyResult, LoadResult};

/// Name and version of the document's schema.
pub const SCHEMA: &str = "apus.demo/2";
/// Identifier of the load near the highest loss-free rate; this rate differs for each mode.
pub const NEAR: &str = "near_highest";

/// The result of a demo.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemoResult {
    /// Version of Apus.
    pub apus: String,
    /// `apus.demo/2`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The host on which the demo ran.
    pub host: Reading<HostState>,
    /// The plan of the demo.
    pub plan: PlanDocument,
    /// The test bed.
    pub bed: BedDocument,
    /// All runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// All searches, in the order in which they were made.
    pub searches: Vec<Search>,
    /// Runs and searches of the plan that the demo left out, each with the reason. Empty if the demo completed the
    /// plan.
    pub not_done: Vec<String>,
    /// Whether the demo was interrupted.
    pub interrupted: bool,
    /// Time that the whole demo took.
    pub elapsed_ns: u64,
}

/// The plan of a demo.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// Time budget of the whole demo.
    pub budget_ns: u64,
    /// The modes, in the order of the tables.
    pub modes: Vec<ModeDocument>,
    /// The loads, in the order of the tables. The last is `near_highest`; the others are the paced loads, whose rate is
    /// set in advance.
    pub loads: Vec<LoadDocument>,
    /// Planned number of runs of each mode at each paced load.
    pub rounds: u32,
    /// Time to send traffic before each run, so that the mode adapts to it; `run_ns` does not include it.
    pub learn_ns: u64,
    /// Duration of a run at a paced load.
    pub run_ns: u64,
    /// Duration of a search.
    pub search_ns: u64,
    /// Duration of a run near the highest loss-free rate.
    pub near_ns: u64,
}

/// A waiting mode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeDocument {
    /// Name in runs and tables, such as `adaptive p99=60us`.
    pub name: String,
    /// Latency goal of the mode, such as `p99=60us`; null for a mode without a goal.
    pub goal: Option<String>,
    /// Quantile of the goal, in parts per million; null without a goal.
    pub goal_quantile_ppm: Option<u32>,
    /// Latency bound of the goal; null without a goal.
    pub goal_latency_ns: Option<u64>,
}

/// A load.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadDocument {
    /// Identifier of the load in `runs`: its schedule, or `near_highest`.
    pub id: String,
    /// The load in words.
    pub title: String,
}

/// The test bed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BedDocument {
    /// Name of the lab.
    pub name: String,
    /// CPU of the tester; null if not pinned.
    pub tester_cpu: Option<u64>,
    /// CPU of the worker under test; null if not pinned.
    pub tested_cpu: Option<u64>,
    /// SCHED_FIFO priority of the worker under test; null for the normal class.
    pub tested_fifo_priority: Option<u8>,
    /// Size of the frames in bytes, with frame check sequence.
    pub frame_octets: u32,
    /// Highest packet rate that the worker expects. It limits the length of its sleeps.
    pub peak_rate_pps: u64,
    /// Receive descriptors of the port under test.
    pub rx_descriptors: Reading<u32>,
    /// How the XDP program of the port under test ran: `native` or `generic`.
    pub xdp_mode: Reading<String>,
    /// Whether the driver of the port under test received directly into the worker's memory (zero copy).
    pub zero_copy: Reading<bool>,
}

/// One run of one mode at one load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Name of the mode.
    pub mode: String,
    /// Identifier of the load.
    pub load: String,
    /// Number of the round, from 0.
    pub round: u32,
    /// Latencies, frames and CPU time.
    pub latency: LatencyResult,
    /// Number of decisions of the wait policy, by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// The search for one mode's highest loss-free rate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Name of the mode.
    pub mode: String,
    /// Result of the search. Frames lost while something else had the CPU of the tester or of the worker do not count.
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

//! `apus replay --json`.

use policy::wait::Mode;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// The schema's name.
pub const SCHEMA: &str = "apus.replay/1";

/// What a replay found.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.replay/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The recorded file.
    pub file: String,
    /// The mode that was recorded.
    pub mode: Name<Mode>,
    /// Its goal, if one was given.
    pub goal: Option<String>,
    /// Decisions compared.
    pub decisions: u64,
    /// Decisions of the recorded run that the file does not hold.
    pub left_out: u64,
    /// The first that differs; `null` if all are the same.
    pub first_difference: Option<Difference>,
    /// The CPU time of the recorded run, and the least possible.
    pub cpu: Cpu,
}

/// CPU time of the recorded decisions, and the least with which a goal could have been held on the same arrivals.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// The goal for which the least CPU time was computed; `null` if neither the mode nor `--goal` states one.
    pub goal: Option<String>,
    /// From the first to the last recorded decision.
    pub window_ns: Option<u64>,
    /// Time outside sleeps and blocks, with what those cost.
    pub spent_ns: Option<u64>,
    /// The least possible.
    pub least_ns: Option<u64>,
    /// `spent_ns` as a multiple of `least_ns`. Below 1 only if the run missed the goal.
    pub multiple: Option<f64>,
    /// What a sleep or block cost: the median of the cheaper kind.
    pub wake_ns: Option<u64>,
    /// What a frame cost, in the batch size that made it cheapest.
    pub frame_ns: Option<u64>,
    /// Why the least is not known; `null` if it is.
    pub unknown_because: Option<String>,
}

/// A decision that is not the recorded one.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The line of the file, from 1.
    pub line: u64,
    /// What was recorded.
    pub recorded: String,
    /// What the policy says now.
    pub now: String,
}

//! `apus replay --json`.

use policy::wait::Mode;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.replay/1";

/// The result of a replay.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.replay/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Path of the recorded file.
    pub file: String,
    /// The recorded waiting mode.
    pub mode: Name<Mode>,
    /// The goal of the recorded mode; `null` if it has none.
    pub goal: Option<String>,
    /// Number of decisions compared.
    pub decisions: u64,
    /// Number of decisions of the recorded run that the file does not contain.
    pub left_out: u64,
    /// The first decision that differs; `null` if all are the same.
    pub first_difference: Option<Difference>,
    /// CPU time of the recorded run, and the least possible.
    pub cpu: Cpu,
}

/// CPU time of the recorded decisions, and the least with which a goal could have been met on the same arrivals.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Cpu {
    /// Goal for which the least CPU time was computed; `null` if neither the mode nor `--goal` gives one.
    pub goal: Option<String>,
    /// Time from the first to the last recorded decision.
    pub window_ns: Option<u64>,
    /// CPU time: the time outside sleeps and blocks, plus their own cost.
    pub spent_ns: Option<u64>,
    /// Least CPU time with which the goal could have been met; `null` if unknown.
    pub least_ns: Option<u64>,
    /// `spent_ns` divided by `least_ns`. It is below 1 only if the run missed the goal.
    pub multiple: Option<f64>,
    /// Cost of a sleep or block: the median of the cheaper kind.
    pub wake_ns: Option<u64>,
    /// Cost of a frame, at the batch size where it is cheapest.
    pub frame_ns: Option<u64>,
    /// Why the least CPU time is unknown; `null` if it is known.
    pub unknown_because: Option<String>,
}

/// A decision that differs from the recorded one.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Difference {
    /// Line number in the file, from 1.
    pub line: u64,
    /// The recorded decision.
    pub recorded: String,
    /// The decision of the replayed policy.
    pub now: String,
}

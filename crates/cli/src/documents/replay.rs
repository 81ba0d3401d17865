//! `apus replay --json`.

use policy::wait::Mode;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.replay/1";

/// The result of replaying a recorded run: the policy decides again from the recorded observations.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.replay/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Path of the recorded file.
    pub file: String,
    /// The wait mode of the recorded run.
    pub mode: Name<Mode>,
    /// The latency goal of the recorded mode; `null` if it has none.
    pub goal: Option<String>,
    /// Number of decisions compared.
    pub decisions: u64,
    /// Number of decisions of the recorded run that the file does not contain.
    pub left_out: u64,
    /// The first replayed decision that differs from the recorded one; `null` if all are the same.
    pub first_difference: Option<Difference>,
    /// CPU time of the recorded run, and the minimum CPU time with which the goal could have been met.
    pub cpu: Cpu,
}

/// CPU time of the recorded run, and the minimum CPU time with which a goal could have been met for the same packet
/// arrivals.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Cpu {
    /// Goal for which the minimum CPU time was computed; `null` if neither the mode nor `--goal` gives one.
    pub goal: Option<String>,
    /// Time from the first to the last recorded decision, in ns; `null` if unknown.
    pub window_ns: Option<u64>,
    /// CPU time of the run in ns: the time outside of sleeps and blocking waits, plus the CPU cost of these waits;
    /// `null` if unknown.
    pub spent_ns: Option<u64>,
    /// Minimum CPU time in ns with which the goal could have been met; `null` if unknown.
    pub least_ns: Option<u64>,
    /// `spent_ns` divided by `least_ns`; `null` if one of the two is unknown. A value below 1 means that the run missed
    /// the goal, or that the cost of its frames varied much.
    pub multiple: Option<f64>,
    /// CPU time of one sleep or one blocking wait in ns, whichever is lower: the median of its kind, or the mean if
    /// that is lower; `null` if unknown.
    pub wake_ns: Option<u64>,
    /// CPU time per frame in ns: the median at the batch size where it is lowest, or the mean over all frames if that
    /// is lower; `null` if unknown.
    pub frame_ns: Option<u64>,
    /// Why the minimum CPU time is unknown; `null` if it is known.
    pub unknown_because: Option<String>,
}

/// A decision that differs from the recorded one.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Difference {
    /// Line number in the file, from 1.
    pub line: u64,
    /// The recorded decision, as text.
    pub recorded: String,
    /// The decision of the replayed policy, as text.
    pub now: String,
}

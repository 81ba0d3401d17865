//! `apus dim replay --json`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use crate::args::dim::Mode;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.dim-replay/1";

/// The result of replaying recorded samples through DIM, the kernel's dynamic interrupt moderation.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.dim-replay/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Path of the replayed file.
    pub file: String,
    /// The profile table and the variant of DIM that were replayed.
    pub mode: Name<Mode>,
    /// The state after each call, in order. Rows of the file that only start a new instance of DIM are left out.
    pub calls: Vec<Call>,
    /// The counts over all calls.
    pub summary: Summary,
}

/// DIM's state after a call, in the numbers of the kernel (Linux include/linux/dim.h).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Call {
    /// State of the measurement: 0 START_MEASURE, 1 MEASURE_IN_PROGRESS, 2 APPLY_NEW_PROFILE.
    pub state: u8,
    /// State of the tuning: 0 PARKING_ON_TOP, 1 PARKING_TIRED, 2 GOING_RIGHT, 3 GOING_LEFT.
    pub tune_state: u8,
    /// Index of the profile in its table.
    pub profile_ix: u8,
    /// Steps towards more moderation since DIM last turned or parked.
    pub steps_right: u8,
    /// Steps towards less moderation since DIM last turned or parked.
    pub steps_left: u8,
    /// Steps since DIM last parked on top.
    pub tired: u8,
}

/// The counts over all calls of a replay.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Summary {
    /// Number of calls replayed.
    pub calls: u64,
    /// Number of DIM instances to which the calls belong.
    pub instances: u64,
    /// Number of calls after which DIM chose another profile.
    pub profile_changes: u64,
    /// Number of calls after which the replayed state equals the recorded one; `null` if the file records no states.
    pub agreeing: Option<u64>,
    /// Recorded values that differ from the replayed ones.
    pub mismatches: Vec<Mismatch>,
}

/// A recorded value that differs from the replayed one.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Mismatch {
    /// Line number in the file, from 1.
    pub line: u64,
    /// Name of the CSV column.
    pub column: String,
    /// Value in the file.
    pub expected: u8,
    /// Value computed by the replay.
    pub found: u8,
}

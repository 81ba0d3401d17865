//! `apus dim replay --json`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use crate::args::dim::Mode;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.dim-replay/1";

/// The result of a replay of DIM.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.dim-replay/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Path of the replayed file.
    pub file: String,
    /// DIM table and variant to use.
    pub mode: Name<Mode>,
    /// The state after each call, in order. Rows that start an instance are not calls.
    pub calls: Vec<Call>,
    /// The counts over all calls.
    pub summary: Summary,
}

/// DIM's state after a call, in the numbers of the kernel (Linux include/linux/dim.h).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Call {
    /// 0 START_MEASURE, 1 MEASURE_IN_PROGRESS, 2 APPLY_NEW_PROFILE.
    pub state: u8,
    /// 0 PARKING_ON_TOP, 1 PARKING_TIRED, 2 GOING_RIGHT, 3 GOING_LEFT.
    pub tune_state: u8,
    /// Index of the profile in its table.
    pub profile_ix: u8,
    /// Steps towards more moderation since the last turn or park.
    pub steps_right: u8,
    /// Steps towards less moderation since the last turn or park.
    pub steps_left: u8,
    /// Steps since DIM last parked on top.
    pub tired: u8,
}

/// The counts over all calls of a replay.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Summary {
    /// Number of calls replayed.
    pub calls: u64,
    /// Number of instances that the calls belong to.
    pub instances: u64,
    /// Number of calls that chose another profile.
    pub profile_changes: u64,
    /// Number of calls whose recorded state is the same; `null` if the file has no states.
    pub agreeing: Option<u64>,
    /// Recorded values that differ from DIM's.
    pub mismatches: Vec<Mismatch>,
}

/// A recorded value that differs from DIM's.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Mismatch {
    /// Line number in the file, from 1.
    pub line: u64,
    /// Name of the column.
    pub column: String,
    /// Value in the file.
    pub expected: u8,
    /// Value computed by DIM.
    pub found: u8,
}

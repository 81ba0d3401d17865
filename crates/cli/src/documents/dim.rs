//! `apus dim replay --json`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use crate::args::dim::Mode;

/// The schema's name.
pub const SCHEMA: &str = "apus.dim-replay/1";

/// What DIM came to.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.dim-replay/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The file with the calls.
    pub file: String,
    /// Which of DIM's tables and variants.
    pub mode: Name<Mode>,
    /// The state after each call, in order. Rows that start an instance are no calls.
    pub calls: Vec<Call>,
    /// All of it in short.
    pub summary: Summary,
}

/// DIM's state after a call, in the numbers of the kernel (Linux include/linux/dim.h).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// 0 START_MEASURE, 1 MEASURE_IN_PROGRESS, 2 APPLY_NEW_PROFILE.
    pub state: u8,
    /// 0 PARKING_ON_TOP, 1 PARKING_TIRED, 2 GOING_RIGHT, 3 GOING_LEFT.
    pub tune_state: u8,
    /// The profile's place in its table.
    pub profile_ix: u8,
    /// Steps to more moderation since the last turn or park.
    pub steps_right: u8,
    /// Steps to less.
    pub steps_left: u8,
    /// Steps since it last parked on top.
    pub tired: u8,
}

/// A replay in short.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Calls replayed.
    pub calls: u64,
    /// Instances that they belong to.
    pub instances: u64,
    /// Calls that asked for another profile.
    pub profile_changes: u64,
    /// Calls whose state the file gives too and is the same; `null` if the file gives none.
    pub agreeing: Option<u64>,
    /// Values in the file that DIM does not come to.
    pub mismatches: Vec<Mismatch>,
}

/// A value in the file that DIM does not come to.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Mismatch {
    /// The line of the file, from 1.
    pub line: u64,
    /// The column.
    pub column: String,
    /// What the file says.
    pub expected: u8,
    /// What DIM comes to.
    pub found: u8,
}

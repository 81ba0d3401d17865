//! `apus replay --json`.

use schemars::JsonSchema;
use serde::Serialize;

/// The schema's name.
pub const SCHEMA: &str = "apus.replay/1";

/// What a replay found.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
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
    pub mode: String,
    /// Its goal, if one was given.
    pub goal: Option<String>,
    /// Decisions compared.
    pub decisions: u64,
    /// Decisions of the recorded run that the file does not hold.
    pub left_out: u64,
    /// The first that differs; `null` if all are the same.
    pub first_difference: Option<Difference>,
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

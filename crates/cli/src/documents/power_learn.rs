//! `apus power learn --json`.

use policy::frequency::outside::branches::Phase;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.power-learn/1";

/// What `apus power learn` learned about a program from its branch counters.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-learn/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The file to which the counts were added.
    pub file: String,
    /// The CPU whose branches were counted.
    pub cpu: u32,
    /// The phase that was recorded by this command: idle, or with packets.
    pub phase: Name<Phase>,
    /// Number of time spans of 10 ms that this command added.
    pub spans: u64,
    /// Number of usable time spans of the idle phase in the file.
    pub idle_spans: u32,
    /// Number of usable time spans of the phase with packets in the file.
    pub load_spans: u32,
    /// How well a single time span distinguishes the two phases, from 0 (not at all) to 1; `null` until enough spans of
    /// both were recorded.
    pub confidence_ratio: Option<f64>,
    /// Whether the file suffices for `apus power steer --branches`.
    pub is_enough: bool,
}

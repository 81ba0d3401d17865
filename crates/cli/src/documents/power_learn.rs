//! `apus power learn --json`.

use policy::frequency::outside::branches::Phase;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.power-learn/1";

/// What was learned of a program.
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
    /// The phase that was learned now.
    pub phase: Name<Phase>,
    /// Spans of 10 ms that were added now.
    pub spans: u64,
    /// Usable spans of the idle phase in the file.
    pub idle_spans: u32,
    /// Usable spans of the phase with packets in the file.
    pub load_spans: u32,
    /// How well one span tells the phases apart, from 0 (not at all) to 1; `null` until enough of both were learned.
    pub confidence_ratio: Option<f64>,
    /// Whether that suffices for `apus power steer --branches`.
    pub is_enough: bool,
}

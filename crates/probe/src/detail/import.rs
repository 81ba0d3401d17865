//! What the result of another tool has besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Details of a result that another tool measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportDetail {
    /// The tool, with its version if the file has it.
    pub tool: String,
    /// The command line; null if not in the file.
    pub command: Option<String>,
    /// Width of a bucket of the tool's histogram.
    pub bucket_ns: u64,
}

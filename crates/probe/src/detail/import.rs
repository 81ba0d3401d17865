//! What an imported result contains besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Details of a result that another tool measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportDetail {
    /// Name of the tool, with its version if the imported file contains it.
    pub tool: String,
    /// Command line with which the tool was run; null if the imported file does not contain it.
    pub command: Option<String>,
    /// Width of a bucket of the tool's histogram, in nanoseconds.
    pub bucket_ns: u64,
}

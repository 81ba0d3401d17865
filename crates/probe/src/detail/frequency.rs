//! What the probe `frequency` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::Reading;

/// Results of the probe `frequency` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyDetail {
    /// How frequencies were requested.
    pub via: String,
    /// Requested frequencies, repeated in this order.
    pub levels_hz: Vec<u64>,
    /// Number of work items.
    pub units: u64,
    /// Work items per batch.
    pub batch_units: u64,
    /// The requests.
    pub changes: Vec<FrequencyChange>,
    /// Number of requests after which the speed of the work did not change.
    pub without_effect: u64,
    /// For a figure: start time and longest item of each batch, in order; if there are very many, neighbors are
    /// merged and the longest is kept.
    pub batches_ns: Vec<(u64, u64)>,
}

/// One request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyChange {
    /// Time of the request, from the start of the run.
    pub at_ns: u64,
    /// Requested frequency.
    pub to_hz: u64,
    /// Duration of the requesting call.
    pub call_ns: u64,
    /// Median duration of a work item before the request.
    pub unit_before_ns: u64,
    /// Median duration of a work item after the request.
    pub unit_after_ns: u64,
    /// Time from the request to the first item at the new speed; null if the speed did not change.
    pub effect_ns: Option<u64>,
    /// How far the longest item around the change exceeded both medians.
    pub stall_ns: u64,
    /// Effective frequency afterwards, from APERF, MPERF and the time stamp counter.
    pub effective_hz: Reading<u64>,
}

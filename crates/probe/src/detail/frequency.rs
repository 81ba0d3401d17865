//! What the probe `frequency` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::Reading;

/// Results of the probe `frequency` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyDetail {
    /// Interface through which frequencies were requested: `userspace governor`, `limits of the policy` or `HWP request
    /// (MSR 0x774)`.
    pub via: String,
    /// Frequencies in hertz. They were requested one after the other in this order, repeatedly.
    pub levels_hz: Vec<u64>,
    /// Number of work items that were timed. Each is the same fixed amount of computation.
    pub units: u64,
    /// Number of work items per entry of `batches_ns`, before neighbors are merged.
    pub batch_units: u64,
    /// The frequency requests, in order, each with its effect.
    pub changes: Vec<FrequencyChange>,
    /// Number of requests after which the speed of the work did not change.
    pub without_effect: u64,
    /// Data for a figure: for each batch of work items, in order, its start time from the start of the run and the
    /// duration of its slowest item, both in nanoseconds. If there are more than 4000 batches, neighbors are merged and
    /// the slowest item is kept.
    pub batches_ns: Vec<(u64, u64)>,
}

/// One frequency request and its effect.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyChange {
    /// Time of the request in nanoseconds from the start of the run.
    pub at_ns: u64,
    /// Requested frequency in hertz.
    pub to_hz: u64,
    /// Duration of the call that made the request, in nanoseconds.
    pub call_ns: u64,
    /// Median duration of a work item before the request, in nanoseconds.
    pub unit_before_ns: u64,
    /// Median duration of a work item after the request, in nanoseconds.
    pub unit_after_ns: u64,
    /// Time from the request to the first work item at the new speed, in nanoseconds; null if the speed did not change.
    pub effect_ns: Option<u64>,
    /// How much longer the slowest work item around the change took than the longer of the two medians, in nanoseconds;
    /// 0 if none took longer.
    pub stall_ns: u64,
    /// Effective frequency after the request in hertz, from the counters APERF and MPERF and the time stamp counter.
    pub effective_hz: Reading<u64>,
}

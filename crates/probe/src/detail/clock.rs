//! What the probe `clock` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::Reading;

/// Results of the probe `clock` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockDetail {
    /// The clocks.
    pub clocks: Vec<ClockFacts>,
    /// Ticks of the time stamp counter per second of `CLOCK_MONOTONIC_RAW`.
    pub tsc_hz: Reading<u64>,
    /// Whether the processor reports that the counter has the same rate at every frequency and in every sleep state
    /// (flags constant_tsc and nonstop_tsc).
    pub tsc_invariant: Reading<bool>,
    /// The counter of each other CPU compared with that of the first; empty with one CPU.
    pub tsc_pairs: Vec<TscPair>,
}

/// Properties of a clock; the cost of reading it is a term.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockFacts {
    /// Name of the clock.
    pub name: String,
    /// Resolution according to clock_getres(2).
    pub resolution_ns: u64,
    /// Smallest step between two consecutive readings; null if the clock never changed.
    pub smallest_step_ns: Option<u64>,
    /// Number of readings earlier than the one before.
    pub backwards: u64,
}

/// The time stamp counters of two CPUs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TscPair {
    /// The CPU that the other is compared with.
    pub from: usize,
    /// The other CPU.
    pub to: usize,
    /// How far the other's counter is ahead, at the end of the run.
    pub ahead_ns: Reading<f64>,
    /// Error bound of `ahead_ns`.
    pub bound_ns: Reading<f64>,
    /// How much further ahead the counter has moved during the run.
    pub drift_ns: Reading<f64>,
    /// Number of readings in the wrong order; 0 if the counters agree.
    pub warps: u64,
}

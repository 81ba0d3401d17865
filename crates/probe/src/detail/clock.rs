//! What the probe `clock` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::Reading;

/// Results of the probe `clock` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockDetail {
    /// Properties of each clock that was read.
    pub clocks: Vec<ClockFacts>,
    /// Ticks of the time stamp counter per second of `CLOCK_MONOTONIC_RAW`.
    pub tsc_hz: Reading<u64>,
    /// Whether the processor reports that the time stamp counter has the same rate at every frequency and in every
    /// sleep state (flags constant_tsc and nonstop_tsc).
    pub tsc_invariant: Reading<bool>,
    /// Comparison of the time stamp counter of each further CPU with the counter of the first CPU; empty with one CPU.
    pub tsc_pairs: Vec<TscPair>,
}

/// Properties of a clock. The time to read the clock is a distribution, so it is reported as a term instead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockFacts {
    /// Name of the clock, such as `CLOCK_MONOTONIC`.
    pub name: String,
    /// Resolution in nanoseconds, according to clock_getres(2).
    pub resolution_ns: u64,
    /// Smallest difference between two consecutive readings that differ, in nanoseconds; null if the reading never
    /// changed.
    pub smallest_step_ns: Option<u64>,
    /// Number of readings that were earlier than the reading before.
    pub backwards: u64,
}

/// Comparison of the time stamp counters (TSC) of two CPUs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TscPair {
    /// The reference CPU.
    pub from: usize,
    /// The CPU that is compared with the reference CPU `from`.
    pub to: usize,
    /// How far the counter of `to` is ahead of the counter of `from` at the end of the run, in nanoseconds; negative if
    /// it is behind.
    pub ahead_ns: Reading<f64>,
    /// Maximum error of `ahead_ns`, in nanoseconds.
    pub bound_ns: Reading<f64>,
    /// Change of `ahead_ns` from the beginning to the end of the run, in nanoseconds; negative if the counter of `to`
    /// fell back.
    pub drift_ns: Reading<f64>,
    /// Number of readings that were lower than an earlier reading on the other CPU (time warps); 0 if the counters
    /// agree.
    pub warps: u64,
}

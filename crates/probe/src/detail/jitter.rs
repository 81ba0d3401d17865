//! What the probe `jitter` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Evidence, Explanation};

/// Results of the probe `jitter` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterDetail {
    /// Passes of the loop longer than this are gaps.
    pub gap_over_ns: u64,
    /// Disturbances longer than this are explained.
    pub explain_over_ns: u64,
    /// Results by CPU.
    pub cpus: Vec<JitterCpu>,
}

/// The gaps of one CPU. Work and gaps add up to the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterCpu {
    /// Number of the CPU.
    pub cpu: usize,
    /// Time from the first reading of the clock to the last.
    pub run_ns: u64,
    /// Passes of the loop that were not gaps.
    pub rounds: u64,
    /// Total duration of these passes (`rounds`).
    pub work_ns: u64,
    /// Median duration of the passes, which is the resolution of the measurement; null if there are no passes.
    pub round_median_ns: Option<u64>,
    /// Number of gaps.
    pub gaps: u64,
    /// Time in gaps.
    pub gaps_ns: u64,
    /// Number of gaps longer than `explain_over_ns`.
    pub large_gaps: u64,
    /// Total duration of the gaps that `large_gaps` counts.
    pub large_gaps_ns: u64,
    /// Disturbances without an explanation, because too many came at once or nothing was recorded.
    pub unexplained: u64,
    /// Readings of the clock that were earlier than the one before.
    pub backwards: u64,
    /// The evidence of the explanations.
    pub evidence: Evidence,
    /// The main causes of the disturbances, the one with the most time first.
    pub causes: Vec<CauseTotal>,
    /// The largest disturbances, the longest first.
    pub largest: Vec<Explained>,
    /// Effect of the gaps on packets.
    pub packets: Packets,
}

/// The disturbances of one main cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CauseTotal {
    /// The cause.
    pub cause: Cause,
    /// Number of disturbances with this main cause.
    pub disturbances: u64,
    /// Total length of the gaps with this cause.
    pub away_ns: u64,
    /// Longest disturbance with this cause, without the time that the loop ran between its gaps.
    pub largest_ns: u64,
}

/// An explained disturbance: one gap, or several less than 5 us apart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// When the span began, in nanoseconds from the start of the run.
    pub at_ns: u64,
    /// Time from the beginning of the first gap to the end of the last one. The length in `explanation` is the sum of
    /// the gaps alone.
    pub span_ns: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// What explains the gaps of the span.
    pub explanation: Explanation,
}

/// Computed effect of the gaps on packets: evenly spaced packets, and a ring that is empty when nothing delays its
/// reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Descriptors in the ring.
    pub ring: u32,
    /// Assumed arrival rate per second; null if none was given.
    pub rate_pps: Option<u64>,
    /// Packets per second that the reader was assumed to process; null means unlimited.
    pub capacity_pps: Option<u64>,
    /// Packets that would have arrived; null without a rate.
    pub arrived: Option<u64>,
    /// Packets that would not have fitted into the ring; null without a rate.
    pub lost: Option<u64>,
    /// Most packets that would have waited at once in an unlimited ring; null without a rate.
    pub highest_backlog: Option<u64>,
    /// Highest rate at which the longest gap loses nothing: ring / gap; null without a gap.
    pub loss_free_pps: Option<u64>,
}

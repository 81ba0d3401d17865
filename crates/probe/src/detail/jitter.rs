//! What the probe `jitter` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Evidence, Explanation};

/// Results of the probe `jitter` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterDetail {
    /// Threshold in nanoseconds: a pass of the loop that takes longer is a gap.
    pub gap_over_ns: u64,
    /// Threshold in nanoseconds: longer disturbances are explained. A disturbance is one gap, or several at most 5 us
    /// apart.
    pub explain_over_ns: u64,
    /// Results of each measured CPU.
    pub cpus: Vec<JitterCpu>,
}

/// The gaps on one CPU. `work_ns` and `gaps_ns` add up to `run_ns`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterCpu {
    /// Number of the CPU.
    pub cpu: usize,
    /// Time from the first reading of the clock to the last, in nanoseconds.
    pub run_ns: u64,
    /// Number of passes of the loop that were not gaps.
    pub rounds: u64,
    /// Total duration of the passes that `rounds` counts, in nanoseconds.
    pub work_ns: u64,
    /// Median duration of the passes that were not gaps, in nanoseconds: the resolution of the measurement. Null if
    /// there were none.
    pub round_median_ns: Option<u64>,
    /// Number of gaps.
    pub gaps: u64,
    /// Total duration of all gaps, in nanoseconds.
    pub gaps_ns: u64,
    /// Number of gaps longer than `explain_over_ns`.
    pub large_gaps: u64,
    /// Total duration of the gaps that `large_gaps` counts, in nanoseconds.
    pub large_gaps_ns: u64,
    /// Number of disturbances without an explanation, because too many came at once or no events were recorded.
    pub unexplained: u64,
    /// Number of clock readings that were earlier than the reading before.
    pub backwards: u64,
    /// The kind of evidence on which the explanations are based.
    pub evidence: Evidence,
    /// The main causes of the disturbances. The cause with the longest total time comes first.
    pub causes: Vec<CauseTotal>,
    /// The largest disturbances, the longest first.
    pub largest: Vec<Explained>,
    /// Effect of the gaps on packets.
    pub packets: Packets,
}

/// Totals of all disturbances with the same main cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CauseTotal {
    /// The main cause of these disturbances.
    pub cause: Cause,
    /// Number of disturbances with this main cause.
    pub disturbances: u64,
    /// Total time in nanoseconds for which these disturbances kept the thread from running: the sum of their gaps.
    pub away_ns: u64,
    /// Duration of the longest of these disturbances in nanoseconds, not counting the time for which the loop ran
    /// between gaps.
    pub largest_ns: u64,
}

/// An explained disturbance: one gap, or several at most 5 us apart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// When the disturbance began, in nanoseconds from the start of the run.
    pub at_ns: u64,
    /// Time from the beginning of the first gap to the end of the last one, in nanoseconds. `explanation.length_ns` is
    /// the sum of the gaps alone.
    pub span_ns: u64,
    /// Number of gaps in the disturbance.
    pub gaps: u64,
    /// What used the CPU during the gaps.
    pub explanation: Explanation,
}

/// Computed effect of the gaps on packets. The computation assumes that packets arrive evenly spaced, and that the loop
/// reads them from a receive ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Number of descriptors in the assumed receive ring.
    pub ring: u32,
    /// Assumed arrival rate in packets per second; null if none was given.
    pub rate_pps: Option<u64>,
    /// Packets per second that the loop was assumed to process; null means unlimited.
    pub capacity_pps: Option<u64>,
    /// Number of packets that would have arrived; null without a rate.
    pub arrived: Option<u64>,
    /// Number of packets that would have been lost because the ring was full; null without a rate.
    pub lost: Option<u64>,
    /// Largest number of packets that would have waited at once if the ring were unlimited; null without a rate.
    pub highest_backlog: Option<u64>,
    /// Highest rate in packets per second at which the longest gap loses no packet: `ring` divided by the longest gap.
    /// Null without a gap.
    pub loss_free_pps: Option<u64>,
}

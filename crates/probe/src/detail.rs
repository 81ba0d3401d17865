//! What only one probe knows: the part of its result that no other has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::Reading;

use crate::cause::{Cause, Evidence, Explanation};

/// What only one probe knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Of the probe `timer`.
    Timer(TimerDetail),
    /// Of the probe `jitter`.
    Jitter(JitterDetail),
    /// Of the probe `switch`.
    Switch(SwitchDetail),
    /// Of the probe `interrupt`.
    Interrupt(InterruptDetail),
    /// Of the probe `idle`.
    Idle(IdleDetail),
    /// Of the probe `frequency`.
    Frequency(FrequencyDetail),
    /// Of the probe `clock`.
    Clock(ClockDetail),
    /// Of another tool.
    Imported(ImportDetail),
}

/// What only the probe `timer` knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerDetail {
    /// How the threads waited.
    pub wait: String,
    /// From one activation to the next.
    pub interval_ns: u64,
    /// By CPU.
    pub cpus: Vec<TimerCpu>,
}

/// One CPU's activations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerCpu {
    /// The CPU.
    pub cpu: usize,
    /// Activations that the thread ran for.
    pub activations: u64,
    /// Activations that a stall swallowed: in the back-filled series only.
    pub swallowed: u64,
    /// Returns before the time: waited for again, and no samples.
    pub early: u64,
}

/// What only the probe `jitter` knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterDetail {
    /// Rounds longer than this are gaps.
    pub gap_over_ns: u64,
    /// Disturbances longer than this are explained.
    pub explain_over_ns: u64,
    /// By CPU.
    pub cpus: Vec<JitterCpu>,
}

/// One CPU's gaps. Work and gaps add up to the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterCpu {
    /// The CPU.
    pub cpu: usize,
    /// From the first reading of the clock to the last.
    pub run_ns: u64,
    /// Rounds that were no gaps.
    pub rounds: u64,
    /// Time in them.
    pub work_ns: u64,
    /// The median of them: how finely the loop looks; null without any.
    pub round_median_ns: Option<u64>,
    /// Gaps.
    pub gaps: u64,
    /// Time in them.
    pub gaps_ns: u64,
    /// Gaps longer than `explain_over_ns`.
    pub large_gaps: u64,
    /// Time in them.
    pub large_gaps_ns: u64,
    /// Disturbances without an explanation, because too many came at once or no one looked.
    pub unexplained: u64,
    /// Readings of the clock that were earlier than the one before.
    pub backwards: u64,
    /// What the explanations rest on.
    pub evidence: Evidence,
    /// The main causes of the disturbances, the one with most time first.
    pub causes: Vec<CauseTotal>,
    /// The largest disturbances, the longest first.
    pub largest: Vec<Explained>,
    /// What the gaps would have meant for packets.
    pub packets: Packets,
}

/// The disturbances of one main cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CauseTotal {
    /// The cause.
    pub cause: Cause,
    /// Disturbances of which it is the main cause.
    pub disturbances: u64,
    /// The sum of their gaps.
    pub away_ns: u64,
    /// The longest of them, without the time that the loop ran in between.
    pub largest_ns: u64,
}

/// A disturbance, explained: one gap, or several with less than 5 us between them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// When it began, from the start of the run.
    pub at_ns: u64,
    /// From its beginning to its end; the sum of its gaps is the explanation's length.
    pub span_ns: u64,
    /// Its gaps.
    pub gaps: u64,
    /// Its cause.
    pub explanation: Explanation,
}

/// What the gaps would have meant for packets. Reckoned, not measured: packets evenly spaced, a ring that
/// is empty when nothing delays its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Descriptors of the ring.
    pub ring: u32,
    /// Packets a second that were supposed to arrive; null if none were given.
    pub rate_pps: Option<u64>,
    /// Packets a second that the reader was supposed to take; null: any number.
    pub capacity_pps: Option<u64>,
    /// Packets that would have arrived; null without a rate.
    pub arrived: Option<u64>,
    /// Packets for which the ring would have had no room; null without a rate.
    pub lost: Option<u64>,
    /// The most that would have waited, if the ring had had room for all; null without a rate.
    pub highest_backlog: Option<u64>,
    /// The highest rate at which the longest gap seen loses nothing: ring / gap; null without a gap.
    pub loss_free_pps: Option<u64>,
}

/// What only the probe `switch` knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchDetail {
    /// How the threads woke each other.
    pub via: String,
    /// Whether both were on one CPU.
    pub same_cpu: bool,
    /// For how long a thread spun before it woke the other.
    pub pause_ns: u64,
}

/// What only the probe `interrupt` knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptDetail {
    /// `lab`, or the port.
    pub bed: String,
    /// How the receiver waited.
    pub wait: String,
    /// What stamped the arrival: `XDP`, or the kernel's `stack` (for UDP sockets).
    pub stamped_by: String,
    /// The sender's CPU, where on veth the receiver's NAPI runs too.
    pub sender_cpu: usize,
    /// The receiver's CPU.
    pub receiver_cpu: usize,
    /// Frames sent, those of the warm-up left out.
    pub sent: u64,
    /// Frames of these that came back in time.
    pub received: u64,
    /// Frames of these that did not.
    pub lost: u64,
    /// Times at which a frame was due while an earlier one was still under way: not sent.
    pub missed: u64,
    /// Frames whose stamps were incomplete or in the wrong order: not counted.
    pub unusable: u64,
    /// The sum of the parts' medians; null without samples.
    pub sum_of_medians_ns: Option<u64>,
    /// Whether polling reached the driver, where that was asked for.
    pub polls_driver: Reading<bool>,
}

/// What only the probe `idle` knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleDetail {
    /// `alone` or `pm-qos`.
    pub how: String,
    /// The idle states of the CPU, the shallowest first; none in a guest that halts.
    pub states: Vec<IdleFacts>,
    /// The cases, each with a term of its name.
    pub cases: Vec<IdleCase>,
    /// Whether, and for how long, the guest itself polls before it halts.
    pub guest_halt_polling: Reading<HaltPolling>,
}

/// An idle state as the driver describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleFacts {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The exit latency that the driver claims; null where it gives none.
    pub claimed_exit_ns: Option<u64>,
    /// Whether it was disabled before the measurement; null where that cannot be read.
    pub was_disabled: Option<bool>,
}

/// One combination of state, idle time and source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleCase {
    /// The term's name.
    pub term: String,
    /// The state's number; null: halted.
    pub state: Option<u32>,
    /// What ended the sleep.
    pub source: String,
    /// For how long the CPU was idle before, by and large.
    pub sleep_ns: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// How often the kernel asked for the state meanwhile; far fewer than wake-ups: the figures are not this state's.
    pub entered: Reading<u64>,
    /// The median, above that of the first state with this source (after the same sleep, if it had one as long): what
    /// the state itself costs. Without states, as in a guest: above that after the first sleep. Null without samples.
    pub median_above_first_ns: Option<u64>,
    /// The same above the claimed exit latency of the state (negative: less than claimed); null where none is claimed.
    pub median_above_claim_ns: Option<i64>,
}

/// Parameters of the guest's own halt polling (kernel documentation, virt/guest-halt-polling).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaltPolling {
    /// The longest that a CPU polls before it halts.
    pub guest_halt_poll_ns: u64,
}

/// What only the probe `frequency` knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyDetail {
    /// How frequencies were asked for.
    pub via: String,
    /// The levels, in turn.
    pub levels_hz: Vec<u64>,
    /// Units of work.
    pub units: u64,
    /// Units of which the longest makes a batch's maximum.
    pub batch_units: u64,
    /// The requests.
    pub changes: Vec<FrequencyChange>,
    /// Requests after which the work went no faster and no slower.
    pub without_effect: u64,
    /// For a figure: the time from the start and the longest unit of each batch, in order; thinned where there are
    /// very many, the longest kept.
    pub batches_ns: Vec<(u64, u64)>,
}

/// One request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyChange {
    /// When, from the start.
    pub at_ns: u64,
    /// What was asked for.
    pub to_hz: u64,
    /// How long the call took that asked.
    pub call_ns: u64,
    /// A unit's median before.
    pub unit_before_ns: u64,
    /// A unit's median after.
    pub unit_after_ns: u64,
    /// From the request to the first unit at the new speed; null if the speed did not change.
    pub effect_ns: Option<u64>,
    /// By how much the longest unit around the change exceeded both medians.
    pub stall_ns: u64,
    /// The effective frequency afterwards, from APERF, MPERF and the time-stamp counter.
    pub effective_hz: Reading<u64>,
}

/// What only the probe `clock` knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockDetail {
    /// The clocks.
    pub clocks: Vec<ClockFacts>,
    /// Ticks of the time-stamp counter a second, by `CLOCK_MONOTONIC_RAW`.
    pub tsc_hz: Reading<u64>,
    /// Whether the processor says that the counter keeps its rate at every frequency and in every sleep
    /// state: the flags constant_tsc and nonstop_tsc.
    pub tsc_invariant: Reading<bool>,
    /// The counters of other CPUs against the first one's; none with one CPU.
    pub tsc_pairs: Vec<TscPair>,
}

/// A clock's facts; what reading it costs is a term.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockFacts {
    /// Its name.
    pub name: String,
    /// What clock_getres(2) says.
    pub resolution_ns: u64,
    /// The least step between two readings, one after the other; null if it never moved.
    pub smallest_step_ns: Option<u64>,
    /// Readings earlier than the one before.
    pub backwards: u64,
}

/// The time-stamp counters of two CPUs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TscPair {
    /// The CPU that the other is compared with.
    pub from: usize,
    /// The other one.
    pub to: usize,
    /// By how much the other's counter is ahead, at the end of the run.
    pub ahead_ns: Reading<f64>,
    /// To within this.
    pub bound_ns: Reading<f64>,
    /// By how much it got further ahead during the run.
    pub drift_ns: Reading<f64>,
    /// Readings in the wrong order: 0 where the counters agree.
    pub warps: u64,
}

/// What is known of a result that another tool measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportDetail {
    /// The tool, with its version where the file has it.
    pub tool: String,
    /// What was typed; null where the file does not say.
    pub command: Option<String>,
    /// How coarse its values are.
    pub bucket_ns: u64,
}

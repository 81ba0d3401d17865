//! The document of `apus bench`: `apus.bench/2`.
//!
//! The name of each field contains its unit. An unknown value is null and comes with the reason ([`Reading`]). A
//! quantile without enough samples is null ([`QuantileEstimate`]).

use live::device::Statistics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use units::{Nanos, Quantile};

use crate::cpu::CpuUse;
use crate::document::{Distribution, Energy, Name, Work};
use crate::gaps::{Recovery, Split};
use crate::histogram::Histogram;
use crate::host::{HostState, Reading};
use crate::quantile::{QuantileEstimate, estimate};
use crate::search::{BinarySearch, End, Found, SearchConfig, SearchTrial, Verdict};
use crate::trial::{Flood, FloodConfig, Trial, TrialConfig};

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.bench/2";

/// The JSON document of `apus bench`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Version of Apus.
    pub apus: String,
    /// `apus.bench/2`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The host on which the result was measured.
    pub host: HostState,
    /// The measured result.
    pub result: Measured,
}

impl Document {
    /// Builds the document for this version of Apus.
    pub fn new(host: HostState, result: Measured) -> Self {
        Self { apus: env!("CARGO_PKG_VERSION").into(), schema: SCHEMA.into(), host, result }
    }
}

/// One result: `{"latency": …}`, `{"load": …}` or `{"flood": …}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// The result of `apus bench latency`.
    Latency(Box<LatencyResult>),
    /// The result of `apus bench load`.
    Load(Box<LoadResult>),
    /// The result of `apus bench load --flood`.
    Flood(Box<FloodResult>),
}

/// Latency of frames at one load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyResult {
    /// The schedule, in the form that the command line accepts.
    pub schedule: String,
    /// Random seed of the schedule.
    pub seed: u64,
    /// Size of the frames in bytes, with frame check sequence. Frames of a capture have their recorded sizes instead.
    pub frame_octets: u32,
    /// Definition of the latency: its start, its end, and the clock used.
    pub latency_is: String,
    /// Warm-up time at the start of the trial. The latencies exclude frames that were due during the warm-up.
    pub warm_up_ns: u64,
    /// Time during which frames were due, including the warm-up.
    pub duration_ns: u64,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
    /// Frames due per second.
    pub intended_pps: Reading<f64>,
    /// Frames sent per second.
    pub offered_pps: Reading<f64>,
    /// Frames that came back, per second.
    pub received_pps: Reading<f64>,
    /// Number of frames by outcome, including the warm-up.
    pub frames: FrameCounts,
    /// Latencies of all frames received, without the warm-up.
    pub all: Distribution,
    /// Latencies of the frames that met no gap. A gap is a time when a busy loop did not run.
    pub clean: Distribution,
    /// How many frames `clean` excludes, and by which rule.
    pub exclusion: Exclusion,
    /// Measurements of the tester itself.
    pub tester: TesterState,
    /// CPU time of the threads under test, or why it is unknown.
    pub tested_cpu: Reading<CpuDocument>,
    /// Energy during the measurement.
    #[serde(default)]
    pub energy: Energy,
    /// The latency goal, and whether it was met; null if the user gave none.
    pub goal: Option<GoalVerdict>,
}

/// A latency goal, and whether it was met.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GoalVerdict {
    /// The goal, such as `p99=40us`.
    pub goal: String,
    /// Latency bound of the goal.
    pub bound_ns: u64,
    /// Measured value of the goal's quantile, over the frames that met no gap.
    pub measured_ns: Reading<u64>,
    /// Whether the goal was met: the measured quantile is at most `bound_ns`, where frames lost outside gaps count as
    /// late. Unknown if there are too few samples, or if more than a tenth of the frames are excluded.
    pub held: Reading<bool>,
}

/// The result of a flood, in which the tester sends as fast as it can.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FloodResult {
    /// Size of the frames in bytes with frame check sequence.
    pub frame_octets: u32,
    /// Warm-up time at the start of the flood. Frames sent or received during the warm-up are not counted.
    pub warm_up_ns: u64,
    /// Time after the warm-up during which frames were counted.
    pub duration_ns: u64,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
    /// Frames that the tester's device accepted.
    pub sent: u64,
    /// Intact test frames that came back.
    pub received: u64,
    /// Damaged test frames that came back.
    pub corrupted: u64,
    /// Other frames that the tester received.
    pub foreign: u64,
    /// Frames sent per second.
    pub sent_pps: Reading<f64>,
    /// Frames that came back, per second.
    pub received_pps: Reading<f64>,
    /// Frames that came back but were lost by the tester's own device. If there are many, the tester was the
    /// bottleneck.
    pub tester_rx_dropped: u64,
    /// Frames that the tester's own device refused to send.
    pub tester_tx_refused: u64,
    /// Number of gaps: times when the tester's loop did not run.
    pub tester_gaps: u64,
    /// Total length of the gaps of the tester's loop.
    pub tester_gaps_ns: u64,
    /// CPU time of the threads under test, or why it is unknown.
    pub tested_cpu: Reading<CpuDocument>,
    /// Energy during the measurement.
    #[serde(default)]
    pub energy: Energy,
}

impl FloodResult {
    /// Builds the result of a flood.
    pub fn new(config: &FloodConfig, flood: &Flood, tested_cpu: Result<CpuUse, String>) -> Self {
        let Statistics { rx_ring_full, rx_no_buffer, rx_invalid, tx_invalid, tx_dropped } = flood.device;
        Self {
            frame_octets: config.layout.size.octets(),
            warm_up_ns: config.warm_up.as_nanos(),
            duration_ns: flood.counted.as_nanos(),
            interrupted: flood.interrupted,
            sent: flood.sent,
            received: flood.received,
            corrupted: flood.corrupted,
            foreign: flood.foreign,
            sent_pps: Reading::or_unknown(flood.sent_pps(), "no frame was sent"),
            received_pps: Reading::or_unknown(flood.received_pps(), "no frame came back"),
            tester_rx_dropped: rx_ring_full + rx_no_buffer + rx_invalid,
            tester_tx_refused: tx_invalid + tx_dropped,
            tester_gaps: flood.gaps.len() as u64,
            tester_gaps_ns: flood.gaps.iter().map(|gap| gap.length().as_nanos()).sum(),
            tested_cpu: tested_cpu.map(|used| (&used).into()).into(),
            energy: Energy::unmeasured(UNMEASURED),
        }
    }

    /// Adds the energy of the whole flood, including its warm-up. The figures per frame are computed from the rate,
    /// because frames of the warm-up are not counted.
    pub fn with_energy(self, energy: Energy) -> Self {
        let share = self.tested_cpu.value.and_then(|used| used.share_of_one_cpu_percent).map(|percent| percent / 100.0);
        let energy = energy.at_rate(self.received_pps.value, share);
        Self { energy, ..self }
    }
}

/// Why the energy of a result is unknown until it is added.
const UNMEASURED: &str = "energy was not measured";

/// If a larger share of the frames than this is excluded, the other frames do not stand for all: it is unknown whether
/// a goal was met.
pub const MOST_EXCLUDED: f64 = 0.1;

/// Number of frames by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // see trial::Counts
pub struct FrameCounts {
    pub intended: u64,
    pub sent: u64,
    pub unsent_late: u64,
    pub unsent_tx_full: u64,
    pub unsent_no_buffer: u64,
    pub received: u64,
    pub lost: u64,
    pub duplicates: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub foreign: u64,
}

/// How many frames were excluded from `clean`, and by which rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// Number of frames due after the warm-up.
    pub intended: u64,
    /// Number of intended frames that came back but met a gap of the tester's loop or of the loop under test.
    pub excluded: u64,
    /// Number of intended frames that the tester did not send.
    pub unsent: u64,
    /// Number of intended frames that were sent but did not come back.
    pub lost: u64,
    /// Number of lost frames that were due outside all gaps.
    pub lost_outside_gaps: u64,
    /// `(excluded + unsent) / intended`
    pub share_excluded: Reading<f64>,
    /// If two successive clock readings of the tester's loop are further apart than this, the time between them is a
    /// gap.
    pub gap_threshold_ns: u64,
    /// Time added to `gap_threshold_ns` for each frame of a send call, because sending takes time.
    pub tx_allowance_ns: u64,
    /// Time added to the end of each gap, because the gap still affects frames for a while.
    pub recovery_fixed_ns: u64,
    /// Additional time at the end of each gap, in ppm of the length of the gap.
    pub recovery_share_ppm: u32,
    /// Number of gaps of the tester's loop.
    pub tester_gaps: u64,
    /// Total length of the gaps of the tester's loop.
    pub tester_gaps_ns: u64,
    /// Number of gaps of the loop under test, or why it is unknown.
    pub tested_gaps: Reading<u64>,
}

/// Measurements of the tester itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TesterState {
    /// Actual send time minus due send time of each frame. Every latency includes it.
    pub lateness: Distribution,
    /// Frames per second that the loop could send and receive if it were always busy.
    pub ceiling_pps: Reading<f64>,
    /// Mean time of a loop pass without frames. Arrival times are only as exact as this time.
    pub idle_round_ns: Reading<f64>,
    /// Frames that came back but were lost by the tester's own device. `lost` includes them, although the device under
    /// test did not lose them.
    pub rx_dropped: u64,
    /// Frames that the tester's own device refused to send.
    pub tx_refused: u64,
    /// Number of times that the tester found its link down.
    pub link_down_seen: u64,
}

/// CPU time and wake-ups of the threads under test.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuDocument {
    /// Time between the samples before and after the measurement.
    pub interval_ns: u64,
    /// Time for which the threads ran on a CPU, summed over the threads.
    pub cpu_ns: u64,
    /// Time for which the threads were ready to run but waited for a CPU, summed over the threads.
    pub run_delay_ns: u64,
    /// CPU time in percent of one CPU; null if no time passed.
    pub share_of_one_cpu_percent: Option<f64>,
    /// Wake-ups per second, counted as voluntary context switches; null if no time passed.
    pub wakeups_per_s: Option<f64>,
    /// Number of involuntary context switches: times when a thread was preempted.
    pub preemptions: u64,
    /// Number of threads counted.
    pub threads: u64,
    /// Number of threads that ended during the measurement; their CPU time is not counted.
    pub threads_ended: u64,
}

impl From<&CpuUse> for Work {
    fn from(used: &CpuUse) -> Self {
        Self { cpu_ns: used.cpu.as_nanos(), wakeups: Some(used.voluntary_switches) }
    }
}

impl From<&CpuUse> for CpuDocument {
    fn from(used: &CpuUse) -> Self {
        Self {
            interval_ns: used.interval.as_nanos(),
            cpu_ns: used.cpu.as_nanos(),
            run_delay_ns: used.run_delay.as_nanos(),
            share_of_one_cpu_percent: used.share_of_one_cpu().map(|share| share * 100.0),
            wakeups_per_s: used.wakeups_per_second(),
            preemptions: used.involuntary_switches,
            threads: used.threads as u64,
            threads_ended: used.threads_ended as u64,
        }
    }
}

impl LatencyResult {
    /// Builds the result of a trial. `tested_gaps` are the gaps of the loop under test, or why they are unknown.
    pub fn new(
        config: &TrialConfig,
        trial: &Trial,
        tested_gaps: Result<&[crate::gaps::Gap], String>,
        recovery: Recovery,
        tested_cpu: Result<CpuUse, String>,
    ) -> Self {
        let split = trial.split(tested_gaps.as_deref().unwrap_or_default(), recovery);
        let Split { all, clean, intended, excluded, unsent, lost, lost_outside_gaps } = &split;
        let counts = trial.counts;
        let none_sent = "no frame was sent";
        let Statistics { rx_ring_full, rx_no_buffer, rx_invalid, tx_invalid, tx_dropped } = trial.device;
        Self {
            schedule: config.schedule.to_string(),
            seed: config.seed,
            frame_octets: config.layout.size.octets(),
            latency_is: "round trip from the due send time to the pick-up by the tester, software clocks".into(),
            warm_up_ns: trial.warm_up.as_nanos(),
            duration_ns: trial.planned.as_nanos(),
            interrupted: trial.interrupted,
            intended_pps: Reading::or_unknown(trial.intended_pps(), "no frame was due to be sent"),
            offered_pps: Reading::or_unknown(trial.offered_pps(), none_sent),
            received_pps: Reading::or_unknown(trial.received_pps(), "no frame came back"),
            frames: FrameCounts {
                intended: counts.intended,
                sent: counts.sent,
                unsent_late: counts.unsent_late,
                unsent_tx_full: counts.unsent_tx_full,
                unsent_no_buffer: counts.unsent_no_buffer,
                received: counts.received,
                lost: counts.lost(),
                duplicates: counts.duplicates,
                reordered: counts.reordered,
                corrupted: counts.corrupted,
                foreign: counts.foreign,
            },
            all: all.into(),
            clean: clean.into(),
            exclusion: Exclusion {
                intended: *intended,
                excluded: *excluded,
                unsent: *unsent,
                lost: *lost,
                lost_outside_gaps: *lost_outside_gaps,
                share_excluded: Reading::or_unknown(
                    split.share_excluded(),
                    "no frame was due to be sent after the warm-up",
                ),
                gap_threshold_ns: config.gap_threshold.as_nanos(),
                tx_allowance_ns: config.tx_allowance.as_nanos(),
                recovery_fixed_ns: recovery.fixed.as_nanos(),
                recovery_share_ppm: recovery.share_ppm,
                tester_gaps: trial.gaps.len() as u64,
                tester_gaps_ns: trial.gaps.iter().map(|gap| gap.length().as_nanos()).sum(),
                tested_gaps: tested_gaps.map(|gaps| gaps.len() as u64).into(),
            },
            tester: TesterState {
                lateness: (&trial.lateness).into(),
                ceiling_pps: Reading::or_unknown(trial.ceiling_pps(), none_sent),
                idle_round_ns: Reading::or_unknown(trial.idle_round_ns(), "the loop was never idle"),
                rx_dropped: rx_ring_full + rx_no_buffer + rx_invalid,
                tx_refused: tx_invalid + tx_dropped,
                link_down_seen: trial.link_down_seen,
            },
            tested_cpu: tested_cpu.map(|used| (&used).into()).into(),
            energy: Energy::unmeasured(UNMEASURED),
            goal: None,
        }
    }

    /// Adds the energy of the trial.
    pub fn with_energy(self, energy: Energy) -> Self {
        Self { energy, ..self }
    }

    /// Adds the verdict on a goal: whether `quantile` is at most `bound`. `clean` must be the histogram from which this
    /// result was made: that of the samples outside gaps.
    pub fn judged(mut self, quantile: Quantile, bound: Nanos, clean: &Histogram) -> Self {
        let measured: Reading<u64> = {
            let QuantileEstimate { latency_ns, refused_because, .. } = estimate(clean, quantile);
            Reading { value: latency_ns, unknown_because: refused_because }
        };
        // A lost frame counts as later than any bound, so add the lost frames to those that came late.
        let lost = self.exclusion.lost_outside_gaps;
        let late = if lost == 0 { 0 } else { clean.count_above(bound.as_nanos()) };
        let failed = u128::from(lost + late) * 1_000_000;
        let too_many_lost = failed > u128::from(self.exclusion.intended) * u128::from(quantile.above_ppm());
        let held = match (measured.value, self.exclusion.share_excluded.value) {
            _ if too_many_lost => Reading::known(false),
            (None, _) => Reading { value: None, unknown_because: measured.unknown_because.clone() },
            (Some(_), Some(share)) if share > MOST_EXCLUDED => Reading::unknown(format!(
                "{:.1} % of the frames were under way during a gap and are excluded",
                share * 100.0
            )),
            (Some(ns), _) => Reading::known(ns <= bound.as_nanos()),
        };
        let bound_ns = bound.as_nanos();
        self.goal = Some(GoalVerdict { goal: format!("{quantile}={bound}"), bound_ns, measured_ns: measured, held });
        self
    }
}

/// The result of a search for the highest rate without loss.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadResult {
    /// The settings of the search.
    pub goal: LoadGoal,
    /// Highest rate that passed and is below the lowest rate that failed.
    pub highest_loss_free_pps: Reading<u64>,
    /// Lowest rate that failed.
    pub lowest_failing_pps: Reading<u64>,
    /// Why the search ended.
    pub end: SearchEnd,
    /// All trials, in order.
    pub trials: Vec<LoadTrial>,
    /// Latency in an additional trial at the highest rate without loss, or why it is unknown.
    pub latency: Reading<Box<LatencyResult>>,
}

/// The settings of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // see search::SearchConfig
pub struct LoadGoal {
    pub min_pps: u64,
    pub max_pps: u64,
    pub width_ppm: u32,
    pub trial_ns: u64,
    pub confirm_trial_ns: u64,
    pub confirmations: u32,
    pub loss_tolerance_ppm: u32,
    pub unsent_tolerance_ppm: u32,
    pub failures_needed: u32,
}

/// Why a search ended; see [`End`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SearchEnd {
    Converged,
    MaximumPassed,
    TesterLimited,
    MinimumFailed,
    GaveUp,
    Interrupted,
}

/// One trial of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // see search::SearchTrial
pub struct LoadTrial {
    pub load_pps: u64,
    pub duration_ns: u64,
    pub confirms: bool,
    pub sent: u64,
    pub lost: u64,
    pub unsent: u64,
    /// Whether the trial passed or failed, or does not count.
    pub verdict: Name<Verdict>,
}

impl LoadResult {
    /// Builds the result of a finished or interrupted search. `latency` is the latency at the rate found, or why it is
    /// unknown.
    pub fn new(config: &SearchConfig, search: &BinarySearch, latency: Result<LatencyResult, String>) -> Self {
        let (lower, upper) = search.bounds();
        let end = match search.found() {
            None => SearchEnd::Interrupted,
            Some(Found { end, .. }) => match end {
                End::Converged => SearchEnd::Converged,
                End::MaximumPassed => SearchEnd::MaximumPassed,
                End::TesterLimited => SearchEnd::TesterLimited,
                End::MinimumFailed => SearchEnd::MinimumFailed,
                End::GaveUp => SearchEnd::GaveUp,
            },
        };
        let (none_passed, none_failed) = match end {
            SearchEnd::Interrupted => {
                ("the search was interrupted before a rate passed", "the search was interrupted before a rate failed")
            }
            _ => ("no rate below the lowest failing rate passed", "no rate failed"),
        };
        Self {
            goal: LoadGoal {
                min_pps: config.min_pps,
                max_pps: config.max_pps,
                width_ppm: config.width_ppm,
                trial_ns: config.trial.as_nanos(),
                confirm_trial_ns: config.confirm_trial.as_nanos(),
                confirmations: config.confirmations,
                loss_tolerance_ppm: config.loss_tolerance_ppm,
                unsent_tolerance_ppm: config.unsent_tolerance_ppm,
                failures_needed: config.failures_needed,
            },
            highest_loss_free_pps: Reading::or_unknown(lower, none_passed),
            lowest_failing_pps: Reading::or_unknown(upper, none_failed),
            end,
            trials: search.trials().iter().map(LoadTrial::from).collect(),
            latency: latency.map(Box::new).into(),
        }
    }
}

impl From<&SearchTrial> for LoadTrial {
    fn from(trial: &SearchTrial) -> Self {
        Self {
            load_pps: trial.step.load_pps,
            duration_ns: trial.step.duration.as_nanos(),
            confirms: trial.step.confirms,
            sent: trial.outcome.sent,
            lost: trial.outcome.lost,
            unsent: trial.outcome.unsent,
            verdict: trial.verdict.into(),
        }
    }
}

//! The document of `apus bench rfc2544`: `apus.bench-rfc2544/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Anomalies;
use super::effort::Test;
use crate::document::{Distribution, Name};
use crate::host::{HostState, Reading};
use crate::statistics::Interval;

/// Name and version of the schema.
pub const RFC2544_SCHEMA: &str = "apus.bench-rfc2544/1";

/// The JSON document of `apus bench rfc2544`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rfc2544Document {
    /// Version of Apus.
    pub apus: String,
    /// `apus.bench-rfc2544/1`
    #[schemars(extend("const" = RFC2544_SCHEMA))]
    pub schema: String,
    /// The host of the tester.
    pub host: HostState,
    /// The ports and the traffic.
    pub setup: Setup,
    /// The measured values.
    pub result: Rfc2544Result,
}

/// The ports and the traffic.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Name of the device under test, as the user stated it.
    pub device: Option<String>,
    /// Port that sends. If `bidirectional`, it also receives.
    pub tx_port: String,
    /// Port that receives; the same as `tx_port` if the tester uses only one port.
    pub rx_port: String,
    /// Whether both ports send at the same time. Rates are per direction.
    pub bidirectional: bool,
    /// Number of flows, whose addresses and ports the frames use in turn.
    pub flows: u32,
    /// Addresses and ports of the frames, as text.
    pub traffic: String,
    /// Speed of the slower port's link in bits per second. It determines the line rate.
    pub line_bits_per_s: Reading<u64>,
    /// Definition of the latency: its start, its end, and the clock used.
    pub latency_is: String,
}

/// The result of the procedures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rfc2544Result {
    /// `RFC 2544`, or why the result does not conform to it.
    pub standard: String,
    /// Whether durations, repetitions and pauses conform to RFC 2544.
    pub conforms: bool,
    /// Deviations from RFC 2544, each with the section.
    pub deviations: Vec<String>,
    /// The tests that the user requested.
    pub tests: Vec<Name<Test>>,
    /// How the procedures ended.
    pub ended: Ended,
    /// One entry for each frame size, including the one at which the procedures ended early.
    pub sizes: Vec<SizeResult>,
}

/// How procedures ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Whether all requested measurements were made.
    pub complete: bool,
    /// Why the measurements ended early; null if all were made.
    pub because: Option<String>,
}

/// A measurement that was repeated, in the unit that its field's name states.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// Mean of the repetitions.
    pub mean: f64,
    /// Lower end of the 95 % confidence interval of the mean (Student's t); null with fewer than 2 repetitions.
    pub ci95_low: Option<f64>,
    /// Upper end of the 95 % confidence interval of the mean (Student's t); null with fewer than 2 repetitions.
    pub ci95_high: Option<f64>,
    /// Smallest of the repetitions.
    pub min: f64,
    /// Median of the repetitions.
    pub median: f64,
    /// Largest of the repetitions.
    pub max: f64,
    /// Standard deviation of the repetitions; null with fewer than 2 repetitions.
    pub stddev: Option<f64>,
    /// The value of each repetition, in order.
    pub values: Vec<f64>,
}

impl Repeated {
    /// Summarises the values of the repetitions; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let Interval { value: mean, ci95 } = crate::statistics::mean_interval(values)?;
        let n = values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            ci95_low: ci95.map(|ends| ends.0),
            ci95_high: ci95.map(|ends| ends.1),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            median: crate::statistics::median(values)?,
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            stddev: (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt()),
            values: values.to_vec(),
        })
    }
}

/// The results of one frame size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeResult {
    /// Frame size in bytes, including the frame check sequence, or an IMIX genome (RFC 6985) such as
    /// `imix:aaaaaaaddddg`.
    pub frames: String,
    /// Mean frame size in bytes, including the frame check sequence.
    pub mean_octets: f64,
    /// Theoretical maximum rate of the link, in frames per second and direction.
    pub line_rate_pps: Reading<f64>,
    /// Highest rate at which the tester can send, in frames per second and direction. It is measured before the tests,
    /// with the device connected.
    pub tester_ceiling_pps: Reading<u64>,
    /// Throughput of the tester alone, with its ports connected to each other, taken from the earlier result that
    /// `--tester` names.
    pub tester_alone_pps: Reading<f64>,
    /// Highest rate to try: the lowest of the line rate, the highest rate of the tester, and the user's limit.
    pub max_pps: Reading<u64>,
    /// Throughput in frames per second and direction.
    pub throughput_pps: Reading<Repeated>,
    /// Whether the throughput is only a lower bound, because no frame was lost even at the highest rate, or because the
    /// tester limited the search.
    pub at_least: bool,
    /// Latency at the throughput.
    pub latency: Reading<Box<LatencyAtThroughput>>,
    /// Frame loss at each load, from the highest load down.
    pub loss: Reading<Vec<LossRow>>,
    /// Longest bursts without loss.
    pub back_to_back: Reading<BackToBack>,
    /// Time from the end of an overload to the last lost frame, in ns.
    pub recovery_ns: Reading<Repeated>,
    /// Time in which the device did not forward because of a reset, in ns.
    pub reset_ns: Reading<u64>,
    /// Anomalous frames of all trials, by kind.
    pub anomalies: AnomalyCounts,
    /// Quality of the tester's own work over all trials.
    pub tester: TesterQuality,
    /// Problems of this result, each with its remedy.
    pub warnings: Vec<String>,
    /// All trials, in order, with those that were repeated. Learning frames are not listed.
    pub trials: Vec<TrialRow>,
}

/// Latency at the throughput.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyAtThroughput {
    /// Rate of the streams, in frames per second and direction: the throughput.
    pub rate_pps: u64,
    /// Latency of the one tagged frame of each stream, in ns (RFC 2544, 26.2).
    pub tagged_ns: Reading<Repeated>,
    /// Mean latency in each stream, in ns.
    pub mean_ns: Repeated,
    /// Typical latency: the median in each stream, in ns (RFC 8219, 7.2).
    pub typical_ns: Reading<Repeated>,
    /// Worst case latency: the 99.9th percentile in each stream, in ns (RFC 8219, 7.2).
    pub worst_case_ns: Reading<Repeated>,
    /// Packet delay variation: the 99.9th percentile minus the minimum in each stream, in ns (RFC 8219, 7.3.1).
    pub pdv_ns: Reading<Repeated>,
    /// Latency of all frames in the second halves of the streams.
    pub all: Distribution,
    /// Frames lost in the streams.
    pub lost: u64,
}

/// One load of the loss curve.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossRow {
    /// Load in percent of the highest rate.
    pub load_percent: f64,
    /// Load in frames per second and direction.
    pub load_pps: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames not forwarded.
    pub lost: u64,
    /// Frames that the tester did not send.
    pub unsent: u64,
    /// Loss in percent of the frames sent: (sent - forwarded) / sent; null if no frame was sent.
    pub loss_percent: Option<f64>,
}

/// Longest bursts without loss.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackToBack {
    /// Rate within a burst in frames per second.
    pub rate_pps: u64,
    /// Longest burst of each search, in frames.
    pub frames: Repeated,
    /// Implied buffer time in ns: the mean longest burst divided by the rate. This would be the size of the buffer if
    /// the device forwarded nothing during the burst (RFC 9004, 6).
    pub implied_buffer_ns: f64,
    /// Corrected buffer time in ns: implied buffer time * (1 - throughput / rate). This value leaves out the frames
    /// that the device forwarded during the burst (RFC 9004, 6).
    pub corrected_buffer_ns: f64,
    /// Number of searches in which no burst lost a frame, not even the longest one to try. If this number is above 0,
    /// `frames` is only a lower bound.
    pub at_limit: u32,
    /// Number of searches that the tester limited: it did not send every frame of the shortest burst that failed in time,
    /// even when it repeated the burst. If this number is above 0, `frames` is only a lower bound.
    #[serde(default)]
    pub tester_limited: u32,
}

impl BackToBack {
    /// Whether the device may hold longer bursts than those found.
    pub fn is_lower_bound(&self) -> bool {
        self.at_limit > 0 || self.tester_limited > 0
    }
}

/// Numbers of anomalous frames, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // see procedure::Anomalies
pub struct AnomalyCounts {
    pub duplicates: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub looped: u64,
    pub foreign: u64,
}

impl From<Anomalies> for AnomalyCounts {
    fn from(counted: Anomalies) -> Self {
        let Anomalies { duplicates, reordered, corrupted, looped, foreign } = counted;
        Self { duplicates, reordered, corrupted, looped, foreign }
    }
}

/// Quality of the tester's own work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TesterQuality {
    /// Pacing error: actual minus intended send time of each frame. Every latency includes it.
    pub pacing: Distribution,
    /// Receive-stamp error: mean time of an idle loop pass, in ns. A frame is stamped up to one pass after its arrival.
    pub stamp_error_ns: Reading<f64>,
    /// CPU time that the tester needs to send and receive a frame, per frame sent, in ns.
    pub cost_per_frame_ns: Reading<f64>,
    /// Frames that came back but were lost in the tester's own ports. They count as unsent.
    pub own_losses: u64,
    /// Number of times that the tester found a link down.
    pub link_down_seen: u64,
    /// Number of disturbed trials (in a soak: windows): the tester sent frames more than 1 ms late, and the device lost
    /// frames, but at most twice as many as were more than 0.1 ms late. Such losses say nothing about the device.
    #[serde(default)]
    pub disturbed_trials: u64,
    /// Number of disturbed trials that were repeated. After three disturbed attempts, a search counts the trial as limited
    /// by the tester; the other tests use the last attempt.
    #[serde(default)]
    pub repeated_trials: u64,
    /// `software`: time stamps are readings of the host's clock. Hardware time stamps and launch times are not used.
    pub stamps: String,
}

/// One trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialRow {
    /// The test to which the trial belongs.
    pub test: Name<Test>,
    /// Load in the first phase of the trial, in frames per second in each direction.
    pub load_pps: u64,
    /// Duration of the trial, over all its phases.
    pub duration_ns: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames not forwarded.
    pub lost: u64,
    /// Frames that the tester did not send.
    pub unsent: u64,
    /// Anomalous frames, by kind: duplicate, corrupted, reordered and so on.
    pub anomalies: AnomalyCounts,
    /// Whether the trial was disturbed (see `disturbed_trials`).
    #[serde(default)]
    pub disturbed: bool,
}

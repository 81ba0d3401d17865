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
    /// What was connected, and what was sent.
    pub setup: Setup,
    /// What was measured.
    pub result: Rfc2544Result,
}

/// The ports and the traffic.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// What the user calls the device under test.
    pub device: Option<String>,
    /// Port that sends; with `bidirectional`, it also receives.
    pub tx_port: String,
    /// Port that receives: another one, or the same.
    pub rx_port: String,
    /// Whether both ports send at the same time. Rates are per direction.
    pub bidirectional: bool,
    /// Number of flows.
    pub flows: u32,
    /// Addresses and ports of the frames, as text.
    pub traffic: String,
    /// Speed of the slower port's link in bits per second, which the line rate follows from.
    pub line_bits_per_s: Reading<u64>,
    /// What a latency is.
    pub latency_is: String,
}

/// The result of the procedures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rfc2544Result {
    /// `RFC 2544`, or why the result is not one.
    pub standard: String,
    /// Whether durations, repetitions and pauses are those of the RFC.
    pub conforms: bool,
    /// Departures from the RFC, each with its section.
    pub deviations: Vec<String>,
    /// The tests that were asked for.
    pub tests: Vec<Name<Test>>,
    /// How the procedures ended.
    pub ended: Ended,
    /// One entry for each frame size, also for the one at which the procedures ended early.
    pub sizes: Vec<SizeResult>,
}

/// How procedures ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Whether everything that was asked for was run.
    pub complete: bool,
    /// What ended them early; null if they are complete.
    pub because: Option<String>,
}

/// A value with its repetitions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// Mean of the repetitions.
    pub mean: f64,
    /// Lower end of Student's 95 % interval of the mean; null with fewer than 2 repetitions.
    pub ci95_low: Option<f64>,
    /// Upper end of that interval.
    pub ci95_high: Option<f64>,
    /// Smallest value.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Greatest value.
    pub max: f64,
    /// Standard deviation; null with fewer than 2 repetitions.
    pub stddev: Option<f64>,
    /// Each repetition, in order.
    pub values: Vec<f64>,
}

impl Repeated {
    /// Summarises repetitions; `None` without any.
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
    /// The size in bytes with frame check sequence, or a genome such as `imix:aaaaaaaddddg`.
    pub frames: String,
    /// Mean size in bytes with frame check sequence.
    pub mean_octets: f64,
    /// Theoretical maximum of the line, in frames per second and direction.
    pub line_rate_pps: Reading<f64>,
    /// Rate at which the tester could send, measured first, with the device in place.
    pub tester_ceiling_pps: Reading<u64>,
    /// What the tester reached with its ports cabled to each other (`--tester`).
    pub tester_alone_pps: Reading<f64>,
    /// Highest rate that was tried: the lowest of the line rate, the tester's ceiling and what the user allowed.
    pub max_pps: Reading<u64>,
    /// Throughput in frames per second and direction.
    pub throughput_pps: Reading<Repeated>,
    /// Whether the throughput is only a lower bound: even the highest rate lost nothing.
    pub at_least: bool,
    /// Latency at the throughput.
    pub latency: Reading<Box<LatencyAtThroughput>>,
    /// Loss against load, from the highest load down.
    pub loss: Reading<Vec<LossRow>>,
    /// Longest bursts without loss.
    pub back_to_back: Reading<BackToBack>,
    /// Time to the last loss after the end of an overload, in ns.
    pub recovery_ns: Reading<Repeated>,
    /// Time without forwarding around a reset, in ns.
    pub reset_ns: Reading<u64>,
    /// Frames that came back otherwise than they should, over all trials.
    pub anomalies: AnomalyCounts,
    /// What the tester did, over all trials.
    pub tester: TesterQuality,
    /// What is wrong with this result, each with what to do.
    pub warnings: Vec<String>,
    /// All trials, in order, without learning frames.
    pub trials: Vec<TrialRow>,
}

/// Latency at the throughput.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyAtThroughput {
    /// Rate in frames per second and direction.
    pub rate_pps: u64,
    /// Latency of the tagged frame of each stream, in ns (RFC 2544, 26.2).
    pub tagged_ns: Reading<Repeated>,
    /// Mean latency of each stream, in ns.
    pub mean_ns: Repeated,
    /// Typical latency: median of each stream, in ns (RFC 8219, 7.2).
    pub typical_ns: Reading<Repeated>,
    /// Worst case latency: 99.9th percentile of each stream, in ns (RFC 8219, 7.2).
    pub worst_case_ns: Reading<Repeated>,
    /// Packet delay variation: 99.9th percentile minus minimum of each stream, in ns (RFC 8219, 7.3.1).
    pub pdv_ns: Reading<Repeated>,
    /// Frames of the second halves of all streams.
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
    /// Loss in percent of the frames sent: (sent - forwarded) / sent.
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
    /// Mean burst / rate: the buffer time if the device forwarded nothing meanwhile (RFC 9004, 6), in ns.
    pub implied_buffer_ns: f64,
    /// Implied buffer time * (1 - throughput / rate): without what the device forwarded meanwhile, in ns.
    pub corrected_buffer_ns: f64,
    /// Searches in which even the longest burst passed; the value is then a lower bound.
    pub at_limit: u32,
}

/// Frames by how they came back.
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

/// How well the tester did its own work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TesterQuality {
    /// Pacing error: actual minus intended departure. It is part of every latency.
    pub pacing: Distribution,
    /// Receive-stamp error: mean time of a pass of the loop, in ns. A frame is stamped up to one pass after it came.
    pub stamp_error_ns: Reading<f64>,
    /// CPU time of the generator and receiver for each frame sent, in ns.
    pub cost_per_frame_ns: Reading<f64>,
    /// Frames that came back and that the tester's own ports lost. They count as not sent.
    pub own_losses: u64,
    /// Number of times that a link was found down.
    pub link_down_seen: u64,
    /// `software`: stamps are readings of the host's clock. Hardware stamps and launch times are not used.
    pub stamps: String,
}

/// One trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialRow {
    /// The test that it belongs to.
    pub test: Name<Test>,
    /// Load of its first phase, in frames per second and direction.
    pub load_pps: u64,
    /// Length of all phases.
    pub duration_ns: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames not forwarded.
    pub lost: u64,
    /// Frames that the tester did not send.
    pub unsent: u64,
    /// Frames that came back otherwise than they should.
    pub anomalies: AnomalyCounts,
}

//! `apus diagnose --json`.

use audit::diagnosis::{Reference, SymptomKind};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;
use tester::experiment::result::ExperimentResult;
use tester::host::Reading;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.diagnose/1";

/// The diagnosis: the likely causes of a symptom.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.diagnose/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What the user noticed.
    pub symptom: Symptom,
    /// The two ends of the connection that were watched, this host first.
    pub ends: Vec<End>,
    /// The result in one word.
    pub verdict: Verdict,
    /// A cause counts as found if its likelihood in percent is at least this.
    pub threshold_percent: u8,
    /// All causes that were examined, the most likely first, including those that do not count as found.
    pub causes: Vec<Cause>,
    /// Audit findings that can cause the symptom but that no observation confirms, the largest delay first.
    pub suspects: Vec<Suspect>,
    /// What could not be observed, and why.
    pub unknown: Vec<String>,
    /// The experiment of `--try`; `null` without `--try`.
    pub tried: Option<Tried>,
}

/// The experiment that tested a cause.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Tried {
    /// Identifier of the tested cause; `null` if no cause was found that a changed setting can remove.
    pub cause: Option<String>,
    /// The result of the experiment, or why there is none.
    pub experiment: Reading<ExperimentResult>,
}

/// The result.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// At least one cause was found.
    CausesFound,
    /// Packets were observed, but nothing that explains the symptom.
    NothingFound,
    /// No packets were observed at either end: there was no load, or it was not recorded.
    NoLoadSeen,
}

/// What the user noticed.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Symptom {
    /// Kind of the symptom.
    pub kind: Name<SymptomKind>,
    /// Throughput that the user measured, in bit/s; `null` if not stated.
    pub measured_bps: Option<u64>,
    /// Throughput that the user expected, in bit/s; `null` if not stated.
    pub expected_bps: Option<u64>,
    /// Mean round-trip time that the user measured, in ns; `null` if not stated.
    pub ping_ns: Option<u64>,
    /// Round-trip time that the user expected, in ns; `null` if not stated.
    pub expected_ping_ns: Option<u64>,
    /// Where the expected figures were measured.
    pub reference: Name<Reference>,
}

/// One end of the connection.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct End {
    /// Name of the host, the network namespace or the recording.
    pub name: String,
    /// The interface that was examined; empty if no interface carried packets.
    pub interface: String,
    /// Time between the two readings of the counters, in ns; 0 if there was only one reading.
    pub watched_ns: u64,
    /// Packets received between the two readings; `null` if unknown.
    pub rx_packets: Option<u64>,
    /// Packets sent between the two readings; `null` if unknown.
    pub tx_packets: Option<u64>,
    /// Longest time for which interrupt moderation may delay received packets, in ns; `null` if unknown.
    pub rx_hold_ns: Option<u64>,
    /// Number of polls of the interface's NAPI instances; `null` if unknown.
    pub polls: Option<u64>,
    /// Number of packets that the interface dropped, by counter name.
    pub drops: std::collections::BTreeMap<String, u64>,
    /// Number of received packets, by receive queue.
    pub queues: std::collections::BTreeMap<String, u64>,
    /// Number of TCP or UDP sockets that transferred data.
    pub sockets: u64,
}

/// A possible cause of the symptom.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Cause {
    /// Identifier of the cause, such as `slow-app`.
    pub id: String,
    /// Strength of the evidence, 0 to 100; not a measured probability.
    pub likelihood_percent: u8,
    /// Whether the likelihood reaches the threshold.
    pub found: bool,
    /// The end of the connection where the cause is; `null` if it is between the ends.
    pub end: Option<String>,
    /// The problem in one sentence, with its figure.
    pub headline: String,
    /// How the cause leads to the symptom.
    pub why: String,
    /// Document that describes this cause.
    pub reference: String,
    /// The observations that point to this cause.
    pub evidence: Vec<Seen>,
    /// The experiment that would prove the cause.
    pub experiment: Experiment,
}

/// A piece of evidence.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Seen {
    /// The observation, with its figure.
    pub text: String,
    /// File, counter or field in which it was observed.
    pub source: String,
}

/// An experiment that would prove a cause.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Experiment {
    /// Instructions: what to change, and what to measure.
    pub text: String,
    /// Factor for a plan of `apus experiment`, in TOML; `null` if Apus cannot change this setting.
    pub factor: Option<String>,
}

/// A finding of `apus audit` that could cause the symptom.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Suspect {
    /// The end of the connection that has the finding.
    pub end: String,
    /// Identifier of the audit rule.
    pub rule: String,
    /// What the rule found.
    pub found: String,
    /// Delay that the finding can add to a packet, in ns; `null` if unknown.
    pub adds_ns: Option<u64>,
}

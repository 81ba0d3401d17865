//! `apus diagnose --json`.

use audit::diagnosis::{Reference, SymptomKind};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.diagnose/1";

/// Why it is slow.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.diagnose/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What the user noticed.
    pub symptom: Symptom,
    /// The ends that were watched: this one first.
    pub ends: Vec<End>,
    /// The result in one word.
    pub verdict: Verdict,
    /// Likelihood from which on a cause counts as found.
    pub threshold_percent: u8,
    /// Causes, the most likely first, with those that were not found.
    pub causes: Vec<Cause>,
    /// Findings of the audit, which nothing that was seen confirms, the largest delay first.
    pub suspects: Vec<Suspect>,
    /// What was not seen, and why.
    pub unknown: Vec<String>,
}

/// The result.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// At least one cause was found.
    CausesFound,
    /// Packets were seen, and nothing that explains the symptom.
    NothingFound,
    /// No end saw packets: there was no load, or it was not recorded.
    NoLoadSeen,
}

/// What the user noticed.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Symptom {
    /// The kind.
    pub kind: Name<SymptomKind>,
    /// Throughput measured.
    pub measured_bps: Option<u64>,
    /// Throughput expected.
    pub expected_bps: Option<u64>,
    /// Round-trip time measured.
    pub ping_ns: Option<u64>,
    /// Round-trip time expected.
    pub expected_ping_ns: Option<u64>,
    /// Where the expected numbers were reached.
    pub reference: Name<Reference>,
}

/// One end.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct End {
    /// Its name.
    pub name: String,
    /// The interface that was looked at; empty if none moved packets.
    pub interface: String,
    /// Time between the two readings of the counters; 0 if there was only one.
    pub watched_ns: u64,
    /// Packets received.
    pub rx_packets: Option<u64>,
    /// Packets sent.
    pub tx_packets: Option<u64>,
    /// Time for which received packets may be held.
    pub rx_hold_ns: Option<u64>,
    /// Polls of the interface's NAPI instances.
    pub polls: Option<u64>,
    /// Packets that its rings dropped, by counter.
    pub drops: std::collections::BTreeMap<String, u64>,
    /// Packets by receive queue.
    pub queues: std::collections::BTreeMap<String, u64>,
    /// Number of sockets that moved data.
    pub sockets: u64,
}

/// A cause.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Cause {
    /// Its name.
    pub id: String,
    /// 0 to 100: a grade of the evidence, not a measured probability.
    pub likelihood_percent: u8,
    /// Whether it reaches the threshold.
    pub found: bool,
    /// The end at which it is; `null` if it is between the ends.
    pub end: Option<String>,
    /// The problem in plain words with its number.
    pub headline: String,
    /// The mechanism.
    pub why: String,
    /// Where the mechanism is described.
    pub reference: String,
    /// What was seen.
    pub evidence: Vec<Seen>,
    /// The experiment that would prove it.
    pub experiment: Experiment,
}

/// A piece of evidence.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Seen {
    /// The number, in words.
    pub text: String,
    /// Where it was read.
    pub source: String,
}

/// What would prove a cause.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Experiment {
    /// What to do and what to look at.
    pub text: String,
    /// A factor of `apus experiment` (TOML), if a setting of Apus does it.
    pub factor: Option<String>,
}

/// A finding of the audit.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Suspect {
    /// The end that has it.
    pub end: String,
    /// The rule.
    pub rule: String,
    /// What the rule found.
    pub found: String,
    /// How much later it can make a packet.
    pub adds_ns: Option<u64>,
}

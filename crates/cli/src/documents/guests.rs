//! `apus power serve` and `apus power request`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steer::guests::protocol::Verdict;
use steer::guests::{Event, Protocol};
use tester::document::Name;

/// Name and version of the schema of `apus power serve --json`.
pub const SCHEMA: &str = "apus.power-serve/1";
/// Name and version of the schema of `apus power serve status --json`.
pub const STATUS: &str = "apus.power-serve-status/1";
/// Name and version of the schema of a line of the log.
pub const LOG: &str = "apus.power-serve-log/1";
/// Name and version of the schema of `apus power request --json`.
pub const REQUEST: &str = "apus.power-request/1";

/// How the guests stand.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-serve/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// How long the command served.
    pub duration_ns: u64,
    /// The guests.
    pub guests: Vec<Guest>,
    /// Whether all settings have their original values again; `null` while it serves, or if there is nothing to restore.
    pub restored: Option<bool>,
}

/// A guest.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Its name: that of its manifest.
    pub name: String,
    /// Number of its channels that are connected.
    pub connected: usize,
    /// Its channels.
    pub channels: Vec<Channel>,
    /// Why the places of its vCPUs are unknown; `null` if they are known.
    pub pinning_unknown: Option<String>,
    /// Its vCPUs, those of the manifest.
    pub vcpus: Vec<Vcpu>,
    /// Number of messages that it sent.
    pub messages: u64,
    /// Number of requests that were granted as asked.
    pub granted: u64,
    /// Number of requests of which the manifest or the hardware allowed only a part.
    pub limited: u64,
    /// Number of requests that were kept and not in force when they were answered.
    pub held: u64,
    /// Number of requests that were refused.
    pub refused: u64,
    /// Number of messages above the rate of the manifest.
    pub over_rate: u64,
    /// Number of messages whose rest did not come within a second.
    pub incomplete: u64,
    /// Number of answers that were dropped because the guest did not read those before.
    pub unread: u64,
}

/// A channel.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// The socket.
    pub path: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Why it is not connected; `null` if it is, or if nobody has connected yet.
    pub trouble: Option<String>,
}

/// A vCPU.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Vcpu {
    /// Its number.
    pub vcpu: u16,
    /// The CPUs on which it may run, as a list such as `2` or `0-3`; `null` if that is not known.
    pub cpus: Option<String>,
    /// The frequency that it asks for; `null` if it asks for none.
    pub wish_khz: Option<u32>,
    /// Its latency goal; `null` if it has none.
    pub goal: Option<String>,
    /// The exit latency to which it limits idle states; `null` if it does not.
    pub idle_limit_ns: Option<u64>,
    /// The frequency at which its core is fixed; `null` if it is not fixed.
    pub fixed_khz: Option<u32>,
    /// Why its wish is not in force; `null` if it is, or if it has none.
    pub why: Option<String>,
}

/// What running instances serve.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct StatusDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-serve-status/1`.
    #[schemars(extend("const" = STATUS))]
    pub schema: String,
    /// The running instances, by process ID.
    pub instances: Vec<Instance>,
}

/// A running instance.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Process ID.
    pub pid: u32,
    /// Time since it published this.
    pub silent_ns: u64,
    /// What it serves.
    pub document: Document,
}

/// A line of the log: a request of a guest, or something that happened to a guest.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// Name and version of this schema: `apus.power-serve-log/1`.
    #[schemars(extend("const" = LOG))]
    pub schema: String,
    /// When, in nanoseconds since 1970 (CLOCK_REALTIME).
    pub time_ns: u64,
    /// What it is about.
    pub event: Name<Event>,
    /// The guest.
    pub guest: String,
    /// The number of the channel in the manifest, from 0; `null` if it came by none.
    pub channel: Option<usize>,
    /// The protocol; `null` if it was no whole message.
    pub protocol: Option<Name<Protocol>>,
    /// What was asked for; for `over-rate`, the number of messages.
    pub asked: String,
    /// The vCPU; `null` if none was named.
    pub vcpu: Option<u16>,
    /// The CPU to which the vCPU is pinned; `null` if it is not pinned as the manifest says.
    pub cpu: Option<u32>,
    /// The frequency at which that CPU is fixed now; `null` if it is not fixed.
    pub fixed_khz: Option<u32>,
    /// What became of the request; `null` if it was none.
    pub verdict: Option<Name<Verdict>>,
    /// Why.
    pub why: String,
}

/// The host's answer to `apus power request`.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct RequestDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-request/1`.
    #[schemars(extend("const" = REQUEST))]
    pub schema: String,
    /// The port.
    pub port: String,
    /// What was asked for.
    pub asked: String,
    /// The vCPU.
    pub vcpu: u16,
    /// What became of it.
    pub verdict: Name<Verdict>,
    /// The frequency at which the vCPU's core is fixed now; `null` if it is not fixed.
    pub fixed_khz: Option<u32>,
    /// The exit latency to which the guest's wishes limit the core's idle states; `null` if they do not.
    pub idle_limit_us: Option<u64>,
    /// The host's reason.
    pub why: String,
    /// Time from the request to the answer.
    pub round_trip_ns: u64,
}

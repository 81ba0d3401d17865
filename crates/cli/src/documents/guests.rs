//! The documents of `apus power serve` and `apus power request`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steer::guests::protocol::Verdict;
use steer::guests::{Event, Protocol};
use tester::document::Name;

use super::top::Leftover;

/// Name and version of the schema of `apus power serve --json`.
pub const SCHEMA: &str = "apus.power-serve/1";
/// Name and version of the schema of `apus power serve status --json`.
pub const STATUS: &str = "apus.power-serve-status/1";
/// Name and version of the schema of a line of the log of `apus power serve`.
pub const LOG: &str = "apus.power-serve-log/1";
/// Name and version of the schema of `apus power request --json`.
pub const REQUEST: &str = "apus.power-request/1";

/// The state of the guests while `apus power serve` runs, or the results when it ends.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-serve/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Time for which the command has been serving guests, in ns.
    pub duration_ns: u64,
    /// The guests, one for each manifest.
    pub guests: Vec<Guest>,
    /// Whether all settings were restored to their original values; `null` while the command is running, or if it
    /// changed nothing.
    pub restored: Option<bool>,
}

/// A guest: a virtual machine that can send power requests.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Name of the guest, from the name of its manifest.
    pub name: String,
    /// Number of the guest's channels that are connected.
    pub connected: usize,
    /// The guest's channels, in the order of the manifest.
    pub channels: Vec<Channel>,
    /// Why it is unknown on which CPUs the vCPUs run; `null` if that is known.
    pub pinning_unknown: Option<String>,
    /// The vCPUs that the manifest lists.
    pub vcpus: Vec<Vcpu>,
    /// Number of messages that the guest sent.
    pub messages: u64,
    /// Number of requests that were granted in full.
    pub granted: u64,
    /// Number of requests that were granted in part, because the manifest or the hardware does not allow more.
    pub limited: u64,
    /// Number of requests that were accepted, but were not yet in force when the answer was sent.
    pub held: u64,
    /// Number of requests that were refused.
    pub refused: u64,
    /// Number of messages above the rate that the manifest allows.
    pub over_rate: u64,
    /// Number of messages that did not arrive completely within one second.
    pub incomplete: u64,
    /// Number of answers that were dropped because the guest had not read earlier ones.
    pub unread: u64,
}

/// A channel between a guest and the host.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// Path of the socket.
    pub path: String,
    /// Whether the channel is connected.
    pub connected: bool,
    /// Why the channel is not connected; `null` if it is connected, or if no peer has connected yet.
    pub trouble: Option<String>,
}

/// A vCPU.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Vcpu {
    /// Number of the vCPU, as the guest's kernel counts.
    pub vcpu: u16,
    /// Host CPUs on which the vCPU may run, such as `2` or `0-3`; `null` if unknown.
    pub cpus: Option<String>,
    /// Frequency that the guest requests for this vCPU, in kHz; `null` if it requests none.
    pub wish_khz: Option<u32>,
    /// Latency goal that the guest requests for this vCPU, such as `p99=50us`; `null` if it requests none.
    pub goal: Option<String>,
    /// Longest exit latency of idle states that the guest allows for this vCPU, in ns; `null` if it sets no limit.
    pub idle_limit_ns: Option<u64>,
    /// Frequency at which the vCPU's core is fixed, in kHz; `null` if it is not fixed.
    pub fixed_khz: Option<u32>,
    /// Why the request is not in force; `null` if it is in force, or if there is no request.
    pub why: Option<String>,
}

/// The running instances of `apus power serve` and their guests.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct StatusDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.power-serve-status/1`.
    #[schemars(extend("const" = STATUS))]
    pub schema: String,
    /// The running instances, by process ID.
    pub instances: Vec<Instance>,
    /// Files in the state folder that belong to no running instance. They belong to killed processes or to other
    /// versions of Apus.
    pub leftovers: Vec<Leftover>,
}

/// A running instance.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Instance {
    /// Process ID.
    pub pid: u32,
    /// Time since the instance last published its state, in ns.
    pub silent_ns: u64,
    /// The state that the instance published.
    pub document: Document,
}

/// A line of the log: a request of a guest, or something that happened to a guest.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// Name and version of this schema: `apus.power-serve-log/1`.
    #[schemars(extend("const" = LOG))]
    pub schema: String,
    /// Time of the event, in ns since 1970 (CLOCK_REALTIME).
    pub time_ns: u64,
    /// Kind of the event.
    pub event: Name<Event>,
    /// Name of the guest.
    pub guest: String,
    /// Number of the channel in the manifest, from 0; `null` if no channel is involved.
    pub channel: Option<usize>,
    /// Protocol of the message; `null` if the event is not a complete message.
    pub protocol: Option<Name<Protocol>>,
    /// What the guest requested; for `over-rate`, the number of messages.
    pub asked: String,
    /// Number of the vCPU; `null` if the message names none.
    pub vcpu: Option<u16>,
    /// Host CPU to which the vCPU is pinned; `null` if it is not pinned, or pinned to a CPU that the manifest does not
    /// list.
    pub cpu: Option<u32>,
    /// Frequency at which the CPU `cpu` is now fixed, in kHz; `null` if it is not fixed.
    pub fixed_khz: Option<u32>,
    /// Outcome of the request; `null` if the event is not a request.
    pub verdict: Option<Name<Verdict>>,
    /// Reason for the outcome, or details of the event.
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
    /// Path of the virtio-serial port or socket to the host.
    pub port: String,
    /// What was requested.
    pub asked: String,
    /// Number of the vCPU.
    pub vcpu: u16,
    /// Outcome of the request.
    pub verdict: Name<Verdict>,
    /// Frequency at which the vCPU's core is now fixed, in kHz; `null` if it is not fixed.
    pub fixed_khz: Option<u32>,
    /// Longest exit latency of the core's idle states that the guest's requests allow, in us; `null` if they set no
    /// limit.
    pub idle_limit_us: Option<u64>,
    /// Lowest frequency that the guest may request for the vCPU, in kHz; `null` if the host does not say.
    pub lowest_khz: Option<u32>,
    /// Highest frequency that the guest may request for the vCPU, in kHz; `null` if the host does not say.
    pub highest_khz: Option<u32>,
    /// The host's reason for the outcome.
    pub why: String,
    /// Time from the request to the answer, in ns.
    pub round_trip_ns: u64,
}

//! `apus moderate --json`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.moderate/1";

units::named! {
    /// Whether a queue held the goal in its last second.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// The bound of the first part and the measured second part together are within the goal.
        Held = "held",
        /// Together they are longer than the goal.
        Missed = "missed",
        /// No packet was read that could be measured.
        Unmeasured = "unmeasured",
    }
}

/// What the command did.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.moderate/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The policy as it was typed: `goal`, `net-dim` or `static:50us`.
    pub policy: String,
    /// The goal as it was typed, such as `p99=100us`.
    pub goal: String,
    /// The goal's latency.
    pub goal_latency_ns: u64,
    /// Whether nothing was changed (`--dry-run`).
    pub dry_run: bool,
    /// How long the command steered.
    pub duration_ns: u64,
    /// The receive queues.
    pub queues: Vec<Queue>,
    /// Whether all settings have their original values again; `null` if none was changed.
    pub restored: Option<bool>,
}

/// A receive queue.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The interface.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
    /// The kernel's ID of its NAPI instance.
    pub napi: u32,
    /// The time for which packets may gather, as it was last set. 0: not at all.
    pub timer_ns: u64,
    /// Why it is so.
    pub reason: String,
    /// How often it was set.
    pub changes: u64,
    /// What the machine made of it, if not what was asked for, or why it was refused; `null` if all is as asked for.
    pub trouble: Option<String>,
    /// Why the queue is no longer steered; `null` if it was steered to the end.
    pub lost: Option<String>,
    /// The length of the last full second; `null` if there was none.
    pub span_ns: Option<u64>,
    /// Packets received in it.
    pub packets: Option<u64>,
    /// How often the kernel polled the queue in it.
    pub polls: Option<u64>,
    /// The longest time from a packet's arrival to its reception: a bound, the time for which packets may gather.
    pub arrival_to_reception_bound_ns: u64,
    /// The delay from reception to the application's read at the goal's quantile, measured in that second; `null` if no
    /// packet was measured.
    pub reception_to_read_ns: Option<u64>,
    /// Number of packets that were measured.
    pub measured: Option<u64>,
    /// Whether the goal was held in that second.
    pub verdict: Name<Verdict>,
}

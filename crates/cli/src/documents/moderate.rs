//! `apus moderate --json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.moderate/1";

units::named! {
    /// Whether a queue held its goal, judged by all packets since the command began.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// No more packets were late than the goal allows, with the bound for the part that is not measured.
        Held = "held",
        /// More packets were late than the goal allows.
        Missed = "missed",
        /// `--dry-run`: the goal would be held with the times that the policy would choose.
        WouldHold = "would hold",
        /// `--dry-run`: the goal would be missed.
        WouldMiss = "would miss",
        /// It cannot be told; `why_unmeasured` says why.
        Unmeasured = "unmeasured",
    }
}

/// What the command did.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.moderate/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Whether nothing was changed (`--dry-run`).
    pub dry_run: bool,
    /// How long the command steered.
    pub duration_ns: u64,
    /// The receive queues.
    pub queues: Vec<Queue>,
    /// Whether all settings that are still steered have their original values again; `null` if none was changed, or none
    /// is left.
    pub restored: Option<bool>,
}

/// A receive queue.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The interface.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
    /// The kernel's ID of its NAPI instance; `null` if the kernel does not tell (Linux before 6.8).
    pub napi: Option<u32>,
    /// How its time is chosen: `goal`, `net-dim` or `static:50us`.
    pub policy: String,
    /// Its goal, such as `p99=100us`, by which it is judged with every policy.
    pub goal: String,
    /// The goal's latency.
    pub goal_latency_ns: u64,
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
    /// Polls of that second that used up their budget, so that more packets were waiting.
    pub full_polls: Option<u64>,
    /// The longest time from a packet's arrival to its reception: a bound, the time for which packets may gather, or that
    /// of the moderation beside if that is longer. `null` if there is no bound.
    pub arrival_to_reception_bound_ns: Option<u64>,
    /// The delay from reception to the application's read at the goal's quantile, measured in that second; `null` if no
    /// packet was measured.
    pub reception_to_read_ns: Option<u64>,
    /// Number of packets that were measured in that second.
    pub measured: Option<u64>,
    /// Number of packets that were measured since the beginning, while there was a bound.
    pub judged: u64,
    /// Number of those that may have been later than the goal. It is estimated, so it may have a fraction.
    pub late: f64,
    /// Whether the goal was held.
    pub verdict: Name<Verdict>,
    /// Why that cannot be told; `null` if it can.
    pub why_unmeasured: Option<String>,
}

//! `apus moderate --json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.moderate/1";

units::named! {
    /// Whether a queue met its goal, judged by all packets since the command began.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// No more packets were late than the goal allows. The part of each delay that cannot be measured, from arrival
        /// to reception, counts with its upper bound.
        Held = "held",
        /// More packets were late than the goal allows.
        Missed = "missed",
        /// `--dry-run`: the goal would be met with the timers that the policy would choose.
        WouldHold = "would hold",
        /// `--dry-run`: the goal would be missed with these timers.
        WouldMiss = "would miss",
        /// Unknown; `why_unmeasured` gives the reason.
        Unmeasured = "unmeasured",
    }
}

/// The results of `apus moderate`.
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
    /// Time for which the command set the queues' timers, in ns.
    pub duration_ns: u64,
    /// The receive queues.
    pub queues: Vec<Queue>,
    /// Whether all settings that were still under control were restored to their original values; `null` if none was
    /// changed, or none was left to restore.
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
    /// The kernel's ID of the queue's NAPI instance; `null` if the kernel does not report it (Linux before 6.8).
    pub napi: Option<u32>,
    /// The policy that chooses the queue's timer: `goal`, `net-dim` or `static:50us`.
    pub policy: String,
    /// Latency goal of the queue, such as `p99=100us`. The verdict refers to this goal, whatever the policy is.
    pub goal: String,
    /// Latency bound of the goal.
    pub goal_latency_ns: u64,
    /// The queue's timer as it was last set: the time for which the interrupt may be delayed after a packet. 0: no
    /// delay.
    pub timer_ns: u64,
    /// Why the policy chose this timer.
    pub reason: String,
    /// Number of times that the timer was set.
    pub changes: u64,
    /// What the machine did with the requested timer: the value that it uses instead, or why it refused; `null` if it
    /// uses what was requested.
    pub trouble: Option<String>,
    /// Why the command no longer sets the queue's timer; `null` if it did so to the end.
    pub lost: Option<String>,
    /// Exact length of the last full second; `null` if no second has passed.
    pub span_ns: Option<u64>,
    /// Packets received in the last full second.
    pub packets: Option<u64>,
    /// Number of times that the kernel polled the queue in the last full second.
    pub polls: Option<u64>,
    /// Polls of the last full second that used up their budget, so that more packets were waiting.
    pub full_polls: Option<u64>,
    /// Upper bound of the time from a packet's arrival to its reception: the longer of two timers, the one that Apus
    /// sets and the one that it leaves alone (the NIC's if Apus sets NAPI deferral, and the reverse). `null` if there
    /// is no bound.
    pub arrival_to_reception_bound_ns: Option<u64>,
    /// Delay from reception to the application's read at the goal's quantile, measured in the last full second; `null`
    /// if no packet was measured.
    pub reception_to_read_ns: Option<u64>,
    /// Number of packets that were measured in the last full second.
    pub measured: Option<u64>,
    /// Number of packets that were measured since the command began, while `arrival_to_reception_bound_ns` had a value.
    pub judged: u64,
    /// Number of the `judged` packets that may have been later than the goal. It is estimated, so it may have a
    /// fraction.
    pub late: f64,
    /// Whether the goal was met.
    pub verdict: Name<Verdict>,
    /// Why it is unknown whether the goal was met; `null` if it is known.
    pub why_unmeasured: Option<String>,
}

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
        /// No more packets were late than the goal allows. The time from arrival to reception cannot be measured, so
        /// its upper bound is used.
        Held = "held",
        /// More packets were late than the goal allows.
        Missed = "missed",
        /// `--dry-run`: the goal would be met with the timers that the policy would choose.
        WouldHold = "would hold",
        /// `--dry-run`: the goal would be missed with the timers that the policy would choose.
        WouldMiss = "would miss",
        /// It is unknown whether the goal was met. The field `why_unmeasured` gives the reason.
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
    /// Time for which the command controlled the queues' timers, in ns.
    pub duration_ns: u64,
    /// The receive queues.
    pub queues: Vec<Queue>,
    /// Interfaces of the configuration file that are not controlled: missing, or not possible on this host.
    #[serde(default)]
    pub not_controlled: Vec<NotControlled>,
    /// Whether a queue whose results are not in `queues` had missed its goal: it was started again, or got another one.
    #[serde(default)]
    pub missed_before: bool,
    /// Whether all settings that the command still controlled were restored to their original values. `null` if it
    /// changed none, or if no setting was left to restore.
    pub restored: Option<bool>,
}

/// An interface that is not controlled.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct NotControlled {
    /// Name of the interface.
    pub interface: String,
    /// Why the command does not control it.
    pub why: String,
}

/// A receive queue.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Name of the interface.
    pub interface: String,
    /// Number of the receive queue.
    pub queue: u32,
    /// The kernel's ID of the queue's NAPI instance; `null` if the kernel does not report it (Linux before 6.8).
    pub napi: Option<u32>,
    /// The policy that chooses the queue's timer: `goal`, `net-dim` or `static:50us`.
    pub policy: String,
    /// Latency goal of the queue, such as `p99=100us`. The verdict refers to this goal, whatever the policy is.
    pub goal: String,
    /// Latency bound of the goal, in ns.
    pub goal_latency_ns: u64,
    /// Timer of the queue in ns, as it was last set: the time for which the interrupt may be delayed after a packet. 0
    /// means no delay.
    pub timer_ns: u64,
    /// Why the policy chose this timer.
    pub reason: String,
    /// Number of times that the timer was set.
    pub changes: u64,
    /// What the machine did instead of using the requested timer: the value that it uses, or why it refused. Or why the
    /// queue cannot be observed now. `null` if it uses the requested timer, and the queue is observed.
    pub trouble: Option<String>,
    /// Why the command gave up the queue's timer early; `null` if it controlled the timer until it ended.
    pub lost: Option<String>,
    /// Exact length of the last full second, in ns; `null` if no second has passed, or if the queue cannot be observed
    /// now.
    pub span_ns: Option<u64>,
    /// Packets received in the last full second; `null` if unknown.
    pub packets: Option<u64>,
    /// Number of times that the kernel polled the queue in the last full second; `null` if unknown.
    pub polls: Option<u64>,
    /// Number of polls in the last full second that used up their budget, so that more packets may have been waiting;
    /// `null` if unknown.
    pub full_polls: Option<u64>,
    /// Upper bound in ns of the time from a packet's arrival to its reception. It is the longer of two timers: the one
    /// that Apus sets, and the one that Apus does not change (the NIC's timer if Apus sets NAPI deferral, and vice
    /// versa). `null` if there is no bound.
    pub arrival_to_reception_bound_ns: Option<u64>,
    /// Delay in ns from reception to the application's read, at the goal's quantile, measured in the last full second.
    /// `null` if no packet was measured, if the queue cannot be observed now, or if the delay is above 16 s.
    pub reception_to_read_ns: Option<u64>,
    /// Number of packets whose delay was measured in the last full second; `null` if unknown.
    pub measured: Option<u64>,
    /// Number of packets whose delay was measured since the command began. Packets count only while
    /// `arrival_to_reception_bound_ns` has a value.
    pub judged: u64,
    /// Number of the `judged` packets that may have been later than the goal. The number is estimated, so it may have a
    /// fraction.
    pub late: f64,
    /// Whether the goal was met.
    pub verdict: Name<Verdict>,
    /// Why it is unknown whether the goal was met; `null` if it is known.
    pub why_unmeasured: Option<String>,
}

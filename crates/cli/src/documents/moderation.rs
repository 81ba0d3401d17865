//! `apus moderate status --json`, and what `apus top` and `apus metrics` show of running instances of `apus moderate`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use super::moderate::{self, Verdict};
use super::top::Leftover;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.moderate-status/1";

/// What the running instances of `apus moderate` steer.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.moderate-status/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The running instances, by process identifier.
    pub instances: Vec<Instance>,
    /// Files without a running instance: of killed processes, or of other versions of Apus.
    pub leftovers: Vec<Leftover>,
}

/// A running instance of `apus moderate`.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Instance {
    /// Process identifier.
    pub pid: u32,
    /// Inode number of its network namespace (`/proc/PID/ns/net`); `null` if it is that of the reader.
    pub network_namespace: Option<u64>,
    /// Whether it changes nothing (`--dry-run`).
    pub dry_run: bool,
    /// How long it has been steering.
    pub steering_ns: u64,
    /// Time since it last published its state; it does so every second.
    pub silent_ns: u64,
    /// Its receive queues.
    pub queues: Vec<Queue>,
}

/// A receive queue that is steered.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Queue {
    /// The interface.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
    /// How its time is chosen: `goal`, `net-dim` or `static:50us`.
    pub policy: String,
    /// Its goal, such as `p99=100us`, by which it is judged with every policy.
    pub goal: String,
    /// The goal's latency.
    pub goal_latency_ns: u64,
    /// The time for which packets may gather. 0: not at all.
    pub timer_ns: u64,
    /// Why it is so.
    pub reason: String,
    /// How often it was set.
    pub changes: u64,
    /// Packets received per second; `null` until a second has passed.
    pub packets_pps: Option<f64>,
    /// How often per second the kernel polls the queue; `null` if unknown.
    pub polls_per_second: Option<f64>,
    /// The delay from reception to the application's read at the goal's quantile, measured; `null` if no packet was
    /// measured.
    pub reception_to_read_ns: Option<u64>,
    /// The longest delay from arrival to the application's read at the goal's quantile: the bound of the first part, and
    /// the measured second part. `null` if no packet was measured, or the first part has no bound.
    pub at_most_ns: Option<u64>,
    /// Number of its packets that were measured since it is steered, while there was a bound.
    pub judged: u64,
    /// Number of those that may have been later than the goal. It is estimated, so it may have a fraction.
    pub late: f64,
    /// Share of its packets that may have been later than the goal, since it is steered; `null` if none was measured.
    pub late_ratio: Option<f64>,
    /// Whether the goal was held since it is steered.
    pub verdict: Name<Verdict>,
    /// What the machine made of the setting, if not what was asked for, or why it was refused; `null` if all is as asked
    /// for.
    pub trouble: Option<String>,
    /// Why the queue is no longer steered; `null` if it is.
    pub lost: Option<String>,
}

impl Queue {
    /// Converts what an instance says of one of its queues.
    pub fn of(queue: &moderate::Queue) -> Self {
        let per_second = |count: Option<u64>| {
            let seconds = queue.span_ns.filter(|span| *span > 0)? as f64 / 1e9;
            Some(count? as f64 / seconds)
        };
        let bounded = queue.reception_to_read_ns.zip(queue.arrival_to_reception_bound_ns);
        let at_most = bounded.map(|(read, bound)| read.saturating_add(bound));
        Self {
            interface: queue.interface.clone(),
            queue: queue.queue,
            policy: queue.policy.clone(),
            goal: queue.goal.clone(),
            goal_latency_ns: queue.goal_latency_ns,
            timer_ns: queue.timer_ns,
            reason: queue.reason.clone(),
            changes: queue.changes,
            packets_pps: per_second(queue.packets),
            polls_per_second: per_second(queue.polls),
            reception_to_read_ns: queue.reception_to_read_ns,
            at_most_ns: at_most,
            judged: queue.judged,
            late: queue.late,
            late_ratio: (queue.judged > 0).then(|| queue.late / queue.judged as f64),
            verdict: queue.verdict,
            trouble: queue.trouble.clone(),
            lost: queue.lost.clone(),
        }
    }
}

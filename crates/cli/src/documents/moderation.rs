//! `apus moderate status --json`, and what `apus top` and `apus metrics` show of running instances of `apus moderate`.

use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use super::moderate::{self, NotControlled, Verdict};
use super::top::Leftover;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.moderate-status/1";

/// The running instances of `apus moderate`, and their queues.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.moderate-status/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The running instances, by process ID.
    pub instances: Vec<Instance>,
    /// Files in the state folder that belong to no running instance. They belong to killed processes or to other
    /// versions of Apus.
    pub leftovers: Vec<Leftover>,
}

/// A running instance of `apus moderate`.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Instance {
    /// Process ID.
    pub pid: u32,
    /// Inode number of the instance's network namespace (`/proc/PID/ns/net`); `null` if it is the namespace of the
    /// command that prints this.
    pub network_namespace: Option<u64>,
    /// Whether the instance changes nothing (`--dry-run`).
    pub dry_run: bool,
    /// Time for which the instance has been controlling timers, in ns.
    pub steering_ns: u64,
    /// Time since the instance last published its state, in ns. A running instance publishes its state every second.
    pub silent_ns: u64,
    /// The receive queues of the instance.
    pub queues: Vec<Queue>,
    /// Interfaces of the instance's configuration file that it does not control: missing, or not possible on this host.
    pub not_controlled: Vec<NotControlled>,
}

/// A receive queue whose timer an instance of `apus moderate` sets.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Queue {
    /// Name of the interface.
    pub interface: String,
    /// Number of the receive queue.
    pub queue: u32,
    /// The policy that chooses the queue's timer: `goal`, `net-dim` or `static:50us`.
    pub policy: String,
    /// Latency goal of the queue, such as `p99=100us`. The verdict refers to this goal, whatever the policy is.
    pub goal: String,
    /// Latency bound of the goal, in ns.
    pub goal_latency_ns: u64,
    /// Timer of the queue in ns: the time for which the interrupt may be delayed after a packet. 0 means no delay.
    pub timer_ns: u64,
    /// Why the policy chose this timer.
    pub reason: String,
    /// Number of times that the timer was set.
    pub changes: u64,
    /// Packets received per second; `null` until a second has passed, and if the queue cannot be observed now.
    pub packets_pps: Option<f64>,
    /// Number of times per second that the kernel polls the queue; `null` if unknown.
    pub polls_per_second: Option<f64>,
    /// Measured delay in ns from reception to the application's read, at the goal's quantile. `null` if no packet was
    /// measured, if the queue cannot be observed now, or if the delay is above 16 s.
    pub reception_to_read_ns: Option<u64>,
    /// Upper bound in ns of the delay from arrival to the application's read, at the goal's quantile: the bound of the
    /// time from arrival to reception, plus `reception_to_read_ns`. `null` if no packet was measured, or if there is no
    /// bound.
    pub at_most_ns: Option<u64>,
    /// Number of packets whose delay was measured since the instance began to control the queue. Packets count only
    /// while the time from arrival to reception has an upper bound.
    pub judged: u64,
    /// Number of the `judged` packets that may have been later than the goal. The number is estimated, so it may have a
    /// fraction.
    pub late: f64,
    /// Share of the `judged` packets that may have been later than the goal; `null` if none was measured.
    pub late_ratio: Option<f64>,
    /// Whether the goal has been met since the instance began to control the queue.
    pub verdict: Name<Verdict>,
    /// What the machine did instead of using the requested timer: the value that it uses, or why it refused. Or why the
    /// queue cannot be observed now. `null` if it uses the requested timer, and the queue is observed.
    pub trouble: Option<String>,
    /// Why the instance no longer sets the queue's timer; `null` if it still does.
    pub lost: Option<String>,
}

impl Queue {
    /// Converts the published state of one queue.
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

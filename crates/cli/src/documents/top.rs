//! `apus top --json`, and what the live view shows.

use std::collections::BTreeMap;

use live::device::Health;
use live::telemetry::{self, Counts, DropReason, SchedulingClass, State, Usage};
use policy::wait::{Reason, WaitKind};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::{Distribution, Name, by_name};
use units::{Instant, Monotonic, Nanos};

use super::{moderation, power_steer};

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.top/2";

/// What the running instances of Apus are doing.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.top/2`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The running instances, sorted by name.
    pub instances: Vec<Instance>,
    /// The running instances of `apus moderate` by process ID, with the queues that they control. Empty if an instance
    /// was named on the command line.
    pub moderation: Vec<moderation::Instance>,
    /// The running instances of `apus power steer` by process ID, with the CPUs that they control. Empty if an instance
    /// was named on the command line.
    pub steering: Vec<power_steer::Instance>,
    /// Files of telemetry, of `apus moderate` and of `apus power steer` without a running process. They belong to killed
    /// processes or to other versions of Apus.
    pub leftovers: Vec<Leftover>,
}

/// A running instance of `apus run`, or another program that publishes telemetry through libapus.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Instance {
    /// Name of the instance.
    pub instance: String,
    /// Process ID.
    pub pid: u32,
    /// The instance's workers, by number.
    pub workers: Vec<Worker>,
}

/// A worker: one thread with its ports.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Worker {
    /// Number of the worker, from 0.
    pub worker: u32,
    /// Thread identifier.
    pub tid: u32,
    /// Name of the worker's application: what it does with each frame.
    pub app: String,
    /// Name of the worker's wait mode.
    pub mode: String,
    /// The worker's latency goal, such as `p99.9=50us`; `null` for modes without one.
    pub goal: Option<String>,
    /// CPU that the worker is pinned to; `null` if not pinned.
    pub cpu: Option<u32>,
    /// Scheduling class of the worker's thread.
    pub scheduling: Name<SchedulingClass>,
    /// Real-time priority; 0 in other classes.
    pub priority: u64,
    /// What the worker is doing; `null` if unknown.
    pub state: Option<Name<State>>,
    /// Time since the worker started, in ns.
    pub uptime_ns: u64,
    /// Time since the worker last updated its telemetry, in ns. The time is long while the worker waits.
    pub silent_ns: u64,
    /// The worker's ports.
    pub ports: Vec<Port>,
    /// The last published choice of the mode `adaptive`. Every choice to wait is published. Of consecutive choices to
    /// keep polling, only the first and every 1,024th are published. `null` if the mode compares no waits, if it has
    /// not made a choice yet, or if the choice could not be read consistently.
    pub choice: Option<Choice>,
    /// Counters since the worker started.
    pub total: Total,
    /// Rates between two samples; `null` if there is only one sample, as for a worker that has just started.
    pub rate: Option<Rate>,
}

/// A choice of the mode `adaptive`, and what it expected.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Choice {
    /// Time since the choice, in ns. The time is long while the worker is in the chosen wait, or receives frames
    /// without comparing waits.
    pub age_ns: u64,
    /// The kind of wait.
    pub kind: Name<WaitKind>,
    /// The reason for the choice.
    pub reason: Name<Reason>,
    /// Planned length of the wait in ns; for a blocking wait, the expected time until the next frame.
    pub wait_ns: u64,
    /// Expected cost per packet, as the equivalent time of a polling core in ns, without the cost of late packets.
    /// `null` before the first measured wait, and while the core is idle, because nothing is compared then.
    pub price_ns_per_packet: Option<u64>,
    /// The cost `price_ns_per_packet` as a share of a polling core.
    pub core_ratio: Option<f64>,
    /// Expected share of late packets; `null` while the core is idle.
    pub expected_late_ratio: Option<f64>,
    /// Share of late packets that `adaptive` aims for: somewhat less than the goal allows.
    pub aimed_late_ratio: f64,
    /// Late packets not yet compensated for: each late packet adds one, and each packet subtracts `aimed_late_ratio`.
    /// It never falls below 0, and it has an upper limit.
    pub owed_packets: f64,
    /// Cost that `adaptive` assigns to one more late packet, in units of the mean time in which `aimed_late_ratio`
    /// allows one late packet.
    pub multiplier: f64,
}

/// What a worker's port reports.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Port {
    /// Name of the port.
    pub name: String,
    /// Whether the port is up; `null` if unknown.
    pub health: Option<Name<Health>>,
    /// Received frames lost because the worker did not empty the ring in time.
    pub rx_ring_full_frames: u64,
    /// Received frames lost because no slot of the pool was free.
    pub rx_no_buffer_frames: u64,
    /// Received frames lost for other reasons.
    pub rx_invalid_frames: u64,
    /// Sent frames that the kernel refused as malformed.
    pub tx_invalid_frames: u64,
    /// Sent frames that the driver dropped.
    pub tx_dropped_frames: u64,
    /// Whether busy polling takes effect; `null` if it was not requested, or if this is not yet known.
    pub busy_poll: Option<bool>,
}

/// Counters since the worker started.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Total {
    /// Frames received from the devices.
    pub received_frames: u64,
    /// Bytes of the received frames.
    pub received_bytes: u64,
    /// Frames sent to the devices.
    pub sent_frames: u64,
    /// Bytes of the sent frames.
    pub sent_bytes: u64,
    /// Frames received but not sent, by reason.
    pub dropped_frames: BTreeMap<Name<DropReason>, u64>,
    /// Number of polls, over all queues of the worker.
    pub polls: u64,
    /// Number of polls that found no frame.
    pub empty_polls: u64,
    /// Time spent on processing frames, in ns.
    pub busy_ns: u64,
    /// Time in ns of the polls that found frames: receiving, processing and sending them. Empty polls are not included.
    pub useful_ns: u64,
    /// Number and time of the waits, by kind.
    pub waits: BTreeMap<Name<WaitKind>, Wait>,
    /// Decisions of the wait policy, by reason.
    pub decisions: BTreeMap<Name<Reason>, u64>,
    /// Number of gaps. A gap is a time in which something else had the core although the worker neither slept nor
    /// blocked.
    pub gaps: u64,
    /// Total length of the gaps, in ns.
    pub gap_time_ns: u64,
    /// CPU time of the thread in ns; `null` if the kernel does not report it.
    pub cpu_time_ns: Option<u64>,
    /// Wake-ups of the thread; `null` if the kernel does not report them.
    pub wakeups: Option<u64>,
    /// Time from the arrival of a frame to its pick-up by the worker.
    pub pickup_lateness: Distribution,
    /// Time from the pick-up of a frame by the worker to its transmission.
    pub service_time: Distribution,
}

/// Waits of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Wait {
    /// Number of waits.
    pub count: u64,
    /// Total time that the waits of this kind took, in nanoseconds.
    pub time_ns: u64,
}

/// Rates between two samples.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Rate {
    /// Time between the two samples, in ns.
    pub interval_ns: u64,
    /// Frames received per second.
    pub received_pps: f64,
    /// Bits received per second.
    pub received_bps: f64,
    /// Frames sent per second.
    pub sent_pps: f64,
    /// Bits sent per second.
    pub sent_bps: f64,
    /// Frames dropped per second, by reason; reasons that did not occur are left out.
    pub dropped_pps: BTreeMap<Name<DropReason>, f64>,
    /// Frames per second that the devices lost, over all ports and causes.
    pub device_lost_pps: f64,
    /// Polls per second.
    pub polls_per_second: f64,
    /// Share of the interval spent in polls that found frames: the worker's actual load, no matter how often it polls.
    pub occupancy_ratio: f64,
    /// How the worker spent its time, as shares that add up to 1.
    pub time: TimeShares,
    /// Share of the interval in which the thread was on a CPU; `null` if the kernel does not report it.
    pub cpu_ratio: Option<f64>,
    /// Wake-ups of the thread per second; `null` if the kernel does not report them.
    pub wakeups_per_second: Option<f64>,
    /// Number of gaps per second. A gap is a time in which something else had the core although the worker neither
    /// slept nor blocked.
    pub gaps_per_second: f64,
    /// Share of the interval taken up by gaps.
    pub gap_ratio: f64,
    /// Share of the decisions for each reason; reasons that did not occur are left out.
    pub decision_ratios: BTreeMap<Name<Reason>, f64>,
    /// Time from the arrival of a frame to its pick-up by the worker.
    pub pickup_lateness: Distribution,
    /// Time from the pick-up of a frame by the worker to its transmission.
    pub service_time: Distribution,
}

/// How a worker spent its time, as shares that add up to 1.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct TimeShares {
    /// Share of time spent on processing frames.
    pub busy_ratio: f64,
    /// Share of time in waits of kind `poll`.
    pub poll_ratio: f64,
    /// Share of time in waits of kind `pause`.
    pub pause_ratio: f64,
    /// Share of time in waits of kind `sleep`.
    pub sleep_ratio: f64,
    /// Share of time in waits of kind `block`.
    pub block_ratio: f64,
    /// The rest of the time: empty polls, and the wait in progress.
    pub rest_ratio: f64,
}

/// A telemetry file without a running worker.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Leftover {
    /// Path of the file.
    pub path: String,
    /// Why the file belongs to no running worker.
    pub why: String,
}

impl Total {
    /// Converts the counters of a worker. `usage` is the CPU usage of its thread; `None` if the kernel does not report
    /// it.
    pub fn new(counts: &Counts, usage: Option<Usage>) -> Self {
        let wait = |kind| {
            let wait = counts.wait(kind);
            Wait { count: wait.count, time_ns: wait.time.as_nanos() }
        };
        Self {
            received_frames: counts.received_frames,
            received_bytes: counts.received_bytes,
            sent_frames: counts.sent_frames,
            sent_bytes: counts.sent_bytes,
            dropped_frames: by_name(DropReason::ALL.map(|reason| (reason, counts.dropped(reason)))),
            polls: counts.polls,
            empty_polls: counts.empty_polls,
            busy_ns: counts.busy.as_nanos(),
            useful_ns: counts.useful.as_nanos(),
            waits: by_name(WaitKind::ALL.map(|kind| (kind, wait(kind)))),
            decisions: by_name(Reason::ALL.map(|reason| (reason, counts.reason(reason)))),
            gaps: counts.gaps,
            gap_time_ns: counts.gap_time.as_nanos(),
            cpu_time_ns: usage.map(|usage| usage.cpu.as_nanos()),
            wakeups: usage.map(|usage| usage.wakeups),
            pickup_lateness: (&counts.lateness).into(),
            service_time: (&counts.service).into(),
        }
    }
}

impl Choice {
    /// Converts a choice. `now` is the time at which it was read.
    pub fn new(choice: &telemetry::Choice, now: Instant<Monotonic>) -> Self {
        let belief = &choice.belief;
        let ratio = |ppm: u64| ppm as f64 / 1e6;
        Self {
            age_ns: now.since(choice.at).unwrap_or(Nanos::ZERO).as_nanos(),
            kind: choice.kind.into(),
            reason: choice.reason.into(),
            wait_ns: belief.wait.as_nanos(),
            price_ns_per_packet: belief.price().map(Nanos::as_nanos),
            core_ratio: belief.core_ppm().map(ratio),
            expected_late_ratio: belief.expected_late_ppm().map(ratio),
            aimed_late_ratio: ratio(belief.aimed_ppm.into()),
            owed_packets: ratio(belief.owed_millionths),
            multiplier: belief.multiplier_256ths as f64 / 256.0,
        }
    }
}

/// Converts the counters of a worker's devices.
pub fn ports(counts: &Counts) -> Vec<Port> {
    let port = |port: &telemetry::PortCounts| Port {
        name: port.name.clone(),
        health: port.health.map(Name::from),
        rx_ring_full_frames: port.statistics.rx_ring_full,
        rx_no_buffer_frames: port.statistics.rx_no_buffer,
        rx_invalid_frames: port.statistics.rx_invalid,
        tx_invalid_frames: port.statistics.tx_invalid,
        tx_dropped_frames: port.statistics.tx_dropped,
        busy_poll: port.busy_poll,
    };
    counts.ports.iter().map(port).collect()
}

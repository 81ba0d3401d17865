//! `apus run --json`.

use std::collections::BTreeMap;

use host::transaction::DeferredQueues;
use live::app::AppConfig;
use live::device::afxdp::XdpMode;
use live::device::fault;
use live::port::{PeakRateSource, PortKind, PortReport};
use live::telemetry::{SchedulingClass, Snapshot};
use policy::LossBound;
use policy::wait::Mode;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::{Energy, Name};

use super::top::{Port as DeviceCounts, Total, ports};

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.run/2";

/// How an instance ran.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.run/2`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The options of the run, as Apus understood them.
    pub config: Config,
    /// The opened ports; empty if they could not be opened.
    pub ports: Vec<Port>,
    /// Longest wait of a worker at which no ring overflows; `null` for modes without such a limit, and for ports that
    /// cannot lose frames.
    pub loss_bound: Option<Bound>,
    /// Why the run ended.
    pub ended: Name<Ended>,
    /// How long the run lasted, in nanoseconds; `null` if it did not start.
    pub ran_ns: Option<u64>,
    /// The workers, by number; empty if they did not start.
    pub workers: Vec<Worker>,
    /// What fault injection did to the frames of each port of each worker; left out without `--fault`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Faults>,
    /// Energy used while the workers ran. Its CPU time is the sum over all workers.
    pub energy: Energy,
    /// Whether received = sent + dropped, for every worker.
    pub accounted: bool,
    /// Differences between what was requested or expected and what happened.
    pub warnings: Vec<String>,
    /// The error; `null` if there was none.
    pub error: Option<String>,
}

units::named! {
    /// Why an instance ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Ended {
        /// A signal stopped the instance.
        Asked = "asked",
        /// The time given by `--duration` was over.
        Duration = "duration",
        /// There was nothing more to receive.
        Exhausted = "exhausted",
        /// The instance could not start, or a worker failed.
        Failed = "failed",
    }
}

units::named! {
    /// How a worker ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum WorkerEnded {
        /// The worker was asked to stop.
        Stopped = "stopped",
        /// There was nothing more to receive.
        Exhausted = "exhausted",
        /// The worker ended with an error.
        Failed = "failed",
    }
}

/// The options of a run, as Apus understood them.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Config {
    /// Name of the instance.
    pub instance: String,
    /// The application: what the instance does with each frame.
    pub app: Name<AppConfig>,
    /// Options of the application, as text.
    pub app_options: BTreeMap<String, String>,
    /// Name of the wait mode.
    pub mode: Name<Mode>,
    /// Latency goal of the wait mode, given or default; `null` for modes without one.
    pub goal: Option<String>,
    /// Platform profile from which `adaptive` started; `null` if none was given.
    pub platform: Option<String>,
    /// Longest sleep of the mode `backoff`, in ns; `null` for other modes.
    pub sleep_max_ns: Option<u64>,
    /// Whether `adaptive` chooses how long NAPI delays frames (`--hold-off`).
    pub hold_off: bool,
    /// Whether `adaptive` chooses how deep the workers' CPUs may idle (`--limit-idle`).
    pub limit_idle: bool,
    /// Where each worker runs.
    pub workers: Vec<Place>,
    /// Whether the process's memory is locked into RAM.
    pub lock_memory: bool,
    /// Number of descriptors in each ring. The receive rings of a port may be larger: see `ports`.
    pub ring_descriptors: u32,
    /// Memory reserved for each frame, in bytes.
    pub frame_size_octets: u32,
    /// Whether frame memory is in huge pages.
    pub huge_pages: bool,
    /// Maximum number of frames that one busy poll receives; `null` without busy polling.
    pub busy_poll_frames: Option<u16>,
    /// Interrupt deferral of the port; `null` if not requested.
    pub deferral: Option<Deferral>,
    /// Which frames the port takes from the kernel.
    pub filter: String,
    /// Network namespace of the ports; `null` if it is the current one.
    pub netns: Option<String>,
    /// Time to run, in ns; `null` means until stopped.
    pub duration_ns: Option<u64>,
    /// Injected faults; `null` if none.
    pub fault: Option<String>,
}

/// What fault injection did to the frames of a worker's port.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Faults {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Number of the port, from 0.
    pub port: usize,
    /// Faults of frames that arrived at the port. Frames that were dropped did not reach the worker.
    pub received: FaultCounts,
    /// Faults of frames that the worker sent. Frames that were dropped count as drops of the worker (`injected`).
    pub sent: FaultCounts,
}

/// Numbers of frames and of injected faults in one direction.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct FaultCounts {
    /// Frames before any fault.
    pub seen_frames: u64,
    /// Frames that disappeared.
    pub dropped_frames: u64,
    /// Frames that were followed by a copy.
    pub duplicated_frames: u64,
    /// Frames whose copy could not be made, because no slot was free.
    pub not_duplicated_frames: u64,
    /// Frames in which a bit was flipped.
    pub corrupted_frames: u64,
    /// Frames that were truncated.
    pub truncated_frames: u64,
    /// Frames that were held back for some polls.
    pub delayed_frames: u64,
    /// Frames that the next frame overtook.
    pub reordered_frames: u64,
    /// Frames that were lost while the link was down, or with the port.
    pub lost_frames: u64,
}

impl FaultCounts {
    /// The names of the faults, and how many frames had them.
    pub fn list(&self) -> [(&'static str, u64); 8] {
        [
            ("dropped", self.dropped_frames),
            ("duplicated", self.duplicated_frames),
            ("not duplicated", self.not_duplicated_frames),
            ("corrupted", self.corrupted_frames),
            ("truncated", self.truncated_frames),
            ("delayed", self.delayed_frames),
            ("reordered", self.reordered_frames),
            ("lost", self.lost_frames),
        ]
    }
}

impl From<fault::FaultCounts> for FaultCounts {
    fn from(counts: fault::FaultCounts) -> Self {
        Self {
            seen_frames: counts.seen,
            dropped_frames: counts.dropped,
            duplicated_frames: counts.duplicated,
            not_duplicated_frames: counts.not_duplicated,
            corrupted_frames: counts.corrupted,
            truncated_frames: counts.truncated,
            delayed_frames: counts.delayed,
            reordered_frames: counts.reordered,
            lost_frames: counts.lost,
        }
    }
}

/// Where a worker runs.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Place {
    /// CPU that the worker is pinned to; `null` if not pinned.
    pub cpu: Option<usize>,
    /// SCHED_FIFO priority of the worker; `null` for the normal class.
    pub fifo: Option<u8>,
}

/// Interrupt deferral of a NAPI instance.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Deferral {
    /// Number of empty polls before the kernel enables the interrupt again.
    pub defer_hard_irqs: u32,
    /// Time from one poll to the next while the interrupt is disabled, in ns.
    pub gro_flush_timeout_ns: u64,
}

/// An opened port.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Port {
    /// Name of the port.
    pub name: String,
    /// The kind of port.
    pub kind: Name<PortKind>,
    /// Where the XDP program runs; `null` if the port has none.
    pub xdp_mode: Option<Name<XdpMode>>,
    /// Whether the driver receives directly into the instance's frame memory (zero copy); `null` for ports without a
    /// driver.
    pub zero_copy: Option<bool>,
    /// Name of the DPDK driver; `null` for other ports.
    pub dpdk_driver: Option<String>,
    /// Whether an arriving frame ends a blocking wait (receive interrupts); `null` for ports without a driver.
    pub wakes: Option<bool>,
    /// The port's receive queues; empty for ports without a driver.
    pub queues: Vec<u32>,
    /// IDs of the NAPI instances whose interrupts are deferred.
    pub deferred_napis: Vec<u32>,
    /// Whether the interrupts of all queues of the interface are deferred, because the kernel cannot defer those of one
    /// queue (before Linux 6.13). `deferred_napis` is then empty.
    #[serde(default)]
    pub deferred_device: bool,
    /// Number of receive descriptors per queue.
    pub rx_descriptors: u32,
    /// Peak packet rate from which the longest wait is computed; `null` if no frame can be lost.
    pub peak_rate_pps: Option<u64>,
    /// Where the peak rate comes from; `null` if there is none. An assumed rate is the packet rate of a 10 Gbit/s line.
    pub peak_rate_from: Option<Name<PeakRateSource>>,
}

impl Port {
    /// Describes a port, and its queues whose interrupts are deferred.
    pub fn of(report: &PortReport, deferred: Option<&DeferredQueues>) -> Self {
        let driver = report.driver.as_ref();
        Self {
            name: report.name.clone(),
            kind: (&report.kind).into(),
            xdp_mode: driver.and_then(|driver| driver.xdp_mode).map(Into::into),
            zero_copy: driver.map(|driver| driver.zero_copy),
            dpdk_driver: driver.and_then(|driver| driver.dpdk_driver.clone()),
            wakes: driver.and_then(|driver| driver.wakes),
            queues: driver.map_or(Vec::new(), |driver| driver.queues.clone()),
            deferred_napis: match deferred {
                Some(DeferredQueues::Napis(napis)) => napis.clone(),
                Some(DeferredQueues::Device) | None => Vec::new(),
            },
            deferred_device: deferred == Some(&DeferredQueues::Device),
            rx_descriptors: report.rx_descriptors,
            peak_rate_pps: report.peak.map(|peak| peak.rate.as_pps()),
            peak_rate_from: report.peak.map(|peak| peak.from.into()),
        }
    }
}

/// The longest wait at which no ring overflows.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Bound {
    /// Number of descriptors that are free at least when a wait begins, in the ring that fills first.
    pub descriptors: u32,
    /// Rate at which the ring fills, in packets per second.
    pub peak_rate_pps: u64,
    /// Longest wait in ns: `descriptors` / `peak_rate_pps`.
    pub longest_wait_ns: u64,
}

impl From<LossBound> for Bound {
    fn from(bound: LossBound) -> Self {
        Self {
            descriptors: bound.descriptors,
            peak_rate_pps: bound.peak.as_pps(),
            longest_wait_ns: bound.longest_absence().as_nanos(),
        }
    }
}

/// How one worker ran.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Worker {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// How the worker ended.
    pub ended: Name<WorkerEnded>,
    /// The worker's error; `null` if it did not fail.
    pub error: Option<String>,
    /// The worker's counters; `null` if it failed before it ran.
    pub counts: Option<WorkerCounts>,
    /// How often the worker's policy changed the hold-off of its queues; `null` without `--hold-off`.
    pub hold_off_changes: Option<u64>,
    /// How often the worker changed the limit of its CPU's exit latency; `null` without `--limit-idle`.
    pub idle_limit_changes: Option<u64>,
}

/// The counters of a worker.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct WorkerCounts {
    /// Thread identifier.
    pub tid: u32,
    /// Scheduling class of the worker's thread.
    pub scheduling: Name<SchedulingClass>,
    /// Real-time priority; 0 in other classes.
    pub priority: u64,
    /// Time from the worker's start to its end, in ns.
    pub ran_ns: u64,
    /// Share of `ran_ns` that the worker's thread was on a CPU; `null` if the kernel does not report it.
    pub cpu_ratio: Option<f64>,
    /// Whether received = sent + dropped.
    pub accounted: bool,
    /// All counters.
    pub total: Total,
    /// Counters that the worker's devices report.
    pub devices: Vec<DeviceCounts>,
}

impl WorkerCounts {
    /// Converts the last snapshot of a worker.
    pub fn new(snapshot: &Snapshot, usage: Option<live::telemetry::Usage>) -> Self {
        let ran = snapshot.taken.since(snapshot.started).unwrap_or(units::Nanos::ZERO).as_nanos();
        let counts = &snapshot.counts;
        Self {
            tid: snapshot.tid,
            scheduling: snapshot.scheduling.class().into(),
            priority: snapshot.scheduling.priority,
            ran_ns: ran,
            cpu_ratio: usage.filter(|_| ran > 0).map(|usage| usage.cpu.as_nanos() as f64 / ran as f64),
            accounted: counts.received_frames == counts.sent_frames + counts.dropped.iter().sum::<u64>(),
            total: Total::new(counts, usage),
            devices: ports(counts),
        }
    }
}

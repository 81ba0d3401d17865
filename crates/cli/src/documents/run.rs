//! `apus run --json`.

use std::collections::BTreeMap;

use live::app::AppConfig;
use live::device::afxdp::XdpMode;
use live::port::{PeakRateSource, PortKind, PortReport};
use live::telemetry::{SchedulingClass, Snapshot};
use policy::LossBound;
use policy::wait::Mode;
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use super::top::{Port as DeviceCounts, Total, ports};

/// The schema's name.
pub const SCHEMA: &str = "apus.run/2";

/// How an instance ran.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.run/2`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What was asked for, as it was understood.
    pub config: Config,
    /// What the ports turned out to be; empty if they could not be opened.
    pub ports: Vec<Port>,
    /// How long no worker may be away; `null` for modes that keep no such bound, and for ports that
    /// cannot lose frames.
    pub loss_bound: Option<Bound>,
    /// Why it ended.
    pub ended: Name<Ended>,
    /// How long it ran; `null` if it did not start.
    pub ran_ns: Option<u64>,
    /// The workers, by number; empty if they did not start.
    pub workers: Vec<Worker>,
    /// Whether received = sent + dropped, for every worker.
    pub accounted: bool,
    /// What is not as asked for or as one would expect.
    pub warnings: Vec<String>,
    /// What went wrong; `null` if nothing did.
    pub error: Option<String>,
}

units::named! {
    /// Why an instance ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Ended {
        /// A signal asked it to.
        Asked = "asked",
        /// It ran for as long as `--duration` says.
        Duration = "duration",
        /// There was nothing more to receive.
        Exhausted = "exhausted",
        /// It could not start, or a worker failed.
        Failed = "failed",
    }
}

units::named! {
    /// How a worker ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum WorkerEnded {
        /// It was told to.
        Stopped = "stopped",
        /// There was nothing more to receive.
        Exhausted = "exhausted",
        /// By an error.
        Failed = "failed",
    }
}

/// What was asked for.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The instance's name.
    pub instance: String,
    /// What is done to each frame.
    pub app: Name<AppConfig>,
    /// The application's own options, as text.
    pub app_options: BTreeMap<String, String>,
    /// How to wait.
    pub mode: Name<Mode>,
    /// The goal that it holds: the default if none was given; `null` for modes without one.
    pub goal: Option<String>,
    /// The platform profile that it started from; `null` without.
    pub platform: Option<String>,
    /// The longest sleep; `null` but for `backoff`.
    pub sleep_max_ns: Option<u64>,
    /// One entry a worker.
    pub workers: Vec<Place>,
    /// Whether the process's memory is kept in RAM.
    pub lock_memory: bool,
    /// Descriptors of each ring.
    pub ring_descriptors: u32,
    /// Octets of memory for each frame.
    pub frame_size_octets: u32,
    /// Whether huge pages are used.
    pub huge_pages: bool,
    /// Frames at a time of busy polling; `null` without it.
    pub busy_poll_frames: Option<u16>,
    /// Interrupt deferral; `null` without it.
    pub deferral: Option<Deferral>,
    /// Which frames are ours.
    pub filter: String,
    /// The network namespace; `null` for that of the caller.
    pub netns: Option<String>,
    /// How long to run; `null`: until asked to end.
    pub duration_ns: Option<u64>,
    /// What is to go wrong; `null` if nothing.
    pub fault: Option<String>,
}

/// Where a worker is to run.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The CPU; `null`: anywhere.
    pub cpu: Option<usize>,
    /// The priority in SCHED_FIFO; `null`: the normal class.
    pub fifo: Option<u8>,
}

/// Interrupt deferral of a NAPI.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Deferral {
    /// Empty polls before the interrupt is let through again.
    pub defer_hard_irqs: u32,
    /// How long after a poll the next one is.
    pub gro_flush_timeout_ns: u64,
}

/// What a port turned out to be.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What kind of port.
    pub kind: Name<PortKind>,
    /// Where the XDP program runs; `null` without one.
    pub xdp_mode: Option<Name<XdpMode>>,
    /// Whether the driver receives straight into our memory; `null` without a driver.
    pub zero_copy: Option<bool>,
    /// The receive queues; empty without a driver.
    pub queues: Vec<u32>,
    /// NAPIs whose interrupts are deferred.
    pub deferred_napis: Vec<u32>,
    /// Receive descriptors of each queue.
    pub rx_descriptors: u32,
    /// The rate that the loss bound reckons with; `null` if nothing can be lost.
    pub peak_rate_pps: Option<u64>,
    /// Where that rate comes from; assumed are 10 Gbit/s.
    pub peak_rate_from: Option<Name<PeakRateSource>>,
}

impl Port {
    /// A port, and its NAPIs whose interrupts are deferred.
    pub fn of(report: &PortReport, deferred_napis: &[u32]) -> Self {
        let (xdp_mode, zero_copy, queues) = match &report.kind {
            PortKind::Memory | PortKind::Pcap => (None, None, Vec::new()),
            PortKind::AfXdp { xdp_mode, zero_copy, queues } => {
                (Some(xdp_mode.into()), Some(*zero_copy), queues.clone())
            }
        };
        Self {
            name: report.name.clone(),
            kind: (&report.kind).into(),
            xdp_mode,
            zero_copy,
            queues,
            deferred_napis: deferred_napis.to_vec(),
            rx_descriptors: report.rx_descriptors,
            peak_rate_pps: report.peak.map(|peak| peak.rate.as_pps()),
            peak_rate_from: report.peak.map(|peak| peak.from.into()),
        }
    }
}

/// The bound of the rings.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Descriptors of the ring that overflows first.
    pub descriptors: u32,
    /// The rate at which it fills.
    pub peak_rate_pps: u64,
    /// The longest absence: descriptors / rate.
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
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Its number.
    pub worker: usize,
    /// How it ended.
    pub ended: Name<WorkerEnded>,
    /// Why it failed; `null` if it did not.
    pub error: Option<String>,
    /// Its counters; `null` if it failed before it ran.
    pub counts: Option<WorkerCounts>,
}

/// What a worker counted.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct WorkerCounts {
    /// Its thread.
    pub tid: u32,
    /// The kernel's scheduling class.
    pub scheduling: Name<SchedulingClass>,
    /// The real-time priority; 0 in other classes.
    pub priority: u64,
    /// From its making to its end.
    pub ran_ns: u64,
    /// Share of that time on a CPU; `null` if the kernel does not tell.
    pub cpu_ratio: Option<f64>,
    /// Whether received = sent + dropped.
    pub accounted: bool,
    /// All counters.
    pub total: Total,
    /// What its devices say.
    pub devices: Vec<DeviceCounts>,
}

impl WorkerCounts {
    /// Of the last snapshot.
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

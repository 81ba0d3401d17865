//! An instance: ports, an application, a mode, and one worker for each CPU that it was given.
//!
//! ```text
//!   InstanceConfig ─► Instance::start ─► (running: telemetry, signals) ─► Instance::finish ─► Outcome
//! ```
//! Everything is opened before the first worker starts, so that what is missing is said at once.
//! Dropping the workers closes the sockets, detaches the program and restores what was changed.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use policy::LossBound;
use policy::wait::{Policy, WaitPolicy};
use units::{BitRate, Monotonic, PacketRate};

use crate::Error;
use crate::app::headers::Mac;
use crate::app::{AnyApp, App, AppConfig, PortInfo};
use crate::cpu::LinuxCpu;
use crate::device::Device;
use crate::device::afxdp::{AfXdpDevice, Interface, InterfaceConfig, SocketConfig, XdpMode, XskContext};
use crate::mode::{Mode, ModeText};
use crate::os::{self, Scheduling, Signals};
use crate::pool::{Pool, PoolConfig};
use crate::record::Recording;
use crate::telemetry::{Identity, Reader, Snapshot, Telemetry};
use crate::worker::{Finish, Stop, Worker};

/// Octets of the shortest Ethernet frame, with its check sequence (IEEE 802.3-2018, 3.2.7): what a
/// peak rate is reckoned in if only a line rate is known.
const SHORTEST_FRAME: u64 = 64;
/// The line rate that is assumed for a port whose driver knows none. [`PortReport`] says so.
pub const ASSUMED_SPEED: BitRate = BitRate::new(10_000_000_000);

/// What to run.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// The name under which telemetry is found.
    pub name: String,
    /// The interfaces, in the order of their port numbers.
    pub ports: Vec<InterfaceConfig>,
    /// How their sockets are made.
    pub sockets: SocketConfig,
    /// What is done to each frame.
    pub app: AppConfig,
    /// How the workers wait. The loss bound of `adaptive` is filled in by [`Instance::start`].
    pub mode: Mode,
    /// The highest rate at which packets may arrive at one queue; `None` takes the line rate.
    pub peak_rate: Option<PacketRate>,
    /// One entry a worker: where and in what class it runs.
    pub workers: Vec<Scheduling>,
    /// Frames of memory for each worker; `None` takes what its rings can hold and a burst more.
    pub pool_frames: Option<u32>,
    /// Octets a slot, and whether in huge pages.
    pub frame_size: u32,
    /// Ask for huge pages.
    pub huge_pages: bool,
    /// Keep all memory in RAM.
    pub lock_memory: bool,
    /// Where telemetry lies.
    pub telemetry_root: PathBuf,
    /// Record so many decisions of each worker.
    pub record: Option<usize>,
}

/// What a port turned out to be.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The interface.
    pub name: String,
    /// Where the XDP program runs.
    pub xdp_mode: XdpMode,
    /// Whether the driver receives straight into the pool.
    pub zero_copy: bool,
    /// Descriptors of its receive ring.
    pub rx_descriptors: u32,
    /// The rate that the loss bound reckons with.
    pub peak_rate: PacketRate,
    /// Where that rate comes from.
    pub peak_rate_from: PeakRateSource,
    /// NAPIs whose interrupts are deferred while it runs.
    pub deferred_napis: Vec<u32>,
}

/// Where a peak rate comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeakRateSource {
    /// The user said it.
    Given,
    /// Shortest frames at the line rate that the driver states.
    LineRate,
    /// Shortest frames at [`ASSUMED_SPEED`], because the driver states none.
    Assumed,
}

/// A running instance.
#[derive(Debug)]
pub struct Instance {
    ports: Vec<PortReport>,
    mode: Mode,
    stop: Stop,
    workers: Vec<JoinHandle<WorkerEnd>>,
}

/// How an instance ended.
#[derive(Debug)]
pub struct Outcome {
    /// One entry a worker.
    pub workers: Vec<WorkerEnd>,
}

/// How one worker ended.
#[derive(Debug)]
pub struct WorkerEnd {
    /// Why it ended.
    pub result: Result<Finish, Error>,
    /// Its counters at the end; `None` if they could not be read.
    pub counts: Option<Snapshot>,
    /// What was recorded, as the lines of a file.
    pub record: Option<Vec<u8>>,
}

impl Instance {
    /// Opens the ports and starts the workers.
    pub fn start(config: &InstanceConfig) -> Result<Self, Error> {
        if config.workers.is_empty() {
            return Err(Error::Invalid { what: "an instance without workers".into(), why: "give it a CPU".into() });
        }
        if config.lock_memory {
            os::lock_memory()?;
        }
        let mut infos = Vec::new();
        let mut reports = Vec::new();
        let mut interfaces = Vec::new();
        for port in &config.ports {
            check_spread(port, config.workers.len())?;
            let interface = Interface::attach(port)?;
            let facts = os::interface_facts(&port.name)?;
            let (peak_rate, peak_rate_from) = match (config.peak_rate, facts.speed) {
                (Some(rate), _) => (rate, PeakRateSource::Given),
                (None, Some(speed)) => (speed.frames_of(SHORTEST_FRAME), PeakRateSource::LineRate),
                (None, None) => (ASSUMED_SPEED.frames_of(SHORTEST_FRAME), PeakRateSource::Assumed),
            };
            infos.push(PortInfo { name: port.name.clone(), mac: Mac::new(facts.mac) });
            reports.push(PortReport {
                name: port.name.clone(),
                xdp_mode: interface.mode(),
                zero_copy: false,
                rx_descriptors: config.sockets.rings.rx,
                peak_rate,
                peak_rate_from,
                deferred_napis: interface.deferred_napis(),
            });
            interfaces.push(interface);
        }
        let app = config.app.build(&infos)?;
        let mode = with_loss_bound(config.mode, &reports);
        let stop = Stop::default();
        let mut ready = Vec::new();
        for (number, scheduling) in config.workers.iter().enumerate() {
            let id = Identity {
                instance: config.name.clone(),
                worker: number as u32,
                app: config.app.name().into(),
                mode: mode.name().into(),
                goal: mode.goal().map(|goal| goal.to_string()),
                ports: infos.iter().map(|info| info.name.clone()).collect(),
                cpu: scheduling.cpu.map(|cpu| cpu as u32),
            };
            let telemetry = Telemetry::create(&config.telemetry_root, &id)?;
            let (devices, pool) = open_devices(config, &interfaces, number)?;
            for (report, device) in reports.iter_mut().zip(&devices) {
                report.zero_copy = device.capabilities().zero_copy;
            }
            ready.push((*scheduling, devices, pool, telemetry));
        }
        let mut workers = Vec::new();
        for (scheduling, devices, pool, telemetry) in ready {
            let (app, stop, record) = (app.clone(), stop.clone(), config.record);
            let start = move || match app {
                AnyApp::Drop(app) => work(app, devices, pool, telemetry, mode, scheduling, stop, record),
                AnyApp::MacSwap(app) => work(app, devices, pool, telemetry, mode, scheduling, stop, record),
                AnyApp::L2Fwd(app) => work(app, devices, pool, telemetry, mode, scheduling, stop, record),
                AnyApp::UdpEcho(app) => work(app, devices, pool, telemetry, mode, scheduling, stop, record),
                AnyApp::L3Fwd(app) => work(app, devices, pool, telemetry, mode, scheduling, stop, record),
            };
            let thread = std::thread::Builder::new()
                .name(format!("apus-{}", workers.len()))
                .spawn(start)
                .map_err(|e| Error::system("start a worker's thread", e))?;
            workers.push(thread);
        }
        Ok(Self { ports: reports, mode, stop, workers })
    }

    /// What the ports turned out to be.
    pub fn ports(&self) -> &[PortReport] {
        &self.ports
    }

    /// The mode with its loss bound.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// For asking the workers to end.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Waits until a termination signal comes, `duration` is over or a worker ends; then ends all.
    pub fn run(self, signals: &Signals, duration: Option<Duration>) -> Outcome {
        let end = duration.map(|span| std::time::Instant::now() + span);
        loop {
            let left = end.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            let slice = left.unwrap_or(Duration::MAX).min(Duration::from_millis(100));
            if signals.wait(slice).is_some() || left.is_some_and(|l| l.is_zero()) {
                break;
            }
            if self.workers.iter().any(JoinHandle::is_finished) {
                break;
            }
        }
        self.finish()
    }

    /// Ends all workers and gathers what they have to say.
    pub fn finish(self) -> Outcome {
        self.stop.request();
        let ended = self.workers.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|panic| WorkerEnd {
                result: Err(Error::System {
                    what: "a worker panicked; its ports are closed".into(),
                    source: std::io::Error::other(panic_text(&*panic)),
                }),
                counts: None,
                record: None,
            })
        });
        Outcome { workers: ended.collect() }
    }
}

/// Every worker needs a queue of every port.
fn check_spread(port: &InterfaceConfig, workers: usize) -> Result<(), Error> {
    if port.queues.len() >= workers {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!("{workers} workers on the {} queue(s) of {}", port.queues.len(), port.name),
        why: format!(
            "every worker needs a queue of its own on each port; name more queues ({}:0-{})",
            port.name,
            workers - 1
        ),
    })
}

fn with_loss_bound(mode: Mode, ports: &[PortReport]) -> Mode {
    match mode {
        Mode::Adaptive { goal, interrupts, .. } => {
            let bounds = ports.iter().map(|p| LossBound { descriptors: p.rx_descriptors, peak: p.peak_rate });
            Mode::Adaptive { goal, loss: bounds.min_by_key(|bound| bound.longest_absence()), interrupts }
        }
        other => other,
    }
}

/// The devices of one worker: of each port the queues whose place is the worker's number, modulo
/// the number of workers.
fn open_devices(
    config: &InstanceConfig,
    interfaces: &[Interface],
    worker: usize,
) -> Result<(Vec<Box<dyn Device>>, Pool), Error> {
    let share = |port: &InterfaceConfig| -> Vec<u32> {
        port.queues.iter().copied().skip(worker).step_by(config.workers.len()).collect()
    };
    let queues: usize = config.ports.iter().map(|port| share(port).len()).sum();
    let needed = config.sockets.slots_per_queue() * queues as u32 + 4 * crate::worker::BURST as u32;
    let mut pool = Pool::new(PoolConfig {
        frames: config.pool_frames.unwrap_or(needed),
        frame_size: config.frame_size,
        huge_pages: config.huge_pages,
    })?;
    let mut context = XskContext::new(&pool);
    let mut devices: Vec<Box<dyn Device>> = Vec::new();
    for (interface, port) in interfaces.iter().zip(&config.ports) {
        let device = AfXdpDevice::open(interface, &share(port), &config.sockets, &mut context, &mut pool)?;
        devices.push(Box::new(device));
    }
    Ok((devices, pool))
}

/// A worker's thread, from its first line to its last.
#[allow(clippy::too_many_arguments)] // the parts of one worker, each used once
fn work<A: App>(
    app: A,
    devices: Vec<Box<dyn Device>>,
    pool: Pool,
    telemetry: Telemetry,
    mode: Mode,
    scheduling: Scheduling,
    stop: Stop,
    record: Option<usize>,
) -> WorkerEnd {
    match record {
        None => drive(app, devices, pool, telemetry, mode.policy(), scheduling, stop, |_| None),
        Some(limit) => {
            let policy = Recording::<Policy<Monotonic>>::new(mode.policy(), limit);
            drive(app, devices, pool, telemetry, policy, scheduling, stop, |policy| {
                let mut text = Vec::new();
                policy.write(&ModeText::from(mode), &mut text).ok().map(|()| text)
            })
        }
    }
}

#[allow(clippy::too_many_arguments)] // as above
fn drive<A: App, P: WaitPolicy<Monotonic>>(
    app: A,
    devices: Vec<Box<dyn Device>>,
    pool: Pool,
    telemetry: Telemetry,
    policy: P,
    scheduling: Scheduling,
    stop: Stop,
    record: impl FnOnce(&P) -> Option<Vec<u8>>,
) -> WorkerEnd {
    let path = telemetry.path().to_owned();
    let run = || {
        os::place_this_thread(scheduling)?;
        telemetry.runs_here()?;
        Worker::new(devices, pool, app, policy, LinuxCpu, telemetry, stop)
    };
    match run() {
        Err(error) => WorkerEnd { result: Err(error), counts: None, record: None },
        Ok(mut worker) => {
            let result = worker.run();
            let counts = Reader::open(&path).ok().map(|reader| reader.snapshot());
            WorkerEnd { result, counts, record: record(worker.policy()) }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

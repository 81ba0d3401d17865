//! An instance: a set of ports, an application, a waiting mode, and one or more workers.
//!
//! ```text
//!   InstanceConfig ─► Instance::start ─► (running: telemetry, signals) ─► Instance::finish ─► Outcome
//! ```
//! All ports are opened before the first worker starts, so that anything missing is reported at once. When the workers
//! are dropped, the sockets are closed. The XDP programs are detached when the [`Outcome`] is dropped, so that settings
//! of the ports' queues can be restored before.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::LossBound;
use policy::wait::{AdaptiveConfig, Mode, Policy, WaitPolicy, WakeCosts};
use units::{Monotonic, Nanos, PacketRate};

use crate::Error;
use crate::app::{AnyApp, App, AppConfig};
use crate::cpu::LinuxCpu;
use crate::device::Device;
use crate::device::afxdp::SocketConfig;
use crate::hold_off::{self, HoldOff};
use crate::idle_limit::IdleLimit;
use crate::mode::ModeText;
use crate::os::{self, Scheduling, Signals};
use crate::pool::{Pool, PoolConfig};
use crate::port::{OpenPort, Opening, PortConfig, PortReport, Share, WrapperReport, Wrappers};
use crate::record::{Known, MOST_QUEUES, Recording};
use crate::telemetry::{Identity, Reader, Snapshot, Telemetry, Usage};
use crate::worker::{Finish, Stop, Worker};

/// Configuration of an instance.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// The instance's name, under which other programs find its telemetry.
    pub name: String,
    /// The ports. A port's position is its number, from 0.
    pub ports: Vec<PortConfig>,
    /// Settings of the ports' AF_XDP sockets.
    pub sockets: SocketConfig,
    /// The application that handles each frame.
    pub app: AppConfig,
    /// The waiting mode of the workers. [`Instance::start`] computes and sets the loss bound of `adaptive`, which
    /// limits waits so that no ring overflows.
    pub mode: Mode,
    /// How late waits end on this machine, measured earlier. If `None`, `adaptive` learns it while it runs. Other modes
    /// ignore it.
    pub costs: Option<WakeCosts>,
    /// The highest rate at which packets may arrive at one queue, as stated by the user. `None` means minimum-size
    /// frames at line rate.
    pub peak_rate: Option<PacketRate>,
    /// CPU and scheduling class of each worker, one entry per worker.
    pub workers: Vec<Scheduling>,
    /// Number of frame slots in each worker's pool. `None` means as many as the worker's rings can hold, plus four
    /// bursts.
    pub pool_frames: Option<u32>,
    /// Size of a frame slot, in bytes.
    pub frame_size: u32,
    /// Whether to ask for huge pages for the frame slots.
    pub huge_pages: bool,
    /// Whether to lock all memory of the process in RAM.
    pub lock_memory: bool,
    /// The longest hold-off that the mode `adaptive` may choose for its queues ([`Instance::hold_offs`]), so that no
    /// ring of a driver overflows meanwhile. `None` if it chooses none. All ports must be AF_XDP ports.
    pub longest_hold_off: Option<Nanos>,
    /// With the mode `adaptive`: the limits of the exit latency that the workers choose, one entry per worker, which must
    /// be pinned to the limit's CPU. Empty if they choose none. Whoever opened the files restores them.
    pub idle_limits: Vec<IdleLimit>,
    /// The directory in which telemetry files are created.
    pub telemetry_root: PathBuf,
    /// Maximum number of decisions of the wait policy to record per worker. `None` records nothing.
    pub record: Option<usize>,
    /// Wrappers around the devices, which inject faults, log calls or capture frames.
    pub wrappers: Wrappers,
}

/// A running instance. It runs until [`Instance::run`] or [`Instance::finish`] ends it.
#[derive(Debug)]
pub struct Instance {
    ports: Vec<PortReport>,
    mode: Mode,
    stop: Stop,
    workers: Vec<JoinHandle<WorkerEnd>>,
    /// Number of workers whose ports have no more frames.
    exhausted: Arc<AtomicUsize>,
    readers: Vec<Reader>,
    wrappers: Vec<WrapperReport>,
    hold_offs: Vec<HoldOff>,
    held: Vec<Box<dyn Any + Send>>,
}

/// Time between two calls of [`Instance::run`]'s `look`.
const LOOK: Duration = Duration::from_millis(100);

/// How an instance ended.
#[derive(Debug)]
pub struct Outcome {
    /// The reason for the end.
    pub cause: Cause,
    /// One entry per worker, in the order of their numbers.
    pub workers: Vec<WorkerEnd>,
    /// The reports of the wrappers. Empty if there are none.
    pub wrappers: Vec<WrapperReport>,
    /// What stays in place while this value exists ([`OpenPort::hold`]), so that settings of the ports' queues can be
    /// restored.
    pub held: Vec<Box<dyn Any + Send>>,
}

/// The reason why an instance ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The user asked the instance to stop: a termination signal arrived, or the program called [`Instance::finish`].
    Asked,
    /// The requested duration was over.
    Duration,
    /// All workers ended because their ports had no more frames, or one ended because of an error.
    Worker,
}

/// How one worker ended.
#[derive(Debug)]
pub struct WorkerEnd {
    /// Why the worker ended.
    pub result: Result<Finish, Error>,
    /// The worker's counters at the end. `None` if they could not be read.
    pub counts: Option<Snapshot>,
    /// The CPU time of the worker's thread. `None` if the kernel does not report it.
    pub usage: Option<Usage>,
    /// The recorded decisions, in the format of a record file. `None` if no recording was requested.
    pub record: Option<Vec<u8>>,
}

impl Instance {
    /// Opens the ports and starts the workers.
    pub fn start(config: &InstanceConfig) -> Result<Self, Error> {
        if config.workers.is_empty() {
            return Err(Error::Invalid { what: "an instance without workers".into(), why: "give it a CPU".into() });
        }
        let count = config.workers.len();
        if !(config.idle_limits.is_empty() || config.idle_limits.len() == count) {
            let what = format!("{} limits of the exit latency for {count} workers", config.idle_limits.len());
            return Err(Error::Invalid { what, why: "give one for each worker, or none".into() });
        }
        let (mut ports, mut infos, mut reports) = (Vec::new(), Vec::new(), Vec::new());
        for (number, port) in config.ports.iter().enumerate() {
            let opening = Opening { number, workers: count, sockets: &config.sockets, peak_rate: config.peak_rate };
            let port = port.open(&opening)?;
            infos.push(port.info());
            reports.push(port.report());
            ports.push(port);
        }
        // Locks memory only after opening the ports: a user without privileges must see the error of the ports first,
        // because the privileges for these also suffice to lock memory. None of the locked memory is in use yet.
        if config.lock_memory {
            os::lock_memory()?;
        }
        let app = config.app.build(&infos)?;
        let mode = with_loss_bound(config.mode, &reports);
        let stop = Stop::default();
        let (mut ready, mut readers, mut wrappers) = (Vec::new(), Vec::new(), Vec::new());
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
            readers.push(Reader::open(telemetry.path())?);
            let (bare, pool) = open_devices(config, &ports, number)?;
            let queues: usize = bare.iter().map(|device| device.queues()).sum();
            if config.record.is_some() && queues > MOST_QUEUES {
                return Err(Error::Invalid {
                    what: format!("a record of a worker with {queues} queues"),
                    why: format!("a record file holds at most {MOST_QUEUES}; give fewer queues, or omit --record"),
                });
            }
            let mut devices = Vec::new();
            for (port, device) in bare.into_iter().enumerate() {
                ports[port].learn(&*device, &mut reports[port]);
                let alone = count == 1 && ports.len() == 1;
                let (device, wrapper) = config.wrappers.wrap(device, (number, port), alone)?;
                devices.push(device);
                wrappers.push(wrapper);
            }
            ready.push((*scheduling, devices, pool, telemetry));
        }
        let (mut workers, mut hold_offs, exhausted) = (Vec::new(), Vec::new(), Arc::<AtomicUsize>::default());
        for (scheduling, devices, pool, telemetry) in ready {
            let (app, stop, record, costs) = (app.clone(), stop.clone(), config.record, config.costs);
            let hold_off = config.longest_hold_off.map(|longest| (HoldOff::default(), longest));
            hold_offs.extend(hold_off.iter().map(|(hold_off, _)| hold_off.clone()));
            let choices = Choices { mode, costs, hold_off, idle_limit: config.idle_limits.get(workers.len()).cloned() };
            let start = move || match app {
                AnyApp::Drop(app) => work(app, devices, pool, telemetry, choices, scheduling, stop, record),
                AnyApp::MacSwap(app) => work(app, devices, pool, telemetry, choices, scheduling, stop, record),
                AnyApp::L2Fwd(app) => work(app, devices, pool, telemetry, choices, scheduling, stop, record),
                AnyApp::UdpEcho(app) => work(app, devices, pool, telemetry, choices, scheduling, stop, record),
                AnyApp::L3Fwd(app) => work(app, devices, pool, telemetry, choices, scheduling, stop, record),
            };
            let count = exhausted.clone();
            let counted = move || {
                let end = start();
                if matches!(end.result, Ok(Finish::Exhausted)) {
                    count.fetch_add(1, Relaxed);
                }
                end
            };
            let thread = std::thread::Builder::new()
                .name(format!("apus-{}", workers.len()))
                .spawn(counted)
                .map_err(|e| Error::system("start a worker's thread", e))?;
            workers.push(thread);
        }
        let held = ports.iter().filter_map(|port| port.hold()).collect();
        Ok(Self { ports: reports, mode, stop, workers, exhausted, readers, wrappers, hold_offs, held })
    }

    /// The properties of the opened ports, in the order of their numbers.
    pub fn ports(&self) -> &[PortReport] {
        &self.ports
    }

    /// The mode in use, with its loss bound (see [`InstanceConfig::mode`]) set.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The hold-off of each worker's queues, in the order of the workers. Empty unless
    /// [`InstanceConfig::longest_hold_off`] is set.
    pub fn hold_offs(&self) -> &[HoldOff] {
        &self.hold_offs
    }

    /// The current counters of each worker.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.readers.iter().map(Reader::snapshot).collect()
    }

    /// A handle with which any thread can ask the workers to stop.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Waits until a termination signal arrives, `duration` is over, a worker fails or the ports of all workers have no
    /// more frames, then stops all workers. Until then, calls `look` about ten times per second, and more often if
    /// workers choose a hold-off.
    pub fn run(self, signals: &Signals, duration: Option<Duration>, mut look: impl FnMut(&Self)) -> Outcome {
        let interval =
            if self.hold_offs.is_empty() { LOOK } else { Duration::from_nanos(hold_off::INTERVAL.as_nanos()) };
        let end = duration.map(|span| std::time::Instant::now() + span);
        let cause = loop {
            let left = end.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            let slice = left.unwrap_or(Duration::MAX).min(interval);
            if signals.wait(slice).is_some() {
                break Cause::Asked;
            }
            // A worker whose ports have no more frames leaves the others to handle theirs.
            let ended = self.workers.iter().filter(|worker| worker.is_finished()).count();
            if ended == self.workers.len() || ended > self.exhausted.load(Relaxed) {
                break Cause::Worker;
            }
            if left.is_some_and(|l| l.is_zero()) {
                break Cause::Duration;
            }
            look(&self);
        };
        self.end(cause)
    }

    /// Stops all workers and collects their results.
    pub fn finish(self) -> Outcome {
        self.end(Cause::Asked)
    }

    fn end(self, cause: Cause) -> Outcome {
        self.stop.request();
        let ended = self.workers.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|panic| WorkerEnd {
                result: Err(Error::System {
                    what: "go on: a worker panicked, and its ports are closed".into(),
                    source: std::io::Error::other(panic_text(&*panic)),
                }),
                counts: None,
                usage: None,
                record: None,
            })
        });
        Outcome { cause, workers: ended.collect(), wrappers: self.wrappers, held: self.held }
    }
}

fn with_loss_bound(mode: Mode, ports: &[PortReport]) -> Mode {
    match mode {
        Mode::Adaptive(config) => {
            let bound = |p: &PortReport| p.peak.map(|peak| LossBound { descriptors: p.rx_room, peak: peak.rate });
            let bounds = ports.iter().filter_map(bound);
            let loss = bounds.min_by_key(|bound| bound.longest_absence());
            Mode::Adaptive(AdaptiveConfig { loss, ..config })
        }
        other => other,
    }
}

/// Creates the pool of one worker, and opens the worker's devices, which share it.
fn open_devices(
    config: &InstanceConfig,
    ports: &[Box<dyn OpenPort>],
    worker: usize,
) -> Result<(Vec<Box<dyn Device>>, Pool), Error> {
    let slots: u32 = ports.iter().map(|port| port.slots(worker)).sum();
    let needed = slots + 4 * crate::worker::BURST as u32;
    for port in ports {
        if port.least_frame_size() > config.frame_size {
            return Err(Error::Invalid {
                what: format!("slots of {} bytes for {}", config.frame_size, port.info().name),
                why: format!("its driver needs at least {} bytes per slot", port.least_frame_size()),
            });
        }
    }
    let mut pool = Pool::new(PoolConfig {
        frames: config.pool_frames.unwrap_or(needed),
        frame_size: config.frame_size,
        huge_pages: config.huge_pages,
    })?;
    let mut share = Share::new(&mut pool);
    let devices = ports.iter().map(|port| port.device(worker, &mut share)).collect::<Result<_, _>>()?;
    Ok((devices, pool))
}

/// How a worker waits, and what its policy chooses besides.
struct Choices {
    mode: Mode,
    costs: Option<WakeCosts>,
    /// The hold-off of the queues, and the longest one. `None` if the policy does not choose it.
    hold_off: Option<(HoldOff, Nanos)>,
    /// The limit of the CPU's exit latency. `None` if the policy does not choose it.
    idle_limit: Option<IdleLimit>,
}

/// The body of a worker's thread.
#[allow(clippy::too_many_arguments)] // the parts of one worker, each used once
fn work<A: App>(
    app: A,
    devices: Vec<Box<dyn Device>>,
    pool: Pool,
    telemetry: Telemetry,
    Choices { mode, costs, hold_off, idle_limit }: Choices,
    scheduling: Scheduling,
    stop: Stop,
    record: Option<usize>,
) -> WorkerEnd {
    let mut policy = mode.policy();
    costs.iter().for_each(|costs| policy.know(costs));
    let (hold_off, longest) = hold_off.unzip();
    if let Some(longest) = longest {
        policy.expect_held_frames(longest);
    }
    if let Some(limit) = &idle_limit {
        policy.know_idle_states(limit.states());
    }
    let states = idle_limit.as_ref().map(|limit| limit.states().to_vec());
    let chosen = (hold_off, idle_limit);
    match record {
        None => drive(app, devices, pool, telemetry, (policy, chosen), scheduling, stop, |_| None),
        Some(limit) => {
            let policy = Recording::<Policy<Monotonic>>::new(policy, limit);
            drive(app, devices, pool, telemetry, (policy, chosen), scheduling, stop, |policy| {
                let mut text = Vec::new();
                let known = Known { costs: costs.as_ref(), longest_hold_off: longest, idle_states: states.as_deref() };
                policy.write(&ModeText::from(mode), &known, &mut text).ok().map(|()| text)
            })
        }
    }
}

#[allow(clippy::too_many_arguments)] // see `work`
fn drive<A: App, P: WaitPolicy<Monotonic>>(
    app: A,
    devices: Vec<Box<dyn Device>>,
    pool: Pool,
    telemetry: Telemetry,
    (policy, (hold_off, idle_limit)): (P, (Option<HoldOff>, Option<IdleLimit>)),
    scheduling: Scheduling,
    stop: Stop,
    record: impl FnOnce(&P) -> Option<Vec<u8>>,
) -> WorkerEnd {
    let path = telemetry.path().to_owned();
    let run = || -> Result<_, Error> {
        os::place_this_thread(scheduling)?;
        telemetry.runs_here()?;
        let mut worker = Worker::new(devices, pool, app, policy, LinuxCpu, telemetry, stop)?;
        if let Some(hold_off) = hold_off {
            worker = worker.with_hold_off(hold_off);
        }
        if let Some(limit) = idle_limit {
            worker = worker.with_idle_limit(limit);
        }
        // Drop privileges before the first frame is handled.
        os::give_up_privileges()?;
        Ok(worker)
    };
    match run() {
        Err(error) => WorkerEnd { result: Err(error), counts: None, usage: None, record: None },
        Ok(mut worker) => {
            let result = worker.run();
            let counts = Reader::open(&path).ok().map(|reader| reader.snapshot());
            let usage = counts.as_ref().and_then(|counts| Usage::of(counts.process.pid, counts.tid));
            WorkerEnd { result, counts, usage, record: record(worker.policy()) }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::app::PortInfo;
    use crate::app::headers::Mac;
    use crate::device::memory::{LinkConfig, LinkState, MemoryDevice, MemoryHandle};
    use crate::port::{Backend, PortKind};
    use crate::telemetry::State;

    /// A port that has a device for each worker, the last worker's first.
    #[derive(Debug, Default)]
    struct Devices(Mutex<Vec<MemoryDevice>>);

    impl Backend for Devices {
        fn open(&self, _opening: &Opening<'_>) -> Result<Box<dyn OpenPort>, Error> {
            let devices = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            Ok(Box::new(Self(Mutex::new(devices))))
        }
    }

    impl OpenPort for Devices {
        fn info(&self) -> PortInfo {
            PortInfo { name: "p".into(), mac: Mac::new([2, 0, 0, 0, 0, 1]) }
        }
        fn report(&self) -> PortReport {
            PortReport {
                name: "p".into(),
                kind: PortKind::Memory,
                driver: None,
                rx_descriptors: 512,
                rx_room: 512,
                peak: None,
            }
        }
        fn slots(&self, _worker: usize) -> u32 {
            512
        }
        fn device(&self, _worker: usize, _share: &mut Share<'_>) -> Result<Box<dyn Device>, Error> {
            Ok(Box::new(self.0.lock().unwrap().pop().unwrap()))
        }
    }

    /// An instance of two workers, and the other ends of their ports.
    fn two(name: &str) -> (Instance, [MemoryHandle; 2], PathBuf) {
        let port = || MemoryDevice::scripted("p", LinkConfig::default()).unwrap();
        let ((first, far), (second, far_of_second)) = (port(), port());
        let root = std::env::temp_dir().join(format!("apus-instance-{name}-{}", std::process::id()));
        let config = InstanceConfig {
            name: name.into(),
            ports: vec![Arc::new(Devices(Mutex::new(vec![second, first])))],
            sockets: SocketConfig::default(),
            app: AppConfig::Drop,
            mode: Mode::Interrupt,
            costs: None,
            peak_rate: None,
            workers: vec![Scheduling::default(); 2],
            pool_frames: None,
            frame_size: PoolConfig::default().frame_size,
            huge_pages: false,
            lock_memory: false,
            telemetry_root: root.clone(),
            record: None,
            longest_hold_off: None,
            idle_limits: Vec::new(),
            wrappers: Wrappers::default(),
        };
        (Instance::start(&config).unwrap(), [far, far_of_second], root)
    }

    /// The first worker that was finished once stopped the other, whose frames were lost.
    #[test]
    fn it_ends_when_the_last_worker_has_no_more_frames() {
        let (instance, [first, second], root) = two("last");
        first.set_state(LinkState::Finished);
        let mut is_pushed = false;
        let outcome = instance.run(&Signals::hold().unwrap(), None, |instance| {
            // The second worker's frames come when the first has ended.
            if !is_pushed && instance.workers[0].is_finished() {
                is_pushed = true;
                (0..5).for_each(|_| assert!(second.push(0, &[1; 60], None)));
                second.set_state(LinkState::Finished);
            }
        });
        std::fs::remove_dir_all(root).unwrap();
        assert_eq!(outcome.cause, Cause::Worker);
        let ends = outcome.workers.iter().map(|end| end.result.as_ref().unwrap());
        assert!(ends.eq([&Finish::Exhausted; 2]), "{:?}", outcome.workers);
        assert_eq!(outcome.workers[1].counts.as_ref().unwrap().counts.received_frames, 5);
    }

    #[test]
    fn a_worker_that_fails_ends_the_others() {
        let (instance, [first, _second], root) = two("fails");
        first.set_state(LinkState::Lost);
        let outcome = instance.run(&Signals::hold().unwrap(), None, |_| {});
        std::fs::remove_dir_all(root).unwrap();
        assert_eq!(outcome.cause, Cause::Worker);
        assert!(outcome.workers[0].result.is_err());
        assert_eq!(outcome.workers[1].counts.as_ref().unwrap().state, Some(State::Stopped));
    }
}

//! The test bed: a lab, an instance under test in one of its namespaces, the tester in the other.
//!
//! ```text
//!  Bed::up ─► Bed::with(mode) ─► Session::learn, measure, search … ─► (instance ends) ─► Bed::down
//!
//!   namespace tx                                  namespace dut
//!   tester's thread, spinning ── tx0 ═══ dut0 ── worker of the instance (macswap)
//!   CPU a                                         CPU b
//! ```
//! The instance runs in this process, on a separate thread. Its CPU time is the thread's CPU time, read right before
//! and right after the trial. Its telemetry shows when the thread did not run. Everything that a bed creates has the
//! bed's name, and is removed when the bed is dropped.

use std::fmt;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live::Error as LiveError;
use live::app::AppConfig;
use live::device::afxdp::{AfXdpDevice, Interface, InterfaceConfig, SocketConfig, XskContext};
use live::device::{Device, Health};
use live::instance::{Instance, InstanceConfig, Outcome};
use live::mode::Mode;
use live::os::{self, Scheduling};
use live::pool::{Pool, PoolConfig};
use live::port::{PortReport, Wrappers};
use live::telemetry::{self, Counts, Reader, State};
use units::{Nanos, PacketRate, Quantile};

use crate::clock::{MonotonicClock, TrialClock as _};
use crate::cpu::{self, CpuUse, Threads};
use crate::document::{Energy, EnergyMeter};
use crate::frame::{Encapsulation, FrameSize, LOCAL_EXPERIMENTAL, Layout};
use crate::gaps::{Gap, Recovery, Second, Split, seconds};
use crate::host::HostState;
use crate::lab::{Guard, Lab, in_namespace};
use crate::quantile;
use crate::result::LatencyResult;
use crate::schedule::Schedule;
use crate::search::{self, BinarySearch, Search as _, SearchConfig};
use crate::trial::{self, Trial, TrialConfig};
use crate::{Error, result};

/// Name of the tester's interface in a lab made by [`Lab::pair`].
const TESTER_PORT: &str = "tx0";
const TESTED_PORT: &str = "dut0";
/// Time from the start of an instance until its worker must run and its link must be up.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// Time to settle at the start of each measured trial. Frames sent during this time are not counted, because the pause
/// before the trial still affects them.
const SETTLE: Nanos = Nanos::from_millis(50);
/// Time to wait for the last frames after a trial: about a thousand times the usual round trip.
const DRAIN: Nanos = Nanos::from_millis(50);
/// Number of frames in the pool in addition to those that fill the rings.
const SPARE_FRAMES: u32 = 1024;

/// Configuration of a test bed.
#[derive(Clone, Debug)]
pub struct BedConfig {
    /// Name of the lab and of the instance.
    pub name: String,
    /// CPU and SCHED_FIFO priority of the tester's thread.
    pub tester: Scheduling,
    /// CPU and SCHED_FIFO priority of the instance's worker.
    pub tested: Scheduling,
    /// Highest packet rate that the instance must expect. It limits the length of the worker's sleeps, so that the
    /// receive ring does not fill up.
    pub peak_rate: PacketRate,
    /// Size of the test frames.
    pub frame: FrameSize,
    /// Ring sizes and AF_XDP modes of both ports.
    pub sockets: SocketConfig,
    /// Folder for the telemetry of the instance.
    pub telemetry_root: PathBuf,
}

impl BedConfig {
    /// A bed with the smallest frames, on the first two CPUs of this process, under SCHED_FIFO 50.
    ///
    /// The peak rate is 3 Mpps: the highest rate at which a generator inside the kernel sent into a veth, on a VM with
    /// 2 CPUs.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let (tester, tested) = two_cpus()?;
        let on = |cpu| Scheduling { cpu: Some(cpu), fifo: Some(50) };
        Ok(Self {
            name: name.into(),
            tester: on(tester),
            tested: on(tested),
            peak_rate: PacketRate::new(3_000_000),
            frame: FrameSize::SMALLEST,
            sockets: SocketConfig::default(),
            telemetry_root: telemetry::ROOT.into(),
        })
    }
}

fn two_cpus() -> Result<(usize, usize), LiveError> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|e| LiveError::System { what: "read the CPUs of this process".into(), source: e.into() })?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    match (cpus.next(), cpus.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(LiveError::Lacking {
            what: "set up the test bed".into(),
            why: "this process may use only one CPU, but the tester and the tested worker need one each".into(),
            fix: "use a machine with two CPUs, or widen the cpuset: see Cpus_allowed_list in /proc/self/status".into(),
        }),
    }
}

/// A lab that is up and ready for instances.
#[derive(Debug)]
pub struct Bed {
    config: BedConfig,
    guard: Guard,
    _claim: Claim,
}

impl Bed {
    /// Creates the lab, after removing what an earlier bed of this name left behind.
    pub fn up(config: BedConfig) -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Device(LiveError::Lacking {
                what: format!("make the lab {}", config.name),
                why: "network namespaces, AF_XDP and SCHED_FIFO need root".into(),
                fix: "try again with sudo".into(),
            }));
        }
        let claim = Claim::take(&config.name)?;
        let guard = Lab::pair(&config.name).up()?;
        Ok(Self { config, guard, _claim: claim })
    }

    /// The configuration of the bed.
    pub fn config(&self) -> &BedConfig {
        &self.config
    }

    /// Starts an instance in waiting mode `mode`, lets `work` measure it, and stops it.
    ///
    /// `work` runs on the tester's thread, in the tester's namespace.
    pub fn with<T: Send>(
        &self,
        mode: Mode,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        in_namespace(&self.guard.namespace("tx"), || {
            let mut session = Session::start(self, mode)?;
            let done = work(&mut session)?;
            session.end()?;
            Ok(done)
        })?
    }

    /// Removes the lab and reports errors; dropping the bed also removes it.
    pub fn down(self) -> Result<(), Error> {
        self.guard.down()?;
        Ok(())
    }
}

/// Reserves the name of a lab for this process. The claim is a socket in the abstract namespace (unix(7)), so it
/// disappears when the process ends, even if the process is killed.
struct Claim(#[allow(dead_code)] UnixDatagram); // held, never used

impl Claim {
    fn take(name: &str) -> Result<Self, LiveError> {
        let bound = SocketAddr::from_abstract_name(format!("apus-bed-{name}"))
            .and_then(|address| UnixDatagram::bind_addr(&address));
        bound.map(Self).map_err(|error| LiveError::Lacking {
            what: format!("make the lab {name}"),
            why: match error.kind() {
                std::io::ErrorKind::AddrInUse => "another process is measuring in a lab of this name".into(),
                _ => error.to_string(),
            },
            fix: "wait until it ends, or choose another --name".into(),
        })
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}

/// A running instance, and the tester at the other end of the instance's link.
pub struct Session {
    instance: Option<Instance>,
    ports: Vec<PortReport>,
    reader: Reader,
    device: AfXdpDevice,
    pool: Pool,
    layout: Layout,
    stream: u16,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Session {
    fn start(bed: &Bed, mode: Mode) -> Result<Self, Error> {
        let config = &bed.config;
        let instance = InstanceConfig {
            name: config.name.clone(),
            ports: vec![Arc::new(InterfaceConfig::new(TESTED_PORT))],
            sockets: config.sockets,
            app: AppConfig::MacSwap,
            mode,
            costs: None,
            peak_rate: Some(config.peak_rate),
            workers: vec![config.tested],
            pool_frames: None,
            frame_size: PoolConfig::default().frame_size,
            huge_pages: false,
            lock_memory: true,
            longest_hold_off: None,
            idle_limits: Vec::new(),
            telemetry_root: config.telemetry_root.clone(),
            record: None,
            wrappers: Wrappers::default(),
        };
        let (instance, destination) = in_namespace(&bed.guard.namespace("dut"), || {
            let destination = os::interface_facts(TESTED_PORT)?.mac;
            Instance::start(&instance).map(|instance| (instance, destination))
        })??;
        let (instance, reader) =
            running(instance, &telemetry::own(&config.telemetry_root).join(&config.name).join("worker-0"))?;
        let ports = instance.ports().to_vec();
        let opened = open_tester(config, destination);
        let (device, pool, layout) = match opened {
            Ok(parts) => parts,
            Err(error) => {
                instance.finish();
                return Err(error);
            }
        };
        let mut session = Self { instance: Some(instance), ports, reader, device, pool, layout, stream: 0 };
        session.wait_for_link()?;
        Ok(session)
    }

    /// How the ports of the instance were opened.
    pub fn ports(&self) -> &[PortReport] {
        &self.ports
    }

    /// The state of the host, including the scheduling class of the tester's thread.
    pub fn host(&self) -> HostState {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        HostState::read(Path::new("/"), std::process::id(), tid)
    }

    /// Sends traffic for `duration` so that the waiting mode adapts to it; nothing is measured.
    pub fn learn(&mut self, schedule: &Schedule, duration: Nanos, stop: &AtomicBool) -> Result<(), Error> {
        let config = self.trial_config(schedule, duration, Nanos::ZERO);
        self.run(&config, stop).map(drop)
    }

    /// Runs one trial that sends `schedule` for `duration`, after a short time to settle, which is not counted.
    pub fn measure(
        &mut self,
        schedule: &Schedule,
        seed: u64,
        duration: Nanos,
        stop: &AtomicBool,
    ) -> Result<Measurement, Error> {
        let config = TrialConfig { seed, ..self.trial_config(schedule, duration, SETTLE.min(duration / 10)) };
        let (tid, pid) = (self.reader.snapshot().tid, self.reader.process().pid);
        let threads = Threads::These(vec![tid]);
        let sample = || cpu::sample(Path::new("/"), pid, &threads, MonotonicClock.now());
        let (first, before) = (sample(), self.reader.snapshot().counts);
        let trial = self.run(&config, stop)?;
        let (second, after) = (sample(), self.reader.snapshot().counts);
        let cpu = match (&first, &second) {
            (Ok(first), Ok(second)) => cpu::difference(first, second).ok_or_else(|| "counters ran backwards".into()),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        };
        let end = trial.start + trial.sending + config.drain;
        let gaps = self.reader.gaps_between(trial.start, end);
        let tested_gaps = if gaps.overrun {
            Err("there were more gaps than the telemetry can hold".into())
        } else {
            Ok(gaps.spans.into_iter().map(|(start, end)| Gap { start, end }).collect::<Vec<_>>())
        };
        let recovery = Recovery::default();
        let split = trial.split(tested_gaps.as_deref().unwrap_or_default(), recovery);
        Ok(Measurement { config, trial, split, recovery, tested_gaps, cpu, counts: after.since(&before) })
    }

    /// Searches for the highest rate without loss, with evenly spaced frames.
    ///
    /// The tester or the worker may lose its CPU to something else for a while (see [`Gap`]). Frames lost during such a
    /// gap do not count against the worker, because at these rates its ring is full after a few milliseconds. If `stop`
    /// is set, returns the result so far.
    pub fn search(&mut self, config: SearchConfig, stop: &AtomicBool) -> Result<BinarySearch, Error> {
        let mut search = BinarySearch::new(config)?;
        while let Some(step) = search.next_step() {
            let schedule = Schedule::ConstantRate(PacketRate::new(step.load_pps));
            let measured = self.measure(&schedule, 1, step.duration, stop)?;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            search.record(step, measured.outcome());
        }
        Ok(search)
    }

    /// Stops the instance; returns the error that ended its worker earlier, if any.
    fn end(mut self) -> Result<(), Error> {
        self.instance.take().map_or(Ok(()), |instance| failure(instance.finish()))
    }

    fn trial_config(&mut self, schedule: &Schedule, duration: Nanos, warm_up: Nanos) -> TrialConfig {
        // Each trial has its own stream number, so that a late frame of one trial is not counted in the next.
        self.stream = self.stream.wrapping_add(1);
        TrialConfig {
            stream: self.stream,
            warm_up,
            duration,
            drain: DRAIN,
            ..TrialConfig::new(self.layout, schedule.clone())
        }
    }

    fn run(&mut self, config: &TrialConfig, stop: &AtomicBool) -> Result<Trial, Error> {
        trial::run(config, &mut self.device, 0, &mut self.pool, &MonotonicClock, stop)
    }

    fn wait_for_link(&mut self) -> Result<(), Error> {
        let give_up = std::time::Instant::now() + READY_WITHIN;
        while self.device.health()? != Health::Up {
            if std::time::Instant::now() > give_up {
                return Err(Error::Device(LiveError::PortLost {
                    port: TESTER_PORT.into(),
                    why: format!("its link is still down after {} s", READY_WITHIN.as_secs()),
                }));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only after an error, which says more than the outcome of the instance.
        if let Some(instance) = self.instance.take() {
            instance.finish();
        }
    }
}

/// Waits until the instance's worker runs.
fn running(instance: Instance, telemetry: &Path) -> Result<(Instance, Reader), Error> {
    let give_up = std::time::Instant::now() + READY_WITHIN;
    let reader = match Reader::open(telemetry) {
        Ok(reader) => reader,
        // The worker has already ended; its result says why.
        Err(error) => {
            failure(instance.finish())?;
            return Err(error.into());
        }
    };
    loop {
        match reader.snapshot().state {
            Some(State::Running) => return Ok((instance, reader)),
            Some(State::Starting | State::LinkDown) if std::time::Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(1));
            }
            state => {
                failure(instance.finish())?;
                let what = "start the instance under test".into();
                let why = format!("its worker is {}", state.map_or("in no known state", State::name));
                let fix = "look at the link with: apus lab exec, ip link".into();
                return Err(Error::Device(LiveError::Lacking { what, why, fix }));
            }
        }
    }
}

fn failure(outcome: Outcome) -> Result<(), Error> {
    outcome.workers.into_iter().try_for_each(|worker| worker.result.map(drop)).map_err(Error::Device)
}

fn open_tester(config: &BedConfig, destination: [u8; 6]) -> Result<(AfXdpDevice, Pool, Layout), Error> {
    os::place_this_thread(config.tester)?;
    let source = os::interface_facts(TESTER_PORT)?.mac;
    let interface = Interface::attach(&InterfaceConfig::new(TESTER_PORT))?;
    let frames = config.sockets.slots_per_queue() + SPARE_FRAMES;
    let mut pool = Pool::new(PoolConfig { frames, ..PoolConfig::default() })?;
    let mut context = XskContext::new(&pool);
    let device = AfXdpDevice::open(&interface, &[0], &config.sockets, &mut context, &mut pool)?;
    let encapsulation = Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL };
    Ok((device, pool, Layout { destination, source, encapsulation, size: config.frame }))
}

/// The result of a trial against an instance.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The configuration of the trial.
    pub config: TrialConfig,
    /// What the trial measured.
    pub trial: Trial,
    /// The latencies of all frames, and separately of those that met no gap.
    pub split: Split,
    /// How long after its end a gap still affects frames.
    pub recovery: Recovery,
    /// Times when something else had the CPU of the worker, or why they are unknown.
    pub tested_gaps: Result<Vec<Gap>, String>,
    /// CPU time of the worker's thread during the trial, or why it is unknown.
    pub cpu: Result<CpuUse, String>,
    /// Counters of the worker over the trial.
    pub counts: Counts,
}

impl Measurement {
    /// A quantile of the latencies of frames that met no [`Gap`]; `None` if there are too few samples.
    pub fn clean(&self, quantile: Quantile) -> Option<Nanos> {
        quantile::estimate(&self.split.clean, quantile).latency_ns.map(Nanos::from_nanos)
    }

    /// A quantile of all latencies; `None` if there are too few samples.
    pub fn all(&self, quantile: Quantile) -> Option<Nanos> {
        quantile::estimate(&self.split.all, quantile).latency_ns.map(Nanos::from_nanos)
    }

    /// CPU time of the worker as a share of one CPU (0 to 1); `None` if it is unknown.
    pub fn cpu_share(&self) -> Option<f64> {
        self.cpu.as_ref().ok().and_then(CpuUse::share_of_one_cpu)
    }

    /// Wake-ups of the worker per second; `None` if they are unknown.
    pub fn wakeups_per_second(&self) -> Option<f64> {
        self.cpu.as_ref().ok().and_then(CpuUse::wakeups_per_second)
    }

    /// The frames of the trial, second by second.
    pub fn seconds(&self) -> Vec<Second> {
        let Trial { ledger, start, warm_up, gaps, .. } = &self.trial;
        let tested = self.tested_gaps.as_deref().unwrap_or_default();
        seconds(ledger, *start, *warm_up, gaps, tested, self.recovery)
    }

    /// Stops `meter`, which the caller started before this measurement, and returns the energy with the frames received
    /// and the worker's CPU time.
    pub fn energy(&self, meter: &mut dyn EnergyMeter) -> Energy {
        meter.stop(Some(self.trial.counts.received), self.cpu.as_ref().map(Into::into).map_err(Clone::clone))
    }

    /// The JSON form of the measurement.
    pub fn document(&self) -> LatencyResult {
        let gaps = self.tested_gaps.as_deref().map_err(Clone::clone);
        result::LatencyResult::new(&self.config, &self.trial, gaps, self.recovery, self.cpu.clone())
    }

    /// The outcome to record in a search for the highest loss-free rate. Only frames lost outside gaps count as lost.
    pub fn outcome(&self) -> search::Outcome {
        let raw = self.trial.outcome();
        search::Outcome { lost: raw.lost.min(self.split.lost_outside_gaps), ..raw }
    }
}

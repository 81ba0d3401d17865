//! The ports of an instance: the user's choice, the properties found when they were opened, and one device per worker.

use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use units::{BitRate, Instant, Monotonic, Nanos, PacketRate};

use crate::Error;
use crate::app::PortInfo;
use crate::app::headers::Mac;
use crate::cpu::{Cpu, LinuxCpu};
use crate::device::Device;
use crate::device::afxdp::{AfXdpDevice, Interface, InterfaceConfig, SocketConfig, XdpMode, XskContext};
use crate::device::capture::{CaptureConfig, CaptureMeter, Capturing};
use crate::device::fault::{FaultMeter, FaultPlan, Faulty};
use crate::device::memory::MemoryDevice;
use crate::device::pcap::{PcapDevice, PcapPlay};
use crate::device::trace::{TraceLog, Traced};
use crate::os;
use crate::pool::Pool;

/// Size of the shortest Ethernet frame in bytes, with its check sequence (IEEE 802.3-2018, 3.2.7). If only a line rate
/// is known, the peak packet rate assumes this size.
const SHORTEST_FRAME: u64 = 64;
/// Line rate that is assumed if a port's driver reports none. [`PeakRateSource`] then says so.
pub const ASSUMED_SPEED: BitRate = BitRate::new(10_000_000_000);
/// Frame slots per queue for a port without kernel rings. Such a device reports as many descriptors.
const SLOTS_WITHOUT_KERNEL: u32 = 512;

/// A port as the user chose it.
#[derive(Clone, Debug)]
pub enum PortConfig {
    /// A network interface, opened through AF_XDP.
    AfXdp(InterfaceConfig),
    /// An endless supply of one frame, without a kernel. Every worker has its own.
    Memory(MemoryConfig),
    /// A capture file, played to one worker.
    Pcap(PcapPlay),
}

/// What a memory port supplies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// The frame as the worker sees it, without its check sequence.
    pub frame: Vec<u8>,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// Number of frames after which the supply ends, per worker. `None` means that it never ends.
    pub frames: Option<u64>,
}

/// The properties of an opened port.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The interface's name, `memory-N`, or the file's path.
    pub name: String,
    /// The kind of port, with the properties that only this kind has.
    pub kind: PortKind,
    /// Number of receive descriptors per queue.
    pub rx_descriptors: u32,
    /// The peak packet rate from which the loss bound (see
    /// [`InstanceConfig::mode`](crate::instance::InstanceConfig::mode)) is computed. `None` if nothing can be lost,
    /// because the sender waits for the receiver.
    pub peak: Option<PeakRate>,
}

units::named! {
    /// The kind of a port, with the properties that only this kind has.
    #[derive(Clone, Debug)]
    pub enum PortKind {
        /// A network interface, opened through AF_XDP.
        AfXdp {
            /// Where the XDP program runs.
            xdp_mode: XdpMode,
            /// Whether the driver receives directly into the worker's pool.
            zero_copy: bool,
            /// The receive queues that this instance serves.
            queues: Vec<u32>,
        } = "af_xdp",
        /// An endless supply of one frame.
        Memory = "memory",
        /// A capture file.
        Pcap = "pcap",
    }
}

/// The highest rate at which packets may arrive at one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeakRate {
    /// The rate in packets per second.
    pub rate: PacketRate,
    /// How the rate was determined.
    pub from: PeakRateSource,
}

units::named! {
    /// How a peak rate was determined.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PeakRateSource {
        /// The user stated it.
        Given = "given",
        /// The shortest frames at the line rate that the driver reports.
        LineRate = "line_rate",
        /// The shortest frames at [`ASSUMED_SPEED`], because the driver reports no line rate.
        Assumed = "assumed",
    }
}

/// What is put around each device. From the inside to the outside: faults, trace, capture.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    /// The faults to inject. `None` injects none.
    pub fault: Option<FaultPlan>,
    /// Number of latest calls to remember per device. `None` remembers none.
    pub trace: Option<usize>,
    /// The file to which all frames are written. If there are several devices, each has its own: `FILE-WORKER-PORT`.
    /// `None` captures nothing.
    pub capture: Option<PathBuf>,
}

/// The reports of one device's wrappers.
#[derive(Clone, Debug)]
pub struct WrapperReport {
    /// The worker's number, from 0.
    pub worker: usize,
    /// The port's number, from 0.
    pub port: usize,
    /// The injected faults. `None` if none were requested.
    pub fault: Option<FaultMeter>,
    /// The remembered calls. `None` if none were requested.
    pub trace: Option<TraceLog>,
    /// The capture file and its counters. `None` if no capture was requested.
    pub capture: Option<(PathBuf, CaptureMeter)>,
}

/// An opened port that can give each worker its device.
#[derive(Debug)]
pub(crate) enum OpenPort {
    AfXdp(Interface),
    Memory(String, MemoryConfig),
    Pcap(PcapPlay),
}

impl OpenPort {
    /// Opens port `number` for `workers` workers.
    pub(crate) fn open(
        config: &PortConfig,
        number: usize,
        workers: usize,
        sockets: &SocketConfig,
        peak_rate: Option<PacketRate>,
    ) -> Result<(Self, PortInfo, PortReport), Error> {
        let given = peak_rate.map(|rate| PeakRate { rate, from: PeakRateSource::Given });
        match config {
            PortConfig::AfXdp(port) => {
                check_spread(port, workers)?;
                let interface = Interface::attach(port)?;
                let facts = os::interface_facts(&port.name)?;
                let of = |speed: BitRate, from| PeakRate { rate: speed.frames_of(SHORTEST_FRAME), from };
                let peak = given.unwrap_or(match facts.speed {
                    Some(speed) => of(speed, PeakRateSource::LineRate),
                    None => of(ASSUMED_SPEED, PeakRateSource::Assumed),
                });
                let info = PortInfo { name: port.name.clone(), mac: Mac::new(facts.mac) };
                let kind = PortKind::AfXdp {
                    xdp_mode: interface.mode(),
                    zero_copy: false, // known when the sockets are: see `learn`
                    queues: port.queues.clone(),
                };
                let report =
                    PortReport { name: port.name.clone(), kind, rx_descriptors: sockets.rings.rx, peak: Some(peak) };
                Ok((Self::AfXdp(interface), info, report))
            }
            PortConfig::Memory(port) => {
                let name = format!("memory-{number}");
                let info = PortInfo { name: name.clone(), mac: Mac::new(port.mac) };
                let report = PortReport {
                    name: name.clone(),
                    kind: PortKind::Memory,
                    rx_descriptors: SLOTS_WITHOUT_KERNEL,
                    peak: given,
                };
                Ok((Self::Memory(name, port.clone()), info, report))
            }
            PortConfig::Pcap(play) => {
                if workers != 1 {
                    return Err(Error::Invalid {
                        what: format!("{workers} workers on {}", play.input.display()),
                        why: "a file has one queue; use one worker".into(),
                    });
                }
                let name = play.input.display().to_string();
                // Locally administered (IEEE 802-2014, 8.4), "apus" and the port's number.
                let mac = [0x02, b'a', b'p', b'u', b's', number as u8];
                let info = PortInfo { name: name.clone(), mac: Mac::new(mac) };
                let report =
                    PortReport { name, kind: PortKind::Pcap, rx_descriptors: SLOTS_WITHOUT_KERNEL, peak: given };
                Ok((Self::Pcap(play.clone()), info, report))
            }
        }
    }

    /// Number of frame slots that a worker's share of this port can hold.
    pub(crate) fn slots(&self, worker: usize, workers: usize, sockets: &SocketConfig) -> u32 {
        match self {
            Self::AfXdp(interface) => sockets.slots_per_queue() * share(interface, worker, workers).len() as u32,
            Self::Memory(..) | Self::Pcap(_) => SLOTS_WITHOUT_KERNEL,
        }
    }

    /// Opens the device of one worker. It serves the queues whose position, modulo the number of workers, is the
    /// worker's number.
    pub(crate) fn device(
        &self,
        worker: usize,
        workers: usize,
        sockets: &SocketConfig,
        context: &mut XskContext,
        pool: &mut Pool,
    ) -> Result<Box<dyn Device>, Error> {
        Ok(match self {
            Self::AfXdp(interface) => {
                let queues = share(interface, worker, workers);
                Box::new(AfXdpDevice::open(interface, &queues, sockets, context, pool)?)
            }
            Self::Memory(name, config) => {
                if config.frame.len() > pool.longest_frame() {
                    return Err(Error::Invalid {
                        what: format!("frames of {} bytes", config.frame.len()),
                        why: format!("a slot has room for {}; use larger slots", pool.longest_frame()),
                    });
                }
                let source = MemoryDevice::source(name, &config.frame, config.frame.len() as u32)?;
                Box::new(match config.frames {
                    Some(frames) => source.limited(frames),
                    None => source,
                })
            }
            Self::Pcap(play) => Box::new(PcapDevice::open(play.clone(), monotonic as fn() -> Instant<Monotonic>)?),
        })
    }
}

impl PortReport {
    /// Records properties that only an open device knows.
    pub(crate) fn learn(&mut self, device: &dyn Device) {
        if let PortKind::AfXdp { zero_copy, .. } = &mut self.kind {
            *zero_copy = device.capabilities().zero_copy;
        }
    }
}

impl Wrappers {
    /// Puts the requested wrappers around a device. `alone` says that it is the only device.
    pub(crate) fn wrap(
        &self,
        mut device: Box<dyn Device>,
        (worker, port): (usize, usize),
        alone: bool,
    ) -> Result<(Box<dyn Device>, WrapperReport), Error> {
        let mut report = WrapperReport { worker, port, fault: None, trace: None, capture: None };
        if let Some(mut plan) = self.fault {
            // Two devices with the same seed would fail in step.
            plan.seed = plan.seed.wrapping_add((worker as u64) << 32 | port as u64);
            let (faulty, meter) = Faulty::new(device, plan)?;
            (device, report.fault) = (Box::new(faulty), Some(meter));
        }
        if let Some(calls) = self.trace {
            let (traced, log) = Traced::new(device, monotonic as fn() -> Instant<Monotonic>, calls);
            (device, report.trace) = (Box::new(traced), Some(log));
        }
        if let Some(path) = &self.capture {
            let path = if alone { path.clone() } else { numbered(path, worker, port) };
            let config = CaptureConfig { clock_to_realtime: clock_to_realtime(), ..CaptureConfig::new(&path) };
            let (capturing, meter) = Capturing::new(device, monotonic as fn() -> Instant<Monotonic>, &config)?;
            (device, report.capture) = (Box::new(capturing), Some((path, meter)));
        }
        Ok((device, report))
    }
}

fn share(interface: &Interface, worker: usize, workers: usize) -> Vec<u32> {
    interface.queues().iter().copied().skip(worker).step_by(workers).collect()
}

/// Returns an error unless every worker gets a queue of every port.
fn check_spread(port: &InterfaceConfig, workers: usize) -> Result<(), Error> {
    if port.queues.len() >= workers {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!("{workers} workers on the {} queue(s) of {}", port.queues.len(), port.name),
        why: format!(
            "every worker needs its own queue on each port; give more queues ({}:0-{})",
            port.name,
            workers - 1
        ),
    })
}

fn numbered(path: &Path, worker: usize, port: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-{worker}-{port}"));
    name.into()
}

fn monotonic() -> Instant<Monotonic> {
    LinuxCpu.now()
}

/// What to add to a time of the monotonic clock to get nanoseconds since 1970: the real-time clock less the monotonic
/// clock.
pub fn clock_to_realtime() -> Nanos {
    let now = clock_gettime(ClockId::Realtime);
    let realtime = Nanos::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    realtime.saturating_sub(Nanos::from_nanos(monotonic().as_nanos()))
}

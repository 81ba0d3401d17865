//! The ports of an instance. A [`Backend`] is a port as the user chose it. An [`OpenPort`] is the port after opening:
//! it reports its properties ([`PortReport`]) and gives each worker one device.
//!
//! ```text
//!   Backend ──open, once──► OpenPort ──device, per worker──► Device, in its wrappers
//! ```

mod interface;
mod memory;
mod pcap;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use units::{BitRate, Instant, Monotonic, Nanos, PacketRate};

use crate::Error;
use crate::app::PortInfo;
use crate::cpu::{Cpu, LinuxCpu};
use crate::device::Device;
use crate::device::afxdp::{SocketConfig, XdpMode};
use crate::device::capture::{CaptureConfig, CaptureMeter, Capturing};
use crate::device::fault::{FaultMeter, FaultPlan, Faulty};
use crate::device::trace::{TraceLog, Traced};
use crate::pool::{Pool, PoolConfig};

pub use memory::MemoryConfig;

/// Size of the shortest Ethernet frame in bytes, with its frame check sequence (IEEE 802.3-2018, 3.2.7). If only a line
/// rate is known, the peak packet rate is computed with this size.
pub const SHORTEST_FRAME: u64 = 64;
/// Line rate that is assumed if a port's driver reports none; the [`PeakRateSource`] is then `Assumed`.
pub const ASSUMED_SPEED: BitRate = BitRate::new(10_000_000_000);
/// Number of frame slots per queue of a port without kernel rings. Its device reports the same number of descriptors.
const SLOTS_WITHOUT_KERNEL: u32 = 512;

/// A port as the user chose it, before it is opened.
///
/// [`InterfaceConfig`](crate::device::afxdp::InterfaceConfig), [`MemoryConfig`] and
/// [`PcapPlay`](crate::device::pcap::PcapPlay) are the backends of this crate. Other crates can define more backends:
/// nothing here matches on the kind.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Opens the port, once for all workers. Must report all missing prerequisites, so that errors occur before a
    /// worker starts.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn OpenPort>, Error>;
}

/// A port of an instance: any [`Backend`].
pub type PortConfig = Arc<dyn Backend>;

/// The settings with which a backend opens a port.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The port's number, from 0.
    pub number: usize,
    /// Number of workers. Each worker gets one device of the port.
    pub workers: usize,
    /// Settings of AF_XDP sockets. Other backends only use the ring sizes.
    pub sockets: &'a SocketConfig,
    /// The highest packet rate of a queue that the user stated; `None` if the user stated none.
    pub peak_rate: Option<PacketRate>,
}

impl Opening<'_> {
    /// The peak rate of a port on which frames can be lost: the rate that the user stated, otherwise the rate of the
    /// shortest frames at the line rate `speed`, or at [`ASSUMED_SPEED`] if `speed` is `None`.
    pub fn peak(&self, speed: Option<BitRate>) -> PeakRate {
        let of = |speed: BitRate, from| PeakRate { rate: speed.frames_of(SHORTEST_FRAME), from };
        self.stated_peak().unwrap_or(match speed {
            Some(speed) => of(speed, PeakRateSource::LineRate),
            None => of(ASSUMED_SPEED, PeakRateSource::Assumed),
        })
    }

    /// The peak rate that the user stated, if any. For a port whose sender waits for the receiver, so that no frames
    /// can be lost.
    pub fn stated_peak(&self) -> Option<PeakRate> {
        self.peak_rate.map(|rate| PeakRate { rate, from: PeakRateSource::Given })
    }
}

/// An opened port that can give each worker its device.
pub trait OpenPort: fmt::Debug {
    /// The properties that the application needs, such as the MAC address.
    fn info(&self) -> PortInfo;

    /// The port's properties. [`learn`](OpenPort::learn) later adds those that are known only after a device was
    /// opened.
    fn report(&self) -> PortReport;

    /// Number of frame slots that the device of the worker `worker` can hold.
    fn slots(&self, worker: usize) -> u32;

    /// Size in bytes of the smallest slot that the port can use.
    fn least_frame_size(&self) -> u32 {
        PoolConfig::default().frame_size
    }

    /// Opens the device of the worker number `worker`.
    fn device(&self, worker: usize, share: &mut Share<'_>) -> Result<Box<dyn Device>, Error>;

    /// What must stay in place until the settings of the port's queues are restored: an AF_XDP port's XDP program,
    /// without which a veth has no NAPI instances. `None` if there is nothing.
    fn hold(&self) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Completes `report` with the properties that only an open device knows.
    fn learn(&self, _device: &dyn Device, _report: &mut PortReport) {}
}

/// Resources that the devices of one worker share.
#[derive(Debug)]
pub struct Share<'a> {
    /// The worker's pool. All its devices receive into it and send from it.
    pub pool: &'a mut Pool,
    contexts: Vec<Box<dyn Any>>,
}

impl<'a> Share<'a> {
    /// Creates the shared resources of a worker. At first, they consist only of the pool.
    pub fn new(pool: &'a mut Pool) -> Self {
        Self { pool, contexts: Vec::new() }
    }

    /// Returns the pool and a backend's context, such as an AF_XDP UMEM or a DPDK mempool, which all devices of this
    /// backend in the worker share. The first device creates the context with `make`.
    pub fn context<T: 'static>(
        &mut self,
        make: impl FnOnce(&mut Pool) -> Result<T, Error>,
    ) -> Result<(&mut Pool, &mut T), Error> {
        let known = self.contexts.iter().position(|context| context.is::<T>());
        let index = match known {
            Some(index) => index,
            None => {
                let made = make(self.pool)?;
                self.contexts.push(Box::new(made));
                self.contexts.len() - 1
            }
        };
        match self.contexts[index].downcast_mut::<T>() {
            Some(context) => Ok((self.pool, context)),
            None => unreachable!("found by its type, or made just now"),
        }
    }
}

/// The properties of an opened port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// Name of the port: the interface's name, `memory-N`, the file's path, or a name that another backend chose.
    pub name: String,
    /// The kind of port.
    pub kind: PortKind,
    /// The properties of the driver behind the port. `None` if there is no driver.
    pub driver: Option<DriverReport>,
    /// Number of receive descriptors per queue.
    pub rx_descriptors: u32,
    /// Number of frames that can arrive on a queue while the worker waits, before one is lost. It is less than
    /// `rx_descriptors` if some slots for received frames may be missing from the ring when the wait begins.
    pub rx_room: u32,
    /// The peak packet rate, from which the loss bound (see
    /// [`InstanceConfig::mode`](crate::instance::InstanceConfig::mode)) is computed. `None` if no frames can be lost,
    /// because the sender waits for the receiver.
    pub peak: Option<PeakRate>,
}

units::named! {
    /// The kind of a port, for JSON documents only. The backend determines how the port works.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PortKind {
        /// A network interface, opened through AF_XDP.
        AfXdp = "af_xdp",
        /// A port in memory that delivers the same frame again and again.
        Memory = "memory",
        /// A capture file.
        Pcap = "pcap",
        /// A port of a DPDK driver.
        Dpdk = "dpdk",
    }
}

/// The properties of a driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverReport {
    /// Where the XDP program runs. `None` if the port uses no XDP program.
    pub xdp_mode: Option<XdpMode>,
    /// Why native XDP failed, if generic XDP took its place. `None` otherwise.
    pub native_failure: Option<String>,
    /// Whether the driver receives directly into the worker's pool.
    pub zero_copy: bool,
    /// The receive queues that this instance serves.
    pub queues: Vec<u32>,
    /// Number of receive queues that the interface has. `None` if the driver does not report it. Frames that arrive on
    /// the other queues do not reach this instance.
    pub available_queues: Option<u32>,
    /// The DPDK driver's name. `None` for a driver of the kernel.
    pub dpdk_driver: Option<String>,
    /// Whether the port has receive interrupts, which can wake a blocked worker. `None` until the port's device is
    /// open.
    pub wakes: Option<bool>,
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
        /// The user stated the rate.
        Given = "given",
        /// The rate of the shortest frames at the line rate that the driver reports.
        LineRate = "line_rate",
        /// The rate of the shortest frames at [`ASSUMED_SPEED`], because the driver reports no line rate.
        Assumed = "assumed",
    }
}

/// The wrappers around each device. Fault injection is innermost, then trace, then capture.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    /// The faults to inject. `None` injects none.
    pub fault: Option<FaultPlan>,
    /// Number of latest calls to log per device. `None` logs none.
    pub trace: Option<usize>,
    /// The file to which all frames are written. If there are several devices, each writes its own file
    /// `FILE-WORKER-PORT`. `None` captures nothing.
    pub capture: Option<PathBuf>,
}

/// The reports of one device's wrappers.
#[derive(Clone, Debug)]
pub struct WrapperReport {
    /// The worker's number, from 0.
    pub worker: usize,
    /// The port's number, from 0.
    pub port: usize,
    /// The counters of injected faults. `None` if no faults were requested.
    pub fault: Option<FaultMeter>,
    /// The logged calls. `None` if no log was requested.
    pub trace: Option<TraceLog>,
    /// The capture file and its counters. `None` if no capture was requested.
    pub capture: Option<(PathBuf, CaptureMeter)>,
}

impl Wrappers {
    /// Puts the requested wrappers around a device. `alone` is true if the instance has only this device.
    pub(crate) fn wrap(
        &self,
        mut device: Box<dyn Device>,
        (worker, port): (usize, usize),
        alone: bool,
    ) -> Result<(Box<dyn Device>, WrapperReport), Error> {
        let mut report = WrapperReport { worker, port, fault: None, trace: None, capture: None };
        if let Some(mut plan) = self.fault {
            // Each device gets a different seed: with the same seed, all devices would have the same faults.
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

/// The files that [`Wrappers::capture`] `path` makes the devices of so many workers and ports write.
pub fn captures(path: &Path, workers: usize, ports: usize) -> Vec<PathBuf> {
    if workers * ports == 1 {
        return vec![path.to_owned()];
    }
    (0..workers).flat_map(|worker| (0..ports).map(move |port| numbered(path, worker, port))).collect()
}

fn numbered(path: &Path, worker: usize, port: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-{worker}-{port}"));
    name.into()
}

fn monotonic() -> Instant<Monotonic> {
    LinuxCpu.now()
}

/// The difference between the real-time clock and the monotonic clock. Added to a time of the monotonic clock, it gives
/// the time since 1970.
pub fn clock_to_realtime() -> Nanos {
    let now = clock_gettime(ClockId::Realtime);
    let realtime = Nanos::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    realtime.saturating_sub(Nanos::from_nanos(monotonic().as_nanos()))
}

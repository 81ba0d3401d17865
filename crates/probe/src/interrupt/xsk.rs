//! One end of the frame's path, over AF_XDP. The XDP program stamps the arrival.

use std::os::fd::BorrowedFd;

use host::knob::{Access, NapiDeferral};
use host::transaction::Deferred;
use live::cpu::{Cpu as _, LinuxCpu};
use live::device::Device as _;
use live::device::afxdp::{AfXdpDevice, Filter, Interface, InterfaceConfig, SocketConfig, XskContext};
use live::os;
use live::pool::{Frame, Pool, PoolConfig};
use tester::frame::LOCAL_EXPERIMENTAL;
use units::{Instant, Monotonic};

use super::Wait;
use super::frame::{FRAME, Stamps, lay_out, payload, payload_mut, turn_round};
use crate::Error;

/// Maximum number of frames taken from the ring at once.
const BATCH: usize = 64;
/// Slots of the pool beyond those that fill the rings.
const SPARE: u32 = 256;
/// Budget and deferral of kernel busy polling: the defaults of the kernel documentation (networking/napi, "Busy
/// polling") and of DPDK's net_af_xdp.
const BUSY_BUDGET: u16 = 64;
const BUSY_DEFERRAL: NapiDeferral =
    NapiDeferral { defer_hard_irqs: 2, gro_flush_timeout: units::Nanos::from_micros(200) };

/// Sets [`BUSY_DEFERRAL`], through the journal.
fn defer(interface: &str, queue: u32) -> Result<Deferred, Error> {
    // Errors of the crate `host` already contain a remedy.
    let of_host = |error: String| {
        let (why, fix) = error.split_once("\nfix: ").unwrap_or((&error, "measure --wait block or --wait spin"));
        Error::lacking("wait by busy polling", why, fix)
    };
    let access = Access::live().map_err(|error| of_host(error.to_string()))?;
    let deferred =
        Deferred::new(&access, interface, &[queue], BUSY_DEFERRAL, "apus probe interrupt", env!("CARGO_PKG_VERSION"));
    deferred.map_err(|error| match error {
        host::transaction::Error::Knob(error) => of_host(error.to_string()),
        error => of_host(error.to_string()),
    })
}

/// An AF_XDP socket on one queue.
pub(super) struct XskEnd {
    /// Settings for busy polling. They are dropped (rolled back) before the XDP program, because on veth the NAPI
    /// instance ends with the program.
    _deferred: Option<Deferred>,
    device: AfXdpDevice,
    pool: Pool,
    batch: Vec<Frame>,
    mac: [u8; 6],
    wait: Wait,
}

/// A received frame, still in its slot.
pub(super) struct Received {
    frame: Frame,
    pub arrived: u64,
}

impl XskEnd {
    /// Opens a socket on queue `queue` of `interface`, in the network namespace of the calling thread.
    pub(super) fn open(interface: &str, queue: u32, wait: Wait) -> Result<Self, Error> {
        let busy = wait == Wait::Busy;
        let attached = Interface::attach(&InterfaceConfig {
            queues: vec![queue],
            filter: Filter::EtherTypes(vec![LOCAL_EXPERIMENTAL]),
            ..InterfaceConfig::new(interface)
        })?;
        let mac = os::interface_facts(interface)?.mac;
        let sockets = SocketConfig { busy_poll: busy.then_some(BUSY_BUDGET), ..SocketConfig::default() };
        let mut pool = Pool::new(PoolConfig { frames: sockets.slots_per_queue() + SPARE, ..PoolConfig::default() })?;
        let mut context = XskContext::new(&pool);
        let device = AfXdpDevice::open(&attached, &[queue], &sockets, &mut context, &mut pool)?;
        // After attaching the program, because on veth the NAPI instances exist only from then on.
        let deferred = if busy { Some(defer(interface, queue)?) } else { None };
        Ok(Self { device, pool, batch: Vec::with_capacity(BATCH), mac, wait, _deferred: deferred })
    }

    /// MAC address of the interface.
    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Whether kernel busy polling has an effect; `None` while unknown.
    pub(super) fn busy_poll(&self) -> Option<bool> {
        self.device.capabilities().busy_poll
    }

    /// Sends a frame with `stamps`, stamped as late as possible; returns the stamp, or `None` if it was not accepted.
    pub(super) fn send(&mut self, destination: [u8; 6], mut stamps: Stamps) -> Option<u64> {
        let mut frame = self.pool.take()?;
        if !self.pool.set_len(&mut frame, FRAME) {
            self.pool.give(frame);
            return None;
        }
        let octets = self.pool.bytes_mut(&mut frame);
        lay_out(octets, destination, self.mac, LOCAL_EXPERIMENTAL);
        stamps.sent = LinuxCpu.now().as_nanos();
        stamps.write(payload_mut(octets));
        self.batch.push(frame);
        self.flush().then_some(stamps.sent)
    }

    /// Sends a frame back, with the stamps of the far end if it is a frame of the probe.
    pub(super) fn answer(&mut self, received: Received, picked: u64) {
        let Received { mut frame, arrived } = received;
        let octets = self.pool.bytes_mut(&mut frame);
        turn_round(octets);
        if let Some(stamps) = Stamps::read(payload(octets)) {
            let far_sent = LinuxCpu.now().as_nanos();
            let stamps = Stamps { far_arrived: arrived, far_picked: picked, far_sent, ..stamps };
            stamps.write(payload_mut(octets));
        }
        self.batch.push(frame);
        self.flush();
    }

    /// Sends the batch. Returns whether all of its frames were accepted; the others are discarded.
    fn flush(&mut self) -> bool {
        let all = self.batch.len();
        let sent = self.device.tx(0, &mut self.pool, &mut self.batch);
        let left: Vec<Frame> = self.batch.drain(..).collect();
        left.into_iter().for_each(|frame| self.pool.give(frame));
        sent == all
    }

    /// Waits for frames until `until`; returns them with the time of pick-up.
    pub(super) fn receive(&mut self, until: Instant<Monotonic>) -> Result<(Vec<Received>, u64), Error> {
        loop {
            if let Some(received) = self.take() {
                return Ok(received);
            }
            if LinuxCpu.now() >= until {
                return Ok((Vec::new(), 0));
            }
            if self.wait == Wait::Block {
                self.device.arm(0)?;
                // A frame that arrived before the interrupt was enabled raises none. So check once more before
                // sleeping.
                if let Some(received) = self.take() {
                    self.device.disarm(0);
                    return Ok(received);
                }
                let handles: Vec<BorrowedFd<'_>> = self.device.wait_handle(0).into_iter().collect();
                LinuxCpu.block_until(&handles, until);
                self.device.disarm(0);
            }
        }
    }

    fn take(&mut self) -> Option<(Vec<Received>, u64)> {
        let n = self.device.rx(0, &mut self.pool, &mut self.batch, BATCH);
        if n == 0 {
            return None;
        }
        let picked = LinuxCpu.now().as_nanos();
        let arrived = |frame: &Frame| frame.arrived().map_or(0, Instant::as_nanos);
        let frames = self.batch.drain(..).map(|frame| Received { arrived: arrived(&frame), frame });
        Some((frames.collect(), picked))
    }

    /// Reads the time stamps of a frame. `None` if it is not a frame of the probe.
    pub(super) fn stamps(&self, received: &Received) -> Option<Stamps> {
        Stamps::read(payload(self.pool.bytes(&received.frame)))
    }

    /// Returns the slot of a frame to the pool.
    pub(super) fn done(&mut self, received: Received) {
        self.pool.give(received.frame);
    }
}

//! Devices: the ports between which a worker moves frames.
//!
//! The trait [`Device`] is deliberately small. Fault injection, traces and captures are devices that wrap another
//! device.

pub mod afxdp;
pub mod capture;
pub mod fault;
pub mod link;
pub mod memory;
pub mod pcap;
pub mod trace;
mod wakeup;

use std::any::TypeId;
use std::os::fd::BorrowedFd;

use crate::Error;
use crate::pool::packets::Packets;
use crate::pool::{Frame, Pool};

/// A port with one or more queues. Queues are numbered from 0.
///
/// A worker calls `rx`, handles the frames, and calls `tx`, on every queue. Then the worker starts again, or blocks: it
/// calls `arm`, calls `rx` once more, blocks on the [`wait_handle`](Device::wait_handle)s, and calls `disarm`.
pub trait Device: Send {
    /// The port's name: the name of its network interface, or a substitute.
    fn name(&self) -> &str;

    /// Number of queues. It never changes.
    fn queues(&self) -> usize;

    /// Appends up to `room` received frames to `out`. Returns the number of frames.
    ///
    /// Never blocks. If the device needs free slots for later frames, it takes them from `pool`.
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize;

    /// Sends frames from the front of `frames`. Returns the number of frames accepted; their slots return to `pool`
    /// when they have been sent. Frames that were not accepted stay in `frames`, and the caller drops them or tries
    /// again.
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize;

    /// Called once, when the worker ends. Sends the frames that [`tx`](Device::tx) accepted and that the device still
    /// has. Those that can no longer be sent count as [`tx_dropped`](Statistics::tx_dropped).
    fn finish(&mut self, _queue: usize) {}

    /// The frames that the last call of [`tx`](Device::tx) accepted, but dropped on purpose. Only fault
    /// injection does so.
    fn injected(&self) -> Injected {
        Injected::default()
    }

    /// Number of frames known to wait in the receive ring.
    fn backlog(&self, queue: usize) -> usize;

    /// Makes the queue's wait handle readable whenever a frame arrives, from now on until [`disarm`](Device::disarm).
    fn arm(&mut self, queue: usize) -> Result<(), Error>;

    /// Ends the effect of [`arm`](Device::arm).
    fn disarm(&mut self, queue: usize);

    /// The handle that poll(2) reports as readable when frames wait. `None` if the device cannot wake a worker: then
    /// the worker sleeps for at most [`crate::worker::UNWAKEABLE`] instead of blocking.
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>>;

    /// Whether the port still works. Called a few times per second, and after a wait handle failed.
    fn health(&mut self) -> Result<Health, Error>;

    /// The device's own counters for this queue, from the time at which it was opened.
    fn statistics(&mut self, queue: usize) -> Statistics;

    /// What the device supports. A field that is `None` may become known later.
    fn capabilities(&self) -> Capabilities;

    /// The device as an [`InPlace`] one, or `None` if its frames cannot stay in its driver's packet buffers. Always gives
    /// the same answer, so that a worker may ask once.
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        None
    }
}

/// A [`Device`] whose frames can stay in the packet buffers of its driver while a worker handles them. The slots of the
/// buffers stay lent to the driver.
///
/// The worker calls `rx_packets` and [`Pool::each_packet`]. If all frames are to be sent to one port, it calls
/// `tx_packets` of that port's device, which may be another device of the same type. With packet buffers that are left,
/// it calls `make_frames` of the device that received them.
///
/// Such frames have no arrival timestamp. [`Device::injected`] and [`Capabilities::sends_in_turn`] do not concern them.
pub trait InPlace {
    /// The type of the device. Devices of one type can send each other's packet buffers, if these are in their pool.
    fn kind(&self) -> TypeId;

    /// As [`Device::rx`], but puts up to `room` packet buffers into `packets`, which is empty. Returns true if more frames
    /// may wait: the driver delivered as many as it was asked for.
    fn rx_packets(&mut self, queue: usize, pool: &mut Pool, packets: &mut Packets, room: usize) -> bool;

    /// As [`Device::tx`], for packet buffers that [`Pool::each_packet`] counted: removes those that were accepted, from the
    /// front, and returns their number.
    fn tx_packets(&mut self, queue: usize, pool: &mut Pool, packets: &mut Packets) -> usize;

    /// Removes the first `count` packet buffers and appends a frame for each to `out`, in order. Their slots are then no
    /// longer lent. Copies a frame that has no slot of its own. Drops a frame that it cannot copy, and counts it in
    /// [`Device::statistics`], so there may be fewer frames than packet buffers.
    fn make_frames(&mut self, pool: &mut Pool, packets: &mut Packets, count: usize, out: &mut Vec<Frame>);
}

/// A boxed device is also a device, so that wrappers work for a device chosen at run time.
impl<D: Device + ?Sized> Device for Box<D> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn queues(&self) -> usize {
        (**self).queues()
    }
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        (**self).rx(queue, pool, out, room)
    }
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        (**self).tx(queue, pool, frames)
    }
    fn finish(&mut self, queue: usize) {
        (**self).finish(queue);
    }
    fn injected(&self) -> Injected {
        (**self).injected()
    }
    fn backlog(&self, queue: usize) -> usize {
        (**self).backlog(queue)
    }
    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        (**self).arm(queue)
    }
    fn disarm(&mut self, queue: usize) {
        (**self).disarm(queue);
    }
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        (**self).wait_handle(queue)
    }
    fn health(&mut self) -> Result<Health, Error> {
        (**self).health()
    }
    fn statistics(&mut self, queue: usize) -> Statistics {
        (**self).statistics(queue)
    }
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        (**self).in_place()
    }
}

units::named! {
    /// The state of a port that still exists. For a port that has disappeared, [`Device::health`] returns
    /// [`Error::PortLost`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Health {
        /// Frames pass in both directions.
        Up = "up",
        /// The link is down: no frames arrive, and sent frames are lost. It may come up again.
        Down = "down",
        /// No more frames will arrive: for example, a capture file has been played to its end.
        Finished = "finished",
    }
}

/// Frames that fault injection dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub octets: u64,
}

/// The device's own counters, mostly of frames that never reached the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Received frames that were lost because the worker did not empty the ring in time.
    pub rx_ring_full: u64,
    /// Received frames that were lost because no slot was free.
    pub rx_no_buffer: u64,
    /// Received frames that were lost for another reason, such as a frame too long for a slot or a malformed
    /// descriptor.
    pub rx_invalid: u64,
    /// Frames to be sent that the kernel refused as malformed.
    pub tx_invalid: u64,
    /// Frames to be sent that the driver accepted and then dropped, for example because its queue was full or there was
    /// no carrier.
    pub tx_dropped: u64,
}

/// What a device supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Whether received frames have an arrival timestamp.
    pub stamps_arrival: bool,
    /// Whether the driver receives directly into the pool.
    pub zero_copy: bool,
    /// Whether an arriving frame can wake a blocked worker.
    pub wakes: bool,
    /// Whether [`tx`](Device::tx) sends the frames one after another, so that the last one has normally left when it
    /// returns. Otherwise, a driver or card sends them later, all at about the same time.
    pub sends_in_turn: bool,
    /// Whether busy polling has an effect. `None` if it was not requested or is not known yet.
    pub busy_poll: Option<bool>,
    /// Number of descriptors in the receive ring: the number of frames that can wait before one is lost.
    pub rx_descriptors: u32,
    /// The longest frame that the device can send or receive, in bytes. 0 if it is not known.
    pub longest_frame: u32,
}

impl Statistics {
    /// The counts since `earlier`. A counter that was reset since then gives 0.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_ring_full: self.rx_ring_full.saturating_sub(earlier.rx_ring_full),
            rx_no_buffer: self.rx_no_buffer.saturating_sub(earlier.rx_no_buffer),
            rx_invalid: self.rx_invalid.saturating_sub(earlier.rx_invalid),
            tx_invalid: self.tx_invalid.saturating_sub(earlier.tx_invalid),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
        }
    }
}

impl std::iter::Sum for Statistics {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            rx_ring_full: sum.rx_ring_full + part.rx_ring_full,
            rx_no_buffer: sum.rx_no_buffer + part.rx_no_buffer,
            rx_invalid: sum.rx_invalid + part.rx_invalid,
            tx_invalid: sum.tx_invalid + part.tx_invalid,
            tx_dropped: sum.tx_dropped + part.tx_dropped,
        })
    }
}

//! The ports between which the loop moves frames.
//!
//! [`Device`] is deliberately small. Faults, traces and captures are devices that wrap devices.

pub mod afxdp;
pub mod capture;
pub mod fault;
pub mod link;
pub mod memory;
pub mod pcap;
pub mod trace;
mod wakeup;

use std::os::fd::BorrowedFd;

use crate::Error;
use crate::pool::{Frame, Pool};

/// A port with one or more queues. Every call names its queue; queues are numbered from 0.
///
/// A worker calls `rx` → (work) → `tx` on every queue. Then it starts again, or it calls `arm` → `rx`, blocks on the
/// [`wait_handle`](Device::wait_handle)s, and calls `disarm`.
pub trait Device: Send {
    /// The port's name: that of its network interface, or a substitute.
    fn name(&self) -> &str;

    /// Number of queues. It never changes.
    fn queues(&self) -> usize;

    /// Appends up to `room` received frames to `out`. Returns how many.
    ///
    /// Never blocks. If the device lacks free slots for later frames, it takes them from `pool`.
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize;

    /// Sends frames from the front of `frames`. Returns how many it took; their slots return to `pool` once they are
    /// sent. Frames that it did not take stay in `frames`, and the caller drops them or tries again.
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize;

    /// Number of frames known to wait in the receive ring.
    fn backlog(&self, queue: usize) -> usize;

    /// Makes the next frame on this queue turn the wait handle readable, until [`disarm`](Device::disarm).
    fn arm(&mut self, queue: usize) -> Result<(), Error>;

    /// Undoes `arm`.
    fn disarm(&mut self, queue: usize);

    /// The handle that poll(2) reports as readable when frames wait. `None` if this device cannot wake anyone: then a
    /// worker sleeps for at most [`crate::worker::UNWAKEABLE`] instead of blocking.
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>>;

    /// Whether the port still works. Called a few times per second, and after a wait handle failed.
    fn health(&mut self) -> Result<Health, Error>;

    /// The device's own counters for this queue, since it was opened.
    fn statistics(&mut self, queue: usize) -> Statistics;

    /// What the device supports. A field that is `None` may become known later.
    fn capabilities(&self) -> Capabilities;
}

/// A boxed device is a device too, so that wrappers work for any device from the command line.
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
}

units::named! {
    /// The state of a port that still exists. A port that is gone is an [`Error::PortLost`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Health {
        /// Frames pass in both directions.
        Up = "up",
        /// The link is down: no frames arrive, and sent frames are lost. It may come up again.
        Down = "down",
        /// The device has reached its end (a capture file was played).
        Finished = "finished",
    }
}

/// The device's own counters, mostly of frames that never reached the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Received frames that were lost because the worker did not empty the ring in time.
    pub rx_ring_full: u64,
    /// Received frames that were lost because no slot was free.
    pub rx_no_buffer: u64,
    /// Received frames that were lost for another reason (too long for a slot, malformed descriptor).
    pub rx_invalid: u64,
    /// Frames to be sent that the kernel refused as malformed.
    pub tx_invalid: u64,
    /// Frames to be sent that the driver accepted and then dropped (its queue full, no carrier).
    pub tx_dropped: u64,
}

/// What a device supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Whether frames carry their time of arrival.
    pub stamps_arrival: bool,
    /// Whether the driver receives directly into the pool.
    pub zero_copy: bool,
    /// Whether a frame can end a block.
    pub wakes: bool,
    /// Whether busy polling has an effect. `None` if it was not requested or is not known yet.
    pub busy_poll: Option<bool>,
    /// Number of descriptors in the receive ring: how many frames can wait before one is lost.
    pub rx_descriptors: u32,
    /// The longest frame that the device can send or receive, in bytes.
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

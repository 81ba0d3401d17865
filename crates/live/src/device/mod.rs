//! What the loop moves frames between.
//!
//! [`Device`] is small on purpose: faults, traces and captures are devices that wrap devices.

pub mod afxdp;
pub mod capture;
pub mod fault;
pub mod memory;
pub mod pcap;
pub mod trace;
mod wakeup;

use std::os::fd::BorrowedFd;

use crate::Error;
use crate::pool::{Frame, Pool};

/// A port with one or more queues. All calls name the queue; queues are numbered from 0.
///
/// Call order of a worker: `rx` → (work) → `tx` on every queue, then either again, or
/// `arm` → `rx` → block on the [`wait_handle`](Device::wait_handle)s → `disarm`.
pub trait Device: Send {
    /// The port's name: the interface, or what stands for one.
    fn name(&self) -> &str;

    /// Number of queues.
    fn queues(&self) -> usize;

    /// Moves up to `room` received frames to the end of `out`; returns how many.
    ///
    /// Never blocks. A device that lacks free slots for later frames takes them from `pool`.
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize;

    /// Sends frames from the front of `frames`; returns how many it took (their slots come back to
    /// `pool` once sent). What it did not take stays in `frames`: the caller drops or retries.
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize;

    /// Frames known to wait in the receive ring.
    fn backlog(&self, queue: usize) -> usize;

    /// Lets the next frame on this queue make the wait handle readable.
    fn arm(&mut self, queue: usize) -> Result<(), Error>;

    /// The opposite of `arm`.
    fn disarm(&mut self, queue: usize);

    /// What to poll(2) for readability to wait for frames; `None` if this device cannot wake anyone
    /// (then a worker that has to block sleeps for [`crate::worker::UNWAKEABLE`] at the most).
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>>;

    /// Whether the port still works; called a few times a second, and after a wait handle failed.
    fn health(&mut self) -> Result<Health, Error>;

    /// What the device itself counted since it was opened.
    fn statistics(&mut self, queue: usize) -> Statistics;

    /// What the device can do.
    fn capabilities(&self) -> Capabilities;
}

/// A boxed device is a device, so that wrappers can be put around whatever the command line names.
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
    /// The state of a port that is still there. One that is gone is an [`Error::PortLost`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Health {
        /// Frames can come and go.
        Up = "up",
        /// The link is down: nothing comes, and what is sent is lost. It may come up again.
        Down = "down",
        /// An end was set for this device (a pcap file) and has been reached.
        Finished = "finished",
    }
}

/// What a device counted by itself: frames that never reached the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Received frames lost because the worker did not free the ring in time.
    pub rx_ring_full: u64,
    /// Received frames lost because no slot was free.
    pub rx_no_buffer: u64,
    /// Received frames lost for another reason (too long for a slot, malformed descriptor).
    pub rx_invalid: u64,
    /// Frames to be sent that the kernel refused as malformed.
    pub tx_invalid: u64,
    /// Frames to be sent that were taken, and then dropped by the driver (its queue full, no carrier).
    pub tx_dropped: u64,
}

/// What a device can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Frames carry their time of arrival.
    pub stamps_arrival: bool,
    /// The driver receives straight into the pool.
    pub zero_copy: bool,
    /// A frame can end a block.
    pub wakes: bool,
    /// Busy polling: `None` if not asked for or not known yet, else whether it has an effect.
    pub busy_poll: Option<bool>,
    /// Descriptors of the receive ring, for the loss bound.
    pub rx_descriptors: u32,
    /// The longest frame.
    pub longest_frame: u32,
}

impl Statistics {
    /// What was counted since `earlier`; nothing where a counter started anew.
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

//! Ports in memory, without the kernel, for measurements and tests.
//!
//! [`MemoryDevice`] comes in two kinds:
//! - a **source** ([`MemoryDevice::source`]) delivers the same frame again and again, to measure the worker's loop
//!   without the cost of the kernel. Receiving takes slots from the pool and sets their length; sending returns them.
//!   The data are written only once, before the first frame, as in DPDK's `net_null` (drivers/net/null/rte_eth_null.c,
//!   `eth_null_rx` and `eth_null_tx`). Applications still read and write real memory;
//! - a **link** ([`MemoryDevice::pair`], [`MemoryDevice::scripted`]) has rings, which can overflow, to another port or
//!   to a test's [`MemoryHandle`]. Frames are copied between the pools.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::{Instant, Monotonic};

use super::wakeup::Wakeup;
use super::{Capabilities, Device, Health, Statistics};
use crate::Error;
use crate::pool::{Frame, HEADROOM, Pool};

/// Number of descriptors that a source reports. It is DPDK's default for drivers without a preference, such as
/// `net_null` (lib/ethdev/rte_ethdev.h, `RTE_ETH_DEV_FALLBACK_RX_RINGSIZE`).
const SOURCE_DESCRIPTORS: u32 = 512;

/// A port in memory, without the kernel: a source or one end of a link.
#[derive(Debug)]
pub struct MemoryDevice {
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Source(Source),
    Link { incoming: Vec<Arc<Direction>>, outgoing: Vec<Arc<Direction>>, config: LinkConfig },
}

/// Properties of a link, the same for both ends.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Number of queues per port. Queue n of one port is connected to queue n of the other.
    pub queues: usize,
    /// Number of frames for which each ring has room. Every queue has one ring per direction.
    pub ring: usize,
    /// The longest frame that a ring accepts, in bytes.
    pub longest_frame: u32,
    /// The clock for the arrival timestamps of frames at the other port. If `None`, frames have no timestamp.
    pub clock: Option<fn() -> Instant<Monotonic>>,
}

impl Default for LinkConfig {
    /// One queue, 512 frames per ring, the longest frame that fits into a slot of 2048 bytes, and no timestamps.
    fn default() -> Self {
        Self { queues: 1, ring: SOURCE_DESCRIPTORS as usize, longest_frame: 2048 - HEADROOM as u32, clock: None }
    }
}

impl MemoryDevice {
    /// A source that delivers `template`, truncated or padded with zeros to `len` bytes, without end.
    ///
    /// The first `rx` writes the frame into all slots of the pool that are free at this time. Give a source a pool of
    /// its own: otherwise, it may also deliver data that other devices left in the slots.
    pub fn source(name: impl Into<String>, template: &[u8], len: u32) -> Result<Self, Error> {
        let name = name.into();
        if len == 0 {
            return Err(Error::Invalid { what: name, why: "a frame needs at least one byte".into() });
        }
        let mut template = template.to_vec();
        template.resize(len as usize, 0);
        let source = Source { template, len, left: u64::MAX, prepared: false, ready: Wakeup::new(true)? };
        Ok(Self { name, kind: Kind::Source(source) })
    }

    /// Lets a source end after `frames` frames. Does not change a link.
    pub fn limited(mut self, frames: u64) -> Self {
        if let Kind::Source(source) = &mut self.kind {
            source.left = frames;
        }
        self
    }

    /// Two ports. Each receives what the other sends.
    pub fn pair(names: [&str; 2], config: LinkConfig) -> Result<(Self, Self), Error> {
        let forth = Direction::all(names[0], config)?;
        let back = Direction::all(names[1], config)?;
        let port = |name: &str, incoming: &Vec<_>, outgoing: &Vec<_>| Self {
            name: name.into(),
            kind: Kind::Link { incoming: incoming.clone(), outgoing: outgoing.clone(), config },
        };
        Ok((port(names[0], &back, &forth), port(names[1], &forth, &back)))
    }

    /// Creates a port, and a handle with which a test drives the other end of its link.
    pub fn scripted(name: &str, config: LinkConfig) -> Result<(Self, MemoryHandle), Error> {
        let incoming = Direction::all(name, config)?;
        let outgoing = Direction::all(name, config)?;
        let handle = MemoryHandle { to_port: incoming.clone(), from_port: outgoing.clone() };
        Ok((Self { name: name.into(), kind: Kind::Link { incoming, outgoing, config } }, handle))
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn queues(&self) -> usize {
        match &self.kind {
            Kind::Source(_) => 1,
            Kind::Link { config, .. } => config.queues,
        }
    }

    #[inline]
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        match &mut self.kind {
            Kind::Source(source) => source.rx(pool, out, room),
            Kind::Link { incoming, .. } => incoming[queue].ring().receive(pool, out, room),
        }
    }

    #[inline]
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len();
        if let Kind::Link { outgoing, config, .. } = &self.kind
            && count > 0
        {
            outgoing[queue].send(pool, frames, config.clock);
        }
        pool.give_many(frames);
        count
    }

    fn backlog(&self, queue: usize) -> usize {
        match &self.kind {
            Kind::Source(source) => source.left.min(SOURCE_DESCRIPTORS.into()) as usize,
            Kind::Link { incoming, .. } => incoming[queue].ring().count,
        }
    }

    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        if let Kind::Link { incoming, .. } = &self.kind {
            incoming[queue].arm();
        }
        Ok(())
    }

    fn disarm(&mut self, queue: usize) {
        if let Kind::Link { incoming, .. } = &self.kind {
            incoming[queue].disarm();
        }
    }

    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        Some(match &self.kind {
            Kind::Source(source) => source.ready.as_fd(),
            Kind::Link { incoming, .. } => incoming[queue].wakeup.as_fd(),
        })
    }

    fn health(&mut self) -> Result<Health, Error> {
        let Kind::Link { incoming, .. } = &self.kind else {
            return Ok(if self.backlog(0) == 0 { Health::Finished } else { Health::Up });
        };
        let mut health = Health::Up;
        for direction in incoming {
            let ring = direction.ring();
            health = match ring.state {
                LinkState::Lost => {
                    return Err(Error::PortLost { port: self.name.clone(), why: "its memory link was removed".into() });
                }
                LinkState::Down => Health::Down,
                LinkState::Finished if ring.count == 0 => Health::Finished,
                // The port is up while a queue still has frames.
                LinkState::Finished | LinkState::Up => return Ok(Health::Up),
            };
        }
        Ok(health)
    }

    fn statistics(&mut self, queue: usize) -> Statistics {
        match &self.kind {
            Kind::Source(_) => Statistics::default(),
            Kind::Link { incoming, .. } => incoming[queue].ring().statistics,
        }
    }

    fn capabilities(&self) -> Capabilities {
        let (stamps_arrival, rx_descriptors, longest_frame) = match &self.kind {
            // A source discards sent frames of any length.
            Kind::Source(_) => (false, SOURCE_DESCRIPTORS, u32::MAX),
            Kind::Link { config, .. } => (config.clock.is_some(), config.ring as u32, config.longest_frame),
        };
        Capabilities { stamps_arrival, wakes: true, rx_descriptors, longest_frame, ..Capabilities::default() }
    }
}

/// State of a source.
#[derive(Debug)]
struct Source {
    template: Vec<u8>,
    len: u32,
    /// Number of frames still to deliver. `u64::MAX` is enough for 5,800 years at 10 ns per frame.
    left: u64,
    prepared: bool,
    /// Set while frames are left. Otherwise a worker that blocks on an exhausted source would spin until it looks at
    /// the port's health.
    ready: Wakeup,
}

impl Source {
    #[inline]
    fn rx(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        if !self.prepared {
            self.prepare(pool);
        }
        let count = pool.take_many(room.min(self.left as usize), self.len, out);
        self.left -= count as u64;
        if self.left == 0 && count > 0 {
            self.ready.clear();
        }
        count
    }

    /// Writes the template into every free slot.
    #[cold]
    fn prepare(&mut self, pool: &mut Pool) {
        let mut all = Vec::new();
        pool.take_many(usize::MAX, self.len, &mut all);
        for frame in &mut all {
            pool.bytes_mut(frame).copy_from_slice(&self.template);
        }
        pool.give_many(&mut all);
        self.prepared = true;
    }
}

/// The link states that a test can set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkState {
    /// Frames pass in both directions.
    #[default]
    Up,
    /// The link is down. Frames sent and pushed are lost; [`MemoryHandle::lost`] counts them.
    Down,
    /// No more frames arrive. The port is finished once it has delivered the frames in its ring.
    Finished,
    /// The port has disappeared: [`Device::health`] returns an error.
    Lost,
}

/// The other end of a scripted port's link. It can be used from any thread.
#[derive(Clone, Debug)]
pub struct MemoryHandle {
    to_port: Vec<Arc<Direction>>,
    from_port: Vec<Arc<Direction>>,
}

impl MemoryHandle {
    /// Lets a frame arrive on `queue` of the port. Returns whether the ring accepted the frame. If not, the port's
    /// statistics or [`MemoryHandle::lost`] show why.
    pub fn push(&self, queue: usize, data: &[u8], arrived: Option<Instant<Monotonic>>) -> bool {
        let direction = &self.to_port[queue];
        let mut ring = direction.ring();
        let stored = ring.store(data, arrived);
        direction.wake(&mut ring);
        stored
    }

    /// Takes the oldest frame that the port sent on `queue` from the ring. `None` if the ring is empty.
    pub fn take_sent(&self, queue: usize) -> Option<Vec<u8>> {
        let mut ring = self.from_port[queue].ring();
        let data = ring.front()?.0.to_vec();
        ring.pop();
        Some(data)
    }

    /// Number of frames that the port sent on `queue`, but that were lost because the ring was full.
    pub fn sent_overflow(&self, queue: usize) -> u64 {
        self.from_port[queue].ring().statistics.rx_ring_full
    }

    /// Number of frames on `queue` that were lost, in both directions, because the link was not up.
    pub fn lost(&self, queue: usize) -> u64 {
        self.to_port[queue].ring().lost + self.from_port[queue].ring().lost
    }

    /// Number of frames on `queue` that the port has not received yet.
    pub fn waiting(&self, queue: usize) -> usize {
        self.to_port[queue].ring().count
    }

    /// Changes the state of the port's link, and wakes workers that wait for frames.
    pub fn set_state(&self, state: LinkState) {
        for direction in self.to_port.iter().chain(&self.from_port) {
            direction.ring().state = state;
            direction.wakeup.set();
        }
    }
}

/// One queue in one direction of the link.
#[derive(Debug)]
struct Direction {
    ring: Mutex<Ring>,
    wakeup: Wakeup,
}

impl Direction {
    fn all(name: &str, config: LinkConfig) -> Result<Vec<Arc<Self>>, Error> {
        let LinkConfig { queues, ring, longest_frame, .. } = config;
        let octets = ring.checked_mul(longest_frame as usize).filter(|n| *n > 0 && u32::try_from(ring).is_ok());
        let Some(octets) = octets.filter(|_| queues > 0) else {
            return Err(Error::Invalid {
                what: name.into(),
                why: format!(
                    "{queues} queues with rings of {ring} frames of {longest_frame} bytes are impossible: each number must be at least 1, and a ring below 2^32 frames"
                ),
            });
        };
        let direction = || {
            let ring = Ring {
                data: vec![0; octets].into(),
                slots: vec![(0, None); ring].into(),
                longest: longest_frame as usize,
                ..Ring::default()
            };
            Ok(Arc::new(Self { ring: Mutex::new(ring), wakeup: Wakeup::new(false)? }))
        };
        (0..queues).map(|_| direction()).collect()
    }

    /// Locks the ring. A poisoned lock is accepted, because no code here panics halfway through a change, so the ring
    /// is intact.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, pool: &Pool, frames: &[Frame], clock: Option<fn() -> Instant<Monotonic>>) {
        let arrived = clock.map(|now| now());
        let mut ring = self.ring();
        for frame in frames {
            ring.store(pool.bytes(frame), arrived);
        }
        self.wake(&mut ring);
    }

    /// Wakes the receiver if it asked to be woken and there are frames to receive.
    fn wake(&self, ring: &mut Ring) {
        if ring.armed && ring.count > 0 {
            ring.armed = false;
            self.wakeup.set();
        }
    }

    fn arm(&self) {
        let mut ring = self.ring();
        ring.armed = true;
        self.wake(&mut ring);
    }

    fn disarm(&self) {
        self.ring().armed = false;
        self.wakeup.clear();
    }
}

/// A bounded queue of frames. All its memory is allocated at creation.
#[derive(Debug, Default)]
struct Ring {
    data: Box<[u8]>,
    /// Length and arrival time of each frame.
    slots: Box<[(usize, Option<Instant<Monotonic>>)]>,
    longest: usize,
    first: usize,
    count: usize,
    armed: bool,
    state: LinkState,
    lost: u64,
    statistics: Statistics,
}

impl Ring {
    fn store(&mut self, data: &[u8], arrived: Option<Instant<Monotonic>>) -> bool {
        if self.state != LinkState::Up {
            self.lost += 1;
        } else if data.is_empty() || data.len() > self.longest {
            self.statistics.rx_invalid += 1;
        } else if self.count == self.slots.len() {
            self.statistics.rx_ring_full += 1;
        } else {
            let at = (self.first + self.count) % self.slots.len();
            self.data[at * self.longest..][..data.len()].copy_from_slice(data);
            self.slots[at] = (data.len(), arrived);
            self.count += 1;
            return true;
        }
        false
    }

    fn front(&self) -> Option<(&[u8], Option<Instant<Monotonic>>)> {
        let (len, arrived) = *self.slots.get(self.first).filter(|_| self.count > 0)?;
        Some((&self.data[self.first * self.longest..][..len], arrived))
    }

    fn pop(&mut self) {
        self.first = (self.first + 1) % self.slots.len();
        self.count -= 1;
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let mut received = 0;
        while received < room {
            let Some((data, arrived)) = self.front() else { break };
            // Without a free slot, the frame stays in the ring, which may then overflow.
            let Some(mut frame) = pool.take() else { break };
            if pool.set_len(&mut frame, data.len()) {
                pool.bytes_mut(&mut frame).copy_from_slice(data);
                if let Some(at) = arrived {
                    frame.set_arrived(at);
                }
                out.push(frame);
                received += 1;
            } else {
                pool.give(frame);
                self.statistics.rx_invalid += 1;
            }
            self.pop();
        }
        received
    }
}

#[cfg(test)]
mod tests;

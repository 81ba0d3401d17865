//! One AF_XDP socket, with the four rings of its queue and the slots in them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets,
    XdpStatistics,
};
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::Error;
use crate::cpu::{Cpu, LinuxCpu};
use crate::device::Statistics;
use crate::os;
use crate::pool::{Frame, Pool};

use super::busy::BusyPoll;
use super::config::RingSizes;
use super::index::{Consumer, Producer};
use super::losses::{Losses, Reception};
use super::parts::{Partial, Stamps, append};
use super::refusals::{OnRefusal, Refusals};
use super::sys::{Desc, RingMemory, prefetch};

/// Length of the shortest frame that is sent, in bytes: an Ethernet header. The kernel may refuse shorter frames
/// without ever completing them (net/xdp/xsk_queue.h, `xskq_cons_read_desc`), and their slots would be lost.
const SHORTEST_FRAME: usize = 14;

/// Number of descriptors to prefetch ahead of the current one.
const AHEAD: u32 = 4;

/// Number of slots in each ring of a queue. Every slot of a pool is on its free list, in use by the worker, or counted
/// here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Free slots in the fill ring, into which the kernel can receive.
    pub fill: u32,
    /// Slots with received frames that the worker has not picked up yet.
    pub rx: u32,
    /// Slots with frames to be sent.
    pub tx: u32,
    /// Slots whose frames the driver is sending.
    pub in_flight: u32,
    /// Slots whose frames were sent, and which the worker has not reclaimed yet.
    pub completion: u32,
    /// Slots with parts of a jumbo frame that is not complete yet.
    pub partial: u32,
}

impl Occupancy {
    /// Total number of slots in the queue.
    pub fn slots(&self) -> u32 {
        self.fill + self.rx + self.tx + self.in_flight + self.completion + self.partial
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: u32,
    fd: Arc<OwnedFd>,
    fill: RingMemory<u64>,
    fill_at: Producer,
    completion: RingMemory<u64>,
    completion_at: Consumer,
    rx: RingMemory<Desc>,
    rx_at: Consumer,
    tx: RingMemory<Desc>,
    tx_at: Producer,
    sizes: RingSizes,
    need_wakeup: bool,
    pub(super) zero_copy: bool,
    pub(super) busy_poll: BusyPoll,
    /// Size of a chunk of the UMEM in bytes. It is smaller than a slot if a frame can take several descriptors.
    chunk: u32,
    /// Shifting an address right by this number of bits gives the number of its slot.
    slot_shift: u32,
    /// For each slot, the number of its descriptors that the kernel still has. It shows when a jumbo frame has been
    /// sent completely, and which slots to reclaim when the queue is closed.
    held: Box<[u8]>,
    /// Number of descriptors that were given to the kernel for sending and have not been returned yet.
    out: u32,
    /// Whether the last kick (the system call that makes the kernel send) left frames in the TX ring.
    unsent: bool,
    refusals: Refusals,
    partial: Partial,
    stamps: Stamps,
    /// Whether the kernel reported that the interface is down or gone.
    pub(super) gone: bool,
    own: Statistics,
    losses: Losses,
    /// Whether the pool was empty at a refill since the statistics were last read.
    starved: bool,
}

/// Properties of a queue that do not change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) id: u32,
    pub(super) sizes: RingSizes,
    /// See [`Queue::chunk`].
    pub(super) chunk: u32,
    pub(super) need_wakeup: bool,
}

/// The memory of the four rings.
#[derive(Debug)]
struct Rings {
    fill: RingMemory<u64>,
    completion: RingMemory<u64>,
    rx: RingMemory<Desc>,
    tx: RingMemory<Desc>,
}

impl Queue {
    /// Sets the sizes of the rings of a socket that is not bound yet, maps the rings, and fills the fill ring.
    pub(super) fn new(setup: Setup, fd: Arc<OwnedFd>, pool: &mut Pool) -> Result<Self, Error> {
        let Setup { sizes, .. } = setup;
        let system = |e| Error::system("set up the AF_XDP rings", e);
        sockopt::set_xdp_umem_fill_ring_size(&fd, sizes.fill).map_err(system)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, sizes.completion).map_err(system)?;
        sockopt::set_xdp_rx_ring_size(&fd, sizes.rx).map_err(system)?;
        sockopt::set_xdp_tx_ring_size(&fd, sizes.tx).map_err(system)?;
        let XdpMmapOffsets { rx, tx, fr, cr } = sockopt::xdp_mmap_offsets(&fd).map_err(system)?;
        let system = |e| Error::system("map the AF_XDP rings", e);
        let rings = Rings {
            fill: RingMemory::map(fd.as_fd(), fr, sizes.fill, XDP_UMEM_PGOFF_FILL_RING).map_err(system)?,
            completion: RingMemory::map(fd.as_fd(), cr, sizes.completion, XDP_UMEM_PGOFF_COMPLETION_RING)
                .map_err(system)?,
            rx: RingMemory::map(fd.as_fd(), rx, sizes.rx, XDP_PGOFF_RX_RING).map_err(system)?,
            tx: RingMemory::map(fd.as_fd(), tx, sizes.tx, XDP_PGOFF_TX_RING).map_err(system)?,
        };
        let kernel = sockopt::xdp_statistics(&fd).map_err(|e| Error::system("read XDP_STATISTICS", e))?;
        let stamps = Stamps::new(LinuxCpu.now(), os::clock_offset()?);
        Ok(Self::with(setup, fd, rings, (kernel, stamps), pool))
    }

    /// Starts at the rings' current indices, and fills the fill ring.
    fn with(
        setup: Setup,
        fd: Arc<OwnedFd>,
        rings: Rings,
        (kernel, stamps): (XdpStatistics, Stamps),
        pool: &mut Pool,
    ) -> Self {
        let Setup { id, sizes, chunk, need_wakeup } = setup;
        let Rings { fill, completion, rx, tx } = rings;
        let mut queue = Self {
            id,
            fill_at: Producer::new(sizes.fill, fill.producer(), fill.consumer()),
            completion_at: Consumer::new(sizes.completion, completion.producer(), completion.consumer()),
            rx_at: Consumer::new(sizes.rx, rx.producer(), rx.consumer()),
            tx_at: Producer::new(sizes.tx, tx.producer(), tx.consumer()),
            fill,
            completion,
            rx,
            tx,
            sizes,
            need_wakeup,
            zero_copy: false,
            busy_poll: BusyPoll::Off,
            chunk,
            slot_shift: pool.frame_size().trailing_zeros(),
            held: vec![0; pool.frames() as usize].into(),
            out: 0,
            unsent: false,
            refusals: Refusals::default(),
            partial: Partial::None,
            stamps,
            gone: false,
            own: Statistics::default(),
            starved: false,
            losses: Losses::new(kernel),
            fd,
        };
        queue.refill(pool);
        queue
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    fn slot(&self, addr: u64) -> usize {
        (addr >> self.slot_shift) as usize
    }

    pub(super) fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        if self.unsent {
            self.kick_if_time();
        }
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let mut filled = self.rx_at.filled(room, self.rx.producer());
        if filled == 0 {
            if self.busy_poll.is_active() {
                self.poll_driver();
                filled = self.rx_at.filled(room, self.rx.producer());
            } else if self.fill.needs_wakeup() {
                self.poll_driver();
            }
        }
        let (descriptors, before) = (filled.min(room), out.len());
        let base = pool.area().0;
        for i in 0..descriptors {
            if i + AHEAD < filled {
                let addr = self.rx.read(self.rx_at.place(AHEAD)).addr as usize;
                prefetch(base, addr.wrapping_sub(4));
            }
            let desc = self.rx.read(self.rx_at.take());
            self.accept(desc, pool, out);
        }
        if descriptors > 0 {
            self.rx_at.release(self.rx.consumer());
            self.busy_poll.received(self.fd.as_fd(), descriptors);
        }
        self.refill(pool);
        out.len() - before
    }

    /// Converts a received descriptor to a frame, or to a part of a jumbo frame.
    #[inline]
    fn accept(&mut self, desc: Desc, pool: &mut Pool, out: &mut Vec<Frame>) {
        let slot = self.slot(desc.addr);
        let Some(mut frame) = pool.frame_at(desc.addr, desc.len).filter(|_| self.held.get(slot) == Some(&1)) else {
            self.own.rx_invalid += 1; // the kernel returned a slot that it did not have
            return;
        };
        self.held[slot] = 0;
        let more = desc.options & libc::XDP_PKT_CONTD != 0;
        match std::mem::replace(&mut self.partial, Partial::None) {
            Partial::None => {
                self.stamps.read(pool, &mut frame, || LinuxCpu.now());
                if more {
                    self.partial = Partial::Frame(frame);
                } else {
                    out.push(frame);
                }
            }
            Partial::Frame(mut whole) => {
                let fits = append(pool, &mut whole, &frame);
                pool.give(frame);
                if fits && more {
                    self.partial = Partial::Frame(whole);
                } else if fits {
                    out.push(whole);
                } else {
                    pool.give(whole);
                    self.own.rx_invalid += 1;
                    self.partial = if more { Partial::Discard } else { Partial::None };
                }
            }
            Partial::Discard => {
                pool.give(frame);
                self.partial = if more { Partial::Discard } else { Partial::None };
            }
        }
    }

    /// Refills the fill ring if it lacks at least a batch of slots.
    fn refill(&mut self, pool: &mut Pool) {
        let batch = self.sizes.refill();
        let room = self.fill_at.free(batch, self.fill.consumer());
        if room < batch {
            return;
        }
        let mut added = 0;
        while added < room {
            let Some(addr) = self.take_addr(pool) else {
                self.starved = true;
                break;
            };
            let slot = self.slot(addr);
            self.held[slot] = 1;
            self.fill.write(self.fill_at.claim(), addr);
            added += 1;
        }
        if added > 0 {
            self.fill_at.publish(self.fill.producer());
        }
    }

    /// Takes a free slot. If there is none, first reclaims those that were sent, because the next frame to be sent may
    /// need a slot to arrive in.
    #[inline]
    fn take_addr(&mut self, pool: &mut Pool) -> Option<u64> {
        pool.take_addr().or_else(|| {
            self.reclaim(pool);
            pool.take_addr()
        })
    }

    pub(super) fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        self.reclaim(pool);
        if frames.is_empty() && !self.unsent {
            return 0;
        }
        let mut room = self.room(u32::try_from(frames.len()).unwrap_or(u32::MAX));
        let mut taken = 0;
        for frame in frames.iter() {
            if frame.len() >= SHORTEST_FRAME {
                let parts = self.parts(frame);
                if parts > room {
                    room = self.room(parts); // a jumbo frame takes more descriptors than were asked for
                }
                if parts > room {
                    break;
                }
                room -= parts;
                self.out += parts;
                self.queue_frame(frame, parts);
            }
            taken += 1;
        }
        self.tx_at.publish(self.tx.producer());
        for frame in frames.drain(..taken) {
            if frame.len() < SHORTEST_FRAME {
                self.own.tx_invalid += 1;
                pool.give(frame);
            }
        }
        self.unsent = true;
        self.kick_if_time();
        taken
    }

    /// Number of descriptors that may be written to the TX ring. At most as many are being sent or completed as the
    /// ring has. Reads the kernel's index only if fewer than `wanted` are known to be free.
    #[inline]
    fn room(&mut self, wanted: u32) -> u32 {
        self.tx_at.free(wanted, self.tx.consumer()).min(self.sizes.tx.saturating_sub(self.out))
    }

    /// Number of descriptors for a frame: one for each chunk that contains a part of it.
    #[inline]
    fn parts(&self, frame: &Frame) -> u32 {
        let chunk = u64::from(self.chunk);
        let (first, last) = (frame.addr(), frame.addr() + frame.len() as u64 - 1);
        (last / chunk - first / chunk) as u32 + 1
    }

    #[inline]
    fn queue_frame(&mut self, frame: &Frame, parts: u32) {
        let slot = self.slot(frame.addr());
        self.held[slot] = parts as u8; // a slot has at most 65536 / 2048 chunks
        let (mut addr, end) = (frame.addr(), frame.addr() + frame.len() as u64);
        for left in (0..parts).rev() {
            let chunk_end = (addr / u64::from(self.chunk) + 1) * u64::from(self.chunk);
            let len = (end.min(chunk_end) - addr) as u32;
            let options = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.tx.write(self.tx_at.claim(), Desc { addr, len, options });
            addr += u64::from(len);
        }
    }

    /// Returns the slots of sent frames to the pool.
    pub(super) fn reclaim(&mut self, pool: &mut Pool) {
        let done = self.completion_at.filled(self.sizes.completion, self.completion.producer());
        for _ in 0..done {
            let addr = self.completion.read(self.completion_at.take());
            self.out = self.out.saturating_sub(1);
            let slot = self.slot(addr);
            match self.held.get_mut(slot) {
                Some(held @ 1) => {
                    *held = 0;
                    pool.give_addr(addr);
                }
                Some(held) if *held > 1 => *held -= 1,
                // The kernel returned a slot that it did not have. Ignore it, so that no slot is in the pool twice.
                _ => self.own.tx_invalid += 1,
            }
        }
        if done > 0 {
            self.completion_at.release(self.completion.consumer());
        }
    }

    /// Makes the kernel send the frames in the TX ring, unless the driver has just refused a frame.
    #[inline]
    fn kick_if_time(&mut self) {
        if self.refusals.is_over() {
            self.kick(OnRefusal::Pause);
        }
    }

    /// Makes the kernel send the frames in the TX ring now. Frames that the driver refuses are lost.
    pub(super) fn flush(&mut self) {
        self.kick(OnRefusal::GoOn);
    }

    /// Sends the frames in the TX ring for the last time. Those that the kernel does not take count as dropped, because
    /// closing the socket discards them.
    pub(super) fn finish(&mut self) {
        if !self.unsent {
            return;
        }
        self.flush();
        if self.zero_copy {
            return; // the driver may still send them
        }
        let last_parts = self.tx_at.unconsumed().filter(|at| self.tx.read(*at).options & libc::XDP_PKT_CONTD == 0);
        self.own.tx_dropped += last_parts.count() as u64;
    }

    /// Kicks the kernel (calls send(2)) until the TX ring is empty. In copy mode, each call sends up to 32 frames and
    /// then returns EAGAIN (net/xdp/xsk.c, `__xsk_generic_xmit`, TX_BATCH_SIZE). If a call sends nothing, the loop
    /// ends, and the remaining frames are sent with the next `rx` or `tx`.
    fn kick(&mut self, on_refusal: OnRefusal) {
        let mut pending = self.tx_at.pending(self.tx.consumer());
        if self.need_wakeup && !self.tx.needs_wakeup() {
            // The driver is already sending. It may stop just now, before it sees the last frames, so look again at the
            // next poll.
            self.unsent = pending > 0;
            return;
        }
        // A refused frame has left the ring, but the kernel may show that only after the next call.
        let (mut may_be_refused, mut is_woken) = (pending, false);
        while pending > 0 {
            let mut is_refused = false;
            match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) => {
                    is_woken = true;
                    self.refusals.end();
                }
                // With zero copy, the driver is being reconfigured, for example, and must be kicked again.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                // The driver dropped one frame (`__xsk_generic_xmit`: "SKB completed but not sent"). The next frame
                // would find the same queue full.
                Err(Errno::BUSY) if !self.zero_copy => {
                    self.own.tx_dropped += 1;
                    if on_refusal == OnRefusal::Pause {
                        self.refusals.note();
                        break;
                    }
                    is_refused = may_be_refused > 0;
                    may_be_refused = may_be_refused.saturating_sub(1);
                }
                Err(Errno::BUSY) => {}
                // The interface is down or no longer bound; `health` finds out which.
                Err(_) => {
                    self.gone = true;
                    break;
                }
            }
            let left = self.tx_at.pending(self.tx.consumer());
            if self.zero_copy || (left == pending && !is_refused) {
                break; // the driver does the rest, or there is no progress
            }
            pending = left;
        }
        let is_left_to_the_driver = self.zero_copy && is_woken;
        self.unsent = self.tx_at.pending(self.tx.consumer()) > 0 && !is_left_to_the_driver;
    }

    /// Makes the driver receive: wakes it, or with busy polling runs it within this call.
    fn poll_driver(&mut self) {
        if let Err(Errno::NETDOWN | Errno::NXIO) = rustix::net::recv(&self.fd, &mut [0u8; 0][..], RecvFlags::DONTWAIT) {
            self.gone = true;
        }
    }

    /// Prepares for blocking: sends unsent frames, and wakes the driver if it waits for slots. Then poll(2) on the
    /// socket returns with the next frame.
    pub(super) fn arm(&mut self) {
        if self.unsent {
            self.flush();
        }
        if self.fill.needs_wakeup() {
            self.poll_driver();
        }
    }

    pub(super) fn backlog(&self) -> usize {
        self.rx_at.backlog(self.rx.producer()) as usize
    }

    /// Number of received frames that can wait: the size of the RX ring or of the fill ring, whichever is smaller.
    pub(super) fn rx_descriptors(&self) -> u32 {
        self.sizes.rx.min(self.sizes.fill)
    }

    /// Numbers of frames lost since the socket was opened. If the kernel does not report them, the last known values.
    pub(super) fn statistics(&mut self) -> Statistics {
        self.stamps.see(LinuxCpu.now());
        if let Ok(kernel) = sockopt::xdp_statistics(&self.fd) {
            let multi_buffer = u64::from(self.chunk) < 1 << self.slot_shift;
            let how = Reception { zero_copy: self.zero_copy, multi_buffer, starved: std::mem::take(&mut self.starved) };
            self.losses.add(&kernel, how, &mut self.own);
        }
        self.own
    }

    pub(super) fn occupancy(&mut self) -> Occupancy {
        let tx = self.tx_at.pending(self.tx.consumer());
        let completion = self.completion_at.backlog(self.completion.producer());
        Occupancy {
            fill: self.fill_at.pending(self.fill.consumer()),
            rx: self.backlog() as u32,
            tx,
            in_flight: self.out.saturating_sub(tx + completion),
            completion,
            partial: u32::from(matches!(self.partial, Partial::Frame(_))),
        }
    }

    /// Closes the socket and reclaims the slots that the kernel has. Returns the number of slots that are lost to the
    /// pool.
    ///
    /// In copy mode, the kernel no longer uses the slots after the last reference to the socket is closed, because
    /// closing waits until they are no longer in use (net/xdp/xsk.c, `xsk_unbind_dev`). With zero copy, the driver
    /// releases the slots at an unknown later time, so they cannot safely be reused.
    pub(super) fn close(self, pool: &mut Pool) -> usize {
        let Self { held, partial, slot_shift, zero_copy, fd, fill, completion, rx, tx, .. } = self;
        drop((fill, completion, rx, tx, fd)); // a mapping is also a reference
        if let Partial::Frame(frame) = partial {
            pool.give(frame);
        }
        let slots = held.iter().enumerate().filter(|(_, held)| **held > 0);
        if zero_copy {
            return slots.count();
        }
        slots.for_each(|(slot, _)| pool.give_addr((slot as u64) << slot_shift));
        0
    }
}

#[cfg(test)]
mod tests;

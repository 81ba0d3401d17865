//! One receive and transmit queue of a DPDK port, used by one worker.

use std::any::TypeId;
use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use live::Error;
use live::device::{Capabilities, Device, Health, InPlace, Statistics};
use live::pool::packets::Packets;
use live::pool::{Frame, Pool};
use rustix::event::epoll;

use crate::port::Port;
use crate::sys::{self, BURST, FRESH, OWN, Packet, RawPool};

/// Maximum number of frames that can be requested from the driver at once. A worker never requests more
/// ([`live::worker::BURST`]).
pub const LONGEST_BURST: u16 = BURST as u16;
/// Number of free slots that DPDK's mempool should have outside of its caches. A refill takes up to 256 slots for a
/// cache and 512 for a batch of the driver (in `net_af_xdp`).
pub(crate) const IDLE_TARGET: usize = 1024;
/// Maximum number of slots that one poll lends to the mempool, if it has fewer than `IDLE_TARGET`: twice as many as a poll
/// can take. With more, that poll would delay its frames: a slot takes about 30 ns. If the mempool has more than twice
/// `IDLE_TARGET`, each poll takes some back.
const LENT_AT_ONCE: usize = 2 * BURST;

/// Maximum number of packets that are requested from the driver at once, if they stay in their packet buffers. Each packet
/// uses three cache lines. With slots of 4096 bytes, these lie in about half of the sets of a level 1 cache of 32 KiB, and
/// those of 64 packets evict each other. On `net_null`, 32 to 48 packets at a time were 4 to 6 % faster than 64.
const IN_PLACE_BURST: usize = 32;

/// A queue of a DPDK port. Frames are received into the worker's pool and sent from it without copying. Only frames
/// that another device received, and frames from another pool (`net_ring`), are copied.
#[derive(Debug)]
pub struct DpdkDevice {
    port: Arc<Port>,
    queue: u16,
    slots: Arc<RawPool>,
    /// Length of the longest frame for which a slot has room in every case, in bytes.
    room: usize,
    burst: usize,
    packets: [Packet; BURST],
    /// Whether the driver delivers packet buffers with flags for sending.
    asks_for_offloads: bool,
    /// Memory for the packets of `rx`. `None` only while it uses them.
    received: Option<Box<Packets>>,
    /// Epoll descriptor with which the receive interrupt is armed, if the driver has one.
    epoll: OwnedFd,
    interrupt: OnceCell<Option<sys::Interrupt>>,
    armed: bool,
    /// Whether the driver can report how many frames wait in the receive ring.
    counts_backlog: Cell<bool>,
    thread: Thread,
    /// Counters of frames that this device itself lost.
    own: Statistics,
    /// Number of frames that the driver did not accept for sending. Virtual drivers also count them as errors.
    refused: u64,
    port_counts: sys::PortStats,
}

/// Whether the worker's thread is registered with DPDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thread {
    /// Not known yet, because the worker has not polled.
    Unknown,
    /// This device did not register the thread, because the thread already had a DPDK number or no number was free.
    AsIs,
    /// This device registered the thread, and must unregister it.
    Registered,
}

impl DpdkDevice {
    pub(crate) fn new(port: Arc<Port>, queue: u16, slots: Arc<RawPool>, burst: usize) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::System { what: "make an epoll descriptor".into(), source: e.into() })?;
        Ok(Self {
            asks_for_offloads: port.info.driver() == "net_vhost",
            port,
            queue,
            room: slots.room() as usize,
            slots,
            burst,
            packets: [Packet::default(); BURST],
            received: Some(Box::default()),
            epoll,
            interrupt: OnceCell::new(),
            armed: false,
            counts_backlog: Cell::new(true),
            thread: Thread::Unknown,
            own: Statistics::default(),
            refused: 0,
            port_counts: sys::PortStats::default(),
        })
    }

    /// Number of slots that the worker's pool has lent to DPDK's mempool, and how many of them are free there. All
    /// devices of the worker share the mempool.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.slots.lent(), self.slots.idle())
    }

    /// Registers the worker's thread with DPDK, which gives it a mempool cache. DPDK has caches for 128 threads; other
    /// threads work without one.
    #[cold]
    fn begin(&mut self) {
        self.thread = match sys::thread_begin() {
            Ok(true) => Thread::Registered,
            Ok(false) | Err(_) => Thread::AsIs,
        };
    }

    /// Appends the received packets to `out`, some of which are not in a slot of the pool. Returns how many of them are.
    #[cold]
    fn rx_mixed(&mut self, count: usize, pool: &mut Pool, out: &mut Vec<Frame>) -> isize {
        let mut own = 0;
        for index in 0..count {
            let packet = self.packets[index];
            if packet.kind != OWN {
                self.copy_in(packet, pool, out);
                continue;
            }
            match pool.receive(packet.at as usize, packet.len) {
                Some(frame) => {
                    out.push(frame);
                    own += 1;
                }
                None => self.own.rx_invalid += 1,
            }
        }
        own
    }

    /// Copies a packet that is not in a slot of the pool into a slot.
    #[cold]
    fn copy_in(&mut self, packet: Packet, pool: &mut Pool, out: &mut Vec<Frame>) {
        let Some(mut frame) = pool.take() else {
            self.own.rx_no_buffer += 1;
            sys::foreign_take(packet, &mut []);
            return;
        };
        if packet.len > 0 && pool.set_len(&mut frame, packet.len as usize) {
            sys::foreign_take(packet, pool.bytes_mut(&mut frame));
            out.push(frame);
        } else {
            self.own.rx_invalid += 1;
            sys::foreign_take(packet, &mut []);
            pool.give(frame);
        }
    }

    /// Gives back those of the first `count` frames that other devices received and that are too long: such a frame may
    /// have to be copied behind DPDK's headers, and the slot has no room for it there. Returns how many there were; they
    /// count as accepted.
    #[cold]
    fn refuse_long(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, count: usize) -> usize {
        let room = self.room;
        let mut refused = 0;
        for frame in frames.extract_if(..count, |frame| !frame.was_lent() && frame.len() > room) {
            pool.give(frame);
            refused += 1;
        }
        self.own.tx_invalid += refused as u64;
        refused
    }

    /// Receives into `packets`. Returns the number of free slots that the mempool has outside of its caches.
    #[inline]
    fn poll(&mut self, pool: &Pool, packets: &mut Packets, room: usize) -> usize {
        if self.thread == Thread::Unknown {
            self.begin();
        }
        self.slots.check(pool);
        sys::rx(self.port.id, self.queue, &self.slots, TypeId::of::<Self>(), packets, room.min(self.burst))
    }

    /// Keeps the number of the mempool's free slots, which is `idle`, within bounds.
    #[inline]
    fn balance(&self, pool: &mut Pool, idle: usize) {
        if idle < IDLE_TARGET && pool.free() > 0 {
            self.slots.lend(pool, LENT_AT_ONCE.min(IDLE_TARGET - idle));
        } else if idle > 2 * IDLE_TARGET {
            self.slots.reclaim(pool, BURST);
        }
    }

    /// The queue's receive interrupt. `None` if the driver does not support one.
    fn interrupt(&self) -> Option<sys::Interrupt> {
        if !self.port.started() {
            return None;
        }
        *self.interrupt.get_or_init(|| sys::queue_wakes(self.port.id, self.queue, self.epoll.as_fd()).ok())
    }

    fn lost(&self, why: &str) -> Error {
        Error::PortLost { port: self.port.name.clone(), why: why.into() }
    }
}

impl Device for DpdkDevice {
    fn name(&self) -> &str {
        &self.port.name
    }

    fn queues(&self) -> usize {
        1
    }

    #[inline]
    fn rx(&mut self, _queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let before = out.len();
        let mut packets = self.received.take().unwrap_or_default();
        let idle = self.poll(pool, &mut packets, room);
        if !packets.is_empty() {
            self.make_frames(pool, &mut packets, BURST, out);
        }
        self.received = Some(packets);
        self.balance(pool, idle);
        out.len() - before
    }

    #[inline]
    fn tx(&mut self, _queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let mut total = 0;
        while !frames.is_empty() {
            let count = frames.len().min(BURST);
            let (mut longest, mut all_own) = (0, true);
            for (packet, frame) in self.packets.iter_mut().zip(&frames[..count]) {
                let own = frame.was_lent();
                let kind = if own { OWN } else { FRESH };
                (longest, all_own) = (frame.len().max(longest), all_own & own);
                *packet = Packet { at: frame.offset() as u64, len: frame.len() as u32, kind };
            }
            if !all_own && longest > self.room {
                let refused = self.refuse_long(pool, frames, count);
                if refused > 0 {
                    total += refused;
                    continue;
                }
            }
            let sent = sys::tx(self.port.id, self.queue, &self.slots, pool, &mut self.packets[..count]);
            let mut lent = sent;
            if all_own {
                pool.lend_many(frames.drain(..sent));
            } else {
                for (frame, packet) in frames.drain(..sent).zip(&self.packets) {
                    if packet.kind == sys::COPIED {
                        pool.give(frame);
                        lent -= 1;
                    } else {
                        pool.lend_frame(frame);
                    }
                }
            }
            self.slots.count(lent as isize);
            total += sent;
            if sent < count {
                self.refused += (count - sent) as u64;
                break;
            }
        }
        total
    }

    fn backlog(&self, _queue: usize) -> usize {
        if !self.counts_backlog.get() {
            return 0;
        }
        sys::queue_backlog(self.port.id, self.queue).unwrap_or_else(|_| {
            self.counts_backlog.set(false);
            0
        })
    }

    fn arm(&mut self, _queue: usize) -> Result<(), Error> {
        if self.interrupt().is_some() {
            sys::queue_arm(self.port.id, self.queue, self.epoll.as_fd())
                .map_err(|e| self.lost(&format!("its receive interrupt cannot be enabled ({e})")))?;
            self.armed = true;
        }
        Ok(())
    }

    fn disarm(&mut self, _queue: usize) {
        if std::mem::take(&mut self.armed) {
            sys::queue_disarm(self.port.id, self.queue, self.epoll.as_fd());
        }
    }

    fn wait_handle(&self, _queue: usize) -> Option<BorrowedFd<'_>> {
        self.interrupt().map(|interrupt| interrupt.fd(&*self.port))
    }

    fn health(&mut self) -> Result<Health, Error> {
        if sys::port_removed(self.port.id) {
            return Err(self.lost("its device was removed"));
        }
        // DPDK's drivers for kernel interfaces do not notice when the interface is removed.
        if let Some(link) = &self.port.link {
            return link.health();
        }
        match sys::port_link(self.port.id) {
            Ok(true) => Ok(Health::Up),
            Ok(false) => Ok(Health::Down),
            Err(e) => Err(self.lost(&format!("its link cannot be read ({e})"))),
        }
    }

    /// The counters of the port. DPDK counts per port and not per queue, so only the device of the first queue reports
    /// them.
    fn statistics(&mut self, _queue: usize) -> Statistics {
        if self.queue != 0 {
            return self.own;
        }
        if let Ok(counts) = sys::port_stats(self.port.id) {
            self.port_counts = counts;
        }
        let sys::PortStats { missed, no_mbuf, rx_errors, tx_errors } = self.port_counts;
        let refused = if self.port.info.is_virtual() { self.refused } else { 0 };
        Statistics {
            rx_ring_full: missed,
            rx_no_buffer: self.own.rx_no_buffer + no_mbuf,
            rx_invalid: self.own.rx_invalid + rx_errors,
            tx_invalid: self.own.tx_invalid,
            tx_dropped: tx_errors.saturating_sub(refused),
        }
    }

    /// Packet buffers of `net_vhost` may ask for offloads that the next port does not have (its argument
    /// `legacy-ol-flags`). A packet buffer that is made of a frame asks for none.
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        if self.asks_for_offloads { None } else { Some(self) }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            stamps_arrival: false,
            zero_copy: !self.port.info.is_virtual(),
            wakes: self.interrupt().is_some(),
            // DPDK's drivers do not say.
            sends_in_turn: false,
            busy_poll: None,
            rx_descriptors: u32::from(self.port.descriptors.0),
            longest_frame: self.slots.room(),
        }
    }
}

impl InPlace for DpdkDevice {
    fn kind(&self) -> TypeId {
        TypeId::of::<Self>()
    }

    #[inline]
    fn rx_packets(&mut self, _queue: usize, pool: &mut Pool, packets: &mut Packets, room: usize) -> bool {
        let room = room.min(self.burst).min(IN_PLACE_BURST);
        let idle = self.poll(pool, packets, room);
        self.balance(pool, idle);
        packets.len() == room
    }

    #[inline]
    fn tx_packets(&mut self, _queue: usize, pool: &mut Pool, packets: &mut Packets) -> usize {
        self.slots.check(pool);
        let sent = sys::tx_packets(self.port.id, self.queue, &self.slots, TypeId::of::<Self>(), packets);
        self.refused += packets.len() as u64;
        sent
    }

    #[inline]
    fn make_frames(&mut self, pool: &mut Pool, packets: &mut Packets, count: usize, out: &mut Vec<Frame>) {
        self.slots.check(pool);
        let count = count.min(packets.len());
        let foreign = sys::describe(&self.slots, TypeId::of::<Self>(), packets, count, &mut self.packets);
        let own = if foreign == 0 {
            let packets = self.packets[..count].iter();
            // A refused packet has a slot that does not exist, or a length beyond the slot's end.
            let refused = pool.receive_many(packets.map(|packet| (packet.at as usize, packet.len)), out);
            self.own.rx_invalid += refused as u64;
            (count - refused) as isize
        } else {
            self.rx_mixed(count, pool, out)
        };
        if own > 0 {
            self.slots.count(-own);
        }
    }
}

impl Drop for DpdkDevice {
    fn drop(&mut self) {
        self.disarm(0);
        if self.thread == Thread::Registered {
            self.slots.flush();
            sys::thread_end();
        }
    }
}

//! Calls the C shim (shim/shim.h), which calls DPDK.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use live::pool::packets::Packets;
use live::pool::{Pool, PoolMemory};

/// Maximum number of packets or slots that the shim moves in one call (`APUS_BATCH`).
pub const BURST: usize = 64;
const _: () = assert!(BURST == live::worker::BURST, "`Packets` has room for a burst");

/// A packet, passed to and from the shim (`struct apus_packet`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Offset of the packet's data from the start of the pool. For a packet outside of the pool, the address of its
    /// mbuf.
    pub at: u64,
    /// Length of the data in bytes.
    pub len: u32,
    /// Where the packet is: one of the associated constants.
    pub kind: u32,
}

/// The packet is in the pool and has a valid mbuf header.
pub const OWN: u32 = 0;
/// The packet is in the pool, but another device may have overwritten its mbuf header.
pub const FRESH: u32 = 1;
/// The packet was sent as a copy, so its slot is free.
pub const COPIED: u32 = 3;

/// Properties of a port (`struct apus_port_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    driver: [c_char; 64],
    /// MAC address of the port.
    pub mac: [u8; 6],
    is_virtual: u8,
    by_physical: u8,
    /// Line rate in Mbit/s; 0 if unknown.
    pub speed_mbps: u32,
    /// Index of the kernel interface behind the port; 0 if there is none.
    pub if_index: u32,
    /// Maximum number of receive queues.
    pub max_rx_queues: u16,
    /// Maximum number of transmit queues.
    pub max_tx_queues: u16,
}

impl PortInfo {
    /// The driver's name.
    pub fn driver(&self) -> String {
        let bytes: Vec<u8> = self.driver.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
    /// Whether a CPU copies the frames, so that there is no DMA.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual != 0
    }
    /// Whether the device uses physical addresses for DMA.
    pub fn by_physical(&self) -> bool {
        self.by_physical != 0
    }
}

/// Counters of a port since it was started (`struct apus_port_stats`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortStats {
    /// Received frames that were lost because the ring was full.
    pub missed: u64,
    /// Received frames that were lost because no mbuf was free.
    pub no_mbuf: u64,
    /// Frames received with an error.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

#[repr(C)]
struct RawSlots {
    _private: [u8; 0],
}

// Signatures as in shim/shim.h, which build.rs compiles together with the functions.
unsafe extern "C" {
    fn apus_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn apus_version() -> *const c_char;
    fn apus_errno() -> c_int;
    fn apus_thread_begin() -> c_int;
    fn apus_thread_end();
    fn apus_slots_new(base: *mut c_void, len: usize, slot_size: u32, physical: c_int) -> *mut RawSlots;
    fn apus_slots_lend(slots: *mut RawSlots, offsets: *const u64, count: u32);
    fn apus_slots_reclaim(slots: *mut RawSlots, offsets: *mut u64, count: u32) -> u32;
    fn apus_slots_idle(slots: *const RawSlots) -> u32;
    fn apus_slots_flush(slots: *mut RawSlots);
    fn apus_slots_reserve() -> u32;
    fn apus_slots_room(slots: *const RawSlots) -> u32;
    fn apus_slots_buffer(slots: *const RawSlots) -> u32;
    fn apus_slots_delete(slots: *mut RawSlots);
    fn apus_port_open(devargs: *const c_char, port: *mut u16) -> c_int;
    fn apus_port_info(port: u16, info: *mut PortInfo) -> c_int;
    fn apus_port_configure(port: u16, queues: u16, rx: *mut u16, tx: *mut u16) -> c_int;
    fn apus_port_queue(port: u16, queue: u16, rx: u16, tx: u16, slots: *mut RawSlots) -> c_int;
    fn apus_port_map(port: u16, slots: *mut RawSlots) -> c_int;
    fn apus_port_start(port: u16) -> c_int;
    fn apus_port_close(port: u16, unmapped: *const *mut RawSlots, count: usize);
    fn apus_port_link(port: u16) -> c_int;
    fn apus_port_removed(port: u16) -> c_int;
    fn apus_port_stats(port: u16, stats: *mut PortStats) -> c_int;
    fn apus_queue_wakes(port: u16, queue: u16, epoll: c_int) -> c_int;
    fn apus_queue_arm(port: u16, queue: u16, epoll: c_int) -> c_int;
    fn apus_queue_disarm(port: u16, queue: u16, epoll: c_int);
    fn apus_queue_backlog(port: u16, queue: u16) -> c_int;
    fn apus_rx(port: u16, queue: u16, slots: *const RawSlots, mbufs: *mut usize, room: u32, idle: *mut u32) -> u32;
    fn apus_tx_packets(port: u16, queue: u16, mbufs: *mut usize, count: u32) -> u32;
    fn apus_describe(slots: *const RawSlots, mbufs: *const usize, count: u32, out: *mut Packet) -> u32;
    fn apus_tx(port: u16, queue: u16, slots: *mut RawSlots, packets: *mut Packet, count: u16) -> u32;
    fn apus_foreign_take(at: u64, data: *mut c_void, len: u32);
}

fn result(code: c_int) -> io::Result<c_int> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}

/// Starts DPDK in the calling thread, which becomes its main thread. Called once, by `eal`.
pub fn eal_init(arguments: &[CString]) -> io::Result<()> {
    // DPDK keeps some of these pointers (a device's arguments, for example), so the strings are never freed.
    let leaked = arguments.iter().map(|argument| argument.clone().into_raw());
    let argv = Box::leak(leaked.chain([std::ptr::null_mut()]).collect::<Box<[_]>>());
    // SAFETY: `argv` holds that many strings and a null pointer, and none of them is ever freed; rte_eal_init(3) may
    // reorder them.
    result(unsafe { apus_eal_init(arguments.len() as c_int, argv.as_mut_ptr()) }).map(|_| ())
}

/// DPDK's version, as reported by the linked library.
pub fn version() -> String {
    // SAFETY: returns a string that lives as long as the library.
    unsafe { CStr::from_ptr(apus_version()) }.to_string_lossy().into_owned()
}

/// Registers the calling thread with DPDK. Returns whether [`thread_end`] must be called in the same thread to undo
/// this.
pub fn thread_begin() -> io::Result<bool> {
    // SAFETY: has no arguments, and only registers the calling thread.
    result(unsafe { apus_thread_begin() }).map(|registered| registered > 0)
}

/// Undoes [`thread_begin`] in the same thread.
pub fn thread_end() {
    // SAFETY: as above; the call does nothing in a thread that is not registered.
    unsafe { apus_thread_end() }
}

/// A DPDK mempool whose packet buffers are the slots of a worker's pool. It keeps the pool's memory mapped while it
/// exists.
#[derive(Debug)]
pub struct RawPool {
    raw: NonNull<RawSlots>,
    /// Number of slots that the worker's pool has lent to the mempool. They are free there, or in a driver's ring.
    lent: AtomicUsize,
    /// Number of open ports whose devices can access the slots by DMA.
    ports: AtomicUsize,
    /// Length of each mbuf's buffer in bytes.
    buffer: usize,
    memory: PoolMemory,
}

// SAFETY: the mempool behind it is DPDK's, which any thread may use: its stack is locked, and its caches are per thread.
unsafe impl Send for RawPool {}
// SAFETY: as above.
unsafe impl Sync for RawPool {}

impl RawPool {
    /// Creates an empty mempool for the slots of `pool`. `physical` says whether devices use physical addresses for
    /// DMA.
    pub fn new(pool: &Pool, physical: bool) -> io::Result<Self> {
        let memory = pool.memory();
        let (base, _) = memory.range();
        let len = pool.frames() as usize * pool.frame_size() as usize;
        // SAFETY: the range is mapped, and stays mapped while `memory` exists, which the result keeps.
        let raw = unsafe { apus_slots_new(base.cast(), len, pool.frame_size(), c_int::from(physical)) };
        match NonNull::new(raw) {
            Some(raw) => {
                // SAFETY: `raw` was just made.
                let buffer = unsafe { apus_slots_buffer(raw.as_ptr()) as usize };
                Ok(Self { raw, lent: AtomicUsize::new(0), ports: AtomicUsize::new(0), buffer, memory })
            }
            // SAFETY: returns the calling thread's error number.
            None => Err(io::Error::from_raw_os_error(unsafe { apus_errno() })),
        }
    }

    /// Panics unless the mempool belongs to `pool`. A frame of another pool could refer to memory that this pool does
    /// not have.
    #[inline]
    #[track_caller]
    pub fn check(&self, pool: &Pool) {
        assert!(pool.uses(&self.memory), "a DPDK port is used with another pool than the one it was opened with");
    }

    /// Moves up to `count` free slots of `pool` into the mempool. Returns the number of slots moved.
    pub fn lend(&self, pool: &mut Pool, count: usize) -> usize {
        self.check(pool);
        let mut lent = 0;
        while lent < count {
            let mut offsets = [0; BURST];
            let mut batch = 0;
            for (offset, slot) in offsets.iter_mut().take(count - lent).zip(std::iter::from_fn(|| pool.lend())) {
                *offset = slot as u64;
                batch += 1;
            }
            if batch == 0 {
                break;
            }
            // SAFETY: the pool has lent these slots, so nothing else uses them, and they belong to the mempool. The array
            // has that many offsets.
            unsafe { apus_slots_lend(self.raw.as_ptr(), offsets.as_ptr(), batch) };
            lent += batch as usize;
        }
        self.count(lent as isize);
        lent
    }

    /// Returns `count` free slots from the mempool to `pool`, but at most [`BURST`]. Moves none if the mempool has fewer.
    /// Returns the number of slots moved.
    pub fn reclaim(&self, pool: &mut Pool, count: usize) -> usize {
        let mut offsets = [0; BURST];
        let count = count.min(BURST) as u32;
        // SAFETY: the array has room for that many.
        let taken = unsafe { apus_slots_reclaim(self.raw.as_ptr(), offsets.as_mut_ptr(), count) };
        for at in &offsets[..taken as usize] {
            let back = pool.take_back(*at as usize);
            debug_assert!(back, "a slot of the mempool was not lent");
        }
        self.count(-(taken as isize));
        taken as usize
    }

    /// Adds `change` to the number of lent slots. Each sent frame increases it by one, each received frame decreases
    /// it.
    ///
    /// Uses a plain load and store, because only the worker's thread calls this.
    #[inline]
    pub fn count(&self, change: isize) {
        self.lent.store(self.lent.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// Number of slots that the pool has lent to the mempool.
    pub fn lent(&self) -> usize {
        self.lent.load(Relaxed)
    }

    /// Number of free slots in the mempool and in its caches.
    pub fn idle(&self) -> usize {
        // SAFETY: `raw` is valid while `self` exists.
        unsafe { apus_slots_idle(self.raw.as_ptr()) as usize }
    }

    /// Moves the free slots in the calling thread's cache to the mempool.
    pub fn flush(&self) {
        // SAFETY: as above.
        unsafe { apus_slots_flush(self.raw.as_ptr()) }
    }

    /// Length of the longest frame that a driver can write into one slot, in bytes.
    pub fn room(&self) -> u32 {
        // SAFETY: as above.
        unsafe { apus_slots_room(self.raw.as_ptr()) }
    }
}

impl Drop for RawPool {
    fn drop(&mut self) {
        if self.idle() >= self.lent() {
            // SAFETY: all lent slots were returned, so no driver can use one any more.
            unsafe { apus_slots_delete(self.raw.as_ptr()) }
        } else {
            // Another port still has a frame of this pool, for example one end of a net_ring when only the other end is
            // closed. Mempool and memory then stay until the process ends.
            std::mem::forget(self.memory.clone());
        }
    }
}

/// Maximum number of free slots that the caches of one thread can hold back.
pub fn reserve() -> u32 {
    // SAFETY: returns a constant.
    unsafe { apus_slots_reserve() }
}

/// Probes the device. Returns the number that DPDK gave to its port.
pub fn port_open(devargs: &CStr) -> io::Result<u16> {
    let mut port = 0;
    // SAFETY: the string and the place for the result are valid during the call.
    result(unsafe { apus_port_open(devargs.as_ptr(), &raw mut port) }).map(|_| port)
}

/// The properties of the port, as reported by the driver.
pub fn port_info(port: u16) -> io::Result<PortInfo> {
    let mut info = PortInfo {
        driver: [0; 64],
        mac: [0; 6],
        is_virtual: 0,
        by_physical: 0,
        speed_mbps: 0,
        if_index: 0,
        max_rx_queues: 0,
        max_tx_queues: 0,
    };
    // SAFETY: the place is valid during the call, and has the layout of the C struct.
    result(unsafe { apus_port_info(port, &raw mut info) }).map(|_| info)
}

/// Configures the port for `queues` queues in each direction. `(rx, tx)` are the requested numbers of descriptors per
/// queue. Returns the numbers that the driver accepts.
pub fn port_configure(port: u16, queues: u16, (mut rx, mut tx): (u16, u16)) -> io::Result<(u16, u16)> {
    // SAFETY: both places are valid during the call.
    result(unsafe { apus_port_configure(port, queues, &raw mut rx, &raw mut tx) }).map(|_| (rx, tx))
}

/// Sets up a receive and a transmit queue with `(rx, tx)` descriptors. Their packet buffers are those in `slots`.
pub fn port_queue(port: u16, queue: u16, (rx, tx): (u16, u16), slots: &RawPool) -> io::Result<()> {
    // SAFETY: the mempool outlives the port: `port::Port` keeps it.
    result(unsafe { apus_port_queue(port, queue, rx, tx, slots.raw.as_ptr()) }).map(|_| ())
}

/// Gives the port's device access to the slots by DMA, until [`port_close`]. Returns whether the memory was unknown to
/// DPDK before. Call it in DPDK's main thread.
pub fn port_map(port: u16, slots: &RawPool) -> io::Result<bool> {
    // SAFETY: as above.
    let is_new = result(unsafe { apus_port_map(port, slots.raw.as_ptr()) })?;
    slots.ports.fetch_add(1, Relaxed);
    Ok(is_new > 0)
}

/// Starts the port.
pub fn port_start(port: u16) -> io::Result<()> {
    // SAFETY: DPDK checks the number of the port.
    result(unsafe { apus_port_start(port) }).map(|_| ())
}

/// Stops and closes the port, and removes its device. `mapped` are the pools that were mapped for it. Call it in DPDK's
/// main thread.
pub fn port_close(port: u16, mapped: &[Arc<RawPool>]) {
    let unmapped = mapped.iter().filter(|pool| pool.ports.fetch_sub(1, Relaxed) == 1);
    let unmapped: Vec<*mut RawSlots> = unmapped.map(|pool| pool.raw.as_ptr()).collect();
    // SAFETY: as above; the array has that many mempools, which exist during the call.
    unsafe { apus_port_close(port, unmapped.as_ptr(), unmapped.len()) }
}

/// Whether the port's link is up.
pub fn port_link(port: u16) -> io::Result<bool> {
    // SAFETY: as above.
    result(unsafe { apus_port_link(port) }).map(|up| up > 0)
}

/// Whether the device was removed.
pub fn port_removed(port: u16) -> bool {
    // SAFETY: as above.
    unsafe { apus_port_removed(port) > 0 }
}

/// The port's counters.
pub fn port_stats(port: u16) -> io::Result<PortStats> {
    let mut stats = PortStats::default();
    // SAFETY: the place is valid during the call, and has the layout of the C struct.
    result(unsafe { apus_port_stats(port, &raw mut stats) }).map(|_| stats)
}

/// File descriptor of a queue's receive interrupt. The driver owns and closes it.
#[derive(Clone, Copy, Debug)]
pub struct Interrupt(RawFd);

impl Interrupt {
    /// The descriptor for poll(2). Valid while `_port` is open.
    pub fn fd<T>(self, _port: &T) -> BorrowedFd<'_> {
        // SAFETY: the driver closes the descriptor together with the port, which the device keeps open.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Adds the queue's receive interrupt to the epoll descriptor. Fails if the driver has no receive interrupt.
pub fn queue_wakes(port: u16, queue: u16, epoll: BorrowedFd<'_>) -> io::Result<Interrupt> {
    // SAFETY: DPDK checks the numbers; the epoll descriptor is open.
    result(unsafe { apus_queue_wakes(port, queue, epoll.as_raw_fd()) }).map(Interrupt)
}

/// Enables the queue's receive interrupt.
pub fn queue_arm(port: u16, queue: u16, epoll: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: as above.
    result(unsafe { apus_queue_arm(port, queue, epoll.as_raw_fd()) }).map(|_| ())
}

/// Disables the queue's receive interrupt.
pub fn queue_disarm(port: u16, queue: u16, epoll: BorrowedFd<'_>) {
    // SAFETY: as above.
    unsafe { apus_queue_disarm(port, queue, epoll.as_raw_fd()) }
}

/// Number of frames in the receive ring. Fails if the driver cannot report it.
pub fn queue_backlog(port: u16, queue: u16) -> io::Result<usize> {
    // SAFETY: the device calls this for its own queue, which is started.
    result(unsafe { apus_queue_backlog(port, queue) }).map(|count| count as usize)
}

/// Receives up to `room` packets, and replaces the contents of `packets` by their mbufs. Returns the number of free slots
/// that the mempool has outside of its caches.
#[inline]
pub fn rx(port: u16, queue: u16, slots: &RawPool, kind: TypeId, packets: &mut Packets, room: usize) -> usize {
    let (room, mut idle) = (room.min(BURST) as u32, 0);
    // SAFETY: there is room for that many. The queue is started; it belongs to the device that calls this, and no other
    // thread uses it. The driver gives each received mbuf to its caller alone, and `kind` sends mbufs. All mbufs of this
    // mempool are in lent slots, which have room for their buffers.
    unsafe {
        packets.fill(&slots.memory, kind, slots.buffer, |mbufs| {
            apus_rx(port, queue, slots.raw.as_ptr(), mbufs.as_mut_ptr(), room, &raw mut idle) as usize
        });
    }
    idle as usize
}

/// Sends packets as [`rx`] received them, from this port or another one of the same pool. Removes those that the driver
/// accepted, and returns how many these were.
#[inline]
pub fn tx_packets(port: u16, queue: u16, slots: &RawPool, kind: TypeId, packets: &mut Packets) -> usize {
    // SAFETY: as for `rx`. All are mbufs of this mempool, in one piece and with one owner (`Packets::send`), as the
    // driver may require (RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE). It leaves behind those that it did not accept.
    unsafe {
        packets.send(&slots.memory, kind, |mbufs| {
            apus_tx_packets(port, queue, mbufs.as_mut_ptr(), mbufs.len() as u32) as usize
        })
    }
}

/// Finds the data of the first `count` of `packets`, and removes these. Returns how many of them are not in a slot of the
/// pool, or not in one piece.
#[inline]
pub fn describe(
    slots: &RawPool,
    kind: TypeId,
    packets: &mut Packets,
    count: usize,
    out: &mut [Packet; BURST],
) -> usize {
    // SAFETY: these are mbufs that `rx` received and nobody else has; `out` has room for as many as a burst can have.
    unsafe {
        packets.take(&slots.memory, kind, count, |mbufs| {
            apus_describe(slots.raw.as_ptr(), mbufs.as_ptr(), mbufs.len() as u32, out.as_mut_ptr()) as usize
        })
    }
}

/// Sends `packets`, which are frames of `pool`, in order. Returns how many of them the driver accepted.
#[inline]
pub fn tx(port: u16, queue: u16, slots: &RawPool, pool: &Pool, packets: &mut [Packet]) -> usize {
    slots.check(pool);
    let count = packets.len().min(BURST) as u16;
    // SAFETY: as for `rx`. Each packet lies within a slot of the pool, because it was a `Frame`, and
    // a slot has room for a copy behind its headers, because the device refuses longer frames. The slot of a sent
    // packet belongs to the driver from then on, because the device lends it.
    unsafe { apus_tx(port, queue, slots.raw.as_ptr(), packets.as_mut_ptr(), count) as usize }
}

/// Copies the data of a packet outside of the pool into `data`, at most as much as fits, and frees the packet's mbufs.
pub fn foreign_take(packet: Packet, data: &mut [u8]) {
    let len = (packet.len as usize).min(data.len()) as u32;
    // SAFETY: `at` is the address of an mbuf that `rx` returned, and the device calls this once per mbuf; `data` has
    // room for `len` bytes.
    unsafe { apus_foreign_take(packet.at, data.as_mut_ptr().cast(), len) }
}

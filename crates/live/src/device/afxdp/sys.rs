//! System calls that no safe crate offers, and the shared memory of the rings.
//!
//! Structures, option numbers and mmap offsets come from include/uapi/linux/if_xdp.h, through libc and rustix.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// A type of ring entries. It consists of plain numbers, for which any bit pattern is valid.
pub(super) trait Entry: Copy {}
/// A UMEM address, as in the fill and completion rings.
impl Entry for u64 {}
/// A descriptor, as in the RX and TX rings. Same layout as `struct xdp_desc`.
impl Entry for Desc {}

/// `struct xdp_desc`, include/uapi/linux/if_xdp.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Desc {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

/// The memory of one ring, shared with the kernel.
#[derive(Debug)]
pub(super) struct RingMemory<T: Entry> {
    start: NonNull<u8>,
    len: usize,
    at: XdpRingOffset,
    flags: usize,
    entries: u32,
    holds: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is tied to the thread that made it.
unsafe impl<T: Entry + Send> Send for RingMemory<T> {}

impl<T: Entry> RingMemory<T> {
    /// Maps a ring of `entries` entries (a power of two). The size of the ring must have been set with setsockopt.
    pub(super) fn map(fd: BorrowedFd<'_>, at: XdpRingOffset, entries: u32, page_offset: u64) -> io::Result<Self> {
        let flags = at.flags.ok_or_else(|| io::Error::other("Linux before 5.4, without the flags of AF_XDP rings"))?;
        let len = at.desc as usize + entries as usize * size_of::<T>();
        let in_range = |offset: u64, size: usize| offset.is_multiple_of(4) && offset as usize + size <= len;
        if !entries.is_power_of_two() || ![at.producer, at.consumer, flags].iter().all(|o| in_range(*o, 4)) {
            return Err(io::Error::other(format!("impossible ring offsets: {at:?}")));
        }
        let (protection, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, shared, fd, page_offset)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, len, at, flags: flags as usize, entries, holds: PhantomData })
    }

    fn atomic(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` checked that offset + 4 lies in the mapping, which is page-aligned and lives
        // as long as `self`, and that the offset is a multiple of 4. The kernel too accesses it
        // atomically (net/xdp/xsk_queue.h).
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    #[inline]
    pub(super) fn producer(&self) -> &AtomicU32 {
        self.atomic(self.at.producer as usize)
    }

    #[inline]
    pub(super) fn consumer(&self) -> &AtomicU32 {
        self.atomic(self.at.consumer as usize)
    }

    /// Whether the kernel needs a system call to continue with this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.atomic(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The flags, as the kernel's side writes them.
    #[cfg(test)]
    pub(super) fn flags(&self) -> &AtomicU32 {
        self.atomic(self.flags)
    }

    /// Reads the entry at `place`. The ring's indices must give this side access to it.
    #[inline]
    pub(super) fn read(&self, place: u32) -> T {
        let place = (place & (self.entries - 1)) as usize;
        // SAFETY: within the mapping (place < entries, and `map` sized it for them), aligned (`desc`
        // is cache-line aligned in the kernel's layout), and any bit pattern is a valid `T`.
        unsafe { self.start.as_ptr().add(self.at.desc as usize).cast::<T>().add(place).read_volatile() }
    }

    /// Writes the entry at `place`. The ring's indices must give this side access to it.
    #[inline]
    pub(super) fn write(&self, place: u32, entry: T) {
        let place = (place & (self.entries - 1)) as usize;
        // SAFETY: as in `read`; the kernel reads the entry only after the producer index moved on.
        unsafe { self.start.as_ptr().add(self.at.desc as usize).cast::<T>().add(place).write_volatile(entry) }
    }
}

impl<T: Entry> Drop for RingMemory<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// setsockopt of an `int`, for options that rustix does not know.
pub(super) fn set_int(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes from a live local.
    let failed = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// getsockopt of an `int`, for options that rustix does not know.
pub(super) fn get_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let (mut value, mut len) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes to a live local.
    let failed = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if failed == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Option of packet sockets that joins a group, and leaves it when the socket is closed (include/uapi/linux/if_packet.h).
const PACKET_ADD_MEMBERSHIP: c_int = 1;

/// Which frames an interface receives in addition to those for its own address and groups: `PACKET_MR_PROMISC` and
/// `PACKET_MR_ALLMULTI` of include/uapi/linux/if_packet.h.
#[derive(Clone, Copy)]
pub(super) enum Reception {
    Promiscuous = 1,
    AllMulticast = 2,
}

/// `struct packet_mreq`, include/uapi/linux/if_packet.h.
#[repr(C)]
struct Membership {
    ifindex: c_int,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

/// Makes the interface number `ifindex` receive more frames while `socket`, an AF_PACKET socket, is open.
pub(super) fn receive(socket: BorrowedFd<'_>, ifindex: u32, what: Reception) -> io::Result<()> {
    let wanted = Membership { ifindex: ifindex as c_int, kind: what as u16, address_len: 0, address: [0; 8] };
    let (len, level) = (size_of::<Membership>() as libc::socklen_t, libc::SOL_PACKET);
    let value = (&raw const wanted).cast();
    // SAFETY: the kernel reads `len` bytes from a live local.
    let failed = unsafe { libc::setsockopt(socket.as_raw_fd(), level, PACKET_ADD_MEMBERSHIP, value, len) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The flags of the interface `name` in the namespace of `socket` (`SIOCGIFFLAGS` in netdevice(7)).
pub(in crate::device) fn interface_flags(socket: BorrowedFd<'_>, name: &str) -> io::Result<c_int> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFFLAGS takes and fills a `struct ifreq`, which lives through the call.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFFLAGS filled the member `ifru_flags`.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Values of include/uapi/linux/sockios.h and ethtool.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Number of queues in use: for each direction, its own channels plus the combined channels.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) struct Queues {
    pub(in crate::device) rx: u32,
    pub(in crate::device) tx: u32,
}

/// The queues of the interface `name`. `None` if the driver does not report them. (`struct ethtool_channels` has the
/// command, four maxima, then rx, tx, other, combined.)
pub(in crate::device) fn queues(socket: BorrowedFd<'_>, name: &str) -> Option<Queues> {
    let mut channels = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut request = request(name).ok()?;
    request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL takes a `struct ifreq` whose data points to a whole structure of the command; both live through
    // the call.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    let [rx, tx] = [5, 6].map(|at: usize| channels[at].saturating_add(channels[8]));
    (failed == 0 && rx > 0).then_some(Queues { rx, tx })
}

/// Builds an ioctl request for the interface `name`.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain numbers; all zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Prefetches the cache line at `base` + `offset`. Any address is allowed.
#[inline]
pub(super) fn prefetch(base: *const u8, offset: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on caches, and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(base.wrapping_add(offset).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (base, offset);
}

//! Tracepoints through perf_event_open(2): one ring buffer for all tracepoints of one CPU.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{Instant, Monotonic};

/// Sizes of the ring to try, in pages (powers of two). The first size that the kernel grants is used: root may have
/// any, other users share /proc/sys/kernel/perf_event_mlock_kb.
const PAGES: [usize; 4] = [512, 128, 32, 8];

// include/uapi/linux/perf_event.h
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
const PERF_EVENT_IOC_SET_OUTPUT: u64 = 0x2405;
/// Bits of the flags word: disabled, watermark, use_clockid.
const FLAGS: u64 = 1 | 1 << 14 | 1 << 25;

/// `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER5`.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 112);

/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// A record in the ring.
pub(super) enum Record<'a> {
    /// A tracepoint was hit: the time and the raw record.
    Sample(Instant<Monotonic>, &'a [u8]),
    /// The ring was full, so this many records are missing.
    Lost(u64),
}

/// The tracepoints of one CPU. Records come in the order in which the tracepoints were hit. Closed on drop.
#[derive(Debug)]
pub(super) struct PerfRing {
    base: NonNull<u8>,
    length: usize,
    page: usize,
    /// Buffer for a record that wraps around the end of the ring, copied into one piece.
    joined: Vec<u8>,
    // Declared after the mapping, which belongs to the first of these events, so that they are closed last.
    _events: Vec<OwnedFd>,
}

// SAFETY: only this object owns the mapping, and no other thread of the process writes to it.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Opens and starts the tracepoints `ids` on `cpu`.
    pub(super) fn open(cpu: usize, ids: &[u64]) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let events = ids.iter().map(|id| open(cpu, *id)).collect::<io::Result<Vec<OwnedFd>>>()?;
        let Some(first) = events.first() else {
            return Err(io::Error::other("no tracepoint to open"));
        };
        let (base, length) = map(first, page)?;
        // From here on the drop unmaps.
        let ring = Self { base, length, page, joined: Vec::new(), _events: events };
        for event in &ring._events[1..] {
            ioctl(event, PERF_EVENT_IOC_SET_OUTPUT, ring._events[0].as_raw_fd())?;
        }
        for event in &ring._events {
            ioctl(event, PERF_EVENT_IOC_ENABLE, 0)?;
        }
        Ok(ring)
    }

    /// Passes all available records to `each`, and removes them from the ring.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        // perf_event_open(2), "MMAP layout": read the head, then the data; write the tail after it.
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        while tail < head {
            let header = self.copy(tail, 8);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 {
                break; // cannot be; but a ring that is not understood must not be read for ever
            }
            let record = self.copy(tail, size);
            match kind {
                // { header; u64 time; u32 size; char data[size] }
                PERF_RECORD_SAMPLE if size >= 20 => {
                    let time = word(record, 8);
                    let raw = u32::from_ne_bytes([record[16], record[17], record[18], record[19]]) as usize;
                    each(Record::Sample(Instant::from_nanos(time), &record[20..size.min(20 + raw)]));
                }
                // { header; u64 id; u64 lost }
                PERF_RECORD_LOST if size >= 24 => each(Record::Lost(word(record, 16))),
                _ => {}
            }
            tail += size as u64;
        }
        self.counter(DATA_TAIL).store(head, Ordering::Release);
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as self lives, both counters lie in it aligned to 8
        // octets (perf_event_open(2)), and the kernel changes them as atomics are changed.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Returns `size` bytes from position `from`, copied into one piece if they wrap around the end of the ring.
    fn copy(&mut self, from: u64, size: usize) -> &[u8] {
        let data = self.length - self.page;
        let at = (from % data as u64) as usize;
        let first = size.min(data - at);
        self.joined.clear();
        // SAFETY: both ranges lie in the data pages, and between head and tail the kernel does not write.
        unsafe {
            let start = self.base.as_ptr().add(self.page);
            self.joined.extend_from_slice(std::slice::from_raw_parts(start.add(at), first));
            self.joined.extend_from_slice(std::slice::from_raw_parts(start, size - first));
        }
        &self.joined
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `open` made, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

fn word(record: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&record[at..at + 8]);
    u64::from_ne_bytes(word)
}

fn open(cpu: usize, id: u64) -> io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        config: id,
        sample_period: 1,
        sample_type: PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
        flags: FLAGS,
        // No wake-up is needed, because the ring is read periodically.
        wakeup_watermark: u32::MAX,
        clockid: libc::CLOCK_MONOTONIC,
        ..PerfEventAttr::default()
    };
    // SAFETY: `attr` is a whole perf_event_attr of the size that it states, and lives through the call;
    // pid -1 with a CPU means every thread on it, and there is no group.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attr),
            -1 as libc::pid_t,
            cpu as libc::c_int,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn map(event: &OwnedFd, page: usize) -> io::Result<(NonNull<u8>, usize)> {
    let mut last = io::Error::other("no size was tried");
    for pages in PAGES {
        let length = (1 + pages) * page;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a perf event's own buffer, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, event.as_raw_fd(), 0) };
        if base != libc::MAP_FAILED
            && let Some(base) = NonNull::new(base.cast())
        {
            return Ok((base, length));
        }
        last = io::Error::last_os_error();
    }
    Err(last)
}

fn ioctl(event: &OwnedFd, request: u64, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both requests take a plain number, no pointer.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

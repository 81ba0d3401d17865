//! Opens perf's counting events (perf_event_open(2)) and reads their counts.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};

/// `struct perf_event_attr` in its first version, `PERF_ATTR_SIZE_VER0` (include/uapi/linux/perf_event.h).
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
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 64);

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens a counter that counts all threads on a CPU.
pub(super) fn open(kind: u32, config: u64, cpu: u32) -> io::Result<OwnedFd> {
    open_in(kind, config, cpu, None, 0)
}

/// Opens a counter that counts all threads on a CPU, in the group of another counter. `format` is the group's read
/// format.
pub(crate) fn open_in(
    kind: u32,
    config: u64,
    cpu: u32,
    group: Option<&OwnedFd>,
    read_format: u64,
) -> io::Result<OwnedFd> {
    let size = size_of::<PerfEventAttr>() as u32;
    let attr = PerfEventAttr { kind, size, config, read_format, ..PerfEventAttr::default() };
    let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: `attr` is a whole perf_event_attr of the size that it states, and lives through the call; pid -1 with a CPU
    // means every thread on it; the group is an open descriptor, or -1 for none.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attr),
            -1 as libc::pid_t,
            cpu,
            group.map_or(-1, AsRawFd::as_raw_fd),
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The count of an event that was opened without a group and without times (eight bytes).
pub(super) fn count(event: &OwnedFd) -> io::Result<u64> {
    let mut octets = [0; 8];
    match rustix::io::read(event, &mut octets)? {
        8 => Ok(u64::from_ne_bytes(octets)),
        _ => Err(io::Error::other("the event is in an error state")),
    }
}

//! A group of software events on one CPU (perf_event_open(2)), as long to switch as it has members.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` as far as `PERF_ATTR_SIZE_VER0` (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

// include/uapi/linux/perf_event.h
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
/// The first bit of the flags.
const DISABLED: u64 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
const PERF_EVENT_IOC_DISABLE: u64 = 0x2401;

/// Switched on and off by an interrupt of its CPU, in which the kernel walks over all its members
/// (kernel/events/core.c, `__perf_event_enable` and `__perf_event_disable`).
pub struct Group {
    /// The leader comes last, as it has to be closed last.
    events: Vec<OwnedFd>,
}

impl Group {
    /// A group that is switched off.
    pub fn open(cpu: usize, members: u64) -> io::Result<Self> {
        let leader = open(cpu, -1, DISABLED)?;
        let mut events = (1..members).map(|_| open(cpu, leader.as_raw_fd(), 0)).collect::<io::Result<Vec<_>>>()?;
        events.push(leader);
        Ok(Self { events })
    }

    /// Returns when the CPU has done it.
    pub fn switch(&self, on: bool) -> io::Result<()> {
        let leader = self.events.last().ok_or_else(|| io::Error::other("a group has a leader"))?;
        let request = if on { PERF_EVENT_IOC_ENABLE } else { PERF_EVENT_IOC_DISABLE };
        // SAFETY: both requests take a plain number, no pointer.
        match unsafe { libc::ioctl(leader.as_raw_fd(), request as _, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn open(cpu: usize, group: i32, flags: u64) -> io::Result<OwnedFd> {
    // The flags follow config, sample_period, sample_type and read_format.
    let rest = [0, 0, 0, flags, 0, 0];
    let attr = Attr { kind: PERF_TYPE_SOFTWARE, size: size_of::<Attr>() as u32, config: PERF_COUNT_SW_DUMMY, rest };
    // SAFETY: `attr` is a whole perf_event_attr of the size that it states, and lives through the call;
    // pid -1 with a CPU means every thread on it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attr),
            -1 as libc::pid_t,
            cpu as libc::c_int,
            group as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

//! sched_getattr(2) and sched_setattr(2), which the C library does not wrap.
#![allow(unsafe_code)]

use std::io;

use super::Class;

/// `struct sched_attr` of include/uapi/linux/sched/types.h, in its first version of 48 bytes.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == 48);
const RESET_ON_FORK: u64 = 1;

pub(super) fn class_of(tid: u32) -> io::Result<Class> {
    let mut attributes = SchedAttr::default();
    // SAFETY: the kernel writes at most `size` bytes into `attributes`, which is that large.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid,
            std::ptr::from_mut(&mut attributes),
            size_of::<SchedAttr>() as libc::c_uint,
            0u32,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let fixed = matches!(attributes.policy, 1 | 2);
    Ok(Class {
        policy: attributes.policy,
        rank: if fixed { attributes.priority as i32 } else { attributes.nice },
        times: [attributes.runtime, attributes.deadline, attributes.period],
        reset_on_fork: attributes.flags & RESET_ON_FORK != 0,
    })
}

pub(super) fn set_class(tid: u32, class: &Class) -> io::Result<()> {
    let fixed = matches!(class.policy, 1 | 2);
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: class.policy,
        flags: if class.reset_on_fork { RESET_ON_FORK } else { 0 },
        nice: if fixed { 0 } else { class.rank },
        priority: if fixed { class.rank as u32 } else { 0 },
        runtime: class.times[0],
        deadline: class.times[1],
        period: class.times[2],
    };
    // SAFETY: the kernel reads `size` bytes of `attributes`, which is that large and lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, std::ptr::from_ref(&attributes), 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

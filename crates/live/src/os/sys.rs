//! System calls that rustix does not offer: scheduling class and signal masks.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

pub(super) fn set_fifo(priority: u8) -> io::Result<()> {
    // SAFETY: sched_param is plain integers, for which all zeroes is a value.
    let mut param: libc::sched_param = unsafe { zeroed() };
    param.sched_priority = i32::from(priority);
    // SAFETY: pid 0 is the calling thread, and `param` lives through the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn termination_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; sigaddset with valid numbers cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn mask(how: i32) -> io::Result<()> {
    let set = termination_set();
    // SAFETY: `set` is initialised, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

pub(super) fn block_termination() -> io::Result<()> {
    mask(libc::SIG_BLOCK)
}

pub(super) fn wait_termination(timeout: Duration) -> Option<i32> {
    let set = termination_set();
    let time = libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos().into() };
    // SAFETY: `set` and `time` are initialised and live through the call; no siginfo is asked for.
    let signal = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &time) };
    (signal > 0).then_some(signal)
}

pub(super) fn spawn_unblocked(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe.
    unsafe { command.pre_exec(|| mask(libc::SIG_UNBLOCK)) };
    command.spawn()
}

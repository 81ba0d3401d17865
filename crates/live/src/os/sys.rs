//! System calls that rustix does not offer: scheduling class, signal masks and interface ioctls.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, socket};
use units::{BitRate, Instant, Monotonic};

use super::InterfaceFacts;

pub(super) fn monotonic() -> Instant<Monotonic> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call. It cannot fail for a clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

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

pub(super) fn unblock_termination() -> io::Result<()> {
    mask(libc::SIG_UNBLOCK)
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

/// The ioctl number for ethtool commands: include/uapi/linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// Value from include/uapi/linux/ethtool.h. The request is deprecated, but every driver that knows its speed still
/// answers it.
const ETHTOOL_GSET: u32 = 1;

/// Layout of `struct ethtool_cmd`, include/uapi/linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    phy_address: u8,
    transceiver: u8,
    autoneg: u8,
    mdio_support: u8,
    maxtxpkt: u32,
    maxrxpkt: u32,
    speed_hi: u16,
    eth_tp_mdix: u8,
    eth_tp_mdix_ctrl: u8,
    lp_advertising: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<EthtoolCmd>() == 44);

pub(super) fn interface_facts(name: &str) -> io::Result<InterfaceFacts> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let fd = control.as_raw_fd();
    // SAFETY: ifreq is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::other("an interface name has 1 to 15 bytes"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let ask = |what: libc::c_ulong, request: &mut libc::ifreq| -> io::Result<()> {
        // SAFETY: `request` is a whole ifreq with a terminated name, and lives through the call.
        match unsafe { libc::ioctl(fd, what as _, std::ptr::from_mut(request)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    ask(libc::SIOCGIFHWADDR as _, &mut request)?;
    // SAFETY: SIOCGIFHWADDR filled this member of the union.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    ask(libc::SIOCGIFMTU as _, &mut request)?;
    // SAFETY: SIOCGIFMTU filled this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    let mut link = EthtoolCmd { cmd: ETHTOOL_GSET, ..EthtoolCmd::default() };
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut link).cast();
    let speed = ask(SIOCETHTOOL, &mut request).ok().and_then(|()| {
        let mbps = u32::from(link.speed_hi) << 16 | u32::from(link.speed);
        // SPEED_UNKNOWN is -1 (include/uapi/linux/ethtool.h).
        (mbps != 0 && mbps != u32::MAX && mbps != 0xffff).then(|| BitRate::new(u64::from(mbps) * 1_000_000))
    });
    let mac = std::array::from_fn(|i| address[i] as u8);
    Ok(InterfaceFacts { mac, speed, mtu: mtu.unsigned_abs() })
}

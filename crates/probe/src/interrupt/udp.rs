//! An end of the frame's path over a UDP socket, where the kernel's network stack stamps the arrival. It is used for
//! kernel busy polling and interrupt suspension, which need a socket that knows its NAPI instance. An AF_XDP socket in
//! copy mode does not know its NAPI instance (Linux 6.13 and later; see the crate `live`, device/afxdp/busy.rs).

use std::mem::MaybeUninit;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;

use host::knob::{Access, Knob, Napi, Setting as _, Value};
use live::cpu::{Cpu as _, LinuxCpu};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec};
use units::{Instant, Monotonic, Nanos};

use super::Wait;
use super::frame::{PAYLOAD, Stamps};
use super::sys;
use crate::Error;
use crate::clockcheck::offset;

/// Frames per poll of the driver.
const BUDGET: u16 = 64;
/// Time in microseconds for which a blocking call would poll. Calls here do not block, but 0 would disable busy
/// polling.
const BUSY_US: i32 = 50;
/// Settings for IRQ suspension from the patch series that added it ("Suspend IRQs during application busy periods",
/// v9): defer 100, suspend for at most 20 ms, and flush after 20 us, the second lowest value in the series.
const SUSPEND: [(&str, u64); 3] =
    [("defer-hard-irqs", 100), ("gro-flush-timeout", 20_000), ("irq-suspend-timeout", 20_000_000)];
/// Settings that keep the interrupt masked from one busy poll to the next.
const BUSY: [(&str, u64); 2] = [("defer-hard-irqs", 2), ("gro-flush-timeout", 200_000)];

/// A UDP socket at one end.
pub(super) struct UdpEnd {
    socket: UdpSocket,
    wait: Wait,
    epoll: OwnedFd,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in ns.
    offset: i128,
}

/// A received datagram.
pub(super) struct Datagram {
    octets: [u8; PAYLOAD],
    pub arrived: u64,
}

impl UdpEnd {
    /// Opens a socket from `own` to `peer` in the network namespace of the calling thread; it receives from queue 0
    /// of `interface`.
    pub(super) fn open(interface: &str, own: SocketAddrV4, peer: SocketAddrV4, wait: Wait) -> Result<Self, Error> {
        let failed = |what: &str, e: std::io::Error| Error::system(format!("{what} for UDP on {interface}"), e);
        let socket = UdpSocket::bind(own).map_err(|e| failed("bind a socket", e))?;
        socket.connect(peer).map_err(|e| failed("connect a socket", e))?;
        socket.set_nonblocking(true).map_err(|e| failed("make a socket non-blocking", e))?;
        sys::stamp_arrivals(&socket).map_err(|e| failed("enable time stamps", e))?;
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed("open an epoll", e.into()))?;
        match wait {
            Wait::Block | Wait::Spin => {}
            Wait::Busy => {
                defer(interface, &BUSY)?;
                for (option, value) in [
                    (sys::SO_PREFER_BUSY_POLL, 1),
                    (sys::SO_BUSY_POLL, BUSY_US),
                    (sys::SO_BUSY_POLL_BUDGET, BUDGET.into()),
                ] {
                    sys::set_int(&socket, option, value).map_err(|e| failed("enable busy polling", e))?;
                }
            }
            Wait::Suspend => {
                defer(interface, &SUSPEND)?;
                sys::epoll_busy_poll(&instance, 0, BUDGET, true).map_err(|e| {
                    Error::lacking(
                        "suspend interrupts through epoll",
                        e,
                        "use Linux 6.13 or later with CONFIG_NET_RX_BUSY_POLL, and run with CAP_NET_ADMIN",
                    )
                })?;
            }
        }
        // The parameters must be set first: when a socket is added, epoll uses them to recognise the NAPI instance.
        epoll::add(&instance, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(|e| failed("add a socket to an epoll", e.into()))?;
        Ok(Self { socket, wait, epoll: instance, offset: offset(ClockId::Realtime) })
    }

    /// Whether the socket knows which NAPI instance to poll. It learns this from the first datagram.
    pub(super) fn has_napi(&self) -> bool {
        sys::get_int(&self.socket, sys::SO_INCOMING_NAPI_ID).is_ok_and(|id| id > 0)
    }

    /// Sends a datagram with `stamps`, stamped as late as possible; returns the stamp.
    pub(super) fn send(&self, mut stamps: Stamps) -> Option<u64> {
        let mut octets = [0; PAYLOAD];
        stamps.sent = LinuxCpu.now().as_nanos();
        stamps.write(&mut octets);
        self.socket.send(&octets).is_ok().then_some(stamps.sent)
    }

    /// Sends a datagram back with the stamps of the far end.
    pub(super) fn answer(&self, received: &Datagram, picked: u64) {
        let Some(stamps) = self.stamps(received) else { return };
        let mut octets = [0; PAYLOAD];
        let far_sent = LinuxCpu.now().as_nanos();
        Stamps { far_arrived: received.arrived, far_picked: picked, far_sent, ..stamps }.write(&mut octets);
        // A datagram that the kernel rejects counts as lost at the other end.
        let _ = self.socket.send(&octets);
    }

    /// Waits for a datagram until `until`; returns it with the time of pick-up.
    pub(super) fn receive(&mut self, until: Instant<Monotonic>) -> Result<Option<(Datagram, u64)>, Error> {
        loop {
            if let Some(received) = self.take()? {
                return Ok(Some(received));
            }
            let now = LinuxCpu.now();
            let Some(left) = until.since(now).filter(|left| *left > Nanos::ZERO) else { return Ok(None) };
            if matches!(self.wait, Wait::Block | Wait::Suspend) {
                let timeout = Timespec {
                    tv_sec: (left.as_nanos() / 1_000_000_000) as i64,
                    tv_nsec: (left.as_nanos() % 1_000_000_000) as _,
                };
                let mut events = [MaybeUninit::<epoll::Event>::uninit(); 1];
                match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(Error::system("wait for a datagram", error)),
                }
            }
        }
    }

    fn take(&self) -> Result<Option<(Datagram, u64)>, Error> {
        let mut octets = [0; PAYLOAD];
        let received = match sys::receive(&self.socket, &mut octets) {
            // The error of an earlier datagram that was sent before the other end listened.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(None),
            other => other.map_err(|e| Error::system("receive a datagram", e))?,
        };
        let Some((_, stamp)) = received else { return Ok(None) };
        let picked = LinuxCpu.now().as_nanos();
        let arrived = stamp.and_then(|at| u64::try_from(i128::from(at) - self.offset).ok()).unwrap_or(0);
        Ok(Some((Datagram { octets, arrived }, picked)))
    }

    /// Reads the time stamps of a datagram. `None` if it was not sent by the probe.
    pub(super) fn stamps(&self, received: &Datagram) -> Option<Stamps> {
        Stamps::read(&received.octets)
    }
}

/// Applies `fields` to the NAPI instance of queue 0 of an interface in the lab. The settings disappear with the lab, so
/// they need no journal and no rollback.
fn defer(interface: &str, fields: &[(&str, u64)]) -> Result<(), Error> {
    let what = || format!("set the NAPI of {interface}");
    let of_host = |error: host::knob::Error| {
        Error::lacking(what(), error, "check the interface with ip link, and the version of the kernel")
    };
    let access = Access::live().map_err(of_host)?;
    let knob = Knob(Napi::new(interface, 0));
    let wanted = Value::fields(fields.iter().copied());
    knob.0.check(&access, &wanted).map_err(of_host)?;
    knob.0.write(&access, &wanted).map_err(of_host)?;
    let verdict = knob.verify(&access, &wanted, None).map_err(of_host)?;
    if verdict.is_good() {
        return Ok(());
    }
    Err(Error::lacking(what(), format!("wanted {wanted}, found {:?}", verdict.now()), "try a newer kernel"))
}

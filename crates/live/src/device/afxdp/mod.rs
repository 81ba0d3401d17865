//! Ports over AF_XDP, the backend for real traffic.
//!
//! An [`Interface`] is a network interface with the XDP program attached to it. The workers that serve its queues share
//! it. An [`AfXdpDevice`] is a set of the interface's queues that one worker owns. An [`XskContext`] lets all devices
//! of a worker use the worker's pool, so that forwarding between them copies no data.
//!
//! ```text
//!   worker 0: Pool, XskContext ─ AfXdpDevice(eth0: queue 0) ─┐
//!                              └ AfXdpDevice(eth1: queue 0) ─┼─┐
//!   worker 1: Pool, XskContext ─ AfXdpDevice(eth0: queue 1) ─┘ │
//!                                     Interface eth0 ◄─────────┘ Interface eth1
//! ```
//!
//! Sources: kernel documentation, networking/af_xdp; include/uapi/linux/if_xdp.h; net/xdp/xsk.c.

mod busy;
mod config;
mod context;
mod explain;
mod index;
mod interface;
mod losses;
mod parts;
mod queue;
mod refusals;
mod sys;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::Error;
use crate::device::{Capabilities, Device, Health, Statistics};
use crate::pool::{Frame, Pool};

pub use config::{Filter, InterfaceConfig, RingSizes, SocketConfig, XdpMode, ZeroCopy};
pub use context::XskContext;
pub use interface::{Interface, ProgramCounts};
pub use queue::Occupancy;

pub(super) use sys::{Queues, interface_flags, queues};

use busy::BusyPoll;
use queue::{Queue, Setup};

/// Number of attempts to bind a socket while its queue is busy. The kernel frees the queue of a closed socket only
/// about 10 ms later, so after a restart the queue can still be busy.
const BIND_TRIES: u32 = 50;
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// A set of queues of an interface, for one worker.
///
/// Dropping the device closes its sockets, and the slots in their rings are lost to the pool. So drop the pool as well,
/// or call [`close`](Self::close) instead.
#[derive(Debug)]
pub struct AfXdpDevice {
    // Declared before `interface`, so that the sockets are closed before the program is detached.
    queues: Vec<Queue>,
    interface: Interface,
    longest_frame: u32,
}

impl AfXdpDevice {
    /// Opens one socket for each of `queues`. They must be among the queues of `interface`.
    ///
    /// The calling thread must be in the network namespace in which `interface` was attached.
    pub fn open(
        interface: &Interface,
        queues: &[u32],
        config: &SocketConfig,
        context: &mut XskContext,
        pool: &mut Pool,
    ) -> Result<Self, Error> {
        config.check()?;
        context.check(pool)?;
        interface.check_namespace()?;
        if let Some(queue) = queues.iter().find(|queue| !interface.queues().contains(queue)) {
            let why = format!("{} was attached for the queues {:?} only", interface.name(), interface.queues());
            return Err(Error::Invalid { what: format!("queue {queue}"), why });
        }
        let longest_frame = pool.longest_frame() as u32;
        let mut device = Self { queues: Vec::with_capacity(queues.len()), interface: interface.clone(), longest_frame };
        for id in queues {
            match device.open_queue(*id, config, context, pool) {
                Ok(queue) => device.queues.push(queue),
                Err(e) => {
                    device.close(pool);
                    return Err(e);
                }
            }
        }
        Ok(device)
    }

    fn open_queue(
        &self,
        id: u32,
        config: &SocketConfig,
        context: &mut XskContext,
        pool: &mut Pool,
    ) -> Result<Queue, Error> {
        let mut zero_copy = config.zero_copy;
        if self.interface.mode() == XdpMode::Generic {
            if zero_copy == ZeroCopy::Force {
                let why = "generic XDP has no zero copy; use --xdp native or --zero-copy auto".into();
                return Err(Error::Invalid { what: format!("zero copy on {}", self.name()), why });
            }
            zero_copy = ZeroCopy::Off;
        }
        let fd =
            socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(explain::socket)?;
        let fd = Arc::new(fd);
        let shared = context.live();
        if shared.is_none() {
            context.register(&fd)?;
        }
        let chunk = context.chunk();
        let setup = Setup { id, sizes: config.rings, chunk, need_wakeup: config.need_wakeup };
        let mut queue = Queue::new(setup, Arc::clone(&fd), pool)?;
        match self.start(&mut queue, &fd, shared.as_ref(), zero_copy, config, context) {
            Ok(()) => Ok(queue),
            Err(e) => {
                queue.close(pool);
                Err(e)
            }
        }
    }

    /// Binds the socket and directs the frames of its queue to it.
    fn start(
        &self,
        queue: &mut Queue,
        fd: &Arc<std::os::fd::OwnedFd>,
        shared: Option<&Arc<std::os::fd::OwnedFd>>,
        zero_copy: ZeroCopy,
        config: &SocketConfig,
        context: &mut XskContext,
    ) -> Result<(), Error> {
        if let Some(budget) = config.busy_poll {
            queue.busy_poll = BusyPoll::enable(fd.as_fd(), budget)
                .map_err(|e| Error::system(format!("enable busy polling for {}", self.name()), e))?;
        }
        let place = (self.interface.ifindex(), queue.id);
        for last in (0..BIND_TRIES).rev() {
            match context.bind(fd, shared, place, (zero_copy, config.need_wakeup)) {
                Ok(()) => break,
                Err(Errno::BUSY) if last > 0 => std::thread::sleep(BIND_PAUSE),
                Err(e) => {
                    let how = explain::Bound {
                        exists: self.interface.has_queue(queue.id),
                        zero_copy: zero_copy == ZeroCopy::Force,
                        shared: shared.is_some(),
                        multi_buffer: context.multi_buffer(),
                    };
                    return Err(explain::bind(self.name(), queue.id, how, e));
                }
            }
        }
        let options = sockopt::xdp_options(fd).map_err(|e| Error::system("read XDP_OPTIONS", e))?;
        queue.zero_copy = !options.is_empty(); // XDP_OPTIONS_ZEROCOPY is the only option
        let missed = match zero_copy {
            ZeroCopy::Force if !queue.zero_copy => Some(("copies, as the ports opened before it do", "open it first")),
            ZeroCopy::Off if queue.zero_copy => {
                Some(("uses zero copy, as the ports opened before it do", "open it first"))
            }
            _ => None,
        };
        if let Some((why, fix)) = missed {
            return Err(Error::Lacking {
                what: format!("set the copy mode of {} as configured", self.name()),
                why: format!("ports that share a pool share the copy mode, so this one {why}"),
                fix: format!("give them the same --zero-copy, or {fix}"),
            });
        }
        self.interface.insert(queue.id, fd)
    }

    /// Closes the sockets and returns their slots to `pool`. Returns the number of slots that could not be recovered;
    /// with zero copy, the driver may still use some.
    pub fn close(mut self, pool: &mut Pool) -> usize {
        let mut lost = 0;
        for mut queue in self.queues.drain(..) {
            self.interface.remove(queue.id);
            queue.flush();
            queue.reclaim(pool);
            lost += queue.close(pool);
        }
        lost
    }

    /// The interface to which the queues belong.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Number of slots in each ring of a queue.
    pub fn occupancy(&mut self, queue: usize) -> Occupancy {
        self.queues[queue].occupancy()
    }
}

impl Drop for AfXdpDevice {
    fn drop(&mut self) {
        for queue in &self.queues {
            self.interface.remove(queue.id);
        }
    }
}

impl Device for AfXdpDevice {
    fn name(&self) -> &str {
        self.interface.name()
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    #[inline]
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        self.queues[queue].receive(pool, out, room)
    }

    #[inline]
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        self.queues[queue].send(pool, frames)
    }

    fn finish(&mut self, queue: usize) {
        self.queues[queue].finish();
    }

    fn backlog(&self, queue: usize) -> usize {
        self.queues[queue].backlog()
    }

    /// Arms nothing, because poll(2) on an AF_XDP socket is level-triggered. Sends frames that are still unsent, and
    /// wakes a driver that waits for slots, because the worker may now block.
    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        let queue = &mut self.queues[queue];
        queue.arm();
        if std::mem::take(&mut queue.gone) {
            self.health()?;
        }
        Ok(())
    }

    fn disarm(&mut self, _queue: usize) {}

    /// The handle is readable when received frames wait. **It does not become readable if the interface is deleted**
    /// (net/xdp/xsk.c, `xsk_poll` returns nothing for an unbound socket). So block with a timeout, and check `health`.
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        Some(self.queues[queue].fd())
    }

    fn health(&mut self) -> Result<Health, Error> {
        let health = self.interface.health()?;
        for queue in &mut self.queues {
            queue.gone = false;
            // The kernel sets this error when the interface is unregistered (net/xdp/xsk.c, `xsk_notifier`).
            if let Ok(Err(Errno::NETDOWN)) = sockopt::socket_error(queue.fd()) {
                let why = "the interface was deleted".into();
                return Err(Error::PortLost { port: self.interface.name().to_owned(), why });
            }
        }
        Ok(health)
    }

    fn statistics(&mut self, queue: usize) -> Statistics {
        self.queues[queue].statistics()
    }

    fn capabilities(&self) -> Capabilities {
        let effects = || self.queues.iter().map(|queue| queue.busy_poll.effect());
        let zero_copy = |queue: &Queue| queue.zero_copy;
        Capabilities {
            stamps_arrival: true,
            zero_copy: self.queues.iter().all(zero_copy),
            wakes: true,
            // In copy mode, send(2) passes each frame to the driver's transmit function (net/xdp/xsk.c,
            // `__xsk_generic_xmit`).
            sends_in_turn: !self.queues.iter().any(zero_copy),
            busy_poll: if effects().any(|e| e == Some(false)) {
                Some(false)
            } else {
                effects().find(Option::is_some).flatten()
            },
            rx_descriptors: self.queues.iter().map(Queue::rx_descriptors).min().unwrap_or(0),
            longest_frame: self.longest_frame,
        }
    }
}

//! The link state of a kernel interface, for devices that use one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice};

use super::{Health, afxdp};
use crate::Error;

/// Number of renames during one question that are taken into account. Each takes far longer than a question.
const RENAMES: u32 = 8;

/// A kernel interface in the network namespace in which this value was created, even if the thread changes its
/// namespace later.
#[derive(Debug)]
pub struct Link {
    name: String,
    index: u32,
    control: OwnedFd,
    /// Whether the interface was up when its state was last read.
    was_up: AtomicBool,
}

impl Link {
    /// The interface with the index `index` in the calling thread's network namespace. Errors call the port `name`.
    pub fn new(name: impl Into<String>, index: u32) -> Result<Self, Error> {
        let control = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map_err(|e| Error::system("open a socket to query interfaces", e))?;
        Ok(Self { name: name.into(), index, control, was_up: AtomicBool::new(true) })
    }

    /// Whether the interface is up or down; an error if it no longer exists.
    pub fn health(&self) -> Result<Health, Error> {
        let flags = self.by_name(|name| afxdp::interface_flags(self.control.as_fd(), name))?;
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        let is_up = match flags {
            Ok(flags) => flags & both == both,
            // It exists, but is being renamed: for some milliseconds, the kernel finds it under no name
            // (net/core/dev.c, `netif_change_name`).
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => self.was_up.load(Relaxed),
            Err(e) => {
                let why = format!("the interface's state cannot be read ({e})");
                return Err(Error::PortLost { port: self.name.clone(), why });
            }
        };
        self.was_up.store(is_up, Relaxed);
        Ok(if is_up { Health::Up } else { Health::Down })
    }

    /// The numbers of the interface's queues. `None` if its driver does not report them, or if it no longer exists.
    pub(super) fn queues(&self) -> Option<afxdp::Queues> {
        self.by_name(|name| afxdp::queues(self.control.as_fd(), name)).ok().flatten()
    }

    /// Asks for a property of the interface by its present name. Asks again if it was renamed meanwhile: the answer may
    /// then be an error, or that of another interface.
    fn by_name<T>(&self, ask: impl Fn(&str) -> T) -> Result<T, Error> {
        let Self { name, index, control, .. } = self;
        let why = |e| format!("the interface was deleted or moved ({e})");
        let present = || {
            netdevice::index_to_name_inlined(control, *index)
                .map_err(|e| Error::PortLost { port: name.clone(), why: why(e) })
        };
        let mut asked = present()?;
        for _ in 0..RENAMES {
            let answer = ask(asked.as_str());
            let now = present()?;
            if now.as_str() == asked.as_str() {
                return Ok(answer);
            }
            asked = now;
        }
        Ok(ask(asked.as_str()))
    }
}

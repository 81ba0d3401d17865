//! The link state of a kernel interface, for devices that use one.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, netdevice};

use super::{Health, afxdp};
use crate::Error;

/// A kernel interface in the network namespace in which this value was created, even if the thread changes its
/// namespace later.
#[derive(Debug)]
pub struct Link {
    name: String,
    index: u32,
    control: OwnedFd,
}

impl Link {
    /// The interface with the index `index` in the calling thread's network namespace. Errors call the port `name`.
    pub fn new(name: impl Into<String>, index: u32) -> Result<Self, Error> {
        let control = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map_err(|e| Error::system("open a socket to query interfaces", e))?;
        Ok(Self { name: name.into(), index, control })
    }

    /// Whether the interface is up or down; an error if it no longer exists.
    pub fn health(&self) -> Result<Health, Error> {
        let Self { name, index, control } = self;
        let lost = |e| Error::PortLost { port: name.clone(), why: format!("the interface was deleted or moved ({e})") };
        let name_now = netdevice::index_to_name_inlined(control, *index).map_err(lost)?;
        let flags = afxdp::interface_flags(control.as_fd(), name_now.as_str()).map_err(|e| Error::PortLost {
            port: name.clone(),
            why: format!("the interface's state cannot be read ({e})"),
        })?;
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(if flags & both == both { Health::Up } else { Health::Down })
    }
}

//! The NAPI settings of an interface: read, changed, restored.
//!
//! ```text
//!   read ──► note in a file, fsync ──► set ──► … ──► restore ──► remove the note
//!                     └── killed ──► the next start finds the note, its owner dead, and restores
//! ```
//!
//! Source: kernel documentation, networking/napi, "Persistent Napi config" and "Netdev Netlink";
//! Documentation/netlink/specs/netdev.yaml, napi-get, napi-set, queue-get.

use std::io;

use netlink_bindings::netdev;
use netlink_socket2::NetlinkSocket;
use units::Nanos;

use crate::Error;

use super::config::NapiDeferral;
use super::notes::{Note, Notes};

/// A netlink socket in the namespace of the thread that first used it.
pub(super) struct Netdev {
    socket: NetlinkSocket,
}

/// Deferral that is in force; its drop restores what was.
pub(super) struct Deferral {
    netdev: Netdev,
    notes: Vec<Note>,
}

#[derive(Clone, Copy, Debug)]
struct Napi {
    id: u32,
    settings: NapiDeferral,
}

impl Netdev {
    pub(super) fn new() -> Self {
        Self { socket: NetlinkSocket::new() }
    }

    /// Receive queues in use; `None` where the kernel does not say (before 6.8).
    pub(super) fn rx_queues(&mut self, ifindex: u32) -> Option<u32> {
        let queues = self.queues(ifindex).ok()?;
        (!queues.is_empty()).then_some(queues.len() as u32)
    }

    /// The receive queues, each with its NAPI's id where the driver names it.
    fn queues(&mut self, ifindex: u32) -> io::Result<Vec<(u32, Option<u32>)>> {
        let mut request = netdev::Request::new().op_queue_get_dump();
        request.encode().push_ifindex(ifindex);
        let mut reply = self.socket.request(&request)?;
        let mut queues = Vec::new();
        while let Some(queue) = reply.recv() {
            let queue = queue?;
            let id = queue.get_id().map_err(io::Error::other)?;
            if queue.get_type().map_err(io::Error::other)? == netdev::QueueType::Rx as u32 {
                queues.push((id, queue.get_napi_id().ok()));
            }
        }
        Ok(queues)
    }

    fn napis(&mut self, ifindex: u32) -> io::Result<Vec<Napi>> {
        let mut request = netdev::Request::new().op_napi_get_dump();
        request.encode().push_ifindex(ifindex);
        let mut reply = self.socket.request(&request)?;
        let mut napis = Vec::new();
        while let Some(napi) = reply.recv() {
            let napi = napi?;
            let defer_hard_irqs = napi.get_defer_hard_irqs().map_err(io::Error::other)?;
            let timeout = u64::from(napi.get_gro_flush_timeout().map_err(io::Error::other)?);
            napis.push(Napi {
                id: napi.get_id().map_err(io::Error::other)?,
                settings: NapiDeferral { defer_hard_irqs, gro_flush_timeout: Nanos::from_nanos(timeout) },
            });
        }
        Ok(napis)
    }

    fn set(&mut self, napi: u32, settings: NapiDeferral) -> io::Result<()> {
        let timeout = u32::try_from(settings.gro_flush_timeout.as_nanos()).map_err(io::Error::other)?;
        let mut request = netdev::Request::new().op_napi_set_do();
        request.encode().push_id(napi).push_defer_hard_irqs(settings.defer_hard_irqs).push_gro_flush_timeout(timeout);
        Ok(self.socket.request(&request)?.recv_ack()?)
    }

    /// Puts back what earlier instances, which died, left changed on the interface.
    pub(super) fn restore_left_behind(&mut self, ifindex: u32) -> Result<(), Error> {
        for note in Notes::left_behind(ifindex)? {
            let napis = self.napis(ifindex).map_err(|e| failed("read the NAPI settings", e))?;
            // A NAPI that is gone took its settings along.
            if napis.iter().any(|napi| napi.id == note.napi()) {
                self.set(note.napi(), note.settings()).map_err(|e| failed("restore the NAPI settings", e))?;
            }
            note.remove()?;
        }
        Ok(())
    }

    /// Sets the NAPIs of `queues`; all of the interface's where the driver does not say whose they
    /// are (veth).
    pub(super) fn defer(
        mut self,
        name: &str,
        ifindex: u32,
        queues: &[u32],
        wanted: NapiDeferral,
    ) -> Result<Deferral, Error> {
        self.restore_left_behind(ifindex)?;
        let read = |e| failed(&format!("read the NAPI settings of {name}"), e);
        let mut napis = self.napis(ifindex).map_err(read)?;
        let of_queues = self.queues(ifindex).map_err(read)?;
        let named: Vec<_> = of_queues.iter().filter(|(q, _)| queues.contains(q)).filter_map(|(_, n)| *n).collect();
        if !named.is_empty() {
            napis.retain(|napi| named.contains(&napi.id));
        }
        if napis.is_empty() {
            return Err(Error::Lacking {
                what: format!("defer the interrupts of {name}"),
                why: "it has no NAPI: it is down, or its driver has none in this XDP mode".into(),
                fix: format!("ip link set dev {name} up, use native XDP (on veth), or leave the deferral out"),
            });
        }
        let mut deferral = Deferral { netdev: self, notes: Vec::new() };
        for napi in napis {
            // Noted first: should we die in between, a restoration of what is unchanged does no harm.
            deferral.notes.push(Note::write(ifindex, napi.id, napi.settings)?);
            let what = format!("set the NAPI settings of {name}");
            deferral.netdev.set(napi.id, wanted).map_err(|e| failed(&what, e))?;
        }
        Ok(deferral)
    }
}

impl Deferral {
    pub(super) fn napis(&self) -> Vec<u32> {
        self.notes.iter().map(Note::napi).collect()
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        for note in self.notes.drain(..) {
            let restored = match self.netdev.set(note.napi(), note.settings()) {
                Ok(()) => true,
                // A NAPI that is gone (the interface was deleted) took its settings along.
                Err(e) => e.raw_os_error() == Some(libc::ENOENT),
            };
            if restored {
                let _ = note.remove(); // a note that stays is harmless: it says what now is
            }
        }
    }
}

fn failed(what: &str, e: io::Error) -> Error {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::Lacking {
            what: what.to_owned(),
            why: e.to_string(),
            fix: "run as root, or give the capability CAP_NET_ADMIN".into(),
        },
        Some(libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL) => Error::Lacking {
            what: what.to_owned(),
            why: e.to_string(),
            fix: "a kernel from 6.13 on is needed for settings per NAPI; leave the deferral out".into(),
        },
        _ => Error::system(what, e),
    }
}

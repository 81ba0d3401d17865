//! A client that is shared by callers in several network namespaces and with different capabilities.

use std::os::linux::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};

use rustix::thread::{CapabilitySet, capabilities};

use super::Client;

/// Path that identifies the calling thread's network namespace.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// What the sockets of a client depend on: the network namespace, and the capabilities that were effective when they
/// were opened. For each request, the kernel checks the opener's capabilities as well as the caller's
/// (net/netlink/af_netlink.c, `__netlink_ns_capable`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    device: u64,
    inode: u64,
    capabilities: CapabilitySet,
}

impl Place {
    /// The network namespace and the effective capabilities of the calling thread. `None` if they cannot be read, for
    /// example because /proc is not mounted.
    fn here() -> Option<Self> {
        // Device and inode identify the namespace while it exists, and the client's sockets keep it in existence.
        let file = std::fs::metadata(NAMESPACE).ok()?;
        let capabilities = capabilities(None).ok()?.effective;
        Some(Self { device: file.st_dev(), inode: file.st_ino(), capabilities })
    }
}

/// A client that is replaced if a caller has another network namespace or other capabilities.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Option<(Place, Client)>>);

impl Shared {
    /// Calls `ask` with a client of the calling thread's network namespace.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut Client) -> T) -> T {
        let Some(here) = Place::here() else { return ask(&mut Client::new()) };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Some((there, client)) if *there == here => ask(client),
            other => ask(&mut other.insert((here, Client::new())).1),
        }
    }
}

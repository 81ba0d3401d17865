//! A client for whoever asks from several network namespaces.

use std::os::linux::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};

use super::Client;

/// The calling thread's network namespace.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A client that is kept as long as it is used in one network namespace, and opened anew in another.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Option<((u64, u64), Client)>>);

impl Shared {
    /// Gives `ask` a client of the calling thread's network namespace.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut Client) -> T) -> T {
        // A namespace keeps device and inode for itself as long as it exists, and the client's sockets keep it.
        let here = std::fs::metadata(NAMESPACE).map(|file| (file.st_dev(), file.st_ino()));
        let Ok(here) = here else { return ask(&mut Client::new()) };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Some((there, client)) if *there == here => ask(client),
            other => ask(&mut other.insert((here, Client::new())).1),
        }
    }
}

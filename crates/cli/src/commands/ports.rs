//! Machine settings that `apus run` and `apus bench` change for their ports. All changes are recorded in the journal
//! and rolled back. The crate `live` itself changes nothing that outlasts the process: its XDP program ends with the
//! process.

use host::knob::Error as KnobError;
use host::knob::{Access, NapiDeferral};
use host::privilege;
use host::transaction::{Deferred, Error, RolledBack, take_back_abandoned};
use rustix::thread::CapabilitySet;

use crate::documents::VERSION;

/// Rolls back the changes that killed processes of this user left behind, and removes from the journal the changes that
/// a reboot has undone. Returns a line about each.
///
/// Each user has a separate journal, and cannot read the journals of other users.
pub fn take_back_left_behind(command: &str) -> anyhow::Result<Vec<String>> {
    match take_back_abandoned(&Access::live()?, command) {
        Err(Error::Knob(KnobError::NotPermitted { .. })) if !rustix::process::geteuid().is_root() => Ok(Vec::new()),
        other => Ok(other?.iter().map(super::tune::recovered).collect()),
    }
}

/// Permanently drops all capabilities that a run with open ports no longer needs. If `restores` is true, CAP_NET_ADMIN
/// stays permitted but not effective, because [`end`] needs it to roll back the deferral. The journal belongs to the
/// user and needs no capability.
pub fn give_up_privileges(restores: bool) -> anyhow::Result<()> {
    let later = if restores { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() };
    let lasting = live::os::lasting_capabilities();
    privilege::keep_only(lasting | later)?;
    Ok(privilege::rest(lasting)?)
}

/// Defers the interrupts of `queues` of `interface`, in the network namespace of the calling thread, until the
/// returned value is dropped. Call it after attaching the XDP program: the NAPI instances of a veth exist only from
/// then on.
pub fn defer(interface: &str, queues: &[u32], wanted: NapiDeferral, command: &str) -> anyhow::Result<Deferred> {
    Ok(Deferred::new(&Access::live()?, interface, queues, wanted, command, VERSION)?)
}

/// Rolls a deferral back. Returns a warning if a setting could not be restored.
pub fn end(deferred: Deferred) -> Option<String> {
    // If the capabilities were not set aside, there is nothing to resume. If one is missing, the release reports it.
    let _ = privilege::resume();
    restored(DEFERRAL, deferred.release())
}

/// The setting in the warnings of [`restored`].
pub const DEFERRAL: &str = "the interrupt deferral";

/// The warning about a setting `what` that was not, or only partly, rolled back.
pub fn restored(what: &str, released: Result<Option<RolledBack>, Error>) -> Option<String> {
    match released {
        Ok(None) => None,
        Ok(Some(back)) if back.closed => None,
        Ok(Some(back)) => Some(format!(
            "{what} is only partly rolled back; look at apus tune status, then run apus tune rollback {}",
            back.id
        )),
        Err(error) => Some(format!("{what} is not rolled back ({error}); try again with apus tune rollback")),
    }
}

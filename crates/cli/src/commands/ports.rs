//! Settings of the machine that `apus run` and `apus bench` change for their ports. The changes go through the journal.
//! The crate `live` itself changes nothing that outlasts the process (its XDP program ends with the process).

use host::knob::Error as KnobError;
use host::knob::{Access, NapiDeferral};
use host::privilege;
use host::transaction::{Deferred, Error, take_back_abandoned};
use rustix::thread::CapabilitySet;

use crate::documents::VERSION;

/// Rolls back what killed processes of this user left behind, and drops from the journal what a reboot has reset.
/// Reports both.
///
/// Changes of other users are in their own journals, which this user may not read.
pub fn take_back_left_behind(command: &str) -> anyhow::Result<Vec<String>> {
    match take_back_abandoned(&Access::live()?, command) {
        Err(Error::Knob(KnobError::NotPermitted { .. })) if !rustix::process::geteuid().is_root() => Ok(Vec::new()),
        other => Ok(other?.iter().map(super::tune::recovered).collect()),
    }
}

/// Drops all capabilities that a run with open ports no longer needs, permanently. CAP_NET_ADMIN is kept, inactive,
/// for rolling back the deferral in [`end`]; the journal belongs to the user and needs none.
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

/// Rolls a deferral back; returns a warning if something is left.
pub fn end(deferred: Deferred) -> Option<String> {
    // Where they were not set aside, there is nothing to take up; what is lacking, the release says.
    let _ = privilege::resume();
    match deferred.release() {
        Ok(None) => None,
        Ok(Some(back)) if back.closed => None,
        Ok(Some(back)) => Some(format!(
            "the interrupt deferral is only partly rolled back; look at apus tune status, then run apus tune rollback {}",
            back.id
        )),
        Err(error) => {
            Some(format!("the interrupt deferral is not rolled back ({error}); try again with apus tune rollback"))
        }
    }
}

//! What `apus run` and `apus bench` set of the machine for their ports, by its journal: `live` itself sets nothing that
//! outlives it (its XDP program goes with the process).

use host::knob::Error as KnobError;
use host::knob::{Access, NapiDeferral};
use host::privilege;
use host::transaction::{Deferred, Error, take_back_abandoned};
use rustix::thread::CapabilitySet;

use crate::documents::VERSION;

/// Takes back what earlier processes left that were killed, and drops what a reboot undid; says what became of it.
///
/// Of this user: what others left is in journals of their own, which this one may not read.
pub fn take_back_left_behind(command: &str) -> anyhow::Result<Vec<String>> {
    match take_back_abandoned(&Access::live()?, command) {
        Err(Error::Knob(KnobError::NotPermitted { .. })) if !rustix::process::geteuid().is_root() => Ok(Vec::new()),
        other => Ok(other?.iter().map(super::tune::recovered).collect()),
    }
}

/// Gives up all capabilities that a run with open ports no longer needs, for good. To take back a deferral, CAP_NET_ADMIN
/// is kept, set aside until [`end`]; the journal belongs to the user, and needs none.
pub fn give_up_privileges(restores: bool) -> anyhow::Result<()> {
    let later = if restores { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() };
    let lasting = live::os::lasting_capabilities();
    privilege::keep_only(lasting | later)?;
    Ok(privilege::rest(lasting)?)
}

/// Defers the interrupts of `queues` of `interface`, in the calling thread's network namespace, as long as the returned
/// value lives; after the XDP program is attached, as on veth the NAPIs exist only from then on.
pub fn defer(interface: &str, queues: &[u32], wanted: NapiDeferral, command: &str) -> anyhow::Result<Deferred> {
    Ok(Deferred::new(&Access::live()?, interface, queues, wanted, command, VERSION)?)
}

/// Takes a deferral back; what is left of it, if anything, as a warning.
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

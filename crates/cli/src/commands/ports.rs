//! What `apus run` and `apus bench` set of the machine for their ports, by its journal: `live` itself sets nothing that
//! outlives it (its XDP program goes with the process).

use host::knob::{Access, NapiDeferral};
use host::transaction::{Deferred, take_back_abandoned};

use crate::documents::VERSION;

/// Takes back what earlier processes left that were killed, and drops what a reboot undid; says what became of it.
///
/// Only as root, whose journal it is: nobody else can have left something there.
pub fn take_back_left_behind(command: &str) -> anyhow::Result<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    Ok(take_back_abandoned(&Access::live()?, command)?.iter().map(super::tune::recovered).collect())
}

/// Defers the interrupts of `queues` of `interface`, in the calling thread's network namespace, as long as the returned
/// value lives; after the XDP program is attached, as on veth the NAPIs exist only from then on.
pub fn defer(interface: &str, queues: &[u32], wanted: NapiDeferral, command: &str) -> anyhow::Result<Deferred> {
    Ok(Deferred::new(&Access::live()?, interface, queues, wanted, command, VERSION)?)
}

/// Takes a deferral back; what is left of it, if anything, as a warning.
pub fn end(deferred: Deferred) -> Option<String> {
    match deferred.release() {
        Ok(None) => None,
        Ok(Some(back)) if back.closed => None,
        Ok(Some(back)) => Some(format!(
            "the interrupts' deferral is not taken back whole: apus tune status, apus tune rollback {}",
            back.id
        )),
        Err(error) => {
            Some(format!("the interrupts' deferral is not taken back: {error}; apus tune rollback tries again"))
        }
    }
}

//! The hardware and kernel parts that a packet passes between wire and application, one per file.
//!
//! Each part consists of a `…Model` with its parameters, and a state that its owner advances. Calls that change the
//! state take the time as an argument. `poll_at()` says when the state will next change by itself, and `poll(now)`
//! carries out that change. No part has an event queue or a clock, and parts do not call each other.
//!
//! ```text
//!  wire ──► Moderation ──► Delivery ──► CState::wake ──► Run queue ──► work at PState's frequency ──► TxRing ──► wire
//!  Wire     RxRing, WriteBack           (Aspm)           Vcpu           Power integrates all the while
//! ```

pub mod aspm;
pub mod cpufreq;
pub mod cstate;
pub mod governor;
pub mod interrupt;
pub mod link;
pub mod nic;
pub mod power;
pub mod pstate;
pub mod ring;
pub mod scheduler;
pub mod spread;
pub mod timer;
pub mod vcpu;

use thiserror::Error;

/// An error in a model's parameters: no hardware could have them.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{part}: {what}")]
pub struct ModelError {
    /// The part with the impossible parameter, for example "P-states".
    pub part: &'static str,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Returns an error about `part` unless `holds` is true.
fn check(holds: bool, part: &'static str, what: impl FnOnce() -> String) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(ModelError { part, what: what() }) }
}

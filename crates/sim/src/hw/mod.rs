//! What a packet meets between wire and application: one part a file.
//!
//! Each part is a `…Model`, the parameters, and a state that is moved on from outside: a call that
//! changes it takes the time, `poll_at()` says when something will happen by itself, and `poll(now)`
//! carries that out. No part has a queue of events, or a clock, or knows another part.
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

/// Parameters that no hardware could have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{part}: {what}")]
pub struct ModelError {
    /// The part: "P-states".
    pub part: &'static str,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// An error of `part` unless `holds`.
fn check(holds: bool, part: &'static str, what: impl FnOnce() -> String) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(ModelError { part, what: what() }) }
}

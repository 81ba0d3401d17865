//! The hardware and kernel parts that a packet meets between wire and application, one per file.
//!
//! Each part consists of a `…Model` with its parameters, and a state that its owner advances. Calls that change the
//! state take the time as an argument. `poll_at()` says when something happens without a call, and `poll(now)` carries
//! it out. No part has an event queue or a clock, and no part knows another.
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

/// A parameter is impossible for any hardware.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{part}: {what}")]
pub struct ModelError {
    /// The part with the impossible parameter, for example "P-states".
    pub part: &'static str,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Returns an error of `part` unless `holds` is true.
fn check(holds: bool, part: &'static str, what: impl FnOnce() -> String) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(ModelError { part, what: what() }) }
}

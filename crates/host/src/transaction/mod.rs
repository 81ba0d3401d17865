//! Transactions: settings that change together, and that can always be taken back.
//!
//! A [`Plan`] is what is wanted. [`mod@apply`] does it: each change stands in the journal, on disk, before it is made;
//! if one is refused, all are taken back. [`mod@rollback`] takes transactions back, after a crash, a kill or a
//! reboot too. [`transactions`] tells what is not taken back. [`Held`] is a plan for the time of a measurement.

mod apply;
mod entry;
mod held;
mod network;
mod plan;
mod rollback;

use crate::knob::{Access, Error as KnobError};

pub use apply::{Along, Applied, Became, Options as ApplyOptions, apply};
pub use entry::{Entry, Stands, State, Transaction, transactions};
pub use held::{Deferred, Held, take_back_abandoned};
pub use network::Whereabouts;
pub use plan::{Item, Meets, OnRefusal, Plan, Preview};
pub use rollback::{Options as RollbackOptions, Outcome, Recovered, RolledBack, Which, rollback};

/// A transaction that did not come about.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// It did not begin.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A setting was refused, and everything that had been changed was taken back.
    #[error("{setting} failed, so all changes were rolled back\n{why}{}", left.as_ref().map_or(String::new(), |left| format!("\n{left}")))]
    RolledBack {
        /// The setting's name.
        setting: String,
        /// Why.
        why: KnobError,
        /// What could not be taken back, if anything.
        left: Option<String>,
    },
}

impl Error {
    /// Whether the environment lacks something (exit status 3) rather than the use being wrong (2).
    pub fn lacks(&self) -> bool {
        match self {
            Self::Knob(error) | Self::RolledBack { why: error, .. } => error.lacks(),
        }
    }
}

/// The identity of this boot; `None` below a root that does not say.
fn boot(access: &Access) -> Result<Option<String>, KnobError> {
    access.line("/proc/sys/kernel/random/boot_id")
}

#[cfg(test)]
mod tests;

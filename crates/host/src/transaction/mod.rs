//! Transactions: settings that change together and can always be rolled back.
//!
//! A [`Plan`] lists the wanted settings. [`mod@apply`] carries it out: each change is recorded in the journal, on disk,
//! before it is made; if a change is refused, all changes are rolled back. [`mod@rollback`] rolls transactions back,
//! even after a crash, a kill or a reboot. [`transactions`] lists those that were not rolled back. [`Held`] is a plan
//! for the duration of a measurement. [`Steered`] is a group of settings that a controller changes repeatedly.

mod apply;
mod entry;
mod held;
mod network;
mod plan;
mod rollback;
mod steered;

use crate::knob::{Access, Error as KnobError};

pub use apply::{Along, Applied, Became, Options as ApplyOptions, apply};
pub use entry::{Entry, Stands, State, Transaction, transactions};
pub use held::{Deferred, DeferredQueues, Held, take_back_abandoned};
pub use network::Whereabouts;
pub use plan::{Item, Meets, OnRefusal, Plan, Preview};
pub use rollback::{
    Ask, Options as RollbackOptions, Outcome, Recovered, RolledBack, Which, rollback, rollback_ours, rollback_own,
};
pub use steered::{Look, Moved, Moving, Steered, Target};

/// A transaction failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The transaction did not begin.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A setting was refused, and all earlier changes were rolled back.
    #[error("cannot set {setting}: all changes were rolled back\n{why}{}", left.as_ref().map_or(String::new(), |left| format!("\n{left}")))]
    RolledBack {
        /// The name of the setting.
        setting: String,
        /// Why the setting was refused.
        why: KnobError,
        /// The changes that could not be rolled back. `None` if all were rolled back.
        left: Option<String>,
    },
}

impl Error {
    /// Whether the machine refused a setting that was asked for: by its kernel, a driver, a register, a permission or a
    /// read-only file. Then the command did what it should, and the setting is not in force.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::RolledBack { why, .. } => {
                matches!(why, KnobError::NotPermitted { .. } | KnobError::ReadOnly { .. } | KnobError::Refused { .. })
            }
            Self::Knob(_) => false,
        }
    }

    /// Returns true if this machine or process lacks something (exit status 3), false if the request was wrong (exit
    /// status 2).
    pub fn lacks(&self) -> bool {
        match self {
            Self::Knob(error) | Self::RolledBack { why: error, .. } => error.lacks(),
        }
    }
}

/// The ID of this boot. `None` below a root that has none.
fn boot(access: &Access) -> Result<Option<String>, KnobError> {
    access.line("/proc/sys/kernel/random/boot_id")
}

#[cfg(test)]
mod tests;

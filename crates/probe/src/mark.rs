//! What to consider when reading the numbers of a result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something to consider when reading the numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Kind of mark.
    pub kind: MarkKind,
    /// The mark in words.
    pub text: String,
}

impl Mark {
    /// Creates a mark.
    pub fn new(kind: MarkKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// Kinds of [`Mark`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Measured in a virtual machine, so no figure describes the hardware.
    VirtualMachine,
    /// The kernel withholds the CPU from real-time threads for a part of each period.
    RealTimeThrottling,
    /// A clock was set, slewed, stopped or changed, so no quantile is given.
    ClockStep,
    /// All samples are equal or zero: the clock or the probe may be broken.
    Suspect,
    /// Something that was requested is not available.
    NotAvailable,
    /// Any other note.
    Note,
}

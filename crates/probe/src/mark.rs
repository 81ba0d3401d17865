//! What to bear in mind when reading numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something to bear in mind when reading the numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// What kind of thing.
    pub kind: MarkKind,
    /// In words.
    pub text: String,
}

impl Mark {
    /// A mark.
    pub fn new(kind: MarkKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// Kinds of [`Mark`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Measured in a virtual machine: no absolute claim.
    VirtualMachine,
    /// The kernel takes the CPU from real-time threads for a part of each period.
    RealTimeThrottling,
    /// A clock was set, slewed, stopped or changed: no quantiles.
    ClockStep,
    /// All samples are equal or zero: the clock or the probe may be broken.
    Suspect,
    /// Something that was asked for could not be had.
    NotAvailable,
    /// Anything else.
    Note,
}

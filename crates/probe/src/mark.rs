//! Notes on a result that a reader of its numbers must consider.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A note on a result that a reader of its numbers must consider.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// What the note is about.
    pub kind: MarkKind,
    /// The note in words.
    pub text: String,
}

impl Mark {
    /// Creates a note from its kind and its text.
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
    /// The kernel throttles real-time threads: it may stop them for a part of each period.
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

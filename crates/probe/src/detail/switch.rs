//! What the probe `switch` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;

/// Results of the probe `switch` that are not distributions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchDetail {
    /// How the threads woke each other.
    pub via: Name<Via>,
    /// Whether both threads were on one CPU.
    pub same_cpu: bool,
    /// Time that a thread busy-looped before it woke the other.
    pub pause_ns: u64,
}

units::named! {
    /// How one thread wakes the other.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Via {
        /// futex(2), private to the process.
        Futex = "futex",
        /// One byte through a pipe.
        Pipe = "pipe",
        /// A count through an eventfd.
        Eventfd = "eventfd",
    }
}

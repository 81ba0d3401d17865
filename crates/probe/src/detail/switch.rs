//! What the probe `switch` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;

/// Results of the probe `switch` that are not distributions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchDetail {
    /// How the two threads woke each other.
    pub via: Name<Via>,
    /// Whether both threads ran on the same CPU.
    pub same_cpu: bool,
    /// Time for which a thread busy-looped before it woke the other thread, in nanoseconds.
    pub pause_ns: u64,
}

units::named! {
    /// How one thread wakes the other.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Via {
        /// futex(2), private to the process.
        Futex = "futex",
        /// write(2) of one byte to a pipe.
        Pipe = "pipe",
        /// write(2) to an eventfd.
        Eventfd = "eventfd",
    }
}

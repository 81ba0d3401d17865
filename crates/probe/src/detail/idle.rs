//! What the probe `idle` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;
use tester::host::Reading;

/// Results of the probe `idle` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleDetail {
    /// How each idle state was entered.
    pub how: Name<How>,
    /// Idle states of the CPU, the shallowest first; empty in a guest that halts.
    pub states: Vec<IdleFacts>,
    /// The cases. Each has a term with its name.
    pub cases: Vec<IdleCase>,
    /// Whether the guest itself polls before it halts, and for how long.
    pub guest_halt_polling: Reading<HaltPolling>,
}

/// An idle state as its driver describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleFacts {
    /// Number of the state.
    pub number: u32,
    /// Name of the state.
    pub name: String,
    /// Exit latency according to the driver; null if it gives none.
    pub claimed_exit_ns: Option<u64>,
    /// Whether the state was disabled before the measurement; null if that is not readable.
    pub was_disabled: Option<bool>,
}

/// One combination of idle state, idle time and source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleCase {
    /// Name of the term with the case's distribution.
    pub term: String,
    /// Number of the state; null if the CPU halted.
    pub state: Option<u32>,
    /// What ended the sleep: `timer`, `cpu` or `frame`.
    pub source: Name<Source>,
    /// Approximate time that the CPU was idle.
    pub sleep_ns: u64,
    /// Number of wake-ups.
    pub wakeups: u64,
    /// How often the kernel requested the state meanwhile; if far fewer than wake-ups, the figures do not describe
    /// this state.
    pub entered: Reading<u64>,
    /// The cost of the state itself: this case's median minus that of the first measured state with the same source.
    /// The two are compared after the same sleep, if that state was measured with it. In a guest that shows no idle
    /// states: minus the median after the first sleep with the same source. 0 if it would be negative; null if there
    /// are no samples.
    pub median_above_first_ns: Option<u64>,
    /// `median_above_first_ns` minus the exit latency that the driver states. Negative if the state costs less than
    /// stated. Null if the driver states none.
    pub median_above_claim_ns: Option<i64>,
}

/// Parameters of the guest's own halt polling (kernel documentation, virt/guest-halt-polling).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaltPolling {
    /// Longest time that a CPU polls before it halts.
    pub guest_halt_poll_ns: u64,
}

units::named! {
    /// How to enter each idle state.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum How {
        /// All other states are disabled.
        Alone = "alone",
        /// The exit latency is limited to that of the state (PM QoS); shallower states stay allowed.
        PmQos = "pm-qos",
    }
}

units::named! {
    /// What ends the sleep.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Source {
        /// A timer of the sleeping CPU.
        Timer = "timer",
        /// Another CPU, through an eventfd.
        Cpu = "cpu",
        /// A frame, over a veth pair from another CPU.
        Frame = "frame",
    }
}

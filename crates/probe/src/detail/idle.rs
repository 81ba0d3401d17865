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
    /// The measured combinations of idle state, idle time and source of the wake-up. Each case names the term that
    /// contains its distribution.
    pub cases: Vec<IdleCase>,
    /// Halt polling by the guest's own kernel. It is known only if the idle driver is haltpoll.
    pub guest_halt_polling: Reading<HaltPolling>,
}

/// An idle state as its driver describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleFacts {
    /// Number of the state, as in /sys/devices/system/cpu/cpu0/cpuidle/state0.
    pub number: u32,
    /// Name of the state, such as `C6`.
    pub name: String,
    /// Exit latency according to the idle driver, in nanoseconds; null if the driver gives none.
    pub claimed_exit_ns: Option<u64>,
    /// Whether the state was disabled before the measurement; null if that is not readable.
    pub was_disabled: Option<bool>,
}

/// Result for one combination of idle state, idle time and source of the wake-up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleCase {
    /// Name of the term that contains the distribution of the wake-up times.
    pub term: String,
    /// Number of the idle state; null in a guest that simply halts the CPU.
    pub state: Option<u32>,
    /// What ended the sleep: `timer`, `cpu` or `frame`.
    pub source: Name<Source>,
    /// Approximate idle time before each wake-up, in nanoseconds.
    pub sleep_ns: u64,
    /// Number of wake-ups.
    pub wakeups: u64,
    /// Number of times that the kernel requested this state during the case. If this is far lower than `wakeups`, the
    /// figures do not describe this state.
    pub entered: Reading<u64>,
    /// Extra wake-up time of this case, in nanoseconds: its median minus the median of the first measured state with
    /// the same source, after the same idle time where possible. In a guest without idle states, the reference is the
    /// first idle time with the same source. 0 if the difference is negative; null without samples.
    pub median_above_first_ns: Option<u64>,
    /// `median_above_first_ns` minus the exit latency that the driver states, in nanoseconds. Negative if the measured
    /// time is shorter; null if the driver states no exit latency.
    pub median_above_claim_ns: Option<i64>,
}

/// Parameters of the guest's own halt polling (kernel documentation, virt/guest-halt-polling).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaltPolling {
    /// Longest time that a CPU polls before it halts, in nanoseconds.
    pub guest_halt_poll_ns: u64,
}

units::named! {
    /// How to enter each idle state.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum How {
        /// All other states are disabled.
        Alone = "alone",
        /// PM QoS limits the exit latency to the state's exit latency; shallower states stay allowed.
        PmQos = "pm-qos",
    }
}

units::named! {
    /// What wakes the sleeping CPU.
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

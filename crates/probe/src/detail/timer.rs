//! What the probe `timer` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;

/// Results of the probe `timer` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerDetail {
    /// How the threads waited.
    pub wait: Name<Wait>,
    /// Time from one timer expiry to the next.
    pub interval_ns: u64,
    /// Results by CPU.
    pub cpus: Vec<TimerCpu>,
}

/// The activations of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerCpu {
    /// Number of the CPU.
    pub cpu: usize,
    /// Activations for which the thread ran.
    pub activations: u64,
    /// Activations that a stall hid; they are only in the back-filled series.
    pub swallowed: u64,
    /// Waits that returned too early; they were repeated and are not samples.
    pub early: u64,
}

units::named! {
    /// System call with which a thread waits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Wait {
        /// `clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME)`.
        ClockNanosleep = "clock_nanosleep",
        /// read(2) of a periodic timerfd.
        Timerfd = "timerfd",
        /// epoll_wait(2) for a periodic timerfd, then read(2).
        Epoll = "epoll",
    }
}

//! What the probe `timer` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;

/// Results of the probe `timer` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerDetail {
    /// System call with which the threads waited.
    pub wait: Name<Wait>,
    /// Time from one timer expiry to the next, in nanoseconds.
    pub interval_ns: u64,
    /// Results of each measured CPU.
    pub cpus: Vec<TimerCpu>,
}

/// Timer activations on one CPU. An activation is a timer expiry for which the thread should run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerCpu {
    /// Number of the CPU.
    pub cpu: usize,
    /// Number of activations for which the thread ran.
    pub activations: u64,
    /// Number of activations that passed while the thread was stalled by an earlier one. They are samples only in the
    /// back-filled series.
    pub swallowed: u64,
    /// Number of waits that returned before the timer expired. They were repeated and are not samples.
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

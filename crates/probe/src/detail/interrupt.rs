//! What the probe `interrupt` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;
use tester::host::Reading;

/// Results of the probe `interrupt` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptDetail {
    /// Path of the frames: `lab` for a veth pair, otherwise the name of the interface.
    pub bed: String,
    /// How the receiver waited for frames.
    pub wait: Name<Wait>,
    /// What took the time stamp of a frame's arrival: `XDP`, or the kernel's `stack` (for UDP sockets).
    pub stamped_by: String,
    /// CPU of the sending thread. On a veth pair, this CPU also runs the receiver's NAPI.
    pub sender_cpu: usize,
    /// CPU of the receiving thread.
    pub receiver_cpu: usize,
    /// Number of frames sent, not counting the warm-up.
    pub sent: u64,
    /// Number of sent frames that came back within 100 ms.
    pub received: u64,
    /// Number of sent frames that did not come back within 100 ms.
    pub lost: u64,
    /// Number of frames that were not sent, because an earlier frame was still under way when they were due.
    pub missed: u64,
    /// Number of frames that came back but were not counted, because a time stamp was missing or out of order.
    pub unusable: u64,
    /// Sum of the medians of all parts of the path, in nanoseconds; null without samples.
    pub sum_of_medians_ns: Option<u64>,
    /// Whether the application's polls ran the driver, as kernel busy polling and IRQ suspension require. Unknown if
    /// neither was requested, or if too few frames arrived.
    pub polls_driver: Reading<bool>,
}

units::named! {
    /// How the receiving thread waits for a frame.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Wait {
        /// poll(2) on an AF_XDP socket: one interrupt and one wake-up per frame.
        Block = "block",
        /// Polling the ring of the AF_XDP socket without sleeping.
        Spin = "spin",
        /// Kernel busy polling (`SO_PREFER_BUSY_POLL`): each poll runs the driver. In the lab, on a UDP socket.
        Busy = "busy",
        /// IRQ suspension: epoll_wait with `prefer_busy_poll` and `irq-suspend-timeout`. In the lab, on a UDP socket.
        Suspend = "suspend",
    }
}

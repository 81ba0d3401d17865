//! What the probe `interrupt` reports besides distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;
use tester::host::Reading;

/// Results of the probe `interrupt` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptDetail {
    /// `lab`, or the name of the port.
    pub bed: String,
    /// How the receiver waited.
    pub wait: Name<Wait>,
    /// What stamped the arrival: `XDP`, or the kernel's `stack` (for UDP sockets).
    pub stamped_by: String,
    /// CPU of the sender, which on veth also runs the receiver's NAPI.
    pub sender_cpu: usize,
    /// CPU of the receiver.
    pub receiver_cpu: usize,
    /// Frames sent, without those of the warm-up.
    pub sent: u64,
    /// Number of these that came back in time.
    pub received: u64,
    /// Number of these that did not come back in time.
    pub lost: u64,
    /// Frames not sent because an earlier one was still under way when they were due.
    pub missed: u64,
    /// Frames not counted because stamps were missing or in the wrong order.
    pub unusable: u64,
    /// Sum of the medians of the parts; null without samples.
    pub sum_of_medians_ns: Option<u64>,
    /// Whether polling ran the driver, if that was requested.
    pub polls_driver: Reading<bool>,
}

units::named! {
    /// How the receiver waits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Wait {
        /// poll(2) on an AF_XDP socket: one interrupt and one wake-up per frame.
        Block = "block",
        /// Polling the ring of the AF_XDP socket without rest.
        Spin = "spin",
        /// Kernel busy polling (`SO_PREFER_BUSY_POLL`): each poll runs the driver. In the lab, on a UDP socket.
        Busy = "busy",
        /// IRQ suspension: epoll_wait with `prefer_busy_poll` and `irq-suspend-timeout`. In the lab, on a UDP socket.
        Suspend = "suspend",
    }
}

//! Applications: code that decides what a worker does with each frame.

mod config;
pub mod drop;
pub mod headers;
#[cfg(test)]
mod hostile;
pub mod l2fwd;
pub mod l3fwd;
pub mod macswap;
mod neighbor;
pub mod offload;
pub mod responder;
pub mod routes;
#[cfg(test)]
mod testing;
pub mod udp_echo;

pub use config::{AnyApp, AppConfig, PortInfo};

use crate::telemetry::DropReason;

/// Decides what happens to a frame, and may rewrite it. Each worker has its own instance.
pub trait App: Send {
    /// Handles one frame that arrived on port `port` (its number on the command line, from 0).
    ///
    /// The frame can be truncated, malformed or hostile. This function must not panic.
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict;
}

/// What happens to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send the frame out of the port with this number, counted from 0.
    Send(usize),
    /// Drop the frame, for this reason.
    Drop(DropReason),
}

//! What the loop does to each frame.

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

/// Decides a frame's fate, and may rewrite it. One instance a worker.
pub trait App: Send {
    /// Handles one frame that came in on port `port` (its number on the command line, from 0).
    ///
    /// The frame may be of any content: truncated, malformed, hostile. It must not panic.
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict;
}

/// A frame's fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Out of the port of this number.
    Send(usize),
    /// Nowhere, and why.
    Drop(DropReason),
}

//! The description of the host (facts), and its settings (knobs).
//!
//! **Law:** only this crate reads the host's description, and only this crate changes the host. Every change goes
//! through the journal, so that it can be rolled back.
//!
//! [`facts`] reads a live host, a folder or an archive. No number stands for an unknown value: each [`Fact`] either has
//! a value or says why it has none. [`snapshot`] saves a host's state to a file. [`nic`] reads and changes the settings
//! of network interfaces, for facts and knobs.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
// The error of a failed transaction is large: it lists what was done and what is left to do. It occurs at most once per
// transaction, never on a hot path.
#![allow(clippy::result_large_err)]

pub mod at_boot;
mod below;
pub mod counters;
pub mod facts;
pub mod guests;
pub mod journal;
pub mod knob;
pub mod meter;
pub mod nic;
pub mod privilege;
pub mod profile;
pub mod snapshot;
pub mod transaction;
mod vault;
pub mod watch;

pub use facts::{CpuSet, Fact, Facts, Source, Why};

#[cfg(test)]
mod testing;

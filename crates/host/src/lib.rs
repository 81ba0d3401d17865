//! The machine as facts and knobs.
//!
//! **Law:** the only code that reads the host's description, and the only code that changes the
//! host: through the journal, so that every change can be taken back.
//!
//! [`facts`] reads: a live host, a folder, an archive. What is not known is never a number: each
//! [`Fact`] is known, or says why it is not. [`snapshot`] takes a host's state along.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
// A failed transaction carries what was done and what is left to do; it happens once, on no hot path.
#![allow(clippy::result_large_err)]

pub mod at_boot;
mod below;
pub mod facts;
pub mod journal;
pub mod knob;
pub mod privilege;
pub mod profile;
pub mod snapshot;
pub mod transaction;
mod vault;

pub use facts::{CpuSet, Fact, Facts, Source, Why};

#[cfg(test)]
mod testing;

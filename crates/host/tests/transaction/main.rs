//! Transactions against the worst: killed at every step, full disks, and real network namespaces.
#![allow(clippy::result_large_err)] // as in the crate itself

/// A disk that is full.
mod full;
/// Killed at every operation that changes something.
mod kill;
/// Roots, snapshots, namespaces.
mod support;

//! The modelled world: a deterministic discrete-event simulator that runs the policies unchanged.
//!
//! **Law:** the result depends only on scenario and seed. The crate reads no clock and no environment variables, and
//! never depends on hash order. The same scenario and seed give the same bytes on any machine and with any number of
//! threads.
//!
//! Where to start: [`scenario`] describes what to simulate, [`world::run`] simulates it, and [`outcome`] holds the
//! result. [`hw`] models the hardware that a packet passes; each part is a small state machine that receives the time
//! as an argument. [`machine`] gives the parameters of named machines, each value with its source. [`traffic`]
//! describes what arrives. [`bound`] computes the minimum power that any policy needs to meet the goal, even one that
//! knows all arrivals in advance. [`figures`] compares published figures with the simulator's results.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bound;
pub mod engine;
pub mod figures;
pub mod goals;
pub mod hw;
pub mod machine;
pub mod outcome;
pub mod random;
pub mod scenario;
pub mod strict;
pub mod traffic;
pub mod units_text;
pub mod world;

/// A point in simulated time.
pub type At = units::Instant<units::Simulated>;

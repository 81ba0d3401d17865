//! The modelled world: a deterministic discrete-event simulator in which the policies run unchanged.
//!
//! **Law:** a function of its scenario and seed. No clock, no environment, no hash order; the same
//! scenario and seed give the same bytes on any machine and number of threads.
//!
//! Where to start: [`scenario`] says what is to be simulated, [`world::run`] does it, [`outcome`] is what it
//! gives. [`hw`] has the parts that a packet meets, each a small state machine to which time is an argument;
//! [`machine`] says what the parts of a named machine are, value by value with its source; [`traffic`] says
//! what arrives. [`bound`] says what a clairvoyant would need at least. [`figures`] puts the figures of the documents that Apus follows beside what these parts say.
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

/// A point of simulated time.
pub type At = units::Instant<units::Simulated>;

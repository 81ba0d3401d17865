//! The tester: sends test frames open loop, receives them back, and says how late they were.
//!
//! **Law:** nothing is skipped in silence. Every intended frame ends as received, lost or unsent;
//! every sample counts from its *intended* send time; a quantile without enough samples is refused;
//! what is unknown carries its reason.
//!
//! Where to start: [`trial::run`] is the loop, [`schedule::Schedule`] says when frames are due,
//! [`gaps::split`] sets the samples apart that the host disturbed, [`search::BinarySearch`] finds the
//! highest loss-free rate, [`result`] holds the documents that leave the program.
//! The search and the statistics are pure; only [`clock`], [`cpu`], [`host`] and, for a capture, [`schedule`] read the
//! system, the last three below a root folder or path that the caller gives.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bed;
pub mod clock;
pub mod cpu;
pub mod demo;
pub mod document;
mod error;
pub mod experiment;
pub mod frame;
pub mod gaps;
pub mod histogram;
pub mod host;
pub mod lab;
pub mod layout;
pub mod ledger;
pub mod quantile;
mod random;
pub mod report;
pub mod result;
pub mod schedule;
pub mod search;
pub mod statistics;
pub mod trial;

pub use error::Error;
pub use random::Random;

//! The tester: sends test frames at times that do not depend on when earlier frames return (open loop), receives them
//! back, and reports how late they were.
//!
//! **Law:** nothing is left out silently. Every intended frame ends as received, lost or unsent. Every latency counts
//! from the *intended* send time. A quantile is reported only if there are enough samples for it. An unknown value
//! comes with the reason.
//!
//! Where to start: [`trial::run`] is the loop, [`schedule::Schedule`] says when frames are due, [`gaps::split`]
//! separates the samples that the host disturbed, [`search::BinarySearch`] finds the highest loss-free rate, [`result`]
//! has the documents that the commands write, [`procedure::run`] follows RFC 2544. The search and the statistics do no
//! I/O. Only [`clock`], [`cpu`] and [`host`] read the system, and [`schedule`] reads a capture. For all of these except
//! the clock, the caller gives the root folder or path to read.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod answer;
pub mod bed;
pub mod clock;
pub mod cpu;
pub mod demo;
pub mod document;
mod error;
pub mod experiment;
pub mod flows;
pub mod frame;
pub mod gaps;
pub mod histogram;
pub mod host;
pub mod lab;
pub mod layout;
pub mod ledger;
pub mod procedure;
pub mod quantile;
mod random;
pub mod replace;
pub mod report;
pub mod result;
pub mod schedule;
pub mod search;
pub mod sizes;
pub mod statistics;
pub mod trial;

pub use error::Error;
pub use random::Random;

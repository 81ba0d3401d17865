//! The loop that moves packets: policy × device × clock.
//!
//! **Law:** it decides nothing. What to wait for, and how long, is [`policy`]'s word; this crate
//! carries it out, says what happened, and counts. `unsafe` stands only in files named `sys.rs`.
//!
//! Where to start: [`worker`] is the loop; [`device::Device`] is what it moves frames between, and
//! [`device::afxdp`] the backend that matters; [`app::App`] is what it does to each frame;
//! [`pool`] holds the frames' memory; [`telemetry`] is what others can see of it while it runs.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod app;
pub mod cpu;
pub mod device;
pub mod error;
pub mod instance;
mod meter;
pub mod mode;
pub mod os;
pub mod pool;
pub mod port;
pub mod record;
pub mod telemetry;
pub mod worker;

pub use error::Error;

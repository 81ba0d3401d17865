//! The loop that moves packets: it combines a policy, devices and a clock.
//!
//! **Law:** this crate decides nothing. [`policy`] decides what to wait for, and for how long. This crate carries out
//! the decision, reports the result and counts. `unsafe` appears only in files named `sys.rs`.
//!
//! Where to start: [`worker`] is the loop. It moves frames between [`device::Device`]s, of which [`device::afxdp`] is
//! the important one. [`app::App`] is what it does to each frame, [`pool`] holds the frames' memory, and [`telemetry`]
//! shows other programs what it does while it runs.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod app;
pub mod cpu;
pub mod device;
pub mod error;
pub mod instance;
pub mod meter;
pub mod mode;
pub mod os;
pub mod platform;
pub mod pool;
pub mod port;
pub mod record;
pub mod telemetry;
pub mod worker;

pub use error::Error;

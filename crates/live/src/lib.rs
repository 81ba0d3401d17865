//! The packet loop: it combines a wait policy, devices and a clock.
//!
//! **Law:** this crate decides nothing. The crate [`policy`] decides how to wait, and for how long. This crate carries
//! out the decision, reports the result to the policy, and counts. `unsafe` appears only in files named `sys.rs`.
//!
//! Where to start: [`worker`] is the loop. It moves frames between [`device::Device`]s; the most important one is in
//! [`device::afxdp`]. An [`app::App`] handles each frame, [`pool`] has the memory of the frames, and [`telemetry`]
//! shows other programs the counters of a running worker.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod app;
pub mod cpu;
pub mod device;
pub mod error;
pub mod hold_off;
pub mod idle_limit;
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

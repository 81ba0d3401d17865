//! Measures what wake-ups cost on this host.
//!
//! **Law:** this crate changes no setting of the host except through the crate `host`. Each result says what its
//! counters count, their range, and the probe's own overhead.
//!
//! ```text
//!   a probe's settings ──► Probe::run(&Control) ──► Measured
//!                                  ▲      │           what it counts, and cannot see (Counter)
//!             stop, threshold ─────┘      │           what it costs itself (Overhead)
//!                                         │           the thread's and the host's state (Conditions)
//!             live samples ◄──────────────┘           series: raw, and back-filled where a stall
//!                                                     swallowed samples (Term)
//!                                                     what only this probe knows (Detail)
//!                                                     what to bear in mind (Mark)
//! ```
//!
//! Each probe has its own file or directory. All probes share [`record`] (samples), [`place`] (the measuring thread's
//! CPU and scheduling class), [`clockcheck`] (whether the clocks can be trusted) and [`cause`] (what used the CPU).
//! [`platform`] combines the probes into a profile of the host, [`compare`] compares two profiles, and [`import`] reads
//! what other tools measured.
//!
//! The crate `tester` provides histograms, quantiles and their intervals, the significance test and the report. The
//! crate `live` provides the placement of threads and the AF_XDP sockets.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod cause;
pub mod clock;
pub mod clockcheck;
pub mod compare;
pub mod conditions;
pub mod control;
pub mod detail;
mod error;
pub mod frequency;
pub mod idle;
pub mod import;
pub mod interrupt;
pub mod jitter;
pub mod load;
pub mod mark;
pub mod measured;
mod observe;
pub mod place;
pub mod platform;
pub mod record;
pub mod report;
pub mod ring;
pub mod switch;
pub mod timer;

pub use control::Control;
pub use error::Error;
pub use measured::Measured;

use measured::Counter;

/// One kind of measurement, with its settings.
pub trait Probe {
    /// Describes what the probe counts, the range of its samples, and what it cannot see.
    fn counter(&self) -> Counter;

    /// Measures until its time is over, `control` stops it, or a sample exceeds the threshold of `control`. The calling
    /// thread is not measured. It is moved off the measured CPUs and observes them.
    fn run(&self, control: &Control) -> Result<Measured, Error>;
}

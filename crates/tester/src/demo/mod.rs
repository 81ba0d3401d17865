//! The demo: compares all waiting modes on real packets, latency side by side with CPU time, in a few minutes.
//!
//! ```text
//!  Plan ─► run: round 1, all modes, both loads; round 2 in the other order; …       ─► DemoResult
//!               then for each mode the highest loss-free rate, and latency near it      ├─► table (text)
//!                                                                                       └─► report (HTML)
//! ```
//! [`plan`] says what to run and for how long; [`run()`] runs it on a [`Bed`]. [`result`] is the document `apus.demo/2`
//! with every run; [`summary`] computes medians from it; [`table`] and [`report`] show them.

mod energy;
pub mod plan;
pub mod report;
pub mod result;
mod run;
pub mod summary;
pub mod table;

#[cfg(test)]
mod tests;

pub use plan::Plan;
pub use result::DemoResult;
pub use run::{Ended, run};

#[allow(unused_imports)] // for the documentation
use crate::bed::Bed;

//! Which way of waiting holds a latency goal with the least power?
//!
//! One core forwards shortest frames, on named machines, with several kinds of traffic at several loads. What Apus does
//! (`adaptive` with the frequency policy `goal`) is judged against what others do, each with the frequency that its users
//! give it:
//!
//! | way | waits | frequency |
//! | --- | --- | --- |
//! | `poll` | never | base |
//! | `l3fwd-power` | polls, pauses, then the interrupt ([`Hybrid300`](policy::wait::Hybrid300)) | its own scheme |
//! | `backoff` | sleeps, up to a maximum ([`Backoff`](policy::wait::Backoff)) | base |
//! | `interrupt` | blocks at the first empty poll | base |
//! | `poll@1GHz` and so on | the same | one that suits the case, as one knows afterwards |
//! | `adaptive` | as the goal allows | as the goal allows |
//!
//! `backoff` is tried with several maxima, as its users would find the one that suits their goal.
//!
//! All ways get the same frames, to the nanosecond, and the same host: a FIFO thread on an isolated core, no moderation,
//! rings of 4,096 descriptors (the most that drivers of the 82599, X540 and XL710 take), descriptors written back at once
//! (on the XL710 they wait up to 32 us unless that is set: Intel 637284-001US, A.9).
//!
//! A [`Plan`] is a grid. [`Plan::settings`] are its parts, each simulated by itself ([`Setting::judge`]) into [`Case`]s,
//! which know their [`Verdict`]. Who simulates the settings, on how many threads and in which order, changes nothing.

mod case;
mod measured;
mod plan;
pub mod setting;
pub mod traffic;
mod way;

pub use case::{Case, TIE, TUNED, Verdict, quartiles};
pub use measured::{Held, MOST_SEEDS, Measured, Tried};
pub use plan::{Grid, Idle, MACHINES, Peak, Plan, PlanError, full_rate};
pub use setting::{Bound, Files, RunError, Setting};
pub use traffic::Pattern;
pub use way::{Speed, Way};

#[cfg(test)]
mod tests;

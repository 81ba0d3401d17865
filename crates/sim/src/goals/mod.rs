//! Compares ways of waiting: which one meets a latency goal with the least power?
//!
//! One core forwards the shortest frames, on named machines, with several kinds of traffic at several loads. Apus
//! (`adaptive` with the frequency policy `goal`) is compared with its rivals, each at the frequency that its users
//! choose:
//!
//! | name | how it waits | frequency |
//! | --- | --- | --- |
//! | `poll` | never | base |
//! | `l3fwd-power` | polls, pauses, then the interrupt ([`Hybrid300`](policy::wait::Hybrid300)) | its own scheme |
//! | `backoff` | sleeps, up to a maximum ([`Backoff`](policy::wait::Backoff)) | base |
//! | `interrupt` | blocks at the first empty poll; `interrupt 50us` has the NIC delay interrupts by 50 us | base |
//! | `poll@1GHz` and so on | as above | the best one for the case, chosen in hindsight |
//! | `adaptive` | as the goal allows | as the goal allows |
//!
//! `backoff` is tried with several maxima, because its users would look for the maximum that suits their goal. No named
//! grid has an `interrupt` with a delay. With `--hold-off`, `adaptive` chooses a delay, and for each `backoff`, an
//! `interrupt` with a delay of that length joins.
//!
//! Apus and all rivals receive the same frames, to the nanosecond, and run on the same host: a FIFO thread on an
//! isolated core, no interrupt moderation (unless the rival has a delay, or Apus chooses one), rings of 4,096 descriptors (the maximum of
//! the drivers of the 82599, X540 and XL710). Descriptors are written back at once (by default they wait up to 32 us on
//! the XL710: Intel 637284-001US, A.9).
//!
//! A [`Plan`] describes a grid, and [`Plan::settings`] lists its settings. Each setting is simulated independently
//! ([`Setting::judge`]) and gives one [`Case`] per goal, with a [`Verdict`]. The results do not depend on the number of
//! threads or on the order.

mod case;
mod measured;
mod plan;
pub mod setting;
pub mod traffic;
mod way;

pub use case::{Because, Case, TIE, TUNED, Verdict, quartiles};
pub use measured::{Held, MOST_SEEDS, Measured, Spent, Tried};
pub use plan::{Grid, Idle, MACHINES, Peak, Plan, PlanError, full_rate};
pub use setting::{Bound, Files, RunError, Setting};
pub use traffic::Pattern;
pub use way::{Speed, Way};

#[cfg(test)]
mod tests;

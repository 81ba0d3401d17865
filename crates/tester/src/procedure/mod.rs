//! Benchmarking procedures: RFC 2544, MLRsearch (RFC 9971) and a soak. A procedure chooses loads, durations and pauses,
//! lets a [`Measurer`] run each trial, and computes the results. The measurer runs the trials on ports, or on a
//! simulated device in virtual time.
//!
//! ```text
//!  Rfc2544::run ──► for each frame size: ceiling of the tester ► throughput ► latency, loss, bursts, recovery, reset
//!        │            each trial: learning frames ► pause ► Offer ──► Measurer ──► Observed ► pause
//!        └──► Rfc2544Result: values with n and intervals, deviations, what it refuses and why
//! ```
//! A frame counts as forwarded if it came back once, intact, in order (within its flow), and on the right port. All
//! other frames that came back are counted by kind ([`Anomalies`]), and the result lists them.

mod compare;
mod effort;
mod longest;
mod measure;
mod mlr;
mod observed;
mod overload;
mod report;
mod result;
mod rfc2544;
#[cfg(test)]
mod simulated;
mod soak;
mod table;
#[cfg(test)]
mod tests;
mod timing;

pub use compare::{COMPARE_SCHEMA, CompareDocument, Compared, Comparison, compare};
pub use effort::{Effort, Test};
pub use mlr::{MLR_SCHEMA, MlrDocument, MlrGoal, MlrPlan, MlrResult, MlrSize};
pub use report::report;
pub use result::*;
pub use rfc2544::{Plan, run};
pub use soak::{SOAK_SCHEMA, SoakDocument, SoakPlan, SoakResult, SoakWindow, run as run_soak};
pub use table::{compare_table, mlr_table, rfc2544_table, soak_table};

pub use mlr::run as run_mlr;

use units::Nanos;

use crate::Error;
use crate::histogram::Histogram;
use crate::search::Outcome;
use crate::sizes::Sizes;

/// Losses of a trial in which a frame was sent later than this may be due to a burst of overdue
/// frames. See [`Observed::is_disturbed`].
pub const LATE: Nanos = Nanos::from_millis(1);

/// Runs trials.
pub trait Measurer {
    /// Sends the frames that `offer` describes, and returns what came back. An error ends the procedure.
    fn trial(&mut self, offer: &Offer) -> Result<Observed, Error>;

    /// Measures the highest rate per direction at which the tester can send frames of these sizes. Sends for `span`,
    /// and ignores what comes back. An error ends the procedure.
    fn ceiling(&mut self, sizes: &Sizes, span: Nanos) -> Result<u64, Error>;

    /// Waits for `span`, or until the user asks to stop.
    fn wait(&mut self, span: Nanos);

    /// Whether the user asked to stop.
    fn stopped(&self) -> bool;
}

/// A part of a trial in which the rate is constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Rate in frames per second, in each direction.
    pub rate_pps: u64,
    /// Length of the phase.
    pub duration: Nanos,
}

/// What to send in one trial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Sizes of the frames.
    pub sizes: Sizes,
    /// The phases, in the order in which they are sent.
    pub phases: Vec<Phase>,
    /// Time to wait for late frames after the last frame was sent (RFC 2544, 23 d).
    pub residue: Nanos,
    /// Time after the start of the trial from which latencies are recorded. Earlier frames count only for losses.
    pub latency_from: Nanos,
    /// Whether to reset the device under test after a quarter of the trial.
    pub reset: bool,
}

impl Offer {
    /// Creates a trial with a single phase. Latencies are recorded from its start, and the device is not reset.
    pub fn constant(sizes: &Sizes, rate_pps: u64, duration: Nanos, residue: Nanos) -> Self {
        let phases = vec![Phase { rate_pps, duration }];
        Self { sizes: sizes.clone(), phases, residue, latency_from: Nanos::ZERO, reset: false }
    }

    /// Total length of the phases.
    pub fn span(&self) -> Nanos {
        self.phases.iter().fold(Nanos::ZERO, |sum, phase| sum + phase.duration)
    }
}

/// Anomalous frames, by kind: duplicate, corrupted, reordered and so on. None of them counts as forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anomalies {
    /// Number of repeated arrivals: the frame had already arrived before.
    pub duplicates: u64,
    /// Frames that arrived after a later one of the same flow (RFC 4737, 3.3).
    pub reordered: u64,
    /// Frames with a damaged test header.
    pub corrupted: u64,
    /// Frames that came back to the port that sent them, instead of to the receiving port.
    pub looped: u64,
    /// Frames that do not belong to this trial: late frames of the previous trial, or frames of other hosts.
    pub foreign: u64,
}

impl Anomalies {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
        self.looped += other.looped;
        self.foreign += other.foreign;
    }
}

/// Measurements of the tester itself in a trial. They show whether it was fast enough.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TesterSide {
    /// For each frame sent, how much later than intended it departed.
    pub pacing: Histogram,
    /// Time that the tester's loops spent building, sending, receiving or recording frames.
    pub busy: Nanos,
    /// Number of frames sent during `busy`.
    pub sent: u64,
    /// Total time of the loop passes that found no work. `idle` / `idle_rounds` is the mean time of such a pass. The
    /// receive timestamp of a frame can be late by this time.
    pub idle: Nanos,
    /// Number of loop passes that found no work.
    pub idle_rounds: u64,
    /// Number of frames that came back but were dropped by the tester's own ports. In [`Observed::outcome`], they count
    /// as `unsent`, not as `lost`.
    pub own_losses: u64,
    /// Number of times that the tester found a link down.
    pub link_down_seen: u64,
}

/// What came back in a trial, over all directions.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed {
    /// Numbers of frames sent, lost (not forwarded correctly) and unsent.
    pub outcome: Outcome,
    /// Frames that came back damaged, out of order, more than once or to the sending port, and frames that do not
    /// belong to the trial.
    pub anomalies: Anomalies,
    /// Latencies of the frames that were due at or after [`Offer::latency_from`].
    pub latency: Histogram,
    /// Latency of the first frame that was due at or after [`Offer::latency_from`]: the tagged frame of RFC 2544, 26.2.
    /// `None` if that frame was lost or not sent.
    pub tagged: Option<Nanos>,
    /// When the last lost frame was due, measured from the start of the trial. `None` if no frame was lost. In a trial
    /// with a reset, losses that began before the reset do not count, neither here nor as an `outage`.
    pub last_loss: Option<Nanos>,
    /// The longest outage, in which one direction forwarded no frame: when the last frame before it and the first frame
    /// after it were due, measured from the start of the trial. `None` if no outage ended within the trial.
    pub outage: Option<(Nanos, Nanos)>,
    /// Measurements of the tester itself.
    pub tester: TesterSide,
    /// What went wrong with the command that resets the device. `None` if it succeeded, or if there was no reset.
    pub reset_note: Option<String>,
    /// Whether the user asked to stop during the trial.
    pub interrupted: bool,
}

//! Searches for rates and burst lengths, without any I/O. A search returns the trial to run next. The caller runs the
//! trial, on ports or on a simulated device, and records its outcome.
//!
//! ```text
//!  Search::next_step ──► Step: load, duration ──► trial ──► Outcome: sent, lost, unsent ──► Search::record ──► …
//! ```
//! | search | finds | source |
//! | --- | --- | --- |
//! | [`BinarySearch`] | the highest loss-free rate | RFC 2544, 26.1 |
//! | [`StepDown`] | the first loss-free rate on the way down from the maximum | RFC 2544, 26.1 |
//! | [`LossCurve`] | the loss at 100 %, 90 %, … of the maximum rate | RFC 2544, 26.3 |
//! | [`BurstSearch`] | the longest burst without loss | RFC 9004, 5.3 |
//! | [`mlr::MlrSearch`] | bounds and conditional throughput for several goals | RFC 9971 |
//!
//! [`Climb`] finds the highest rate at which the tester can send. [`WarmedUp`] runs a warm-up trial before a search,
//! and ignores its outcome.

mod burst;
mod climb;
#[cfg(test)]
pub(crate) mod devices;
mod loss_free;
pub mod mlr;
mod stepped;
mod warm;

pub use burst::{BurstBounds, BurstSearch};
pub use climb::Climb;
pub use loss_free::{BinarySearch, End, Found, SearchConfig, SearchTrial};
pub use stepped::{LossCurve, LossPoint, StepDown};
pub use warm::WarmedUp;

use units::Nanos;

/// The interface between a search and the loop that runs its trials.
pub trait Search {
    /// The next trial; `None` when the search has ended. Returns the same trial until [`record`](Self::record) is
    /// called.
    fn next_step(&self) -> Option<Step>;

    /// Records the outcome of the trial that [`next_step`](Self::next_step) returned.
    fn record(&mut self, step: Step, outcome: Outcome) -> Verdict;
}

/// The next trial of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Rate to send, in frames per second.
    pub load_pps: u64,
    /// Duration of the trial.
    pub duration: Nanos,
    /// Whether the trial confirms a bound. If false, it narrows the search.
    pub confirms: bool,
}

/// The result of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Number of frames that the tester sent, without those that its own ports lost on return.
    pub sent: u64,
    /// Number of sent frames that did not come back intact.
    pub lost: u64,
    /// Number of frames that the tester failed to send in time, or that its own ports lost on return.
    pub unsent: u64,
}

impl Outcome {
    /// Share of the due frames that were lost or not sent, from 0 to 1. If no frame was due, it is 0. Unsent frames
    /// count as lost, because a result must not claim a load that the tester did not send (RFC 9971, 4.5.3).
    pub fn loss_ratio(&self) -> f64 {
        let due = self.sent + self.unsent;
        if due == 0 { 0.0 } else { (self.lost + self.unsent) as f64 / due as f64 }
    }
}

units::named! {
    /// The verdict on a trial.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// The device under test forwarded enough frames.
        Pass = "pass",
        /// The device under test lost too many frames.
        Loss = "loss",
        /// The tester did not send enough frames to judge.
        TesterLimited = "tester_limited",
    }
}

/// Whether `part` is more than `tolerance_ppm` of `whole`.
fn exceeds(part: u64, whole: u64, tolerance_ppm: u32) -> bool {
    u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(tolerance_ppm)
}

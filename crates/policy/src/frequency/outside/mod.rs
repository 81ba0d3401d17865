//! Frequency policies outside of the packet loop: they decide at regular intervals, from counters.
//!
//! The policies of [`frequency`](super) run inside the loop and see each poll. The policies of this module see only
//! counters: those of the loop itself, of its NIC or of the processor. They serve loops of other programs, and settings
//! that only another process may change.
//!
//! ```text
//!   counters ──► occupancy ([`packets`], [`branches`], or from the loop) ─────► Sample ──► policy.decide()
//!                                                                                            │
//!   the frequency in force ◄── the domain's highest request ◄────────── Keep, Request(hertz) ┘
//! ```
//! | policy | decides by | origin |
//! | --- | --- | --- |
//! | [`Goal`] | occupancy, and late packets if they are counted | Apus |
//! | [`TwoLevel`] | whether packets arrive | DPDK `rte_power_pmd_mgmt`, `scale` |
//! | [`L3fwdPower`] | time slept and packets per poll | DPDK `l3fwd-power`, legacy mode |
//! | [`Fixed`] | nothing | a governor's fixed frequency |
//! | [`TimeOfDay`] | the clock | DPDK `vm_power_manager`, TIME policy |
//!
//! **If the load is uncertain, the highest frequency is used.** A policy that decides by occupancy requests the highest
//! frequency whenever the occupancy is [`Occupancy::Unsure`].

pub mod branches;
mod fixed;
mod goal;
mod l3fwd_power;
pub mod packets;
pub mod slow;
mod transition;
mod two_level;

pub use fixed::{Fixed, Slot, TimeOfDay};
pub use goal::{Goal, GoalConfig, HIGHEST_BUSY_PPM, LOWEST_BUSY_PPM};
pub use l3fwd_power::L3fwdPower;
pub use transition::Transition;
pub use two_level::TwoLevel;

use units::{Hertz, Instant, Nanos};

/// A share of 100 %, in ppm.
pub const ONE: u32 = 1_000_000;

/// The share of time that a core spends on useful work. Polling an empty queue is not useful work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupancy {
    /// Share of the span in ppm, at the frequency in force during the span.
    Share(u32),
    /// The share is unknown, for this reason.
    Unsure(Unsure),
}

units::named! {
    /// Why an occupancy is unknown.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Unsure {
        /// Not enough load has been seen yet to know anything.
        Learning = "learning",
        /// Packets were lost, so the core may need a higher frequency.
        Loss = "loss",
        /// The counters match neither the idle nor the busy phase that was learned.
        Unlike = "unlike",
        /// The learned idle and busy phases look too similar in the counters.
        Indistinct = "indistinct",
        /// The counters were not running for long enough in this interval, because something else used them.
        Uncounted = "uncounted",
        /// The loop did not report anything in this interval.
        Silent = "silent",
    }
}

/// Polls of a loop within a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Polls {
    /// Number of all polls.
    pub all: u64,
    /// Number of polls that found no packet.
    pub empty: u64,
}

/// Number of packets in a span whose delay was measured, and how many of them were late.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Late {
    /// Number of packets whose delay was measured.
    pub judged: u64,
    /// Number of packets that were later than the goal allows.
    pub late: u64,
}

/// What was observed on a core since the previous sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample<C> {
    /// Time of the sample: the end of the span.
    pub now: Instant<C>,
    /// Time since the previous sample.
    pub span: Nanos,
    /// The frequency in force at the end of the span.
    pub running: Hertz,
    /// Share of the span that the core spent on useful work.
    pub occupancy: Occupancy,
    /// Number of packets received in the span. `None` if they are not counted.
    pub packets: Option<u64>,
    /// Polls in the span. `None` if they are not counted.
    pub polls: Option<Polls>,
    /// Time in the span for which the loop slept or blocked. `None` if it is not measured.
    pub slept: Option<Nanos>,
    /// Late packets in the span. `None` if delays are not measured.
    pub late: Option<Late>,
    /// Wall-clock time since midnight. `None` if the policy does not need it.
    pub time_of_day: Option<Nanos>,
}

units::named! {
    /// Why a frequency was requested or kept.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reason {
        /// The policy has only one frequency.
        Fixed = "fixed",
        /// The policy sets this frequency at this time of day.
        TimeOfDay = "time_of_day",
        /// Packets arrived.
        Traffic = "traffic",
        /// No packet has arrived for as long as the policy requires before it lowers the frequency.
        Idle = "idle",
        /// Too little was observed since the last change.
        Measuring = "measuring",
        /// The frequency in force is the right one for the load.
        Steady = "steady",
        /// The load needs a higher frequency than the present one.
        Load = "load",
        /// The core was busy all the time, so it is unknown how high a frequency it needs.
        Saturated = "saturated",
        /// A lower frequency would have sufficed for the load for long enough.
        LessLoad = "less_load",
        /// More packets were late than the goal allows.
        Late = "late",
        /// Packets are late even at the highest frequency.
        GoalTooTight = "goal_too_tight",
        /// The occupancy is unknown, so the policy requests the highest frequency.
        Unsure = "unsure",
        /// A lower frequency would probably not last long enough to make up for its stalls.
        NotWorthIt = "not_worth_it",
    }
}

/// A policy's decision, and the reason for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The frequency to request. `None` keeps the last request.
    pub request: Option<Hertz>,
    /// Why the policy made this decision.
    pub reason: Reason,
}

impl Decision {
    /// Decides to keep the last request.
    pub const fn keep(reason: Reason) -> Self {
        Self { request: None, reason }
    }
}

/// Chooses the frequency of a core from samples.
pub trait OutsidePolicy<C> {
    /// The frequency that the policy requests now. Before the first decision, it is the frequency at which the core
    /// must start.
    fn requested(&self) -> Hertz;

    /// Decides based on the latest sample.
    fn decide(&mut self, sample: &Sample<C>) -> Decision;

    /// Tells the policy the highest frequency that the machine allows now. The firmware may change this limit at any
    /// time.
    fn granted(&mut self, _now: Instant<C>, _ceiling: Hertz) {}
}

/// Any one of this module's policies, without dynamic dispatch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a core
pub enum Outside<C> {
    /// Runs [`Goal`].
    Goal(Goal<C>),
    /// Runs [`TwoLevel`].
    TwoLevel(TwoLevel<C>),
    /// Runs [`L3fwdPower`].
    L3fwdPower(L3fwdPower<C>),
    /// Runs [`Fixed`].
    Fixed(Fixed),
    /// Runs [`TimeOfDay`].
    TimeOfDay(TimeOfDay),
}

impl<C> OutsidePolicy<C> for Outside<C> {
    fn requested(&self) -> Hertz {
        match self {
            Self::Goal(p) => p.requested(),
            Self::TwoLevel(p) => p.requested(),
            Self::L3fwdPower(p) => p.requested(),
            Self::Fixed(p) => OutsidePolicy::<C>::requested(p),
            Self::TimeOfDay(p) => OutsidePolicy::<C>::requested(p),
        }
    }

    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        match self {
            Self::Goal(p) => p.decide(sample),
            Self::TwoLevel(p) => p.decide(sample),
            Self::L3fwdPower(p) => p.decide(sample),
            Self::Fixed(p) => p.decide(sample),
            Self::TimeOfDay(p) => p.decide(sample),
        }
    }

    fn granted(&mut self, now: Instant<C>, ceiling: Hertz) {
        if let Self::Goal(p) = self {
            p.granted(now, ceiling);
        }
    }
}

/// `of * numerator / denominator` without overflow, at most `u64::MAX`. 0 if the denominator is 0.
pub(crate) fn scale(of: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(of) * u128::from(numerator);
    u64::try_from(product.checked_div(u128::from(denominator)).unwrap_or(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::frequency::PStates;
    use units::Simulated;

    pub const MHZ: u64 = 1_000_000;
    pub const MS: u64 = 1_000_000;

    /// Six P-states, 800 MHz to 3 GHz.
    pub fn pstates() -> PStates {
        PStates::new(&[3_000, 2_600, 2_200, 1_800, 1_200, 800].map(|mhz| Hertz::new(mhz * MHZ))).unwrap()
    }

    pub fn mhz(n: u64) -> Hertz {
        Hertz::new(n * MHZ)
    }

    /// A span of 10 ms that ended at `at_ms`. Only the share of useful work is known.
    pub fn sample(at_ms: u64, running: Hertz, share_ppm: u32) -> Sample<Simulated> {
        Sample {
            now: Instant::from_nanos(at_ms * MS),
            span: Nanos::from_millis(10),
            running,
            occupancy: Occupancy::Share(share_ppm),
            packets: None,
            polls: None,
            slept: None,
            late: None,
            time_of_day: None,
        }
    }
}

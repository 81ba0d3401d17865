//! Frequency policies inside the packet loop: how fast must the core run?
//!
//! ```text
//!   poll all queues ──► work, transmit ──► wait policy ──► frequency policy.decide() ──► Keep
//!                                                                 │
//!                                                                 └──► Request(hertz)
//!   Request ──► waits for the sequencing timer (the last one wins) ──► the core stalls ──► the new frequency
//! ```
//! Each core has its own policy. The policy decides which frequency to *request*; the platform determines when a
//! request takes effect (see [`Platform`]). The caller tells the policy which frequency is in force, if it knows.
//!
//! | policy | input | origin |
//! | --- | --- | --- |
//! | [`Fixed`] | nothing | a governor's fixed frequency |
//! | [`TwoLevel`] | empty polls | DPDK `rte_power_pmd_mgmt`, `scale` |
//! | [`L3fwdPower`] | queue counts and a timer | DPDK `l3fwd-power`, legacy mode |
//! | [`GoalFrequency`] | a latency goal | Apus |
//!
//! [`outside`] has policies for the loops of other programs. They do not see each poll.

mod fixed;
mod goal;
mod l3fwd_power;
pub mod outside;
mod platform;
mod two_level;

pub use fixed::Fixed;
pub use goal::{GoalFrequency, GoalFrequencyConfig};
pub use l3fwd_power::L3fwdPower;
pub use platform::{PStates, Platform, PowerTable};
pub use two_level::TwoLevel;

use units::{Hertz, Nanos};

use crate::wait;

/// What happened on a core since the last decision.
#[derive(Debug)]
pub struct Observation<'a, C> {
    /// The poll, as the wait policy sees it: the time, what each queue returned, how full each ring was, when its
    /// frames arrived, and the wait before the poll.
    pub poll: &'a wait::Observation<'a, C>,
    /// Time spent on frames (receiving, processing, sending) since the last decision. A poll that returned no frame
    /// does not count.
    pub busy: Nanos,
    /// Time for which the thread has given up the core since the last decision.
    pub asleep: Nanos,
    /// The frequency at which the core runs. `None` if it is unknown.
    pub running: Option<Hertz>,
    /// The core's wait policy, if it can estimate what waiting would cost at another frequency; otherwise `None`.
    pub waiting: Option<&'a wait::Adaptive<C>>,
}

/// What to do with the frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Make no new request.
    Keep,
    /// Request this frequency. It replaces any earlier request that has not taken effect yet.
    Request(Hertz),
}

units::named! {
    /// Why a frequency was requested or kept.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum Reason {
        /// The policy is fixed and had no choice.
        Fixed = "fixed",
        /// Frames arrived, so the core needs a high frequency.
        Traffic = "traffic",
        /// No frame has arrived for as long as the policy requires.
        Idle = "idle",
        /// A queue is filling up.
        QueueFill = "queue_fill",
        /// The policy has seen too little since the last decision, or the last request has not taken effect yet.
        Measuring = "measuring",
        /// The core already runs at the frequency that it needs.
        Steady = "steady",
        /// The load needs a higher frequency than the present one.
        Load = "load",
        /// For a long time, a lower frequency would have been enough for the load.
        LessLoad = "less_load",
        /// Several frequencies are high enough. At this one, waiting and working should cost least in total.
        Cheaper = "cheaper",
        /// Frames were later than the goal allows.
        Late = "late",
        /// At a lower frequency, the ring could overflow before a higher frequency takes effect. The goal alone would
        /// allow a lower one.
        LossBound = "loss_bound",
        /// The goal is not met even at the highest frequency.
        GoalTooTight = "goal_too_tight",
    }
}

/// An action and the reason for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What the caller must do.
    pub action: Action,
    /// Why the policy chose that action.
    pub reason: Reason,
}

impl Decision {
    /// Decides to make no new request.
    pub const fn keep(reason: Reason) -> Self {
        Self { action: Action::Keep, reason }
    }
    /// Decides to request `frequency`.
    pub const fn request(frequency: Hertz, reason: Reason) -> Self {
        Self { action: Action::Request(frequency), reason }
    }
}

/// Chooses the frequency of one core.
pub trait FrequencyPolicy<C> {
    /// The frequency that the policy requested last. Before the first request, it is the frequency at which the core
    /// must start.
    fn requested(&self) -> Hertz;

    /// How much longer work and wake-ups take at the requested frequency than at the frequency that was requested
    /// before it. A wait policy needs this to rescale what it has learned
    /// ([`Adaptive::change`](wait::Adaptive::change)).
    fn slower(&self) -> wait::Slower {
        wait::Slower::NOT
    }

    /// Takes the result of the last poll, and decides what to request. Call it once per poll, after the wait policy's
    /// decision, and never during a wait.
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision;
}

/// Any one of this module's policies, without dynamic dispatch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a core, and no allocator to box it with
pub enum Frequency<C> {
    /// Runs [`Fixed`].
    Fixed(Fixed),
    /// Runs [`TwoLevel`].
    TwoLevel(TwoLevel),
    /// Runs [`L3fwdPower`].
    L3fwdPower(L3fwdPower<C>),
    /// Runs [`GoalFrequency`].
    Goal(GoalFrequency<C>),
}

impl<C> FrequencyPolicy<C> for Frequency<C> {
    fn requested(&self) -> Hertz {
        match self {
            Self::Fixed(p) => FrequencyPolicy::<C>::requested(p),
            Self::TwoLevel(p) => FrequencyPolicy::<C>::requested(p),
            Self::L3fwdPower(p) => p.requested(),
            Self::Goal(p) => p.requested(),
        }
    }

    fn slower(&self) -> wait::Slower {
        match self {
            Self::Goal(p) => p.slower(),
            _ => wait::Slower::NOT,
        }
    }

    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision {
        match self {
            Self::Fixed(p) => p.decide(seen),
            Self::TwoLevel(p) => p.decide(seen),
            Self::L3fwdPower(p) => p.decide(seen),
            Self::Goal(p) => p.decide(seen),
        }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Observation<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Observation<'_, C> {}

#[cfg(test)]
pub(crate) mod tests {
    extern crate std;
    use super::*;
    use crate::wait::{Ended, Queue};
    use units::{Instant, Simulated};

    pub const MHZ: u64 = 1_000_000;

    /// 800 MHz to 2.2 GHz in steps of 100 MHz.
    pub fn pstates() -> PStates {
        PStates::steps(Hertz::new(800 * MHZ), Hertz::new(2_200 * MHZ), Hertz::new(100 * MHZ)).unwrap()
    }

    /// The decision after a poll. Each queue is given as (frames returned, frames that were waiting).
    pub fn poll(policy: &mut impl FrequencyPolicy<Simulated>, now_ns: u64, queues: &[(u32, u32)]) -> Decision {
        poll_after(policy, now_ns, queues, None)
    }

    /// The decision after a poll that followed a wait.
    pub fn poll_after(
        policy: &mut impl FrequencyPolicy<Simulated>,
        now_ns: u64,
        queues: &[(u32, u32)],
        ended: Option<Ended<Simulated>>,
    ) -> Decision {
        let queues: std::vec::Vec<Queue<Simulated>> =
            queues.iter().map(|&(received, fill)| Queue { received, fill, arrivals: None }).collect();
        let poll = wait::Observation { now: Instant::from_nanos(now_ns), queues: &queues, ended };
        policy.decide(&Observation {
            poll: &poll,
            busy: Nanos::ZERO,
            asleep: Nanos::ZERO,
            running: None,
            waiting: None,
        })
    }

    #[test]
    fn reasons_stand_at_their_numbers() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}

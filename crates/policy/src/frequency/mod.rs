//! How fast must the core be?
//!
//! ```text
//!   poll all queues ──► work, transmit ──► wait policy ──► frequency policy.decide() ──► Keep
//!                                                                 │
//!                                                                 └──► Request(hertz)
//!   Request ──► waits for the sequencing timer (the last one wins) ──► the core stalls ──► it runs so
//! ```
//! There is one policy a core. It says what is to be *requested*; when that comes into force, the
//! platform decides (see [`Platform`]), and the world tells the policy what runs, if it knows.
//!
//! | policy | steered by | of |
//! | --- | --- | --- |
//! | [`Fixed`] | nothing | a governor's fixed frequency |
//! | [`TwoLevel`] | empty polls | DPDK `rte_power_pmd_mgmt`, `scale` |
//! | [`L3fwdPower`] | queue counts and a timer | DPDK `l3fwd-power`, legacy mode |
//! | [`GoalFrequency`] | a latency goal | Apus |

mod fixed;
mod goal;
mod l3fwd_power;
mod platform;
mod two_level;

pub use fixed::Fixed;
pub use goal::{GoalFrequency, GoalFrequencyConfig};
pub use l3fwd_power::L3fwdPower;
pub use platform::{PStates, Platform, PowerTable};
pub use two_level::TwoLevel;

use units::{Hertz, Nanos};

use crate::wait;

/// What a core did since the last decision.
#[derive(Debug)]
pub struct Observation<'a, C> {
    /// The poll, as the wait policy sees it too: the time, what each queue gave, how full it was, when
    /// its frames came, and the wait before it.
    pub poll: &'a wait::Observation<'a, C>,
    /// Time spent on frames (receiving, working on, sending them) since the last decision. A poll that
    /// brought nothing is not busy.
    pub busy: Nanos,
    /// Time for which the core was given away since the last decision.
    pub asleep: Nanos,
    /// The frequency that the core runs at; `None` if nobody knows.
    pub running: Option<Hertz>,
    /// Who waits, where it can tell what waiting would cost at another frequency.
    pub waiting: Option<&'a wait::Adaptive<C>>,
}

/// What to do with the frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// No new request.
    Keep,
    /// Request this one, in place of any request that is not yet in force.
    Request(Hertz),
}

units::named! {
    /// Why a frequency was chosen, or kept.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum Reason {
        /// The policy has no choice here: it is a fixed scheme.
        Fixed = "fixed",
        /// Frames came.
        Traffic = "traffic",
        /// Nothing has come for as long as it takes.
        Idle = "idle",
        /// A queue is filling up.
        QueueFill = "queue_fill",
        /// Too little was seen since the last decision, or the last request is not in force yet.
        Measuring = "measuring",
        /// What runs is what is needed.
        Steady = "steady",
        /// The load needs more.
        Load = "load",
        /// The load needs less, and has for long.
        LessLoad = "less_load",
        /// At another frequency that suffices, waiting and working cost less.
        Cheaper = "cheaper",
        /// Frames were later than the goal allows.
        Late = "late",
        /// Not the goal but the ring: it must last until a higher frequency is in force.
        LossBound = "loss_bound",
        /// Even the highest frequency does not keep the goal.
        GoalTooTight = "goal_too_tight",
    }
}

/// An action and its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

impl Decision {
    /// No new request.
    pub const fn keep(reason: Reason) -> Self {
        Self { action: Action::Keep, reason }
    }
    /// A new request.
    pub const fn request(frequency: Hertz, reason: Reason) -> Self {
        Self { action: Action::Request(frequency), reason }
    }
}

/// A scheme of choosing the frequency, for one core.
pub trait FrequencyPolicy<C> {
    /// The frequency that was last asked for; at first, the one to begin with.
    fn requested(&self) -> Hertz;

    /// How much longer things take at the frequency that was last asked for than at the one before, for a waiting policy
    /// that has learned there ([`Adaptive::change`](wait::Adaptive::change)).
    fn slower(&self) -> wait::Slower {
        wait::Slower::NOT
    }

    /// Takes in what the last poll gave and says what to request. Called once a poll, after the wait
    /// policy's own decision, and never in a wait.
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision;
}

/// One of the policies of this module.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a core, and no allocator to box it with
pub enum Frequency<C> {
    /// See [`Fixed`].
    Fixed(Fixed),
    /// See [`TwoLevel`].
    TwoLevel(TwoLevel),
    /// See [`L3fwdPower`].
    L3fwdPower(L3fwdPower<C>),
    /// See [`GoalFrequency`].
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

// Written out, because a derive would ask the same of the clock's marker type.
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

    /// The decision after a poll whose queues gave so many frames of so many that waited.
    pub fn poll(policy: &mut impl FrequencyPolicy<Simulated>, now_ns: u64, queues: &[(u32, u32)]) -> Decision {
        poll_after(policy, now_ns, queues, None)
    }

    /// The same, after a wait.
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

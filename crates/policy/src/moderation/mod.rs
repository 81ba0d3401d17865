//! How long may a NIC gather packets before it interrupts?
//!
//! ```text
//!   a poll of one queue ──► sample ──► policy.decide() ──► Keep
//!                                            │
//!                                            └──► Apply(profile) ──► the NIC is programmed ──► policy.applied()
//! ```
//! There is one policy a queue *and direction*: a queue's receive and transmit moderation are two
//! instances that know nothing of each other. Decision and actuation are apart: between
//! [`Action::Apply`] and [`ModerationPolicy::applied`] a policy keeps still.
//!
//! **What a world owes a policy.** Program [`ModerationPolicy::profile`] before the first packet.
//! Call `decide` once at the end of each poll of the queue (in Linux: of each NAPI poll that is
//! complete), or, outside the kernel, as often as the counters are read. Do what it says, and call
//! `applied` when it is done.
//!
//! | policy | steered by | of |
//! | --- | --- | --- |
//! | [`Static`] | nothing | `ethtool -C` with adaptive off |
//! | [`NetDim`] | bytes, packets, time per 64 events | Linux `lib/dim/net_dim.c` |
//! | [`RdmaDim`] | completions, completions per event | Linux `lib/dim/rdma_dim.c` |
//! | [`GoalModeration`] | a latency goal | Apus |

pub mod dim;
mod fixed;
mod goal;

pub use dim::{NetDim, RdmaDim};
pub use fixed::Static;
pub use goal::{GoalModeration, GoalModerationConfig, Limits};

use units::{Instant, Nanos};

/// Which way the packets of a queue go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Receive: the interrupt says that packets have come.
    Rx,
    /// Transmit: the interrupt says that sent packets' buffers can be reclaimed.
    Tx,
}

units::named! {
    /// What starts the timer of a profile. The numbers are those of `enum dim_cq_period_mode`
    /// (Linux `include/linux/dim.h`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum PeriodMode {
        /// From the event: the timer starts with the first packet after the last interrupt, and no
        /// packet waits longer than it.
        Eqe = "eqe",
        /// From the completion: every further packet starts the timer anew, so only the count of frames
        /// bounds the wait.
        Cqe = "cqe",
    }
}

/// When an interrupt is raised: after `usecs`, or as soon as `frames` packets wait, whichever is
/// first.
///
/// As in `struct ethtool_coalesce` (Linux `include/uapi/linux/ethtool.h`), 0 turns off one of the
/// two conditions. Both off would mean no interrupt at all: no policy asks for that, and no world
/// needs to take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Microseconds; 0: the timer is not used.
    pub usecs: u32,
    /// Packets (RDMA: completions); 0: they are not counted.
    pub frames: u32,
    /// What starts the timer.
    pub mode: PeriodMode,
}

impl Profile {
    /// An interrupt for every packet.
    pub const IMMEDIATE: Self = Self { usecs: 0, frames: 1, mode: PeriodMode::Eqe };

    /// Interrupts `usecs` after the first packet, or at `frames` packets.
    pub const fn eqe(usecs: u32, frames: u32) -> Self {
        Self { usecs, frames, mode: PeriodMode::Eqe }
    }

    /// The timer's span; `None` if it is not used.
    pub const fn timer(self) -> Option<Nanos> {
        if self.usecs == 0 { None } else { Some(Nanos::from_micros(self.usecs as u64)) }
    }
}

/// A queue's counters at a point in time. The counters are totals that start anywhere and only grow; a
/// policy uses their differences.
#[derive(Debug)]
pub struct Sample<C> {
    /// When the counters were read.
    pub now: Instant<C>,
    /// Interrupts that the queue raised.
    pub events: u64,
    /// Packets received (or sent).
    pub packets: u64,
    /// Their octets.
    pub bytes: u64,
    /// Completions (RDMA); 0 where there are none.
    pub completions: u64,
    /// How late the packets since the sample before were; `None` if nobody measures that.
    pub delays: Option<Delays>,
}

/// How late some packets were, from arrival at the NIC to the end that the goal counts to.
///
/// Between the shortest and the longest they are taken to be spread evenly, as those of one
/// interrupt are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// Of how many packets; 0 means that there were none, and the other two have no meaning.
    pub packets: u32,
    /// The delay of the one that was least late.
    pub shortest: Nanos,
    /// The delay of the one that was most late.
    pub longest: Nanos,
}

/// What to do with the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It stays.
    Keep,
    /// Program this one, and say when it is done.
    Apply(Profile),
}

units::named! {
    /// Why a profile was chosen, or kept.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum Reason {
        /// The policy has no choice here: it is a fixed scheme.
        Fixed = "fixed",
        /// The last profile has not been programmed yet.
        Applying = "applying",
        /// Too little was seen since the last decision.
        Measuring = "measuring",
        /// What was seen is as it should be.
        Steady = "steady",
        /// The window's rates were better or worse than those of the one before (DIM).
        Rates = "rates",
        /// The packets were early enough to wait longer.
        Budget = "budget",
        /// Packets were later than the goal allows.
        Late = "late",
        /// The ring's time to overflow, not the goal, cut the timer.
        LossBound = "loss_bound",
        /// Waiting saved no interrupt: each packet came alone.
        NoSaving = "no_saving",
        /// The rate has risen, and waiting pays again.
        Burst = "burst",
        /// Tries whether waiting pays again.
        Probe = "probe",
        /// Even without moderation the goal is not kept.
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
    /// The profile stays.
    pub const fn keep(reason: Reason) -> Self {
        Self { action: Action::Keep, reason }
    }
    /// Another profile.
    pub const fn apply(profile: Profile, reason: Reason) -> Self {
        Self { action: Action::Apply(profile), reason }
    }
}

/// A scheme of moderation, for one queue in one direction.
pub trait ModerationPolicy<C> {
    /// The profile that was last asked for; at first, the one to begin with.
    fn profile(&self) -> Profile;

    /// Takes in a sample and says whether the profile is to change.
    fn decide(&mut self, sample: &Sample<C>) -> Decision;

    /// The profile of the last [`Action::Apply`] is in force as of `now`.
    fn applied(&mut self, now: Instant<C>);
}

/// One of the policies of this module.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a queue, and no allocator to box it with
pub enum Moderation<C> {
    /// See [`Static`].
    Static(Static),
    /// See [`NetDim`].
    NetDim(NetDim<C>),
    /// See [`RdmaDim`].
    RdmaDim(RdmaDim<C>),
    /// See [`GoalModeration`].
    Goal(GoalModeration<C>),
}

impl<C> ModerationPolicy<C> for Moderation<C> {
    fn profile(&self) -> Profile {
        match self {
            Self::Static(p) => ModerationPolicy::<C>::profile(p),
            Self::NetDim(p) => p.profile(),
            Self::RdmaDim(p) => p.profile(),
            Self::Goal(p) => p.profile(),
        }
    }

    #[inline]
    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        match self {
            Self::Static(p) => p.decide(sample),
            Self::NetDim(p) => p.decide(sample),
            Self::RdmaDim(p) => p.decide(sample),
            Self::Goal(p) => p.decide(sample),
        }
    }

    fn applied(&mut self, now: Instant<C>) {
        match self {
            Self::Static(p) => p.applied(now),
            Self::NetDim(p) => p.applied(now),
            Self::RdmaDim(p) => p.applied(now),
            Self::Goal(p) => p.applied(now),
        }
    }
}

// Written out, because a derive would ask the same of the clock's marker type.
impl<C> Clone for Sample<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Sample<C> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_at_their_numbers() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }

    #[test]
    fn a_timer_of_nothing_is_none() {
        assert_eq!(Profile::IMMEDIATE.timer(), None);
        assert_eq!(Profile::eqe(8, 256).timer(), Some(Nanos::from_micros(8)));
    }
}

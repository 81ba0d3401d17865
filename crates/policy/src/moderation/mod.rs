//! How long may a NIC collect packets before it raises an interrupt?
//!
//! ```text
//!   a poll of one queue ──► sample ──► policy.decide() ──► Keep
//!                                            │
//!                                            └──► Apply(profile) ──► the NIC is programmed ──► policy.applied()
//! ```
//! Each queue has one policy *per direction*: its receive and transmit moderation are two independent instances. A
//! decision and its execution are separate steps: from [`Action::Apply`] until [`ModerationPolicy::applied`], a policy
//! makes no further decision.
//!
//! **What the caller must do.** Program the profile from [`ModerationPolicy::profile`] before the first packet. Call
//! `decide` once at the end of each poll of the queue: in Linux, after each completed NAPI poll; outside the kernel,
//! whenever the counters were read. Carry out the action, and call `applied` when that is done.
//!
//! | policy | input | origin |
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

/// The direction in which a queue's packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Receive: the interrupt signals that packets have arrived.
    Rx,
    /// Transmit: the interrupt signals that the buffers of sent packets can be reclaimed.
    Tx,
}

units::named! {
    /// What starts a profile's timer. The numbers are those of `enum dim_cq_period_mode` (Linux `include/linux/dim.h`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum PeriodMode {
        /// The first event: the timer starts with the first packet after the last interrupt. No packet waits longer
        /// than the timer.
        Eqe = "eqe",
        /// Every completion: each further packet restarts the timer. So only the frame count limits how long packets
        /// wait.
        Cqe = "cqe",
    }
}

/// When the NIC raises an interrupt: after `usecs`, or once `frames` packets wait, whichever comes first.
///
/// As in `struct ethtool_coalesce` (Linux `include/uapi/linux/ethtool.h`), 0 turns off one of the two conditions. With
/// both off there would be no interrupt at all. No policy requests that, and callers need not support it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The timer in microseconds. 0 means that the timer is off.
    pub usecs: u32,
    /// Number of packets (RDMA: completions) that cause an interrupt. 0 means that packets are not counted.
    pub frames: u32,
    /// Which event starts the timer.
    pub mode: PeriodMode,
}

impl Profile {
    /// Raises an interrupt for every packet.
    pub const IMMEDIATE: Self = Self { usecs: 0, frames: 1, mode: PeriodMode::Eqe };

    /// Raises an interrupt `usecs` microseconds after the first packet, or when `frames` packets wait.
    pub const fn eqe(usecs: u32, frames: u32) -> Self {
        Self { usecs, frames, mode: PeriodMode::Eqe }
    }

    /// The timer's duration. `None` if the timer is off.
    pub const fn timer(self) -> Option<Nanos> {
        if self.usecs == 0 { None } else { Some(Nanos::from_micros(self.usecs as u64)) }
    }
}

/// A queue's counters at one point in time. Each counter is a total that only grows, from any initial value; policies
/// use differences only.
#[derive(Debug)]
pub struct Sample<C> {
    /// When the counters were read.
    pub now: Instant<C>,
    /// Total number of interrupts that the queue has raised.
    pub events: u64,
    /// Total number of packets received (or sent).
    pub packets: u64,
    /// Total number of bytes in the packets that `packets` counts.
    pub bytes: u64,
    /// Total number of completions (RDMA). 0 if the queue has none.
    pub completions: u64,
    /// How late the packets since the previous sample were. `None` if delays are not measured.
    pub delays: Option<Delays>,
}

/// How late a group of packets was, measured from their arrival at the NIC to the point at which the goal's latency
/// ends.
///
/// Delays are assumed to be spread evenly from `shortest` to `longest`, as among the packets of one interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// Number of packets. If it is 0, the two delays have no meaning.
    pub packets: u32,
    /// The smallest delay among these packets.
    pub shortest: Nanos,
    /// The largest delay among these packets.
    pub longest: Nanos,
}

/// What to do with the queue's moderation profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Leave the profile as it is.
    Keep,
    /// Program this profile, then call [`ModerationPolicy::applied`].
    Apply(Profile),
}

units::named! {
    /// Why a profile was chosen or kept.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum Reason {
        /// The profile is fixed, so there is nothing to decide.
        Fixed = "fixed",
        /// The last profile has not been programmed yet.
        Applying = "applying",
        /// Too little was seen since the last decision.
        Measuring = "measuring",
        /// The delays and rates call for no change.
        Steady = "steady",
        /// The window's rates were better or worse than those of the previous window (DIM).
        Rates = "rates",
        /// Packets were early enough for a longer timer.
        Budget = "budget",
        /// Packets were later than the goal allows.
        Late = "late",
        /// The ring, which must not overflow, limits the timer; the goal alone would allow a longer one.
        LossBound = "loss_bound",
        /// The timer saved no interrupts, because each packet arrived alone.
        NoSaving = "no_saving",
        /// The rate has risen, so a timer saves interrupts again.
        Burst = "burst",
        /// The policy tests whether a timer would save interrupts again.
        Probe = "probe",
        /// The goal is not met even without moderation.
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
    /// Decides to leave the profile as it is.
    pub const fn keep(reason: Reason) -> Self {
        Self { action: Action::Keep, reason }
    }
    /// Decides to program `profile`.
    pub const fn apply(profile: Profile, reason: Reason) -> Self {
        Self { action: Action::Apply(profile), reason }
    }
}

/// Chooses the moderation of one queue in one direction.
pub trait ModerationPolicy<C> {
    /// The profile that the policy requested last, or the one in force that [`ModerationPolicy::applied`] reported if
    /// that differs. Before the first decision, it is the profile to start with.
    fn profile(&self) -> Profile;

    /// The profile that is best for the policy's own queue, for callers that use one timer for several queues. It
    /// differs from [`Self::profile`] while another queue's timer is in force.
    fn best(&self) -> Profile {
        self.profile()
    }

    /// The longest timer that the policy accepts, for callers that use one timer for several queues. It is longer than
    /// that of [`Self::best`] if the policy would accept a timer, but its own queue does not profit from one.
    fn longest(&self) -> Profile {
        self.best()
    }

    /// Takes a sample, and decides whether to change the profile.
    fn decide(&mut self, sample: &Sample<C>) -> Decision;

    /// Must be called when the last [`Action::Apply`] has been carried out at `now`. `in_force` is the profile in force
    /// from then on; it differs from the requested one if the machine rounds, limits or refuses it. May also be called
    /// when the profile in force has changed for another reason.
    fn applied(&mut self, now: Instant<C>, in_force: Profile);

    /// Adds delays of packets since the previous sample, for callers that have a histogram of delays over several
    /// polls. Such callers call this method for each part of the histogram, and then call `decide` with a sample
    /// without delays. Policies that do not use delays ignore the call.
    fn observe(&mut self, _delays: Delays) {}
}

/// Any one of this module's policies, without dynamic dispatch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a queue, and no allocator to box it with
pub enum Moderation<C> {
    /// Runs [`Static`].
    Static(Static),
    /// Runs [`NetDim`].
    NetDim(NetDim<C>),
    /// Runs [`RdmaDim`].
    RdmaDim(RdmaDim<C>),
    /// Runs [`GoalModeration`].
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

    fn best(&self) -> Profile {
        match self {
            Self::Goal(p) => p.best(),
            Self::Static(_) | Self::NetDim(_) | Self::RdmaDim(_) => self.profile(),
        }
    }

    fn longest(&self) -> Profile {
        match self {
            Self::Goal(p) => ModerationPolicy::longest(p),
            Self::Static(_) | Self::NetDim(_) | Self::RdmaDim(_) => self.profile(),
        }
    }

    fn applied(&mut self, now: Instant<C>, in_force: Profile) {
        match self {
            Self::Static(p) => p.applied(now, in_force),
            Self::NetDim(p) => p.applied(now, in_force),
            Self::RdmaDim(p) => p.applied(now, in_force),
            Self::Goal(p) => p.applied(now, in_force),
        }
    }

    fn observe(&mut self, delays: Delays) {
        if let Self::Goal(p) = self {
            p.observe(delays);
        }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
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

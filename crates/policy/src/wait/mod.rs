//! What should the core do until the next poll?
//!
//! ```text
//!            ┌────────────── observation ──────────────┐
//!   poll all queues ──► work, transmit ──► policy.decide() ──► act ──► (the next poll)
//!                                             │
//!            Poll ◄── Pause ◄── SleepUntil ◄──┴──► BlockUntil: arm, poll once more, block if empty
//! ```
//! Each policy has its own file. [`Policy`] can hold any of them, so that a loop needs no dynamic dispatch. [`Mode`]
//! names a policy and holds the settings that the user chose.
//!
//! | policy | gives up an idle core | is woken by | origin |
//! | --- | --- | --- | --- |
//! | [`Poll`] | never | – | every kernel-bypass loop |
//! | [`Interrupt`] | at once | the device | a blocking read |
//! | [`Backoff`] | for a sleep that grows by 1 us per idle iteration | a timer | OVS-DPDK `pmd-sleep-max` |
//! | [`Hybrid300`] | after 300 empty polls | the device | DPDK `l3fwd-power` |
//! | [`Adaptive`] | as the goal allows | whichever is cheapest | Apus |

mod adaptive;
mod backoff;
mod hybrid300;
mod interrupt;
mod mode;
mod poll;

pub use adaptive::{
    AIM_EIGHTHS, Adaptive, AdaptiveConfig, Belief, DEFAULT_GOAL, IdleState, LENGTHS, Lateness, Paid, Prospect, Slower,
    TimedCost, WakeCosts,
};
pub use backoff::Backoff;
pub use hybrid300::Hybrid300;
pub use interrupt::Interrupt;
pub use mode::Mode;
pub use poll::Poll;

use units::{Instant, Nanos};

/// What a worker observed since the last decision.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a, C> {
    /// When the worker finished this poll. If the poll returned frames, they have been processed and sent by then.
    pub now: Instant<C>,
    /// What this poll found on each queue. The queues are always in the same order.
    pub queues: &'a [Queue<C>],
    /// The wait between the last decision and this poll. `None` if the last decision was [`Action::Poll`].
    pub ended: Option<Ended<C>>,
}

impl<C> Observation<'_, C> {
    /// Number of frames received in this poll, over all queues.
    pub fn received(&self) -> u32 {
        self.queues.iter().map(|q| q.received).sum()
    }
}

/// The result of one poll of one queue.
#[derive(Debug)]
pub struct Queue<C> {
    /// Number of frames that this poll received from the queue.
    pub received: u32,
    /// Number of frames in the receive ring when it was polled, including those that the poll received.
    pub fill: u32,
    /// When the frames arrived and were taken from the ring. `None` if there were none.
    pub arrivals: Option<Arrivals<C>>,
}

/// When the frames of one poll arrived.
#[derive(Debug)]
pub struct Arrivals<C> {
    /// Arrival of the oldest frame. Without timestamps, it is the time of the previous poll: the frames cannot have
    /// arrived earlier.
    pub first: Instant<C>,
    /// Arrival of the newest frame. Without timestamps, it is `picked_up`: the frames cannot have arrived later.
    pub last: Instant<C>,
    /// When the worker took the frames out of the ring.
    pub picked_up: Instant<C>,
    /// Whether the device timestamps arrivals. If not, the frames arrived at unknown times between `first` and `last`,
    /// and policies take that into account.
    pub stamped: bool,
    /// How much of the time since `first` a hold-off has taken, if the worker knows it. `None` if the device delays the
    /// interrupt after the frame that ends a wait by the whole hold-off, and no other frame.
    pub held: Option<Nanos>,
    /// When the frames left. `None` if the worker does not know: policies then assume `now` of the observation.
    pub sent: Option<Sent<C>>,
}

/// When the frames of one poll left, if the device sent them one after another. Policies assume evenly spaced
/// departures between the first and the last.
#[derive(Debug)]
pub struct Sent<C> {
    /// When the first frame left.
    pub first: Instant<C>,
    /// When the last frame left.
    pub last: Instant<C>,
}

impl<C> Arrivals<C> {
    /// The arrivals at a device with timestamps. Of a hold-off and of the departures, nothing is known.
    pub const fn stamped(first: Instant<C>, last: Instant<C>, picked_up: Instant<C>) -> Self {
        Self { first, last, picked_up, stamped: true, held: None, sent: None }
    }

    /// The arrivals at a device without timestamps: all frames arrived between the previous poll, which began at
    /// `after`, and `picked_up`.
    pub const fn unstamped(after: Instant<C>, picked_up: Instant<C>) -> Self {
        Self { first: after, last: picked_up, picked_up, stamped: false, held: None, sent: None }
    }

    /// How long the oldest frame waited in the ring. Without timestamps, this is an upper bound. Zero if the timestamps
    /// contradict each other.
    pub fn lateness(&self) -> Nanos {
        self.picked_up.since(self.first).unwrap_or(Nanos::ZERO)
    }
}

/// A wait that has ended, with its times and cost.
#[derive(Debug)]
pub struct Ended<C> {
    /// The action that the policy had chosen.
    pub action: Action<C>,
    /// When the wait began.
    pub began: Instant<C>,
    /// When the worker ran again after the wait.
    pub ended: Instant<C>,
    /// Cost of the wait, as the time for which a polling core costs the same. It is the CPU time of the thread and of
    /// the interrupt that woke it or, if energy is measured, the wait's energy divided by the power of a polling core.
    /// `None` if this wait was not measured: a worker need not measure every wait.
    pub spent: Option<Nanos>,
    /// Part of `spent` that the idle state caused. A faster core does not reduce this part. Zero if only CPU time is
    /// known.
    pub idle: Nanos,
}

impl<C> Ended<C> {
    /// How late a timed wait ended: the time from the requested end until the worker ran again. `None` if no end was
    /// requested, or if the device ended the wait before the requested end.
    pub fn overshoot(&self) -> Option<Nanos> {
        let due = match self.action {
            Action::Poll | Action::BlockUntil(None) => return None,
            Action::Pause(span) => self.began + span,
            Action::SleepUntil(due) | Action::BlockUntil(Some(due)) => due,
        };
        self.ended.since(due)
    }
}

/// What to do until the next poll.
#[derive(Debug)]
pub enum Action<C> {
    /// Poll again at once.
    Poll,
    /// Keep the core for about this long, in the cheapest state in which it still runs (the `pause` instruction).
    Pause(Nanos),
    /// Give up the core until this time.
    SleepUntil(Instant<C>),
    /// Arm the interrupts of all queues and poll once more. If this poll finds no frame, give up the core until a frame
    /// arrives or the given time is reached. Without the poll, a frame that arrived just before the interrupts were
    /// armed would raise no interrupt and be missed.
    BlockUntil(Option<Instant<C>>),
}

units::named! {
    /// The kinds of [`Action`], for counters.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum WaitKind {
        /// Polls again at once.
        Poll = "poll",
        /// Keeps the core, in the cheapest state in which it still runs.
        Pause = "pause",
        /// Gives up the core until a given time.
        Sleep = "sleep",
        /// Gives up the core until a frame arrives.
        Block = "block",
    }
}

impl<C> Action<C> {
    /// The kind under which this action is counted.
    pub const fn kind(&self) -> WaitKind {
        match self {
            Self::Poll => WaitKind::Poll,
            Self::Pause(_) => WaitKind::Pause,
            Self::SleepUntil(_) => WaitKind::Sleep,
            Self::BlockUntil(_) => WaitKind::Block,
        }
    }

    /// The latest time at which the worker runs again. `None` if only a frame can end the wait.
    pub fn until(&self, now: Instant<C>) -> Option<Instant<C>> {
        match *self {
            Self::Poll => Some(now),
            Self::Pause(span) => Some(now + span),
            Self::SleepUntil(due) => Some(due),
            Self::BlockUntil(due) => due,
        }
    }
}

units::named! {
    /// Why a policy chose an action.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum Reason {
        /// The policy follows a fixed rule, so there was nothing to choose.
        Fixed = "fixed",
        /// Frames arrived, so the next poll is likely to find more.
        Traffic = "traffic",
        /// The policy waits until shortly before the next arrival, which the traffic's period predicts.
        Periodic = "periodic",
        /// A timed sleep is the cheapest wait. (Without arrival timestamps, the policy sometimes polls for as long
        /// instead, to learn when frames come.)
        Budget = "budget",
        /// Waiting for an interrupt is the cheapest wait.
        Interrupt = "interrupt",
        /// No frame has arrived for a long time, so only an interrupt ends the wait.
        Idle = "idle",
        /// No wait is cheaper than polling, even though no late packets are owed.
        GoalTooTight = "goal_too_tight",
        /// Too many packets were late before. Further late packets are now so expensive that polling is the cheapest
        /// choice. (See [`Adaptive`]: late packets are owed.)
        Late = "late",
        /// The time until the ring overflows, not the goal, limited the wait.
        LossBound = "loss_bound",
    }
}

/// An action and the reason for it.
#[derive(Debug)]
pub struct Decision<C> {
    /// What the caller must do.
    pub action: Action<C>,
    /// Why the policy chose that action.
    pub reason: Reason,
}

/// Decides how a worker waits.
pub trait WaitPolicy<C> {
    /// Takes the result of the last poll, and decides what to do until the next one.
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C>;

    /// What the policy expected of its last decision. `None` if it did not compare waits: fixed policies never do, and
    /// no policy does while frames are left in the rings.
    #[inline]
    fn belief(&self) -> Option<Belief> {
        None
    }

    /// The hold-off that the policy wants, see [`Adaptive::hold_off`]. `in_force` is the present one. Policies that do
    /// not choose it leave it as it is.
    fn hold_off(&mut self, _now: Instant<C>, in_force: Nanos) -> Nanos {
        in_force
    }

    /// Whether [`Self::limit_idle`] should be called now.
    #[inline]
    fn limit_idle_is_due(&self, _now: Instant<C>) -> bool {
        false
    }

    /// How deep the policy lets the core idle, see [`Adaptive::limit_idle`]. `in_force` is the present limit. Policies
    /// that do not choose it leave it as it is.
    fn limit_idle(&mut self, _now: Instant<C>, in_force: Nanos) -> Nanos {
        in_force
    }
}

/// Any one of this module's policies, without dynamic dispatch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a worker, and no allocator to box it with
pub enum Policy<C> {
    /// Runs [`Poll`].
    Poll(Poll),
    /// Runs [`Interrupt`].
    Interrupt(Interrupt),
    /// Runs [`Backoff`].
    Backoff(Backoff),
    /// Runs [`Hybrid300`].
    Hybrid300(Hybrid300),
    /// Runs [`Adaptive`].
    Adaptive(Adaptive<C>),
}

impl<C> Policy<C> {
    /// Starts from costs that were measured on this platform; see [`Adaptive::know`]. The other policies ignore this
    /// call, because they do not use costs.
    pub fn know(&mut self, costs: &WakeCosts) {
        if let Self::Adaptive(policy) = self {
            policy.know(costs);
        }
    }

    /// See [`Adaptive::know_idle_states`]. The other policies ignore this call.
    pub fn know_idle_states(&mut self, states: &[IdleState]) {
        if let Self::Adaptive(policy) = self {
            policy.know_idle_states(states);
        }
    }

    /// See [`Adaptive::expect_held_frames`]. The other policies ignore this call.
    pub fn expect_held_frames(&mut self, longest: Nanos) {
        if let Self::Adaptive(policy) = self {
            policy.expect_held_frames(longest);
        }
    }
}

impl<C> WaitPolicy<C> for Policy<C> {
    #[inline]
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C> {
        match self {
            Self::Poll(p) => p.decide(seen),
            Self::Interrupt(p) => p.decide(seen),
            Self::Backoff(p) => p.decide(seen),
            Self::Hybrid300(p) => p.decide(seen),
            Self::Adaptive(p) => p.decide(seen),
        }
    }

    #[inline]
    fn belief(&self) -> Option<Belief> {
        match self {
            Self::Adaptive(p) => WaitPolicy::<C>::belief(p),
            Self::Poll(_) | Self::Interrupt(_) | Self::Backoff(_) | Self::Hybrid300(_) => None,
        }
    }

    fn hold_off(&mut self, now: Instant<C>, in_force: Nanos) -> Nanos {
        match self {
            Self::Adaptive(policy) => policy.hold_off(now, in_force),
            Self::Poll(_) | Self::Interrupt(_) | Self::Backoff(_) | Self::Hybrid300(_) => in_force,
        }
    }

    #[inline]
    fn limit_idle_is_due(&self, now: Instant<C>) -> bool {
        matches!(self, Self::Adaptive(policy) if policy.limit_idle_is_due(now))
    }

    fn limit_idle(&mut self, now: Instant<C>, in_force: Nanos) -> Nanos {
        match self {
            Self::Adaptive(policy) => policy.limit_idle(now, in_force),
            Self::Poll(_) | Self::Interrupt(_) | Self::Backoff(_) | Self::Hybrid300(_) => in_force,
        }
    }
}

/// Implements `Clone` and `Copy` for any clock. Derives would add the needless bound `C: Copy` on the clock's marker
/// type.
macro_rules! copy_for_any_clock {
    ($($name:ident),*) => {$(
        impl<C> Clone for $name<C> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<C> Copy for $name<C> {}
    )*};
}
copy_for_any_clock!(Queue, Arrivals, Sent, Ended, Action, Decision);

macro_rules! equal_for_any_clock {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl<C> PartialEq for $name<C> {
            fn eq(&self, other: &Self) -> bool {
                true $(&& self.$field == other.$field)*
            }
        }
        impl<C> Eq for $name<C> {}
    )*};
}
equal_for_any_clock!(
    Decision { action, reason }
    Arrivals { first, last, picked_up, stamped, held, sent }
    Sent { first, last }
);

impl<C> PartialEq for Action<C> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Poll, Self::Poll) => true,
            (Self::Pause(a), Self::Pause(b)) => a == b,
            (Self::SleepUntil(a), Self::SleepUntil(b)) => a == b,
            (Self::BlockUntil(a), Self::BlockUntil(b)) => a == b,
            _ => false,
        }
    }
}
impl<C> Eq for Action<C> {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use units::Simulated;

    /// The decision after a poll at `now_ns` that found nothing on the only queue.
    pub fn empty(policy: &mut impl WaitPolicy<Simulated>, now_ns: u64) -> Decision<Simulated> {
        frames(policy, now_ns, 0)
    }

    /// The decision after a poll at `now_ns` that found `received` frames on the only queue; they arrived at that time.
    pub fn frames(policy: &mut impl WaitPolicy<Simulated>, now_ns: u64, received: u32) -> Decision<Simulated> {
        let now = Instant::from_nanos(now_ns);
        let arrivals = (received > 0).then_some(Arrivals::stamped(now, now, now));
        policy.decide(&Observation { now, queues: &[Queue { received, fill: received, arrivals }], ended: None })
    }

    #[test]
    fn kinds_and_reasons_stand_at_their_numbers() {
        for (number, kind) in WaitKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }

    #[test]
    fn interrupt_blocks_at_the_first_empty_poll() {
        assert_eq!(frames(&mut Interrupt, 0, 1).action, Action::Poll);
        assert_eq!(empty(&mut Interrupt, 0).action, Action::BlockUntil(None));
    }
}

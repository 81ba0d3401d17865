//! What shall the core do until the next poll?
//!
//! ```text
//!            ┌────────────── observation ──────────────┐
//!   poll all queues ──► work, transmit ──► policy.decide() ──► act ──► (the next poll)
//!                                             │
//!            Poll ◄── Pause ◄── SleepUntil ◄──┴──► BlockUntil: arm, poll once more, block if empty
//! ```
//! One policy a file. [`Policy`] is the closed set of them, so that a loop needs no dynamic dispatch; [`Mode`] is what a
//! user says to get one.
//!
//! | policy | idle core | wakes by | of |
//! | --- | --- | --- | --- |
//! | [`Poll`] | never | – | every kernel-bypass loop |
//! | [`Interrupt`] | at once | the device | a blocking read |
//! | [`Backoff`] | grows by 1 us an idle iteration | a timer | OVS-DPDK `pmd-sleep-max` |
//! | [`Hybrid300`] | after 300 empty polls | the device | DPDK `l3fwd-power` |
//! | [`Adaptive`] | as the goal allows | whichever is cheapest | Apus |

mod adaptive;
mod backoff;
mod hybrid300;
mod interrupt;
mod mode;
mod poll;

pub use adaptive::{
    Adaptive, AdaptiveConfig, Belief, DEFAULT_GOAL, LENGTHS, Lateness, Paid, Slower, TimedCost, WakeCosts,
};
pub use backoff::Backoff;
pub use hybrid300::Hybrid300;
pub use interrupt::Interrupt;
pub use mode::Mode;
pub use poll::Poll;

use units::{Instant, Nanos};

/// What a worker saw since the last decision.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a, C> {
    /// When the poll's frames, if any, had been worked on and sent.
    pub now: Instant<C>,
    /// One entry a queue, in an order that stays the same.
    pub queues: &'a [Queue<C>],
    /// The wait between the last decision and this poll; `None` after [`Action::Poll`].
    pub ended: Option<Ended<C>>,
}

impl<C> Observation<'_, C> {
    /// Frames received in this poll, over all queues.
    pub fn received(&self) -> u32 {
        self.queues.iter().map(|q| q.received).sum()
    }
}

/// What one poll of one queue gave.
#[derive(Debug)]
pub struct Queue<C> {
    /// Frames received.
    pub received: u32,
    /// Frames that waited in the ring when it was polled, these included: the ring's fill.
    pub fill: u32,
    /// When the frames came and were picked up; `None` if there were none.
    pub arrivals: Option<Arrivals<C>>,
}

/// When the frames of one poll came.
#[derive(Debug)]
pub struct Arrivals<C> {
    /// Arrival of the oldest; the pick-up where the device stamps nothing.
    pub first: Instant<C>,
    /// Arrival of the newest; the pick-up where the device stamps nothing.
    pub last: Instant<C>,
    /// When the worker took them out of the ring.
    pub picked_up: Instant<C>,
}

impl<C> Arrivals<C> {
    /// How long the oldest frame lay in the ring; none if the stamps contradict each other.
    pub fn lateness(&self) -> Nanos {
        self.picked_up.since(self.first).unwrap_or(Nanos::ZERO)
    }
}

/// A wait that is over.
#[derive(Debug)]
pub struct Ended<C> {
    /// What had been asked for.
    pub action: Action<C>,
    /// When it was asked for.
    pub began: Instant<C>,
    /// When the worker ran again.
    pub ended: Instant<C>,
    /// What it cost, as the time for which a core that polls costs as much: CPU time of the thread and of the
    /// interrupt that woke it; or its energy over the power of polling, where that is known. `None` where it was not
    /// measured: not every wait need be.
    pub spent: Option<Nanos>,
    /// How much of it the idle state cost, which is not the shorter the faster the core is. Zero where only CPU time is
    /// known.
    pub idle: Nanos,
}

impl<C> Ended<C> {
    /// How long after the time that it had asked for the worker ran again: the price of a timed
    /// wait. `None` if no time was asked for, or if the device ended the wait before it.
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
    /// Poll again now.
    Poll,
    /// Keep the core, in its cheapest running state (`pause`), for about this long.
    Pause(Nanos),
    /// Give the core away until then.
    SleepUntil(Instant<C>),
    /// Arm the interrupts of all queues, poll once more, and if that is empty too give the core away
    /// until a frame arrives or until then. The second poll belongs to the action: a frame that
    /// came between the empty poll and the arming raises no interrupt.
    BlockUntil(Option<Instant<C>>),
}

units::named! {
    /// The kinds of [`Action`], to count by.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum WaitKind {
        /// Polls again at once.
        Poll = "poll",
        /// Keeps the core, in its cheapest running state.
        Pause = "pause",
        /// Gives the core away until a time.
        Sleep = "sleep",
        /// Gives the core away until a frame arrives.
        Block = "block",
    }
}

impl<C> Action<C> {
    /// The kind to count this action under.
    pub const fn kind(&self) -> WaitKind {
        match self {
            Self::Poll => WaitKind::Poll,
            Self::Pause(_) => WaitKind::Pause,
            Self::SleepUntil(_) => WaitKind::Sleep,
            Self::BlockUntil(_) => WaitKind::Block,
        }
    }

    /// The time after which the worker runs again at the latest; `None` if only a frame ends it.
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
    /// Why an action was chosen.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum Reason {
        /// The policy has no choice here: it is a fixed scheme.
        Fixed = "fixed",
        /// Frames came: the next poll is likely to find more.
        Traffic = "traffic",
        /// Waits until shortly before the arrival that the traffic's period predicts.
        Periodic = "periodic",
        /// A sleep is the cheapest wait.
        Budget = "budget",
        /// To wait until a frame comes is the cheapest.
        Interrupt = "interrupt",
        /// Nothing has come for long: only the interrupt ends the wait.
        Idle = "idle",
        /// Nothing is owed, and no wait is cheaper than polling.
        GoalTooTight = "goal_too_tight",
        /// Late packets are owed: what a wait would make late costs more than polling.
        Late = "late",
        /// The ring's time to overflow, not the goal, cut the wait.
        LossBound = "loss_bound",
    }
}

/// An action and its reason.
#[derive(Debug)]
pub struct Decision<C> {
    /// What to do.
    pub action: Action<C>,
    /// Why.
    pub reason: Reason,
}

/// A scheme of waiting.
pub trait WaitPolicy<C> {
    /// Takes in what the last poll gave and says what to do until the next one.
    fn decide(&mut self, seen: &Observation<'_, C>) -> Decision<C>;

    /// What the last decision was made by. `None` if it compared nothing: of a fixed scheme, and wherever frames are
    /// left to be taken at once.
    #[inline]
    fn belief(&self) -> Option<Belief> {
        None
    }
}

/// One of the policies of this module.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // there is one a worker, and no allocator to box it with
pub enum Policy<C> {
    /// See [`Poll`].
    Poll(Poll),
    /// See [`Interrupt`].
    Interrupt(Interrupt),
    /// See [`Backoff`].
    Backoff(Backoff),
    /// See [`Hybrid300`].
    Hybrid300(Hybrid300),
    /// See [`Adaptive`].
    Adaptive(Adaptive<C>),
}

impl<C> Policy<C> {
    /// Starts from what was measured on this platform; see [`Adaptive::know`]. The other policies do not reckon with
    /// what a wait costs, and stay as they are.
    pub fn know(&mut self, costs: &WakeCosts) {
        if let Self::Adaptive(policy) = self {
            policy.know(costs);
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
}

/// Derives would ask `Copy` of the clock's marker type, which has no values.
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
copy_for_any_clock!(Queue, Arrivals, Ended, Action, Decision);

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
equal_for_any_clock!(Decision { action, reason } Arrivals { first, last, picked_up });

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

    /// The decision after a poll at `now_ns` whose only queue gave nothing.
    pub fn empty(policy: &mut impl WaitPolicy<Simulated>, now_ns: u64) -> Decision<Simulated> {
        frames(policy, now_ns, 0)
    }

    /// The decision after a poll at `now_ns` whose only queue gave `received` frames just then.
    pub fn frames(policy: &mut impl WaitPolicy<Simulated>, now_ns: u64, received: u32) -> Decision<Simulated> {
        let now = Instant::from_nanos(now_ns);
        let arrivals = (received > 0).then_some(Arrivals { first: now, last: now, picked_up: now });
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

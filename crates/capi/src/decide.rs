//! The low level: a policy that decides how to wait, based on what the caller has observed. The policy reads no clock,
//! allocates no memory and makes no system call.

use policy::wait::{Action, Arrivals, Decision, Ended, Observation, Policy, Queue, WaitKind, WaitPolicy};
use units::{Clock, Instant, Nanos};

use crate::config::Settings;
use crate::error::{Code, fail};
use crate::types::{APUS_MAX_QUEUES, APUS_NEVER, APUS_UNKNOWN, DecisionOut, EndedIn, QueueIn, Stamped, Wakes};

/// Latest time that callers may pass, in ns: 146 years. With later times, sums could overflow.
pub const LATEST: u64 = 1 << 62;
/// The policy is told at most this number of packets per poll. Rings have at most a few thousand entries.
const MOST_PACKETS: u32 = 1 << 16;
/// The policy is told at most this length of a wait. A longer wait means that the machine was suspended or the process
/// was stopped.
const LONGEST: Nanos = Nanos::from_secs(3600);

/// Marks times as those of the caller's clock, which can be any clock that never goes backwards.
#[derive(Debug)]
pub enum Callers {}
impl Clock for Callers {}

/// A policy, with the time of its last decision.
#[derive(Debug)]
pub struct Decider {
    policy: Policy<Callers>,
    now: Instant<Callers>,
}

impl Decider {
    /// Creates a policy that has observed nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self { policy: settings.policy(settings.wakes != Wakes::Nothing), now: Instant::ORIGIN }
    }

    /// Decides how to wait, after the caller has polled all queues. On an error, the policy is unchanged.
    pub fn decide(&mut self, now_ns: u64, queues: &[QueueIn], ended: Option<&EndedIn>) -> Result<DecisionOut, Code> {
        let now = instant(now_ns, "now_ns")?;
        if now < self.now {
            let (now, before) = (now.as_nanos(), self.now.as_nanos());
            return Err(fail(
                Code::Time,
                format_args!("now_ns is {now}, but was {before} in the previous call: time went backwards"),
            ));
        }
        let mut seen = Seen::none();
        for (number, queue) in queues.iter().enumerate() {
            seen.add(number, queue, now, None)?;
        }
        let ended = ended.map(|ended| wait(ended, now)).transpose()?;
        let observation = Observation { now, queues: seen.queues(), ended };
        let decision = self.policy.decide(&observation);
        self.now = now;
        Ok(told(&decision, now))
    }
}

/// What one round of polls found on all queues. It has a fixed size, so it needs no allocation.
#[derive(Debug)]
pub struct Seen<C> {
    queues: [Queue<C>; APUS_MAX_QUEUES],
    count: usize,
}

impl<C> Seen<C> {
    /// Creates an empty set of observations.
    pub fn none() -> Self {
        Self { queues: [Queue { received: 0, fill: 0, arrivals: None }; APUS_MAX_QUEUES], count: 0 }
    }

    /// The observations added so far, one per queue.
    pub fn queues(&self) -> &[Queue<C>] {
        &self.queues[..self.count]
    }

    /// Adds what a poll found on one queue. `polls` are the times of the previous poll and of this poll; they replace
    /// times in `queue` that the caller left at 0.
    pub fn add(
        &mut self,
        number: usize,
        queue: &QueueIn,
        now: Instant<C>,
        polls: Option<(Instant<C>, Instant<C>)>,
    ) -> Result<(), Code> {
        let wrong = |code, why: &dyn std::fmt::Display| fail(code, format_args!("queue {number}: {why}"));
        if self.count == APUS_MAX_QUEUES {
            return Err(wrong(Code::Limit, &format_args!("the maximum number of queues is {APUS_MAX_QUEUES}")));
        }
        let QueueIn { received, fill, stamped, reserved, .. } = *queue;
        if stamped > Stamped::Monotonic as u32 || reserved != 0 {
            return Err(wrong(Code::Observation, &format_args!("stamped is {stamped}, reserved is {reserved}")));
        }
        if fill != 0 && fill < received {
            return Err(wrong(Code::Observation, &format_args!("{received} received, but fill is {fill}")));
        }
        let arrivals = match received {
            0 => None,
            _ => Some(arrivals(queue, now, polls).map_err(|(code, why)| wrong(code, &why))?),
        };
        let received = received.min(MOST_PACKETS);
        self.queues[self.count] = Queue { received, fill: fill.min(MOST_PACKETS + 1).max(received), arrivals };
        self.count += 1;
        Ok(())
    }
}

type Wrong = (Code, &'static str);

fn arrivals<C>(
    queue: &QueueIn,
    now: Instant<C>,
    polls: Option<(Instant<C>, Instant<C>)>,
) -> Result<Arrivals<C>, Wrong> {
    let picked_up = match (queue.picked_up_ns, polls) {
        (0, Some((_, this))) => this,
        (at, _) => Instant::from_nanos(at),
    };
    if picked_up > now {
        return Err((Code::Time, "picked_up_ns is after the decision"));
    }
    // Limit the age of packets: if they waited longer, the process was stopped.
    let oldest = now.before(LONGEST).unwrap_or(Instant::ORIGIN);
    let picked_up = picked_up.max(oldest);
    if queue.stamped == 0 {
        let after = match (queue.first_ns, polls) {
            // The caller may have taken the packets before the poll that the waiter takes for the previous one.
            (0, Some((before, _))) => before.min(picked_up),
            (at, _) => Instant::from_nanos(at),
        };
        return match after > picked_up {
            true => Err((
                Code::Time,
                "first_ns is after picked_up_ns; without stamps it must be the time of the previous poll",
            )),
            false => Ok(Arrivals::unstamped(after.max(oldest), picked_up)),
        };
    }
    if queue.first_ns > queue.last_ns {
        return Err((Code::Observation, "first_ns is after last_ns"));
    }
    // A time stamp in the future is an error of the device's clock. Such a packet counts as not late.
    let at = |ns| Instant::from_nanos(ns).clamp(oldest, picked_up);
    Ok(Arrivals::stamped(at(queue.first_ns), at(queue.last_ns), picked_up))
}

fn wait<C>(ended: &EndedIn, now: Instant<C>) -> Result<Ended<C>, Code> {
    let EndedIn { began_ns, ended_ns, until_ns, spent_ns, idle_ns, kind, reserved } = *ended;
    let wrong = |code, why: &dyn std::fmt::Display| fail(code, format_args!("ended: {why}"));
    if began_ns > ended_ns || ended_ns > now.as_nanos() {
        return Err(wrong(Code::Time, &format_args!("began {began_ns}, ended {ended_ns}, now {}", now.as_nanos())));
    }
    if reserved != 0 || (idle_ns > spent_ns && spent_ns != APUS_UNKNOWN) {
        return Err(wrong(
            Code::Observation,
            &format_args!("reserved {reserved}, idle_ns {idle_ns} of spent_ns {spent_ns}"),
        ));
    }
    let kind = kind_of(kind).filter(|kind| *kind != WaitKind::Poll);
    let kind = kind.ok_or_else(|| wrong(Code::Observation, &"kind is not APUS_PAUSE, APUS_SLEEP or APUS_BLOCK"))?;
    let end = Instant::from_nanos(ended_ns);
    // Limit the length of the wait: if it was longer, the machine was suspended.
    let began = Instant::from_nanos(began_ns).max(end.before(LONGEST).unwrap_or(Instant::ORIGIN));
    let until = (until_ns != APUS_NEVER).then(|| Instant::from_nanos(until_ns.min(LATEST)));
    let action = action(kind, began, until).ok_or_else(|| wrong(Code::Observation, &"until_ns is APUS_NEVER"))?;
    let spent = (spent_ns != APUS_UNKNOWN).then(|| Nanos::from_nanos(spent_ns).min(LONGEST));
    Ok(Ended { action, began, ended: end, spent, idle: Nanos::from_nanos(idle_ns).min(spent.unwrap_or(Nanos::ZERO)) })
}

/// Describes a wait of kind `kind` that began at `began` and was to end at `until`. `None` if such a wait needs an end
/// and `until` is `None`.
pub fn action<C>(kind: WaitKind, began: Instant<C>, until: Option<Instant<C>>) -> Option<Action<C>> {
    Some(match kind {
        WaitKind::Poll => Action::Poll,
        WaitKind::Pause => Action::Pause(until?.since(began).unwrap_or(Nanos::ZERO)),
        WaitKind::Sleep => Action::SleepUntil(until?),
        WaitKind::Block => Action::BlockUntil(until),
    })
}

/// Converts a decision into its C structure. `now` is the time of the decision.
pub fn told<C>(decision: &Decision<C>, now: Instant<C>) -> DecisionOut {
    DecisionOut {
        until_ns: decision.action.until(now).map_or(APUS_NEVER, Instant::as_nanos),
        kind: decision.action.kind() as u32,
        reason: decision.reason as u32,
    }
}

/// The kind of wait that has this number in `apus.h`. `None` if there is no such kind.
pub fn kind_of(number: u32) -> Option<WaitKind> {
    WaitKind::ALL.get(number as usize).copied()
}

fn instant<C>(ns: u64, field: &str) -> Result<Instant<C>, Code> {
    match ns <= LATEST {
        true => Ok(Instant::from_nanos(ns)),
        false => Err(fail(Code::Time, format_args!("{field} is {ns}, above the maximum of {LATEST}"))),
    }
}

//! The fewest interrupts that meet a latency goal: Apus's alternative to DIM.
//!
//! With a timer that starts at the first packet (EQE), no packet waits for its interrupt longer than the timer runs. So
//! the longest timer that meets the goal is the goal minus all other delays of a packet (delivery, wake-up, work),
//! whatever the load. This timer also causes the fewest interrupts, and it is already set when a burst comes. The other
//! delays are either measured, if the caller observes delays, or given.
//!
//! ```text
//!                                   the quantile is below the goal: longer by the difference   [budget]
//!                                     ┌───┐
//!              the delays are known   │   ▼
//!  BEGINNING ───────────────────────► GATHERING ── a timer of this length saves nothing ──► RESTING: no timer
//!  no timer           [budget]          ▲  │  ▲                           [no_saving]          │
//!      │                     late:      │  │  └── the rate has risen [burst], or it is ────────┤
//!      │                  shorter by    └──┘       time for another try [probe]                │
//!      │                the difference      late again within a second [late], or most         │
//!      │                     [late]         packets are late anyway [goal_too_tight] ◄─────────┘
//!      └────────────────────────────────────────────────────────────────────────────────────────▲
//!                                     a timer would save nothing, or no timer fits
//! ```
//! **Beginning.** At first, the policy uses no timer, and measures the other delays and the number of polls that the
//! packets need. If delays cannot be measured, it assumes that the other delays are half the goal. If the other delays
//! are given, it begins with a timer.
//!
//! **Longer.** Let `D` be the delay at the goal's quantile. If the timer `T` grows, `D` grows by about as much, so `T +
//! (goal - D)` is the next timer. (`D` grows by more if the application processes all gathered packets before it reads
//! the last one. The new timer is then too long: the policy returns to the previous one, and next tries a timer halfway
//! between the two.) The policy keeps in reserve up to a quarter of the late packets that the goal allows.
//!
//! **Shorter.** The timer is shortened at once if most packets of the last few readings are late, or if more are late
//! than twice what the goal allows and than a few stalls of the machine would explain: each stall makes several packets
//! late, so their number says less than the number of readings that they come from. The timer is shortened by twice the
//! excess. The first step is limited: a timer that was just lengthened shrinks no further than to its previous length,
//! any other timer no further than to half its length.
//!
//! **Tried timers.** With a longer timer, more packets gather, so a stall makes more of them late, also such as would
//! be late whatever the timer is. Therefore the policy remembers for some timers, and for none, what share of the
//! packets was late. If the goal is missed, it returns to the longest timer that met it. It does not try again timers
//! that missed it. A timer that is within a quarter of one that missed it is not lengthened.
//!
//! **Late without any timer.** A packet that exceeds the goal by more than the length of the timer would have been late
//! without a timer. If there are more such packets than the goal allows, no shorter timer meets the goal. The timer may
//! then make further packets late, up to a quarter of their number, and the reason is `goal_too_tight`. If most packets
//! would have been late anyway, the timer is turned off. However, packets can also be late because the CPU spends its
//! time on polls, and then a timer is the remedy. So a timer of half the goal is tried from time to time, if several
//! packets arrive within it.
//!
//! **Busy polls.** If far more packets were late with a shorter timer, or with none, the timer is not shortened to that
//! ([`busy`]). The policy returns to the timer with which the fewest packets were late, or tries one that is not known
//! yet: between the two, or, if over a tenth of the packets are late, half as long again.
//!
//! **Changes.** Planned changes are at least a second apart. With late alarms, up to three changes are possible within a
//! second; the third one turns the timer off, unless that makes far more packets late. After each failure, the next
//! attempt waits twice as long. After a longer timer has met the goal, it waits half as long. So steady traffic sees fewer
//! and fewer changes.
//!
//! **Resting.** If the timer saves fewer than one interrupt per 64 packets, it is useless. Each packet then raises an
//! interrupt at once, until the packet rate rises or the policy tries a timer again.
//!
//! If each timer ends with an empty poll (NAPI deferral), the timer must save more: setting and firing it is assumed to
//! cost as much as a poll. So it is worthwhile only if it halves the number of polls. Timers that are too short for
//! this are never used, not even as a step towards a shorter one: running without a timer is then cheaper and causes
//! less delay.
//!
//! **The ring.** If the NIC counts frames, it interrupts at once when half the ring's descriptors are used. If it does
//! not, the timer is at most half the time in which the ring fills. The other half is left for the packets that arrive
//! until the ring is read. (A ring of 1024 slots lasts 300 us at 40 Gbit/s. Reclaiming it every 250 us is "dangerously
//! close": FreeBSD's networking list, "ixl 40G bad performance", on interrupt moderation.)
//!
//! **Transmit** completions do not delay packets. For them, the timer is half the time in which the ring fills, and
//! never changes.

mod alarm;
mod busy;
mod gathering;
mod resting;
mod saving;
mod tried;
mod window;

use units::{Instant, Nanos};

use super::{Action, Decision, Delays, Direction, ModerationPolicy, Profile, Reason, Sample};
use crate::wait::DEFAULT_GOAL;
use crate::{Goal, LossBound};
use resting::Rest;
use tried::Tried;
use window::{Growth, Rate, Totals, Window};

/// The shortest time between two planned changes. Each change programs hardware, which can be expensive (A. Gospodarek,
/// slides on DIM, "Programming hardware can be expensive").
const PLAN_EVERY: Nanos = Nanos::from_secs(1);
/// Maximum number of changes in [`PLAN_EVERY`].
const MOST_CHANGES: usize = 3;
/// How long the policy rests after the first timer that saved nothing. Each further rest is twice as long.
const SHORTEST_REST: Nanos = Nanos::from_secs(4);
/// Upper limit for the time between two attempts after failures.
const LONGEST_PATIENCE: Nanos = Nanos::from_secs(64);
/// A window is trusted if the goal allows at least this many of its packets to be late. With 8 late packets, the
/// measured share is within a factor of 2 of the true one with 99 % probability (Poisson).
const ENOUGH_ABOVE: u64 = 8;
/// Minimum number of packets in a window that is trusted.
const ENOUGH_PACKETS: u64 = 512;
/// This many packets suffice to show that a timer saves nothing, if their mean gap is at least
/// `WORTH_ONE_IN` times the timer ([`saving`]).
const SPARSE_PACKETS: u64 = 16;
/// The late packets of one histogram count as coming from this many interrupts, however many packets there are: a
/// histogram does not show whether a single stall of the machine delayed them all. Two histograms with late packets
/// raise the alarm.
const OBSERVED_INTERRUPTS: u32 = 2;
/// The range of values that the NIC accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest timer that the NIC accepts, in microseconds.
    pub usecs: u32,
    /// The step between possible timers, in microseconds. 0 is treated as 1.
    pub usecs_step: u32,
    /// The largest frame count. 0 if the NIC does not count frames.
    pub frames: u32,
}

/// Settings of a [`GoalModeration`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalModerationConfig {
    /// The latency goal. `None` means [`DEFAULT_GOAL`], which all policies use by default.
    pub goal: Option<Goal>,
    /// The direction in which the queue's packets go.
    pub direction: Direction,
    /// The queue's ring, and its highest packet rate. `None` if unknown.
    pub loss: Option<LossBound>,
    /// The range of values that the NIC accepts.
    pub limits: Limits,
    /// Whether each timer ends with a poll that finds nothing, as with NAPI deferral, which enables the interrupt only
    /// after such a poll. With Poisson arrivals and `n` packets on average during a timer, each packet then costs `(1 +
    /// e^-n) / (n + e^-n)` polls: one (as without a timer) if `n` is 1, and half a poll if `n` is about 2.
    pub ends_empty: bool,
    /// The delay of a packet that moderation does not cause (delivery, wake-up, work), at the goal's quantile. `None`
    /// if unknown: then half the goal is reserved for it until delays are observed.
    pub remaining: Option<Nanos>,
}

/// The policy that this [module](self) describes.
#[derive(Debug)]
pub struct GoalModeration<C> {
    goal: Goal,
    limits: Limits,
    /// The longest timer that the ring and the NIC allow, and whether the ring sets this limit.
    longest: (Nanos, bool),
    /// Number of frames at which the NIC interrupts.
    frames: u32,
    /// Copy of [`GoalModerationConfig::ends_empty`].
    ends_empty: bool,
    /// The timer to use if no delays are observed.
    blind: Nanos,
    /// The growth of the counters in the last period without a timer.
    without: Option<Growth>,
    /// A window with fewer packets than this is not trusted.
    enough: u64,
    profile: Profile,
    phase: Phase<C>,
    /// The present timer while gathering. While resting, the timer to return to.
    timer: Nanos,
    /// The previous timer, until the longer one has met the goal.
    proven: Option<Nanos>,
    /// The shortest timer that made packets late, and when this happened.
    failed: Option<(Nanos, Instant<C>)>,
    /// Number of consecutive alarms, each within a second of the previous change.
    alarms: u32,
    /// A timer that the machine did not accept, and the shorter one that it set.
    cut: Option<Cut>,
    start: Option<Totals<C>>,
    rate: Rate<C>,
    window: Window,
    tried: Tried<C>,
    /// When the last sample was taken.
    sampled: Instant<C>,
    /// When the profile last changed.
    changed: Instant<C>,
    /// When the last changes were requested, the latest first.
    recent: [Option<Instant<C>>; MOST_CHANGES],
    /// When the present window was last looked at for a planned change, or began.
    planned: Instant<C>,
    /// The timer is not lengthened before this time.
    patient_until: Instant<C>,
    /// How long the next failure delays further attempts.
    patience: Nanos,
    /// How long the next rest lasts.
    rest: Nanos,
}

#[derive(Debug)]
enum Phase<C> {
    /// Transmit: the timer never changes.
    Fixed,
    /// The NIC is being programmed.
    Applying(Next<C>),
    Gathering,
    Resting(Rest<C>),
}

/// A requested timer that was shortened, because the driver rounds it or another queue of the device needs a shorter
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    asked: Nanos,
    got: Nanos,
}

impl Cut {
    /// The shortest timer that is worth another request: the requested timer plus the amount by which it was shortened.
    fn again_from(self) -> Nanos {
        self.asked + self.asked.saturating_sub(self.got)
    }
}

/// The phase that begins after the NIC has been programmed.
#[derive(Debug)]
enum Next<C> {
    Gathering,
    Resting(Rest<C>),
}

impl<C> GoalModeration<C> {
    /// Creates a policy. For a receive queue, it starts with the timer that `remaining` leaves, or without a timer if
    /// that is `None`.
    pub fn new(config: GoalModerationConfig) -> Self {
        let goal = config.goal.unwrap_or(DEFAULT_GOAL);
        let limits = config.limits;
        let half_ring = config.loss.map_or(Nanos::MAX, |loss| loss.longest_absence() / 2);
        let receive = config.direction == Direction::Rx;
        let counts_frames = receive && limits.frames > 0;
        let nic = Nanos::from_micros(u64::from(limits.usecs));
        let ring = if counts_frames { Nanos::MAX } else { half_ring };
        let frames = config.loss.map_or(limits.frames, |loss| limits.frames.min((loss.descriptors / 2).max(1)));
        let above = u64::from(goal.quantile.above_ppm());
        let mut policy = Self {
            goal,
            limits,
            longest: (nic.min(ring), ring < nic),
            frames,
            ends_empty: config.ends_empty,
            blind: goal.latency.saturating_sub(config.remaining.unwrap_or(goal.latency / 2)),
            without: None,
            enough: (ENOUGH_ABOVE * 1_000_000 / above).max(ENOUGH_PACKETS),
            profile: Profile::IMMEDIATE,
            phase: if receive { Phase::Gathering } else { Phase::Fixed },
            timer: Nanos::ZERO,
            proven: None,
            failed: None,
            alarms: 0,
            rate: Rate::default(),
            cut: None,
            start: None,
            window: Window::new(goal),
            tried: Tried::new(),
            sampled: Instant::ORIGIN,
            changed: Instant::ORIGIN,
            recent: [const { None }; MOST_CHANGES],
            planned: Instant::ORIGIN,
            patient_until: Instant::ORIGIN,
            patience: PLAN_EVERY,
            rest: SHORTEST_REST,
        };
        let timer = match (receive, half_ring) {
            (true, _) | (false, Nanos::MAX) => policy.blind,
            (false, half_ring) => half_ring,
        };
        policy.timer = policy.possible(timer);
        if receive && config.remaining.is_none() {
            policy.phase = Phase::Resting(Rest::new(Reason::Measuring, Instant::ORIGIN));
        } else {
            policy.profile = policy.gathering_profile();
        }
        policy
    }

    /// The goal that the policy meets: the configured one, or [`DEFAULT_GOAL`].
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// The longest timer that the NIC and the ring allow, but at most `wanted`.
    fn possible(&self, wanted: Nanos) -> Nanos {
        let step = u64::from(self.limits.usecs_step.max(1));
        let micros = wanted.min(self.longest.0).as_micros_floor() / step * step;
        Nanos::from_micros(micros)
    }

    /// The timer in force. Zero if there is none.
    fn in_force(&self) -> Nanos {
        self.profile.timer().unwrap_or(Nanos::ZERO)
    }

    fn gathering_profile(&self) -> Profile {
        match self.timer.as_micros_floor() {
            0 => Profile::IMMEDIATE,
            usecs => Profile::eqe(usecs as u32, self.frames),
        }
    }

    /// Requests the profile of the next phase: the present timer if gathering, no timer if resting.
    fn change(&mut self, now: Instant<C>, next: Next<C>, reason: Reason) -> Decision {
        let profile = match next {
            Next::Gathering => self.gathering_profile(),
            Next::Resting(_) => Profile::IMMEDIATE,
        };
        self.changed = now;
        self.begin_window();
        self.phase = Phase::Applying(next);
        if profile == self.profile {
            self.begin();
            return Decision::keep(reason);
        }
        self.profile = profile;
        self.recent.rotate_right(1);
        self.recent[0] = Some(now);
        Decision::apply(profile, reason)
    }

    /// Whether another change is possible now, although the last one was less than a second ago.
    fn may_change(&self, now: Instant<C>) -> bool {
        self.recent[MOST_CHANGES - 1].is_none_or(|at| now.since(at).is_some_and(|since| since >= PLAN_EVERY))
    }

    /// Remembers what the profile in force did in this window.
    fn remember(&mut self) {
        let share = self.window.share();
        if share.packets > 0 {
            self.tried.add(self.sampled, self.in_force(), share);
        }
    }

    /// Begins the phase that was waiting for the NIC to be programmed.
    fn begin(&mut self) {
        if let Phase::Applying(next) = &self.phase {
            self.phase = match *next {
                Next::Gathering => Phase::Gathering,
                Next::Resting(rest) => Phase::Resting(rest),
            };
        }
    }

    /// Handles a profile in force that differs from the requested one.
    fn takes(&mut self, in_force: Profile) {
        let timer = |profile: Profile| profile.timer().unwrap_or(Nanos::ZERO);
        let (asked, got) = (timer(self.profile), timer(in_force));
        self.cut = (got < asked).then_some(Cut { asked, got });
        self.profile = in_force;
        if matches!(self.phase, Phase::Gathering) {
            self.timer = got;
            self.proven = self.proven.filter(|proven| *proven < got);
        }
        self.begin_window();
    }

    fn begin_window(&mut self) {
        self.remember();
        self.start = None;
        self.rate = Rate::default();
        self.window.clear();
    }

    /// The longest timer, at most `wanted`, that is not known to make packets late. If `wanted` is close to one that
    /// recently did, returns a timer between that one and `good`.
    fn untried(&self, now: Instant<C>, good: Nanos, wanted: Nanos) -> Nanos {
        let failed = self.failed.filter(|(_, at)| now.since(*at).is_some_and(|age| age < LONGEST_PATIENCE));
        let failed = failed.map(|(failed, _)| failed);
        let bad = self.tried.bad(now, self.enough, self.allowed_ppm(), good);
        // A timer that failed at once may have met a stall of the machine, so a shorter one is soon tried.
        let near = failed.map(|failed| (failed, (good.max(failed / 2) + failed) / 2));
        let between = bad.map(|bad| (bad, (good + bad) / 2));
        let untried = near.into_iter().chain(between).filter(|(failed, _)| wanted >= failed.scale(7, 8));
        match untried.min() {
            Some((failed, _)) if good >= failed.scale(3, 4) => good,
            Some((_, between)) => self.possible(between),
            None => wanted,
        }
    }

    /// The longest timer below the present one with which the goal was met.
    fn good(&self, now: Instant<C>) -> Option<Nanos> {
        self.tried.good(now, self.enough, self.allowed_ppm(), self.timer)
    }

    /// Share of the packets that the goal allows to be late, in ppm.
    fn allowed_ppm(&self) -> u64 {
        u64::from(self.goal.quantile.above_ppm())
    }

    /// Records a failed attempt: the next one waits twice as long.
    fn wait_longer(&mut self, now: Instant<C>) {
        self.patient_until = now + self.patience;
        self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
    }

    fn step(&self) -> Nanos {
        Nanos::from_micros(u64::from(self.limits.usecs_step.max(1)))
    }
}

impl<C> ModerationPolicy<C> for GoalModeration<C> {
    fn profile(&self) -> Profile {
        self.profile
    }

    #[inline]
    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        let rest = match &self.phase {
            Phase::Fixed => return Decision::keep(Reason::Fixed),
            Phase::Applying(_) => return Decision::keep(Reason::Applying),
            Phase::Gathering => None,
            Phase::Resting(rest) => Some(*rest),
        };
        let totals = Totals::from(sample);
        let Some(seen) = self.start.as_ref().and_then(|start| totals.since(start)) else {
            // Packets until now belong to another profile, or to counters that were reset.
            self.begin_window();
            self.start = Some(totals);
            return Decision::keep(Reason::Measuring);
        };
        self.sampled = sample.now;
        self.rate.add(totals);
        if let Some(delays) = sample.delays {
            self.window.add(delays, self.in_force());
        }
        self.window.end_reading(OBSERVED_INTERRUPTS);
        let decision = match rest {
            None => self.gather(sample.now, seen),
            Some(rest) => self.resting(totals, seen, rest),
        };
        // The next window of the same profile begins where this one ended.
        if self.start.is_none() && !matches!(self.phase, Phase::Applying(_)) && decision.action == Action::Keep {
            self.start = Some(totals);
        }
        decision
    }

    fn best(&self) -> Profile {
        match &self.phase {
            Phase::Resting(_) | Phase::Applying(Next::Resting(_)) => Profile::IMMEDIATE,
            // If the machine gave less than requested, continue from the requested timer.
            Phase::Gathering => match self.cut.filter(|cut| cut.got == self.timer) {
                Some(cut) => Profile::eqe(cut.asked.as_micros_floor() as u32, self.frames),
                None => self.profile,
            },
            Phase::Fixed | Phase::Applying(Next::Gathering) => self.profile,
        }
    }

    fn longest(&self) -> Profile {
        match &self.phase {
            Phase::Resting(Rest { reason: Reason::NoSaving | Reason::Measuring, .. })
            | Phase::Applying(Next::Resting(Rest { reason: Reason::NoSaving, .. })) => self.gathering_profile(),
            _ => self.best(),
        }
    }

    fn applied(&mut self, _: Instant<C>, in_force: Profile) {
        match self.phase {
            Phase::Applying(_) => self.begin(),
            // Another profile may have been in force in the meantime.
            _ => self.begin_window(),
        }
        if in_force.timer() != self.profile.timer() {
            self.takes(in_force);
        }
    }

    fn observe(&mut self, delays: Delays) {
        // Packets before the first sample of a profile may belong to another profile.
        if self.start.is_some() && !matches!(self.phase, Phase::Fixed | Phase::Applying(_)) {
            self.window.observe(delays, self.in_force());
        }
    }
}

// Implemented by hand, because a derive would also require `Clone` of the clock's marker type.
impl<C> Clone for Next<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Next<C> {}
impl<C> Clone for Phase<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Phase<C> {}
impl<C> Clone for GoalModeration<C> {
    fn clone(&self) -> Self {
        Self { window: self.window.clone(), ..*self }
    }
}

#[cfg(test)]
mod tests;

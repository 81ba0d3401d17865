//! Chooses how long the interrupt of a receive queue is delayed after a packet, so that several packets share one
//! interrupt.
//!
//! A packet that an application reads from a socket is delayed twice:
//!
//! ```text
//!   arrival ──── timer: at most T ────► reception (NAPI) ──── softirq, socket, wake-up ────► the application's read
//!                [a bound]                                       [measured]
//! ```
//! The first part is not measured, because few NICs timestamp arrivals. Its upper bound is the moderation timer `T`
//! (NAPI's `gro_flush_timeout`, a NIC's `rx-usecs`): no packet waits longer for its reception, provided that the CPU
//! serves interrupts. (If a poll uses up its budget, the packets behind it wait longer; their delay is measured from
//! that poll.) A second kind of moderation on the path, which Apus does not set, may have a longer timer: the NIC's
//! `rx-usecs` while Apus sets NAPI deferral, or the reverse. The longer timer is then the bound. The second part of the
//! delay is measured, and the policy sees the sum of the bound and the measured part. So the longest timer that meets
//! the goal is the goal minus the measured part, at the goal's quantile. If the measured part alone exceeds the goal,
//! moderation is not the cause, and the policy turns it off.
//!
//! Each queue has its own [`Moderate`], with any of the policies of [`policy::moderation`], and its own actuator
//! ([`place`]). If all queues of a device share one timer, each queue states the longest timer that it accepts
//! ([`Wish::most`]), and the shortest one stated is set. The observations come from the kernel's tracepoints
//! ([`watched`]).

pub mod place;
pub mod watched;

use std::collections::BTreeMap;

use policy::Goal;
use policy::moderation::dim::Snapshot as DimState;
use policy::moderation::{Action, Delays, Moderation, ModerationPolicy as _, Profile, Reason as PolicyReason, Sample};
use units::{Instant, Nanos, Quantile};

use crate::seam::{Acted, Controller, Decision, Reading};

/// Interval between two readings. It is short because the loop must react to a burst within 10 ms.
const INTERVAL: Nanos = Nanos::from_millis(5);
/// Minimum length of a span for which figures are shown. A queue that receives no packet for a whole span counts as
/// idle.
const FIGURES_EVERY: Nanos = Nanos::from_secs(1);

/// One observation of a receive queue by its sensor. Unless stated otherwise, counters are totals since an arbitrary
/// start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueSeen {
    /// Packets received. `None` if they are not counted.
    pub packets: Option<u64>,
    /// Bytes received. `None` if they are not counted.
    pub bytes: Option<u64>,
    /// Number of polls of the queue by the kernel, after an interrupt or a timer. `None` if polls are not counted; the
    /// controller then estimates them.
    pub polls: Option<u64>,
    /// Number of polls that used up their packet budget, so that more packets were probably waiting. `None` if such
    /// polls are not counted.
    pub full_polls: Option<u64>,
    /// Delays from reception to the application's read, for the packets read since the previous reading. `None` if
    /// delays are not measured.
    pub after: Option<Vec<Delays>>,
    /// Maximum delay of a packet by moderation that Apus does not set: by the NIC's coalescing while Apus sets NAPI
    /// deferral, or the reverse. `None` if the delay is unknown or unlimited, as with adaptive moderation by the NIC.
    pub beside: Option<Nanos>,
}

/// The profile that the policy chooses for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The profile that is best for this queue alone.
    pub profile: Profile,
    /// The profile with the longest timer with which the queue still meets its goal, used if all queues of a device
    /// share one profile. `None` if the queue accepts any profile, because it receives no packets.
    pub most: Option<Profile>,
}

/// Why a profile was chosen or kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The control loop starts with the policy's initial profile.
    Begin,
    /// The sensor cannot observe the queue, so the safe profile applies, which does not delay packets.
    Blind,
    /// Nothing is measured, because the policy is a fixed timer, which needs no measurement.
    Unmeasured,
    /// The policy chose or kept the profile. The field says why.
    Policy(PolicyReason),
}

/// What a queue did in the last full span of about one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The length of the span.
    pub span: Nanos,
    /// Packets received in the span.
    pub packets: u64,
    /// Number of polls of the queue by the kernel in the span. `None` if polls are not counted.
    pub polls: Option<u64>,
    /// Number of polls in the span that used up their packet budget. `None` if such polls are not counted.
    pub full_polls: Option<u64>,
    /// The delay from reception to the application's read, at the goal's quantile, within the span. `None` if no
    /// packet's delay was measured, or if it is longer than the sensor can tell.
    pub after: Option<Nanos>,
    /// Number of packets in the span whose delay was measured.
    pub measured: u64,
}

/// How many packets of a queue exceeded the goal's latency since the loop began. The delay of a packet counts from its
/// arrival to the application's read. The time before reception is not measured; it is assumed to be the longest that
/// the timer in force allows.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Lateness {
    /// Number of packets whose delay was measured while the time before reception had an upper bound.
    pub packets: u64,
    /// Estimated number of the measured packets that exceeded the goal's latency, assuming that delays are spread
    /// evenly within a histogram bucket.
    pub late: f64,
}

/// One call of the DIM policy, recorded in the form that `apus dim replay` reads.
#[derive(Clone, Copy, Debug)]
pub struct Call<C> {
    /// Whether the machine had applied the previous profile before this call.
    pub applied: bool,
    /// Input of the policy.
    pub sample: Sample<C>,
    /// DIM's state after the call.
    pub after: DimState,
}

/// The controller of one receive queue, which chooses the queue's moderation by a policy.
#[derive(Clone, Debug)]
pub struct Moderate<C> {
    policy: Moderation<C>,
    goal: Goal,
    in_force: Profile,
    /// The last profile that was requested.
    wished: Option<Wish>,
    /// Whether all queues of the device share one timer.
    is_shared: bool,
    /// Whether the safe profile is in force instead of the policy's.
    is_safe: bool,
    /// Whether the queue has received a packet in the last full span or since.
    is_busy: bool,
    /// Time and counters at the start of the present span, for [`Figures`].
    since: Option<(Instant<C>, QueueCounts)>,
    delays: BTreeMap<Nanos, u64>,
    figures: Option<Figures>,
    lateness: Lateness,
    /// Upper bound of the time from a packet's arrival to its reception, as of the last reading. `None` if there is no
    /// bound.
    bound: Option<Nanos>,
    /// The longest timer in force since the last reading. Packets may have waited for it that the next reading shows.
    longest: Nanos,
    /// Whether the machine has applied a profile since the last call of the policy.
    applied: bool,
    call: Option<Call<C>>,
    estimate: Estimate<C>,
}

/// Estimates how many polls a timer would have needed. Used if polls are not counted, or if the timer is not in force
/// (dry run).
#[derive(Clone, Debug)]
struct Estimate<C> {
    polls: f64,
    /// Whether a timer that ends without a packet costs one empty poll, as NAPI deferral does.
    ends_empty: bool,
    /// Time and packet total of the last reading.
    at: Option<(Instant<C>, u64)>,
}

/// The counters of a reading.
#[derive(Clone, Copy, Debug)]
struct QueueCounts {
    packets: u64,
    polls: Option<u64>,
    full_polls: Option<u64>,
}

impl<C> Moderate<C> {
    /// Creates a controller that follows `policy`. Its figures are judged against `goal`. `in_force` is the profile at
    /// the start. `is_shared` says whether all queues of the device share one timer.
    pub fn new(policy: Moderation<C>, goal: Goal, in_force: Profile, is_shared: bool) -> Self {
        Self {
            policy,
            goal,
            in_force,
            wished: None,
            is_shared,
            is_safe: false,
            is_busy: true,
            since: None,
            delays: BTreeMap::new(),
            figures: None,
            lateness: Lateness::default(),
            bound: None,
            longest: timer(in_force),
            applied: false,
            call: None,
            estimate: Estimate { polls: 0.0, ends_empty: false, at: None },
        }
    }

    /// Makes the estimate of polls count one empty poll for each timer that ends without a packet, as with NAPI
    /// deferral.
    #[must_use]
    pub fn ending_empty(mut self) -> Self {
        self.estimate.ends_empty = true;
        self
    }

    /// The call of the DIM policy for the last reading. `None` if the policy is not DIM, or was not called for that
    /// reading.
    pub fn call(&self) -> Option<&Call<C>> {
        self.call.as_ref()
    }

    /// Whether all queues of the device share one timer.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The latency goal against which lateness is judged.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// The profile in force, as last reported by the actuator.
    pub fn in_force(&self) -> Profile {
        self.in_force
    }

    /// What the queue did in the last full span of about one second. `None` during the first span.
    pub fn figures(&self) -> Option<Figures> {
        self.figures
    }

    /// How many packets exceeded the goal's latency since the loop began.
    pub fn lateness(&self) -> Lateness {
        self.lateness
    }

    /// Upper bound of the time from a packet's arrival to its reception, as of the last reading. `None` if there is no
    /// bound.
    pub fn bound(&self) -> Option<Nanos> {
        self.bound
    }

    /// Adds a reading to the figures.
    fn count(&mut self, taken: Instant<C>, seen: &QueueSeen, packets: u64) {
        for delays in seen.after.iter().flatten() {
            *self.delays.entry(delays.longest).or_default() += u64::from(delays.packets);
        }
        let now = QueueCounts { packets, polls: seen.polls, full_polls: seen.full_polls };
        let (since, then) = *self.since.get_or_insert((taken, now));
        self.is_busy |= packets > then.packets;
        let span = taken.since(since).unwrap_or(Nanos::ZERO);
        if span < FIGURES_EVERY {
            return;
        }
        // The total has decreased: a new watch counts from zero again.
        if now.packets < then.packets {
            self.since = Some((taken, now));
            self.delays.clear();
            return;
        }
        let measured = self.delays.values().sum();
        let grown = |now: Option<u64>, then: Option<u64>| Some(now?.wrapping_sub(then?));
        let packets = now.packets.wrapping_sub(then.packets);
        self.is_busy = packets > 0;
        self.figures = Some(Figures {
            span,
            packets,
            polls: grown(now.polls, then.polls),
            full_polls: grown(now.full_polls, then.full_polls),
            // The histogram's last bucket has no upper end.
            after: quantile(&self.delays, measured, self.goal.quantile).filter(|after| *after < Nanos::MAX),
            measured,
        });
        self.since = Some((taken, now));
        self.delays.clear();
    }

    /// Estimates how many polls the timer in force would have needed for the packets up to now. Arrivals between two
    /// readings are assumed to be a Poisson process, with `n` further packets on average during the timer that a packet
    /// starts. A poll then returns `1 + n` packets. With deferral, a timer that ran without a packet ends with an empty
    /// poll, and the next packet is polled at once. Each packet then costs `(1 + e^-n) / (n + e^-n)` polls, as in
    /// [`policy::moderation::GoalModerationConfig::ends_empty`].
    fn estimated(&mut self, taken: Instant<C>, packets: u64) -> u64 {
        let timer = timer(self.in_force).as_nanos() as f64;
        if let Some((before, then)) = self.estimate.at.replace((taken, packets)) {
            let span = taken.since(before).unwrap_or(Nanos::ZERO).as_nanos().max(1) as f64;
            let new = packets.saturating_sub(then) as f64;
            let within = (new - 1.0).max(0.0) * timer / span;
            let silent = (-within).exp();
            let each = match self.estimate.ends_empty && timer > 0.0 {
                true => (1.0 + silent) / (within + silent),
                false => 1.0 / (1.0 + within),
            };
            self.estimate.polls += new * each;
        }
        self.estimate.polls.round() as u64
    }

    /// The profile that the policy requests now, and the longest profile that the queue accepts.
    fn wish(&self) -> Wish {
        let profile = if self.is_shared { self.policy.best() } else { self.policy.profile() };
        Wish { profile, most: self.is_busy.then(|| self.policy.longest()) }
    }
}

/// How long the interrupt can be delayed after a packet. Zero without a timer.
fn timer(profile: Profile) -> Nanos {
    profile.timer().unwrap_or(Nanos::ZERO)
}

/// Estimated number of the packets in `delays` that are later than `goal`.
fn late(delays: &Delays, goal: Nanos) -> f64 {
    let spread = delays.longest.saturating_sub(delays.shortest).as_nanos().max(1) as f64;
    let over = delays.longest.saturating_sub(goal).as_nanos() as f64;
    f64::from(delays.packets) * (over / spread).min(1.0)
}

/// Upper bound of the delay at `quantile`: the quantile's share of the packets was delayed at most this long.
fn quantile(delays: &BTreeMap<Nanos, u64>, all: u64, quantile: Quantile) -> Option<Nanos> {
    let above = all * u64::from(quantile.above_ppm()) / 1_000_000;
    let mut seen = 0;
    let rank = all - above;
    delays
        .iter()
        .find(|(_, packets)| {
            seen += **packets;
            seen >= rank && seen > 0
        })
        .map(|(delay, _)| *delay)
}

impl<C> Controller<C> for Moderate<C> {
    type Seen = QueueSeen;
    type Setting = Wish;
    type InForce = Profile;
    type Reason = Reason;

    fn interval(&self) -> Nanos {
        INTERVAL
    }

    fn first(&self) -> Option<Decision<Wish, Reason>> {
        Some(Decision { apply: Some(self.wish()), reason: Reason::Begin })
    }

    fn decide(&mut self, _: Instant<C>, reading: &Reading<QueueSeen, C>) -> Decision<Wish, Reason> {
        let seen = &reading.seen;
        let counted = seen.packets.zip(seen.bytes);
        if let Some((packets, _)) = counted {
            self.count(reading.taken, seen, packets);
        }
        self.call = None;
        let longest = std::mem::replace(&mut self.longest, timer(self.in_force));
        self.bound = seen.beside.map(|beside| beside.max(longest));
        if std::mem::take(&mut self.is_safe) {
            return Decision { apply: Some(self.wish()), reason: Reason::Begin };
        }
        let Some((packets, bytes)) = counted else { return Decision { apply: None, reason: Reason::Unmeasured } };
        if let Some(bound) = self.bound {
            for after in seen.after.iter().flatten() {
                let Delays { packets, shortest, longest } = *after;
                let delays = Delays { packets, shortest: shortest + bound, longest: longest + bound };
                self.lateness.packets += u64::from(packets);
                self.lateness.late += late(&delays, self.goal.latency);
                self.policy.observe(delays);
            }
        }
        let sample = Sample {
            now: reading.taken,
            events: seen.polls.unwrap_or_else(|| self.estimated(reading.taken, packets)),
            packets,
            bytes,
            completions: 0,
            delays: None,
        };
        let decision = self.policy.decide(&sample);
        let applied = std::mem::take(&mut self.applied);
        self.call = match &self.policy {
            Moderation::NetDim(dim) => Some(Call { applied, sample, after: dim.snapshot() }),
            _ => None,
        };
        let wish = self.wish();
        let is_new = match decision.action {
            Action::Apply(_) => true,
            Action::Keep => self.is_shared && self.wished != Some(wish),
        };
        self.wished = Some(wish);
        Decision { apply: is_new.then_some(wish), reason: Reason::Policy(decision.reason) }
    }

    fn acted(&mut self, now: Instant<C>, wanted: &Wish, acted: &Acted<Profile>) {
        match acted {
            Acted::InForce => self.in_force = wanted.profile,
            Acted::Rounded { now, .. } => self.in_force = *now,
            Acted::Later { .. } => return,
            Acted::Ignored { .. } | Acted::Refused { .. } | Acted::Away(_) | Acted::Lost(_) => {}
        }
        self.longest = self.longest.max(timer(self.in_force));
        // The safe profile was not the policy's choice, so the policy does not learn about it.
        if !self.is_safe {
            self.applied = true;
            self.policy.applied(now, self.in_force);
        }
    }

    fn shifted(&mut self, now: Instant<C>, in_force: &Profile) {
        self.in_force = *in_force;
        self.longest = self.longest.max(timer(self.in_force));
        self.applied = true;
        self.policy.applied(now, *in_force);
    }

    fn safe(&mut self) -> Option<Decision<Wish, Reason>> {
        self.is_safe = true;
        let profile = Profile::IMMEDIATE;
        Some(Decision { apply: Some(Wish { profile, most: Some(profile) }), reason: Reason::Blind })
    }
}

#[cfg(test)]
mod tests;

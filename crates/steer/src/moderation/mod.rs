//! How long may the packets of a receive queue gather before the kernel looks at them?
//!
//! A packet that an application reads from a socket is delayed twice:
//!
//! ```text
//!   arrival ──── timer: at most T ────► reception (NAPI) ──── softirq, socket, wake-up ────► the application's read
//!                [a bound]                                       [measured]
//! ```
//! The first part is not measured: few NICs stamp arrivals. It has a bound, the moderation's own timer `T` (NAPI's
//! `gro_flush_timeout`, a NIC's `rx-usecs`): no packet waits longer for its reception, as long as the CPU serves
//! interrupts. The second part is measured. The policy sees their sum, with the bound for the first part. So the goal is
//! held by a timer of the goal less the measured part at the goal's quantile, and a queue whose measured part alone
//! exceeds the goal is recognised: moderation does not cause that, and is turned off.
//!
//! Each queue has its own [`Moderate`], an instance of any of [`policy::moderation`]'s policies, and its own actuator
//! ([`place`]). What is seen of a queue comes from the kernel's tracepoints ([`watched`]).

pub mod place;
pub mod watched;

use std::collections::BTreeMap;

use policy::moderation::{Action, Delays, Moderation, ModerationPolicy as _, Profile, Reason as PolicyReason, Sample};
use units::{Instant, Nanos, Quantile};

use crate::seam::{Acted, Controller, Decision, Reading};

/// Time between two readings. A burst must be answered within 10 ms.
const INTERVAL: Nanos = Nanos::from_millis(5);
/// Figures are shown for spans of this length.
const FIGURES_EVERY: Nanos = Nanos::from_secs(1);

/// What a sensor sees of a receive queue. The counters are totals that start at any value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueSeen {
    /// Packets received.
    pub packets: u64,
    /// Bytes received.
    pub bytes: u64,
    /// How often the kernel looked at the queue: polls that an interrupt or the timer caused. `None` if nobody counts
    /// them.
    pub polls: Option<u64>,
    /// The delays from reception to the application's read, of packets that were read since the previous reading. `None`
    /// if nobody measures them.
    pub after: Option<Vec<Delays>>,
}

/// Why a profile was chosen or kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The loop begins.
    Begin,
    /// Nothing is seen, so nothing is moderated.
    Blind,
    /// The policy's reason.
    Policy(PolicyReason),
}

/// What a queue did in the last span of about a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The length of the span.
    pub span: Nanos,
    /// Packets received in it.
    pub packets: u64,
    /// How often the kernel looked at the queue. `None` if nobody counts that.
    pub polls: Option<u64>,
    /// The delay from reception to the application's read at the quantile that is steered for. `None` if no packet was
    /// measured.
    pub after: Option<Nanos>,
    /// Number of packets that were measured.
    pub measured: u64,
}

/// Steers the moderation of one receive queue by a policy.
#[derive(Clone, Debug)]
pub struct Moderate<C> {
    policy: Moderation<C>,
    quantile: Quantile,
    in_force: Profile,
    /// Whether the safe profile is in force instead of the policy's.
    is_safe: bool,
    /// The counters at the beginning of the span, and the delays in it by their upper bound.
    since: Option<(Instant<C>, u64, Option<u64>)>,
    delays: BTreeMap<Nanos, u64>,
    figures: Option<Figures>,
}

impl<C> Moderate<C> {
    /// A controller that asks `policy`. `quantile` is the one that [`Figures::after`] is shown for. `in_force` is the
    /// profile in force at the beginning.
    pub fn new(policy: Moderation<C>, quantile: Quantile, in_force: Profile) -> Self {
        let (since, delays) = (None, BTreeMap::new());
        Self { policy, quantile, in_force, is_safe: false, since, delays, figures: None }
    }

    /// The profile in force, as far as is known.
    pub fn in_force(&self) -> Profile {
        self.in_force
    }

    /// What the queue did in the last full span. `None` during the first.
    pub fn figures(&self) -> Option<Figures> {
        self.figures
    }

    /// The longest time that the moderation in force holds a packet back.
    fn bound(&self) -> Nanos {
        self.in_force.timer().unwrap_or(Nanos::ZERO)
    }

    /// Adds a reading to the span's figures.
    fn count(&mut self, taken: Instant<C>, seen: &QueueSeen) {
        for delays in seen.after.iter().flatten() {
            *self.delays.entry(delays.longest).or_default() += u64::from(delays.packets);
        }
        let (since, packets, polls) = *self.since.get_or_insert((taken, seen.packets, seen.polls));
        let span = taken.since(since).unwrap_or(Nanos::ZERO);
        if span < FIGURES_EVERY {
            return;
        }
        let measured = self.delays.values().sum();
        self.figures = Some(Figures {
            span,
            packets: seen.packets.wrapping_sub(packets),
            polls: polls.and_then(|polls| Some(seen.polls?.wrapping_sub(polls))),
            after: quantile(&self.delays, measured, self.quantile),
            measured,
        });
        self.since = Some((taken, seen.packets, seen.polls));
        self.delays.clear();
    }
}

/// The upper bound of the delay that the quantile's share of the packets does not exceed.
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
    type Setting = Profile;
    type Reason = Reason;

    fn interval(&self) -> Nanos {
        INTERVAL
    }

    fn first(&self) -> Option<Decision<Profile, Reason>> {
        Some(Decision { apply: Some(self.policy.profile()), reason: Reason::Begin })
    }

    fn decide(&mut self, _: Instant<C>, reading: &Reading<QueueSeen, C>) -> Decision<Profile, Reason> {
        let seen = &reading.seen;
        self.count(reading.taken, seen);
        if std::mem::take(&mut self.is_safe) {
            return Decision { apply: Some(self.policy.profile()), reason: Reason::Begin };
        }
        let bound = self.bound();
        for after in seen.after.iter().flatten() {
            let delays =
                Delays { packets: after.packets, shortest: after.shortest + bound, longest: after.longest + bound };
            self.policy.observe(delays);
        }
        let sample = Sample {
            now: reading.taken,
            // Where nobody counts them, nothing shows that a timer saves nothing: it stays.
            events: seen.polls.unwrap_or(0),
            packets: seen.packets,
            bytes: seen.bytes,
            completions: 0,
            delays: None,
        };
        let decision = self.policy.decide(&sample);
        let apply = match decision.action {
            Action::Keep => None,
            Action::Apply(profile) => Some(profile),
        };
        Decision { apply, reason: Reason::Policy(decision.reason) }
    }

    fn acted(&mut self, now: Instant<C>, wanted: &Profile, acted: &Acted<Profile>) {
        match acted {
            Acted::InForce => self.in_force = *wanted,
            Acted::Rounded { now, .. } => self.in_force = *now,
            Acted::Later { .. } => return,
            Acted::Ignored { .. } | Acted::Refused { .. } | Acted::Lost(_) => {}
        }
        self.policy.applied(now);
    }

    fn safe(&mut self) -> Option<Decision<Profile, Reason>> {
        self.is_safe = true;
        Some(Decision { apply: Some(Profile::IMMEDIATE), reason: Reason::Blind })
    }
}

#[cfg(test)]
mod tests;

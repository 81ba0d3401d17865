//! Chooses the frequency of each core.
//!
//! ```text
//!   telemetry of a loop ─┐                                             ┌─ core 2 wishes 1.2 GHz ─┐
//!   packets of a NIC ────┼─► CoreSeen ──► Pace: occupancy ──► policy ──┤                         ├─► the highest ──► Steered
//!   branch counters ─────┘                                             └─ core 3 wishes 2.6 GHz ─┘     wish
//! ```
//! Each core has its own [`Pace`], with any of the policies of [`policy::frequency::outside`], and its own sensor.
//! Cores that share a frequency ([`place::Place`]) share the setting: the highest request is applied, and each core's
//! policy learns which frequency is in force.
//!
//! The firmware may limit the frequency at any time. The actuator checks the limit once a second and at each frequency
//! change. It never requests more than the limit, and reports the limit to the policies.
//!
//! In a guest, the host sets the frequency: [`remote::Remote`] requests it.

pub mod counters;
pub mod nic;
pub mod place;
pub mod remote;
#[cfg(test)]
mod tests;

use policy::frequency::outside::branches::{self, Branches, Signature};
use policy::frequency::outside::packets::PacketCost;
use policy::frequency::outside::{
    Goal, Late, Occupancy, Outside, OutsidePolicy as _, Polls, Reason as PolicyReason, Sample, Unsure,
};
use units::{Hertz, Instant, Nanos};

use crate::seam::{Acted, Controller, Decision, Reading};

/// Interval between two readings of a core. It is short because a change between idle and loaded must be detected
/// within 100 ms.
pub const INTERVAL: Nanos = Nanos::from_millis(10);
/// Time without a packet after which a core counts as idle, if its packets are counted. It counts as loaded as soon as
/// it receives a packet.
const IDLE_AFTER: Nanos = Nanos::from_millis(30);

/// One observation of a core by a sensor. Unless stated otherwise, counters are totals since an arbitrary start; a
/// total that decreases is treated as reset.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CoreSeen {
    /// Packets received by the core (total). `None` if they are not counted.
    pub packets: Option<u64>,
    /// Packets lost because the core did not fetch them in time (total). `None` if they are not counted.
    pub lost: Option<u64>,
    /// Time that the polling loop spent on useful work, as the loop itself reports it (total). `None` if the loop does
    /// not report it.
    pub busy: Option<Nanos>,
    /// Number of polls of the loop, and number of polls that found no packet (totals). `None` if the loop does not
    /// report them.
    pub polls: Option<(u64, u64)>,
    /// Time that the loop spent asleep or blocked (total). `None` if the loop does not report it.
    pub slept: Option<Nanos>,
    /// Number of packets whose delay was measured, and number of packets that were later than the latency goal allows
    /// (totals). `None` if delays are not measured.
    pub late: Option<(u64, u64)>,
    /// Increase of the core's branch counters since the previous reading; not totals. `None` if the counters are not
    /// read.
    pub branches: Option<Branches>,
    /// Wall-clock time since midnight. `None` if no policy needs it.
    pub time_of_day: Option<Nanos>,
}

/// How the occupancy of a core is determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judge {
    /// From the busy time that the polling loop reports in [`CoreSeen::busy`].
    Loop,
    /// From the number of packets, and an upper bound of the cycles that a packet needs.
    Packets(PacketCost),
    /// From the branch counters, by DPDK's rule: a core is idle if fewer branches per million than this threshold are
    /// mispredicted.
    Threshold(u64),
    /// From the branch counters, compared with a learned signature of the idle and the loaded loop.
    Signature(Box<Signature>),
    /// Occupancy is not determined, because the policy does not need it.
    Nothing,
}

/// The frequency in force in a frequency domain (CPUs that share one frequency), and the limit on that frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InForce {
    /// The last requested frequency, lowered to `ceiling` if the request was higher.
    pub frequency: Hertz,
    /// The highest frequency that firmware and kernel allow now.
    pub ceiling: Hertz,
}

units::named! {
    /// The state of a core's load.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Phase {
        /// Nothing has been observed yet.
        Unknown = "unknown",
        /// The core has no work.
        Idle = "idle",
        /// The core has work.
        Load = "load",
        /// The sensor does not show whether the core has work.
        Unsure = "unsure",
    }
}

/// Why a frequency was chosen or kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The control loop starts with the policy's initial frequency.
    Begin,
    /// The core cannot be observed, so it gets the highest frequency.
    Blind,
    /// The occupancy is unknown, so the core gets the highest frequency.
    Unsure(Unsure),
    /// The policy chose or kept the frequency. The field says why.
    Policy(PolicyReason),
}

/// Totals for one core since its control loop started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Total time that was observed.
    pub span: Nanos,
    /// Sum of frequency in force times time in force, in hertz times nanoseconds. Divided by `span`, it gives the mean
    /// frequency.
    pub hertz_nanos: u128,
    /// Time for which the core's occupancy was known.
    pub known: Nanos,
    /// Time spent on useful work while the occupancy was known (see `known`).
    pub useful: Nanos,
    /// Packets received. `None` if they are not counted.
    pub packets: Option<u64>,
    /// Number of packets whose delay was measured, and how many of these packets were late. `None` if delays are not
    /// measured.
    pub late: Option<Late>,
    /// Number of times that the core's policy requested another frequency.
    pub wishes: u64,
}

impl Figures {
    /// Mean frequency in force, weighted by time. `None` before the first observation.
    pub fn mean_frequency(&self) -> Option<Hertz> {
        let span = u128::from(self.span.as_nanos());
        u64::try_from(self.hertz_nanos.checked_div(span)?).ok().map(Hertz::new)
    }

    /// The increase of the totals after `then`, an earlier copy of them.
    pub fn since(&self, then: &Self) -> Self {
        let late = |now: Late| {
            let then = then.late.unwrap_or_default();
            Late { judged: now.judged.saturating_sub(then.judged), late: now.late.saturating_sub(then.late) }
        };
        Self {
            span: self.span.saturating_sub(then.span),
            hertz_nanos: self.hertz_nanos.saturating_sub(then.hertz_nanos),
            known: self.known.saturating_sub(then.known),
            useful: self.useful.saturating_sub(then.useful),
            packets: self.packets.map(|now| now.saturating_sub(then.packets.unwrap_or(0))),
            late: self.late.map(late),
            wishes: self.wishes.saturating_sub(then.wishes),
        }
    }

    /// Share of the time spent on useful work, in ppm of the time for which the occupancy was known. `None` if the
    /// occupancy was never known.
    pub fn busy_ppm(&self) -> Option<u64> {
        let known = u128::from(self.known.as_nanos());
        u64::try_from((u128::from(self.useful.as_nanos()) * 1_000_000).checked_div(known)?).ok()
    }
}

/// The controller of one core, which chooses the core's frequency by a policy.
#[derive(Clone, Debug)]
pub struct Pace<C> {
    policy: Outside<C>,
    judge: Judge,
    in_force: InForce,
    before: Option<(Instant<C>, CoreSeen)>,
    occupancy: Option<Occupancy>,
    phase: Phase,
    /// Time of the first of the latest readings that all showed neither packets nor useful work. `None` while the core
    /// has work.
    quiet: Option<Instant<C>>,
    is_safe: bool,
    figures: Figures,
}

impl<C> Pace<C> {
    /// Creates a controller that follows `policy`. `judge` determines the core's occupancy; `in_force` is the frequency
    /// at the start.
    pub fn new(policy: Outside<C>, judge: Judge, in_force: InForce) -> Self {
        let figures = Figures {
            span: Nanos::ZERO,
            hertz_nanos: 0,
            known: Nanos::ZERO,
            useful: Nanos::ZERO,
            packets: None,
            late: None,
            wishes: 0,
        };
        let (before, occupancy, phase, quiet) = (None, None, Phase::Unknown, None);
        Self { policy, judge, in_force, before, occupancy, phase, quiet, is_safe: false, figures }
    }

    /// The frequency in force, as last reported by the actuator.
    pub fn in_force(&self) -> InForce {
        self.in_force
    }

    /// The frequency that the policy requests for this core. A core that shares its frequency with others may run
    /// faster.
    pub fn wish(&self) -> Hertz {
        self.policy.requested()
    }

    /// The state of the core's load.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Occupancy between the last two readings. `None` before the second reading.
    pub fn occupancy(&self) -> Option<Occupancy> {
        self.occupancy
    }

    /// Totals since the control loop started.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// How the core's occupancy is determined, including what was learned so far.
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    /// The goal policy. `None` if the core follows another policy.
    pub fn goal(&self) -> Option<&Goal<C>> {
        match &self.policy {
            Outside::Goal(goal) => Some(goal),
            _ => None,
        }
    }

    fn judge_span(
        &mut self,
        span: Nanos,
        packets: Option<u64>,
        lost: u64,
        seen: &CoreSeen,
        was: &CoreSeen,
    ) -> Occupancy {
        let running = self.in_force.frequency;
        match &mut self.judge {
            Judge::Loop => match grown(seen.busy.map(Nanos::as_nanos), was.busy.map(Nanos::as_nanos)) {
                Some(busy) => {
                    let share = u128::from(busy) * 1_000_000 / u128::from(span.as_nanos().max(1));
                    Occupancy::Share(u32::try_from(share).unwrap_or(1_000_000).min(1_000_000))
                }
                None => Occupancy::Unsure(Unsure::Silent),
            },
            Judge::Packets(cost) => match packets {
                Some(packets) => cost.observe(running, span, packets, lost),
                None => Occupancy::Unsure(Unsure::Silent),
            },
            Judge::Threshold(ppm) => match &seen.branches {
                Some(seen) => branches::threshold(seen, *ppm),
                None => Occupancy::Unsure(Unsure::Uncounted),
            },
            Judge::Signature(signature) => match &seen.branches {
                Some(seen) => signature.occupancy(seen),
                None => Occupancy::Unsure(Unsure::Uncounted),
            },
            Judge::Nothing => Occupancy::Unsure(Unsure::Silent),
        }
    }

    /// Determines the state of the load: from packets if they are counted, otherwise from the occupancy.
    fn note_phase(&mut self, now: Instant<C>, packets: Option<u64>, occupancy: Occupancy) {
        let works = match (packets, occupancy) {
            (Some(packets), _) => Some(packets > 0),
            (None, Occupancy::Share(share)) => Some(share > 0),
            (None, Occupancy::Unsure(_)) => None,
        };
        self.phase = match works {
            None if self.judge == Judge::Nothing => Phase::Unknown,
            None => Phase::Unsure,
            Some(true) => {
                self.quiet = None;
                Phase::Load
            }
            Some(false) => {
                let quiet = *self.quiet.get_or_insert(now);
                if now.since(quiet).is_some_and(|since| since >= IDLE_AFTER) { Phase::Idle } else { self.phase }
            }
        };
    }
}

/// Increase of a total from `then` to `now`. `None` if one of the readings is missing, or if the total was reset.
fn grown(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    now?.checked_sub(then?)
}

impl<C> Controller<C> for Pace<C> {
    type Seen = CoreSeen;
    type Setting = Hertz;
    type InForce = InForce;
    type Reason = Reason;

    fn interval(&self) -> Nanos {
        INTERVAL
    }

    fn first(&self) -> Option<Decision<Hertz, Reason>> {
        Some(Decision { apply: Some(self.policy.requested()), reason: Reason::Begin })
    }

    fn decide(&mut self, now: Instant<C>, reading: &Reading<CoreSeen, C>) -> Decision<Hertz, Reason> {
        let seen = reading.seen;
        let Some((then, was)) = self.before.replace((reading.taken, seen)) else {
            return Decision { apply: None, reason: Reason::Policy(PolicyReason::Measuring) };
        };
        let span = reading.taken.since(then).unwrap_or(Nanos::ZERO);
        if std::mem::take(&mut self.is_safe) {
            return Decision { apply: Some(self.policy.requested()), reason: Reason::Begin };
        }
        if span == Nanos::ZERO {
            self.before = Some((then, was));
            return Decision { apply: None, reason: Reason::Policy(PolicyReason::Measuring) };
        }
        let packets = grown(seen.packets, was.packets);
        let lost = grown(seen.lost, was.lost).unwrap_or(0);
        let occupancy = self.judge_span(span, packets, lost, &seen, &was);
        self.occupancy = Some(occupancy);
        self.note_phase(now, packets, occupancy);
        let polls = seen
            .polls
            .zip(was.polls)
            .and_then(|(now, then)| Some(Polls { all: now.0.checked_sub(then.0)?, empty: now.1.checked_sub(then.1)? }));
        let late = seen.late.zip(was.late).and_then(|(now, then)| {
            Some(Late { judged: now.0.checked_sub(then.0)?, late: now.1.checked_sub(then.1)? })
        });
        let slept = grown(seen.slept.map(Nanos::as_nanos), was.slept.map(Nanos::as_nanos)).map(Nanos::from_nanos);
        let figures = &mut self.figures;
        figures.span += span;
        figures.hertz_nanos += u128::from(self.in_force.frequency.as_hertz()) * u128::from(span.as_nanos());
        if let Occupancy::Share(share) = occupancy {
            figures.known += span;
            figures.useful += span.scale(u64::from(share), 1_000_000);
        }
        if let Some(packets) = packets {
            *figures.packets.get_or_insert(0) += packets;
        }
        if let Some(late) = late {
            let all = figures.late.get_or_insert_default();
            all.judged += late.judged;
            all.late += late.late;
        }
        let sample = Sample {
            now,
            span,
            running: self.in_force.frequency,
            occupancy,
            packets,
            polls,
            slept,
            late,
            time_of_day: seen.time_of_day,
        };
        let decided = self.policy.decide(&sample);
        let reason = match (decided.reason, occupancy) {
            (PolicyReason::Unsure, Occupancy::Unsure(why)) => Reason::Unsure(why),
            (reason, _) => Reason::Policy(reason),
        };
        self.figures.wishes += u64::from(decided.request.is_some());
        Decision { apply: decided.request, reason }
    }

    fn acted(&mut self, now: Instant<C>, wanted: &Hertz, acted: &Acted<InForce>) {
        match acted {
            Acted::InForce => self.in_force.frequency = *wanted,
            Acted::Rounded { now: in_force, .. } => self.shifted(now, in_force),
            Acted::Later { .. } | Acted::Ignored { .. } | Acted::Refused { .. } | Acted::Away(_) | Acted::Lost(_) => {}
        }
    }

    fn shifted(&mut self, now: Instant<C>, in_force: &InForce) {
        self.in_force = *in_force;
        self.policy.granted(now, in_force.ceiling);
    }

    fn safe(&mut self) -> Option<Decision<Hertz, Reason>> {
        self.is_safe = true;
        Some(Decision { apply: Some(self.in_force.ceiling), reason: Reason::Blind })
    }
}

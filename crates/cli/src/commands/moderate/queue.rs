//! A receive queue while it is steered, and what is told of it.

use std::io::Write as _;

use policy::Goal;
use policy::moderation::{Profile, Reason as PolicyReason};
use steer::moderation::watched::Watched;
use steer::moderation::{Figures, Moderate as Controller, Reason};
use steer::{Acted, Actuator, Lost, Machine, Poll, Step};
use units::{Instant, Monotonic, Nanos};

use super::Any;
use crate::documents::moderate::{Queue as Document, Verdict};
use crate::terminal;

/// Applies nothing, and says that it did: what a policy would do.
#[derive(Debug)]
pub(super) struct Dry;

impl Actuator<Monotonic> for Dry {
    type Setting = Profile;

    fn set(&mut self, _: Instant<Monotonic>, _: &Profile) -> Acted<Profile> {
        Acted::InForce
    }

    fn look(&mut self, _: Instant<Monotonic>) -> Acted<Profile> {
        Acted::InForce
    }

    fn lost(&mut self) -> Option<Lost> {
        None
    }
}

/// A queue and its loop.
pub(super) struct Queue {
    interface: String,
    queue: u32,
    napi: u32,
    machine: Machine<Monotonic, Watched, Controller<Monotonic>, Any>,
    /// Whether changes are printed as they happen.
    aloud: bool,
    reason: Reason,
    changes: u64,
    trouble: Option<String>,
}

impl Queue {
    pub(super) fn new(
        interface: String,
        queue: u32,
        napi: u32,
        machine: Machine<Monotonic, Watched, Controller<Monotonic>, Any>,
        aloud: bool,
    ) -> Self {
        Self { interface, queue, napi, machine, aloud, reason: Reason::Begin, changes: 0, trouble: None }
    }

    /// What became of it.
    pub(super) fn ended(self, goal: Goal) -> Document {
        let controller = self.machine.controller();
        let (timer, figures) = (bound(controller.in_force()), controller.figures());
        let of = |get: fn(&Figures) -> u64| figures.as_ref().map(get);
        let after = figures.and_then(|figures| figures.after);
        let verdict = match after {
            None => Verdict::Unmeasured,
            Some(after) if timer + after <= goal.latency => Verdict::Held,
            Some(_) => Verdict::Missed,
        };
        Document {
            timer_ns: timer.as_nanos(),
            reason: because(self.reason).to_owned(),
            changes: self.changes,
            trouble: self.trouble,
            lost: self.machine.lost().map(ToString::to_string),
            span_ns: of(|figures| figures.span.as_nanos()),
            packets: of(|figures| figures.packets),
            polls: figures.and_then(|figures| figures.polls),
            arrival_to_reception_bound_ns: timer.as_nanos(),
            reception_to_read_ns: after.map(Nanos::as_nanos),
            measured: of(|figures| figures.measured),
            verdict: verdict.into(),
            interface: self.interface,
            queue: self.queue,
            napi: self.napi,
        }
    }

    fn tell(&self, text: &str) {
        if self.aloud {
            // A reader that has gone does not end the steering.
            let _ = writeln!(terminal::out(), "{} queue {}: {}", self.interface, self.queue, terminal::line(text));
        }
    }

    fn acted(&mut self, wanted: Profile, acted: &Acted<Profile>) {
        self.changes += 1;
        let trouble = match acted {
            Acted::InForce | Acted::Later { .. } => None,
            Acted::Rounded { now, why } => Some(with(format!("the timer is {} instead", timer(*now)), why.as_deref())),
            Acted::Ignored { why } => Some(with("the setting had no effect".into(), why.as_deref())),
            Acted::Refused { why } => Some(format!("refused: {}", why.replace('\n', "; "))),
            Acted::Lost(lost) => Some(lost.to_string()),
        };
        let measured = match self.machine.controller().figures() {
            Some(Figures { after: Some(after), packets, .. }) => {
                format!("; {packets} packets a second, reception to read {after}")
            }
            _ => String::new(),
        };
        let told = trouble.as_ref().map_or(String::new(), |trouble| format!("; {trouble}"));
        self.tell(&format!("timer {} ({}{measured}){told}", timer(wanted), because(self.reason)));
        self.trouble = trouble;
    }
}

fn with(text: String, why: Option<&str>) -> String {
    match why {
        None => text,
        Some(why) => format!("{text}: {why}"),
    }
}

/// The longest time for which a profile holds a packet back.
fn bound(profile: Profile) -> Nanos {
    profile.timer().unwrap_or(Nanos::ZERO)
}

fn timer(profile: Profile) -> String {
    profile.timer().map_or_else(|| "off".to_owned(), |timer| timer.to_string())
}

/// The reason, for people.
fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Begin => "the first setting",
        Reason::Blind => "nothing is seen, so nothing is held back",
        Reason::Policy(reason) => match reason {
            PolicyReason::Fixed => "fixed",
            PolicyReason::Applying => "being set",
            PolicyReason::Measuring => "measuring",
            PolicyReason::Steady => "the goal is used up",
            PolicyReason::Rates => "the rates have changed",
            PolicyReason::Budget => "the goal leaves room",
            PolicyReason::Late => "packets were later than the goal allows",
            PolicyReason::LossBound => "the ring would overflow",
            PolicyReason::NoSaving => "packets come alone, so a timer saves nothing",
            PolicyReason::Burst => "the rate has risen",
            PolicyReason::Probe => "tried again",
            PolicyReason::GoalTooTight => "the application is late without any timer",
        },
    }
}

impl Poll<Monotonic> for Queue {
    fn poll(&mut self, now: Instant<Monotonic>) {
        match self.machine.poll(now) {
            Step::NotDue => {}
            Step::Kept { reason: Reason::Policy(PolicyReason::Measuring | PolicyReason::Applying) } => {}
            Step::Kept { reason } => self.reason = reason,
            Step::Applied { wanted, reason, acted } => {
                self.reason = reason;
                self.acted(wanted, &acted);
            }
            Step::Arrived { wanted, acted } => self.acted(wanted, &acted),
            Step::Blind { why } => {
                let why = why.to_string();
                if self.trouble.as_ref() != Some(&why) {
                    self.tell(&why);
                    self.trouble = Some(why);
                }
            }
            Step::Lost(lost) => self.tell(&format!("no longer steered: {lost}")),
        }
    }

    fn poll_at(&self) -> Option<Instant<Monotonic>> {
        self.machine.poll_at()
    }
}

//! A controlled receive queue, and the messages about it.

use host::knob::{Access, interface_name};
use policy::moderation::{Profile, Reason as PolicyReason};
use steer::moderation::watched::{Queue as Watch, Watched};
use steer::moderation::{Figures, Moderate as Controller, Reason, Wish};
use steer::{Acted, Actuator, Lost, Machine, Poll, Standing, Step};
use units::{Instant, Monotonic, Nanos};

use super::interface::Options;
use super::note;
use super::record::Recorder;
use super::verdict::{Verdicts, judge};
use crate::args::moderate::Policy;
use crate::documents::moderate::Queue as Document;
use crate::terminal;

pub(super) type Any = Box<dyn Actuator<Monotonic, Setting = Wish, InForce = Profile>>;

/// The actuator of a dry run: applies nothing, and reports every setting as applied.
#[derive(Debug)]
pub(super) struct Dry {
    access: Access,
    /// Index of the interface. `None` if it is not known.
    index: Option<u32>,
}

impl Dry {
    pub(super) fn new(access: &Access, index: Option<u32>) -> Self {
        Self { access: access.clone(), index }
    }
}

impl Actuator<Monotonic> for Dry {
    type Setting = Wish;
    type InForce = Profile;

    fn set(&mut self, _: Instant<Monotonic>, _: &Wish) -> Acted<Profile> {
        Acted::InForce
    }

    fn look(&mut self, _: Instant<Monotonic>) -> Acted<Profile> {
        Acted::InForce
    }

    fn stands(&mut self) -> Standing {
        match self.index {
            Some(index) if interface_name(&self.access, index).is_none() => Standing::Lost(Lost::Gone),
            _ => Standing::AsLeft,
        }
    }
}

/// A queue and its loop.
pub(super) struct Queue {
    watch: Watch,
    /// The queue's index in the shared measurements.
    place: usize,
    policy: Policy,
    machine: Machine<Monotonic, Watched, Controller<Monotonic>, Any>,
    aloud: bool,
    dry_run: bool,
    reason: Reason,
    /// The profile that was requested last.
    asked: Option<Profile>,
    changes: u64,
    trouble: Option<String>,
    recorder: Option<Recorder>,
}

impl Queue {
    pub(super) fn new(
        watch: Watch,
        place: usize,
        policy: Policy,
        machine: Machine<Monotonic, Watched, Controller<Monotonic>, Any>,
        options: Options<'_>,
        recorder: Option<Recorder>,
    ) -> Self {
        Self {
            watch,
            place,
            policy,
            machine,
            aloud: options.aloud,
            dry_run: options.dry_run,
            reason: Reason::Begin,
            asked: None,
            changes: 0,
            trouble: None,
            recorder,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.watch.queue
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn is_lost(&self) -> bool {
        self.machine.lost().is_some()
    }

    /// Whether the driver refused the timer of a fixed policy. Other policies go on with what the driver accepts, and
    /// are judged by their goal.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.policy, Policy::Static(_)) && self.machine.actuator().is_refused()
    }

    pub(super) fn is_shared(&self) -> bool {
        self.machine.controller().is_shared()
    }

    /// The profile in force, as far as known.
    pub(super) fn in_force(&self) -> Profile {
        self.machine.controller().in_force()
    }

    /// Switches to another policy.
    pub(super) fn control_by(&mut self, policy: Policy, controller: Controller<Monotonic>, recorder: Option<Recorder>) {
        self.policy = policy;
        self.recorder = recorder;
        self.machine.control_by(controller);
    }

    /// The results so far.
    pub(super) fn document(&self, napi: Option<u32>) -> Document {
        let controller = self.machine.controller();
        let (timer, figures) = (timer_of(controller.in_force()), controller.figures());
        let of = |get: fn(&Figures) -> u64| figures.as_ref().map(get);
        let Verdicts { verdict, why } = judge(controller, self.is_lost(), self.dry_run);
        let lateness = controller.lateness();
        Document {
            interface: self.watch.interface.clone(),
            queue: self.watch.queue,
            napi,
            policy: self.policy.to_string(),
            goal: controller.goal().to_string(),
            goal_latency_ns: controller.goal().latency.as_nanos(),
            timer_ns: timer.as_nanos(),
            reason: because(self.reason).to_owned(),
            changes: self.changes,
            trouble: self.trouble.clone(),
            lost: self.machine.lost().map(ToString::to_string),
            span_ns: of(|figures| figures.span.as_nanos()),
            packets: of(|figures| figures.packets),
            polls: figures.and_then(|figures| figures.polls),
            full_polls: figures.and_then(|figures| figures.full_polls),
            arrival_to_reception_bound_ns: controller.bound().map(Nanos::as_nanos),
            reception_to_read_ns: figures.and_then(|figures| figures.after).map(Nanos::as_nanos),
            measured: of(|figures| figures.measured),
            judged: lateness.packets,
            late: lateness.late,
            verdict: verdict.into(),
            why_unmeasured: why,
        }
    }

    fn tell(&self, text: &str) {
        if self.aloud {
            let Watch { interface, queue, .. } = &self.watch;
            terminal::aside::print(format!("{interface} queue {queue}: {}", terminal::line(text)));
        }
    }

    fn acted(&mut self, wanted: Wish, acted: &Acted<Profile>) {
        let trouble = match acted {
            Acted::InForce | Acted::Later { .. } => None,
            Acted::Rounded { now, why } => Some(with(format!("the timer is {} instead", timer(*now)), why.as_deref())),
            Acted::Ignored { why } => Some(with("the setting had no effect".into(), why.as_deref())),
            Acted::Refused { why } => Some(format!("refused: {}", why.replace('\n', "; "))),
            Acted::Away(away) => Some(away.to_string()),
            Acted::Lost(lost) => Some(lost.to_string()),
        };
        // Reports only changes that this queue requested, not a shared timer that another queue demands.
        if self.asked.replace(wanted.profile) != Some(wanted.profile) || trouble != self.trouble {
            self.changes += 1;
            let measured = match self.machine.controller().figures() {
                Some(Figures { after: Some(after), packets, .. }) => {
                    format!("; {packets} packets/s, {after} from reception to read")
                }
                _ => String::new(),
            };
            let told = trouble.as_ref().map_or(String::new(), |trouble| format!("; {trouble}"));
            self.tell(&format!("timer {} ({}{measured}){told}", timer(wanted.profile), because(self.reason)));
        }
        self.trouble = trouble;
    }

    /// Prints a problem, unless it was the last one printed.
    fn in_trouble(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            self.tell(&why);
            self.trouble = Some(why);
        }
    }
}

fn with(text: String, why: Option<&str>) -> String {
    match why {
        None => text,
        Some(why) => format!("{text}: {why}"),
    }
}

/// How long the interrupt can be delayed after a packet.
fn timer_of(profile: Profile) -> Nanos {
    profile.timer().unwrap_or(Nanos::ZERO)
}

fn timer(profile: Profile) -> String {
    profile.timer().map_or_else(|| "off".to_owned(), |timer| timer.to_string())
}

/// The reason for a decision, in words.
fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Begin => "initial setting",
        Reason::Blind => "no measurements, so packets are not delayed",
        Reason::Unmeasured => "fixed, not measured",
        Reason::Policy(reason) => match reason {
            PolicyReason::Fixed => "fixed",
            PolicyReason::Applying => "being set",
            PolicyReason::Measuring => "measuring",
            PolicyReason::Steady => "no change needed",
            PolicyReason::Rates => "packet rates have changed",
            PolicyReason::Budget => "the goal allows a longer time",
            PolicyReason::Late => "too many packets were late",
            PolicyReason::LossBound => "a longer time could overflow the ring",
            PolicyReason::NoSaving => "a timer would save hardly any polls",
            PolicyReason::Burst => "the packet rate has risen",
            PolicyReason::Probe => "trying a timer again",
            PolicyReason::GoalTooTight => "packets miss the goal even without a timer",
        },
    }
}

impl Poll<Monotonic> for Queue {
    fn poll(&mut self, now: Instant<Monotonic>) {
        let step = self.machine.poll(now);
        if let (Some(recorder), Some(call)) = (&mut self.recorder, self.machine.controller().call())
            && !matches!(step, Step::NotDue)
            && let Some(failed) = recorder.add(call)
        {
            note(&failed);
        }
        match step {
            Step::NotDue => {}
            Step::Kept { reason: Reason::Policy(PolicyReason::Measuring | PolicyReason::Applying) } => {}
            Step::Kept { reason } => self.reason = reason,
            Step::Applied { wanted, reason, acted } => {
                self.reason = reason;
                self.acted(wanted, &acted);
            }
            Step::Arrived { wanted, acted } => self.acted(wanted, &acted),
            Step::Blind { why } => self.in_trouble(why.to_string()),
            Step::Away(why) => self.in_trouble(why.to_string()),
            Step::Lost(lost) => self.tell(&format!("no longer controlled: {lost}")),
        }
    }

    fn poll_at(&self) -> Option<Instant<Monotonic>> {
        self.machine.poll_at()
    }
}

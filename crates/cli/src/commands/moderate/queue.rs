//! A controlled receive queue, and the messages about it.

use host::knob::{Access, interface_name};
use policy::moderation::{Profile, Reason as PolicyReason};
use steer::moderation::watched::Queue as Watch;
use steer::moderation::{Figures, Moderate as Controller, QueueSeen, Reason, Wish};
use steer::{Acted, Actuator, Lost, Machine, Poll, Sensor, Standing, Step};
use units::{Instant, Monotonic, Nanos};

use super::interface::Options;
use super::note;
use super::record::Recorder;
use super::verdict::{Verdicts, judge};
use crate::args::moderate::Policy;
use crate::documents::moderate::Queue as Document;
use crate::terminal;

pub(super) type Eye = Box<dyn Sensor<Monotonic, Seen = QueueSeen>>;
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
    machine: Machine<Monotonic, Eye, Controller<Monotonic>, Any>,
    aloud: bool,
    dry_run: bool,
    reason: Reason,
    /// The profile that was requested last.
    asked: Option<Profile>,
    changes: u64,
    /// What the machine did with the last request, if it did not put it in force as it was.
    trouble: Option<String>,
    /// Why the queue cannot be observed now. `None` while it is observed.
    blind: Option<String>,
    recorder: Option<Recorder>,
}

impl Queue {
    pub(super) fn new(
        watch: Watch,
        place: usize,
        policy: Policy,
        machine: Machine<Monotonic, Eye, Controller<Monotonic>, Any>,
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
            blind: None,
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

    /// Checks once more, before the end, whether somebody else has changed the setting.
    pub(super) fn last_look(&mut self) {
        if let Some(lost) = self.machine.last_look() {
            self.tell(&format!("no longer controlled: {lost}"));
        }
    }

    /// Switches to another policy.
    pub(super) fn control_by(&mut self, policy: Policy, controller: Controller<Monotonic>, recorder: Option<Recorder>) {
        self.policy = policy;
        self.recorder = recorder;
        self.machine.control_by(controller);
    }

    /// The results so far. `unmeasured` says why the queue's delays cannot be measured; `None` if they can.
    pub(super) fn document(&self, napi: Option<u32>, unmeasured: Option<String>) -> Document {
        let controller = self.machine.controller();
        // Those of the last full second are out of date if the queue cannot be observed now.
        let figures = controller.figures().filter(|_| self.machine.sees());
        let timer = timer_of(controller.in_force());
        let of = |get: fn(&Figures) -> u64| figures.as_ref().map(get);
        let Verdicts { verdict, why } = judge(controller, self.is_lost(), self.dry_run, unmeasured);
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
            trouble: self.blind.clone().or_else(|| self.trouble.clone()),
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
                Some(Figures { after: Some(after), packets, span, .. }) => {
                    let per_second = packets as f64 * 1e9 / span.as_nanos().max(1) as f64;
                    format!("; {per_second:.0} packets/s, {after} from reception to read")
                }
                _ => String::new(),
            };
            let told = trouble.as_ref().map_or(String::new(), |trouble| format!("; {trouble}"));
            self.tell(&format!("timer {} ({}{measured}){told}", timer(wanted.profile), because(self.reason)));
        }
        self.trouble = trouble;
    }

    /// Prints that the setting is not available, unless that was printed before.
    fn away(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            self.tell(&why);
            self.trouble = Some(why);
        }
    }

    /// Prints why the queue cannot be observed, unless that was printed before.
    fn blind(&mut self, why: String) {
        if self.blind.as_ref() != Some(&why) {
            self.tell(&why);
            self.blind = Some(why);
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
        // Without an observation, the safe setting is applied, but the reason stays.
        if self.machine.sees() || !matches!(step, Step::NotDue | Step::Blind { .. } | Step::Applied { .. }) {
            self.blind = None;
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
            Step::Blind { why } => self.blind(why.to_string()),
            Step::Away(why) => self.away(why.to_string()),
            Step::Lost(lost) => self.tell(&format!("no longer controlled: {lost}")),
        }
    }

    fn poll_at(&self) -> Option<Instant<Monotonic>> {
        self.machine.poll_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::moderation::{Delays, Moderation, Static};
    use std::cell::RefCell;
    use std::rc::Rc;
    use steer::moderation::watched::Beside;
    use steer::{Away, Blind, Reading};

    /// What the sensor and the setting of a queue answer.
    #[derive(Clone, Default)]
    struct World(Rc<RefCell<(Option<&'static str>, Option<&'static str>)>>);

    impl Sensor<Monotonic> for World {
        type Seen = QueueSeen;
        fn read(&mut self, now: Instant<Monotonic>) -> Result<Reading<QueueSeen, Monotonic>, Blind> {
            if let Some(why) = self.0.borrow().0 {
                return Err(Blind(why.into()));
            }
            let packets = Some(now.as_nanos() / 1_000_000);
            let (shortest, longest) = (Nanos::from_micros(5), Nanos::from_micros(10));
            let after = Some(vec![Delays { packets: 5, shortest, longest }]);
            let beside = Some(Nanos::ZERO);
            let seen = QueueSeen { packets, bytes: packets, polls: packets, full_polls: Some(0), after, beside };
            Ok(Reading { taken: now, seen })
        }
    }

    impl Actuator<Monotonic> for World {
        type Setting = Wish;
        type InForce = Profile;
        fn set(&mut self, _: Instant<Monotonic>, _: &Wish) -> Acted<Profile> {
            Acted::InForce
        }
        fn look(&mut self, _: Instant<Monotonic>) -> Acted<Profile> {
            Acted::InForce
        }
        fn stands(&mut self) -> Standing {
            self.0.borrow().1.map_or(Standing::AsLeft, |why| Standing::Away(Away(why.into())))
        }
    }

    /// Polls the queue until `ms` milliseconds.
    fn until(queue: &mut Queue, ms: u64) -> Document {
        while let Some(at) = Poll::poll_at(queue).filter(|at| at.as_nanos() < ms * 1_000_000) {
            Poll::poll(queue, at);
        }
        queue.document(None, None)
    }

    fn queue(world: &World) -> Queue {
        let fixed = Profile::eqe(50, 0);
        let controller =
            Controller::new(Moderation::Static(Static::new(fixed)), "p99=100us".parse().unwrap(), fixed, false);
        let (eye, hand): (Eye, Any) = (Box::new(world.clone()), Box::new(world.clone()));
        let watch = Watch { interface: "x".into(), queue: 0, napi: None, beside: Beside::Nothing };
        let access = Access::live().unwrap();
        let options = Options { access: &access, dry_run: false, aloud: false, record: None };
        Queue::new(watch, 0, Policy::Static(fixed), Machine::new(eye, controller, hand), options, None)
    }

    /// Regression test: after an observation that failed once, its reason stayed, for a fixed timer until the end.
    #[test]
    fn trouble_ends_with_the_first_observation() {
        let world = World::default();
        let mut queue = queue(&world);
        assert_eq!(until(&mut queue, 500).trouble, None);
        world.0.borrow_mut().0 = Some("no instance");
        assert_eq!(until(&mut queue, 600).trouble.as_deref(), Some("no instance"));
        world.0.borrow_mut().0 = None;
        assert_eq!(until(&mut queue, 700).trouble, None);
        // For longer, it has the safe setting, and the reason stays.
        world.0.borrow_mut().0 = Some("no instance");
        let document = until(&mut queue, 2_500);
        assert_eq!((document.timer_ns, document.trouble.as_deref()), (0, Some("no instance")));
        world.0.borrow_mut().0 = None;
        let document = until(&mut queue, 2_600);
        assert_eq!((document.timer_ns, document.trouble), (50_000, None));
    }

    /// Regression test: a queue whose interface was down for hours still had the rates of its last second.
    #[test]
    fn a_queue_that_is_not_observed_has_no_rates() {
        let world = World::default();
        let mut queue = queue(&world);
        let is_known = |document: &Document| {
            let Document { span_ns, packets, polls, reception_to_read_ns, .. } = document;
            let all = [span_ns, packets, polls, reception_to_read_ns].map(Option::is_some);
            assert!(all == [true; 4] || all == [false; 4], "{document:?}");
            all[0]
        };
        assert!(is_known(&until(&mut queue, 2_500)));
        world.0.borrow_mut().1 = Some("the interface is down");
        let document = until(&mut queue, 5_500);
        assert!(!is_known(&document) && document.judged > 0, "{document:?}");
        assert_eq!(document.trouble.as_deref(), Some("the interface is down"));
        world.0.borrow_mut().1 = None;
        assert!(is_known(&until(&mut queue, 8_500)));
    }
}

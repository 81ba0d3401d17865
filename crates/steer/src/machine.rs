//! The state machine of every control loop.
//!
//! ```text
//!   (begin) ──► WATCHING ── due: read, decide ──► keep ──┐
//!                ▲    ▲ └──────────────────────◄─────────┘
//!                │    │        apply
//!                │    │          ├── in force, rounded, ignored ──► WATCHING
//!                │    │          ├── late ──► APPLYING ── look ──► the same ways
//!                │    │          ├── refused ──► WATCHING, the setting is asked for again after 1 s, 2 s ... 64 s
//!                │    │          ├── away ──► AWAY ── back: the last setting is applied again ──► the same ways
//!                │    │          └── theirs, gone ──► LOST (the end)
//!                │    └─ sees again
//!                └── blind: keeps what is in force for 1 s, then applies the safe setting (again if it is refused)
//! ```

use std::ops::ControlFlow;

use units::{Instant, Nanos};

use crate::seam::{Acted, Actuator, Away, Blind, Controller, Decision, Lost, Sensor, Standing};

/// How long the setting in force is kept after the sensor has failed.
const BLIND_FOR: Nanos = Nanos::from_secs(1);
/// Time from a refusal to the next attempt. It doubles with each further refusal of the same setting, up to
/// `LONGEST_PATIENCE`.
const SHORTEST_PATIENCE: Nanos = Nanos::from_secs(1);
/// Maximum time from a refusal to the next attempt.
const LONGEST_PATIENCE: Nanos = Nanos::from_secs(64);

/// Interval between two checks whether something other than Apus has changed the setting. Each check costs a system
/// call. Every change of the setting starts with such a check anyway.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// A control loop: reads its sensor periodically, asks its controller for a decision, and applies the decision through
/// its actuator.
#[derive(Debug)]
pub struct Machine<C, S, P, A>
where
    P: Controller<C>,
{
    sensor: S,
    controller: P,
    actuator: A,
    state: State<P::Setting, C>,
    /// Time of the next reading.
    due: Instant<C>,
    /// Time of the next check whether something other than Apus has changed the setting, or whether the setting is
    /// gone.
    look: Instant<C>,
    /// When the sensor began to fail, and whether the safe setting has been applied for that reason. `None` while the
    /// sensor works.
    blind: Option<(Instant<C>, bool)>,
    /// The last setting, if it was refused and must be tried again.
    refused: Option<Refused<P, C>>,
    /// The last setting passed to the actuator. It is applied again if the setting was unavailable for a time.
    wanted: Option<Decision<P::Setting, P::Reason>>,
    begun: bool,
}

#[derive(Debug)]
enum State<T, C> {
    Watching,
    Applying { wanted: T, at: Instant<C> },
    Away,
    Lost(Lost),
}

#[derive(Debug)]
struct Refused<P: Controller<C>, C> {
    wanted: Decision<P::Setting, P::Reason>,
    again: Instant<C>,
    patience: Nanos,
}

/// What a control loop did in one poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<T, F, R> {
    /// The poll came too early: nothing was due.
    NotDue,
    /// The controller decided to keep the setting in force.
    Kept {
        /// Why the setting was kept.
        reason: R,
    },
    /// The controller decided on a setting, which was passed to the actuator.
    Applied {
        /// The requested setting.
        wanted: T,
        /// Why the setting was chosen.
        reason: R,
        /// The outcome of applying the requested setting.
        acted: Acted<F>,
    },
    /// The actuator reports on a setting that was still being applied at the last poll. It may still be:
    /// [`Acted::Later`].
    Arrived {
        /// The requested setting.
        wanted: T,
        /// The outcome of applying the requested setting.
        acted: Acted<F>,
    },
    /// The sensor failed, so the controller could not decide.
    Blind {
        /// Why the sensor failed.
        why: Blind,
    },
    /// The setting is not available now. The field says why.
    Away(Away),
    /// The setting can no longer be changed, and the loop has ended. The field says why.
    Lost(Lost),
}

/// The steps of a loop with a given controller.
type StepOf<P, C> = Step<<P as Controller<C>>::Setting, <P as Controller<C>>::InForce, <P as Controller<C>>::Reason>;

/// A control loop of any type, so that [`run`] can run loops of different types.
pub trait Poll<C> {
    /// Does everything that is due at `now`.
    fn poll(&mut self, now: Instant<C>);

    /// When the loop must be polled next. `None` if it has ended.
    fn poll_at(&self) -> Option<Instant<C>>;
}

impl<C, S, P, A> Machine<C, S, P, A>
where
    S: Sensor<C>,
    P: Controller<C, Seen = S::Seen>,
    A: Actuator<C, Setting = P::Setting, InForce = P::InForce>,
{
    /// Creates a control loop. It starts at the first poll.
    pub fn new(sensor: S, controller: P, actuator: A) -> Self {
        Self {
            sensor,
            controller,
            actuator,
            state: State::Watching,
            due: Instant::ORIGIN,
            look: Instant::ORIGIN,
            blind: None,
            refused: None,
            wanted: None,
            begun: false,
        }
    }

    /// When the loop must be polled next. `None` if it has ended because the setting was lost ([`Machine::lost`]).
    pub fn poll_at(&self) -> Option<Instant<C>> {
        match &self.state {
            State::Watching | State::Away => Some(self.due),
            State::Applying { at, .. } => Some(*at),
            State::Lost(_) => None,
        }
    }

    /// The controller.
    pub fn controller(&self) -> &P {
        &self.controller
    }

    /// Replaces the controller. The new controller starts with its [`Controller::first`] setting; until then the
    /// setting in force stays.
    pub fn control_by(&mut self, controller: P) {
        self.controller = controller;
        self.refused = None;
        self.wanted = None;
        self.begun = false;
    }

    /// Replaces the sensor.
    pub fn see_by(&mut self, sensor: S) {
        self.sensor = sensor;
    }

    /// The actuator.
    pub fn actuator(&self) -> &A {
        &self.actuator
    }

    /// The actuator, to tell it what it cannot see itself.
    pub fn actuator_mut(&mut self) -> &mut A {
        &mut self.actuator
    }

    /// Why the loop has ended. `None` while it runs.
    pub fn lost(&self) -> Option<&Lost> {
        match &self.state {
            State::Lost(lost) => Some(lost),
            State::Watching | State::Away | State::Applying { .. } => None,
        }
    }

    /// Whether the loop could observe the effect of its setting when it last tried. False while the sensor fails, while
    /// the setting is not available (the loop does not read then), and after the loop has ended.
    pub fn sees(&self) -> bool {
        self.blind.is_none() && matches!(self.state, State::Watching | State::Applying { .. })
    }

    /// Checks once more, before the loop is dropped, whether something other than Apus has changed the setting. Returns
    /// `Some` if the setting was lost since the last check.
    pub fn last_look(&mut self) -> Option<Lost> {
        if self.lost().is_some() {
            return None;
        }
        let Standing::Lost(lost) = self.actuator.stands() else { return None };
        self.state = State::Lost(lost.clone());
        Some(lost)
    }

    /// Does everything that is due at `now`.
    pub fn poll(&mut self, now: Instant<C>) -> StepOf<P, C> {
        match &self.state {
            State::Lost(lost) => return Step::Lost(lost.clone()),
            State::Applying { at, .. } if now < *at => return Step::NotDue,
            State::Watching | State::Away if now < self.due => return Step::NotDue,
            State::Applying { wanted, .. } => {
                let wanted = wanted.clone();
                let acted = self.actuator.look(now);
                return match self.settle(now, &wanted, None, &acted) {
                    Some(lost) => Step::Lost(lost),
                    None => Step::Arrived { wanted, acted },
                };
            }
            State::Watching | State::Away => {}
        }
        // The next reading is due one interval after now, not after the planned time: a thread that was delayed does
        // not catch up.
        self.due = now + self.controller.interval();
        if now >= self.look {
            self.look = now + LOOK_EVERY;
            if let Some(step) = self.stands(now) {
                return step;
            }
        }
        if let Some(in_force) = self.actuator.shifted() {
            self.controller.shifted(now, &in_force);
        }
        if !std::mem::replace(&mut self.begun, true)
            && let Some(first) = self.controller.first()
        {
            return self.apply(now, first);
        }
        let reading = match self.sensor.read(now) {
            Ok(reading) => reading,
            Err(why) => return self.blind(now, why),
        };
        self.blind = None;
        let decision = self.controller.decide(now, &reading);
        if decision.apply.is_some() {
            return self.apply(now, decision);
        }
        self.retry(now).unwrap_or(Step::Kept { reason: decision.reason })
    }

    /// Applies a refused setting again, if that is due.
    fn retry(&mut self, now: Instant<C>) -> Option<StepOf<P, C>> {
        let Refused { wanted, patience, .. } = self.refused.take_if(|refused| now >= refused.again)?;
        let step = self.apply(now, wanted);
        if let Some(refused) = &mut self.refused {
            refused.patience = (patience * 2).min(LONGEST_PATIENCE);
            refused.again = now + refused.patience;
        }
        Some(step)
    }

    /// Checks whether the setting still has the value that Apus wrote. Returns `Some` if this poll has nothing more to
    /// do.
    fn stands(&mut self, now: Instant<C>) -> Option<StepOf<P, C>> {
        let was_away = matches!(self.state, State::Away);
        match self.actuator.stands() {
            Standing::AsLeft if !was_away => None,
            Standing::AsLeft | Standing::Fresh => {
                self.state = State::Watching;
                let wanted = self.wanted.clone()?;
                Some(self.apply(now, wanted))
            }
            Standing::Away(away) => {
                self.be_away();
                Some(Step::Away(away))
            }
            Standing::Lost(lost) => {
                self.state = State::Lost(lost.clone());
                Some(Step::Lost(lost))
            }
        }
    }

    /// Marks the setting as unavailable until the next check.
    fn be_away(&mut self) {
        self.state = State::Away;
        self.due = self.look;
    }

    fn apply(&mut self, now: Instant<C>, decision: Decision<P::Setting, P::Reason>) -> StepOf<P, C> {
        let Decision { apply: Some(wanted), reason } = decision else {
            return Step::Kept { reason: decision.reason };
        };
        self.refused = None;
        self.wanted = Some(Decision { apply: Some(wanted.clone()), reason: reason.clone() });
        let acted = self.actuator.set(now, &wanted);
        match self.settle(now, &wanted, Some(&reason), &acted) {
            Some(lost) => Step::Lost(lost),
            None => Step::Applied { wanted, reason, acted },
        }
    }

    /// Handles the outcome of applying a setting. Returns `Some` if the setting was lost.
    fn settle(
        &mut self,
        now: Instant<C>,
        wanted: &P::Setting,
        reason: Option<&P::Reason>,
        acted: &Acted<P::InForce>,
    ) -> Option<Lost> {
        self.state = match acted {
            Acted::Later { after } => State::Applying { wanted: wanted.clone(), at: now + *after },
            Acted::Lost(lost) => State::Lost(lost.clone()),
            _ => State::Watching,
        };
        if let Acted::Away(_) = acted {
            self.be_away();
        }
        if let (Acted::Refused { .. }, Some(reason)) = (acted, reason) {
            let wanted = Decision { apply: Some(wanted.clone()), reason: reason.clone() };
            self.refused = Some(Refused { wanted, again: now + SHORTEST_PATIENCE, patience: SHORTEST_PATIENCE });
        }
        self.controller.acted(now, wanted, acted);
        match &self.state {
            State::Lost(lost) => Some(lost.clone()),
            State::Watching | State::Away | State::Applying { .. } => None,
        }
    }

    fn blind(&mut self, now: Instant<C>, why: Blind) -> StepOf<P, C> {
        let (since, done) = self.blind.get_or_insert((now, false));
        if *done {
            return self.retry(now).unwrap_or(Step::Blind { why });
        }
        if now.since(*since).is_some_and(|blind| blind >= BLIND_FOR) {
            *done = true;
            if let Some(safe) = self.controller.safe() {
                return self.apply(now, safe);
            }
        }
        Step::Blind { why }
    }
}

/// Polls each loop when it is due, until all loops have ended or `wait` breaks.
///
/// `now` reads the clock. `wait` is called before each pass with the time of the next poll, which may already have
/// passed. It waits until then, or breaks to end all loops (after a signal, or when the program ends).
pub fn run<C>(
    loops: &mut [&mut dyn Poll<C>],
    mut now: impl FnMut() -> Instant<C>,
    mut wait: impl FnMut(Instant<C>) -> ControlFlow<()>,
) {
    while let Some(next) = loops.iter().filter_map(|one| one.poll_at()).min() {
        // Call `wait` even if the poll is already due: the caller may have other work to do there.
        if wait(next).is_break() {
            return;
        }
        let now = now();
        for one in loops.iter_mut().filter(|one| one.poll_at().is_some_and(|at| at <= now)) {
            one.poll(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;
    use crate::seam::Reading;
    use units::Simulated;

    type Time = Instant<Simulated>;

    const fn at(millis: u64) -> Time {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Sensor that returns the readings that a test queued.
    #[derive(Default)]
    struct Eye(RefCell<VecDeque<Result<i32, Blind>>>);

    impl Sensor<Simulated> for &Eye {
        type Seen = i32;
        fn read(&mut self, now: Time) -> Result<Reading<i32, Simulated>, Blind> {
            let seen = self.0.borrow_mut().pop_front().unwrap_or(Ok(0))?;
            Ok(Reading { taken: now, seen })
        }
    }

    /// Controller that requests whatever it sees, unless that is 0.
    #[derive(Default)]
    struct Echo {
        acted: Vec<Acted<i32>>,
        shifted: Vec<i32>,
    }

    impl Controller<Simulated> for Echo {
        type Seen = i32;
        type Setting = i32;
        type InForce = i32;
        type Reason = &'static str;
        fn interval(&self) -> Nanos {
            Nanos::from_millis(10)
        }
        fn first(&self) -> Option<Decision<i32, &'static str>> {
            None
        }
        fn decide(&mut self, _: Time, reading: &Reading<i32, Simulated>) -> Decision<i32, &'static str> {
            Decision { apply: Some(reading.seen).filter(|seen| *seen != 0), reason: "seen" }
        }
        fn acted(&mut self, _: Time, _: &i32, acted: &Acted<i32>) {
            self.acted.push(acted.clone());
        }
        fn shifted(&mut self, _: Time, in_force: &i32) {
            self.shifted.push(*in_force);
        }
        fn safe(&mut self) -> Option<Decision<i32, &'static str>> {
            Some(Decision { apply: Some(-1), reason: "safe" })
        }
    }

    /// Actuator that returns the outcomes that a test queued.
    #[derive(Default)]
    struct Hand {
        answers: RefCell<VecDeque<Acted<i32>>>,
        set: RefCell<Vec<(u64, i32)>>,
        stands: RefCell<VecDeque<Standing>>,
        shifts: RefCell<Option<i32>>,
    }

    impl Actuator<Simulated> for &Hand {
        type Setting = i32;
        type InForce = i32;
        fn set(&mut self, now: Time, setting: &i32) -> Acted<i32> {
            self.set.borrow_mut().push((now.as_nanos() / 1_000_000, *setting));
            self.look(now)
        }
        fn look(&mut self, _: Time) -> Acted<i32> {
            self.answers.borrow_mut().pop_front().unwrap_or(Acted::InForce)
        }
        fn stands(&mut self) -> Standing {
            self.stands.borrow_mut().pop_front().unwrap_or(Standing::AsLeft)
        }
        fn shifted(&mut self) -> Option<i32> {
            self.shifts.borrow_mut().take()
        }
    }

    impl Poll<Simulated> for Machine<Simulated, &Eye, Echo, &Hand> {
        fn poll(&mut self, now: Time) {
            Machine::poll(self, now);
        }
        fn poll_at(&self) -> Option<Time> {
            Machine::poll_at(self)
        }
    }

    /// Runs the loop for `millis` of virtual time.
    fn during(machine: &mut Machine<Simulated, &Eye, Echo, &Hand>, millis: u64) {
        let time = std::cell::Cell::new(at(0));
        let wait = |until: Time| {
            time.set(until);
            if until > at(millis) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        run(&mut [machine], || time.get(), wait);
    }

    #[test]
    fn what_is_seen_is_decided_and_applied() {
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(0), Ok(5), Ok(0), Ok(6)]);
        during(&mut Machine::new(&eye, Echo::default(), &hand), 100);
        assert_eq!(*hand.set.borrow(), [(10, 5), (30, 6)]);
    }

    #[test]
    fn a_late_setting_is_looked_for_and_nothing_is_decided_meanwhile() {
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(5), Ok(6)]);
        hand.answers
            .borrow_mut()
            .extend([Acted::Later { after: Nanos::from_millis(35) }, Acted::Later { after: Nanos::from_millis(15) }]);
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        assert!(matches!(machine.poll(at(0)), Step::Applied { wanted: 5, acted: Acted::Later { .. }, .. }));
        assert_eq!(machine.poll(at(20)), Step::NotDue);
        assert_eq!(machine.poll_at(), Some(at(35)));
        machine.poll(at(35));
        assert_eq!(machine.poll(at(49)), Step::NotDue);
        assert_eq!(machine.poll(at(51)), Step::Arrived { wanted: 5, acted: Acted::InForce });
        machine.poll(at(51));
        assert_eq!(*hand.set.borrow(), [(0, 5), (51, 6)]);
        assert_eq!(machine.controller().acted.len(), 4);
    }

    #[test]
    fn a_refused_setting_is_asked_for_again_ever_more_seldom() {
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().push_back(Ok(5));
        hand.answers.borrow_mut().extend((0..4).map(|_| Acted::Refused { why: "busy".into() }));
        during(&mut Machine::new(&eye, Echo::default(), &hand), 60_000);
        assert_eq!(*hand.set.borrow(), [(0, 5), (1_000, 5), (3_000, 5), (7_000, 5), (15_000, 5)]);
        // A new decision replaces the refused setting before its next attempt.
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(5), Ok(6)]);
        hand.answers.borrow_mut().push_back(Acted::Refused { why: "busy".into() });
        during(&mut Machine::new(&eye, Echo::default(), &hand), 60_000);
        assert_eq!(*hand.set.borrow(), [(0, 5), (10, 6)]);
    }

    #[test]
    fn the_blind_keep_the_setting_for_a_second_and_then_take_the_safe_one() {
        let (eye, hand) = (Eye::default(), Hand::default());
        let blind = || (0..150).map(|_| Err(Blind("no permission".into())));
        eye.0.borrow_mut().extend([Ok(5)].into_iter().chain(blind()).chain([Ok(7)]));
        during(&mut Machine::new(&eye, Echo::default(), &hand), 3_000);
        assert_eq!(*hand.set.borrow(), [(0, 5), (1_010, -1), (1_510, 7)]);
    }

    /// Regression test: a safe setting that was refused once was not applied again as long as the sensor failed.
    #[test]
    fn a_safe_setting_that_is_refused_is_asked_for_again() {
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend((0..500).map(|_| Err(Blind("no counters".into()))));
        hand.answers
            .borrow_mut()
            .extend([Acted::Refused { why: "busy".into() }, Acted::Refused { why: "busy".into() }]);
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 4_900);
        assert_eq!(*hand.set.borrow(), [(1_000, -1), (2_000, -1), (4_000, -1)]);
    }

    #[test]
    fn what_is_blind_or_away_sees_nothing() {
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(5), Err(Blind("no counters".into())), Ok(0)]);
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        let mut sees = |ms: u64| {
            machine.poll(at(ms));
            machine.sees()
        };
        assert_eq!([sees(0), sees(10), sees(20)], [true, false, true]);
        hand.stands.borrow_mut().push_back(Standing::Away(Away("it is down".into())));
        assert_eq!([sees(1_000), sees(1_500)], [false, false]);
        assert_eq!([sees(2_000), sees(2_010)], [true, true]);
        hand.stands.borrow_mut().push_back(Standing::Lost(Lost::Gone));
        assert!(!sees(3_000));
    }

    #[test]
    fn a_lost_setting_ends_the_loop() {
        let theirs = Lost::Theirs { now: "9".into() };
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(5), Ok(6)]);
        hand.answers.borrow_mut().extend([Acted::InForce, Acted::Lost(theirs.clone())]);
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 1_000);
        assert_eq!((machine.lost(), machine.poll_at()), (Some(&theirs), None));
        assert_eq!(machine.poll(at(5_000)), Step::Lost(theirs.clone()));
        // The loss is noticed even though there is nothing to apply.
        let (eye, hand) = (Eye::default(), Hand::default());
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 100);
        hand.stands.borrow_mut().push_back(Standing::Lost(Lost::Gone));
        during(&mut machine, 1_200);
        assert_eq!(machine.lost(), Some(&Lost::Gone));
        assert!(hand.set.borrow().is_empty());
    }

    #[test]
    fn the_last_look_finds_what_was_lost_since_the_last_second() {
        let (eye, hand) = (Eye::default(), Hand::default());
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 100);
        assert_eq!(machine.last_look(), None);
        hand.stands.borrow_mut().push_back(Standing::Lost(Lost::Gone));
        assert_eq!((machine.last_look(), machine.last_look()), (Some(Lost::Gone), None));
        assert_eq!(machine.lost(), Some(&Lost::Gone));
    }

    #[test]
    fn what_was_away_is_set_again_when_it_is_back() {
        let (eye, hand) = (Eye::default(), Hand::default());
        let away = || Away("it is down".into());
        eye.0.borrow_mut().extend([Ok(5)]);
        hand.stands.borrow_mut().extend([
            Standing::AsLeft,
            Standing::Away(away()),
            Standing::Away(away()),
            Standing::Fresh,
        ]);
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 900);
        assert_eq!(machine.poll(at(1_000)), Step::Away(away()));
        // Nothing is read or decided meanwhile.
        eye.0.borrow_mut().extend([Ok(6)]);
        assert_eq!((machine.poll(at(1_500)), machine.poll_at()), (Step::NotDue, Some(at(2_000))));
        during(&mut machine, 3_500);
        assert_eq!(*hand.set.borrow(), [(0, 5), (3_000, 5), (3_010, 6)]);
    }

    #[test]
    fn what_is_away_at_its_setting_is_set_when_it_is_back() {
        let (eye, hand) = (Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(0), Ok(5), Ok(6)]);
        hand.answers.borrow_mut().push_back(Acted::Away(Away("it is down".into())));
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 900);
        assert_eq!((hand.set.borrow().clone(), machine.poll_at()), (vec![(10, 5)], Some(at(1_000))));
        during(&mut machine, 1_100);
        assert_eq!(*hand.set.borrow(), [(10, 5), (1_000, 5), (1_010, 6)]);
    }

    #[test]
    fn another_controller_and_another_sensor_take_over() {
        let (eye, other, hand) = (Eye::default(), Eye::default(), Hand::default());
        eye.0.borrow_mut().extend([Ok(5)]);
        other.0.borrow_mut().extend([Ok(6)]);
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 100);
        machine.control_by(Echo::default());
        machine.see_by(&other);
        during(&mut machine, 200);
        assert_eq!(hand.set.borrow().iter().map(|(_, set)| *set).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(machine.controller().acted.len(), 1);
    }

    #[test]
    fn what_another_loop_changes_is_learned() {
        let (eye, hand) = (Eye::default(), Hand::default());
        let mut machine = Machine::new(&eye, Echo::default(), &hand);
        during(&mut machine, 100);
        *hand.shifts.borrow_mut() = Some(7);
        during(&mut machine, 200);
        assert_eq!(machine.controller().shifted, [7]);
    }
}

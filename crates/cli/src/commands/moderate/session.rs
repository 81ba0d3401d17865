//! The main loop of `apus moderate`: all interfaces while they are controlled.
//!
//! ```text
//!   begin ──► the queues' loops ──┬── each second: publish, look for changed interfaces ──┐
//!               ▲                 ├── SIGHUP of a service: read the file again ───────────┤
//!               └─────────────────┼───────────────────────────────────────────────────────┘
//!                                 └── another signal, the end, nothing left ──► restore, result
//! ```
//! A service (`--config`) waits for interfaces that do not exist yet, and runs until it is stopped. It leaves out an
//! interface that this host cannot control, and does not begin if it can control none. Without a configuration file, a
//! missing interface is an error, and the command ends when it no longer controls any queue.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use live::os::Signals;
use live::os::notify::ServiceManager;
use rustix::process::Signal;
use steer::moderation::watched::Queues;
use steer::{Poll, run as run_loops};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Instant, Monotonic, Nanos};

use super::super::published::Published;
use super::config::{Config, InterfaceConfig};
use super::interface::{Interface, Options, Unsupported};
use super::say;
use super::{note, one_line};
use crate::args::moderate::Moderate;
use crate::documents::moderate::{Document, NotControlled, Queue};
use crate::{Failure, terminal};

/// Time between two publications of the state, and between two checks of the interfaces.
const UPKEEP_EVERY: Nanos = Nanos::from_secs(1);
/// Maximum time to wait for other transactions, for all interfaces together, before restoring settings at the end. While
/// queues are controlled, the maximum is [`SHORT_PATIENCE`] for all that is done in one go: the queues wait meanwhile,
/// and so does the watchdog of the service (`WatchdogSec=10s`).
const PATIENCE: Nanos = Nanos::from_secs(30);
const SHORT_PATIENCE: Nanos = Nanos::from_secs(2);
/// Time between two attempts to control an interface that is not available. An attempt costs a few requests to the
/// kernel.
const RETRY_EVERY: Nanos = Nanos::from_secs(5);

/// How a session ended.
pub(super) struct Ended {
    pub(super) dry_run: bool,
    pub(super) lasted: Nanos,
    pub(super) queues: Vec<Queue>,
    /// The interfaces that are not controlled.
    pub(super) not_controlled: Vec<NotControlled>,
    /// Whether a queue whose results are not in `queues` had missed its goal: it was started again, or got another one.
    pub(super) missed_before: bool,
    /// Whether the driver had refused the timer of a fixed policy at the end.
    pub(super) refused: bool,
    /// Whether all settings were restored. `None` if nothing was changed, or nothing was left to restore.
    pub(super) restored: Option<bool>,
}

/// The time that is left to wait for other transactions. Each one takes what it needs, and leaves the rest to the next.
#[derive(Clone, Copy, Debug)]
struct Patience {
    until: Instant<Monotonic>,
}

impl Patience {
    fn of(span: Nanos) -> Self {
        Self { until: MonotonicClock.now() + span }
    }

    fn left(self) -> Duration {
        let left = self.until.since(MonotonicClock.now()).unwrap_or(Nanos::ZERO);
        Duration::from_nanos(left.as_nanos())
    }
}

/// Why the loops of the queues stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wake {
    Upkeep,
    Signal(i32),
    End,
}

/// An interface from the configuration that is not controlled.
struct Absent {
    config: InterfaceConfig,
    why: String,
    /// When to try again. `None`: never, because the host lacks what is needed ([`Unsupported`]).
    retry: Option<Instant<Monotonic>>,
}

/// The interfaces of a run of `apus moderate`.
pub(super) struct Session<'a> {
    typed: &'a Moderate,
    options: Options<'a>,
    is_service: bool,
    watch: Arc<Mutex<Queues>>,
    interfaces: Vec<Interface>,
    absent: Vec<Absent>,
    /// Results of interfaces that are no longer controlled.
    ended: Vec<Queue>,
    /// Whether a result that was discarded had missed its goal.
    missed_before: bool,
    restored: Option<bool>,
    began: Instant<Monotonic>,
}

impl<'a> Session<'a> {
    /// Starts to control all interfaces.
    pub(super) fn begin(typed: &'a Moderate, options: Options<'a>, config: Config) -> anyhow::Result<Self> {
        let watch = Queues::new(options.access);
        if let Ok(Err(why)) = watch.watch().map(|watch| watch.measures_datagrams()) {
            note(&format!(
                "the latency of UDP cannot be measured, so the goal is judged by other protocols only: {why}"
            ));
        }
        let mut session = Self {
            typed,
            options,
            is_service: typed.config.is_some(),
            watch: Arc::new(Mutex::new(watch)),
            interfaces: Vec::new(),
            absent: Vec::new(),
            ended: Vec::new(),
            missed_before: false,
            restored: None,
            began: MonotonicClock.now(),
        };
        let patience = Patience::of(SHORT_PATIENCE);
        for one in config.interfaces {
            session.add(one, patience)?;
        }
        session.check_hopeful()?;
        Ok(session)
    }

    /// Starts to control an interface. If this fails, a service goes on with the other interfaces.
    fn add(&mut self, config: InterfaceConfig, patience: Patience) -> anyhow::Result<()> {
        match Interface::begin(self.options, config.clone(), &self.watch, patience.left()) {
            Ok(interface) => self.interfaces.push(interface),
            Err(error) if self.is_service => self.leave_out(config, &error, None),
            Err(error) => {
                return Err(match error.downcast::<Unsupported>() {
                    Ok(Unsupported(failure)) => failure.into(),
                    Err(error) => error,
                });
            }
        }
        Ok(())
    }

    /// Notes that an interface is not controlled, and prints why unless that was printed before. Schedules another
    /// attempt, unless the host lacks what is needed.
    fn leave_out(&mut self, config: InterfaceConfig, error: &anyhow::Error, said: Option<&str>) {
        let why = one_line(format!("{error:#}").trim_start_matches("error: "));
        let is_final = error.is::<Unsupported>();
        if said != Some(&why) {
            let yet = if is_final { "" } else { " yet" };
            note(&format!("{}: not controlled{yet}: {why}", config.name));
        }
        let retry = (!is_final).then(|| MonotonicClock.now() + RETRY_EVERY);
        self.absent.push(Absent { config, why, retry });
    }

    /// Fails if no interface is controlled, and none can be controlled later.
    fn check_hopeful(&self) -> Result<(), Failure> {
        let is_hopeless = self.interfaces.is_empty() && self.absent.iter().all(|absent| absent.retry.is_none());
        match self.absent.first() {
            Some(first) if is_hopeless => Err(Failure::lacking(
                "cannot moderate any interface of the configuration file",
                format!("{}: {}", first.config.name, first.why),
                "the lines above say what each interface lacks; docs/moderate.md says what each policy needs",
            )),
            _ => Ok(()),
        }
    }

    /// Discards the results of an interface that is controlled again, or has another goal. Remembers whether it had
    /// missed its goal.
    fn discard(&mut self, interface: &str) {
        let is_it = |queue: &Queue| queue.interface == interface;
        self.missed_before |= self.ended.iter().any(|queue| is_it(queue) && say::has_missed(queue));
        self.ended.retain(|queue| !is_it(queue));
    }

    /// Stops controlling an interface, and keeps its results.
    fn end_one(&mut self, mut interface: Interface, patience: Patience) {
        interface.queues.iter_mut().for_each(super::queue::Queue::last_look);
        self.discard(&interface.config.name);
        self.ended.extend(self.documents_of(&interface));
        let restored = interface.end(patience.left());
        self.restored = match (self.restored, restored) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
    }

    /// Controls the interfaces until a signal arrives, the duration is over, or nothing is left to control.
    pub(super) fn run(mut self, signals: &Signals, manager: &ServiceManager) -> anyhow::Result<Ended> {
        let clock = MonotonicClock;
        let end = self.typed.duration.map(|duration| self.began + duration);
        let mut published = Published::below(Path::new("/"));
        let mut upkeep = self.began + UPKEEP_EVERY;
        // A failed notification of the service manager ends nothing. Its watchdog ends the process if necessary.
        let mut is_heard = true;
        let mut tell = |told: Result<(), live::Error>| {
            if let (Err(error), true) = (&told, is_heard) {
                note(&error.to_string());
            }
            is_heard = told.is_ok();
        };
        tell(manager.ready(&self.status()));
        loop {
            match self.steer(signals, upkeep, end) {
                Wake::End => break,
                Wake::Signal(number) if self.is_service && number == Signal::HUP.as_raw() => {
                    tell(manager.reloading());
                    self.reload();
                    tell(manager.ready(&self.status()));
                }
                Wake::Signal(_) => break,
                Wake::Upkeep => {
                    upkeep = clock.now() + UPKEEP_EVERY;
                    self.look();
                    published.publish(&self.document()).into_iter().for_each(|failed| note(&failed));
                    tell(manager.alive(&self.status()));
                    let is_final = |absent: &Absent| absent.retry.is_none();
                    let none_left = self.absent.iter().all(is_final) && self.interfaces.iter().all(Interface::is_lost);
                    if none_left && !self.is_service {
                        break;
                    }
                }
            }
        }
        tell(manager.stopping());
        let lasted = clock.now().since(self.began).unwrap_or(Nanos::ZERO);
        let refused =
            self.interfaces.iter().flat_map(|interface| &interface.queues).any(super::queue::Queue::is_refused);
        let patience = Patience::of(PATIENCE);
        for interface in std::mem::take(&mut self.interfaces) {
            self.end_one(interface, patience);
        }
        Ok(Ended {
            dry_run: self.options.dry_run,
            lasted,
            not_controlled: self.not_controlled(),
            queues: self.ended,
            missed_before: self.missed_before,
            refused,
            restored: self.restored,
        })
    }

    /// Runs the loops of the queues until other work is due.
    fn steer(&mut self, signals: &Signals, upkeep: Instant<Monotonic>, end: Option<Instant<Monotonic>>) -> Wake {
        let clock = MonotonicClock;
        let until = end.map_or(upkeep, |end| end.min(upkeep));
        let wake = Cell::new(Wake::Upkeep);
        let wait = |next: Instant<Monotonic>| {
            let left = next.min(until).since(clock.now()).unwrap_or(Nanos::ZERO);
            if let Some(signal) = signals.wait(Duration::from_nanos(left.as_nanos())) {
                wake.set(Wake::Signal(signal));
                return ControlFlow::Break(());
            }
            if clock.now() < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let queues = self.interfaces.iter_mut().flat_map(|interface| &mut interface.queues);
        let mut loops: Vec<&mut dyn Poll<Monotonic>> = queues.map(|queue| queue as _).collect();
        run_loops(&mut loops, || clock.now(), wait);
        // All loops have ended, or there is none.
        if loops.iter().all(|one| one.poll_at().is_none()) {
            while wait(until).is_continue() {}
        }
        match wake.get() {
            Wake::Upkeep if end.is_some_and(|end| clock.now() >= end) => Wake::End,
            wake => wake,
        }
    }

    /// Checks for interfaces that have changed or come back.
    fn look(&mut self) {
        let access = self.options.access;
        let patience = Patience::of(SHORT_PATIENCE);
        let (changed, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.interfaces).into_iter().partition(|interface| {
                interface.has_others(access) || self.is_service && interface.is_lost_with_device(access)
            });
        self.interfaces = kept;
        for interface in changed {
            let mut config = interface.config.clone();
            match interface.name_now(access) {
                // A renamed interface is found by its new name.
                Some(name) => config.name = name,
                None => note(&format!("{}: it no longer exists here", config.name)),
            }
            if interface.has_others(access) {
                note(&format!("{}: its queues have changed; starting it again", config.name));
            }
            let before = interface.config.name.clone();
            self.end_one(interface, patience);
            match Interface::begin(self.options, config.clone(), &self.watch, patience.left()) {
                Ok(interface) => {
                    self.discard(&before);
                    self.interfaces.push(interface);
                }
                Err(error) => self.leave_out(config, &error, None),
            }
        }
        let now = MonotonicClock.now();
        let (due, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.absent)
            .into_iter()
            .partition(|absent| absent.retry.is_some_and(|retry| now >= retry));
        self.absent = waiting;
        for Absent { config, why, .. } in due {
            match Interface::begin(self.options, config.clone(), &self.watch, patience.left()) {
                Ok(interface) => {
                    note(&format!("{}: now controlled", config.name));
                    self.discard(&config.name);
                    self.interfaces.push(interface);
                }
                Err(error) => self.leave_out(config, &error, Some(&why)),
            }
        }
    }

    /// Reads the configuration file again. Interfaces that stay in the file keep their settings in the meantime. An
    /// invalid file changes nothing.
    fn reload(&mut self) {
        let config = match Config::of(self.typed) {
            Ok(config) => config,
            Err(error) => {
                let why = error.to_string();
                note(&format!("keeping the previous configuration: {}", why.trim_start_matches("error: ")));
                return;
            }
        };
        self.absent.clear();
        let (access, patience) = (self.options.access, Patience::of(SHORT_PATIENCE));
        let lists = |name: &str| config.interfaces.iter().any(|one| one.name == name);
        for interface in &mut self.interfaces {
            interface.take_name(access, lists);
        }
        let is_listed = |interface: &Interface| lists(&interface.config.name) && !interface.has_lost_its_name(access);
        let (mut before, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.interfaces).into_iter().partition(is_listed);
        // First, because one of them may be in the configuration under its new name.
        for interface in gone {
            note(&format!(
                "{}: no longer in the configuration; it is not controlled from now on",
                interface.config.name
            ));
            self.end_one(interface, patience);
        }
        for one in config.interfaces {
            match before.iter().position(|interface| interface.config.name == one.name) {
                Some(place) if before[place].can_become(&one) => {
                    let mut interface = before.swap_remove(place);
                    if interface.config != one {
                        let so_far = self.documents_of(&interface);
                        match interface.reconfigure(self.options, one) {
                            Ok(()) => self.missed_before |= so_far.iter().any(say::has_missed),
                            Err(error) => {
                                let name = &interface.config.name;
                                note(&format!("{name}: keeping its previous configuration: {error:#}"));
                            }
                        }
                    }
                    self.interfaces.push(interface);
                    continue;
                }
                Some(place) => {
                    let interface = before.swap_remove(place);
                    self.end_one(interface, patience);
                }
                None => {}
            }
            self.discard(&one.name);
            match Interface::begin(self.options, one.clone(), &self.watch, patience.left()) {
                Ok(interface) => self.interfaces.push(interface),
                Err(error) => self.leave_out(one, &error, None),
            }
        }
        // Of two interfaces with one name, one was deleted.
        for interface in before {
            self.end_one(interface, patience);
        }
    }

    /// The interfaces that are not controlled, and why.
    fn not_controlled(&self) -> Vec<NotControlled> {
        let one = |absent: &Absent| NotControlled { interface: absent.config.name.clone(), why: absent.why.clone() };
        self.absent.iter().map(one).collect()
    }

    fn documents_of(&self, interface: &Interface) -> Vec<Queue> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let document = |queue: &super::queue::Queue| {
            let napi = watch.queue(queue.place()).and_then(|queue| queue.napi);
            queue.document(napi, watch.unmeasured(queue.watch()))
        };
        interface.queues.iter().map(document).collect()
    }

    /// The current state, as a document.
    fn document(&self) -> Document {
        let now = self.interfaces.iter().flat_map(|interface| self.documents_of(interface));
        let lasted = MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO);
        let (not_controlled, missed_before) = (self.not_controlled(), self.missed_before);
        say::document(self.options.dry_run, lasted, now.collect(), not_controlled, missed_before, None)
    }

    /// The current state in one line of text.
    fn status(&self) -> String {
        let queues = self.interfaces.iter().flat_map(|interface| &interface.queues);
        let steered = queues.filter(|queue| !queue.is_lost()).count();
        let mut text = format!("controlling {steered} receive queues");
        if !self.absent.is_empty() {
            let names: Vec<&str> = self.absent.iter().map(|absent| absent.config.name.as_str()).collect();
            text = format!("{text}; not controlled: {}", names.join(", "));
        }
        terminal::line(&text)
    }
}

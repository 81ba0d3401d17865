//! The main loop of `apus moderate`: all interfaces while they are controlled.
//!
//! ```text
//!   begin ──► the queues' loops ──┬── each second: publish, look for changed interfaces ──┐
//!               ▲                 ├── SIGHUP of a service: read the file again ───────────┤
//!               └─────────────────┼───────────────────────────────────────────────────────┘
//!                                 └── another signal, the end, nothing left ──► restore, result
//! ```
//! A service (`--config`) waits for interfaces that do not exist yet, and runs until it is stopped. Without a
//! configuration file, a missing interface is an error, and the command ends when it no longer controls any queue.

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
use super::interface::{Interface, Options};
use super::note;
use super::say;
use crate::args::moderate::Moderate;
use crate::documents::moderate::{Document, Queue};
use crate::terminal;

/// Time between two publications of the state, and between two checks of the interfaces.
const UPKEEP_EVERY: Nanos = Nanos::from_secs(1);
/// Maximum time to wait for another transaction before restoring settings at the end. While other queues are
/// controlled, the maximum is [`SHORT_PATIENCE`].
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts to control an interface that is not available. An attempt costs a few requests to the
/// kernel.
const RETRY_EVERY: Nanos = Nanos::from_secs(5);

/// How a session ended.
pub(super) struct Ended {
    pub(super) dry_run: bool,
    pub(super) lasted: Nanos,
    pub(super) queues: Vec<Queue>,
    /// Whether all settings were restored. `None` if nothing was changed, or nothing was left to restore.
    pub(super) restored: Option<bool>,
}

/// Why the loops of the queues stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wake {
    Upkeep,
    Signal(i32),
    End,
}

/// An interface from the configuration that is not available.
struct Absent {
    config: InterfaceConfig,
    why: String,
    retry: Instant<Monotonic>,
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
            restored: None,
            began: MonotonicClock.now(),
        };
        for one in config.interfaces {
            session.add(one)?;
        }
        Ok(session)
    }

    /// Starts to control an interface. A service tries again later if this fails.
    fn add(&mut self, config: InterfaceConfig) -> anyhow::Result<()> {
        match Interface::begin(self.options, config.clone(), &self.watch) {
            Ok(interface) => self.interfaces.push(interface),
            Err(error) if self.is_service => self.wait_for(config, &format!("{error:#}"), None),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Schedules another attempt for an unavailable interface, and prints why unless that was printed before.
    fn wait_for(&mut self, config: InterfaceConfig, why: &str, said: Option<&str>) {
        let why = why.replace('\n', "; ");
        if said != Some(&why) {
            note(&format!("{}: not controlled yet: {why}", config.name));
        }
        let retry = MonotonicClock.now() + RETRY_EVERY;
        self.absent.push(Absent { config, why, retry });
    }

    /// Stops controlling an interface, and keeps its results.
    fn end_one(&mut self, interface: Interface, patience: Duration) {
        self.ended.retain(|queue| queue.interface != interface.config.name);
        self.ended.extend(self.documents_of(&interface));
        let restored = interface.end(patience);
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
                    let none_left = self.absent.is_empty() && self.interfaces.iter().all(Interface::is_lost);
                    if none_left && !self.is_service {
                        break;
                    }
                }
            }
        }
        tell(manager.stopping());
        let lasted = clock.now().since(self.began).unwrap_or(Nanos::ZERO);
        for interface in std::mem::take(&mut self.interfaces) {
            self.end_one(interface, PATIENCE);
        }
        Ok(Ended { dry_run: self.options.dry_run, lasted, queues: self.ended, restored: self.restored })
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
        let (changed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.interfaces)
            .into_iter()
            .partition(|interface| interface.has_others(access) || self.is_service && interface.is_lost_with_device());
        self.interfaces = kept;
        for interface in changed {
            let config = interface.config.clone();
            note(&format!("{}: its queues have changed; starting it again", config.name));
            self.end_one(interface, SHORT_PATIENCE);
            match self.add(config.clone()) {
                Ok(()) => self.ended.retain(|queue| queue.interface != config.name),
                Err(error) => self.wait_for(config, &format!("{error:#}"), None),
            }
        }
        let now = MonotonicClock.now();
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.absent).into_iter().partition(|absent| now >= absent.retry);
        self.absent = waiting;
        for Absent { config, why, .. } in due {
            match Interface::begin(self.options, config.clone(), &self.watch) {
                Ok(interface) => {
                    note(&format!("{}: now controlled", config.name));
                    self.ended.retain(|queue| queue.interface != config.name);
                    self.interfaces.push(interface);
                }
                Err(error) => self.wait_for(config, &format!("{error:#}"), Some(&why)),
            }
        }
    }

    /// Reads the configuration file again. Interfaces that stay in the file keep their settings in the meantime. An
    /// invalid file changes nothing.
    fn reload(&mut self) {
        let config = match Config::of(self.typed) {
            Ok(config) => config,
            Err(error) => {
                note(&format!("keeping the previous configuration: {error}"));
                return;
            }
        };
        self.absent.clear();
        let mut before = std::mem::take(&mut self.interfaces);
        for one in config.interfaces {
            self.ended.retain(|queue| queue.interface != one.name);
            match before.iter().position(|interface| interface.config.name == one.name) {
                Some(place) if before[place].can_become(&one) => {
                    let mut interface = before.swap_remove(place);
                    if interface.config != one
                        && let Err(error) = interface.reconfigure(self.options, one)
                    {
                        note(&format!("{}: keeping its previous configuration: {error:#}", interface.config.name));
                    }
                    self.interfaces.push(interface);
                    continue;
                }
                Some(place) => {
                    let interface = before.swap_remove(place);
                    self.end_one(interface, SHORT_PATIENCE);
                    self.ended.retain(|queue| queue.interface != one.name);
                }
                None => {}
            }
            if let Err(error) = self.add(one.clone()) {
                self.wait_for(one, &format!("{error:#}"), None);
            }
        }
        for interface in before {
            note(&format!(
                "{}: no longer in the configuration; it is not controlled from now on",
                interface.config.name
            ));
            self.end_one(interface, SHORT_PATIENCE);
        }
    }

    fn documents_of(&self, interface: &Interface) -> Vec<Queue> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let document =
            |queue: &super::queue::Queue| queue.document(watch.queue(queue.place()).and_then(|queue| queue.napi));
        interface.queues.iter().map(document).collect()
    }

    /// The current state, as a document.
    fn document(&self) -> Document {
        let now = self.interfaces.iter().flat_map(|interface| self.documents_of(interface));
        let lasted = MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO);
        say::document(self.options.dry_run, lasted, now.collect(), None)
    }

    /// The current state in one line of text.
    fn status(&self) -> String {
        let queues = self.interfaces.iter().flat_map(|interface| &interface.queues);
        let steered = queues.filter(|queue| !queue.is_lost()).count();
        let mut text = format!("controlling {steered} receive queues");
        if !self.absent.is_empty() {
            let names: Vec<&str> = self.absent.iter().map(|absent| absent.config.name.as_str()).collect();
            text = format!("{text}; not controlled yet: {}", names.join(", "));
        }
        terminal::line(&text)
    }
}

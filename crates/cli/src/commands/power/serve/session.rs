//! The main loop of `apus power serve`. One thread serves all guests and never blocks on one of them.
//!
//! ```text
//!   begin ──► poll: channels, monitors ──┬── ready: read, decide, set, answer ────────────────────────┐
//!              ▲                         ├── each second: pinning, channels, publish, watchdog ───────┤
//!              │                         ├── SIGHUP: read the manifests again, open the log again ────┤
//!              └─────────────────────────┼────────────────────────────────────────────────────────────┘
//!                                        └── another signal, the end ──► restore, result
//! ```

use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Context as _;
use host::knob::{Access, online};
use live::os::Signals;
use live::os::notify::ServiceManager;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use steer::guests::{Applied, Outside, Place, Record, Server, Settings};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Instant, Monotonic, Nanos};

use super::attached::{self, Attached};
use super::log::Log;
use super::manifest::{self, GuestFile};
use super::note;
use crate::args::power::serve::Serve;
use crate::commands::published::Published;
use crate::documents::VERSION;
use crate::documents::guests::{Channel, Document, Guest, SCHEMA, Vcpu};
use crate::{Failure, terminal};

/// Time between two checks of pinning, channels and failed settings.
const UPKEEP_EVERY: Nanos = Nanos::from_secs(1);
/// Maximum length of one wait. Signals are checked between waits.
const LONGEST_WAIT: Nanos = Nanos::from_millis(100);
/// Maximum time to wait for another transaction before restoring settings at the end. While guests are served, the
/// maximum is [`SHORT_PATIENCE`].
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// The machine and the log, as the server sees them.
struct World {
    settings: Settings,
    log: Log,
}

impl Outside for World {
    fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
        self.settings.fix_frequency(policy, khz)
    }
    fn settled(&mut self, policy: u32, is_over: bool) -> Applied {
        self.settings.settled(policy, is_over)
    }
    fn limit_idle(&mut self, cpu: u32, limit: Option<Nanos>) -> Applied {
        self.settings.limit_idle(cpu, limit)
    }
    fn frequency(&mut self, cpu: u32) -> Option<u32> {
        self.settings.frequency(cpu)
    }
    fn log(&mut self, record: &Record<'_>) {
        self.log.write(record);
    }
}

/// The guests, and everything needed to serve them.
pub(super) struct Session<'a> {
    typed: &'a Serve,
    access: &'a Access,
    server: Server,
    world: World,
    guests: Vec<Attached>,
    began: Instant<Monotonic>,
}

impl<'a> Session<'a> {
    /// Starts with the manifests of a folder. At the start, an invalid manifest is an error.
    pub(super) fn begin(typed: &'a Serve, access: &'a Access) -> anyhow::Result<Self> {
        let (files, failures) = manifest::all(&typed.guests)?;
        if let Some(failure) = failures.into_iter().next() {
            return Err(failure.into());
        }
        let log = Log::open(typed.log.as_deref(), !typed.json).map_err(|error| {
            let path = typed.log.as_deref().unwrap_or(std::path::Path::new("")).display();
            Failure::lacking(format!("cannot open the log {path}"), error, "check --log and its folder")
        })?;
        let began = MonotonicClock.now();
        let (settings, server) = prepared(access, &files, began)?;
        let guests: Vec<Attached> = files.into_iter().map(Attached::new).collect();
        if guests.is_empty() {
            let folder = typed.guests.display();
            note(&format!(
                "{folder} has no manifest; add NAME.toml for a guest NAME, then send SIGHUP to this process"
            ));
        }
        Ok(Self { typed, access, server, world: World { settings, log }, guests, began })
    }

    /// Serves the guests until a signal arrives or the duration is over.
    ///
    /// Also returns whether all requests could be served and logged: Apus could listen on each socket, and no line of
    /// the log is missing.
    pub(super) fn run(mut self, signals: &Signals, manager: &ServiceManager) -> anyhow::Result<(Document, bool)> {
        let clock = MonotonicClock;
        let end = self.typed.duration.map(|duration| self.began + duration);
        let mut published = Published::below(&self.typed.root);
        let mut upkeep = self.began;
        // A failed notification of the service manager ends nothing. Its watchdog ends the process if necessary.
        let mut is_heard = true;
        let mut tell = |told: Result<(), live::Error>| {
            if let (Err(error), true) = (&told, is_heard) {
                note(&error.to_string());
            }
            is_heard = told.is_ok();
        };
        let mut is_ready = false;
        loop {
            match signals.wait(Duration::ZERO) {
                Some(number) if number == Signal::HUP.as_raw() => {
                    tell(manager.reloading());
                    self.reload()?;
                    // The service is ready when its channels are open.
                    self.upkeep(clock.now());
                    tell(manager.ready(&self.status()));
                }
                Some(_) => break,
                None => {}
            }
            let now = clock.now();
            if end.is_some_and(|end| now >= end) {
                break;
            }
            if now >= upkeep {
                upkeep = now + UPKEEP_EVERY;
                self.upkeep(now);
                published.publish(&self.document(None)).into_iter().for_each(|failed| note(&failed));
                if !is_ready {
                    tell(manager.ready(&self.status()));
                    is_ready = true;
                }
                tell(manager.alive(&self.status()));
            }
            let until = upkeep.min(clock.now() + LONGEST_WAIT);
            self.wait(end.map_or(until, |end| end.min(until)))?;
        }
        tell(manager.stopping());
        let mut document = self.document(None);
        let is_deaf = self.guests.iter().flat_map(|guest| &guest.channels).any(attached::Channel::is_deaf);
        let is_good = !is_deaf && !self.world.log.is_incomplete();
        let settings = self.world.settings;
        for guest in self.guests {
            guest.end();
        }
        let restored = settings.release_within(PATIENCE).context("cannot restore the settings")?;
        document.restored = restored.map(|restored| restored.closed);
        Ok((document, is_good))
    }

    fn upkeep(&mut self, now: Instant<Monotonic>) {
        self.world.settings.begin_pass();
        match online(self.access) {
            Ok(online) => self.server.set_online(now, online, &mut self.world),
            // The CPUs that were online before still count as online.
            Err(error) => note(&format!("cannot tell which CPUs are online: {error}")),
        }
        for (number, guest) in self.guests.iter_mut().enumerate() {
            guest.upkeep(now, number, self.access, &mut self.server, &mut self.world);
            guest.news().iter().for_each(|why| note(why));
        }
        self.server.tick(now, &mut self.world);
        self.world.log.trouble().into_iter().for_each(|why| note(&why));
    }

    /// Waits until a channel or a monitor is ready, at most until `until`, and serves what is ready.
    fn wait(&mut self, until: Instant<Monotonic>) -> anyhow::Result<()> {
        enum Ready {
            Monitor(usize),
            Channel(usize, usize),
        }
        let now = MonotonicClock.now();
        let mut until = until;
        let (mut fds, mut which) = (Vec::new(), Vec::new());
        for (number, guest) in self.guests.iter().enumerate() {
            if let Some(qmp) = guest.qmp() {
                let out = if qmp.has_to_say() { PollFlags::OUT } else { PollFlags::empty() };
                fds.push(PollFd::from_borrowed_fd(qmp.as_fd(), PollFlags::IN | out));
                which.push(Ready::Monitor(number));
            }
            let may_read = self.server.may_read(number, now) > 0;
            if !may_read {
                until = until.min(self.server.reads_at(number));
            }
            for (place, channel) in guest.channels.iter().enumerate() {
                match (&channel.stream, &channel.listener) {
                    (Some(stream), _) => {
                        let read = if may_read { PollFlags::IN } else { PollFlags::empty() };
                        let waits = !self.server.outgoing(number, place).is_empty();
                        let flags = if waits { read | PollFlags::OUT } else { read };
                        // A guest that has sent too much is left out: otherwise poll would report its closed connection
                        // again and again.
                        if may_read {
                            fds.push(PollFd::new(stream, flags));
                            which.push(Ready::Channel(number, place));
                        }
                    }
                    (None, Some(listener)) => {
                        fds.push(PollFd::new(listener, PollFlags::IN));
                        which.push(Ready::Channel(number, place));
                    }
                    (None, None) => {}
                }
            }
        }
        let left = until.since(now).unwrap_or(Nanos::ZERO).min(LONGEST_WAIT).as_nanos();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(left).unwrap_or(0) };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for guests"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let now = MonotonicClock.now();
        self.world.settings.begin_pass();
        self.server.settle(now, &mut self.world);
        for ready in which.into_iter().zip(ready).filter(|(_, is_ready)| *is_ready).map(|(which, _)| which) {
            match ready {
                Ready::Monitor(number) => {
                    let guest = &mut self.guests[number];
                    if guest.monitor(now, number, &mut self.server, &mut self.world) {
                        guest.upkeep(now, number, self.access, &mut self.server, &mut self.world);
                    }
                }
                Ready::Channel(number, place) => {
                    self.guests[number].serve(now, number, place, &mut self.server, &mut self.world);
                }
            }
        }
        Ok(())
    }

    /// Reads the manifests again. A guest whose new manifest is invalid keeps the previous one.
    fn reload(&mut self) -> anyhow::Result<()> {
        if let Err(error) = self.world.log.reopen() {
            note(&format!("cannot reopen the log: {error}"));
        }
        let (mut files, failures) = match manifest::all(&self.typed.guests) {
            Ok(read) => read,
            Err(failure) => {
                note(&format!("keeping the previous manifests: {failure}"));
                return Ok(());
            }
        };
        if !failures.is_empty() {
            failures.iter().for_each(|failure| note(&failure.to_string()));
            note("keeping the previous manifests");
            return Ok(());
        }
        let is_same = files.iter().eq(self.guests.iter().map(|guest| &guest.file));
        if is_same {
            return Ok(());
        }
        // Settings of other CPUs need a new transaction. The old one ends first, so that the new one finds the original
        // values and no other transaction holds the settings.
        let now = MonotonicClock.now();
        self.server.pause(&mut self.world);
        let before = std::mem::replace(&mut self.world.settings, Settings::none(self.access));
        if let Err(error) = before.release_within(SHORT_PATIENCE) {
            note(&format!("cannot restore the settings now, they are restored later: {error}"));
        }
        let (settings, mut server) = match prepared(self.access, &files, now) {
            Ok(prepared) => prepared,
            Err(error) => {
                note(&format!("keeping the previous manifests: {error:#}"));
                let before: Vec<GuestFile> = self.guests.iter().map(|guest| guest.file.clone()).collect();
                self.world.settings = prepared(self.access, &before, now)?.0;
                self.server.resume(now, &mut self.world);
                return Ok(());
            }
        };
        self.world.settings = settings;
        server.adopt(std::mem::replace(&mut self.server, Server::new(Vec::new(), Vec::new(), now)));
        self.server = server;
        let mut before = std::mem::take(&mut self.guests);
        for file in files.drain(..) {
            let kept = before.iter().position(|guest| guest.file.manifest.name == file.manifest.name);
            self.guests.push(match kept {
                Some(at) => before.swap_remove(at).becomes(file, now),
                None => Attached::new(file),
            });
        }
        for gone in before {
            note(&format!("{} is no longer served", gone.file.manifest.name));
            gone.end();
        }
        Ok(())
    }

    fn document(&self, restored: Option<bool>) -> Document {
        let guest = |(number, attached): (usize, &Attached)| {
            let counts = self.server.counts(number);
            let vcpus = self.server.standing(number).into_iter().map(|standing| Vcpu {
                vcpu: standing.vcpu,
                cpus: match standing.place {
                    Place::Pinned(cpu) => Some(cpu.to_string()),
                    Place::Floating(cpus) => Some(cpus.to_string()),
                    Place::Unknown(_) => None,
                },
                wish_khz: standing.wish_khz,
                goal: standing.goal.map(|goal| goal.to_string()),
                idle_limit_ns: standing.idle.map(Nanos::as_nanos),
                fixed_khz: standing.khz,
                why: standing.why,
            });
            let channels = attached.channels.iter().map(|channel| Channel {
                path: channel.way.path().display().to_string(),
                connected: channel.stream.is_some(),
                trouble: channel.trouble.clone(),
            });
            Guest {
                name: attached.file.manifest.name.clone(),
                connected: attached.connected(),
                channels: channels.collect(),
                pinning_unknown: attached.unknown.clone(),
                vcpus: vcpus.collect(),
                messages: counts.messages,
                granted: counts.granted,
                limited: counts.limited,
                held: counts.held,
                refused: counts.refused,
                over_rate: counts.over_rate,
                incomplete: counts.incomplete,
                unread: counts.unread,
            }
        };
        Document {
            apus: VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            duration_ns: MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO).as_nanos(),
            guests: self.guests.iter().enumerate().map(guest).collect(),
            restored,
        }
    }

    /// The current state in one line of text.
    fn status(&self) -> String {
        let connected = self.guests.iter().filter(|guest| guest.connected() > 0).count();
        terminal::line(&format!("{connected} of {} guests are connected", self.guests.len()))
    }
}

/// Records the original values of all settings that these guests may change, and creates a server for the guests.
fn prepared(access: &Access, files: &[GuestFile], now: Instant<Monotonic>) -> anyhow::Result<(Settings, Server)> {
    let manifests: Vec<_> = files.iter().map(|file| file.manifest.clone()).collect();
    let (settings, domains) = Settings::new(access, &manifests, super::COMMAND, VERSION)?;
    Ok((settings, Server::new(domains, manifests, now)))
}

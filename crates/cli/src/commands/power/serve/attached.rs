//! The channels and the monitor connection of a guest. Connecting, listening, reading and writing never block.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use host::guests::{Qmp, QmpEvent, VcpuThreads};
use host::knob::Access;
use steer::guests::{Outside, Place, Server};
use units::{Instant, Monotonic, Nanos};

use super::manifest::{GuestFile, Pinning, Way};

/// Time between two attempts to connect.
const RETRY: Nanos = Nanos::from_secs(1);

/// A guest with its connections.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) file: GuestFile,
    pub(super) channels: Vec<Channel>,
    qmp: Option<Qmp>,
    /// The last answer of the guest's QEMU monitor.
    threads: Option<VcpuThreads>,
    /// Why it is unknown where the vCPUs run. `None` if that is known.
    pub(super) unknown: Option<String>,
    /// When the last channel was closed. `None` if a channel is connected, or if the closing was already handled.
    closed: Option<Instant<Monotonic>>,
}

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) way: Way,
    pub(super) listener: Option<UnixListener>,
    /// The connected socket or device. `None` if the channel is not connected.
    pub(super) stream: Option<File>,
    pub(super) trouble: Option<String>,
    /// The trouble that was last told.
    told: Option<String>,
    retry: Instant<Monotonic>,
}

impl Channel {
    fn new(way: Way) -> Self {
        Self { way, listener: None, stream: None, trouble: None, told: None, retry: Instant::ORIGIN }
    }

    /// Connects to or listens at the path of the channel, unless that is already done.
    fn open(&mut self, now: Instant<Monotonic>) {
        if now < self.retry || self.stream.is_some() || self.listener.is_some() {
            return;
        }
        self.retry = now + RETRY;
        let opened = match &self.way {
            Way::Connect(path) => host::guests::open_channel(path).map(|stream| self.stream = Some(stream)),
            Way::Listen(path) => listen(path).map(|listener| self.listener = Some(listener)),
        };
        self.trouble = opened.err().map(|error| error.to_string());
    }

    /// Whether Apus should listen here but cannot: no guest can then send a request.
    pub(super) fn is_deaf(&self) -> bool {
        matches!(self.way, Way::Listen(_)) && self.trouble.is_some()
    }

    /// Why Apus cannot listen here, if that was not told yet.
    fn news(&mut self) -> Option<String> {
        let trouble = self.trouble.clone().filter(|_| self.is_deaf());
        let is_new = trouble.is_some() && trouble != self.told;
        self.told = trouble;
        let (path, why) = (self.way.path().display(), self.told.as_deref().unwrap_or_default());
        is_new.then(|| format!("cannot listen on {path}: {why}"))
    }

    /// Accepts a waiting connection unless the channel is already connected. Returns whether it accepted one.
    fn accept(&mut self) -> bool {
        let Some(listener) = self.listener.as_ref().filter(|_| self.stream.is_none()) else { return false };
        match listener.accept() {
            Ok((stream, _)) => {
                let is_set = stream.set_nonblocking(true).is_ok();
                self.stream = is_set.then(|| OwnedFd::from(stream).into());
                self.stream.is_some()
            }
            Err(_) => false,
        }
    }
}

/// Listens at a path, unless another process listens there. Removes a socket file that an ended process left behind.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket has this name"));
        }
        match host::guests::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on this socket")),
        }
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Attached {
    pub(super) fn new(file: GuestFile) -> Self {
        let channels = file.channels.iter().cloned().map(Channel::new).collect();
        Self { file, channels, qmp: None, threads: None, unknown: None, closed: None }
    }

    /// Switches to another manifest. Channels that are in the old and in the new manifest keep their connections.
    pub(super) fn becomes(mut self, file: GuestFile) -> Self {
        let mut channels = Vec::new();
        for way in &file.channels {
            let kept = self.channels.iter().position(|channel| channel.way == *way);
            channels.push(kept.map_or_else(|| Channel::new(way.clone()), |at| self.channels.swap_remove(at)));
        }
        for gone in self.channels.drain(..) {
            gone.remove();
        }
        let keeps = file.pinning == self.file.pinning;
        let (qmp, threads) = if keeps { (self.qmp, self.threads) } else { (None, None) };
        Self { file, channels, qmp, threads, unknown: None, closed: None }
    }

    /// Closes all channels, and removes the socket files that Apus created.
    pub(super) fn end(self) {
        self.channels.into_iter().for_each(Channel::remove);
    }

    /// Problems of the channels that were not told yet, one line each.
    pub(super) fn news(&mut self) -> Vec<String> {
        let name = self.file.manifest.name.clone();
        self.channels.iter_mut().filter_map(Channel::news).map(|why| format!("{name}: {why}")).collect()
    }

    pub(super) fn connected(&self) -> usize {
        self.channels.iter().filter(|channel| channel.stream.is_some()).count()
    }

    pub(super) fn qmp(&self) -> Option<&Qmp> {
        self.qmp.as_ref()
    }

    /// Opens the channels that are not open, and finds out where the vCPUs run. Called about once a second.
    pub(super) fn upkeep(
        &mut self,
        now: Instant<Monotonic>,
        number: usize,
        access: &Access,
        server: &mut Server,
        outside: &mut impl Outside,
    ) {
        for channel in &mut self.channels {
            channel.open(now);
        }
        if self.connected() > 0 {
            self.closed = None;
        } else if let Some(closed) = self.closed
            && now.since(closed).is_some_and(|since| since >= self.file.forget_after)
        {
            self.closed = None;
            let why = format!("its channels have been closed for {}", self.file.forget_after);
            server.forget(now, number, &why, outside);
        }
        let places = self.places(access);
        self.unknown = places.as_ref().err().cloned();
        let places = places.unwrap_or_else(|why| {
            let unknown = |vcpu: &u16| (*vcpu, Place::Unknown(why.clone()));
            self.file.manifest.vcpus.keys().map(unknown).collect()
        });
        server.place(now, number, &places, outside);
    }

    /// The host CPUs on which the vCPUs may run now.
    fn places(&mut self, access: &Access) -> Result<BTreeMap<u16, Place>, String> {
        let plain = |error: host::knob::Error| error.to_string().replace('\n', "; ");
        let threads = match &self.file.pinning {
            Pinning::Manifest => return Ok(self.file.written()),
            Pinning::Libvirt(domain) => VcpuThreads::of_libvirt(access, domain)
                .map_err(plain)?
                .ok_or_else(|| format!("no libvirt domain {domain} is running"))?,
            Pinning::PidFile(path) => VcpuThreads::of_pid_file(access, path)
                .map_err(plain)?
                .ok_or_else(|| format!("{path} names no running process"))?,
            Pinning::Qmp(path) => {
                if self.qmp.is_none() {
                    self.threads = None;
                    let connected = Qmp::connect(path);
                    self.qmp = Some(connected.map_err(|e| format!("QEMU's monitor {}: {e}", path.display()))?);
                }
                if let Some(qmp) = &mut self.qmp {
                    qmp.ask();
                }
                self.threads.clone().ok_or_else(|| "QEMU's monitor (QMP) has not answered yet".to_owned())?
            }
        };
        let place =
            |(vcpu, cpus): (u16, Result<host::CpuSet, String>)| (vcpu, cpus.map_or_else(Place::Unknown, Place::of));
        Ok(threads.allowed(access).into_iter().map(place).collect())
    }

    /// Exchanges data with QEMU's monitor. Returns whether to look up again now on which CPUs the vCPUs run.
    pub(super) fn monitor(
        &mut self,
        now: Instant<Monotonic>,
        number: usize,
        server: &mut Server,
        outside: &mut impl Outside,
    ) -> bool {
        let Some(qmp) = &mut self.qmp else { return false };
        match qmp.step() {
            Ok(events) => {
                let mut is_news = false;
                for event in events {
                    match event {
                        QmpEvent::Threads(threads) => {
                            is_news |= self.threads.as_ref() != Some(&threads);
                            self.threads = Some(threads);
                        }
                        QmpEvent::Reset => server.forget(now, number, "the guest was reset", outside),
                    }
                }
                is_news
            }
            Err(_) => {
                // The next upkeep connects again, and prints the reason if that fails.
                self.qmp = None;
                self.threads = None;
                true
            }
        }
    }

    /// Accepts a connection, reads once, and writes as much as possible.
    pub(super) fn serve(
        &mut self,
        now: Instant<Monotonic>,
        number: usize,
        place: usize,
        server: &mut Server,
        outside: &mut impl Outside,
    ) {
        let channel = &mut self.channels[place];
        if channel.accept() {
            server.reopened(number, place);
        }
        let mut is_open = true;
        let room = server.may_read(number, now);
        if let Some(stream) = channel.stream.as_mut().filter(|_| room > 0) {
            let mut buffer = [0; 4096];
            let room = room.min(buffer.len());
            match stream.read(&mut buffer[..room]) {
                Ok(0) => is_open = false,
                Ok(length) => server.receive(now, number, place, &buffer[..length], outside),
                Err(e) => is_open = is_passing(&e),
            }
        }
        if is_open {
            is_open = self.write(number, place, server);
        }
        if !is_open {
            self.channels[place].stream = None;
            server.reopened(number, place);
            if self.connected() == 0 {
                self.closed = Some(now);
            }
        }
    }

    /// Writes as much as possible. Returns whether the channel is still open.
    fn write(&mut self, number: usize, place: usize, server: &mut Server) -> bool {
        let Some(stream) = &mut self.channels[place].stream else { return true };
        while !server.outgoing(number, place).is_empty() {
            match stream.write(server.outgoing(number, place)) {
                Ok(written) => server.sent(number, place, written),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

impl Channel {
    fn remove(self) {
        if let (Way::Listen(path), true) = (&self.way, self.listener.is_some()) {
            // If it stays, the next instance removes it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

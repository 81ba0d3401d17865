//! The channels and the monitor connection of a guest. Connecting, listening, reading and writing never block.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use host::guests::{Qmp, QmpEvent, VcpuThreads};
use host::knob::Access;
use steer::guests::{Outside, Place, Server};
use units::{Instant, Monotonic, Nanos};

use super::manifest::{GuestFile, Pinning, Share, Way};

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
            Way::Listen(path, share) => listen(path, *share).map(|listener| self.listener = Some(listener)),
        };
        self.trouble = opened.err().map(|error| error.to_string());
    }

    /// Whether Apus should listen here but cannot: no guest can then send a request.
    pub(super) fn is_deaf(&self) -> bool {
        matches!(self.way, Way::Listen(..)) && self.trouble.is_some()
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
/// With the usual umask, only the owner can connect until the socket has its group and mode.
fn listen(path: &Path, share: Share) -> io::Result<UnixListener> {
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
    let shared = || {
        if share.group.is_some() {
            std::os::unix::fs::lchown(path, None, share.group)?;
        }
        share.mode.map_or(Ok(()), |mode| std::fs::set_permissions(path, Permissions::from_mode(mode)))?;
        listener.set_nonblocking(true)
    };
    if let Err(error) = shared() {
        // If it stays, the next attempt removes it.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(listener)
}

impl Attached {
    pub(super) fn new(file: GuestFile) -> Self {
        let channels = file.channels.iter().cloned().map(Channel::new).collect();
        Self { file, channels, qmp: None, threads: None, unknown: None, closed: None }
    }

    /// Switches to another manifest. Channels that are in the old and in the new manifest keep their connections. If
    /// none is connected, the requests are dropped as long after the last one was closed as the new manifest says.
    pub(super) fn becomes(mut self, file: GuestFile, now: Instant<Monotonic>) -> Self {
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
        let is_connected = channels.iter().any(|channel| channel.stream.is_some());
        let closed = if is_connected { None } else { self.closed.or(Some(now)) };
        Self { file, channels, qmp, threads, unknown: None, closed }
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
        if let (Way::Listen(path, _), true) = (&self.way, self.listener.is_some()) {
            // If it stays, the next instance removes it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn file(text: &str) -> GuestFile {
        let rest = "pinning = \"manifest\"\nforget_after = \"10s\"\n[vcpus]\n0 = 0\n";
        GuestFile::parse("vm1", &format!("{text}\n{rest}")).unwrap()
    }

    /// A reload does not start the time anew after which the requests of a disconnected guest are dropped.
    #[test]
    fn a_reload_keeps_the_time_since_the_last_connection() {
        let at = |s| Instant::ORIGIN + Nanos::from_secs(s);
        let manifest = || file("listen = [\"/run/x\"]");
        let mut guest = Attached::new(manifest());
        guest.closed = Some(at(1));
        assert_eq!(guest.becomes(manifest(), at(5)).closed, Some(at(1)));
        assert_eq!(Attached::new(manifest()).becomes(manifest(), at(5)).closed, Some(at(5)));
        let mut guest = Attached::new(manifest());
        guest.channels[0].stream = Some(File::open("/dev/null").unwrap());
        assert_eq!(guest.becomes(manifest(), at(5)).closed, None, "it is connected");
        let mut guest = Attached::new(manifest());
        guest.channels[0].stream = Some(File::open("/dev/null").unwrap());
        let other = guest.becomes(file("listen = [\"/run/y\"]"), at(5));
        assert_eq!(other.closed, Some(at(5)), "its only channel is gone");
    }

    #[test]
    fn a_socket_has_the_mode_and_group_of_the_manifest() {
        let path = std::env::temp_dir().join(format!("apus-listen-{}", std::process::id()));
        let own = rustix::process::getgid().as_raw();
        let text = format!("listen = [{path:?}]\nlisten_mode = \"0660\"\nlisten_group = \"{own}\"");
        let mut guest = Attached::new(file(&text));
        guest.channels[0].open(Instant::ORIGIN + Nanos::from_secs(1));
        assert_eq!(guest.channels[0].trouble, None);
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o660, own));
        guest.end();
        assert!(!path.exists());
    }
}

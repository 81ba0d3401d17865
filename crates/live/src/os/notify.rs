//! Reports the state of the process to the service manager. Implements the protocol of sd_notify(3) without libsystemd.
//!
//! ```text
//!   READY=1 ──► WATCHDOG=1 … ──► RELOADING=1, MONOTONIC_USEC=… ──► READY=1 ──► … ──► STOPPING=1
//! ```
//! systemd passes the name of a datagram socket in `NOTIFY_SOCKET`. Without this variable, there is no service manager,
//! and every message is silently discarded.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::Error;

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connects to the service manager that the environment variables name: `NOTIFY_SOCKET`, and `WATCHDOG_USEC` and
    /// `WATCHDOG_PID` of sd_watchdog_enabled(3).
    ///
    /// Fails if the socket's name is neither a path nor `@` followed by an abstract name, or if no socket can be
    /// created.
    pub fn of_environment() -> Result<Self, Error> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self::new(variable("NOTIFY_SOCKET"), variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"))
    }

    fn new(name: Option<OsString>, usecs: Option<OsString>, pid: Option<OsString>) -> Result<Self, Error> {
        let Some(name) = name else { return Ok(Self { socket: None, watchdog: None }) };
        let what = || format!("reach the service manager at {}", name.display());
        let to = address(&name).map_err(|e| Error::system(what(), e))?;
        let socket = UnixDatagram::unbound().map_err(|e| Error::system(what(), e))?;
        // A service manager that reads no messages must not block this process.
        socket.set_nonblocking(true).map_err(|e| Error::system(what(), e))?;
        let number = |text: OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
        let is_ours = pid.is_none_or(|pid| number(pid) == Some(u64::from(std::process::id())));
        let watchdog = usecs.filter(|_| is_ours).and_then(number).filter(|usecs| *usecs > 0);
        Ok(Self { socket: Some((socket, to)), watchdog: watchdog.map(Duration::from_micros) })
    }

    /// Whether there is a service manager.
    pub fn listens(&self) -> bool {
        self.socket.is_some()
    }

    /// Maximum time allowed between two calls of [`alive`](Self::alive) (`WatchdogSec=` of the unit). After this time
    /// without a call, the service manager ends the process. `None` if the unit has no watchdog. sd_watchdog_enabled(3)
    /// recommends calling `alive` twice in this time.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the process has started, or has finished reloading. `systemctl status` shows the line `status`.
    pub fn ready(&self, status: &str) -> Result<(), Error> {
        self.send(&format!("READY=1\nSTATUS={}", line(status)))
    }

    /// Reports that the process has begun to reload its configuration. [`ready`](Self::ready) ends the reload.
    pub fn reloading(&self) -> Result<(), Error> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let usecs = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usecs}"))
    }

    /// Reports that the process is about to end.
    pub fn stopping(&self) -> Result<(), Error> {
        self.send("STOPPING=1")
    }

    /// Reports that the process is alive. Must be called at least once in every [`watchdog`](Self::watchdog) time.
    /// `systemctl status` shows the line `status`, which says what the process is doing.
    pub fn alive(&self, status: &str) -> Result<(), Error> {
        self.send(&format!("WATCHDOG=1\nSTATUS={}", line(status)))
    }

    fn send(&self, message: &str) -> Result<(), Error> {
        let Some((socket, to)) = &self.socket else { return Ok(()) };
        let sent = socket.send_to_addr(message.as_bytes(), to);
        sent.map(drop).map_err(|e| Error::system("notify the service manager", e))
    }
}

/// Parses the name of a socket: a path, or `@` followed by an abstract name.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "NOTIFY_SOCKET is neither a path nor an abstract name")),
    }
}

/// Replaces line breaks in `text` with spaces, because line breaks separate the assignments of a message.
fn line(text: &str) -> String {
    text.replace(['\n', '\r', '\0'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(name: &str, usecs: Option<&str>, pid: Option<String>) -> ServiceManager {
        ServiceManager::new(Some(name.into()), usecs.map(Into::into), pid.map(Into::into)).unwrap()
    }

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut octets = [0; 500];
        let length = socket.recv(&mut octets).unwrap();
        String::from_utf8(octets[..length].to_vec()).unwrap()
    }

    #[test]
    fn each_message_arrives_at_a_path_and_at_an_abstract_name() {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("apus-notify-{id}"));
        let _ = std::fs::remove_file(&path);
        let named = UnixDatagram::bind(&path).unwrap();
        let abstract_name = format!("apus-notify-{id}");
        let unnamed = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
        for (socket, name) in [(named, path.display().to_string()), (unnamed, format!("@{abstract_name}"))] {
            let manager = manager(&name, None, None);
            manager.ready("two\nqueues").unwrap();
            assert_eq!(heard(&socket), "READY=1\nSTATUS=two queues");
            manager.reloading().unwrap();
            let said = heard(&socket);
            let usecs: u64 = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&said).parse().unwrap();
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            assert!(usecs.abs_diff(now.tv_sec.unsigned_abs() * 1_000_000) < 60_000_000, "{usecs}: {now:?}");
            manager.alive("x").unwrap();
            manager.stopping().unwrap();
            assert_eq!([heard(&socket), heard(&socket)], ["WATCHDOG=1\nSTATUS=x", "STOPPING=1"]);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(manager(&path.display().to_string(), None, None).stopping().is_err(), "nobody listens any more");
    }

    #[test]
    fn a_full_socket_does_not_block() {
        let name = format!("apus-notify-full-{}", std::process::id());
        let _socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let manager = manager(&format!("@{name}"), None, None);
        // The queue of a socket has room for net.unix.max_dgram_qlen messages, by default 10 or 512.
        assert!((0..100_000).any(|_| manager.alive("x").is_err()));
    }

    #[test]
    fn nobody_listens() {
        let nobody = ServiceManager::new(None, Some("5000000".into()), None).unwrap();
        assert!(!nobody.listens() && nobody.watchdog().is_none());
        nobody.ready("x").unwrap();
        assert!(ServiceManager::new(Some("vsock:2:1".into()), None, None).is_err());
    }

    #[test]
    fn the_watchdog_is_ours_alone() {
        let of = |usecs, pid| manager("@x", usecs, pid).watchdog();
        let own = || Some(std::process::id().to_string());
        assert_eq!(of(Some("10000000"), own()), Some(Duration::from_secs(10)));
        assert_eq!(of(Some("10000000"), None), Some(Duration::from_secs(10)));
        assert_eq!(of(Some("10000000"), Some("1".into())), None, "another process's");
        assert_eq!((of(Some("0"), own()), of(Some("x"), own()), of(None, own())), (None, None, None));
    }
}

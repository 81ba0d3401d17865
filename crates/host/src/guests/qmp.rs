//! A client of QEMU's monitor (QMP): reads which threads run the vCPUs, and notices when the guest is reset.
//!
//! ```text
//!   connect ──► greeting ──► qmp_capabilities ──► query-cpus-fast ──► … at each request
//!                                                 RESET, SHUTDOWN ──► QmpEvent
//! ```
//!
//! No call blocks: [`Qmp::step`] reads and writes what is possible now. Messages from QEMU are checked, and their size
//! is limited.
//!
//! Source: QEMU, docs/interop/qmp-spec.rst; qapi/machine.json (`query-cpus-fast`), qapi/run-state.json (events).

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::VcpuThreads;

/// Maximum length of a line from QEMU in bytes: about 200 bytes for each of 1024 vCPUs.
const LONGEST: usize = 256 << 10;

/// An event that a message from QEMU reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QmpEvent {
    /// QEMU's answer to [`Qmp::ask`]: the vCPU threads.
    Threads(VcpuThreads),
    /// The guest was reset, or is shutting down.
    Reset,
}

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    pid: u32,
    heard: Vec<u8>,
    to_say: Vec<u8>,
    is_greeted: bool,
    is_asked: bool,
}

impl Qmp {
    /// Connects to the monitor's UNIX socket at `path`. The process that listens on the socket counts as the guest's
    /// process.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = super::connect(path)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
        Ok(Self { stream, pid, heard: Vec::new(), to_say: Vec::new(), is_greeted: false, is_asked: false })
    }

    /// Asks QEMU for the vCPU threads, unless QEMU has not sent its greeting yet or an earlier query is still
    /// unanswered.
    pub fn ask(&mut self) {
        if self.is_greeted && !self.is_asked {
            self.is_asked = true;
            self.to_say.extend_from_slice(b"{\"execute\": \"query-cpus-fast\"}\n");
        }
    }

    /// Whether data is waiting to be written to QEMU.
    pub fn has_to_say(&self) -> bool {
        !self.to_say.is_empty()
    }

    /// Writes and reads as much as is possible without blocking. After an error, the connection is no longer usable.
    pub fn step(&mut self) -> io::Result<Vec<QmpEvent>> {
        let mut events = Vec::new();
        let mut buffer = [0; 4096];
        // Limits the reads per step, in case QEMU never stops sending.
        for _ in 0..16 {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU closed its monitor")),
                Ok(length) => self.heard.extend_from_slice(&buffer[..length]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                events.extend(self.line(&line)?);
            }
            if self.heard.len() > LONGEST {
                return Err(invalid("a line from the monitor is longer than 256 KiB"));
            }
        }
        while !self.to_say.is_empty() {
            match self.stream.write(&self.to_say) {
                Ok(written) => drop(self.to_say.drain(..written)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(events)
    }

    fn line(&mut self, line: &[u8]) -> io::Result<Option<QmpEvent>> {
        let said: Value = serde_json::from_slice(line).map_err(|_| invalid("the monitor does not speak JSON"))?;
        if said.get("QMP").is_some() {
            self.to_say.extend_from_slice(b"{\"execute\": \"qmp_capabilities\"}\n");
        } else if let Some(event) = said.get("event").and_then(Value::as_str) {
            return Ok(["RESET", "SHUTDOWN"].contains(&event).then_some(QmpEvent::Reset));
        } else if let Some(error) = said.get("error") {
            let text = error.get("desc").and_then(Value::as_str).unwrap_or("it does not say why");
            return Err(invalid(&format!("QEMU refused a command: {text}")));
        } else if !self.is_greeted {
            self.is_greeted = said.get("return").is_some();
            self.ask();
        } else if let Some(cpus) = said.get("return").and_then(Value::as_array) {
            self.is_asked = false;
            let thread = |cpu: &Value| {
                let number = |name: &str| cpu.get(name).and_then(Value::as_u64);
                let vcpu = u16::try_from(number("cpu-index")?).ok()?;
                Some((vcpu, u32::try_from(number("thread-id")?).ok()?))
            };
            let threads: Option<BTreeMap<u16, u32>> = cpus.iter().map(thread).collect();
            let threads = threads.ok_or_else(|| invalid("a vCPU has no cpu-index or no thread-id"))?;
            return Ok(Some(QmpEvent::Threads(VcpuThreads { pid: self.pid, threads })));
        }
        Ok(None)
    }
}

impl AsFd for Qmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_monitor_is_asked_and_heard() {
        let folder = crate::testing::Folder::new(&[]);
        let path = folder.path("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let mut qmp = Qmp::connect(&path).unwrap();
        let (mut qemu, _) = listener.accept().unwrap();
        let mut lines = io::BufReader::new(qemu.try_clone().unwrap());
        let mut next = || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line
        };
        qemu.write_all(b"{\"QMP\": {\"version\": {}}}\r\n").unwrap();
        assert_eq!(qmp.step().unwrap(), []);
        assert!(next().contains("qmp_capabilities"));
        qemu.write_all(b"{\"return\": {}}\r\n").unwrap();
        assert_eq!(qmp.step().unwrap(), []);
        assert!(next().contains("query-cpus-fast"));
        qmp.ask();
        assert!(!qmp.has_to_say(), "an answer is due");
        qemu.write_all(b"{\"event\": \"RESET\", \"data\": {}}\r\n{\"return\": [{\"cpu-index\": 0, \"thr").unwrap();
        assert_eq!(qmp.step().unwrap(), [QmpEvent::Reset]);
        qemu.write_all(b"ead-id\": 44}, {\"cpu-index\": 1, \"thread-id\": 45}]}\r\n").unwrap();
        let threads = VcpuThreads { pid: std::process::id(), threads: BTreeMap::from([(0, 44), (1, 45)]) };
        assert_eq!(qmp.step().unwrap(), [QmpEvent::Threads(threads)]);
        qmp.ask();
        assert!(qmp.has_to_say());
        drop((qemu, lines));
        assert!(qmp.step().is_err());
    }

    #[test]
    fn nonsense_ends_the_connection() {
        for nonsense in ["no JSON\n", "{\"error\": {\"desc\": \"no\"}}\n", &"a".repeat(LONGEST + 5000)] {
            let folder = crate::testing::Folder::new(&[]);
            let path = folder.path("qmp");
            let listener = UnixListener::bind(&path).unwrap();
            let mut qmp = Qmp::connect(&path).unwrap();
            let (mut qemu, _) = listener.accept().unwrap();
            qemu.set_nonblocking(true).unwrap();
            let mut rest = nonsense.as_bytes();
            // A step reads at most 64 KiB, so the last bytes may arrive after everything is written.
            let is_refused = (0..100).any(|_| {
                if let Ok(written) = qemu.write(rest) {
                    rest = &rest[written..];
                }
                qmp.step().is_err()
            });
            assert!(is_refused, "it was taken");
        }
    }
}

//! The exit latency allowed for all CPUs. A request for it lasts as long as a process keeps a file open.
//!
//! Source: kernel documentation, power/pm_qos_interface, `/dev/cpu_dma_latency`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::file::text;
use super::{Access, Error, Lasts, Setting, Thread, Value};
use crate::vault::Vault;

/// The exit latency that Apus requests for all CPUs: `none`, or a whole number of microseconds. The smallest request of
/// all processes takes effect.
///
/// The kernel drops a request when its file is closed, so a small process keeps the file open ([`hold`]). This process
/// also keeps a file in Apus's state folder locked, so that other processes can find it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct DmaLatency {}

/// How to start the process that holds a request. The requested microseconds are its last argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Path of the program.
    pub program: PathBuf,
    /// First arguments of the program; the requested microseconds follow them.
    pub arguments: Vec<String>,
}

const DEVICE: &str = "/dev/cpu_dma_latency";
const LOCK: &str = "dma_latency.hold";
const NONE: &str = "none";
/// The word that a holding process prints once the request is in force.
const READY: &str = "held";
/// Maximum time to wait for a holding process to end.
const PATIENCE: Duration = Duration::from_secs(2);

impl DmaLatency {
    /// The value that allows `limit`, rounded down to microseconds.
    pub fn at_most(limit: Nanos) -> Value {
        Value::text(limit.as_micros_floor())
    }

    /// The request that is in force: the smallest one of all processes. `None` if the kernel has no PM QoS.
    pub fn effective(access: &Access) -> Result<Option<Nanos>, Error> {
        let mut octets = [0; 4];
        match access.open(DEVICE, OFlags::RDONLY, Mode::empty()).and_then(|mut file| file.read_exact(&mut octets)) {
            Ok(()) => Ok(u64::try_from(i32::from_le_bytes(octets)).ok().map(Nanos::from_micros)),
            Err(e) => match Error::of(format!("read {}", access.show(DEVICE)), &e) {
                Error::NotThere { .. } => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// Requests `micros` microseconds, calls `ready`, and keeps the request until a signal ends the process. Returns only
/// if the request fails.
pub fn hold(access: &Access, micros: u32, ready: impl FnOnce() -> io::Result<()>) -> Error {
    let hold = || -> Result<std::convert::Infallible, Error> {
        let what = || format!("request {micros} us at {}", access.show(DEVICE));
        let failed = |e: io::Error| Error::of(what(), &e);
        let vault = Vault::create(access)?;
        let mut lock = vault.ensure(LOCK)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        let me = std::process::id();
        // This process's own /proc, as `stop` has: a PID below another root may be another process's.
        let started = Thread::find(&Access::live()?, me)?.map_or(0, |thread| thread.started);
        access.act("truncate", vault.show(LOCK), || lock.set_len(0)).map_err(failed)?;
        access.act("write", vault.show(LOCK), || writeln!(lock, "{me} {started} {micros}")).map_err(failed)?;
        let mut device = access.open(DEVICE, OFlags::RDWR, Mode::empty()).map_err(failed)?;
        let micros = i32::try_from(micros).map_err(|_| Error::invalid(what(), "it is at most 2147483647 us"))?;
        access.act("write", access.show(DEVICE), || device.write_all(&micros.to_le_bytes())).map_err(failed)?;
        ready().map_err(failed)?;
        loop {
            std::thread::park();
        }
    };
    match hold() {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// A running process that holds a request.
struct Held {
    pid: u32,
    started: u64,
    micros: u32,
}

fn holder(access: &Access) -> Result<Option<Held>, Error> {
    let Some(vault) = Vault::open(access)? else { return Ok(None) };
    let Some(mut file) = vault.file(LOCK, OFlags::RDWR)? else { return Ok(None) };
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Ok(None); // no process holds the lock: the content is out of date
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|e| Error::of(format!("read {}", vault.show(LOCK)), &e))?;
    let mut words = text.split_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok();
    let (Some(pid), Some(started), Some(micros)) = (next(), next(), next()) else { return Ok(None) };
    let (Ok(pid), Ok(micros)) = (u32::try_from(pid), u32::try_from(micros)) else { return Ok(None) };
    Ok(Some(Held { pid, started, micros }))
}

fn start(access: &Access, value: &str) -> Result<(), Error> {
    let what = format!("start the process that holds {value} us at {}", access.show(DEVICE));
    let holder = access
        .holder()
        .ok_or_else(|| Error::invalid(&what, "this program cannot start the process that would hold it"))?;
    let mut command = Command::new(&holder.program);
    command.args(&holder.arguments).arg(value);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = access.act("fork", &what, || command.spawn()).map_err(|e| Error::of(&what, &e))?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said).map_err(|e| Error::of(&what, &e))?;
    }
    if said.trim() == READY {
        return Ok(());
    }
    let output = child.wait_with_output().map_err(|e| Error::of(&what, &e))?;
    let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(Error::System { what, why: if why.is_empty() { output.status.to_string() } else { why } })
}

/// Ends a holding process, and waits until the kernel has closed its files.
fn stop(access: &Access, held: &Held) -> Result<(), Error> {
    let what = format!("end process {}, which holds {} us at {}", held.pid, held.micros, access.show(DEVICE));
    let failed = |e: rustix::io::Errno| Error::of(&what, &e.into());
    let Some(pid) = i32::try_from(held.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        other => other.map_err(failed)?,
    };
    // The handle refers to whichever process has this number now. So check that it is the right one.
    if Thread::find(&Access::live()?, held.pid)?.is_none_or(|now| now.started != held.started) {
        return Ok(());
    }
    // SIGKILL is safe, because the process has nothing to clean up. Other signals may be blocked by an inherited signal
    // mask.
    match access.act("kill", &what, || pidfd_send_signal(&handle, Signal::KILL)) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        other => other.map_err(failed)?,
    }
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&patience)).map_err(failed)? {
        0 => Err(Error::System { what, why: "it does not exit".into() }),
        _ => Ok(()),
    }
}

impl Setting for DmaLatency {
    fn label(&self) -> String {
        format!("exit latency allowed on all CPUs, in us ({DEVICE})")
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let Some(effective) = Self::effective(access)? else { return Ok(None) };
        let held = holder(access)?.map(|held| held.micros);
        let in_force = held.filter(|micros| effective <= Nanos::from_micros((*micros).into()));
        Ok(Some(in_force.map_or(Value::text(NONE), Value::text)))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        if let Some(held) = holder(access)? {
            stop(access, &held)?;
        }
        match text(&self.label(), value)? {
            NONE => Vault::open(access)?.map_or(Ok(()), |vault| vault.remove(LOCK)),
            micros => start(access, micros),
        }
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        let wanted = text(&self.label(), value)?;
        let known = wanted == NONE || wanted.parse::<i32>().is_ok_and(|micros| micros >= 0);
        if known {
            Ok(())
        } else {
            Err(Error::invalid(self.label(), format!("{wanted:?}: expected none or whole microseconds")))
        }
    }

    fn lasts(&self) -> Lasts {
        Lasts::WhileHeld
    }
}

/// Reports on standard output that the request is in force, and closes standard output. A holding process calls it from
/// [`hold`].
pub fn say_ready() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    // In a new session, the starter does not wait for this process, and the end of the starter's terminal does not end
    // it.
    rustix::process::setsid().map(|_| ()).or(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::knob::Knob;
    use crate::testing::Folder;

    /// Requests an exit latency until the returned file is closed.
    fn hold_here(access: &Access, limit: Nanos) -> Result<File, Error> {
        let what = || format!("request {limit} at {}", access.show(DEVICE));
        let micros = i32::try_from(limit.as_micros_floor())
            .map_err(|_| Error::invalid(what(), "it is at most 2147483647 us"))?;
        let mut device = access.open(DEVICE, OFlags::RDWR, Mode::empty()).map_err(|e| Error::of(what(), &e))?;
        let written = access.act("write", access.show(DEVICE), || device.write_all(&micros.to_le_bytes()));
        written.map(|()| device).map_err(|e| Error::of(what(), &e))
    }

    #[test]
    fn a_request_holds_as_long_as_its_file() {
        let access = Access::live().unwrap();
        let Ok(Some(before)) = DmaLatency::effective(&access) else {
            testkit::skip(format!("{DEVICE} cannot be read here"));
            return;
        };
        let limit = Nanos::from_micros(1_999_999_999);
        match hold_here(&access, limit) {
            Err(error) => testkit::skip(error.to_string()),
            Ok(held) => {
                assert!(DmaLatency::effective(&access).unwrap().unwrap() <= limit);
                drop(held);
                assert_eq!(DmaLatency::effective(&access).unwrap(), Some(before));
            }
        }
    }

    #[test]
    fn nothing_there_and_nothing_held() {
        let folder = Folder::new(&[]);
        assert_eq!(Knob(DmaLatency {}).read(&folder.access()).unwrap(), None);
        folder.put("dev/cpu_dma_latency", "\u{0}\u{1}\u{2}\u{3}");
        folder.put("var/lib/apus/tune/dma_latency.hold", "1 1 5\n");
        let access = folder.access();
        assert_eq!(Knob(DmaLatency {}).read(&access).unwrap(), Some(Value::text(NONE)), "the file is of the past");
        assert!(Knob(DmaLatency {}).set(&access, &Value::text("-1")).is_err());
        assert!(Knob(DmaLatency {}).set(&access, &Value::text("5")).is_err(), "nobody could hold it");
    }
}

//! `apus power request`: sends a power request from a guest to its host, through a virtio-serial port or a UNIX socket,
//! and prints the answer.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use steer::guests::protocol::{self, Answer, Ask, Id, Request};
use tester::clock::{MonotonicClock, TrialClock as _};
use tester::document::Name;
use units::{Instant, Monotonic, Nanos};

use crate::args::power::request::Request as Typed;
use crate::documents::VERSION;
use crate::documents::guests::{REQUEST, RequestDocument};
use crate::{Failure, Status, terminal};

/// The virtio-serial port of Apus.
const PORT: &str = "/dev/virtio-ports/apus.power";
const DPDK_PORT: &str = "/dev/virtio-ports/virtio.serial.port.poweragent";

/// Runs `apus power request`.
pub(super) fn run(typed: &Typed) -> anyhow::Result<Status> {
    let words = typed.ask.join("=");
    let wrong = |why: String| {
        Failure::wrong(
            format!("cannot request {:?}", typed.ask.join(" ")),
            why,
            "apus power request --help lists the possible requests",
        )
    };
    let ask: Ask = words.parse().map_err(wrong)?;
    let path = match &typed.port {
        Some(path) => path.clone(),
        None => found(typed.vcpu)?,
    };
    let mut port = open(&path)?;
    let id = id()?;
    let began = MonotonicClock.now();
    let until = began + typed.timeout;
    say(&mut port, &path, &Request { id, ask, vcpu: typed.vcpu }.to_string(), until)?;
    let answer = hear(&mut port, &path, id, until, typed.timeout)?;
    let round_trip = MonotonicClock.now().since(began).unwrap_or(Nanos::ZERO);
    let document = RequestDocument {
        apus: VERSION.to_owned(),
        schema: REQUEST.to_owned(),
        port: path.display().to_string(),
        asked: ask.to_string(),
        vcpu: typed.vcpu,
        verdict: Name::of(&answer.verdict),
        fixed_khz: answer.khz,
        idle_limit_us: answer.idle_us,
        lowest_khz: answer.range_khz.map(|(least, _)| least),
        highest_khz: answer.range_khz.map(|(_, most)| most),
        why: answer.why.clone(),
        round_trip_ns: round_trip.as_nanos(),
    };
    terminal::print(typed.json, &document, |out| {
        let khz = answer.khz.map_or_else(|| "not fixed".to_owned(), |khz| format!("fixed at {khz} kHz"));
        let idle = answer.idle_us.map_or_else(String::new, |us| format!(", idle states of at most {us} us"));
        writeln!(out, "{}: vCPU {} is {khz}{idle}: {}", answer.verdict, typed.vcpu, answer.why)
    })?;
    Ok(if answer.verdict.is_good() { Status::Good } else { Status::Findings })
}

/// The port to use if none is named.
fn found(vcpu: u16) -> Result<PathBuf, Failure> {
    let paths = [PathBuf::from(PORT), PathBuf::from(format!("{DPDK_PORT}.{vcpu}"))];
    let names = paths.each_ref().map(|path| path.display().to_string());
    paths.into_iter().find(|path| path.exists()).ok_or_else(|| {
        let fix = "give this guest a virtio-serial port with one of these names (docs/guests.md), or state another port with --port";
        Failure::lacking("cannot find a port to the host", format!("there is no {}", names.join(" and no ")), fix)
    })
}

/// Opens a port, which is a device or a socket.
fn open(path: &Path) -> Result<File, Failure> {
    let failed = |error: io::Error| {
        let fix = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY) => {
                "another program in this guest has the port open; end it, or choose another port with --port"
            }
            Some(Errno::ACCESS) => "run it as root, or give your user access to the port",
            _ => "check --port; docs/guests.md explains how a guest gets a port",
        };
        Failure::lacking(format!("cannot open the port {}", path.display()), error, fix)
    };
    host::guests::open_channel(path).map_err(failed)
}

/// A random number for this exchange, which distinguishes its answer from answers to other programs.
fn id() -> Result<Id, Failure> {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|e| Failure::lacking("cannot create an ID for the request", e, "mount /dev"))?;
    let text = format!("{:016x}", u64::from_ne_bytes(bytes));
    text.parse().map_err(|why| {
        Failure::wrong("cannot create an ID for the request", why, "this is a bug in Apus, please report it")
    })
}

fn say(port: &mut File, path: &Path, line: &str, until: Instant<Monotonic>) -> Result<(), Failure> {
    let what = || format!("cannot send the request through {}", path.display());
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match port.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !ready(port, PollFlags::OUT, until) {
                    let fix =
                        "check that apus power serve runs on the host, and that this guest's manifest names the port";
                    return Err(Failure::lacking(what(), "no program reads the port on the host", fix));
                }
            }
            Err(e) => return Err(Failure::lacking(what(), e, "check that the host still serves this guest")),
        }
    }
    Ok(())
}

/// Waits for the answer with the number `id`. Earlier answers are skipped: they belong to programs that did not read
/// them.
fn hear(port: &mut File, path: &Path, id: Id, until: Instant<Monotonic>, timeout: Nanos) -> Result<Answer, Failure> {
    let begin = format!("apus/{} {id} ", protocol::VERSION).into_bytes();
    let what = || format!("no answer through {}", path.display());
    let fix = "check that apus power serve runs on the host, and that this guest's manifest names the port";
    let mut heard: Vec<u8> = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match port.read(&mut buffer) {
            Ok(0) => return Err(Failure::lacking(what(), "the host closed the channel", fix)),
            Ok(length) => heard.extend_from_slice(&buffer[..length]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !ready(port, PollFlags::IN, until) {
                    return Err(Failure::lacking(what(), format!("the host did not answer within {timeout}"), fix));
                }
            }
            Err(e) => return Err(Failure::lacking(what(), e, fix)),
        }
        if let Some(at) = heard.windows(begin.len()).position(|window| window == begin) {
            heard.drain(..at);
            if let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&heard[..end]).into_owned();
                return line.parse().map_err(|why: String| {
                    Failure::lacking(format!("cannot read the answer {line:?}"), why, "update Apus here or on the host")
                });
            }
        } else {
            // Our number may have begun at the end.
            heard.drain(..heard.len().saturating_sub(begin.len()));
        }
        if MonotonicClock.now() >= until {
            return Err(Failure::lacking(what(), format!("no answer to this request came within {timeout}"), fix));
        }
    }
}

/// Waits until the port is ready. Returns `false` if it is not ready by `until`.
fn ready(port: &File, flags: PollFlags, until: Instant<Monotonic>) -> bool {
    let Some(left) = until.since(MonotonicClock.now()).filter(|left| *left > Nanos::ZERO) else { return false };
    // In pieces: a port whose host is not connected hangs up at once, and would be asked again without a pause.
    let span = left.min(Nanos::from_millis(100)).as_nanos();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(span).unwrap_or(100_000_000) };
    let mut fds = [PollFd::new(port, flags)];
    let is_up = poll(&mut fds, Some(&timeout)).is_ok() && !fds[0].revents().contains(PollFlags::HUP);
    if !is_up {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    true
}

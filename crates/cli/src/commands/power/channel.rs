//! The guest's end of a channel to the host. Commands open it and send requests with a time limit for the answer.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use steer::frequency::remote::Shared;
use steer::guests::client::Client;
use steer::guests::protocol::{Answer, Ask};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::Nanos;

use crate::Failure;

/// The virtio-serial port of Apus.
const PORT: &str = "/dev/virtio-ports/apus.power";
const DPDK_PORT: &str = "/dev/virtio-ports/virtio.serial.port.poweragent";
/// Time between two checks whether an answer has arrived.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// An open channel to the host.
pub(super) struct Channel {
    pub(super) path: PathBuf,
    client: Shared<File>,
}

/// The answers that [`Channel::ask_all`] received, in the order of the vCPUs. The error is the reason why there is none.
pub(super) type Answers = Vec<Result<Answer, String>>;

impl Channel {
    /// Opens `port`, or the port that exists if `port` is `None`. `vcpu` is part of the name of DPDK's ports. `option` is
    /// the command-line option that names the port. A socket is opened again if the connection is lost.
    pub(super) fn open(port: Option<&Path>, vcpu: u16, option: &str) -> Result<Self, Failure> {
        let path = match port {
            Some(path) => path.to_owned(),
            None => found(vcpu, option)?,
        };
        let client = Client::new(open(&path, option)?, session()?);
        let is_socket = path.metadata().is_ok_and(|of| of.file_type().is_socket());
        let client = match is_socket {
            true => {
                let path = path.clone();
                client.with_reopen(move || host::guests::open_channel(&path))
            }
            false => client,
        };
        Ok(Self { path, client: Arc::new(Mutex::new(client)) })
    }

    /// The client, to share with actuators.
    pub(super) fn client(&self) -> Shared<File> {
        self.client.clone()
    }

    /// Sends a request and waits for its answer.
    pub(super) fn ask(&self, ask: Ask, vcpu: u16, timeout: Nanos) -> Result<Answer, Failure> {
        let fix = "check that apus power serve runs on the host, and that this guest's manifest names the port";
        let failed = |why: String| Failure::lacking(format!("no answer through {}", self.path.display()), why, fix);
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let until = MonotonicClock.now() + timeout;
        let id = client.ask(ask, vcpu).map_err(|error| failed(error.to_string()))?;
        loop {
            if let Some(answer) = client.answer(id).map_err(|error| failed(error.to_string()))? {
                return Ok(answer);
            }
            if MonotonicClock.now() >= until {
                return Err(failed(match client.is_unsent() {
                    true => "no program reads the port on the host".into(),
                    false => format!("the host did not answer within {timeout}"),
                }));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Channel {
    /// Sends the same request for each of `vcpus`, and waits until all are answered, the time is over or `stop` returns
    /// true.
    pub(super) fn ask_all(&self, ask: Ask, vcpus: &[u16], timeout: Nanos, stop: impl Fn() -> bool) -> Answers {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let until = MonotonicClock.now() + timeout;
        let mut pending: Vec<_> =
            vcpus.iter().map(|vcpu| client.ask(ask, *vcpu).map_err(|error| error.to_string())).collect();
        let mut answers: Vec<Option<Result<Answer, String>>> = vec![None; vcpus.len()];
        loop {
            for (answer, id) in answers.iter_mut().zip(&mut pending).filter(|(answer, _)| answer.is_none()) {
                *answer = match id {
                    Ok(id) => client.answer(*id).map_err(|error| error.to_string()).transpose(),
                    Err(why) => Some(Err(std::mem::take(why))),
                };
            }
            let is_over = MonotonicClock.now() >= until || stop();
            if is_over || answers.iter().all(Option::is_some) {
                let none = || Err("the host did not answer in time".to_owned());
                return answers.into_iter().map(|answer| answer.unwrap_or_else(none)).collect();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The port to use if none is named.
fn found(vcpu: u16, option: &str) -> Result<PathBuf, Failure> {
    let paths = [PathBuf::from(PORT), PathBuf::from(format!("{DPDK_PORT}.{vcpu}"))];
    let names = paths.each_ref().map(|path| path.display().to_string());
    paths.into_iter().find(|path| path.exists()).ok_or_else(|| {
        let fix = format!(
            "give this guest a virtio-serial port with one of these names (docs/guests.md), or state another port with {option}"
        );
        Failure::lacking("cannot find a port to the host", format!("there is no {}", names.join(" and no ")), fix)
    })
}

/// Opens a port, which is a device or a socket.
fn open(path: &Path, option: &str) -> Result<File, Failure> {
    let failed = |error: io::Error| {
        let fix = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY) => {
                format!("another program in this guest has the port open; end it, or choose another port with {option}")
            }
            Some(Errno::ACCESS) => "run it as root, or give your user access to the port".to_owned(),
            _ => format!("check {option}; docs/guests.md explains how a guest gets a port"),
        };
        Failure::lacking(format!("cannot open the port {}", path.display()), error, fix)
    };
    host::guests::open_channel(path).map_err(failed)
}

/// A random number that distinguishes the answers to this program from answers to others.
fn session() -> Result<u32, Failure> {
    let mut bytes = [0; 4];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|e| Failure::lacking("cannot create an ID for the request", e, "mount /dev"))?;
    Ok(u32::from_ne_bytes(bytes))
}

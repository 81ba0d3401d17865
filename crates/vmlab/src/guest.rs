//! A running guest. It runs scripts. QEMU reports what the emulated hardware recorded.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use units::{Hertz, Microwatts};

use super::folder::Folder;
use super::power::{self, Power, PstateWrite};
use super::process::{self, Process};
use super::wire::{Nic, Wire};
use super::{Error, Vm};

/// Name of the port through which host and guest signal that there is a script to run, or that it has ended.
pub(super) const AGENT: &str = "apus.agent";

/// Time between two checks of a silent guest.
const LOOK: Duration = Duration::from_millis(100);

/// The result of a script in the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Exit status of the script; 128 plus the signal number if a signal ended it.
    pub status: i32,
    /// Standard output of the script.
    pub stdout: String,
    /// Standard error of the script.
    pub stderr: String,
}

/// A running guest. It ends when this value is dropped, even in a panic. If this process is killed, the kernel ends the
/// guest.
pub struct Guest {
    // Dropped first, so that nothing writes to the folder when it is removed.
    running: Mutex<Running>,
    pid: u32,
    power: Power,
    cpus: usize,
    patience: Duration,
    pstates_read: Mutex<usize>,
    memory: Option<File>,
    ports: Vec<(String, UnixStream)>,
    wires: Vec<Option<Wire>>,
    share: PathBuf,
    folder: Folder,
}

struct Running {
    process: Process,
    agent: UnixStream,
    /// Text from the agent that is not yet a complete line.
    heard: Vec<u8>,
    jobs: u32,
}

impl Guest {
    pub(super) fn start(vm: &Vm, folder: Folder) -> Result<Self, Error> {
        let path = folder.path();
        let share = vm.share.clone().unwrap_or_else(|| path.join("share"));
        let memory = vm.power.firmware.map(|_| File::options().read(true).write(true).open(path.join("memory")));
        let memory = memory.transpose().map_err(|e| Error::system("open the guest's memory", e))?;
        let names: Vec<_> = std::iter::once(AGENT.to_owned()).chain(vm.ports.iter().cloned()).collect();
        let listeners = (0..names.len()).map(|at| listen(&path.join(port_socket(at))));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let wire =
            |(at, (_, tap)): (usize, &(Nic, Option<String>))| tap.is_none().then(|| Wire::new(path, at)).transpose();
        let wires = vm.nics.iter().enumerate().map(wire).collect::<Result<Vec<_>, _>>()?;
        let deadline = Instant::now() + vm.patience;
        let mut process = Process::start(&vm.qemu, &vm.words(&share), path)?;
        let mut ports = Vec::new();
        for (name, listener) in names.into_iter().zip(listeners) {
            ports.push((name, accept(&listener, &mut process, deadline, vm.patience)?));
        }
        let (_, agent) = ports.remove(0);
        agent.set_read_timeout(Some(LOOK)).map_err(|e| Error::system("wait for the guest", e))?;
        let pid = process.pid();
        let running = Mutex::new(Running { process, agent, heard: Vec::new(), jobs: 0 });
        let (power, cpus, patience) = (vm.power.clone(), vm.cpus, vm.patience);
        let pstates_read = Mutex::new(0);
        let guest = Self { running, pid, power, cpus, patience, pstates_read, memory, ports, wires, share, folder };
        let said = guest.running().hear("boot", deadline, vm.patience)?;
        match said.strip_prefix("ready") {
            Some("") => Ok(guest),
            Some(failed) => Err(Error::invalid("the guest", format!("it could not load or mount:{failed}"))),
            None => Err(Error::invalid("the guest's first word", format!("it is {said:?} and not ready"))),
        }
    }

    /// Runs `script` with `sh` and returns its output, without the last line break. An exit status other than 0 is an
    /// [`Error::Failed`].
    pub fn run(&self, script: &str) -> Result<String, Error> {
        let Output { status, mut stdout, stderr } = self.output(script)?;
        if status != 0 {
            return Err(Error::Failed { script: script.into(), status, stdout, stderr });
        }
        stdout.truncate(stdout.trim_end_matches('\n').len());
        Ok(stdout)
    }

    /// Runs `script` with `sh`. An exit status other than 0 is not an error.
    pub fn output(&self, script: &str) -> Result<Output, Error> {
        self.output_within(script, self.patience)
    }

    /// Runs `script` with a time limit of `within` on this host's clock. If the script takes longer, the guest is
    /// ended.
    pub fn output_within(&self, script: &str, within: Duration) -> Result<Output, Error> {
        let deadline = Instant::now() + within;
        let mut running = self.running();
        running.jobs += 1;
        let job = running.jobs;
        let file = |end: &str| self.folder.path().join(format!("agent/{job}.{end}"));
        fs::write(file("sh"), script).map_err(|e| Error::system("hand a script to the guest", e))?;
        // A failed write is ignored here: the next read fails too and reports the reason.
        let _ = running.agent.write_all(format!("{job}\n").as_bytes());
        let said = running.hear(script, deadline, within)?;
        let status = said.strip_prefix(&format!("{job} ")).and_then(|status| status.parse().ok());
        let status =
            status.ok_or_else(|| Error::invalid("the guest's answer", format!("{said:?} is none to job {job}")))?;
        let read = |end: &str| fs::read(file(end)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let failed = |e| Error::system("read what the guest printed", e);
        let output = Output { status, stdout: read("out").map_err(failed)?, stderr: read("err").map_err(failed)? };
        for end in ["sh", "out", "err"] {
            fs::remove_file(file(end)).map_err(failed)?;
        }
        Ok(output)
    }

    /// Runs the shell command `condition` until it succeeds, ten times per second of the guest's clock and at most
    /// `tries` times. Returns [`Error::Failed`] if the command never succeeds.
    pub fn wait_until(&self, condition: &str, tries: u32) -> Result<(), Error> {
        let script = format!(
            "i=0; while [ $i -lt {tries} ]; do if {condition}; then exit 0; fi; i=$((i+1)); sleep 0.1; done; exit 1"
        );
        self.run(&script).map(drop)
    }

    /// Returns the writes to P-state registers since the last call, in order. The first call returns those since boot.
    pub fn pstate_writes(&self) -> Result<Vec<PstateWrite>, Error> {
        let path = self.folder.path().join("pstates.log");
        let octets =
            fs::read(&path).map_err(|e| Error::system("read the P-state writes; has the guest P-states?", e))?;
        let mut read = lock(&self.pstates_read);
        let new = octets.get(*read..).unwrap_or_default();
        *read = octets.len();
        let meaning = |octet: &u8| {
            let unknown =
                || Error::invalid(format!("write of {octet:#04x} to a P-state register"), "there is no such state");
            self.power.write(*octet).filter(|write| write.cpu < self.cpus).ok_or_else(unknown)
        };
        new.iter().map(meaning).collect()
    }

    /// Makes the emulated firmware limit `cpu` to `frequency`, which must be the frequency of a P-state. The guest
    /// learns of the new limit within half a second on its own clock.
    pub fn set_firmware_limit(&self, cpu: usize, frequency: Hertz) -> Result<(), Error> {
        let state = self.power.pstates.iter().position(|state| state.frequency == frequency);
        let state = state.filter(|_| cpu < self.cpus).ok_or_else(|| {
            let what = format!("limit of {} Hz for CPU {cpu}", frequency.as_hertz());
            Error::invalid(what, "the guest has no such CPU or no such P-state")
        })?;
        self.write_word(power::limit_at(cpu), state as u32)
    }

    /// Sets the value that the guest's power meter shows. `power` must be a whole number of milliwatts.
    pub fn set_power(&self, power: Microwatts) -> Result<(), Error> {
        let mw = u32::try_from(power.as_microwatts() / 1_000);
        let mw = mw.map_err(|_| Error::invalid("power", "the meter shows at most 4294967 W"))?;
        self.write_word(power::POWER_AT, mw)
    }

    fn write_word(&self, at: u64, word: u32) -> Result<(), Error> {
        let (Some(memory), Some(address)) = (&self.memory, self.power.firmware) else {
            return Err(Error::invalid("the guest's firmware", "there is none to drive; ask for it with Vm::firmware"));
        };
        let written = memory.write_all_at(&word.to_le_bytes(), address + at);
        written.map_err(|e| Error::system("write into the guest's memory", e))
    }

    /// Returns the host's end of the cable of network card `index`. Cards count from 0, in the order in which they were
    /// added.
    ///
    /// # Panics
    /// Panics if there is no such card, or if its cable leads to a tap.
    pub fn wire(&self, index: usize) -> &Wire {
        self.wires[index].as_ref().expect("a card whose cable leads to a tap has no wire")
    }

    /// Opens the host's end of the channel that [`Vm::port`] added as `name`.
    pub fn port(&self, name: &str) -> Result<UnixStream, Error> {
        let port = self.ports.iter().find(|(is, _)| is == name).map(|(_, stream)| stream);
        let port = port.ok_or_else(|| Error::invalid(format!("port {name}"), "the guest has none of this name"))?;
        port.try_clone().map_err(|e| Error::system(format!("use port {name}"), e))
    }

    /// For each idle state, its name and the number of times that `cpu` has entered it since boot; the shallowest state
    /// first.
    pub fn idle_entries(&self, cpu: usize) -> Result<Vec<(String, u64)>, Error> {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        let said =
            self.run(&format!("cd {folder} && for s in state*; do echo \"$(cat $s/usage) $(cat $s/name)\"; done"))?;
        let parsed = said.lines().map(|line| {
            let (usage, name) = line.split_once(' ')?;
            Some((name.to_owned(), usage.parse().ok()?))
        });
        parsed.collect::<Option<_>>().ok_or_else(|| Error::invalid("the guest's idle states", format!("{said:?}")))
    }

    /// Number of interrupts on each CPU since boot, summed over the lines of `/proc/interrupts` that contain `name`.
    pub fn interrupts(&self, name: &str) -> Result<Vec<u64>, Error> {
        let said = self.run("cat /proc/interrupts")?;
        let mut sums = vec![0; self.cpus];
        for line in said.lines().filter(|line| line.contains(name)) {
            for (sum, word) in sums.iter_mut().zip(line.split_whitespace().skip(1)) {
                let unknown = |_| Error::invalid("/proc/interrupts", format!("{line:?} has not {} counts", self.cpus));
                *sum += word.parse::<u64>().map_err(unknown)?;
            }
        }
        Ok(sums)
    }

    /// Number of times that QEMU has traced `event` since boot. The event must have been requested with [`Vm::trace`].
    pub fn traced(&self, event: &str) -> Result<u64, Error> {
        let text = match fs::read_to_string(self.folder.path().join("trace.log")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            result => result.map_err(|e| Error::system("read QEMU's trace", e))?,
        };
        Ok(text.lines().filter(|line| line.split([' ', ':']).any(|word| word == event)).count() as u64)
    }

    /// The folder that the guest sees as `/share`.
    pub fn share(&self) -> &Path {
        &self.share
    }

    /// Process identifier of QEMU.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the guest is still running.
    pub fn runs(&self) -> bool {
        self.running().process.runs()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
    }
}

impl Running {
    /// The next line from the agent.
    fn hear(&mut self, doing: &str, deadline: Instant, within: Duration) -> Result<String, Error> {
        loop {
            if let Some(end) = self.heard.iter().position(|&octet| octet == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut buffer = [0; 256];
            match self.agent.read(&mut buffer) {
                Ok(0) => return Err(ended(&mut self.process, doing)),
                Ok(length) => self.heard.extend_from_slice(&buffer[..length]),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline {
                        return Err(silent(&mut self.process, doing, within));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // If QEMU ends before it has read everything, the connection is reset.
                Err(_) => return Err(ended(&mut self.process, doing)),
            }
        }
    }
}

fn ended(process: &mut Process, doing: &str) -> Error {
    let status = process::describe(process.end_by_itself());
    Error::Ended { doing: doing.into(), status, words: process.last_words() }
}

fn silent(process: &mut Process, doing: &str, within: Duration) -> Error {
    process.end();
    Error::Silent { doing: doing.into(), within, words: process.last_words() }
}

/// File name of the socket of the port with index `at`.
pub(super) fn port_socket(at: usize) -> String {
    format!("port{at}.socket")
}

fn listen(path: &Path) -> Result<UnixListener, Error> {
    let listener = UnixListener::bind(path).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|e| Error::system(format!("listen at {}", path.display()), e))
}

/// Waits for QEMU to connect. QEMU connects within a fraction of a second, or ends with a message.
fn accept(listener: &UnixListener, qemu: &mut Process, by: Instant, within: Duration) -> Result<UnixStream, Error> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let blocking = stream.set_nonblocking(false).map(|()| stream);
                return blocking.map_err(|e| Error::system("talk to QEMU", e));
            }
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(Error::system("talk to QEMU", e)),
            Err(_) if !qemu.runs() => return Err(ended(qemu, "start")),
            Err(_) if Instant::now() >= by => return Err(silent(qemu, "start", within)),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use live::cpu::{Cpu, LinuxCpu};
use live::telemetry::{DropReason, Identity, State, Telemetry};
use policy::wait::{Belief, Reason, WaitKind};
use units::Nanos;

/// A telemetry root of a test's own, removed on drop.
pub struct Root(pub PathBuf);

impl Root {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A worker that has moved 1,000 frames.
    pub fn worker(&self, instance: &str, number: u32) -> Telemetry {
        let id = Identity {
            instance: instance.to_owned(),
            worker: number,
            app: "macswap".to_owned(),
            mode: "adaptive".to_owned(),
            goal: Some("p99=40us".to_owned()),
            ports: vec!["veth0".to_owned()],
            cpu: None,
        };
        let worker = Telemetry::create(&self.0, &id).unwrap();
        worker.state(State::Running);
        (0..1_000).for_each(|n| round(&worker, n));
        worker
    }
}

/// A twentieth of a core, for a packet each 84 us; of these 0.3 % will be late.
const BELIEF: Belief = Belief {
    wait: Nanos::from_micros(80),
    lasts: Nanos::from_micros(100),
    costs: Some(Nanos::from_micros(5)),
    late_worth: Nanos::from_micros(40),
    gap: Nanos::from_micros(84),
    aimed_ppm: 7_500,
    owed_millionths: 1_200_000,
    multiplier_256ths: 64,
};

/// One frame in, most of them out.
pub fn round(worker: &Telemetry, n: u64) {
    worker.polled(false);
    worker.received(1, 64);
    if n % 10 == 9 {
        worker.dropped(DropReason::Malformed, 1);
    } else {
        worker.sent(1, 64);
    }
    worker.decided(Reason::Periodic);
    worker.believed(LinuxCpu.now(), WaitKind::Block, Reason::Interrupt, BELIEF);
    worker.waited(WaitKind::Sleep, Nanos::from_micros(300));
    worker.busy(Nanos::from_nanos(400));
    worker.picked_up(Nanos::from_nanos(3_000 + n % 1_000));
    worker.served(Nanos::from_nanos(250));
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The binary, with a telemetry root of its own, in which also stands what `apus moderate` and `apus power steer` publish.
pub fn apus(root: &Root, words: &[&str]) -> Command {
    let mut command = own_journal(words);
    command.args(words).arg("--telemetry").arg(&root.0).stdin(Stdio::null());
    if matches!(words.first(), Some(&("top" | "metrics"))) {
        command.arg("--moderation").arg(root.0.join(".moderate"));
        if !words.contains(&"--steering") {
            command.arg("--steering").arg(root.0.join(".steer"));
        }
    }
    command
}

/// What `apus metrics` answers.
pub fn metrics(root: &Root, more: &[&str]) -> String {
    let words = [&["metrics", "--listen", "127.0.0.1:0"], more].concat();
    let mut child = apus(root, &words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut running = Running(child);
    let address = line.strip_prefix("serving http://").and_then(|l| l.split('/').next()).expect(&line);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(running.end(rustix::process::Signal::INT), Some(0));
    answer
}

pub fn run(root: &Root, words: &[&str]) -> Output {
    apus(root, words).output().unwrap()
}

/// The binary, bare.
pub fn bare(words: &[&str]) -> Output {
    plain(words).output().unwrap()
}

/// The binary, bare, to be started.
pub fn plain(words: &[&str]) -> Command {
    let mut command = own_journal(words);
    command.args(words).stdin(Stdio::null());
    command
}

/// The binary; where it may change settings of the running machine, with a journal of these tests' own at the place of the
/// machine's, which is none of their business.
fn own_journal(words: &[&str]) -> Command {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let changes = matches!(words.first(), Some(&("run" | "bench" | "probe" | "moderate")));
    if !changes || !rustix::process::geteuid().is_root() {
        return Command::new(env!("CARGO_BIN_EXE_apus"));
    }
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("var-lib");
        let _ = std::fs::remove_dir_all(&folder); // of a run before
        std::fs::create_dir_all(&folder).unwrap();
        folder
    });
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", BIND]).arg(folder);
    command.arg(env!("CARGO_BIN_EXE_apus"));
    command
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// For `sh -c BIND FOLDER PROGRAM WORDS…` in a private mount namespace: the program finds FOLDER at /var/lib, and so keeps
/// a journal of a test's own; and at /run/apus, where it publishes its state, FOLDER/run.
pub const BIND: &str = "mkdir -p \"$0/run\" /run/apus && mount --bind \"$0/run\" /run/apus && \
                        mount --bind \"$0\" /var/lib && exec \"$@\"";

/// Tests in a lab need both CPUs of a small machine: one of them at a time, as long as this is held.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that is killed, by its id, if the test ends without having done so.
pub struct Running(pub Child);

impl Running {
    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Sends a signal and waits for the end; returns the exit status.
    pub fn end(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        self.signal(signal);
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

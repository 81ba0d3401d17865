use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use live::telemetry::{Counts, Reader, Snapshot, State};
use rustix::process::Signal;
use serde_json::Value;

use super::{Bed, collect, wait_for};
use crate::support::{BIND, Running};

/// How long a start may take: the kernel checks the program, and the machine may be busy.
const START: Duration = Duration::from_secs(20);
/// How long an end may take: a worker looks at the stop flag and at its ports each 100 ms.
const END: Duration = Duration::from_secs(5);

/// `apus run`.
pub struct Apus {
    running: Running,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    file: PathBuf,
}

/// How it ended.
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Apus {
    /// Starts `apus run WORDS` on `role`'s interfaces under the name `name`.
    pub fn launch(bed: &Bed, role: &str, name: &str, words: &[&str]) -> Self {
        Self::launch_as(bed, role, name, words, |_| {})
    }

    /// The same, of which `change` changes something.
    pub fn launch_as(bed: &Bed, role: &str, name: &str, words: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        // With a journal of the test's own: the machine's is not its business.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", BIND]).arg(bed.journal());
        command.arg(env!("CARGO_BIN_EXE_apus"));
        command.arg("run").args(words).args(["--json", "--name", name]).arg("--telemetry").arg(&bed.root.0);
        command.args(["--netns", &bed.guard.namespace(role)]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut command);
        Self::adopt(Running(command.spawn().unwrap()), bed.root.0.join(name).join("worker-0"))
    }

    /// A child that was started otherwise; `file` is where its telemetry will be.
    pub fn adopt(mut running: Running, file: PathBuf) -> Self {
        let stdout = running.0.stdout.take().map(collect);
        let stderr = running.0.stderr.take().map(collect);
        Self { running, stdout, stderr, file }
    }

    /// Starts it and waits until its worker moves frames.
    #[track_caller]
    pub fn start(bed: &Bed, role: &str, name: &str, words: &[&str]) -> Self {
        let mut apus = Self::launch(bed, role, name, words);
        apus.until(State::Running);
        apus
    }

    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// Waits until its telemetry names this state.
    #[track_caller]
    pub fn until(&mut self, state: State) {
        let deadline = Instant::now() + START;
        while self.snapshot().and_then(|s| s.state) != Some(state) {
            if self.running.0.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let ended = self.ended(END);
                panic!("it never was {state:?}; status {:?}\n{}{}", ended.status, ended.stdout, ended.stderr);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What its first worker's telemetry says; `None` if that is not there.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let reader = Reader::open(&self.file).ok().filter(|reader| reader.process().pid == self.pid())?;
        Some(reader.snapshot())
    }

    /// How long its first worker was ready to run and had no CPU, as another program had it (proc(5),
    /// /proc/pid/schedstat, the second number). What a ring cannot hold meanwhile is no loss of ours.
    pub fn kept_waiting(&self) -> Duration {
        let tid = self.snapshot().expect("its telemetry").tid;
        let text = std::fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid())).unwrap();
        Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
    }

    /// What it has counted once no more frames come; devices report each 100 ms, so that all of them
    /// have. Every frame must then be accounted for.
    #[track_caller]
    pub fn settled(&self) -> Counts {
        let counts = || self.snapshot().expect("its telemetry").counts;
        let (mut last, mut since) = (counts(), Instant::now());
        let deadline = Instant::now() + START;
        while since.elapsed() < Duration::from_millis(350) {
            assert!(Instant::now() < deadline, "frames never cease to come");
            std::thread::sleep(Duration::from_millis(10));
            let now = counts();
            if now.received_frames != last.received_frames {
                since = Instant::now();
            }
            last = now;
        }
        let drops: u64 = last.dropped.iter().sum();
        assert_eq!(last.received_frames, last.sent_frames + drops, "received = sent + drops {:?}", last.dropped);
        last
    }

    /// Asks it to end, which must be in good order; returns what it said.
    #[track_caller]
    pub fn stop(mut self) -> Ended {
        let pid = rustix::process::Pid::from_child(&self.running.0);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let ended = self.ended(END);
        assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).expect(&ended.stdout);
        assert_eq!((&document["accounted"], &document["error"]), (&Value::Bool(true), &Value::Null), "{document:#}");
        ended
    }

    pub fn kill(mut self) {
        self.running.0.kill().unwrap();
        self.running.0.wait().unwrap();
    }

    /// Stops and continues its process, as a person does with Ctrl-Z and fg.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.running.0), signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(&mut self, limit: Duration) -> Ended {
        let status = wait_for("the end of apus run", limit, || self.running.0.try_wait().unwrap());
        let text = |handle: Option<JoinHandle<Vec<u8>>>| {
            String::from_utf8(handle.expect("ended once").join().unwrap()).expect("UTF-8")
        };
        Ended { status: status.code(), stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }

    /// Waits for its end, which must be with status 3 and name each of `texts`.
    #[track_caller]
    pub fn lacks(mut self, texts: &[&str]) -> String {
        let ended = self.ended(START);
        println!("status {:?}: {}", ended.status, ended.stderr.trim());
        assert_eq!(ended.status, Some(3), "{}", ended.stderr);
        for text in texts {
            assert!(ended.stderr.contains(text), "{text:?} is not in: {}", ended.stderr);
        }
        ended.stderr
    }
}

/// A copy of the binary that everybody may run, in a directory in which everybody may write.
pub fn public_copy(directory: &Path) -> PathBuf {
    let copy = directory.join("apus");
    testkit::put_program(env!("CARGO_BIN_EXE_apus").as_ref(), &copy);
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    copy
}

/// (NAPI id, defer-hard-irqs, gro-flush-timeout in ns) of each NAPI of an interface: napi-get of
/// Documentation/netlink/specs/netdev.yaml.
pub fn napis(bed: &Bed, role: &str, interface: &str) -> Vec<(u32, u32, u64)> {
    bed.inside(role, || {
        let mut client = host::nic::Client::new();
        let interface = client.interface(interface).unwrap();
        let setting = |napi: host::nic::Napi| {
            (napi.id, napi.settings.defer_hard_irqs.unwrap(), napi.settings.gro_flush_timeout_ns.unwrap())
        };
        client.napis(&interface).unwrap().into_iter().map(setting).collect()
    })
}

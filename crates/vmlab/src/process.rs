//! The QEMU process: starts it, watches it, and always ends it.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Error, tools};

/// Time between two checks of the process.
const WATCH: Duration = Duration::from_millis(20);

/// Number of console lines in an error: enough for a kernel panic with its registers and stack.
const TAIL_LINES: usize = 70;

/// Time limit for a process to end by itself after it has closed its channels.
const ENDING: Duration = Duration::from_secs(5);

/// A running QEMU process, killed on drop. If our own process is killed, the kernel kills QEMU.
///
/// This kernel feature (PR_SET_PDEATHSIG) depends on the thread that started the process, so a separate thread starts
/// the process and waits until it ends.
pub(super) struct Process {
    pid: u32,
    keeper: Option<JoinHandle<ExitStatus>>,
    stop: Option<Sender<()>>,
    ended: Option<ExitStatus>,
    folder: PathBuf,
}

impl Process {
    /// Starts `qemu` with the arguments `words`; its messages go to `qemu.log` in `folder`.
    pub(super) fn start(qemu: &Path, words: &[String], folder: &Path) -> Result<Self, Error> {
        let failed = |e: io::Error| Error::system(format!("start {}", qemu.display()), e);
        let log = File::create(folder.join("qemu.log")).map_err(failed)?;
        let mut command = Command::new(tools::find("setpriv", "util-linux")?);
        command.args(["--pdeathsig", "KILL", "--"]).arg(qemu).args(words).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::from(log.try_clone().map_err(failed)?)).stderr(Stdio::from(log));
        let (stop, stopped) = channel();
        let (say, hear) = channel();
        let keeper = std::thread::Builder::new()
            .name("qemu".into())
            .spawn(move || keep(command, &say, &stopped))
            .map_err(failed)?;
        let started = hear.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it ended")));
        let pid = started.map_err(failed)?;
        Ok(Self { pid, keeper: Some(keeper), stop: Some(stop), ended: None, folder: folder.to_owned() })
    }

    /// Process identifier.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process is still running.
    pub(super) fn runs(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| !keeper.is_finished())
    }

    /// Kills the process if it is running, and returns how it ended.
    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            self.ended = keeper.join().ok();
        }
        self.ended
    }

    /// Waits for a process that should end by itself, and kills it if it does not. Returns how the process ended.
    pub(super) fn end_by_itself(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + ENDING;
        while self.runs() && Instant::now() < until {
            std::thread::sleep(WATCH);
        }
        self.end()
    }

    /// The last lines of the guest's console and of QEMU's messages.
    pub(super) fn last_words(&self) -> String {
        let read = |name: &str| fs::read(self.folder.join(name)).unwrap_or_default();
        let console = String::from_utf8_lossy(&read("console.log")).replace('\r', "");
        let qemu = String::from_utf8_lossy(&read("qemu.log")).into_owned();
        // Leaves out QEMU's messages about features of the processor model that the emulation lacks, because they
        // appear each time.
        let qemu: Vec<_> =
            qemu.lines().filter(|line| !line.contains("TCG doesn't support requested feature")).collect();
        let lines: Vec<_> = console.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        let tail: Vec<_> = lines[from..].iter().chain(&qemu).copied().collect();
        if tail.is_empty() { "(none)".into() } else { tail.join("\n") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// How a process ended, in words.
pub(super) fn describe(status: Option<ExitStatus>) -> String {
    match status {
        Some(status) if status.success() => "it was reset, or switched itself off".into(),
        Some(status) if status.signal().is_some() => format!("QEMU was killed: {status}"),
        Some(status) => format!("QEMU failed: {status}"),
        None => "QEMU's end was not seen".into(),
    }
}

fn keep(mut command: Command, say: &Sender<io::Result<u32>>, stopped: &Receiver<()>) -> ExitStatus {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // A failed send is ignored, because then the caller has ended.
            let _ = say.send(Err(error));
            return ExitStatus::from_raw(0);
        }
    };
    let _ = say.send(Ok(child.id()));
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return status;
        }
        if stopped.recv_timeout(WATCH) != Err(RecvTimeoutError::Timeout) {
            // Killing fails only if the process has just ended. Waiting then returns how it ended.
            let _ = child.kill();
            return child.wait().unwrap_or_else(|_| ExitStatus::from_raw(9));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("apus-test-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn alive(pid: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    }

    fn sleeper(folder: &Path) -> Process {
        Process::start(Path::new("/bin/sleep"), &["60".into()], folder).unwrap()
    }

    #[test]
    fn dropping_ends_it_also_in_a_panic() {
        let folder = folder("process");
        let process = sleeper(&folder);
        let pid = process.pid();
        assert!(process.runs() && alive(pid));
        drop(process);
        assert!(!alive(pid));
        let pid = std::sync::Mutex::new(0);
        let panicked = std::panic::catch_unwind(|| {
            let process = sleeper(&folder);
            *pid.lock().unwrap() = process.pid();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panicked.is_err());
        let pid = pid.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(pid != 0 && !alive(pid));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The process outlives the thread that requested it, because tests, which are threads, share guests.
    #[test]
    fn it_lives_on_when_the_asking_thread_ends() {
        let folder = folder("thread");
        let path = folder.clone();
        let mut process = std::thread::spawn(move || sleeper(&path)).join().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(process.runs() && alive(process.pid()));
        assert_eq!(process.end().unwrap().signal(), Some(9));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn last_words_are_the_end_of_the_console_and_what_qemu_said() {
        let folder = folder("words");
        let script = "seq 100 >console.log; echo 'warning: TCG doesn'\\''t support requested feature: x' >&2; echo bad >&2; exit 3";
        let mut process = Process::start(Path::new("/bin/sh"), &["-c".into(), script.into()], &folder).unwrap();
        while process.runs() {
            std::thread::sleep(WATCH);
        }
        let status = process.end();
        let words = process.last_words();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(describe(status), "QEMU failed: exit status: 3");
        assert!(words.starts_with("31\n") && words.ends_with("100\nbad"), "{words}");
    }

    #[test]
    fn what_cannot_be_started_is_said() {
        let folder = folder("nothing");
        let mut process = Process::start(Path::new("/no/such/qemu"), &[], &folder).unwrap();
        let status = process.end().unwrap();
        let words = process.last_words();
        fs::remove_dir_all(&folder).unwrap();
        assert!(!status.success() || words.contains("no/such/qemu"), "{status} {words}");
    }
}

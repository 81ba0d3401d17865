//! The identity of a process or thread, read from `/proc/<pid>/stat` (proc_pid_stat(5)).

use std::io;
use std::path::Path;

use units::Nanos;

/// Identifies a process. The pid alone is not enough, because the kernel may later give it to another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process number (PID). The kernel may reuse it after the process has ended.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot: field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

/// How the kernel schedules a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduling {
    /// Number of the scheduling policy, as in sched_setscheduler(2): field 41 of `/proc/<pid>/stat`.
    pub policy: u64,
    /// The real-time priority from 1 to 99, or 0 if the policy is not FIFO or RR: field 40 of `/proc/<pid>/stat`.
    pub priority: u64,
}

/// The kernel's counters for a thread, since the thread was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Time that the thread ran on a CPU: the first field of `/proc/<pid>/task/<tid>/schedstat`.
    pub cpu: Nanos,
    /// Time that the thread was ready to run but waited for a CPU: the second field of
    /// `/proc/<pid>/task/<tid>/schedstat`.
    pub run_delay: Nanos,
    /// Number of times that the thread gave up the CPU to sleep or block: `voluntary_ctxt_switches` in
    /// `/proc/<pid>/task/<tid>/status`. Each time ends with a wake-up.
    pub wakeups: u64,
}

impl Usage {
    /// Reads the counters of a thread. `None` if the thread is gone, or if the kernel was built without
    /// CONFIG_SCHED_INFO.
    pub fn of(pid: u32, tid: u32) -> Option<Self> {
        let read = |file: &str| read(Path::new(&format!("/proc/{pid}/task/{tid}/{file}"))).ok();
        let schedstat = read("schedstat")?;
        let mut times = schedstat.split_ascii_whitespace().map(|field| field.parse().ok().map(Nanos::from_nanos));
        let status = read("status")?;
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Self { cpu: times.next()??, run_delay: times.next()??, wakeups: switches.trim().parse().ok()? })
    }
}

units::named! {
    /// A scheduling policy of the kernel, sched(7).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum SchedulingClass {
        /// The normal policy.
        Other = "other",
        /// Real time: the thread runs until it gives the CPU up, or until a thread of higher priority preempts it.
        Fifo = "fifo",
        /// Real time: threads of equal priority take turns.
        Rr = "rr",
        /// Like the normal policy, but threads that wake up often are not preferred.
        Batch = "batch",
        /// The lowest priority: below all other policies.
        Idle = "idle",
        /// Real time: earliest deadline first.
        Deadline = "deadline",
        /// A policy that this version does not know.
        Unknown = "unknown",
    }
}

impl Scheduling {
    /// The scheduling policy with the number in `policy` (Linux `include/uapi/linux/sched.h`).
    pub const fn class(self) -> SchedulingClass {
        match self.policy {
            0 => SchedulingClass::Other,
            1 => SchedulingClass::Fifo,
            2 => SchedulingClass::Rr,
            3 => SchedulingClass::Batch,
            5 => SchedulingClass::Idle,
            6 => SchedulingClass::Deadline,
            _ => SchedulingClass::Unknown,
        }
    }
}

impl Process {
    /// Identifies the calling process.
    pub fn current() -> io::Result<Self> {
        let stat = Stat::read(Path::new("/proc/self/stat"))?;
        Ok(Self { pid: std::process::id(), start_ticks: stat.field(22)? })
    }

    /// The effective user of the process: the second number of `Uid:` in `/proc/<pid>/status` (proc_pid_status(5)).
    /// `None` if the kernel does not report it.
    pub(super) fn user(self) -> Option<u32> {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid))).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        users.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Whether the process still runs. False for a zombie.
    pub fn is_alive(self) -> bool {
        let Ok(stat) = Stat::read(Path::new(&format!("/proc/{}/stat", self.pid))) else { return false };
        let gone = matches!(stat.state(), "Z" | "X");
        !gone && stat.field(22).is_ok_and(|ticks: u64| ticks == self.start_ticks)
    }
}

/// The thread ID and the scheduling of the calling thread.
pub(super) fn current_thread() -> io::Result<(u64, Scheduling)> {
    let stat = Stat::read(Path::new("/proc/thread-self/stat"))?;
    let tid = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
    Ok((tid, Scheduling { policy: stat.field(41)?, priority: stat.field(40)? }))
}

/// Reads a file of a process or thread. It contains the name of the process or thread, which can be any bytes.
fn read(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// Whether this process has mapped the file with this inode number so that it can write to it: `/proc/self/maps`
/// (proc_pid_maps(5)). True if that is not known.
pub(super) fn is_mapped_writable(inode: u64) -> bool {
    let Ok(maps) = read(Path::new("/proc/self/maps")) else { return true };
    maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let rights = fields.nth(1).unwrap_or_default();
        rights.starts_with("rw") && fields.nth(2).and_then(|field| field.parse().ok()) == Some(inode)
    })
}

struct Stat(String);

impl Stat {
    fn read(path: &Path) -> io::Result<Self> {
        read(path).map(Self)
    }

    /// The fields from field 3 on. They begin after the last closing parenthesis, because the name in field 2 may
    /// itself contain one.
    fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
    }

    fn state(&self) -> &str {
        self.fields().next().unwrap_or("")
    }

    /// The field with this number in proc_pid_stat(5). The lowest number is 3.
    fn field(&self, number: usize) -> io::Result<u64> {
        let text = self.fields().nth(number - 3);
        text.and_then(|t| t.parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no field {number} in a stat file")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Root;
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;

    #[test]
    fn this_process_is_alive_and_its_namesake_is_not() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { start_ticks: me.start_ticks + 1, ..me }.is_alive());
    }

    #[test]
    fn a_parenthesis_in_the_name_misleads_nobody() {
        let stat = Stat("7 (a) b) c) R 1 7 7".to_owned());
        assert_eq!(stat.state(), "R");
        assert_eq!(stat.field(4).unwrap(), 1);
        assert!(stat.field(22).is_err());
    }

    /// Regression test: a process whose name is not UTF-8 once counted as dead, and its thread had no counters.
    #[test]
    fn a_name_of_any_bytes_misleads_nobody() {
        let named = std::thread::spawn(|| {
            std::fs::write("/proc/thread-self/comm", b"caf\xe9)").unwrap();
            let (tid, scheduling) = current_thread().unwrap();
            assert_ne!(scheduling.class(), SchedulingClass::Unknown);
            assert!(Usage::of(std::process::id(), tid as u32).is_some());
        });
        named.join().unwrap();
        // A process is named after its program.
        let root = Root::new("any-bytes");
        let program = root.0.join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program).arg0("sleep").arg("600").spawn().unwrap();
        let stat = Stat::read(Path::new(&format!("/proc/{}/stat", child.id())));
        let named = stat.and_then(|stat| Ok(Process { pid: child.id(), start_ticks: stat.field(22)? }));
        let seen = named.map(|process| (process.is_alive(), process.user()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen.unwrap(), (true, Process::current().unwrap().user()));
    }

    #[test]
    fn usage_is_that_of_the_thread() {
        let (tid, _) = current_thread().unwrap();
        let usage = Usage::of(std::process::id(), tid as u32).unwrap();
        assert!(usage.cpu < Nanos::from_secs(3600));
        assert_eq!(Usage::of(std::process::id(), u32::MAX), None);
    }

    #[test]
    fn this_thread_is_scheduled_somehow() {
        let (tid, scheduling) = current_thread().unwrap();
        assert!(tid > 0 && scheduling.class() != SchedulingClass::Unknown);
    }
}

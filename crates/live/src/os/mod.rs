//! Functions of the operating system that an instance needs: pinning to a CPU, scheduling class, locked memory,
//! privileges, termination signals, and messages to the service manager.

pub mod notify;
mod sys;

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, CpuSet, capabilities, set_capabilities, set_no_new_privs};
use units::{BitRate, Instant, Monotonic, Nanos};

use crate::Error;

/// The current time on `CLOCK_MONOTONIC`, read through libc.
pub fn monotonic() -> Instant<Monotonic> {
    sys::monotonic()
}

/// How far this process's `CLOCK_MONOTONIC` is ahead of the kernel's own, in nanoseconds: 0 unless the process is in a
/// time namespace (time_namespaces(7)). BPF programs read the kernel's own clock.
pub fn clock_offset() -> Result<i64, Error> {
    const FILE: &str = "/proc/self/timens_offsets";
    match std::fs::read_to_string(FILE) {
        Ok(text) => offset_in(&text).ok_or_else(|| {
            Error::system(format!("read the offset of CLOCK_MONOTONIC in {FILE}"), std::io::Error::other(text))
        }),
        // A kernel without time namespaces.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(Error::system(format!("read {FILE}"), e)),
    }
}

/// The offset in a line such as `monotonic  86400  0`: seconds and nanoseconds.
fn offset_in(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// CPU and scheduling class of a worker's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scheduling {
    /// The CPU to which the thread is pinned. `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
    /// Priority in the `SCHED_FIFO` class, 1-99. `None` leaves the thread in the normal class.
    pub fifo: Option<u8>,
}

/// Pins the calling thread, sets its scheduling class, and sets its timer slack to 1 ns. The default slack lets the
/// kernel delay every timed wait in the normal class by up to 50 us (prctl(2), `PR_SET_TIMERSLACK`).
pub fn place_this_thread(scheduling: Scheduling) -> Result<(), Error> {
    if let Some(cpu) = scheduling.cpu {
        let mut set = CpuSet::new();
        if cpu >= CpuSet::MAX_CPU {
            return Err(no_such_cpu(cpu, "the kernel's CPU masks have no such number"));
        }
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).map_err(|e| no_such_cpu(cpu, &e.to_string()))?;
    }
    if let Some(priority) = scheduling.fifo {
        sys::set_fifo(priority).map_err(|e| Error::Lacking {
            what: format!("run under SCHED_FIFO at priority {priority}"),
            why: e.to_string(),
            fix: "run as root or with CAP_SYS_NICE, or omit the real-time priority".into(),
        })?;
    }
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|e| Error::system("set the timer slack to 1 ns", e))
}

/// Sets the timer slack of the calling thread, at least 1 ns (prctl(2), `PR_SET_TIMERSLACK`). The kernel may delay
/// timed waits in the normal class by this time; the real-time classes ignore it.
pub fn set_timer_slack(slack: Nanos) -> Result<(), Error> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(slack.as_nanos().max(1)))
        .map_err(|e| Error::system(format!("set the timer slack to {slack}"), e))
}

/// Restricts the calling thread, and all threads that it starts later, to `cpus`.
pub fn allow_cpus(cpus: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(no_such_cpu(*cpu, "the kernel's CPU masks have no such number"));
        }
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| Error::system(format!("restrict the thread to the CPUs {cpus:?}"), e))
}

fn no_such_cpu(cpu: usize, why: &str) -> Error {
    Error::Lacking {
        what: format!("pin a worker to CPU {cpu}"),
        why: why.into(),
        fix: "choose CPUs that are online and in the cpuset of this process (Cpus_allowed_list in /proc/self/status)"
            .into(),
    }
}

/// Keeps all present and future memory of the process in RAM, because a page fault in the loop makes a packet late.
///
/// Raises the limit on locked memory if the process is allowed to. Otherwise, after privileges are dropped, this limit
/// would restrict every later allocation.
pub fn lock_memory() -> Result<(), Error> {
    use rustix::mm::{MlockAllFlags, mlockall};
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(|e| Error::Lacking {
        what: "lock the process's memory".into(),
        why: e.to_string(),
        fix: "raise the limit (ulimit -l unlimited), run as root, or pass --no-lock-memory".into(),
    })
}

/// The capabilities (capabilities(7)) that a process still needs after its ports are open. Normally there are none. If
/// the limit on locked memory could not be raised, the process needs CAP_IPC_LOCK; without it, allocations would fail
/// while memory is locked.
pub fn lasting_capabilities() -> CapabilitySet {
    match getrlimit(Resource::Memlock).current {
        None => CapabilitySet::empty(),
        Some(_) => CapabilitySet::IPC_LOCK,
    }
}

/// Permanently drops all capabilities of the calling thread except [`lasting_capabilities`], and all those that a
/// program started by it could gain. An attacker who takes over the thread through a malicious frame then has only the
/// rights of an ordinary program of the same user (user 0 if started by root).
pub fn give_up_privileges() -> Result<(), Error> {
    let failed = |e: rustix::io::Errno| Error::system("drop capabilities", e);
    let keep = lasting_capabilities() & capabilities(None).map_err(failed)?.permitted;
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed)?;
    set_no_new_privs(true).map_err(failed)
}

/// What the kernel reports about an interface of this network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceFacts {
    /// The interface's MAC address.
    pub mac: [u8; 6],
    /// The line rate. `None` if the driver reports none (a virtual port, or a link that is down).
    pub speed: Option<BitRate>,
    /// The longest payload of a frame, in bytes.
    pub mtu: u32,
}

/// Number of bytes before the payload of a frame: an Ethernet header with a VLAN tag (IEEE 802.3, clause 3; IEEE
/// 802.1Q, 9.6).
const HEADER: u32 = 14 + 4;

impl InterfaceFacts {
    /// Length of the longest frame that the interface carries, in bytes, with a VLAN tag and without check sequence.
    pub fn longest_frame(&self) -> u32 {
        self.mtu.saturating_add(HEADER)
    }
}

/// Queries an interface with ioctls (netdevice(7), and `ETHTOOL_GSET` of include/uapi/linux/ethtool.h). Unlike the
/// files in /sys/class/net, ioctls always refer to the calling thread's network namespace.
pub fn interface_facts(name: &str) -> Result<InterfaceFacts, Error> {
    sys::interface_facts(name).map_err(|e| Error::Lacking {
        what: format!("query interface {name}"),
        why: e.to_string(),
        fix: "list the interfaces of this network namespace with ip link; choose another namespace with --netns".into(),
    })
}

/// Blocks the termination signals (SIGINT, SIGTERM, SIGHUP, SIGQUIT) in the whole process, so that one thread can wait
/// for them and they do not interrupt the workers.
///
/// Create this value before any thread is started, because threads inherit the signal mask.
#[derive(Debug)]
pub struct Signals(());

impl Signals {
    /// Blocks the signals in the calling thread.
    pub fn hold() -> Result<Self, Error> {
        sys::block_termination().map_err(|e| Error::system("block the termination signals", e))?;
        Ok(Self(()))
    }

    /// Waits for one of the signals and returns its number. `None` if none arrives within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<i32> {
        sys::wait_termination(timeout)
    }

    /// Runs `wait` with the signals unblocked in the calling thread, for example while it waits for a user: one of them
    /// then ends the process at once, also one that came before.
    pub fn released<T>(&self, wait: impl FnOnce() -> T) -> Result<T, Error> {
        sys::unblock_termination().map_err(|e| Error::system("unblock the termination signals", e))?;
        let result = wait();
        sys::block_termination().map_err(|e| Error::system("block the termination signals", e))?;
        Ok(result)
    }

    /// Starts a child process with the termination signals unblocked. Otherwise the child would inherit the blocked
    /// signals.
    pub fn spawn(command: &mut std::process::Command) -> std::io::Result<std::process::Child> {
        sys::spawn_unblocked(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_the_clock_is_read() {
        let text = |monotonic: &str| format!("monotonic  {monotonic}\nboottime           7         0\n");
        assert_eq!(offset_in(&text("       0         0")), Some(0));
        assert_eq!(offset_in(&text("   86400        12")), Some(86_400_000_000_012));
        assert_eq!(offset_in(&text("     -20 500000000")), Some(-19_500_000_000));
        assert_eq!((offset_in(&text("20")), offset_in("boottime 7 0\n")), (None, None));
        clock_offset().unwrap();
    }
}

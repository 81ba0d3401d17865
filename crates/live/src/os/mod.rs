//! What a worker's thread needs from the operating system: its CPU, its scheduling class, locked memory, termination
//! signals, and word to the service manager.

pub mod notify;
mod sys;

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, CpuSet, capabilities, set_capabilities, set_no_new_privs};
use units::{BitRate, Instant, Monotonic, Nanos};

use crate::Error;

/// The current time on `CLOCK_MONOTONIC`, by libc.
pub fn monotonic() -> Instant<Monotonic> {
    sys::monotonic()
}

/// How a worker's thread is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scheduling {
    /// The CPU to which the thread is pinned. `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
    /// Priority in the `SCHED_FIFO` class, 1 to 99. `None` stays in the normal class.
    pub fifo: Option<u8>,
}

/// Pins the calling thread, sets its scheduling class, and sets its timer slack to 1 ns. By default, 50 us are added to
/// every timed wait of the normal class (prctl(2), `PR_SET_TIMERSLACK`).
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

/// Sets the timer slack of the calling thread, at least 1 ns (prctl(2), `PR_SET_TIMERSLACK`). The kernel adds it to
/// timed waits of the normal class; real-time classes ignore it.
pub fn set_timer_slack(slack: Nanos) -> Result<(), Error> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(slack.as_nanos().max(1)))
        .map_err(|e| Error::system(format!("set the timer slack to {slack}"), e))
}

/// Restricts the calling thread, and all threads that it starts from now on, to `cpus`.
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
/// Raises the limit on locked memory if it is allowed to. Once privileges are dropped, that limit would bound every
/// later allocation.
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
/// all memory is locked and its limit could not be raised, CAP_IPC_LOCK is needed, because allocations fail without it.
pub fn lasting_capabilities() -> CapabilitySet {
    match getrlimit(Resource::Memlock).current {
        None => CapabilitySet::empty(),
        Some(_) => CapabilitySet::IPC_LOCK,
    }
}

/// Permanently drops all other capabilities of the calling thread, and those that a program started by it could gain.
/// An attacker who takes over this thread through a frame then has the rights of an ordinary program of this user (of
/// user 0 if that user started it).
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

/// Bytes of a frame before its payload: an Ethernet header with a VLAN tag (IEEE 802.3, clause 3; IEEE 802.1Q, 9.6).
const HEADER: u32 = 14 + 4;

impl InterfaceFacts {
    /// Length of the longest frame that the interface carries, in bytes: with a VLAN tag, without its check sequence.
    pub fn longest_frame(&self) -> u32 {
        self.mtu.saturating_add(HEADER)
    }
}

/// Reads the facts with ioctls (netdevice(7), and `ETHTOOL_GSET` of include/uapi/linux/ethtool.h). Unlike
/// /sys/class/net, they answer for the calling thread's network namespace.
pub fn interface_facts(name: &str) -> Result<InterfaceFacts, Error> {
    sys::interface_facts(name).map_err(|e| Error::Lacking {
        what: format!("query interface {name}"),
        why: e.to_string(),
        fix: "list the interfaces of this network namespace with ip link; choose another namespace with --netns".into(),
    })
}

/// Blocks the termination signals (SIGINT, SIGTERM, SIGHUP, SIGQUIT) in the whole process, so that one thread can wait
/// for them and the workers run undisturbed.
///
/// Create it before any thread is started, because threads inherit the signal mask.
#[derive(Debug)]
pub struct Signals(());

impl Signals {
    /// Blocks the signals in the calling thread.
    pub fn hold() -> Result<Self, Error> {
        sys::block_termination().map_err(|e| Error::system("block the termination signals", e))?;
        Ok(Self(()))
    }

    /// Waits for one of the signals and returns its number. `None` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<i32> {
        sys::wait_termination(timeout)
    }

    /// Starts a child process with the usual signal mask. Otherwise it would inherit the blocked signals.
    pub fn spawn(command: &mut std::process::Command) -> std::io::Result<std::process::Child> {
        sys::spawn_unblocked(command)
    }
}

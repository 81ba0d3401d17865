//! The CPUs on which threads may run, and their scheduling class.
//!
//! Source: sched(7), sched_setattr(2), sched_setaffinity(2).

mod sys;

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CpuSet as Affinity};
use serde::{Deserialize, Serialize};

use super::file::text;
use super::irq::{check_list, same_list};
use super::{Access, Error, Setting, Value};
use crate::facts::CpuSet;

/// A thread, identified by number and start time, because the kernel reuses numbers.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// The number of the thread.
    pub tid: u32,
    /// When the thread started, in clock ticks after boot (proc(5), /proc/pid/stat, field 22).
    pub started: u64,
    /// Name of the thread (`comm`), for messages only.
    pub name: String,
}

/// The CPUs on which a thread may run, as a list.
///
/// Some kernel threads are bound to their CPU (`PF_NO_SETAFFINITY`); the kernel rejects changes of their CPUs.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
pub struct ThreadAffinity {
    /// The thread that may run on these CPUs.
    #[serde(flatten)]
    pub thread: Thread,
}

/// A thread's scheduling class: `other NICE`, `batch NICE`, `idle NICE`, `fifo PRIORITY`, `rr PRIORITY`, `deadline
/// RUNTIME/DEADLINE/PERIOD` (ns), followed by ` reset-on-fork` if that flag is set.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
pub struct ThreadClass {
    /// The thread that has this scheduling class.
    #[serde(flatten)]
    pub thread: Thread,
}

/// When process `pid` started, in clock ticks after boot. `None` if no such process runs; a zombie does not count.
pub(crate) fn process_started(access: &Access, pid: u32) -> Result<Option<u64>, Error> {
    let stat = access.read(&format!("/proc/{pid}/stat"))?;
    let stat = stat.as_deref().and_then(Stat::parse);
    // The first thread may end before the others. Then /proc shows it as a zombie although the process still runs.
    Ok(stat.filter(|stat| !stat.ended || stat.threads > 1).map(|stat| stat.started))
}

/// All threads that may be moved but may not run on every online CPU. Empty if the machine is not the running one.
pub(super) fn pinned(access: &Access) -> Result<Vec<Thread>, Error> {
    /// Flag of threads that the kernel binds to their CPU (include/linux/sched.h, `PF_NO_SETAFFINITY`).
    const NO_SETAFFINITY: u64 = 0x0400_0000;
    if !access.is_live() {
        return Ok(Vec::new());
    }
    let online = super::online(access)?;
    let mut found = Vec::new();
    for thread in threads_if(access, |stat| !stat.ended && stat.flags & NO_SETAFFINITY == 0)? {
        let affinity = ThreadAffinity { thread };
        let cpus = affinity.read(access).ok().flatten();
        let cpus = cpus.and_then(|cpus| cpus.as_text()?.parse::<CpuSet>().ok());
        if cpus.is_some_and(|cpus| !online.is_subset(&cpus)) {
            found.push(affinity.thread);
        }
    }
    Ok(found)
}

/// All threads whose name begins with `prefix`.
pub fn threads(access: &Access, prefix: &str) -> Result<Vec<Thread>, Error> {
    threads_if(access, |stat| !stat.ended && stat.name.starts_with(prefix))
}

fn threads_if(access: &Access, which: impl Fn(&Stat) -> bool) -> Result<Vec<Thread>, Error> {
    let mut found = Vec::new();
    for process in access.numbered("/proc", "")? {
        for tid in access.numbered(&format!("/proc/{process}/task"), "")? {
            let path = format!("/proc/{process}/task/{tid}/stat");
            // A thread may end during the search.
            if let Ok(Some(text)) = access.read(&path)
                && let Some(stat) = Stat::parse(&text).filter(&which)
            {
                found.push(Thread { tid, started: stat.started, name: stat.name });
            }
        }
    }
    Ok(found)
}

/// The contents of /proc/PID/stat (proc_pid_stat(5)).
#[derive(PartialEq, Eq, Debug)]
struct Stat {
    name: String,
    /// Whether the thread is a zombie or dead (state Z or X).
    ended: bool,
    flags: u64,
    threads: u64,
    started: u64,
}

impl Stat {
    /// Parses the file. The thread's name is in parentheses and may contain any characters. The first field after the
    /// name is the state (field 3).
    fn parse(stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        let ended = matches!(*fields.first()?, "Z" | "X" | "x");
        Some(Self { name, ended, flags: number(9)?, threads: number(20)?, started: number(22)? })
    }
}

impl Thread {
    /// The thread with number `tid`. `None` if there is no such thread, or if it is a zombie.
    pub fn find(access: &Access, tid: u32) -> Result<Option<Self>, Error> {
        let stat = access.read(&format!("/proc/{tid}/stat"))?;
        let stat = stat.as_deref().and_then(Stat::parse).filter(|stat| !stat.ended);
        Ok(stat.map(|stat| Self { tid, started: stat.started, name: stat.name }))
    }

    /// Whether the thread still exists. Always false if the machine is not the running one.
    fn lives(&self, access: &Access) -> Result<bool, Error> {
        Ok(access.is_live() && Self::find(access, self.tid)?.is_some_and(|now| now.started == self.started))
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.tid).ok().and_then(Pid::from_raw)
    }
}

impl Setting for ThreadAffinity {
    fn label(&self) -> String {
        format!("CPUs of thread {} ({})", self.thread.tid, self.thread.name)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        if !self.thread.lives(access)? {
            return Ok(None);
        }
        match rustix::thread::sched_getaffinity(self.thread.pid()) {
            Ok(set) => {
                let cpus: CpuSet =
                    (0..Affinity::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect();
                Ok(Some(Value::text(cpus)))
            }
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(e) => Err(Error::of(format!("read the {}", self.label()), &e.into())),
        }
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let what = format!("set the {} to {value}", self.label());
        let cpus: CpuSet = text(&self.label(), value)?.parse().map_err(|e| Error::invalid(&what, format!("{e}")))?;
        let mut set = Affinity::new();
        cpus.iter().filter(|cpu| (*cpu as usize) < Affinity::MAX_CPU).for_each(|cpu| set.set(cpu as usize));
        access
            .act("sched_setaffinity", &what, || rustix::thread::sched_setaffinity(self.thread.pid(), &set))
            .map_err(|e| Error::of(&what, &e.into()))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        check_list(&self.label(), value)
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        same_list(a, b)
    }

    fn is_of_thread(&self) -> bool {
        true
    }

    fn capability(&self) -> CapabilitySet {
        CapabilitySet::SYS_NICE
    }
}

/// A scheduling class with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Class {
    policy: u32,
    /// Nice value (-20 to 19) or real-time priority (1 to 99), depending on the class.
    rank: i32,
    /// Runtime, deadline and period, in nanoseconds.
    times: [u64; 3],
    reset_on_fork: bool,
}

/// Names of the scheduling policies with their numbers (include/uapi/linux/sched.h).
const POLICIES: [(&str, u32); 6] = [("other", 0), ("fifo", 1), ("rr", 2), ("batch", 3), ("idle", 5), ("deadline", 6)];

impl Class {
    fn parse(text: &str) -> Option<Self> {
        let (text, reset_on_fork) = text.strip_suffix(" reset-on-fork").map_or((text, false), |text| (text, true));
        let (name, rest) = text.split_once(' ')?;
        let policy = POLICIES.iter().find(|(known, _)| *known == name)?.1;
        let mut class = Self { policy, rank: 0, times: [0; 3], reset_on_fork };
        match name {
            "deadline" => {
                let times: Vec<u64> = rest.split('/').map(|n| n.parse().ok()).collect::<Option<_>>()?;
                class.times = times.try_into().ok()?;
            }
            "fifo" | "rr" => class.rank = rest.parse().ok().filter(|n| (1..=99).contains(n))?,
            _ => class.rank = rest.parse().ok().filter(|n| (-20..=19).contains(n))?,
        }
        Some(class)
    }

    fn show(&self) -> Option<String> {
        let name = POLICIES.iter().find(|(_, policy)| *policy == self.policy)?.0;
        let [runtime, deadline, period] = self.times;
        let rest = if name == "deadline" { format!("{runtime}/{deadline}/{period}") } else { self.rank.to_string() };
        Some(format!("{name} {rest}{}", if self.reset_on_fork { " reset-on-fork" } else { "" }))
    }
}

impl Setting for ThreadClass {
    fn label(&self) -> String {
        format!("scheduling class of thread {} ({})", self.thread.tid, self.thread.name)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        if !self.thread.lives(access)? {
            return Ok(None);
        }
        match sys::class_of(self.thread.tid) {
            Ok(class) => {
                let strange = || Error::unreadable(self.label(), &format!("policy {}", class.policy), "a known class");
                class.show().map(|text| Some(Value::Text(text))).ok_or_else(strange)
            }
            Err(e) => match Error::of(format!("read the {}", self.label()), &e) {
                Error::NotThere { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let what = format!("set the {} to {value}", self.label());
        let class = Class::parse(text(&self.label(), value)?).ok_or_else(|| self.wrong(value))?;
        access.act("sched_setattr", &what, || sys::set_class(self.thread.tid, &class)).map_err(|e| Error::of(&what, &e))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        Class::parse(text(&self.label(), value)?).map(|_| ()).ok_or_else(|| self.wrong(value))
    }

    fn is_of_thread(&self) -> bool {
        true
    }

    fn capability(&self) -> CapabilitySet {
        CapabilitySet::SYS_NICE
    }
}

impl ThreadClass {
    fn wrong(&self, value: &Value) -> Error {
        let known =
            "other, batch or idle with -20 to 19; fifo or rr with 1 to 99; deadline RUNTIME/DEADLINE/PERIOD in ns";
        Error::invalid(self.label(), format!("{value}: expected {known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{AnySetting, Knob, Restored, Theirs};

    #[test]
    fn classes_are_read_as_written() {
        for text in
            ["other 0", "batch -5", "idle 0", "fifo 50", "rr 1 reset-on-fork", "deadline 1000000/5000000/5000000"]
        {
            assert_eq!(Class::parse(text).unwrap().show().unwrap(), text);
        }
        for text in ["fifo 0", "fifo 100", "other 20", "deadline 1/2", "fifo", "ext 0", ""] {
            assert!(Class::parse(text).is_none(), "{text:?} was taken");
        }
    }

    #[test]
    fn names_may_hold_anything() {
        let stat = "7 (a ) (b) c) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let read = Stat { name: "a ) (b) c".into(), ended: false, flags: 4_194_560, threads: 1, started: 4242 };
        assert_eq!(Stat::parse(stat), Some(read));
    }

    #[test]
    fn a_thread_of_ones_own_is_moved_and_moved_back() {
        let access = Access::live().unwrap();
        let tid = rustix::thread::gettid().as_raw_pid() as u32;
        let thread = Thread::find(&access, tid).unwrap().unwrap();
        let affinity = Knob(AnySetting::from(ThreadAffinity { thread: thread.clone() }));
        let before = affinity.read(&access).unwrap().unwrap();
        let first = before.as_text().unwrap().parse::<CpuSet>().unwrap().iter().next().unwrap();
        let change = affinity.set(&access, &Value::text(first)).unwrap();
        assert!(change.verdict.is_good(), "{change:?}");
        affinity.restore(&access, &before, change.verdict.now(), Theirs::Keep).unwrap();
        assert_eq!(affinity.read(&access).unwrap(), Some(before));
        // A thread may always lower its own rank: to batch, and back to other.
        let class = Knob(AnySetting::from(ThreadClass { thread: thread.clone() }));
        let before = class.read(&access).unwrap().unwrap();
        let nice = before.as_text().unwrap().rsplit(' ').next().unwrap().to_owned();
        let change = class.set(&access, &Value::text(format!("batch {nice}"))).unwrap();
        assert!(change.verdict.is_good(), "{change:?}");
        let restored = class.restore(&access, &before, change.verdict.now(), Theirs::Keep).unwrap();
        assert_eq!((restored, class.read(&access).unwrap()), (Restored::Restored, Some(before)));
        let other = Thread { started: thread.started + 1, ..thread };
        let gone = Knob(ThreadAffinity { thread: other });
        assert_eq!(gone.read(&access).unwrap(), None, "another thread with the same number");
    }
}

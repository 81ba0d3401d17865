//! CPU time and context switches of another process, as the kernel counts them.
//!
//! CPU time is `sum_exec_runtime`, the first number of `/proc/PID/task/TID/schedstat`, in nanoseconds (kernel
//! documentation, scheduler/sched-stats). Unlike utime and stime, it is exact, not sampled at timer ticks. But the
//! kernel updates it for a running thread only at a tick or a context switch, so each end of a measurement is off by up
//! to 1/HZ (4 ms at 250 Hz). So measure for several seconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use units::{Instant, Monotonic, Nanos};

use crate::Error;

/// Which threads of a process to count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All threads that exist when the sample is taken.
    All,
    /// The threads with these identifiers.
    These(Vec<u32>),
}

/// Counters of one thread, since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadCpu {
    /// Time on a CPU.
    pub cpu: Nanos,
    /// Time for which the thread was ready to run but waited for a CPU.
    pub run_delay: Nanos,
    /// Number of context switches because the thread blocked; a wake-up follows each.
    pub voluntary_switches: u64,
    /// Number of context switches because the thread was preempted.
    pub involuntary_switches: u64,
}

/// Counters of some threads of a process at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuSample {
    /// When the sample was taken; the caller gives this time.
    pub at: Instant<Monotonic>,
    /// Counters by thread identifier.
    pub threads: BTreeMap<u32, ThreadCpu>,
}

/// CPU time that some threads used between two samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuUse {
    /// Time between the samples.
    pub interval: Nanos,
    /// Time on a CPU, summed over the threads.
    pub cpu: Nanos,
    /// Time for which the threads were ready to run but waited for a CPU, summed over the threads.
    pub run_delay: Nanos,
    /// Context switches because a thread blocked.
    pub voluntary_switches: u64,
    /// Context switches because a thread was preempted.
    pub involuntary_switches: u64,
    /// Number of threads in the second sample.
    pub threads: usize,
    /// Number of threads that ended between the samples; their CPU time after the first sample is not counted.
    pub threads_ended: usize,
}

impl CpuUse {
    /// CPU time as a share of one CPU; `None` if no time passed.
    pub fn share_of_one_cpu(&self) -> Option<f64> {
        (self.interval > Nanos::ZERO).then(|| self.cpu.as_nanos() as f64 / self.interval.as_nanos() as f64)
    }
    /// Voluntary context switches per second, each of which ended with a wake-up; `None` if no time passed.
    pub fn wakeups_per_second(&self) -> Option<f64> {
        (self.interval > Nanos::ZERO).then(|| self.voluntary_switches as f64 * 1e9 / self.interval.as_nanos() as f64)
    }
}

/// Reads the counters of process `pid` from the `/proc` below `root` (`/`, or the folder of a recorded host). `at` is
/// the current time, to store in the sample.
///
/// A thread that ends while its counters are read is left out with [`Threads::All`], but is an error with
/// [`Threads::These`].
pub fn sample(root: &Path, pid: u32, threads: &Threads, at: Instant<Monotonic>) -> Result<CpuSample, Error> {
    let tasks = root.join("proc").join(pid.to_string()).join("task");
    let file_error = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    };
    let tids = match threads {
        Threads::These(tids) => tids.clone(),
        Threads::All => {
            let mut tids = Vec::new();
            for entry in fs::read_dir(&tasks).map_err(file_error(&tasks))? {
                let name = entry.map_err(file_error(&tasks))?.file_name();
                let tid = name.to_str().and_then(|name| name.parse().ok());
                tids.push(tid.ok_or_else(|| Error::malformed(&tasks, format!("{name:?} is not a thread id")))?);
            }
            tids
        }
    };
    let mut found = BTreeMap::new();
    for tid in tids {
        match thread(&tasks.join(tid.to_string())) {
            Ok(counters) => drop(found.insert(tid, counters)),
            Err(Error::File { .. }) if *threads == Threads::All => {}
            Err(error) => return Err(error),
        }
    }
    if found.is_empty() {
        return Err(Error::malformed(tasks, "no thread is running any more"));
    }
    Ok(CpuSample { at, threads: found })
}

/// The CPU time used between two samples; `None` if they are in the wrong order.
pub fn difference(first: &CpuSample, second: &CpuSample) -> Option<CpuUse> {
    let interval = second.at.since(first.at)?;
    let nothing = CpuUse {
        interval,
        cpu: Nanos::ZERO,
        run_delay: Nanos::ZERO,
        voluntary_switches: 0,
        involuntary_switches: 0,
        threads: second.threads.len(),
        threads_ended: first.threads.keys().filter(|tid| !second.threads.contains_key(tid)).count(),
    };
    second.threads.iter().try_fold(nothing, |sum, (tid, after)| {
        // The counters of a thread that started between the samples began at 0.
        const NEW: ThreadCpu =
            ThreadCpu { cpu: Nanos::ZERO, run_delay: Nanos::ZERO, voluntary_switches: 0, involuntary_switches: 0 };
        let before = first.threads.get(tid).unwrap_or(&NEW);
        Some(CpuUse {
            cpu: sum.cpu + after.cpu.checked_sub(before.cpu)?,
            run_delay: sum.run_delay + after.run_delay.checked_sub(before.run_delay)?,
            voluntary_switches: sum.voluntary_switches
                + after.voluntary_switches.checked_sub(before.voluntary_switches)?,
            involuntary_switches: sum.involuntary_switches
                + after.involuntary_switches.checked_sub(before.involuntary_switches)?,
            ..sum
        })
    })
}

fn thread(task: &Path) -> Result<ThreadCpu, Error> {
    let read = |name: &str| -> Result<(PathBuf, String), Error> {
        let path = task.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(Error::File { path, source }),
        }
    };
    let (path, schedstat) = read("schedstat")?;
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    let (Some(Ok(cpu)), Some(Ok(run_delay))) = (numbers.next(), numbers.next()) else {
        return Err(Error::malformed(path, format!("expected \"CPU_NS DELAY_NS SLICES\", found {schedstat:?}")));
    };
    let (path, status) = read("status")?;
    let counter = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|rest| rest.trim().parse().ok());
        number.ok_or_else(|| Error::malformed(&path, format!("it has no line \"{name}: N\"")))
    };
    Ok(ThreadCpu {
        cpu: Nanos::from_nanos(cpu),
        run_delay: Nanos::from_nanos(run_delay),
        voluntary_switches: counter("voluntary_ctxt_switches")?,
        involuntary_switches: counter("nonvoluntary_ctxt_switches")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Root(PathBuf);
    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("apus-cpu-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }
        fn thread(&self, tid: u32, schedstat: &str, voluntary: u64) {
            let task = self.0.join(format!("proc/7/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("schedstat"), schedstat).unwrap();
            let status = format!("Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t3\n");
            fs::write(task.join("status"), status).unwrap();
        }
        fn sample(&self, threads: &Threads, at: u64) -> Result<CpuSample, Error> {
            sample(&self.0, 7, threads, Instant::from_nanos(at))
        }
    }
    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn sums_the_threads_that_are_there() {
        let root = Root::new("sums");
        root.thread(7, "1000 10 1\n", 5);
        root.thread(8, "500 0 1\n", 0);
        let first = root.sample(&Threads::All, 0).unwrap();
        root.thread(7, "4000 30 1\n", 9);
        root.thread(9, "100 0 1\n", 1);
        fs::remove_dir_all(root.0.join("proc/7/task/8")).unwrap();
        let second = root.sample(&Threads::All, 10_000).unwrap();
        let used = difference(&first, &second).unwrap();
        assert_eq!((used.cpu.as_nanos(), used.run_delay.as_nanos(), used.voluntary_switches), (3_100, 20, 5));
        assert_eq!((used.threads, used.threads_ended), (2, 1));
        assert!((used.share_of_one_cpu().unwrap() - 0.31).abs() < 1e-9);
        assert!((used.wakeups_per_second().unwrap() - 500_000.0).abs() < 1e-6);
        assert_eq!(difference(&second, &first), None);
    }

    #[test]
    fn says_what_is_missing() {
        let root = Root::new("missing");
        root.thread(7, "1000\n", 5);
        assert!(root.sample(&Threads::All, 0).unwrap_err().to_string().contains("schedstat"));
        root.thread(7, "1000 1 1\n", 5);
        assert!(root.sample(&Threads::These(vec![9]), 0).unwrap_err().to_string().contains("task/9/schedstat"));
        assert_eq!(root.sample(&Threads::These(vec![7]), 0).unwrap().threads.len(), 1);
        assert!(sample(&root.0, 8, &Threads::All, Instant::ORIGIN).is_err());
    }

    #[test]
    fn reads_this_process() {
        let pid = std::process::id();
        let first = sample(Path::new("/"), pid, &Threads::All, Instant::ORIGIN).unwrap();
        assert!(!first.threads.is_empty());
    }
}

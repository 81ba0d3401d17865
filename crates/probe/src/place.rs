//! Pins measuring threads to their CPUs, and keeps observing threads off these CPUs.

use std::ffi::CString;
use std::marker::PhantomData;

use live::os::{self, Scheduling};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use units::Nanos;

use crate::Error;

/// CPU, scheduling class, priority and timer slack of a measuring thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// CPU that the thread is pinned to.
    pub cpu: usize,
    /// SCHED_FIFO priority, 1 to 99; `None` leaves the thread in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Timer slack, at least 1 ns. It has no effect in the real-time classes (prctl(2)).
    pub slack: Nanos,
}

impl Place {
    /// Placement on `cpu` in the normal class, with the minimum timer slack (1 ns).
    pub const fn on(cpu: usize) -> Self {
        Self { cpu, priority: None, slack: Nanos::from_nanos(1) }
    }

    /// Applies the settings to the calling thread, and names it `name` (at most 15 bytes; visible in /proc and in
    /// tracepoints).
    pub fn take(&self, name: &str) -> Result<(), Error> {
        let short: String = name.chars().take(15).collect();
        if let Ok(name) = CString::new(short) {
            rustix::thread::set_name(&name).map_err(|e| Error::system("name a thread", e))?;
        }
        os::place_this_thread(Scheduling { cpu: Some(self.cpu), fifo: self.priority })?;
        os::set_timer_slack(self.slack)?;
        Ok(())
    }
}

/// Returns the CPUs in the affinity mask of this process, in ascending order. The result is the mask of the main
/// thread, because the calling thread may be restricted to fewer CPUs. Isolated CPUs (`isolcpus=`), and those that
/// `taskset` left out, are not in it, but a thread may still be pinned to them: see [`check`].
pub fn allowed() -> Result<Vec<usize>, Error> {
    affinity(Some(rustix::process::getpid()))
}

fn affinity(thread: Option<Pid>) -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(thread).map_err(|e| Error::system("read the CPUs of this process", e))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Keeps the thread that created it off the measured CPUs. Dropping the value restores the former affinity.
#[derive(Debug)]
pub struct Elsewhere {
    /// CPUs that the thread could use before; `None` if there was nothing to change.
    before: Option<Vec<usize>>,
    /// Ties the value to its thread.
    here: PhantomData<*const ()>,
}

impl Elsewhere {
    /// Moves the calling thread off the CPUs `measured`. If the process has no other CPU, the thread stays where it is.
    pub fn than(measured: &[usize]) -> Result<Self, Error> {
        let others: Vec<usize> = allowed()?.into_iter().filter(|cpu| !measured.contains(cpu)).collect();
        if others.is_empty() {
            return Ok(Self { before: None, here: PhantomData });
        }
        let before = affinity(None)?;
        os::allow_cpus(&others)?;
        Ok(Self { before: Some(before), here: PhantomData })
    }

    /// Whether the thread was moved off the measured CPUs. False if the process has no other CPU.
    pub fn is_elsewhere(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A CPU may have gone offline in the meantime. Then the kernel keeps the remaining ones.
            let _ = os::allow_cpus(before);
        }
    }
}

/// Checks that the kernel lets a thread of this process run on each CPU of `wanted`, and that each is given once.
pub fn check(wanted: &[usize]) -> Result<(), Error> {
    check_with(wanted, None)
}

/// Checks the same as [`check`], and that the thread may run there under SCHED_FIFO at `priority`, if one is given.
pub fn check_with(wanted: &[usize], priority: Option<u8>) -> Result<(), Error> {
    if wanted.is_empty() {
        return Err(Error::invalid("no CPU to measure on", "give at least one, such as --cpu 1"));
    }
    for (at, cpu) in wanted.iter().enumerate() {
        if wanted[..at].contains(cpu) {
            return Err(Error::invalid(format!("CPU {cpu}"), "it is given twice"));
        }
    }
    let pin = |cpu: usize| match os::place_this_thread(Scheduling { cpu: Some(cpu), fifo: None }) {
        Err(live::Error::Lacking { why, .. }) => Err(Error::lacking(
            format!("measure on CPU {cpu}"),
            format!("the kernel does not let this process run there: {why}"),
            format!("choose a CPU that is online and in this process's cpuset: `taskset -c {cpu} true` must succeed"),
        )),
        placed => Ok(placed?),
    };
    // Only the kernel knows the cpuset, so a thread tries. It is a separate one, because the calling thread stays
    // where it is.
    std::thread::scope(|scope| {
        let tries = || -> Result<(), Error> {
            wanted.iter().try_for_each(|cpu| pin(*cpu))?;
            Ok(os::place_this_thread(Scheduling { cpu: None, fifo: priority })?)
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, tries);
        let thread = thread.map_err(|e| Error::system("start a thread", e))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let last = *allowed().unwrap().last().unwrap();
        assert!(check(&[last]).is_ok());
        assert!(matches!(check(&[]), Err(Error::Invalid { .. })));
        assert!(matches!(check(&[last, last]), Err(Error::Invalid { .. })));
        for absent in [last + 5000, CpuSet::MAX_CPU - 1] {
            let error = check(&[absent]).unwrap_err();
            assert!(error.lacks() && error.to_string().contains(&format!("taskset -c {absent} true")), "{error}");
        }
    }

    #[test]
    fn a_thread_that_looks_on_leaves_the_measured_cpu_and_comes_back() {
        // On a separate thread, because otherwise the affinity of the test runner would change.
        std::thread::spawn(|| {
            let all = allowed().unwrap();
            let before = affinity(None).unwrap();
            {
                let away = Elsewhere::than(&all[..1]).unwrap();
                assert_eq!(away.is_elsewhere(), all.len() > 1);
                assert_eq!(affinity(None).unwrap().contains(&all[0]), !away.is_elsewhere());
                // Another measurement started meanwhile may still use all CPUs.
                assert!(check(&all).is_ok());
            }
            assert_eq!(affinity(None).unwrap(), before);
        })
        .join()
        .unwrap();
    }
}

//! Rules on threads, workqueues, the scheduler and tracing.

mod application;
mod groups;
mod kernel_threads;
mod scheduler;
mod tracing;
mod workqueues;

use host::Facts;
use host::facts::{Task, TaskCounts};

use crate::{Context, Rule};

pub(super) use groups::{is_of_kubernetes, judge_quotas};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] =
    &[workqueues::RULES, kernel_threads::RULES, application::RULES, groups::RULES, scheduler::RULES, tracing::RULES];

/// User threads that may run only on isolated CPUs. As far as the facts show, these are the application's threads.
pub(super) fn application<'a>(facts: &'a Facts, context: &'a Context) -> impl Iterator<Item = &'a Task> {
    let isolated = &context.isolated.value;
    facts.tasks().filter(move |task| {
        !task.kernel && task.affinity.is(|set| !set.is_empty() && set.is_subset(isolated)) == Some(true)
    })
}

/// Formats a thread as its name and identifier: `l1app (4711)`.
pub(super) fn named(task: &Task) -> String {
    format!("{} ({})", task.comm, task.tid)
}

/// Number of times that a thread was switched out, either to wait or because another thread ran.
fn switches(counts: &TaskCounts) -> u64 {
    counts.voluntary_switches.unwrap_or(0) + counts.involuntary_switches.unwrap_or(0)
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[
    workqueues::tests::CASES,
    kernel_threads::tests::CASES,
    application::tests::CASES,
    groups::tests::CASES,
    scheduler::tests::CASES,
    tracing::tests::CASES,
];

/// Sample threads for the test cases of this group and of other groups.
#[cfg(test)]
pub(crate) mod samples {
    use host::Fact;
    use host::facts::{Facts, SchedClass, Task};

    /// A thread that may run on these CPUs.
    pub(crate) fn task(tid: u32, comm: &str, cpus: &str) -> Task {
        let affinity = Fact::known(cpus.parse().expect("a CPU list"), format!("/proc/{tid}/status").as_str());
        Task { pid: tid, tid, comm: comm.into(), process: comm.into(), affinity, state: 'S', ..Task::default() }
    }

    /// A kernel thread.
    pub(crate) fn kernel(tid: u32, comm: &str, cpus: &str) -> Task {
        Task { kernel: true, ..task(tid, comm, cpus) }
    }

    /// The thread `task`, under SCHED_FIFO.
    pub(crate) fn fifo(task: Task, rt_priority: u32) -> Task {
        Task { class: SchedClass::Fifo, rt_priority, ..task }
    }

    /// Puts threads into a host.
    pub(crate) fn put(facts: &mut Facts, tasks: Vec<Task>) {
        facts.tasks = Fact::known(tasks, "/proc/*/task/*");
    }
}

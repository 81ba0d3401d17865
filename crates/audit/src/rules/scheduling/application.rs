//! Rules on user threads: those of the application, and other threads on its CPUs.

use std::collections::{BTreeMap, BTreeSet};

use host::Facts;
use host::facts::{CpuSet, SchedClass, Task};
use units::Nanos;

use super::super::common::without_balancing;
use super::{application, named, switches};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const ISOLATION: &str = "Linux Documentation/admin-guide/cpu-isolation.rst";
const FLEXRAN: &str = "FlexRAN real-time platform slides (2018)";
/// Maximum number of threads that a finding names.
const NAMED: usize = 5;

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "usr.threads-on-iso",
        cause: Cause::SchedulerIsolation,
        title: "Other user threads stay off the isolated CPUs",
        applies: Applies::LINUX.isolated(),
        judge: others,
        why: "The scheduler puts a thread that may run everywhere onto a CPU of the application as soon as that CPU is \
         idle, and the thread stays until it sleeps. nohz_full does not keep CPUs in the scheduler's domains free.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of up to 3 ms, and the cache lines that it leaves behind",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice: 0.70 or 0.75 ms by version, times 1 + log2(CPUs), a factor of at most 4",
        ),
        fix: Fix::both(
            "for u in init.scope system.slice user.slice; do systemctl set-property --runtime $u AllowedCPUs={housekeeping}; done",
            "/etc/systemd/system.conf: CPUAffinity={housekeeping}",
        ),
        cost: "The housekeeping CPUs run all services.",
        references: &[ISOLATION, "systemd-system.conf(5), CPUAffinity=", "tuned profile cpu-partitioning"],
    },
    Rule {
        id: "app.sched-class",
        cause: Cause::Priorities,
        title: "The application's scheduling class fits the way it waits",
        applies: Applies::LINUX.isolated(),
        judge: class,
        why: "A thread that sleeps until an interrupt arrives should run at once when it is woken, so it needs \
         SCHED_FIFO. A thread that never sleeps gains little from SCHED_FIFO. At priority 99 nothing else runs on \
         its CPU any more, not even the kernel's migration and watchdog threads.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a woken thread of the normal class can wait for the time slice of another: up to 3 ms",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice; Intel P-state guide: chrt -f -p 99 \"can stabilize the latency somewhat\"",
        ),
        fix: Fix::for_good("unit of the service: CPUSchedulingPolicy=fifo, CPUSchedulingPriority=50")
            .against(&["Intel P-state guide: FIFO 99; Linux real-time documentation: below the threads of the kernel"]),
        cost: "A real-time thread that does not sleep starves all other threads on its CPU.",
        references: &[
            "Intel P-state guide (637284-001US, 2021), appendix A",
            "Linux Documentation/core-api/real-time/hardware.rst",
            FLEXRAN,
        ],
    },
    Rule {
        id: "app.one-task-per-cpu",
        cause: Cause::ApplicationThreads,
        title: "Each isolated CPU has one thread to run",
        applies: Applies::LINUX.isolated(),
        judge: one_each,
        why: "Two runnable threads on one CPU share it by time slices, and the second one brings the tick back to a \
         nohz_full CPU. CPUs outside the scheduler's domains are not balanced: threads whose masks overlap stay \
         where they started.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of up to 3 ms, and 100 to 1000 ticks per second",
            "Linux Documentation/timers/no_hz.rst; kernel/sched/fair.c, sysctl_sched_base_slice",
        ),
        fix: Fix::for_good("pin one thread to each CPU, and control threads to {housekeeping} (taskset -pc)"),
        cost: "Each thread needs a CPU of its own.",
        references: &[ISOLATION, "Linux Documentation/timers/no_hz.rst"],
    },
    Rule {
        id: "app.syscalls-on-iso",
        cause: Cause::ApplicationThreads,
        title: "Polling threads stay out of the kernel",
        applies: Applies::LINUX.to(&[Workload::Poll]).isolated(),
        judge: in_kernel,
        why: "A thread that polls neither sleeps, nor faults, nor calls the kernel in its steady state. If it enters \
              the kernel all the same, the reason is a lock, a page that was not locked, a clock that is read through \
              the kernel, or a preemption. Under nohz_full each entry costs more.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a system call takes about 1 us under nohz_full, a context switch a few us, a major fault as long as the disk takes",
            "FlexRAN real-time platform slides (2018): no system calls in real-time threads; the figures are general knowledge",
        ),
        fix: Fix::look("perf trace -s -C {isolated} sleep 5 # interrupts these CPUs: run it on a test host"),
        cost: "The application has to be changed.",
        references: &[FLEXRAN, ISOLATION],
    },
    Rule {
        id: "app.cpu0",
        cause: Cause::Housekeeping,
        title: "The application does not run on CPU 0",
        applies: Applies::LINUX,
        judge: first_cpu,
        why: "CPU 0 keeps time for the others and gets the drivers' interrupts first. It cannot be isolated: the \
              kernel takes the boot CPU out of nohz_full.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "the tick, 100 to 1000 per second, and the interrupts of all devices that were not placed explicitly",
            "Linux Documentation/admin-guide/kernel-parameters.txt, nohz_full (the boot CPU keeps the time); DPDK Getting Started Guide for Linux, enable_func",
        ),
        fix: Fix::for_good("pin the named threads to {isolated} instead (taskset -pc)"),
        cost: "None, if another CPU is free.",
        references: &["DPDK Getting Started Guide for Linux, enable_func", "Linux Documentation/timers/no_hz.rst"],
    },
];

fn others(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    known(&facts.tasks)?;
    let affine: Vec<(&Task, &CpuSet)> =
        facts.tasks().filter(|task| !task.kernel).filter_map(|task| Some((task, task.affinity.value()?))).collect();
    if affine.is_empty() {
        return Err(Skip::unknown("where the threads of users may run was not recorded"));
    }
    // On CPUs without load balancing, only threads run that were explicitly placed there.
    let unbalanced = without_balancing(facts);
    let open = isolated.difference(unbalanced.value().unwrap_or(&CpuSet::new()));
    let source = facts.tasks.source();
    if open.is_empty() {
        let found = "the scheduler puts no thread there by itself";
        return Judgement::pass_for(isolated, found).see(&unbalanced).see_as("all threads", source).alone();
    }
    let stray: Vec<&Task> = affine
        .iter()
        .filter(|(_, cpus)| cpus.intersects(&open) && !cpus.is_subset(isolated))
        .map(|(t, _)| *t)
        .collect();
    let judgement = match stray.len() {
        0 => Judgement::pass_for(&open, format!("none of {} other threads may run there", affine.len())),
        n => Judgement::warn_for(&open, format!("{n} of {} user threads may run there and elsewhere", affine.len())),
    };
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    stray.iter().for_each(|task| *names.entry(&task.process).or_default() += 1);
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let names: Vec<String> = names.iter().take(NAMED).map(|(name, n)| format!("{name} ({n})")).collect();
    let seen = if names.is_empty() { format!("{} threads", affine.len()) } else { names.join(", ") };
    judgement.see_as(seen, source).see(&facts.services.systemd_cpu_affinity).alone()
}

/// The application's threads. Fails if none are known.
fn own<'a>(facts: &'a Facts, context: &'a Context) -> Result<Vec<&'a Task>, Skip> {
    known(&facts.tasks)?;
    if facts.tasks().all(|task| !task.affinity.is_known()) {
        return Err(Skip::unknown("where the threads may run was not recorded"));
    }
    let own: Vec<&Task> = application(facts, context).collect();
    match own.is_empty() {
        true => Err(Skip::not_applicable("no thread of a user is bound to the isolated CPUs")),
        false => Ok(own),
    }
}

fn class(facts: &Facts, context: &Context) -> Judged {
    let sleeps = context.is(Workload::Interrupt) && !context.is(Workload::Poll);
    let source = facts.tasks.source();
    let mut judgements = Vec::new();
    let tasks = own(facts, context)?;
    let normal = |task: &&&Task| matches!(task.class, SchedClass::Normal | SchedClass::Batch | SchedClass::Idle);
    let highest: Vec<&&Task> = tasks.iter().filter(|t| t.class.is_realtime() && t.rt_priority == 99).collect();
    if let Some(first) = highest.first() {
        let found = format!("{} threads have real-time priority 99, for example {}", highest.len(), named(first));
        let subject = Subject::Named(format!("threads of priority 99 on CPUs {}", context.isolated.value));
        judgements.push(Judgement::warn_for(subject, found).see_as("priority 99", source));
    }
    if sleeps && let Some(first) = tasks.iter().find(|task| normal(task)) {
        let n = tasks.iter().filter(normal).count();
        let found = format!("{n} threads wait for interrupts in the normal class, for example {}", named(first));
        judgements.push(Judgement::warn_for(&context.isolated.value, found).see_as("SCHED_OTHER", source));
    }
    if judgements.is_empty() {
        let realtime = tasks.iter().filter(|task| task.class.is_realtime()).count();
        let found = format!("{realtime} of {} threads are real-time ones, below priority 99", tasks.len());
        judgements.push(
            Judgement::pass_for(&context.isolated.value, found).see_as(format!("{} threads", tasks.len()), source),
        );
    }
    Ok(judgements)
}

fn one_each(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    let tasks = own(facts, context)?;
    let source = facts.tasks.source();
    let mut runnable: BTreeMap<u32, Vec<&Task>> = BTreeMap::new();
    // Every runnable thread on these CPUs competes, whether it is the application's or not.
    for task in facts.tasks().filter(|task| task.state == 'R') {
        if let Some(cpu) = task.last_cpu.filter(|cpu| isolated.contains(*cpu)) {
            runnable.entry(cpu).or_default().push(task);
        }
    }
    let mut pinned: BTreeMap<u32, Vec<&Task>> = BTreeMap::new();
    for task in tasks {
        if let Some(cpu) = task.affinity.value().filter(|cpus| cpus.len() == 1).and_then(CpuSet::first) {
            pinned.entry(cpu).or_default().push(task);
        }
    }
    let names = |tasks: &[&Task]| tasks.iter().take(NAMED).map(|task| named(task)).collect::<Vec<_>>().join(", ");
    let mut judgements = Vec::new();
    for (cpu, tasks) in runnable.iter().filter(|(_, tasks)| tasks.len() > 1) {
        let found = format!("{} threads want to run on CPU {cpu} at the same time", tasks.len());
        judgements.push(Judgement::fail_for(*cpu, found).see_as(names(tasks), source));
    }
    for (cpu, tasks) in pinned.iter().filter(|(cpu, tasks)| tasks.len() > 1 && !is_crowded(&runnable, **cpu)) {
        let found = format!("{} threads are bound to CPU {cpu} alone, at most one of them runnable now", tasks.len());
        judgements.push(Judgement::warn_for(*cpu, found).see_as(names(tasks), source));
    }
    if judgements.is_empty() {
        let found = format!("{} CPUs have a thread of their own, and none has two that are runnable", pinned.len());
        judgements.push(Judgement::pass_for(isolated, found).see_as("at the time of reading", source));
    }
    Ok(judgements)
}

fn is_crowded(runnable: &BTreeMap<u32, Vec<&Task>>, cpu: u32) -> bool {
    runnable.get(&cpu).is_some_and(|tasks| tasks.len() > 1)
}

fn in_kernel(facts: &Facts, context: &Context) -> Judged {
    let tasks = own(facts, context)?;
    let interval = known(&facts.interval)?;
    let mut seen: Vec<(u64, String)> = Vec::new();
    let mut counted = 0;
    for task in &tasks {
        let Some(counts) = interval.change.tasks.get(&task.tid) else { continue };
        // A thread that slept during the whole interval does not poll.
        if counts.user == Nanos::ZERO {
            continue;
        }
        counted += 1;
        let total = counts.user.saturating_add(counts.system).as_nanos().max(1);
        let share = counts.system.as_nanos().saturating_mul(100) / total;
        let switched = switches(counts);
        if switched > 0 || counts.major_faults > 0 || share > 1 {
            let line = format!(
                "{}: {} sleeps, {} preemptions, {} faults, {} major ones, {share} % of its time in the kernel",
                named(task),
                counts.voluntary_switches.unwrap_or(0),
                counts.involuntary_switches.unwrap_or(0),
                counts.minor_faults,
                counts.major_faults
            );
            seen.push((switched.saturating_add(counts.major_faults), line));
        }
    }
    if counted == 0 {
        return Err(Skip::unknown("no thread on the isolated CPUs worked between the two readings"));
    }
    let source = "/proc/*/task/*/status and stat";
    let subject = &context.isolated.value;
    if seen.is_empty() {
        let found = format!("{counted} busy threads neither slept nor faulted in {}", interval.length);
        return Judgement::pass_for(subject, found).see_as("no switch", source).alone();
    }
    seen.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let found = format!("{} of {counted} busy threads entered the kernel in {}", seen.len(), interval.length);
    let judgement = Judgement::warn_for(subject, found);
    seen.into_iter().take(NAMED).fold(judgement, |judgement, (_, line)| judgement.see_as(line, source)).alone()
}

fn first_cpu(facts: &Facts, context: &Context) -> Judged {
    known(&facts.tasks)?;
    let zero = CpuSet::from([0]);
    let own: BTreeSet<u32> = application(facts, context).map(|task| task.tid).collect();
    let placed: Vec<&Task> = facts
        .tasks()
        .filter(|task| !task.kernel && task.affinity.is_known())
        .filter(|task| task.class.is_realtime() || own.contains(&task.tid))
        .collect();
    if placed.is_empty() {
        return Err(Skip::not_applicable("no thread of a user is a real-time one or bound to isolated CPUs"));
    }
    let stray: Vec<String> =
        placed.iter().filter(|task| task.affinity.value() == Some(&zero)).map(|task| named(task)).collect();
    let source = facts.tasks.source();
    match stray.len() {
        0 => Judgement::pass(format!("none of {} such threads is bound to CPU 0", placed.len()))
            .see_as(format!("{} threads", placed.len()), source),
        n => Judgement::warn_for(0, format!("{n} threads of the application are bound to CPU 0"))
            .see_as(stray.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "), source),
    }
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{Facts, Interval, TaskCounts};

    use super::super::samples::{fifo, put, task};
    use super::*;
    use crate::testing::{Case, Host, host};

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn pair(facts: &mut Facts, state: char) {
        let one = |tid| Task { state, last_cpu: Some(3), ..task(tid, "l1app", "3") };
        put(facts, vec![one(9), one(10)]);
    }

    /// A polling thread that worked between two readings, and was preempted so often.
    fn polled(facts: &mut Facts, preemptions: u64) {
        put(facts, vec![task(9, "lcore-worker-3", "3")]);
        let counts = TaskCounts {
            user: Nanos::from_secs(5),
            voluntary_switches: Some(0),
            involuntary_switches: Some(preemptions),
            ..TaskCounts::default()
        };
        let mut interval = Interval { length: Nanos::from_secs(5), ..Interval::default() };
        interval.change.tasks.insert(9, counts);
        facts.interval = Fact::known(interval, "two readings");
    }

    fn balanced(isolated: &str) -> Host {
        iso().file("/sys/devices/system/cpu/isolated", isolated).edit(|f| {
            put(f, vec![task(9, "bash", "0-7"), task(10, "l1app", "3")]);
        })
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("usr.threads-on-iso", || balanced("2-7")),
        Case::pass("usr.threads-on-iso", || iso().edit(|f| put(f, vec![task(9, "bash", "0-1")]))),
        Case::warn("usr.threads-on-iso", || balanced("\n")),
        Case::unknown("usr.threads-on-iso", iso),
        Case::pass("app.sched-class", || iso().workload(Workload::Poll).edit(|f| put(f, vec![task(9, "l1app", "3")]))),
        Case::warn("app.sched-class", || iso().workload(Workload::Interrupt).edit(|f| put(f, vec![task(9, "a", "3")]))),
        Case::warn("app.sched-class", || iso().edit(|f| put(f, vec![fifo(task(9, "l1app", "3"), 99)]))),
        Case::unknown("app.sched-class", iso),
        Case::not_applicable("app.sched-class", || iso().edit(|f| put(f, vec![task(9, "bash", "0-7")]))),
        Case::pass("app.one-task-per-cpu", || iso().edit(|f| put(f, vec![task(9, "l1app", "3")]))),
        Case::fail("app.one-task-per-cpu", || iso().edit(|f| pair(f, 'R'))),
        Case::warn("app.one-task-per-cpu", || iso().edit(|f| pair(f, 'S'))),
        Case::unknown("app.one-task-per-cpu", iso),
        Case::pass("app.syscalls-on-iso", || iso().workload(Workload::Poll).edit(|f| polled(f, 0))),
        Case::warn("app.syscalls-on-iso", || iso().workload(Workload::Poll).edit(|f| polled(f, 12))),
        Case::unknown("app.syscalls-on-iso", || {
            iso().workload(Workload::Poll).edit(|f| put(f, vec![task(9, "l1app", "3")]))
        }),
        Case::pass("app.cpu0", || host().edit(|f| put(f, vec![fifo(task(9, "l1app", "3"), 10)]))),
        Case::warn("app.cpu0", || host().edit(|f| put(f, vec![fifo(task(9, "l1app", "0"), 10)]))),
        Case::unknown("app.cpu0", host),
        Case::not_applicable("app.cpu0", || host().edit(|f| put(f, vec![task(9, "bash", "0-7")]))),
    ];

    #[test]
    fn who_competes_is_named() {
        let judgements = iso().edit(|f| pair(f, 'R')).judge("app.one-task-per-cpu");
        assert_eq!(judgements.len(), 1, "{judgements:?}");
        assert_eq!(judgements[0].evidence[0].value, "l1app (9), l1app (10)");
    }
}

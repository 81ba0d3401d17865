//! Rules on kernel threads.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{CpuSet, Task};
use units::Nanos;

use super::{application, named, switches};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

const KTHREADS: &str = "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst";
const NO_HZ: &str = "Linux Documentation/timers/no_hz.rst";
/// Maximum number of threads that a finding names.
const NAMED: usize = 5;

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "kthr.unbound-on-iso",
        cause: Cause::KernelWork,
        title: "Kernel threads that can be moved stay on the housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: unbound,
        why: "kswapd, khugepaged, kcompactd, rcuo threads and the threads of disks and file systems run wherever their \
         mask allows. On a CPU of the application, each run costs two context switches and restarts the tick.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "two context switches and the run between them: from a few us to milliseconds",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is an estimate",
        ),
        fix: Fix::runtime_or_boot(
            "for t in $(pgrep -P 2); do taskset -pc {housekeeping} $t; done # an error means that the kernel binds \
            this thread: leave it",
            "nohz_full={isolated}",
        ),
        cost: "The housekeeping CPUs run these threads.",
        references: &[NO_HZ, KTHREADS],
    },
    Rule {
        id: "kthr.running-on-iso",
        cause: Cause::KernelWork,
        title: "No kernel thread runs on an isolated CPU",
        applies: Applies::LINUX.isolated(),
        judge: running,
        why: "Masks show what may run; context switches show what does run. A thread that is bound to its CPU stays \
              there whatever is set. But the timers, work and softirqs that make it run can be moved.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "two context switches and the run between them: from a few us to milliseconds",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is an estimate",
        ),
        fix: Fix::look(
            "echo 1 > /sys/kernel/tracing/events/sched/sched_switch/enable # shows who wakes them; write 0 to stop. \
            Then apply the remedy in kernel-per-CPU-kthreads.rst",
        ),
        cost: "The cost depends on the remedy. Tracing itself disturbs the CPUs, and must be switched off again.",
        references: &[KTHREADS, "Linux Documentation/admin-guide/cpu-isolation.rst"],
    },
    Rule {
        id: "kthr.rt-prio",
        cause: Cause::Priorities,
        title: "Per-CPU threads of a real-time kernel come before the application",
        applies: Applies::LINUX.to(&[Workload::Rt]).isolated(),
        judge: rt_priorities,
        why: "If the application runs under SCHED_FIFO and never sleeps, ksoftirqd, ktimers and rcuc of its CPU run only \
         if their priority is higher. If they starve, timers stop, callbacks pile up, and threads that wait for \
         them wait forever.",
        magnitude: Magnitude::untimed(
            "from a late timer to an RCU stall after 21 s, and then a hung host",
            "Linux Documentation/RCU/stallwarn.rst, CONFIG_RCU_CPU_STALL_TIMEOUT",
        ),
        fix: Fix::runtime_or_boot(
            "for p in $(pgrep '^(ksoftirqd|ktimers|rcuc)/'); do chrt -f -p 11 $p; done",
            "rcutree.kthread_prio=11",
        )
        .against(&[
            "tuned gives them 2 and 4, the node tuning operator 11: they only need to be above the application",
        ]),
        cost: "These threads can delay the application by the length of their runs.",
        references: &[
            "tuned profile realtime-virtual-host, [scheduler] (2, 2, 4)",
            "openshift/cluster-node-tuning-operator, profile for real-time kernels (11)",
            "Linux Documentation/core-api/real-time/hardware.rst",
        ],
    },
];

/// The name of a thread without its numbers: `rcuop` for `rcuop/12`, `kworker` for `kworker/u8:1`.
fn stem(task: &Task) -> &str {
    task.comm.split(['/', ':']).next().unwrap_or(&task.comm).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// Lists the names of threads without their numbers, the most frequent first: `rcuop (8), kswapd (2)`.
fn stems(tasks: &[&Task]) -> String {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    tasks.iter().for_each(|task| *count.entry(stem(task)).or_default() += 1);
    let mut count: Vec<_> = count.into_iter().collect();
    count.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    count.iter().take(NAMED).map(|(name, n)| format!("{name} ({n})")).collect::<Vec<_>>().join(", ")
}

fn unbound(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    known(&facts.tasks)?;
    // Threads of interrupts move with their interrupt (kernel/irq/manage.c, irq_thread_check_affinity), which the rule
    // irq.on-iso judges.
    let movable: Vec<&Task> = facts
        .tasks()
        .filter(|task| task.kernel && !task.no_setaffinity && !task.comm.starts_with("irq/"))
        .filter(|task| task.affinity.is_known())
        .collect();
    if movable.is_empty() {
        return Err(Skip::unknown("where the threads of the kernel may run was not recorded"));
    }
    let stray: Vec<&Task> = movable
        .iter()
        .copied()
        .filter(|task| task.affinity.is(|cpus| cpus.intersects(isolated)) == Some(true))
        .collect();
    let judgement = match stray.is_empty() {
        true => {
            Judgement::pass_for(isolated, format!("none of {} movable kernel threads may run there", movable.len()))
        }
        false => Judgement::warn_for(
            isolated,
            format!("{} of {} movable kernel threads may run there", stray.len(), movable.len()),
        ),
    };
    let seen = if stray.is_empty() { format!("{} threads", movable.len()) } else { stems(&stray) };
    judgement.see_as(seen, facts.tasks.source()).alone()
}

fn running(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    known(&facts.tasks)?;
    let interval = known(&facts.interval)?;
    if interval.change.tasks.is_empty() {
        return Err(Skip::unknown("the threads were read once only: what they did meanwhile is not known"));
    }
    let mut ran: Vec<(u64, Nanos, &Task)> = facts
        .tasks()
        .filter(|task| task.kernel && task.last_cpu.is_some_and(|cpu| isolated.contains(cpu)))
        .filter_map(|task| {
            let counts = interval.change.tasks.get(&task.tid)?;
            let busy = Nanos::from_nanos(counts.user.as_nanos().saturating_add(counts.system.as_nanos()));
            (switches(counts) > 0 || busy > Nanos::ZERO).then(|| (switches(counts), busy, task))
        })
        .collect();
    ran.sort_by_key(|(switches, busy, _)| std::cmp::Reverse((*busy, *switches)));
    let source = "/proc/*/task/*/status, voluntary_ctxt_switches";
    if ran.is_empty() {
        let found = format!("no kernel thread ran there in {}", interval.length);
        return Judgement::pass_for(isolated, found).see_as("no switch", source).alone();
    }
    let found = format!("{} kernel threads ran there in {}", ran.len(), interval.length);
    let judgement = Judgement::warn_for(isolated, found);
    let seen = ran.iter().take(NAMED);
    seen.fold(judgement, |judgement, (switches, busy, task)| {
        let cpu = task.last_cpu.unwrap_or_default();
        judgement.see_as(format!("{} on CPU {cpu}: {switches} switches, {busy} of CPU time", named(task)), source)
    })
    .alone()
}

fn rt_priorities(facts: &Facts, context: &Context) -> Judged {
    known(&facts.tasks)?;
    let mut highest: BTreeMap<u32, &Task> = BTreeMap::new();
    for task in application(facts, context).filter(|task| task.class.is_realtime()) {
        for cpu in task.affinity.value().into_iter().flat_map(CpuSet::iter) {
            let first = highest.entry(cpu).or_insert(task);
            if first.rt_priority < task.rt_priority {
                *first = task;
            }
        }
    }
    if highest.is_empty() {
        return Err(Skip::not_applicable("no real-time thread of the application runs on isolated CPUs alone"));
    }
    let mut below = CpuSet::new();
    let mut seen = Vec::new();
    let mut known_ones = 0;
    for task in facts.tasks().filter(|task| task.kernel) {
        let of_cpu = ["ksoftirqd/", "ktimers/", "rcuc/"].iter().find_map(|name| task.comm.strip_prefix(name));
        let Some(cpu) = of_cpu.and_then(|number| number.parse::<u32>().ok()) else { continue };
        let Some(above) = highest.get(&cpu) else { continue };
        known_ones += 1;
        let own = if task.class.is_realtime() { task.rt_priority } else { 0 };
        if own <= above.rt_priority {
            below.insert(cpu);
            seen.push(format!("{} has {own}, {} has {}", task.comm, named(above), above.rt_priority));
        }
    }
    if known_ones == 0 {
        return Err(Skip::unknown("the kernel's threads of those CPUs were not recorded"));
    }
    let source = facts.tasks.source();
    if seen.is_empty() {
        let found = format!("{known_ones} threads of the kernel come before the application");
        return Judgement::pass_for(&context.isolated.value, found).see_as("higher priorities", source).alone();
    }
    let judgement =
        Judgement::warn_for(below, format!("{} of {known_ones} threads of the kernel come after it", seen.len()));
    seen.into_iter().take(NAMED).fold(judgement, |judgement, line| judgement.see_as(line, source)).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{Facts, Interval, TaskCounts};
    use units::Nanos;

    use super::super::samples::{fifo, kernel, put, task};
    use super::*;
    use crate::testing::{Case, Host, host};

    fn iso() -> Host {
        host().isolated("2-7")
    }

    /// Thread 20 of the kernel is on CPU 3, and was switched so often between two readings.
    fn ran(facts: &mut Facts, switches: u64) {
        put(facts, vec![Task { last_cpu: Some(3), ..kernel(20, "kworker/3:1", "3") }]);
        let mut interval = Interval { length: Nanos::from_secs(5), ..Interval::default() };
        let counts = TaskCounts { voluntary_switches: Some(switches), ..TaskCounts::default() };
        interval.change.tasks.insert(20, counts);
        facts.interval = Fact::known(interval, "two readings");
    }

    fn priorities(facts: &mut Facts, of_kernel: u32) {
        put(facts, vec![fifo(task(9, "l1app", "3"), 10), fifo(kernel(20, "ktimers/3", "3"), of_kernel)]);
    }

    fn rt() -> Host {
        iso().workload(Workload::Rt)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("kthr.unbound-on-iso", || iso().edit(|f| put(f, vec![kernel(20, "kswapd0", "0-1")]))),
        Case::warn("kthr.unbound-on-iso", || iso().edit(|f| put(f, vec![kernel(20, "kswapd0", "0-7")]))),
        Case::unknown("kthr.unbound-on-iso", iso),
        Case::unknown("kthr.unbound-on-iso", || iso().edit(|f| put(f, vec![task(9, "bash", "0-7")]))),
        Case::pass("kthr.running-on-iso", || iso().edit(|f| ran(f, 0))),
        Case::warn("kthr.running-on-iso", || iso().edit(|f| ran(f, 7))),
        Case::unknown("kthr.running-on-iso", || iso().edit(|f| put(f, vec![kernel(20, "kswapd0", "0-1")]))),
        Case::pass("kthr.rt-prio", || rt().edit(|f| priorities(f, 11))),
        Case::warn("kthr.rt-prio", || rt().edit(|f| priorities(f, 2))),
        Case::unknown("kthr.rt-prio", rt),
        Case::not_applicable("kthr.rt-prio", || rt().edit(|f| put(f, vec![task(9, "bash", "0-1")]))),
    ];

    #[test]
    fn bound_threads_and_those_of_interrupts_are_left_alone() {
        let host = iso().edit(|f| {
            let bound = Task { no_setaffinity: true, ..kernel(21, "ksoftirqd/3", "3") };
            put(f, vec![kernel(20, "kswapd0", "0-1"), bound, kernel(22, "irq/55-eth0", "3")]);
        });
        assert_eq!(host.judge("kthr.unbound-on-iso")[0].found, "none of 1 movable kernel threads may run there");
    }

    #[test]
    fn threads_are_summed_by_their_names() {
        let tasks = [kernel(1, "rcuop/1", "3"), kernel(2, "rcuop/2", "3"), kernel(3, "kswapd0", "3")];
        assert_eq!(stems(&tasks.iter().collect::<Vec<_>>()), "rcuop (2), kswapd (1)");
    }
}

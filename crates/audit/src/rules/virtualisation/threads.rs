//! Rules on the threads and memory of guests, as seen from the host.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{CpuSet, Fact, Guest, Task};
use units::Nanos;

use crate::rules::scheduling::named;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const SLIDES: &str = "Interrupt-mode DPDK slides (2017), virtual machine";
const FLEXRAN: &str = "FlexRAN real-time platform slides (2018)";
const HARDWARE: &str = "Linux Documentation/core-api/real-time/hardware.rst";
const HOST: Applies = Applies::LINUX.to(&[Workload::KvmHost]);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "vm.vcpu-pin",
        cause: Cause::ApplicationThreads,
        title: "Each virtual CPU has a dedicated CPU, and the emulator runs elsewhere",
        applies: HOST,
        judge: pinning,
        why: "A virtual CPU is a thread. One that may run on several CPUs is moved and loses its caches; one that \
              shares its CPU waits for the other. The emulator's own threads serve disks, consoles and migration, and \
              interrupt whatever runs on their CPU.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "in a virtual machine, 112 us on average and 7210 us at most before pinning and the other settings, \
                   20 and 35 us after",
            "Interrupt-mode DPDK slides (2017); the typical value is a time slice of the scheduler",
        ),
        fix: Fix::for_good(
            "libvirt: <cputune> with one <vcpupin> for each virtual CPU and <emulatorpin cpuset='{housekeeping}'/>; KubeVirt: isolateEmulatorThread",
        ),
        cost: "Each virtual CPU occupies a CPU, whether it is busy or not.",
        references: &[SLIDES, FLEXRAN],
    },
    Rule {
        id: "vm.vcpu-sched",
        cause: Cause::Priorities,
        title: "Virtual CPUs of real-time guests are real-time threads, below the kernel's own",
        applies: HOST,
        judge: class,
        why: "Any real-time thread preempts a virtual CPU of the normal class, which also shares its CPU by time slices. \
         If its priority is above that of the kernel's threads, it starves ksoftirqd, ktimers and RCU on its CPU \
         until the guest halts.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of up to 3 ms; a stall of the host where the kernel's threads starve",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice; Linux Documentation/core-api/real-time/hardware.rst warns to test for long",
        ),
        fix: Fix::for_good("libvirt: <cputune> with <vcpusched scheduler='fifo' priority='1'/> for all virtual CPUs"),
        cost: "A guest that spins occupies its CPU forever.",
        references: &[FLEXRAN, HARDWARE],
    },
    Rule {
        id: "vm.hugepages-mlock",
        cause: Cause::HugePages,
        title: "Guest memory uses huge pages, or is locked",
        applies: HOST,
        judge: memory,
        why: "With small pages, each TLB miss of the guest costs deeper walks of two page tables. The host may also \
              swap, merge or migrate the pages: the next access is then a fault that the guest cannot see.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "24 instead of 15 memory accesses for a walk of two tables; a fault takes a few us, or milliseconds if the page is on disk",
            "Intel SDM volume 3, chapter on VMX support for address translation (4 x 4 + 8 accesses); the time of a fault is general knowledge",
        ),
        fix: Fix::boot("libvirt: <memoryBacking><hugepages/><locked/><nosharepages/></memoryBacking>"),
        cost: "Nothing else can use this memory.",
        references: &[FLEXRAN],
    },
    Rule {
        id: "vm.vhost-ovs",
        cause: Cause::ApplicationThreads,
        title: "Threads that process guests' packets have dedicated CPUs",
        applies: HOST.isolated(),
        judge: carriers,
        why: "vhost threads copy each packet of a guest; threads of Open vSwitch (pmd-cN) poll for packets. A vhost \
         thread on the CPU of a virtual CPU takes time from it for each packet. A polling thread that may run on \
         several CPUs is moved by the scheduler.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "a few us per packet, up to a time slice of 3 ms",
            "FlexRAN real-time platform slides (2018) name the mechanism; the figure is an estimate",
        ),
        fix: Fix::both(
            "for p in $(pgrep ^vhost-); do taskset -pc {housekeeping} $p; done",
            "ovs-vsctl set Open_vSwitch . other_config:pmd-cpu-mask={isolated-mask} # or some of them",
        ),
        cost: "These threads take CPUs of their own.",
        references: &[FLEXRAN],
    },
];

/// A virtual CPU with at least this real-time priority delays kernel threads: interrupt threads have priority 50
/// (kernel/irq/manage.c, `sched_set_fifo`).
const TOO_HIGH: u32 = 50;
/// Maximum number of threads that a finding names.
const NAMED: usize = 5;

fn guests(facts: &Facts) -> Result<&[Guest], Skip> {
    known(&facts.tasks)?;
    match known(&facts.virtualisation.guests)?.as_slice() {
        [] => Err(Skip::not_applicable("no guest runs")),
        guests => Ok(guests),
    }
}

fn name(guest: &Guest) -> Subject {
    Subject::Named(format!("guest {} ({})", guest.process, guest.pid))
}

fn thread(facts: &Facts, tid: u32) -> Result<&Task, Skip> {
    facts.tasks().find(|task| task.tid == tid).ok_or_else(|| Skip::unknown(format!("thread {tid} was not recorded")))
}

/// The virtual CPUs of a guest: those whose thread is pinned to a single physical CPU, with this CPU, and those whose
/// thread may run on several.
fn placed(facts: &Facts, guest: &Guest) -> Result<(BTreeMap<u32, u32>, Vec<u32>), Skip> {
    let (mut own, mut loose) = (BTreeMap::new(), Vec::new());
    for (vcpu, tid) in &guest.vcpus {
        let affinity = known(&thread(facts, *tid)?.affinity)?;
        match (affinity.len(), affinity.first()) {
            (1, Some(cpu)) => {
                own.insert(*vcpu, cpu);
            }
            _ => loose.push(*vcpu),
        }
    }
    Ok((own, loose))
}

/// Whether each virtual CPU of each guest is pinned to a physical CPU to which no other virtual CPU is pinned.
pub(super) fn is_dedicated(facts: &Facts) -> Result<bool, Skip> {
    let mut taken = CpuSet::new();
    let mut all = true;
    for guest in guests(facts)? {
        let (own, loose) = placed(facts, guest)?;
        all &= loose.is_empty() && own.values().all(|cpu| !taken.contains(*cpu));
        own.values().for_each(|cpu| taken.insert(*cpu));
    }
    Ok(all)
}

fn pinning(facts: &Facts, context: &Context) -> Judged {
    let guests = guests(facts)?;
    // How many threads of all guests are pinned to each CPU.
    let mut bound: BTreeMap<u32, u32> = BTreeMap::new();
    for guest in guests {
        if let Ok((own, _)) = placed(facts, guest) {
            own.values().for_each(|cpu| *bound.entry(*cpu).or_default() += 1);
        }
    }
    let one = |guest: &Guest| {
        let (own, loose) = placed(facts, guest)?;
        let cpus: CpuSet = own.values().copied().collect();
        let mut wrong = Vec::new();
        if !loose.is_empty() {
            wrong.push(format!("virtual CPUs {loose:?} may run on several CPUs"));
        }
        let shared: CpuSet = own.values().copied().filter(|cpu| bound.get(cpu).is_some_and(|n| *n > 1)).collect();
        if !shared.is_empty() {
            wrong.push(format!("CPUs {shared} have more than one virtual CPU"));
        }
        let isolated = &context.isolated.value;
        if !isolated.is_empty() && !cpus.is_subset(isolated) {
            wrong.push(format!("CPUs {} are not isolated", cpus.difference(isolated)));
        }
        let others = guest.others.iter().filter_map(|tid| thread(facts, *tid).ok());
        let astray: Vec<&Task> =
            others.filter(|task| task.affinity.is(|at| at.intersects(&cpus)) == Some(true)).collect();
        if let Some(first) = astray.first() {
            wrong.push(format!(
                "{} of its other threads may run there too, for example {}",
                astray.len(),
                named(first)
            ));
        }
        let judgement = match wrong.is_empty() {
            true => {
                Judgement::pass_for(name(guest), format!("its {} virtual CPUs have dedicated CPUs {cpus}", own.len()))
            }
            false => Judgement::fail_for(name(guest), wrong.join("; ")),
        };
        Ok(judgement.see_as(format!("{} virtual CPUs at {cpus}", guest.vcpus.len()), facts.tasks.source()))
    };
    Ok(guests.iter().map(|guest| one(guest).unwrap_or_else(|skip| Judgement::skipped(name(guest), skip))).collect())
}

fn class(facts: &Facts, context: &Context) -> Judged {
    let real_time = context.is(Workload::Rt);
    let one = |guest: &Guest| {
        let tasks = guest.vcpus.values().map(|tid| thread(facts, *tid)).collect::<Result<Vec<_>, _>>()?;
        let normal = tasks.iter().filter(|task| !task.class.is_realtime()).count();
        let high: Vec<&&Task> =
            tasks.iter().filter(|task| task.class.is_realtime() && task.rt_priority >= TOO_HIGH).collect();
        let judgement = match (high.first(), normal) {
            (Some(first), _) => Judgement::warn_for(
                name(guest),
                format!("{} has priority {}, and threads of the kernel come after it", named(first), first.rt_priority),
            ),
            (None, n) if n > 0 && real_time => {
                Judgement::warn_for(name(guest), format!("{n} of its virtual CPUs are in the normal class"))
            }
            (None, 0) => {
                Judgement::pass_for(name(guest), "its virtual CPUs are real-time threads, below those of the kernel")
            }
            (None, n) => Judgement::pass_for(name(guest), format!("{n} of its virtual CPUs are in the normal class")),
        };
        let seen =
            tasks.iter().take(NAMED).map(|task| format!("{}: {:?} {}", named(task), task.class, task.rt_priority));
        Ok(judgement.see_as(seen.collect::<Vec<_>>().join(", "), facts.tasks.source()))
    };
    Ok(guests(facts)?
        .iter()
        .map(|guest| one(guest).unwrap_or_else(|skip| Judgement::skipped(name(guest), skip)))
        .collect())
}

fn memory(facts: &Facts, _: &Context) -> Judged {
    let one = |guest: &Guest| {
        // Every thread shows the memory of its whole process; the process's first thread is often not recorded.
        let task = thread(facts, *guest.vcpus.values().next().unwrap_or(&guest.pid))?;
        let has = |fact: &Fact<u64>| fact.get().unwrap_or(0);
        let (huge, locked) = (has(&task.huge_bytes), has(&task.locked_bytes));
        let judgement = match (huge, locked) {
            (0, 0) => {
                // No locked memory is known, so it must also be known whether there are huge pages.
                known(&task.huge_bytes)?;
                known(&task.locked_bytes)?;
                Judgement::warn_for(name(guest), "its memory has no huge pages and is not locked")
            }
            _ => Judgement::pass_for(
                name(guest),
                format!("{} MiB are huge pages, {} MiB are locked", huge >> 20, locked >> 20),
            ),
        };
        Ok(judgement.see(&task.huge_bytes).see(&task.locked_bytes))
    };
    Ok(guests(facts)?
        .iter()
        .map(|guest| one(guest).unwrap_or_else(|skip| Judgement::skipped(name(guest), skip)))
        .collect())
}

fn carriers(facts: &Facts, context: &Context) -> Judged {
    known(&facts.tasks)?;
    let isolated = &context.isolated.value;
    let of = |start: &'static str| facts.tasks().filter(move |task| task.comm.starts_with(start));
    let (vhost, pmd): (Vec<&Task>, Vec<&Task>) = (of("vhost-").collect(), of("pmd-c").collect());
    if vhost.is_empty() && pmd.is_empty() {
        return Err(Skip::not_applicable("neither vhost threads nor those of Open vSwitch run"));
    }
    let astray = |task: &&&Task| task.affinity.is(|cpus| cpus.intersects(isolated)) == Some(true);
    let loose = |task: &&&Task| task.affinity.is(|cpus| cpus.len() > 1) == Some(true);
    if vhost.iter().chain(&pmd).all(|task| !task.affinity.is_known()) {
        return Err(Skip::unknown("where those threads may run was not recorded"));
    }
    let stray: Vec<&&Task> = vhost.iter().filter(astray).collect();
    let moved: Vec<&&Task> = pmd.iter().filter(loose).collect();
    let mut wrong = Vec::new();
    if let Some(first) = stray.first() {
        wrong.push(format!(
            "{} of {} vhost threads may run on isolated CPUs, for example {}",
            stray.len(),
            vhost.len(),
            named(first)
        ));
    }
    if let Some(first) = moved.first() {
        wrong.push(format!(
            "{} of {} polling threads may run on several CPUs, for example {}",
            moved.len(),
            pmd.len(),
            named(first)
        ));
    }
    match wrong.is_empty() {
        true => Judgement::pass(format!("{} vhost threads and {} polling threads are placed", vhost.len(), pmd.len())),
        false => Judgement::warn_for(isolated, wrong.join("; ")),
    }
    .see_as(format!("{} vhost, {} pmd", vhost.len(), pmd.len()), facts.tasks.source())
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rules::scheduling::samples::{fifo, put, task};
    use crate::testing::{Case, Host, host};

    /// Threads of a guest: the emulator's and two virtual CPUs'.
    fn threads(emulator: &str, first: &str, second: &str) -> Vec<Task> {
        let of = |tid, comm: &str, cpus: &str| Task { pid: 5, process: "qemu-kvm".into(), ..task(tid, comm, cpus) };
        vec![of(5, "qemu-kvm", emulator), of(6, "CPU 0/KVM", first), of(7, "CPU 1/KVM", second)]
    }

    fn run(facts: &mut Facts, tasks: Vec<Task>) {
        let vcpus = tasks.iter().filter(|task| task.comm.starts_with("CPU ")).map(|task| (task.tid - 6, task.tid));
        let guest = Guest { pid: 5, process: "qemu-kvm".into(), vcpus: vcpus.collect(), others: vec![5] };
        facts.virtualisation.guests = Fact::known(vec![guest], "/proc/*/task/*");
        put(facts, tasks);
    }

    pub(crate) fn guest(emulator: &'static str, first: &'static str, second: &'static str) -> Host {
        let base = host().isolated("2-7").workload(Workload::KvmHost);
        match (emulator, first, second) {
            ("0-1", "2", "3") => base.edit(|f| run(f, threads("0-1", "2", "3"))),
            ("0-7", "2", "3") => base.edit(|f| run(f, threads("0-7", "2", "3"))),
            ("0-1", "2", "2") => base.edit(|f| run(f, threads("0-1", "2", "2"))),
            _ => base.edit(|f| run(f, threads("0-7", "0-7", "0-7"))),
        }
    }

    fn priority(facts: &mut Facts, priority: u32) {
        let tasks = threads("0-1", "2", "3").into_iter().map(|task| match task.comm.starts_with("CPU ") {
            true => fifo(task, priority),
            false => task,
        });
        run(facts, tasks.collect());
    }

    fn pages(facts: &mut Facts, huge: u64) {
        let mut tasks = threads("0-1", "2", "3");
        for task in &mut tasks {
            task.huge_bytes = Fact::known(huge, "/proc/5/status");
            task.locked_bytes = Fact::known(0, "/proc/5/status");
        }
        run(facts, tasks);
    }

    fn bare() -> Host {
        host().isolated("2-7").workload(Workload::KvmHost)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("vm.vcpu-pin", || guest("0-1", "2", "3")),
        Case::fail("vm.vcpu-pin", || guest("0-7", "2", "3")),
        Case::fail("vm.vcpu-pin", || guest("0-1", "2", "2")),
        Case::fail("vm.vcpu-pin", || guest("0-7", "0-7", "0-7")),
        Case::unknown("vm.vcpu-pin", bare),
        Case::not_applicable("vm.vcpu-pin", || {
            bare().edit(|f| put(f, vec![])).edit(|f| {
                f.virtualisation.guests = Fact::known(vec![], "/proc/*/task/*");
            })
        }),
        Case::pass("vm.vcpu-sched", || bare().workload(Workload::Rt).edit(|f| priority(f, 1))),
        Case::pass("vm.vcpu-sched", || guest("0-1", "2", "3")),
        Case::warn("vm.vcpu-sched", || guest("0-1", "2", "3").workload(Workload::Rt)),
        Case::warn("vm.vcpu-sched", || bare().edit(|f| priority(f, 99))),
        Case::unknown("vm.vcpu-sched", bare),
        Case::pass("vm.hugepages-mlock", || bare().edit(|f| pages(f, 1 << 30))),
        Case::warn("vm.hugepages-mlock", || bare().edit(|f| pages(f, 0))),
        Case::unknown("vm.hugepages-mlock", || guest("0-1", "2", "3")),
        Case::pass("vm.vhost-ovs", || {
            bare().edit(|f| put(f, vec![task(9, "vhost-5", "0-1"), task(10, "pmd-c03/id:5", "3")]))
        }),
        Case::warn("vm.vhost-ovs", || bare().edit(|f| put(f, vec![task(9, "vhost-5", "0-7")]))),
        Case::warn("vm.vhost-ovs", || bare().edit(|f| put(f, vec![task(9, "pmd-c03/id:5", "3-4")]))),
        Case::unknown("vm.vhost-ovs", bare),
    ];

    #[test]
    fn what_is_wrong_with_a_guest_is_told_together() {
        let judgement = guest("0-7", "0-7", "0-7").judge("vm.vcpu-pin").remove(0);
        assert_eq!(judgement.subject.to_string(), "guest qemu-kvm (5)");
        assert!(judgement.found.starts_with("virtual CPUs [0, 1] may run on several CPUs"), "{}", judgement.found);
    }
}

//! Threads: `/proc/PID/task/TID/{stat,status}` (proc_pid_stat(5), proc_pid_status(5)).

use std::collections::BTreeMap;

use units::Nanos;

use crate::facts::root::TABLE_LIMIT;
use crate::facts::{Context, CpuSet, Fact, Root, SchedClass, Source, Task, TaskCounts, Why};

/// Maximum number of threads that are read. Further threads are left out.
pub(crate) const MAX_TASKS: usize = 1 << 16;
/// Flag of kernel threads (include/linux/sched.h). [`PF_NO_SETAFFINITY`] is the flag of threads that cannot be moved.
const PF_KTHREAD: u64 = 0x0020_0000;
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
/// Duration of a clock tick in user space: 100 ticks per second on every architecture that Linux supports today
/// (`USER_HZ`, include/asm-generic/param.h).
pub(super) const TICK: Nanos = Nanos::from_millis(10);

/// Reads the threads and their counters, in the first reading if `place` is empty or the second one if it is `again/`.
pub(super) fn read(context: &Context, place: &str) -> Fact<Vec<(Task, TaskCounts)>> {
    let root = context.root;
    // Snapshots made by the script contain the files of all threads, one after the other.
    let stats = root.text_up_to(&format!("{place}tasks/stat"), TABLE_LIMIT);
    if stats.is_known() {
        return recorded(root, place, &stats);
    }
    let processes = root.list(&format!("{place}proc"));
    let source = Source::new("/proc/*/task/*");
    let mut tasks = Vec::new();
    let mut seen = false;
    for name in processes.value().into_iter().flatten() {
        if name.parse::<u32>().is_err() || tasks.len() >= MAX_TASKS {
            continue;
        }
        seen = true;
        process(context, &format!("{place}proc/{name}"), &mut tasks);
    }
    match processes {
        Fact::Missing { why, .. } => Fact::missing(why, source),
        Fact::Known { .. } if !seen && !context.is_live() => Fact::not_recorded(source),
        Fact::Known { .. } => {
            tasks.sort_by_key(|(task, _)| task.tid);
            Fact::known(tasks, source)
        }
    }
}

fn process(context: &Context, place: &str, tasks: &mut Vec<(Task, TaskCounts)>) {
    let root = context.root;
    let threads = root.list(&format!("{place}/task")).into_value().unwrap_or_default();
    let cgroup = root.text(&format!("{place}/cgroup")).map(|text| control_group(&text));
    let first = tasks.len();
    for thread in threads {
        if tasks.len() >= MAX_TASKS {
            return;
        }
        let stat = root.text(&format!("{place}/task/{thread}/stat"));
        let Some((mut task, mut counts)) = stat.value().and_then(|text| parse_stat(text)) else { continue };
        // `status` gives only the affinity of a kernel thread, and nothing for a thread that has just ended.
        match root.text(&format!("{place}/task/{thread}/status")) {
            Fact::Known { value, source } => apply_status(&mut task, &mut counts, &value, source),
            Fact::Missing { why, source } => task.affinity = Fact::missing(why, source),
        }
        task.cgroup = cgroup.clone();
        tasks.push((task, counts));
    }
    name_processes(&mut tasks[first..], place.rsplit('/').next().and_then(|pid| pid.parse().ok()));
}

/// Sets the number and name of the process in each of its threads. The name is that of the process's main thread.
fn name_processes(tasks: &mut [(Task, TaskCounts)], pid: Option<u32>) {
    let Some(pid) = pid else { return };
    let name = tasks.iter().find(|(task, _)| task.tid == pid).map(|(task, _)| task.comm.clone());
    for (task, _) in tasks {
        task.pid = pid;
        task.process = name.clone().unwrap_or_default();
    }
}

/// Reads a snapshot's concatenated files: one line of `stat` and one block of `status` per thread.
fn recorded(root: &Root, place: &str, stats: &Fact<String>) -> Fact<Vec<(Task, TaskCounts)>> {
    let status = root.text_up_to(&format!("{place}tasks/status"), TABLE_LIMIT);
    let blocks = status.value().map(|text| blocks(text)).unwrap_or_default();
    let groups = root.text_up_to(&format!("{place}tasks/cgroup"), TABLE_LIMIT);
    let groups: BTreeMap<u32, String> = groups.value().map(|text| named_groups(text)).unwrap_or_default();
    stats.as_ref().map(|text| {
        let mut tasks: Vec<_> = text.lines().filter_map(parse_stat).take(MAX_TASKS).collect();
        tasks.sort_by_key(|(task, _)| task.tid);
        let names: BTreeMap<u32, String> = tasks.iter().map(|(task, _)| (task.tid, task.comm.clone())).collect();
        for (task, counts) in &mut tasks {
            match blocks.get(&task.tid) {
                Some((pid, block)) => {
                    task.pid = *pid;
                    apply_status(task, counts, block, Source::new(format!("/proc/{pid}/task/{}/status", task.tid)));
                }
                None => task.affinity = Fact::not_recorded(format!("/proc/{0}/status", task.tid).as_str()),
            }
            task.process = names.get(&task.pid).cloned().unwrap_or_default();
            let source = format!("/proc/{}/cgroup", task.pid);
            task.cgroup = match groups.get(&task.pid) {
                Some(group) => Fact::known(group.clone(), source.as_str()),
                None => Fact::not_recorded(source.as_str()),
            };
        }
        tasks
    })
}

/// Splits concatenated `status` files into blocks, by thread number. Each block comes with the number of its process.
fn blocks(text: &str) -> BTreeMap<u32, (u32, &str)> {
    let mut starts: Vec<usize> = text.match_indices("Name:\t").map(|(at, _)| at).collect();
    starts.retain(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let block = |(start, end): (&usize, usize)| {
        let block = &text[*start..end];
        let number = |key| field(block, key)?.parse().ok();
        Some((number("Pid")?, (number("Tgid")?, block)))
    };
    starts.iter().zip(ends).filter_map(block).collect()
}

/// Parses lines as grep prints them, `/proc/71/cgroup:0::/system.slice/x.service`, into control groups by process
/// number.
fn named_groups(text: &str) -> BTreeMap<u32, String> {
    let mut groups: BTreeMap<u32, String> = BTreeMap::new();
    for line in text.lines() {
        let named = line.strip_prefix("/proc/").and_then(|line| line.split_once("/cgroup:"));
        if let Some((pid, line)) = named.and_then(|(pid, line)| Some((pid.parse().ok()?, line))) {
            let all = groups.entry(pid).or_default();
            if all.len() < 4096 {
                all.push_str(line);
                all.push('\n');
            }
        }
    }
    groups.into_iter().map(|(pid, lines)| (pid, control_group(&lines))).collect()
}

/// The control group in the unified hierarchy, or else in the cpuset hierarchy, or else in systemd's hierarchy.
fn control_group(text: &str) -> String {
    let of = |wanted: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            (controllers == wanted || controllers.split(',').any(|c| c == wanted)).then(|| parts.next()).flatten()
        })
    };
    let unified = of("").filter(|path| *path != "/" || !text.contains(":cpuset:"));
    unified.or_else(|| of("cpuset")).or_else(|| of("name=systemd")).unwrap_or("/").to_owned()
}

/// Parses a line of `stat`: `17 (kworker/0:1-events) I 2 0 …`. The name can contain spaces and parentheses.
pub(crate) fn parse_stat(line: &str) -> Option<(Task, TaskCounts)> {
    let (tid, rest) = line.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    // The first of these fields is field 3 in the manual page.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3);
    let number = |at: usize| field(at)?.parse::<u64>().ok();
    let ticks = |at: usize| number(at).map(|n| Nanos::from_nanos(n.saturating_mul(TICK.as_nanos())));
    let flags = number(9)?;
    let tid: u32 = tid.trim().parse().ok()?;
    let task = Task {
        pid: tid,
        tid,
        comm: comm.to_owned(),
        process: comm.to_owned(),
        kernel: flags & PF_KTHREAD != 0,
        no_setaffinity: flags & PF_NO_SETAFFINITY != 0,
        affinity: Fact::not_recorded("/proc/*/status"),
        last_cpu: number(39).and_then(|cpu| u32::try_from(cpu).ok()),
        class: SchedClass::from_number(number(41).and_then(|class| u32::try_from(class).ok()).unwrap_or(u32::MAX)),
        rt_priority: number(40).and_then(|priority| u32::try_from(priority).ok()).unwrap_or(0),
        nice: field(19)?.parse().ok()?,
        state: field(3)?.chars().next()?,
        locked_bytes: Fact::not_recorded("/proc/*/status"),
        huge_bytes: Fact::not_recorded("/proc/*/status"),
        cgroup: Fact::not_recorded("/proc/*/cgroup"),
    };
    let counts = TaskCounts {
        user: ticks(14)?,
        system: ticks(15)?,
        major_faults: number(12)?,
        minor_faults: number(10)?,
        voluntary_switches: None,
        involuntary_switches: None,
    };
    Some((task, counts))
}

fn apply_status(task: &mut Task, counts: &mut TaskCounts, status: &str, source: Source) {
    task.affinity = match field(status, "Cpus_allowed_list").map(CpuSet::parse_list) {
        Some(Ok(set)) => Fact::known(set, source.clone()),
        Some(Err(error)) => Fact::malformed(error.to_string(), source.clone()),
        None => Fact::missing(Why::NotRecorded, source.clone()),
    };
    let octets = |key| {
        let kilobytes = field(status, key)?.split(' ').next()?.parse::<u64>().ok()?;
        Some(Fact::known(kilobytes.saturating_mul(1024), source.clone()))
    };
    task.locked_bytes = octets("VmLck").unwrap_or_else(|| Fact::absent(source.clone()));
    // Recordings contain only some lines of the file. The line `Threads` shows that the file is complete: then a
    // missing `HugetlbPages` means that the kernel lacks hugetlbfs.
    task.huge_bytes = octets("HugetlbPages").unwrap_or_else(|| match field(status, "Threads") {
        Some(_) => Fact::absent(source.clone()),
        None => Fact::not_recorded(source.clone()),
    });
    let number = |key| field(status, key).and_then(|text| text.parse().ok());
    counts.voluntary_switches = number("voluntary_ctxt_switches");
    counts.involuntary_switches = number("nonvoluntary_ctxt_switches");
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::Facts;

    const STAT: &str = "71 (kworker/0:1 (x) y) I 2 0 0 0 -1 69238880 5 0 7 0 3 40 0 0 20 -5 1 0 30 0 0 18446744073709551615 \
        0 0 0 0 0 0 0 2147483647 0 0 0 0 17 3 50 1 0 0 0";
    const STATUS: &str = "Name:\tkworker\nTgid:\t71\nPid:\t71\nVmLck:\t      64 kB\nHugetlbPages:\t    2048 kB\nCpus_allowed_list:\t3\n\
        voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t4\n";

    fn check(facts: &Facts) {
        let task = facts.tasks().next().expect("one thread");
        assert_eq!((task.tid, task.comm.as_str(), task.state), (71, "kworker/0:1 (x) y", 'I'));
        assert!(task.kernel && task.no_setaffinity);
        assert_eq!((task.last_cpu, task.class, task.rt_priority, task.nice), (Some(3), SchedClass::Fifo, 50, -5));
        assert_eq!(task.affinity.value(), Some(&CpuSet::from([3])));
        assert_eq!((task.locked_bytes.get(), task.cgroup.value().map(String::as_str)), (Some(65536), Some("/a.slice")));
        assert_eq!(task.huge_bytes.get(), Some(2 << 20));
        let counts = facts.counters.tasks[&71];
        assert_eq!((counts.user, counts.system), (Nanos::from_millis(30), Nanos::from_millis(400)));
        assert_eq!((counts.major_faults, counts.voluntary_switches), (7, Some(9)));
    }

    #[test]
    fn a_thread_of_the_files_of_proc() {
        check(&Facts::read(&Root::given([
            ("proc/71/task/71/stat", STAT),
            ("proc/71/task/71/status", STATUS),
            ("proc/71/cgroup", "1:name=systemd:/b\n0::/a.slice\n"),
        ])));
    }

    #[test]
    fn a_thread_of_the_scripts_files() {
        check(&Facts::read(&Root::given([
            ("tasks/stat", format!("{STAT}\ntorn (line").as_str()),
            ("tasks/status", STATUS),
            ("tasks/cgroup", "/proc/71/cgroup:0::/a.slice\n"),
        ])));
    }

    #[test]
    fn no_process_recorded_is_not_no_process() {
        assert!(Facts::read(&Root::given([("proc/cmdline", "")])).tasks.is_unknown());
    }

    proptest! {
        #[test]
        fn any_text_is_read(stat in "[0-9]{1,3} \\(\\PC{0,9}\\) [A-Z]( -?[0-9]{1,20}){0,50}", status in "(Name:\t|Pid:\t[0-9]|\\PC{0,9}\n){0,9}") {
            let _ = parse_stat(&stat);
            let _ = blocks(&status);
            let _ = named_groups(&status);
        }
    }
}

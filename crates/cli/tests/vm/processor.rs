//! The threads of a guest's CPUs.

use std::fs;

use vmlab::Guest;
use vmlab::harness::ok;

/// Time on a CPU so far of each thread of the guest's process, in clock ticks: fields 14 and 15 of its stat
/// (proc_pid_stat(5)).
fn busy(guest: &Guest) -> Vec<(u32, u64)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", guest.pid())).unwrap();
    tasks
        .filter_map(|task| {
            let task = task.ok()?;
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, ticks))
        })
        .collect()
}

/// The thread that emulates CPU 1: the one that works while CPU 1 does.
pub(crate) fn thread_of_cpu_1(guest: &Guest) -> u32 {
    let before = busy(guest);
    ok(guest.run("taskset 2 sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'"));
    let after = busy(guest);
    let worked = |(tid, ticks): &(u32, u64)| {
        ticks - before.iter().find(|(other, _)| other == tid).map_or(0, |(_, ticks)| *ticks)
    };
    after.iter().max_by_key(|of| worked(of)).unwrap().0
}

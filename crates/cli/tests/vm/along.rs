use std::panic::{AssertUnwindSafe, catch_unwind};

use vmlab::Guest;

use crate::tune::{apply, roll_back};
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 4] = [
    ("along::one_of_a_pair_of_limits_and_the_other", pairs),
    ("along::governors_and_their_tunables", tunables),
    ("along::threads_and_a_partition", threads),
    ("along::an_interrupt_goes_back_to_its_cpu", interrupt),
];

const VM: &str = "cd /proc/sys/vm; cat dirty_ratio dirty_bytes dirty_background_ratio dirty_background_bytes \
                  overcommit_ratio overcommit_kbytes";

fn pairs(guest: &Guest) {
    let first = ok(guest.run(VM));
    let keys = "[sysctl]\n\"vm.dirty_ratio\" = 10\n\"vm.dirty_background_ratio\" = 3\n\"vm.overcommit_ratio\" = 60";
    let bytes = "cd /proc/sys/vm; echo 1000000 >dirty_bytes; echo 500000 >dirty_background_bytes; \
                 echo 70000 >overcommit_kbytes";
    for before in [bytes, "cd /proc/sys/vm; echo 20 >dirty_ratio; echo 500000 >dirty_background_bytes"] {
        ok(guest.run(before));
        let state = ok(guest.run(VM));
        apply(guest, keys).assert_changed();
        ok(guest.run("apus tune verify"));
        roll_back(guest);
        assert_eq!(ok(guest.run(VM)), state, "{before}");
    }
    // The other way round: the kernel takes no 0 for bytes, they go when the ratio comes.
    ok(guest.run("cd /proc/sys/vm; echo 20 >dirty_ratio; echo 10 >dirty_background_ratio; echo 50 >overcommit_ratio"));
    assert_eq!(ok(guest.run(VM)), first);
    apply(guest, "[sysctl]\n\"vm.dirty_bytes\" = 1000000\n\"vm.dirty_background_bytes\" = 500000").assert_changed();
    roll_back(guest);
    assert_eq!(ok(guest.run(VM)), first);
}

const CPUFREQ: &str =
    "cd /sys/devices/system/cpu/cpufreq; grep -rsH '' policy*/scaling_governor ondemand schedutil conservative; true";

fn tunables(guest: &Guest) {
    for (governor, tunable) in [
        ("ondemand", "echo 60 >ondemand/up_threshold; echo 3 >ondemand/sampling_down_factor"),
        ("schedutil", "echo 777 >schedutil/rate_limit_us"),
        ("conservative", "echo 90 >conservative/up_threshold; echo 70 >conservative/down_threshold"),
    ] {
        let begin = format!(
            "cd /sys/devices/system/cpu/cpufreq; for p in policy*; do echo {governor} >$p/scaling_governor; done; {tunable}"
        );
        ok(guest.run(&begin));
        let before = ok(guest.run(CPUFREQ));
        apply(guest, "[cpus.all]\ngovernor = \"performance\"").assert_changed();
        let during = ok(guest.run(CPUFREQ));
        assert!(!during.contains(&format!("{governor}/")), "the tunables went along: {during}");
        roll_back(guest);
        assert_eq!(ok(guest.run(CPUFREQ)), before, "{governor}");
    }
    ok(guest
        .run("cd /sys/devices/system/cpu/cpufreq; for p in policy*; do echo performance >$p/scaling_governor; done"));
}

/// A process that is pinned, in the root group and in one of its own.
fn threads(guest: &Guest) {
    let start = "mkdir -p /sys/fs/cgroup/own; sleep 1000 >/dev/null 2>&1 & a=$!; sleep 1001 >/dev/null 2>&1 & b=$!; \
                 echo $b >/sys/fs/cgroup/own/cgroup.procs; taskset -p 1 $a >/dev/null; taskset -p 2 $b >/dev/null; echo $a $b";
    let pids = ok(guest.run(start));
    let affinity = || ok(guest.run(&format!("for p in {pids}; do taskset -p $p; done")));
    let before = affinity();
    assert!(before.contains("mask: 1") && before.contains("mask: 2"), "{before}");
    apply(guest, "[cpuset]\nname = \"apus\"\ncpus = \"1\"").assert_changed();
    roll_back(guest);
    assert_eq!(affinity(), before);
    ok(guest.run(&format!("for p in {pids}; do kill $p; done; sleep 0.2; rmdir /sys/fs/cgroup/own")));
}

/// Now and then the emulated card's interrupt stays where it is, although it is to move and frames come: seen for 10 s, in one
/// guest of ten, when three booted at once; why is not known. So it may be tried a second time, in a guest of its own.
fn interrupt(guest: &Guest) {
    let first = catch_unwind(AssertUnwindSafe(|| moves_and_goes_back(guest)));
    testkit::first_attempt(first.is_ok());
    if first.is_err() {
        moves_and_goes_back(&ok(crate::vm().boot()));
    }
}

fn moves_and_goes_back(guest: &Guest) {
    ok(guest.run("ip link set eth0 up && sleep 1"));
    let irq = ok(guest.run("grep eth0-rx /proc/interrupts | cut -d: -f1")).trim().to_owned();
    let state = || ok(guest.run(&format!("cd /proc/irq/{irq}; cat smp_affinity_list effective_affinity_list")));
    // A mask of both, and served by CPU 1. Frames come all the time: an interrupt moves when it fires.
    let wire = guest.wire(0);
    let (_, _) = ok(wire.while_sending(&wire.silent_frame(), units::PacketRate::new(1_000), || {
        ok(guest.run(&format!("echo 1 >/proc/irq/{irq}/smp_affinity_list")));
        ok(guest.wait_until(&format!("[ $(cat /proc/irq/{irq}/effective_affinity_list) = 1 ]"), 100));
        ok(guest.run(&format!("echo 0-1 >/proc/irq/{irq}/smp_affinity_list; sleep 0.2")));
        assert_eq!(state(), "0-1\n1");
        let profile = "[interrupts]\nall = \"0\"";
        apply(guest, profile);
        ok(guest.wait_until(&format!("[ $(cat /proc/irq/{irq}/effective_affinity_list) = 0 ]"), 100));
        let said = ok(guest.output("apus tune rollback"));
        // It is moved back, or it is said that it was not.
        let told = said.stdout.contains(&format!("CPU that serves interrupt {irq}"));
        assert!(told, "{said:?}");
        let moved = said.stdout.contains(&format!("CPU that serves interrupt {irq}: 1: restored\n"));
        assert_eq!(state(), if moved { "0-1\n1" } else { "0-1\n0" }, "{said:?}");
    }));
}

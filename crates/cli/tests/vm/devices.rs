use units::{Nanos, PacketRate};
use vmlab::Guest;

use crate::tune::{apply, apply_with, power_set, roll_back};
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 5] = [
    ("devices::coalescing_lowers_the_interrupt_rate", coalescing),
    ("devices::a_driver_that_refuses_coalescing_is_reported", refusing),
    ("devices::interrupts_move_to_their_cpu", affinity),
    ("devices::an_isolated_partition_is_empty_of_others", partition),
    ("devices::a_register_that_drops_a_write_is_noticed", registers),
];

/// Interrupts that the card's receive vector raises in two seconds at 5000 frames a second.
fn raised(guest: &Guest) -> u64 {
    let wire = guest.wire(0);
    let (raised, _) = ok(wire.while_sending(&wire.silent_frame(), PacketRate::new(5_000), || {
        ok(wire.interrupts());
        ok(guest.run("sleep 2"));
        ok(wire.interrupts()).raised[0]
    }));
    raised
}

fn coalescing(guest: &Guest) {
    ok(guest.run("ip link set eth0 up && sleep 1"));
    let before = raised(guest);
    let usecs = |usecs: u32| apply(guest, &format!("[network.eth0]\ncoalesce = {{ rx-usecs = {usecs} }}"));
    // The driver keeps whole interrupts a second: 250, and then 248.
    let refusal = usecs(4000).assert_refused();
    assert!(refusal.contains("it has the value rx-usecs=4032"), "{refusal}");
    ok(guest.wire(0).interrupts());
    usecs(4032).assert_changed();
    let written = ok(guest.wire(0).interrupts()).moderation;
    let written = written.iter().filter(|write| write.vector == 0).map(|write| write.interval).next_back();
    let written = written.expect("the receive vector's interval was written");
    assert!(written > Nanos::from_micros(4_030) && written < Nanos::from_micros(4_034), "{written}");
    let slow = raised(guest);
    assert!(slow > 0 && before > 2 * slow, "{before} before, {slow} at 4 ms");
    roll_back(guest);
    let after = raised(guest);
    assert!(after > 2 * slow, "{after} after the rollback, {slow} at 4 ms");
}

fn refusing(guest: &Guest) {
    ok(guest.run("ip link set eth1 up"));
    let keys = "[network.eth1]\ncoalesce = { rx-usecs = 100 }";
    let refusal = apply(guest, keys).assert_refused();
    assert!(refusal.contains("eth1"), "{refusal}");
    // Told to go on, it says what was not done, and that is no success either.
    let outcome = apply_with(guest, &format!("{keys}\n[sysctl]\n\"vm.swappiness\" = 7"), "--keep-going");
    let became = |word: &str| outcome.items().iter().filter(|item| item["became"] == word).count();
    assert_eq!((became("refused"), became("changed")), (1, 1), "{outcome:?}");
    outcome.assert_refused();
    roll_back(guest);
}

fn affinity(guest: &Guest) {
    ok(guest.run("ip link set eth0 up && sleep 1"));
    let irq = ok(guest.run("grep eth0-rx /proc/interrupts | cut -d: -f1")).trim().to_owned();
    let before = ok(guest.run(&format!("cat /proc/irq/{irq}/smp_affinity_list")));
    for cpu in [0, 1] {
        let outcome = apply(guest, &format!("[interrupts]\nall = \"{cpu}\""));
        let label = format!("CPUs of interrupt {irq}");
        let one = outcome.items().into_iter().find(|item| item["setting"] == label.as_str());
        // Others may be refused, such as the timer's: this one must not be.
        assert!(one.as_ref().is_some_and(|item| item["became"] != "refused"), "{outcome:?}");
        let taken = || ok(guest.interrupts("eth0-rx"));
        let wire = guest.wire(0);
        let (grown, _) = ok(wire.while_sending(&wire.silent_frame(), PacketRate::new(1_000), || {
            // The first one or two may still be on their way to the other CPU.
            ok(guest.run("sleep 0.5"));
            let before = taken();
            ok(guest.run("sleep 1"));
            taken().iter().zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
        }));
        assert!(grown[cpu] > 0 && grown[1 - cpu] == 0, "wanted on CPU {cpu}: {grown:?}");
    }
    roll_back(guest);
    assert_eq!(ok(guest.run(&format!("cat /proc/irq/{irq}/smp_affinity_list"))), before);
}

fn partition(guest: &Guest) {
    const ROOT: &str = "/sys/fs/cgroup";
    let listing =
        || ok(guest.run(&format!("ls {ROOT}; cat {ROOT}/cgroup.subtree_control {ROOT}/cpuset.cpus.effective")));
    let before = listing();
    apply(guest, "[cpuset]\nname = \"apus\"\ncpus = \"1\"").assert_changed();
    assert_eq!(ok(guest.run(&format!("cat {ROOT}/cpuset.cpus.effective"))), "0", "the rest has lost the CPU");
    // Four that never rest, without a wish: none of them is put on CPU 1 (field 39 of /proc/PID/stat).
    let busy = "for i in 1 2 3 4; do sh -c 'while :; do :; done' >/dev/null 2>&1 & p=\"$p $!\"; done; sleep 1; \
                for i in $p; do cut -d' ' -f39 /proc/$i/stat; kill $i; done";
    assert_eq!(ok(guest.run(busy)), "0\n0\n0\n0");
    roll_back(guest);
    assert_eq!(listing(), before);
    let spread = ok(guest.run(busy));
    assert!(spread.contains('1'), "CPU 1 is everyone's again: {spread}");
}

/// The emulated machine says that it has stored the uncore's limits, and has not. It has no HWP.
fn registers(guest: &Guest) {
    let refusal = power_set(guest, "--uncore 2.1GHz --via hwp").assert_refused();
    assert!(refusal.contains("the write succeeded, but the value is still"), "{refusal}");
    let refusal = power_set(guest, "--cpu 1 --frequency 800MHz --via hwp").assert_refused();
    assert!(refusal.contains("HWP is not enabled"), "{refusal}");
}

use vmlab::Guest;

use crate::tune::{apply, roll_back};
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 3] = [
    ("idle::disabled_states_are_not_entered", disabled),
    ("idle::a_request_for_all_cpus_is_held", held),
    ("idle::a_request_for_one_cpu_and_its_inverted_zero", one_cpu),
];

/// How often POLL, C1, C2, C3 and C4 of `cpu` are entered while it wakes up fifty times a second.
fn entered(guest: &Guest, cpu: usize) -> [u64; 5] {
    // A sleep is counted when it ends, and no request ends the one that it finds.
    ok(guest.run(&format!("taskset {} true", 1 << cpu)));
    let before = ok(guest.idle_entries(cpu));
    let wakes = "i=0; while [ $i -lt 50 ]; do usleep 20000; i=$((i+1)); done";
    ok(guest.run(&format!("taskset {} sh -c '{wakes}'", 1 << cpu)));
    let after = ok(guest.idle_entries(cpu));
    let entries: Vec<_> = before.iter().zip(&after).map(|((_, before), (_, after))| after - before).collect();
    entries.try_into().unwrap()
}

fn disabled(guest: &Guest) {
    assert!(entered(guest, 1)[4] > 0, "the deepest state is free to begin with");
    let outcome = apply(guest, "[cpus.1]\nidle_latency = \"20us\"");
    outcome.assert_changed();
    assert_eq!(outcome.items().len(), 2, "C3 (90 us) and C4 (400 us)");
    let [_, _, c2, c3, c4] = entered(guest, 1);
    assert!(c2 > 0 && c3 + c4 == 0, "{c2} {c3} {c4}");
    assert!(entered(guest, 0)[4] > 0, "the other CPU is free");
    roll_back(guest);
    assert!(entered(guest, 1)[4] > 0);
}

fn held(guest: &Guest) {
    apply(guest, "[power]\nlatency = \"50us\"").assert_changed();
    for cpu in [0, 1] {
        let [_, _, c2, c3, c4] = entered(guest, cpu);
        assert!(c2 > 0 && c3 + c4 == 0, "50 us allow C2 (20 us) and not C3 (90 us): {c2} {c3} {c4}");
    }
    roll_back(guest);
    assert!(entered(guest, 0)[4] > 0 && entered(guest, 1)[4] > 0);
}

fn one_cpu(guest: &Guest) {
    let request = |latency: &str| apply(guest, &format!("[cpus.1]\nresume_latency = \"{latency}\"")).assert_changed();
    let file = || ok(guest.run("cat /sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"));
    request("5us");
    let [_, c1, c2, c3, c4] = entered(guest, 1);
    assert!(c1 > 0 && c2 + c3 + c4 == 0, "5 us allow C1 (2 us) alone: {c1} {c2} {c3} {c4}");
    assert!(entered(guest, 0)[4] > 0, "the other CPU is free");
    request("0us");
    assert_eq!(file(), "n/a", "no latency at all is not the file's 0");
    let [poll, c1, c2, c3, c4] = entered(guest, 1);
    assert!(poll > 0 && c1 + c2 + c3 + c4 == 0, "{poll} {c1} {c2} {c3} {c4}");
    roll_back(guest);
    assert_eq!(file(), "0", "no limit");
    assert!(entered(guest, 1)[4] > 0);
}

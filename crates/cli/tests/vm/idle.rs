use serde_json::Value as Json;
use vmlab::Guest;

use crate::tune::{apply, roll_back};
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 6] = [
    ("idle::disabled_states_are_not_entered", disabled),
    ("idle::a_request_for_all_cpus_is_held", held),
    ("idle::a_request_for_one_cpu_and_its_inverted_zero", one_cpu),
    ("idle::adaptive_limits_a_workers_cpu_and_its_own_limit_is_restored", chosen),
    ("idle::a_rollback_restores_the_limit_that_a_killed_run_left", killed),
    ("idle::adaptive_needs_two_idle_states", too_few),
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

const LIMIT: &str = "/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";

fn limit(guest: &Guest) -> String {
    ok(guest.run(&format!("cat {LIMIT}")))
}

/// Runs `apus run --limit-idle` on CPU 1, whose own limit is `own`, with a frame each 500 us, until it has set another.
fn begin(guest: &Guest, own: &str) {
    // A capture file (pcap-savefile(5)) of 100 frames of 60 bytes.
    let word = u32::to_le_bytes;
    let mut file = [word(0xa1b2_c3d4), [2, 0, 4, 0], word(0), word(0), word(65_535), word(1)].concat();
    for frame in 0..100 {
        file.extend([word(0), word(frame * 500), word(60), word(60)].concat());
        file.extend([0x5a; 60]);
    }
    std::fs::write(guest.share().join("paced.pcap"), file).unwrap();
    ok(guest.run(&format!(
        "echo {own} >{LIMIT}; rm -f /tmp/status; \
         (apus run drop pcap:/share/paced.pcap,timing=recorded,repeat --cpu 1 --goal p99=40us --limit-idle --json \
         --record /tmp/record >/tmp/said 2>/tmp/told; echo $? >/tmp/status) >/dev/null 2>&1 &"
    )));
    let begun = guest.wait_until(&format!("[ $(cat {LIMIT}) != {own} ]"), 300);
    assert!(begun.is_ok(), "{}", ok(guest.run("cat /tmp/said /tmp/told")));
}

/// Ends the run, whose record replays, and returns its document.
fn end(guest: &Guest, signal: &str) -> Json {
    ok(guest.run(&format!("kill -{signal} $(pidof apus)")));
    ok(guest.wait_until("[ -s /tmp/status ]", 300));
    let said = ok(guest.run("cat /tmp/said"));
    assert_eq!(ok(guest.run("cat /tmp/status")), "0", "{said}");
    let status: Json = serde_json::from_str(&ok(guest.run("apus tune status --json"))).unwrap();
    assert_eq!(status["transactions"].as_array().unwrap().len(), 0, "{status:#}");
    // What the policy knew and was told of the limit is in the record.
    let replayed = ok(guest.output("apus replay /tmp/record"));
    assert_eq!(replayed.status, 0, "{replayed:?}");
    ok(guest.run("head -n 1 /tmp/record | grep -q '\"idle_states\"' && grep -q '\"idle_limit_ns\"' /tmp/record"));
    serde_json::from_str(&said).unwrap()
}

fn chosen(guest: &Guest) {
    // C1 (2 us) is the deepest state that leaves most of the goal.
    begin(guest, "0");
    let told = ok(guest.run("cat /tmp/told"));
    assert!(
        told.contains("how deep CPU 1 may idle (states: ") && told.contains("(2us), ") && told.contains("(400us)); "),
        "{told}"
    );
    let document = end(guest, "INT");
    assert_eq!(limit(guest), "0");
    assert_eq!(document["config"]["limit_idle"], true);
    assert!(document["workers"][0]["idle_limit_changes"].as_u64().unwrap() > 0, "{document:#}");
    assert_eq!(document["warnings"].as_array().unwrap().len(), 0, "{document:#}");
    // The user's limit is not exceeded.
    begin(guest, "50");
    for _ in 0..20 {
        let now = limit(guest);
        assert!(now.parse::<u32>().is_ok_and(|us| (1..=50).contains(&us)), "{now}");
    }
    let told = ok(guest.run("cat /tmp/told"));
    assert!(told.contains("(20us)); ") && !told.contains("(90us)"), "{told}");
    end(guest, "TERM");
    assert_eq!(limit(guest), "50");
    // What somebody else sets stays.
    begin(guest, "0");
    ok(guest.run(&format!("echo 7 >{LIMIT}; sleep 1")));
    let document = end(guest, "INT");
    assert_eq!(limit(guest), "7");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("worker 0 no longer chooses") && warnings.contains("7us, which stays"), "{warnings}");
    ok(guest.run(&format!("echo 0 >{LIMIT}")));
}

fn killed(guest: &Guest) {
    for recovers in ["apus tune rollback", "apus run drop memory:64,frames=1 --cpu 0 --limit-idle"] {
        begin(guest, "300");
        // While the core rests, its own limit is in force.
        let caught = format!(
            "i=0; while [ $i -lt 100 ]; do kill -STOP $(pidof apus); [ $(cat {LIMIT}) != 300 ] && break; \
             kill -CONT $(pidof apus); i=$((i+1)); done; kill -KILL $(pidof apus)"
        );
        ok(guest.run(&caught));
        ok(guest.wait_until("[ -s /tmp/status ]", 300));
        let left = limit(guest);
        assert_ne!(left, "300");
        ok(guest.run(recovers));
        assert_eq!(limit(guest), "300", "{left} was left");
    }
    let status: Json = serde_json::from_str(&ok(guest.run("apus tune status --json"))).unwrap();
    assert_eq!(status["transactions"].as_array().unwrap().len(), 0, "{status:#}");
    ok(guest.run(&format!("echo 0 >{LIMIT}")));
}

fn too_few(guest: &Guest) {
    let refusal = |change: &str, back: &str| {
        ok(guest.run(change));
        let output = ok(guest.output("apus run drop memory:64,frames=1 --cpu 1 --limit-idle"));
        ok(guest.run(back));
        assert_eq!(output.status, 3, "{output:?}");
        output.stderr
    };
    let states = "for s in 2 3 4; do echo VALUE >/sys/devices/system/cpu/cpu1/cpuidle/state$s/disable; done";
    let said = refusal(&states.replace("VALUE", "1"), &states.replace("VALUE", "0"));
    assert!(said.contains("is disabled") && said.contains("allow the deeper states"), "{said}");
    let said = refusal(&format!("echo 5 >{LIMIT}"), &format!("echo 0 >{LIMIT}"));
    assert!(said.contains("beyond the CPU's limit of 5us"), "{said}");
    let status: Json = serde_json::from_str(&ok(guest.run("apus tune status --json"))).unwrap();
    assert_eq!(status["transactions"].as_array().unwrap().len(), 0, "{status:#}");
}

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Machine, expect};
use crate::support::Running;

/// Waits until nothing is applied any more; the time that took.
fn until_taken_back(machine: &Machine) -> Duration {
    let start = Instant::now();
    while !expect(&machine.apus(&["tune", "status"]), 0).contains("nothing is applied") {
        assert!(start.elapsed() < Duration::from_secs(60), "it is not taken back");
        std::thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}

#[test]
fn for_a_time() {
    let machine = Machine::small("for");
    let before = machine.files();
    let start = Instant::now();
    let (code, applied) = machine.json(&["tune", "apply", "base", "--yes", "--for", "2s"]);
    assert_eq!((code, &applied["transaction"]), (Some(0), &1.into()), "{applied}");
    assert!(applied["items"].as_array().unwrap().iter().any(|item| item["became"] == "changed"), "{applied}");
    let during = machine.files();
    // On a busy machine the time may be over before the files are read.
    if start.elapsed() < Duration::from_secs(2) {
        assert_ne!(during, before);
    }
    until_taken_back(&machine);
    assert_eq!(machine.files(), before);
}

#[test]
fn while_a_process_lives() {
    let machine = Machine::small("while");
    let before = machine.files();
    let mut other = Running(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = other.0.id().to_string();
    machine.json(&["tune", "apply", "base", "--yes", "--while-pid", &pid]);
    assert_ne!(machine.files(), before);
    other.end(Signal::KILL);
    until_taken_back(&machine);
    assert_eq!(machine.files(), before);
    let said = expect(&machine.apus(&["tune", "apply", "base", "--yes", "--while-pid", &pid]), 2);
    assert!(said.contains("no such process"), "{said}");
}

/// The guardian's process id, as the journal has it.
fn guardian(machine: &Machine) -> u32 {
    let journal = machine.read("var/lib/apus/tune/000001.journal");
    let pid = journal.split("\"pid\":").nth(1).unwrap();
    pid.split(',').next().unwrap().parse().unwrap()
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_guardian_that_is_told_to_end_takes_back_first() {
    let machine = Machine::small("term");
    let before = machine.files();
    machine.json(&["tune", "apply", "base", "--yes", "--for", "1h"]);
    // Started as a child of the command that has ended: it is nobody's here but ours to signal.
    std::thread::sleep(Duration::from_millis(100));
    signal(guardian(&machine), Signal::TERM);
    until_taken_back(&machine);
    assert_eq!(machine.files(), before);
}

#[test]
fn a_killed_guardian_leaves_it_to_the_next() {
    let machine = Machine::small("killed");
    let before = machine.files();
    machine.json(&["tune", "apply", "base", "--yes", "--for", "1h"]);
    signal(guardian(&machine), Signal::KILL);
    let start = Instant::now();
    while !expect_any(&machine).contains("ABANDONED") {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = expect(&machine.apus(&["tune", "verify"]), 1);
    assert!(said.contains("was killed: apus tune rollback --abandoned"), "{said}");
    expect(&machine.apus(&["tune", "rollback", "--abandoned"]), 0);
    assert_eq!(machine.files(), before);
}

fn expect_any(machine: &Machine) -> String {
    String::from_utf8(machine.apus(&["tune", "status"]).stdout).unwrap()
}

/// In a container, nobody waits for a process that has ended: it stays, as a zombie.
#[test]
fn a_zombie_is_no_process_to_wait_for() {
    let machine = Machine::small("zombie");
    let before = machine.files();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id().to_string();
    machine.json(&["tune", "apply", "base", "--yes", "--while-pid", &pid]);
    assert_ne!(machine.files(), before);
    child.kill().unwrap();
    // It is not waited for before all is over.
    until_taken_back(&machine);
    assert_eq!(machine.files(), before);
    let said = expect(&machine.apus(&["tune", "apply", "base", "--yes", "--while-pid", &pid]), 2);
    assert!(said.contains("no such process"), "{said}");
    child.wait().unwrap();
}

/// The guardian itself is killed, and nobody waits for it: the next command finds that.
#[test]
fn a_zombie_guardian_guards_nothing() {
    let machine = Machine::small("zombie-guardian");
    let before = machine.files();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    machine.json(&["tune", "apply", "base", "--yes"]);
    // As if this child had been its guardian: a number and a start time of a zombie.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().to_owned();
    machine.lease(child.id(), &started);
    assert!(!expect_any(&machine).contains("ABANDONED"));
    child.kill().unwrap();
    let start = Instant::now();
    while !expect_any(&machine).contains("ABANDONED") {
        assert!(start.elapsed() < Duration::from_secs(30), "a zombie is taken for alive");
        std::thread::sleep(Duration::from_millis(10));
    }
    expect(&machine.apus(&["tune", "rollback", "--abandoned"]), 0);
    assert_eq!(machine.files(), before);
    child.wait().unwrap();
}

/// In a container, the host's root file system is below another folder, and a process has other PIDs than on the host.
///
/// Regression test: the journal got the guardian's PID in the container, and whoever read it took its own /proc. So the
/// host took the guardian for dead, and the next command there rolled its transaction back.
#[test]
fn a_guardian_in_a_container_is_seen_by_the_host() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("needs root");
        return;
    }
    let machine = Machine::new("container", &[("sys/a", "1\n"), ("sys/devices/system/cpu/online", "0-3\n")]);
    machine.put("proc/empty", "");
    machine.put("p.toml", "summary = \"x\"\n[sysfs]\n\"/sys/a\" = 2\n");
    // The container ends with `unshare`, and the guardian with the container.
    let script = "mount --bind /proc \"$ROOT/proc\"\n\
                  status() { echo; \"$APUS\" tune status --root \"$ROOT\" | tr '\\n' ' '; echo; }\n\
                  export -f status\n\
                  unshare --pid --fork --mount-proc --kill-child bash -c '\n\
                    \"$APUS\" tune apply \"$ROOT/p.toml\" --yes --for 1h --root \"$ROOT\" >/dev/null || exit\n\
                    status; echo applied; exec sleep 600' >\"$ROOT/inside\" &\n\
                  until grep -qs applied \"$ROOT/inside\" || ! kill -0 $!; do sleep 0.05; done\n\
                  echo \"inside: $(cat \"$ROOT/inside\")\"; echo \"outside: $(status)\"\n\
                  kill -KILL $!; wait $!\n\
                  until status | grep -q ABANDONED; do sleep 0.05; done\n\
                  echo \"later: $(status)\"";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", script])
        .env("ROOT", &machine.0)
        .env("APUS", env!("CARGO_BIN_EXE_apus"))
        .output()
        .unwrap();
    let said = expect(&output, 0);
    let part =
        |from: &str, to: &str| said.split(from).nth(1).and_then(|rest| rest.split(to).next()).unwrap_or_default();
    for (view, text) in [("inside", part("inside:", "outside:")), ("outside", part("outside:", "later:"))] {
        assert!(text.contains("/sys/a") && !text.contains("ABANDONED"), "{view}: {said}");
    }
    assert!(part("later:", "nothing").contains("ABANDONED"), "{said}");
}

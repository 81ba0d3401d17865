//! Real packets, so only as root; the machine may be busy, so what is looked at is the shape.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, Running, text, turn};

/// A name that no other run has; `None`, and a line that says so, where the demo cannot run.
fn name(test: &str) -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if rustix::process::geteuid().is_root() && cpus >= 2 {
        return Some(format!("{test}{}", std::process::id()));
    }
    testkit::skip("needs root and two CPUs");
    None
}

fn demo(folder: &Root, name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    command.args(["demo", "--name", name, "-o"]).arg(folder.0.join("report.html"));
    command.arg("--json").arg(folder.0.join("demo.json")).args(words).stdin(Stdio::null());
    command
}

fn document(folder: &Root) -> Value {
    let document = serde_json::from_slice(&std::fs::read(folder.0.join("demo.json")).unwrap()).unwrap();
    validate(&document);
    document
}

fn said(output: &Output) -> String {
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

fn assert_nothing_is_left(name: &str) {
    let namespaces = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(!text(&namespaces.stdout).contains(name), "{}", text(&namespaces.stdout));
    assert!(!live::telemetry::own(Path::new(live::telemetry::ROOT)).join(name).exists());
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    assert!(!text(&links.stdout).contains("tx0") && !text(&links.stdout).contains("dut0"));
}

#[test]
fn a_short_demo_measures_everything_and_leaves_nothing() {
    let Some(name) = name("short") else { return };
    let _alone = turn();
    let folder = Root::new();
    let began = Instant::now();
    let output = demo(&folder, &name, &["--budget", "8s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(output.stderr.is_empty(), "{}", said(&output));
    let document = document(&folder);
    let modes = document["plan"]["modes"].as_array().unwrap();
    assert_eq!(modes.len(), 7);
    for mode in modes {
        let runs = document["runs"].as_array().unwrap().iter().filter(|run| run["mode"] == mode["name"]);
        let received: u64 = runs.map(|run| run["latency"]["frames"]["received"].as_u64().unwrap()).sum();
        assert!(received > 100, "{received} frames came back with {mode}");
        assert!(text(&output.stdout).contains(mode["name"].as_str().unwrap()));
    }
    let cpu = |mode: &str| {
        let runs = document["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["mode"] == mode && run["load"] == "constant:350000ns").unwrap();
        run["latency"]["tested_cpu"]["value"]["share_of_one_cpu_percent"].as_f64().unwrap()
    };
    assert!(cpu("interrupt") < cpu("poll") / 2.0, "{} against {}", cpu("interrupt"), cpu("poll"));
    let report = std::fs::read_to_string(folder.0.join("report.html")).unwrap();
    assert!(report.matches("<svg viewBox=\"0 0 1080").count() >= 2 && report.contains("p99 latency against CPU time"));
    assert_nothing_is_left(&name);
}

#[test]
fn ctrl_c_in_the_middle_keeps_what_was_measured_and_leaves_nothing() {
    let Some(name) = name("stop") else { return };
    let _alone = turn();
    let folder = Root::new();
    let mut command = demo(&folder, &name, &["--budget", "100s"]);
    let mut running = Running(command.stdout(Stdio::null()).spawn().unwrap());
    // Until some runs are done: an instance lives for some seconds here.
    let live = live::telemetry::own(Path::new(live::telemetry::ROOT)).join(&name).join("worker-0");
    let give_up = Instant::now() + Duration::from_secs(60);
    while !live.exists() {
        assert!(Instant::now() < give_up && running.0.try_wait().unwrap().is_none(), "no instance was started");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(8));
    let asked = Instant::now();
    assert_eq!(running.end(Signal::INT), Some(1));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    let document = document(&folder);
    assert_eq!(document["interrupted"], true);
    assert!(!document["runs"].as_array().unwrap().is_empty() && !document["not_done"].as_array().unwrap().is_empty());
    assert!(std::fs::read_to_string(folder.0.join("report.html")).unwrap().contains("Not done: "));
    assert_nothing_is_left(&name);
}

#[test]
fn wrong_use_is_said_before_anything_is_made() {
    let folder = Root::new();
    for (words, status, why) in [
        (vec!["--budget", "1s"], 2, "longer budget"),
        (vec!["--budget", "150"], 2, "150s"),
        (vec!["--json", "/nonexistent/x.json"], 3, "/nonexistent"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
        command.args(["demo", "--name", "wrong", "-o"]).arg(folder.0.join("r.html")).args(&words);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(text(&output.stderr).contains(why) || words[1] == "150", "{}", said(&output));
    }
    assert!(!folder.0.join("r.html").exists());
}

#[test]
fn without_root_it_says_so() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    let folder = Root::new();
    if rustix::process::geteuid().is_root() {
        // Nobody's binary must be where nobody may go.
        let shared = std::env::temp_dir().join(format!("apus-demo-{}", std::process::id()));
        testkit::put_program(env!("CARGO_BIN_EXE_apus").as_ref(), &shared.join("apus"));
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
        command = Command::new(shared.join("apus"));
        command.uid(65534).gid(65534).current_dir(&shared);
        let output = command.args(["demo", "--name", "nobody"]).output().unwrap();
        std::fs::remove_dir_all(&shared).unwrap();
        check(&output);
        return;
    }
    check(&command.args(["demo", "--name", "nobody"]).current_dir(&folder.0).output().unwrap());
}

fn check(output: &Output) {
    assert_eq!(output.status.code(), Some(3), "{}", said(output));
    assert!(text(&output.stderr).contains("fix: try again with sudo"), "{}", said(output));
}

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tester::lab::{Guard, Lab};

use crate::run::wait_for;
use crate::schemas::validate;
use crate::support::{Root, Running, apus, bare, text, turn};

/// A lab of a test's own; `None`, with a printed line, without the privilege.
fn lab(name: &str) -> Option<Guard> {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return None;
    }
    // Not `Lab::up`'s error, if it fails as root: that is a failure of the test.
    Some(Lab::pair(&format!("{name}{}", std::process::id())).up().unwrap())
}

fn start(root: &Root, lab: &Guard, extra: &[&str]) -> Running {
    let netns = lab.namespace("dut");
    let mut words = vec!["run", "macswap", "dut0", "--netns", &netns, "--name", "dut", "--json"];
    words.extend_from_slice(extra);
    let child: Child = apus(root, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let running = Running(child);
    wait_for("the XDP program", || link(lab).contains("xdp"));
    wait_for("the worker", || apus(root, &["top", "--json", "--interval", "20ms"]).output().is_ok_and(is_running));
    running
}

fn is_running(output: std::process::Output) -> bool {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    document["instances"][0]["workers"][0]["state"] == "running"
}

fn link(lab: &Guard) -> String {
    ip(lab, &["-d", "link", "show", "dut0"])
}

fn ip(lab: &Guard, words: &[&str]) -> String {
    let output = Command::new("ip").args(["-n", &lab.namespace("dut")]).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn bench(root: &Root, lab: &Guard, words: &[&str]) -> (Option<i32>, Value) {
    let netns = lab.namespace("tx");
    let mut all = words.to_vec();
    all.extend(["--port", "tx0", "--netns", &netns, "--json"]);
    let output = apus(root, &all).output().unwrap();
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    validate(&document);
    (output.status.code(), document)
}

fn end(running: &mut Running, signal: Signal) -> (Option<i32>, Value) {
    let asked = Instant::now();
    running.signal(signal);
    // Read first: the document may be longer than a pipe holds.
    let document = document(running);
    let code = running.0.wait().unwrap().code();
    // A second, and what a machine that is busy with other tests adds.
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    (code, document)
}

fn document(running: &mut Running) -> Value {
    let document = serde_json::from_reader(running.0.stdout.as_mut().unwrap()).unwrap();
    validate(&document);
    document
}

#[test]
fn latency_is_measured_judged_and_reported() {
    let _turn = turn();
    let Some(lab) = lab("lat") else { return };
    let root = Root::new();
    let mut running = start(&root, &lab, &["--goal", "p99=100us", "--fifo", "10"]);
    let file = root.0.join("r.json").display().to_string();
    let csv = root.0.join("r.csv").display().to_string();
    let words =
        ["bench", "latency", "--schedule", "constant:1ms", "--duration", "1s", "--instance", "dut", "--fifo", "10"];
    let (code, result) =
        bench(&root, &lab, &[&words[..], &["--goal", "p50=1s", "-o", &file, "--histogram", &csv]].concat());
    let latency = &result["result"]["latency"];
    assert_eq!(latency["frames"]["lost"], 0, "{latency}");
    assert!(latency["frames"]["received"].as_u64().unwrap() > 100);
    assert!(latency["tested_cpu"]["value"]["cpu_ns"].as_u64().unwrap() > 0);
    assert!(latency["exclusion"]["tested_gaps"]["value"].is_u64(), "{}", latency["exclusion"]);
    // On a machine that others use, too much may be left out: then it is not shown to be held.
    let held = &latency["goal"]["held"];
    assert_eq!(code, Some(if held["value"] == true { 0 } else { 1 }), "{held}");
    assert_ne!(held["value"], false, "{held}");
    let (code, result) = bench(&root, &lab, &[&words[..], &["--goal", "p50=1ns"]].concat());
    assert_eq!(code, Some(1));
    assert_ne!(result["result"]["latency"]["goal"]["held"]["value"], true);
    assert!(std::fs::read_to_string(&csv).unwrap().lines().count() > 5);

    // The gaps of the instance, and the CPU time of its whole process: the worker, and the thread that waits for
    // signals.
    assert_eq!(latency["tested_cpu"]["value"]["threads"], 1);
    let pid = running.0.id().to_string();
    let (_, result) = bench(&root, &lab, &[&words[..], &["--pid", &pid]].concat());
    let whole = &result["result"]["latency"];
    assert!(whole["tested_cpu"]["value"]["threads"].as_u64().unwrap() > 1, "{}", whole["tested_cpu"]);
    assert!(whole["exclusion"]["tested_gaps"]["value"].is_u64(), "{}", whole["exclusion"]);
    let netns = lab.namespace("tx");
    let other = [&words[..], &["--pid", "1", "--port", "tx0", "--netns", &netns]].concat();
    let output = apus(&root, &other).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains(&format!("is process {pid}, not 1")), "{}", text(&output.stderr));

    let report = root.0.join("r.html").display().to_string();
    let output = bare(&["report", &file, "-o", &report]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("<svg") && html.contains("constant:1000000ns"));

    let (code, document) = end(&mut running, Signal::INT);
    assert_eq!((code, &document["accounted"]), (Some(0), &true.into()));
    assert_eq!(document["ports"][0]["xdp_mode"], "native");
    let received = document["workers"][0]["counts"]["total"]["received_frames"].as_u64().unwrap();
    assert!(received >= latency["frames"]["received"].as_u64().unwrap(), "{received}");
    assert!(!link(&lab).contains("xdp"), "{}", link(&lab));
}

#[test]
fn load_is_searched_and_flooded() {
    let _turn = turn();
    let Some(lab) = lab("load") else { return };
    let root = Root::new();
    let mut running = start(&root, &lab, &["--mode", "interrupt"]);
    let (code, result) = bench(&root, &lab, &["bench", "load", "--flood", "--duration", "300ms", "--instance", "dut"]);
    assert_eq!(code, Some(0));
    assert!(result["result"]["flood"]["received"].as_u64().unwrap() > 0);
    // What rate passes is the machine's matter; the search must end and say so.
    let words =
        ["bench", "load", "--min-rate", "100pps", "--max-rate", "1kpps", "--width", "90%", "--duration", "200ms"];
    let (_, result) = bench(&root, &lab, &words);
    assert!(result["result"]["load"]["end"].is_string(), "{result}");
    let (code, document) = end(&mut running, Signal::TERM);
    assert_eq!((code, &document["accounted"]), (Some(0), &true.into()));
    assert!(!link(&lab).contains("xdp"));
}

/// Both knobs of each NAPI of the tested interface.
fn napi(lab: &Guard) -> Vec<(u32, u64)> {
    tester::lab::in_namespace(&lab.namespace("dut"), || {
        let mut client = host::nic::Client::new();
        let tested = client.interface("dut0").unwrap();
        let settings = client.napis(&tested).unwrap().into_iter().map(|napi| napi.settings);
        settings.map(|it| (it.defer_hard_irqs.unwrap(), it.gro_flush_timeout_ns.unwrap())).collect()
    })
    .unwrap()
}

#[test]
fn after_kill_9_the_next_start_works_and_napi_settings_come_back() {
    let _turn = turn();
    let Some(lab) = lab("kill") else { return };
    let root = Root::new();
    let before = napi(&lab);
    let mut running = start(&root, &lab, &["--defer", "2,200us"]);
    // It is set after the workers have started.
    wait_for("deferred interrupts", || napi(&lab) == [(2, 200_000)]);
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let mut again = start(&root, &lab, &["--defer", "2,200us"]);
    let (code, document) = end(&mut again, Signal::TERM);
    assert_eq!(code, Some(0), "{document}");
    assert_eq!(document["ports"][0]["deferred_napis"].as_array().unwrap().len(), 1);
    assert!(!link(&lab).contains("xdp"));
    assert_eq!(napi(&lab), before, "what was before the killed one, not what it set");
}

/// Sets the deferral of the tested interface, as somebody else would.
fn defer(lab: &Guard, defer_hard_irqs: u32, timeout: Duration) {
    tester::lab::in_namespace(&lab.namespace("dut"), || {
        let mut client = host::nic::Client::new();
        let tested = client.interface("dut0").unwrap();
        let settings = host::nic::NapiSettings {
            defer_hard_irqs: Some(defer_hard_irqs),
            gro_flush_timeout_ns: Some(timeout.as_nanos() as u64),
            ..Default::default()
        };
        for napi in client.napis(&tested).unwrap() {
            client.set_napi(napi.id, &settings).unwrap();
        }
    })
    .unwrap();
}

/// A hold-off of 20 ms, with which no wait can meet the goal, was set by somebody else before `adaptive` changed it.
#[test]
fn a_hold_off_with_which_no_goal_can_be_met_is_given_up_and_somebody_elses_is_left_alone() {
    let _turn = turn();
    let Some(lab) = lab("hold") else { return };
    let root = Root::new();
    let record = root.0.join("hold.jsonl").display().to_string();
    let words = ["--goal", "p99=300us", "--hold-off", "--record", &record, "--record-limit", "20000"];
    let mut running = start(&root, &lab, &words);
    defer(&lab, 1, Duration::from_millis(20));
    std::thread::sleep(Duration::from_millis(1_200));
    let words = ["bench", "latency", "--schedule", "constant:100us", "--duration", "4s"];
    let (_, result) = bench(&root, &lab, &words);
    assert_eq!(result["result"]["latency"]["frames"]["lost"], 0);
    assert_ne!(napi(&lab)[0].1, 20_000_000, "{result:#}");
    // From now on, it is somebody else's.
    defer(&lab, 3, Duration::from_micros(70));
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(napi(&lab), [(3, 70_000)]);
    let (code, document) = end(&mut running, Signal::TERM);
    assert_eq!((code, &document["accounted"]), (Some(0), &true.into()));
    assert_eq!(document["config"]["hold_off"], true);
    assert!(document["workers"][0]["hold_off_changes"].as_u64().unwrap() > 0, "{document}");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("no longer chooses its hold-off") && warnings.contains("70"), "{warnings}");
    // What the policy was told of the hold-off is in the record.
    let output = bare(&["replay", &record]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let lines = std::fs::read_to_string(&record).unwrap();
    // 256 frames at 14,880,952 packets per second.
    assert!(lines.contains("\"longest_hold_off_ns\":17203") && lines.contains("\"hold_off_ns\":20000000"));
    assert!(lines.contains("\"held_ns\":"), "frames were held");
}

#[test]
fn a_lost_interface_ends_it_with_3_and_its_name() {
    let _turn = turn();
    let Some(lab) = lab("lost") else { return };
    let root = Root::new();
    let mut running = start(&root, &lab, &[]);
    ip(&lab, &["link", "delete", "dut0"]);
    let document = document(&mut running);
    let code = running.0.wait().unwrap().code();
    assert_eq!((code, &document["ended"]), (Some(3), &"failed".into()));
    assert!(document["error"].as_str().unwrap().contains("dut0"), "{document}");
}

#[test]
fn without_an_answer_nothing_was_measured_and_longer_frames_than_fit_are_refused() {
    let _turn = turn();
    let Some(lab) = lab("mute") else { return };
    let root = Root::new();
    let words = ["bench", "latency", "--schedule", "constant:1ms", "--duration", "300ms"];
    let (code, result) = bench(&root, &lab, &words);
    assert_eq!((code, &result["result"]["latency"]["all"]["count"]), (Some(1), &0.into()));
    let netns = lab.namespace("tx");
    let typed = [&words[..], &["--port", "tx0", "--netns", &netns, "--frame", "1519"]].concat();
    let output = bare(&typed);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the MTU of tx0 is 1500, so frames have at most 1518 bytes"), "{output:?}");
}

#[test]
fn dead_busy_polling_is_reported() {
    let _turn = turn();
    let Some(lab) = lab("busy") else { return };
    let root = Root::new();
    let mut running = start(&root, &lab, &["--busy-poll", "64"]);
    bench(&root, &lab, &["bench", "latency", "--schedule", "constant:1ms", "--duration", "500ms"]);
    let (_, document) = end(&mut running, Signal::INT);
    let busy = &document["workers"][0]["counts"]["devices"][0]["busy_poll"];
    let warned = document["warnings"].as_array().unwrap().iter().any(|w| w.as_str().unwrap().contains("no effect"));
    assert_eq!(warned, *busy == false, "{document}");
    assert!(busy.is_boolean(), "500 frames are enough to know it: {document}");
}

#[test]
fn a_lab_goes_up_and_down() {
    let _turn = turn();
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return;
    }
    let name = format!("updown{}", std::process::id());
    let up = bare(&["lab", "up", "pair", "--name", &name, "--queues", "2"]);
    assert_eq!(up.status.code(), Some(0), "{}", text(&up.stderr));
    assert!(text(&up.stdout).contains("02:61:70:75:00:01"), "{}", text(&up.stdout));
    let list = bare(&["lab", "list", "--json"]);
    let document: Value = serde_json::from_slice(&list.stdout).unwrap();
    validate(&document);
    assert!(document["labs"].as_array().unwrap().iter().any(|lab| lab["name"] == name.as_str()), "{document}");
    let exec = bare(&["lab", "exec", &name, "dut", "--", "sh", "-c", "ip link show dut0; exit 7"]);
    assert_eq!(exec.status.code(), Some(7), "the exit status is the command's");
    assert!(text(&exec.stdout).contains("dut0"));
    let down = bare(&["lab", "down", &name]);
    assert_eq!((down.status.code(), text(&down.stdout).trim()), (Some(0), format!("lab {name} was removed").as_str()));
    assert_eq!(bare(&["lab", "down", &name]).status.code(), Some(0), "nothing there is fine");
}

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use live::telemetry::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use tester::lab::{Lab, spawn};

use crate::run::wait_for;
use crate::schemas::validate;
use crate::support::{BIND, Root, Running, apus, bare, metrics, text, turn};

/// The folder in which a test's instances publish their state.
fn published(root: &Root) -> PathBuf {
    let folder = root.0.join(".moderate");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A queue as a running instance publishes it.
fn queue(interface: &str) -> Value {
    json!({
        "interface": interface, "queue": 3, "napi": 8193, "policy": "goal", "goal": "p99=100us",
        "goal_latency_ns": 100_000, "timer_ns": 80_000, "reason": "the goal allows a longer time", "changes": 7, "trouble": null,
        "lost": null, "span_ns": 1_000_000_000, "packets": 90_000, "polls": 11_000, "full_polls": 0,
        "arrival_to_reception_bound_ns": 80_000, "reception_to_read_ns": 12_300, "measured": 89_000,
        "judged": 1_000_000, "late": 2_500.0, "verdict": "held", "why_unmeasured": null,
    })
}

/// Publishes queues as if this process steered them.
fn publish(folder: &Path, queues: &[Value]) {
    publish_with(folder, queues, &json!([]));
}

/// Publishes queues, and interfaces that this process does not steer.
fn publish_with(folder: &Path, queues: &[Value], not_controlled: &Value) {
    let me = Process::current().unwrap();
    let document = json!({
        "apus": "0", "schema": "apus.moderate/1", "dry_run": false, "duration_ns": 60_000_000_000_u64, "queues": queues,
        "not_controlled": not_controlled, "missed_before": false, "restored": null,
    });
    validate(&document);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let contents = json!({
        "pid": me.pid, "start_ticks": me.start_ticks, "network_namespace": 1, "document": document,
        "published_ns": now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs(),
    });
    fs::write(folder.join(format!("{}.json", me.pid)), contents.to_string()).unwrap();
}

/// `apus moderate status`, and its exit status.
fn status(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let words = [&["moderate", "status", "--moderation", folder.to_str().unwrap()][..], more].concat();
    // Not by `bare`: in a namespace of its own, it would see another /run/apus.
    let output = Command::new(env!("CARGO_BIN_EXE_apus")).args(&words).stdin(Stdio::null()).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    (output.status.code(), text(&output.stdout).to_owned())
}

fn status_document(folder: &Path) -> Value {
    let document = serde_json::from_str(&status(folder, &["--json"]).1).unwrap();
    validate(&document);
    document
}

#[test]
fn a_configuration_is_checked_without_steering() {
    let root = Root::new();
    let file = root.0.join("moderate.toml");
    let check = || bare(&["moderate", "check", file.to_str().unwrap()]);
    fs::write(
        &file,
        "[defaults]\ngoal = \"p99=200us\"\n[interface.lo]\npeak_rate = \"2Mpps\"\n[interface.lo.queue.3]\ngoal = \"p99.9=1ms\"\n\
         [interface.typo0]\npolicy = \"net-dim\"\nplace = \"nic\"\n",
    )
    .unwrap();
    let good = check();
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert_eq!(
        text(&good.stdout),
        "lo: goal p99=200us, place napi, at most 2.00Mpps per queue\n  queue 3: p99.9=1ms\n\
         typo0: policy net-dim, judged by p99=200us, place nic\n"
    );
    assert_eq!(text(&good.stderr), "note: typo0: at present this host has no such interface\n");
    fs::write(&file, "[interface.lo]\ngoal = \"100us\"\ncolour = \"red\"\n").unwrap();
    let wrong = check();
    assert_eq!((wrong.status.code(), text(&wrong.stdout)), (Some(2), ""));
    for part in [":2:8: goal = \"100us\": expected a goal", ":3:1: the key \"colour\" is unknown", "\n  fix: "] {
        assert!(text(&wrong.stderr).contains(part), "{part}: {}", text(&wrong.stderr));
    }
    // The same file, run: it is refused before anything is looked at.
    let refused = bare(&["moderate", "--config", file.to_str().unwrap()]);
    assert_eq!((refused.status.code(), &refused.stderr), (Some(2), &wrong.stderr));
    fs::remove_file(&file).unwrap();
    let missing = check();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("moderate.toml"), "{}", text(&missing.stderr));
}

#[test]
fn wrong_use_of_the_service_is_said() {
    for (words, why) in [
        (&["moderate", "lo", "--config", "x"][..], "--config"),
        (&["moderate", "--config", "x", "--goal", "p99=1ms"], "--goal"),
        (&["moderate", "status", "lo"], "lo"),
        (&["moderate", "lo", "--queue-goal", "p99=1ms"], "QUEUE:GOAL"),
        (&["moderate", "lo", "--queue-goal", "1:p99=1ms", "--queue-goal", "1:p99=2ms"], "two goals"),
        (&["moderate", "lo", "--policy", "net-dim", "--queue-goal", "1:p99=1ms"], "queue goals need --policy goal"),
    ] {
        let output = bare(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn status_shows_what_is_steered_and_whether_it_holds() {
    let root = Root::new();
    let folder = published(&root);
    assert_eq!(status(&folder, &[]), (Some(0), "no instance of apus moderate is running\n".into()));
    assert_eq!(status_document(&folder)["instances"], json!([]));
    publish(&folder, &[queue("eth0")]);
    let (code, table) = status(&folder, &[]);
    assert_eq!(code, Some(0), "{table}");
    let row = "\neth0           3  p99=100us   80us  90.0kpps  11000/s   12.3us   92.3us  0.25 %  held     the goal allows a longer time\n";
    assert!(table.contains(row) && table.contains("another network namespace (net:[1])"), "{table}");
    let document = status_document(&folder);
    let instance = &document["instances"][0];
    assert_eq!((&instance["pid"], &instance["network_namespace"]), (&json!(std::process::id()), &json!(1)));
    assert_eq!(instance["queues"][0]["at_most_ns"], 92_300);
    for (key, value) in [("verdict", "missed"), ("lost", "somebody else set it")] {
        let mut bad = queue("eth0");
        bad[key] = value.into();
        publish(&folder, &[queue("eth1"), bad]);
        let (code, table) = status(&folder, &[]);
        assert!(code == Some(1) && table.contains(value), "{key}: {code:?} {table}");
    }
    // Of another policy, a goal is only what it is compared with.
    let mut other = queue("eth0");
    (other["policy"], other["verdict"]) = ("net-dim".into(), "missed".into());
    publish(&folder, &[other]);
    assert_eq!(status(&folder, &[]).0, Some(0));
}

/// Regression test: of a service that waits for its interfaces, there was only an empty table, with exit status 0.
#[test]
fn status_names_the_interfaces_that_are_not_controlled() {
    let root = Root::new();
    let folder = published(&root);
    publish_with(&folder, &[], &json!([{ "interface": "later0", "why": "there is no such network interface" }]));
    let (code, table) = status(&folder, &[]);
    let line = ": later0 is not controlled: there is no such network interface\n";
    assert!(code == Some(1) && table.contains(line), "{code:?} {table}");
    assert_eq!(status_document(&folder)["instances"][0]["not_controlled"][0]["interface"], "later0");
}

/// Regression test: with a mistyped folder, each of them said that nothing runs, with exit status 0.
#[test]
fn a_folder_that_is_named_and_does_not_exist_is_an_error() {
    let root = Root::new();
    let typo = root.0.join("typo");
    for words in [["moderate", "", "--moderation"], ["power", "steer", "--steering"], ["power", "serve", "--folder"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
        command.args(words[..2].iter().filter(|word| !word.is_empty())).arg("status").arg(words[2]).arg(&typo);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("there is no such folder") && said.contains("omit --"), "{words:?}: {said}");
    }
}

#[test]
fn what_cannot_be_believed_is_listed_and_does_nothing_to_the_terminal() {
    let root = Root::new();
    let folder = published(&root);
    let evil = "e\u{1b}[2J\u{9b}31m\u{202e}\n";
    publish(&folder, &[queue(evil)]);
    fs::write(folder.join("1.json"), "{}").unwrap();
    fs::write(folder.join(format!("2{evil}")), "").unwrap();
    let (code, table) = status(&folder, &[]);
    assert_eq!(code, Some(0));
    assert!(!table.contains(|c| c != '\n' && units::acts(c)), "{table:?}");
    assert!(
        table.contains("\ne\\u001b[2J") && table.contains("leftover file") && table.lines().count() == 5,
        "{table}"
    );
    let document = status_document(&folder);
    assert_eq!(document["leftovers"].as_array().map(Vec::len), Some(2), "{document:#}");
    assert_eq!(document["instances"][0]["queues"][0]["interface"], evil);
    let top = apus(&root, &["top", "--once"]).output().unwrap();
    assert!(!text(&top.stdout).contains(|c| c != '\n' && units::acts(c)), "{:?}", text(&top.stdout));
    let metrics = metrics(&root, &[]);
    assert!(metrics.contains("interface=\"e\\\\u001b[2J") && !metrics.contains('\u{1b}'), "{metrics:?}");
}

#[test]
fn top_and_metrics_show_the_queues() {
    let root = Root::new();
    let folder = published(&root);
    assert!(!metrics(&root, &[]).contains("apus_moderated_timer_seconds{"));
    publish(&folder, &[queue("eth0")]);
    let answer = metrics(&root, &[]);
    let line = "\napus_moderated_timer_seconds{interface=\"eth0\",queue=\"3\",netns=\"1\"} 0.00008\n";
    assert!(answer.contains(line) && answer.ends_with("# EOF\n"), "{answer}");
    // The running machine's own counters.
    assert!(answer.contains("\napus_host_softirq_seconds_total{cpu=\"0\"} "), "{answer}");
    let output = apus(&root, &["top", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(document["moderation"][0]["queues"][0]["timer_ns"], 80_000, "{document:#}");
    let table = apus(&root, &["top", "--once"]).output().unwrap();
    assert!(text(&table.stdout).starts_with("INTERFACE  QUEUE  GOAL"), "{}", text(&table.stdout));
    let _worker = root.worker("edge", 0);
    let named = apus(&root, &["top", "edge", "--once", "--interval", "20ms"]).output().unwrap();
    assert!(!text(&named.stdout).contains("eth0"), "who names an instance sees that one alone");
}

/// The unit, as it is installed, without its comments.
fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/apus-moderate.service.in");
    let unit = fs::read_to_string(path).unwrap();
    unit.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The values of a key of the unit, in order.
fn settings<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn the_unit_runs_commands_that_there_are() {
    use clap::CommandFactory as _;
    let unit = unit();
    let commands = [settings(&unit, "ExecStart"), settings(&unit, "ExecReload")].concat();
    let own: Vec<&str> = commands.iter().filter_map(|command| command.strip_prefix("@bindir@/")).collect();
    assert_eq!(own.len(), 2, "{commands:?}");
    for command in own {
        let parsed = ::apus::args::Args::command().try_get_matches_from(command.split(' '));
        assert!(parsed.is_ok(), "{command}: {parsed:?}");
    }
    assert_eq!(settings(&unit, "Type"), ["notify"]);
}

/// A service manager that hears what a service tells.
pub struct Manager {
    socket: UnixDatagram,
    pub path: PathBuf,
    heard: Vec<String>,
}

impl Manager {
    /// With a socket in this folder: a socket with an abstract name belongs to a network namespace (unix(7)).
    pub fn new(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, path, heard: Vec::new() }
    }

    /// Hears messages until one of this kind.
    pub fn until(&mut self, kind: &str) {
        let mut octets = [0; 500];
        // Watchdog messages go on for ever.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < deadline, "{kind} did not come: {:?}", self.heard);
            let length = self.socket.recv(&mut octets).unwrap_or_else(|e| panic!("{kind}: {e}: {:?}", self.heard));
            let message = text(&octets[..length]).to_owned();
            let is_it = message.starts_with(kind);
            self.heard.push(message);
            if is_it {
                return;
            }
        }
    }
}

/// With no more capabilities than the unit grants.
#[test]
fn a_service_steers_by_its_file_tells_how_it_is_and_leaves_nothing() {
    let _turn = turn();
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return;
    }
    if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
        testkit::skip("no setpriv here; apt-get install util-linux");
        return;
    }
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let lab = Lab::pair(&format!("modv{}", std::process::id()));
    let lab = lab.address("dut", "dut0", ip("192.0.2.1"), 24).address("tx", "tx0", ip("192.0.2.2"), 24).up().unwrap();
    let root = Root::new();
    let file = root.0.join("moderate.toml");
    fs::write(&file, "[interface.dut0]\ngoal = \"p99=1ms\"\n[interface.dut0.queue.0]\ngoal = \"p99=20ms\"\n").unwrap();
    let unit = unit();
    let capabilities: Vec<String> = settings(&unit, "CapabilityBoundingSet")[0]
        .split(' ')
        .map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase())
        .collect();
    let mut manager = Manager::new(&root.0);
    let start = |manager: &Manager| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", BIND]).arg(&root.0);
        command.args(["setpriv", "--no-new-privs", "--bounding-set"]);
        command.arg(format!("-all,+{}", capabilities.join(",+")));
        command.arg(env!("CARGO_BIN_EXE_apus")).args(["moderate", "--config"]).arg(&file);
        command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "10000000");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(spawn(&lab.namespace("dut"), &mut command).unwrap())
    };
    // Where BIND puts /run/apus.
    let folder = root.0.join("run/moderate");
    let names = || -> Vec<String> {
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).collect()
    };
    let ready = |running: &mut Running, manager: &mut Manager| {
        let name = format!("{}.json", running.0.id());
        let running = std::cell::RefCell::new(running);
        wait_for("the state", || {
            let mut running = running.borrow_mut();
            if let Some(status) = running.0.try_wait().unwrap() {
                let mut said = String::new();
                running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("{status}: {said}");
            }
            folder.is_dir() && names().contains(&name)
        });
        manager.until("READY=1\nSTATUS=");
        manager.until("WATCHDOG=1");
    };
    let mut running = start(&manager);
    ready(&mut running, &mut manager);
    let document = status_document(&folder);
    let instance = &document["instances"][0];
    assert_eq!(instance["pid"], running.0.id());
    assert!(instance["network_namespace"].is_u64(), "another than the test's: {document:#}");
    let queue = &instance["queues"][0];
    assert_eq!((&queue["interface"], &queue["goal"]), (&"dut0".into(), &"p99=20ms".into()), "{queue:#}");
    let changed = || status_document(&folder)["instances"][0]["steering_ns"].as_u64().unwrap();
    let before = changed();
    wait_for("a newer state", || changed() > before);
    // Killed, it leaves its file; readers see that nobody is behind it.
    assert_eq!(running.end(Signal::KILL), None);
    let document = status_document(&folder);
    assert_eq!(document["instances"], json!([]));
    assert!(document["leftovers"][0]["why"].as_str().unwrap().ends_with("has ended"), "{document:#}");
    let mut next = start(&manager);
    ready(&mut next, &mut manager);
    assert_eq!(names(), [format!("{}.json", next.0.id())], "the next one removes what was left");
    next.signal(Signal::TERM);
    manager.until("STOPPING=1");
    let code = next.0.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    assert!(names().is_empty(), "{:?}", names());
    let mut said = String::new();
    next.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("The original settings are restored."), "{said}");
}

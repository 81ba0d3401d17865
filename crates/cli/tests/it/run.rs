use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, Running, apus, bare, run, text};

/// Runs, and returns the valid document.
fn document(root: &Root, words: &[&str]) -> Value {
    let output = run(root, words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    document
}

/// Opening a named pipe waited for a writer, with the signals blocked, so that only SIGKILL ended it.
#[test]
fn a_pipe_is_no_capture() {
    let root = Root::new();
    let pipe = root.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, why) in [(pipe, "not a regular file"), (root.0.join("none"), "No such file")] {
        let output = apus(&root, &["run", "macswap", &format!("pcap:{}", path.display())]).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

#[test]
fn every_command_has_help() {
    for words in [
        &["--help"][..],
        &["run", "--help"],
        &["run", "drop", "--help"],
        &["run", "macswap", "--help"],
        &["run", "l2fwd", "--help"],
        &["run", "udp-echo", "--help"],
        &["run", "l3fwd", "--help"],
        &["bench", "--help"],
        &["bench", "latency", "--help"],
        &["bench", "load", "--help"],
        &["bench", "rfc2544", "--help"],
        &["bench", "mlr", "--help"],
        &["bench", "soak", "--help"],
        &["bench", "compare", "--help"],
        &["lab", "--help"],
        &["lab", "up", "--help"],
        &["lab", "down", "--help"],
        &["lab", "list", "--help"],
        &["lab", "exec", "--help"],
        &["report", "--help"],
        &["replay", "--help"],
        &["top", "--help"],
        &["metrics", "--help"],
    ] {
        let output = bare(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(text(&output.stdout).contains("Usage: apus"), "{words:?}");
    }
}

/// `apus` itself has no DPDK: it starts the program beside it, or says how to get that.
#[cfg(not(feature = "dpdk"))]
#[test]
fn a_dpdk_port_needs_the_program_with_dpdk() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("apus");
    std::fs::hard_link(env!("CARGO_BIN_EXE_apus"), &program).unwrap();
    let run = || {
        let words = ["run", "macswap", "dpdk:net_null0", "--burst", "16"];
        let output = std::process::Command::new(&program).args(words).output().unwrap();
        (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (status, _, said) = run();
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("without DPDK") && said.contains("make dpdk"), "{said}");
    let other = folder.join("apus-dpdk");
    testkit::put_script(&other, "#!/bin/sh\necho \"$@\"\nexit 7\n");
    let (status, out, _) = run();
    assert_eq!((status, out.trim()), (Some(7), "run macswap dpdk:net_null0 --burst 16"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A guest without cpuidle, or with a single state, has nothing to choose from.
#[test]
fn a_cpu_without_idle_states_cannot_choose_among_them() {
    let output = bare(&["run", "drop", "memory:64,frames=1", "--cpu", "4000000", "--limit-idle"]);
    assert!(output.status.code() == Some(3) && text(&output.stderr).contains("not online"), "{output:?}");
    let states = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cpuidle").map_or(0, Iterator::count);
    // The rest is for machines without a choice; the VM lab has states to choose from.
    if states > 2 {
        return;
    }
    let output = bare(&["run", "drop", "memory:64,frames=1", "--cpu", "0", "--limit-idle", "--json"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    if rustix::process::geteuid().is_root() || states == 0 {
        assert!(said.contains("cannot choose how deep CPU 0 may idle") && said.contains("omit --limit-idle"), "{said}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&document["ended"], &document["config"]["limit_idle"]), (&"failed".into(), &true.into()));
        assert_eq!(document["workers"], serde_json::json!([]));
    }
}

#[test]
fn wrong_use_is_2_and_names_the_remedy() {
    for (words, remedy) in [
        ("run macswap eth0 --goal p99=40us --mode poll", "use --mode adaptive"),
        ("run macswap eth0 --sleep-max 50us", "use --mode backoff"),
        ("run macswap eth0 --mode interrupt --hold-off", "use --mode adaptive"),
        ("run drop memory:64 --hold-off", "omit it"),
        ("run macswap eth0 memory:64 --hold-off", "run the other ports in another instance"),
        ("run macswap eth0 --hold-off --defer 2,200us", "cannot be used with"),
        ("run macswap eth0 --cpu 1 --mode poll --limit-idle", "use --mode adaptive"),
        ("run macswap eth0 --limit-idle", "add --cpu N"),
        ("run macswap eth0 --platform x.json --mode poll", "use --mode adaptive"),
        ("run macswap memory:64 --platform /nonexistent/x.json", "a file that apus probe wrote"),
        ("run macswap memory:64 --platform /etc/passwd", "a file that apus probe wrote"),
        ("run macswap eth0 --mode backoff --sleep-max 11ms", "give a shorter duration"),
        ("run macswap eth0 --goal 40us", "p99.9=50us"),
        ("run macswap eth0 --mode turbo", "adaptive"),
        ("run macswap eth0:3-1", "0-3"),
        ("run macswap dpdk:", "dpdk:net_af_xdp0,iface=eth0"),
        ("run macswap memory:64 --eal -m", "omit it"),
        ("run macswap memory:64 --burst 32", "omit it"),
        ("run macswap dpdk:net_null0 --filter udp=7", "omit it"),
        ("run macswap memory:64 --xdp generic --duration 1ms", "omit it"),
        ("run macswap dpdk:net_null0 --zero-copy off", "omit it"),
        ("run macswap memory:64 --no-lock-memory --duration 1ms", "omit it"),
        ("run macswap memory:64 --burst 65", "1..=64"),
        ("run macswap memory:20", "60 to 9000"),
        ("run macswap eth0 --cpu 1,1", "give each CPU once"),
        ("run macswap memory:64 --cpu 0,1 --record /dev/null", "one CPU"),
        ("run macswap memory:64 --record x --record-limit 1000000000", "1 to 10000000"),
        ("run macswap memory:64 --record both --trace both", "name different files"),
        ("run macswap memory:64 --record both --capture ./both", "name different files"),
        ("run macswap pcap:/etc/passwd --capture /etc/passwd", "also an input"),
        ("run l2fwd pcap:/etc/passwd,out=/etc/hostname pcap:/etc/hostname", "also an input"),
        ("run l3fwd memory:64 --routes /etc/passwd --record /etc/passwd", "also an input"),
        ("run macswap eth0 --filter tcp=7", "udp=7"),
        ("run macswap eth0 --defer 2", "2,200us"),
        ("run macswap eth0 --routes x", "unexpected argument"),
        ("run macswap eth0 --fault rain=1%", "rx_drop=100ppm"),
        ("run l2fwd memory:64", "exactly 2"),
        ("run udp-echo memory:64", "--address"),
        ("run l3fwd memory:64 --routes /nonexistent", "/nonexistent"),
        ("run pcap:x", "--help"),
        ("run drop pcap:x,out=", "out=FILE"),
        ("bench latency --port tx0 --schedule sometimes", "poisson:20kpps"),
        ("bench latency --port tx0 --frame 63", "64 to 9004"),
        ("bench latency --port tx0 --udp 1.2.3.4", "SRC:PORT-DST:PORT"),
        ("bench latency --port tx0 --pid 1 --tid 1", "cannot be used with"),
        ("bench load --port tx0 --seed 3", "unexpected argument"),
        ("bench rfc2544 --tx tx0 --test reset", "--reset-command"),
        ("bench rfc2544 --tx tx0 --frame imix:q", "such as imix:aaaaaaaddddg"),
        ("bench rfc2544 --tx tx0 --bidirectional", "--rx"),
        ("bench rfc2544 --tx tx0 --flows 5", "--ip"),
        ("bench rfc2544 --tx tx0 --vlan 4095 --ip ipv4", "1..=4094"),
        ("bench mlr --tx tx0 --goal loss=100%", "below 100 %"),
        ("bench mlr --tx tx0 --preset none", "csit"),
        ("bench compare /nonexistent /nonexistent", "apus bench rfc2544 -o"),
        ("lab up triangle", "pair, wire or routed"),
        ("lab up pair --name UPPER", "lower-case"),
        ("lab exec demo tx", "<COMMAND>"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = bare(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(remedy), "{words:?}: {said}");
    }
}

#[test]
fn an_unknown_interface_is_3() {
    let root = Root::new();
    let output = run(&root, &["run", "macswap", "nosuch0", "--no-lock-memory"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("nosuch0") && said.contains("\n  fix: "), "{said}");
    let output = run(&root, &["run", "macswap", "nosuch0", "--no-lock-memory", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(document["ended"], "failed");
    assert!(document["error"].as_str().unwrap().contains("nosuch0"), "{document}");
}

#[test]
fn nobody_is_told_what_is_needed() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("only root can become nobody");
        return;
    }
    // The binary and the telemetry may lie where nobody may not look.
    let folder = std::env::temp_dir().join(format!("apus-nobody-{}", std::process::id()));
    let program = folder.join("apus");
    testkit::put_program(env!("CARGO_BIN_EXE_apus").as_ref(), &program);
    let output = std::process::Command::new(&program)
        .args(["run", "macswap", "lo", "--no-lock-memory", "--telemetry", "/tmp"])
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("CAP_") && said.contains("fix: "), "{said}");
}

#[test]
fn a_memory_port_needs_no_privilege_and_every_frame_is_accounted_for() {
    let root = Root::new();
    for app in ["macswap", "drop"] {
        let document = document(&root, &["run", app, "memory:64,frames=50000", "--json", "--name", "m"]);
        assert_eq!((&document["ended"], &document["accounted"]), (&"exhausted".into(), &true.into()));
        let counts = &document["workers"][0]["counts"];
        assert_eq!(counts["total"]["received_frames"], 50_000);
        let sent = if app == "drop" { 0 } else { 50_000 };
        assert_eq!(counts["total"]["sent_frames"], sent);
        assert_eq!(counts["total"]["dropped_frames"]["discard"], 50_000 - sent);
        assert_eq!(document["config"]["goal"], "p99=100us", "the default is said");
        assert_eq!(document["loss_bound"], Value::Null, "a source that waits loses nothing");
    }
    assert!(!root.0.join("m").exists(), "telemetry is taken away at the end");
}

#[test]
fn a_platform_profile_is_what_it_starts_from() {
    let root = Root::new();
    let path = root.0.join("timer.json").display().to_string();
    let words = ["probe", "timer", "--interval", "200us", "--duration", "300ms", "-o", &path];
    assert_eq!(bare(&words).status.code(), Some(0));
    let words = ["run", "macswap", "memory:64", "--duration", "20ms", "--platform", &path, "--json"];
    let started = document(&root, &words);
    assert_eq!(started["config"]["platform"], path.as_str());
    // A timer alone has no wake-up cost of interrupts, and that is not passed over.
    let warnings = started["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|text| text.as_str().unwrap().contains("has no wake-up cost of interrupts")),
        "{warnings:?}"
    );
    assert_eq!(
        document(&root, &["run", "drop", "memory:64", "--duration", "1ms", "--json"])["config"]["platform"],
        Value::Null
    );
    let few = ["probe", "timer", "--duration", "20ms", "-o", &path];
    assert_eq!(bare(&few).status.code(), Some(0));
    let refused = run(&root, &["run", "macswap", "memory:64", "--platform", &path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("apus probe all -o FILE"), "{}", text(&refused.stderr));
}

#[test]
fn faults_are_accounted_for_too() {
    let root = Root::new();
    let fault = "seed=3,rx_drop=1%,rx_duplicate=1%,tx_drop=1%,rx_truncate=1%,hold=4";
    let words = ["run", "macswap", "memory:64", "memory:64", "--duration", "200ms", "--json", "--fault", fault];
    let document = document(&root, &words);
    assert_eq!((&document["ended"], &document["accounted"]), (&"duration".into(), &true.into()));
    let total = &document["workers"][0]["counts"]["total"];
    assert!(total["received_frames"].as_u64().unwrap() > 0);
    // What was injected was once told nowhere.
    let faults = document["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "one entry per port");
    let sum =
        |direction: &str, count: &str| faults.iter().map(|of| of[direction][count].as_u64().unwrap()).sum::<u64>();
    assert!(sum("received", "dropped_frames") > 0 && sum("received", "truncated_frames") > 0, "{faults:?}");
    assert!(sum("sent", "dropped_frames") > 0, "{faults:?}");
    assert_eq!(total["dropped_frames"]["injected"], sum("sent", "dropped_frames"));
    let words = ["run", "macswap", "memory:64,frames=5000", "--fault", "tx_drop=100%"];
    let output = run(&root, &words);
    let said = text(&output.stdout);
    assert!(said.contains("dropped 5000 injected"), "{said}");
    assert!(said.contains("faults    memory-0, of 5000 sent frames: 5000 dropped"), "{said}");
    let output = run(&root, &["run", "macswap", "memory:64", "--fault", "lost_after=1000"]);
    assert_eq!(output.status.code(), Some(3), "a lost port ends it");
    assert!(text(&output.stderr).contains("was lost"), "{}", text(&output.stderr));
}

#[test]
fn workers_have_a_source_each() {
    let root = Root::new();
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        testkit::skip("two CPUs are needed");
        return;
    }
    let document = document(&root, &["run", "macswap", "memory:64,frames=1000", "--cpu", "0,1", "--json"]);
    let workers = document["workers"].as_array().unwrap();
    let received = workers.iter().map(|worker| &worker["counts"]["total"]["received_frames"]);
    assert_eq!(received.collect::<Vec<_>>(), [1_000, 1_000], "each handles all of its frames");
    assert_eq!(document["config"]["workers"][1]["cpu"], 1);
}

#[test]
fn a_file_goes_in_and_a_file_comes_out() {
    let root = Root::new();
    let path = |name: &str| root.0.join(name).display().to_string();
    let (first, second, trace) = (path("a.pcap"), path("b.pcap"), path("trace"));
    run(&root, &["run", "drop", "memory:64,frames=300", "--capture", &first]);
    let port = format!("pcap:{first},out={second}");
    let document = document(&root, &["run", "macswap", &port, "--json", "--trace", &trace]);
    assert_eq!(document["workers"][0]["counts"]["total"]["sent_frames"], 300);
    assert_eq!(document["ports"][0]["kind"], "pcap");
    let (a, b) = (std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    assert_eq!(a.len(), b.len());
    // The first frame's addresses, after the headers of file (24) and record (16).
    assert_eq!((&a[40..46], &a[46..52]), (&b[46..52], &b[40..46]));
    assert!(std::fs::read_to_string(&trace).unwrap().starts_with("# worker 0, port 0\n"));
}

/// A full disk under a capture was called a slow one, and the first file that could not be written took the others along.
#[test]
fn a_full_disk_is_named_and_keeps_no_other_result_from_its_file() {
    let root = Root::new();
    let trace = root.0.join("trace").display().to_string();
    let words = ["run", "drop", "memory:64,frames=300", "--record", "/dev/full", "--trace", &trace, "--json"];
    let output = run(&root, &[&words[..], &["--capture", "/dev/full"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/dev/full") && said.contains("fix: free space"), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let warnings = document["warnings"].to_string();
    for expected in
        ["300 frames are missing, because the file could not be written", "the capture /dev/full is incomplete"]
    {
        assert!(warnings.contains(expected), "{warnings}");
    }
    assert!(!warnings.contains("too slow") && !warnings.contains("\\n"), "{warnings}");
    assert!(std::fs::read_to_string(&trace).unwrap().starts_with("# worker 0, port 0\n"));
}

/// It ended with 2, as if the input were wrong.
#[test]
fn a_full_disk_under_a_pcap_port_is_3() {
    let root = Root::new();
    let input = root.0.join("in.pcap").display().to_string();
    run(&root, &["run", "drop", "memory:64,frames=10", "--capture", &input]);
    let output = run(&root, &["run", "macswap", &format!("pcap:{input},out=/dev/full"), "--mode", "poll"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot write /dev/full") && said.contains("out="), "{said}");
}

/// With umask 077, nobody but the owner could see it in `apus top`.
#[test]
fn everyone_can_read_its_telemetry_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = Root::new();
    let folder = root.0.join("new/folder");
    let script = "umask 077; exec \"$0\" run macswap memory:64 --mode interrupt --name s --telemetry \"$1\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_apus")]).arg(&folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut running = Running(child);
    let file = folder.join("s/worker-0");
    wait_for("the telemetry", || file.exists());
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let modes = [folder.parent().unwrap(), &folder, file.parent().unwrap(), &file].map(mode);
    assert_eq!(modes, [0o755, 0o755, 0o755, 0o644], "{modes:?}");
    assert_eq!(running.end(Signal::INT), Some(0));
}

#[test]
fn signals_end_it_within_a_second_with_a_summary() {
    let root = Root::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let child = apus(&root, &["run", "macswap", "memory:64", "--mode", "interrupt", "--name", "s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Running(child);
        wait_for("the telemetry", || root.0.join("s/worker-0").exists());
        // It is there before the worker runs.
        std::thread::sleep(Duration::from_millis(200));
        let asked = Instant::now();
        assert_eq!(running.end(signal), Some(0), "{signal:?}");
        assert!(asked.elapsed() < Duration::from_secs(1), "{signal:?}: {:?}", asked.elapsed());
        let mut said = String::new();
        std::io::Read::read_to_string(running.0.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert!(said.starts_with("s: macswap, interrupt") && said.contains("dropped none"), "{said}");
        assert!(!root.0.join("s").exists());
    }
}

/// Waits until something is so.
pub fn wait_for(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

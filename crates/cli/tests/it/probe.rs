use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, Running, bare, text, turn};

fn probe(words: &[&str]) -> std::process::Output {
    bare(&[&["probe"], words].concat())
}

fn json(output: &std::process::Output) -> Value {
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|e| panic!("{e}: {}{}", text(&output.stdout), text(&output.stderr)));
    validate(&document);
    document
}

/// What cyclictest wrote, shortened: of 1,000 samples 10 were above its histogram.
pub const CYCLICTEST: &str = r#"{"file_version": 1, "cmdline:": "cyclictest -h 60", "rt_test_version:": "2.40",
    "sysinfo": {"release": "6.1"}, "num_threads": 1, "resolution_in_ns": 0, "thread": {"0": {
    "histogram": {"5": 590, "10": 400}, "cycles": 1000, "min": 5, "max": 1417, "avg": 17.26, "cpu": 1, "node": 0}}}"#;

#[test]
fn every_probe_without_privilege_gives_its_document() {
    let _turn = turn();
    for (words, ms, terms) in [
        (&["timer", "--interval", "1ms"][..], 450, 1),
        (&["timer", "--wait", "epoll", "--cpu", "0"], 50, 1),
        (&["jitter", "--rate", "1Mpps", "--ring", "512"], 100, 1),
        (&["switch", "--via", "futex", "--cpu", "0", "--peer", "0"], 50, 1),
        (&["clock"], 50, 8),
    ] {
        let run = |ms: u32| {
            let output = probe(&[words, &["--json", "--duration", &format!("{ms}ms")]].concat());
            let document = json(&output);
            (output, document)
        };
        let (mut output, mut document) = run(ms);
        // In the normal class a busy machine may leave it too little time for a median, and it says so.
        for longer in [8, 64] {
            let median = &document["measured"][0]["terms"][0]["raw"]["quantiles"][0];
            let why = median["refused_because"].as_str().unwrap_or_default();
            if output.status.code() == Some(0) && !why.contains("p50 needs") {
                break;
            }
            let nothing = document["measured"][0]["terms"][0]["raw"]["count"] == 0;
            assert!(nothing && output.status.code() == Some(3) || why.contains("p50 needs"), "{words:?}: {document}");
            (output, document) = run(ms * longer);
        }
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{words:?}: in a pipe nothing is drawn");
        let measured = &document["measured"][0];
        assert!(measured["terms"].as_array().unwrap().len() >= terms, "{words:?}");
        assert!(!measured["overhead"].as_array().unwrap().is_empty(), "{words:?}: its own cost is not stated");
        assert!(!measured["counter"]["blind_spots"].as_array().unwrap().is_empty(), "{words:?}");
        let raw = &measured["terms"][0]["raw"];
        assert!(raw["max_ns"].is_u64() && raw["p50_ns"].is_u64(), "{words:?}: {raw}");
        let counted: u64 =
            raw["histogram"]["counts"].as_array().unwrap().iter().map(|pair| pair[1].as_u64().unwrap()).sum();
        assert_eq!(counted + raw["histogram"]["overflow"].as_u64().unwrap(), raw["count"].as_u64().unwrap());
        if measured["conditions"]["virtualised"]["value"] == true {
            let marks = measured["marks"].as_array().unwrap();
            assert!(marks.iter().any(|mark| mark["kind"] == "virtual_machine"), "{words:?}: not marked");
        }
    }
}

#[test]
fn people_get_a_table_and_too_few_samples_no_percentile() {
    let _turn = turn();
    let output = probe(&["timer", "--duration", "60ms"]);
    let said = text(&output.stdout);
    for word in ["lateness", "p99.9", "stalled", "own cost", "samples; p99 needs 368"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn a_sample_above_the_threshold_ends_it_explained() {
    let _turn = turn();
    for words in [&["timer", "--interval", "1ms"][..], &["jitter", "--explain-over", "1us"]] {
        let output = probe(&[words, &["--fail-over", "1us", "--duration", "20s", "--json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stderr));
        let exceeded = &json(&output)["measured"][0]["exceeded"];
        assert_eq!(exceeded["threshold_ns"], 1_000);
        assert!(exceeded["sample_ns"].as_u64().unwrap() > 1_000);
        assert!(!exceeded["explained"].as_str().unwrap().is_empty(), "{exceeded}");
    }
}

#[test]
fn wrong_use_and_what_is_missing_have_their_own_status() {
    for (words, status, said) in [
        (&["timer", "--interval", "1us"][..], 2, "at least 10us"),
        (&["timer", "--interval", "5"], 2, "a duration such as"),
        (&["timer", "--cpu", "3-1"], 2, "not a list of CPUs"),
        (&["timer", "--cpu", "8000"], 3, "taskset -c 8000 true"),
        (&["all", "--cpu", "8000"], 3, "cannot measure on CPU 8000"),
        (&["all", "--peer", "8000"], 3, "cannot measure on CPU 8000"),
        (&["all", "--cpu", "0", "--peer", "0"], 2, "given twice"),
        (&["timer", "--load", "disk"], 2, "none, cpu, memory, network or io"),
        (&["jitter", "--gap-over", "1ms", "--explain-over", "2ms"], 2, "100us"),
        (&["jitter", "--capacity", "1Mpps"], 2, "--rate"),
        (&["switch", "--via", "socket"], 2, "futex, pipe or eventfd"),
        (&["interrupt", "--wait", "spin", "--cpu", "0", "--sender", "0"], 2, "different CPUs"),
        (&["frequency", "--period", "1ms"], 2, "at least 4ms"),
        (&["idle", "--cpu", "0", "--peer", "0"], 2, "another CPU must wake it"),
        (&["compare", "/nonexistent/a", "/nonexistent/b"], 2, "No such file"),
        (&["import", "/nonexistent/a"], 2, "No such file"),
        (&["timer", "--duration", "10ms", "-o", "/nonexistent/x.json"], 3, "a folder that you can write to"),
        (&["timer", "--duration", "10ms", "-o", "x.html"], 2, "--html x.html"),
        (&["all", "-o", "x.htm"], 2, "--html x.htm"),
    ] {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{words:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{words:?}");
    }
}

/// As with `isolcpus=`: the process's mask does not have the CPU, and the kernel lets a thread be pinned to it.
#[test]
fn a_cpu_outside_the_mask_of_the_process_is_measured() {
    let _turn = turn();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        testkit::skip("needs two CPUs");
        return;
    }
    let program = env!("CARGO_BIN_EXE_apus");
    for words in [
        &["timer", "--cpu", "1", "--duration", "50ms"][..],
        &["switch", "--cpu", "1", "--via", "futex", "--duration", "50ms"],
    ] {
        let taskset = Command::new("taskset").args(["-c", "0", program, "probe"]).args(words).output().unwrap();
        assert_eq!(taskset.status.code(), Some(0), "{words:?}: {}", text(&taskset.stderr));
        assert_eq!(text(&taskset.stderr), "", "{words:?}: there is a second CPU");
        assert!(text(&taskset.stdout).contains("cpu=1"), "{}", text(&taskset.stdout));
    }
}

#[test]
fn what_a_file_holds_is_kept_until_there_is_something_to_write() {
    let folder = Root::new();
    let [old, new] = ["old.json", "new.json"].map(|name| folder.0.join(name).to_str().unwrap().to_owned());
    fs::write(&old, "what was there").unwrap();
    for file in [&old, &new] {
        assert_eq!(probe(&["timer", "--cpu", "8000", "-o", file]).status.code(), Some(3));
        assert_eq!(probe(&["timer", "--cpu", "8000", "--html", file]).status.code(), Some(3));
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "what was there");
    assert!(!PathBuf::from(&new).exists(), "an empty file is left");
    // A file may be read and then written.
    fs::write(&old, CYCLICTEST).unwrap();
    let output = probe(&["import", &old, "-o", &old]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&old).unwrap().contains("apus.probe/2"));
}

#[test]
fn the_heading_names_the_load() {
    let _turn = turn();
    if Command::new("stress-ng").arg("--version").stdout(Stdio::null()).status().is_err() {
        testkit::skip("stress-ng is not installed (apt-get install stress-ng)");
        return;
    }
    let output = probe(&["timer", "--duration", "100ms", "--load", "memory"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).lines().next().unwrap().contains(" load=memory"), "{}", text(&output.stdout));
}

#[test]
fn a_host_without_frequencies_says_so() {
    if PathBuf::from("/sys/devices/system/cpu/cpufreq/policy0").exists() {
        // Not a lack: there the command measures, which crates/probe/tests/it/power.rs covers.
        return;
    }
    let output = probe(&["frequency"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("cpufreq has no policy"), "{}", text(&output.stderr));
}

#[test]
fn an_interrupted_probe_says_what_it_measured_so_far() {
    let _turn = turn();
    let child = Command::new(env!("CARGO_BIN_EXE_apus"))
        .args(["probe", "timer", "--duration", "60s", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    std::thread::sleep(Duration::from_millis(800));
    running.signal(Signal::INT);
    let mut said = String::new();
    std::io::Read::read_to_string(running.0.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    let document: Value = serde_json::from_str(&said).unwrap();
    validate(&document);
    let measured = &document["measured"][0];
    assert_eq!(measured["interrupted"], true);
    assert!(measured["terms"][0]["raw"]["count"].as_u64().unwrap() > 50);
}

#[test]
fn files_are_imported_compared_and_reported() {
    let _turn = turn();
    let root = Root::new();
    let path = |name: &str| root.0.join(name).display().to_string();
    fs::write(path("ct.json"), CYCLICTEST).unwrap();
    let imported = probe(&["import", &path("ct.json"), "-o", &path("other.json"), "--json"]);
    let document = json(&imported);
    let raw = &document["measured"][0]["terms"][0]["raw"];
    assert_eq!((raw["count"].as_u64(), raw["histogram"]["overflow"].as_u64()), (Some(1_000), Some(10)));
    assert_eq!(document["host"]["kernel"]["value"], "6.1");
    assert_eq!(document["measured"][0]["duration_ns"], Value::Null, "it is not in the file");
    fs::write(path("newer.json"), CYCLICTEST.replace("6.1", "6.12")).unwrap();
    let two = json(&probe(&["import", &path("ct.json"), &path("newer.json"), "--json"]));
    let of = |number: usize| &two["measured"][number];
    assert_ne!(of(0)["variant"], of(1)["variant"]);
    assert!(of(1)["variant"].as_str().unwrap().ends_with("newer.json"), "{}", of(1)["variant"]);
    assert!(of(1)["marks"].to_string().contains("kernel 6.12, and the first file with 6.1"), "{}", of(1)["marks"]);

    for name in ["a.json", "b.json"] {
        let output = probe(&["timer", "--duration", "100ms", "-o", &path(name), "--html", &path("timer.html")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    // The line itself is drawn where a stall swallowed an activation; what it would mean, always.
    assert!(fs::read_to_string(path("timer.html")).unwrap().contains("Stalls filled in"));
    let output = probe(&["compare", &path("a.json"), &path("b.json"), "--json", "--html", &path("compare.html")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let comparison = json(&output);
    assert_eq!(comparison["terms"].as_array().unwrap().len(), 2);
    assert_eq!(comparison["terms"][0]["verdict"], "too_few_rounds");
    // 100 samples have no 99th percentile, however many rounds there are.
    assert_eq!(comparison["terms"][1]["verdict"], "too_few_samples");
    let table = probe(&["compare", &path("a.json"), &path("b.json")]);
    assert!(text(&table.stdout).contains("p99 needs 368 (apus probe all --slice"), "{}", text(&table.stdout));
    assert!(fs::read_to_string(path("compare.html")).unwrap().contains("All figures"));

    let elsewhere = fs::read_to_string(path("b.json")).unwrap();
    let mut elsewhere: Value = serde_json::from_str(&elsewhere).unwrap();
    elsewhere["host"]["kernel"] = serde_json::json!({"value": "2.4.0", "unknown_because": null});
    elsewhere["host"]["cpus_online"] = serde_json::json!({"value": "0-63", "unknown_because": null});
    elsewhere["host"]["governors"] = serde_json::json!({"value": ["a", "b"], "unknown_because": null});
    let states = serde_json::json!({"driver": "x", "enabled": ["POLL", "C9"]});
    elsewhere["host"]["c_states"] = serde_json::json!({"value": states, "unknown_because": null});
    fs::write(path("c.json"), elsewhere.to_string()).unwrap();
    let other = json(&probe(&["compare", &path("a.json"), &path("c.json"), "--json"]));
    let said: Vec<&str> = other["differences"].as_array().unwrap().iter().map(|of| of.as_str().unwrap()).collect();
    assert!(said[0].starts_with("kernel: ") && said[0].ends_with(" and 2.4.0"), "{said:?}");
    for (name, there) in [("online CPUs", "0-63"), ("governors", "a, b"), ("idle states", "x with POLL, C9")] {
        let of = |line: &&&str| line.starts_with(&format!("{name}: ")) && line.ends_with(&format!(" and {there}"));
        assert!(said.iter().find(of).is_some(), "{name}: {said:?}");
    }

    let report = bare(&["report", &path("a.json"), &path("other.json"), "-o", &path("both.html")]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
    let html = fs::read_to_string(path("both.html")).unwrap();
    assert!(html.contains("cyclictest 2.40") && html.contains("<svg") && html.contains("lateness"));
    let wrong = probe(&["compare", &path("a.json"), &path("ct.json")]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("it has no schema"), "{}", text(&wrong.stderr));
}

/// A result as version 1 wrote it: `apus probe timer --duration 100ms --interval 200us -o`, of the last commit with that version.
const VERSION_1: &str = include_str!("data/apus.probe.1.json");

#[test]
fn results_and_profiles_of_version_1_are_read() {
    let root = Root::new();
    let path = |name: &str| root.0.join(name).display().to_string();
    fs::write(path("probe.json"), VERSION_1).unwrap();
    let of: Value = serde_json::from_str(VERSION_1).unwrap();
    let platform = serde_json::json!({"apus": "0.1.0", "schema": "apus.platform/1", "host": of["host"], "rounds": 1,
        "interrupted": false, "measured": of["measured"], "missing": []});
    fs::write(path("platform.json"), platform.to_string()).unwrap();
    let compared = json(&probe(&["compare", &path("probe.json"), &path("platform.json"), "--json"]));
    let p50 = &of["measured"][0]["terms"][0]["rounds"][0]["p50_ns"];
    assert_eq!(compared["terms"][0]["a_ns"].as_f64(), p50.as_f64());
    for name in ["probe.json", "platform.json"] {
        let report = bare(&["report", &path(name), "-o", &path("r.html")]);
        assert_eq!(report.status.code(), Some(0), "{name}: {}", text(&report.stderr));
        let words = ["run", "drop", "memory:64,frames=1000", "--platform", &path(name), "--json"];
        let output = crate::support::run(&root, &words);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    }
}

#[test]
fn a_profile_has_every_probe_or_says_why_not() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("needs root (the lab)");
        return;
    }
    let _turn = turn();
    let root = Root::new();
    let path = root.0.join("platform.json");
    let output = probe(&["all", "--rounds", "1", "--slice", "60ms", "-o", &path.display().to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = json(&output);
    let kept: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(kept, document);
    let names = |of: &Value| -> Vec<String> {
        of.as_array().unwrap().iter().map(|of| of["probe"].as_str().unwrap().to_owned()).collect()
    };
    let (measured, missing) = (names(&document["measured"]), names(&document["missing"]));
    for name in ["timer", "jitter", "switch", "interrupt", "idle", "frequency", "clock"] {
        assert!(measured.iter().chain(&missing).any(|found| found == name), "{name} is neither measured nor missing");
    }
    assert!(measured.iter().any(|name| name == "interrupt"), "{missing:?}");
    assert_eq!(document["rounds"], 1);
}

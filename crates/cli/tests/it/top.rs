use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, apus, round, run, text};

fn document(root: &Root, words: &[&str]) -> Value {
    let output = run(root, words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    document
}

#[test]
fn the_document_says_what_the_worker_counted() {
    let root = Root::new();
    let _workers = [root.worker("edge", 0), root.worker("edge", 1)];
    let document = document(&root, &["top", "--json", "--once", "--interval", "50ms"]);
    assert_eq!(document["instances"][0]["instance"], "edge");
    assert_eq!(document["instances"][0]["pid"], std::process::id());
    let worker = &document["instances"][0]["workers"][1];
    assert_eq!((&worker["goal"], &worker["state"]), (&"p99=40us".into(), &"running".into()));
    let total = &worker["total"];
    assert_eq!(total["received_frames"], 1_000);
    assert_eq!(total["sent_frames"], 900);
    assert_eq!(total["dropped_frames"]["malformed"], 100);
    assert_eq!(total["waits"]["sleep"]["time_ns"], 300_000_000);
    assert_eq!(total["pickup_lateness"]["count"], 1_000);
    assert_eq!(total["pickup_lateness"]["p99_9_ns"], Value::Null, "too few samples for that");
    assert!(total["cpu_time_ns"].as_u64().unwrap() > 0);
    assert_eq!(worker["rate"]["received_pps"], 0.0);
    let age = worker["choice"]["age_ns"].as_u64().unwrap();
    assert!(age > 0 && age < worker["uptime_ns"].as_u64().unwrap(), "{age}");
    let choice = serde_json::json!({
        "age_ns": age, "kind": "block", "reason": "interrupt", "wait_ns": 80_000, "price_ns_per_packet": 4_200, "core_ratio": 0.05,
        "expected_late_ratio": 0.003, "aimed_late_ratio": 0.0075, "owed_packets": 1.2, "multiplier": 0.25,
    });
    assert_eq!(worker["choice"], choice);
}

#[test]
fn rates_follow_the_worker() {
    let root = Root::new();
    let worker = root.worker("edge", 0);
    let child = apus(&root, &["top", "--json", "--interval", "300ms"]).stdout(Stdio::piped()).spawn().unwrap();
    let writing = std::thread::spawn(move || {
        for n in 0..1_500 {
            round(&worker, n);
            std::thread::sleep(Duration::from_millis(1));
        }
        worker
    });
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let rate = &document["instances"][0]["workers"][0]["rate"];
    // A thousand a second at the most; the machine may be slow.
    let received = rate["received_pps"].as_f64().unwrap();
    assert!(received > 20.0 && received < 1_100.0, "{received}");
    assert_eq!(rate["decision_ratios"]["periodic"], 1.0);
    drop(writing.join().unwrap());
}

#[test]
fn the_table_has_a_row_a_worker() {
    let root = Root::new();
    let _worker = root.worker("edge", 0);
    let output = run(&root, &["top", "--once", "--interval", "20ms"]);
    assert!(output.status.success());
    let table = text(&output.stdout);
    assert!(table.starts_with("WORKER") && table.contains("\nedge/0  macswap  adaptive p99=40us  running"), "{table}");
    // On a busy machine, the line also says how long ago that was.
    let chose = ": 4.2us per packet (5.0 % CPU), expected late 0.3 %, owed 1.2 packets\n";
    assert!(table.contains("\nedge/0: chose block") && table.contains(chose), "{table}");
}

#[test]
fn nobody_runs() {
    let root = Root::new();
    let output = run(&root, &["top", "--once"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "no instance of Apus is running\n"));
    assert_eq!(document(&root, &["top", "--json"])["instances"], serde_json::json!([]));
    let output = run(&root, &["top", "edge", "--once"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("\n  fix: apus top --once lists"), "{}", text(&output.stderr));
}

#[test]
fn foreign_files_are_named() {
    let root = Root::new();
    std::fs::create_dir(root.0.join("edge")).unwrap();
    std::fs::write(root.0.join("edge/worker-0"), "hello").unwrap();
    let document = document(&root, &["top", "--json"]);
    assert!(document["leftovers"][0]["why"].as_str().unwrap().contains("truncated"), "{document}");
}

#[test]
fn wrong_use_is_2() {
    let root = Root::new();
    for words in [&["top", "--interval", "5"][..], &["top", "--interval", "1us"], &["top", "--colour"], &["fly"]] {
        assert_eq!(run(&root, words).status.code(), Some(2), "{words:?}");
    }
    let output = run(&root, &["top"]);
    assert_eq!(output.status.code(), Some(2), "the live view needs a terminal");
    assert!(text(&output.stderr).contains("fix: use apus top --once"));
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let root = Root::new();
    let _workers: Vec<_> = (0..8).map(|n| root.worker("edge", n)).collect();
    let words = ["top", "--json", "--interval", "20ms"];
    let mut child = apus(&root, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

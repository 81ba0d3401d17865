use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, bare, text};

const COLUMNS: [&str; 6] = ["state", "tune_state", "profile_ix", "steps_right", "steps_left", "tired"];

/// A replay's document and exit status.
fn replay(file: &str, mode: &str) -> (Value, Option<i32>) {
    let output = bare(&["dim", "replay", file, "--mode", mode, "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!("{e}: {}{}", text(&output.stdout), text(&output.stderr));
    });
    validate(&document);
    (document, output.status.code())
}

fn written(root: &Root, contents: &str) -> String {
    let file = root.0.join("calls.csv").display().to_string();
    fs::write(&file, contents).unwrap();
    file
}

#[test]
fn agrees_with_every_recorded_call_of_the_kernel() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/net_dim.csv"));
    let Ok(recorded) = fs::read_to_string(path) else {
        testkit::skip(format!("no recorded calls of the kernel at {}", path.display()));
        return;
    };
    let mut lines = recorded.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let places = COLUMNS.map(|name| header.iter().position(|column| *column == name).unwrap());
    let rows: Vec<Vec<&str>> =
        lines.map(|line| line.split(',').collect()).filter(|row: &Vec<&str>| row[1] != "reset").collect();
    for mode in ["rx-eqe", "rx-cqe", "tx-eqe", "tx-cqe"] {
        let (document, status) = replay(path.to_str().unwrap(), mode);
        assert_eq!(status, Some(0), "{mode}: {}", document["summary"]);
        let calls = document["calls"].as_array().unwrap();
        assert_eq!(calls.len(), rows.len());
        for (call, row) in calls.iter().zip(&rows) {
            for (name, place) in COLUMNS.into_iter().zip(places) {
                assert_eq!(call[name].as_u64().unwrap().to_string(), row[place], "{mode}: {row:?}");
            }
        }
        assert_eq!(document["summary"]["agreeing"], rows.len());
    }
    let output = bare(&["dim", "replay", path.to_str().unwrap(), "--mode", "rx-eqe"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains(&format!("all {} states agree", rows.len())));
}

#[test]
fn a_value_that_differs_is_a_finding_with_its_line() {
    let root = Root::new();
    let file = written(
        &root,
        "apply,time_ns,events,packets,bytes,state,profile_ix\n\
         reset,0,0,0,0,0,3\n\
         0,1000,0,0,0,1,3\n\
         0,1001000,64,64,6400,2,3\n",
    );
    let (document, status) = replay(&file, "rx-eqe");
    assert_eq!(status, Some(1));
    let summary = &document["summary"];
    assert_eq!((&summary["calls"], &summary["instances"], &summary["agreeing"]), (&2.into(), &1.into(), &1.into()));
    let mismatch = serde_json::json!([{"line": 4, "column": "profile_ix", "expected": 3, "found": 2}]);
    assert_eq!(summary["mismatches"], mismatch);
    let output = bare(&["dim", "replay", &file, "--mode", "rx-eqe"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains(":4: profile_ix is 3 in the file and 2 in DIM"), "{}", text(&output.stdout));
}

#[test]
fn states_need_not_be_given_and_rdma_counts_completions() {
    let root = Root::new();
    let mut rows = "apply,time_ns,completions\n".to_owned();
    (0..200).for_each(|n| rows += &format!("0,{},{}\n", n * 1_000, 1 + n / 70));
    let (document, status) = replay(&written(&root, &rows), "rdma");
    assert_eq!(status, Some(0));
    assert_eq!((document["calls"].as_array().unwrap().len(), &document["summary"]["agreeing"]), (200, &Value::Null));
    // RDMA begins going right, and more completions take it there.
    assert_eq!(document["calls"][0]["tune_state"], 2);
    assert!(document["summary"]["profile_changes"].as_u64().unwrap() > 0, "{}", document["summary"]);
}

/// `apus moderate` also programs a profile that DIM did not choose just now: it has several queues with one setting.
#[test]
fn the_drivers_work_begins_a_new_window_whenever_it_finishes() {
    let root = Root::new();
    let window = |apply| format!("reset,0,0,0,0\n0,1000,0,0,0\n{apply},501000,32,32,3200\n0,1001000,64,64,6400\n");
    let calls = format!("apply,time_ns,events,packets,bytes\n{}{}", window(0), window(1));
    let (document, status) = replay(&written(&root, &calls), "rx-eqe");
    // 64 events end the first window with another profile. The second window begins again after half of them.
    let states: Vec<u64> =
        document["calls"].as_array().unwrap().iter().map(|call| call["state"].as_u64().unwrap()).collect();
    assert_eq!((status, states), (Some(0), vec![1, 1, 2, 1, 1, 1]));
}

#[test]
fn bad_input_is_2_with_file_and_line() {
    let root = Root::new();
    for (contents, mode, line) in [
        ("hello\n", "rx-eqe", 1),
        ("apply,time_ns,events,packets,bytes\n0,1,2,3\n", "rx-eqe", 2),
        ("apply,time_ns,events,packets,bytes\n0,1,2,3,4\n0,1,x,3,4\n", "tx-cqe", 3),
        ("apply,time_ns,events,packets,bytes,profile_ix\nreset,0,0,0,0,5\n", "rx-eqe", 2),
        ("apply,time_ns,completions,profile_ix\nreset,0,0,1\n", "rdma", 2),
    ] {
        let file = written(&root, contents);
        let output = bare(&["dim", "replay", &file, "--mode", mode]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{contents:?}: {said}");
        assert!(said.contains(&format!("{file}:{line}")) && said.contains("fix: "), "{contents:?}: {said}");
    }
    assert_eq!(bare(&["dim", "replay", "/nonexistent", "--mode", "rx-eqe"]).status.code(), Some(2));
    assert_eq!(bare(&["dim", "replay", "/dev/null", "--mode", "rx"]).status.code(), Some(2));
}

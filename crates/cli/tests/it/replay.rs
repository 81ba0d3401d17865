use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, bare, run, text};

#[test]
fn every_mode_decides_the_same_again() {
    let root = Root::new();
    let file = root.0.join("record").display().to_string();
    for mode in ["poll", "interrupt", "backoff", "hybrid300", "adaptive"] {
        let words = ["run", "macswap", "memory:64,frames=20000", "--mode", mode, "--record", &file];
        let output = run(&root, &words);
        assert!(output.status.success(), "{mode}: {}", text(&output.stderr));
        let output = bare(&["replay", &file, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{mode}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        assert_eq!((&document["mode"], &document["first_difference"]), (&mode.into(), &Value::Null));
        assert!(document["decisions"].as_u64().unwrap() > 100, "{document}");
    }
}

#[test]
fn a_difference_is_a_finding_and_names_the_line() {
    let root = Root::new();
    let file = root.0.join("record").display().to_string();
    run(&root, &["run", "macswap", "memory:64,frames=5000", "--mode", "poll", "--record", &file]);
    let text_of = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text_of.replacen("\"mode\":\"poll\"", "\"mode\":\"backoff\",\"max_ns\":70000", 1)).unwrap();
    // Backoff polls again after a full batch, as poll does, but for another reason.
    let output = bare(&["replay", &file]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("line 2") && said.contains("recorded: "), "{said}");
}

#[test]
fn what_is_no_record_or_no_result_is_2() {
    let root = Root::new();
    let file = root.0.join("x").display().to_string();
    for contents in ["", "hello\n", "{\"schema\":\"apus.record/9\"}\n"] {
        std::fs::write(&file, contents).unwrap();
        for command in ["replay", "report"] {
            let output = bare(&[command, &file]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command} {contents:?}: {said}");
            assert!(said.contains(&file), "{said}");
        }
    }
    assert_eq!(bare(&["replay", "/nonexistent"]).status.code(), Some(2));
}

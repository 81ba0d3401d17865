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
fn a_difference_says_what_the_decisions_were_made_by() {
    let root = Root::new();
    let file = root.0.join("record").display().to_string();
    run(&root, &["run", "macswap", "memory:64,frames=20000", "--mode", "adaptive", "--record", &file]);
    let lines = std::fs::read_to_string(&file).unwrap();
    let (mut lines, mut believed): (Vec<String>, _) = (lines.lines().map(str::to_owned).collect(), None);
    for line in &mut lines {
        let mut json: Value = serde_json::from_str(line).unwrap();
        if believed.is_none() && json["belief"]["expected_late_ppm"].is_u64() {
            believed = Some(json["belief"].clone());
            json["decision"]["reason"] = "fixed".into();
            *line = json.to_string();
        }
    }
    let wait = believed.expect("some decision compared waits")["wait_ns"].as_u64().unwrap();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let output = bare(&["replay", &file]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    // The file's and the policy's: the same, as it was only the reason that was changed.
    let by = format!("by {{\"wait_ns\":{wait},");
    assert_eq!(said.matches(&by).count(), 2, "{by} is not in {said}");
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
    // Of another version: what to do is said, not which key is wrong.
    std::fs::write(&file, "{\"apus\":\"0.1.0\",\"schema\":\"apus.bench/1\",\"host\":{},\"result\":{}}").unwrap();
    let said = text(&bare(&["report", &file]).stderr).to_owned();
    assert!(said.contains("its schema is \"apus.bench/1\"") && said.contains("measure again"), "{said}");
}

/// A file that was cut off passed for a whole one, and a time that goes back for a run of centuries.
#[test]
fn a_damaged_record_is_2() {
    let root = Root::new();
    let file = root.0.join("record").display().to_string();
    run(&root, &["run", "macswap", "memory:64,frames=20000", "--mode", "poll", "--record", &file]);
    let whole = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let (last, others) = lines.split_last().unwrap();
    let mut early: Value = serde_json::from_str(last).unwrap();
    early["now_ns"] = 1.into();
    let swapped = [others, &[&early.to_string()]].concat().join("\n");
    for (contents, why) in [(others.join("\n"), "the file is incomplete"), (swapped, "time goes back")] {
        std::fs::write(&file, contents).unwrap();
        let output = bare(&["replay", &file]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}{}", text(&output.stdout));
        assert!(said.contains(why) && said.contains("record again"), "{said}");
    }
}

/// A record of interrupts: a frame each 100 us, picked up 3 us after it came; a wake-up costs 5 us, and a frame and the empty
/// poll after it 1 us each.
fn interrupts(stamped: bool) -> String {
    let mut text =
        "{\"schema\":\"apus.record/1\",\"mode\":{\"mode\":\"interrupt\"},\"decisions\":4000,\"left_out\":0}\n"
            .to_owned();
    for n in 1..=2_000u64 {
        let came = n * 100_000;
        let (taken, done) = (came + 3_000, came + 4_000);
        let first = if stamped { came } else { taken };
        let wait = if n == 1 {
            String::new()
        } else {
            let began = came - 95_000;
            format!(
                ",\"ended\":{{\"action\":{{\"block\":{{\"until_ns\":null}}}},\"began_ns\":{began},\"ended_ns\":{taken},\"spent_ns\":5000}}"
            )
        };
        text += &format!(
            "{{\"now_ns\":{done},\"queues\":[{{\"received\":1,\"fill\":1,\"arrivals\":{{\"first_ns\":{first},\"last_ns\":{first},\
             \"picked_up_ns\":{taken}}}}}]{wait},\"decision\":{{\"action\":\"poll\",\"reason\":\"traffic\"}}}}\n"
        );
        text += &format!(
            "{{\"now_ns\":{},\"queues\":[{{\"received\":0,\"fill\":0}}],\"decision\":{{\"action\":{{\"block\":\
             {{\"until_ns\":null}}}},\"reason\":\"fixed\"}}}}\n",
            done + 1_000
        );
    }
    text
}

#[test]
fn cpu_time_beside_the_least_possible() {
    let root = Root::new();
    let file = root.0.join("record").display().to_string();
    std::fs::write(&file, interrupts(true)).unwrap();
    let cpu = |goal: &[&str]| -> Value {
        let output = bare(&[&["replay", &file, "--json"], goal].concat());
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        document["cpu"].clone()
    };
    let multiple = |goal: &str| cpu(&["--goal", goal])["multiple"].as_f64().unwrap();
    // 7 us a frame were spent. A wake-up a frame, but for the hundredth that may be late: 6 us and 99 %.
    assert!((multiple("p99=50us") - 7.0 / 6.0 / 0.99).abs() < 0.01, "{}", cpu(&["--goal", "p99=50us"]));
    // One for five frames: 1 us and 1 us a frame.
    assert!((multiple("p99=450us") - 7.0 / 2.0).abs() < 0.1, "{}", cpu(&["--goal", "p99=450us"]));
    let known = cpu(&["--goal", "p99=50us"]);
    assert_eq!((known["wake_ns"].as_u64(), known["frame_ns"].as_u64()), (Some(5_000), Some(1_000)));
    let output = bare(&["replay", &file, "--goal", "p99=50us"]);
    assert!(text(&output.stdout).contains("x the least possible for p99=50us"), "{}", text(&output.stdout));
}

#[test]
fn without_goal_or_stamps_the_least_is_unknown_and_says_why() {
    let root = Root::new();
    let file = root.0.join("record").display().to_string();
    for (stamped, goal, why) in
        [(true, None, "give one with --goal"), (false, Some("p99=50us"), "recorded no arrival times")]
    {
        std::fs::write(&file, interrupts(stamped)).unwrap();
        let mut words = vec!["replay", &file];
        words.extend(goal.into_iter().flat_map(|goal| ["--goal", goal]));
        let output = bare(&words);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        assert!(said.contains("least possible CPU time is unknown") && said.contains(why), "{said}");
    }
}

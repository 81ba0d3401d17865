use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Root, text};

/// A run of `contender` with these figures. Without a p99, most of its frames were lost.
fn run(contender: &str, p99_us: Option<f64>, cpu: f64) -> Value {
    let quantiles = json!({ "p50": 1.0, "p99": p99_us, "p99.9": p99_us });
    let lost = if p99_us.is_none() { 900 } else { 0 };
    json!({
        "traffic": "poisson2k", "contender": contender, "round": 0, "all": quantiles, "clean": quantiles, "n": 1_000,
        "cpu": cpu, "wakeups_per_s": 1.0, "waiting_for_cpu": 0.0, "intended": 1_000, "excluded": 0.0, "worker_gaps": 0,
        "tester_gaps_ns": 0, "lost": lost, "lost_outside_gaps": lost, "at": 0.0,
    })
}

/// Judges these runs with `benches/frontier.py --from`. `None` if there is no python3.
fn judged(root: &Root, runs: &[Value]) -> Option<(Output, String, String)> {
    let family = |name: &str| match name {
        "interrupt again" => "again",
        name if name.starts_with("adaptive") => "adaptive p99",
        _ => "fixed",
    };
    let names = runs.iter().map(|run| run["contender"].as_str().unwrap());
    let contenders: Vec<Value> = names.map(|name| json!({ "name": name, "family": family(name) })).collect();
    let document = json!({
        "schema": "apus.frontier/1", "rounds": 1, "seconds": 2, "runs": runs, "contenders": contenders,
        "traffic": { "poisson2k": "poisson:2kpps" }, "interrupted": false,
        "host": {
            "cpu_model": "a test", "cpus": 2, "kernel": "6.1", "at": "2026-01-01T00:00:00Z",
            "load_average_before": [0, 0, 0], "load_average_after": [0, 0, 0],
        },
    });
    let [from, to, page] = ["from.json", "to.json", "page.html"].map(|name| root.0.join(name));
    std::fs::write(&from, document.to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/frontier.py");
    let mut command = Command::new("python3");
    command.args([&script, Path::new("--from"), &from, Path::new("--json"), &to, Path::new("--page"), &page]);
    let Ok(output) = command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).output() else {
        testkit::skip("python3 (apt-get install python3)");
        return None;
    };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let (document, page) = (read(&to), read(&page));
    Some((output, document, page))
}

/// The script wrote `Infinity` and `NaN`, which is no JSON, and put contenders that lose nearly all frames on the
/// frontier.
#[test]
fn contenders_that_lose_most_frames_leave_the_results_valid() {
    let root = Root::new();
    let runs = [
        run("poll", Some(10.0), 100.0),
        run("interrupt", None, 3.0),
        run("interrupt again", None, 3.0),
        run("adaptive p99=60us", None, 20.0),
    ];
    let Some((output, document, page)) = judged(&root, &runs) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document: Value = serde_json::from_str(&document).unwrap_or_else(|error| panic!("{error}: {document}"));
    let verdict = &document["verdict"];
    let check = &verdict["checks"][0];
    assert_eq!(
        (&check["outcome"], &check["latency_us"], &check["noisy"]),
        (&"lost".into(), &Value::Null, &true.into())
    );
    assert_eq!(verdict["frontiers"]["poisson2k"]["p99"]["frontier"], json!(["poll"]));
    let (_, data) = page.split_once("id=\"apus-data\">").unwrap();
    serde_json::from_str::<Value>(data.split_once("</script>").unwrap().0).unwrap();
}

#[test]
fn the_cheapest_that_holds_a_goal_is_what_adaptive_is_compared_with() {
    let root = Root::new();
    let runs = [
        run("poll", Some(10.0), 100.0),
        run("interrupt", Some(50.0), 10.0),
        run("interrupt again", Some(51.0), 10.2),
        run("adaptive p99=60us", Some(55.0), 12.0),
        run("adaptive p99=120us", Some(110.0), 10.5),
    ];
    let Some((output, document, _)) = judged(&root, &runs) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let document: Value = serde_json::from_str(&document).unwrap();
    let told = document["verdict"]["checks"].as_array().unwrap().iter().map(|check| {
        let multiple = check["multiple"].as_f64().unwrap();
        (check["what"].as_str().unwrap(), check["outcome"].as_str().unwrap(), (multiple * 1e3).round() as u64)
    });
    let expected = [("p99=60us", "lost", 1_200), ("p99=120us", "held", 1_050), ("p99=120us against 60us", "held", 875)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

/// All runs were lost if a contender ended after hours.
#[test]
fn a_contender_that_fails_leaves_the_runs_before_it() {
    let root = Root::new();
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches");
    let to = root.0.join("to.json");
    // The script's own end, with a measurement that fails after its first run.
    let program = "import json, sys\n\
                   benches, to, run = sys.argv[1:]\n\
                   sys.path.insert(0, benches)\n\
                   import frontier\n\
                   def measure(bench, traffic, contenders, rounds, runs):\n\
                   \x20   runs.append(json.loads(run))\n\
                   \x20   raise RuntimeError('ovs has ended')\n\
                   frontier.measure, frontier.lacking, frontier.APUS = measure, lambda contenders: None, sys.executable\n\
                   frontier.Bench.contenders = lambda *_: []\n\
                   frontier.os.geteuid = lambda: 0\n\
                   words = '--no-build --cpu 1 --tester 0 --only poisson2k --json'\n\
                   sys.argv[1:] = [*words.split(), to]\n\
                   sys.exit(frontier.main())\n";
    let mut command = Command::new("python3");
    command.args(["-c", program]).args([&benches, &to]).arg(run("poll", Some(10.0), 100.0).to_string());
    let Ok(output) = command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).output() else {
        testkit::skip("python3 (apt-get install python3)");
        return;
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped early: ovs has ended"), "{said}");
    let document: Value = serde_json::from_slice(&std::fs::read(&to).unwrap()).unwrap();
    assert_eq!((document["runs"].as_array().unwrap().len(), &document["failed"]), (1, &"ovs has ended".into()));
}

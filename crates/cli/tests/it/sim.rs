use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, Running, bare, text};

#[test]
fn figures_as_a_document_a_table_and_a_report() {
    let root = Root::new();
    let report = root.0.join("figures.html").display().to_string();
    let words = ["sim", "figures", "s4.3", "s0.4", "s0.6", "--seed", "3", "--json", "-o", &report];
    let output = bare(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let ids: Vec<&str> = document["figures"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["s0.4", "s0.6", "s4.3"]);
    let summary = &document["summary"];
    assert_eq!(summary["simulated"]["compared"], 3, "{summary}");
    assert_eq!(summary["null_model"]["compared"], 3, "{summary}");
    assert!(summary["arithmetic"]["compared"].as_u64().unwrap() >= 8, "{summary}");
    assert_eq!(output.stdout, bare(&words).stdout, "the same seed, other bytes");

    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("<svg") && html.contains("none above 9 us") && html.contains("sensitivity"));

    let output = bare(&["sim", "figures", "s4.3"]);
    let said = text(&output.stdout);
    assert!(said.contains("1024 slots of 1500 octets") && said.contains("DEVIATION"), "{said}");
    assert!(!said.contains('\u{1b}'), "colours in a pipe");
}

#[test]
fn a_figure_that_there_is_not_is_2() {
    let output = bare(&["sim", "figures", "s9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("s3.5-native"), "{}", text(&output.stderr));
}

/// A scenario in a folder of the test's own; returns its path.
fn scenario(root: &Root, text: &str) -> String {
    let path = root.0.join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const POISSON: &str = r#"machine = "xeon-gold-6338n"
nic = "82599"
warm_up = "10ms"
duration = "90ms"

[goal]
latency = "p99=200us"

[[traffic]]
kind = "poisson"
rate = "50kpps"

[worker]
driver = "user"
wait = "adaptive"

[idle]
deepest = "C1"
"#;

#[test]
fn a_scenario_as_a_document_a_text_and_a_report() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let report = root.0.join("run.html").display().to_string();
    let words = ["sim", "run", &file, "--seed", "3", "--json", "-o", &report];
    let output = bare(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let case = &document["case"];
    let count = |name: &str| case["frames"][name].as_u64().unwrap();
    assert_eq!((case["seed"].as_u64(), case["goal"]["held"].as_bool()), (Some(3), Some(true)));
    let lost: u64 = case["frames"]["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(count("offered"), count("departed") + lost + count("in_flight"));
    let times =
        case["cores"][0]["residency"].as_array().unwrap().iter().map(|entry| entry["time_ns"].as_u64().unwrap());
    assert_eq!(times.sum::<u64>(), 90_000_000);
    let least = &case["least"];
    let (drawn, bound) = (case["power"]["cores_uw"].as_f64().unwrap(), least["cores_uw"].as_f64().unwrap());
    assert!(bound > 0.0 && bound <= drawn && least["unknown_because"].is_null(), "{least}");
    assert!((least["multiple"].as_f64().unwrap() - drawn / bound).abs() < 1e-9, "{least}");
    assert_eq!(output.stdout, bare(&words).stdout, "the same seed, other bytes");
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("<svg") && html.contains("p99 ≤ 200us") && html.contains("latency budget"));

    let output = bare(&["sim", "run", &file]);
    let said = text(&output.stdout);
    assert!(said.contains("p99=200us held") && said.contains("budget, us") && said.contains("simulated"), "{said}");
    assert!(said.contains(" x the least possible ("), "{said}");
}

#[test]
fn where_the_least_is_unknown_a_run_says_why_and_goes_on() {
    let root = Root::new();
    let guest = format!("{POISSON}\n[vm]\n");
    for (toml, set, why) in [
        (POISSON, "goal.latency=p99=2us", "no mode can meet the goal"),
        (guest.as_str(), "goal.latency=p99=200us", "the worker runs in a virtual machine"),
    ] {
        let output = bare(&["sim", "run", &scenario(&root, toml), "--set", set]);
        let said = text(&output.stdout);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}{}", text(&output.stderr));
        assert!(said.contains("the least possible is unknown: ") && said.contains(why), "{said}");
    }
}

/// The example of docs/sim.md is what the command prints.
#[test]
fn the_page_shows_the_power_of_its_scenario() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = bare(&["sim", "run", &root.join("scenarios/adaptive.toml").display().to_string()]);
    let shown = text(&output.stdout).lines().skip_while(|line| !line.starts_with("power "));
    let shown: Vec<&str> = shown.take(2).collect();
    let page = std::fs::read_to_string(root.join("docs/sim.md")).unwrap();
    assert!(shown.len() == 2 && page.contains(&shown.join("\n")), "docs/sim.md lacks\n{}", shown.join("\n"));
}

/// A run with too few packets for a verdict was given as a multiple of the least possible, below 1, although nearly all
/// of its packets were late.
#[test]
fn a_run_with_too_many_late_packets_is_no_multiple_of_the_least() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let words = ["--set", "traffic.rate=2kpps", "--set", "worker.wait=backoff", "--set", "worker.sleep_max=5ms"];
    let output = bare(&[&["sim", "run", &file, "--set", "goal.latency=p99=30us"][..], &words].concat());
    let said = text(&output.stdout);
    assert!(said.contains("too few packets to judge"), "{said}{}", text(&output.stderr));
    assert!(said.contains("; meeting the goal takes at least ") && !said.contains("x the least possible"), "{said}");
}

#[test]
fn a_goal_that_is_missed_is_1_and_one_that_is_unknown_too() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    for (set, word) in [("goal.latency=p99=4us", "missed"), ("goal.latency=p99.9999=1s", "unknown: too few")] {
        let output = bare(&["sim", "run", &file, "--set", set]);
        assert_eq!(output.status.code(), Some(1), "{set}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(word), "{}", text(&output.stdout));
    }
}

#[test]
fn a_wrong_scenario_is_2_with_file_line_and_remedy() {
    let root = Root::new();
    let file = scenario(&root, &POISSON.replace("kind = \"poisson\"", "kind = \"poison\""));
    let output = bare(&["sim", "run", &file]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("{file}:10: ")) && said.contains("did you mean `poisson`?"), "{said}");
    let output = bare(&["sim", "run", "/nonexistent.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let good = scenario(&root, POISSON);
    for (words, part) in [
        (["sim", "run", good.as_str(), "--set", "goal.latncy=p99=1us"], "did you mean `latency`?"),
        (["sim", "run", good.as_str(), "--set", "goal"], "KEY=VALUE"),
        (["sim", "sweep", good.as_str(), "--vary", "traffic.rate=1"], "14.88Mpps"),
        (["sim", "sweep", good.as_str(), "--vary", "traffic.rate=1kpps,1kpps"], "is given twice"),
        (["sim", "sweep", good.as_str(), "--vary", "seed=1,2"], "with --seeds"),
    ] {
        let output = bare(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(part), "{words:?}: {}", text(&output.stderr));
    }
    let output = bare(&["sim", "sweep", &good, "--vary", "traffic.rate=1kpps", "-o", "out.parquet"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("CSV"), "{}", text(&output.stderr));
}

#[test]
fn scenarios_beside_each_other() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let other = root.0.join("other.toml");
    std::fs::write(&other, POISSON.replace("adaptive", "poll")).unwrap();
    let (other, report) = (other.display().to_string(), root.0.join("compare.html").display().to_string());
    let output = bare(&["sim", "compare", &file, &other, "--json", "-o", &report]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let power = |case: usize| document["cases"][case]["power"]["cores_uw"].as_u64().unwrap();
    assert!(power(0) < power(1), "{} {}", power(0), power(1));
    assert!(std::fs::read_to_string(&report).unwrap().contains("Latency against power"));
    let output = bare(&["sim", "compare", &file, &other]);
    assert_eq!(text(&output.stdout).lines().count(), 3, "{}", text(&output.stdout));
    assert_eq!(bare(&["sim", "compare", &file]).status.code(), Some(2), "one is nothing to compare");
}

/// Two files called scenario.toml: the table and the plots tell them apart by their folders.
#[test]
fn scenarios_of_the_same_name_have_their_folders() {
    let root = Root::new();
    let files = [("a/x", "adaptive"), ("b/x", "poll")].map(|(folder, wait)| {
        let folder = root.0.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("scenario.toml");
        std::fs::write(&file, POISSON.replace("adaptive", wait)).unwrap();
        file.display().to_string()
    });
    let report = root.0.join("compare.html").display().to_string();
    let output = bare(&["sim", "compare", &files[0], &files[1], "-o", &report]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout).to_owned();
    let report = std::fs::read_to_string(&report).unwrap();
    for name in ["a/x/scenario", "b/x/scenario"] {
        assert!(said.lines().any(|line| line.starts_with(&format!("{name} "))), "{said}");
        assert!(report.contains(&format!(">{name}<")), "{name} is not in the report");
    }
}

/// A report once took the place of the scenario that it was about.
#[test]
fn no_result_replaces_what_was_read() {
    let root = Root::new();
    let record = root.0.join("mine.csv");
    std::fs::write(&record, "time_ns,octets\n0,64\n10000,64\n").unwrap();
    let traffic = "kind = \"replay\"\nfile = \"mine.csv\"\nrepeat = true\n";
    let replayed = POISSON.replace("kind = \"poisson\"\nrate = \"50kpps\"\n", traffic);
    assert_ne!(replayed, POISSON);
    let file = scenario(&root, &replayed);
    let other = root.0.join("other.toml").display().to_string();
    std::fs::copy(&file, &other).unwrap();
    let (record, new) = (record.display().to_string(), root.0.join("new.csv").display().to_string());
    let sweep = ["sim", "sweep", &file, "--seeds", "2"];
    let goals = ["sim", "goals", "--traffic", &record, "--peak", "1Mpps", "--machine", "xeon-gold-6338n"];
    let own = root.0.display().to_string();
    for words in [
        &["sim", "run", &file, "-o", &file][..],
        &["sim", "run", &file, "-o", &record],
        &["sim", "compare", &file, &other, "-o", &other],
        &[&sweep[..], &["--report", &file]].concat(),
        &[&sweep[..], &["-o", &record]].concat(),
        &[&sweep[..], &["-o", &new, "--report", &new]].concat(),
        &[&goals[..], &["-o", &record]].concat(),
        &[&goals[..], &["--csv", &new, "-o", &new]].concat(),
    ] {
        let output = bare(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("cannot write"), "{words:?}: {}", text(&output.stderr));
        assert!(!std::path::Path::new(&new).exists(), "{words:?}");
    }
    let inode = |path: &str| std::os::unix::fs::MetadataExt::mtime_nsec(&std::fs::metadata(path).unwrap());
    let before = inode(&record);
    let few = ["--warm-up", "1ms", "--duration", "5ms", "--goal", "50us", "--idle", "C1", "--rival", "poll"];
    let output = bare(&[&goals[..], &few, &["--seeds", "1", "--scenarios", &own]].concat());
    assert!(root.0.read_dir().unwrap().count() > 3, "no scenarios: {}", text(&output.stderr));
    assert_eq!(inode(&record), before, "written again");
    assert_eq!(std::fs::read_to_string(&record).unwrap(), "time_ns,octets\n0,64\n10000,64\n");
}

#[test]
fn a_sweep_goes_on_from_where_it_was() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let path = root.0.join("out.csv");
    let csv = path.display().to_string();
    let sweep = |jobs: &str, csv: &str| {
        let vary = ["--vary", "worker.wait=poll,adaptive", "--vary", "traffic.rate=1kpps,20kpps"];
        let words = [&["sim", "sweep", &file][..], &vary, &["--seeds", "2", "--jobs", jobs, "-o", csv]].concat();
        bare(&words)
    };
    let output = sweep("1", &csv);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whole.lines().count(), 1 + 2 * 2 * 2);
    assert!(whole.lines().nth(1).unwrap().contains(",poll,1kpps,1,"), "{whole}");
    let columns = whole.lines().next().unwrap().split(',').count();
    assert!(whole.lines().all(|line| line.split(',').count() == columns));
    // A file that ends in the middle of a row is what a kill leaves.
    std::fs::write(&path, &whole[..whole.len() - 150]).unwrap();
    let output = sweep("4", &csv);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("8 of 8 cases"), "{}", text(&output.stdout));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "four threads, other bytes");
    // The file's rows are not those of another scenario.
    scenario(&root, &POISSON.replace("90ms", "80ms"));
    let output = sweep("1", &csv);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cases of another sweep"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "the file was touched");
    std::fs::write(&path, "something else\n").unwrap();
    assert_eq!(sweep("1", &csv).status.code(), Some(2));
}

/// A table as a map of its columns, row by row.
fn table(text: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// What the comment of a scenario says to type can be typed.
#[test]
fn the_commands_in_the_scenarios_comments_work() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut commands = 0;
    for entry in std::fs::read_dir(root.join("scenarios")).unwrap() {
        let file = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in file.lines().filter_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("apus ")) {
            let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            words.iter_mut().filter(|word| word.starts_with("scenarios/")).for_each(|word| {
                *word = root.join(&*word).display().to_string();
            });
            if let Some(seeds) = words.iter().position(|word| word == "--seeds") {
                words[seeds + 1] = "1".into();
            }
            words.extend(["--set", "duration=2ms", "--set", "warm_up=1ms"].map(str::to_owned));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = bare(&words);
            // 1: too few packets to tell whether a goal was held.
            assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {}", text(&output.stderr));
            commands += 1;
        }
    }
    assert!(commands >= 4, "{commands}");
}

#[test]
fn seeds_alone_are_a_sweep_of_one_combination() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let report = root.0.join("seeds.html").display().to_string();
    let output = bare(&["sim", "sweep", &file, "--seeds", "3", "--report", &report]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = table(text(&output.stdout));
    assert_eq!((rows.len(), rows[0]["seeds"].as_str()), (1, "3"));
    assert!(!rows[0]["cores_uw_mean_ci95_high"].is_empty(), "{rows:?}");
    assert!(std::fs::read_to_string(&report).unwrap().contains("One combination, 3 seeds."));
    assert!(text(&output.stderr).contains("report: "), "not on standard output, where the table is");
    assert_eq!(bare(&["sim", "sweep", &file]).status.code(), Some(2), "nothing varies");
}

#[test]
fn seeds_have_intervals_in_tables_documents_and_plots() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let (path, report) = (root.0.join("out.csv"), root.0.join("out.html"));
    let (csv, html) = (path.display().to_string(), report.display().to_string());
    let vary = ["sim", "sweep", &file, "--vary", "traffic.rate=20kpps,50kpps", "--seeds", "6"];
    let output = bare(&[&vary[..], &["-o", &csv, "--report", &html]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("12 of 12 cases") && said.contains("2 combinations, mean and median over 6 seeds"), "{said}");
    let beside = std::fs::read_to_string(root.0.join("out.seeds.csv")).unwrap();
    let (cases, combinations) = (table(&std::fs::read_to_string(&path).unwrap()), table(&beside));
    assert_eq!((cases.len(), combinations.len()), (12, 2));
    for (number, combination) in combinations.iter().enumerate() {
        let column = |name: &str| combination[name].parse::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
        for name in ["cores_uw", "latency_p99_ns", "departed_pps"] {
            let seen: Vec<f64> =
                cases[6 * number..6 * number + 6].iter().map(|case| case[name].parse().unwrap()).collect();
            let mean = seen.iter().sum::<f64>() / 6.0;
            let s = (seen.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
            // t(5) = 2.571
            let half = 2.571 * s / 6f64.sqrt();
            let near = |a: f64, b: f64| (a - b).abs() <= 0.01 + b.abs() * 1e-6;
            assert!(near(column(&format!("{name}_mean")), mean), "{name}");
            assert!(near(column(&format!("{name}_mean_ci95_low")), mean - half), "{name}");
            assert!(near(column(&format!("{name}_mean_ci95_high")), mean + half), "{name}");
            // Of six, the least and the greatest hold the median with 96.9 %.
            let least = seen.iter().copied().fold(f64::MAX, f64::min);
            assert!(near(column(&format!("{name}_median_ci95_low")), least), "{name}");
        }
        assert_eq!(combination["latency_p99_99_ns_mean"], "", "too few packets for it");
    }
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("latency, p99 over traffic.rate") && html.contains("class=\"interval"), "no error bars");
    // On standard output, and in a document.
    assert_eq!(text(&bare(&vary).stdout), beside);
    let output = bare(&[&vary[..], &["--json"]].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(
        (document["cases"].as_array().unwrap().len(), document["combinations"].as_array().unwrap().len()),
        (12, 2)
    );
    assert!(document["combinations"][0]["statistics"]["cores_uw"]["mean_ci95"][0].is_number());
    // What is kept is not made again, and gives the same statistics.
    std::fs::remove_file(root.0.join("out.seeds.csv")).unwrap();
    assert!(text(&bare(&[&vary[..], &["-o", &csv]].concat()).stdout).contains("12 of 12 cases"));
    assert_eq!(std::fs::read_to_string(root.0.join("out.seeds.csv")).unwrap(), beside);
}

#[test]
fn machines_are_listed_shown_and_checked() {
    let listed = bare(&["sim", "machines"]);
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    for name in sim::machine::Machine::names() {
        assert!(text(&listed.stdout).contains(name), "{}", text(&listed.stdout));
        let document: Value = serde_json::from_slice(&bare(&["sim", "machines", name, "--json"]).stdout).unwrap();
        validate(&document);
        assert_eq!(document["machines"][0]["name"], name);
        assert!(document["machines"][0]["parameters"].as_array().unwrap().len() >= 10, "{name}");
    }
    let all: Value = serde_json::from_slice(&bare(&["sim", "machines", "--json"]).stdout).unwrap();
    validate(&all);
    assert_eq!(all["machines"].as_array().unwrap().len(), sim::machine::Machine::names().count());
    let shown = text(&bare(&["sim", "machines", "x540"]).stdout).to_owned();
    assert!(shown.contains("nic.phy = 2147ns") && shown.contains("MoonGen"), "{shown}");
    // What --toml prints is a machine's file.
    let root = Root::new();
    let mine = root.0.join("mine.toml");
    let file = mine.display().to_string();
    let printed = text(&bare(&["sim", "machines", "x540", "--toml"]).stdout).to_owned();
    std::fs::write(&mine, &printed).unwrap();
    assert_eq!(bare(&["sim", "machines", &file]).status.code(), Some(0));
    let scenario = scenario(&root, &POISSON.replace("\"82599\"", "\"mine.toml\""));
    assert_eq!(bare(&["sim", "run", &scenario]).status.code(), Some(0));
    // A slip in it is told with its own line and key, wherever it is read.
    std::fs::write(&mine, printed.replacen("\"10Gbps\"", "\"10GHz\"", 1)).unwrap();
    let line = 1 + printed.lines().position(|line| line.contains("10Gbps")).unwrap();
    for words in [["sim", "machines", &file], ["sim", "run", &scenario]] {
        let output = bare(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&format!("mine.toml:{line}: `nic.rate.value` is \"10GHz\"")), "{said}");
        assert!(said.contains("read the machine") && said.contains("10Gbps"), "{said}");
    }
    for (words, part) in [
        (&["sim", "machines", "x541"][..], "apus sim machines"),
        (&["sim", "machines", "/nonexistent.toml"], "give a TOML file that describes a machine"),
        (&["sim", "machines", "--toml"], "NAME"),
    ] {
        let output = bare(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(part), "{words:?}: {}", text(&output.stderr));
    }
}

#[test]
fn ctrl_c_ends_a_sweep_of_short_cases() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let path = root.0.join("out.csv");
    let csv = path.display().to_string();
    let vary = ["--vary", "traffic.rate=20kpps,21kpps,22kpps,23kpps,24kpps", "--seeds", "10000"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_apus"));
    command.args(["sim", "sweep", &file]).args(vary).args(["--jobs", "1", "-o", &csv]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let rows = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
    let give_up = Instant::now() + Duration::from_secs(60);
    while rows() < 3 {
        assert!(Instant::now() < give_up && running.0.try_wait().unwrap().is_none(), "no case was done");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.end(Signal::INT), Some(1));
    assert!(rows() < 50_000, "it went on to its end");
}

#[test]
fn a_sweep_as_a_document() {
    let root = Root::new();
    let file = scenario(&root, POISSON);
    let output = bare(&["sim", "sweep", &file, "--vary", "moderation.policy=off,nic", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(document["cases"][1]["instead"]["moderation.policy"], "nic");
    assert!(text(&bare(&["sim", "sweep", &file, "--seeds", "1"]).stdout).starts_with("case,seed,"));
}

/// Thirty million packets in an address space that has no room for them: a dozen octets kept of each would not fit.
#[test]
fn memory_does_not_grow_with_simulated_time() {
    let root = Root::new();
    let line_rate = include_str!("../../../../scenarios/poll-line-rate.toml");
    let file = scenario(&root, &line_rate.replace("duration = \"1s\"", "duration = \"2s\""));
    let limited = format!("ulimit -v 400000 && exec {} sim run {file} --json", env!("CARGO_BIN_EXE_apus"));
    let output = std::process::Command::new("sh").args(["-c", &limited]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["case"]["frames"]["departed"].as_u64().unwrap() > 29_000_000, "{}", document["case"]["frames"]);
}

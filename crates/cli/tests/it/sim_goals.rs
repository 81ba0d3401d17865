use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, Running, bare, text};

/// One machine and one load, so short that it says nothing about power.
const FEW: [&str; 14] = [
    "sim",
    "goals",
    "--grid",
    "classic",
    "--machine",
    "xeon-gold-6338n",
    "--load",
    "1",
    "--goal",
    "50us",
    "--warm-up",
    "20ms",
    "--duration",
    "60ms",
];

fn document(words: &[&str]) -> (Value, i32) {
    let output = bare(words);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    validate(&document);
    (document, output.status.code().unwrap())
}

fn ways(case: &Value) -> Vec<&str> {
    case["ways"].as_array().unwrap().iter().map(|way| way["way"].as_str().unwrap()).collect()
}

#[test]
fn goals_as_a_document_a_table_a_report_and_scenarios() {
    let root = Root::new();
    let [report, csv] = ["goals.html", "goals.csv"].map(|name| root.0.join(name).display().to_string());
    let folder = root.0.join("scenarios");
    let scenarios = folder.display().to_string();
    let words = [&FEW[..], &["--json", "-o", &report, "--csv", &csv, "--scenarios", &scenarios]].concat();
    let (of_all, status) = document(&words);
    let case = &of_all["cases"][0];
    let beaten = ["missed", "lost", "lost_to_tuned"].contains(&case["verdict"].as_str().unwrap());
    assert_eq!(status, i32::from(beaten), "{}", case["verdict"]);
    assert_eq!(of_all["summary"]["verdicts"][case["verdict"].as_str().unwrap()], 1);
    assert_eq!(
        ways(case),
        ["poll", "l3fwd-power", "backoff 20us", "backoff 50us", "backoff 100us", "interrupt", "adaptive"]
    );
    assert_eq!(bare(&words).stdout, bare(&[&words[..], &["--jobs", "1"]].concat()).stdout, "one thread, other bytes");
    assert!(std::fs::read_to_string(&report).unwrap().contains("Power against late packets"));
    let rows = std::fs::read_to_string(&csv).unwrap();
    let verdict = format!(",{},", case["verdict"].as_str().unwrap());
    assert!(rows.starts_with("machine,nic,") && rows.lines().count() == 2 && rows.contains(&verdict), "{rows}");
    // A run's scenario gives what the run gave.
    let poll = folder.join("xeon-gold-6338n+82599-poisson-1-C1-60ms-poll.toml").display().to_string();
    let alone: Value = serde_json::from_slice(&bare(&["sim", "run", &poll, "--json"]).stdout).unwrap();
    assert_eq!(alone["case"]["power"]["cores_uw"], case["ways"][0]["power_uw"]);
    let said = bare(&[&FEW[..], &["--all"]].concat()).stdout;
    let last = text(&said).lines().last().unwrap().to_owned();
    assert!(last.starts_with(if beaten { "0 of 1 goals: " } else { "1 of 1 goals: " }), "{last}");
    assert!(text(&said).contains("POWER x"), "{}", text(&said));
    assert!(text(&bare(&[&FEW[..], &["--ways"]].concat()).stdout).contains("backoff 50us"));
    // A goal of which too few packets tell, or of which no number of packets would, counts neither as met nor as
    // missed.
    for goal in ["p99.9999=50us", "p0=50us"] {
        let few = bare(&[&FEW[..8], &["--goal", goal], &FEW[10..], &["--rival", "poll"]].concat());
        let said = text(&few.stdout);
        assert!(said.contains("1 too few packets") && said.contains("\n0 of 0 goals: "), "{said}");
    }
}

/// Machine, traffic and rivals of one's own, several seeds, the first second, a draw.
#[test]
fn goals_of_ones_own() {
    let root = Root::new();
    let write = |name: &str, octets: &[u8]| {
        std::fs::write(root.0.join(name), octets).unwrap();
        root.0.join(name).display().to_string()
    };
    let machine = write("own.toml", &bare(&["sim", "machines", "xeon-gold-6338n", "--toml"]).stdout);
    let table = write("mine.csv", b"time_ns,octets\n0,64\n10000,64\n30000,64\n");
    let machine = format!("{machine}+82599");
    let few =
        ["sim", "goals", "--machine", &machine, "--warm-up", "20ms", "--duration", "60ms", "--seeds", "2", "--json"];
    let own = ["--traffic", &table, "--goal", "p99=30us,p99.99=1ms", "--peak", "1Mpps", "--idle", "C6"];
    let (of_all, _) = document(&[&few[..], &own, &["--rival", "poll,backoff=30us@1GHz"]].concat());
    let cases = of_all["cases"].as_array().unwrap();
    assert_eq!(cases.iter().map(|case| case["goal"].as_str().unwrap()).collect::<Vec<_>>(), ["p99=30us", "p99.99=1ms"]);
    let case = &cases[0];
    assert_eq!(ways(case), ["poll", "backoff 30us@1000MHz", "adaptive"]);
    assert_eq!(
        (&case["traffic"], &case["peak_pps"], &case["deepest"]),
        (&"mine.csv".into(), &1_000_000.into(), &"C6".into())
    );
    assert_eq!((&case["load_percent"], &case["machine"]), (&Value::Null, &"own.toml".into()));
    // 66,667 packets a second, two seeds of 60 ms.
    let offered = case["ways"][2]["offered"].as_u64().unwrap();
    assert!(offered.abs_diff(8_000) <= 4, "{offered}");
    assert_eq!(case["first_second_multiples"].as_array().unwrap().len(), 2);
    assert_eq!(cases[1]["verdict"], "too_few_packets");

    let drawn = |seed: &str| {
        let draw =
            ["--load", "1,2,3,4,5,6,7,8", "--traffic", "poisson", "--rival", "poll", "--sample", "3", "--sample-seed"];
        let (of_all, _) = document(&[&few[..], &draw, &[seed]].concat());
        let place = |case: &Value| format!("{} {}", case["load_percent"], case["goal"]);
        of_all["cases"].as_array().unwrap().iter().map(place).collect::<Vec<_>>()
    };
    let first = drawn("1");
    assert_eq!((first.len(), &first), (3, &drawn("1")));
    assert_ne!(first, drawn("2"));
}

/// A value that is given twice counts once, and cases that differ do not look alike.
#[test]
fn goals_given_twice_and_cases_that_look_alike() {
    let twice = ["--load", "1,1", "--goal", "50us,p99.9=50us", "--rival", "poll,poll", "--idle", "C1,C1"];
    let few = &FEW[..6];
    let short = ["--warm-up", "20ms", "--duration", "60ms", "--machine", "xeon-gold-6338n"];
    let (of_all, _) = document(&[few, &short, &twice, &["--json"]].concat());
    let cases = of_all["cases"].as_array().unwrap();
    assert_eq!((cases.len(), ways(&cases[0])), (1, vec!["poll", "adaptive"]));
    // Two controllers and two rates.
    let alike =
        ["--machine", "xeon-gold-6338n+x540", "--peak", "1Mpps,2Mpps", "--load", "1", "--goal", "50us", "--all"];
    let said = bare(&[few, &short, &alike, &["--rival", "poll"]].concat()).stdout;
    for shown in ["xeon-gold-6338n+82599", "xeon-gold-6338n+x540", "1000000pps", "2000000pps"] {
        assert_eq!(text(&said).matches(shown).count(), 2, "{shown}: {}", text(&said));
    }
}

/// A recording was left out without a word if other traffic remained.
#[test]
fn goals_refuse_a_recording_without_a_peak() {
    let root = Root::new();
    let table = root.0.join("mine.csv").display().to_string();
    std::fs::write(&table, "time_ns,octets\n0,64\n10000,64\n").unwrap();
    let traffic = format!("poisson,{table}");
    let output = bare(&[&FEW[..], &["--traffic", &traffic]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the peak rate of mine.csv is not known") && said.contains("--peak untold"), "{said}");
}

/// With a hold-off, rivals delay their interrupts too.
#[test]
fn a_hold_off_is_fair() {
    let (plain, _) = document(&[&FEW[..], &["--json"]].concat());
    let (of_all, _) = document(&[&FEW[..], &["--hold-off", "--json"]].concat());
    assert_eq!([&plain, &of_all].map(|one| one["hold_off"].as_bool()), [Some(false), Some(true)]);
    let delayed = |one: &Value| ways(&one["cases"][0]).into_iter().filter(|way| way.starts_with("interrupt ")).count();
    let backoffs = ways(&of_all["cases"][0]).into_iter().filter(|way| way.starts_with("backoff ")).count();
    assert_eq!((delayed(&plain), delayed(&of_all)), (0, backoffs));
    let said = bare(&[&FEW[..], &["--hold-off", "--rival", "poll", "--all"]].concat()).stdout;
    assert!(text(&said).lines().next().unwrap().ends_with("with hold-off"), "{}", text(&said));
}

#[test]
fn wrong_use_of_goals_is_2_with_a_remedy() {
    for (words, part) in [
        (&["--machine", "xeon"][..], "xeon-e5-2699v3"),
        (&["--machine", "/nonexistent.toml"], "give a readable file"),
        (&["--machine", "x540"], "has no processor"),
        (&["--machine", "xeon-gold-6338n+xeon-gold-6338n"], "with a network controller"),
        (&["--traffic", "bursty"], "self-similar"),
        (&["--goal", "20"], "50us"),
        (&["--goal", "0us"], "longer than 0"),
        (&["--load", "0"], "up to 100"),
        (&["--load", "101"], "up to 100"),
        (&["--idle", "C10"], "--idle"),
        // Nothing of what is given is left out silently.
        (&["--idle", "C1,c6"], "the idle state c6"),
        (&["--traffic", "poisson,/dev/null.csv"], "give a readable file"),
        (&["--seed", "9223372036854775808"], "--seed"),
        (&["--peak", "none"], "untold"),
        (&["--rival", "adaptive"], "l3fwd-power"),
        (&["--rival", "poll@9GHz", "--load", "1"], "1000 MHz to 3900 MHz"),
        (&["--rival", "poll@850MHz", "--duration", "1ns"], "with --machine"),
        (&["--rival", "interrupt=9ms"], "8160us"),
        (&["--seeds", "32"], "1..=31"),
        (&["--sample", "0"], "1.."),
        (&["--sample-seed", "2"], "--sample"),
        (&["--csv", "out.txt"], "CSV"),
        (&["--duration", "0s"], "duration"),
        (&["--duration", "1ns"], "no packet can arrive and leave within it"),
    ] {
        let output = bare(&[&["sim", "goals"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(part), "{words:?}: {}", text(&output.stderr));
    }
}

/// The other settings may have taken hours.
#[test]
fn a_setting_that_fails_does_not_discard_the_others() {
    let root = Root::new();
    let [good, bad] = [("good.toml", "100kpps"), ("bad.toml", "100")].map(|(name, rate)| {
        std::fs::write(root.0.join(name), format!("[[traffic]]\nkind = \"constant\"\nrate = \"{rate}\"\n")).unwrap();
        root.0.join(name).display().to_string()
    });
    let traffic = format!("{good},{bad}");
    let own = ["--traffic", &traffic, "--peak", "1Mpps", "--rival", "poll", "--jobs", "1", "--json"];
    let output = bare(&[&FEW[..], &own].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("bad.toml") && text(&output.stderr).contains("14.88Mpps"));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["planned"], &document["cases"][0]["traffic"]), (&2.into(), &"good.toml".into()));
}

#[test]
fn ctrl_c_ends_goals_and_keeps_what_is_done() {
    let root = Root::new();
    let (kept, said) = (root.0.join("scenarios"), root.0.join("said.json"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_apus"));
    command.args(["sim", "goals", "--grid", "full", "--sample", "50", "--jobs", "1", "--json", "--scenarios"]);
    command.arg(&kept).stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(std::fs::File::create(&said).unwrap());
    let mut running = Running(command.spawn().unwrap());
    // By then it holds signals back.
    let give_up = Instant::now() + Duration::from_secs(60);
    while !kept.exists() {
        assert!(Instant::now() < give_up && running.0.try_wait().unwrap().is_none(), "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.end(Signal::INT), Some(1));
    let document: Value = serde_json::from_slice(&std::fs::read(&said).unwrap()).unwrap();
    validate(&document);
    assert_eq!(document["planned"], 50);
    assert!(document["cases"].as_array().unwrap().len() < 50);
}

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tester::lab::{Guard, Lab};

use crate::run::wait_for;
use crate::schemas::validate;
use crate::support::{Root, Running, apus, bare, text, turn};
use crate::tune::OwnJournal;

/// A knob that is known to help: with a flush timeout of 200 us, and interrupts that wait for it, a frame waits for the
/// next look; without one it does not. And one that frames of an unknown EtherType cannot notice.
const ALONE: &str = r#"
name = "flush timeout"
metric = "latency_p50"
smallest = "10%"
budget = "BUDGET"
seed = SEED
[measure]
bench = ["latency", "--port", "tx0", "--netns", "TX", "--schedule", "constant:350us", "--duration", "200ms", "--warm-up", "50ms", "--fifo", "10"]
[baseline]
summary = "deferred"
[baseline.network.dut0]
napi = { defer-hard-irqs = 100, gro-flush-timeout = "200us" }
[[factor]]
summary = "no timeout"
[factor.network.dut0]
napi = { gro-flush-timeout = 0 }
[[factor]]
summary = "neutral"
[factor.sysctl]
"net.ipv4.tcp_fastopen" = 3
"#;

/// What a busy machine cannot hide: with interrupts deferred by 500 us, 10,000 frames a second wake the worker a fifth as
/// often, however slowly anything runs. (Latency would: where every softirq takes longer than the gap threshold, no sample
/// is clean, and the experiment rightly decides nothing.)
const WAKEUPS: &str = r#"
name = "wake-ups"
metric = "tested_wakeups"
smallest = "30%"
budget = "BUDGET"
seed = SEED
[measure]
bench = ["latency", "--port", "tx0", "--netns", "TX", "--schedule", "constant:10kpps", "--duration", "200ms", "--warm-up", "50ms", "--fifo", "10",
    "--instance", "dut", "--telemetry", "ROOT"]
[baseline]
summary = "at once"
[baseline.network.dut0]
napi = { defer-hard-irqs = 0, gro-flush-timeout = 0 }
[[factor]]
summary = "deferred"
[factor.network.dut0]
napi = { defer-hard-irqs = 100, gro-flush-timeout = "500us" }
[[factor]]
summary = "neutral"
[factor.sysctl]
"net.ipv4.tcp_fastopen" = 3
"#;

/// A count of empty polls and a timeout defer interrupts only together (kernel documentation, networking/napi,
/// "Software IRQ coalescing"): then the worker is woken less often.
const PAIR: &str = r#"
name = "deferral"
metric = "tested_wakeups"
design = "factorial"
smallest = "10%"
budget = "BUDGET"
seed = SEED
[measure]
bench = ["latency", "--port", "tx0", "--netns", "TX", "--schedule", "constant:10kpps", "--duration", "200ms", "--warm-up", "50ms", "--fifo", "10",
    "--instance", "dut", "--telemetry", "ROOT"]
[baseline]
summary = "at once"
[baseline.network.dut0]
napi = { defer-hard-irqs = 0, gro-flush-timeout = 0 }
[[factor]]
summary = "count"
[factor.network.dut0]
napi = { defer-hard-irqs = 100 }
[[factor]]
summary = "timeout"
[factor.network.dut0]
napi = { gro-flush-timeout = "500us" }
"#;

const NEUTRAL: &str = "no difference found; it is below ";

struct Bed {
    lab: Guard,
    own: OwnJournal,
    root: Root,
    running: Running,
}

impl Bed {
    /// A pair of interfaces, and an instance that returns frames.
    fn new() -> Self {
        let own = OwnJournal::new("experiment");
        let lab = Lab::pair(&format!("expt{}", std::process::id())).up().unwrap();
        let root = Root::new();
        let words =
            ["run", "macswap", "dut0", "--mode", "interrupt", "--fifo", "10", "--name", "dut", "--json", "--netns"];
        let netns = lab.namespace("dut");
        let mut command = apus(&root, &[&words[..], &[&netns]].concat());
        let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        wait_for("the worker", || {
            let top = apus(&root, &["top", "--json", "--interval", "20ms"]).output().unwrap();
            let document: Value = serde_json::from_slice(&top.stdout).unwrap_or_default();
            document["instances"][0]["workers"][0]["state"] == "running"
        });
        Self { lab, own, root, running }
    }

    /// The document of an experiment, and its verdicts in their order.
    fn experiment(&self, plan: &str, budget: &str, seed: u32) -> (Value, Vec<(String, String)>) {
        let path = self.root.0.join("plan.toml");
        let plan = plan.replace("BUDGET", budget).replace("SEED", &seed.to_string());
        std::fs::write(
            &path,
            plan.replace("TX", &self.lab.namespace("tx")).replace("ROOT", self.root.0.to_str().unwrap()),
        )
        .unwrap();
        let report = self.root.0.join("report.html");
        let words = ["experiment", path.to_str().unwrap(), "--json", "-o", report.to_str().unwrap()];
        let output = self.own.within(&self.lab.namespace("dut"), env!("CARGO_BIN_EXE_apus"), &words);
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
        validate(&document);
        assert!(std::fs::read_to_string(&report).unwrap().contains("<svg"), "a plot");
        let ranking = document["ranking"].as_array().unwrap().iter();
        let verdicts = ranking.map(|one| {
            let factors: Vec<&str> =
                one["factors"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            println!("  {} {}", factors.join(" + "), one["says"]);
            (factors.join(" + "), one["says"].as_str().unwrap().to_owned())
        });
        let verdicts = verdicts.collect();
        println!("  {} replicates, ended: {}", document["replicates"], document["ended"]);
        (document, verdicts)
    }
}

/// A dry run accepted plans that cannot run, and the real run said of an interface that is missing that "all its settings
/// have these values already".
#[test]
fn a_dry_run_refuses_what_this_host_lacks() {
    let root = Root::new();
    let path = root.0.join("plan.toml");
    let plan = ALONE.replace("BUDGET", "1s").replace("SEED", "1");
    let plan = plan.split("[baseline]").next().unwrap();
    for (factor, why) in [
        ("[factor.network.nope0]\nnapi = { gro-flush-timeout = 0 }", "nope0 has no NAPI instance"),
        ("[factor.sysctl]\n\"net.ipv4.nope\" = 1", "this host has no sysctl net.ipv4.nope"),
    ] {
        std::fs::write(&path, format!("{plan}[[factor]]\nsummary = \"it\"\n{factor}\n")).unwrap();
        let output = bare(&["experiment", path.to_str().unwrap(), "--dry-run"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("cannot try \"it\"") && said.contains(why), "{said}");
    }
}

/// Whether one round ranks all of it rightly.
fn is_right(bed: &Bed, budget: &str, seed: u32) -> bool {
    println!("seed {seed}");
    let (_, alone) = bed.experiment(ALONE, budget, seed);
    let first = alone[0] == ("no timeout".into(), "helps".into());
    let neutral = alone[1].0 == "neutral" && alone[1].1.starts_with(NEUTRAL);
    let (_, pair) = bed.experiment(PAIR, budget, seed);
    let together = pair[0] == ("count + timeout".into(), "helps".into());
    let singly = pair[1..].iter().filter(|(_, says)| says.starts_with(NEUTRAL)).count() == 2;
    println!("  first {first}, neutral {neutral}, together {together}, singly {singly}");
    first && neutral && together && singly
}

/// Five rounds with `APUS_LONG_TESTS=1` on a quiet machine, of which four must rank latency and pairs rightly; else one, of
/// what is plain to see on any machine.
#[test]
fn what_is_known_is_ranked_rightly_in_the_lab() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return;
    }
    let _turn = turn();
    let mut bed = Bed::new();
    if std::env::var_os("APUS_LONG_TESTS").is_some() {
        let right = (1..=5).filter(|seed| is_right(&bed, "100s", *seed)).count();
        assert!(right >= 4, "{right} of 5");
    } else {
        let (document, verdicts) = bed.experiment(WAKEUPS, "120s", 1);
        assert_eq!(verdicts[0], ("deferred".to_owned(), "helps".to_owned()), "{document:#}");
        assert!(verdicts[1].1.starts_with(NEUTRAL), "{document:#}");
        assert!(document["replicates"].as_u64().unwrap() >= 4, "{document:#}");
    }
    // Nothing is left of it.
    let status = bed.own.within(&bed.lab.namespace("dut"), env!("CARGO_BIN_EXE_apus"), &["tune", "status"]);
    assert!(text(&status.stdout).contains("nothing is applied"), "{}", text(&status.stdout));
    assert!(Path::new(&format!("/proc/{}", bed.running.0.id())).exists(), "the instance ran all the while");
    assert_eq!(bed.running.end(Signal::TERM), Some(0));
}

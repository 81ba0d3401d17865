use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use live::telemetry::Telemetry;
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use units::Nanos;

use crate::power_steer::{POLICY, command, machine, worker};
use crate::schemas::validate;
use crate::support::{Root, Running, apus, metrics, text};
use crate::tune::Machine;

/// A machine in a folder, and who looks at what runs there.
struct Watched {
    machine: Machine,
    root: Root,
    folder: PathBuf,
}

impl Watched {
    fn new(name: &str) -> Self {
        let (machine, root) = (machine(name), Root::new());
        let folder = machine.0.join("run/apus/steer");
        std::fs::create_dir_all(&folder).unwrap();
        Self { machine, root, folder }
    }

    fn steer(&self, words: &[&str]) -> Running {
        Running(command(&self.machine, &self.root, words).spawn().unwrap())
    }

    /// `apus power steer status`, and its exit status.
    fn status(&self, more: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
        command.args(["power", "steer", "status", "--steering"]).arg(&self.folder).args(more);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        (output.status.code(), text(&output.stdout).to_owned())
    }

    fn document(&self) -> Json {
        let document = serde_json::from_str(&self.status(&["--json"]).1).unwrap();
        validate(&document);
        document
    }

    /// Waits until the only running instance publishes this.
    fn until(&self, what: &str, holds: impl Fn(&Json) -> bool) -> Json {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let document = self.document();
            let instance = &document["instances"][0];
            if instance.is_object() && holds(&instance["document"]) {
                return instance.clone();
            }
            assert!(Instant::now() < patience, "{what}: {document:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// `apus top --json` and `apus top --once`.
    fn top(&self, more: &[&str]) -> (Json, String) {
        let top = ["top", "--interval", "20ms", "--steering", self.folder.to_str().unwrap()];
        let top = [&top, more].concat();
        let output = apus(&self.root, &[&top[..], &["--json"]].concat()).output().unwrap();
        let document = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        let table = apus(&self.root, &[&top[..], &["--once"]].concat()).output().unwrap();
        (document, text(&table.stdout).to_owned())
    }

    fn metrics(&self) -> String {
        metrics(&self.root, &["--steering", self.folder.to_str().unwrap()])
    }

    /// The names of the published files.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.folder).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Nobody shows anything any more.
    fn is_gone(&self) {
        assert_eq!(self.document()["instances"], json!([]));
        assert!(!self.metrics().contains("apus_steered_frequency_hertz{"));
        let (document, table) = self.top(&[]);
        assert!(document["steering"] == json!([]) && !table.contains("IN FORCE"), "{document:#} {table}");
    }
}

/// A thread that keeps a worker busy, and ends when this is dropped.
struct Busy {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn new(worker: Telemetry) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = ends.clone();
        let thread = std::thread::spawn(move || {
            let (begun, mut told) = (Instant::now(), Duration::ZERO);
            while !ended.load(Ordering::Relaxed) {
                let now = begun.elapsed();
                worker.useful(Nanos::from_nanos((now - told).as_nanos() as u64));
                told = now;
                worker.polled(false);
                worker.received(1, 64);
                worker.picked_up(Nanos::from_micros(1));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_running_instance_is_shown_by_status_top_and_metrics() {
    let watched = Watched::new("steer-seen");
    assert_eq!(watched.status(&[]), (Some(0), "no instance of apus power steer is running\n".to_owned()));
    let _idle = worker(&watched.root, 1, Some("p99=100us"));
    let _busy = Busy::new(worker(&watched.root, 2, Some("p99=50us")));
    let mut steering = watched.steer(&["--instance", "edge", "--json", "--idle-latency", "20us"]);
    let instance = watched.until("a second with load", |document| {
        let busy = document["cpus"][1]["last_second"]["busy_ratio"].as_f64();
        busy.is_some_and(|busy| busy > 0.05) && document["cpus"][0]["frequency_hz"] == 800_000_000
    });
    assert_eq!(instance["pid"], steering.0.id());
    let document = &instance["document"];
    assert_eq!((&document["goal"], &document["restored"]), (&json!("p99=50us"), &Json::Null));
    let (first, second) = (&document["cpus"][0], &document["cpus"][1]);
    assert_eq!((&first["cpu"], &first["wish_hz"]), (&json!(1), &json!(800_000_000)), "{document:#}");
    assert_eq!((&first["watches"], &first["last_second"]["busy_ratio"]), (&json!("edge/1"), &json!(0.0)));
    assert!(second["last_second"]["judged"].as_u64() > Some(0) && second["late"] == 0, "{document:#}");
    for cpu in [first, second] {
        assert_eq!((&cpu["idle_limit_ns"], &cpu["idle_trouble"]), (&json!(20_000), &Json::Null));
    }
    let domain = &document["domains"][1];
    assert_eq!((&domain["cpus"], &domain["via"]), (&json!("2-3"), &json!("setspeed")), "{document:#}");
    let (code, table) = watched.status(&[]);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.starts_with("CPU  WATCHED  POLICY"), "{table}");
    assert!(table.contains("\n  1  edge/1   goal p99=50us  800MHz"), "{table}");
    let (document, table) = watched.top(&[]);
    assert_eq!(document["steering"][0]["document"]["cpus"][1]["watches"], "edge/2", "{document:#}");
    assert!(table.contains("\n\nCPU  WATCHED") && table.contains("\n  2  edge/2"), "{table}");
    let (document, table) = watched.top(&["edge"]);
    assert!(document["steering"] == json!([]) && !table.contains("IN FORCE"), "one instance alone was named: {table}");
    let answer = watched.metrics();
    for line in [
        "apus_steered_frequency_hertz{cpu=\"1\"} 800000000.0",
        "apus_steered_idle_limit_seconds{cpu=\"2\"} 0.00002",
        "apus_steered_setting_in_force{cpu=\"1\",setting=\"idle\"} 1.0",
        "apus_steered_controlled{cpu=\"2\"} 1.0",
    ] {
        assert!(answer.contains(&format!("\n{line}\n")), "{line}: {answer}");
    }
    assert_eq!(steering.end(Signal::INT), Some(0));
    watched.is_gone();
}

#[test]
fn nothing_is_shown_after_the_end_or_a_kill() {
    let watched = Watched::new("steer-unseen");
    let words = ["--cpus", "0", "--policy", "fixed:1.2GHz"];
    let mut steering = watched.steer(&words);
    let lasted = watched.until("the state", |_| true)["document"]["duration_ns"].as_u64();
    watched.until("a newer state", |document| document["duration_ns"].as_u64() > lasted);
    assert_eq!(steering.end(Signal::INT), Some(0));
    assert!(watched.names().is_empty(), "{:?}", watched.names());
    watched.is_gone();
    // Killed, it leaves its file; readers see that nobody is behind it.
    let mut killed = watched.steer(&words);
    watched.until("the next one", |_| true);
    assert_eq!(killed.end(Signal::KILL), None);
    watched.is_gone();
    for document in [watched.document(), watched.top(&[]).0] {
        assert!(document["leftovers"][0]["why"].as_str().unwrap().ends_with("has ended"), "{document:#}");
    }
    let mut next = watched.steer(&words);
    watched.until("the last one", |_| true);
    assert_eq!(watched.names(), [format!("{}.json", next.0.id())], "it removes what was left");
    assert_eq!(next.end(Signal::TERM), Some(0));
}

#[test]
fn what_is_refused_or_overruled_is_shown_while_it_runs() {
    let watched = Watched::new("steer-overruled");
    let (machine, latency) = (&watched.machine, "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us");
    let words = ["--cpus", "0-1", "--policy", "fixed:2.6GHz", "--idle-latency", "20us"];
    machine.put(&format!("{POLICY}0/bios_limit"), "1800000\n");
    let mut steering = watched.steer(&words);
    let in_force = |document: &Json, hz: u64| document["cpus"][0]["frequency_hz"] == hz;
    let trouble = |document: &Json| document["cpus"][0]["trouble"].as_str().map(str::to_owned);
    let limited = watched.until("the first frequency", |document| trouble(document).is_some());
    let said = "the frequency is 1.8GHz instead: the firmware limits it to 1.8GHz";
    assert_eq!(trouble(&limited["document"]).unwrap(), said);
    machine.put(&format!("{POLICY}0/bios_limit"), "3000000\n");
    watched.until("the frequency", |document| in_force(document, 2_600_000_000) && trouble(document).is_none());
    assert_eq!(watched.status(&[]).0, Some(0));
    machine.put(&format!("{POLICY}0/bios_limit"), "2200000\n");
    watched.until("the firmware's limit", |document| in_force(document, 2_200_000_000));
    let (code, table) = watched.status(&[]);
    assert!(code == Some(0) && table.contains("\nCPU 0: its frequency is limited to 2.2GHz\n"), "{table}");
    assert!(watched.metrics().contains("setting_in_force{cpu=\"0\",setting=\"frequency\"} 0.0"));
    machine.put(latency, "0\n");
    watched.until("the lost limit", |document| document["cpus"][1]["idle_trouble"].is_string());
    let (code, table) = watched.status(&[]);
    let said = "\nCPU 1: its idle states are not limited: somebody else has removed the limit; Apus leaves it so\n";
    assert!(code == Some(1) && table.contains(said), "{table}");
    machine.put(&format!("{POLICY}1/scaling_governor"), "powersave\n");
    watched.until("the lost CPU", |document| document["cpus"][1]["lost"].is_string());
    let answer = watched.metrics();
    assert!(answer.contains("\napus_steered_controlled{cpu=\"1\"} 0.0\n"), "{answer}");
    assert!(
        answer.contains("\napus_steered_controlled{cpu=\"0\"} 1.0\n"),
        "the other one is still controlled: {answer}"
    );
    assert_eq!(steering.end(Signal::INT), Some(1));
    assert_eq!(
        (machine.read(latency), machine.read(&format!("{POLICY}1/scaling_governor"))),
        ("0\n".into(), "powersave\n".into())
    );
    assert_eq!(machine.read("sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us"), "0\n", "ours is restored");
}

#[test]
fn a_damaged_file_is_refused_and_named() {
    let watched = Watched::new("steer-damaged");
    let mut steering = watched.steer(&["--cpus", "0", "--policy", "fixed:1.2GHz", "--dry-run"]);
    watched.until("the state", |document| document["dry_run"] == true);
    assert!(watched.status(&[]).1.contains("changes nothing (--dry-run)"));
    assert!(!watched.metrics().contains("apus_steered_frequency_hertz{"), "a dry run controls nothing");
    let good = fs::read_to_string(watched.folder.join(&watched.names()[0])).unwrap();
    for (name, content) in [("1.json", &good[..good.len() / 2]), ("2.json", &good), ("3.json", "")] {
        fs::write(watched.folder.join(name), content).unwrap();
    }
    fs::write(watched.folder.join("4.json"), good.replace("\"wish_hz\":", "\"wish\":")).unwrap();
    let (code, table) = watched.status(&[]);
    assert_eq!(code, Some(0), "{table}");
    let of = |name: &str| table.lines().find(|line| line.contains(&format!("/{name}: "))).expect(&table);
    for name in ["1.json", "3.json", "4.json"] {
        assert!(of(name).contains("damaged, or not written by this version of Apus"), "{table}");
    }
    assert!(of("2.json").ends_with(&format!("it is that of process {}", steering.0.id())), "{table}");
    let document = watched.document();
    assert_eq!(document["instances"].as_array().map(Vec::len), Some(1), "{document:#}");
    assert_eq!(watched.top(&[]).0["leftovers"].as_array().map(Vec::len), Some(4));
    assert_eq!(steering.end(Signal::INT), Some(0));
    // What others may write to is not believed.
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(&watched.folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(watched.status(&[]).1.contains("other users can write"), "{}", watched.status(&[]).1);
    let wrong = command(&watched.machine, &watched.root, &["--cpus", "0", "status"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

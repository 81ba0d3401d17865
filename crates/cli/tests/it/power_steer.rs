use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use live::telemetry::{Identity, State, Telemetry};
use rustix::process::Signal;
use serde_json::Value as Json;
use units::Nanos;

use crate::schemas::validate;
use crate::support::{Root, Running, bare, text};
use crate::tune::Machine;

pub const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy";

/// Two frequency domains of one CPU each, and a third of two CPUs.
pub fn machine(name: &str) -> Machine {
    let machine = Machine::small(name);
    for (policy, cpus) in [(0, "0"), (1, "1"), (2, "2 3")] {
        let put = |file: &str, content: &str| machine.put(&format!("{POLICY}{policy}/{file}"), &format!("{content}\n"));
        put("related_cpus", cpus);
        put("scaling_driver", "acpi-cpufreq");
        put("scaling_available_frequencies", "3000000 2600000 2200000 1800000 1200000 800000");
        put("scaling_available_governors", "performance powersave userspace");
        put("scaling_governor", "performance");
        put("scaling_setspeed", "<unsupported>");
        put("scaling_min_freq", "800000");
        put("scaling_max_freq", "3000000");
        put("cpuinfo_min_freq", "800000");
        put("cpuinfo_max_freq", "3000000");
        put("scaling_cur_freq", "3000000");
    }
    for cpu in 0..4 {
        machine.put(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), "0\n");
    }
    machine
}

/// A worker that pretends to be pinned to a CPU.
pub fn worker(root: &Root, cpu: u32, goal: Option<&str>) -> Telemetry {
    let id = Identity {
        instance: "edge".to_owned(),
        worker: cpu,
        app: "macswap".to_owned(),
        mode: "poll".to_owned(),
        goal: goal.map(str::to_owned),
        ports: vec!["veth0".to_owned()],
        cpu: Some(cpu),
    };
    let worker = Telemetry::create(&root.0, &id).unwrap();
    worker.state(State::Running);
    worker
}

fn root_of(machine: &Machine) -> &str {
    machine.0.to_str().unwrap()
}

pub fn command(machine: &Machine, root: &Root, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    command.args(["power", "steer", "--root", root_of(machine), "--telemetry"]).arg(&root.0).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until a file of the machine has this content.
fn wait_for(machine: &Machine, path: &str, content: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while machine.read(path).trim() != content {
        assert!(Instant::now() < until, "{path} is {} and not {content}", machine.read(path));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn in_band_work_sets_the_frequency_and_everything_is_restored() {
    let (machine, root) = (machine("steer"), Root::new());
    // Worker 1 polls all the time without any work; worker 2 is busy for as long as it says.
    let idle = worker(&root, 1, Some("p99=100us"));
    let busy = worker(&root, 2, Some("p99=50us"));
    let words = ["--instance", "edge", "--json", "--idle-latency", "20us"];
    let mut steering = Running(command(&machine, &root, &words).spawn().unwrap());
    let begun = Instant::now();
    let mut told = Duration::ZERO;
    let mut until = |path: &str, content: &str| {
        let patience = Instant::now() + Duration::from_secs(60);
        while machine.read(path).trim() != content {
            assert!(Instant::now() < patience, "{path} is {} and not {content}", machine.read(path));
            std::thread::sleep(Duration::from_millis(1));
            let now = begun.elapsed();
            busy.useful(Nanos::from_nanos((now - told).as_nanos() as u64));
            told = now;
            busy.polled(false);
            busy.received(1, 64);
            busy.picked_up(Nanos::from_micros(1));
            idle.polled(true);
        }
    };
    until(&format!("{POLICY}1/scaling_setspeed"), "800000");
    until(&format!("{POLICY}2/scaling_setspeed"), "3000000");
    assert_eq!(machine.read("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"), "20\n");
    assert_eq!(machine.read("sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us"), "0\n");
    steering.signal(Signal::INT);
    let output = std::mem::replace(&mut steering.0, Command::new("true").spawn().unwrap()).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("CPUs 2-3 share the frequency domain 2"), "{}", text(&output.stderr));
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!((&document["restored"], &document["goal"]), (&true.into(), &"p99=50us".into()), "the strictest");
    let cpu = |number: usize| &document["cpus"][number];
    assert_eq!((&cpu(0)["cpu"], &cpu(0)["busy_ratio"]), (&1.into(), &0.0.into()), "{document:#}");
    assert!(cpu(1)["busy_ratio"].as_f64().unwrap() > 0.2, "{document:#}");
    assert_eq!(
        (&cpu(0)["frequency_hz"], &cpu(1)["frequency_hz"]),
        (&800_000_000_u64.into(), &3_000_000_000_u64.into())
    );
    for policy in 0..3 {
        assert_eq!(machine.read(&format!("{POLICY}{policy}/scaling_governor")), "performance\n");
    }
    assert_eq!(machine.read("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"), "0\n");
}

/// Turbo is on, and the uncore may run at 0.8 to 2.4 GHz.
fn with_shared_settings(name: &str) -> Machine {
    let machine = machine(name);
    machine.put(TURBO, "0\n");
    for (file, khz) in [("min", "1200000"), ("max", "2400000"), ("initial_min", "800000"), ("initial_max", "2400000")] {
        machine.put(&format!("{UNCORE}/{file}_freq_khz"), &format!("{khz}\n"));
    }
    for policy in 0..3 {
        machine.put(&format!("{POLICY}{policy}/base_frequency"), "2200000\n");
    }
    machine
}

const TURBO: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
const UNCORE: &str = "sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00";

#[test]
fn turbo_and_uncore_are_lowered_while_no_cpu_needs_them() {
    let (machine, root) = (with_shared_settings("steer-shared"), Root::new());
    let busy = worker(&root, 1, None);
    let words = ["--instance", "edge", "--json", "--turbo", "--uncore"];
    let mut steering = Running(command(&machine, &root, &words).spawn().unwrap());
    let begun = Instant::now();
    wait_for(&machine, TURBO, "1");
    wait_for(&machine, &format!("{UNCORE}/max_freq_khz"), "800000");
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(machine.read(&format!("{UNCORE}/min_freq_khz")).trim(), "800000");
    let (begun, mut told) = (Instant::now(), Duration::ZERO);
    while machine.read(TURBO).trim() != "0" || machine.read(&format!("{UNCORE}/max_freq_khz")).trim() != "2400000" {
        let now = begun.elapsed();
        assert!(now < Duration::from_secs(60));
        busy.useful(Nanos::from_nanos((now - told).as_nanos() as u64));
        busy.received(1, 64);
        told = now;
        std::thread::sleep(Duration::from_millis(1));
    }
    // The command reads back what it has just written: with another value then, the write would have been ignored.
    std::thread::sleep(Duration::from_millis(200));
    // Somebody else's value is left, also that of a frequency domain which is not controlled.
    machine.put(TURBO, "1\n");
    machine.put(&format!("{POLICY}0/scaling_max_freq"), "1500000\n");
    std::thread::sleep(Duration::from_millis(1_500));
    steering.signal(Signal::INT);
    let output = std::mem::replace(&mut steering.0, Command::new("true").spawn().unwrap()).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let [turbo, uncore] = [0, 1].map(|number| &document["shared"][number]);
    assert!(turbo["trouble"].as_str().unwrap().contains("somebody else set it to off"), "{document:#}");
    assert_eq!((&turbo["changes"], &uncore["changes"], &uncore["trouble"]), (&2.into(), &2.into(), &Json::Null));
    assert!(uncore["lowered_ratio"].as_f64().unwrap() < 0.9, "{document:#}");
    assert_eq!((machine.read(TURBO).trim(), &uncore["lowered"]), ("1", &false.into()));
    assert_eq!(machine.read(&format!("{POLICY}0/scaling_max_freq")).trim(), "1500000");
    let limits = ["min", "max"].map(|file| machine.read(&format!("{UNCORE}/{file}_freq_khz")));
    assert_eq!(limits.each_ref().map(|khz| khz.trim()), ["1200000", "2400000"]);
}

#[test]
fn work_for_a_part_of_each_second_keeps_the_uncore_fast() {
    let (machine, root) = (with_shared_settings("steer-bursts"), Root::new());
    let worker = worker(&root, 1, None);
    let steering = Running(command(&machine, &root, &["--instance", "edge", "--uncore"]).spawn().unwrap());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(14) {
        let second = begun.elapsed();
        if second.subsec_millis() < 200 {
            worker.useful(Nanos::from_millis(1));
            worker.received(1, 64);
        }
        assert_eq!(machine.read(&format!("{UNCORE}/max_freq_khz")).trim(), "2400000", "after {second:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(steering);
}

#[test]
fn turbo_needs_the_nominal_frequency_and_uncore_the_load() {
    let (machine, root) = (machine("steer-nominal"), Root::new());
    machine.put(TURBO, "0\n");
    let _worker = worker(&root, 1, None);
    let output = command(&machine, &root, &["--instance", "edge", "--turbo"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("nominal frequency"), "{said}");
    assert_eq!(machine.read(&format!("{POLICY}1/scaling_governor")), "performance\n");
    let words = ["--cpus", "1", "--policy", "fixed:1.8GHz", "--uncore"];
    let output = command(&with_shared_settings("steer-blind"), &root, &words).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("does not watch the load"));
}

#[test]
fn a_kill_is_rolled_back_and_a_change_by_somebody_else_is_left() {
    let (machine, root) = (machine("steer-killed"), Root::new());
    let speed = format!("{POLICY}0/scaling_setspeed");
    let governor = format!("{POLICY}0/scaling_governor");
    let words = ["--cpus", "0", "--policy", "fixed:1.2GHz"];
    let mut killed = Running(command(&machine, &root, &words).spawn().unwrap());
    wait_for(&machine, &speed, "1200000");
    killed.end(Signal::KILL);
    assert_eq!(machine.read(&governor), "userspace\n");
    let back = bare(&["tune", "rollback", "--root", root_of(&machine)]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    assert_eq!(machine.read(&governor), "performance\n");
    // Somebody else's governor is noticed, told and left.
    machine.put(&speed, "<unsupported>\n");
    let mut child = command(&machine, &root, &words).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut child = Running(child);
    wait_for(&machine, &speed, "1200000");
    machine.put(&governor, "powersave\n");
    let told: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(
        told.iter().any(|line| line.contains("CPU 0: no longer controlled: somebody else set it to powersave")),
        "{told:?}"
    );
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
    assert_eq!(machine.read(&governor), "powersave\n");
}

/// Regression test: the first line that nobody read stopped the control, and Ctrl-C with it.
#[test]
fn a_reader_that_stops_does_not_stop_the_control() {
    let (machine, root) = (machine("steer-unread"), Root::new());
    let speed = format!("{POLICY}0/scaling_setspeed");
    machine.put(&format!("{POLICY}0/bios_limit"), "3000000\n");
    // Pipes that are full already: each write blocks.
    let full = || {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        while std::io::Write::write(&mut writer, &[b'.'; 4_096]).is_ok() {}
        rustix::fs::fcntl_setfl(&writer, flags).unwrap();
        (reader, writer)
    };
    let ((mut out, out_writer), (_err, err_writer)) = (full(), full());
    let mut command = command(&machine, &root, &["--cpus", "0", "--policy", "fixed:2.6GHz"]);
    let mut child = Running(command.stdout(out_writer).stderr(err_writer).spawn().unwrap());
    drop(command);
    wait_for(&machine, &speed, "2600000");
    machine.put(&format!("{POLICY}0/bios_limit"), "2200000\n");
    wait_for(&machine, &speed, "2200000");
    // The first signal restores the settings, though nobody has read anything; the second ends the wait for a reader.
    // Not SIGINT again: in a background job of a script, it is ignored.
    child.signal(Signal::INT);
    wait_for(&machine, &format!("{POLICY}0/scaling_governor"), "performance");
    let end = Instant::now() + Duration::from_secs(60);
    while child.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it cannot be ended");
        child.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut first = [0];
    std::io::Read::read_exact(&mut out, &mut first).unwrap();
    assert_eq!(&first, b".", "nobody has read anything");
}

#[test]
fn a_refused_frequency_is_a_finding() {
    let (machine, root) = (machine("steer-refused"), Root::new());
    // The governor `userspace` can be set, but not its speed.
    std::fs::remove_file(machine.0.join(format!("{POLICY}0/scaling_setspeed"))).unwrap();
    let words = ["--cpus", "0", "--policy", "fixed:2.6GHz", "--duration", "1s"];
    let output = command(&machine, &root, &words).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("CPU 0: refused: "), "{told}");
    assert_eq!(machine.read(&format!("{POLICY}0/scaling_governor")), "performance\n");
}

/// Another tool switches turbo off, and on again.
#[test]
fn a_range_that_shrinks_is_told_and_obeyed() {
    let (machine, root) = (machine("steer-range"), Root::new());
    let speed = format!("{POLICY}0/scaling_setspeed");
    let most = format!("{POLICY}0/cpuinfo_max_freq");
    let before = machine.read(&most);
    let mut child = command(&machine, &root, &["--cpus", "0", "--policy", "fixed:2.6GHz"]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut child = Running(child);
    wait_for(&machine, &speed, "2600000");
    machine.put(&most, "2200000\n");
    wait_for(&machine, &speed, "2200000");
    machine.put(&most, &before);
    wait_for(&machine, &speed, "2600000");
    assert_eq!(child.end(Signal::INT), Some(0));
    let told: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(told.iter().any(|line| line.contains("the driver limits the frequency to 2.2GHz")), "{told:?}");
}

#[test]
fn a_firmware_limit_is_told_and_obeyed() {
    let (machine, root) = (machine("steer-limit"), Root::new());
    let speed = format!("{POLICY}0/scaling_setspeed");
    machine.put(&format!("{POLICY}0/bios_limit"), "3000000\n");
    let mut child = command(&machine, &root, &["--cpus", "0", "--policy", "fixed:2.6GHz"]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut child = Running(child);
    wait_for(&machine, &speed, "2600000");
    machine.put(&format!("{POLICY}0/bios_limit"), "2200000\n");
    wait_for(&machine, &speed, "2200000");
    // A limit that cannot be read for a moment is no other limit.
    machine.put(&format!("{POLICY}0/bios_limit"), "");
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(machine.read(&speed).trim(), "2200000");
    machine.put(&format!("{POLICY}0/bios_limit"), "3000000\n");
    wait_for(&machine, &speed, "2600000");
    // Until it is told too.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child.end(Signal::INT), Some(0));
    let told: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(told.iter().any(|line| line.contains("the firmware limits the frequency to 2.2GHz")), "{told:?}");
    assert!(told.iter().any(|line| line.contains("the firmware now allows up to 3GHz")), "{told:?}");
    assert_eq!(machine.read(&format!("{POLICY}0/scaling_governor")), "performance\n");
}

/// Spans of 10 ms at 3 GHz: a loop that polls empty queues, one with packets, and something else.
fn span(phase: &str, n: u64) -> String {
    let (branches, misses) = match phase {
        "idle" => (12_000_000 + n * 1_000, 300 + n % 7),
        "load" => (6_000_000 + n * 1_000, 20_000 + n * 10),
        _ => (3_000_000, 900_000),
    };
    let phase = if phase == "other" { "load" } else { phase };
    format!(
        r#"{{"phase":"{phase}","branches":{branches},"misses":{misses},"cycles":30000000,"enabled_ns":10000000,"counted_ns":9000000}}"#
    ) + "\n"
}

fn spans(phases: &[(&str, u64)]) -> String {
    phases.iter().flat_map(|(phase, many)| (0..*many).map(|n| span(phase, n))).collect()
}

#[test]
fn branch_counts_tell_idleness_from_load_and_what_they_do_not_know() {
    let (machine, root) = (machine("steer-branches"), Root::new());
    let speed = format!("{POLICY}0/scaling_setspeed");
    let path = |name: &str| machine.0.join(name).to_str().unwrap().to_owned();
    machine.put("learned", &spans(&[("idle", 60), ("load", 60)]));
    machine.put("counts", &spans(&[("idle", 150), ("load", 100), ("idle", 150), ("other", 1_000)]));
    for by in [path("learned"), "0.03%".to_owned()] {
        machine.put(&speed, "<unsupported>\n");
        let words = ["--cpus", "0", "--branches", &by, "--counts", &path("counts")];
        let mut child = command(&machine, &root, &words).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut child = Running(child);
        for frequency in ["3000000", "800000", "3000000", "800000", "3000000"] {
            wait_for(&machine, &speed, frequency);
        }
        // Until it is told too.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(child.end(Signal::INT), Some(0));
        let told: Vec<String> = lines.map_while(Result::ok).collect();
        let of = |what: &str| told.iter().filter(|line| line.contains(what)).count();
        assert_eq!((of("CPU 0: idle"), of("CPU 0: 800MHz")), (2, 2), "{told:?}");
        let unsure = "3GHz (counters match neither idle nor load: highest frequency)";
        assert_eq!(of(unsure), usize::from(by != "0.03%"), "{told:?}");
        assert_eq!(machine.read(&format!("{POLICY}0/scaling_governor")), "performance\n");
    }
}

#[test]
fn phases_that_look_alike_get_the_highest_frequency() {
    let (machine, root) = (machine("steer-alike"), Root::new());
    let path = machine.0.join("learned").to_str().unwrap().to_owned();
    machine.put("learned", &(spans(&[("idle", 60)]) + &spans(&[("idle", 60)]).replace("idle", "load")));
    let words = ["--cpus", "0", "--branches", &path, "--counts", &path, "--duration", "1s", "--json"];
    let output = command(&machine, &root, &words).output().unwrap();
    assert!(text(&output.stderr).contains("does not tell idleness from load"), "{output:?}");
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    let cpu = &document["cpus"][0];
    assert_eq!((&cpu["frequency_hz"], &cpu["unsure"]), (&3_000_000_000_u64.into(), &"indistinct".into()), "{cpu:#}");
}

#[test]
fn a_program_is_learned_or_the_lack_of_counters_is_said() {
    let root = Root::new();
    let path = |name: &str| root.0.join(name).to_str().unwrap().to_owned();
    let learn = |phase: &str, more: &[&str]| {
        let words = ["power", "learn", phase, &path("learned"), "--cpu", "0", "--duration", "1s", "--json"];
        Command::new(env!("CARGO_BIN_EXE_apus")).args(words).args(more).output().unwrap()
    };
    let document = |output: std::process::Output, status: i32| -> Json {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let document = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        document
    };
    for phase in ["idle", "load"] {
        std::fs::write(root.0.join(phase), spans(&[(phase, 150)])).unwrap();
    }
    let idle = document(learn("idle", &["--counts", &path("idle")]), 0);
    assert!(idle["idle_spans"].as_u64() > Some(50) && idle["confidence_ratio"].is_null(), "{idle:#}");
    let load = document(learn("load", &["--counts", &path("load")]), 0);
    assert_eq!((&load["confidence_ratio"], &load["is_enough"]), (&1.0.into(), &true.into()), "{load:#}");
    assert_eq!(load["idle_spans"], idle["spans"], "they are added to the file");
    // The same again as its opposite.
    std::fs::write(root.0.join("learned"), spans(&[("idle", 100)])).unwrap();
    let alike = document(learn("load", &["--counts", &path("idle")]), 1);
    assert_eq!(alike["is_enough"], false, "{alike:#}");
    std::fs::write(root.0.join("learned"), "nothing\n").unwrap();
    assert_eq!(learn("load", &[]).status.code(), Some(2));
    std::fs::remove_file(root.0.join("learned")).unwrap();
    // This machine's own counters.
    let own = learn("idle", &[]);
    if own.status.code() == Some(3) {
        let said = text(&own.stderr);
        assert!(said.contains("cannot count the branches of CPU 0") && said.contains("fix: "), "{said}");
        assert!(!root.0.join("learned").exists());
    } else {
        assert!(document(own, 0)["spans"].as_u64() > Some(50));
    }
}

#[test]
fn what_is_lacking_or_wrong_is_said() {
    let (machine, root) = (machine("steer-wrong"), Root::new());
    let _worker = worker(&root, 1, None);
    let refused = |machine: &Machine, words: &[&str], status: i32, said: &str| {
        let output = command(machine, &root, words).output().unwrap();
        let text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    };
    refused(&Machine::small("steer-none"), &["--cpus", "0", "--policy", "fixed:1GHz"], 3, "no frequency policy");
    refused(&machine, &[], 2, "no CPUs are given");
    refused(&machine, &["--cpus", "0"], 2, "none of --instance, --watch and --branches is given");
    refused(&machine, &["--cpus", "9", "--policy", "fixed:1GHz"], 2, "no frequency policy of this host includes it");
    refused(&machine, &["--cpus", "0", "--policy", "fixed:9GHz"], 2, "CPUs 0 run at 800MHz to 3GHz");
    refused(&machine, &["--cpus", "0", "--watch", "nosuch0"], 3, "cannot watch nosuch0");
    refused(&machine, &["--cpus", "0", "--watch", "lo", "--goal", "p99=50us"], 2, "the latency is not measured");
    refused(&machine, &["--cpus", "0", "--watch", "lo", "--policy", "l3fwd-power"], 2, "number of polls");
    refused(
        &machine,
        &["--cpus", "0-1", "--watch", "lo", "--watch", "lo", "--watch", "lo"],
        2,
        "given 3 times for 2 CPUs",
    );
    refused(&machine, &["--cpus", "0", "--branches", "/nonexistent"], 2, "make the file with apus power learn");
    refused(&machine, &["--cpus", "0", "--branches", "0.03%", "--policy", "two-level"], 2, "counts packets");
    refused(&machine, &["--instance", "nobody"], 2, "no instance of this name");
    refused(&machine, &["--instance", "edge", "--cpus", "0"], 2, "no worker of edge is pinned to it");
    refused(
        &machine,
        &["--cpus", "0", "--policy", "fixed:1GHz", "--via", "epp"],
        3,
        "no energy-performance preference",
    );
    // Nothing was changed by any of them, nor by a dry run.
    let output = command(&machine, &root, &["--instance", "edge", "--dry-run", "--duration", "1s"]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("Nothing was changed"), "{output:?}");
    let begin = "only shows what it would request for CPU 1 (edge/1), with the policy goal and the goal busy=80%; prints a line";
    assert!(text(&output.stderr).contains(begin), "{}", text(&output.stderr));
    assert_eq!(machine.read(&format!("{POLICY}1/scaling_governor")), "performance\n");
}

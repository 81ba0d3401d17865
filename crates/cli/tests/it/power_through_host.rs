//! A guest's `apus power steer --through-host`, and its host's `apus power serve`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use live::telemetry::Telemetry;
use rustix::process::Signal;
use serde_json::Value as Json;
use units::Nanos;

use crate::guests::Host;
use crate::power_steer::worker;
use crate::schemas::validate;
use crate::support::{Root, Running, bare, text};
use crate::tune::{expect, wait};

/// A guest with the vCPUs 0 and 1 on the host's CPUs of the same numbers.
struct Guest {
    host: Host,
    root: Root,
}

impl Guest {
    fn new(name: &str, more: &str) -> Self {
        let (host, root) = (Host::new(name), Root::new());
        host.manifest("vm1", &format!("pinning = \"manifest\"\n{more}"), "0 = 0\n1 = 1");
        Self { host, root }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
        command.args(["power", "steer", "--through-host", &self.host.path("vm1.0"), "--root"]).arg(&self.root.0);
        command.arg("--telemetry").arg(&self.root.0).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The frequency of a vCPU in force, as the running command publishes it.
    fn shown(&self, vcpu: usize) -> Option<u64> {
        let folder = self.root.0.join("run/apus/steer").display().to_string();
        let output = bare(&["power", "steer", "status", "--json", "--steering", &folder]);
        let document: Json = serde_json::from_slice(&output.stdout).ok()?;
        document["instances"][0]["document"]["cpus"][vcpu]["frequency_hz"].as_u64()
    }

    /// Waits for the host's channel, and steers.
    fn steer(&self, words: &[&str]) -> Running {
        drop(self.host.connect("vm1.0"));
        Running(self.command(words).spawn().unwrap())
    }
}

/// What the command printed to its end, and its exit status.
fn ended(mut running: Running) -> (Option<i32>, String, String) {
    let child = std::mem::replace(&mut running.0, Command::new("true").spawn().unwrap());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

/// Lets the worker be busy all the time until `so`.
fn busy_until(worker: &Telemetry, what: &str, so: impl Fn() -> bool) {
    let (begun, mut told) = (Instant::now(), Duration::ZERO);
    while !so() {
        let now = begun.elapsed();
        assert!(now < Duration::from_secs(60), "waited in vain for {what}");
        worker.useful(Nanos::from_nanos((now - told).as_nanos() as u64));
        told = now;
        worker.received(1, 64);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_guest_steers_its_cores_through_the_host() {
    let guest = Guest::new("through", "max_frequency = \"2.6GHz\"\nforget_after = \"1s\"");
    let host = &guest.host;
    let serving = host.serve();
    let (_idle, busy) = (worker(&guest.root, 0, None), worker(&guest.root, 1, None));
    let steering = guest.steer(&["--instance", "edge", "--json", "--idle-latency", "20us"]);
    wait("the lowest frequency of the idle core", || host.is_fixed(0, "800000"));
    assert_eq!(host.machine.read("sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us"), "20\n");
    let is_high = || host.is_fixed(1, "2600000") && guest.shown(1) == Some(2_600_000_000);
    busy_until(&busy, "the highest that the manifest allows", is_high);
    assert!(host.is_free(2));
    wait("the idle core's answer", || guest.shown(0) == Some(800_000_000));
    steering.signal(Signal::INT);
    let (code, said, errors) = ended(steering);
    assert_eq!(code, Some(0), "{errors}");
    let document: Json = serde_json::from_str(&said).unwrap();
    validate(&document);
    assert_eq!((&document["restored"], &document["domains"][1]["via"]), (&true.into(), &"host".into()));
    let (low, high) = (&document["cpus"][0], &document["cpus"][1]);
    assert_eq!((&low["frequency_hz"], &low["ceiling_hz"]), (&800_000_000.into(), &2_600_000_000_u64.into()));
    assert_eq!((&low["idle_limit_ns"], &high["trouble"]), (&20_000.into(), &Json::Null), "{document:#}");
    assert!(host.is_free(0) && host.is_free(1));
    assert_eq!(host.machine.read("sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us"), "0\n");
    // What a killed guest has requested ends with its channel.
    let mut killed = guest.steer(&["--instance", "edge"]);
    wait("the lowest frequency", || host.is_fixed(0, "800000"));
    killed.0.kill().unwrap();
    wait("the host's limits", || host.is_free(0));
    // A dry run requests nothing, although it would.
    let dry = guest.steer(&["--instance", "edge", "--dry-run", "--duration", "2s", "--json"]);
    let (code, said, errors) = ended(dry);
    let document: Json = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &document["cpus"][0]["frequency_hz"]), (Some(0), &800_000_000.into()), "{errors}");
    assert!(host.is_free(0) && document["restored"].is_null());
    host.end(serving);
}

#[test]
fn a_start_that_fails_leaves_no_request_behind() {
    let guest = Guest::new("through-fails", "");
    let serving = guest.host.serve();
    drop(guest.host.connect("vm1.0"));
    let words = ["--cpus", "0-1", "--policy", "fixed:9GHz", "--idle-latency", "20us"];
    let said = expect(&guest.command(&words).output().unwrap(), 2);
    assert!(said.contains("cannot use the frequency 9GHz"), "{said}");
    for cpu in 0..2 {
        let limit = format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
        assert_eq!(guest.host.machine.read(&limit).trim(), "0");
    }
    guest.host.end(serving);
}

#[test]
fn what_a_host_does_not_allow_is_said_and_its_end_is_noticed() {
    let guest = Guest::new("through-refused", "query = false");
    let said = expect(&guest.command(&["--cpus", "0", "--policy", "fixed:1.8GHz"]).output().unwrap(), 3);
    assert!(said.contains("cannot open the port"), "{said}");
    let serving = guest.host.serve();
    drop(guest.host.connect("vm1.0"));
    let refused = |words: &[&str]| expect(&guest.command(words).output().unwrap(), 3);
    let said = refused(&["--cpus", "0", "--policy", "fixed:1.8GHz"]);
    assert!(said.contains("which frequencies the guest may request") && said.contains("query = true"), "{said}");
    let said = refused(&["--cpus", "7", "--policy", "fixed:1.8GHz"]);
    assert!(said.contains("cannot control vCPU 7") && said.contains("the manifest has no vCPU 7"), "{said}");
    guest.host.end(serving);
    let guest = Guest::new("through-ends", "");
    let mut serving = guest.host.serve();
    let limit = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
    let steering = guest.steer(&["--cpus", "1", "--policy", "fixed:1.8GHz", "--json", "--idle-latency", "20us"]);
    wait("the frequency", || guest.host.is_fixed(1, "1800000"));
    assert_eq!(serving.end(Signal::TERM), Some(0));
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!((guest.host.is_free(1), guest.host.machine.read(limit).trim()), (true, "0"));
    // The requests are repeated to the next server.
    let mut serving = guest.host.serve();
    wait("the frequency again", || guest.host.is_fixed(1, "1800000"));
    wait("the idle limit again", || guest.host.machine.read(limit).trim() == "20");
    assert_eq!(serving.end(Signal::TERM), Some(0));
    std::thread::sleep(Duration::from_millis(2_500));
    steering.signal(Signal::TERM);
    let (code, said, errors) = ended(steering);
    let document: Json = serde_json::from_str(&said).unwrap();
    validate(&document);
    assert_eq!((code, &document["restored"]), (Some(1), &false.into()), "{errors}");
    let trouble = document["cpus"][0]["trouble"].as_str().unwrap_or_else(|| panic!("{document:#}\n{errors}"));
    assert!(trouble.contains("the channel to the host fails"), "{trouble}");
}

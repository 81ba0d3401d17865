//! `apus power watch`, and the energy in results: generated trees of meters, this machine's answer, the unit.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Running, bare, text};

/// A host with two packages, below a folder that is removed at the end.
struct Host(PathBuf);

impl Host {
    fn new(name: &str) -> Self {
        let host = Self(std::env::temp_dir().join(format!("apus-watch-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&host.0);
        host.put("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel\t\t: 106\n");
        host.put("sys/devices/system/cpu/online", "0-1\n");
        host.put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
        for (zone, name) in [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram"), ("intel-rapl:1", "package-1")] {
            host.zone(zone, "name", name);
            host.zone(zone, "energy_uj", "1000");
            host.zone(zone, "max_energy_range_uj", "262143328850");
        }
        host
    }

    /// Writes into the existing file, because Apus keeps the files of energy counters open.
    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn zone(&self, zone: &str, file: &str, text: &str) {
        self.put(&format!("sys/class/powercap/{zone}/{file}"), &format!("{text}\n"));
    }

    fn watch(&self, words: &[&str]) -> Output {
        let root = self.0.to_str().unwrap();
        bare(&[&["power", "watch", "--root", root][..], words].concat())
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.watch(&[&["--json"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        document
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn meters_below_a_root_are_shown_summed_and_said() {
    let host = Host::new("sum");
    let document = host.json(&["--interval", "20ms"]);
    let measured = &document["energy"]["measured"]["value"];
    assert_eq!(measured["meter"], "package-0 + package-1 + package-0 dram");
    assert_eq!((&measured["energy_uj"], &measured["power_uw"]), (&0.into(), &0.into()), "nothing was counted");
    assert_eq!(measured["resolution_nj"], 3 * 61_035);
    let meters = document["energy"]["meters"].as_array().unwrap();
    assert!(meters.iter().all(|meter| meter["counted"] == true && meter["interface"] == "powercap"), "{meters:#?}");
    assert_eq!(document["asked"]["idle_driver"]["value"], "intel_idle");
    assert!(document["cores"][1]["idle_states"]["unknown_because"].is_string(), "no cpuidle below this root");
    let table = host.watch(&["--interval", "20ms", "--duration", "60ms"]);
    let table = text(&table.stdout);
    assert!(table.contains("power     0.000 W (package-0 + package-1 + package-0 dram)"), "{table}");
    // A machine that stalls makes an interval longer, and so their number smaller.
    let tables = table.matches("power  ").count();
    assert!((1..=3).contains(&tables), "at most one table an interval: {table}");
}

/// Every counter goes round while it is watched.
#[test]
fn a_counter_that_wraps_around_is_energy_and_not_a_jump() {
    let host = Host::new("wrap");
    host.zone("intel-rapl:1", "energy_uj", "262143328000");
    let mut child = Command::new(env!("CARGO_BIN_EXE_apus"));
    child.args(["power", "watch", "--json", "--duration", "60s", "--root"]).arg(&host.0).stdout(Stdio::piped());
    let mut running = Running(child.spawn().unwrap());
    // The counters are open once the process waits for its next reading.
    let open = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", running.0.id())).unwrap();
        let open = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).filter(|file| file.ends_with("energy_uj"));
        open.count() == 3 && fs::read_to_string(format!("/proc/{}/stat", running.0.id())).unwrap().contains(") S ")
    };
    crate::run::wait_for("the meters", open);
    host.zone("intel-rapl:1", "energy_uj", "9999088");
    assert_eq!(running.end(Signal::INT), Some(0));
    let mut said = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let document: Value = serde_json::from_str(&said).unwrap();
    validate(&document);
    // 850 uJ to the end of the range, one step of 62 uJ to 0, and 9,999,088 uJ on.
    assert_eq!(document["energy"]["measured"]["value"]["energy_uj"], 10_000_000);
}

#[test]
fn what_may_not_be_read_is_said_with_its_file() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("to become somebody who may not read needs root");
        return;
    }
    let host = Host::new("denied");
    let file = host.0.join("sys/class/powercap/intel-rapl:1/energy_uj");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    let copy = host.0.join("apus");
    testkit::put_program(env!("CARGO_BIN_EXE_apus").as_ref(), &copy);
    let ids = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command.args(ids).arg(&copy).args(["power", "watch", "--json", "--interval", "20ms", "--root"]).arg(&host.0);
    let output = command.output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(document["energy"]["measured"]["value"]["meter"], "package-0 + package-0 dram");
    let lacks = document["lacks"].to_string();
    assert!(lacks.contains("intel-rapl:1/energy_uj") && lacks.contains("no permission to read it"), "{lacks}");
}

/// This machine's answer: a figure, or why there is none; and never a zero instead.
#[test]
fn this_machine_has_a_figure_or_a_reason_in_each_result() {
    let checks: [(&[&str], &str); 3] = [
        (&["power", "watch", "--json", "--interval", "20ms"], "/energy"),
        (&["run", "drop", "memory:64,frames=1000", "--json", "--machine", "xeon-gold-6338n"], "/energy"),
        (&["probe", "jitter", "--duration", "20ms", "--json"], "/energy"),
    ];
    for (words, place) in checks {
        let output = bare(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        let measured = &document.pointer(place).unwrap()["measured"];
        let why = measured["unknown_because"].as_str();
        assert_ne!(measured["value"].is_object(), why.is_some(), "{words:?}: {measured:#}");
        assert!(why.is_none_or(|why| why.contains("meter")), "{words:?}: {measured:#}");
        if words[0] == "run" {
            let energy = &document["energy"];
            assert_eq!(energy["frames"], 1_000);
            assert!(energy["cpu_ns"]["value"].as_u64().is_some_and(|ns| ns > 0), "{energy:#}");
            let modelled = &energy["modelled"]["value"];
            assert_eq!(modelled["machine"], "xeon-gold-6338n");
            assert!(modelled["energy_per_frame_nj"].as_f64().is_some_and(|nj| nj > 0.0), "{energy:#}");
        }
    }
    let wrong = bare(&["run", "drop", "memory:64,frames=10", "--machine", "abacus"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("xeon-gold-6338n"), "{}", text(&wrong.stderr));
}

/// Watching must cost less than it shows: CPU time by the kernel, over enough time that it counts.
#[test]
fn watching_costs_less_than_half_a_percent_of_a_core() {
    let host = Host::new("cost");
    for cpu in 0..2 {
        for state in 0..4 {
            let state = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}");
            for (file, value) in [("name", "C1\n"), ("usage", "7\n"), ("time", "9\n")] {
                host.put(&format!("{state}/{file}"), value);
            }
        }
    }
    let document = host.json(&["--interval", "100ms", "--duration", "3s"]);
    // Ten times as often as the default, so ten times the bound. What is counted is this command's CPU time, which others
    // on the machine lengthen little.
    let percent = document["own_cpu_percent"]["value"].as_f64().unwrap();
    assert!(percent < 5.0, "{percent} % at ten readings a second");
}

/// The unit, as it is installed, without its comments.
fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/apus-power-watch.service.in");
    let unit = fs::read_to_string(path).unwrap();
    unit.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

fn setting<'a>(unit: &'a str, key: &str) -> &'a str {
    unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn the_unit_is_valid_and_runs_a_command_that_there_is() {
    use clap::CommandFactory as _;
    let unit = unit();
    let options = setting(&unit, "Environment").strip_prefix("OPTIONS=").unwrap().trim_matches('"');
    let command = setting(&unit, "ExecStart").strip_prefix("@bindir@/").unwrap().replace("$OPTIONS", options);
    let parsed = ::apus::args::Args::command().try_get_matches_from(command.split(' '));
    assert!(parsed.is_ok(), "{command}: {parsed:?}");
    let host = Host::new("unit");
    let path = host.0.join("apus-power-watch.service");
    let whole =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/apus-power-watch.service.in"));
    let bin = Path::new(env!("CARGO_BIN_EXE_apus")).parent().unwrap();
    fs::write(&path, whole.unwrap().replace("@bindir@", bin.to_str().unwrap())).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() {
        Ok(output) => {
            let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(output.status.success() && said.is_empty(), "{said}");
        }
        Err(_) => testkit::skip("systemd-analyze (apt-get install systemd)"),
    }
}

/// With no more capabilities than the unit grants, as another user: meters that are for root alone are read, and no
/// capability is left when it answers.
#[test]
fn the_service_needs_only_what_the_unit_grants_and_keeps_nothing() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("to become another user with two capabilities needs root");
        return;
    }
    let host = Host::new("service");
    for zone in ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"] {
        let file = host.0.join(format!("sys/class/powercap/{zone}/energy_uj"));
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    }
    let copy = host.0.join("apus");
    testkit::put_program(env!("CARGO_BIN_EXE_apus").as_ref(), &copy);
    let unit = unit();
    let granted = setting(&unit, "CapabilityBoundingSet").replace("CAP_", "+").to_lowercase().replace(' ', ",");
    assert_eq!(setting(&unit, "AmbientCapabilities"), setting(&unit, "CapabilityBoundingSet"));
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(format!("--bounding-set=-all,{granted}")).arg(format!("--inh-caps=-all,{granted}"));
    command.arg(format!("--ambient-caps=-all,{granted}")).arg(&copy);
    command.args(["power", "watch", "--listen", "127.0.0.1:0", "--root"]).arg(&host.0).stdout(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut out = std::io::BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let address = line.trim().strip_prefix("serving http://").and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
    host.zone("intel-rapl:0", "energy_uj", "2500001000");
    let scraped = scrape(&address);
    let expected = r#"apus_energy_joules_total{meter="package-0",interface="powercap",counted="true"} 2500.0"#;
    assert!(scraped.contains(expected), "{scraped}");
    assert!(scraped.contains("apus_energy_meters 3.0"), "{scraped}");
    let status = fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    for set in ["CapEff:", "CapPrm:", "CapAmb:"] {
        let held = status.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim();
        assert_eq!(held, "0000000000000000", "{set}");
    }
    assert_eq!(running.end(Signal::TERM), Some(0));
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

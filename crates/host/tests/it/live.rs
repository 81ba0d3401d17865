//! This machine: its facts agree with what the system says by other ways, as root and as nobody, and nothing
//! that is not there is said to be there.

use std::fs;
use std::process::Command;
use std::time::Instant;

use host::facts::{CpuSet, Facts, Kind, Os, Reading, Root, Why};
use units::Nanos;

#[test]
fn what_is_known_agrees_with_the_system() {
    let start = Instant::now();
    let facts = Facts::read(&Root::live());
    println!("read in {:?}", start.elapsed());
    assert_eq!((facts.origin.kind, facts.origin.os), (Kind::Live, Os::Linux));
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_eq!(facts.cpus.online.value(), Some(&CpuSet::parse_list(&online).unwrap()));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    assert_eq!(facts.kernel.release.value(), Some(&release));
    assert!(facts.link("lo").unwrap().mtu.get().is_some_and(|mtu| mtu >= 1500));
    let me = facts.tasks().find(|task| task.tid == std::process::id()).expect("this process");
    assert!(!me.kernel && me.affinity.is_known());
    assert!(facts.tasks().any(|task| task.kernel && task.no_setaffinity) || !has_kernel_threads());
    let text = format!("{facts:?}");
    assert!(!text.contains("Malformed"), "{}", &text[text.find("Malformed").unwrap_or(0)..][..200]);
    assert!(facts.freebsd.is_absent());
}

fn has_kernel_threads() -> bool {
    fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd")
}

#[test]
fn no_register_is_read_unless_asked_for() {
    let facts = Facts::read(&Root::live());
    assert_eq!(facts.msrs.of(0x34, 0).why(), Some(&Why::NotAsked));
    assert_eq!(facts.counters.smis.why(), Some(&Why::NotAsked));
    let asked = Facts::read_with(&Root::live(), Reading { msrs: true, ..Reading::default() });
    assert_ne!(asked.msrs.of(0x34, 0).why(), Some(&Why::NotAsked));
    assert!(asked.msrs.of(0x34, 0).is_known() || !std::path::Path::new("/dev/cpu/0/msr").exists());
}

/// CPUs that a user names are left alone like those of which the kernel knows.
#[test]
fn cpus_that_are_named_are_not_interrupted() {
    let online = Facts::read(&Root::live()).cpus.all();
    let Some(last) = online.iter().last().filter(|last| *last > 0) else {
        testkit::skip("this test needs two CPUs");
        return;
    };
    let reading = Reading { isolated: CpuSet::from([last]), ..Reading::default() };
    let facts = Facts::read_with(&Root::live(), reading);
    assert_eq!(facts.cpus.cpu(last).unwrap().energy_perf_bias.why(), Some(&Why::NotAsked));
    let asked = Reading { msrs: true, isolated: CpuSet::from([last]), ..Reading::default() };
    let facts = Facts::read_with(&Root::live(), asked);
    assert_ne!(facts.cpus.cpu(last).unwrap().energy_perf_bias.why(), Some(&Why::NotAsked));
}

#[test]
fn two_readings_give_rates() {
    let reading = Reading { interval: Some(Nanos::from_millis(120)), ..Reading::default() };
    let facts = Facts::read_with(&Root::live(), reading);
    let interval = facts.interval.value().expect("two readings");
    assert!(interval.length >= Nanos::from_millis(100), "{:?}", interval.length);
    let interrupts = interval.change.interrupts.value().unwrap();
    let sum: u64 = interrupts.rows.iter().map(|row| row.total()).sum();
    assert!(sum > 0, "no interrupt at all in {:?}", interval.length);
    assert!(interval.change.cpu_times.value().is_some_and(|times| !times.is_empty()));
}

/// As nobody, the same code reads the same host: what is not permitted is said to be so, and nothing that
/// root sees is said to be absent.
#[test]
fn as_nobody_less_is_known_and_nothing_is_false() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("only root can become nobody");
        return;
    }
    let test = std::env::current_exe().unwrap();
    let copy = crate::support::Scratch::new();
    let program = copy.join("test");
    testkit::put_program(&test, &program);
    fs::set_permissions(copy.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "live::said_by_nobody", "--nocapture", "--ignored"])
        .output()
        .expect("setpriv of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let root = absences(&Facts::read(&Root::live()));
    let nobody: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("absent: ")).collect();
    assert!(said.contains("nobody is 65534"), "{said}");
    for place in nobody {
        assert!(root.iter().any(|known| known == place), "{place} is absent for nobody and not for root");
    }
}

#[test]
#[ignore = "is run as nobody by another test"]
fn said_by_nobody() {
    println!("nobody is {}", rustix::process::geteuid().as_raw());
    for place in absences(&Facts::read(&Root::live())) {
        println!("absent: {place}");
    }
}

/// The places that are said to be absent, apart from those of single threads, which come and go.
fn absences(facts: &Facts) -> Vec<String> {
    let text = format!("{facts:?}");
    let absent = text.split("Missing { why: Absent, source: Source(\"").skip(1);
    absent
        .filter_map(|rest| rest.split('"').next())
        .filter(|place| !place.starts_with("/proc/"))
        .map(str::to_owned)
        .collect()
}

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use serde_json::Value;
use tester::lab::{Guard, Lab};

use super::{OwnJournal, PutBack, expect, wait};
use crate::schemas::validate;
use crate::support::{text, turn};

/// A lab, and a journal of the test's own.
pub(super) struct Bed {
    lab: Guard,
    own: OwnJournal,
    _turn: MutexGuard<'static, ()>,
}

impl Bed {
    /// A pair of interfaces; `None`, with a printed line, without root.
    pub(super) fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            testkit::skip("needs root");
            return None;
        }
        let turn = turn();
        let own = OwnJournal::new(name);
        Some(Self { lab: pair(name), own, _turn: turn })
    }

    /// Runs in the lab's namespace, with its own /sys/class/net.
    pub(super) fn within(&self, program: &str, words: &[&str]) -> Output {
        self.own.within(&self.lab.namespace("dut"), program, words)
    }

    /// A program that is to be started in it.
    pub(super) fn command(&self, program: &str, words: &[&str]) -> std::process::Command {
        self.own.command(&self.lab.namespace("dut"), program, words)
    }

    pub(super) fn apus(&self, words: &[&str]) -> Output {
        self.within(env!("CARGO_BIN_EXE_apus"), words)
    }

    pub(super) fn json(&self, words: &[&str]) -> (Option<i32>, Value) {
        document(&self.apus(&[words, &["--json"]].concat()))
    }
}

fn pair(name: &str) -> Guard {
    Lab::pair(&format!("{name}{}", std::process::id())).up().unwrap()
}

/// Exit status and document, which is what its schema says.
fn document(output: &Output) -> (Option<i32>, Value) {
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    validate(&document);
    (output.status.code(), document)
}

/// A profile in a file of its own, removed on drop.
pub(super) struct Profile(PathBuf);

impl Profile {
    pub(super) fn new(name: &str, keys: &str) -> Self {
        Self::with(name, "test", keys)
    }

    pub(super) fn with(name: &str, summary: &str, keys: &str) -> Self {
        let path = std::env::temp_dir().join(format!("apus-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, format!("summary = {}\n{keys}", toml::Value::from(summary))).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Places whose files the profiles touch.
const PLACES: [&str; 6] = [
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/irq",
    "/sys/devices/virtual/workqueue",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/kernel/mm/ksm",
];

pub(super) type State = BTreeMap<PathBuf, Vec<u8>>;

/// Every file of the running kernel that can be written, in the places that the profiles touch; and what the namespace
/// shows of its interfaces and sysctls.
fn state(bed: &Bed) -> State {
    let mut state = State::new();
    let mut folders: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && entry.metadata().is_ok_and(|file| file.permissions().mode() & 0o222 != 0)
                && let Ok(octets) = std::fs::read(&path)
            {
                state.insert(path, octets);
            }
        }
    }
    for (program, words) in [
        ("sysctl", &["-a", "--pattern", "^net\\."][..]),
        ("ethtool", &["-k", "dut0"]),
        ("ethtool", &["-l", "dut0"]),
        ("ip", &["-d", "link", "show", "dut0"]),
    ] {
        let output = bed.within(program, words);
        state.insert(Path::new(program).join(words.join(" ")), output.stdout);
    }
    state
}

/// Files whose content changes by itself: found by looking twice.
pub(super) fn steady(bed: &Bed) -> State {
    let first = state(bed);
    std::thread::sleep(Duration::from_millis(300));
    let second = state(bed);
    first.into_iter().filter(|(path, octets)| second.get(path) == Some(octets)).collect()
}

pub(super) fn differences(before: &State, bed: &Bed) -> Vec<String> {
    let after = state(bed);
    let differs = before.iter().filter(|(path, octets)| after.get(*path) != Some(octets));
    let show = |octets: Option<&Vec<u8>>| octets.map(|octets| String::from_utf8_lossy(octets).into_owned());
    differs
        .map(|(path, octets)| format!("{}: {:?} -> {:?}", path.display(), show(Some(octets)), show(after.get(path))))
        .collect()
}

/// What NAPI says, through the plan that asks for it.
fn napi(bed: &Bed) -> Value {
    let (_, plan) = bed.json(&["tune", "plan", "powersave", "--interface", "dut0"]);
    let items = plan["items"].as_array().unwrap();
    items
        .iter()
        .filter(|item| item["setting"].as_str().unwrap().starts_with("NAPI"))
        .map(|item| item["now"].clone())
        .collect()
}

#[test]
fn every_profile_there_and_back() {
    let Some(bed) = Bed::new("tune") else { return };
    expect(&bed.within("ethtool", &["-K", "dut0", "gro", "on"]), 0);
    expect(&bed.apus(&["tune", "status"]), 0);
    for profile in ["poll", "interrupt", "kvm-host", "powersave"] {
        let before = steady(&bed);
        let napi_before = napi(&bed);
        assert!(before.len() > 150, "{} files", before.len());
        let mut words = vec!["tune", "apply", profile, "--yes", "--interface", "dut0"];
        if profile == "poll" || profile == "kvm-host" {
            words.extend(["--isolated", "1"]);
        }
        let (code, applied) = bed.json(&words);
        assert!(applied["transaction"].is_number(), "{profile}: {applied}");
        let became = |word: &str| {
            let items = applied["items"].as_array().unwrap().iter();
            items
                .filter(|item| item["became"] == word)
                .map(|item| item["setting"].as_str().unwrap())
                .collect::<Vec<_>>()
        };
        println!(
            "{profile}: {} changed, not there: {:?}, refused: {:?}",
            became("changed").len(),
            became("not_there"),
            became("refused")
        );
        // What is not there is no failure; what is refused is one.
        assert_eq!(code, Some(i32::from(!became("refused").is_empty())), "{profile}: {applied}");
        assert!(became("otherwise").is_empty(), "{profile}: {applied}");
        assert!(became("changed").len() >= 3, "{profile}: {applied}");
        assert_ne!(differences(&before, &bed), Vec::<String>::new(), "{profile} changed something");
        let verified = bed.apus(&["tune", "verify"]);
        expect(&verified, i32::from(!became("refused").is_empty()));
        expect(&bed.apus(&["tune", "rollback"]), 0);
        assert_eq!(differences(&before, &bed), Vec::<String>::new(), "{profile} is taken back");
        assert_eq!(napi(&bed), napi_before, "{profile}");
    }
}

#[test]
fn the_held_request_holds_and_goes() {
    use host::knob::{Access, DmaLatency};
    if !Path::new("/dev/cpu_dma_latency").exists() {
        testkit::skip("needs /dev/cpu_dma_latency");
        return;
    }
    let Some(bed) = Bed::new("hold") else { return };
    let access = Access::live().unwrap();
    let before = DmaLatency::effective(&access).unwrap();
    let profile = Profile::new("hold", "[power]\nlatency = \"7us\"\n");
    expect(&bed.apus(&["tune", "apply", profile.path(), "--yes"]), 0);
    assert_eq!(DmaLatency::effective(&access).unwrap(), Some(units::Nanos::from_micros(7)));
    expect(&bed.apus(&["tune", "verify"]), 0);
    expect(&bed.apus(&["tune", "rollback"]), 0);
    assert_eq!(DmaLatency::effective(&access).unwrap(), before);
}

/// The files of the hierarchy of cpusets, version 1, with what can be read of them.
fn cpusets(root: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap().to_str().unwrap().starts_with("cpuset.") {
                let _ = found.insert(path.clone(), std::fs::read_to_string(path).unwrap_or_default());
            }
        }
    }
    found
}

/// Version 2 with its isolated partitions is for the VM lab: tests/vm, `devices`.
#[test]
fn a_cpuset_there_and_back() {
    use host::knob::{Access, cpuset_mount};
    let mount = cpuset_mount(&Access::live().unwrap()).unwrap().filter(|mount| !mount.v2);
    let Some(mount) = mount else {
        testkit::skip("no cpusets of version 1 here");
        return;
    };
    let Some(bed) = Bed::new("cpuset") else { return };
    let before = cpusets(&mount.path);
    let name = format!("apus-test-{}", std::process::id());
    let profile = Profile::new("cpuset", &format!("[cpuset]\nname = \"{name}\"\ncpus = \"1\"\n"));
    // In a namespace of its own /sys is another, without cpusets: that is no success.
    let elsewhere = bed.apus(&["tune", "apply", profile.path(), "--yes"]);
    expect(&elsewhere, 1);
    assert!(text(&elsewhere.stdout).contains("no cpuset controller"), "{}", text(&elsewhere.stdout));
    expect(&bed.own.outside(&["tune", "apply", profile.path(), "--yes"]), 0);
    let now = cpusets(&mount.path);
    let of = |file: &str| now.get(&Path::new(&mount.path).join(&name).join(file)).map(|text| text.trim());
    assert_eq!((of("cpuset.cpus"), of("cpuset.sched_load_balance")), (Some("1"), Some("0")), "{now:?}");
    expect(&bed.own.outside(&["tune", "verify"]), 0);
    expect(&bed.own.outside(&["tune", "rollback"]), 0);
    assert_eq!(cpusets(&mount.path), before);
}

/// What the tests below set of the whole machine, and to what: anything but what it is.
const OF_THE_MACHINE: &str = "/proc/sys/vm/stat_interval";

fn both_kinds(name: &str) -> (Profile, String) {
    let before = std::fs::read_to_string(OF_THE_MACHINE).unwrap();
    let other = before.trim().parse::<u32>().unwrap() + 1;
    let keys = format!("[sysctl]\n\"net.ipv4.tcp_fastopen\" = 3\n\"vm.stat_interval\" = {other}\n");
    (Profile::new(name, &keys), before)
}

#[test]
fn another_namespaces_settings_are_left_alone() {
    let Some(bed) = Bed::new("other") else { return };
    let (profile, before) = both_kinds("other");
    expect(&bed.apus(&["tune", "apply", profile.path(), "--yes"]), 0);
    let said = expect(&bed.own.outside(&["tune", "rollback"]), 3);
    assert!(said.contains("network namespace") && said.contains("ip netns exec"), "{said}");
    assert_ne!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before, "refused as a whole");
    // Seen from here, they are not judged; what is of the whole machine is.
    let said = expect(&bed.own.outside(&["tune", "verify"]), 0);
    assert!(said.contains("cannot be checked from here") && said.contains("1 of 1 settings"), "{said}");
    // It is in nobody's way: what was made here is taken back.
    let ours = Profile::new("ours", "[sysctl]\n\"vm.dirty_writeback_centisecs\" = 501\n");
    expect(&bed.own.outside(&["tune", "apply", ours.path(), "--yes"]), 0);
    let taken = bed.own.outside(&["tune", "rollback", "--json"]);
    let (code, taken) = document(&taken);
    assert_eq!((code, taken["transactions"].as_array().unwrap().len()), (Some(1), 2), "{taken}");
    assert_eq!(taken["transactions"][0]["items"][0]["outcome"], "restored", "{taken}");
    assert!(taken["transactions"][1]["left_alone"].as_str().unwrap().contains("network namespace"), "{taken}");
    expect(&bed.apus(&["tune", "rollback"]), 0);
    assert_eq!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before);
}

/// "0 of 0 settings have the wanted value" ended with status 0.
#[test]
fn settings_that_are_all_elsewhere_are_not_verified() {
    let Some(bed) = Bed::new("elsewhere") else { return };
    let profile = Profile::new("elsewhere", "[sysctl]\n\"net.ipv4.tcp_fastopen\" = 3\n");
    expect(&bed.apus(&["tune", "apply", profile.path(), "--yes"]), 0);
    expect(&bed.apus(&["tune", "verify"]), 0);
    let said = expect(&bed.own.outside(&["tune", "verify"]), 1);
    assert!(said.contains("cannot be checked from here"), "{said}");
    expect(&bed.apus(&["tune", "rollback"]), 0);
}

/// The next namespace gets the number of the one that is gone: its sysctls are not taken for the old one's.
#[test]
fn a_namespace_that_is_gone_holds_nothing_up() {
    let Some(mut bed) = Bed::new("gone") else { return };
    let (profile, before) = both_kinds("gone");
    for killed in [false, true] {
        expect(&bed.apus(&["tune", "apply", profile.path(), "--yes"]), 0);
        if killed {
            // As if it had been killed before it said that all is done.
            let path = bed.own.journal(1);
            let lines = std::fs::read_to_string(&path).unwrap();
            let kept = lines.trim_end().rfind('\n').unwrap();
            std::fs::write(&path, &lines[..=kept]).unwrap();
        }
        assert_ne!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before);
        // Its end, and then another of the same kind.
        let next = Lab::pair(&format!("next{}", std::process::id()));
        drop(bed.lab);
        bed.lab = next.up().unwrap();
        expect(&bed.within("sysctl", &["-w", "net.ipv4.tcp_fastopen=3"]), 0);
        // Mount namespaces that others make at this moment may hold a copy of its mount for a while.
        let end = Instant::now() + Duration::from_secs(60);
        let status = loop {
            let (code, status) = bed.json(&["tune", "status"]);
            assert_eq!(code, Some(i32::from(killed)), "{status}");
            if status["transactions"][0]["namespace_gone"] == true {
                break status;
            }
            assert!(Instant::now() < end, "{status}");
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(status["transactions"][0]["network_namespace"].is_string(), "{status}");
        let said = expect(&bed.apus(&["tune", "verify"]), i32::from(killed));
        assert!(said.contains("apus tune rollback 1 closes it"), "{said}");
        let fastopen = || text(&bed.within("sysctl", &["-n", "net.ipv4.tcp_fastopen"]).stdout).trim().to_owned();
        if killed {
            // Whoever changes something next ends it first.
            let none = Profile::new("none", "[sysctl]\n\"net.ipv4.tcp_fastopen\" = 2\n");
            let (code, applied) = bed.json(&["tune", "apply", none.path(), "--yes"]);
            assert_eq!((code, &applied["recovered"]), (Some(0), &serde_json::json!([1])), "{applied}");
            assert_eq!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before);
            expect(&bed.apus(&["tune", "rollback"]), 0);
        } else {
            let (code, document) = bed.json(&["tune", "rollback"]);
            assert_eq!((code, &document["transactions"][0]["closed"]), (Some(0), &true.into()), "{document}");
            let items = document["transactions"][0]["items"].as_array().unwrap().iter();
            let outcomes: Vec<_> =
                items.map(|item| (item["setting"].as_str().unwrap(), item["outcome"].as_str().unwrap())).collect();
            let expected =
                [("sysctl vm.stat_interval", "restored"), ("sysctl net.ipv4.tcp_fastopen", "namespace_gone")];
            assert_eq!(outcomes, expected);
        }
        assert_eq!(fastopen(), "3", "the new namespace's own value stays");
        assert_eq!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before);
        assert!(expect(&bed.apus(&["tune", "status"]), 0).contains("nothing is applied"));
    }
}

/// A container has the kernel's files read-only; a service may lack a capability: neither is called a success.
#[test]
fn read_only_and_not_permitted_are_told() {
    let Some(bed) = Bed::new("refused") else { return };
    let (sysctl, before) = both_kinds("refused");
    let features = Profile::new("features", "[network.dut0]\nfeatures = { rx-gro = false }\n");
    expect(&bed.within("ethtool", &["-K", "dut0", "gro", "on"]), 0);
    let features_before = bed.within("ethtool", &["-k", "dut0"]).stdout;
    let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec \"$0\" \"$@\"";
    let apus = env!("CARGO_BIN_EXE_apus");
    let said = expect(&bed.within("sh", &["-c", read_only, apus, "tune", "apply", sysctl.path(), "--yes"]), 1);
    assert!(said.contains("read-only") && said.contains("all changes were rolled back"), "{said}");
    assert_eq!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before);
    let words = ["--bounding-set=-net_admin", apus, "tune", "apply", features.path(), "--yes"];
    let said = expect(&bed.within("setpriv", &words), 1);
    assert!(said.contains("not permitted") && said.contains("missing capability"), "{said}");
    assert_eq!(bed.within("ethtool", &["-k", "dut0"]).stdout, features_before);
    // veth has no coalescing.
    let coalesce = Profile::new("coalesce", "[network.dut0]\ncoalesce = { rx-usecs = 5 }\n");
    let (code, applied) = bed.json(&["tune", "apply", coalesce.path(), "--yes"]);
    assert_eq!((code, &applied["items"][0]["became"]), (Some(1), &"not_there".into()), "{applied}");
    assert!(expect(&bed.apus(&["tune", "status"]), 0).contains("nothing is applied"));
}

#[test]
fn the_guardian_has_no_more_than_it_needs() {
    let Some(bed) = Bed::new("guardian") else { return };
    let (profile, before) = both_kinds("guardian");
    let (code, applied) = bed.json(&["tune", "apply", profile.path(), "--yes", "--for", "1h"]);
    assert_eq!(code, Some(0), "{applied}");
    let path = bed.own.journal(1);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let journal = std::fs::read_to_string(&path).unwrap();
    let pid = journal.split("\"pid\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
    let word = |name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    // A sysctl of the network needs CAP_NET_ADMIN, number 12 (capabilities(7)).
    const NET_ADMIN: &str = "0000000000001000";
    let end = Instant::now() + Duration::from_secs(20);
    while word("NoNewPrivs:") != "1" {
        assert!(Instant::now() < end, "it gives up nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        ["CapEff:", "CapPrm:", "CapBnd:", "CapAmb:"].map(word),
        [NET_ADMIN, NET_ADMIN, NET_ADMIN, "0000000000000000"]
    );
    // With that it takes back all of it.
    let guardian = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::TERM).unwrap();
    while !expect(&bed.apus(&["tune", "status"]), 0).contains("nothing is applied") {
        assert!(Instant::now() < end, "it takes nothing back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(std::fs::read_to_string(OF_THE_MACHINE).unwrap(), before);
}

#[test]
fn what_appears_later_is_followed() {
    use crate::support::Running;
    let Some(bed) = Bed::new("follow") else { return };
    let keys = "[network.\"new*\"]\nfeatures = { rx-gro = \"off\" }\n[threads.\"apus-sleeper*\"]\nclass = \"batch 3\"\n\
                [sysctl]\n\"net.core.somaxconn\" = 333\n";
    let profile = Profile::new("follow", keys);
    let words = ["tune", "follow", profile.path(), "--every", "50ms"];
    let mut follow =
        Running(bed.command(env!("CARGO_BIN_EXE_apus"), &words).stdout(std::process::Stdio::null()).spawn().unwrap());
    let somaxconn = || text(&bed.within("sysctl", &["-n", "net.core.somaxconn"]).stdout).trim().to_owned();
    let gro = |name: &str| text(&bed.within("ethtool", &["-k", name]).stdout).contains("generic-receive-offload: on");
    wait("what is there is set", || somaxconn() == "333");
    expect(&bed.within("ip", &["link", "add", "new0", "type", "veth", "peer", "name", "other0"]), 0);
    expect(&bed.within("ethtool", &["-K", "other0", "gro", "on"]), 0);
    let sleeper = std::env::temp_dir().join(format!("apus-sleeper-{}", std::process::id()));
    testkit::put_program("/bin/sleep".as_ref(), &sleeper);
    let thread = Running(bed.command(sleeper.to_str().unwrap(), &["1000"]).spawn().unwrap());
    // BATCH with nice 3: proc(5), /proc/pid/stat, fields 41 (policy 3) and 19.
    let class_of = |process: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<String> = stat.rsplit(')').next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        (fields.get(38).cloned(), fields.get(16).cloned())
    };
    let class = || class_of(&thread.0.id().to_string());
    wait("the new thread is set", || class() == (Some("3".into()), Some("3".into())));
    wait("the new interface is set", || !gro("new0"));
    assert!(gro("other0"), "another one is not");
    follow.signal(rustix::process::Signal::TERM);
    assert!(follow.0.wait().unwrap().success());
    assert_ne!(somaxconn(), "333");
    // Its own, which it has from this process.
    assert_eq!(class(), class_of("self"));
    expect(&bed.apus(&["tune", "status"]), 0);
    std::fs::remove_file(sleeper).unwrap();
}

/// Before, it ended with the settings applied, and left them to the next transaction.
#[test]
fn what_cannot_be_told_is_not_followed() {
    let Some(bed) = Bed::new("untold") else { return };
    let somaxconn = || text(&bed.within("sysctl", &["-n", "net.core.somaxconn"]).stdout).trim().to_owned();
    let before = somaxconn();
    let profile = Profile::new("untold", "[sysctl]\n\"net.core.somaxconn\" = 333\n");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let words = ["tune", "follow", profile.path()];
    let output = bed.command(env!("CARGO_BIN_EXE_apus"), &words).stdout(full).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(somaxconn(), before);
    assert!(expect(&bed.apus(&["tune", "status"]), 0).contains("nothing is applied"));
}

/// A port that was renamed gets its settings back; another one that has its name now keeps its own.
#[test]
fn a_renamed_port_is_not_mistaken() {
    let Some(bed) = Bed::new("renamed") else { return };
    let ip = |words: &str| expect(&bed.within("ip", &words.split(' ').collect::<Vec<_>>()), 0);
    let shell = |script: &str| text(&bed.within("sh", &["-c", script]).stdout).to_owned();
    let state = |name: &str| {
        shell(&format!(
            "cat /sys/class/net/{name}/queues/rx-0/rps_cpus /proc/sys/net/ipv4/conf/{name}/rp_filter; \
             ethtool -k {name} | grep ^tcp-segmentation"
        ))
    };
    let profile = Profile::new(
        "renamed",
        "[network.dut0]\nrps_cpus = \"1\"\nfeatures = { tx-tcp-segmentation = \"off\", tx-tcp6-segmentation = \"off\", \
         tx-tcp-ecn-segmentation = \"off\", tx-tcp-mangleid-segmentation = \"off\" }\n[sysctl]\n\
         \"net.ipv4.conf.dut0.rp_filter\" = 2\n",
    );
    let before = state("dut0");
    expect(&bed.apus(&["tune", "apply", profile.path(), "--yes"]), 0);
    let changed = state("dut0");
    assert_ne!(changed, before);
    ip("link set dut0 down");
    ip("link set dut0 name lan0");
    ip("link add dut0 type veth peer name dut1");
    shell(
        "echo 2 >/sys/class/net/dut0/queues/rx-0/rps_cpus; echo 2 >/proc/sys/net/ipv4/conf/dut0/rp_filter; \
         ethtool -K dut0 tso off",
    );
    let namesake = state("dut0");
    let said = expect(&bed.apus(&["tune", "rollback"]), 0);
    assert_eq!((state("lan0"), state("dut0")), (before, namesake), "{said}");
}

/// net/core/dev.c: a device's value becomes that of all its NAPIs, and does not go back with it.
#[test]
fn napi_settings_come_back_with_the_devices() {
    let Some(bed) = Bed::new("napis") else { return };
    expect(&bed.within("ethtool", &["-K", "dut0", "gro", "on"]), 0);
    let own = Profile::new("own", "[network.dut0]\nnapi = { defer-hard-irqs = 3, gro-flush-timeout = 40000 }\n");
    expect(&bed.apus(&["tune", "apply", own.path(), "--yes"]), 0);
    let before = napi(&bed);
    let device = Profile::new("device", "[sysfs]\n\"/sys/class/net/dut0/gro_flush_timeout\" = 20000\n");
    expect(&bed.apus(&["tune", "apply", device.path(), "--yes"]), 0);
    assert_ne!(napi(&bed), before, "it took them along");
    expect(&bed.apus(&["tune", "rollback", "2"]), 0);
    assert_eq!(napi(&bed), before);
    expect(&bed.apus(&["tune", "rollback"]), 0);
}

/// mm/khugepaged.c: what the administrator had chosen is raised when huge pages come back.
#[test]
fn free_memory_comes_back_with_transparent_huge_pages() {
    const FREE: &str = "/proc/sys/vm/min_free_kbytes";
    const PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !Path::new(PAGES).exists() {
        testkit::skip("a kernel with transparent huge pages");
        return;
    }
    let Some(bed) = Bed::new("thp") else { return };
    // In this order, as huge pages raise what is kept free. It goes before the bed, which lets others change the machine.
    let _put_back = PutBack::files(&[PAGES, FREE]);
    let chosen = |text: &str| text.split(['[', ']']).nth(1).unwrap().to_owned();
    std::fs::write(PAGES, "madvise").unwrap();
    std::fs::write(FREE, "30000").unwrap();
    let profile = Profile::new("thp", "[memory]\ntransparent_huge_pages = \"never\"\n");
    let applied = bed.own.outside(&["tune", "apply", profile.path(), "--yes"]);
    let rolled_back = bed.own.outside(&["tune", "rollback"]);
    let (free, now) = (std::fs::read_to_string(FREE).unwrap(), std::fs::read_to_string(PAGES).unwrap());
    expect(&applied, 0);
    expect(&rolled_back, 0);
    assert_eq!((free.trim(), chosen(&now).as_str()), ("30000", "madvise"));
}

/// A thread that has ended has no settings that could be restored, now or ever: the transaction ends.
#[test]
fn a_threads_transaction_ends_with_it() {
    let Some(bed) = Bed::new("threads") else { return };
    let name = format!("apus{}", std::process::id());
    let script = std::env::temp_dir().join(&name);
    testkit::put_program("/bin/sleep".as_ref(), &script);
    let mut child = std::process::Command::new(&script).arg("600").spawn().unwrap();
    std::fs::remove_file(&script).unwrap();
    let profile = Profile::new("threads", &format!("[threads.\"{name}\"]\nclass = \"batch 0\"\n"));
    let end = Instant::now() + Duration::from_secs(30);
    let applied = loop {
        let (_, applied) = bed.json(&["tune", "apply", profile.path(), "--yes"]);
        if applied["transaction"].is_number() || Instant::now() > end {
            break applied;
        }
    };
    assert_eq!(applied["items"][0]["became"], "changed", "{applied}");
    expect(&bed.apus(&["tune", "verify"]), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = expect(&bed.apus(&["tune", "verify"]), 0);
    assert!(said.contains("ended with their thread: 1"), "{said}");
    let said = expect(&bed.apus(&["tune", "rollback"]), 0);
    assert!(said.contains("its thread has ended"), "{said}");
    assert!(expect(&bed.apus(&["tune", "status"]), 0).contains("nothing is applied"));
}

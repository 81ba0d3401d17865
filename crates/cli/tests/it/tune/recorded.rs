use std::path::Path;
use std::process::Command;

use super::{Machine, expect};
use crate::support::{bare, text};

/// A recorded host, unpacked; `None`, with a printed line, where they are not to be had.
fn recorded(host: &str) -> Option<Machine> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../shared/hosts/{host}.tar.gz"));
    if !archive.is_file() {
        testkit::skip(format!("there is no {}", archive.display()));
        return None;
    }
    let machine = Machine::for_a_recording(host);
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&machine.0).status().unwrap();
    assert!(status.success());
    Some(machine)
}

#[test]
fn the_guides_examples_to_the_octet() {
    let Some(machine) = recorded("icx2s0") else { return };
    let before = machine.files();
    let (hwp, uncore) = (machine.read("msr/0x774"), machine.read("msr/0x620"));
    let words = ["power", "set", "--cpu", "21", "--frequency", "800MHz", "--via", "hwp", "--uncore", "2.1GHz"];
    let (code, document) = machine.json(&words);
    assert_eq!((code, &document["items"][0]["became"]), (Some(0), &"changed".into()), "{document}");
    // Intel P-state guide (637284-001US): wrmsr -p 21 0x774 0x0808, and wrmsr -a 0x620 0x1515.
    assert_eq!(machine.read("msr/0x774"), hwp.replace("\n21 0x80002308\n", "\n21 0x80000808\n"));
    assert_eq!(machine.read("msr/0x620"), uncore.replace("0x818", "0x1515"));
    assert_ne!(machine.files(), before);
    expect(&machine.apus(&["tune", "rollback"]), 0);
    assert_eq!(machine.files(), before);
}

#[test]
fn frequencies_by_the_kernels_limits() {
    let Some(machine) = recorded("icx2s0") else { return };
    let before = machine.files();
    let words = ["power", "set", "--cpu", "21,22", "--frequency", "800MHz", "--via", "cpufreq", "--uncore", "2.1GHz"];
    let (code, document) = machine.json(&words);
    assert_eq!(code, Some(0), "{document}");
    let policy = "sys/devices/system/cpu/cpufreq/policy21";
    assert_eq!(machine.read(&format!("{policy}/scaling_max_freq")), "800000\n");
    let domain = "sys/devices/system/cpu/intel_uncore_frequency/package_01_die_01";
    assert_eq!(machine.read(&format!("{domain}/min_freq_khz")), "2100000\n");
    expect(&machine.apus(&["tune", "rollback"]), 0);
    assert_eq!(machine.files(), before);
}

#[test]
fn what_a_host_cannot_do_is_an_error_with_a_remedy() {
    let Some(machine) = recorded("icx2s0") else { return };
    let before = machine.files();
    let set = |words: &[&str]| machine.apus(&[&["power", "set"], words].concat());
    let said = expect(&set(&["--cpu", "21", "--frequency", "5GHz", "--via", "hwp"]), 1);
    assert!(said.contains("8 to 35"), "{said}");
    let said = expect(&set(&["--cpu", "200", "--frequency", "800MHz", "--via", "hwp"]), 3);
    assert!(said.contains("CPU 200"), "{said}");
    let said = expect(&set(&["--cpu", "200", "--frequency", "800MHz"]), 3);
    assert!(said.contains("no cpufreq"), "{said}");
    let said = expect(&set(&["--cpu", "21", "--frequency", "850MHz", "--via", "hwp"]), 2);
    assert!(said.contains("100 MHz"), "{said}");
    expect(&set(&["--cpu", "21"]), 2);
    expect(&set(&["--cpu", "x", "--frequency", "800MHz"]), 2);
    assert_eq!(machine.files(), before);
}

#[test]
fn every_profile_on_every_recorded_host() {
    for host in ["skld0", "spr1", "rome0", "telco-worker1", "kvm-guest-sno"] {
        let Some(machine) = recorded(host) else { return };
        for profile in ["poll", "interrupt", "kvm-host", "powersave"] {
            let words = ["tune", "plan", profile, "--isolated", "2"];
            let (code, plan) = machine.json(&words);
            assert_eq!(code, Some(0), "{host}, {profile}: {plan}");
        }
        // The whole way there and back, on a smaller one.
        if host == "skld0" {
            let before = machine.files();
            let (code, applied) = machine.json(&["tune", "apply", "powersave", "--yes"]);
            assert_eq!(code, Some(0), "{host}: what it does not have is no failure: {applied}");
            expect(&machine.apus(&["tune", "rollback"]), 0);
            assert_eq!(machine.files(), before, "{host}");
        }
    }
}

#[test]
fn applied_shown_verified_and_taken_back() {
    let machine = Machine::small("way");
    let before = machine.files();
    let (_, plan) = machine.json(&["tune", "plan", "poll", "--isolated", "2-3"]);
    let changes = plan["items"].as_array().unwrap().iter().filter(|item| item["meets"] == "change").count();
    assert_eq!(changes, 5, "{plan}");
    let said = expect(&machine.apus(&["tune", "apply", "poll", "--isolated", "2-3"]), 2);
    assert!(said.contains("--yes"), "nobody is there to be asked: {said}");
    assert_eq!(machine.files(), before);
    let (code, applied) = machine.json(&["tune", "apply", "poll", "--isolated", "2-3", "--yes"]);
    assert_eq!((code, &applied["transaction"]), (Some(0), &1.into()), "{applied}");
    let missing = applied["items"].as_array().unwrap().iter().filter(|item| item["became"] == "not_there").count();
    assert!(missing > 5, "much of it is not there: {applied}");
    assert_eq!(machine.read("proc/irq/24/smp_affinity_list"), "0-1\n");
    let (code, status) = machine.json(&["tune", "status"]);
    assert_eq!((code, &status["transactions"][0]["abandoned"]), (Some(0), &false.into()));
    assert_eq!(machine.json(&["tune", "verify"]).0, Some(0));
    expect(&machine.apus(&["tune", "diff"]), 0);
    let said = expect(&machine.apus(&["tune", "verify", "--watch", "10ms"]), 0);
    assert!(!said.contains("NO EFFECT"), "{said}");
    machine.put("proc/sys/vm/stat_interval", "5\n");
    let said = expect(&machine.apus(&["tune", "verify"]), 1);
    assert!(said.contains("sysctl vm.stat_interval: wanted 10, is 5"), "{said}");
    let (code, rolled_back) = machine.json(&["tune", "rollback"]);
    assert_eq!(code, Some(1), "{rolled_back}");
    let items = rolled_back["transactions"][0]["items"].as_array().unwrap();
    let theirs: Vec<_> = items.iter().filter(|item| item["outcome"] == "theirs").collect();
    assert_eq!((theirs.len(), &theirs[0]["theirs"]), (1, &"5".into()));
    expect(&machine.apus(&["tune", "rollback", "--overwrite"]), 0);
    assert_eq!(machine.files(), before);
    assert!(expect(&machine.apus(&["tune", "status"]), 0).contains("nothing is applied"));
}

#[test]
fn a_machine_that_was_rebooted_is_recognised() {
    let machine = Machine::small("reboot");
    machine.json(&["tune", "apply", "base", "--yes"]);
    machine.put("proc/sys/kernel/random/boot_id", "boot-2\n");
    machine.put("proc/sys/kernel/nmi_watchdog", "1\n");
    let said = expect(&machine.apus(&["tune", "status"]), 0);
    assert!(said.contains("from before the last reboot") && said.contains("reset by a reboot"), "{said}");
    expect(&machine.apus(&["tune", "rollback"]), 0);
    assert_eq!(machine.read("proc/sys/vm/stat_interval"), "10\n", "of this boot, whoever set it");
}

#[test]
fn a_damaged_journal_stops_everything() {
    let machine = Machine::small("damaged");
    machine.json(&["tune", "apply", "base", "--yes"]);
    let applied = machine.files();
    let path = "var/lib/apus/tune/000001.journal";
    machine.put(path, &machine.read(path).replace("vm.stat", "vm.stut"));
    let said = expect(&machine.apus(&["tune", "status"]), 1);
    assert!(said.contains("is damaged"), "{said}");
    let said = expect(&machine.apus(&["tune", "rollback"]), 3);
    assert!(said.contains("nothing was changed") && said.contains("--damaged"), "{said}");
    assert_eq!(machine.files(), applied);
    expect(&machine.apus(&["tune", "rollback", "--damaged"]), 0);
}

#[test]
fn exports_are_written_without_privilege() {
    let machine = Machine::small("export");
    let folder = machine.0.join("var/out");
    for format in ["tuned", "systemd", "cmdline", "openshift", "openshift-tuned", "ansible"] {
        let words = ["tune", "export", "poll", "--isolated", "2-3", "--format", format];
        let output = machine.apus(&words);
        expect(&output, 0);
        assert!(!output.stdout.is_empty(), "{format}");
        expect(&machine.apus(&[&words[..], &["-o", folder.to_str().unwrap()]].concat()), 0);
    }
    assert!(folder.join("apus-poll/tuned.conf").is_file());
    let cmdline = std::fs::read_to_string(folder.join("cmdline")).unwrap();
    assert!(cmdline.starts_with("isolcpus=managed_irq,domain,2-3 nohz_full=2-3 "), "{cmdline}");
}

#[test]
fn wrong_profiles_are_named_with_file_and_line() {
    let machine = Machine::small("wrong");
    machine.put("mine.toml", "summary = \"mine\"\n\n[sysctl]\n\"kernel.nmi_watchdog\" = [1]\n");
    let path = machine.0.join("mine.toml");
    let said = expect(&machine.apus(&["tune", "plan", path.to_str().unwrap()]), 2);
    assert!(said.contains("mine.toml:4"), "{said}");
    let said = expect(&machine.apus(&["tune", "plan", "pole"]), 2);
    assert!(said.contains("poll, interrupt"), "{said}");
    let list = bare(&["tune", "plan"]);
    assert!(text(&list.stdout).contains("powersave"));
}

#[test]
fn without_root_there_is_everything_but_changes() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("giving up root needs root");
        return;
    }
    // The build folder may be closed to others: a copy of the binary where anyone reaches it.
    let copy = std::env::temp_dir().join(format!("apus-it-{}", std::process::id()));
    testkit::put_program(env!("CARGO_BIN_EXE_apus").as_ref(), &copy);
    let as_nobody = |words: &[&str]| {
        let ids = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        Command::new("setpriv").args(ids).arg(&copy).args(words).output().unwrap()
    };
    expect(&as_nobody(&["tune", "plan", "poll", "--isolated", "1"]), 0);
    expect(&as_nobody(&["tune", "export", "poll", "--format", "cmdline", "--isolated", "1"]), 0);
    let said = expect(&as_nobody(&["tune", "apply", "poll", "--yes"]), 3);
    assert!(said.contains("needs root") && said.contains("CAP_NET_ADMIN"), "{said}");
    expect(&as_nobody(&["power", "set", "--cpu", "0", "--frequency", "1GHz"]), 3);
    expect(&as_nobody(&["tune", "rollback"]), 3);
    std::fs::remove_file(copy).unwrap();
}

#[test]
fn a_profile_is_verified_without_being_applied() {
    let machine = Machine::small("verify");
    machine.put("proc/cmdline", "quiet\n");
    let words = ["tune", "verify", "base", "--isolated", "2-3"];
    let (code, verified) = machine.json(&words);
    assert_eq!((code, &verified["schema"]), (Some(1), &"apus.tune-plan/1".into()));
    assert_eq!(machine.json(&["tune", "apply", "base", "--isolated", "2-3", "--yes"]).0, Some(0));
    let said = expect(&machine.apus(&words), 0);
    assert!(said.contains("4 of 4 settings have the values of base"), "{said}");
    machine.put("proc/sys/vm/stat_interval", "5\n");
    let said = expect(&machine.apus(&words), 1);
    assert!(said.contains("sysctl vm.stat_interval: wanted 10, is 5"), "{said}");
    // Kernel arguments count when they are in force.
    machine.put("etc/default/grub.d/60-apus.cfg", "");
    machine.put("mine.toml", "summary = \"x\"\n[kernel]\narguments = [\"nohz_full={isolated}\"]\n");
    let mine = machine.0.join("mine.toml");
    let words = ["tune", "verify", mine.to_str().unwrap(), "--isolated", "2-3"];
    expect(&machine.apus(&words), 1);
    machine.put("proc/cmdline", "quiet nohz_full=2-3\n");
    expect(&machine.apus(&words), 0);
    expect(&machine.apus(&["tune", "verify", "--isolated", "2-3"]), 2);
}

#[test]
fn the_sites_profiles_variables_and_rivals() {
    let machine = Machine::small("site");
    let edge = "summary = \"our edge\"\n[variables]\ninterval = 20\n[sysctl]\n\"vm.stat_interval\" = \"{interval}\"\n";
    machine.put("etc/apus/profiles/edge.toml", edge);
    machine.put("proc/77/comm", "tuned\n");
    let said = expect(&machine.apus(&["tune", "plan"]), 0);
    assert!(said.contains("edge        our edge") && said.contains("powersave"), "{said}");
    let said = expect(&machine.apus(&["tune", "plan", "edge"]), 0);
    assert!(said.contains("1 -> 20") && said.contains("note: tuned is running and may undo 1"), "{said}");
    let said = expect(&machine.apus(&["tune", "plan", "edge", "--set", "interval=30"]), 0);
    assert!(said.contains("1 -> 30"), "{said}");
    let said = expect(&machine.apus(&["tune", "plan", "edge", "--set", "intervall=30"]), 2);
    assert!(said.contains("interval"), "{said}");
    machine.put("sys/class/net/eth0/device/vendor", "0x8086\n");
    let (code, found) = machine.json(&["tune", "recommend"]);
    assert_eq!((code, &found["profile"]), (Some(0), &"interrupt".into()), "{found}");
    // A FIFO in place of a profile is refused, and not waited for.
    let fifo = machine.0.join("etc/apus/profiles/fifo.toml");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for name in ["fifo", fifo.to_str().unwrap()] {
        let said = expect(&machine.apus(&["tune", "plan", name]), 2);
        assert!(said.contains("not a regular file"), "{said}");
    }
}

#[test]
fn what_was_not_recorded_is_no_reason_to_recommend() {
    let Some(machine) = recorded("skld0") else { return };
    let said = expect(&machine.apus(&["tune", "recommend"]), 3);
    assert!(said.contains("sys/class/net"), "{said}");
}

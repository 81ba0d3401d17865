use std::process::{Command, Stdio};

use super::{Machine, expect, wait};
use crate::support::{Running, text};

#[test]
fn an_interface_that_is_not_there_is_an_error() {
    let machine = Machine::small("typo");
    machine.put("sys/class/net/eth0/ifindex", "2\n");
    for words in [
        &["tune", "plan", "interrupt"][..],
        &["tune", "apply", "interrupt", "--yes"],
        &["tune", "export", "interrupt", "--format", "ansible"],
        &["tune", "enable", "interrupt"],
    ] {
        let said = expect(&machine.apus(&[words, &["--interface", "eth0", "--interface", "typo0"]].concat()), 2);
        assert!(said.contains("--interface typo0") && said.contains("eth0"), "{said}");
    }
    assert!(expect(&machine.apus(&["tune", "status"]), 0).contains("nothing is applied"));
}

#[test]
fn verify_says_that_nothing_is_applied() {
    let machine = Machine::small("nothing");
    let said = expect(&machine.apus(&["tune", "verify"]), 1);
    assert!(said.contains("nothing is applied"), "{said}");
}

/// What was refused is not as wanted, and is counted.
#[test]
fn verify_counts_what_was_refused() {
    let machine = Machine::small("refused");
    machine.put("sys/choice", "[a] b\n");
    let profile = machine.0.join("p.toml");
    let keys = "summary = \"x\"\n[sysctl]\n\"kernel.nmi_watchdog\" = 0\n[cpus.0]\ngovernor = \"performance\"\n";
    std::fs::write(&profile, keys).unwrap();
    let policy = "sys/devices/system/cpu/cpufreq/policy0";
    for (name, text) in
        [("related_cpus", "0"), ("scaling_governor", "powersave"), ("scaling_available_governors", "powersave")]
    {
        machine.put(&format!("{policy}/{name}"), &format!("{text}\n"));
    }
    expect(&machine.apus(&["tune", "apply", profile.to_str().unwrap(), "--yes", "--keep-going"]), 1);
    let said = expect(&machine.apus(&["tune", "verify"]), 1);
    assert!(said.contains("1 of 2 settings have the wanted value; 1 refused when applied"), "{said}");
    let (code, document) = machine.json(&["tune", "verify"]);
    let items = document["transactions"][0]["items"].as_array().unwrap();
    let refused = items.iter().find(|item| item["stands"] == "refused").unwrap();
    assert_eq!((code, &refused["as_wanted"]), (Some(1), &false.into()), "{refused}");
    assert!(refused["reason"].as_str().unwrap().contains("supported are powersave"), "{refused}");
    // Someone has made it so since.
    machine.put(&format!("{policy}/scaling_governor"), "performance\n");
    let said = expect(&machine.apus(&["tune", "verify"]), 0);
    assert!(said.contains("2 of 2 settings have the wanted value"), "{said}");
}

/// Before, a setting that was refused once was never tried again, and one that refused kept all that came with it from
/// being set.
#[test]
fn a_passing_refusal_is_tried_again() {
    for keep_going in [true, false] {
        let machine = Machine::small("passing");
        let profile = machine.0.join("p.toml");
        let keys = "summary = \"x\"\n[sysctl]\n\"vm.stat_interval\" = 7\n[cpus.0]\ngovernor = \"performance\"\n";
        std::fs::write(&profile, keys).unwrap();
        let policy = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy0/{name}");
        let refuses = || {
            machine.put(&policy("scaling_available_governors"), "powersave\n");
            machine.put(&policy("related_cpus"), "0\n");
            machine.put(&policy("scaling_governor"), "powersave\n");
        };
        // Refused as a part of what was there first, or as what came later.
        if keep_going {
            refuses();
        }
        let said = machine.0.join("said");
        let file = || std::fs::OpenOptions::new().create(true).append(true).open(&said).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
        command.args(["tune", "follow", profile.to_str().unwrap(), "--every", "5ms", "--root"]).arg(&machine.0);
        command.args(keep_going.then_some("--keep-going")).stdin(Stdio::null()).stdout(file()).stderr(file());
        let mut follow = Running(command.spawn().unwrap());
        wait("what is not refused is set", || machine.read("proc/sys/vm/stat_interval").trim() == "7");
        refuses();
        wait("it says the refusal", || machine.read("said").contains("supported are powersave"));
        machine.put(&policy("scaling_available_governors"), "performance powersave\n");
        wait("it is set later", || machine.read(&policy("scaling_governor")).trim() == "performance");
        wait("it says so", || machine.read("said").contains("governor of CPU policy 0: powersave -> performance"));
        let (_, status) = machine.json(&["tune", "status"]);
        assert_eq!(status["transactions"].as_array().unwrap().len(), 2, "{status:#}");
        assert_eq!(machine.read("said").matches("supported are powersave").count(), 1, "{}", machine.read("said"));
        follow.end(rustix::process::Signal::TERM);
        assert_eq!(machine.read("proc/sys/vm/stat_interval").trim(), "1");
        assert_eq!(machine.read(&policy("scaling_governor")).trim(), "powersave");
        assert!(expect(&machine.apus(&["tune", "status"]), 0).contains("nothing is applied"));
    }
}

/// Before, whoever could write to the profile became root at the next boot, and nobody said so.
#[test]
fn a_profile_at_boot_that_others_can_change_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("root, whose files these have to be");
    }
    let machine = Machine::small("boot");
    std::fs::create_dir_all(machine.0.join("etc/systemd/system")).unwrap();
    machine.put("p/main.toml", "summary = \"x\"\ninclude = [\"./part.toml\"]\n");
    machine.put("p/part.toml", "summary = \"y\"\n[sysctl]\n\"vm.stat_interval\" = 7\n");
    let main = machine.0.join("p/main.toml");
    let enable = || expect(&machine.apus(&["tune", "enable", main.to_str().unwrap()]), 0);
    let said = enable();
    assert!(!said.contains("main.toml:") && !said.contains("part.toml:"), "{said}");
    let part = machine.0.join("p/part.toml");
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o646)).unwrap();
    let said = enable();
    assert!(said.contains("WARNING: users other than root") && said.contains("part.toml (mode 646)"), "{said}");
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::chown(machine.0.join("p"), Some(65_534), None).unwrap();
    assert_eq!(enable().matches("belongs to user 65534").count(), 2);
}

/// Before, the second line of the name read like a transaction of its own.
#[test]
fn a_name_with_a_line_end_stays_in_its_line() {
    let machine = Machine::small("line");
    let name = "p\ntransaction 9 poll.toml";
    machine.put(name, "summary = \"x\"\n[sysctl]\n\"vm.stat_interval\" = 7\n");
    let profile = machine.0.join(name);
    expect(&machine.apus(&["tune", "apply", profile.to_str().unwrap(), "--yes"]), 0);
    for words in [&["tune", "status"][..], &["tune", "diff"], &["tune", "rollback"]] {
        let said = expect(&machine.apus(words), 0);
        assert_eq!(said.lines().filter(|line| line.starts_with("transaction")).count(), 1, "{words:?}: {said}");
    }
}

/// A full disk behind the output: the change stands, and that is said.
#[test]
fn a_result_that_cannot_be_printed_does_not_hide_the_change() {
    for json in [false, true] {
        let machine = Machine::small("full");
        let run = |words: &[&str]| {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
            command.args(words).arg("--root").arg(&machine.0).args(json.then_some("--json"));
            command.stdin(Stdio::null()).stdout(full).output().unwrap()
        };
        let before = machine.files();
        let output = run(&["tune", "apply", "base", "--yes"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("transaction 1") && said.contains("apus tune rollback 1"), "{said}");
        assert_ne!(machine.files(), before);
        let output = run(&["tune", "rollback"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("the rollback is done"), "{said}");
        assert_eq!(machine.files(), before);
    }
    // The trace of what is done goes nowhere: what is done is done all the same.
    let machine = Machine::small("trace");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let words = ["tune", "apply", "base", "--yes", "--trace", "--root", machine.0.to_str().unwrap()];
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    let output = command.args(words).stdin(Stdio::null()).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(!expect(&machine.apus(&["tune", "status"]), 0).contains("ABANDONED"));
}

#[test]
fn the_other_cpus_of_a_policy_are_named() {
    let machine = Machine::small("policy");
    let policy = "sys/devices/system/cpu/cpufreq/policy0";
    for (name, text) in [
        ("related_cpus", "0 1 2 3"),
        ("scaling_min_freq", "800000"),
        ("scaling_max_freq", "3000000"),
        ("cpuinfo_min_freq", "800000"),
        ("cpuinfo_max_freq", "3000000"),
    ] {
        machine.put(&format!("{policy}/{name}"), &format!("{text}\n"));
    }
    let words = ["power", "set", "--cpu", "1", "--frequency", "1.2GHz"];
    let said = expect(&machine.apus(&words), 0);
    assert!(said.contains("CPUs 0-3 share the frequency policy 0: the frequency of CPUs 0,2-3 changes too"), "{said}");
    expect(&machine.apus(&["tune", "rollback"]), 0);
    let (_, document) = machine.json(&words);
    assert!(document["notes"][0].as_str().unwrap().contains("CPUs 0,2-3"), "{document}");
    let said = expect(&machine.apus(&["power", "set", "--cpu", "0-3", "--frequency", "1.2GHz"]), 0);
    assert!(!said.contains("changes too"), "{said}");
}

#[test]
fn a_profile_is_enabled_and_disabled() {
    let machine = Machine::small("enable");
    machine.put("etc/systemd/system/other.service", "");
    let before = machine.files();
    let profile = machine.0.join("my profile.toml");
    std::fs::write(
        &profile,
        "summary = \"100 % mine\"\n[variables]\nseconds = 5\n[sysctl]\n\"vm.stat_interval\" = \"{seconds}\"\n",
    )
    .unwrap();
    for words in [&["poll"][..], &[profile.to_str().unwrap(), "--set", "seconds=9"]] {
        let enable = || expect(&machine.apus(&[&["tune", "enable", "--isolated", "2-3"], words].concat()), 0);
        let said = enable();
        assert!(said.contains("wrote ") && said.contains("apus-tune.service"), "{said}");
        let said = enable();
        assert!(said.contains("nothing was written"), "{said}");
        let said = expect(&machine.apus(&["tune", "status"]), 0);
        assert!(said.contains("applied at each boot") && said.contains("--isolated 2-3"), "{said}");
        let unit = machine.0.join("etc/systemd/system/apus-tune.service");
        match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output() {
            Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
            Err(_) => testkit::skip("systemd-analyze (apt-get install systemd)"),
        }
    }
    // The line in it is a command that works: as systemd runs it, but below this root.
    let unit = machine.read("etc/systemd/system/apus-tune.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let line = format!("{line} --root '{}'", machine.0.display());
    let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
    expect(&output, 0);
    assert_eq!(machine.read("proc/sys/vm/stat_interval"), "9\n");
    let said = expect(&machine.apus(&["tune", "disable"]), 0);
    assert!(said.contains("removed "), "{said}");
    assert!(expect(&machine.apus(&["tune", "disable"]), 0).contains("nothing was removed"));
    expect(&machine.apus(&["tune", "rollback"]), 0);
    std::fs::remove_file(profile).unwrap();
    assert_eq!(machine.files(), before);
    expect(&machine.apus(&["tune", "enable", "nosuch"]), 2);
}

/// Regression test: while the command asked about the settings of others, it held the lock, and Ctrl-C was held back until
/// the answer came.
#[test]
fn a_question_holds_nobody_up_and_can_be_interrupted() {
    let machine = Machine::small("question");
    machine.json(&["tune", "apply", "base", "--yes"]);
    machine.put("proc/sys/vm/stat_interval", "3\n");
    machine.put("other.toml", "summary = \"x\"\n[sysctl]\n\"kernel.nmi_watchdog\" = 7\n");
    // A terminal whose user waits with the answer, applies another profile meanwhile, and then presses Ctrl-C.
    // In a background job of a script, SIGINT is ignored: a terminal of its own starts without that.
    let user = "import os, pty, signal, subprocess, sys\n\
                signal.signal(signal.SIGINT, signal.SIG_DFL)\n\
                apus, root, other = sys.argv[1:]\n\
                pid, terminal = pty.fork()\n\
                if pid == 0: os.execv(apus, ['apus', 'tune', 'rollback', '--root', root])\n\
                shown = b''\n\
                while b'[y/N]' not in shown: shown += os.read(terminal, 4096)\n\
                words = [apus, 'tune', 'apply', other, '--yes', '--root', root]\n\
                print('other', subprocess.run(words, stdout=subprocess.DEVNULL).returncode)\n\
                os.write(terminal, b'\\x03')\n\
                print('signal', os.WTERMSIG(os.waitpid(pid, 0)[1]), shown.decode())\n";
    let mut command = Command::new("python3");
    command.args(["-c", user, env!("CARGO_BIN_EXE_apus")]).arg(&machine.0).arg(machine.0.join("other.toml"));
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        testkit::skip("python3 (apt-get install python3)");
        return;
    };
    let said = expect(&output, 0);
    assert!(said.contains("other 0") && said.contains("signal 2"), "{said}");
    assert!(said.contains("vm.stat_interval: something else set it to 3"), "{said}");
    assert_eq!(machine.read("proc/sys/vm/stat_interval"), "3\n");
    assert_eq!(machine.read("proc/irq/default_smp_affinity"), "f\n", "everything else is rolled back");
    assert_eq!(machine.read("proc/sys/kernel/nmi_watchdog"), "7\n", "by the other profile");
}

/// Regression test: `follow` gave up after 10 s, whatever `--wait` said, and left its settings behind.
#[test]
fn the_end_of_follow_waits_as_long_as_it_was_told() {
    let machine = Machine::small("follow-wait");
    let before = machine.files();
    let root = machine.0.to_str().unwrap();
    let words = ["tune", "follow", "base", "--every", "50ms", "--wait", "3600s", "--root", root];
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    let mut follow = Running(command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    // The first output comes when everything is applied.
    let mut first = [0];
    std::io::Read::read_exact(follow.0.stdout.as_mut().unwrap(), &mut first).unwrap();
    let lock = std::fs::File::open(machine.0.join("var/lib/apus/tune/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    follow.signal(rustix::process::Signal::TERM);
    // Longer than it waited whatever it was told.
    std::thread::sleep(std::time::Duration::from_secs(11));
    assert_ne!(machine.files(), before);
    drop(lock);
    assert!(follow.0.wait().unwrap().success());
    assert_eq!(machine.files(), before);
}

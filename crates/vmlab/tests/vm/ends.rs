//! Also starts this program again as a child that boots a guest and is then killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vmlab::{Error, Vm};

use vmlab::harness::{Alone, ok};

pub(crate) const TESTS: [Alone; 5] = [
    ("ends::a_panic_is_told_with_the_console", panics),
    ("ends::silence_is_told_and_ends_the_guest", silence),
    ("ends::what_was_not_there_at_boot_is_told", refused),
    ("ends::a_reboot_changes_the_command_line_and_keeps_the_share", reboot),
    ("ends::a_killed_test_leaves_no_guest", killed),
];

const CHILD: &str = "APUS_TEST_VM_CHILD";

fn panics() {
    let guest = ok(ok(Vm::new()).boot());
    let pid = guest.pid();
    let error = guest.run("echo c >/proc/sysrq-trigger").unwrap_err();
    assert!(matches!(&error, Error::Ended { words, .. } if words.contains("Kernel panic")), "{error}");
    assert!(error.to_string().contains("it was reset"), "{error}");
    assert!(!guest.runs() && !alive(pid));
    let again = guest.run("true").unwrap_err();
    assert!(matches!(again, Error::Ended { .. }), "{again}");
}

fn silence() {
    let guest = ok(ok(Vm::new()).boot());
    let pid = guest.pid();
    ok(guest.run("echo 'the last thing said' >/dev/console"));
    let error = guest.output_within("sleep 1000", Duration::from_secs(1)).unwrap_err();
    assert!(matches!(&error, Error::Silent { words, .. } if words.contains("the last thing said")), "{error}");
    assert!(!guest.runs() && !alive(pid));
}

fn refused() {
    let vm = ok(Vm::new());
    let error = vm.clone().kernel_argument("rdinit=/no/such/program").boot().err().unwrap();
    assert!(
        matches!(&error, Error::Ended { doing, words, .. } if doing == "boot" && words.contains("panic")),
        "{error}"
    );
    for (bad, says) in [
        (vm.clone().module("no-such-module"), "no_such_module"),
        (vm.clone().program("/no/such/program"), "build it first"),
        (vm.clone().cpus(2).virtual_time(), "virtual time with 2 CPUs"),
        (vm.clone().cpus(0), "0 CPUs"),
        (vm.clone().port("a,b"), "a,b"),
        (vm.clone().share(Path::new("/no/such/folder")), "no such folder"),
    ] {
        let error = bad.boot().err().unwrap().to_string();
        assert!(error.contains(says), "{error}");
    }
    // A word that QEMU refuses: its own message is told.
    let error = vm.cpus(2).port("a").port("a").boot().err().unwrap();
    assert!(matches!(&error, Error::Ended { words, .. } if words.contains("port")), "{error}");
}

fn reboot() {
    let folder = std::env::temp_dir().join(format!("apus-test-share, {}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let vm = ok(Vm::new()).share(&folder);
    let before = ok(vm.boot());
    assert_eq!(ok(before.run("cat /sys/devices/system/cpu/nohz_full; echo nohz_full=0 >/share/cmdline")), "(null)");
    drop(before);
    let wanted = fs::read_to_string(folder.join("cmdline")).unwrap();
    let after = ok(vm.kernel_argument(wanted.trim()).boot());
    assert!(ok(after.run("cat /proc/cmdline")).ends_with(" nohz_full=0"));
    assert_eq!(ok(after.run("cat /share/cmdline")), "nohz_full=0");
    drop(after);
    assert!(folder.join("cmdline").exists(), "the test's own folder stays");
    fs::remove_dir_all(&folder).unwrap();
}

/// `kill -9` of a process with a guest: the kernel ends the guest.
fn killed() {
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new(own).env(CHILD, "1").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let guest = wait_for("the guest to start", || guest_of(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the guest to end", || (!alive(guest)).then_some(()));
}

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

pub(crate) fn child() -> ! {
    let guest = Vm::new().unwrap().boot();
    std::thread::sleep(Duration::from_secs(600));
    drop(guest);
    panic!("nobody killed this process");
}

/// The QEMU that runs in a folder of the process `owner`.
fn guest_of(owner: u32) -> Option<u32> {
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    let owned = |pid: u32| {
        let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        folder.to_string_lossy().contains(&format!("apus-vm-{owner}-")) && program.ends_with("qemu-system-x86_64")
    };
    processes.find_map(|entry| entry.file_name().to_str()?.parse().ok().filter(|pid| owned(*pid)))
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

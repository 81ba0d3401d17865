//! libapus-dpdk as its users have it: built by its script, in C programs with virtual ports. `make test-dpdk` runs these.

#[allow(dead_code)] // shared with the tests of libapus
#[path = "../it/built.rs"]
mod built;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use built::{folder, run, scratch};

/// A folder with libapus and libapus-dpdk as `make lib-dpdk` installs them.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let to = scratch("installed");
        let tools = folder().join("../../tools");
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        run(Command::new(tools.join("libapus.sh")).arg(&to).env("BUILT", deps));
        run(Command::new(tools.join("libapus-dpdk.sh")).arg(&to).env("CFLAGS", "-Werror"));
        to
    })
}

/// What pkg-config says, as words for the compiler.
fn pkg_config(words: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(words).env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Compiles C files into a program, with libapus-dpdk as a library.
fn compiled(name: &str, files: &[PathBuf], flags: &[&str]) -> PathBuf {
    let program = scratch(name).join(name);
    let mut cc = Command::new("gcc");
    cc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-DALLOW_EXPERIMENTAL_API"]);
    cc.args(files).args(flags).arg("-o").arg(&program);
    cc.args(pkg_config(&["--cflags", "apus-dpdk", "libdpdk"])).args(pkg_config(&["--libs", "apus-dpdk", "libdpdk"]));
    run(&mut cc);
    program
}

fn example(name: &str) -> PathBuf {
    folder().join("examples").join(name)
}

/// Two lcores, each on all CPUs that this process may use.
fn lcores() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    format!("--lcores=0@({cpus}),1@({cpus})")
}

/// Programs that spin run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn command(program: &Path, test: &str) -> Command {
    let mut command = Command::new(program);
    command.args([test, &lcores()]).env("LD_LIBRARY_PATH", installed().join("lib"));
    command
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("dpdk", &[folder().join("tests/c/dpdk.c")], &[]))
}

/// Runs one of the tests in `tests/c/dpdk.c`.
fn passes(test: &str) {
    let _alone = alone();
    let said = run(&mut command(program(), test));
    println!("{said}");
    assert!(said.ends_with("ok\n"), "{said}");
}

#[test]
fn misuse_returns_its_code_and_a_text() {
    passes("errors");
}

#[test]
fn the_lcore_sleeps_between_packets_and_gets_them_all() {
    passes("sleeps");
}

#[test]
fn an_lcore_waits_only_when_all_its_queues_are_empty() {
    passes("several_queues");
}

#[test]
fn other_work_bounds_the_waits() {
    passes("work_of_others");
}

#[test]
fn queues_are_enabled_and_disabled_while_they_are_polled() {
    passes("changes_while_running");
}

#[test]
fn polls_by_another_lcore_do_not_wait() {
    passes("strangers");
}

#[test]
fn a_port_that_is_closed_takes_its_queues_along() {
    passes("ports_end");
}

#[test]
fn a_port_that_comes_back_counts_each_packet_once() {
    passes("ports_return");
}

#[test]
fn an_lcore_that_waits_nearly_always_can_be_changed() {
    passes("asleep");
}

/// Regression test: the lcore's lock was once never released.
#[test]
fn a_thread_is_not_cancelled_while_it_holds_a_lock() {
    passes("cancellation");
}

/// Regression test: once, an lcore with an error that lasts polled on and did not say why.
#[test]
fn an_error_that_lasts_can_be_seen() {
    let flags = ["-DFAILING", "-D_GNU_SOURCE"];
    let program = compiled("dpdk-failing", &[folder().join("tests/c/dpdk.c")], &flags);
    let _alone = alone();
    let said = run(&mut command(&program, "lasting_errors"));
    assert!(said.ends_with("ok\n"), "{said}");
}

#[test]
fn equal_configurations_are_equal_wherever_their_texts_are() {
    passes("configurations");
}

#[test]
fn a_child_process_does_not_wait() {
    passes("other_process");
}

#[test]
fn what_the_callback_costs() {
    passes("cost");
}

#[test]
fn it_shows_up_in_telemetry() {
    let _alone = alone();
    let root = scratch("seen");
    let said = run(command(program(), "telemetry").arg(&root));
    assert!(said.contains("dpdk-test"), "{said}");
    let left = run(Command::new("find").arg(&root).args(["-name", "*dpdk-test*"]));
    assert_eq!(left, "", "its file went with the last queue");
}

/// The library's files are part of the program here, so that they are checked too.
#[test]
fn under_asan_and_ubsan() {
    let _alone = alone();
    let files =
        ["tests/c/dpdk.c", "dpdk/apus_dpdk.c", "dpdk/lcore.c", "dpdk/frequency.c"].map(|file| folder().join(file));
    let checked = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];
    let program = compiled("dpdk-asan", &files, &checked);
    for test in [
        "errors",
        "several_queues",
        "work_of_others",
        "changes_while_running",
        "ports_end",
        "ports_return",
        "cancellation",
        "configurations",
    ] {
        // What libdpdk keeps until the end is no leak of ours.
        println!("{}", run(command(&program, test).env("ASAN_OPTIONS", "detect_leaks=0")));
    }
}

fn is_root() -> bool {
    let root = run(Command::new("id").arg("-u")).trim() == "0";
    if !root {
        testkit::skip("needs root, for network namespaces");
    }
    root
}

/// In a network namespace of its own: starts `server`, runs the `client`, stops the server, and shows what both said.
fn served(set_up: &str, server: &str, client: &str) -> String {
    let script = format!(
        "set -e; {set_up}\n{server} > $0/said 2>&1 & server=$!; trap 'kill $server 2>/dev/null || :' EXIT\n\
         for i in $(seq 200); do [ -e /sys/class/net/va ] && grep -qs up /sys/class/net/va/operstate && break; sleep 0.1; done\n\
         sleep 1; {client}\nkill -TERM $server; wait $server || echo \"status $?\"\ncat $0/said"
    );
    let mut bash = Command::new("unshare");
    bash.args(["--net", "--mount", "bash", "-c", &format!("mount -t sysfs sysfs /sys\n{script}")])
        .arg(scratch("served"));
    run(bash.env("LD_LIBRARY_PATH", installed().join("lib")).env("PYTHONDONTWRITEBYTECODE", "1"))
}

fn load(rate: u32, seconds: u32) -> String {
    format!("python3 {} frames va {rate} {seconds}", folder().join("tests/it/load.py").display())
}

/// The number in front of `what` in the server's line that begins so.
fn number(said: &str, what: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what:?}: {said}"));
    line.split(what)
        .next()
        .unwrap()
        .rsplit([' ', ','])
        .next()
        .unwrap()
        .parse()
        .unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// All frames that were sent came back.
fn all_returned(said: &str) {
    println!("{said}");
    for line in
        said.lines().filter(|line| line.split(' ').count() == 4 && line.starts_with(|c: char| c.is_ascii_digit()))
    {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0] == words[1] && words[0] != "0", "{said}");
    }
    assert!(number(said, " frames returned") > 0 && !said.contains("status"), "{said}");
}

const VETH: &str = "ip link add va type veth peer name vb; ip link set va up; ip link set vb up";
const AF_XDP: &str = "net_af_xdp0,iface=vb,force_copy=1,busy_budget=0";

/// `net_tap` has receive interrupts. The lcore blocks on them, also after the port was stopped and started, and no frame is
/// left waiting: a missed one would be late by the longest block.
#[test]
fn receive_interrupts_end_blocks() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let server = format!("{} serve '{}' net_tap0,iface=va", program().display(), lcores());
    // The device's other end is the interface itself. It is up when the port runs and the interface is.
    let client = format!(
        "ip link set va up; sleep 0.3\n{load}\nkill -USR1 $server; sleep 0.5; ip link set va up; sleep 0.3\n{load}",
        load = load(250, 2)
    );
    let said = served(
        "",
        &server,
        &format!("for i in 1 2 3 4 5 6 7 8 9; do ip link set va up && break; sleep 0.2; done\n{client}"),
    );
    all_returned(&said);
    assert!(said.contains("wakes 2"), "{said}");
    assert!(number(&said, " blocks") > 200, "{said}");
    for line in said.lines().take(2) {
        let p50: f64 = line.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(p50 < 50_000.0, "frames waited: {said}");
    }
}

#[test]
fn frames_of_a_kernel_interface_are_returned() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let server = format!("{} serve '{}' {AF_XDP}", program().display(), lcores());
    let said = served(VETH, &server, &load(250, 2));
    all_returned(&said);
    assert!(number(&said, " sleeps") > 200, "{said}");
}

/// The forwarder with rte_power, and with libapus-dpdk instead.
#[test]
fn the_forwarder_before_and_after() {
    let names = ["dpdk-macswap-pmd", "dpdk-macswap-apus"];
    let [before, after] = names.map(|name| fs::read_to_string(example(&format!("{name}.c"))).unwrap());
    let changed = |of: &str, other: &str| of.lines().filter(|line| !other.lines().any(|one| one == *line)).count();
    let lines = changed(&before, &after).max(changed(&after, &before));
    assert!((1..=6).contains(&lines), "{lines} lines differ");
    let programs = names.map(|name| compiled(name, &[example(&format!("{name}.c"))], &[]));
    if !is_root() {
        return;
    }
    let _alone = alone();
    for program in programs {
        let eal = "--no-huge -m 96 --no-pci --no-shconf --no-telemetry --log-level=*:error";
        let server = format!("{} {eal} '{}' --vdev {AF_XDP}", program.display(), lcores());
        all_returned(&served(VETH, &server, &load(250, 1)));
    }
}

/// The header alone, as C and C++; and nothing but its functions is visible.
#[test]
fn the_header_and_the_library_agree() {
    let to = scratch("header");
    let source = "#include <apus_dpdk.h>\n#include <apus_dpdk.h>\nint main(void) { return apus_dpdk_queue_enable(0, 0, 0, 0); }\n";
    for (compiler, standard, file) in
        [("gcc", "c11", "a.c"), ("clang", "c11", "a.c"), ("g++", "c++17", "a.cc"), ("clang++", "c++17", "a.cc")]
    {
        if !built::has(compiler) {
            testkit::skip(format!("{compiler}: install it with tools/setup.sh test"));
            continue;
        }
        fs::write(to.join(file), source).unwrap();
        let mut cc = Command::new(compiler);
        cc.arg(format!("-std={standard}")).args([
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-Wconversion",
            "-Wshadow",
        ]);
        run(cc.args(["-fsyntax-only", "-I"]).arg(installed().join("include")).arg(to.join(file)));
    }
    let header = fs::read_to_string(folder().join("dpdk/apus_dpdk.h")).unwrap();
    let code = header.split("#include <apus.h>").nth(1).unwrap();
    let mut declared: Vec<&str> = code
        .lines()
        .filter(|line| line.starts_with("int apus_dpdk_") || line.starts_with("const char *apus_dpdk_"))
        .map(|line| line.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap())
        .collect();
    declared.sort_unstable();
    for library in ["lib/libapus-dpdk.so", "lib/libapus-dpdk.a"] {
        let words: &[&str] =
            if library.ends_with("so") { &["-D", "--defined-only"] } else { &["-g", "--defined-only"] };
        let nm = run(Command::new("nm").args(words).arg(installed().join(library)));
        let mut visible: Vec<&str> = nm.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        visible.sort_unstable();
        assert_eq!(visible, declared, "{library}");
    }
    let dynamic = run(Command::new("readelf").arg("-d").arg(installed().join("lib/libapus-dpdk.so")));
    assert!(dynamic.contains("Library soname: [libapus-dpdk.so.0]"), "{dynamic}");
}

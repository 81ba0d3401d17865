//! A child counts its operations that change something, and kills itself with SIGKILL just before the N-th; for
//! every N until it comes to its end. What it leaves must always be brought back to the octet.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use host::knob::{
    Access, Act, AnySetting, Channels, Features, Gate, Governor, Limits, Napi, Setting as _, Sysctl, UncoreMsr, Value,
};
use host::transaction::{Plan, Steered, Target, Which, apply, transactions};

use crate::support::{in_a_world_of_its_own, is_root, machine, options, plan, refused_plan, run, snapshot, take_back};

/// What the child does.
const APPLY: &str = "apply";
const REFUSED: &str = "refused";
const ROLLBACK: &str = "rollback";
const STEER: &str = "steer";
const NETWORK: &str = "network";
const NETWORK_ROLLBACK: &str = "network-rollback";

/// Kills the process before its N-th operation.
struct KillAt {
    left: AtomicU32,
}

impl Gate for KillAt {
    fn before(&self, act: &Act) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            println!("killed before: {} {}", act.operation, act.object);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// Not a test of its own: what the tests below start again and again.
#[test]
#[ignore = "started by the tests of this file"]
fn the_child() {
    let word = |name: &str| std::env::var(name).unwrap();
    let access = Access::below(Path::new(&word("ROOT"))).unwrap();
    let access = access.with_gate(Arc::new(KillAt { left: AtomicU32::new(word("STEP").parse().unwrap()) }));
    match word("DO").as_str() {
        APPLY => drop(apply(&access, &plan(), &options()).unwrap()),
        REFUSED => drop(apply(&access, &refused_plan(), &options()).unwrap_err()),
        STEER => steer(&access),
        NETWORK => drop(apply(&access, &network_plan(), &options()).unwrap()),
        _ => drop(take_back(&access, Which::All).unwrap()),
    }
}

/// A controller's life: four settings, each moved some times, one of them to a value that is refused.
fn steer(access: &Access) {
    let settings: [AnySetting; 4] = [
        Sysctl::new("kernel.nmi_watchdog").into(),
        Limits::new(0).into(),
        UncoreMsr::new(0).into(),
        Governor::new(0).into(),
    ];
    let mut steered = Steered::new(access, "steering", &settings.map(Target::from), "a test", "0").unwrap();
    for n in 2..5_u32 {
        assert!(steered.steer(0, &Value::text(n)).unwrap().is_good());
        assert!(steered.steer(1, &Value::fields([("max", 1_000_000 + n)])).unwrap().is_good());
        assert!(steered.steer(1, &Value::fields([("max", "none")])).is_err());
        assert!(steered.steer(2, &Value::fields([("min", 8 + n), ("max", 8 + n)])).unwrap().is_good());
        assert!(
            steered.steer(3, &Governor::set_speed(units::Hertz::new(u64::from(n) * 400_000_000))).unwrap().is_good()
        );
    }
    assert!(steered.release().unwrap().unwrap().closed);
}

/// Runs the child to its `step`-th operation; whether it came to its end before that.
fn child(what: &str, root: &Path, step: u32) -> bool {
    let status: ExitStatus = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::the_child", "--ignored", "--nocapture"])
        .env("DO", what)
        .env("ROOT", root)
        .env("STEP", step.to_string())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    match status.signal() {
        Some(9) => false,
        _ => {
            assert!(status.success(), "{what} at {step}: {status}");
            true
        }
    }
}

/// More operations than any of these has: then the loop does not end by itself.
const MOST: u32 = 2_000;

#[test]
fn killed_anywhere_while_applying() {
    for what in [APPLY, REFUSED] {
        let root = machine(&format!("kill-{what}"));
        let access = Access::below(&root.0).unwrap();
        let before = snapshot(&root.0);
        let (mut steps, mut changed) = (0, 0);
        for step in 1..=MOST {
            let ended = child(what, &root.0, step);
            if ended {
                break;
            }
            steps = step;
            changed += u32::from(snapshot(&root.0) != before);
            if let Some(transaction) = transactions(&access).unwrap().first() {
                assert!(transaction.is_abandoned() || transaction.kept, "{what} at {step}");
            }
            take_back(&access, Which::All).unwrap();
            assert_eq!(snapshot(&root.0), before, "{what}, killed before operation {step}");
            assert!(transactions(&access).unwrap().is_empty(), "{what} at {step}: nothing is left open");
        }
        println!("{what}: {steps} operations, {changed} of the kills left something changed");
        assert!((40..MOST).contains(&steps), "{what}: {steps} operations");
        assert!(changed > 20, "{what}: {changed} kills left something to take back");
    }
}

/// Whoever starts next restores what a killed controller had moved; and what somebody else set since stays theirs, unless
/// the kill fell into a move of that very setting.
#[test]
fn killed_anywhere_while_steering() {
    let root = machine("kill-steer");
    let access = Access::below(&root.0).unwrap();
    let before = snapshot(&root.0);
    let policy = root.0.join("sys/devices/system/cpu/cpufreq/policy0");
    let (mut steps, mut changed, mut kept) = (0, 0, 0);
    for step in 1..=MOST {
        let ended = child(STEER, &root.0, step);
        if ended {
            break;
        }
        steps = step;
        changed += u32::from(snapshot(&root.0) != before);
        let watchdog = root.0.join("proc/sys/kernel/nmi_watchdog");
        let open = transactions(&access).unwrap().first().is_some_and(|one| one.wanted_entries().next().is_some());
        if step % 2 == 0 && open {
            std::fs::write(&watchdog, "77\n").unwrap();
        }
        take_back(&access, Which::Abandoned).unwrap();
        if std::fs::read_to_string(&watchdog).unwrap() == "77\n" {
            kept += 1;
            std::fs::write(&watchdog, "1\n").unwrap();
            take_back(&access, Which::All).unwrap();
        }
        // A folder keeps the speed that was set. The kernel shows it for the governor `userspace` alone.
        if std::fs::read_to_string(policy.join("scaling_governor")).unwrap() != "userspace\n" {
            std::fs::write(policy.join("scaling_setspeed"), "<unsupported>\n").unwrap();
        }
        assert_eq!(snapshot(&root.0), before, "killed before operation {step}");
        assert!(transactions(&access).unwrap().is_empty(), "{step}: nothing is left open");
    }
    println!("{steps} operations, {changed} of the kills left something changed, {kept} left somebody else's value");
    assert!((40..MOST).contains(&steps), "{steps} operations");
    assert!(changed > 20 && kept > 10, "{changed} {kept}");
    let moves = root.0.join("var/lib/apus/tune");
    let left: Vec<_> = std::fs::read_dir(moves).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "lock"), "{left:?}");
}

#[test]
fn killed_anywhere_while_taking_back() {
    let root = machine("kill-rollback");
    let access = Access::below(&root.0).unwrap();
    let before = snapshot(&root.0);
    for step in 1..=MOST {
        apply(&access, &plan(), &options()).unwrap();
        assert_ne!(snapshot(&root.0), before);
        let ended = child(ROLLBACK, &root.0, step);
        take_back(&access, Which::All).unwrap();
        assert_eq!(snapshot(&root.0), before, "killed before operation {step}");
        assert!(transactions(&access).unwrap().is_empty());
        if ended {
            assert!(step > 20, "{step} operations");
            return;
        }
    }
    panic!("it does not end");
}

#[test]
fn a_fresh_start_cleans_up_first() {
    let root = machine("kill-fresh");
    let access = Access::below(&root.0).unwrap();
    let before = snapshot(&root.0);
    let fresh = Plan::new("fresh").with(Sysctl::new("kernel.nmi_watchdog"), Value::text("2"));
    for step in (1..=MOST).step_by(3) {
        let ended = child(APPLY, &root.0, step);
        if ended {
            return;
        }
        apply(&access, &fresh, &options()).unwrap();
        let watchdog = std::fs::read_to_string(root.0.join("proc/sys/kernel/nmi_watchdog")).unwrap();
        assert_eq!(watchdog, "2\n");
        take_back(&access, Which::All).unwrap();
        assert_eq!(snapshot(&root.0), before, "killed before operation {step}");
    }
}

fn network_plan() -> Plan {
    Plan::new("network")
        .with(Sysctl::new("net.ipv4.tcp_rmem"), Value::text("4096 100000 200000"))
        .with(Sysctl::new("net.ipv4.conf.v0.rp_filter"), Value::text("2"))
        .with(Channels::new("v0"), Value::fields([("rx", 2), ("tx", 2)]))
        .with(Features::new("v0"), Value::fields([("rx-gro", "on"), ("tx-tcp-segmentation", "off")]))
        .with(Napi::new("v0", 0), Value::fields([("defer-hard-irqs", 2), ("gro-flush-timeout", 200_000)]))
}

/// What the plan's settings are, as text.
fn network_state(access: &Access) -> Vec<String> {
    let settings: [AnySetting; 4] = [
        Sysctl::new("net.ipv4.tcp_rmem").into(),
        Sysctl::new("net.ipv4.conf.v0.rp_filter").into(),
        Channels::new("v0").into(),
        Features::new("v0").into(),
    ];
    settings.iter().map(|setting| setting.read(access).unwrap().unwrap().to_string()).collect()
}

/// On the running kernel: sysctls, ethtool and NAPI netlink, in a network namespace and with a journal of the test's own. NAPI
/// settings are looked at as long as GRO, by which veth has NAPI at all, is on.
#[test]
fn killed_anywhere_in_a_network_namespace() {
    if is_root() {
        in_a_world_of_its_own("kill::in_the_network_namespace");
    }
}

/// Not a test of its own: what the one above starts.
#[test]
#[ignore = "started by another test of this file"]
fn in_the_network_namespace() {
    run("ip", &["link", "add", "v0", "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "v1"]);
    run("ip", &["link", "set", "v0", "up"]);
    run("ip", &["link", "set", "v1", "up"]);
    let access = Access::live().unwrap();
    assert!(transactions(&access).unwrap().is_empty(), "the journal is this test's own");
    let before = network_state(&access);
    for (what, least) in [(NETWORK, 15), (NETWORK_ROLLBACK, 8)] {
        for step in 1..=MOST {
            if what == NETWORK_ROLLBACK {
                apply(&access, &network_plan(), &options()).unwrap();
            }
            let ended = child(what, Path::new("/"), step);
            take_back(&access, Which::All).unwrap();
            assert_eq!(network_state(&access), before, "{what}, killed before operation {step}");
            if ended {
                assert!(step > least, "{what}: {step} operations");
                break;
            }
        }
    }
    assert!(transactions(&access).unwrap().is_empty());
}

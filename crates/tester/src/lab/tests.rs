//! Tests on real namespaces, as root. Each test uses a lab with a unique name, so that other labs on the machine do not
//! interfere.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use super::*;

/// A lab name that no other run uses. Without root, prints that the test is skipped, and returns `None`.
fn name_for_root(test: &str) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return Some(format!("{test}{}", std::process::id()));
    }
    testkit::skip("needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN)");
    None
}

fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

fn output_in(namespace: &str, script: &str) -> String {
    let mut command = Command::new("sh");
    let child = spawn(namespace, command.args(["-c", script]).stdout(Stdio::piped())).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// The state of the lab `name` as text that can be compared: links, addresses, routes, neighbours. Leaves out interface
/// indices, which differ in each run. Sorts the lines, because the neighbour table is ordered by a hash with a random
/// seed (net/core/neighbour.c).
fn state(name: &str) -> String {
    let mut lines = Vec::new();
    for namespace in namespace::names().unwrap().iter().filter(|n| n.starts_with(&full_name(name, ""))) {
        let links = output_in(namespace, "ip -o link; ip -o address; ip route; ip -6 route; ip neighbour");
        for line in links.lines() {
            let words: Vec<&str> = line.split_whitespace().filter(|w| !w.contains('@')).skip(1).collect();
            lines.push(format!("{namespace} {}\n", words.join(" ")));
        }
    }
    lines.sort_unstable();
    lines.concat()
}

fn host_links() -> Vec<String> {
    let output = Command::new("ip").args(["-o", "link"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|l| l.split_whitespace().nth(1).map(str::to_owned)).collect()
}

fn assert_gone(name: &str) {
    assert_eq!(state(name), "", "namespaces of {name} are left");
    assert!(list().unwrap().iter().all(|lab| lab.name != name));
    let ours = ["tx0", "dut0", "left0", "dutl", "dutr", "right0"];
    let left: Vec<_> = host_links().into_iter().filter(|l| ours.iter().any(|o| l.starts_with(o))).collect();
    assert!(left.is_empty(), "links are left: {left:?}");
}

#[test]
fn up_twice_is_the_same_and_down_leaves_nothing() {
    for preset in Preset::ALL {
        let Some(name) = name_for_root(&format!("twice_{preset}")) else { return };
        let lab = Lab::new(preset, &name);
        let first = lab.up().unwrap();
        let before = state(&name);
        assert!(before.contains("state UP"), "{before}");
        assert!(!before.contains("DOWN"), "{before}");
        assert_eq!(list().unwrap().iter().find(|l| l.name == name).unwrap().namespaces.len(), lab.namespaces.len());
        let second = lab.up().unwrap();
        assert_eq!(state(&name), before);
        drop(first.keep());
        let removed = second.down().unwrap();
        assert_eq!(removed.namespaces.len(), lab.namespaces.len());
        assert_eq!(removed.still_running, Vec::<u32>::new());
        assert_gone(&name);
        assert_eq!(down(&name).unwrap(), Removed::default());
    }
}

#[test]
fn what_a_crash_left_is_cleared() {
    let Some(name) = name_for_root("crash") else { return };
    let lab = Lab::wire(&name);
    drop(lab.up().unwrap().keep());
    // One extra namespace from another topology, one name without a mounted namespace, and one link missing.
    let ip = Tool::find("ip").unwrap();
    ip.run(&["netns", "add", &full_name(&name, "tx")]).unwrap();
    fs::write(format!("/run/netns/{}", full_name(&name, "bare")), "").unwrap();
    ip.run(&["-n", &full_name(&name, "dut"), "link", "delete", "dutl"]).unwrap();
    let guard = lab.up().unwrap();
    assert_eq!(list().unwrap().iter().find(|l| l.name == name).unwrap().namespaces, ["dut", "left", "right"]);
    drop(guard);
    assert_gone(&name);
}

#[test]
fn the_guard_cleans_up_on_panic() {
    let Some(name) = name_for_root("panic") else { return };
    let panicked = std::panic::catch_unwind(|| {
        let _guard = Lab::pair(&name).up().unwrap();
        assert!(!state(&name).is_empty());
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert_gone(&name);
}

#[test]
fn a_lab_that_fails_half_way_is_taken_down() {
    let Some(name) = name_for_root("half") else { return };
    // The kernel refuses the second address, because the interface already has it.
    let lab = Lab::pair(&name).address("tx", "tx0", [10, 0, 0, 1], 24).address("tx", "tx0", [10, 0, 0, 1], 24);
    let error = lab.up().unwrap_err();
    assert!(error.to_string().contains("address add"), "{error}");
    assert_gone(&name);
}

/// No packet crosses the lab unless a device under test forwards it, although the links are up.
#[test]
fn a_wire_is_cut_until_something_forwards() {
    let Some(name) = name_for_root("cut") else { return };
    for lab in [Lab::wire(&name), Lab::routed(&name)] {
        let target = lab.addresses.iter().rfind(|a| a.end.namespace == "right" && a.ip.is_ipv4()).unwrap().ip;
        let guard = lab.up().unwrap();
        let status = run(&guard.namespace("left"), &shell(&format!("ping -c1 -W1 {target} >/dev/null 2>&1"))).unwrap();
        assert_eq!(status.code(), Some(1), "somebody forwards in {:?}", guard.lab().addresses);
        // The router's own address is reachable, because the neighbour tables are filled.
        if let Some(dut) = guard.lab().addresses.iter().find(|a| a.end.namespace == "dut") {
            let status = run(&guard.namespace("left"), &shell(&format!("ping -c1 -W2 {} >/dev/null", dut.ip))).unwrap();
            assert!(status.success());
        }
    }
    assert_gone(&name);
}

#[test]
fn the_links_are_set_for_xdp_and_silent() {
    let Some(name) = name_for_root("quiet") else { return };
    let guard = Lab { mtu: 3000, queues: 2, ..Lab::pair(&name) }.up().unwrap();
    // Wait long enough for a router solicitation or a listener report, which the kernel sends within a second of
    // link-up.
    std::thread::sleep(Duration::from_millis(1200));
    for (role, interface) in [("tx", "tx0"), ("dut", "dut0")] {
        let namespace = guard.namespace(role);
        let features = output_in(&namespace, &format!("ethtool -k {interface}"));
        for off in [
            "tx-checksumming",
            "tx-checksum-sctp",
            "tcp-segmentation-offload",
            "tx-tcp6-segmentation",
            "generic-segmentation-offload",
            "rx-vlan-offload",
            "tx-vlan-offload",
        ] {
            assert!(features.contains(&format!("{off}: off")), "{interface}: {off} is not off\n{features}");
        }
        assert!(features.contains("generic-receive-offload: on"), "{features}");
        let link = output_in(&namespace, &format!("ip -s -d -o link show {interface}"));
        for part in ["numtxqueues 2", "numrxqueues 2", "mtu 3000"] {
            assert!(link.contains(part), "{part} is not in {link}");
        }
        let channels = output_in(&namespace, &format!("ethtool -l {interface}"));
        assert_eq!(channels.matches("RX:\t\t2").count(), 2, "{channels}");
        assert_eq!(channels.matches("TX:\t\t2").count(), 2, "{channels}");
        let end = End::new(role, interface);
        assert!(link.contains(&guard.lab().mac_text(&end)));
        let dev = output_in(&namespace, "cat /proc/self/net/dev");
        let line = dev.lines().find(|l| l.contains(interface)).unwrap();
        let packets: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((packets[2], packets[10]), ("0", "0"), "stray frames: {line}");
    }
}

#[test]
fn the_calling_thread_stays_and_values_and_panics_come_back() {
    let Some(name) = name_for_root("thread") else { return };
    let guard = Lab::pair(&name).up().unwrap();
    let namespace = guard.namespace("dut");
    let here = || fs::read_link("/proc/thread-self/ns/net").unwrap();
    let outside = here();
    let (inside, borrowed) = in_namespace(&namespace, || (here(), outside.clone())).unwrap();
    assert_ne!(inside, outside);
    assert_eq!(borrowed, outside);
    assert_eq!(here(), outside);
    assert!(std::panic::catch_unwind(|| in_namespace(&namespace, || panic!("on purpose"))).is_err());
    std::thread::spawn(move || {
        enter(&namespace).unwrap();
        assert_eq!(here(), inside);
    })
    .join()
    .unwrap();
    let error = enter("apus-nosuch-lab").unwrap_err();
    assert!(error.lacks() && error.to_string().contains("apus lab up"), "{error}");
}

#[test]
fn run_gives_the_status_and_names_a_missing_program() {
    let Some(name) = name_for_root("run") else { return };
    let guard = Lab::pair(&name).up().unwrap();
    let namespace = guard.namespace("tx");
    assert_eq!(run(&namespace, &shell("ip link show tx0 >/dev/null && exit 7")).unwrap().code(), Some(7));
    assert_eq!(run(&namespace, &shell("kill -9 $$")).unwrap().signal(), Some(9));
    let error = run(&namespace, &["no-such-program".into()]).unwrap_err();
    assert!(error.to_string().contains("check the name"), "{error}");
    assert!(!run(&namespace, &[]).unwrap_err().lacks());
}

/// Deleting one end of a veth pair also deletes the other end.
#[test]
fn a_pair_with_both_ends_in_one_namespace_goes_too() {
    let Some(name) = name_for_root("both") else { return };
    let guard = Lab::pair(&name).up().unwrap();
    let ip = Tool::find("ip").unwrap();
    ip.run(&["-n", &guard.namespace("dut"), "link", "add", "one0", "type", "veth", "peer", "name", "other0"]).unwrap();
    assert_eq!(guard.down().unwrap().namespaces.len(), 2);
    assert_gone(&name);
}

/// Removing a lab reports processes that still run in it, and does not kill them. The links and names are removed
/// nevertheless.
#[test]
fn down_names_who_is_still_inside() {
    let Some(name) = name_for_root("inside") else { return };
    let guard = Lab::pair(&name).up().unwrap();
    let mut child = spawn(&guard.namespace("dut"), Command::new("sleep").arg("60")).unwrap();
    let removed = guard.down().unwrap();
    assert_gone(&name);
    let alive = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(alive);
    assert_eq!(removed.still_running, [child.id()]);
}

/// Not a test: [`exec_hands_over_status_and_signals`] starts this as a process, which then replaces itself by a
/// command.
#[test]
#[ignore = "started by another test"]
fn becomes_the_command() {
    let Ok(name) = std::env::var("APUS_TEST_LAB") else { return };
    let command =
        shell("trap 'exit 9' TERM; ip link show dut0 >/dev/null || exit 1; echo READY; while :; do sleep 0.05; done");
    panic!("{}", exec(&name, "dut", &command));
}

#[test]
fn exec_hands_over_status_and_signals() {
    let Some(name) = name_for_root("exec") else { return };
    let _guard = Lab::pair(&name).up().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lab::tests::becomes_the_command", "--ignored", "--nocapture"])
        .env("APUS_TEST_LAB", &name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "READY"), "the command did not start");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn exec_refuses_before_it_becomes_anything() {
    assert!(!exec("no/path", "dut", &shell("true")).lacks());
    assert!(!exec("a", "../x", &shell("true")).lacks());
    assert!(exec("nosuchlab", "dut", &shell("true")).to_string().contains("no such namespace"));
}

#[test]
fn bad_topologies_are_refused_before_anything_is_made() {
    let good = || Lab::pair("bad");
    let end = |name: &str| (End::new("tx", name), End::new("dut", "d1"));
    let bad = [
        Lab { name: String::new(), ..good() },
        Lab { name: "../../etc".into(), ..good() },
        Lab { name: "with-hyphen".into(), ..good() },
        Lab { name: "x".repeat(33), ..good() },
        Lab { namespaces: vec!["tx".into(), "tx".into(), "dut".into()], ..good() },
        Lab { namespaces: vec!["tx".into()], ..good() },
        Lab { links: vec![end("sixteen-letters-")], ..good() },
        Lab { links: vec![end("-option")], ..good() },
        Lab { links: vec![end("a b")], ..good() },
        Lab { links: vec![end("")], ..good() },
        Lab { links: vec![end("t0"), end("t1")], ..good() },
        Lab { mtu: 67, ..good() },
        Lab { mtu: 1279, ..Lab::routed("bad") },
        Lab { mtu: 65_536, ..good() },
        Lab { queues: 0, ..good() },
        good().address("tx", "dut0", [10, 0, 0, 1], 24),
    ];
    for lab in bad {
        let error = lab.up().map(Guard::keep).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    for preset in Preset::ALL {
        Lab::new(preset, "good").check().unwrap();
        assert_eq!(preset.to_string().parse::<Preset>().unwrap(), preset);
    }
    assert!("ring".parse::<Preset>().is_err());
}

#[test]
fn every_interface_has_a_mac_address_of_its_own() {
    let lab = Lab::routed("macs");
    let mut macs: Vec<_> = lab.links.iter().flat_map(|(a, b)| [lab.mac(a), lab.mac(b)]).collect();
    assert!(macs.iter().all(|mac| mac.is_some_and(|m| m[0] & 0b11 == 0b10)));
    macs.sort();
    macs.dedup();
    assert_eq!(macs.len(), 4);
    assert_eq!(lab.mac(&End::new("left", "nosuch")), None);
}

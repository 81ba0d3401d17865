//! A guest whose cards are joined to veth ports forwards between them, and `apus bench` measures it like any device.

use std::process::Command;

use serde_json::Value as Json;
use tester::lab::{Guard, Lab, in_namespace};
use vmlab::harness::{Alone, ok};
use vmlab::{Guest, Nic, Vm};

pub(crate) const ALONE: [Alone; 1] = [("forward::a_guest_is_measured_like_any_device", measured)];

/// Each port of the device under test with the tap of the guest's card, and the bridge that joins them.
const JOINS: [[&str; 3]; 2] = [["dutl", "tapl", "brl"], ["dutr", "tapr", "brr"]];

fn join(lab: &Guard) {
    let ip = |words: &str| {
        let output = Command::new("ip").args(["-n", &lab.namespace("dut")]).args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for [port, tap, bridge] in JOINS {
        ip(&format!("tuntap add {tap} mode tap"));
        ip(&format!("link add {bridge} type bridge"));
        for interface in [port, tap] {
            ip(&format!("link set {interface} mtu 9000 master {bridge} up"));
        }
        ip(&format!("link set {bridge} up"));
    }
}

/// Begins `apus run` in the guest. What it says goes to /tmp/said, and at last its exit status.
fn start(guest: &Guest, arguments: &str) {
    ok(guest
        .run(&format!("(apus run {arguments} >/tmp/said 2>&1; echo exit status $? >>/tmp/said) >/dev/null 2>&1 &")));
    ok(guest.wait_until("grep -q -e '^eth1: queue' -e '^exit status' /tmp/said", 600));
}

fn measured() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("VM lab: joining a guest to a network namespace needs root");
    }
    let mut lab = Lab::wire(&format!("vmfwd{}", std::process::id()));
    lab.addresses.clear();
    lab.mtu = 9000;
    let lab = lab.up().unwrap();
    join(&lab);
    let vm = ok(Vm::new()).cpus(1).program(env!("CARGO_BIN_EXE_apus"));
    let vm = JOINS.iter().fold(vm, |vm, [_, tap, _]| vm.nic_on_tap(Nic::Virtio, tap));
    let guest = ok(in_namespace(&lab.namespace("dut"), || vm.boot()).unwrap());

    // Linux 6.1 has no AF_XDP of several buffers, and says no more than EINVAL.
    ok(guest.run("for eth in eth0 eth1; do ip link set $eth mtu 9000 promisc on up; done"));
    start(&guest, "l2fwd eth0 eth1 --xdp generic");
    let said = ok(guest.run("cat /tmp/said"));
    assert!(said.contains("use Linux 6.6 or later; or --frame-size 4096") && said.ends_with("exit status 3"), "{said}");

    ok(guest.run("for eth in eth0 eth1; do ip link set $eth mtu 2200; done"));
    start(&guest, "l2fwd eth0 eth1 --mode interrupt");
    let (left, right) = (lab.namespace("left"), lab.namespace("right"));
    let words = ["bench", "rfc2544", "--quick", "--test", "throughput", "--frame", "64,1518,2000", "--bidirectional"];
    let rates = ["--min-rate", "50pps", "--max-rate", "400pps", "--json"];
    let ports = ["--tx", "left0", "--tx-netns", &left, "--rx", "right0", "--rx-netns", &right];
    let output = Command::new(env!("CARGO_BIN_EXE_apus")).args([&words[..], &rates, &ports].concat()).output().unwrap();
    let document: Json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let sizes = document["result"]["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 3);
    for size in sizes {
        // What rate passes is the machine's matter; that frames pass the guest, whole and once, is not.
        let count = |key: &str| -> u64 {
            size["trials"].as_array().unwrap().iter().map(|trial| trial[key].as_u64().unwrap()).sum()
        };
        let (sent, lost) = (count("sent"), count("lost"));
        println!("{} bytes through the guest: {} of {sent} frames", size["frames"], sent - lost);
        assert!(sent > 0 && lost < sent, "{size}");
        assert_eq!(
            (&size["anomalies"]["corrupted"], &size["anomalies"]["duplicates"]),
            (&0.into(), &0.into()),
            "{size}"
        );
    }
    ok(guest.run("kill -INT $(pidof apus)"));
    ok(guest.wait_until("grep -q '^exit status' /tmp/said", 600));
    let said = ok(guest.run("cat /tmp/said"));
    println!("{said}");
    assert!(said.ends_with("exit status 0"), "{said}");
}

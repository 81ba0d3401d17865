//! `apus diagnose` in the lab: one cause that a busy machine cannot hide, and none. All causes are in `benches/diagnose.py`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tester::lab::{Lab, in_namespace};

use crate::schemas::validate;
use crate::support::{bare, text, turn};
use crate::tune::OwnJournal;

/// What runs while apus watches, and is ended when this is dropped.
struct Load<'a> {
    stop: &'a AtomicBool,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A client in `tx` sends to a server in `dut`, which reads what comes, or hardly anything: then the window closes, however
/// slow the machine is.
fn diagnosed(lab: &Lab, reads: bool) -> (Option<i32>, Value) {
    let stop = AtomicBool::new(false);
    let address = "10.77.9.2:5201";
    let listener = in_namespace(&lab.namespace("dut"), || TcpListener::bind(address).unwrap()).unwrap();
    let (server, client) = (lab.namespace("dut"), lab.namespace("tx"));
    std::thread::scope(|scope| {
        let _load = Load { stop: &stop };
        scope.spawn(|| {
            let (mut from, _) = listener.accept().unwrap();
            from.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut piece = vec![0; if reads { 64 << 10 } else { 1 }];
            while !stop.load(Ordering::Relaxed) {
                let _ = from.read(&mut piece);
                if !reads {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
            }
        });
        let mut to = in_namespace(&client, || TcpStream::connect(address).unwrap()).unwrap();
        let stop = &stop;
        scope.spawn(move || {
            to.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut next = std::time::Instant::now();
            while !stop.load(Ordering::Relaxed) {
                // 8 Mbit/s: a rate that a reader keeps up with on any machine.
                let _ = to.write(&[7; 1000]);
                next += Duration::from_millis(1);
                std::thread::park_timeout(next.saturating_duration_since(std::time::Instant::now()));
            }
        });
        let words =
            ["diagnose", "--netns", &client, "--peer-netns", &server, "--symptom", "slow", "--watch", "2s", "--json"];
        let output = bare(&words);
        let document =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
        (output.status.code(), document)
    })
}

#[test]
fn one_cause_and_none_are_told_apart_in_the_lab() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("diagnosis in a lab needs root: run the tests as root");
    }
    let _turn = turn();
    let lab = Lab::pair("diagnose").address("tx", "tx0", [10, 77, 9, 1], 24).address("dut", "dut0", [10, 77, 9, 2], 24);
    let _guard = lab.up().unwrap();

    // A window needs a while to close at 8 Mbit/s: the socket's buffer of 128 KiB and more.
    let (code, slow) = diagnosed(&lab, false);
    validate(&slow);
    assert_eq!((code, slow["verdict"].as_str()), (Some(1), Some("causes_found")), "{slow:#}");
    assert_eq!(slow["causes"][0]["id"], "slow-app", "{slow:#}");
    assert_eq!(slow["causes"][0]["end"].as_str(), Some(lab.namespace("dut").as_str()));

    let (code, healthy) = diagnosed(&lab, true);
    validate(&healthy);
    // A busy machine may delay, and then delay may be found; but not what the counters exclude.
    let found = |id: &str| {
        healthy["causes"].as_array().unwrap().iter().any(|cause| cause["id"] == id && cause["found"] == true)
    };
    for id in ["slow-app", "buffer", "one-queue", "ring", "offloads", "rps", "loss", "fifo", "rx-moderation"] {
        assert!(!found(id), "{id} in {healthy:#}");
    }
    assert!(code == Some(0) || healthy["verdict"] == "causes_found", "{code:?}");
}

/// Requests and answers over one connection, one at a time, until the flag is set.
fn ping_pong(stop: &AtomicBool, listener: TcpListener, client: TcpStream) {
    let (mut server, _) = listener.accept().unwrap();
    let mut client = client;
    for socket in [&client, &server] {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut piece = [0; 64];
            while server.read_exact(&mut piece).is_ok() {
                let _ = server.write_all(&piece);
            }
        });
        while !stop.load(Ordering::Relaxed) {
            let _ = client.write_all(&[7; 64]);
            let _ = client.read_exact(&mut [0; 64]);
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
}

/// The setting of the other end is switched off and on again, and its effect is measured from here.
#[test]
fn a_cause_is_tried_at_its_end_and_measured_from_here() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("an experiment in a lab needs root: run the tests as root");
    }
    let _turn = turn();
    let own = OwnJournal::new("diagnose");
    let name = format!("try{}", std::process::id());
    let lab = Lab::pair(&name).address("tx", "tx0", [10, 77, 9, 1], 24).address("dut", "dut0", [10, 77, 9, 2], 24);
    let _guard = lab.up().unwrap();
    let (here, peer) = (lab.namespace("tx"), lab.namespace("dut"));
    let within = |script: &str| {
        let output = Command::new("ip").args(["netns", "exec", &peer, "sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    // 5 ms: more than what a busy machine adds.
    within("cd /sys/class/net/dut0; echo 100 >napi_defer_hard_irqs; echo 5000000 >gro_flush_timeout");
    let address = "10.77.9.2:5201";
    let listener = in_namespace(&peer, || TcpListener::bind(address).unwrap()).unwrap();
    let client = in_namespace(&here, || TcpStream::connect(address).unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let ping = "ping -q -c 10 -i 0.02 10.77.9.2 | awk -F/ '/^rtt/ { print $5 }'";
    let words = ["diagnose", "--netns", &here, "--peer-netns", &peer, "--symptom", "late", "--watch", "2s"];
    let (output, failed, hung) = std::thread::scope(|scope| {
        let _load = Load { stop: &stop };
        scope.spawn(|| ping_pong(&stop, listener, client));
        let tried = |more: &[&str]| own.outside(&[&words[..], more].concat());
        let output = tried(&["--budget", "60s", "--try", "sh", "-c", ping]);
        let failed = tried(&["--json", "--try", "false"]);
        let began = std::time::Instant::now();
        let hung = tried(&["--json", "--budget", "2s", "--try", "sleep", "1000"]);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        (output, failed, hung)
    });
    // With --json, the document has the result of the experiment, even if its command fails or hangs.
    for (output, ended, reason) in [(failed, "failed", "exit status: 1"), (hung, "budget", "the rest of the budget")] {
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        validate(&document);
        let tried = &document["tried"];
        assert_eq!((output.status.code(), &tried["cause"]), (Some(1), &"rx-moderation".into()), "{tried:#}");
        let result = &tried["experiment"]["value"];
        assert_eq!(result["ended"], ended, "{tried:#}");
        assert!(result["failures"][0].as_str().unwrap().contains(reason), "{tried:#}");
    }
    let said = text(&output.stdout);
    println!("{said}{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
    assert!(said.contains("1. ") && said.contains("(rx-moderation,"), "{said}");
    let verdict = said.lines().find(|line| line.contains("no receive moderation on dut0") && line.contains("helps"));
    assert!(verdict.is_some(), "{said}");
    assert_eq!(within("cd /sys/class/net/dut0; cat napi_defer_hard_irqs gro_flush_timeout"), "100\n5000000\n");
    let status = own.outside(&["tune", "status"]);
    assert!(text(&status.stdout).contains("nothing is applied"), "{}", text(&status.stdout));
}

/// A recording without the watch is judged by what it has, and says what it lacks; wrong names are refused.
#[test]
fn recordings_and_wrong_names() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("diagnose-host");
    for (path, contents) in [
        ("proc/cmdline", "quiet\n"),
        ("proc/uptime", "100.00 1\n"),
        ("again/proc/uptime", "104.00 1\n"),
        ("sys/class/net/eth0/mtu", "1500\n"),
        ("sys/class/net/eth0/statistics/rx_packets", "100\n"),
        ("sys/class/net/eth0/statistics/rx_missed_errors", "0\n"),
        ("again/sys/class/net/eth0/statistics/rx_packets", "900100\n"),
        ("again/sys/class/net/eth0/statistics/rx_missed_errors", "40000\n"),
        (
            "commands/ethtool_-g_eth0",
            "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nTX:\t\t4096\nCurrent hardware settings:\nRX:\t\t64\nTX:\t\t512\n",
        ),
    ] {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    let from = folder.to_str().unwrap();
    let output = bare(&["diagnose", "--from", from, "--symptom", "drops", "--json"]);
    let said: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    validate(&said);
    assert_eq!((output.status.code(), said["causes"][0]["id"].as_str()), (Some(1), Some("ring")), "{said:#}");
    assert!(said["unknown"][0].as_str().unwrap().contains("sockets and polls: not recorded"), "{said:#}");
    let as_text = bare(&["diagnose", "--from", from, "--symptom", "drops"]);
    let shown = text(&as_text.stdout);
    assert!(shown.contains("1. The receive ring of eth0 overflows: 4.3 % of the packets are dropped"), "{shown}");

    for (words, status, why) in [
        (vec!["--from", from, "--nic", "eth9"], 2, "eth0"),
        (vec!["--from", from, "--peer", from], 2, "the same recording"),
        (vec!["--from", from, "--peer-nic", "eth0"], 2, "no other end"),
        (vec!["--from", from, "--watch", "2s"], 2, "cannot be used with"),
        (vec!["--from", from, "--budget", "2s"], 2, "cannot be used with"),
        (vec!["--from", from, "--more-is-better"], 2, "cannot be used with"),
        (vec!["--from", "/nowhere.tar"], 2, "cannot read"),
        (vec!["--netns", "no-such-namespace"], 3, "no such namespace"),
        (vec!["--netns", "a", "--peer-netns", "a"], 2, "the same namespace"),
        (vec!["--keep", "/nowhere/k"], 3, "--keep PREFIX"),
        (vec!["--budget", "2s"], 2, "--try"),
        (vec!["--measured", "3.4"], 2, "Gbps"),
        (vec!["--measured", "0bps"], 2, "at least 1bps"),
        (vec!["--ping", "0s"], 2, "above 0"),
        (vec!["--watch", "1ms"], 2, "expected"),
        (vec!["--symptom", "sad"], 2, "slow"),
    ] {
        let words = [vec!["diagnose"], words].concat();
        let output = bare(&words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{words:?}: {}", text(&output.stderr));
    }
}

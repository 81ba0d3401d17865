use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tester::lab::{End, Guard, Lab};

use crate::run::wait_for;
use crate::schemas::validate;
use crate::support::{Root, Running, apus, bare, plain, text, turn};

/// `left0` ═ `dutl` `apus run l2fwd` `dutr` ═ `right0`; `None`, with a printed line, without the privilege.
fn lab(name: &str) -> Option<Guard> {
    lab_of(name, 1500)
}

fn lab_of(name: &str, mtu: u32) -> Option<Guard> {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return None;
    }
    let mut lab = Lab::wire(&format!("{name}{}", std::process::id()));
    lab.addresses.clear(); // nothing but the tester's frames
    lab.mtu = mtu;
    Some(lab.up().unwrap())
}

fn forwarder(root: &Root, lab: &Guard) -> Running {
    forwarder_of(root, lab, &["l2fwd"])
}

fn forwarder_of(root: &Root, lab: &Guard, app: &[&str]) -> Running {
    let netns = lab.namespace("dut");
    let ports = ["dutl", "dutr", "--netns", &netns, "--name", "dut", "--mode", "interrupt", "--json"];
    let words = [&["run"], app, &ports].concat();
    let child = apus(root, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let running = Running(child);
    let is_up = |output: std::process::Output| text(&output.stdout).contains("\"running\"");
    wait_for("the forwarder", || apus(root, &["top", "--json", "--interval", "20ms"]).output().is_ok_and(is_up));
    running
}

fn bench(lab: &Guard, words: &[&str]) -> (Option<i32>, Value) {
    let (left, right) = (lab.namespace("left"), lab.namespace("right"));
    let ports = ["--tx", "left0", "--tx-netns", &left, "--rx", "right0", "--rx-netns", &right, "--json"];
    let output = bare(&[words, &ports].concat());
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    validate(&document);
    (output.status.code(), document)
}

#[test]
fn a_device_is_measured_in_both_directions() {
    let _turn = turn();
    let Some(lab) = lab("rfc") else { return };
    let root = Root::new();
    let _running = forwarder(&root, &lab);
    let file = root.0.join("a.json").display().to_string();
    let quick = ["bench", "rfc2544", "--quick", "--min-rate", "500pps", "--max-rate", "8kpps"];
    let more = ["--frame", "64,1518", "--bidirectional", "--device", "l2fwd", "-o", &file];
    let (code, document) = bench(&lab, &[&quick[..], &more].concat());
    let result = &document["result"];
    assert!(result["standard"].as_str().unwrap().starts_with("not RFC 2544"), "{result}");
    assert_eq!((&result["conforms"], &result["ended"]["complete"]), (&false.into(), &true.into()));
    let sizes = result["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 2);
    for size in sizes {
        // What rate passes is the machine's matter, even whether one does; that frames pass is not.
        let trials = size["trials"].as_array().unwrap();
        let forwarded = |trial: &Value| trial["sent"].as_u64().unwrap() > trial["lost"].as_u64().unwrap();
        assert!(trials.iter().any(forwarded), "{size}");
        assert!(size["tester_ceiling_pps"]["value"].as_u64().unwrap() > 0);
        assert!(size["tester"]["pacing"]["count"].as_u64().unwrap() > 0);
        for kind in ["duplicates", "corrupted", "looped", "reordered"] {
            assert_eq!(size["anomalies"][kind], 0, "{kind}: {size}");
        }
    }
    let all = sizes.iter().all(|size| size["throughput_pps"]["value"].is_object());
    assert_eq!(code, Some(if all { 0 } else { 1 }), "{result}");

    let output = bare(&["bench", "compare", &file, &file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    validate(&serde_json::from_slice(&output.stdout).unwrap());
    let html = root.0.join("r.html").display().to_string();
    let output = bare(&["report", &file, "-o", &html]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.contains("Throughput against frame size") && html.contains("not RFC 2544"));

    let soak = ["bench", "soak", "--rate", "500pps", "--duration", "400ms", "--window", "100ms", "--frame", "128"];
    let (_, document) = bench(&lab, &soak);
    let result = &document["result"];
    assert_eq!(result["windows"].as_array().unwrap().len(), 4, "{result}");
    assert!(result["sent"].as_u64() > result["lost"].as_u64(), "{result}");

    // Two goals in a short search; flows in VLANs over IPv6.
    let goals = ["--goal", "final=100ms,sum=300ms,initial=100ms,exceed=50%,width=30%", "--goal"];
    let goals = [&goals[..], &["final=100ms,sum=300ms,initial=100ms,exceed=50%,width=30%,loss=5%"]].concat();
    let search =
        ["bench", "mlr", "--min-rate", "500pps", "--max-rate", "4kpps", "--pause", "10ms", "--warm-up", "50ms"];
    let frames = ["--frame", "imix:bbbg", "--ip", "ipv6", "--vlan", "5", "--flows", "300"];
    let (_, document) = bench(&lab, &[&search[..], &goals, &frames].concat());
    let size = &document["result"]["sizes"][0];
    assert_eq!(size["goals"].as_array().unwrap().len(), 2, "{document}");
    assert_eq!((&size["anomalies"]["reordered"], &document["setup"]["flows"]), (&0.into(), &300.into()));
}

/// Frames of 9000 bytes take several AF_XDP buffers: of the tester, and of a forwarder whose ports have such an MTU.
#[test]
fn jumbo_frames_are_forwarded_in_both_directions() {
    let _turn = turn();
    let Some(lab) = lab_of("jumbo", 9000) else { return };
    let root = Root::new();
    let mac = |role: &str, end: &str| {
        let mac = lab.lab().mac(&End::new(role, end)).unwrap();
        mac.map(|octet| format!("{octet:02x}")).join(":")
    };
    let routes = root.0.join("routes.toml").display().to_string();
    let route = |prefix: &str, port: &str, to: String| {
        format!("[[route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nmac = \"{to}\"\n")
    };
    let all =
        [route("198.18.0.0/16", "dutl", mac("left", "left0")), route("198.19.0.0/16", "dutr", mac("right", "right0"))];
    std::fs::write(&routes, all.concat()).unwrap();
    let (left, right) = (mac("dut", "dutl"), mac("dut", "dutr"));
    let routed = ["--ip", "ipv4", "--mac", &left, "--back-mac", &right];
    for (app, frames) in [(&["l2fwd"][..], &[][..]), (&["l3fwd", "--routes", &routes], &routed)] {
        let mut running = forwarder_of(&root, &lab, app);
        let quick =
            ["bench", "rfc2544", "--quick", "--test", "throughput", "--min-rate", "200pps", "--max-rate", "1kpps"];
        let sizes = ["--frame", "64,4000,6000,9000", "--bidirectional"];
        let (_, document) = bench(&lab, &[&quick[..], &sizes, frames].concat());
        let sizes = document["result"]["sizes"].as_array().unwrap();
        assert_eq!(sizes.len(), 4);
        for size in sizes {
            // What rate passes is the machine's matter; that whole frames pass is not.
            let count = |key: &str| -> u64 {
                let trials = size["trials"].as_array().unwrap().iter();
                trials.map(|trial| trial[key].as_u64().unwrap()).sum()
            };
            let (sent, lost) = (count("sent"), count("lost"));
            assert!(sent > 0 && lost < sent / 2, "{app:?} lost {lost} of {sent}: {size}");
            assert_eq!(size["anomalies"]["corrupted"], 0, "{app:?}: {size}");
        }
        running.signal(Signal::INT);
        let document: Value = serde_json::from_reader(running.0.stdout.as_mut().unwrap()).unwrap();
        assert_eq!(document["config"]["frame_size_octets"], 16_384, "{document}");
        assert_eq!(document["warnings"], Value::Array(Vec::new()), "{document}");
        assert!(running.0.wait().unwrap().success());
    }
    // Slots that the user made too small for such frames.
    let netns = lab.namespace("dut");
    let words = ["run", "l2fwd", "dutl", "dutr", "--netns", &netns, "--frame-size", "4096", "--duration", "50ms"];
    let output = apus(&root, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for port in ["dutl", "dutr"] {
        let said = format!(
            "warning: {port} has an MTU of 9000, but frames of more than 3836 bytes do not fit into --frame-size and \
             are lost; use --frame-size 16384, or lower its MTU to 3818"
        );
        assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    }
}

/// Frames that the forwarder has received.
fn forwarded(root: &Root) -> u64 {
    let output = apus(root, &["top", "--json", "--interval", "10ms"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    document["instances"][0]["workers"][0]["total"]["received_frames"].as_u64().unwrap_or(0)
}

#[test]
fn a_long_procedure_that_is_interrupted_or_loses_its_port_keeps_what_it_measured() {
    let _turn = turn();
    let Some(lab) = lab("cut") else { return };
    let root = Root::new();
    let _running = forwarder(&root, &lab);
    let (left, right) = (lab.namespace("left"), lab.namespace("right"));
    for cut in ["signal", "port"] {
        let file = root.0.join(format!("{cut}.json")).display().to_string();
        let words = ["bench", "rfc2544", "--quick", "--streams", "1000", "--max-rate", "1kpps", "--duration", "500ms"];
        // Several sizes: on a stalled machine no rate passes, which ends a size after few frames.
        let sizes = ["--min-rate", "100pps", "--frame", "64,128,256,512,1024,1280,1518", "-o", &file];
        let words = [&words[..], &sizes].concat();
        let ports = ["--tx", "left0", "--tx-netns", &left, "--rx", "right0", "--rx-netns", &right, "--json"];
        let command = &mut plain(&[&words[..], &ports].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let running = std::cell::RefCell::new(Running(child));
        // To find what the tester can send takes three trials of 500 frames on a stalled machine, where the tester skips
        // frames. The first trial and its learning frames take fewer than 1,000 more: after 3,000 it is over.
        let before = forwarded(&root);
        wait_for("the first trials", || {
            forwarded(&root) > before + 3_000 || running.borrow_mut().0.try_wait().unwrap().is_some()
        });
        let mut running = running.into_inner();
        match cut {
            "signal" => running.signal(Signal::INT),
            _ => {
                let deleted = std::process::Command::new("ip").args(["-n", &left, "link", "del", "left0"]).status();
                assert!(deleted.unwrap().success());
            }
        }
        let document: Value = serde_json::from_reader(running.0.stdout.as_mut().unwrap()).unwrap();
        validate(&document);
        assert_eq!(running.0.wait().unwrap().code(), Some(1));
        let ended = &document["result"]["ended"];
        assert_eq!(ended["complete"], false);
        let word = if cut == "signal" { "interrupted" } else { "left0" };
        assert!(ended["because"].as_str().unwrap().contains(word), "{ended}");
        let sizes = document["result"]["sizes"].as_array().unwrap();
        assert!(sizes.iter().any(|size| !size["trials"].as_array().unwrap().is_empty()), "{document}");
        assert!(std::fs::read_to_string(&file).unwrap().contains("\"complete\":false"));
    }
}

/// Ctrl-C keeps what was measured, and is no success.
#[test]
fn an_interrupted_measurement_is_kept() {
    let _turn = turn();
    let Some(lab) = lab("stop") else { return };
    let root = Root::new();
    let _running = forwarder(&root, &lab);
    let (left, right) = (lab.namespace("left"), lab.namespace("right"));
    let file = root.0.join("a.json").display().to_string();
    std::fs::write(&file, "an earlier result").unwrap();
    let port = ["--port", "left0", "--netns", &left, "--json", "-o", &file];
    let ports = ["--tx", "left0", "--tx-netns", &left, "--rx", "right0", "--rx-netns", &right, "--json", "-o", &file];
    let load = ["bench", "load", "--rfc2544", "--max-rate", "2kpps"];
    for (words, ended) in [
        ([&["bench", "latency", "--duration", "60s"], &port[..]].concat(), "/result/latency/interrupted"),
        ([&load, &port[..]].concat(), "/result/load/end"),
        ([&["bench", "load", "--flood", "--duration", "60s"], &port[..]].concat(), "/result/flood/interrupted"),
        ([&["bench", "soak", "--rate", "2kpps", "--window", "60s"], &ports[..]].concat(), "/result/ended/complete"),
    ] {
        let before = forwarded(&root);
        let child = plain(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let running = std::cell::RefCell::new(Running(child));
        wait_for("the first frames", || {
            forwarded(&root) > before + 500 || running.borrow_mut().0.try_wait().unwrap().is_some()
        });
        let mut running = running.into_inner();
        let earlier = std::fs::read_to_string(&file).unwrap();
        assert!(!earlier.is_empty(), "the file was emptied too early");
        running.signal(Signal::INT);
        let document: Value = serde_json::from_reader(running.0.stdout.as_mut().unwrap()).unwrap();
        validate(&document);
        assert_eq!(running.0.wait().unwrap().code(), Some(1), "{words:?}");
        let expected = match ended {
            "/result/load/end" => Value::from("interrupted"),
            "/result/ended/complete" => Value::from(false),
            _ => Value::from(true),
        };
        assert_eq!(document.pointer(ended), Some(&expected), "{words:?}: {document}");
        let kept = std::fs::read_to_string(&file).unwrap();
        // The first trial of the search takes 60 s, and a flood counts no frames of its warm-up: nothing was measured.
        let result = &document["result"];
        if result["load"]["trials"] == Value::Array(Vec::new()) || result["flood"]["sent"] == 0 {
            assert_eq!(kept, earlier);
        } else {
            assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), document);
        }
        if words[1] == "soak" {
            assert!(document["result"]["sent"].as_u64().unwrap() > 0, "{document}");
        }
    }
}

/// The kernel forwards a frame of a flow only after the tester has answered who has its destination.
#[test]
fn a_router_finds_the_hosts_of_the_flows() {
    let _turn = turn();
    let Some(lab) = lab("router") else { return };
    let netns = lab.namespace("dut");
    let script = "cd /proc/sys/net
                  for port in all dutl dutr; do echo 0 > ipv6/conf/$port/disable_ipv6; done
                  echo 1 > ipv4/ip_forward; echo 1 > ipv6/conf/all/forwarding
                  near() { ip address add $1 dev dutl $2; }
                  far() { ip address add $1 dev dutr $2; }
                  near 198.18.0.1/16; near fe80::1/64 nodad; near 2001:2::1/49 nodad
                  far 198.19.0.1/16; far fe80::2/64 nodad; far 2001:2:0:8000::1/49 nodad";
    let made = std::process::Command::new("ip").args(["netns", "exec", &netns, "sh", "-ec", script]).status();
    assert!(made.unwrap().success());
    let mac = lab.lab().mac(&End::new("dut", "dutl")).unwrap().map(|octet| format!("{octet:02x}")).join(":");
    for family in ["ipv4", "ipv6"] {
        let quick =
            ["bench", "rfc2544", "--quick", "--test", "throughput", "--min-rate", "100pps", "--max-rate", "1kpps"];
        let frames = ["--ip", family, "--flows", "300", "--mac", &mac, "--frame", "128"];
        let (_, document) = bench(&lab, &[&quick[..], &frames].concat());
        // What rate passes is the machine's matter; that frames pass is not.
        let trials = document["result"]["sizes"][0]["trials"].as_array().unwrap().clone();
        let forwarded = |trial: &Value| trial["sent"].as_u64().unwrap() > trial["lost"].as_u64().unwrap();
        assert!(trials.iter().any(forwarded), "{family}: {document}");
    }
}

/// Ctrl-C while the tester measured itself once replaced the result of the day before by an empty one.
#[test]
fn an_interruption_before_the_first_trial_keeps_the_earlier_result() {
    let _turn = turn();
    let Some(lab) = lab("early") else { return };
    let root = Root::new();
    let _running = forwarder(&root, &lab);
    let (left, right) = (lab.namespace("left"), lab.namespace("right"));
    let file = root.0.join("a.json").display().to_string();
    std::fs::write(&file, "an earlier result").unwrap();
    let ports = ["--tx", "left0", "--tx-netns", &left, "--rx", "right0", "--rx-netns", &right, "--json", "-o", &file];
    for what in ["rfc2544", "mlr"] {
        let before = forwarded(&root);
        let mut command = plain(&[&["bench", what, "--frame", "64"], &ports[..]].concat());
        let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        wait_for("the first frames", || forwarded(&root) > before + 100);
        running.signal(Signal::INT);
        let document: Value = serde_json::from_reader(running.0.stdout.as_mut().unwrap()).unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(1));
        assert_eq!(document["result"]["ended"]["complete"], false, "{document}");
        // The tester needs at least six trials of 200 ms to find its own rate, and has just begun the first.
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "an earlier result", "{document}");
    }
}

/// Wrong options end with status 2 before a port is opened, and say which option is wrong.
#[test]
fn wrong_rates_sizes_and_options_are_refused() {
    let file = std::env::temp_dir().join(format!("apus-earlier-{}.json", std::process::id()));
    std::fs::write(&file, "{\"schema\":\"apus.bench-mlr/1\"}").unwrap();
    let file = file.to_str().unwrap();
    for (words, status, said) in [
        (&["rfc2544", "--tx", "no0", "--ip", "ipv6", "--frame", "64"] as &[&str], 2, "at least 84 bytes"),
        (&["rfc2544", "--tx", "no0", "--frame", "64,64"], 2, "twice"),
        (&["rfc2544", "--tx", "no0", "--min-rate", "9kpps", "--max-rate", "8kpps"], 2, "--min-rate"),
        (&["rfc2544", "--tx", "no0", "--reset-command", "true"], 2, "--test reset"),
        (&["rfc2544", "--tx", "no0", "-o", file], 3, "no0"),
        (&["mlr", "--tx", "no0", "--ip", "ipv4", "--vlan", "7", "--frame", "64"], 2, "at least 68 bytes"),
        (&["mlr", "--tx", "no0", "--goal", "loss=1%", "--goal", "loss=1%"], 2, "the same"),
        (&["mlr", "--tx", "no0", "--goal", "loss=1%", "--preset", "csit"], 2, "cannot be used with"),
        (&["soak", "--tx", "no0", "--rate", "999Gpps"], 2, "--rate"),
        (&["soak", "--tx", "no0", "--rate", "0pps"], 2, "--rate"),
        (&["soak", "--tx", "no0", "--rate", "1kpps", "--window", "1ns"], 2, "at least 100ms"),
        (&["soak", "--tx", "no0", "--rate", "1pps", "--window", "100ms", "--duration", "9000000s"], 2, "windows"),
        (&["load", "--port", "no0", "--ring", "268435456"], 2, "power of two"),
        (&["load", "--port", "no0", "--width", "0"], 2, "--width"),
        (&["load", "--port", "no0", "--flood", "--loss", "1%"], 2, "--flood"),
        (&["load", "--port", "no0", "-o", file], 3, "no0"),
        (&["latency", "--port", "no0", "-o", file, "--histogram", file], 2, "the same file"),
        (&["latency", "--port", "no0", "-o", "/nowhere/x"], 3, "cannot write /nowhere/x"),
        (&["compare", file, file], 2, "apus bench rfc2544 -o"),
    ] {
        let words = [&["bench"], words].concat();
        let output = bare(&words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(said), "{words:?}: {errors}");
    }
    let report = |words: &[&str]| bare(&[&["report"], words].concat());
    assert!(text(&report(&[file, "-o", file]).stderr).contains("also an input"));
    assert!(text(&report(&[file, "-o", "/dev/null"]).stderr).contains("a report shows no others"));
    assert!(std::fs::read_to_string(file).unwrap().contains("apus.bench-mlr/1"), "an earlier result was lost");
    std::fs::remove_file(file).unwrap();
}

use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::knob::{Access, Napi, Setting as _, Value};
use rustix::process::Signal;
use serde_json::Value as Json;
use tester::lab::{Guard, Lab, in_namespace, spawn};

use crate::run::wait_for;
use crate::schemas::validate;
use crate::support::{BIND, Running, bare, text, turn};

const DUT: &str = "192.0.2.1";
const TX: &str = "192.0.2.2";

/// Two hosts on one link, whose kernels talk; `None`, with a printed line, without the privilege.
fn lab(name: &str) -> Option<Guard> {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return None;
    }
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let lab = Lab::pair(&format!("{name}{}", std::process::id()));
    Some(lab.address("dut", "dut0", ip(DUT), 24).address("tx", "tx0", ip(TX), 24).up().unwrap())
}

/// `apus moderate` in the namespace of the device under test, with a journal of its own.
fn start(lab: &Guard, journal: &std::path::Path, words: &[&str]) -> Running {
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", BIND]).arg(journal);
    command.arg(env!("CARGO_BIN_EXE_apus")).arg("moderate").args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(spawn(&lab.namespace("dut"), &mut command).unwrap())
}

/// A folder for the journal, removed on drop.
struct Journal(std::path::PathBuf);

impl Journal {
    fn new(name: &str) -> Self {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn output(mut running: Running) -> (Option<i32>, String, String) {
    let child: &mut Child = &mut running.0;
    let (mut out, mut err) = (String::new(), String::new());
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut out).unwrap();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut err).unwrap();
    (child.wait().unwrap().code(), out, err)
}

/// The deferral of the first queue of the device under test.
fn deferral(lab: &Guard) -> Value {
    in_namespace(&lab.namespace("dut"), || Napi::new("dut0", 0).read(&Access::live().unwrap()).unwrap().unwrap())
        .unwrap()
}

fn timeout(value: &Value) -> u64 {
    value.field("gro-flush-timeout").unwrap().parse().unwrap()
}

/// Runs `during` while datagrams go to an application of the device under test, each 50 us or as the machine can.
fn with_traffic<T>(lab: &Guard, during: impl FnOnce() -> T) -> T {
    let end = AtomicBool::new(false);
    let (dut, tx) = (lab.namespace("dut"), lab.namespace("tx"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_namespace(&dut, || {
                let socket = UdpSocket::bind((DUT, 7_000)).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                let mut octets = [0; 200];
                while !end.load(Ordering::Relaxed) {
                    let _ = socket.recv(&mut octets); // or nothing came
                }
            })
        });
        scope.spawn(|| {
            in_namespace(&tx, || {
                let socket = UdpSocket::bind((TX, 0)).unwrap();
                let mut due = Instant::now();
                while !end.load(Ordering::Relaxed) {
                    let _ = socket.send_to(&[0; 100], (DUT, 7_000)); // refused as long as nobody listens
                    due += Duration::from_micros(50);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            })
        });
        let result = during();
        end.store(true, Ordering::Relaxed);
        result
    })
}

/// Runs the command beside traffic, and returns its status and its only queue; everything must be as before.
fn steered(lab: &Guard, journal: &Journal, words: &[&str]) -> (Option<i32>, Json) {
    let before = deferral(lab);
    assert_eq!(timeout(&before), 0);
    let (status, out, err) = with_traffic(lab, || {
        let mut all = vec!["dut0", "--duration", "4s", "--json"];
        all.extend(words);
        let running = start(lab, &journal.0, &all);
        wait_for("the deferral", || timeout(&deferral(lab)) > 0);
        output(running)
    });
    let document: Json = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    validate(&document);
    assert_eq!((&document["restored"], deferral(lab)), (&Json::Bool(true), before), "{document:#}");
    (status, document["queues"][0].clone())
}

fn number(queue: &Json, key: &str) -> u64 {
    queue[key].as_u64().unwrap_or_else(|| panic!("{key}: {queue:#}"))
}

/// How busy the machine is decides how late packets are, and not what the timer makes of their polls: one that brings
/// packets, and at most one that finds none, for each time that the timer runs.
#[test]
fn a_queue_is_polled_by_its_timer_and_not_for_each_packet() {
    let _turn = turn();
    let Some(lab) = lab("mods") else { return };
    let journal = Journal::new("moderate-static");
    let (status, queue) = steered(&lab, &journal, &["--policy", "static:5000us"]);
    assert_eq!((status, number(&queue, "timer_ns"), number(&queue, "changes")), (Some(0), 5_000_000, 1), "{queue:#}");
    let most = 2 * number(&queue, "span_ns") / 5_000_000 + 10;
    assert!(number(&queue, "polls") <= most, "{queue:#}");
    assert!(number(&queue, "packets") > 0 && number(&queue, "measured") > 0, "{queue:#}");
}

/// Everything is as before at the end, [`steered`] sees to that.
#[test]
fn an_application_that_polls_with_epoll_may_suspend_interrupts_for_as_long_as_the_timer() {
    let _turn = turn();
    let Some(lab) = lab("mode") else { return };
    let journal = Journal::new("moderate-epoll");
    let running = start(&lab, &journal.0, &["dut0", "--policy", "static:5000us", "--place", "epoll", "--json"]);
    wait_for("the deferral", || timeout(&deferral(&lab)) > 0);
    let set = deferral(&lab);
    assert_eq!(set.field("irq-suspend-timeout"), Some("5000000"), "{set}");
    running.signal(Signal::INT);
    let (status, out, err) = output(running);
    assert_eq!((status, deferral(&lab).field("irq-suspend-timeout")), (Some(0), Some("0")), "{out}{err}");
}

#[test]
fn a_goal_is_steered_for_and_everything_is_as_before() {
    let _turn = turn();
    let Some(lab) = lab("mod") else { return };
    let journal = Journal::new("moderate");
    let (status, queue) = steered(&lab, &journal, &["--goal", "p99=20ms"]);
    let (timer, read) = (number(&queue, "timer_ns"), number(&queue, "reception_to_read_ns"));
    assert_eq!(timer, number(&queue, "arrival_to_reception_bound_ns"), "{queue:#}");
    // On a machine so busy that the application alone is late, the goal is missed, and that is said.
    let share = queue["late"].as_f64().unwrap() / number(&queue, "judged") as f64;
    assert_eq!((queue["verdict"] == "held", status == Some(0)), (share <= 0.01, share <= 0.01), "{queue:#}");
    // There is none at first, and then one or more that leave room for the application.
    assert!(read > 5_000_000 || number(&queue, "changes") > 1, "{queue:#}");
    assert!(read < 20_000_000 || timer < 10_000_000, "no timer on top of that: {queue:#}");
}

#[test]
fn a_killed_one_is_named_by_a_dry_one_and_restored_by_the_next() {
    let _turn = turn();
    let Some(lab) = lab("modk") else { return };
    let journal = Journal::new("moderate-killed");
    let before = deferral(&lab);
    let mut running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || timeout(&deferral(&lab)) == 300_000);
    // unshare and sh have become apus: it is the child itself.
    assert_eq!(running.end(Signal::KILL), None);
    assert_eq!(timeout(&deferral(&lab)), 300_000, "nobody was left to restore it");
    let (status, out, err) = output(start(&lab, &journal.0, &["dut0", "--dry-run", "--duration", "1s"]));
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(err.contains("apus tune rollback --abandoned"), "{err}");
    assert_eq!(timeout(&deferral(&lab)), 300_000, "a dry run changes nothing");
    // It measures before it sets a timer.
    assert!(out.contains("dut0 queue 0: timer off (initial setting)"), "{out}");
    assert!(out.contains("Nothing was changed (--dry-run)."), "{out}");
    let (status, out, err) = output(start(&lab, &journal.0, &["dut0", "--policy", "static:1us", "--duration", "1s"]));
    assert_eq!(status, Some(0), "{out}{err}");
    assert_eq!(deferral(&lab), before, "{err}");
    let left: Vec<_> =
        std::fs::read_dir(journal.0.join("apus/tune")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn what_somebody_else_sets_is_theirs_and_ctrl_c_restores() {
    let _turn = turn();
    let Some(lab) = lab("modt") else { return };
    let journal = Journal::new("moderate-theirs");
    let mut running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || timeout(&deferral(&lab)) == 300_000);
    running.signal(Signal::INT);
    let (status, out, _) = output(running);
    assert_eq!((status, timeout(&deferral(&lab))), (Some(0), 0), "{out}");
    assert!(out.contains("The original settings are restored."), "{out}");
    running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || timeout(&deferral(&lab)) == 300_000);
    set_theirs(&lab);
    // Its only loop has ended, and so does the command.
    let (status, out, err) = output(running);
    assert!(out.contains("no longer controlled: somebody else set it to"), "{out}{err}");
    assert_eq!((status, timeout(&deferral(&lab))), (Some(1), 77_000), "{out}{err}");
}

/// Regression test: what somebody else had set in the last second was called not restored, and its journal stayed.
#[test]
fn what_somebody_else_sets_just_before_the_end_is_theirs_too() {
    let _turn = turn();
    let Some(lab) = lab("modl") else { return };
    let journal = Journal::new("moderate-theirs-last");
    let running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || timeout(&deferral(&lab)) == 300_000);
    set_theirs(&lab);
    running.signal(Signal::INT);
    let (status, out, err) = output(running);
    assert!(out.contains("no longer controlled: somebody else set it to"), "{out}{err}");
    assert!(out.contains("No setting was left to restore."), "{out}{err}");
    assert_eq!((status, timeout(&deferral(&lab))), (Some(1), 77_000), "{out}{err}");
    let left: Vec<_> =
        std::fs::read_dir(journal.0.join("apus/tune")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "{err}");
}

/// Sets another deferral, by the device's file, which sets all of its NAPI instances.
fn set_theirs(lab: &Guard) {
    let theirs = "mount -t sysfs none /sys && echo 77000 > /sys/class/net/dut0/gro_flush_timeout";
    let mut other = std::process::Command::new("unshare");
    other.args(["--mount", "--propagation", "private", "sh", "-c", theirs]);
    assert!(spawn(&lab.namespace("dut"), &mut other).unwrap().wait().unwrap().success());
}

/// Runs ip in the namespace of the device under test.
fn ip(lab: &Guard, words: &[&str]) {
    let status = spawn(&lab.namespace("dut"), std::process::Command::new("ip").args(words)).unwrap().wait().unwrap();
    assert!(status.success(), "{words:?}");
}

/// Whether the deferral's time is this one; not if there is no instance.
fn is_deferred(lab: &Guard, ns: u64) -> bool {
    is_deferred_at(lab, "dut", "dut0", ns)
}

/// The same of any interface in one of the lab's namespaces.
fn is_deferred_at(lab: &Guard, namespace: &str, interface: &str, ns: u64) -> bool {
    let value = || Napi::new(interface, 0).read(&Access::live().unwrap()).unwrap();
    in_namespace(&lab.namespace(namespace), value).unwrap().is_some_and(|value| timeout(&value) == ns)
}

#[test]
fn an_interface_that_went_down_and_up_is_steered_again() {
    let _turn = turn();
    let Some(lab) = lab("modd") else { return };
    let journal = Journal::new("moderate-down");
    let running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    ip(&lab, &["link", "set", "dut0", "down"]);
    std::thread::sleep(Duration::from_millis(1_500));
    ip(&lab, &["link", "set", "dut0", "up"]);
    wait_for("the deferral of the new instance", || is_deferred(&lab, 300_000));
    running.signal(Signal::INT);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(out.contains("the interface is down"), "{out}");
    assert!(out.contains("The original settings are restored."), "{out}");
    assert!(is_deferred(&lab, 0));
}

#[test]
fn an_interface_that_was_renamed_is_steered_on_and_restored() {
    let _turn = turn();
    let Some(lab) = lab("modk") else { return };
    let journal = Journal::new("moderate-renamed");
    let running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    ip(&lab, &["link", "set", "dut0", "down"]);
    ip(&lab, &["link", "set", "dut0", "name", "lan0"]);
    ip(&lab, &["link", "set", "lan0", "up"]);
    wait_for("the deferral under the new name", || is_deferred_at(&lab, "dut", "lan0", 300_000));
    running.signal(Signal::INT);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(out.contains("The original settings are restored."), "{out}");
    assert!(is_deferred_at(&lab, "dut", "lan0", 0));
}

#[test]
fn an_interface_that_moved_to_another_namespace_is_let_go_of() {
    let _turn = turn();
    let Some(lab) = lab("modv") else { return };
    let journal = Journal::new("moderate-moved");
    let running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    ip(&lab, &["link", "set", "dut0", "netns", &lab.namespace("tx")]);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(out.contains("no longer controlled: it is gone"), "{out}");
    assert!(out.contains("No setting was left to restore."), "{out}");
    // It went down with the move. The instances that it gets when it is up again have the defaults.
    let up = spawn(&lab.namespace("tx"), std::process::Command::new("ip").args(["link", "set", "dut0", "up"]));
    assert!(up.unwrap().wait().unwrap().success());
    wait_for("the deferral in the other namespace", || is_deferred_at(&lab, "tx", "dut0", 0));
}

#[test]
fn a_deleted_interface_ends_it_and_leaves_nothing() {
    let _turn = turn();
    let Some(lab) = lab("modx") else { return };
    let journal = Journal::new("moderate-deleted");
    let running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    ip(&lab, &["link", "delete", "dut0"]);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(out.contains("no longer controlled: it is gone"), "{out}");
    assert!(out.contains("No setting was left to restore."), "{out}");
    let left: Vec<_> =
        std::fs::read_dir(journal.0.join("apus/tune")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "{err}");
}

#[test]
fn one_instance_steers_a_queue() {
    let _turn = turn();
    let Some(lab) = lab("modi") else { return };
    let journal = Journal::new("moderate-two");
    let mut running = start(&lab, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    let (status, out, err) = output(start(&lab, &journal.0, &["dut0", "--policy", "static:200us"]));
    assert_eq!(status, Some(3), "{out}{err}");
    assert!(err.contains("holds it"), "{err}");
    assert!(is_deferred(&lab, 300_000));
    assert_eq!(running.end(Signal::INT), Some(0));
    assert!(is_deferred(&lab, 0));
}

#[test]
fn interfaces_of_one_name_in_two_namespaces_are_two() {
    let _turn = turn();
    let (Some(one), Some(other)) = (lab("modn"), lab("modm")) else { return };
    let journal = Journal::new("moderate-names");
    let mut first = start(&one, &journal.0, &["dut0", "--policy", "static:300us"]);
    wait_for("the deferral", || is_deferred(&one, 300_000));
    let mut second = start(&other, &journal.0, &["dut0", "--policy", "static:200us"]);
    wait_for("the other deferral", || is_deferred(&other, 200_000));
    assert_eq!(first.end(Signal::INT), Some(0));
    assert!(is_deferred(&one, 0) && is_deferred(&other, 200_000));
    assert_eq!(second.end(Signal::INT), Some(0));
    assert!(is_deferred(&other, 0));
}

/// The decisions of live DIM, replayed from its own samples by the port that the kernel's vectors test.
#[test]
fn recorded_calls_of_dim_replay_to_the_same_states() {
    let _turn = turn();
    let Some(lab) = lab("modr") else { return };
    let journal = Journal::new("moderate-record");
    let folder = journal.0.join("calls");
    let shown = folder.to_str().unwrap().to_owned();
    let (_, queue) = steered(&lab, &journal, &["--policy", "net-dim", "--record", &shown]);
    assert!(number(&queue, "changes") > 1, "{queue:#}");
    let file = folder.join("dut0-0.csv");
    let output = bare(&["dim", "replay", file.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.contains("states agree with"), "{said}");
    let calls = std::fs::read_to_string(&file).unwrap().lines().count();
    assert!(calls > 200, "{calls} calls in 4 s");
}

#[test]
fn a_service_waits_for_interfaces_and_reads_its_file_again() {
    let _turn = turn();
    let Some(lab) = lab("modh") else { return };
    let journal = Journal::new("moderate-service");
    let file = journal.0.join("moderate.toml");
    let put = |text: &str| std::fs::write(&file, text).unwrap();
    put("[interface.dut0]\npolicy = \"static:300us\"\n[interface.later0]\npolicy = \"static:400us\"\n");
    let running = start(&lab, &journal.0, &["--config", file.to_str().unwrap()]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    put("[interface.dut0]\npolicy = \"static:200us\"\n");
    running.signal(Signal::HUP);
    let without = std::cell::Cell::new(0);
    wait_for("the other time", || {
        without.set(without.get() + u32::from(is_deferred(&lab, 0)));
        is_deferred(&lab, 200_000)
    });
    assert_eq!(without.get(), 0, "the setting was let go of");
    // A file that is wrong changes nothing.
    put("[interface.dut0]\npolicy = \"static:maybe\"\n");
    running.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(is_deferred(&lab, 200_000));
    put("[interface.other0]\n");
    running.signal(Signal::HUP);
    wait_for("its original setting", || is_deferred(&lab, 0));
    running.signal(Signal::TERM);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(out.contains("\nother0: not controlled: "), "{out}");
    assert!(err.contains("later0: not controlled yet"), "{err}");
    assert!(err.contains("keeping the previous configuration"), "{err}");
    assert!(err.contains("dut0: no longer in the configuration"), "{err}");
}

/// Regression test: a service waited for another transaction anew for each interface: eight times 2 s, which is longer
/// than its watchdog allows.
#[test]
fn another_transaction_is_waited_for_once_and_not_for_each_interface() {
    let _turn = turn();
    let Some(lab) = lab("modw") else { return };
    let journal = Journal::new("moderate-wait");
    let file = journal.0.join("moderate.toml");
    let mut config = "[interface.dut0]\npolicy = \"static:300us\"\n".to_owned();
    std::fs::write(&file, &config).unwrap();
    for number in 0..8 {
        let (one, other) = (format!("w{number}"), format!("v{number}"));
        ip(&lab, &["link", "add", &one, "up", "type", "veth", "peer", "name", &other]);
        ip(&lab, &["link", "set", &other, "up"]);
        let gro = spawn(&lab.namespace("dut"), std::process::Command::new("ethtool").args(["-K", &one, "gro", "on"]));
        assert!(gro.unwrap().wait().unwrap().success());
        config += &format!("[interface.{one}]\npolicy = \"static:50us\"\n");
    }
    let mut running = start(&lab, &journal.0, &["--config", file.to_str().unwrap()]);
    let (told, heard) = std::sync::mpsc::channel();
    let errors = std::io::BufReader::new(running.0.stderr.take().unwrap());
    let listener = std::thread::spawn(move || {
        let lines = std::io::BufRead::lines(errors).map_while(Result::ok);
        lines.filter(|line| line.contains("not controlled yet")).try_for_each(|line| told.send(line))
    });
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    let lock = std::fs::File::open(journal.0.join("apus/tune/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::fs::write(&file, config).unwrap();
    let begun = std::time::Instant::now();
    running.signal(Signal::HUP);
    let lines: Vec<String> = (0..8).map(|_| heard.recv().unwrap()).collect();
    let took = begun.elapsed();
    assert!(lines.iter().all(|line| line.contains("is doing so now")), "{lines:?}");
    // 2 s; on a busy machine more, but far less than 16 s.
    assert!(took < Duration::from_secs(13), "{took:?}: {lines:?}");
    drop(lock);
    wait_for("the deferral of the last one", || is_deferred_at(&lab, "dut", "w7", 50_000));
    assert_eq!(running.end(Signal::TERM), Some(0));
    drop(heard);
    let _ = listener.join().unwrap();
}

/// What can never be controlled is left out, and a service with nothing else ends.
#[test]
fn a_service_leaves_out_what_this_host_cannot_control() {
    let _turn = turn();
    let Some(lab) = lab("modu") else { return };
    let journal = Journal::new("moderate-unsupported");
    let file = journal.0.join("moderate.toml");
    let config = |text: &str| {
        std::fs::write(&file, text).unwrap();
        start(&lab, &journal.0, &["--config", file.to_str().unwrap(), "--duration", "3s", "--json"])
    };
    let (status, out, err) = output(config("[interface.dut0]\nplace = \"nic\"\npolicy = \"static:50us\"\n"));
    assert_eq!((status, out.as_str()), (Some(3), ""), "{err}");
    assert!(err.contains("cannot moderate any interface") && err.contains("does not offer rx-usecs"), "{err}");
    let (status, out, err) =
        output(config("[interface.dut0]\npolicy = \"static:50us\"\n[interface.typo0]\npolicy = \"static:50us\"\n"));
    let document: Json = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    assert_eq!((status, &document["queues"][0]["interface"]), (Some(1), &"dut0".into()), "{document:#}");
    let left_out = &document["not_controlled"][0];
    assert_eq!(left_out["interface"], "typo0", "{document:#}");
    let why = "cannot moderate typo0; why: there is no such network interface in this network namespace; fix: ";
    assert!(left_out["why"].as_str().unwrap().starts_with(why), "{document:#}");
}

#[test]
fn a_service_finds_a_renamed_interface_in_its_new_file() {
    let _turn = turn();
    let Some(lab) = lab("mody") else { return };
    let journal = Journal::new("moderate-service-renamed");
    let file = journal.0.join("moderate.toml");
    std::fs::write(&file, "[interface.dut0]\npolicy = \"static:300us\"\n").unwrap();
    let running = start(&lab, &journal.0, &["--config", file.to_str().unwrap()]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    ip(&lab, &["link", "set", "dut0", "down"]);
    ip(&lab, &["link", "set", "dut0", "name", "lan0"]);
    ip(&lab, &["link", "set", "lan0", "up"]);
    wait_for("the deferral under the new name", || is_deferred_at(&lab, "dut", "lan0", 300_000));
    std::fs::write(&file, "[interface.lan0]\npolicy = \"static:200us\"\n").unwrap();
    running.signal(Signal::HUP);
    let without = std::cell::Cell::new(0);
    wait_for("the other time", || {
        without.set(without.get() + u32::from(is_deferred_at(&lab, "dut", "lan0", 0)));
        is_deferred_at(&lab, "dut", "lan0", 200_000)
    });
    assert_eq!(without.get(), 0, "the setting was let go of");
    running.signal(Signal::TERM);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(!err.contains("not controlled yet") && !err.contains("no longer in the configuration"), "{err}");
    assert!(is_deferred_at(&lab, "dut", "lan0", 0));
}

/// Adds an interface `name` with some receive queues, each with a NAPI instance, to the namespace of the device under
/// test.
fn add_interface(lab: &Guard, name: &str, queues: u32) {
    let (peer, queues) = (format!("{name}p"), queues.to_string());
    let many = ["numtxqueues", &queues, "numrxqueues", &queues];
    let words = [&["link", "add", name][..], &many, &["type", "veth", "peer", "name", &peer], &many].concat();
    ip(lab, &words);
    let mut gro = std::process::Command::new("ethtool");
    gro.args(["-K", name, "gro", "on"]).stderr(Stdio::null());
    assert!(spawn(&lab.namespace("dut"), &mut gro).unwrap().wait().unwrap().success());
    ip(lab, &["link", "set", &peer, "up"]);
    ip(lab, &["link", "set", name, "up"]);
}

/// Regression test: after a reload, the service went on with the renamed interface, and the one that has its name now
/// was never controlled.
#[test]
fn a_service_goes_by_the_names_of_its_file() {
    let _turn = turn();
    let Some(lab) = lab("modz") else { return };
    let journal = Journal::new("moderate-service-names");
    let file = journal.0.join("moderate.toml");
    std::fs::write(&file, "[interface.dut0]\npolicy = \"static:300us\"\n").unwrap();
    let running = start(&lab, &journal.0, &["--config", file.to_str().unwrap()]);
    wait_for("the deferral", || is_deferred(&lab, 300_000));
    ip(&lab, &["link", "set", "dut0", "down"]);
    ip(&lab, &["link", "set", "dut0", "name", "lan0"]);
    ip(&lab, &["link", "set", "lan0", "up"]);
    wait_for("the deferral under the new name", || is_deferred_at(&lab, "dut", "lan0", 300_000));
    add_interface(&lab, "dut0", 1);
    running.signal(Signal::HUP);
    wait_for("the deferral of the other interface", || is_deferred(&lab, 300_000));
    assert!(is_deferred_at(&lab, "dut", "lan0", 0));
    running.signal(Signal::TERM);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(is_deferred(&lab, 0));
}

/// Regression test: queues that did not fit into the watch kept the places of those that had, for ever.
#[test]
fn an_interface_with_too_many_queues_takes_no_room() {
    let _turn = turn();
    let Some(lab) = lab("modq") else { return };
    let journal = Journal::new("moderate-queues");
    let file = journal.0.join("moderate.toml");
    add_interface(&lab, "few", 150);
    add_interface(&lab, "many", 200);
    let section = |name: &str| format!("[interface.{name}]\npolicy = \"static:50us\"\n");
    std::fs::write(&file, section("few") + &section("many")).unwrap();
    let running = start(&lab, &journal.0, &["--config", file.to_str().unwrap()]);
    wait_for("the deferral of the first", || is_deferred_at(&lab, "dut", "few", 50_000));
    std::fs::write(&file, section("many")).unwrap();
    running.signal(Signal::HUP);
    wait_for("the deferral of the other", || is_deferred_at(&lab, "dut", "many", 50_000));
    running.signal(Signal::TERM);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(err.contains("many: not controlled yet: ") && err.contains("at most 256 queues can be measured"), "{err}");
}

/// Regression test: without CAP_NET_ADMIN, the command ran on although it could set nothing; without CAP_BPF, it said
/// that too few packets were measured.
#[test]
fn what_a_process_may_not_do_is_said() {
    let _turn = turn();
    let Some(lab) = lab("modc") else { return };
    let journal = Journal::new("moderate-capabilities");
    let without = |capabilities: &str, words: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", BIND]).arg(&journal.0);
        let sets = ["--bounding-set", "--inh-caps"].map(|set| format!("{set}={capabilities}"));
        command.arg("setpriv").args(sets).arg(env!("CARGO_BIN_EXE_apus"));
        command.args(["moderate", "dut0", "--policy", "static:50us", "--duration", "1s"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        output(Running(spawn(&lab.namespace("dut"), &mut command).unwrap()))
    };
    let (status, out, err) = without("-net_admin", &[]);
    assert_eq!((status, out.as_str()), (Some(3), ""), "{err}");
    assert!(err.contains("without CAP_NET_ADMIN, its settings cannot be changed"), "{err}");
    let (status, out, err) = without("-bpf,-perfmon,-sys_admin", &["--json"]);
    assert_eq!(status, Some(0), "{out}{err}");
    let document: Json = serde_json::from_str(&out).unwrap();
    let why = document["queues"][0]["why_unmeasured"].as_str().unwrap();
    assert!(why.contains("cannot be measured: ") && why.contains("CAP_BPF"), "{why}");
}

/// Regression test: under an alternative name, an interface was controlled twice, by one instance or by two.
#[test]
fn an_alternative_name_is_no_other_interface() {
    let _turn = turn();
    let Some(lab) = lab("moda") else { return };
    let journal = Journal::new("moderate-altname");
    ip(&lab, &["link", "property", "add", "dev", "dut0", "altname", "second"]);
    let words = ["dut0", "second", "--policy", "static:300us", "--duration", "2s"];
    let (status, out, err) = output(start(&lab, &journal.0, &words));
    assert_eq!(status, Some(2), "{out}{err}");
    assert!(err.contains("second") && err.contains("alternative name of dut0"), "{err}");
    assert!(is_deferred(&lab, 0));
}

#[test]
fn a_dry_run_ends_with_its_interface() {
    let _turn = turn();
    let Some(lab) = lab("modw") else { return };
    let journal = Journal::new("moderate-dry-gone");
    let mut running = start(&lab, &journal.0, &["dut0", "--dry-run", "--policy", "static:300us"]);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(running.0.try_wait().unwrap().is_none(), "it runs on until its interface is gone");
    ip(&lab, &["link", "del", "dut0"]);
    let (status, out, err) = output(running);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(out.contains("dut0 queue 0: no longer controlled"), "{out}{err}");
}

#[test]
fn wrong_use_is_said() {
    for (words, code, why) in [
        (&["moderate"][..], 2, "INTERFACE"),
        (&["moderate", "lo", "--policy", "dim"], 2, "choose goal, net-dim or static:TIME"),
        (&["moderate", "lo", "--goal", "100us"], 2, "p99"),
        (&["moderate", "lo", "--duration", "0s"], 2, "duration"),
        (&["moderate", "typo0"], 3, "no such network interface"),
        (&["moderate", "a/b"], 2, "1 to 15 characters"),
        (&["moderate", ""], 2, "1 to 15 characters"),
        (&["moderate", "eth*"], 2, "patterns are not supported: name each interface"),
        (&["moderate", "lo", "--peak-rate", "0pps"], 2, "at least 1pps"),
        (&["moderate", "lo", "--policy", "net-dim", "--peak-rate", "1Mpps"], 2, "--policy goal"),
        (&["moderate", "lo", "--record", "calls"], 2, "no interface has the policy net-dim"),
    ] {
        let output = bare(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    if rustix::process::geteuid().is_root() {
        let output = bare(&["moderate", "lo"]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("no NAPI instance"));
    }
}

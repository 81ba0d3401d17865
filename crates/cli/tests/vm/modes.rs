//! The waiting modes in a virtual machine, at a packet each 350 us: how late packets are inside, and what the virtual CPU
//! costs its host. In a guest, and on this machine, which is a virtual CPU of somebody else's host.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use units::PacketRate;
use vmlab::harness::{Alone, ok};
use vmlab::{CSTATES, Guest, Nic, Vm};

use crate::processor;

pub(crate) const ALONE: [Alone; 2] = [("modes::in_a_guest", in_a_guest), ("modes::on_this_machine", on_this_machine)];

/// A packet each 350 us.
const RATE: PacketRate = PacketRate::new(2_857);
const MODES: [&str; 3] = ["poll", "interrupt", "adaptive --goal p99=200us"];
/// The guest's own p99 is some milliseconds. The peak rate lets `adaptive` sleep for longer than a ring of the card takes
/// to overflow at 14.88 Mpps.
const GUEST_MODES: [&str; 3] = ["poll", "interrupt", "adaptive --goal p99=20ms --peak-rate 10kpps"];
/// The share of its time that a CPU must give back.
const GIVEN_BACK: f64 = 0.9;
/// Before it measures, a run may learn for this long; and it lasts this much longer than is measured.
const LEARNS: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);

/// QEMU's trace events for an interrupt of a virtio device, and for a notification of one by the guest.
const RAISED: &str = "virtio_notify";
const NOTIFIED: &str = "virtio_queue_notify";

/// What a thread has done until now: its time on a CPU, and how often it slept.
fn thread(pid: u32, tid: u32) -> (Duration, u64) {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).unwrap();
    let schedstat = read("schedstat");
    let on_cpu = schedstat.split_whitespace().next().unwrap().parse().unwrap();
    let status = read("status");
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    (Duration::from_nanos(on_cpu), slept.trim().parse().unwrap())
}

/// Quantiles of the time from a packet's arrival to its pick-up, in us.
fn lateness(document: &Json) -> (f64, f64) {
    let lateness = &document["workers"][0]["counts"]["total"]["pickup_lateness"];
    let us = |name: &str| lateness[name].as_u64().unwrap_or_else(|| panic!("{document:#}")) as f64 / 1e3;
    (us("p50_ns"), us("p99_ns"))
}

fn in_a_guest() {
    let vm = ok(Vm::new()).cpus(2).cstates(&CSTATES).nic(Nic::Virtio).trace(RAISED).trace(NOTIFIED);
    let vm = vm.kernel_argument("isolcpus=domain,1 irqaffinity=0").program(env!("CARGO_BIN_EXE_apus"));
    let guest = ok(vm.boot());
    let tid = processor::thread_of_cpu_1(&guest);
    ok(guest.run("ip link set eth0 up"));
    println!(
        "{:<12} {:<46} {:>8} {:>8} {:>12} {:>12} {:>10} {:>8}",
        "idle", "mode", "p50 us", "p99 us", "interrupts/s", "notifies/s", "halts/s", "vCPU %"
    );
    let floor = timer(&guest, tid);
    let halting = GUEST_MODES.map(|mode| row(&guest, tid, "halt", mode));
    // As the kernel argument idle=poll does, for one CPU.
    ok(guest.run("echo n/a >/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"));
    let polling = row(&guest, tid, "poll", "interrupt");
    ok(guest.run("echo 0 >/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"));
    // The guest's kernel lists no NAPI instances, so this defers the interrupts of the whole device, by its two files.
    let files = "cd /sys/class/net/eth0; cat napi_defer_hard_irqs gro_flush_timeout";
    let before = ok(guest.run(files));
    let deferred = row(&guest, tid, "halt", "interrupt --defer 2,10ms");
    assert_eq!(ok(guest.run(files)), before, "the deferral is not rolled back");
    let [poll, interrupt, adaptive] = halting;
    let measured = format!("{floor} {halting:?} {polling} {deferred}");
    assert!(interrupt < poll && adaptive < poll && deferred < interrupt, "{measured}");
    // 90 % are possible only if one wake-up serves several packets: see what a timer alone takes. Without optimization, the
    // packets alone take too long.
    if cfg!(not(debug_assertions)) {
        assert!(1.0 - adaptive >= GIVEN_BACK && 1.0 - deferred >= GIVEN_BACK, "{measured}");
    }
}

/// What the virtual CPU's thread takes from the host: the share of the time in which it is on a CPU, how often a second it
/// sleeps, and the interrupts and notifications a second.
fn outside(guest: &Guest, tid: u32) -> (f64, f64, f64, f64) {
    let counts = |event: &str| ok(guest.traced(event));
    std::thread::sleep(LEARNS);
    let (then, at, raised, notified) = (thread(guest.pid(), tid), Instant::now(), counts(RAISED), counts(NOTIFIED));
    std::thread::sleep(MEASURED);
    let (now, lasted) = (thread(guest.pid(), tid), at.elapsed().as_secs_f64());
    let rate = |n: u64| n as f64 / lasted;
    let busy = (now.0 - then.0).as_secs_f64() / lasted;
    (busy, rate(now.1 - then.1), rate(counts(RAISED) - raised), rate(counts(NOTIFIED) - notified))
}

/// Measures a process that a timer wakes every 350 us, and that does nothing else: the least that any loop with one wake-up
/// per packet takes. Returns the share of the time in which the virtual CPU's thread was on a CPU.
fn timer(guest: &Guest, tid: u32) -> f64 {
    let seconds = (LEARNS + MEASURED + Duration::from_secs(2)).as_secs();
    let command =
        format!("taskset 2 apus probe timer --cpu 1 --interval 350us --wait epoll --duration {seconds}s --json");
    let (busy, halts, ..) = std::thread::scope(|scope| {
        let outside = scope.spawn(|| outside(guest, tid));
        let output = ok(guest.output(&command));
        assert_eq!(output.status, 0, "{output:?}");
        outside.join().unwrap()
    });
    println!("{:<12} {:<87} {halts:>18.0} {:>8.1}", "halt", "a timer every 350 us, no packets", 100.0 * busy);
    busy
}

/// Measures a mode in the guest. Returns the share of the time in which the virtual CPU's thread was on a CPU.
fn row(guest: &Guest, tid: u32, idle: &str, mode: &str) -> f64 {
    let wire = guest.wire(0);
    let seconds = (LEARNS + MEASURED + Duration::from_secs(2)).as_secs();
    let command =
        format!("apus run macswap eth0 --mode {mode} --cpu 1 --filter ethertype=0x88b5 --duration {seconds}s --json");
    let ((document, outside), _) = ok(wire.while_sending(&wire.silent_frame(), RATE, || {
        std::thread::scope(|scope| {
            let outside = scope.spawn(|| outside(guest, tid));
            let receiver = scope.spawn(|| while ok(wire.receive(Duration::from_secs(1))).is_some() {});
            let output = ok(guest.output(&command));
            assert_eq!(output.status, 0, "{output:?}");
            let document: Json = serde_json::from_str(&output.stdout).unwrap();
            receiver.join().unwrap();
            (document, outside.join().unwrap())
        })
    }));
    let (p50, p99) = lateness(&document);
    let (busy, halts, raised, notified) = outside;
    println!(
        "{idle:<12} {mode:<46} {p50:>8.1} {p99:>8.1} {raised:>12.0} {notified:>12.0} {halts:>10.0} {:>8.1}",
        100.0 * busy
    );
    busy
}

/// Time that a CPU was not idle, in clock ticks, and its idle time (proc_stat(5)).
fn cpu_time(cpu: u32) -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))).unwrap();
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|word| word.parse().unwrap()).collect();
    let idle = ticks[3] + ticks[4];
    (ticks.iter().sum::<u64>() - idle, idle)
}

fn apus(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn on_this_machine() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("needs root (network namespaces)");
        return;
    }
    let lab = format!("modes{}", std::process::id());
    let run = |words: String| {
        let output = apus(&words).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    };
    run(format!("lab up pair --name {lab}"));
    // Whatever else runs on CPU 1 counts, so the least of three is taken.
    let least = |a: [f64; 3], b: [f64; 3]| [0, 1, 2].map(|mode| a[mode].min(b[mode]));
    let result = std::panic::catch_unwind(|| (0..3).map(|_| here(&lab)).reduce(least).unwrap());
    run(format!("lab down {lab}"));
    let given = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    for (mode, busy) in MODES.iter().zip(given).skip(1) {
        assert!(1.0 - busy >= GIVEN_BACK, "{mode}: {busy}");
    }
}

fn here(lab: &str) -> [f64; 3] {
    println!("{:<46} {:>8} {:>8} {:>12} {:>8} {:>8}", "mode", "p50 us", "p99 us", "wake-ups/s", "worker %", "vCPU %");
    MODES.map(|mode| {
        let seconds = (LEARNS + MEASURED + Duration::from_secs(2)).as_secs();
        let worker = apus(&format!(
            "run macswap dut0 --netns apus-{lab}-dut --mode {mode} --cpu 1 --duration {seconds}s --json"
        ));
        let bench = apus(&format!(
            "bench latency --port tx0 --netns apus-{lab}-tx --cpu 0 --schedule constant:350us --duration {}s --json",
            seconds - 1
        ));
        let [worker, bench] = [worker, bench].map(|mut command| command.spawn().unwrap());
        std::thread::sleep(LEARNS);
        let then = cpu_time(1);
        std::thread::sleep(MEASURED);
        let now = cpu_time(1);
        let (worker, bench) = (worker.wait_with_output().unwrap(), bench.wait_with_output().unwrap());
        assert!(worker.status.success() && bench.status.code().is_some_and(|code| code <= 1), "{worker:?} {bench:?}");
        let document: Json = serde_json::from_slice(&worker.stdout).unwrap();
        let (p50, p99) = lateness(&document);
        let counts = &document["workers"][0]["counts"];
        let (busy, idle) = (now.0 - then.0, now.1 - then.1);
        let taken = busy as f64 / (busy + idle) as f64;
        let wakeups = counts["total"]["wakeups"].as_f64().unwrap() * 1e9 / counts["ran_ns"].as_f64().unwrap();
        let own = 100.0 * counts["cpu_ratio"].as_f64().unwrap();
        println!("{mode:<46} {p50:>8.1} {p99:>8.1} {wakeups:>12.0} {own:>8.1} {:>8.1}", 100.0 * taken);
        taken
    })
}

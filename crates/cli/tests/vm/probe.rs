//! `apus probe` in a guest: idle states that are obeyed, a P-state that slows the CPU, and timers of which every
//! nanosecond is the kernel's.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value as Json;
use units::Hertz;
use vmlab::{CSTATES, Guest, PSTATES, PstateWrite, Vm};

use vmlab::harness::{Alone, OnShared, ok};

use crate::processor;

pub(crate) const TESTS: [OnShared; 1] = [("probe::each_idle_state_alone", idle)];

pub(crate) const ALONE: [Alone; 2] = [
    ("probe::a_pstate_that_slows_the_cpu_is_seen_and_put_back", frequency),
    ("probe::timers_in_virtual_time_are_exact", timer),
];

/// What `apus probe` measured in the guest.
fn probe(guest: &Guest, words: &str) -> Json {
    let output = ok(guest.output(&format!("apus probe {words} --json")));
    assert_eq!(output.status, 0, "{words}: {output:?}");
    let document: Json = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    document["measured"][0].clone()
}

fn number(of: &Json) -> u64 {
    of.as_u64().unwrap_or_else(|| panic!("{of} is no number"))
}

fn idle(guest: &Guest) {
    let measured = probe(guest, "idle --cpu 1 --duration 2s");
    let detail = &measured["detail"]["idle"];
    let states = detail["states"].as_array().unwrap();
    let claims: Vec<u64> = states.iter().map(|state| number(&state["claimed_exit_ns"]) / 1_000).collect();
    let expected: Vec<u64> =
        std::iter::once(0).chain(CSTATES.iter().map(|state| state.latency.as_micros_floor())).collect();
    assert_eq!(claims, expected, "POLL, and what the firmware says");
    for case in detail["cases"].as_array().unwrap() {
        let (wakeups, entered) = (number(&case["wakeups"]), number(&case["entered"]["value"]));
        assert!(wakeups > 50 && entered * 2 > wakeups, "{}: entered {entered} times in {wakeups} sleeps", case["term"]);
    }
    assert_eq!(detail["cases"].as_array().unwrap().len(), 2 * states.len(), "woken by a timer and by a CPU");
    let disabled = ok(guest.run("cat /sys/devices/system/cpu/cpu1/cpuidle/state*/disable"));
    assert!(disabled.lines().all(|line| line == "0"), "put back: {disabled}");
}

/// Gives `tid` the share `frequency` of 3 GHz of nine tenths of a CPU, by SCHED_DEADLINE (sched(7)), 2 ms at a time.
fn slow_down(tid: u32, frequency: Hertz) {
    const PERIOD_NS: u64 = 2_000_000;
    let fastest = PSTATES[0].frequency.as_hertz();
    let runtime = PERIOD_NS * 9 / 10 * (frequency.as_hertz() / 1_000_000) / (fastest / 1_000_000);
    let words = ["-d", "-T", &runtime.to_string(), "-P", &PERIOD_NS.to_string(), "-p", "0", &tid.to_string()];
    let output = Command::new("chrt").args(words).output().unwrap();
    assert!(output.status.success(), "chrt {words:?}: {output:?}");
}

fn frequency() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("needs root (SCHED_DEADLINE)");
        return;
    }
    let program = env!("CARGO_BIN_EXE_apus");
    let guest = ok(ok(Vm::new()).cpus(2).pstates(&PSTATES).cstates(&CSTATES).program(program).boot());
    let policy = "/sys/devices/system/cpu/cpufreq/policy1";
    ok(guest.run(&format!("echo performance >{policy}/scaling_governor")));
    let tid = processor::thread_of_cpu_1(&guest);
    ok(guest.pstate_writes());
    let (end, mut seen) = (AtomicBool::new(false), Vec::new());
    let measured = std::thread::scope(|scope| {
        // The processor: what is written takes effect.
        let processor = scope.spawn(|| {
            slow_down(tid, PSTATES[0].frequency);
            let mut all: Vec<PstateWrite> = Vec::new();
            while !end.load(Ordering::Relaxed) {
                let new = ok(guest.pstate_writes());
                if let Some(last) = new.iter().rfind(|write| write.cpu == 1) {
                    slow_down(tid, last.frequency);
                }
                all.extend(new);
                std::thread::sleep(Duration::from_millis(5));
            }
            all
        });
        let measured =
            probe(&guest, "frequency --cpu 1 --levels 800MHz,3GHz --work 20ms --period 3s --changes 6 --batch 1");
        end.store(true, Ordering::Relaxed);
        seen = processor.join().unwrap();
        measured
    });
    let detail = &measured["detail"]["frequency"];
    let asked: Vec<u64> = detail["changes"].as_array().unwrap().iter().map(|of| number(&of["to_hz"])).collect();
    assert_eq!(asked, [3_000_000_000, 800_000_000].repeat(3));
    let written: Vec<u64> = seen.iter().filter(|of| of.cpu == 1).map(|of| of.frequency.as_hertz()).collect();
    assert!(written.windows(6).any(|window| window == asked), "{written:?}");
    assert_eq!(ok(guest.run(&format!("cat {policy}/scaling_governor"))), "performance", "put back");
    assert_eq!(written.last(), Some(&3_000_000_000), "put back");
    let units = |hz: u64| -> Vec<u64> {
        let of = detail["changes"].as_array().unwrap().iter().filter(|of| number(&of["to_hz"]) == hz);
        let mut units: Vec<u64> = of.map(|of| number(&of["unit_after_ns"])).collect();
        units.sort_unstable();
        units
    };
    let (slow, fast) = (units(800_000_000)[1], units(3_000_000_000)[1]);
    let ratio = slow as f64 / fast as f64;
    println!("a unit takes {fast} ns at 3 GHz and {slow} ns at 800 MHz: {ratio:.2} times as long");
    assert!((2.0..6.5).contains(&ratio), "3.75 is what the frequencies say: {ratio}: {detail}");
    let effects = detail["changes"].as_array().unwrap().iter().filter(|of| of["effect_ns"].is_u64()).count();
    // Where other work shares the host, the emulated CPU is away for longer than a unit takes: then the probe finds no steady
    // level after some of the changes, and says so.
    assert!(effects >= 3, "{effects} of 6 had an effect: {detail}");
}

fn timer() {
    let guest = ok(ok(Vm::new()).virtual_time().program(env!("CARGO_BIN_EXE_apus")).boot());
    let run = || {
        let measured = probe(&guest, "timer --cpu 0 --priority 95 --interval 1ms --duration 3s");
        let detail = &measured["detail"]["timer"]["cpus"][0];
        let raw = &measured["terms"][0]["raw"];
        assert_eq!(number(&detail["swallowed"]), 0, "{detail}");
        assert!((2_999..=3_000).contains(&number(&raw["count"])), "{}", raw["count"]);
        ["min_ns", "p50_ns", "p99_ns"].map(|name| number(&raw[name]))
    };
    let (first, second) = (run(), run());
    println!("min, p50, p99 in ns: {first:?}, again {second:?}");
    let [min, p50, p99] = first;
    // The kernel's own path and no more: each instruction takes 4 ns, and nothing else takes any time.
    assert!(min > 1_000 && p99 < 100_000 && p50 < min * 2, "{first:?}");
    assert!(p50.abs_diff(second[1]) * 50 <= p50, "the same median to within 2 %: {first:?} and {second:?}");
}

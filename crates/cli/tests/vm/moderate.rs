use std::time::{Duration, Instant};

use serde_json::Value as Json;
use units::{Nanos, PacketRate};
use vmlab::harness::{Alone, OnShared, ok};
use vmlab::{Guest, Interrupts, Nic, Vm};

use crate::tune::roll_back;

pub(crate) const TESTS: [OnShared; 5] = [
    ("moderate::each_decision_arrives_in_the_register_and_interrupts_fall", register),
    ("moderate::a_driver_that_rounds_is_noticed_and_its_modes_are_avoided", rounding),
    ("moderate::virtio_refuses_a_timer_and_takes_the_deferral", virtio),
    ("moderate::a_rollback_restores_what_a_killed_session_left", killed),
    ("moderate::a_goal_needs_a_measurement_and_a_fixed_timer_none", unmeasured),
];

pub(crate) const ALONE: [Alone; 1] = [("moderate::vmxnet3_has_no_timer_and_takes_the_deferral", vmxnet3)];

/// The guest's kernel, Linux 6.1, has one deferral for all queues of a device.
const DEFERRAL: &str = "cd /sys/class/net; cat eth?/napi_defer_hard_irqs eth?/gro_flush_timeout";
const SETTINGS: &str = "ethtool -c eth0; cd /sys/class/net; cat eth?/napi_defer_hard_irqs eth?/gro_flush_timeout";

/// What `ethtool -c` says of the receive timer.
fn rx_usecs(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("rx-usecs:")?.trim().parse().ok())
}

/// Runs `during` while `apus moderate` steers with these options, and returns what it said.
fn while_steering(guest: &Guest, options: &str, during: impl FnOnce()) -> String {
    begin(guest, options);
    during();
    ok(guest.run("kill -TERM $(pidof apus)"));
    ok(guest.wait_until("[ -s /tmp/status ]", 300));
    let said = ok(guest.run("cat /tmp/said; echo exit status $(cat /tmp/status)"));
    assert!(said.contains("The original settings are restored.") && said.ends_with("exit status 0"), "{said}");
    said
}

/// Begins to steer, and returns when the first setting is in force.
fn begin(guest: &Guest, options: &str) {
    ok(guest.run(&format!(
        "rm -f /tmp/status; ip link set eth0 up; ip link set eth1 up 2>/dev/null; \
         (apus moderate {options} >/tmp/said 2>&1; echo $? >/tmp/status) >/dev/null 2>&1 &"
    )));
    let begun = guest.wait_until("grep -q 'queue 0: timer' /tmp/said || [ -s /tmp/status ]", 300);
    let said = ok(guest.run("cat /tmp/said"));
    assert!(begun.is_ok() && said.contains("queue 0: timer"), "{options}: {said}");
}

/// What `apus moderate` says when it refuses to begin, with exit status 3 and without a change.
fn refusal(guest: &Guest, options: &str) -> String {
    let before = ok(guest.run(SETTINGS));
    let output = ok(guest.output(&format!("apus moderate {options} --duration 1s")));
    assert_eq!(output.status, 3, "{options}: {output:?}");
    assert_eq!(ok(guest.run(SETTINGS)), before, "{options}");
    output.stderr
}

/// What the card did in about a second of 10,000 frames a second, and how long that second was.
fn raised(guest: &Guest) -> (Interrupts, Duration) {
    let wire = guest.wire(0);
    let (raised, _) = ok(wire.while_sending(&wire.silent_frame(), PacketRate::new(10_000), || {
        let begin = Instant::now();
        ok(wire.interrupts());
        ok(guest.run("sleep 1"));
        let interrupts = ok(wire.interrupts());
        (interrupts, begin.elapsed())
    }));
    raised
}

/// How many interrupts this time has room for. QEMU's card holds back a second interrupt within `interval` of the first,
/// until the interval ends, but begins no new interval then: the next one may follow at once (QEMU 7.2, hw/net/e1000e_core.c,
/// `e1000e_intrmgr_on_msix_throttling_timer`).
fn most_raised(elapsed: Duration, interval: Nanos) -> u64 {
    let intervals = elapsed.div_duration_f64(Duration::from_nanos(interval.as_nanos()));
    2 * (intervals.ceil() as u64 + 1)
}

fn register(guest: &Guest) {
    ok(guest.run("ip link set eth0 up; ip link set eth1 up; sleep 1"));
    let default = ok(guest.run(SETTINGS));
    // The driver's own default: a mode in which it adapts the timer.
    assert_eq!(rx_usecs(&default), Some(3), "{default}");
    // What it has worked out in that mode reaches the register with the next interrupt, whatever was set meanwhile (Linux,
    // drivers/net/ethernet/intel/e1000e/netdev.c, `set_itr` in e1000_intr_msix_rx): so let that come first.
    ok(guest.run("ethtool -C eth0 rx-usecs 20"));
    raised(guest);
    ok(guest.run("ethtool -C eth0 rx-usecs 30"));
    let before = ok(guest.run(SETTINGS));
    let mut counts = Vec::new();
    for usecs in [50, 1_000, 4_032, 10_000] {
        ok(guest.wire(0).interrupts());
        while_steering(guest, &format!("eth0 --place nic --policy static:{usecs}us"), || {
            let written = ok(guest.wire(0).interrupts()).moderation;
            let last = written.iter().filter(|write| write.vector == 0).map(|write| write.interval).next_back();
            let last = last.expect("the receive vector's interval was written");
            // The register counts in 256 ns, and the driver in whole interrupts a second.
            let wanted = Nanos::from_micros(usecs);
            assert!(last.as_nanos().abs_diff(wanted.as_nanos()) <= 512, "{wanted} became {last}");
            let (seen, elapsed) = raised(guest);
            assert!(seen.moderation.is_empty(), "the driver adapts nothing meanwhile: {:?}", seen.moderation);
            let (count, most) = (seen.raised[0], most_raised(elapsed, last));
            assert!(
                (1..=most).contains(&count),
                "{count} interrupts in {elapsed:?}, room for {most} with an interval of {last}"
            );
            counts.push(count);
        });
        assert_eq!(ok(guest.run(SETTINGS)), before);
    }
    println!("interrupts in about a second at 50, 1000, 4032 and 10000 us: {counts:?}");
    // A guest on a busy host takes some hundred interrupts a second, whatever the card would raise: with short intervals,
    // the guest is the limit.
    assert!(counts[3] * 2 < counts[0], "{counts:?}");
    ok(guest.run("ethtool -C eth0 rx-usecs 3"));
    // The deferral of NAPI in place of the card's timer: the driver's own adapting is off meanwhile.
    let said = while_steering(guest, "eth0 --place napi --policy static:2000us", || {
        assert_eq!(rx_usecs(&ok(guest.run("ethtool -c eth0"))), Some(0));
        assert_eq!(ok(guest.run("cd /sys/class/net/eth0; cat napi_defer_hard_irqs gro_flush_timeout")), "1\n2000000");
        let (seen, elapsed) = raised(guest);
        let (deferred, most) = (seen.raised[0], most_raised(elapsed, Nanos::from_micros(2_000)));
        println!("interrupts in {elapsed:?} with a deferral of 2 ms: {deferred}");
        assert!(deferred <= most && deferred < counts[0], "{deferred} with a deferral of 2 ms, {counts:?} before");
    });
    assert!(said.contains("the NIC's adaptive moderation is switched off until the end"), "{said}");
    assert_eq!(ok(guest.run(SETTINGS)), default);
}

fn rounding(guest: &Guest) {
    ok(guest.run("ip link set eth0 up; sleep 1"));
    let before = ok(guest.run(SETTINGS));
    // The driver keeps whole interrupts a second: 250, and then 248.
    let output = ok(guest.output("apus moderate eth0 --place nic --policy static:4000us --duration 3s --json"));
    assert_eq!(output.status, 0, "{output:?}");
    let document: Json = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let queue = &document["queues"][0];
    assert_eq!((&queue["timer_ns"], &document["restored"]), (&4_032_000.into(), &true.into()), "{document:#}");
    assert!(queue["trouble"].as_str().is_some_and(|trouble| trouble.contains("instead")), "{document:#}");
    // The driver takes 1 and 3 for modes, and refuses 2 and 5 to 9: packets are held for no time then.
    for usecs in [1, 3, 9] {
        let said = while_steering(guest, &format!("eth0 --place nic --policy static:{usecs}us"), || {
            assert_eq!(rx_usecs(&ok(guest.run("ethtool -c eth0"))), Some(0));
            let written = ok(guest.wire(0).interrupts()).moderation;
            assert_eq!(written.last().map(|write| write.interval), Some(Nanos::ZERO));
        });
        let why = format!("the timer is off instead: to its driver, rx-usecs={usecs} is not a time");
        assert!(said.contains(&why), "{said}");
    }
    // The driver refuses more than 10 ms. The longest time that it is found to accept is in force, and told.
    let output = ok(guest.output("apus moderate eth0 --place nic --policy static:50ms --duration 3s --json"));
    assert_eq!(output.status, 1, "{output:?}");
    let document: Json = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let queue = &document["queues"][0];
    assert!(queue["timer_ns"].as_u64().is_some_and(|ns| (8_500_000..=10_100_000).contains(&ns)), "{document:#}");
    let trouble = queue["trouble"].as_str().unwrap_or_default();
    assert!(trouble.contains("is the longest time that its driver is known to accept"), "{document:#}");
    assert_eq!(ok(guest.run(SETTINGS)), before);
}

fn virtio(guest: &Guest) {
    ok(guest.run("ip link set eth1 up"));
    let said = refusal(guest, "eth1 --place nic --policy static:100us");
    assert!(said.contains("cannot moderate eth1 with --place nic") && said.contains("use --place napi"), "{said}");
    deferral_of(guest, "eth1");
}

/// The deferral is in force while it is steered, and gone after.
fn deferral_of(guest: &Guest, interface: &str) {
    let before = ok(guest.run(DEFERRAL));
    while_steering(guest, &format!("{interface} --place napi --policy static:200us"), || {
        let files = format!("cd /sys/class/net/{interface}; cat napi_defer_hard_irqs gro_flush_timeout");
        assert_eq!(ok(guest.run(&files)), "1\n200000");
    });
    assert_eq!(ok(guest.run(DEFERRAL)), before);
}

fn killed(guest: &Guest) {
    ok(guest.run("ip link set eth0 up; ip link set eth1 up; sleep 1"));
    let before = ok(guest.run(SETTINGS));
    for options in ["eth0 --place nic --policy static:1000us", "eth1 --place napi --policy static:300us"] {
        begin(guest, options);
        ok(guest.run("kill -KILL $(pidof apus)"));
        ok(guest.wait_until("[ -s /tmp/status ]", 300));
        assert_ne!(ok(guest.run(SETTINGS)), before, "{options}: it was killed before it could restore anything");
        roll_back(guest);
        assert_eq!(ok(guest.run(SETTINGS)), before, "{options}");
    }
}

/// This kernel does not list NAPI instances.
fn unmeasured(guest: &Guest) {
    ok(guest.run("ip link set eth0 up; sleep 1"));
    for options in ["eth0 --place nic --goal p99=300us", "eth0 --place napi --policy net-dim"] {
        let said = refusal(guest, options);
        assert!(said.contains("Linux does from 6.8 on") && said.contains("--policy static:50us"), "{said}");
    }
    let said = while_steering(guest, "eth0 --place nic --policy static:100us", || {});
    assert!(said.contains("latency cannot be measured") && said.contains("unmeasured: "), "{said}");
}

fn vmxnet3() {
    let vm = ok(Vm::new()).cpus(1).nic(Nic::Vmxnet3).program(env!("CARGO_BIN_EXE_apus")).program("ethtool");
    let guest = ok(vm.boot());
    ok(guest.run("ip link set eth0 up"));
    let output = ok(guest.output("apus moderate eth0 --place nic --policy static:100us --duration 1s"));
    assert_eq!(output.status, 3, "{output:?}");
    let said = output.stderr;
    assert!(said.contains("its driver does not offer rx-usecs") && said.contains("use --place napi"), "{said}");
    deferral_of(&guest, "eth0");
}

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use units::{Hertz, Microwatts, Nanos, PacketRate};
use vmlab::{CSTATES, Guest, Nic, PSTATES, PstateWrite, Vm};

use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 11] = [
    ("everything::the_kernel_is_real_time_and_obeys_its_command_line", kernel),
    ("everything::scripts_give_status_and_both_outputs", scripts),
    ("everything::pstate_writes_arrive_in_order", pstates),
    ("everything::a_firmware_limit_is_below_the_governors_wish", firmware_limit),
    ("everything::the_power_meter_shows_what_the_host_says", power_meter),
    ("everything::idle_states_obey_latency_requests", latency_requests),
    ("everything::idle_states_obey_disable", idle_disable),
    ("everything::moderation_lowers_the_interrupt_rate", moderation),
    ("everything::virtio_refuses_moderation", virtio),
    ("everything::a_register_stores_or_drops_what_is_written", registers),
    ("everything::a_channel_carries_messages_both_ways", channel),
];

const CHANNEL: &str = "virtio.serial.port.poweragent.0";
const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy";

/// A guest with everything that the lab has.
pub(crate) fn vm() -> Vm {
    ok(Vm::new())
        .cpus(2)
        .pstates(&PSTATES)
        .cstates(&CSTATES)
        .firmware()
        .nic(Nic::E1000e)
        .nic(Nic::Virtio)
        .port(CHANNEL)
        .module("msr")
        .program("ethtool")
        .kernel_argument("isolcpus=managed_irq,domain,1 nohz_full=1 rcu_nocbs=1 irqaffinity=0 msr.allow_writes=on")
}

fn kernel(guest: &Guest) {
    assert!(ok(guest.run("uname -v")).contains("PREEMPT_RT"));
    assert_eq!(ok(guest.run("cat /sys/kernel/realtime; nproc --all")), "1\n2");
    assert!(ok(guest.run("cat /proc/cmdline")).contains(" nohz_full=1 "));
    let cpus = "cd /sys/devices/system/cpu; cat online isolated nohz_full; cat /proc/irq/default_smp_affinity";
    assert_eq!(ok(guest.run(cpus)), "0-1\n1\n1\n1");
    // The kernel's interpreter finds nothing wrong with the table that the lab made.
    assert_eq!(ok(guest.run("dmesg | grep -iE 'acpi.*(error|warning|invalid)' || true")), "");
}

fn scripts(guest: &Guest) {
    let output = ok(guest.output("echo 'one  \"two\"'; echo three >&2; exit 7"));
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (7, "one  \"two\"\n", "three\n"));
    let error = guest.run("echo why >&2; false").unwrap_err().to_string();
    assert!(error.contains("status 1") && error.contains("stderr: why"), "{error}");
    assert_eq!(ok(guest.run("seq 100000")).lines().count(), 100_000);
    std::fs::write(guest.share().join("from-host"), "octets").unwrap();
    ok(guest.run("cp /share/from-host /share/from-guest"));
    assert_eq!(std::fs::read(guest.share().join("from-guest")).unwrap(), b"octets");
    assert!(guest.wait_until("false", 2).is_err());
    ok(guest.wait_until("true", 1));
}

fn mhz(mhz: u64) -> Hertz {
    Hertz::new(mhz * 1_000_000)
}

fn write(cpu: usize, at: u64) -> PstateWrite {
    PstateWrite { cpu, frequency: mhz(at) }
}

/// Both CPUs at the fastest state, with nothing said about how they got there.
fn fastest(guest: &Guest) {
    ok(guest.run(&format!("for p in {POLICY}*; do echo performance >$p/scaling_governor; done")));
    ok(guest.pstate_writes());
}

fn pstates(guest: &Guest) {
    fastest(guest);
    assert_eq!(ok(guest.run(&format!("cat {POLICY}1/scaling_driver"))), "acpi-cpufreq");
    ok(guest.run(&format!("echo powersave >{POLICY}0/scaling_governor")));
    assert_eq!(ok(guest.pstate_writes()), [write(0, 800)]);
    ok(guest.run(&format!("cd {POLICY}1; echo userspace >scaling_governor; for f in 1200000 2600000 800000 3000000; do echo $f >scaling_setspeed; done")));
    assert_eq!(ok(guest.pstate_writes()), [1200, 2600, 800, 3000].map(|at| write(1, at)));
    // Two CPUs, one after the other: the order holds across CPUs too.
    ok(guest.run(&format!("echo 1800000 >{POLICY}1/scaling_setspeed; echo performance >{POLICY}0/scaling_governor")));
    assert_eq!(ok(guest.pstate_writes()), [write(1, 1800), write(0, 3000)]);
    ok(guest.run(&format!("echo 1200000 >{POLICY}0/scaling_max_freq")));
    assert_eq!(ok(guest.pstate_writes()), [write(0, 1200)]);
    ok(guest.run(&format!("echo 3000000 >{POLICY}0/scaling_max_freq")));
    assert_eq!(ok(guest.pstate_writes()), [write(0, 3000)]);
    assert_eq!(ok(guest.pstate_writes()), []);
}

fn firmware_limit(guest: &Guest) {
    fastest(guest);
    ok(guest.set_firmware_limit(1, mhz(2200)));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/bios_limit) = 2200000 ]"), 100));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/scaling_cur_freq) = 2200000 ]"), 100));
    assert_eq!(ok(guest.pstate_writes()), [write(1, 2200)]);
    ok(guest.run(&format!("cd {POLICY}1; echo userspace >scaling_governor; echo 3000000 >scaling_setspeed")));
    assert_eq!(ok(guest.pstate_writes()), [], "the wish is above the limit, where it already is");
    assert_eq!(ok(guest.run(&format!("cat {POLICY}0/bios_limit"))), "3000000", "the other CPU is free");
    ok(guest.set_firmware_limit(1, mhz(3000)));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/bios_limit) = 3000000 ]"), 100));
    assert!(guest.set_firmware_limit(1, mhz(2201)).is_err());
    assert!(guest.set_firmware_limit(2, mhz(2200)).is_err());
}

fn power_meter(guest: &Guest) {
    for uw in [42_000_000, 55_500_000] {
        ok(guest.set_power(Microwatts::new(uw)));
        // The driver keeps a reading for its averaging interval: one second here.
        let meter = "/sys/bus/acpi/devices/ACPI000D:00/power1_average";
        ok(guest.wait_until(&format!("[ $(cat {meter}) = {uw} ]"), 100));
    }
}

/// How often each state of `cpu` is entered while it wakes up fifty times a second and goes back to sleep.
/// (An isolated CPU with nothing to do may sleep for seconds.)
fn idle(guest: &Guest, cpu: usize) -> [u64; 5] {
    // A sleep is counted when it ends, and no request ends the one that it finds.
    ok(guest.run(&format!("taskset {} true", 1 << cpu)));
    let before = ok(guest.idle_entries(cpu));
    let wakes = "i=0; while [ $i -lt 50 ]; do usleep 20000; i=$((i+1)); done";
    ok(guest.run(&format!("taskset {} sh -c '{wakes}'", 1 << cpu)));
    let after = ok(guest.idle_entries(cpu));
    let names: Vec<_> = after.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["POLL", "C1", "C2", "C3", "C4"]);
    let entries: Vec<_> = before.iter().zip(&after).map(|((_, before), (_, after))| after - before).collect();
    entries.try_into().unwrap()
}

fn latency_requests(guest: &Guest) {
    let [.., c4] = idle(guest, 0);
    assert!(c4 > 0, "nothing keeps it from the deepest state");
    // A request lives as long as its file is open: Documentation/power/pm_qos_interface.rst.
    let hold = |octets: &str| {
        let script = format!("exec 9>/dev/cpu_dma_latency; printf '{octets}' >&9; exec sleep 1000");
        ok(guest.run(&format!("sh -c \"{script}\" >/dev/null 2>&1 & echo $!")))
    };
    let holder = hold("\\\\062\\\\000\\\\000\\\\000"); // 50 us
    ok(guest.run("sleep 0.5"));
    let [_, _, c2, c3, c4] = idle(guest, 0);
    assert!(c2 > 0 && c3 == 0 && c4 == 0, "50 us allow C2 (20 us) and not C3 (90 us): {c2} {c3} {c4}");
    ok(guest.run(&format!("kill {holder}")));
    let request = "/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
    ok(guest.run(&format!("echo 5 >{request}")));
    let [_, c1, c2, c3, c4] = idle(guest, 1);
    assert!(c1 > 0 && c2 + c3 + c4 == 0, "5 us allow C1 (2 us) alone: {c1} {c2} {c3} {c4}");
    assert!(idle(guest, 0)[4] > 0, "the other CPU is free");
    // 0 lifts the request, "n/a" allows no latency at all: Documentation/ABI/testing/sysfs-devices-power.
    ok(guest.run(&format!("echo n/a >{request}")));
    let [poll, c1, c2, c3, c4] = idle(guest, 1);
    assert!(poll > 0 && c1 + c2 + c3 + c4 == 0, "{poll} {c1} {c2} {c3} {c4}");
    ok(guest.run(&format!("echo 0 >{request}")));
    assert!(idle(guest, 1)[4] > 0, "back to the deepest state");
}

fn idle_disable(guest: &Guest) {
    let states = "/sys/devices/system/cpu/cpu0/cpuidle";
    ok(guest.run(&format!("echo 1 >{states}/state3/disable; echo 1 >{states}/state4/disable")));
    let [.., c2, c3, c4] = idle(guest, 0);
    ok(guest.run(&format!("echo 0 >{states}/state3/disable; echo 0 >{states}/state4/disable")));
    assert!(c2 > 0 && c3 == 0 && c4 == 0, "{c2} {c3} {c4}");
    assert!(idle(guest, 0)[4] > 0);
}

/// What frames at 5000 a second did with moderation at `usecs`.
struct Received {
    counted: u64,
    raised: u64,
    within: Duration,
}

fn receive(guest: &Guest, usecs: u32) -> Received {
    ok(guest.run(&format!("ethtool -C eth0 rx-usecs {usecs} && sleep 0.5")));
    let wire = guest.wire(0);
    let count = || ok(guest.interrupts("eth0-rx")).iter().sum::<u64>();
    let (received, _) = ok(wire.while_sending(&wire.silent_frame(), PacketRate::new(5_000), || {
        let began = Instant::now();
        ok(wire.interrupts());
        let before = count();
        ok(guest.run("sleep 2"));
        let counted = count() - before;
        Received { counted, raised: ok(wire.interrupts()).raised[0], within: began.elapsed() }
    }));
    received
}

fn moderation(guest: &Guest) {
    ok(guest.run("ip link set eth0 up && sleep 1"));
    let (fast, slow) = (receive(guest, 125), receive(guest, 4000));
    for Received { counted, raised, .. } in [&fast, &slow] {
        assert!(*counted > 0 && counted <= raised, "the guest counts what the card raises: {counted}, {raised}");
    }
    // Two each 4 ms: QEMU raises what was put off when the interval ends, and the next one at once, which
    // begins the next interval (e1000e_intrmgr_on_msix_throttling_timer in hw/net/e1000e_core.c).
    let most = 2 * (slow.within.as_millis() as u64 / 4 + 1);
    assert!(slow.raised <= most, "{} in {:?}", slow.raised, slow.within);
    assert!(fast.raised > 2 * slow.raised, "{} and {}", fast.raised, slow.raised);
    ok(guest.run("ethtool -C eth0 rx-usecs 1000"));
    let writes = ok(guest.wire(0).interrupts()).moderation;
    let interval = writes.iter().find(|write| write.vector == 0).map(|write| write.interval);
    let interval = interval.expect("the driver wrote the receive vector's interval");
    assert!(interval > Nanos::from_micros(990) && interval <= Nanos::from_micros(1_000), "{writes:?}");
}

fn virtio(guest: &Guest) {
    ok(guest.run("ip link set eth1 up"));
    let output = ok(guest.output("ethtool -C eth1 rx-usecs 100"));
    assert_ne!(output.status, 0, "{output:?}");
    let mac = guest.wire(1).mac().map(|octet| format!("{octet:02x}")).join(":");
    assert_eq!(ok(guest.run("cat /sys/class/net/eth1/address")), mac);
    // A frame that the guest sends arrives here.
    ok(guest.run("ip addr add 10.77.9.1/24 dev eth1; arping -c 1 -w 1 -I eth1 10.77.9.2 || true"));
    let is_request = |frame: &[u8]| frame.get(12..14) == Some(&[0x08, 0x06]);
    while let Some(frame) = ok(guest.wire(1).receive(Duration::from_secs(10))) {
        if is_request(&frame) {
            return;
        }
    }
    panic!("no ARP request came");
}

fn registers(guest: &Guest) {
    let read = |register: u32| {
        let dd =
            format!("dd if=/dev/cpu/0/msr bs=8 count=1 iflag=skip_bytes skip={register} 2>/dev/null | od -An -tx8");
        u64::from_str_radix(ok(guest.run(&dd)).trim(), 16).unwrap()
    };
    let write = |register: u32, value: u64| {
        let octets: String = value.to_le_bytes().map(|octet| format!("\\{octet:03o}")).concat();
        let dd = "dd of=/dev/cpu/0/msr bs=8 count=1 conv=notrunc oflag=seek_bytes 2>/dev/null";
        ok(guest.run(&format!("printf '{octets}' | {dd} seek={register}")));
    };
    // IA32_MISC_ENABLE (0x1a0) is in the emulated machine; bit 18 enables MONITOR: Intel SDM 4, table 2-2.
    let before = read(0x1a0);
    write(0x1a0, before ^ 1 << 18);
    assert_eq!(read(0x1a0), before ^ 1 << 18);
    write(0x1a0, before);
    assert_eq!(read(0x1a0), before);
    // IA32_HWP_REQUEST (0x774) and the uncore's limits (0x620) are not: the write is said to be done, and is not.
    for register in [0x774, 0x620] {
        write(register, 0x0808);
        assert_eq!(read(register), 0, "{register:#x}");
    }
}

fn channel(guest: &Guest) {
    let port = ok(guest.port(CHANNEL));
    port.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ok(guest.run(&format!(
        "sh -c 'exec 4<>/dev/virtio-ports/{CHANNEL}; while read -r line <&4; do echo \"got $line\" >&4; done' >/dev/null 2>&1 &"
    )));
    let mut answers = BufReader::new(port.try_clone().unwrap()).lines();
    for n in 0..20 {
        (&port).write_all(format!("message {n}\n").as_bytes()).unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), format!("got message {n}"));
    }
    assert!(guest.port("nosuch").is_err());
}

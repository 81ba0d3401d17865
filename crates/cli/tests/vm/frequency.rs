use units::Hertz;
use vmlab::{Guest, PstateWrite};

use crate::tune::{apply, power_set, roll_back};
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 4] = [
    ("frequency::governor_and_set_speed_arrive_in_order", governors),
    ("frequency::limits_are_obeyed", limits),
    ("frequency::power_set_fixes_a_frequency", power),
    ("frequency::a_firmware_limit_is_no_success", firmware),
];

const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy";

fn mhz(mhz: u64) -> Hertz {
    Hertz::new(mhz * 1_000_000)
}

/// CPU and MHz of each P-state write since the last call.
fn writes(guest: &Guest) -> Vec<(usize, u64)> {
    let plain = |write: PstateWrite| (write.cpu, write.frequency.as_hertz() / 1_000_000);
    ok(guest.pstate_writes()).into_iter().map(plain).collect()
}

/// Both CPUs under the governor, with nothing said about how they got there.
fn begin(guest: &Guest, governor: &str) {
    ok(guest.run(&format!("for p in {POLICY}*; do echo {governor} >$p/scaling_governor; done")));
    writes(guest);
}

fn governors(guest: &Guest) {
    begin(guest, "performance");
    apply(guest, "[cpus.0]\ngovernor = \"powersave\"\n[cpus.1]\ngovernor = \"userspace 1200000\"").assert_changed();
    assert_eq!(writes(guest), [(0, 800), (1, 1200)], "in the profile's order");
    roll_back(guest);
    assert_eq!(writes(guest), [(1, 3000), (0, 3000)], "the last change first");
    assert_eq!(ok(guest.run(&format!("cat {POLICY}*/scaling_governor"))), "performance\nperformance");
    for speed in [800, 2600, 1800] {
        apply(guest, &format!("[cpus.1]\ngovernor = \"userspace {speed}000\"")).assert_changed();
    }
    assert_eq!(writes(guest), [(1, 800), (1, 2600), (1, 1800)]);
    roll_back(guest);
    assert_eq!(writes(guest).last(), Some(&(1, 3000)));
}

fn limits(guest: &Guest) {
    begin(guest, "performance");
    apply(guest, "[cpus.0]\nmin_frequency = \"1.2GHz\"\nmax_frequency = \"1.8GHz\"").assert_changed();
    assert_eq!(writes(guest), [(0, 1800)]);
    ok(guest.run(&format!("echo powersave >{POLICY}0/scaling_governor")));
    assert_eq!(writes(guest), [(0, 1200)], "the lower limit too");
    roll_back(guest);
    assert_eq!(writes(guest), [(0, 800)]);
    begin(guest, "performance");
    // A speed that is no P-state: the driver takes the next one, and that is not what was wanted.
    let refusal = apply(guest, "[cpus.0]\ngovernor = \"userspace 2000000\"").assert_refused();
    assert!(refusal.contains("it has the value userspace 2200000"), "{refusal}");
    assert_eq!(writes(guest), [(0, 2200), (0, 3000)], "tried, and taken back");
}

fn power(guest: &Guest) {
    begin(guest, "performance");
    power_set(guest, "--cpu 1 --frequency 1.2GHz").assert_changed();
    assert_eq!(writes(guest), [(1, 1200)]);
    roll_back(guest);
    assert_eq!(writes(guest), [(1, 3000)]);
    let refusal = power_set(guest, "--cpu 1 --frequency 9GHz").assert_refused();
    assert!(refusal.contains("3000000"), "{refusal}");
    assert_eq!(writes(guest), []);
}

fn firmware(guest: &Guest) {
    begin(guest, "powersave");
    ok(guest.set_firmware_limit(1, mhz(2200)));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/bios_limit) = 2200000 ]"), 100));
    for wish in ["userspace 3000000", "performance"] {
        let refusal = apply(guest, &format!("[cpus.1]\ngovernor = \"{wish}\"")).assert_refused();
        assert!(refusal.contains("the firmware limits the frequency to 2200000 kHz"), "{wish}: {refusal}");
        assert_eq!(writes(guest), [(1, 2200), (1, 800)], "{wish}: tried, and taken back");
    }
    // The CPU that the firmware leaves alone does as told.
    apply(guest, "[cpus.0]\ngovernor = \"performance\"").assert_changed();
    assert_eq!(writes(guest), [(0, 3000)]);
    roll_back(guest);
    // A limit that comes later is found by verify.
    ok(guest.set_firmware_limit(1, mhz(3000)));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/bios_limit) = 3000000 ]"), 100));
    apply(guest, "[cpus.1]\ngovernor = \"performance\"").assert_changed();
    ok(guest.run("apus tune verify"));
    ok(guest.set_firmware_limit(1, mhz(1200)));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/bios_limit) = 1200000 ]"), 100));
    let output = ok(guest.output("apus tune verify"));
    ok(guest.set_firmware_limit(1, mhz(3000)));
    ok(guest.wait_until(&format!("[ $(cat {POLICY}1/bios_limit) = 3000000 ]"), 100));
    roll_back(guest);
    assert_eq!(output.status, 1, "{output:?}");
    assert!(output.stdout.contains("1200000"), "{output:?}");
}

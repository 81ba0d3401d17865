//! Tests the meters on generated file trees and on this machine.

use std::time::Instant;

use super::*;
use crate::testing::Folder;

/// A machine with two packages and a platform meter. The first package has cores and memory, and also appears through
/// memory-mapped registers.
fn powercap() -> Folder {
    let folder = Folder::new(&[("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel\t: 106\n")]);
    let zones = [
        ("intel-rapl:0", "package-0", "1000"),
        ("intel-rapl:0:0", "core", "400"),
        ("intel-rapl:0:1", "dram", "100"),
        ("intel-rapl:1", "package-1", "262143328000"),
        ("intel-rapl:2", "psys", "5000"),
        ("intel-rapl-mmio:0", "package-0", "77"),
    ];
    for (zone, name, energy) in zones {
        put(&folder, zone, "name", name);
        put(&folder, zone, "energy_uj", energy);
        put(&folder, zone, "max_energy_range_uj", "262143328850");
    }
    folder.put("sys/class/powercap/intel-rapl/enabled", "1\n");
    folder
}

fn put(folder: &Folder, zone: &str, file: &str, text: &str) {
    folder.put(&format!("sys/class/powercap/{zone}/{file}"), &format!("{text}\n"));
}

fn find(folder: &Folder) -> Meters {
    Meters::find(&Root::open(folder.path("")).unwrap())
}

fn named<'a>(meters: &'a Meters, name: &str) -> &'a Meter {
    meters.list().find(|meter| meter.part.name() == name).unwrap_or_else(|| panic!("no meter {name}"))
}

#[test]
fn packages_are_summed_over_a_wrap_around_and_nothing_is_counted_twice() {
    let folder = powercap();
    let mut meters = find(&folder);
    assert_eq!(meters.counted_name(), "package-0 + package-1 + package-0 dram");
    assert_eq!(meters.list().len(), 5, "the memory-mapped zone is the same package");
    assert!(named(&meters, "package-0").place.ends_with("intel-rapl:0/energy_uj"));
    assert_eq!(named(&meters, "package-0").resolution(), Some(Nanojoules::new(61_035)));
    meters.poll(Nanos::ZERO);
    let start = meters.account();
    put(&folder, "intel-rapl:0", "energy_uj", "30001000");
    put(&folder, "intel-rapl:0:1", "energy_uj", "5000100");
    // From the last value: 850 uJ to the largest value, one step of 62 uJ to 0, and 9,999,088 uJ more.
    put(&folder, "intel-rapl:1", "energy_uj", "9999088");
    meters.poll(Nanos::from_secs(1));
    let account = meters.since(&start);
    let sum = meters.sum(&account).unwrap();
    assert_eq!(sum.energy, Nanojoules::new(45_000_000_000));
    assert_eq!(sum.power(), Some(units::Microwatts::new(45_000_000)));
    let platform = meters.list().position(|meter| meter.part == Part::Platform).unwrap();
    assert_eq!(account.shares()[platform].as_ref().unwrap().energy, Nanojoules::new(0));
}

#[test]
fn zones_may_be_nested_and_dies_apart() {
    let folder = Folder::new(&[("proc/cpuinfo", "vendor_id\t: GenuineIntel\n")]);
    for (zone, name) in [
        ("intel-rapl/intel-rapl:0", "package-0-die-0"),
        ("intel-rapl/intel-rapl:0/intel-rapl:0:0", "core"),
        ("intel-rapl/intel-rapl:1", "package-0-die-1"),
    ] {
        put(&folder, zone, "name", name);
        put(&folder, zone, "energy_uj", "1");
    }
    folder.put("sys/class/powercap/intel-rapl/enabled", "1\n");
    let meters = find(&folder);
    // The control type `intel-rapl` is in the same folder as its zones, whose names begin with its name.
    assert_eq!(meters.counted_name(), "package-0-die-0 + package-0-die-1");
    // Each of AMD's zones counts the whole package.
    folder.put("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
    let meters = find(&folder);
    assert_eq!(meters.counted_name(), "package-0");
    assert!(matches!(named(&meters, "package-0 one core").part, Part::Core(_)), "AMD counts one core there");
}

/// The registers of AMD's cores are in dies (CCDs), but count the package.
#[test]
fn a_register_of_amd_counts_its_package_once() {
    let folder = Folder::new(&[
        ("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("msr/0xc0010299", "0 0xa1003\n1 0xa1003\n"),
        ("msr/0xc001029b", "0 0x10\n1 0x10\n"),
    ]);
    for cpu in 0..2 {
        let file = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        folder.put(&file("physical_package_id"), "0\n");
        folder.put(&file("die_id"), &format!("{cpu}\n"));
    }
    assert_eq!(find(&folder).counted_name(), "package-0");
}

/// The energy of the gap is not counted; that before and after it is.
#[test]
fn a_meter_that_fails_is_opened_again_and_counts_on() {
    let folder = powercap();
    let root = Root::open(folder.path("")).unwrap();
    let mut meters = Meters::find(&root);
    let known = |meters: &Meters| meters.known().next().unwrap();
    let at = Nanos::from_secs;
    meters.poll(at(0));
    put(&folder, "intel-rapl:0", "energy_uj", "1001000");
    meters.poll(at(1));
    put(&folder, "intel-rapl:0", "energy_uj", "");
    meters.poll(at(2));
    assert_eq!(known(&meters), (Nanojoules::new(1_000_000_000), 1));
    // The driver is loaded again.
    std::fs::remove_file(folder.path("sys/class/powercap/intel-rapl:0/energy_uj")).unwrap();
    put(&folder, "intel-rapl:0", "energy_uj", "5000000");
    meters.reopen(&root);
    meters.poll(at(3));
    put(&folder, "intel-rapl:0", "energy_uj", "7000000");
    meters.poll(at(4));
    assert_eq!(known(&meters), (Nanojoules::new(3_000_000_000), 1));
    meters.poll_after(at(5), at(3_600));
    assert_eq!(known(&meters), (Nanojoules::new(3_000_000_000), 2), "suspended for an hour");
}

#[test]
fn a_meter_that_fails_makes_the_sum_unknown_and_says_why() {
    let folder = powercap();
    let mut meters = find(&folder);
    meters.poll(Nanos::ZERO);
    let start = meters.account();
    put(&folder, "intel-rapl:1", "energy_uj", "none");
    meters.poll(Nanos::from_secs(1));
    put(&folder, "intel-rapl:1", "energy_uj", "262143328001");
    meters.poll(Nanos::from_secs(2));
    let account = meters.since(&start);
    let why = meters.sum(&account).unwrap_err();
    assert!(why.contains("intel-rapl:1/energy_uj") && why.contains("none"), "{why}");
    assert!(account.shares()[0].is_ok(), "the others are known");
}

#[test]
fn registers_are_read_where_nothing_else_is() {
    let folder = Folder::new(&[
        ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel\t: 106\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/cpu/isolated", "0\n"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
        ("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n"),
        ("sys/devices/system/cpu/cpu3/topology/physical_package_id", "1\n"),
        ("msr/0x606", "0 0xa0e03\n1 0xa0e03\n2 0xa0e03\n3 0xa0e03\n"),
        ("msr/0x611", "1 0xfffffff0\n2 0x10\n"),
        ("msr/0x619", "1 0x10000\n2 0x10\n"),
        ("msr/0x639", "1 0x0\n2 0x0\n"),
    ]);
    let mut meters = find(&folder);
    assert_eq!(meters.counted_name(), "package-0 + package-1 + package-0 dram + package-1 dram");
    assert_eq!(named(&meters, "package-0").place, "register 0x611 of CPU 1", "CPU 0 is isolated");
    meters.poll(Nanos::ZERO);
    let start = meters.account();
    // A count is 2^-14 J; the counter wraps around at 32 bits. 0x4000 counts are 1 J. For memory, a count is 2^-16 J;
    // 0x8000 counts are 0.5 J.
    folder.put("msr/0x611", "1 0x3ff0\n2 0x10\n");
    folder.put("msr/0x619", "1 0x18000\n2 0x10\n");
    meters.poll(Nanos::from_secs(1));
    let account = meters.since(&start);
    assert_eq!(meters.sum(&account).map(|share| share.energy), Ok(Nanojoules::new(1_500_000_000)));
}

#[test]
fn registers_that_read_zero_are_no_meters() {
    let folder = Folder::new(&[
        ("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n"),
        ("sys/devices/system/cpu/online", "0\n"),
        ("msr/0xc0010299", "0 0x0\n"),
        ("msr/0xc001029b", "0 0x0\n"),
    ]);
    let meters = find(&folder);
    let reason = meters.reason().unwrap();
    assert!(reason.contains("register 0xc0010299 of CPU 0") && reason.contains("virtual machine"), "{reason}");
    folder.put("msr/0xc0010299", "0 0xa1003\n");
    folder.put("msr/0xc001029b", "0 0x7\n");
    assert_eq!(find(&folder).counted_name(), "package-0");
}

#[test]
fn sensors_of_acpi_and_hwmon() {
    let folder = Folder::new(&[
        ("proc/cpuinfo", "vendor_id\t: GenuineIntel\n"),
        ("sys/bus/acpi/devices/ACPI000D:00/power1_average", "42000000\n"),
        ("sys/bus/acpi/devices/ACPI000D:00/power1_average_interval", "1000\n"),
        ("sys/bus/acpi/devices/ACPI000D:00/power1_accuracy", "95.00%\n"),
        ("sys/class/hwmon/hwmon0/name", "power_meter\n"),
        ("sys/class/hwmon/hwmon1/name", "ina226\n"),
        ("sys/class/hwmon/hwmon1/power1_input", "5000000\n"),
        ("sys/class/hwmon/hwmon1/power1_label", "12V\n"),
        ("sys/class/hwmon/hwmon2/name", "xe\n"),
        ("sys/class/hwmon/hwmon2/energy1_input", "5\n"),
    ]);
    std::os::unix::fs::symlink("../../../bus/acpi/devices/ACPI000D:00", folder.path("sys/class/hwmon/hwmon0/device"))
        .unwrap();
    let mut meters = find(&folder);
    let names: Vec<String> = meters.list().map(|meter| meter.part.name()).collect();
    assert_eq!(names, ["ACPI000D:00", "hwmon1 ina226 12V", "hwmon2 xe energy1"]);
    assert_eq!(meters.counted_name(), "ACPI000D:00");
    assert_eq!(named(&meters, "ACPI000D:00").accuracy_ppm, Some(950_000));
    assert_eq!(meters.poll_within(), Some(Nanos::from_secs(1)));
    meters.poll(Nanos::ZERO);
    let start = meters.account();
    folder.put("sys/bus/acpi/devices/ACPI000D:00/power1_average", "55500000\n");
    meters.poll(Nanos::from_secs(2));
    let account = meters.since(&start);
    assert_eq!(meters.sum(&account).map(|share| share.energy), Ok(Nanojoules::new(111_000_000_000)));
}

/// A missing meter is reported for each interface, and never counts as zero.
#[test]
fn a_machine_without_meters_says_where_it_looked() {
    let folder = Folder::new(&[("proc/cpuinfo", "vendor_id\t: GenuineIntel\n"), ("sys/class/net/lo/mtu", "1500\n")]);
    let meters = find(&folder);
    assert_eq!(meters.counted(), [0; 0]);
    let reason = meters.reason().unwrap();
    for place in ["powercap: /sys/class/powercap", "perf: /sys/bus/event_source", "msr: ", "acpi: ", "hwmon: "] {
        assert!(reason.contains(place), "{reason}");
    }
    assert!(meters.sum(&meters.since(&meters.account())).unwrap_err().starts_with("no energy meter here"));
}

/// On any machine, the result is a power or a reason why there is none, and polling is cheap.
#[test]
fn this_machine_has_a_figure_or_a_reason() {
    let mut meters = Meters::find(&Root::live());
    let start = Instant::now();
    let now = || Nanos::from_nanos(start.elapsed().as_nanos() as u64);
    meters.poll(now());
    let first = meters.account();
    while start.elapsed().as_millis() < 20 {
        std::hint::spin_loop();
    }
    meters.poll(now());
    let account = meters.since(&first);
    match meters.sum(&account) {
        Ok(share) => assert!(share.span > Nanos::ZERO && meters.reason().is_none()),
        Err(reason) => assert!(!reason.is_empty()),
    }
}

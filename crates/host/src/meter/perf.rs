//! RAPL through perf: the PMU `power` below `/sys/bus/event_source/devices` (Linux, arch/x86/events/rapl.c).
//!
//! Each event counts on one CPU of each package (`cpumask`); its count times `events/*.scale` is the energy in joules.
//! The kernel extends the register to 64 bits, so that it never wraps around.
//!
//! The kernel shifts each count to the unit 2^-32 J (`rapl_scale`, same file), so each count is a multiple of the
//! register's step. An event that counts nothing is no meter: some virtual machines list the PMU although its registers
//! always read 0.

use std::thread;
use std::time::{Duration, Instant};

use units::Nanojoules;

use super::tally::{Quantity, Unit};
use super::{Found, From, Interface, Lack, Meter, Part, Place, powercap, sys};
use crate::facts::{CpuSet, Kind, Root, Why};

const PMU: &str = "sys/bus/event_source/devices/power";

/// Name of an event, and the part of the machine that it counts.
type Named = (&'static str, fn(Place) -> Part);

/// The events of the PMU `power`.
const EVENTS: [Named; 5] = [
    ("energy-pkg", Part::Package),
    ("energy-ram", Part::Dram),
    ("energy-cores", Part::Cores),
    ("energy-gpu", Part::Uncore),
    ("energy-psys", |_| Part::Platform),
];

pub(super) fn find(root: &Root, found: &mut Vec<Found>, lacks: &mut Vec<Lack>) {
    let lack = |place: String, why: Why| Lack { by: Interface::Perf, place, why };
    let events = match events(root) {
        Ok(events) => events,
        Err((place, why)) => return lacks.push(lack(place, why)),
    };
    let mut opened = Vec::new();
    for event in events {
        if found.iter().any(|found| found.meter.part == event.part) {
            continue;
        }
        if root.kind() != Kind::Live {
            lacks.push(lack(event.place, Why::Unsupported("perf events exist only on the running machine".into())));
            continue;
        }
        match sys::open(event.kind, event.config, event.cpu) {
            Ok(fd) => opened.push((event, fd)),
            Err(error) => lacks.push(lack(event.place, super::why(&error))),
        }
    }
    let end = Instant::now() + ADVANCES_WITHIN;
    let counts = watch(
        opened.len(),
        |number| sys::count(&opened[number].1).map_err(|error| super::why(&error)),
        || {
            thread::sleep(POLL);
            Instant::now() < end
        },
    );
    for ((event, fd), counts) in opened.into_iter().zip(counts) {
        match counts.and_then(|counts| counts.step(event.unit)) {
            Ok(step) => {
                let quantity = Quantity::Energy { unit: event.unit, modulus: None, step };
                let (by, update) = (Interface::Perf, Some(powercap::UPDATE));
                let meter = Meter { part: event.part, by, place: event.place, quantity, update, accuracy_ppm: None };
                found.push(Found { meter, from: From::Event(fd) });
            }
            Err(why) => lacks.push(lack(event.place, why)),
        }
    }
}

/// An event whose count does not change for this long is no meter. At 5 W or more, even the register with the longest
/// step, 1 J ([`msr`](super::msr)), changes within this time.
const ADVANCES_WITHIN: Duration = Duration::from_millis(200);
/// Time between two readings of the events, twice [`powercap::UPDATE`].
const POLL: Duration = Duration::from_millis(2);
/// The events are read until each count has changed this many times. In half of the counts, the lowest bit of the step
/// is 0 by chance, so in one of 256 cases the derived step is too large. It is more often too large for an event that
/// changes less often within [`ADVANCES_WITHIN`].
const CHANGES: u32 = 8;

/// The counts of an event so far.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    last: Option<u64>,
    /// How often the count has changed.
    changes: u32,
    /// The bits that were set in any count.
    bits: u64,
}

impl Counts {
    fn add(&mut self, count: u64) {
        self.changes += u32::from(self.last.is_some_and(|last| last != count));
        self.last = Some(count);
        self.bits |= count;
    }

    /// Computes the register's step from the lowest bit that was set in any count. Fails if the count has not changed.
    fn step(&self, unit: Unit) -> Result<Nanojoules, Why> {
        if self.changes == 0 {
            let why = format!(
                "its count does not change within {} ms, as in some virtual machines",
                ADVANCES_WITHIN.as_millis()
            );
            return Err(Why::Unsupported(why.into()));
        }
        Ok(unit.energy(1 << self.bits.trailing_zeros()).max(unit.step()))
    }
}

/// Reads `events` events until each has changed [`CHANGES`] times or cannot be read, or `wait` returns false.
fn watch(
    events: usize,
    mut read: impl FnMut(usize) -> Result<u64, Why>,
    mut wait: impl FnMut() -> bool,
) -> Vec<Result<Counts, Why>> {
    let mut all: Vec<Result<Counts, Why>> = vec![Ok(Counts::default()); events];
    loop {
        for (number, seen) in all.iter_mut().enumerate() {
            if let Ok(counts) = seen {
                match read(number) {
                    Ok(count) => counts.add(count),
                    Err(why) => *seen = Err(why),
                }
            }
        }
        let done = |seen: &Result<Counts, Why>| seen.as_ref().map_or(true, |counts| counts.changes >= CHANGES);
        if all.iter().all(done) || !wait() {
            return all;
        }
    }
}

/// One event, on the CPU that represents its package.
#[derive(Debug)]
struct Event {
    part: Part,
    place: String,
    kind: u32,
    config: u64,
    cpu: u32,
    unit: Unit,
}

/// The events that sysfs lists. If there are none, the error contains the missing path and the reason.
fn events(root: &Root) -> Result<Vec<Event>, (String, Why)> {
    let kind = root.number::<u32>(&format!("{PMU}/type"));
    let Some(kind) = kind.get() else {
        return Err((format!("/{PMU}"), kind.why().cloned().unwrap_or(Why::Absent)));
    };
    let mask = root.cpu_list(&format!("{PMU}/cpumask"));
    let Some(cpus) = mask.value() else {
        return Err((format!("/{PMU}/cpumask"), mask.why().cloned().unwrap_or(Why::Absent)));
    };
    let mut events = Vec::new();
    for (name, part) in EVENTS {
        let path = format!("{PMU}/events/{name}");
        let Some(text) = root.text(&path).into_value() else { continue };
        let scale = root.text(&format!("{path}.scale")).into_value().and_then(|text| text.parse().ok());
        let joules = root.text(&format!("{path}.unit")).into_value().is_none_or(|unit| unit == "Joules");
        let (Some(config), Some(unit), true) = (config(&text), scale.and_then(Unit::of_joules), joules) else {
            return Err((format!("/{path}"), Why::Malformed(format!("{text:?} with its scale and unit").into())));
        };
        for cpu in cpus.iter() {
            let part = part(place(root, cpu, cpus));
            if !events.iter().any(|event: &Event| event.part == part) {
                events.push(Event { part, place: format!("power/{name}/ on CPU {cpu}"), kind, config, cpu, unit });
            }
        }
    }
    Ok(events)
}

/// Parses `event=0x02`, in the format of `format/event` (config:0-7). Other terms are not supported.
pub(super) fn config(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("event=0x")?, 16).ok().filter(|config| *config <= 0xff)
}

/// The package of a CPU, and its die if `all` has several CPUs of this package. AMD's counters count the whole package,
/// although the kernel calls each group of cores (CCD) a die (arch/x86/events/rapl.c, `rapl_is_pkg_scope`).
pub(super) fn place(root: &Root, cpu: u32, all: &CpuSet) -> Place {
    let topology =
        |cpu: u32, name: &str| root.number(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}")).get();
    let package = topology(cpu, "physical_package_id").unwrap_or(0);
    let has_dies = !super::msr::counts_packages(root);
    let shared = has_dies
        && all.iter().filter(|other| topology(*other, "physical_package_id").unwrap_or(0) == package).count() > 1;
    Place { package, die: shared.then(|| topology(cpu, "die_id")).flatten() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(scale: &str) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = [
            ("type", "30\n"),
            ("cpumask", "0,4\n"),
            ("events/energy-pkg", "event=0x02\n"),
            ("events/energy-pkg.scale", scale),
            ("events/energy-pkg.unit", "Joules\n"),
            ("events/energy-psys", "event=0x05\n"),
            ("events/energy-psys.scale", "1.0\n"),
            ("events/energy-psys.unit", "Joules\n"),
        ]
        .map(|(name, text)| (format!("{PMU}/{name}"), text.to_owned()))
        .to_vec();
        for (cpu, package) in [(0, 0), (4, 1)] {
            files.push((
                format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
                format!("{package}\n"),
            ));
        }
        files
    }

    #[test]
    fn each_package_has_an_event_and_the_platform_one() {
        let root = Root::given(files("2.3283064365386962890625e-10\n"));
        let events = events(&root).unwrap();
        let seen: Vec<(String, u64, u32)> = events.iter().map(|e| (e.part.name(), e.config, e.cpu)).collect();
        let expected = [("package-0", 2, 0), ("package-1", 2, 4), ("platform", 5, 0)];
        assert_eq!(seen, expected.map(|(name, config, cpu)| (name.to_owned(), config, cpu)));
        assert_eq!(events[0].unit, Unit::of_exponent(32));
        assert_eq!(events[2].unit, Unit::of_exponent(0));
    }

    #[test]
    fn events_that_count_nothing_are_no_meters() {
        let unit = Unit::of_exponent(32);
        // Event 0 has steps of 2^-14 J. Event 1 always reads 0, event 2 always reads the same value, and event 3 cannot
        // be read. Event 4 has steps of 1 J and changes every 40 ms.
        let (mut polls, mut reads) = (0, [0; 5]);
        let counts = watch(
            5,
            |number| {
                reads[number] += 1;
                let time = reads[number] - 1;
                match number {
                    0 => Ok((time * 173) << 18),
                    1 => Ok(0),
                    2 => Ok(5 << 18),
                    3 => Err(Why::Unsupported("the event is in an error state".into())),
                    _ => Ok((time / 20) << 32),
                }
            },
            || {
                polls += 1;
                polls < 100
            },
        );
        let steps: Vec<_> = counts.into_iter().map(|counts| counts.and_then(|counts| counts.step(unit))).collect();
        assert_eq!(steps[0], Ok(Nanojoules::new(61_035)));
        let [Err(zero), Err(still), Err(unreadable)] = &steps[1..4] else { panic!("{steps:?}") };
        assert_eq!(
            zero.to_string(),
            "not supported: its count does not change within 200 ms, as in some virtual machines"
        );
        assert_eq!(still, zero);
        assert_eq!(unreadable.to_string(), "not supported: the event is in an error state");
        assert_eq!(steps[4], Ok(Nanojoules::new(1_000_000_000)));
        assert_eq!((polls, reads), (100, [100, 100, 100, 1, 100]));
        // Where all events count, a few readings suffice.
        polls = 0;
        let mut count = 0;
        let read = |_| {
            count += 7 << 18;
            Ok(count)
        };
        let counts = watch(1, read, || {
            polls += 1;
            true
        });
        assert_eq!((counts[0].as_ref().unwrap().changes, polls), (CHANGES, CHANGES));
    }

    #[test]
    fn dies_of_amd_are_one_package() {
        for (vendor, expected) in [
            ("AuthenticAMD", &["package-0", "platform"][..]),
            ("HygonGenuine", &["package-0", "platform"]),
            ("GenuineIntel", &["package-0-die-0", "package-0-die-1", "platform"]),
        ] {
            let mut files = files("2.3283064365386962890625e-10\n");
            for (cpu, die) in [(0, 0), (4, 1)] {
                let file = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
                files.retain(|(path, _)| *path != file("physical_package_id"));
                files.extend([(file("physical_package_id"), "0\n".into()), (file("die_id"), format!("{die}\n"))]);
            }
            files.push(("proc/cpuinfo".into(), format!("vendor_id\t: {vendor}\n")));
            let events = events(&Root::given(files)).unwrap();
            assert_eq!(events.iter().map(|event| event.part.name()).collect::<Vec<_>>(), expected, "{vendor}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let (place, why) = events(&Root::given(files("half\n"))).unwrap_err();
        assert!(place.ends_with("energy-pkg") && matches!(why, Why::Malformed(_)), "{place}: {why}");
        assert_eq!(config("event=0x02,umask=0x1"), None);
        assert_eq!(config("event=0x1ff"), None);
        let none: [(&str, &str); 0] = [];
        let (place, why) = events(&Root::given(none).complete()).unwrap_err();
        assert_eq!((place.as_str(), why), ("/sys/bus/event_source/devices/power", Why::Absent));
    }
}

//! RAPL through powercap: `/sys/class/powercap/*/energy_uj` (Linux, Documentation/power/powercap/powercap.rst).
//!
//! drivers/powercap/intel_rapl_common.c names the zones: `package-0`, `package-0-die-1`, `psys`, and below a package
//! `core`, `uncore`, `dram`. The control types `intel-rapl` and `intel-rapl-mmio` may show the same package twice.

use units::{Nanojoules, Nanos};

use super::tally::{Quantity, Unit};
use super::{Found, From, Interface, Lack, Meter, Part, Place};
use crate::facts::{Root, Why};

const FOLDER: &str = "sys/class/powercap";

/// Time after which RAPL updates its counters, about one millisecond (Intel SDM, volume 3, 16.10.3).
pub(super) const UPDATE: Nanos = Nanos::from_millis(1);

/// Maximum count of RAPL's 32-bit counters. `max_energy_range_uj` is this count times the unit (intel_rapl_common.c,
/// `ENERGY_STATUS_MASK` and `rapl_unit_xlate`).
const COUNTS: u64 = u32::MAX as u64;

pub(super) fn find(root: &Root, found: &mut Vec<Found>, lacks: &mut Vec<Lack>) {
    let lack = |place: String, why: Why| Lack { by: Interface::Powercap, place, why };
    let names = root.list(FOLDER);
    let Some(names) = names.value() else {
        lacks.push(lack(format!("/{FOLDER}"), names.why().cloned().unwrap_or(Why::Absent)));
        return;
    };
    let mut zones = Vec::new();
    for name in names {
        collect(root, &format!("{FOLDER}/{name}"), 0, &mut zones);
    }
    // The memory-mapped interface shows the same counters as the register interface. It comes last, so it is used only
    // where the other one is missing.
    zones.sort_by_key(|zone: &Zone| (zone.id.starts_with("intel-rapl-mmio"), numbers(&zone.id)));
    zones.dedup_by(|a, b| a.id == b.id);
    let amd = super::msr::counts_packages(root);
    let before = (found.len(), lacks.len());
    for zone in &zones {
        let part = part(zone, &zones, amd);
        if found.iter().any(|found| found.meter.part == part) {
            continue;
        }
        let place = format!("{}/energy_uj", zone.path);
        let read = root.reopened(&place).and_then(|file| {
            let from = From::File(file);
            from.read().map(|_| from)
        });
        match read {
            Ok(from) => {
                let meter = Meter {
                    part,
                    by: Interface::Powercap,
                    place: format!("/{place}"),
                    quantity: quantity(zone.range_uj),
                    update: Some(UPDATE),
                    accuracy_ppm: None,
                };
                found.push(Found { meter, from });
            }
            Err(why) => lacks.push(lack(format!("/{place}"), why)),
        }
    }
    if (found.len(), lacks.len()) == before {
        lacks.push(lack(format!("/{FOLDER}"), Why::Unsupported("it has no zone that counts energy".into())));
    }
}

struct Zone {
    /// Identifier of the zone, such as `intel-rapl:0:1`.
    id: String,
    path: String,
    name: String,
    /// Maximum of the counter in microjoules (`max_energy_range_uj`). `None` if it is missing or invalid.
    range_uj: Option<u64>,
}

/// Collects the zone at `path` and the zones below it. The live class has a link to every zone; in a recorded copy, the
/// zones below another one may appear only in its folder.
fn collect(root: &Root, path: &str, depth: usize, zones: &mut Vec<Zone>) {
    const DEEPEST: usize = 4;
    let id = path.rsplit('/').next().unwrap_or_default().to_owned();
    let Some(inside) = root.list(path).into_value() else { return };
    if inside.iter().any(|name| name == "energy_uj") && !zones.iter().any(|zone| zone.id == id) {
        zones.push(Zone {
            name: root.text(&format!("{path}/name")).into_value().unwrap_or_else(|| id.clone()),
            range_uj: root.number(&format!("{path}/max_energy_range_uj")).into_value().filter(|range| *range > 0),
            path: path.to_owned(),
            id: id.clone(),
        });
    }
    if depth < DEEPEST {
        for name in inside.iter().filter(|name| name.starts_with(&format!("{id}:"))) {
            collect(root, &format!("{path}/{name}"), depth + 1, zones);
        }
    }
}

/// The numbers in a zone's identifier such as `intel-rapl:10:2`, to sort zone 10 after zone 9.
fn numbers(id: &str) -> Vec<u32> {
    id.split(':').skip(1).map(|number| number.parse().unwrap_or(u32::MAX)).collect()
}

fn part(zone: &Zone, zones: &[Zone], amd: bool) -> Part {
    if zone.name == "psys" {
        return Part::Platform;
    }
    // AMD's zones of several dies all count the same package (see `perf::place`).
    let package = |name: &str| package(name).map(|place| Place { die: place.die.filter(|_| !amd), ..place });
    if let Some(place) = package(&zone.name) {
        return Part::Package(place);
    }
    let parent = zone.id.rsplit_once(':').and_then(|(parent, _)| zones.iter().find(|zone| zone.id == parent));
    match (zone.name.as_str(), parent.and_then(|parent| package(&parent.name))) {
        // AMD's register counts one core: the core of the CPU on which the driver reads it (intel_rapl_msr.c).
        ("core", Some(place)) if amd => Part::Core(place),
        ("core", Some(place)) => Part::Cores(place),
        ("uncore", Some(place)) => Part::Uncore(place),
        ("dram", Some(place)) => Part::Dram(place),
        (name, _) => Part::Other(format!("{} {name}", zone.id)),
    }
}

/// Parses the name of a package's zone: `package-1` or `package-1-die-0`.
fn package(name: &str) -> Option<Place> {
    let rest = name.strip_prefix("package-")?;
    match rest.split_once("-die-") {
        Some((package, die)) => Some(Place { package: package.parse().ok()?, die: Some(die.parse().ok()?) }),
        None => Some(Place { package: rest.parse().ok()?, die: None }),
    }
}

/// The quantity that `energy_uj` shows, in whole microjoules. The counter's own step is its range divided by its
/// maximum count.
fn quantity(range_uj: Option<u64>) -> Quantity {
    // The kernel rounds the range down to a microjoule.
    let step = range_uj.map(|range| (u128::from(range) * 1_000).div_ceil(u128::from(COUNTS)));
    let step_nj = u64::try_from(step.unwrap_or(0)).unwrap_or(u64::MAX).max(1_000);
    Quantity::Energy {
        unit: Unit::MICROJOULE,
        // The largest value is followed by 0, one step later.
        modulus: range_uj.map(|range| range.saturating_add(step_nj.div_ceil(1_000))),
        step: Nanojoules::new(step_nj),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(package("package-1"), Some(Place { package: 1, die: None }));
        assert_eq!(package("package-1-die-3"), Some(Place { package: 1, die: Some(3) }));
        for other in ["package-", "package-x", "package-1-die-", "psys", "dram"] {
            assert_eq!(package(other), None, "{other}");
        }
        assert!(numbers("intel-rapl:10") > numbers("intel-rapl:9:2"));
    }

    #[test]
    fn the_step_follows_from_the_range() {
        // Recorded ranges: a count is 2^-14 J, or 15.3 uJ for server memory.
        let step = |range| match quantity(Some(range)) {
            Quantity::Energy { step, modulus, .. } => (step.as_nanojoules(), modulus),
            other => panic!("{other:?}"),
        };
        assert_eq!(step(262_143_328_850), (61_035, Some(262_143_328_912)));
        assert_eq!(step(65_712_999_613).0, 15_300);
        assert_eq!(step(1_000_000).0, 1_000);
        assert!(matches!(quantity(None), Quantity::Energy { modulus: None, .. }));
    }
}

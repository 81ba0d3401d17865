//! Sensors of power and energy: ACPI's power meter, and the class hwmon (Linux,
//! Documentation/hwmon/acpi_power_meter.rst and sysfs-interface.rst). Values are in microwatts and microjoules.
//!
//! In old kernels, the files of the power meter are in the folder of the ACPI device; in new kernels, they are in that
//! of its hwmon device. Both folders are searched, and each device counts once.

use units::{Nanojoules, Nanos};

use super::tally::{Quantity, Unit};
use super::{Found, From, Interface, Lack, Meter, Part, Place};
use crate::facts::{Root, Why};

const ACPI: &str = "sys/bus/acpi/devices";
const HWMON: &str = "sys/class/hwmon";
/// Hardware ID of a power meter (ACPI Specification 6.5, 10.4).
const POWER_METER: &str = "ACPI000D";

/// Finds ACPI power meters.
pub(super) fn acpi(root: &Root, found: &mut Vec<Found>, lacks: &mut Vec<Lack>) {
    let mut devices: Vec<(String, String)> = Vec::new();
    for name in root.list(ACPI).into_value().unwrap_or_default() {
        if name.starts_with(POWER_METER) {
            devices.push((name.clone(), format!("{ACPI}/{name}")));
        }
    }
    for name in root.list(HWMON).into_value().unwrap_or_default() {
        let folder = format!("{HWMON}/{name}");
        if root.text(&format!("{folder}/name")).into_value().as_deref() == Some("power_meter") {
            let device = root.link_name(&format!("{folder}/device")).into_value().unwrap_or(name);
            match devices.iter_mut().find(|(known, _)| *known == device) {
                // Newer kernels have the attributes in the hwmon device.
                Some((_, path)) if root.text(&format!("{path}/power1_average")).is_absent() => *path = folder,
                Some(_) => {}
                None => devices.push((device, folder)),
            }
        }
    }
    if devices.is_empty() {
        let place = format!("/{ACPI}/{POWER_METER}:*");
        let list = root.list(ACPI);
        let why = list.why().cloned().unwrap_or(Why::Absent);
        lacks.push(Lack { by: Interface::Acpi, place, why });
    }
    for (device, folder) in devices {
        let path = format!("{folder}/power1_average");
        let opened = root.reopened(&path).and_then(|file| {
            let from = From::File(file);
            from.read().map(|_| from)
        });
        match opened {
            Ok(from) => {
                let interval = root.number(&format!("{folder}/power1_average_interval")).get().map(Nanos::from_millis);
                let accuracy = root.text(&format!("{folder}/power1_accuracy")).into_value();
                let interval = interval.filter(|interval| *interval > Nanos::ZERO);
                let meter = Meter {
                    part: Part::Machine(device),
                    by: Interface::Acpi,
                    place: format!("/{path}"),
                    quantity: Quantity::Average { interval },
                    update: interval,
                    accuracy_ppm: accuracy.and_then(|text| accuracy_ppm(&text)),
                };
                found.push(Found { meter, from });
            }
            Err(why) => lacks.push(Lack { by: Interface::Acpi, place: format!("/{path}"), why }),
        }
    }
}

/// Finds all other sensors of power and energy.
pub(super) fn find(root: &Root, found: &mut Vec<Found>, lacks: &mut Vec<Lack>) {
    let lack = |place: String, why: Why| Lack { by: Interface::Hwmon, place, why };
    let names = root.list(HWMON);
    let Some(names) = names.value() else {
        return lacks.push(lack(format!("/{HWMON}"), names.why().cloned().unwrap_or(Why::Absent)));
    };
    let before = (found.len(), lacks.len());
    for name in names {
        let folder = format!("{HWMON}/{name}");
        let driver = root.text(&format!("{folder}/name")).into_value().unwrap_or_else(|| name.clone());
        if driver == "power_meter" {
            continue;
        }
        let files = root.list(&folder).into_value().unwrap_or_default();
        for file in sensors(&files) {
            let (sensor, kind) = file.split_once('_').unwrap_or((&file, ""));
            let label = root.text(&format!("{folder}/{sensor}_label")).into_value();
            let shown = label.as_deref().unwrap_or(sensor);
            let part = part(&driver, name, shown);
            if found.iter().any(|found| found.meter.part == part) {
                continue;
            }
            let path = format!("{folder}/{file}");
            let opened = root.reopened(&path).and_then(|opened| {
                let from = From::File(opened);
                from.read().map(|_| from)
            });
            let interval = root.number(&format!("{folder}/{sensor}_average_interval")).get().map(Nanos::from_millis);
            let quantity = match (sensor.starts_with("energy"), kind) {
                (true, _) => Quantity::Energy { unit: Unit::MICROJOULE, modulus: None, step: Nanojoules::new(1_000) },
                (false, "average") => Quantity::Average { interval },
                (false, _) => Quantity::Power,
            };
            match opened {
                Ok(from) => {
                    let update = interval
                        .or_else(|| root.number(&format!("{folder}/update_interval")).get().map(Nanos::from_millis));
                    let place = format!("/{path}");
                    let meter = Meter { part, by: Interface::Hwmon, place, quantity, update, accuracy_ppm: None };
                    found.push(Found { meter, from });
                }
                Err(why) => lacks.push(lack(format!("/{path}"), why)),
            }
        }
    }
    if (found.len(), lacks.len()) == before && !found.iter().any(|found| found.meter.by == Interface::Hwmon) {
        lacks.push(lack(format!("/{HWMON}"), Why::Unsupported("no device has a sensor of power or energy".into())));
    }
}

/// The files with values of sensors. For a power sensor this is its average or, if there is none, its current value.
fn sensors(files: &[String]) -> Vec<String> {
    let number = |file: &str, prefix: &str, suffix: &str| -> Option<u32> {
        file.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
    };
    let mut sensors = Vec::new();
    for file in files {
        let average = number(file, "power", "_average").is_some();
        let power = number(file, "power", "_input").is_some_and(|n| !files.contains(&format!("power{n}_average")));
        let energy = number(file, "energy", "_input").is_some();
        if average || power || energy {
            sensors.push(file.clone());
        }
    }
    sensors
}

/// The part of the machine that a sensor measures, if its driver reports it. amd_energy uses the labels `Esocket0` and
/// `Ecore012` (drivers/hwmon/amd_energy.c, up to Linux 5.12).
fn part(driver: &str, device: &str, label: &str) -> Part {
    let number = |prefix: &str| label.strip_prefix(prefix).and_then(|number| number.parse::<u32>().ok());
    match (driver, number("Esocket")) {
        ("amd_energy", Some(package)) => Part::Package(Place { package, die: None }),
        _ => Part::Other(format!("{device} {driver} {label}")),
    }
}

/// Parses an accuracy: `95.00%` is 950,000 ppm.
fn accuracy_ppm(text: &str) -> Option<u32> {
    let percent: f64 = text.trim().strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent * 10_000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_is_preferred_and_other_files_are_none() {
        let files = ["power1_input", "power1_average", "power2_input", "energy1_input", "energy1_label", "power1_cap"];
        assert_eq!(sensors(&files.map(str::to_owned)), ["power1_average", "power2_input", "energy1_input"]);
    }

    #[test]
    fn accuracies_and_labels() {
        assert_eq!(accuracy_ppm("95.00%"), Some(950_000));
        assert_eq!((accuracy_ppm("95"), accuracy_ppm("nan%"), accuracy_ppm("120%")), (None, None, None));
        assert_eq!(part("amd_energy", "hwmon1", "Esocket1").name(), "package-1");
        assert_eq!(part("amd_energy", "hwmon1", "Ecore001").name(), "hwmon1 amd_energy Ecore001");
        assert_eq!(part("ina226", "hwmon2", "Esocket1").name(), "hwmon2 ina226 Esocket1");
    }
}

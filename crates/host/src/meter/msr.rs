//! RAPL's registers. They are used if the kernel offers RAPL neither through powercap nor through perf.
//!
//! Intel SDM, volume 3, 16.10: unit 0x606 (bits 12:8: 2^-n J), package 0x611, memory 0x619, cores 0x639, graphics
//! 0x641, platform 0x64D. AMD PPR for family 17h, 2.1.14: unit 0xC0010299, one core 0xC001029A, package 0xC001029B. The
//! memory counter of servers has the fixed unit 2^-16 J, and the platform counter of Sapphire Rapids the fixed unit 1 J
//! (Linux, arch/x86/events/rapl.c, `rapl_hw_unit`).
//!
//! Reading a register interrupts a CPU, so the registers of a package are read on a CPU that is not isolated, if there
//! is one. AMD's register of a single core is read only on this CPU, because reading it for other cores would interrupt
//! them.

use units::Nanojoules;

use super::tally::{Quantity, Unit};
use super::{Found, From, Interface, Lack, Meter, Part, Place, perf, powercap};
use crate::facts::{CpuSet, Kind, Root, Vendor, Why, bits};

const INTEL_UNIT: u32 = 0x606;
const AMD_UNIT: u32 = 0xC001_0299;

/// A counter: the register's address, the part of the machine that it counts, and the exponent of its unit if that is
/// fixed.
type Counter = (u32, fn(Place) -> Part, Option<u32>);

const AMD: &[Counter] = &[(0xC001_029B, Part::Package, None), (0xC001_029A, Part::Core, None)];

/// Server models whose memory counter has the unit 2^-16 J, regardless of the unit register: Haswell, Broadwell,
/// Skylake and Cascade Lake, Ice Lake, Sapphire and Emerald Rapids, Knights Landing and Mill (arch/x86/events/rapl.c,
/// `rapl_model_match`).
const FIXED_MEMORY: [u32; 10] = [0x3F, 0x4F, 0x56, 0x55, 0x6A, 0x6C, 0x8F, 0xCF, 0x57, 0x85];
/// Server models whose platform counter has the unit 1 J: Sapphire and Emerald Rapids.
const FIXED_PLATFORM: [u32; 2] = [0x8F, 0xCF];

fn intel(model: Option<u32>) -> Vec<Counter> {
    let fixed = |models: &[u32], exponent: u32| model.filter(|model| models.contains(model)).map(|_| exponent);
    vec![
        (0x611, Part::Package, None),
        (0x619, Part::Dram, fixed(&FIXED_MEMORY, 16)),
        (0x639, Part::Cores, None),
        (0x641, Part::Uncore, None),
        (0x64D, |_| Part::Platform, fixed(&FIXED_PLATFORM, 0)),
    ]
}

pub(super) fn find(root: &Root, found: &mut Vec<Found>, lacks: &mut Vec<Lack>) {
    let lack = |place: String, why: Why| Lack { by: Interface::Msr, place, why };
    if found.iter().any(|found| matches!(found.meter.part, Part::Package(_))) {
        return;
    }
    let (unit, counters) = match vendor(root) {
        Some(Vendor::Intel) => (INTEL_UNIT, intel(field(root, "model").and_then(|text| text.parse().ok()))),
        Some(Vendor::Amd | Vendor::Hygon) => (AMD_UNIT, AMD.to_vec()),
        _ => {
            let why = "the processor is neither from Intel nor from AMD, or /proc/cpuinfo does not show it";
            return lacks.push(lack("/proc/cpuinfo".into(), Why::Unsupported(why.into())));
        }
    };
    for (cpu, place) in one_per_package(root) {
        let name = |address: u32| format!("register {address:#x} of CPU {cpu}");
        let exponent = match open(root, cpu, unit).and_then(|from| from.read()) {
            Ok(0) => {
                let why = Why::Unsupported("it reads 0, as in a virtual machine, so there is no such counter".into());
                lacks.push(lack(name(unit), why));
                continue;
            }
            Ok(value) => bits(value, 12, 8) as u32,
            Err(why) => {
                lacks.push(lack(name(unit), why));
                continue;
            }
        };
        for (address, part, fixed) in &counters {
            let part = part(place);
            if found.iter().any(|found| found.meter.part == part) {
                continue;
            }
            match open(root, cpu, *address).and_then(|from| from.read().map(|value| (from, value))) {
                // 0 means that the register does not exist: a real counter has counted something since power-on.
                Ok((_, 0)) | Err(Why::Absent | Why::NotRecorded | Why::Unsupported(_)) => {}
                Ok((from, _)) => {
                    let unit = Unit::of_exponent(fixed.unwrap_or(exponent));
                    let meter = Meter {
                        part,
                        by: Interface::Msr,
                        place: name(*address),
                        quantity: Quantity::Energy { unit, modulus: Some(1 << 32), step: step(unit) },
                        update: Some(powercap::UPDATE),
                        accuracy_ppm: None,
                    };
                    found.push(Found { meter, from });
                }
                Err(why) => lacks.push(lack(name(*address), why)),
            }
        }
        let counts = |found: &Found| {
            found.meter.by == Interface::Msr && matches!(&found.meter.part, Part::Package(at) if *at == place)
        };
        if !found.iter().any(counts) {
            lacks.push(lack(name(counters[0].0), Why::Unsupported("it reads 0, or cannot be read".into())));
        }
    }
}

fn step(unit: Unit) -> Nanojoules {
    unit.step()
}

/// One online CPU of each package, or of each die if a package has several. CPUs that are not isolated are preferred.
fn one_per_package(root: &Root) -> Vec<(u32, Place)> {
    const CPUS: &str = "sys/devices/system/cpu";
    let online = root.cpu_list(&format!("{CPUS}/online")).into_value().unwrap_or_else(|| CpuSet::from([0]));
    let isolated = root.cpu_list(&format!("{CPUS}/isolated")).into_value().unwrap_or_default();
    let has_dies = !counts_packages(root);
    let die = |cpu: u32| -> (u32, Option<u32>) {
        let topology = |name: &str| root.number(&format!("{CPUS}/cpu{cpu}/topology/{name}")).get();
        (topology("physical_package_id").unwrap_or(0), topology("die_id").filter(|_| has_dies))
    };
    let mut chosen: Vec<(u32, (u32, Option<u32>))> = Vec::new();
    for cpu in online.difference(&isolated).iter().chain(online.intersection(&isolated).iter()) {
        if !chosen.iter().any(|(_, at)| *at == die(cpu)) {
            chosen.push((cpu, die(cpu)));
        }
    }
    chosen.sort_unstable();
    let all: CpuSet = chosen.iter().map(|(cpu, _)| *cpu).collect();
    chosen.into_iter().map(|(cpu, _)| (cpu, perf::place(root, cpu, &all))).collect()
}

fn open(root: &Root, cpu: u32, address: u32) -> Result<From, Why> {
    match root.kind() {
        Kind::Live => {
            let file = root.reopened(&format!("dev/cpu/{cpu}/msr")).map_err(|why| match why {
                Why::Absent => Why::Unsupported(format!("/dev/cpu/{cpu}/msr is missing: run modprobe msr").into()),
                why => why,
            })?;
            Ok(From::Register(file, address))
        }
        _ => Ok(From::Recorded(root.reopened(&format!("msr/{address:#x}"))?, cpu)),
    }
}

/// The value of a recorded register on a CPU, from lines `CPU 0xVALUE`.
pub(super) fn line(text: &str, cpu: u32) -> Result<u64, Why> {
    let line = text.lines().find_map(|line| line.split_once(' ').filter(|(at, _)| at.parse() == Ok(cpu)));
    let (_, value) = line.ok_or(Why::NotRecorded)?;
    let number = value.trim().strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    number.ok_or_else(|| Why::Malformed(format!("{value:?} is not a register value").into()))
}

/// Whether each counter counts a whole package, even if its CPUs have several die numbers.
pub(super) fn counts_packages(root: &Root) -> bool {
    matches!(vendor(root), Some(Vendor::Amd | Vendor::Hygon))
}

/// The vendor of the processor.
pub(super) fn vendor(root: &Root) -> Option<Vendor> {
    Some(match field(root, "vendor_id")?.as_str() {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" => Vendor::Amd,
        "HygonGenuine" => Vendor::Hygon,
        _ => Vendor::Other,
    })
}

/// A field of the first processor in /proc/cpuinfo.
fn field(root: &Root, name: &str) -> Option<String> {
    let text = root.text("proc/cpuinfo").into_value()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

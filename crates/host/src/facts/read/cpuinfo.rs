//! `/proc/cpuinfo` (arch/x86/kernel/cpu/proc.c; arch/arm64/kernel/cpuinfo.c).

use std::collections::BTreeSet;

use units::Hertz;

use crate::facts::{Context, CpuSet, Fact, Generation, KernelVersion, MAX_CPUS, Root, Vendor, Why};

/// The fields of one CPU's block in /proc/cpuinfo.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Processor {
    pub id: u32,
    pub vendor: Option<Vendor>,
    pub family: Option<u32>,
    pub model: Option<u32>,
    pub stepping: Option<u32>,
    pub name: Option<String>,
    pub microcode: Option<u64>,
    pub frequency: Option<Hertz>,
    pub package: Option<u32>,
    pub core: Option<u32>,
}

/// The blocks of all CPUs, and the flags that all CPUs have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuInfo {
    pub processors: Vec<Processor>,
    /// The x86 line `flags`. `None` if no block has it. Arm's `Features` are other names, and prove nothing about x86
    /// flags that are missing.
    pub flags: Option<BTreeSet<String>>,
}

/// Linux versions, from 4.13 to 5.17, in which opening /proc/cpuinfo interrupts every busy CPU that is not in
/// `nohz_full` to measure its frequency (arch/x86/kernel/cpu/aperfmperf.c, `arch_freq_prepare_all`, removed by commit
/// 7d84c1ebf9dd).
const MEASURES: (KernelVersion, KernelVersion) = (KernelVersion::new(4, 13), KernelVersion::new(5, 18));

pub(super) fn read(context: &Context) -> Fact<CpuInfo> {
    let root = context.root;
    if !is_quiet(root, &context.spared) {
        return Fact::missing(Why::NotAsked, "/proc/cpuinfo");
    }
    root.text_up_to("proc/cpuinfo", crate::facts::root::TABLE_LIMIT).parse(|text| parse(&text))
}

/// The flags that all CPUs have. Absent on Arm, whose CPUs have none of them.
pub(super) fn flags(info: &Fact<CpuInfo>) -> Fact<BTreeSet<String>> {
    info.clone().and_then(|info| match info.flags {
        Some(flags) => Fact::known(flags, "/proc/cpuinfo"),
        None if info.processors.iter().any(|processor| processor.vendor == Some(Vendor::Arm)) => {
            Fact::absent("/proc/cpuinfo flags")
        }
        None => Fact::malformed("it names no flags", "/proc/cpuinfo"),
    })
}

/// Whether /proc/cpuinfo can be opened without interrupting the CPUs in `spared`.
pub(crate) fn is_quiet(root: &Root, spared: &CpuSet) -> bool {
    if spared.is_empty() {
        return true;
    }
    let full = root.cpu_list("sys/devices/system/cpu/nohz_full").into_value().unwrap_or_default();
    let release = root.text("proc/sys/kernel/osrelease").into_value().unwrap_or_default();
    let version = KernelVersion::parse(&release);
    let measures = version.is_none_or(|version| (MEASURES.0..MEASURES.1).contains(&version));
    !measures || spared.is_subset(&full)
}

/// Parses /proc/cpuinfo. A file without a CPU is an error.
pub(crate) fn parse(text: &str) -> Result<CpuInfo, String> {
    let mut info = CpuInfo::default();
    let mut flags_text: Option<&str> = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "processor" {
            // A block with an impossible CPU number is an error. If it were skipped, its lines would be added to the
            // CPU before it.
            let id = value.parse().ok().filter(|id| *id < MAX_CPUS).ok_or_else(|| format!("processor {value:?}"))?;
            info.processors.push(Processor { id, ..Processor::default() });
            continue;
        }
        let Some(processor) = info.processors.last_mut() else { continue };
        match key {
            "flags" if flags_text == Some(value) => {}
            "flags" => {
                flags_text.get_or_insert(value);
                let these: BTreeSet<String> = value.split_ascii_whitespace().map(str::to_owned).collect();
                info.flags = Some(match info.flags.take() {
                    Some(all) => all.intersection(&these).cloned().collect(),
                    None => these,
                });
            }
            _ => processor.note(key, value),
        }
    }
    if info.processors.is_empty() {
        return Err("it names no processor".into());
    }
    info.processors.sort_by_key(|processor| processor.id);
    info.processors.dedup_by_key(|processor| processor.id);
    Ok(info)
}

impl Processor {
    fn note(&mut self, key: &str, value: &str) {
        let decimal = || value.parse().ok();
        let hexadecimal = || u64::from_str_radix(value.trim_start_matches("0x"), 16).ok();
        match key {
            "vendor_id" => self.vendor = Some(vendor(value)),
            "CPU implementer" => self.vendor = Some(Vendor::Arm),
            "cpu family" => self.family = decimal(),
            "model" => self.model = decimal(),
            "CPU part" => self.model = hexadecimal().and_then(|part| u32::try_from(part).ok()),
            "stepping" | "CPU revision" => self.stepping = decimal(),
            "model name" => self.name = Some(value.to_owned()),
            "microcode" => self.microcode = hexadecimal(),
            "cpu MHz" => self.frequency = megahertz(value),
            "physical id" => self.package = decimal(),
            "core id" => self.core = decimal(),
            _ => {}
        }
    }
}

fn vendor(id: &str) -> Vendor {
    match id {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" => Vendor::Amd,
        "HygonGenuine" => Vendor::Hygon,
        _ => Vendor::Other,
    }
}

/// Parses a frequency in MHz, such as `2101.000`.
fn megahertz(text: &str) -> Option<Hertz> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let kilo: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let mega: u64 = whole.parse().ok()?;
    Some(Hertz::new(mega.checked_mul(1_000_000)?.checked_add(kilo * 1_000)?))
}

/// The processor generation by family and model (Intel: arch/x86/include/asm/intel-family.h; AMD:
/// arch/x86/kernel/cpu/amd.c, `init_amd_zen*` and the ranges in `early_init_amd`).
pub(super) fn generation(vendor: Vendor, family: u32, model: u32, stepping: u32) -> Option<Generation> {
    use Generation::*;
    Some(match (vendor, family, model) {
        (Vendor::Intel, 6, 0x3F) => Haswell,
        (Vendor::Intel, 6, 0x4F | 0x56) => Broadwell,
        (Vendor::Intel, 6, 0x55) => match stepping {
            0..=4 => Skylake,
            5..=9 => CascadeLake,
            _ => CooperLake,
        },
        (Vendor::Intel, 6, 0x6A | 0x6C) => IceLake,
        (Vendor::Intel, 6, 0x8F) => SapphireRapids,
        (Vendor::Intel, 6, 0xCF) => EmeraldRapids,
        (Vendor::Intel, 6, 0xAD | 0xAE) => GraniteRapids,
        (Vendor::Intel, 6, 0xAF) => SierraForest,
        (Vendor::Amd, 0x17, 0x00..=0x2F | 0x50..=0x5F) => Zen1,
        (Vendor::Amd, 0x17, 0x30..=0x4F | 0x60..=0x7F | 0x90..=0xAF) => Zen2,
        (Vendor::Amd, 0x19, 0x00..=0x0F | 0x20..=0x5F) => Zen3,
        (Vendor::Amd, 0x19, 0x10..=0x1F | 0x60..=0xAF) => Zen4,
        (Vendor::Amd, 0x1A, _) => Zen5,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
        model name\t: Xeon: Gold\nstepping\t: 7\nmicrocode\t: 0x5003707\ncpu MHz\t\t: 2101.5\nphysical id\t: 1\n\
        core id\t\t: 3\nflags\t\t: tsc msr nonstop_tsc\n\nprocessor\t: 1\nflags\t\t: tsc msr\n";

    #[test]
    fn blocks_are_cpus_and_flags_are_common_to_all() {
        let info = parse(TWO).unwrap();
        let first = &info.processors[0];
        assert_eq!((first.vendor, first.family, first.model), (Some(Vendor::Intel), Some(6), Some(85)));
        assert_eq!((first.microcode, first.frequency), (Some(0x5003707), Some(Hertz::new(2_101_500_000))));
        assert_eq!((first.package, first.core, first.name.as_deref()), (Some(1), Some(3), Some("Xeon: Gold")));
        assert_eq!(info.processors[1].vendor, None);
        let flags: Vec<_> = info.flags.unwrap().into_iter().collect();
        assert_eq!(flags, ["msr", "tsc"]);
        assert!(parse("flags: tsc").is_err() && parse("processor: 9999999").is_err());
    }

    #[test]
    fn steppings_tell_skylake_from_its_successors() {
        assert_eq!(generation(Vendor::Intel, 6, 0x55, 4), Some(Generation::Skylake));
        assert_eq!(generation(Vendor::Intel, 6, 0x55, 7), Some(Generation::CascadeLake));
        assert_eq!(generation(Vendor::Amd, 0x17, 0x31, 0), Some(Generation::Zen2));
        assert_eq!(generation(Vendor::Intel, 6, 0x02, 0), None);
    }

    #[test]
    fn old_kernels_measure_where_they_should_not() {
        let is_quiet = |release: &str, full: &str| {
            let files = [("proc/sys/kernel/osrelease", release), ("sys/devices/system/cpu/nohz_full", full)];
            is_quiet(&Root::given(files), &CpuSet::from([2, 3]))
        };
        assert!(is_quiet("5.18.0", "") && is_quiet("4.9.0", "") && is_quiet("5.14.0-427.el9", "2-3"));
        assert!(!is_quiet("5.14.0-427.el9", "3") && !is_quiet("4.18.0", "(null)"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(processor : [0-9]{1,6}\n|cpu MHz: \\PC{0,9}\n|\\PC{0,20}\n){0,9}") {
            let _ = parse(&text);
        }
    }
}

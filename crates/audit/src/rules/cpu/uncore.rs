//! Rules on the frequency of the uncore: mesh, last-level cache and memory controllers.

use host::Facts;
use host::facts::{CpuSet, Uncore, Vendor, bits};

use crate::rules::common::megahertz;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

const INTEL: Applies = Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]);
const KERNEL: &str = "Linux Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst";

const WATTS: &str = "The uncore saves no power at low traffic and leaves less of the power budget for turbo.";

const RAMP: Magnitude = Magnitude::slower(
    "at a third of the frequency, each miss in the core's caches takes tens of nanoseconds more; raising the \
           frequency takes milliseconds",
    "Linux Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst names the mechanism; the figure is general knowledge",
);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "unc.sysfs-range",
        cause: Cause::UncoreFrequency,
        title: "The uncore always runs at its highest frequency",
        applies: INTEL,
        judge: range,
        why: "Mesh, last-level cache and memory controllers have their own frequency, which falls at low traffic and \
         rises again with more traffic. The first packets after a lull find this frequency low.",
        magnitude: RAMP,
        fix: Fix::runtime(
            "for n in /sys/devices/system/cpu/intel_uncore_frequency/*/; do cat $n/initial_max_freq_khz > $n/max_freq_khz; done\n\
             for n in /sys/devices/system/cpu/intel_uncore_frequency/*/; do cat $n/initial_max_freq_khz > $n/min_freq_khz; done",
        ).against(&[
            "FlexRAN real-time platform slides (2018), another page: uncore frequency scaling should be enabled",
        ]),
        cost: WATTS,
        references: &[
            KERNEL,
            "Intel P-state guide 637284-001US",
            "FlexRAN real-time platform slides (2018), Set max Uncore",
        ],
    },
    Rule {
        id: "unc.msr620",
        cause: Cause::UncoreFrequency,
        title: "The uncore's register fixes one frequency ratio",
        applies: INTEL,
        judge: register,
        why: "MSR 0x620 holds the lowest (bits 14:8) and the highest ratio (bits 6:0) of the uncore, in units of 100 MHz. Firmware or tools can change it \
              behind the kernel's back.",
        magnitude: RAMP,
        fix: Fix::boot("firmware setting of the uncore frequency: fixed at its maximum"),
        cost: WATTS,
        references: &["Intel P-state guide 637284-001US", "Intel uncore performance monitoring reference 336274"],
    },
    Rule {
        id: "unc.elc",
        cause: Cause::UncoreFrequency,
        title: "Efficiency latency control keeps the uncore's frequency up",
        applies: INTEL,
        judge: elc,
        why: "On processors with TPMI the uncore's frequency falls to a floor while utilisation is below a threshold, and rises \
         in steps of 100 MHz above another threshold.",
        magnitude: RAMP,
        fix: Fix::runtime(
            "for n in /sys/devices/system/cpu/intel_uncore_frequency/uncore*/; do cat $n/max_freq_khz > $n/elc_floor_freq_khz; done",
        ),
        cost: WATTS,
        references: &[KERNEL, "intel/PerfSpect"],
    },
];

/// Whether the host is a client computer: a portable computer, or one with a hybrid processor. The uncore of such a
/// computer shares a few tens of watts with the cores and the graphics. If the uncore's frequency is fixed at the
/// maximum, the cores and graphics lose their turbo. Chassis types: SMBIOS specification, 7.4.1 (portable, laptop,
/// notebook, hand held, sub notebook, tablet, convertible, detachable). Hybrid models: Linux
/// arch/x86/include/asm/intel-family.h, "Hybrid Core/Atom Processors".
pub(super) fn is_client(facts: &Facts) -> bool {
    const PORTABLE: [&str; 8] = ["8", "9", "10", "11", "14", "30", "31", "32"];
    const HYBRID: [u32; 14] = [0x8A, 0x97, 0x9A, 0xB7, 0xBA, 0xBF, 0xAC, 0xAA, 0xBD, 0xC5, 0xC6, 0xB5, 0xCC, 0xD7];
    let portable = facts.dmi.chassis_type.is(|chassis| PORTABLE.contains(&chassis.trim())) == Some(true);
    portable || facts.cpus.model.is(|model| HYBRID.contains(model)) == Some(true)
}

fn on_server(facts: &Facts) -> Result<(), Skip> {
    match is_client(facts) {
        true => Err(Skip::not_applicable("the uncore of this client processor shares its power with the cores' turbo")),
        false => Ok(()),
    }
}

fn each(facts: &Facts, judge: impl Fn(&Uncore, Subject) -> Result<Judgement, Skip>) -> Judged {
    on_server(facts)?;
    let mut judgements = Vec::new();
    let mut skip = None;
    for domain in known(&facts.uncore)? {
        match judge(domain, Subject::Named(format!("uncore {}", domain.name))) {
            Ok(judgement) => judgements.push(judgement),
            Err(reason) => skip = Some(reason),
        }
    }
    match judgements.is_empty() {
        true => Err(skip.unwrap_or_else(|| Skip::not_applicable("the driver has no domain"))),
        false => Ok(judgements),
    }
}

fn range(facts: &Facts, _: &Context) -> Judged {
    each(facts, |domain, subject| {
        let (min, max) = (*known(&domain.min)?, *known(&domain.max)?);
        let top = domain.initial_max.get().unwrap_or(max);
        let judgement = if min != max {
            Judgement::warn_for(
                subject,
                format!("the uncore clock may vary between {} and {}", megahertz(min), megahertz(max)),
            )
        } else if max < top {
            Judgement::warn_for(
                subject,
                format!("fixed at {}, below the {} of the boot", megahertz(max), megahertz(top)),
            )
        } else {
            Judgement::pass_for(subject, format!("fixed at {}", megahertz(max)))
        };
        let judgement =
            judgement.see_as(megahertz(min), domain.min.source()).see_as(megahertz(max), domain.max.source());
        Ok(match domain.current.get() {
            Some(current) => judgement.see_as(megahertz(current), domain.current.source()),
            None => judgement,
        })
    })
}

fn register(facts: &Facts, _: &Context) -> Judged {
    on_server(facts)?;
    let register = facts.msrs.register(0x620);
    let values = known(&register)?;
    let mut groups: Vec<(u64, CpuSet)> = Vec::new();
    for (cpu, value) in values.iter() {
        match groups.iter_mut().find(|(other, _)| other == value) {
            Some((_, cpus)) => cpus.insert(*cpu),
            None => groups.push((*value, CpuSet::from([*cpu]))),
        }
    }
    if groups.is_empty() {
        return Err(Skip::unknown("MSR 0x620 was read on no CPU"));
    }
    // On processors with TPMI, the domains (uncoreNN) do not use this register
    // (drivers/platform/x86/intel/uncore-frequency).
    let is_old = |domains: &Vec<Uncore>| !domains.is_empty() && domains.iter().all(|d| d.name.starts_with("package_"));
    let writes = facts.uncore.is(is_old) == Some(true);
    let one = |(value, cpus): (u64, CpuSet)| {
        let (max, min) = (bits(value, 6, 0) * 100, bits(value, 14, 8) * 100);
        let judgement = match min == max {
            true => Judgement::pass_for(&cpus, format!("the uncore is held at {max} MHz")),
            false if writes => Judgement::warn_for(&cpus, format!("the uncore clock may vary from {min} to {max} MHz"))
                .now("# nothing more: the fix of unc.sysfs-range writes this register"),
            false => Judgement::warn_for(&cpus, format!("the uncore clock may vary from {min} to {max} MHz")),
        };
        judgement.see_as(format!("0x{value:x}"), "MSR 0x620, bits 14:8 and 6:0")
    };
    Ok(groups.into_iter().map(one).collect())
}

fn elc(facts: &Facts, _: &Context) -> Judged {
    each(facts, |domain, subject| {
        let (floor, max) = (*known(&domain.elc_floor)?, *known(&domain.max)?);
        let judgement = match floor >= max {
            true => Judgement::pass_for(
                subject,
                format!("at low utilisation the uncore clock falls no lower than {}", megahertz(floor)),
            ),
            false => Judgement::warn_for(
                subject,
                format!(
                    "at low utilisation the uncore clock may fall to {}; its highest frequency is {}",
                    megahertz(floor),
                    megahertz(max)
                ),
            ),
        };
        Ok(judgement.see_as(megahertz(floor), domain.elc_floor.source()).see(&domain.elc_low_threshold_pct))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    fn domain(name: &str, files: &[(&str, &str)]) -> Host {
        let place = format!("/sys/devices/system/cpu/intel_uncore_frequency/{name}");
        files.iter().fold(host(), |host, (file, text)| host.file(&format!("{place}/{file}"), text))
    }

    fn range(min: &str, max: &str) -> Host {
        domain(
            "package_00_die_00",
            &[("min_freq_khz", min), ("max_freq_khz", max), ("initial_max_freq_khz", "2400000")],
        )
    }

    fn floor(floor: &str) -> Host {
        domain(
            "uncore00",
            &[
                ("domain_id", "0"),
                ("elc_floor_freq_khz", floor),
                ("max_freq_khz", "2200000"),
                ("min_freq_khz", "800000"),
            ],
        )
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("unc.sysfs-range", || range("2400000", "2400000")),
        Case::warn("unc.sysfs-range", || range("800000", "2400000")),
        Case::warn("unc.sysfs-range", || range("1400000", "1400000")),
        Case::unknown("unc.sysfs-range", host),
        // adl0: a hybrid part; and a laptop.
        Case::not_applicable("unc.sysfs-range", || {
            range("400000", "4000000").edit(|facts| {
                facts.cpus.model = host::Fact::known(0x9A, "/proc/cpuinfo");
            })
        }),
        Case::not_applicable("unc.sysfs-range", || {
            range("400000", "4000000").file("/sys/class/dmi/id/chassis_type", "10\n")
        }),
        Case::not_applicable("unc.sysfs-range", || host().complete()),
        Case::pass("unc.msr620", || host().file("/msr/0x620", "0 0x1818\n1 0x1818\n")),
        Case::warn("unc.msr620", || host().file("/msr/0x620", "0 0x818\n")),
        Case::unknown("unc.msr620", host),
        Case::pass("unc.elc", || floor("2200000")),
        Case::warn("unc.elc", || floor("800000")),
        Case::unknown("unc.elc", host),
    ];

    #[test]
    fn a_register_is_decoded() {
        let judgements = host().file("/msr/0x620", "0 0x818\n").judge("unc.msr620");
        assert_eq!(judgements[0].found, "the uncore clock may vary from 800 to 2400 MHz");
        assert!(judgements[0].now.is_empty());
        let of = |host: Host| host.file("/msr/0x620", "0 0x818\n").judge("unc.msr620").remove(0).now;
        assert_eq!(of(range("800000", "2400000")), ["# nothing more: the fix of unc.sysfs-range writes this register"]);
        assert!(of(floor("800000")).is_empty());
    }
}

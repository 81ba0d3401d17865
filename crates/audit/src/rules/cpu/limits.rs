//! Rules on limits that slow CPUs down: heat and power.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{CpuSet, Throttles, Vendor};
use units::Nanos;

use crate::rules::common::by_cpu;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cpu.throttle-count",
        cause: Cause::PowerLimits,
        title: "No CPU is throttled for heat",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: throttles,
        why: "A core or a package that is too hot is slowed down by the hardware, in bursts of milliseconds, until it has cooled.",
        magnitude: Magnitude::slower(
            "for each event, the CPU runs at a fraction of its speed for milliseconds",
            "Linux Documentation/core-api/real-time/hardware.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::for_good("lower the highest frequency until the count stops rising, or fix fans and air flow")
            .after("ipmitool sdr type Temperature"),
        cost: "The host needs better cooling, or a lower frequency.",
        references: &[
            "Linux Documentation/core-api/real-time/hardware.rst",
            "Linux Documentation/admin-guide/thermal/intel_powerclamp.rst",
        ],
    },
    Rule {
        id: "cpu.power-limit",
        cause: Cause::PowerLimits,
        title: "The power limit of a socket is not below the processor's rating",
        applies: Applies::LINUX.on_hardware(),
        judge: power,
        why: "Above its long-term limit a socket is slowed down until the average is below it again. If the limit is \
              below the processor's own rating, this happens under ordinary load.",
        magnitude: Magnitude::slower(
            "a lower frequency, and a change of frequency at each crossing of the limit",
            "Intel SDM volume 3, section 15.10 (RAPL)",
        ),
        fix: Fix::boot("firmware settings of PL1 and PL2, or power capping of the management controller")
            .after("grep . /sys/class/powercap/intel-rapl:*/constraint_*_power_limit_uw"),
        cost: "The host produces more heat. The limit may be set because of the rack's power limit.",
        references: &["Linux Documentation/power/powercap/powercap.rst", "intel/PerfSpect"],
    },
    Rule {
        id: "cpu.platform-profile",
        cause: Cause::CoreFrequency,
        title: "The platform's profile is performance",
        applies: Applies::LINUX.on_hardware(),
        judge: profile,
        why: "The firmware has its own policy for power and fans, which overrides the kernel's settings.",
        magnitude: Magnitude::slower(
            "as much as a power limit or an energy preference",
            "Linux Documentation/userspace-api/sysfs-platform_profile.rst, which gives no figure",
        ),
        fix: Fix::runtime("echo performance > /sys/firmware/acpi/platform_profile"),
        cost: "The host uses more power and is louder.",
        references: &[
            "Linux Documentation/userspace-api/sysfs-platform_profile.rst",
            "tuned profile throughput-performance",
        ],
    },
    Rule {
        id: "idle.umwait",
        cause: Cause::IdleStates,
        title: "The wait instructions do not sleep deeply",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: umwait,
        why: "UMWAIT and TPAUSE wait in C0.1 or, where allowed, in the deeper C0.2, which takes longer to leave. \
              DPDK's power library uses them in empty polls.",
        magnitude: Magnitude::late(
            Nanos::from_nanos(500),
            "about 0.5 us to leave C0.2, less for C0.1",
            "general knowledge; Intel SDM volume 2, UMWAIT, says that C0.2 has the larger latency without a number",
        ),
        fix: Fix::runtime("echo 0 > /sys/devices/system/cpu/umwait_control/enable_c02"),
        cost: "Empty polls use a little more power.",
        references: &[
            "Linux Documentation/ABI/testing/sysfs-devices-system-cpu, umwait_control",
            "Intel SDM volume 2, UMWAIT",
        ],
    },
];

fn throttles(facts: &Facts, _: &Context) -> Judged {
    const PLACE: &str = "/sys/devices/system/cpu/cpu*/thermal_throttle";
    let during = facts
        .interval
        .value()
        .map(|interval| (&interval.change.throttles, interval.length))
        .filter(|(all, _)| !all.is_empty());
    if let Some((all, length)) = during {
        let (cpus, sum) = hot(facts, all);
        let judgement = match sum {
            0 => Judgement::pass(format!("no CPU was throttled for heat during {length}")),
            n => Judgement::fail_for(&cpus, format!("throttled {n} times during {length}")),
        };
        return judgement.see_as(format!("{sum} events during {length}"), PLACE).alone();
    }
    if facts.counters.throttles.is_empty() {
        return Err(Skip::unknown(format!("{PLACE}: not recorded")));
    }
    let (cpus, sum) = hot(facts, &facts.counters.throttles);
    let judgement = match sum {
        0 => Judgement::pass("no CPU was throttled for heat since boot"),
        n => {
            Judgement::warn_for(&cpus, format!("throttled {n} times since boot; --interval shows whether it continues"))
        }
    };
    judgement.see_as(format!("{sum} events since boot"), PLACE).alone()
}

/// The throttled CPUs, and the number of events. The hardware interrupts each thread of a core or package that is too
/// hot, and each counts the event (drivers/thermal/intel/therm_throt.c). So the events of a core or package are those of
/// the thread that has counted most of them.
fn hot(facts: &Facts, all: &BTreeMap<u32, Throttles>) -> (CpuSet, u64) {
    let (mut cores, mut packages) = (BTreeMap::new(), BTreeMap::new());
    for (id, n) in all {
        let cpu = facts.cpus.cpu(*id);
        let first = cpu.and_then(|cpu| cpu.siblings.value()?.first()).unwrap_or(*id);
        let package = cpu.and_then(|cpu| cpu.package.get());
        let most = |count: &mut u64, n: u64| *count = n.max(*count);
        most(cores.entry(first).or_default(), n.core);
        most(packages.entry(package).or_default(), n.package);
    }
    let hot = all.iter().filter(|(_, n)| n.core > 0 || n.package > 0).map(|(cpu, _)| *cpu);
    (hot.collect(), cores.values().chain(packages.values()).sum())
}

fn power(facts: &Facts, _: &Context) -> Judged {
    let zones = known(&facts.power_zones)?;
    let packages = zones.iter().filter(|zone| zone.name.is(|name| name.starts_with("package")) == Some(true));
    let mut judgements = Vec::new();
    let mut skip = None;
    for zone in packages {
        let long = zone.limits.iter().find(|limit| limit.name.is(|name| name == "long_term") == Some(true));
        let Some(long) = long else { continue };
        let (limit, max) = match (known(&long.limit), known(&long.max)) {
            (Ok(limit), Ok(max)) => (limit.as_microwatts(), max.as_microwatts()),
            (Err(reason), _) | (_, Err(reason)) => {
                skip = Some(reason);
                continue;
            }
        };
        if max == 0 {
            skip = Some(Skip::unknown(format!("{}: the processor does not report its rated power", long.max.source())));
            continue;
        }
        let subject = Subject::Named(zone.name.value().cloned().unwrap_or_else(|| zone.id.clone()));
        let watts = |microwatts: u64| format!("{} W", microwatts / 1_000_000);
        let judgement = match limit >= max {
            true => Judgement::pass_for(subject, format!("the limit is {}, the rating {}", watts(limit), watts(max))),
            false => {
                Judgement::warn_for(subject, format!("the limit is {} of a rating of {}", watts(limit), watts(max)))
            }
        };
        judgements.push(judgement.see_as(watts(limit), long.limit.source()).see_as(watts(max), long.max.source()));
    }
    match judgements.is_empty() {
        true => Err(skip.unwrap_or_else(|| Skip::not_applicable("there is no power zone for a package"))),
        false => Ok(judgements),
    }
}

fn profile(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.scaling.platform_profile;
    let judgement = match known(fact)?.as_str() {
        "performance" => Judgement::pass("the platform's profile is performance"),
        other => Judgement::warn(format!("the platform's profile is {other}")),
    };
    judgement.see(fact).alone()
}

fn umwait(facts: &Facts, context: &Context) -> Judged {
    let fact = &facts.idle.umwait_c02;
    let deep = *known(fact)?;
    by_cpu(facts, &context.critical(facts), |_| {
        let judgement = match deep {
            true => Judgement::warn("UMWAIT and TPAUSE may wait in C0.2"),
            false => Judgement::pass("UMWAIT and TPAUSE wait in C0.1"),
        };
        Ok(judgement.see_whether(fact, "C0.2 allowed", "C0.2 not allowed"))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    const C02: &str = "/sys/devices/system/cpu/umwait_control/enable_c02";

    fn heat(count: &str) -> Host {
        let place = "/sys/devices/system/cpu/cpu0/thermal_throttle";
        host()
            .file(&format!("{place}/core_throttle_count"), count)
            .file(&format!("{place}/package_throttle_count"), "0\n")
    }

    fn zone(limit: &str) -> Host {
        let place = "/sys/class/powercap/intel-rapl:0";
        host()
            .file(&format!("{place}/name"), "package-0\n")
            .file(&format!("{place}/constraint_0_name"), "long_term\n")
            .file(&format!("{place}/constraint_0_power_limit_uw"), limit)
            .file(&format!("{place}/constraint_0_max_power_uw"), "205000000\n")
    }

    /// Two packages with two cores of two threads each: every thread counts the events of its core and of its package.
    #[test]
    fn an_event_is_counted_once_for_its_core_or_package() {
        let host = (0..8).fold(host(), |host, n| {
            let cpu = format!("/sys/devices/system/cpu/cpu{n}");
            let (core, package) = (n % 4, n % 2);
            host.file(&format!("{cpu}/topology/physical_package_id"), &package.to_string())
                .file(&format!("{cpu}/topology/thread_siblings_list"), &format!("{core},{}", core + 4))
                .file(&format!("{cpu}/thermal_throttle/core_throttle_count"), if core == 1 { "3" } else { "0" })
                .file(&format!("{cpu}/thermal_throttle/package_throttle_count"), if package == 1 { "5" } else { "0" })
        });
        let judgement = host.judge("cpu.throttle-count").remove(0);
        assert_eq!(judgement.subject.to_string(), "CPUs 1,3,5,7");
        assert!(judgement.found.starts_with("throttled 8 times since boot"), "{}", judgement.found);
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cpu.throttle-count", || heat("0\n")),
        Case::warn("cpu.throttle-count", || heat("7\n")),
        Case::unknown("cpu.throttle-count", host),
        Case::pass("cpu.power-limit", || zone("205000000\n")),
        Case::warn("cpu.power-limit", || zone("150000000\n")),
        Case::unknown("cpu.power-limit", host),
        Case::not_applicable("cpu.power-limit", || host().complete()),
        Case::pass("cpu.platform-profile", || host().file("/sys/firmware/acpi/platform_profile", "performance\n")),
        Case::warn("cpu.platform-profile", || host().file("/sys/firmware/acpi/platform_profile", "balanced\n")),
        Case::unknown("cpu.platform-profile", host),
        Case::pass("idle.umwait", || host().file(C02, "0\n")),
        Case::warn("idle.umwait", || host().file(C02, "1\n")),
        Case::unknown("idle.umwait", host),
    ];
}

//! Firmware, system management interrupts, error handling.

use host::Facts;
use host::facts::Vendor;
use units::Nanos;

use crate::rules::common::messages;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[INTERRUPTS, STATE];

const HARDWARE: &str = "Linux Documentation/core-api/real-time/hardware.rst";

const SMI: Magnitude = Magnitude::late(
    Nanos::from_micros(100),
    "tens of microseconds to milliseconds, on all CPUs at once",
    "Linux Documentation/trace/hwlat_detector.rst names the mechanism; the figure is general knowledge",
);

/// Rules on system management interrupts.
const INTERRUPTS: &[Rule] = &[
    Rule {
        id: "smi.count",
        cause: Cause::Firmware,
        title: "No system management interrupt happened during the measurement",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: smis,
        why: "The firmware stops all CPUs, unseen by the kernel, to emulate devices, to maintain memory or to manage \
              power.",
        magnitude: SMI,
        fix: Fix::boot(
            "firmware settings: USB legacy support, power monitoring, memory pre-failure notification and TCO watchdog disabled",
        ),
        cost: "USB keyboards may not work in the boot menu, and early warnings of the firmware are lost.",
        references: &[
            "Intel SDM volume 4, MSR_SMI_COUNT",
            "Linux Documentation/trace/hwlat_detector.rst",
            "FlexRAN real-time platform slides (2018), SMI",
        ],
    },
    Rule {
        id: "smi.fwupd",
        cause: Cause::Firmware,
        title: "Nothing asks the firmware for updates in the background",
        applies: Applies::LINUX.on_hardware(),
        judge: fwupd,
        why: "fwupd periodically reads firmware variables and devices. On some hosts each of these reads causes a system \
         management interrupt.",
        magnitude: SMI,
        fix: Fix::both("systemctl stop fwupd fwupd-refresh.timer", "systemctl mask fwupd fwupd-refresh.timer"),
        cost: "Someone must check for firmware updates by hand.",
        references: &["OpenShift cluster-node-tuning-operator, performance profile"],
    },
    Rule {
        id: "smi.hwlat",
        cause: Cause::Firmware,
        title: "The hardware latency detector found no gaps",
        applies: Applies::LINUX.on_hardware(),
        judge: hwlat,
        why: "The tracer hwlat spins with interrupts off and looks for gaps in time. No kernel setting can explain the \
              gaps that it finds.",
        magnitude: SMI,
        fix: Fix::look("rtla hwnoise -c {housekeeping} -d 60s # how often and how long; then smi.count"),
        cost: "While the detector runs, it uses half of one CPU's time.",
        references: &["Linux Documentation/trace/hwlat_detector.rst", HARDWARE],
    },
];

/// Rules on the state and age of the firmware, and on hardware errors.
const STATE: &[Rule] = &[
    Rule {
        id: "fw.microcode",
        cause: Cause::Firmware,
        title: "All CPUs run the same microcode",
        applies: Applies::LINUX.on_hardware(),
        judge: microcode,
        why: "CPUs with different microcode revisions differ in mitigations and in timing. The kernel assumes that all \
         CPUs are alike.",
        magnitude: Magnitude::untimed(
            "depends on the revision: some mitigations change the cost of each system call by hundreds of \
                   nanoseconds",
            "Linux Documentation/arch/x86/microcode.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("install the distribution's microcode package, and rebuild the initrd"),
        cost: "A newer revision may bring new mitigations.",
        references: &["Linux Documentation/arch/x86/microcode.rst", "intel/PerfSpect"],
    },
    Rule {
        id: "fw.bios-date",
        cause: Cause::Firmware,
        title: "The firmware is not years old",
        applies: Applies::LINUX.on_hardware(),
        judge: date,
        why: "Updates by the vendors fix system management interrupts, tables of idle states and memory training.",
        magnitude: Magnitude::untimed(
            "not known beforehand: as much as what the updates fix",
            "the references give no figure",
        ),
        fix: Fix::boot("update the firmware, and compare its settings before and after"),
        cost: "Settings may be reset; test on one host first.",
        references: &["HPE low-latency guide 581608"],
    },
    Rule {
        id: "fw.memory-scrub",
        cause: Cause::MemoryHardware,
        title: "Patrol scrubbing of memory is off",
        applies: Applies::LINUX.on_hardware(),
        judge: scrub,
        why: "A patrol scrub reads all memory in the background to find errors early, and takes memory bandwidth and \
              time of the memory banks. If the firmware does it in software, it stops CPUs.",
        magnitude: Magnitude::slower(
            "tens of nanoseconds for an access that collides with it; much more where the firmware does it",
            "Linux Documentation/core-api/real-time/hardware.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("firmware setting Patrol Scrub: disabled"),
        cost: "Single-bit errors can grow to uncorrectable ones before they are found.",
        references: &[HARDWARE, "OpenShift vDU reference configuration, host firmware"],
    },
    Rule {
        id: "fw.edac-ghes",
        cause: Cause::MemoryHardware,
        title: "Memory has no corrected errors",
        applies: Applies::LINUX.on_hardware(),
        judge: corrected,
        why: "Each corrected error costs an interrupt, or a system management interrupt if the firmware handles it \
              first. A failing module causes storms of them.",
        magnitude: SMI,
        fix: Fix::boot("replace the module that is named")
            .after("grep . /sys/devices/system/edac/mc/mc*/dimm*/dimm_ce_count"),
        cost: "A new module is needed.",
        references: &["Linux Documentation/admin-guide/RAS/main.rst"],
    },
    Rule {
        id: "fw.thermal-events",
        cause: Cause::PowerLimits,
        title: "The kernel's messages report no overheating",
        applies: Applies::LINUX.on_hardware(),
        judge: heat,
        why: "A message about a temperature above the threshold shows that a CPU was slowed down.",
        magnitude: Magnitude::slower(
            "for each event, the CPU runs at a fraction of its speed for milliseconds",
            "Linux Documentation/core-api/real-time/hardware.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("fix fans and air flow").after("ipmitool sdr type Temperature; ipmitool sel list"),
        cost: "The host needs better cooling, or a lower frequency.",
        references: &[HARDWARE, "Linux drivers/thermal/intel/therm_throt.c, the message's text"],
    },
    Rule {
        id: "fw.bugs",
        cause: Cause::Firmware,
        title: "The kernel reports no firmware bug",
        applies: Applies::LINUX.on_hardware(),
        judge: bugs,
        why: "The kernel trusts what the firmware reports about clocks, idle states, interrupts and nodes, unless it \
              is obviously wrong. One obvious error hints at others.",
        magnitude: Magnitude::untimed(
            "depends on the bug: from nothing to another clock source (1 us per time stamp)",
            "Linux include/linux/printk.h, FW_BUG; no figure can be given",
        ),
        fix: Fix::boot("update the firmware"),
        cost: "Settings may be reset; test on one host first.",
        references: &["Linux include/linux/printk.h, FW_BUG, FW_WARN, FW_INFO"],
    },
];

fn smis(facts: &Facts, _: &Context) -> Judged {
    let interval = known(&facts.interval)?;
    let counts = &interval.change.smis;
    let most = known(counts)?.values().max().copied();
    let most = most.ok_or_else(|| Skip::unknown("MSR 0x34 was read on no CPU"))?;
    let length = interval.length;
    let judgement = match most {
        0 => Judgement::pass(format!("none during {length}")),
        n => Judgement::fail(format!("{n} during {length}")),
    };
    judgement.see_as(format!("{most} during {length}, on the CPU with the most"), counts.source()).alone()
}

fn fwupd(facts: &Facts, _: &Context) -> Judged {
    let (running, enabled) = (&facts.services.running, &facts.services.enabled);
    let mut found: Vec<(&str, &host::Source)> = Vec::new();
    for fact in [running, enabled] {
        let units = fact.value().into_iter().flatten();
        found.extend(units.filter(|unit| unit.starts_with("fwupd")).map(|unit| (unit.as_str(), fact.source())));
    }
    if found.is_empty() {
        known(running)?;
        known(enabled)?;
        return Judgement::pass("fwupd neither runs nor is scheduled").see_as("no fwupd", running.source()).alone();
    }
    let names: Vec<&str> = found.iter().map(|(unit, _)| *unit).collect();
    let judgement = Judgement::warn(format!("{} checks for firmware updates", names.join(" and ")));
    found.iter().fold(judgement, |judgement, (unit, source)| judgement.see_as(*unit, source)).alone()
}

fn hwlat(facts: &Facts, _: &Context) -> Judged {
    let (found, count) = messages(facts, &["hwlat"])?;
    let tracing = facts.kernel.tracer.is(|tracer| tracer == "hwlat") == Some(true);
    let source = facts.kernel.messages.source();
    let judgement = match (count, tracing) {
        (0, false) => return Err(Skip::unknown("the detector hwlat has not run; try: rtla hwnoise -d 60s")),
        (0, true) => Judgement::pass("the detector runs and has reported nothing").see(&facts.kernel.tracer),
        (n, _) => Judgement::warn(format!("the detector has reported {n} gaps")),
    };
    found.into_iter().fold(judgement, |judgement, text| judgement.see_as(text, source)).alone()
}

fn microcode(facts: &Facts, _: &Context) -> Judged {
    let mut revisions: Vec<(u64, host::CpuSet)> = Vec::new();
    let mut missing = None;
    for cpu in &facts.cpus.list {
        let Some(revision) = cpu.microcode.get() else {
            missing.get_or_insert(&cpu.microcode);
            continue;
        };
        match revisions.iter_mut().find(|(other, _)| *other == revision) {
            Some((_, cpus)) => cpus.insert(cpu.id),
            None => revisions.push((revision, host::CpuSet::from([cpu.id]))),
        }
    }
    let text = |(revision, cpus): &(u64, host::CpuSet)| format!("0x{revision:x} on CPUs {cpus}");
    let found = revisions.iter().map(text).collect::<Vec<_>>().join(", ");
    let judgement = match (revisions.len(), missing) {
        (0, Some(fact)) => return Err(Skip::of(fact)),
        (0, None) => return Err(Skip::unknown("/proc/cpuinfo: no CPU is known")),
        (1, _) => Judgement::pass(format!("the microcode is {found}")),
        _ => Judgement::warn(format!("the microcode differs: {found}")),
    };
    judgement.see_as(found, "/proc/cpuinfo").alone()
}

/// For firmware of at least this age, in years, newer versions have very likely been published.
const OLD_YEARS: u32 = 4;

fn date(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.dmi.bios_date;
    let text = known(fact)?;
    // The firmware writes month/day/year (SMBIOS specification 3.7, section 7.1.1).
    let year: Option<u32> =
        text.rsplit('/').next().and_then(|year| year.parse().ok()).filter(|year| (1990..2200).contains(year));
    let year = year.ok_or_else(|| Skip::unknown(format!("{}: {text:?} is no month/day/year", fact.source())))?;
    // Rules do not read the clock, so the age is the one at the time when the kernel was built.
    let build = &facts.kernel.build;
    let built =
        known(build)?.split_whitespace().filter_map(|word| word.parse().ok()).find(|year| (1990..2200).contains(year));
    let built: u32 =
        built.ok_or_else(|| Skip::unknown(format!("{}: the kernel's build names no year", build.source())))?;
    let age = built.saturating_sub(year);
    let judgement = match age {
        0..OLD_YEARS => Judgement::pass(format!("the firmware is from {year}, the kernel from {built}")),
        age => Judgement::warn(format!("the firmware is from {year}, {age} years older than the kernel")),
    };
    judgement.see(fact).see(&facts.dmi.bios_version).see(build).alone()
}

fn scrub(facts: &Facts, _: &Context) -> Judged {
    let rates = &facts.memory.scrub_rate;
    let fastest = known(rates)?.iter().max().copied();
    // A controller without this file, or whose file cannot be read, does not show whether the firmware scrubs memory.
    let fastest =
        fastest.ok_or_else(|| Skip::unknown(format!("{}: no controller reports its scrub rate", rates.source())))?;
    let judgement = match fastest {
        0 => Judgement::pass("no controller scrubs"),
        rate => Judgement::warn(format!("controllers scrub up to {rate} bytes per second")),
    };
    judgement.see_as(format!("{fastest} bytes a second"), rates.source()).alone()
}

fn corrected(facts: &Facts, _: &Context) -> Judged {
    if let Some(interval) = facts.interval.value()
        && let Some(count) = interval.change.corrected_errors.get()
        && count > 0
    {
        let text = format!("{count} corrected errors during {}", interval.length);
        return Judgement::fail(text.as_str()).see_as(text, interval.change.corrected_errors.source()).alone();
    }
    let fact = &facts.counters.corrected_errors;
    let judgement = match *known(fact)? {
        0 => Judgement::pass("no corrected error since boot"),
        n => Judgement::warn(format!("{n} corrected errors since boot")),
    };
    judgement.see(fact).alone()
}

fn no_message(facts: &Facts, words: &[&str], what: &str) -> Judged {
    let (found, count) = messages(facts, words)?;
    let source = facts.kernel.messages.source();
    let judgement = match count {
        0 => Judgement::pass(format!("no {what} in the kernel log")).see_as("no such message", source),
        n => Judgement::warn(format!("{n} messages about {what}")),
    };
    found.into_iter().fold(judgement, |judgement, text| judgement.see_as(text, source)).alone()
}

fn heat(facts: &Facts, _: &Context) -> Judged {
    no_message(facts, &["temperature above threshold", "clock throttled", "thermal throttling"], "heat")
}

fn bugs(facts: &Facts, _: &Context) -> Judged {
    no_message(facts, &["firmware bug"], "firmware bugs")
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Host, host};

    fn smi(second: &str) -> Host {
        host()
            .file("/msr/0x34", "0 0x5\n1 0x5\n")
            .file("/again/msr/0x34", second)
            .file("/proc/uptime", "100.00 1")
            .file("/again/proc/uptime", "160.00 1")
    }

    fn services(unit: &str) -> Host {
        host()
            .command("systemctl list-units", &format!("{unit} loaded active running X\n"))
            .file("/etc/systemd/system/timers.target.wants/logrotate.timer", "")
    }

    fn dmesg(text: &str) -> Host {
        host().command("dmesg", text)
    }

    fn revisions(second: &str) -> Host {
        host().file(
            "/proc/cpuinfo",
            &format!("processor : 0\nmicrocode : 0x5003707\nprocessor : 1\nmicrocode : {second}\n"),
        )
    }

    fn bios(date: &str) -> Host {
        host()
            .file("/sys/class/dmi/id/bios_date", date)
            .file("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Tue Mar 4 12:00:00 UTC 2025\n")
    }

    fn edac(file: &str, text: &str) -> Host {
        host().file(&format!("/sys/devices/system/edac/mc/mc0/{file}"), text)
    }

    pub(super) const CASES: &[Case] = &[
        Case::pass("smi.count", || smi("0 0x5\n1 0x5\n")),
        Case::fail("smi.count", || smi("0 0x8\n1 0x8\n")),
        Case::unknown("smi.count", host),
        Case::pass("smi.fwupd", || services("sshd.service")),
        Case::warn("smi.fwupd", || services("fwupd.service")),
        Case::unknown("smi.fwupd", host),
        Case::pass("smi.hwlat", || dmesg("[1.0] tsc: ok\n").file("/sys/kernel/tracing/current_tracer", "hwlat\n")),
        Case::warn("smi.hwlat", || dmesg("[1.0] hwlat_detector: 31us\n")),
        Case::unknown("smi.hwlat", || dmesg("[1.0] tsc: ok\n")),
        Case::pass("fw.microcode", || revisions("0x5003707")),
        Case::warn("fw.microcode", || revisions("0x5003605")),
        Case::unknown("fw.microcode", host),
        Case::pass("fw.bios-date", || bios("03/04/2024\n")),
        Case::warn("fw.bios-date", || bios("03/04/2019\n")),
        Case::unknown("fw.bios-date", host),
        Case::pass("fw.memory-scrub", || edac("sdram_scrub_rate", "0\n")),
        Case::warn("fw.memory-scrub", || edac("sdram_scrub_rate", "66000\n")),
        Case::unknown("fw.memory-scrub", host),
        Case::pass("fw.edac-ghes", || edac("ce_count", "0\n")),
        Case::warn("fw.edac-ghes", || edac("ce_count", "12\n")),
        Case::unknown("fw.edac-ghes", host),
        Case::pass("fw.thermal-events", || dmesg("[1.0] tsc: ok\n")),
        Case::warn("fw.thermal-events", || {
            dmesg("[9.0] mce: CPU3: Core temperature above threshold, cpu clock throttled\n")
        }),
        Case::unknown("fw.thermal-events", host),
        Case::pass("fw.bugs", || dmesg("[1.0] tsc: ok\n")),
        Case::warn("fw.bugs", || dmesg("[0.1] [Firmware Bug]: TSC ADJUST differs\n")),
        Case::unknown("fw.bugs", host),
    ];
}

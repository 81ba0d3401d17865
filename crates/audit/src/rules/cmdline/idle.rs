//! Parameters of idle states, clocks and ticks.

use host::Facts;
use host::facts::{KernelVersion, Vendor};
use units::Nanos;

use crate::rules::common::{PER_CPU_POLL, any_cpu, given, line, see_parameter};
use crate::{Applies, Context, Fix, Group, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

const X86: &[Vendor] = &[Vendor::Intel, Vendor::Amd, Vendor::Hygon];
const CPUIDLE: &str = "Linux Documentation/admin-guide/pm/cpuidle.rst, Idle States Control Via Kernel Command Line";
const SLIDES: &str = "Interrupt-mode DPDK slides (2017), table of C-states and latency";
/// The same, with the states of Ice Lake.
const LATENCIES: &str = "Interrupt-mode DPDK slides (2017), table of C-states and latency; Linux drivers/idle/intel_idle.c, icx_cstates (C1 1 us, C6 170 us)";

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.idle-poll",
        group: Group::CommandLine,
        title: "idle=poll is not used, or used with open eyes",
        applies: Applies::LINUX,
        judge: idle_poll,
        why: "With idle=poll an idle CPU spins. No wake-up is needed, but the CPU is never cool: turbo headroom goes, the sibling thread \
              gets half a core, and throttling may follow. In a guest it takes a physical CPU from the others for nothing.",
        magnitude: Magnitude {
            text: "saves 2 us (C1) to 133 us (C6) a wake-up on Xeon E5 v3, costs all power saving of all CPUs",
            typical: None,
            source: SLIDES,
        },
        fix: Fix::runtime_or_boot(PER_CPU_POLL, "remove idle=poll"),
        cost: "Without it the housekeeping CPUs sleep and take some microseconds to wake up.",
        references: &[
            CPUIDLE,
            "Linux Documentation/timers/no_hz.rst",
            "FlexRAN real-time platform slides (2018), kernel command line",
        ],
        conflicts: &["FlexRAN real-time platform slides (2018) ask for idle=poll"],
    },
    Rule {
        id: "cmd.intel-idle-max-cstate",
        group: Group::CommandLine,
        title: "intel_idle.max_cstate= leaves shallow states only",
        applies: Applies::LINUX.made_by(&[Vendor::Intel]),
        judge: intel_idle,
        why: "The parameter discards deeper states of the driver intel_idle. 0 does not mean none: it switches the driver off, and acpi_idle \
              takes over with all states that the firmware offers.",
        magnitude: Magnitude {
            text: "C6 takes 133 us to leave on Xeon E5 v3 and 170 us on Ice Lake, C1 about 2 us",
            typical: Some(Nanos::from_micros(133)),
            source: LATENCIES,
        },
        fix: Fix::boot("intel_idle.max_cstate=1"),
        cost: "All CPUs stay in C1: more power, less turbo.",
        references: &[CPUIDLE, SLIDES],
        conflicts: &[],
    },
    Rule {
        id: "cmd.processor-max-cstate",
        group: Group::CommandLine,
        title: "processor.max_cstate= acts, and leaves shallow states only",
        applies: Applies::LINUX.made_by(X86),
        judge: processor,
        why: "The parameter belongs to the driver acpi_idle. With intel_idle it discards nothing.",
        magnitude: Magnitude {
            text: "end to end on Xeon E5 v3: 14.9 us with C1, 60.9 us with C3, 87.7 us with C6",
            typical: Some(Nanos::from_micros(73)),
            source: SLIDES,
        },
        fix: Fix::boot("processor.max_cstate=1"),
        cost: "All CPUs stay in C1: more power, less turbo.",
        references: &[CPUIDLE, SLIDES],
        conflicts: &[],
    },
    Rule {
        id: "cmd.tsc",
        group: Group::CommandLine,
        title: "The TSC is declared reliable where the kernel would watch it",
        applies: Applies::LINUX.made_by(X86).on_hardware(),
        judge: tsc,
        why: "A kernel that does not trust the TSC compares it twice a second with another clock, from a timer that goes round all CPUs, \
              isolated ones too. Since 5.17 it spares machines of few sockets whose TSC is invariant and adjustable.",
        magnitude: Magnitude {
            text: "two timer interrupts a second, on one CPU after the other; some microseconds each",
            typical: Some(Nanos::from_micros(5)),
            source: "Linux kernel/time/clocksource.c, WATCHDOG_INTERVAL; the length of one is general knowledge",
        },
        fix: Fix::boot("tsc=reliable"),
        cost: "A TSC that goes wrong after boot is not noticed.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, tsc",
            "Linux commit b50db7095fe0 (x86/tsc: Disable clocksource watchdog for TSC on qualified platforms)",
        ],
        conflicts: &[],
    },
    Rule {
        id: "cmd.clocksource",
        group: Group::CommandLine,
        title: "clocksource= asks for the TSC, and gets it",
        applies: Applies::LINUX.made_by(X86),
        judge: clocksource,
        why: "A clock source that is asked for on the command line stays until somebody writes another. hpet and acpi_pm need a device access \
              for each time stamp.",
        magnitude: Magnitude {
            text: "about 1 us a reading with hpet or acpi_pm, about 20 ns with the TSC",
            typical: Some(Nanos::from_micros(1)),
            source: "general knowledge; the order of magnitude follows from an uncached device read",
        },
        fix: Fix::runtime_or_boot(
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            "clocksource=tsc",
        ),
        cost: "None if the TSC is invariant.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, clocksource",
            "FlexRAN real-time platform slides (2018), kernel command line",
        ],
        conflicts: &[],
    },
    Rule {
        id: "cmd.skew-tick",
        group: Group::CommandLine,
        title: "The ticks of many CPUs do not meet",
        applies: Applies::LINUX,
        judge: skew_tick,
        why: "Without skew_tick=1 all CPUs tick at the same moment and queue at the same locks of timekeeping and RCU.",
        magnitude: Magnitude {
            text: "grows with the number of CPUs that tick: some microseconds on tens of them",
            typical: Some(Nanos::from_micros(5)),
            source: "Linux Documentation/admin-guide/kernel-parameters.txt, skew_tick, names the contention; the size is general knowledge",
        },
        fix: Fix::boot("skew_tick=1"),
        cost: "A little power: CPUs wake up at different times.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, skew_tick",
            "tuned profile network-latency",
        ],
        conflicts: &[],
    },
];

/// As many ticking CPUs as can hardly meet at a lock.
const FEW: usize = 8;

fn idle_poll(facts: &Facts, _: &Context) -> Judged {
    let line = line(facts)?;
    let subject = Subject::Parameter("idle".into());
    if !line.has_value("idle", "poll") {
        return see_parameter(Judgement::pass(subject, "idle CPUs may sleep"), facts, "idle").alone();
    }
    let guest = &facts.virtualisation.guest;
    let judgement = match *known(guest)? {
        true => Judgement::fail(subject, "this guest never idles: it takes its physical CPUs from all others"),
        false => Judgement::warn(subject, "no CPU of this host ever sleeps, housekeeping included"),
    };
    see_parameter(judgement, facts, "idle").see_whether(guest, "a guest", "no guest").alone()
}

fn number(facts: &Facts, name: &str) -> Result<u64, Skip> {
    let parameter = given(facts, name)?;
    let value = parameter.value.as_deref().and_then(|value| value.parse().ok());
    value.ok_or_else(|| Skip::unknown(format!("{parameter} holds no number")))
}

fn intel_idle(facts: &Facts, _: &Context) -> Judged {
    let limit = number(facts, "intel_idle.max_cstate")?;
    let subject = Subject::Parameter("intel_idle.max_cstate".into());
    let driver = &facts.idle.driver;
    let judgement = match limit {
        0 if line(facts)?.has_value("idle", "poll") => Judgement::pass(subject, "idle=poll makes it moot"),
        0 => match known(driver)?.as_str() {
            "acpi_idle" if !line(facts)?.has("processor.max_cstate") => {
                Judgement::fail(subject, "acpi_idle has taken over, with all states of the firmware")
                    .for_good("processor.max_cstate=1")
            }
            driver => Judgement::pass(subject, format!("intel_idle is off; the driver is {driver}")),
        },
        1 => Judgement::pass(subject, "the deepest state is C1"),
        n => Judgement::warn(subject, format!("states up to number {n} are left")),
    };
    see_parameter(judgement, facts, "intel_idle.max_cstate").see(driver).alone()
}

fn processor(facts: &Facts, _: &Context) -> Judged {
    let limit = number(facts, "processor.max_cstate")?;
    let subject = Subject::Parameter("processor.max_cstate".into());
    let driver = &facts.idle.driver;
    let judgement = match (known(driver)?.as_str(), limit) {
        ("intel_idle", _) => Judgement::warn(subject, "the driver is intel_idle, which it does not limit"),
        (_, 0 | 1) => Judgement::pass(subject, "the deepest state is C1"),
        (_, n) => Judgement::warn(subject, format!("states up to number {n} are left")),
    };
    see_parameter(judgement, facts, "processor.max_cstate").see(driver).alone()
}

fn tsc(facts: &Facts, _: &Context) -> Judged {
    let value = line(facts)?.value("tsc");
    let subject = Subject::Parameter("tsc".into());
    let judgement = match value {
        Some("reliable" | "nowatchdog") => Judgement::pass(subject, "nobody watches the TSC"),
        Some("unstable") => Judgement::fail(
            subject,
            "the TSC is declared unstable: another clock is read, and full dynamic ticks are off",
        ),
        Some("watchdog") => Judgement::warn(subject, "the TSC is watched, as asked for"),
        _ => {
            let flags = known(&facts.cpus.flags)?;
            let version = *known(&facts.kernel.version)?;
            let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc", "tsc_adjust"]
                .into_iter()
                .filter(|flag| !flags.contains(*flag))
                .collect();
            let judgement = match (missing.as_slice(), version >= KernelVersion::new(5, 17)) {
                ([], true) => Judgement::pass(subject, "this kernel trusts an invariant TSC by itself"),
                ([], false) => {
                    Judgement::warn(subject, format!("Linux {version} watches the TSC from all CPUs in turn"))
                }
                (["tsc_adjust"], _) => Judgement::warn(
                    subject,
                    "the TSC is invariant, but watched from all CPUs in turn, for they lack tsc_adjust",
                ),
                (missing, _) => {
                    Judgement::warn(subject, format!("the TSC is watched, for the CPUs lack {}", missing.join(", ")))
                        .for_good("a TSC that is not invariant must be watched: take other hardware for low latency")
                }
            };
            judgement.see_as(version.to_string(), facts.kernel.version.source())
        }
    };
    see_parameter(judgement, facts, "tsc").alone()
}

fn clocksource(facts: &Facts, _: &Context) -> Judged {
    let asked = given(facts, "clocksource")?.value.as_deref().unwrap_or_default();
    let current = &facts.kernel.clocksource;
    let now = known(current)?;
    let subject = Subject::Parameter("clocksource".into());
    let judgement = if asked != now {
        Judgement::fail(subject, format!("{asked} is asked for, {now} is read"))
    } else if asked == "tsc" {
        Judgement::pass(subject, "the TSC is asked for and read")
    } else {
        Judgement::warn(subject, format!("{asked} is asked for, and slower than the TSC"))
    };
    see_parameter(judgement, facts, "clocksource").see(current).alone()
}

fn skew_tick(facts: &Facts, _: &Context) -> Judged {
    let line = line(facts)?;
    any_cpu(facts)?;
    let stopped = facts.cpus.nohz_full.value().cloned().unwrap_or_default();
    let ticking = facts.cpus.all().difference(&stopped).len();
    let subject = Subject::Parameter("skew_tick".into());
    let judgement = match line.value("skew_tick") {
        Some("1") => Judgement::pass(subject, "ticks are spread"),
        _ if ticking <= FEW => Judgement::pass(subject, format!("only {ticking} CPUs tick")),
        _ => Judgement::warn(subject, format!("{ticking} CPUs tick at the same moment")),
    };
    see_parameter(judgement, facts, "skew_tick")
        .see_as(format!("{ticking} CPUs"), "CPUs online and not in nohz_full")
        .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    const FLAGS: &str = "processor : 0\nvendor_id : GenuineIntel\nflags : constant_tsc nonstop_tsc tsc_adjust\n";

    fn with(line: &str) -> Host {
        host().cmdline(line)
    }

    fn trusted(release: &str) -> Host {
        with("quiet").file("/proc/cpuinfo", FLAGS).file("/proc/sys/kernel/osrelease", release)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.idle-poll", || with("quiet")),
        Case::warn("cmd.idle-poll", || with("idle=poll")),
        Case::fail("cmd.idle-poll", || with("idle=poll").guest()),
        Case::unknown("cmd.idle-poll", host),
        Case::pass("cmd.intel-idle-max-cstate", || with("intel_idle.max_cstate=1")),
        Case::warn("cmd.intel-idle-max-cstate", || with("intel_idle.max_cstate=9")),
        Case::fail("cmd.intel-idle-max-cstate", || with("intel_idle.max_cstate=0").file(DRIVER, "acpi_idle\n")),
        Case::unknown("cmd.intel-idle-max-cstate", || with("intel_idle.max_cstate=0")),
        Case::not_applicable("cmd.intel-idle-max-cstate", || with("quiet")),
        Case::pass("cmd.processor-max-cstate", || with("processor.max_cstate=1").file(DRIVER, "acpi_idle\n")),
        Case::warn("cmd.processor-max-cstate", || with("processor.max_cstate=1").file(DRIVER, "intel_idle\n")),
        Case::unknown("cmd.processor-max-cstate", || with("processor.max_cstate=1")),
        Case::pass("cmd.tsc", || with("tsc=nowatchdog")),
        Case::pass("cmd.tsc", || trusted("6.1.0")),
        Case::warn("cmd.tsc", || trusted("5.14.0")),
        Case::fail("cmd.tsc", || with("tsc=unstable")),
        Case::unknown("cmd.tsc", || with("quiet")),
        Case::pass("cmd.clocksource", || with("clocksource=tsc").file(CLOCK, "tsc\n")),
        Case::warn("cmd.clocksource", || with("clocksource=hpet").file(CLOCK, "hpet\n")),
        Case::fail("cmd.clocksource", || with("clocksource=tsc").file(CLOCK, "hpet\n")),
        Case::unknown("cmd.clocksource", || with("clocksource=tsc")),
        Case::pass("cmd.skew-tick", || with("skew_tick=1")),
        Case::warn("cmd.skew-tick", || with("quiet").file("/sys/devices/system/cpu/online", "0-63")),
        Case::unknown("cmd.skew-tick", host),
    ];
}

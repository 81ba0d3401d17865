//! Rules on parameters for idle states, clocks and ticks.

use host::Facts;
use host::facts::{CommandLine, CpuSet, KernelVersion, Vendor};
use units::Nanos;

use crate::rules::common::{X86, any_cpu, given, line, listed, see_parameter};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

const CPUIDLE: &str = "Linux Documentation/admin-guide/pm/cpuidle.rst, Idle States Control Via Kernel Command Line";
const SLIDES: &str = "Interrupt-mode DPDK slides (2017), table of C-states and latency";
/// Source of the exit latencies of idle states, including those of Ice Lake.
const LATENCIES: &str = "Interrupt-mode DPDK slides (2017), table of C-states and latency; Linux drivers/idle/intel_idle.c, icx_cstates (C1 1 us, C6 170 us)";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.idle-poll",
        cause: Cause::IdlePoll,
        title: "idle=poll does not keep every CPU awake",
        applies: Applies::LINUX,
        judge: idle_poll,
        why: "With idle=poll an idle CPU spins. No wake-up is needed, but the CPU never cools down: turbo headroom is \
              lost, the sibling thread gets half a core, and throttling may follow. An idle guest with idle=poll keeps a physical CPU from other guests.",
        magnitude: Magnitude::untimed(
            "saves 2 us (C1) to 133 us (C6) per wake-up on Xeon E5 v3, but no CPU saves power any more",
            SLIDES,
        ),
        fix: Fix::boot(
            "remove idle=poll # after the reboot, apus audit shows how to limit the idle states of the application's CPUs alone (idle.states)",
        ).against(&["FlexRAN real-time platform slides (2018) ask for idle=poll"]),
        cost: "Idle CPUs sleep, and waking up takes the exit latency of their idle states.",
        references: &[
            CPUIDLE,
            "Linux Documentation/timers/no_hz.rst",
            "FlexRAN real-time platform slides (2018), kernel command line",
        ],
    },
    Rule {
        id: "cmd.intel-idle-max-cstate",
        cause: Cause::IdleStates,
        title: "intel_idle.max_cstate= allows only shallow states",
        applies: Applies::LINUX.made_by(&[Vendor::Intel]),
        judge: intel_idle,
        why: "The parameter removes deeper states of the driver intel_idle. The value 0 does not mean no states: it \
         disables the driver, and acpi_idle takes over with all states that the firmware offers.",
        magnitude: Magnitude::untimed(
            "waking up from C6 takes 133 us on Xeon E5 v3 and 170 us on Ice Lake, from C1 about 2 us; idle.states has this host's figures",
            LATENCIES,
        ),
        fix: Fix::boot("intel_idle.max_cstate=1"),
        cost: "All CPUs stay in C1, which uses more power and leaves less turbo.",
        references: &[CPUIDLE, SLIDES],
    },
    Rule {
        id: "cmd.processor-max-cstate",
        cause: Cause::IdleStates,
        title: "processor.max_cstate= has an effect, and allows only shallow states",
        applies: Applies::LINUX.made_by(X86),
        judge: processor,
        why: "The parameter belongs to the driver acpi_idle. It has no effect on intel_idle.",
        magnitude: Magnitude::untimed(
            "end to end on Xeon E5 v3: 14.9 us with C1, 60.9 us with C3, 87.7 us with C6; idle.states has this host's figures",
            SLIDES,
        ),
        fix: Fix::boot("processor.max_cstate=1"),
        cost: "All CPUs stay in C1, which uses more power and leaves less turbo.",
        references: &[CPUIDLE, SLIDES],
    },
    Rule {
        id: "cmd.tsc",
        cause: Cause::Clock,
        title: "No timer checks the TSC on application CPUs",
        applies: Applies::LINUX.made_by(X86).on_hardware(),
        judge: tsc,
        why: "A kernel that does not trust the TSC compares it with another clock twice a second (the clocksource watchdog); its timer visits all CPUs, including isolated ones. Since 5.16 (and 5.15.7, 5.10.84, 5.4.164) there are two \
              changes: on machines with few sockets the kernel trusts a TSC that is invariant and has the register \
              TSC_ADJUST; and instead of the clocksource watchdog another timer checks that register every 10 minutes, on one CPU after the other. Distributions backported them: RHEL 9.4 (5.14.0-427) has both. tsc=nowatchdog disables the \
              comparison with the other clock. tsc=reliable disables this comparison, the check of TSC_ADJUST, and the \
              comparison of the CPUs' TSCs at boot.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "two timer interrupts per second with the clocksource watchdog, one every 10 minutes for TSC_ADJUST, on one CPU \
             after the other; a few microseconds each",
            "Linux kernel/time/clocksource.c, WATCHDOG_INTERVAL; arch/x86/kernel/tsc_sync.c, SYNC_CHECK_INTERVAL; how long each takes is general knowledge",
        ),
        fix: Fix::boot("tsc=reliable").traded(),
        cost: RELIABLE_COST,
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, tsc",
            "Linux arch/x86/kernel/tsc_sync.c, check_tsc_sync_target and start_sync_check_timer",
            "Linux commit 63ec58b44fcc (x86/tsc: Respect tsc command line paraemeter for clocksource_tsc_early), for tsc=nowatchdog",
            "Linux commit 0051293c5330 (clocksource: Enable TSC watchdog checking of HPET and PMTMR only when requested)",
            "Linux commit b50db7095fe0 (x86/tsc: Disable clocksource watchdog for TSC on qualified platforms)",
            "Linux commit c7719e793478 (x86/tsc: Add a timer to make sure TSC_adjust is always checked)",
        ],
    },
    Rule {
        id: "cmd.clocksource",
        cause: Cause::Clock,
        title: "clocksource= selects the TSC, and the kernel reads it",
        applies: Applies::LINUX.made_by(X86),
        judge: clocksource,
        why: "A clock source that the command line selects stays until another one is written. hpet and acpi_pm need a \
              device access for each time stamp.",
        magnitude: Magnitude::slower(
            "about 1 us per reading with hpet or acpi_pm, about 20 ns with the TSC",
            "general knowledge; the order of magnitude follows from an uncached device read",
        ),
        fix: Fix::runtime_or_boot(
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            "clocksource=tsc",
        ),
        cost: "None if the TSC is invariant.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, clocksource",
            "FlexRAN real-time platform slides (2018), kernel command line",
        ],
    },
    Rule {
        id: "cmd.skew-tick",
        cause: Cause::TimerTick,
        title: "The CPUs' ticks do not coincide",
        applies: Applies::LINUX,
        judge: skew_tick,
        why: "Without skew_tick=1 all CPUs tick at the same moment and compete for the same timekeeping and RCU locks.",
        magnitude: Magnitude::untimed(
            "no figure: the contention grows with the number of CPUs that tick",
            "Linux Documentation/admin-guide/kernel-parameters.txt, skew_tick, describes the contention",
        ),
        fix: Fix::boot("skew_tick=1").traded(),
        cost: "The CPUs use slightly more power, because they wake up at different times.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, skew_tick",
            "tuned profile network-latency",
        ],
    },
];

/// Up to this number of ticking CPUs, ticks hardly ever compete for a lock.
const FEW: usize = 8;

fn idle_poll(facts: &Facts, _: &Context) -> Judged {
    let line = line(facts)?;
    let subject = Subject::Parameter("idle".into());
    if !line.has_value("idle", "poll") {
        return see_parameter(Judgement::pass_for(subject, "idle CPUs may sleep"), facts, "idle").alone();
    }
    let guest = &facts.virtualisation.guest;
    let judgement = match *known(guest)? {
        true => Judgement::fail_for(
            subject,
            "this guest never idles: it keeps its physical CPUs busy even if other guests need them",
        ),
        false => Judgement::warn_for(subject, "no CPU of this host ever sleeps, not even housekeeping CPUs"),
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
        0 if line(facts)?.has_value("idle", "poll") => {
            Judgement::pass_for(subject, "idle=poll makes this parameter irrelevant")
        }
        0 => match known(driver)?.as_str() {
            "acpi_idle" if !line(facts)?.has("processor.max_cstate") => {
                Judgement::fail_for(subject, "acpi_idle has taken over, with all idle states of the firmware")
                    .for_good("processor.max_cstate=1")
            }
            driver => Judgement::pass_for(subject, format!("intel_idle is off; the driver is {driver}")),
        },
        1 => Judgement::pass_for(subject, "the deepest state is C1"),
        n => Judgement::warn_for(subject, format!("states up to number {n} are allowed")),
    };
    see_parameter(judgement, facts, "intel_idle.max_cstate").see(driver).alone()
}

fn processor(facts: &Facts, _: &Context) -> Judged {
    let limit = number(facts, "processor.max_cstate")?;
    let subject = Subject::Parameter("processor.max_cstate".into());
    let driver = &facts.idle.driver;
    let judgement = match (known(driver)?.as_str(), limit) {
        ("intel_idle", _) => {
            Judgement::warn_for(subject, "the driver is intel_idle, which this parameter does not limit")
        }
        (_, 0 | 1) => Judgement::pass_for(subject, "the deepest state is C1"),
        (_, n) => Judgement::warn_for(subject, format!("states up to number {n} are allowed")),
    };
    see_parameter(judgement, facts, "processor.max_cstate").see(driver).alone()
}

/// The CPU flags that let the kernel trust the TSC without a watchdog (arch/x86/kernel/tsc.c).
const NEEDED: [&str; 3] = ["constant_tsc", "nonstop_tsc", "tsc_adjust"];

/// The faults that the kernel no longer detects with `tsc=reliable` (kernel-parameters.txt: "as well as the stability
/// checks done at bootup"), and those that it no longer detects with `tsc=nowatchdog`.
const RELIABLE_COST: &str =
    "The kernel no longer notices if a TSC goes wrong after boot, or if the TSCs of two sockets differ at boot.";
const UNWATCHED_COST: &str = "The kernel no longer notices if a TSC goes wrong after boot.";
/// The first version in which `tsc=nowatchdog` affects both clock sources of the TSC (commit 63ec58b44fcc). Every
/// kernel from this version on supports it.
const NOWATCHDOG: KernelVersion = KernelVersion::new(5, 4);
/// The first version that supports `tsc=watchdog` (commit 0051293c5330).
const WATCHDOG: KernelVersion = KernelVersion::new(6, 3);
/// The first version in which the watchdog's timer always runs on the boot CPU, which sends an inter-processor
/// interrupt to each other CPU (kernel/time/clocksource.c, "clocksource: Rewrite watchdog code completely").
const PINNED: KernelVersion = KernelVersion::new(7, 1);

fn tsc(facts: &Facts, context: &Context) -> Judged {
    let line = line(facts)?;
    // The kernel evaluates every tsc= on the line (arch/x86/kernel/tsc.c, tsc_setup).
    let asked = |value: &str| line.all("tsc").any(|parameter| parameter.value.as_deref() == Some(value));
    let subject = Subject::Parameter("tsc".into());
    if asked("unstable") {
        let text = "tsc=unstable declares the TSC unstable: the kernel reads another clock, and full dynamic ticks are \
            off";
        return see_parameter(Judgement::fail_for(subject, text), facts, "tsc")
            .for_good("remove tsc=unstable # only if its TSC is invariant and in step")
            .costs("If the TSCs are out of step after all, time jumps.")
            .alone();
    }
    if asked("reliable") {
        let text = "neither the clocksource watchdog nor the check of the register TSC_ADJUST runs";
        return see_parameter(Judgement::pass_for(subject, text), facts, "tsc").alone();
    }
    let flags = known(&facts.cpus.flags)?;
    let (release, version) = (known(&facts.kernel.release)?, facts.kernel.version.get());
    let since = |first: KernelVersion| version.is_some_and(|version| version >= first);
    let missing: Vec<&str> = NEEDED.into_iter().filter(|flag| !flags.contains(*flag)).collect();
    let trusted = match missing.as_slice() {
        [] => trusts(facts)?,
        ["tsc_adjust"] => Trust::No("the CPUs have no TSC_ADJUST".into()),
        missing => Trust::No(format!("the CPUs lack {}", missing.join(" and "))),
    };
    let unwatched = asked("nowatchdog");
    if unwatched && !since(NOWATCHDOG) {
        return Err(Skip::unknown(format!("whether Linux {release} knows tsc=nowatchdog is not known")));
    }
    // The timer that checks TSC_ADJUST was added with the same change, and needs only this register.
    let build = facts.kernel.build.value().map_or("", String::as_str);
    let checked =
        flags.contains("tsc_adjust") && version.and_then(|version| has_trust(release, version, build)) == Some(true);
    let judgement = match &trusted {
        Trust::No(reason) if !unwatched => {
            let how = match since(PINNED) {
                true => {
                    "the boot CPU checks the TSC twice per second, and each time interrupts one other CPU, all of \
                     them in turn"
                }
                false => "a timer checks the TSC twice per second, on all CPUs in turn",
            };
            let text = format!("{how}, because {reason}");
            let judgement = Judgement::warn_for(subject, text);
            match missing.iter().any(|flag| *flag != "tsc_adjust") {
                true => judgement
                    .for_good("a TSC that is not invariant must be watched: use other hardware for low latency"),
                // The parameter with the least effect that is sufficient.
                false if !checked && since(NOWATCHDOG) => judgement.for_good("tsc=nowatchdog").costs(UNWATCHED_COST),
                false => judgement,
            }
        }
        // The TSC is then the watchdog of the other clock sources (tsc.c, tsc_clocksource_watchdog_disabled).
        Trust::Yes(..) if !unwatched && asked("watchdog") && since(WATCHDOG) => {
            let text = "tsc=watchdog: a timer checks HPET and the ACPI PM timer against the TSC twice per second, on all CPUs \
             in turn";
            Judgement::warn_for(subject, text)
                .for_good("remove tsc=watchdog")
                .costs("Nothing compares the TSC with HPET and the ACPI PM timer.")
        }
        _ if checked && context.isolated.value.is_empty() => {
            let text = "no clocksource watchdog checks the TSC; every 10 minutes a timer checks the register TSC_ADJUST, each time on the next CPU";
            Judgement::pass_for(subject, text)
        }
        _ if checked => Judgement::warn_for(
            subject,
            "no clocksource watchdog runs, but every 10 minutes a timer checks the register TSC_ADJUST, each time on the next CPU; isolated CPUs are included",
        ),
        _ => Judgement::pass_for(subject, "tsc=nowatchdog: the clocksource watchdog does not run"),
    };
    let seen = if missing.is_empty() { NEEDED.join(" ") } else { listed("missing", &missing) };
    let judgement =
        judgement.see_as(release.as_str(), facts.kernel.release.source()).see_as(seen, facts.cpus.flags.source());
    let judgement = match trusted {
        Trust::Yes(few, source) => judgement.see_as(few, source),
        Trust::No(_) => judgement,
    };
    see_parameter(judgement, facts, "tsc").alone()
}

/// Whether the kernel trusts a TSC without a watchdog, if the TSC is invariant and has TSC_ADJUST.
enum Trust {
    /// The kernel trusts the TSC, and only checks TSC_ADJUST. The strings are the number of sockets or nodes, and the
    /// source of this number.
    Yes(String, String),
    /// The kernel does not trust the TSC, for this reason.
    No(String),
}

/// Whether the kernel trusts the TSC without a watchdog. It can do so since commit b50db7095fe0, which is in Linux
/// 5.16; in 5.15.7, 5.10.84 and 5.4.164 of the stable series; and in the distribution kernels that are based on these
/// versions. The commit exempts machines with up to two nodes from the watchdog. Commit 233756a640be (6.3) raised the
/// limit to four nodes, and from 6.12 on, sockets are counted instead of nodes.
fn trusts(facts: &Facts) -> Result<Trust, Skip> {
    let release = known(&facts.kernel.release)?;
    let version = *known(&facts.kernel.version)?;
    // Linux 7.1 has a different watchdog (kernel/time/clocksource.c), whose decision cannot be determined here.
    if version >= PINNED {
        return Err(Skip::unknown(format!("whether Linux {version} watches the TSC is not known")));
    }
    let build = facts.kernel.build.value().map_or("", String::as_str);
    match has_trust(release, version, build) {
        Some(true) => {}
        Some(false) => return Ok(Trust::No(format!("Linux {version} is older than commit b50db7095fe0"))),
        None => return Err(Skip::unknown(format!("{release}: whether it has commit b50db7095fe0 is not known"))),
    }
    let packages: std::collections::BTreeSet<u32> =
        facts.cpus.list.iter().filter_map(|cpu| cpu.package.get()).collect();
    let (nodes, packages) = (facts.cpus.nodes.len(), packages.len());
    if nodes == 0 {
        return Err(Skip::unknown("/sys/devices/system/node: how many NUMA nodes there are is not known"));
    }
    let of_nodes = "/sys/devices/system/node".to_owned();
    let of_packages = facts.cpus.list.first().map_or_else(String::new, |cpu| cpu.package.source().to_string());
    let (counts, most, what, source) = match version {
        version if version >= KernelVersion::new(6, 12) => (packages, 4, "packages", of_packages),
        version if version >= KernelVersion::new(6, 3) => (nodes, 4, "nodes", of_nodes),
        _ => (nodes, 2, "nodes", of_nodes),
    };
    Ok(match counts <= most {
        true => Trust::Yes(format!("{counts} {what}: the kernel trusts the TSC on up to {most}"), source),
        false => Trust::No(format!("the host has {counts} {what}, and Linux {version} trusts up to {most}")),
    })
}

/// Whether a kernel contains commit b50db7095fe0, according to its release and build. `None` for a distribution kernel
/// that may contain it.
fn has_trust(release: &str, version: KernelVersion, build: &str) -> Option<bool> {
    let mainline = |version: KernelVersion| match (version.major, version.minor) {
        (5, 15) => version.patch >= 7,
        (5, 10) => version.patch >= 84,
        (5, 4) => version.patch >= 164,
        _ => version >= KernelVersion::new(5, 16),
    };
    if mainline(version) {
        return Some(true);
    }
    // Debian's releases end in 0; the full version is in the build: `#1 SMP Debian 5.10.92-1 (2022-01-18)`.
    if let Some((_, rest)) = build.split_once("Debian ") {
        return KernelVersion::parse(rest).map(mainline);
    }
    let Some((_, suffix)) = release.split_once('-') else { return Some(false) };
    let number: u32 = suffix.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let is_red_hat = suffix.contains(".el");
    match (version.major, version.minor) {
        // Red Hat Enterprise Linux 9.4, kernel 5.14.0-427.
        (5, 14) if is_red_hat && number >= 427 => Some(true),
        // Ubuntu 22.04 began with 5.15.0-25, which is 5.15.30.
        (5, 15) if !is_red_hat && version.patch == 0 && number >= 25 => Some(true),
        _ => None,
    }
}

fn clocksource(facts: &Facts, _: &Context) -> Judged {
    let asked = given(facts, "clocksource")?.value.as_deref().unwrap_or_default();
    let current = &facts.kernel.clocksource;
    let now = known(current)?;
    let subject = Subject::Parameter("clocksource".into());
    let judgement = if asked != now {
        Judgement::fail_for(subject, format!("the command line selects {asked}, but the kernel reads {now}"))
    } else if asked == "tsc" {
        Judgement::pass_for(subject, "the command line selects the TSC, and the kernel reads it")
    } else {
        Judgement::warn_for(subject, format!("the command line selects {asked}, which is slower than the TSC"))
    };
    see_parameter(judgement, facts, "clocksource").see(current).alone()
}

/// Judges `skew_tick=1`, which shifts the tick of every CPU, even if some CPUs stop their tick
/// (kernel/time/tick-sched.c, tick_setup_sched_timer).
fn skew_tick(facts: &Facts, _: &Context) -> Judged {
    let line = line(facts)?;
    any_cpu(facts)?;
    let (all, subject) = (facts.cpus.all(), Subject::Parameter("skew_tick".into()));
    let count = |judgement: Judgement| {
        let cpus = &facts.cpus;
        let source = match [&cpus.online, &cpus.present].into_iter().find(|fact| fact.is_known()) {
            Some(fact) => fact.source().to_string(),
            None => "/proc/cpuinfo".to_owned(),
        };
        see_parameter(judgement, facts, "skew_tick").see_as(format!("{} CPUs", all.len()), source)
    };
    if line.value("skew_tick") == Some("1") {
        return count(Judgement::pass_for(subject, format!("the ticks of {} CPUs are spread", all.len()))).alone();
    }
    // An idle CPU that polls restarts its tick, with or without nohz_full= (kernel/sched/idle.c, do_idle).
    let kept = [("idle", "poll"), ("nohz", "off")].into_iter().find(|(name, value)| line.has_value(name, value));
    let stopped = if kept.is_some() { CpuSet::new() } else { stopped(facts, line) };
    let ticking = all.difference(&stopped).len();
    let judgement = match (ticking <= FEW, stopped.is_empty()) {
        (true, true) => Judgement::pass_for(subject, format!("only {ticking} CPUs tick")),
        (true, false) => {
            Judgement::pass_for(subject, format!("only {ticking} CPUs keep their tick while they are busy"))
        }
        (false, _) => {
            let when = if kept.is_some() { "" } else { " while they are busy" };
            Judgement::warn_for(subject, format!("{ticking} CPUs tick at the same moment{when}"))
        }
    };
    let judgement = count(judgement);
    match kept {
        Some((name, _)) => see_parameter(judgement, facts, name),
        None if facts.cpus.nohz_full.is_known() => judgement.see(&facts.cpus.nohz_full),
        None => see_parameter(judgement, facts, "nohz_full"),
    }
    .alone()
}

/// CPUs that stop their tick while they are busy: those that the kernel reports, otherwise those that the line names,
/// without the boot CPU. The kernel removes the boot CPU from the list on the line (kernel/time/tick-sched.c,
/// tick_nohz_init: "Clearing 0 from nohz_full range for timekeeping").
fn stopped(facts: &Facts, line: &CommandLine) -> CpuSet {
    let all = facts.cpus.all();
    let asked = || line.last("nohz_full")?.cpu_set(&all).ok().map(|asked| asked.difference(&CpuSet::from([0])));
    facts.cpus.nohz_full.value().cloned().or_else(asked).unwrap_or_default()
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
        on_nodes(with("quiet").file("/proc/cpuinfo", FLAGS).file("/proc/sys/kernel/osrelease", release), 1)
    }

    fn on_nodes(host: Host, nodes: u32) -> Host {
        (0..nodes).fold(host, |host, n| host.file(&format!("/sys/devices/system/node/node{n}/cpulist"), "0\n"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.tsc", || trusted("6.1.0").isolated("2-7").cmdline("tsc=reliable")),
        Case::warn("cmd.tsc", || trusted("6.1.0").isolated("2-7")),
        Case::warn("cmd.tsc", || trusted("6.1.0").isolated("2-7").cmdline("tsc=nowatchdog")),
        Case::pass("cmd.tsc", || trusted("5.10.83").isolated("2-7").cmdline("tsc=nowatchdog")),
        Case::pass("cmd.tsc", || trusted("5.10.83").cmdline("tsc=nowatchdog tsc=reliable")),
        Case::warn("cmd.tsc", || trusted("6.18.0").cmdline("tsc=watchdog")),
        Case::warn("cmd.tsc", || on_nodes(trusted("6.1.0"), 4)),
        Case::pass("cmd.tsc", || on_nodes(trusted("6.6.0"), 4)),
        // The timer for TSC_ADJUST does not ask for few sockets.
        Case::warn("cmd.tsc", || on_nodes(trusted("6.1.0"), 4).isolated("2-7").cmdline("tsc=nowatchdog")),
        Case::pass("cmd.tsc", || trusted("6.1.0").cmdline("tsc=watchdog")),
        Case::unknown("cmd.tsc", || trusted("5.3.9").cmdline("tsc=nowatchdog")),
        Case::unknown("cmd.tsc", || trusted("5.14.0-284.11.1.el9_2.x86_64")),
        Case::unknown("cmd.tsc", || trusted("7.1.0")),
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
        Case::unknown("cmd.tsc", || with("tsc=nowatchdog")),
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

    /// rome0, genoa0: without TSC_ADJUST the watchdog is all that runs, and the checks at boot are all that there is.
    #[test]
    fn the_mildest_word_is_asked_for() {
        let bare = |release: &str, line: &str| {
            let flags = FLAGS.replace(" tsc_adjust", "");
            trusted(release).isolated("2-7").cmdline(line).file("/proc/cpuinfo", &flags).judge("cmd.tsc").remove(0)
        };
        let judgement = bare("6.16.10", "quiet");
        assert_eq!(judgement.for_good, ["tsc=nowatchdog"]);
        assert_eq!(judgement.cost.as_deref(), Some(super::UNWATCHED_COST));
        assert_eq!(bare("6.16.10", "tsc=nowatchdog").verdict, crate::Verdict::Pass);
        assert!(
            bare("7.0.9", "quiet")
                .found
                .starts_with("a timer checks the TSC twice per second, on all CPUs in turn, because ")
        );
        let pinned = bare("7.1.0", "quiet");
        assert!(
            pinned
                .found
                .starts_with("the boot CPU checks the TSC twice per second, and each time interrupts one other CPU")
        );
        assert_eq!(pinned.for_good, ["tsc=nowatchdog"]);
        // What does not know the word, and what has a second timer, is asked for tsc=reliable, which says what it gives up.
        assert!(bare("5.3.9", "quiet").for_good.is_empty());
        assert!(on_nodes(trusted("6.1.0"), 4).judge("cmd.tsc")[0].for_good.is_empty());
        let rule = crate::rules::find("cmd.tsc").unwrap();
        assert!(rule.fix.persistent == Some("tsc=reliable") && rule.cost.contains("at boot"));
        let old = trusted("5.10.83").judge("cmd.tsc").remove(0);
        assert_eq!(old.for_good, ["tsc=nowatchdog"]);
        let asked = trusted("6.18.0").cmdline("tsc=watchdog").judge("cmd.tsc").remove(0);
        assert_eq!(asked.for_good, ["remove tsc=watchdog"]);
        assert!(asked.found.contains("HPET"), "{}", asked.found);
    }

    /// telco-worker1: 80 CPUs, of which nohz_full= names 74 and CPU 0 among them; idle=poll keeps all their ticks.
    #[test]
    fn a_tick_that_does_not_stop_is_counted() {
        let of = |line: &str| {
            let host = with(&format!("nohz_full=0-4,11-79 {line}"));
            host.file("/sys/devices/system/cpu/online", "0-79").judge("cmd.skew-tick").remove(0)
        };
        assert_eq!(of("idle=poll skew_tick=1").found, "the ticks of 80 CPUs are spread");
        assert_eq!(of("skew_tick=1").found, "the ticks of 80 CPUs are spread");
        for kept in ["idle=poll", "nohz=off"] {
            let judgement = of(kept);
            assert_eq!(judgement.found, "80 CPUs tick at the same moment");
            assert_eq!(judgement.verdict, crate::Verdict::Warn);
            assert!(judgement.evidence.iter().any(|seen| seen.value == kept), "{:?}", judgement.evidence);
        }
        let judgement = of("quiet");
        assert_eq!(judgement.found, "only 7 CPUs keep their tick while they are busy");
        assert_eq!(judgement.verdict, crate::Verdict::Pass);
        let seen: Vec<String> = judgement.evidence.iter().map(|e| format!("{} ({})", e.value, e.source)).collect();
        assert!(seen.contains(&"80 CPUs (/sys/devices/system/cpu/online)".to_owned()), "{seen:?}");
        assert!(seen.contains(&"nohz_full=0-4,11-79 (/proc/cmdline)".to_owned()), "{seen:?}");
    }

    /// Kernels that have the commit by backport are not blamed, and older ones are.
    #[test]
    fn backports_of_the_trust_are_known() {
        let verdict = |release: &str, build: &str| {
            let host = trusted(release).file("/proc/sys/kernel/version", build);
            host.judge("cmd.tsc").remove(0).verdict.name()
        };
        for (release, build, wanted) in [
            ("5.15.0-91-generic", "#101-Ubuntu SMP", "pass"),
            ("5.15.0-91", "", "pass"),
            ("5.4.164", "", "pass"),
            ("5.10.84", "", "pass"),
            ("5.15.7", "", "pass"),
            ("5.16.0", "", "pass"),
            ("5.14.0-427.59.1.el9_4.x86_64+rt", "#1 SMP PREEMPT_RT", "pass"),
            ("5.10.0-11-amd64", "#1 SMP Debian 5.10.92-1 (2022-01-18)", "pass"),
            ("5.10.0-8-amd64", "#1 SMP Debian 5.10.46-4 (2021-08-03)", "warn"),
            ("5.10.83", "", "warn"),
            ("5.14.9", "", "warn"),
            ("4.18.0-553.el8.x86_64", "", "unknown"),
            ("5.3.18-150300.59.93-default", "", "unknown"),
        ] {
            assert_eq!(verdict(release, build), wanted, "{release} {build}");
        }
    }
}

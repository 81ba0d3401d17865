//! Rules on CPU frequency: governors, drivers and frequency limits.

use host::Facts;
use host::facts::{Cpu, CpuSet, Generation, Vendor};
use units::{Hertz, Nanos};

use crate::remedy::{base, steady};
use crate::rules::choices::{Side, choose};
use crate::rules::common::{PREFERENCE, by_cpu, megahertz};
use crate::rules::{cores, one_frequency};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Verdict, known, spaced};

const GUIDE: &str = "Intel P-state guide 637284-001US";

/// How long a frequency change stops a core of a 2nd generation Xeon Scalable processor: about 12 us (Intel P-state
/// guide, section 4).
pub(crate) const STOP: Nanos = Nanos::from_micros(12);
/// The source of [`STOP`].
const STOP_SOURCE: &str = "Intel P-state guide 637284-001US, section 4";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cpu.governor",
        cause: Cause::CoreFrequency,
        title: "Application CPUs use the governor performance",
        applies: Applies::LINUX.on_hardware(),
        judge: governor,
        why: "Governors other than performance lower the frequency at low load, and raise it only after the packet that needs it has \
         arrived. To them, a polling thread looks fully busy and a sleeping thread looks idle.",
        magnitude: Magnitude::slower(
            "until the frequency has risen, work takes longer, by up to the ratio of the highest to the lowest \
                   frequency",
            "Linux Documentation/admin-guide/pm/cpufreq.rst, Generic Scaling Governors; intel_pstate.rst, Active Mode, on \
             the driver's own governor powersave; the ratio is calculated",
        ),
        fix: Fix::runtime("cpupower -c {core} frequency-set -g performance"),
        cost: POWER,
        references: &[
            GUIDE,
            "Linux Documentation/admin-guide/pm/cpufreq.rst",
            "Linux Documentation/admin-guide/pm/intel_pstate.rst",
            "tuned profile network-latency",
        ],
        // For Ice Lake, the judge adds a sentence.
    },
    Rule {
        id: "cpu.freq-span",
        cause: Cause::CoreFrequency,
        title: "The frequency of application CPUs does not fall",
        applies: Applies::LINUX.on_hardware().isolated(),
        judge: span,
        why: "Between two bounds the frequency varies with the load, and so does the time that the same work takes. On \
              the 2nd generation of Xeon Scalable (Cascade Lake) each change also stops the core. There, and on a \
              real-time host, one fixed frequency is best; elsewhere it is enough to raise the minimum. The fix uses \
              the base frequency, which a CPU holds without turbo, or the highest frequency if the base is not known. \
              The core runs at the highest request of its threads, so a fixed frequency must be set for all of them. \
              To raise only the minimum, it would be enough to set the CPU itself; the command sets its sibling threads too.",
        magnitude: Magnitude::slower("work takes longer, by up to the ratio of the two bounds", "by arithmetic"),
        fix: Fix::runtime("cpupower -c {core} frequency-set {bounds}"),
        cost: SPAN,
        references: &[GUIDE, "FlexRAN real-time platform slides (2018), Processor Optimizations"],
    },
    Rule {
        id: "cpu.pstate-transition-gen",
        cause: Cause::CoreFrequency,
        title: "The frequency is fixed where a change would stop the core",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: transition,
        why: "On the 2nd generation of Xeon Scalable (Cascade Lake) a core stops while its frequency changes; on the 3rd (Ice \
              Lake) it stops for less than a microsecond. Intel's P-state guide names no other generation.",
        magnitude: Magnitude::late(
            STOP,
            "about 12 us on Cascade Lake servers, a few hundred nanoseconds on Ice Lake servers",
            GUIDE,
        ),
        fix: Fix::runtime("cpupower -c {core} frequency-set {bounds}"),
        cost: FIXED,
        references: &[GUIDE],
    },
    Rule {
        id: "cpu.epp",
        cause: Cause::CoreFrequency,
        title: "The energy preference of application CPUs is performance",
        applies: Applies::LINUX.on_hardware(),
        judge: epp,
        why: "With hardware-controlled performance states, the preference decides how fast the hardware raises the frequency, and \
              how far it lowers it. It biases the uncore's frequency too.",
        magnitude: Magnitude::slower(
            "the frequency rises later and less far, and until it has risen, work takes longer; the sources give no numbers",
            "Linux Documentation/admin-guide/pm/intel_pstate.rst, Energy vs Performance Hints; amd-pstate.rst, energy_performance_preference",
        ),
        fix: Fix::runtime(PREFERENCE),
        cost: POWER,
        references: &[
            "Linux Documentation/admin-guide/pm/intel_pstate.rst, Energy vs Performance Hints",
            "Intel SDM volume 3, section 15.4 (HWP)",
        ],
    },
    Rule {
        id: "cpu.epb",
        cause: Cause::CoreFrequency,
        title: "The energy bias of application CPUs is performance",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: epb,
        why: "The Energy Performance Bias, from 0 (performance) to 15 (power saving), steers turbo and the uncore's \
              frequency on processors without an energy performance preference (EPP, part of HWP), which would \
              override it.",
        magnitude: Magnitude::slower(
            "the uncore's frequency and turbo rise more slowly",
            "Intel SDM volume 3, section 15.3.4, IA32_ENERGY_PERF_BIAS, which gives no figure",
        ),
        fix: Fix::both(
            "x86_energy_perf_policy --cpu {core} --epb 0",
            "tuned: [cpu] energy_perf_bias=performance # on all CPUs of the host, unless devices= names some",
        ),
        cost: POWER,
        references: &[
            "Linux Documentation/admin-guide/pm/intel_epb.rst",
            "Linux drivers/cpufreq/intel_pstate.c, intel_pstate_get_epp (the bias only where there is no energy preference)",
            "tuned profile throughput-performance",
        ],
    },
    Rule {
        id: "cpu.turbo",
        cause: Cause::CoreFrequency,
        title: "Turbo is a choice: steady without it, fast with it",
        applies: Applies::LINUX.on_hardware(),
        judge: turbo,
        why: "Turbo gives the lowest mean latency. How much turbo there is depends on temperature, power and the load \
              of the other cores, so the latency varies with these.",
        magnitude: Magnitude::slower(
            "turbo adds 10 to 40 % of speed, and how much it adds varies over time",
            "general knowledge of turbo tables",
        ),
        fix: Fix::runtime("echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo # 1: steadier; 0: faster on average").decided().against(&[
            "off: older editions of the DPDK guide; the FlexRAN slides ask for a fixed P-state where power management must stay on",
            "on: OpenShift vDU, DPDK guide, rigtorp.se",
        ]),
        cost: "Without turbo everything takes longer on average; with turbo the times vary more.",
        references: &[
            "FlexRAN real-time platform slides (2018), Processor Optimizations",
            "OpenShift vDU reference configuration, host firmware",
            "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms",
            "rigtorp.se, Low latency tuning guide",
        ],
    },
    Rule {
        id: "cpu.hwp-dynamic-boost",
        cause: Cause::CoreFrequency,
        title: "The driver does not boost the frequency after waits for I/O",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: dynamic_boost,
        why: "With hwp_dynamic_boost the driver raises the lowest frequency for a moment after a task has waited for \
              I/O, and lowers it again: two changes for each burst. Where a change stops the core for long (Cascade \
              Lake), both make packets late.",
        magnitude: Magnitude::late(
            STOP,
            "two frequency changes per burst, about 12 us each on Cascade Lake servers",
            "Linux Documentation/admin-guide/pm/intel_pstate.rst, hwp_dynamic_boost; Intel P-state guide 637284-001US for the stop",
        ),
        fix: Fix::runtime("echo 0 > /sys/devices/system/cpu/intel_pstate/hwp_dynamic_boost"),
        cost: "Tasks that wait for disks run a little slower under the governor powersave.",
        references: &["Linux Documentation/admin-guide/pm/intel_pstate.rst"],
    },
    Rule {
        id: "cpu.freq-observed",
        cause: Cause::PowerLimits,
        title: "Busy application CPUs run at the frequency that they should have",
        applies: Applies::LINUX.on_hardware().isolated(),
        judge: observed,
        why: "If a CPU should run at its highest frequency and does not, it is throttled, limited in power, or limited \
         by the firmware.",
        magnitude: Magnitude::slower(
            "in proportion: at half the frequency each packet takes twice the time",
            "Mellanox mlnx-tools, mlnx_tune, which warns below the maximum less 100 MHz",
        ),
        fix: Fix::runtime(
            "turbostat --cpu {cpu} --show Core,CPU,Avg_MHz,Bzy_MHz,PkgWatt,PkgTmp # interrupts these CPUs",
        ),
        cost: "Looking closer disturbs the CPUs.",
        references: &[
            "Mellanox mlnx-tools, mlnx_tune",
            "Linux Documentation/admin-guide/pm/cpufreq.rst, scaling_cur_freq",
        ],
    },
];

/// The cost of keeping the frequency high.
pub(super) const POWER: &str = "More power at low load; how much depends on the processor.";
const FLOOR: &str = "Less power is saved at low load (idle states still save some).";
const TURBO_STAYS: &str = "The minimum becomes the base frequency; turbo above it stays available.";
/// The cost of a lower frequency limit if the base frequency is not known, so that the fix uses the highest one.
const HIGHEST: &str = "The base frequency is not known, so the minimum becomes the highest frequency, turbo included: \
                       the CPU asks for turbo all the time, and holds it only as far as heat and power allow.";
const FIXED: &str =
    "Less power is saved at low load (idle states still save some). No turbo above the fixed frequency.";
/// The cost of a lower frequency limit without an upper limit.
const SPAN: &str = "Less power is saved at low load (idle states still save some). The lower bound becomes the base \
                    frequency. Turbo above it stays available, except where one fixed frequency is best.";
/// The cost of an upper frequency limit.
const NO_TURBO: &str = "No turbo above the fixed frequency.";
/// A cost of an upper limit with acpi-cpufreq. This driver supports only the frequencies in the firmware's table; at
/// the highest one, the processor still boosts if boost is on (Documentation/admin-guide/pm/cpufreq.rst, The File
/// cpufreq/boost).
const BOOSTED: &str =
    "Boost stays on: in its highest state the hardware exceeds the bound until boost is off (cpu.turbo).";

/// The costs of a fix with `{bounds}` for this CPU: the cost of the lower limit (`floor`) and, if one fixed frequency
/// is wanted, the cost of the upper limit.
pub(super) fn of_bounds(facts: &Facts, context: &Context, cpu: &Cpu, floor: &str) -> String {
    let floor = match base(facts, cpu.id) {
        Some(_) => floor.to_owned(),
        None => format!("{floor} {HIGHEST}"),
    };
    match one_frequency(facts, context) {
        false => floor,
        // Turbo is in the fixed frequency.
        true if base(facts, cpu.id).is_none() => floor,
        true if boosts(facts, cpu) => format!("{floor} {BOOSTED}"),
        true => format!("{floor} {NO_TURBO}"),
    }
}

/// For fixes that apply to whole cores: mentions in the costs the other CPUs that change too.
pub(super) fn of_whole_cores(facts: &Facts, judged: Judged, cost: &str) -> Judged {
    let named = |judgement: Judgement| {
        let Subject::Cpus(cpus) = &judgement.subject else { return judgement };
        let others = cores(facts, cpus).difference(cpus);
        if others.is_empty() || judgement.verdict == Verdict::Pass || judgement.verdict.reason().is_some() {
            return judgement;
        }
        let share = if others.len() == 1 { "which shares a core with them" } else { "which share these cores" };
        let cost = judgement.cost.as_deref().unwrap_or(cost);
        let cost = format!("{cost} Also changes {}, {share}.", Subject::from(&others));
        judgement.costs(cost)
    };
    judged.map(|judgements| judgements.into_iter().map(named).collect())
}

/// Whether the hardware can exceed the highest frequency that the driver knows.
fn boosts(facts: &Facts, cpu: &Cpu) -> bool {
    cpu.frequency.driver.is(|driver| driver == "acpi-cpufreq") == Some(true) && facts.scaling.boost.get() == Some(true)
}

/// Whether the frequency of a CPU is fixed. `None` if its limits are not known.
fn is_fixed(cpu: &Cpu) -> Option<bool> {
    let (low, high) = (cpu.frequency.scaling_min.get()?, cpu.frequency.scaling_max.get()?);
    Some(low == high)
}

/// Formats the lower limit as `; the clock may fall to 800 MHz`. Empty if the limit is not known.
fn may_fall(cpu: &Cpu) -> String {
    let low = cpu.frequency.scaling_min.get();
    low.map(|low| format!("; the clock may fall to {}", megahertz(low))).unwrap_or_default()
}

fn governor(facts: &Facts, context: &Context) -> Judged {
    let judged = by_cpu(facts, &context.critical(facts), |cpu| {
        let (governor, low) = (&cpu.frequency.governor, &cpu.frequency.scaling_min);
        let judgement = match known(governor)?.as_str() {
            "performance" => Judgement::pass("the governor is performance"),
            other if is_fixed(cpu) == Some(true) => {
                Judgement::pass(format!("the frequency is fixed, so the governor {other} has no effect"))
            }
            other => {
                let found = format!("the governor is {other}{}", may_fall(cpu));
                let judgement = at_each_change(facts, Judgement::warn(found));
                match facts.cpus.generation.get() {
                    Some(Generation::IceLake) => judgement.against(
                        "Intel P-state guide 637284-001US, for the 3rd generation of Xeon Scalable (Ice Lake): frequency scaling is \
                         fine, and saves 30 % of power",
                    ),
                    _ => judgement,
                }
            }
        };
        let judgement = judgement.see(governor).see(&cpu.frequency.driver);
        Ok(match low.get() {
            Some(lowest) => judgement.see_as(megahertz(lowest), low.source()),
            None => judgement,
        })
    });
    of_whole_cores(facts, judged, POWER)
}

/// The CPUs to which frequency limits must be applied so that the given CPUs keep their frequency. For one fixed
/// frequency, these are all threads of the cores, because a core runs at the highest frequency that its threads
/// request. For a lower limit alone, the given CPUs are enough.
fn clocked(facts: &Facts, context: &Context, cpus: &CpuSet) -> CpuSet {
    if one_frequency(facts, context) { cores(facts, cpus) } else { cpus.clone() }
}

fn span(facts: &Facts, context: &Context) -> Judged {
    let judged = by_cpu(facts, &clocked(facts, context, &context.isolated.value), |cpu| {
        let (low, high) = (&cpu.frequency.scaling_min, &cpu.frequency.scaling_max);
        let (min, max) = (*known(low)?, *known(high)?);
        let floor = steady(facts, cpu.id).filter(|_| !one_frequency(facts, context));
        let above = cpu.frequency.hardware_max.get().filter(|most| *most > max);
        let up_to = |most| format!(", up to about {}", megahertz(most));
        let judgement = match min == max {
            true if boosts(facts, cpu) && cpu.frequency.hardware_max.get() == Some(max) => {
                Judgement::pass(format!("the frequency is {} or, as boost is on, higher", megahertz(min)))
            }
            true => Judgement::pass(format!("the frequency is {}", megahertz(min))),
            false if floor.is_some_and(|floor| min >= floor) => {
                let text =
                    format!("the frequency does not fall below {}; turbo reaches {}", megahertz(min), megahertz(max));
                Judgement::pass(text)
            }
            false => {
                // With cpufreq's `boost`, the frequency can exceed the limits of acpi-cpufreq.
                let (verb, boost) = match boosts(facts, cpu) {
                    // For acpi-cpufreq, the highest frequency is computed from the ratio that CPPC reports.
                    true => ("be set", format!("; boost goes above{}", above.map(up_to).unwrap_or_default())),
                    false => ("change", String::new()),
                };
                let text = format!("the frequency may {verb} between {} and {}{boost}", megahertz(min), megahertz(max));
                let stop = match facts.cpus.generation.get().and_then(stops) {
                    Some(true) => ", and each change stops the core",
                    _ => "",
                };
                let judgement = at_each_change(facts, Judgement::warn(format!("{text}{stop}")));
                match boosts(facts, cpu) {
                    true => {
                        let judgement = judgement.see_whether(&facts.scaling.boost, "on", "off");
                        above.iter().fold(judgement, |judgement, most| {
                            judgement.see_as(megahertz(*most), cpu.frequency.hardware_max.source())
                        })
                    }
                    false => judgement,
                }
            }
        };
        let judgement = judgement.costs(match one_frequency(facts, context) {
            false if base(facts, cpu.id).is_some() => format!("{FLOOR} {TURBO_STAYS}"),
            _ => of_bounds(facts, context, cpu, FLOOR),
        });
        Ok(judgement.see_as(megahertz(min), low.source()).see_as(megahertz(max), high.source()))
    });
    of_whole_cores(facts, judged, SPAN)
}

/// Whether a frequency change stops the core for about 12 us. According to the Intel P-state guide (section 4 and its
/// figures), it does so on the 2nd generation of Xeon Scalable; on the 3rd, the stop is shorter. `None` for generations
/// that the guide does not mention: the 1st (Skylake), although its core is like that of the 2nd, and all others.
pub(crate) fn stops(generation: Generation) -> Option<bool> {
    use Generation::*;
    match generation {
        CascadeLake => Some(true),
        IceLake => Some(false),
        Haswell | Broadwell | Skylake | CooperLake => None,
        SapphireRapids | EmeraldRapids | GraniteRapids | SierraForest => None,
        Zen1 | Zen2 | Zen3 | Zen4 | Zen5 => None,
    }
}

/// If frequency changes stop the core, adds the length of such a stop to a judgement about frequency changes.
pub(super) fn at_each_change(facts: &Facts, judgement: Judgement) -> Judgement {
    let generation = &facts.cpus.generation;
    match generation.get().filter(|generation| stops(*generation) == Some(true)) {
        Some(name) => judgement
            .takes(STOP)
            .also("each change of frequency also stops a core of Cascade Lake for about 12 us", STOP_SOURCE)
            .see_as(format!("{name:?}"), generation.source()),
        None => judgement,
    }
}

/// Whether a frequency change stops the core, and the name of the processor's generation. Fails if the generation is
/// unknown, or if the source does not mention it.
fn stops_here(facts: &Facts) -> Result<(bool, String), Skip> {
    let generation = &facts.cpus.generation;
    let value = *known(generation)?;
    let name = format!("{value:?}");
    let open =
        || Skip::unknown(format!("whether a change of frequency stops the core is not known: {}", not_named(&name)));
    Ok((stops(value).ok_or_else(open)?, name))
}

/// Says that the Intel P-state guide does not mention a processor. Used if [`stops`] returns `None`.
pub(crate) fn not_named(part: &str) -> String {
    format!(
        "the Intel P-state guide is about the 2nd and 3rd generation of Xeon Scalable (Cascade Lake, Ice Lake), not {part}"
    )
}

fn transition(facts: &Facts, context: &Context) -> Judged {
    let generation = &facts.cpus.generation;
    let (stops, name) = stops_here(facts)?;
    if !stops {
        return Judgement::pass(format!("a change of frequency stops a core of {name} for less than 1 us"))
            .see_as(name, generation.source())
            .alone();
    }
    by_cpu(facts, &clocked(facts, context, &context.critical(facts)), |cpu| {
        let (governor, range) = (&cpu.frequency.governor, &cpu.frequency);
        let (low, high) = (*known(&range.scaling_min)?, *known(&range.scaling_max)?);
        let judgement = match low == high {
            true => Judgement::pass("the frequency is fixed"),
            false => Judgement::warn(format!(
                "the frequency may change between {} and {} (governor {}), and each change stops the core ({name})",
                megahertz(low),
                megahertz(high),
                known(governor)?
            )),
        };
        Ok(judgement
            .see_as(name.as_str(), generation.source())
            .see_as(megahertz(low), range.scaling_min.source())
            .see_as(megahertz(high), range.scaling_max.source())
            .see(governor))
    })
}

fn epp(facts: &Facts, context: &Context) -> Judged {
    let judged = by_cpu(facts, &context.critical(facts), |cpu| {
        let epp = &cpu.frequency.epp;
        let judgement = match known(epp)?.as_str() {
            "performance" | "0" => Judgement::pass("the energy preference is performance"),
            other if is_fixed(cpu) == Some(true) => {
                Judgement::pass(format!("the frequency is fixed, so the energy preference {other} has no effect"))
            }
            other => Judgement::warn(format!("the energy preference is {other}, not performance")),
        };
        Ok(judgement.see(epp))
    });
    of_whole_cores(facts, judged, POWER)
}

fn epb(facts: &Facts, context: &Context) -> Judged {
    let judged = by_cpu(facts, &context.critical(facts), |cpu| {
        if let Some(epp) = cpu.frequency.epp.value() {
            return Err(Skip::not_applicable(format!(
                "the energy preference ({epp}) overrides the bias: cpu.epp judges it"
            )));
        }
        let bias = &cpu.energy_perf_bias;
        let judgement = match *known(bias)? {
            0 => Judgement::pass("the energy bias is 0, performance"),
            n => Judgement::warn(format!("the energy bias is {n} (0 to 15, where 0 is performance)")),
        };
        Ok(judgement.see(bias))
    });
    of_whole_cores(facts, judged, POWER)
}

fn turbo(facts: &Facts, context: &Context) -> Judged {
    // No use decides: of the sources for real-time hosts, FlexRAN asks for a fixed P-state, and OpenShift's vDU leaves
    // turbo on. The DPDK guide first asked to disable turbo, and later to consider it.
    const OFF: Side = Side {
        is: "turbo is off",
        want: "turbo off",
        who: "older editions of the DPDK guide, and the FlexRAN slides, which fix the P-state",
        of: &[],
    };
    const ON: Side = Side {
        is: "turbo is on (lowest mean latency, but the frequency varies)",
        want: "turbo on",
        who: "OpenShift's reference for 5G distributed units, DPDK guide and rigtorp.se",
        of: &[],
    };
    let fact = facts.scaling.turbo();
    let judgement = match *known(&fact)? {
        true => choose(context, [&OFF, &ON], 1),
        false => Judgement::pass("turbo is off: steady, but slower than it could be"),
    };
    let text = if fact.get() == Some(true) { "turbo on" } else { "turbo off" };
    // The file that shows turbo is also the one that switches it: intel_pstate's own, or cpufreq's for other drivers.
    let judgement = match fact.source().as_str().ends_with("/no_turbo") {
        true => judgement,
        false => judgement.now("echo 0 > /sys/devices/system/cpu/cpufreq/boost # steady; 1 is fast"),
    };
    judgement.see_as(text, fact.source()).alone()
}

fn dynamic_boost(facts: &Facts, context: &Context) -> Judged {
    let fact = &facts.scaling.hwp_dynamic_boost;
    if !*known(fact)? {
        return Judgement::pass("the driver does not raise the lowest frequency after waits for I/O")
            .see_whether(fact, "on", "off")
            .alone();
    }
    // With the governor performance, the driver always requests the highest frequency, so nothing is left to boost
    // (drivers/cpufreq/intel_pstate.c, intel_pstate_hwp_set and intel_pstate_hwp_boost_up).
    let critical = context.critical(facts);
    let mut governors = critical.iter().filter_map(|id| facts.cpus.cpu(id)).peekable();
    let is_idle = |cpu: &Cpu| {
        cpu.frequency.governor.is(|governor| governor == "performance") == Some(true) || is_fixed(cpu) == Some(true)
    };
    if governors.peek().is_some() && governors.all(is_idle) {
        return Judgement::pass("the driver may boost, but the frequency is at its highest already")
            .see_whether(fact, "on", "off")
            .alone();
    }
    let (stops, name) = stops_here(facts)?;
    let judgement = match stops {
        true => Judgement::warn(format!(
            "the driver briefly raises the lowest frequency after a task has waited for I/O, and each change stops \
                 the core for about {} ({name})",
            spaced(STOP)
        )),
        false => Judgement::pass(format!(
            "the driver briefly raises the lowest frequency after a task has waited for I/O; a change stops a core of \
                 {name} for less than 1 us"
        )),
    };
    let judgement = judgement.see_whether(fact, "on", "off").see_as(name, facts.cpus.generation.source());
    // This does not apply to CPUs with the governor performance.
    let moved = critical.iter().filter_map(|id| facts.cpus.cpu(id)).find(|cpu| !is_idle(cpu));
    judgement.see_if(moved.map(|cpu| &cpu.frequency.governor)).alone()
}

/// Tolerance, in Hz: something limits a CPU that runs slower than its guaranteed frequency by more than this
/// (mlnx_tune).
const SLACK_HZ: u64 = 100_000_000;

fn observed(facts: &Facts, context: &Context) -> Judged {
    by_cpu(facts, &context.isolated.value, |cpu| {
        let frequency = &cpu.frequency;
        let current = *known(&frequency.current)?;
        // Turbo is not guaranteed. The base frequency is, or the upper limit if that is lower.
        let bound = match (frequency.base.get(), frequency.scaling_max.get()) {
            (Some(base), Some(max)) => base.min(max),
            (None, Some(max)) if facts.scaling.turbo().get() == Some(false) => max,
            (Some(base), None) => base,
            _ => return Err(Skip::unknown("base_frequency is not known, and turbo may be on")),
        };
        let busy = facts.interval.value().and_then(|interval| interval.change.cpu_times.value()?.get(&cpu.id).copied());
        let idle = busy.is_none_or(|times| times.idle > times.user.saturating_add(times.system));
        if current.as_hertz() + SLACK_HZ >= bound.as_hertz() {
            let least = Hertz::new(bound.as_hertz().saturating_sub(SLACK_HZ));
            return Ok(Judgement::pass(format!("ran at {} or more when it was read", megahertz(least)))
                .see_as(megahertz(current), frequency.current.source()));
        }
        // The kernel measures at the tick. For a CPU without a tick it shows `policy->cur`, which drivers that
        // leave the choice to the hardware set to a minimum and never update
        // (arch/x86/kernel/cpu/aperfmperf.c, arch_freq_get_on_cpu; drivers/cpufreq/intel_pstate.c,
        // intel_pstate_set_policy; amd-pstate.c, amd_pstate_epp_cpu_init).
        let ticks = !idle && facts.cpus.nohz_full.is(|full| full.contains(cpu.id)) != Some(true);
        let chooses = frequency.driver.is(|driver| ["intel_pstate", "amd-pstate-epp"].contains(&driver.as_str()));
        let lowest = [frequency.hardware_min.get(), frequency.scaling_min.get()];
        let is_lowest = lowest.contains(&Some(current)) || lowest == [None, None];
        if !ticks && is_lowest && chooses != Some(false) {
            let text = "for a CPU that is idle or has stopped its tick, the kernel shows the minimum instead of a \
                        measurement; turbostat measures";
            return Err(Skip::unknown(text));
        }
        // An idle CPU may be slow.
        if idle && frequency.governor.is(|governor| governor == "performance") != Some(true) {
            return Err(Skip::unknown("the CPU was idle, or it is not known whether it was"));
        }
        Ok(Judgement::warn(format!("ran below {} by more than 100 MHz when it was read", megahertz(bound)))
            .see_as(megahertz(current), frequency.current.source()))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    const PSTATE: &str = "/sys/devices/system/cpu/intel_pstate";

    /// Every CPU with a policy of its own, whose file holds this.
    fn policies(host: Host, file: &str, text: &str) -> Host {
        (0..8).fold(host, |host, n| host.file(&format!("/sys/devices/system/cpu/cpufreq/policy{n}/{file}"), text))
    }

    fn bounds(low: &str, high: &str) -> Host {
        policies(policies(host().isolated("2-7"), "scaling_min_freq", low), "scaling_max_freq", high)
    }

    fn model(stepping: u32, low: &str) -> Host {
        let info =
            format!("processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\nstepping : {stepping}\n");
        policies(bounds(low, "2200000"), "scaling_governor", "powersave").file("/proc/cpuinfo", &info)
    }

    fn ice_lake() -> Host {
        let info = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\nstepping : 6\n";
        model(7, "800000").file("/proc/cpuinfo", info)
    }

    fn based(host: Host, base: &str) -> Host {
        policies(host, "base_frequency", base)
    }

    fn boost(host: Host) -> Host {
        host.file(&format!("{PSTATE}/hwp_dynamic_boost"), "1\n")
    }

    fn bias(text: &str) -> Host {
        (0..8)
            .fold(host(), |host, n| host.file(&format!("/sys/devices/system/cpu/cpu{n}/power/energy_perf_bias"), text))
    }

    fn seen(current: &str) -> Host {
        let host = policies(bounds("2200000", "2200000"), "scaling_governor", "performance");
        let host = policies(policies(host, "scaling_cur_freq", current), "base_frequency", "2200000");
        policies(policies(host, "cpuinfo_min_freq", "800000"), "scaling_driver", "intel_pstate\n")
    }

    /// Full dynamic ticks on the isolated CPUs.
    fn unmeasured(current: &str) -> Host {
        seen(current).file("/sys/devices/system/cpu/nohz_full", "2-7\n")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cpu.governor", || policies(host(), "scaling_governor", "performance\n")),
        Case::warn("cpu.governor", || policies(host(), "scaling_governor", "powersave\n")),
        Case::pass("cpu.governor", || policies(bounds("2200000", "2200000"), "scaling_governor", "powersave\n")),
        Case::unknown("cpu.governor", host),
        Case::not_applicable("cpu.governor", || host().complete()),
        Case::not_applicable("cpu.governor", || policies(host().guest(), "scaling_governor", "powersave\n")),
        Case::pass("cpu.freq-span", || bounds("2200000", "2200000")),
        Case::warn("cpu.freq-span", || bounds("800000", "2200000")),
        // A floor at the base frequency is enough where a change costs nothing, unless the host is a real-time one.
        Case::pass("cpu.freq-span", || based(ice_lake(), "800000")),
        Case::warn("cpu.freq-span", || based(ice_lake(), "900000")),
        Case::warn("cpu.freq-span", || based(ice_lake(), "800000").workload(crate::Workload::Rt)),
        Case::warn("cpu.freq-span", || based(model(7, "800000"), "800000")),
        Case::unknown("cpu.freq-span", || host().isolated("2-7")),
        Case::pass("cpu.pstate-transition-gen", || model(7, "2200000")),
        Case::warn("cpu.pstate-transition-gen", || model(7, "800000")),
        Case::unknown("cpu.pstate-transition-gen", host),
        // Skylake: the guide says it of the generation after it.
        Case::unknown("cpu.pstate-transition-gen", || model(4, "800000")),
        Case::pass("cpu.epp", || policies(host(), "energy_performance_preference", "performance\n")),
        Case::warn("cpu.epp", || policies(host(), "energy_performance_preference", "balance_performance\n")),
        Case::pass("cpu.epp", || {
            policies(bounds("2200000", "2200000"), "energy_performance_preference", "balance_performance\n")
        }),
        Case::unknown("cpu.epp", host),
        Case::pass("cpu.epb", || bias("0\n")),
        Case::warn("cpu.epb", || bias("6\n")),
        Case::not_applicable("cpu.epb", || policies(bias("6\n"), "energy_performance_preference", "power\n")),
        Case::unknown("cpu.epb", host),
        Case::pass("cpu.turbo", || host().file(&format!("{PSTATE}/no_turbo"), "1\n")),
        Case::disagree("cpu.turbo", || host().file("/sys/devices/system/cpu/cpufreq/boost", "1\n")),
        Case::unknown("cpu.turbo", host),
        Case::pass("cpu.hwp-dynamic-boost", || host().file(&format!("{PSTATE}/hwp_dynamic_boost"), "0\n")),
        Case::warn("cpu.hwp-dynamic-boost", || boost(model(7, "800000"))),
        Case::pass("cpu.hwp-dynamic-boost", || boost(model(7, "2200000"))),
        Case::pass("cpu.hwp-dynamic-boost", || boost(ice_lake())),
        Case::unknown("cpu.hwp-dynamic-boost", || boost(host())),
        Case::unknown("cpu.hwp-dynamic-boost", || boost(model(4, "800000"))),
        Case::unknown("cpu.hwp-dynamic-boost", host),
        Case::pass("cpu.freq-observed", || seen("2195000")),
        Case::warn("cpu.freq-observed", || seen("1500000")),
        Case::unknown("cpu.freq-observed", || host().isolated("2-7")),
        // What the kernel shows of a CPU whose tick has stopped is no measurement.
        Case::unknown("cpu.freq-observed", || unmeasured("800000")),
        Case::unknown("cpu.freq-observed", || policies(unmeasured("1200000"), "scaling_min_freq", "1200000")),
        Case::warn("cpu.freq-observed", || unmeasured("1500000")),
        Case::warn("cpu.freq-observed", || policies(unmeasured("800000"), "scaling_driver", "acpi-cpufreq\n")),
    ];

    /// clx2s0: what each change of frequency stops is not only slower.
    #[test]
    fn a_governor_that_changes_frequency_stops_a_core_of_cascade_lake() {
        let effect = |host: Host| host.judge("cpu.governor").remove(0).effect;
        assert_eq!(effect(model(7, "800000")), Some(crate::Effect::Late(super::STOP)));
        assert_eq!(effect(ice_lake()), None);
    }

    /// emr0: what ran at 1881 MHz, with a base of 1900, did not run at 1900 or more.
    #[test]
    fn a_frequency_is_said_to_be_no_higher_than_it_was() {
        let found = |hertz: &str| seen(hertz).judge("cpu.freq-observed").remove(0).found;
        assert_eq!(found("2195000"), "ran at 2100 MHz or more when it was read");
    }

    /// tuned's profiles have no switch for turbo but cpu-partitioning-powersave's, which turns it off.
    #[test]
    fn nobody_advises_what_he_does_not_set() {
        let found = &host().file("/sys/devices/system/cpu/cpufreq/boost", "1\n").judge("cpu.turbo")[0].found;
        assert!(found.contains("OpenShift") && !found.contains("tuned"), "{found}");
        assert!(!crate::rules::find("cpu.turbo").unwrap().fix.conflicts.concat().contains("tuned"));
    }

    /// rome0, genoa0: acpi-cpufreq has no intel_pstate/no_turbo, and its highest state boosts.
    #[test]
    fn boost_is_switched_where_it_shows_and_bounds_do_not_stop_it() {
        let host = host().isolated("2-7").file("/sys/devices/system/cpu/cpufreq/boost", "1\n");
        let host = policies(host, "scaling_driver", "acpi-cpufreq\n");
        let host = policies(policies(host, "scaling_min_freq", "1500000"), "scaling_max_freq", "3250000");
        let host = policies(host, "bios_limit", "3250000");
        let now = &host.judge("cpu.turbo")[0].now;
        assert_eq!(now, &["echo 0 > /sys/devices/system/cpu/cpufreq/boost # steady; 1 is fast"]);
        let cost = |host: &Host| host.judge("cpu.freq-span")[0].cost.clone().unwrap();
        assert!(cost(&host).ends_with(super::TURBO_STAYS));
        assert!(cost(&host.workload(crate::Workload::Rt)).contains("Boost stays on"));
        let known = based(bounds("800000", "2200000"), "2000000");
        assert!(cost(&known.workload(crate::Workload::Rt)).contains("No turbo above"));
        // amd-pstate without CPPC's frequencies: boost is in the minimum, whether it is fixed or not.
        for host in [bounds("800000", "2200000"), bounds("800000", "2200000").workload(crate::Workload::Rt)] {
            assert!(cost(&host).ends_with(super::HIGHEST), "{}", cost(&host));
        }
    }

    /// CPUs 4-7 of cores 4/12 to 7/15: the other threads of the cores keep the clock moving.
    #[test]
    fn the_other_threads_of_the_cores_are_fixed_too() {
        // CPUs 2 and 3 are isolated, 6 and 7 the other threads of their cores.
        let host = |own: &str, other: &str| {
            let host = model(7, "800000").isolated("2-3");
            (0..8).fold(host, |host, n| {
                let low = if [2, 3].contains(&n) { own } else { other };
                let policy = format!("/sys/devices/system/cpu/cpufreq/policy{n}");
                let threads = format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
                host.file(&threads, &format!("{},{}", n % 4, n % 4 + 4))
                    .file(&format!("{policy}/scaling_min_freq"), low)
            })
        };
        for id in ["cpu.freq-span", "cpu.pstate-transition-gen"] {
            let judgement = host("2200000", "800000").judge(id);
            let moving: Vec<String> = judgement
                .iter()
                .filter(|one| one.verdict == crate::Verdict::Warn)
                .map(|one| one.subject.to_string())
                .collect();
            assert_eq!(moving, ["CPUs 6-7"], "{id}: {judgement:?}");
            assert_eq!(host("2200000", "2200000").judge(id).len(), 1);
        }
        // For a floor the own request is enough; the fix names whole cores all the same.
        let floor = based(ice_lake(), "2200000").isolated("2-3");
        assert_eq!(floor.judge("cpu.freq-span")[0].subject.to_string(), "CPUs 2-3");
        // gnr0: CPUs 44-64 of housekeeping are the other threads of 300-320.
        let cost = |host: Host, id: &str| host.judge(id)[0].cost.clone().unwrap_or_default();
        let threads = |host: Host| {
            (0..8).fold(host, |host, n| {
                let place = format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
                host.file(&place, &format!("{},{}", n % 4, n % 4 + 4))
            })
        };
        let also = " Also changes CPUs 6-7, which share these cores.";
        let stays = format!("{} {}", super::FLOOR, super::TURBO_STAYS);
        assert_eq!(cost(threads(floor.clone()), "cpu.freq-span"), format!("{stays}{also}"));
        let saving = policies(threads(floor.clone()), "energy_performance_preference", "power\n");
        let saving = policies(saving, "scaling_governor", "powersave\n");
        for id in ["cpu.governor", "cpu.epp"] {
            assert_eq!(cost(saving.clone(), id), format!("{}{also}", super::POWER), "{id}");
        }
        let one = threads(floor.clone()).isolated("2-3,6");
        assert!(cost(one, "cpu.freq-span").ends_with("Also changes CPU 7, which shares a core with them."));
        assert_eq!(cost(threads(floor.clone()).isolated("2-3,6-7"), "cpu.freq-span"), stays);
        let intent = crate::Intent { isolated: Some("2-3".parse().unwrap()), ..crate::Intent::default() };
        let facts = policies(host("800000", "800000"), "energy_performance_preference", "power\n").facts();
        let report = crate::audit(&facts, &intent);
        for (id, command) in [
            ("cpu.freq-span", "cpupower -c 2-3,6-7 frequency-set -d 2200MHz -u 2200MHz"),
            ("cpu.governor", "cpupower -c 2-3,6-7 frequency-set -g performance"),
            (
                "cpu.epp",
                "for n in 2 3 6 7; do echo performance > /sys/devices/system/cpu/cpu$n/cpufreq/energy_performance_preference; done",
            ),
        ] {
            let finding = report.findings.iter().find(|finding| finding.rule.id == id).unwrap();
            let steps: Vec<String> = finding.fix.steps().map(ToString::to_string).collect();
            assert!(steps.iter().any(|step| step.contains(command)), "{id}: {steps:?}");
            let of: Vec<u32> = finding
                .fix
                .settings()
                .flat_map(|setting| match &setting.place {
                    crate::remedy::Place::Cpus(cpus, _) => cpus.iter().collect::<Vec<u32>>(),
                    _ => Vec::new(),
                })
                .collect();
            assert!(of.contains(&6) && of.contains(&3) && !of.contains(&1), "{id}: {of:?}");
        }
    }

    /// A lower frequency makes work slower, and no packet late: no time is claimed, of Intel's documents least of all.
    #[test]
    fn what_makes_work_slower_claims_no_time() {
        let host = policies(bounds("800000", "3500000"), "scaling_governor", "powersave\n");
        let host = policies(host, "energy_performance_preference", "balance_performance\n");
        for id in ["cpu.governor", "cpu.epp"] {
            let rule = crate::rules::find(id).unwrap();
            assert_eq!(rule.magnitude.effect, crate::Effect::Slower, "{id}");
            assert!(!rule.magnitude.text.contains("500 us"), "{id}");
            let judgement = host.judge(id).remove(0);
            let finding = crate::Finding::new(
                crate::Group::Cpu,
                rule,
                judgement,
                &crate::Context::default(),
                &host::facts::CpuSet::new(),
                &host.facts(),
            );
            assert_eq!((finding.effect, finding.slower), (None, true), "{id}");
        }
        let found = &host.judge("cpu.governor")[0].found;
        assert_eq!(found, "the governor is powersave; the clock may fall to 800 MHz");
        // Where a change stops the core, packets wait for it.
        let spans = |host: Host| host.judge("cpu.freq-span")[0].effect;
        assert_eq!(spans(model(7, "800000")), Some(crate::Effect::Late(super::STOP)));
        assert_eq!((spans(ice_lake()), spans(bounds("800000", "2200000"))), (None, None));
    }

    /// skld0, a Xeon D-2146NT: the guide does not name it, so nothing takes its turbo away.
    #[test]
    fn no_stop_is_claimed_of_a_generation_that_the_guide_does_not_name() {
        // The guide names the 2nd and the 3rd generation of Xeon Scalable alone.
        for other in [super::Generation::Skylake, super::Generation::EmeraldRapids, super::Generation::SierraForest] {
            assert_eq!(super::stops(other), None, "{other:?}");
        }
        let skylake = || based(model(4, "800000"), "2000000");
        let judgement = skylake().judge("cpu.freq-span").remove(0);
        assert_eq!(judgement.found, "the frequency may change between 800 MHz and 2200 MHz");
        assert_eq!(judgement.effect, None);
        assert!(judgement.cost.is_some_and(|cost| cost.ends_with(super::TURBO_STAYS)));
        let unknown = skylake().judge("cpu.pstate-transition-gen").remove(0).verdict;
        assert_eq!(
            unknown.reason(),
            Some(
                "whether a change of frequency stops the core is not known: the Intel P-state guide is about the 2nd and 3rd \
                 generation of Xeon Scalable (Cascade Lake, Ice Lake), not Skylake"
            )
        );
        let intent = crate::Intent { isolated: Some("2-3".parse().unwrap()), ..crate::Intent::default() };
        let report = crate::audit(&skylake().facts(), &intent);
        let span = report.findings.iter().find(|finding| finding.rule.id == "cpu.freq-span").unwrap();
        let steps: Vec<String> = span.fix.runtime.iter().map(ToString::to_string).collect();
        assert_eq!(steps, ["cpupower -c 2-3 frequency-set -d 2000MHz"]);
        assert!(span.slower && span.effect.is_none());
    }
}

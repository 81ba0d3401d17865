//! Rules on registers for frequency and power. This module decodes the registers.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{Cpu, CpuSet, IdleState, Vendor, bits};
use units::Nanos;

use super::frequency::{POWER, at_each_change, of_bounds, of_whole_cores};
use super::idle;
use super::uncore::is_client;
use crate::remedy::steady;
use crate::rules::common::{HWP, by_cpu};
use crate::rules::one_frequency;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Verdict, known};

const SDM: &str = "Intel SDM volume 4, model-specific registers";

const INTEL: Applies = Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cpu.hwp-request",
        cause: Cause::CoreFrequency,
        title: "The hardware cannot lower the performance level",
        applies: INTEL,
        judge: hwp_request,
        why: "The hardware follows IA32_HWP_REQUEST (MSR 0x774), whatever sysfs says. This register holds the lowest and the highest performance level, and the energy preference. Between the two levels the frequency falls while there is little to do. On servers a level is a multiple of 100 MHz; hybrid parts use a scale of their own.",
        magnitude: Magnitude::slower(
            "until the frequency has risen, work takes longer, by up to the ratio of the highest to the lowest \
                   level",
            "Intel SDM volume 3, section 15.4 (HWP); the ratio is calculated",
        ),
        fix: Fix::runtime(HWP),
        cost: POWER,
        references: &["Intel SDM volume 3, section 15.4 (HWP)", "Intel P-state guide 637284-001US"],
    },
    Rule {
        id: "cpu.ee-turbo",
        cause: Cause::CoreFrequency,
        title: "Turbo is granted without delay",
        applies: INTEL,
        judge: efficient_turbo,
        why: "With energy-efficient turbo the hardware grants turbo only after it has judged that the work profits \
              from it. Bit 19 of MSR 0x1FC switches it off, but Linux uses this bit only on Kaby Lake and Coffee Lake \
              desktops.",
        magnitude: Magnitude::slower(
            "turbo comes later; the source gives no number",
            "Linux drivers/cpufreq/intel_pstate.c, MSR_IA32_POWER_CTL_BIT_EE",
        ),
        fix: Fix::boot("firmware setting Energy Efficient Turbo: disabled"),
        cost: "The CPUs use a little more power.",
        references: &[SDM, "OpenShift vDU reference configuration, host firmware"],
    },
    Rule {
        id: "cpu.prefetchers",
        cause: Cause::Cache,
        title: "All CPUs use the same prefetchers",
        applies: INTEL,
        judge: prefetchers,
        why: "MSR 0x1A4 can switch off each of the four prefetchers of a core. If CPUs differ, the same code takes \
              different times on them.",
        magnitude: Magnitude::slower(
            "depends on the code; a miss that a prefetcher would have hidden costs about 80 ns",
            "general knowledge of memory latency; FlexRAN real-time platform slides (2018) list the prefetcher without a number",
        ),
        fix: Fix::both("wrmsr -a 0x1a4 0", "firmware settings of the prefetchers, the same for all"),
        cost: "Prefetchers use memory bandwidth.",
        references: &[
            "Intel, Disclosure of Hardware Prefetcher Control on Some Intel Processors",
            "FlexRAN real-time platform slides (2018), Processor Optimizations",
        ],
    },
    Rule {
        id: "cpu.ddio",
        cause: Cause::Cache,
        title: "All sockets give devices the same ways of the cache",
        applies: INTEL,
        judge: ddio,
        why: "Devices write packets into some ways of the last-level cache (MSR 0xC8B). If sockets differ, the same ring \
         fits into the cache of one socket and spills into memory on the other.",
        magnitude: Magnitude::slower(
            "about 80 ns more for each packet whose buffer was evicted to memory",
            "general knowledge of memory latency; Farshin et al., Reexamining Direct Cache Access, USENIX ATC 2020, describe the mechanism",
        ),
        fix: Fix::boot("write the same ways into MSR 0xc8b of each socket, or use the firmware's defaults on all"),
        cost: "Applications and devices share the same ways of the cache.",
        references: &[
            "Farshin et al., Reexamining Direct Cache Access to Optimize I/O Intensive Applications, USENIX ATC 2020",
        ],
    },
    Rule {
        id: "idle.pkg-cstate",
        cause: Cause::IdleStates,
        title: "The package does not sleep",
        applies: INTEL,
        judge: package,
        why: "When all cores of a socket sleep deeply, the uncore (mesh, memory controllers and links) may sleep too. \
              Its exit latency comes on top of the core's.",
        magnitude: Magnitude::untimed(
            "the package's exit latency comes on top of the core's own; the source gives no figure",
            "Intel SDM volume 4 on MSR_PKG_CST_CONFIG_CONTROL, the register that holds the limit",
        ),
        fix: Fix::boot("firmware setting Package C State: C0/C1"),
        cost: PACKAGE_COST,
        references: &[
            "Intel SDM volume 4, MSR_PKG_CST_CONFIG_CONTROL in the tables of each model",
            "Linux tools/power/x86/turbostat/turbostat.c, probe_cst_limit",
            "OpenShift vDU reference configuration, host firmware",
        ],
    },
    Rule {
        id: "idle.c1e",
        cause: Cause::IdleStates,
        title: "C1 is not promoted to C1E",
        applies: INTEL,
        judge: c1e,
        why: "With bit 1 of MSR 0x1FC set the hardware turns C1 into C1E, which lowers frequency and voltage too, \
              although the kernel asked for C1. On Alder Lake and Meteor Lake the bit decides for both states: if it \
              is set, both are C1E; if it is clear, both are C1.",
        magnitude: Magnitude::late(
            Nanos::from_micros(3),
            "4 us instead of 1 us on Ice Lake",
            "Linux drivers/idle/intel_idle.c, icx_cstates: C1 1 us, C1E 4 us",
        ),
        fix: Fix::both(
            "pepc cstates config --c1e-autopromote off # on all CPUs: the register is the package's",
            "firmware setting Enhanced Halt State (C1E): disabled",
        ),
        cost: "Idle cores keep their voltage.",
        references: &[
            SDM,
            "Linux drivers/idle/intel_idle.c, adl_cstates",
            "Linux commit 9edf3c0ffef0 (intel_idle: add SPR support): C1, C1E and the bit before Sapphire Rapids",
            "intel/pepc, C1E autopromote",
            "OpenShift vDU reference configuration, host firmware",
        ],
    },
    Rule {
        id: "idle.c1-demotion",
        cause: Cause::IdleStates,
        title: "The hardware does not override the kernel's choice of idle state",
        applies: INTEL,
        judge: demotion,
        why: "Bits 25 to 28 of MSR 0xE2 let the hardware decide by itself to enter a shallower state than the kernel asks for (demotion), or to undo that (undemotion). A wake-up then takes the exit latency of either state, and the kernel's counters do not tell which.",
        magnitude: Magnitude::untimed(
            "demotion never makes a wake-up longer than the requested state would, but the exit latency varies between the two states",
            "Intel SDM volume 4, MSR_PKG_CST_CONFIG_CONTROL, bits 25 to 28",
        ),
        fix: Fix::both(
            "pepc cstates config --cpus {core} --c1-demotion off --c1-undemotion off",
            "firmware setting C1 auto demotion: disabled",
        ),
        cost: DEMOTION_COST,
        references: &[SDM, "intel/pepc, C1 demotion"],
    },
];

const PACKAGE_COST: &str = "An idle socket uses more power: tens of watts on a large server, less on a small one.";

const DEMOTION_COST: &str =
    "Where states deeper than C1E are enabled, the CPU wakes up from them more often: limit them too (idle.states).";

fn hwp_request(facts: &Facts, context: &Context) -> Judged {
    let enabled = facts.msrs.register(0x770);
    let off = |id: u32| facts.msrs.of(0x770, id).get().is_some_and(|value| bits(value, 0, 0) == 0);
    // On the server models that are known, a level is a multiple of 100 MHz. Hybrid processors have scales of their own
    // (drivers/cpufreq/intel_pstate.c, hybrid_get_cpu_scaling).
    let servers = facts.cpus.generation.is_known();
    let level = |level: u64| if servers { format!("{} MHz", level * 100) } else { format!("level {level}") };
    let judged = by_cpu(facts, &context.critical(facts), |cpu| {
        if off(cpu.id) {
            return Err(Skip::not_applicable("hardware-controlled states are off (MSR 0x770 bit 0)"));
        }
        let fact = facts.msrs.of(0x774, cpu.id);
        let value = *known(&fact)?;
        if bits(value, 42, 42) == 1 {
            return Err(Skip::unknown(format!("{}, bit 42: the package's request (MSR 0x772) counts", fact.source())));
        }
        let (min, max, epp) = (bits(value, 7, 0), bits(value, 15, 8), bits(value, 31, 24));
        let floor = steady(facts, cpu.id).filter(|_| servers && !one_frequency(facts, context));
        let held = floor.is_some_and(|floor| min * 100_000_000 >= floor.as_hertz());
        let judgement = match min == max {
            true => Judgement::pass(format!("the kernel requests {}", level(max))),
            false if held => Judgement::pass(format!(
                "the kernel requests {} to {}: not below the base frequency",
                level(min),
                level(max)
            )),
            false => {
                let found = format!(
                    "the kernel requests {} to {} with an energy preference of {epp} (0 is for performance, 255 for saving power)",
                    level(min),
                    level(max)
                );
                at_each_change(facts, Judgement::warn(found)).costs(of_bounds(facts, context, cpu, POWER))
            }
        };
        let judgement = judgement.see_as(format!("0x{value:x}"), format!("{}, bits 7:0, 15:8, 31:24", fact.source()));
        Ok(match enabled.is_known() {
            true => judgement.see_as("hardware-controlled performance states (HWP) are on", "MSR 0x770, bit 0"),
            false => judgement,
        })
    });
    of_whole_cores(facts, judged, POWER)
}

/// Judges one field of a register on every critical CPU.
fn field(
    facts: &Facts,
    context: &Context,
    address: u32,
    (high, low): (u32, u32),
    judge: fn(u64) -> Judgement,
) -> Judged {
    by_cpu(facts, &context.critical(facts), |cpu| {
        let fact = facts.msrs.of(address, cpu.id);
        let value = *known(&fact)?;
        let place = if high == low { format!("bit {low}") } else { format!("bits {high}:{low}") };
        Ok(judge(bits(value, high, low)).see_as(format!("0x{value:x}"), format!("{}, {place}", fact.source())))
    })
}

fn efficient_turbo(facts: &Facts, context: &Context) -> Judged {
    /// CPU model number of Kaby Lake and Coffee Lake desktops (drivers/cpufreq/intel_pstate.c,
    /// `intel_pstate_cpu_ee_disable_ids`).
    const NAMED: u32 = 0x9E;
    let model = *known(&facts.cpus.model)?;
    if model != NAMED {
        return Err(Skip::unknown(format!(
            "Linux uses bit 19 of MSR 0x1FC as the switch of energy-efficient turbo on model 0x{NAMED:x} only; this CPU is model 0x{model:x}"
        )));
    }
    field(facts, context, 0x1FC, (19, 19), |disabled| match disabled {
        0 => Judgement::warn("energy-efficient turbo is on"),
        _ => Judgement::pass("energy-efficient turbo is off"),
    })
}

/// Checks that a register has the same value on all CPUs.
fn alike(facts: &Facts, address: u32, what: &str) -> Judged {
    let register = facts.msrs.register(address);
    let values = known(&register)?;
    let mut groups: Vec<(u64, CpuSet)> = Vec::new();
    for (cpu, value) in values.iter() {
        match groups.iter_mut().find(|(other, _)| other == value) {
            Some((_, cpus)) => cpus.insert(*cpu),
            None => groups.push((*value, CpuSet::from([*cpu]))),
        }
    }
    let text = |(value, cpus): &(u64, CpuSet)| format!("0x{value:x} on CPUs {cpus}");
    let found = groups.iter().map(text).collect::<Vec<_>>().join(", ");
    let judgement = match groups.len() {
        0 => return Err(Skip::unknown(format!("{} was read on no CPU", register.source()))),
        1 => Judgement::pass(format!("{what}: {found}")),
        _ => Judgement::warn(format!("{what} differ: {found}")),
    };
    judgement.see_as(found, register.source()).alone()
}

fn prefetchers(facts: &Facts, _: &Context) -> Judged {
    let none = |judgement: &mut Judgement| {
        if let Some(cpus) = judgement.found.strip_prefix("prefetchers that are off: 0x0 ") {
            judgement.found = format!("no prefetcher is off: MSR 0x1a4 is 0x0 {cpus}");
        }
    };
    let mut judgements = alike(facts, 0x1A4, "prefetchers that are off")?;
    judgements.iter_mut().for_each(none);
    Ok(judgements)
}

fn ddio(facts: &Facts, _: &Context) -> Judged {
    alike(facts, 0xC8B, "ways of the cache for devices")
}

/// Names of the package C-state limits, indexed by their code, and the number of bits of the code. `None` for models
/// whose table is not included here. An empty name means that the code is reserved. Source: MSR_PKG_CST_CONFIG_CONTROL
/// in the model's table of Intel SDM volume 4, as read by tools/power/x86/turbostat/turbostat.c (`probe_cst_limit`) and
/// intel/pepc (PCStateConfigCtl.py).
fn limits(model: u32) -> Option<(&'static [&'static str], u32)> {
    const CLIENT: &[&str] = &["C0/C1", "C2", "C3", "C6", "C7", "C7s", "C8", "C9", "C10"];
    const HASWELL: &[&str] = &["C0/C1", "C2", "C3", "C6", "", "", "", "no limit"];
    const SKYLAKE: &[&str] = &["C0/C1", "C2", "C6 without retention", "C6 with retention", "", "", "", "no limit"];
    const ICE_LAKE: &[&str] = &["C0/C1", "C2", "C6", "C6", "", "", "", "no limit"];
    Some(match model {
        // Haswell, Broadwell, Skylake to Tiger Lake and Rocket Lake, Alder Lake, Raptor Lake.
        0x3C | 0x45 | 0x46 | 0x3D | 0x47 | 0x4E | 0x5E | 0x8E | 0x9E | 0xA5 | 0xA6 | 0x66 | 0x7D | 0x7E | 0x8C
        | 0x8D | 0xA7 | 0x97 | 0x9A | 0xBE | 0xB7 | 0xBA | 0xBF => (CLIENT, 4),
        // Haswell-EP, Broadwell-EP, Broadwell-DE.
        0x3F | 0x4F | 0x56 => (HASWELL, 3),
        // Sandy Bridge-EP, Ivy Bridge-EP; Skylake to Cooper Lake, Sapphire, Emerald and Granite Rapids.
        0x2D | 0x3E | 0x55 | 0x8F | 0xCF | 0xAD => (SKYLAKE, 3),
        0x6A | 0x6C => (ICE_LAKE, 3),
        _ => return None,
    })
}

/// Packages that cannot sleep, each with the number of a CPU that prevents it: this CPU may enter no state deeper than
/// C1E.
fn awake(facts: &Facts) -> BTreeMap<u32, u32> {
    let polls = facts.cmdline.value().is_some_and(|line| line.has_value("idle", "poll"));
    let shallow = |cpu: &&Cpu| {
        let deepest = idle::deepest(facts, cpu);
        let name = deepest.map(|state| state.map(idle::name));
        polls
            || name.is_ok_and(|name| {
                name.is_none_or(|name| name.starts_with("C1") && !name.starts_with("C10") || name == "POLL")
            })
    };
    let online = facts.cpus.all();
    let cpus = facts.cpus.list.iter().filter(|cpu| online.contains(cpu.id)).filter(shallow);
    cpus.filter_map(|cpu| Some((cpu.package.get()?, cpu.id))).collect()
}

fn package(facts: &Facts, context: &Context) -> Judged {
    let awake = awake(facts);
    let model = facts.cpus.model.get();
    by_cpu(facts, &context.critical(facts), |cpu| {
        let fact = facts.msrs.of(0xE2, cpu.id);
        let value = *known(&fact)?;
        let model = model.ok_or_else(|| Skip::of(&facts.cpus.model))?;
        let (names, width) = limits(model).ok_or_else(|| {
            Skip::unknown(format!("{} is 0x{value:x}; its code on model 0x{model:x} is not known", fact.source()))
        })?;
        let code = bits(value, width - 1, 0);
        let name = usize::try_from(code).ok().and_then(|code| names.get(code)).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Skip::unknown(format!("{}: code {code} is reserved", fact.source())))?;
        let locked = if bits(value, 15, 15) == 1 { ", locked by the firmware" } else { ", not locked" };
        let keeper = cpu.package.get().and_then(|package| awake.get(&package));
        let judgement = match (code, keeper) {
            (0, _) => Judgement::pass("the package C-state limit is C0/C1: the package stays awake"),
            (_, Some(keeper)) => Judgement::pass(format!(
                "the package C-state limit is {name}, but CPU {keeper} never sleeps deeper than C1E"
            )),
            _ => Judgement::warn(format!("the package C-state limit is {name}{locked}: an idle package may sleep"))
                .costs(if is_client(facts) { "An idle socket uses a few watts more." } else { PACKAGE_COST })
                .now(
                    "# without a reboot: on one CPU of each package, allow no state deeper than C1E (write the exit latency of C1E, in us, to that CPU's file power/pm_qos_resume_latency_us); this keeps the whole package awake",
                ),
        };
        Ok(judgement.see_as(format!("0x{value:x}"), format!("{}, bits {}:0 and 15", fact.source(), width - 1)))
    })
}

/// The state that a request for C1E enters, depending on bit 1 of MSR 0x1FC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promotion {
    /// Always C1E, whether or not the bit is set (commit 9edf3c0ffef0, for the Xeons before Sapphire Rapids).
    OfC1,
    /// C1E if the bit is set, C1 if it is clear. The two states cannot be enabled at the same time (intel_idle.c, above
    /// adl_cstates; commit eeae55e, intel_idle: Add Meteorlake support).
    OfBoth,
    /// It is not known whether the bit decides between C1 and C1E or has no effect. On Sapphire Rapids, this depends on
    /// the firmware version (commit 1548fac47a11).
    Unknown,
}

impl Promotion {
    fn of(facts: &Facts) -> Self {
        use host::facts::Generation::*;
        match (facts.cpus.generation.get(), facts.cpus.model.get()) {
            (Some(Haswell | Broadwell | Skylake | CascadeLake | CooperLake | IceLake), _) => Self::OfC1,
            // Alder Lake, its mobile variants, those with E-cores only, Meteor Lake.
            (_, Some(0x97 | 0x9A | 0xBE | 0xAA)) => Self::OfBoth,
            _ => Self::Unknown,
        }
    }

    /// Describes the effect of C1E promotion if the kernel requests C1E as its first state, and never C1.
    fn of_c1e(self, exit: &str) -> String {
        match self {
            Self::OfC1 => format!("promotion of C1 to C1E is on, but the kernel requests C1E, not C1{exit}"),
            Self::OfBoth => format!(
                "the kernel's first idle state is C1E{exit}: promotion of C1 to C1E is on, and without it C1E would be C1"
            ),
            Self::Unknown => format!("promotion of C1 to C1E is on; the kernel's first state is C1E{exit}"),
        }
    }
}

fn c1e(facts: &Facts, context: &Context) -> Judged {
    let (promotion, budget) = (Promotion::of(facts), context.budget());
    by_cpu(facts, &context.critical(facts), |cpu| {
        let fact = facts.msrs.of(0x1FC, cpu.id);
        let value = *known(&fact)?;
        // intel_idle calls states that come from the firmware C1_ACPI and so on.
        let is = |state: &IdleState, wanted: &str| {
            state.name.is(|name| name.strip_suffix("_ACPI").unwrap_or(name) == wanted) == Some(true)
        };
        let requested = |state: &&IdleState| state.disabled.get() != Some(true);
        let states = || cpu.idle_states.value().into_iter().flatten().filter(requested);
        let state = |wanted: &str| states().find(|state| is(state, wanted))?.exit_latency.get();
        let deeper = states().find(|state| state.name.is(|name| name.starts_with('C')) == Some(true));
        let judgement = match bits(value, 1, 1) {
            0 if promotion == Promotion::OfBoth && states().any(|state| is(state, "C1E")) => Judgement::pass(
                "C1 is not promoted to C1E, so the kernel's C1E is really C1: this model has only one of the two",
            ),
            0 => Judgement::pass("C1 is not promoted to C1E"),
            // Without any idle state of its own, the kernel halts the CPU, which enters C1.
            _ if let Some(first) = deeper
                && !states().any(|state| is(state, "C1")) =>
            {
                let late = first.exit_latency.get();
                let exit = late.map(|exit| format!(" ({exit})")).unwrap_or_default();
                let is_c1e = is(first, "C1E");
                let text = match is_c1e {
                    true => promotion.of_c1e(&exit),
                    false => format!(
                        "promotion of C1 to C1E is on, but the kernel's first state is {}{exit}",
                        idle::name(first)
                    ),
                };
                let judgement = match late.filter(|late| *late > budget) {
                    Some(late) if is_c1e && promotion == Promotion::OfBoth => Judgement::warn(text).takes(late),
                    _ => Judgement::pass(text),
                };
                let judgement = judgement.see(&first.name);
                match facts.cpus.model.get() {
                    Some(model) => judgement.see_as(format!("model {model}"), facts.cpus.model.source()),
                    None => judgement,
                }
            }
            _ => {
                let judgement = Judgement::warn("the hardware turns every C1 into C1E");
                match (state("C1"), state("C1E")) {
                    (Some(c1), Some(c1e)) => judgement.takes(c1e.saturating_sub(c1)),
                    _ => judgement,
                }
            }
        };
        Ok(judgement.see_as(format!("0x{value:x}"), format!("{}, bit 1", fact.source())))
    })
}

/// Whether bit 16 of MSR 0xE2 makes the CPU enter C6 instead of C1: "if 1, the processor will convert HALT or MWAIT(C1)
/// to MWAIT(C6)" (Intel SDM volume 4, MSR_PKG_CST_CONFIG_CONTROL). The models with this bit are those of turbostat
/// (has_cst_auto_convension): Xeon D and E5 v4 (Broadwell), and Skylake, Cascade Lake and Cooper Lake, which share one
/// model number.
fn converts(facts: &Facts, cpu: &Cpu, value: u64) -> bool {
    const MODELS: [u32; 3] = [0x4F, 0x55, 0x56];
    let has = facts.cpus.model.is(|model| MODELS.contains(model)) == Some(true);
    let polls = idle::deepest(facts, cpu).ok().flatten().is_some_and(|state| idle::name(state) == "POLL");
    has && !polls && bits(value, 16, 16) == 1
}

/// Adds to the judgement of the other bits that automatic C-state conversion is on.
fn converted(judgement: Judgement, cpu: &Cpu) -> Judgement {
    const WHAT: &str = "automatic C-state conversion is on: the hardware enters C6 where the kernel asks for C1";
    const SETTING: &str = "firmware setting Autonomous Core C-State (automatic C-state conversion): disabled";
    const COST: &str = "Idle cores stay in C1 if the kernel asks for it, and use more power.";
    let c6 =
        cpu.idle_states.value().into_iter().flatten().find(|state| state.name.is(|name| name == "C6") == Some(true));
    let judgement = match judgement.verdict {
        Verdict::Warn => Judgement { found: format!("{}; {WHAT}", judgement.found), ..judgement }
            .for_good("firmware setting C1 auto demotion: disabled")
            .costs(format!("{DEMOTION_COST} {COST}")),
        _ => Judgement::warn(WHAT).now("# nothing: the firmware sets bit 16 of MSR 0xe2").costs(COST),
    };
    let judgement = judgement
        .for_good(SETTING)
        .see_as("automatic C-state conversion: 1", "MSR 0xe2, bit 16")
        .also("automatic conversion makes C1 as late as C6", "Intel SDM volume 4, MSR_PKG_CST_CONFIG_CONTROL, bit 16");
    match c6.and_then(|state| state.exit_latency.get()) {
        Some(late) => judgement.takes(late),
        None => judgement,
    }
}

fn demotion(facts: &Facts, context: &Context) -> Judged {
    const BITS: [(u32, &str); 4] =
        [(25, "C3 demotion"), (26, "C1 demotion"), (27, "C3 undemotion"), (28, "C1 undemotion")];
    let judged = by_cpu(facts, &context.critical(facts), |cpu| {
        let fact = facts.msrs.of(0xE2, cpu.id);
        let value = *known(&fact)?;
        let on: Vec<&str> =
            BITS.iter().filter(|(bit, _)| bits(value, *bit, *bit) == 1).map(|(_, name)| *name).collect();
        let verb = if on.len() == 1 { "is" } else { "are" };
        let deepest = idle::deepest(facts, cpu).ok().flatten().map(idle::name);
        let judgement = match (on.as_slice(), deepest) {
            ([], _) => Judgement::pass(
                "C1 and C3 demotion and undemotion are off: the hardware enters the state that the kernel asks for",
            ),
            (on, Some(name)) if name.starts_with("C1") && !name.starts_with("C10") || name == "POLL" => {
                Judgement::pass(format!(
                    "{} {verb} on, but the kernel requests no state deeper than {name}",
                    on.join(" and ")
                ))
            }
            (on, _) => {
                let into: Vec<&str> = on.iter().filter_map(|name| name.strip_suffix(" demotion")).collect();
                let what = match into.as_slice() {
                    [] => "the hardware may override the kernel's choice of idle state".to_owned(),
                    into => {
                        format!("the hardware may enter {} where the kernel asks for a deeper state", into.join(" or "))
                    }
                };
                Judgement::warn(format!("{} {verb} on: {what}", on.join(" and ")))
            }
        };
        let judgement = if converts(facts, cpu, value) { converted(judgement, cpu) } else { judgement };
        let four = format!("0x{value:x}, of which bits 28:25 are {:04b}", bits(value, 28, 25));
        Ok(judgement.see_as(four, fact.source()))
    });
    of_whole_cores(facts, judged, DEMOTION_COST)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Nanos, Verdict};
    use crate::testing::{Case, Host, host};

    fn msr(address: &str, value: &str) -> Host {
        let lines: String = (0..8).map(|cpu| format!("{cpu} {value}\n")).collect();
        host().file(&format!("/msr/{address}"), &lines)
    }

    /// Facts of a host with a CPU of this model.
    fn of_model(model: u32, address: &str, value: &str) -> Host {
        let info = format!("processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : {model}\nstepping : 6\n");
        msr(address, value).file("/proc/cpuinfo", &info)
    }

    /// Facts of a host with a CPU of this model, and with idle states of these names and latencies.
    fn with_states(host: Host, states: &[(&str, &str)]) -> Host {
        (0..8).fold(host, |host, n| {
            states.iter().enumerate().fold(host, |host, (k, (name, latency))| {
                let place = format!("/sys/devices/system/cpu/cpu{n}/cpuidle/state{k}");
                host.file(&format!("{place}/name"), name)
                    .file(&format!("{place}/latency"), latency)
                    .file(&format!("{place}/disable"), "0")
            })
        })
    }

    fn on_one_package(host: Host) -> Host {
        (0..8).fold(host, |host, n| {
            host.file(&format!("/sys/devices/system/cpu/cpu{n}/topology/physical_package_id"), "0\n")
        })
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cpu.hwp-request", || msr("0x774", "0x1616")),
        Case::warn("cpu.hwp-request", || msr("0x774", "0x80002308")),
        Case::unknown("cpu.hwp-request", host),
        Case::pass("cpu.ee-turbo", || of_model(0x9E, "0x1fc", "0x80000")),
        Case::warn("cpu.ee-turbo", || of_model(0x9E, "0x1fc", "0x0")),
        Case::unknown("cpu.ee-turbo", || of_model(106, "0x1fc", "0x0")),
        Case::unknown("cpu.hwp-request", || msr("0x774", "0x40080002308")),
        Case::pass("cpu.prefetchers", || msr("0x1a4", "0x0")),
        Case::warn("cpu.prefetchers", || host().file("/msr/0x1a4", "0 0x0\n1 0xf\n")),
        Case::unknown("cpu.prefetchers", host),
        Case::pass("cpu.ddio", || msr("0xc8b", "0x600")),
        Case::warn("cpu.ddio", || host().file("/msr/0xc8b", "0 0x600\n1 0x7f0\n")),
        Case::unknown("cpu.ddio", host),
        Case::pass("idle.pkg-cstate", || of_model(106, "0xe2", "0x8000")),
        Case::warn("idle.pkg-cstate", || of_model(106, "0xe2", "0x8002")),
        Case::pass("idle.pkg-cstate", || {
            with_states(on_one_package(of_model(106, "0xe2", "0x8002")), &[("C1", "1"), ("C1E", "4")])
        }),
        Case::pass("idle.pkg-cstate", || on_one_package(of_model(106, "0xe2", "0x8002")).cmdline("idle=poll")),
        Case::unknown("idle.pkg-cstate", || of_model(1, "0xe2", "0x8002")),
        Case::unknown("idle.pkg-cstate", || of_model(106, "0xe2", "0x8005")),
        Case::unknown("idle.pkg-cstate", host),
        Case::pass("idle.c1e", || msr("0x1fc", "0x0")),
        Case::warn("idle.c1e", || msr("0x1fc", "0x2")),
        Case::pass("idle.c1e", || with_states(of_model(154, "0x1fc", "0x2"), &[("C1E", "2"), ("C6", "170")])),
        Case::unknown("idle.c1e", host),
        Case::pass("idle.c1-demotion", || msr("0xe2", "0x8000")),
        Case::warn("idle.c1-demotion", || msr("0xe2", "0x14000000")),
        Case::pass("idle.c1-demotion", || with_states(msr("0xe2", "0x14000000"), &[("C1", "1"), ("C1E", "4")])),
        Case::warn("idle.c1-demotion", || of_model(0x55, "0xe2", "0x18003")),
        Case::unknown("idle.c1-demotion", host),
        Case::not_applicable("idle.c1-demotion", || msr("0xe2", "0x0").guest()),
    ];

    #[test]
    fn a_request_is_decoded() {
        let of = |host: Host| host.judge("cpu.hwp-request");
        let server = of(of_model(106, "0x774", "0x80002308"));
        assert_eq!(
            server[0].found,
            "the kernel requests 800 MHz to 3500 MHz with an energy preference of 128 (0 is for performance, 255 for saving power)"
        );
        assert_eq!(server.len(), 1);
        // The levels of a hybrid part (Alder Lake, 12th Gen Core) are of another scale.
        let hybrid = of(of_model(154, "0x774", "0x66003c06"));
        assert_eq!(
            hybrid[0].found,
            "the kernel requests level 6 to level 60 with an energy preference of 102 (0 is for performance, 255 for saving power)"
        );
    }

    /// The registers of the recorded hosts, and what intel/pepc says of them.
    #[test]
    fn the_package_limit_is_decoded_by_model() {
        let found = |model: u32, value: &str| of_model(model, "0xe2", value).judge("idle.pkg-cstate")[0].found.clone();
        for (model, value, limit) in [
            (154, "0x74000008", "C10"),
            (86, "0x8403", "C6"),
            (85, "0x8403", "C6 with retention"),
            (207, "0x403", "C6 with retention"),
            (173, "0x22", "C6 without retention"),
            (106, "0x14000402", "C6"),
            (63, "0x7", "no limit"),
        ] {
            let text = found(model, value);
            let is_named = [":", ","].iter().any(|end| text.contains(&format!("limit is {limit}{end}")));
            assert!(is_named, "{model}: {text}");
        }
        assert!(found(106, "0x8402").contains("C6, locked by the firmware: "));
        assert!(found(85, "0x8400").contains("C0/C1"));
    }

    #[test]
    fn what_c1e_takes_is_of_this_host() {
        let judgements = with_states(msr("0x1fc", "0x2"), &[("C1", "1"), ("C1E", "4")]).judge("idle.c1e");
        assert_eq!(judgements[0].effect, Some(crate::Effect::Late(units::Nanos::from_micros(3))));
    }

    /// adl0 has no C1: there the bit makes C1E what it is. Where intel_idle takes the firmware's states, C1 is called
    /// C1_ACPI.
    #[test]
    fn what_promotion_does_without_a_c1_is_of_the_model() {
        let of = |model, value, states: &[(&str, &str)]| {
            with_states(of_model(model, "0x1fc", value), states).judge("idle.c1e").remove(0)
        };
        let first: &[(&str, &str)] = &[("POLL", "0"), ("C1E", "2"), ("C6", "170")];
        let found = |model, value| of(model, value, first).found;
        assert_eq!(
            found(154, "0x2"),
            "the kernel's first idle state is C1E (2us): promotion of C1 to C1E is on, and without it C1E would be C1"
        );
        assert_eq!(
            found(154, "0x0"),
            "C1 is not promoted to C1E, so the kernel's C1E is really C1: this model has only one of the two"
        );
        assert_eq!(found(106, "0x2"), "promotion of C1 to C1E is on, but the kernel requests C1E, not C1 (2us)");
        for other in [143, 1] {
            assert_eq!(found(other, "0x2"), "promotion of C1 to C1E is on; the kernel's first state is C1E (2us)");
        }
        let deep = of(154, "0x2", &[("C6", "170")]);
        assert_eq!(deep.found, "promotion of C1 to C1E is on, but the kernel's first state is C6 (170us)");
        let slow = of(154, "0x2", &[("C1E", "12"), ("C6", "170")]);
        assert_eq!(slow.effect, Some(crate::Effect::Late(units::Nanos::from_micros(12))));
        assert_eq!(of(106, "0x2", &[("POLL", "0"), ("C1_ACPI", "1"), ("C2_ACPI", "41")]).verdict, crate::Verdict::Warn);
    }

    /// Bit 16 makes C6 of C1, on the models that have it; without it, nothing is said of deeper states.
    #[test]
    fn conversion_is_told_from_demotion() {
        let of = |model: u32, value: &str, states: &[(&str, &str)]| {
            with_states(of_model(model, "0xe2", value), states).judge("idle.c1-demotion").remove(0)
        };
        let states = [("POLL", "0"), ("C1", "2"), ("C6", "92")];
        let what = "automatic C-state conversion is on: the hardware enters C6 where the kernel asks for C1";
        for model in [0x4F, 0x55, 0x56] {
            let judgement = of(model, "0x10403", &states);
            assert_eq!((judgement.found.as_str(), &judgement.verdict), (what, &Verdict::Warn));
            assert_eq!(judgement.effect, Some(crate::Effect::Late(Nanos::from_micros(92))));
            assert!(judgement.for_good[0].starts_with("firmware setting"), "{judgement:?}");
        }
        // Where nothing deeper than C1 is asked for it matters all the same.
        assert_eq!(of(0x55, "0x14010403", &states[..2]).found, what);
        let both = of(0x55, "0x14010403", &states);
        assert!(both.found.starts_with("C1 demotion and C1 undemotion are on: ") && both.found.ends_with(what));
        assert!(both.now.is_empty() && both.for_good.len() == 2, "{both:?}");
        let off = "C1 and C3 demotion and undemotion are off: the hardware enters the state that the kernel asks for";
        for (model, value) in [(0x55, "0x403"), (0x6A, "0x10403")] {
            assert_eq!(of(model, value, &states).found, off);
        }
        assert_eq!(of(0x55, "0x10403", &states[..1]).verdict, Verdict::Pass);
    }

    /// A portable computer's package saves no tens of watts.
    #[test]
    fn watts_of_a_package_are_of_its_kind() {
        let cost = |model: u32| of_model(model, "0xe2", "0x2").judge("idle.pkg-cstate").remove(0).cost.unwrap();
        assert_eq!(cost(154), "An idle socket uses a few watts more.");
        assert!(cost(106).contains("tens of watts"));
    }

    /// pepc(1), cstates: without --cpus all CPUs of the host are changed; the register is a core's, 0x1fc a package's.
    #[test]
    fn demotion_is_switched_off_for_the_cpus_of_the_finding() {
        let facts = with_states(msr("0xe2", "0x14000000"), &[("C1", "1"), ("C6", "170")]);
        let facts = facts.file("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,6\n").facts();
        let isolated = Some("2-3".parse().unwrap());
        let report = crate::audit(&facts, &crate::Intent { isolated, ..Default::default() });
        let finding = report.findings.iter().find(|finding| finding.rule.id == "idle.c1-demotion").unwrap();
        let step = finding.fix.runtime[0].to_string();
        assert_eq!(step, "pepc cstates config --cpus 2-3,6 --c1-demotion off --c1-undemotion off");
    }

    #[test]
    fn no_prefetcher_is_off_in_words() {
        assert_eq!(
            msr("0x1a4", "0x0").judge("cpu.prefetchers")[0].found,
            "no prefetcher is off: MSR 0x1a4 is 0x0 on CPUs 0-7"
        );
        assert_eq!(msr("0x1a4", "0xf").judge("cpu.prefetchers")[0].found, "prefetchers that are off: 0xf on CPUs 0-7");
    }
}

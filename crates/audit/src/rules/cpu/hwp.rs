//! Registers of frequency and power, decoded.

use host::Facts;
use host::facts::{CpuSet, Vendor, bits};
use units::Nanos;

use crate::rules::common::{HWP, by_cpu};
use crate::{Applies, Context, Fix, Group, Judged, Judgement, Magnitude, Rule, Subject, known};

const SDM: &str = "Intel SDM volume 4, model-specific registers";

const INTEL: Applies = Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]);

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cpu.hwp-request",
        group: Group::Cpu,
        title: "The hardware is asked for one frequency and for performance",
        applies: INTEL,
        judge: hwp_request,
        why: "IA32_HWP_REQUEST (MSR 0x774) is what the hardware acts on, whatever sysfs says: lowest and highest ratio, and the energy preference.",
        magnitude: Magnitude {
            text: "up to 500 us until a change is granted",
            typical: Some(Nanos::from_micros(500)),
            source: "Intel P-state guide 637284-001US",
        },
        fix: Fix::runtime(HWP),
        cost: "More power; the kernel's driver may write the register again.",
        references: &["Intel SDM volume 3, section 15.4 (HWP)", "Intel P-state guide 637284-001US"],
        conflicts: &[],
    },
    Rule {
        id: "cpu.ee-turbo",
        group: Group::Cpu,
        title: "Turbo is granted without delay",
        applies: INTEL,
        judge: efficient_turbo,
        why: "With energy-efficient turbo the hardware grants turbo only after it has judged that the work profits from it.",
        magnitude: Magnitude {
            text: "a later turbo; no size is published",
            typical: None,
            source: "Linux tools/power/x86/turbostat names bit 19 of MSR 0x1FC; no size is published",
        },
        fix: Fix::boot("firmware setting Energy Efficient Turbo: disabled"),
        cost: "Some power.",
        references: &[SDM, "OpenShift vDU reference configuration, host firmware"],
        conflicts: &[],
    },
    Rule {
        id: "cpu.prefetchers",
        group: Group::Cpu,
        title: "All CPUs use the same prefetchers",
        applies: INTEL,
        judge: prefetchers,
        why: "MSR 0x1A4 switches the four prefetchers of a core off one by one. CPUs that differ give the same code different times.",
        magnitude: Magnitude {
            text: "by code; a miss that a prefetcher would have hidden costs about 80 ns",
            typical: Some(Nanos::from_nanos(80)),
            source: "general knowledge of memory latency; FlexRAN real-time platform slides (2018) list the prefetcher without a number",
        },
        fix: Fix::both("wrmsr -a 0x1a4 0", "firmware settings of the prefetchers, the same for all"),
        cost: "Prefetchers use bandwidth of memory.",
        references: &[
            "Intel, Disclosure of Hardware Prefetcher Control on Some Intel Processors",
            "FlexRAN real-time platform slides (2018), Processor Optimizations",
        ],
        conflicts: &[],
    },
    Rule {
        id: "cpu.ddio",
        group: Group::Cpu,
        title: "All sockets give devices the same ways of the cache",
        applies: INTEL,
        judge: ddio,
        why: "Devices write packets into some ways of the last-level cache (MSR 0xC8B). Where sockets differ, the same ring fits into the cache of one \
              and spills into memory at the other.",
        magnitude: Magnitude {
            text: "about 80 ns more for each packet whose buffer was evicted to memory",
            typical: Some(Nanos::from_nanos(80)),
            source: "general knowledge of memory latency; Farshin et al., Reexamining Direct Cache Access, USENIX ATC 2020, describe the mechanism",
        },
        fix: Fix::boot("write the same ways into MSR 0xc8b of each socket, or use the firmware's defaults on all"),
        cost: "Ways for devices are not the applications' alone.",
        references: &[
            "Farshin et al., Reexamining Direct Cache Access to Optimize I/O Intensive Applications, USENIX ATC 2020",
        ],
        conflicts: &[],
    },
    Rule {
        id: "idle.pkg-cstate",
        group: Group::Cpu,
        title: "The package does not sleep",
        applies: INTEL,
        judge: package,
        why: "When all cores of a socket sleep deeply the uncore may too: mesh, memory controllers and links. The way out of it comes on top of the core's.",
        magnitude: Magnitude {
            text: "tens of microseconds on top of the core's own exit",
            typical: Some(Nanos::from_micros(40)),
            source: "general knowledge; MSR_PKG_CST_CONFIG_CONTROL, Intel SDM volume 4, holds the limit",
        },
        fix: Fix::boot("firmware setting Package C State: C0/C1"),
        cost: "Tens of watts on an idle socket.",
        references: &[SDM, "OpenShift vDU reference configuration, host firmware"],
        conflicts: &[],
    },
    Rule {
        id: "idle.c1e",
        group: Group::Cpu,
        title: "C1 is not promoted to C1E",
        applies: INTEL,
        judge: c1e,
        why: "With bit 1 of MSR 0x1FC set the hardware turns C1 into C1E, which lowers frequency and voltage too, though the kernel asked for C1.",
        magnitude: Magnitude {
            text: "4 us instead of 1 us on Ice Lake",
            typical: Some(Nanos::from_micros(3)),
            source: "Linux drivers/idle/intel_idle.c, icx_cstates: C1 1 us, C1E 4 us",
        },
        fix: Fix::both(
            "pepc pstates config --c1e-autopromote off",
            "firmware setting Enhanced Halt State (C1E): disabled",
        ),
        cost: "Idle cores keep their voltage.",
        references: &[SDM, "intel/pepc, C1E autopromote", "OpenShift vDU reference configuration, host firmware"],
        conflicts: &[],
    },
    Rule {
        id: "idle.c1-demotion",
        group: Group::Cpu,
        title: "The hardware does not choose other idle states than the kernel",
        applies: INTEL,
        judge: demotion,
        why: "With bits 25 to 28 of MSR 0xE2 the hardware demotes C6 to C1, or takes it back, by its own guess. Which state a CPU was in is then not what \
              the kernel's counters say.",
        magnitude: Magnitude {
            text: "the difference between the two states: 133 us with C6 on Xeon E5 v3",
            typical: None,
            source: "Interrupt-mode DPDK slides (2017), table of C-states and latency",
        },
        fix: Fix::both(
            "pepc cstates config --c1-demotion off --c1-undemotion off",
            "firmware setting C1 auto demotion: disabled",
        ),
        cost: "With C6 enabled, wake-ups come from C6 more often: disable C6 too.",
        references: &[SDM, "intel/pepc, C1 demotion"],
        conflicts: &[],
    },
];

fn hwp_request(facts: &Facts, context: &Context) -> Judged {
    let enabled = facts.msrs.register(0x770);
    let off = |id: u32| facts.msrs.of(0x770, id).get().is_some_and(|value| bits(value, 0, 0) == 0);
    by_cpu(facts, &context.critical(facts), |cpu| {
        if off(cpu.id) {
            return Err(crate::Skip::not_applicable("hardware-controlled states are off (MSR 0x770 bit 0)"));
        }
        let fact = facts.msrs.of(0x774, cpu.id);
        let value = *known(&fact)?;
        let (min, max, epp) = (bits(value, 7, 0), bits(value, 15, 8), bits(value, 31, 24));
        let text = format!("ratios {min} to {max} (of 100 MHz), energy preference 0x{epp:02x}");
        let judgement = match (min == max, epp) {
            (true, 0) => Judgement::pass(Subject::Host, text),
            _ => Judgement::warn(Subject::Host, text),
        };
        let judgement = judgement.see_as(format!("0x{value:x}"), format!("{}, bits 7:0, 15:8, 31:24", fact.source()));
        Ok(match enabled.is_known() {
            true => judgement.see_as("bit 0 is set", "MSR 0x770"),
            false => judgement,
        })
    })
}

/// One field of a register of every CPU: wrong where the test says so.
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
    field(facts, context, 0x1FC, (19, 19), |disabled| match disabled {
        0 => Judgement::warn(Subject::Host, "energy-efficient turbo is on"),
        _ => Judgement::pass(Subject::Host, "energy-efficient turbo is off"),
    })
}

/// Do all CPUs have the same value of a register?
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
        0 => return Err(crate::Skip::unknown(format!("{}: it was read of no CPU", register.source()))),
        1 => Judgement::pass(Subject::Host, format!("{what}: {found}")),
        _ => Judgement::warn(Subject::Host, format!("{what} differ: {found}")),
    };
    judgement.see_as(found, register.source()).alone()
}

fn prefetchers(facts: &Facts, _: &Context) -> Judged {
    alike(facts, 0x1A4, "prefetchers that are off")
}

fn ddio(facts: &Facts, _: &Context) -> Judged {
    alike(facts, 0xC8B, "ways of the cache for devices")
}

fn package(facts: &Facts, context: &Context) -> Judged {
    field(facts, context, 0xE2, (3, 0), |limit| match limit {
        0 => Judgement::pass(Subject::Host, "the package stays in C0 or C1"),
        n => Judgement::warn(Subject::Host, format!("the package may sleep (limit {n})")),
    })
}

fn c1e(facts: &Facts, context: &Context) -> Judged {
    field(facts, context, 0x1FC, (1, 1), |on| match on {
        0 => Judgement::pass(Subject::Host, "C1 stays C1"),
        _ => Judgement::warn(Subject::Host, "C1 is promoted to C1E"),
    })
}

fn demotion(facts: &Facts, context: &Context) -> Judged {
    field(facts, context, 0xE2, (28, 25), |on| match on {
        0 => Judgement::pass(Subject::Host, "the hardware keeps the state that it is asked for"),
        _ => Judgement::warn(Subject::Host, "the hardware demotes or restores idle states by its own guess"),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    fn msr(address: &str, value: &str) -> Host {
        let lines: String = (0..8).map(|cpu| format!("{cpu} {value}\n")).collect();
        host().file(&format!("/msr/{address}"), &lines)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cpu.hwp-request", || msr("0x774", "0x1616")),
        Case::warn("cpu.hwp-request", || msr("0x774", "0x80002308")),
        Case::unknown("cpu.hwp-request", host),
        Case::pass("cpu.ee-turbo", || msr("0x1fc", "0x80000")),
        Case::warn("cpu.ee-turbo", || msr("0x1fc", "0x0")),
        Case::unknown("cpu.ee-turbo", host),
        Case::pass("cpu.prefetchers", || msr("0x1a4", "0x0")),
        Case::warn("cpu.prefetchers", || host().file("/msr/0x1a4", "0 0x0\n1 0xf\n")),
        Case::unknown("cpu.prefetchers", host),
        Case::pass("cpu.ddio", || msr("0xc8b", "0x600")),
        Case::warn("cpu.ddio", || host().file("/msr/0xc8b", "0 0x600\n1 0x7f0\n")),
        Case::unknown("cpu.ddio", host),
        Case::pass("idle.pkg-cstate", || msr("0xe2", "0x8000")),
        Case::warn("idle.pkg-cstate", || msr("0xe2", "0x8002")),
        Case::unknown("idle.pkg-cstate", host),
        Case::pass("idle.c1e", || msr("0x1fc", "0x0")),
        Case::warn("idle.c1e", || msr("0x1fc", "0x2")),
        Case::unknown("idle.c1e", host),
        Case::pass("idle.c1-demotion", || msr("0xe2", "0x8000")),
        Case::warn("idle.c1-demotion", || msr("0xe2", "0x14000000")),
        Case::unknown("idle.c1-demotion", host),
        Case::not_applicable("idle.c1-demotion", || msr("0xe2", "0x0").guest()),
    ];

    #[test]
    fn a_request_is_decoded() {
        let judgements = msr("0x774", "0x80002308").judge("cpu.hwp-request");
        assert_eq!(judgements[0].found, "ratios 8 to 35 (of 100 MHz), energy preference 0x80");
        assert_eq!(judgements.len(), 1);
    }
}

//! Rules on memory modules.

use host::Facts;
use host::facts::MemoryModule;

use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

const DPDK: &str = "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "mem.channels",
        cause: Cause::MemoryHardware,
        title: "The memory slots are filled evenly",
        applies: Applies::LINUX.on_hardware(),
        judge: channels,
        why: "Each socket has several memory channels, over which addresses are spread. An empty channel takes its \
              share of the bandwidth away, and modules of different sizes spread the addresses unevenly.",
        magnitude: Magnitude::slower(
            "one of the most direct effects on performance; one missing channel of six takes away a sixth of the \
                   bandwidth",
            DPDK,
        ),
        fix: Fix::boot(
            "fill every channel of every socket with modules of one size, at least 4 GB each (power off first)",
        ),
        cost: "More memory modules are needed.",
        references: &[
            DPDK,
            "FlexRAN real-time platform slides (2018), Memory Optimizations",
            "SMBIOS specification 3.7, section 7.18",
        ],
    },
    Rule {
        id: "mem.speed",
        cause: Cause::MemoryHardware,
        title: "Memory modules run at their own speed",
        applies: Applies::LINUX.on_hardware(),
        judge: speed,
        why: "A module that runs below its rated speed is limited by the firmware's settings, by the processor, or by a \
         second module on its channel.",
        magnitude: Magnitude::slower(
            "bandwidth falls in proportion to the speed; latency rises by a few nanoseconds",
            "FlexRAN real-time platform slides (2018), Memory Optimizations, name the effect; the figure is general knowledge",
        ),
        fix: Fix::boot("firmware setting Memory Frequency: the maximum instead of auto; use one module per channel"),
        cost: "The memory uses a little more power.",
        references: &["FlexRAN real-time platform slides (2018), Memory Optimizations", DPDK],
    },
];

fn channels(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.modules;
    let all = known(fact)?;
    let filled: Vec<&MemoryModule> = all.iter().filter(|module| module.size_bytes.is_some()).collect();
    let first = filled.first().ok_or_else(|| Skip::unknown(format!("{} names no memory module", fact.source())))?;
    let sizes = filled.iter().filter(|module| module.size_bytes != first.size_bytes).count();
    let sockets =
        facts.cpus.list.iter().filter_map(|cpu| cpu.package.get()).collect::<std::collections::BTreeSet<_>>().len();
    let gib = |bytes: u64| bytes >> 30;
    let size = first.size_bytes.map_or(0, gib);
    let text = format!("{} of {} memory slots are filled", filled.len(), all.len());
    let judgement = if sizes > 0 {
        Judgement::warn(format!("{text}, with modules of different sizes"))
    } else if size < 4 {
        Judgement::warn(format!("{text}, with {size} GB each: below 4 GB a module has fewer ranks"))
    } else if sockets > 1 && !filled.len().is_multiple_of(sockets) {
        Judgement::warn(format!("{text}: {sockets} sockets cannot have the same number of modules"))
    } else if filled.len() == 1 {
        Judgement::warn(format!("{text}: only one channel is used"))
    } else {
        Judgement::pass(format!("{text}, with {size} GB each; the board's manual says on which channels they are"))
    };
    let names: Vec<&str> = filled.iter().map(|module| module.locator.as_str()).take(32).collect();
    judgement.see_as(names.join(" "), fact.source()).alone()
}

fn speed(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.modules;
    let rated: Vec<(&MemoryModule, u32, u32)> =
        known(fact)?.iter().filter_map(|module| Some((module, module.speed_mts?, module.configured_mts?))).collect();
    let slow: Vec<&(&MemoryModule, u32, u32)> =
        rated.iter().filter(|(_, speed, configured)| configured < speed).collect();
    let judgement = match (rated.len(), slow.first()) {
        (0, _) => return Err(Skip::unknown(format!("{}: no module reports its speed", fact.source()))),
        (n, None) => Judgement::pass(format!("{n} modules run at their own speed")),
        (n, Some((module, speed, configured))) => {
            let text = format!(
                "{} of {n} modules run below their speed: {} at {configured} of {speed} MT/s",
                slow.len(),
                module.locator
            );
            Judgement::warn(text)
        }
    };
    judgement.see_as(format!("{} modules, {} slow", rated.len(), slow.len()), fact.source()).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;

    use super::*;
    use crate::testing::{Case, host};

    fn modules(facts: &mut Facts, sizes: &[u64], configured: u32) {
        let module = |(n, gib): (usize, &u64)| MemoryModule {
            locator: format!("DIMM_{n}"),
            size_bytes: Some(gib << 30),
            speed_mts: Some(3200),
            configured_mts: Some(configured),
            ..MemoryModule::default()
        };
        facts.memory.modules =
            Fact::known(sizes.iter().enumerate().map(module).collect(), "/sys/firmware/dmi/tables/DMI");
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("mem.channels", || host().edit(|facts| modules(facts, &[32, 32, 32, 32], 3200))),
        Case::warn("mem.channels", || host().edit(|facts| modules(facts, &[32, 32, 32, 16], 3200))),
        Case::warn("mem.channels", || host().edit(|facts| modules(facts, &[32], 3200))),
        Case::unknown("mem.channels", host),
        Case::pass("mem.speed", || host().edit(|facts| modules(facts, &[32, 32], 3200))),
        Case::warn("mem.speed", || host().edit(|facts| modules(facts, &[32, 32], 2666))),
        Case::unknown("mem.speed", host),
    ];
}

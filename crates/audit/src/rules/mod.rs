//! The rules of the audit. Each module contains the rules of one group, together with their test cases.

pub mod arithmetic;
pub mod cache;
pub mod choices;
pub mod clock;
pub mod cmdline;
mod common;
pub mod containers;
pub mod cpu;
pub mod firmware;
pub mod freebsd;
mod interfaces;
pub mod interrupts;
pub mod kernel;
pub mod memory;
pub mod network;
pub mod nic;
pub mod pcie;
pub mod scheduling;
pub mod services;
pub mod virtualisation;

use crate::{Group, Rule};

#[cfg(test)]
pub(crate) use arithmetic::samples as arithmetic_samples;

/// The rule tables of each group, in the order of docs/rules.md.
const TABLES: [(Group, &[&[Rule]]); 18] = [
    (Group::CommandLine, cmdline::RULES),
    (Group::Kernel, kernel::RULES),
    (Group::Cpu, cpu::RULES),
    (Group::Firmware, firmware::RULES),
    (Group::Memory, memory::RULES),
    (Group::Interrupts, interrupts::RULES),
    (Group::Scheduling, scheduling::RULES),
    (Group::Clock, clock::RULES),
    (Group::Pcie, pcie::RULES),
    (Group::Nic, nic::RULES),
    (Group::Network, network::RULES),
    (Group::Cache, cache::RULES),
    (Group::Virtualisation, virtualisation::RULES),
    (Group::Containers, containers::RULES),
    (Group::Services, services::RULES),
    (Group::Arithmetic, arithmetic::RULES),
    (Group::FreeBsd, freebsd::RULES),
    (Group::Choices, choices::RULES),
];

/// All rules, in the order of docs/rules.md.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    by_group().map(|(_, rule)| rule)
}

/// All rules with their groups, in the order of docs/rules.md.
pub fn by_group() -> impl Iterator<Item = (Group, &'static Rule)> {
    TABLES.into_iter().flat_map(|(group, tables)| tables.iter().copied().flatten().map(move |rule| (group, rule)))
}

/// Finds a rule by its identifier, such as `cmd.isolcpus`. `None` if there is no such rule.
pub fn find(id: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.id == id)
}

/// Whether the kernel is known to be built without full dynamic ticks.
pub(crate) fn no_full_ticks(facts: &host::Facts) -> bool {
    facts.kernel.config.is(|config| !config.is_set("NO_HZ_FULL")) == Some(true)
}

/// The CPUs to which fixes move interrupts and threads: the housekeeping CPUs that the command line does not isolate.
/// If the command line isolates all housekeeping CPUs, returns all of them.
pub(crate) fn free(facts: &host::Facts, context: &crate::Context) -> host::facts::CpuSet {
    let housekeeping = context.housekeeping(facts);
    match facts.cmdline.value() {
        // Without isolated CPUs, nothing is moved.
        Some(line) if !context.isolated.value.is_empty() => crate::cmdline::free(line, &facts.cpus.all(), housekeeping),
        _ => housekeeping,
    }
}

/// Whether the application's CPUs should run at one fixed frequency, instead of at a minimum with turbo above it. This
/// applies to real-time hosts, and to hosts on which a frequency change is known to stop the core. Elsewhere, an upper
/// limit would only cost turbo (`cpu.turbo`).
pub(crate) fn one_frequency(facts: &host::Facts, context: &crate::Context) -> bool {
    context.is(crate::Workload::Rt) || facts.cpus.generation.get().and_then(cpu::frequency::stops) == Some(true)
}

/// Returns `cpus` and the online hardware threads that share their cores. A core runs at the highest frequency that one
/// of its threads requests.
pub(crate) fn cores(facts: &host::Facts, cpus: &host::facts::CpuSet) -> host::facts::CpuSet {
    let online = facts.cpus.all();
    let siblings = |cpu: u32| facts.cpus.cpu(cpu).and_then(|cpu| cpu.siblings.value());
    cpus.iter().filter_map(siblings).fold(cpus.clone(), |all, threads| all.union(&threads.intersection(&online)))
}

/// Whether `siblings`, which share cores with the application's CPUs, can stay idle or be given to the application too.
/// False if they include the boot CPU, or if no other CPU would be left for housekeeping.
pub(crate) fn can_spare(facts: &host::Facts, context: &crate::Context, siblings: &host::facts::CpuSet) -> bool {
    !siblings.contains(0) && !free(facts, context).is_subset(siblings)
}

/// The test cases of all groups.
#[cfg(test)]
pub(crate) fn cases() -> impl Iterator<Item = &'static [crate::testing::Case]> {
    let groups: [&[&[crate::testing::Case]]; 18] = [
        cmdline::CASES,
        kernel::CASES,
        cpu::CASES,
        firmware::CASES,
        memory::CASES,
        interrupts::CASES,
        scheduling::CASES,
        clock::CASES,
        pcie::CASES,
        nic::CASES,
        network::CASES,
        cache::CASES,
        virtualisation::CASES,
        containers::CASES,
        services::CASES,
        arithmetic::CASES,
        freebsd::CASES,
        choices::CASES,
    ];
    groups.into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_group_has_its_tables() {
        assert_eq!(super::TABLES.map(|(group, _)| group), crate::Group::ALL[..]);
    }

    #[test]
    fn rules_judge_their_cases_as_expected() {
        let wrong: Vec<String> = super::cases().flat_map(crate::testing::run).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

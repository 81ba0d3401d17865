//! Clock and time.

mod tsc;

use host::Facts;

use crate::rules::common::X86;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, known};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[SOURCE, tsc::RULES];

/// Rules on the clock source.
const SOURCE: &[Rule] = &[Rule {
    id: "clk.source",
    cause: Cause::Clock,
    title: "The clock is the TSC",
    applies: Applies::LINUX.made_by(X86).on_hardware(),
    judge: source,
    why: "Every timestamp of the kernel and of applications reads the clock source. The TSC is read in user mode through \
     the vDSO. hpet and acpi_pm need a system call and a device access. Full dynamic ticks also need a stable TSC.",
    magnitude: Magnitude::slower(
        "about 1 us per reading with hpet or acpi_pm, about 20 ns with the TSC",
        "general knowledge; the order of magnitude follows from an uncached device read",
    ),
    fix: Fix::runtime_or_boot(
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        "clocksource=tsc tsc=reliable",
    ),
    cost: "tsc=reliable disables the checks that would notice a wrong TSC: the watchdog, and the comparison of the CPUs' \
     TSCs at boot.",
    references: &[
        "Linux Documentation/admin-guide/cpu-isolation.rst",
        "FlexRAN real-time platform slides (2018), kernel command line",
    ],
}];

fn source(facts: &Facts, _: &Context) -> Judged {
    let current = &facts.kernel.clocksource;
    match known(current)?.as_str() {
        "tsc" => Judgement::pass("the clock source is the TSC").see(current),
        other => Judgement::fail(format!("the clock source is {other}, not the TSC")).see(current),
    }
    .alone()
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::SOURCE, tsc::tests::CASES];

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Host, host};

    const PLACE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

    fn with(source: &str) -> Host {
        host().file(PLACE, source)
    }

    pub(super) const SOURCE: &[Case] = &[
        Case::pass("clk.source", || with("tsc\n")),
        Case::fail("clk.source", || with("hpet\n")),
        Case::unknown("clk.source", host),
        Case::not_applicable("clk.source", || with("kvm-clock").guest()),
        Case::not_applicable("clk.source", || with("arch_sys_counter\n").arm()),
    ];
}

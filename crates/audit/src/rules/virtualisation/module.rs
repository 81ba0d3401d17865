//! Rules on parameters of KVM.

use host::Facts;
use host::facts::{Fact, Vendor};
use units::Nanos;

use super::threads::is_dedicated;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

const HOST: Applies = Applies::LINUX.to(&[Workload::KvmHost]);
const REALTIME_HOST: &str = "tuned profile realtime-virtual-host";
const HALT: &str = "Linux Documentation/virt/kvm/halt-polling.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "vm.nx-huge-pages",
        cause: Cause::Mitigations,
        title: "KVM does not split huge pages",
        applies: HOST,
        judge: split,
        why: "Because of a fault in older processors (CVE-2018-12207), KVM maps huge pages as not executable and \
              splits them where a guest executes code. A worker joins them again from time to time, and all virtual \
              CPUs stop for it.",
        magnitude: Magnitude::late(
            Nanos::from_micros(100),
            "about 100 us on all isolated CPUs",
            "redhat-performance/tuned pull request 363 (oslat)",
        ),
        fix: Fix::runtime_or_boot("echo off > /sys/module/kvm/parameters/nx_huge_pages", "kvm.nx_huge_pages=off")
            .against(&["Linux Documentation/admin-guide/hw-vuln/multihit.rst asks for it on affected processors"]),
        cost: "If the processor has the flaw, a guest can stop the host: guests must be trusted.",
        references: &[
            "redhat-performance/tuned pull request 363",
            "Linux Documentation/admin-guide/hw-vuln/multihit.rst",
        ],
    },
    Rule {
        id: "vm.kvmclock-sync",
        cause: Cause::Clock,
        title: "KVM does not synchronise guests' clocks by timer",
        applies: HOST,
        judge: clock,
        why: "With kvmclock_periodic_sync KVM interrupts all virtual CPUs every 300 s to update their clocks: each \
              exits its guest for it.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "an exit of each virtual CPU every 300 s, a few us",
            "Linux arch/x86/kvm/x86.c, KVMCLOCK_SYNC_PERIOD; the microseconds are an estimate",
        ),
        fix: Fix::boot("kvm.kvmclock_periodic_sync=0"),
        cost: "Guests' clocks follow the host's less closely; guests with NTP or a PTP clock of KVM do not need these updates.",
        references: &[REALTIME_HOST],
    },
    Rule {
        id: "vm.ple-gap",
        cause: Cause::HostOfGuests,
        title: "Guests with dedicated CPUs may spin",
        applies: HOST.made_by(&[Vendor::Intel]),
        judge: pause,
        why: "With pause-loop exiting a guest that spins on a lock exits to the host, so that another virtual CPU can \
              run. If each has its own CPU, there is no other one, and a polling guest exits for nothing.",
        magnitude: Magnitude::late(
            Nanos::from_micros(2),
            "an exit and entry, 1 to 2 us, after each 4096 cycles of a loop with pause",
            "Linux arch/x86/kvm/vmx/vmx.c, ple_window; the microseconds are general knowledge",
        ),
        fix: Fix::boot("kvm_intel.ple_gap=0"),
        cost: "Guests that share CPUs wait longer for locks.",
        references: &[REALTIME_HOST],
    },
    Rule {
        id: "vm.halt-poll",
        cause: Cause::HostOfGuests,
        title: "KVM polls before it gives up a dedicated CPU, but not before it gives up a shared one",
        applies: HOST,
        judge: halt,
        why: "When a virtual CPU halts, KVM polls for halt_poll_ns before it lets another thread run or the CPU sleep. \
         On a dedicated CPU that saves the wake-up; on a shared CPU it takes time from others.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a few us per wake-up, and the exit latency of an idle state",
            "Linux Documentation/virt/kvm/halt-polling.rst; the microseconds are general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "echo 200000 > /sys/module/kvm/parameters/halt_poll_ns # write 0 if CPUs are shared",
            "kvm.halt_poll_ns=200000",
        ),
        cost: "Polling CPUs use power, and the hypervisor counts them as busy.",
        references: &[HALT],
    },
    Rule {
        id: "vm.posted-irq-apicv",
        cause: Cause::HostOfGuests,
        title: "Interrupts reach a running guest without an exit",
        applies: HOST,
        judge: posted,
        why: "With a virtual interrupt controller (APICv of Intel, AVIC of AMD) and posted interrupts the hardware \
              delivers interrupts into a running guest. Without them each interrupt makes the virtual CPU exit to the \
              host and enter again.",
        magnitude: Magnitude::late(
            Nanos::from_micros(2),
            "an exit and an entry per interrupt, 1 to 2 us",
            "FlexRAN real-time platform slides (2018) ask for it; the figure is general knowledge",
        ),
        fix: Fix::boot(
            "kvm_intel.enable_apicv=1 (AMD: kvm_amd.avic=1); VT-d with interrupt remapping in the firmware's settings",
        ),
        cost: "None known; AVIC excludes some nested and synthetic features.",
        references: &[
            "FlexRAN real-time platform slides (2018)",
            "Intel SDM volume 3, chapter on APIC virtualization and virtual interrupts",
        ],
    },
];

/// Whether a module parameter is on. Accepts `Y`, `N`, `1`, `0`, `on`, `off`, `auto`, `never` and `force`.
fn is_on(text: &str) -> Result<bool, Skip> {
    match text.trim() {
        "Y" | "y" | "1" | "on" | "force" => Ok(true),
        "N" | "n" | "0" | "off" | "never" => Ok(false),
        other => Err(Skip::unknown(format!("{other:?} does not show whether it is on"))),
    }
}

fn split(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.parameter("kvm.nx_huge_pages");
    let on = is_on(known(&fact)?)?;
    let affected = facts.cpus.vulnerabilities.value().and_then(|all| all.get("itlb_multihit"));
    let judgement = match (on, affected) {
        (false, _) => Judgement::pass("huge pages of guests stay whole"),
        (true, Some(state)) if state.starts_with("Not affected") => {
            Judgement::warn("huge pages are split, although the processor does not have the flaw")
        }
        (true, _) => Judgement::warn("huge pages are split where guests execute"),
    };
    let judgement = judgement.see(&fact);
    match affected {
        Some(state) => judgement.see_as(state, "/sys/devices/system/cpu/vulnerabilities/itlb_multihit"),
        None => judgement,
    }
    .alone()
}

fn clock(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.parameter("kvm.kvmclock_periodic_sync");
    match is_on(known(&fact)?)? {
        false => Judgement::pass("clocks of guests are not synchronised by timer"),
        true => Judgement::warn("every 300 s all virtual CPUs are stopped to update their clocks"),
    }
    .see(&fact)
    .alone()
}

fn number(fact: &Fact<&str>) -> Result<u64, Skip> {
    known(fact)?.trim().parse().map_err(|_| Skip::unknown(format!("{} is no number", fact.source())))
}

fn pause(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.parameter("kvm_intel.ple_gap");
    let gap = number(&fact)?;
    if gap == 0 {
        return Judgement::pass("guests may spin").see(&fact).alone();
    }
    match is_dedicated(facts)? {
        true => Judgement::warn("guests exit when they spin, although no other thread needs their CPUs"),
        false => Judgement::pass("guests exit when they spin, and other threads need their CPUs"),
    }
    .see(&fact)
    .alone()
}

fn halt(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.parameter("kvm.halt_poll_ns");
    let time = Nanos::from_nanos(number(&fact)?);
    match (time == Nanos::ZERO, is_dedicated(facts)?) {
        (true, true) => {
            Judgement::warn("KVM does not poll before a CPU sleeps, although no other thread needs that CPU")
        }
        (true, false) => Judgement::pass("KVM does not poll on shared CPUs"),
        (false, true) => Judgement::pass(format!("KVM polls for up to {time} on CPUs that no other thread needs")),
        (false, false) => Judgement::warn(format!("KVM polls for up to {time} on CPUs that other threads need")),
    }
    .see(&fact)
    .alone()
}

fn posted(facts: &Facts, _: &Context) -> Judged {
    let fact = match facts.cpus.vendor.get() {
        Some(Vendor::Amd | Vendor::Hygon) => facts.parameter("kvm_amd.avic"),
        _ => facts.parameter("kvm_intel.enable_apicv"),
    };
    match is_on(known(&fact)?)? {
        true => Judgement::pass("the hardware delivers interrupts into running guests"),
        false => Judgement::warn("each interrupt causes an exit of its virtual CPU"),
    }
    .see(&fact)
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::threads::tests::guest;
    use crate::Workload;
    use crate::testing::{Case, Host, host};

    fn bare() -> Host {
        host().workload(Workload::KvmHost)
    }

    fn with(host: Host, name: &str, value: &str) -> Host {
        host.file(&format!("/sys/module/{}", name.replacen('.', "/parameters/", 1)), value)
    }

    fn own() -> Host {
        guest("0-1", "2", "3")
    }

    fn shared() -> Host {
        guest("0-7", "0-7", "0-7")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("vm.nx-huge-pages", || with(bare(), "kvm.nx_huge_pages", "N\n")),
        Case::warn("vm.nx-huge-pages", || with(bare(), "kvm.nx_huge_pages", "Y\n")),
        Case::unknown("vm.nx-huge-pages", bare),
        Case::unknown("vm.nx-huge-pages", || with(bare(), "kvm.nx_huge_pages", "auto\n")),
        Case::pass("vm.kvmclock-sync", || with(bare(), "kvm.kvmclock_periodic_sync", "N\n")),
        Case::warn("vm.kvmclock-sync", || with(bare(), "kvm.kvmclock_periodic_sync", "Y\n")),
        Case::unknown("vm.kvmclock-sync", bare),
        Case::pass("vm.ple-gap", || with(own(), "kvm_intel.ple_gap", "0\n")),
        Case::pass("vm.ple-gap", || with(shared(), "kvm_intel.ple_gap", "128\n")),
        Case::warn("vm.ple-gap", || with(own(), "kvm_intel.ple_gap", "128\n")),
        Case::unknown("vm.ple-gap", bare),
        Case::pass("vm.halt-poll", || with(own(), "kvm.halt_poll_ns", "200000\n")),
        Case::pass("vm.halt-poll", || with(shared(), "kvm.halt_poll_ns", "0\n")),
        Case::warn("vm.halt-poll", || with(own(), "kvm.halt_poll_ns", "0\n")),
        Case::warn("vm.halt-poll", || with(shared(), "kvm.halt_poll_ns", "200000\n")),
        Case::unknown("vm.halt-poll", bare),
        Case::pass("vm.posted-irq-apicv", || with(bare(), "kvm_intel.enable_apicv", "Y\n")),
        Case::warn("vm.posted-irq-apicv", || with(bare(), "kvm_intel.enable_apicv", "N\n")),
        Case::unknown("vm.posted-irq-apicv", bare),
    ];
}

//! Rules on the time stamp counter, and on the clocks of guests and interfaces.

use host::Facts;
use units::Nanos;

use crate::rules::common::{X86, listed, messages};
use crate::rules::virtualisation::{INVTSC, MIGRATION};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const READING: Magnitude = Magnitude::slower(
    "about 1 us per reading with hpet or acpi_pm, about 20 ns with the TSC",
    "general knowledge; the order of magnitude follows from an uncached device read",
);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "clk.tsc-flags",
        cause: Cause::Clock,
        title: "The TSC is invariant",
        applies: Applies::LINUX.made_by(X86),
        judge: flags,
        why: "A TSC that changes its rate with the frequency, or stops in idle states, cannot serve as a clock. The \
              kernel then reads another clock, and full dynamic ticks are off.",
        magnitude: READING,
        fix: Fix::boot("use hardware with an invariant TSC"),
        cost: "Other hardware is needed.",
        references: &[
            "Intel SDM volume 3, section 18.17, Time-Stamp Counter",
            "FlexRAN real-time platform slides (2018): reliable TSC",
        ],
    },
    Rule {
        id: "clk.tsc-unstable",
        cause: Cause::Clock,
        title: "The kernel still uses the TSC",
        applies: Applies::LINUX.made_by(X86),
        judge: unstable,
        why: "If the watchdog finds the TSC wrong, the kernel drops it until the next boot and reads all timestamps from \
         a device. Often the firmware or a hypervisor delayed the watchdog, and the TSC was right.",
        magnitude: READING,
        fix: Fix::boot("tsc=reliable if the TSC is invariant; else look for system management interrupts")
            .after("dmesg | grep -i tsc"),
        cost: "A TSC that is really wrong goes unnoticed.",
        references: &[
            "Linux kernel/time/clocksource.c, clocksource_watchdog",
            "Linux Documentation/admin-guide/kernel-parameters.txt, tsc",
        ],
    },
    Rule {
        id: "clk.kvm",
        cause: Cause::Clock,
        title: "The guest reads the TSC",
        applies: Applies::LINUX.made_by(X86).in_guest(),
        judge: guest,
        why: "kvm-clock scales the TSC by a page that the host writes. When the host updates it, all virtual CPUs are \
              interrupted, and full dynamic ticks do not trust it.",
        magnitude: Magnitude::slower(
            "tens of nanoseconds more per reading than the TSC, and one exit of each virtual CPU every 5 \
                   minutes for an update",
            "Linux arch/x86/kvm/x86.c, KVMCLOCK_SYNC_PERIOD (300 s); the cost of a reading is general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            "clocksource=tsc tsc=reliable",
        ),
        cost: "After a migration to a host with another TSC frequency the time is wrong.",
        references: &[
            "FlexRAN real-time platform slides (2018), guest's kernel command line",
            "tuned profile realtime-virtual-guest",
        ],
    },
    Rule {
        id: "clk.ptp",
        cause: Cause::TimeSync,
        title: "The interface timestamps packets in hardware",
        applies: Applies::LINUX.with_nic(),
        judge: stamping,
        why: "One-way delays between two hosts are only as accurate as their clocks. A timestamp by the kernel includes \
         the very delay to be measured: moderation, wake-up and queueing.",
        magnitude: Magnitude::untimed(
            "an error of tens of microseconds with kernel timestamps, below 1 us with hardware timestamps",
            "Linux Documentation/networking/timestamping.rst describes both; the figures are general knowledge",
        ),
        fix: Fix::for_good("run ptp4l -i {nic} and phc2sys -s {nic} -w as services")
            .after("ethtool -T {nic} # which packets the card can timestamp"),
        cost: "You need an interface with a hardware clock, and a PTP master clock.",
        references: &["Linux Documentation/networking/timestamping.rst", "OpenShift vDU reference configuration, PTP"],
    },
    Rule {
        id: "clk.ptp-daemon",
        cause: Cause::TimeSync,
        title: "Only one service sets the clock",
        applies: Applies::LINUX,
        judge: services,
        why: "Two services that set the same clock pull it back and forth. Timestamps jump, and timers fire early or \
         late.",
        magnitude: Magnitude::untimed(
            "jumps of microseconds to milliseconds in timestamps",
            "ptp4l(8) and chronyd(8) each assume that they are alone; the figure is general knowledge",
        ),
        fix: Fix::both(
            "systemctl stop chronyd systemd-timesyncd # where phc2sys sets the clock",
            "systemctl disable chronyd systemd-timesyncd",
        ),
        cost: "None if the remaining service has a good time source.",
        references: &["chronyd(8)", "phc2sys(8)"],
    },
];

fn flags(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.cpus.flags;
    let flags = known(fact)?;
    let missing: Vec<&str> =
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !flags.contains(*flag)).collect();
    let others: Vec<&str> =
        ["tsc_adjust", "tsc_known_freq", "rdtscp"].into_iter().filter(|flag| !flags.contains(*flag)).collect();
    let judgement = match missing.as_slice() {
        [] if others.is_empty() => Judgement::pass("the TSC is invariant, adjustable and of a known frequency"),
        [] if others == ["tsc_known_freq"] => {
            Judgement::pass("the TSC is invariant; the kernel measures its frequency at boot (no tsc_known_freq)")
        }
        [] => Judgement::pass(format!("the TSC is invariant; the CPUs lack {}", others.join(", "))),
        missing if facts.virtualisation.guest.get() == Some(true) => {
            let text =
                format!("the guest's CPUs lack {}, which the hypervisor can pass through", missing.join(" and "));
            Judgement::warn(text).for_good(INVTSC).costs(MIGRATION)
        }
        missing => Judgement::fail(format!("the CPUs lack {}", missing.join(" and "))),
    };
    judgement.see_as(listed("missing", &[missing, others].concat()), fact.source()).alone()
}

fn unstable(facts: &Facts, _: &Context) -> Judged {
    let words =
        ["marking tsc unstable", "marking clocksource 'tsc", "tsc unstable", "clocksource: timekeeping watchdog"];
    let (found, count) = messages(facts, &words)?;
    let source = facts.kernel.messages.source();
    let judgement = match count {
        0 => Judgement::pass("no message says that the TSC is unstable").see_as("no such message", source),
        _ => Judgement::fail("the kernel has found the TSC unstable"),
    };
    found.into_iter().fold(judgement, |judgement, text| judgement.see_as(text, source)).alone()
}

fn guest(facts: &Facts, _: &Context) -> Judged {
    let current = &facts.kernel.clocksource;
    let invariant = facts.cpus.flags.is(|flags| flags.contains("constant_tsc") && flags.contains("nonstop_tsc"));
    let judgement = match (known(current)?.as_str(), invariant) {
        ("tsc", _) => Judgement::pass("the clock source is the TSC"),
        ("kvm-clock" | "hyperv_clocksource_tsc_page", Some(true)) => {
            Judgement::warn(format!("the clock source is {}, though the TSC is invariant", current))
        }
        ("kvm-clock" | "hyperv_clocksource_tsc_page", _) => {
            Judgement::warn(format!("the clock source is {current}: the hypervisor exposes no invariant TSC"))
                .for_good(INVTSC)
                .for_good("then, in the guest, clocksource=tsc")
        }
        (other, _) => Judgement::fail(format!("the clock source is {other}: each reading causes a VM exit"))
            .takes(Nanos::from_micros(2)),
    };
    judgement.see(current).alone()
}

fn stamping(facts: &Facts, context: &Context) -> Judged {
    let mut judgements = Vec::new();
    let mut skip = None;
    for link in context.links(facts) {
        let fact = &link.time_stamping;
        let subject = Subject::Link(link.name.clone());
        match known(fact) {
            Err(reason) => skip = Some(reason),
            Ok(stamping) => {
                let (rx, tx) = (stamping.hardware_rx, stamping.hardware_tx);
                let yes = |is: bool| if is { "yes" } else { "no" };
                let judgement = match (rx, tx) {
                    (true, true) => {
                        Judgement::pass_for(subject, "its hardware timestamps both received and sent packets")
                    }
                    (true, false) => Judgement::warn_for(subject, "its hardware timestamps only received packets"),
                    (false, true) => Judgement::warn_for(subject, "its hardware timestamps only sent packets"),
                    (false, false) => Judgement::warn_for(subject, "its hardware timestamps no packets"),
                };
                let clock = stamping.phc.map_or("no hardware clock".to_owned(), |n| format!("/dev/ptp{n}"));
                judgements.push(judgement.see_as(
                    format!("hardware timestamps: receive {}, transmit {}; {clock}", yes(rx), yes(tx)),
                    fact.source(),
                ));
            }
        }
    }
    match judgements.is_empty() {
        true => Err(skip.unwrap_or_else(|| Skip::unknown("/sys/class/net: the interfaces are not known"))),
        false => Ok(judgements),
    }
}

/// Services that set the system clock.
const SETTERS: [&str; 6] = ["chronyd", "chrony", "ntpd", "ntpsec", "systemd-timesyncd", "phc2sys"];

fn services(facts: &Facts, context: &Context) -> Judged {
    let fact = &facts.services.running;
    let setters = known(fact)?.iter().filter(|unit| {
        let name = unit.trim_end_matches(".service").split('@').next().unwrap_or_default();
        SETTERS.contains(&name)
    });
    let setters: Vec<&str> = setters.map(String::as_str).collect();
    let guest = context.is(Workload::Guest);
    let judgement = match setters.as_slice() {
        [] if guest => Judgement::pass("no known service sets the clock; the hypervisor may do it"),
        [] => Judgement::pass("no known service sets the clock"),
        [one] => Judgement::pass(format!("{one} sets the clock")),
        many => Judgement::warn(format!("{} set the clock", many.join(" and "))),
    };
    judgement.see_as(listed("running", &setters), fact.source()).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{Link, TimeStamping};

    use super::*;
    use crate::testing::{Case, Host, host};

    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

    fn cpu(flags: &str) -> Host {
        host().file("/proc/cpuinfo", &format!("processor : 0\nvendor_id : GenuineIntel\nflags : {flags}\n"))
    }

    fn stamps(facts: &mut Facts, hardware: bool) {
        let time_stamping = TimeStamping { hardware_tx: hardware, hardware_rx: hardware, phc: hardware.then_some(0) };
        let time_stamping = Fact::known(time_stamping, "ethtool -T eth0");
        facts.links =
            Fact::known(vec![Link { name: "eth0".into(), time_stamping, ..Link::default() }], "/sys/class/net");
    }

    fn units(names: &[&str]) -> Host {
        let lines: String = names.iter().map(|name| format!("{name} loaded active running X\n")).collect();
        host().command("systemctl list-units", &lines)
    }

    /// kvm-guest-sno: a guest gets no other hardware.
    #[test]
    fn a_guest_is_told_what_the_hypervisor_can_do() {
        let judgement = cpu("constant_tsc").guest().judge("clk.tsc-flags").remove(0);
        assert_eq!(judgement.for_good, [INVTSC]);
        assert!(INVTSC.contains("invtsc"));
        let own = crate::rules::find("vm.invtsc").unwrap();
        assert_eq!((own.fix.persistent, own.cost), (Some(INVTSC), MIGRATION));
        assert_eq!(judgement.cost.as_deref(), Some(MIGRATION));
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("clk.tsc-flags", || cpu("constant_tsc nonstop_tsc")),
        Case::fail("clk.tsc-flags", || cpu("constant_tsc")),
        Case::warn("clk.tsc-flags", || cpu("constant_tsc").guest()),
        Case::unknown("clk.tsc-flags", host),
        Case::pass("clk.tsc-unstable", || host().command("dmesg", "[0.1] tsc: Detected 2100.000 MHz processor\n")),
        Case::fail("clk.tsc-unstable", || {
            host().command("dmesg", "[9.1] tsc: Marking TSC unstable due to clocksource watchdog\n")
        }),
        Case::unknown("clk.tsc-unstable", host),
        Case::pass("clk.kvm", || host().guest().file(CLOCK, "tsc\n")),
        Case::warn("clk.kvm", || host().guest().file(CLOCK, "kvm-clock\n")),
        Case::fail("clk.kvm", || host().guest().file(CLOCK, "acpi_pm\n")),
        Case::unknown("clk.kvm", || host().guest()),
        Case::not_applicable("clk.kvm", || host().guest().arm().file(CLOCK, "arch_sys_counter\n")),
        Case::pass("clk.ptp", || host().nic("eth0").edit(|facts| stamps(facts, true))),
        Case::warn("clk.ptp", || host().nic("eth0").edit(|facts| stamps(facts, false))),
        Case::unknown("clk.ptp", || host().nic("eth0")),
        Case::pass("clk.ptp-daemon", || units(&["chronyd.service"])),
        Case::warn("clk.ptp-daemon", || units(&["chronyd.service", "phc2sys@ens1f0.service"])),
        Case::unknown("clk.ptp-daemon", host),
    ];
}

//! Notes on suggested words of the command line: which kernel configuration they need, and how the kernel changes them.

use host::Facts;
use host::facts::{CpuSet, KernelVersion, same_name};

use super::{Action, Step};
use crate::Finding;

/// Parameters, each with the build option that it needs: without the option, the kernel ignores the parameter
/// (timers/no_hz.rst; kernel-parameters.txt, rcu_nocbs).
const NEEDS: [(&str, &str); 2] = [("nohz_full", "NO_HZ_FULL"), ("rcu_nocbs", "RCU_NOCB_CPU")];

/// Adds to each fix the build options that its words need, unless the kernel is known to have them.
pub(crate) fn name_needs(findings: &mut [Finding], facts: &Facts) {
    if facts.kernel.config.is_known() || takes_full_ticks(facts) {
        return;
    }
    for step in findings.iter_mut().flat_map(|finding| &mut finding.fix.persistent) {
        let Action::Arguments { add, .. } = &step.action else { continue };
        let is_asked = |(name, _): &&(&str, &str)| add.iter().any(|word| same_name(&word.name, name));
        let needs: Vec<String> =
            NEEDS.iter().filter(is_asked).map(|(name, option)| format!("{name}= needs CONFIG_{option}=y")).collect();
        if needs.is_empty() {
            continue;
        }
        let text = format!("{}: the kernel's configuration is not recorded", needs.join(", "));
        step.note = if step.note.is_empty() { text } else { format!("{}; {text}", step.note) };
    }
}

/// Explains how the kernel treats CPU 0, which boots the host. The kernel adds CPU 0 to `irqaffinity=` until the mask
/// is written again (kernel/irq/irqdesc.c, irq_affinity_setup), and the fix says so. The kernel removes CPU 0 from
/// `nohz_full=` (kernel-parameters.txt: "The boot CPU will be forced outside the range to maintain the timekeeping"),
/// so the fix does not name CPU 0 there.
pub(crate) fn name_boot_cpu(findings: &mut [Finding], facts: &Facts) {
    let all = facts.cpus.all();
    for step in findings.iter_mut().flat_map(|finding| &mut finding.fix.persistent) {
        let Action::Arguments { add, remove } = &mut step.action else { continue };
        let mut notes = Vec::new();
        for word in add.iter_mut() {
            // In isolcpus=, flags may precede the list.
            if same_name(&word.name, "isolcpus") && word.cpu_set(&all).is_ok_and(|cpus| cpus.contains(0)) {
                notes.push("CPU 0 boots the host: leave that CPU to housekeeping (cmd.hk-per-node)");
            }
            let Some(mut cpus) = word.value.as_deref().and_then(|value| value.parse::<CpuSet>().ok()) else { continue };
            if same_name(&word.name, "irqaffinity") && !cpus.contains(0) {
                notes.push(
                    "the kernel adds CPU 0, which boots the host: write /proc/irq/default_smp_affinity after boot",
                );
            }
            if same_name(&word.name, "nohz_full") && cpus.contains(0) {
                notes.push(KEEPS_TICK);
                cpus.remove(0);
                word.value = (!cpus.is_empty()).then(|| cpus.to_string());
            }
        }
        // CPU 0 was the only CPU that the word named.
        add.retain(|word| !same_name(&word.name, "nohz_full") || word.value.is_some());
        if add.is_empty() && remove.is_empty() {
            *step = Step::advice(KEEPS_TICK);
            continue;
        }
        for note in notes {
            step.note = if step.note.is_empty() { note.to_owned() } else { format!("{}; {note}", step.note) };
        }
    }
}

/// Explains why `nohz_full=` does not name CPU 0.
const KEEPS_TICK: &str = "CPU 0 boots the host and keeps its tick: leave it to housekeeping (cmd.hk-per-node)";

/// Whether the kernel is known to support `nohz_full=` and `rcu_nocbs=`. The file cpu/nohz_full exists only with
/// CONFIG_NO_HZ_FULL (drivers/base/cpu.c), which selects RCU_NOCB_CPU (kernel/time/Kconfig). The kernels of Red Hat
/// Enterprise Linux 8 and later accept both parameters, because Red Hat's own tuned profile cpu-partitioning writes
/// them.
fn takes_full_ticks(facts: &Facts) -> bool {
    let since = facts.kernel.version.get().is_some_and(|version| version >= KernelVersion::new(4, 18));
    let is_red_hat = facts
        .kernel
        .release
        .is(|release| release.contains(".el") && !release.contains("elrepo") && !release.contains("uek"))
        == Some(true);
    facts.cpus.nohz_full.is_known() || since && is_red_hat
}

#[cfg(test)]
mod tests {
    use crate::testing::{Host, host};
    use crate::{Intent, audit};

    /// What `cmd.nohz-full`, `cmd.rcu-nocbs` and `cmd.companions` ask for at the next boot.
    fn asked(host: Host) -> Vec<String> {
        let host = host.file("/proc/cmdline", "isolcpus=managed_irq,domain,2-7 irqaffinity=0-1 nmi_watchdog=0");
        let intent = Intent { isolated: Some("2-7".parse().unwrap()), ..Intent::default() };
        let report = audit(&host.facts(), &intent);
        let of = |id: &'static str| report.findings.iter().filter(move |finding| finding.rule.id == id);
        let findings = of("cmd.nohz-full").chain(of("cmd.rcu-nocbs")).chain(of("cmd.companions"));
        let mut lines: Vec<String> =
            findings.flat_map(|finding| &finding.fix.persistent).map(ToString::to_string).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// adl0, genoa0, icx2s0: kernels of their owners, whose configuration was not recorded.
    #[test]
    fn a_word_says_which_option_of_the_kernel_it_needs() {
        let release = |text: &str| host().file("/proc/sys/kernel/osrelease", text);
        let (ticks, rcu) = ("nohz_full= needs CONFIG_NO_HZ_FULL=y", "rcu_nocbs= needs CONFIG_RCU_NOCB_CPU=y");
        let open = "the kernel's configuration is not recorded";
        let lines = asked(release("7.0.0-rc1-g1234\n"));
        assert!(lines.contains(&format!("rcu_nocbs=2-7 # {rcu}: {open}")), "{lines:?}");
        assert!(lines.contains(&format!("nohz_full=2-7 # {ticks}: {open}")), "{lines:?}");
        assert!(lines.contains(&format!("nohz_full=2-7 rcu_nocbs=2-7 # {ticks}, {rcu}: {open}")), "{lines:?}");
        // Of ELRepo and of Oracle come kernels of their own with Red Hat's suffix.
        assert!(asked(release("6.12.0-1.el9.elrepo.x86_64\n")).iter().any(|line| line.contains(ticks)));
        // What is recorded, what the kernel shows, and what Red Hat builds needs no such word.
        let config = "CONFIG_NO_HZ_FULL=y\nCONFIG_RCU_NOCB_CPU=y\n";
        for host in [
            release("6.12.0\n").file("/boot/config-6.12.0", config),
            release("6.12.0\n").file("/sys/devices/system/cpu/nohz_full", "(null)\n"),
            release("5.14.0-427.el9.x86_64\n"),
        ] {
            let lines = asked(host);
            assert!(!lines.is_empty() && !lines.iter().any(|line| line.contains("CONFIG_")), "{lines:?}");
        }
    }

    /// telco-master: the application has CPU 0, which no irqaffinity= takes out of the mask.
    #[test]
    fn words_say_what_the_kernel_makes_of_them_for_the_boot_cpu() {
        let fix = |isolated: &str| {
            let host = host().file("/proc/cmdline", "quiet").file("/proc/irq/default_smp_affinity", "ff\n");
            let host = host.file("/proc/sys/kernel/osrelease", "7.0.0-rc1-g1234\n");
            let intent = Intent { isolated: Some(isolated.parse().unwrap()), ..Intent::default() };
            let report = audit(&host.facts(), &intent);
            let of = |id: &str| report.findings.iter().find(|finding| finding.rule.id == id).unwrap().fix.clone();
            ["cmd.irqaffinity", "cmd.nohz-full", "cmd.isolcpus"]
                .map(|id| of(id).persistent.iter().map(ToString::to_string).collect::<String>())
        };
        let [affinity, ticks, domains] = fix("0-1");
        assert!(
            domains.starts_with("isolcpus=managed_irq,domain,0-1 #") && domains.contains("CPU 0 boots the host"),
            "{domains}"
        );
        assert!(affinity.starts_with("irqaffinity=2-7 # the kernel adds CPU 0"), "{affinity}");
        assert!(
            ticks.starts_with("nohz_full=1 rcu_nocbs=0-1 ")
                && ticks.contains("CPU 0 boots the host and keeps its tick"),
            "{ticks}"
        );
        let [_, ticks, _] = fix("0");
        assert!(ticks.starts_with("rcu_nocbs=0 "), "{ticks}");
        let [affinity, ticks, domains] = fix("2-7");
        assert!(affinity == "irqaffinity=0-1" && !ticks.contains("CPU 0"), "{affinity} {ticks}");
        assert!(!domains.contains("CPU 0"), "{domains}");
    }
}

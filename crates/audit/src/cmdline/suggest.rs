//! Suggests a command line.

use std::fmt;

use host::facts::CpuSet;

use crate::{Context, Workload};

/// A suggested kernel command line, parameter by parameter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suggestion {
    /// The parameters, in the order in which they are written.
    pub parameters: Vec<Suggested>,
    /// What the user must decide or do besides booting with the line.
    pub notes: Vec<String>,
}

/// One parameter of a suggested line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suggested {
    /// The parameter as written on the kernel command line. `hugepagesz=1G hugepages=16` counts as one parameter,
    /// because neither word is useful alone.
    pub parameter: String,
    /// What the parameter is for, and what it costs.
    pub why: &'static str,
}

impl Suggestion {
    /// Returns the whole line: all parameters, separated by spaces.
    pub fn line(&self) -> String {
        self.parameters.iter().map(|suggested| suggested.parameter.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn add(&mut self, parameter: impl Into<String>, why: &'static str) {
        self.parameters.push(Suggested { parameter: parameter.into(), why });
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

impl fmt::Display for Suggestion {
    /// Writes the whole line, as [`Self::line`] returns it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// Suggests a kernel command line for the purpose of the host. `cpus` are all CPUs of the host; those that are not
/// isolated are for housekeeping. If `cpus` is empty, `irqaffinity=` is left out and a note says so. If `intent`
/// isolates no CPUs, the line has only parameters that are useful without isolated CPUs.
///
/// The line contains only parameters on which the sources agree. Where sources disagree (turbo, `idle=poll`,
/// mitigations), a note says so.
pub fn suggest(intent: &Context, cpus: &CpuSet) -> Suggestion {
    let mut suggestion = Suggestion::default();
    let guest = intent.is(Workload::Guest);
    // CPU 0 boots the host and keeps the time, so it cannot be isolated.
    let mut isolated = intent.isolated.value.clone();
    if isolated.contains(0) {
        isolated.remove(0);
        suggestion.note("CPU 0 boots the host and keeps the time, so it is left to housekeeping");
    }
    match isolated.is_empty() {
        true => suggestion.note("no CPUs to isolate are known: name them with --isolated"),
        false => isolation(&mut suggestion, intent, &isolated, cpus),
    }
    if intent.is(Workload::Poll) || intent.is(Workload::KvmHost) {
        suggestion.add(
            "default_hugepagesz=1G hugepagesz=1G hugepages=16",
            "pages of 1 GB can only be reserved reliably at boot; the number is an example: use what the \
             application needs",
        );
    }
    if !guest && (intent.is(Workload::Poll) || intent.is(Workload::KvmHost)) {
        suggestion.add(
            "intel_iommu=on iommu=pt",
            "vfio-pci can bind devices, and the kernel's own drivers do not map each packet; on AMD iommu=pt alone",
        );
    }
    if guest {
        suggestion.add("no-kvmapf", "switches asynchronous page faults off, which can cause arbitrary delays");
        suggestion.add(
            "clocksource=tsc tsc=reliable",
            "only if the hypervisor exposes an invariant TSC; otherwise leave both out",
        );
    } else {
        suggestion.add(
            "tsc=reliable",
            "stops the watchdog timer that visits all CPUs in turn; only if the TSC is invariant (constant_tsc \
             nonstop_tsc). If the CPUs lack tsc_adjust, tsc=nowatchdog does the same and keeps the checks at boot",
        );
    }
    suggestion.note("idle states: limit them per CPU with pm_qos_resume_latency_us instead of idle=poll or max_cstate, which heat all CPUs");
    suggestion.note(
        "mitigations: leave them on unless the host has one tenant and is closed off; that is a security decision",
    );
    suggestion
}

fn isolation(suggestion: &mut Suggestion, intent: &Context, isolated: &CpuSet, cpus: &CpuSet) {
    suggestion.add(
        format!("isolcpus=managed_irq,domain,{isolated}"),
        "the scheduler moves no threads onto these CPUs, and interrupts that the kernel manages avoid them; stays \
         in force until the next boot",
    );
    let interrupts_only = intent.workloads.value.as_slice() == [Workload::Interrupt];
    if interrupts_only {
        suggestion.add(format!("rcu_nocbs={isolated}"), "RCU callbacks run elsewhere");
        suggestion.note(
            "nohz_full is left out: it makes each system call and each interrupt more expensive, and an application \
         that sleeps gains little",
        );
    } else {
        suggestion.add(
            format!("nohz_full={isolated}"),
            "these CPUs have no tick while one task runs, and their RCU callbacks run elsewhere; each system call and \
            interrupt costs more",
        );
        suggestion.add(
            format!("rcu_nocbs={isolated}"),
            "implied by nohz_full (kernel-parameters.txt); stated for older kernels and for clarity",
        );
    }
    let housekeeping = cpus.difference(isolated);
    match housekeeping.is_empty() {
        false => suggestion.add(format!("irqaffinity={housekeeping}"), "new interrupts go to the housekeeping CPUs"),
        true if cpus.is_empty() => suggestion.note(
            "irqaffinity= is left out, because the host's CPUs are not all known: list the housekeeping CPUs in \
                it",
        ),
        true => suggestion.note("no CPU is left for housekeeping: leave at least one on each NUMA node"),
    }
    suggestion
        .add("skew_tick=1", "CPUs tick at different times and do not contend for the same locks; costs some power");
    suggestion.add(
        "nmi_watchdog=0 nosoftlockup",
        "switches the lockup detectors off; hangs must be detected by other \
        means",
    );
    if !intent.is(Workload::Guest) {
        suggestion.add("mce=ignore_ce", "corrected errors are not polled for; uncorrected ones are still handled");
    }
    if intent.is(Workload::Rt) {
        suggestion.add(
            "rcutree.kthread_prio=11",
            "RCU's threads run before the application's, if those have priorities up to 10",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Intended;

    fn intent(isolated: &str, workloads: &[Workload]) -> Context {
        Context {
            isolated: Intended::given(isolated.parse().unwrap()),
            workloads: Intended::given(workloads.to_vec()),
            ..Context::default()
        }
    }

    #[test]
    fn a_polling_host() {
        let line = suggest(&intent("2-7", &[Workload::Poll]), &CpuSet::below(8)).line();
        assert!(
            line.starts_with("isolcpus=managed_irq,domain,2-7 nohz_full=2-7 rcu_nocbs=2-7 irqaffinity=0-1 "),
            "{line}"
        );
        assert!(line.contains("hugepages=16") && line.contains("iommu=pt"));
    }

    #[test]
    fn cpu_0_is_never_isolated_and_unknown_cpus_are_not_guessed() {
        let suggestion = suggest(&intent("0-3", &[Workload::Interrupt]), &CpuSet::new());
        assert!(
            suggestion.line().starts_with("isolcpus=managed_irq,domain,1-3 rcu_nocbs=1-3 skew_tick=1"),
            "{suggestion}"
        );
        assert!(suggestion.notes.iter().any(|note| note.contains("irqaffinity= is left out")));
        assert!(suggestion.notes.iter().any(|note| note.contains("CPU 0")));
    }

    #[test]
    fn without_isolated_cpus_there_is_little_to_say() {
        let suggestion = suggest(&Context::default(), &CpuSet::below(4));
        assert_eq!(suggestion.line(), "tsc=reliable");
    }
}

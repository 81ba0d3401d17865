//! Hosts whose kernel command line is written by a cluster operator, which undoes other changes to it.

use host::Facts;
use host::facts::CommandLine;

use super::{Action, Risk, Step};

/// The cluster operator that manages the kernel command line of a node. It overwrites manual changes to the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// The node tuning operator of OpenShift, which derives the line from a PerformanceProfile.
    PerformanceProfile,
    /// The machine config operator of OpenShift, which takes the line from MachineConfig objects.
    MachineConfig,
}

/// Kernel parameters that the node tuning operator of OpenShift derives from `spec.cpu`
/// (openshift/cluster-node-tuning-operator, assets/performanceprofile/tuned/openshift-node-performance).
const OF_CPUS: [&str; 6] =
    ["irqaffinity", "isolcpus", "nohz_full", "rcu_nocbs", "systemd.cpu_affinity", "tuned.non_isolcpus"];

/// Where to set the parameters in [`OF_CPUS`], and the setting that adds `domain` to `isolcpus=` (PerformanceProfile,
/// `spec.cpu.balanceIsolated`).
const PROFILE: &str = "PerformanceProfile of OpenShift, from which the operator writes these parameters: spec.cpu.isolated \
     and spec.cpu.reserved name the CPUs; spec.cpu.balanceIsolated: false adds domain to isolcpus=, and then pods without \
     exclusive CPUs are not balanced there either";

/// The setting of a PerformanceProfile that keeps device interrupts off the isolated CPUs. Without this setting, the
/// operator's tuned profile does not change the affinities (same source as [`OF_CPUS`], `default_irq_smp_affinity`).
const INTERRUPTS: &str = "PerformanceProfile of OpenShift: spec.globallyDisableIrqLoadBalancing: true keeps device \
     interrupts off spec.cpu.isolated, except those that the kernel manages; for single pods, the annotation \
     irq-load-balancing.crio.io: disable does so";

impl Operator {
    /// Recognises the operator of a host by the kernel command line: Red Hat CoreOS by the word `ostree=`, and a
    /// PerformanceProfile by the CPU mask that the operator's tuned profile adds. `None` if there is no such word.
    pub fn of(line: &CommandLine) -> Option<Self> {
        let is_node = line.value("ostree").is_some_and(|path| path.contains("/rhcos/"));
        is_node.then(|| match line.has("tuned.non_isolcpus") {
            true => Self::PerformanceProfile,
            false => Self::MachineConfig,
        })
    }

    /// The object in which to add words, and the object from which the present words come.
    const fn places(self) -> (&'static str, &'static str) {
        match self {
            Self::PerformanceProfile => (
                "PerformanceProfile of OpenShift, spec.additionalKernelArgs",
                "spec.workloadHints or spec.additionalKernelArgs of the PerformanceProfile",
            ),
            Self::MachineConfig => {
                ("MachineConfig of OpenShift, spec.kernelArguments", "the MachineConfig that adds them")
            }
        }
    }

    /// Instructions for adding and removing words.
    pub(crate) fn lines(self, add: &[String], remove: &[String]) -> Vec<String> {
        let (place, source) = self.places();
        let added = (!add.is_empty()).then(|| format!("in {place}, add {}", add.join(" ")));
        let removed = (!remove.is_empty()).then(|| format!("in {source}, remove {}", remove.join(", ")));
        added.into_iter().chain(removed).collect()
    }
}

/// Rewrites a step that changes parameters that the node tuning operator writes: the step then names the operator's own
/// settings. For other changes to the command line, adds the object in which the operator expects them.
pub(super) fn keep(step: &mut Step, facts: &Facts) {
    let Some(operator) = facts.cmdline.value().and_then(Operator::of) else { return };
    if let Action::Advise(text) = &mut step.action {
        *text = of_files(text);
    }
    let Action::Arguments { add, .. } = &step.action else { return };
    let of_cpus = add.iter().any(|word| OF_CPUS.iter().any(|name| host::facts::same_name(name, &word.name)));
    if of_cpus && operator == Operator::PerformanceProfile {
        let has = |names: &[&str]| {
            let count = add.iter().filter(|word| names.iter().any(|name| host::facts::same_name(name, &word.name)));
            count.count()
        };
        let profile = |text: String| Step { risks: [Risk::Reboot].into(), ..Step::advice(text) };
        // isolcpus=managed_irq is on the line already, and spec.cpu does not move the other interrupts.
        *step = match (has(&["irqaffinity"]), has(&["irqaffinity", "isolcpus"]) == add.len()) {
            (1.., true) => Step::advice(INTERRUPTS),
            (1.., false) => profile(format!("{PROFILE}; {INTERRUPTS}")),
            (0, _) => profile(PROFILE.to_owned()),
        };
        return;
    }
    let (place, source) = operator.places();
    let place = if add.is_empty() { source } else { place };
    let note = std::mem::take(&mut step.note);
    step.note = if note.is_empty() { format!("in {place}") } else { format!("in {place}; {note}") };
}

/// Rewrites instructions that name files in /etc. The machine config operator owns these files: manual changes are lost
/// when the node is installed again.
fn of_files(text: &str) -> String {
    const UNIT: &str = "as a systemd mount unit of a MachineConfig of OpenShift";
    match text.contains("/etc/fstab") {
        true => text
            .replace("in /etc/fstab", UNIT)
            .replace("from /etc/fstab", "by a MachineConfig of OpenShift (the unit or the line that adds it)"),
        false if text.contains("/etc/") && !text.contains("MachineConfig") => {
            format!("{text} (as a file of a MachineConfig of OpenShift)")
        }
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;
    use crate::{Intent, audit};

    /// telco-worker1: interrupts that leave the application's CPUs do not go to those that the line keeps free.
    #[test]
    fn work_moves_to_cpus_that_the_line_does_not_isolate() {
        let lines = |line: &str, isolated: &str| -> Vec<String> {
            let host = host()
                .cmdline(line)
                .file("/proc/irq/55/effective_affinity_list", "7")
                .file("/proc/interrupts", "     CPU0 CPU7\n 55: 0 9 PCI-MSIX-0000:04:00.0 3-edge eno3-TxRx-3\n");
            let host = host.file("/proc/irq/default_smp_affinity", "ff");
            let intent = Intent { isolated: Some(isolated.parse().unwrap()), ..Intent::default() };
            let report = audit(&host.facts(), &intent);
            let of = |id: &str| report.findings.iter().find(|finding| finding.rule.id == id).unwrap().fix.clone();
            [of("irq.on-iso"), of("irq.hits-iso"), of("cmd.irqaffinity")]
                .iter()
                .map(|fix| fix.runtime[0].to_string())
                .collect()
        };
        let of = |list: &str, mask: &str| {
            let all = format!(
                "for i in /proc/irq/[0-9]*; do echo {list} > $i/smp_affinity_list; done # if a write fails, that interrupt cannot be moved: it is the timer, for example, or the kernel manages it; if irqbalance runs, first ban the CPUs (irq.irqbalance-banned)"
            );
            vec![all.clone(), all, format!("echo {mask} > /proc/irq/default_smp_affinity")]
        };
        assert_eq!(lines("quiet", "6-7"), of("0-5", "3f"));
        assert_eq!(lines("isolcpus=managed_irq,domain,3-5 nohz_full=2-3", "6-7"), of("0-1", "3"));
        // What would leave none is left as it is.
        assert_eq!(lines("isolcpus=0-7", "6-7"), of("0-5", "3f"));
    }

    const NODE: &str = "ostree=/ostree/boot.0/rhcos/1/0 tuned.non_isolcpus=00000003 isolcpus=managed_irq,2-7";

    #[test]
    fn what_an_operator_writes_is_changed_where_it_is_configured() {
        let report = audit(&host().cmdline(NODE).facts(), &Intent::default());
        let words: Vec<String> =
            report.findings.iter().flat_map(|finding| finding.fix.adds()).map(ToString::to_string).collect();
        assert!(!words.iter().any(|word| word.contains("isolcpus") || word.contains("rcu_nocbs")), "{words:?}");
        let flags = report.findings.iter().find(|finding| finding.rule.id == "cmd.isolcpus-flags").unwrap();
        let text: Vec<String> = flags.fix.steps().map(ToString::to_string).collect();
        assert!(text.len() == 1 && text[0].contains("balanceIsolated: false"), "{text:?}");
        assert!(flags.fix.risks().contains(&Risk::Reboot));
    }

    /// telco-worker1: spec.cpu moves no interrupt of a NIC.
    #[test]
    fn interrupts_are_moved_by_what_moves_them() {
        let host = host().cmdline(NODE).file("/proc/irq/55/effective_affinity_list", "3").file(
            "/proc/interrupts",
            "     CPU0 CPU1 CPU2 CPU3\n 55: 0 0 0 9 PCI-MSIX-0000:04:00.0 3-edge eno3-TxRx-3\n",
        );
        let host = host.file("/proc/softirqs", "     CPU0 CPU1 CPU2 CPU3\nNET_RX: 0 0 0 9\n");
        let report = audit(&host.facts(), &Intent::default());
        for id in ["irq.on-iso", "irq.hits-iso", "irq.softirq-iso"] {
            let finding = report.findings.iter().find(|finding| finding.rule.id == id).unwrap();
            let text: Vec<String> = finding.fix.persistent.iter().map(ToString::to_string).collect();
            assert_eq!(text, [INTERRUPTS], "{id}");
            assert!(text[0].contains("except those that the kernel manages"));
        }
        // The same advice is of the same kind everywhere: it changes no kernel argument.
        let advised =
            |finding: &&crate::Finding| finding.fix.persistent.iter().any(|step| step.to_string() == INTERRUPTS);
        let reboots: Vec<(&str, bool)> =
            report.findings.iter().filter(advised).map(|finding| (finding.rule.id, finding.fix.reboot)).collect();
        assert!(reboots.len() > 3 && reboots.iter().all(|(_, reboot)| !reboot), "{reboots:?}");
        let mut both = Step::advice("");
        let words = CommandLine::parse("irqaffinity=0-1 nohz_full=2-7").parameters;
        both.action = Action::Arguments { add: words, remove: Vec::new() };
        keep(&mut both, &host.facts());
        assert!(both.to_string().contains("spec.cpu.isolated") && both.to_string().contains("globallyDisable"));
    }

    /// telco-master, telco-worker1: what lasts on a node stands in a MachineConfig, not in a file that somebody edits.
    #[test]
    fn files_of_a_node_are_written_by_its_operator() {
        let fix = |line: &str| {
            let host =
                host().cmdline(line).workload(crate::Workload::Poll).file("/proc/mounts", "none / ext4 rw 0 0\n");
            let host = host.file("/proc/filesystems", "nodev\tresctrl\n").file("/proc/swaps", SWAP);
            let intent = Intent {
                isolated: Some("2-7".parse().unwrap()),
                workloads: Some(vec![crate::Workload::Poll]),
                ..Intent::default()
            };
            let report = audit(&host.facts(), &intent);
            let steps = report.findings.iter().flat_map(|finding| &finding.fix.persistent);
            steps.map(ToString::to_string).collect::<Vec<String>>()
        };
        let (node, bare) = (fix(NODE), fix("quiet"));
        assert!(bare.iter().any(|step| step.contains("/etc/fstab")), "{bare:?}");
        assert!(!node.iter().any(|step| step.contains("fstab")), "{node:?}");
        assert!(node.iter().any(|step| step.contains("MachineConfig of OpenShift")), "{node:?}");
        assert_eq!(
            of_files("the same mount in /etc/fstab"),
            "the same mount as a systemd mount unit of a MachineConfig of OpenShift"
        );
        assert!(of_files("x in /etc/sysctl.d").ends_with("(as a file of a MachineConfig of OpenShift)"));
    }

    const SWAP: &str = "Filename Type Size Used Priority\n/dev/sda2 partition 8388604 0 -2\n";

    #[test]
    fn other_hosts_have_no_operator() {
        let of = |line: &str| Operator::of(&CommandLine::parse(line));
        assert_eq!(of(NODE), Some(Operator::PerformanceProfile));
        assert_eq!(of("ostree=/ostree/boot.0/rhcos/1/0 psi=0"), Some(Operator::MachineConfig));
        // tuned's own cpu-partitioning adds the same mask.
        assert_eq!(of("BOOT_IMAGE=/vmlinuz tuned.non_isolcpus=00000003"), None);
        assert_eq!(
            Operator::MachineConfig.lines(&["skew_tick=1".into()], &[]),
            ["in MachineConfig of OpenShift, spec.kernelArguments, add skew_tick=1"]
        );
    }

    /// telco-worker1: each finding names the place that the actions name.
    #[test]
    fn words_say_where_an_operator_takes_them_from() {
        let fix = |line: &str| -> Vec<String> {
            let report = audit(&host().cmdline(line).facts(), &Intent::default());
            let finding = report.findings.iter().find(|finding| finding.rule.id == "cmd.mce").unwrap();
            finding.fix.persistent.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            fix(&format!("{NODE} mce=off")),
            [
                "remove mce=off # in spec.workloadHints or spec.additionalKernelArgs of the PerformanceProfile",
                "mce=ignore_ce # in PerformanceProfile of OpenShift, spec.additionalKernelArgs"
            ]
        );
        let config = fix("ostree=/ostree/boot.0/rhcos/1/0 mce=off");
        assert_eq!(config[1], "mce=ignore_ce # in MachineConfig of OpenShift, spec.kernelArguments");
        assert_eq!(fix("mce=off"), ["remove mce=off", "mce=ignore_ce"]);
    }
}

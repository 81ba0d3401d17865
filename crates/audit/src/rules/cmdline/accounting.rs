//! Rules on parameters for security, accounting and guests.

use host::Facts;

use crate::rules::common::{X86, given, line, listed, see_parameter};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const PARAMETERS: &str = "Linux Documentation/admin-guide/kernel-parameters.txt";
const FLEXRAN: &str = "FlexRAN real-time platform slides (2018), kernel command line";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.audit",
        cause: Cause::Auditing,
        title: "System calls are not audited",
        applies: Applies::LINUX,
        judge: audit,
        why: "With auditing each system call takes the slow path into and out of the kernel, and a full backlog makes \
              callers wait for the daemon.",
        magnitude: Magnitude::slower(
            "a few hundred nanoseconds per system call; up to a minute if the backlog is full \
                   (backlog_wait_time)",
            "Linux kernel/audit.c, AUDIT_BACKLOG_WAIT_TIME (60 s); the cost of a call is general knowledge",
        ),
        fix: Fix::runtime_or_boot("auditctl -e 0", "audit=0")
            .against(&["security policies that demand an audit trail"]),
        cost: "There is no audit trail, which a policy may demand.",
        references: &[FLEXRAN, "Linux Documentation/admin-guide/kernel-parameters.txt, audit"],
    },
    Rule {
        id: "cmd.mitigations",
        cause: Cause::Mitigations,
        title: "The cost of mitigating CPU vulnerabilities is known and accepted",
        applies: Applies::LINUX,
        judge: mitigations,
        why: "Mitigations act on each entry into the kernel, each context switch and each entry into a guest. Whether \
              they may be switched off depends on who runs code on this host, not on latency.",
        magnitude: Magnitude::slower(
            "about 100 ns to 1 us per system call, interrupt or entry into a guest, depending on vulnerability \
                   and CPU",
            "general knowledge; Linux Documentation/admin-guide/hw-vuln names the mechanism of each",
        ),
        fix: Fix::boot("mitigations=auto, or mitigations=off on a closed host with one tenant").against(&[
            "low-latency guides ask for mitigations=off, the documents about the vulnerabilities for the opposite",
        ]),
        cost: "With mitigations=off code on this host can read memory that is not its own.",
        references: &["Linux Documentation/admin-guide/hw-vuln/index.rst", "rigtorp.se, Low latency tuning guide"],
    },
    Rule {
        id: "cmd.cgroup-disable-memory",
        cause: Cause::MemoryManagement,
        title: "The memory controller is on where containers need it",
        applies: Applies::LINUX,
        judge: cgroup_memory,
        why: "cgroup_disable=memory saves the accounting of each page. But without the controller, containers have no \
         memory limits and Kubernetes does not start.",
        magnitude: Magnitude::slower(
            "tens of nanoseconds per charged page",
            "general knowledge; the FlexRAN real-time platform slides (2018) set it without a number",
        ),
        fix: Fix::boot("remove cgroup_disable=memory")
            .against(&["FlexRAN real-time platform slides (2018) ask for cgroup_disable=memory"]),
        cost: "The kernel accounts for each page.",
        references: &[FLEXRAN, "Linux Documentation/admin-guide/cgroup-v2.rst, Memory"],
    },
    Rule {
        id: "cmd.psi",
        cause: Cause::MemoryManagement,
        title: "Pressure stall accounting is off on real-time hosts",
        applies: Applies::LINUX.to(&[Workload::Rt]),
        judge: psi,
        why: "Pressure stall information is updated at each context switch, and its averages by a worker every 2 s.",
        magnitude: Magnitude::slower(
            "tens of nanoseconds per context switch",
            "Linux kernel/sched/psi.c names the places and the period; the figure is general knowledge",
        ),
        fix: Fix::boot("psi=0"),
        cost: "systemd-oomd and others that read /proc/pressure see nothing.",
        references: &[
            "Linux Documentation/accounting/psi.rst",
            "Linux Documentation/admin-guide/kernel-parameters.txt, psi",
        ],
    },
    Rule {
        id: "cmd.guest-async-pf",
        cause: Cause::Hypervisor,
        title: "The guest takes no asynchronous page faults",
        applies: Applies::LINUX.made_by(X86).in_guest(),
        judge: async_faults,
        why: "With asynchronous page faults, KVM tells the guest that a page of its memory is not present, and the \
              guest suspends the task until the page is there, however long that takes. This never happens if the \
              host locks the guest's memory, or with no-kvmapf.",
        magnitude: Magnitude::untimed(
            "as long as the host takes to load the page",
            "FlexRAN real-time platform slides (2018), Kernel and Operating System Level Optimization",
        ),
        fix: Fix::boot("no-kvmapf"),
        cost: "If a page is not present, the whole virtual CPU stops while the host loads it.",
        references: &[
            "FlexRAN real-time platform slides (2018), Kernel and Operating System Level Optimization",
            PARAMETERS,
        ],
    },
];

fn running(facts: &Facts, names: &[&str]) -> Result<Vec<String>, Skip> {
    let units = known(&facts.services.running)?;
    let matches = |unit: &&String| names.iter().any(|name| unit.trim_end_matches(".service") == *name);
    Ok(units.iter().filter(matches).cloned().collect())
}

fn audit(facts: &Facts, _: &Context) -> Judged {
    let value = line(facts)?.value("audit");
    let subject = Subject::Parameter("audit".into());
    let judgement = match value {
        Some("0" | "off") => Judgement::pass_for(subject, "auditing is off"),
        Some(_) => Judgement::warn_for(subject, "auditing is on from boot"),
        // Without the parameter, auditing starts with the audit daemon.
        None => match running(facts, &["auditd"])?.first() {
            Some(unit) => Judgement::warn_for(subject, format!("{unit} runs and has enabled auditing"))
                .see_as(unit.as_str(), facts.services.running.source()),
            None => Judgement::pass_for(subject, "auditd does not run")
                .see_as("no auditd.service", facts.services.running.source()),
        },
    };
    see_parameter(judgement, facts, "audit").alone()
}

fn mitigations(facts: &Facts, _: &Context) -> Judged {
    let all = known(&facts.cpus.vulnerabilities)?;
    let count = |start: &str| all.values().filter(|state| state.starts_with(start)).count();
    let (open, mitigated) = (count("Vulnerable"), count("Mitigation"));
    let off = facts.cmdline.value().is_some_and(|line| line.has_value("mitigations", "off"));
    let judgement = match (off, open) {
        (true, _) => Judgement::disagree(format!(
            "mitigations are off, {open} vulnerabilities are open: fast, but unsafe with other tenants"
        )),
        (false, 0) => Judgement::pass(format!("{mitigated} vulnerabilities are mitigated, none is open")),
        (false, _) => Judgement::disagree(format!("{open} vulnerabilities are open, {mitigated} are mitigated")),
    };
    let costly = [
        "spectre_v2",
        "mds",
        "l1tf",
        "retbleed",
        "meltdown",
        "mmio_stale_data",
        "spec_rstack_overflow",
        "gather_data_sampling",
    ];
    let source = facts.cpus.vulnerabilities.source();
    let see = |judgement: Judgement, name: &&str| match all.get(*name) {
        Some(state) => judgement.see_as(format!("{name}: {state}"), source),
        None => judgement,
    };
    let judgement = judgement.see_as(format!("{} vulnerabilities are known to the kernel", all.len()), source);
    see_parameter(costly.iter().fold(judgement, see), facts, "mitigations").alone()
}

fn cgroup_memory(facts: &Facts, _: &Context) -> Judged {
    let parameter = given(facts, "cgroup_disable")?;
    if !parameter.parts().any(|part| part == "memory") {
        return Err(Skip::not_applicable("the memory controller is not disabled"));
    }
    let subject = Subject::Parameter("cgroup_disable".into());
    let units = running(facts, &["kubelet", "crio", "containerd", "docker", "podman"])?;
    let judgement = match units.first() {
        Some(unit) => Judgement::fail_for(subject, format!("{unit} runs, and needs the memory controller")),
        None => Judgement::pass_for(subject, "no known container service runs"),
    };
    see_parameter(judgement.see_as(listed("running", &units), facts.services.running.source()), facts, "cgroup_disable")
        .alone()
}

fn psi(facts: &Facts, _: &Context) -> Judged {
    let subject = Subject::Parameter("psi".into());
    let value = line(facts)?.value("psi");
    let on = match value {
        Some(text) => !matches!(text, "0" | "off" | "n" | "no"),
        None => {
            let config = known(&facts.kernel.config)?;
            config.is_set("PSI") && !config.is_set("PSI_DEFAULT_DISABLED")
        }
    };
    let judgement = match on {
        true => Judgement::warn_for(subject, "pressure stalls are accounted for at each context switch"),
        false => Judgement::pass_for(subject, "pressure stalls are not accounted for"),
    };
    see_parameter(judgement, facts, "psi").alone()
}

fn async_faults(facts: &Facts, context: &Context) -> Judged {
    let line = line(facts)?;
    let hypervisor = &facts.virtualisation.hypervisor;
    if known(hypervisor)? != "kvm" {
        return Err(Skip::not_applicable("the hypervisor is not KVM"));
    }
    let subject = Subject::Parameter("no-kvmapf".into());
    let judgement = match line.has("no-kvmapf") {
        true => Judgement::pass_for(subject, "asynchronous page faults are off"),
        false if !context.has_intent() => {
            return Err(Skip::not_applicable(
                "only for guests with isolated CPUs, a goal, polling or real-time threads",
            ));
        }
        false => Judgement::warn_for(
            subject,
            "asynchronous page faults are on; a task can stall if the host does not lock the guest's memory",
        ),
    };
    see_parameter(judgement, facts, "no-kvmapf").see(hypervisor).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::Workload;
    use crate::testing::{Case, Host, host};

    fn with(line: &str) -> Host {
        host().cmdline(line)
    }

    fn units(line: &str, unit: &str) -> Host {
        with(line).command("systemctl list-units", &format!("{unit} loaded active running X\n"))
    }

    fn rt(line: &str) -> Host {
        with(line).workload(Workload::Rt)
    }

    fn state(line: &str, text: &str) -> Host {
        with(line).file("/sys/devices/system/cpu/vulnerabilities/mds", text)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.audit", || with("audit=0")),
        Case::pass("cmd.audit", || units("quiet", "sshd.service")),
        Case::warn("cmd.audit", || units("quiet", "auditd.service")),
        Case::unknown("cmd.audit", || with("quiet")),
        Case::pass("cmd.mitigations", || state("quiet", "Mitigation: Clear CPU buffers\n")),
        Case::disagree("cmd.mitigations", || state("mitigations=off", "Vulnerable\n")),
        Case::unknown("cmd.mitigations", || with("quiet")),
        Case::pass("cmd.cgroup-disable-memory", || units("cgroup_disable=memory", "sshd.service")),
        Case::fail("cmd.cgroup-disable-memory", || units("cgroup_disable=memory", "kubelet.service")),
        Case::unknown("cmd.cgroup-disable-memory", || with("cgroup_disable=memory")),
        Case::not_applicable("cmd.cgroup-disable-memory", || with("quiet")),
        Case::pass("cmd.psi", || rt("psi=0")),
        Case::warn("cmd.psi", || rt("psi=1")),
        Case::unknown("cmd.psi", || rt("quiet")),
        Case::pass("cmd.guest-async-pf", || with("no-kvmapf").guest()),
        Case::warn("cmd.guest-async-pf", || with("quiet").guest()),
        Case::not_applicable("cmd.guest-async-pf", || {
            let mut host = with("quiet").guest();
            host.infer_uses();
            host
        }),
        Case::unknown("cmd.guest-async-pf", || host().guest()),
    ];
}

//! Rules on irqbalance, and on interrupts that cannot be moved.

use std::collections::{BTreeMap, BTreeSet};

use host::Facts;
use host::facts::{CpuSet, Irq};

use super::{ISOLATION, NAMED, ONE_INTERRUPT, span};
use crate::remedy::BAN_ISOLATED;
use crate::rules::choices::{Side, choose};
use crate::rules::common::enumerated;
use crate::{Applies, Cause, Context, Fix, HitKind, Judged, Judgement, Rule, Skip, Workload, hits, known, settled};

const IRQBALANCE: &str = "irqbalance(1), section ENVIRONMENT VARIABLES";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "irq.irqbalance-running",
        cause: Cause::DeviceInterrupts,
        title: "irqbalance does not move the interrupts of the application",
        applies: Applies::LINUX,
        judge: running,
        why: "Every 10 s irqbalance checks the load of all CPUs and moves interrupts accordingly. Packets of a moved \
              queue meet a cold cache, and a placement made by hand is undone.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::both("systemctl stop irqbalance", "systemctl disable irqbalance").against(&[
            "FlexRAN slides, mlnx_tune: stop it",
            "openshift/cluster-node-tuning-operator: keep it, with banned CPUs",
        ]),
        cost: "Interrupts stay where they are, whatever the load.",
        references: &["FlexRAN real-time platform slides (2018)", "Mellanox mlnx-tools, mlnx_tune", IRQBALANCE],
    },
    Rule {
        id: "irq.irqbalance-banned",
        cause: Cause::DeviceInterrupts,
        title: "irqbalance does not use the isolated CPUs",
        applies: Applies::LINUX.isolated(),
        judge: banned,
        why: "By itself irqbalance bans only the CPUs of isolcpus= and nohz_full=; it does not know cpuset partitions. \
              IRQBALANCE_BANNED_CPUS and IRQBALANCE_BANNED_CPULIST replace that list; an empty list bans nothing.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::runtime(BAN_ISOLATED),
        cost: "The housekeeping CPUs handle all interrupts.",
        references: &[IRQBALANCE],
    },
    Rule {
        id: "irq.unmovable",
        cause: Cause::DeviceInterrupts,
        title: "No managed interrupt fires on an application CPU",
        applies: Applies::LINUX.isolated(),
        judge: unmovable,
        why: "Interrupts of nvme, virtio-blk and RAID queues are managed: the kernel spreads them over all CPUs and no \
              one can move them. isolcpus=managed_irq keeps such an interrupt off an isolated CPU only if its mask has another CPU that is online. If the mask has only isolated CPUs, the interrupt fires there as soon as one of them \
              does I/O.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::for_good("let threads on CPUs {housekeeping} do the I/O, and none on CPUs {isolated}"),
        cost: "Threads on those CPUs must pass their I/O to others.",
        references: &[
            "Linux commit 11ea68f553e2 (genirq, sched/isolation: Isolate from handling managed interrupts)",
            ISOLATION,
        ],
    },
];

/// Whether irqbalance runs, according to its systemd unit. If the units are not known, according to the list of
/// processes.
fn runs(facts: &Facts) -> Result<bool, Skip> {
    if facts.services.running.is(|units| units.contains("irqbalance.service")) == Some(true) {
        return Ok(true);
    }
    match facts.tasks.value() {
        Some(tasks) => Ok(tasks.iter().any(|task| task.process == "irqbalance")),
        None => known(&facts.services.running).map(|_| false),
    }
}

fn running(facts: &Facts, context: &Context) -> Judged {
    let source = if facts.tasks.is_known() { facts.tasks.source() } else { facts.services.running.source() };
    let runs = runs(facts)?;
    match (runs, context.isolated.value.is_empty()) {
        (false, _) => Judgement::pass("irqbalance does not run"),
        (true, false) => {
            const STOP: Side = Side {
                is: "irqbalance is stopped",
                want: "to stop irqbalance",
                who: "FlexRAN slides and mlnx_tune",
                of: &[Workload::Poll],
            };
            const KEEP: Side = Side {
                is: "irqbalance runs",
                want: "irqbalance with banned CPUs",
                who: "OpenShift node tuning operator",
                of: &[],
            };
            choose(context, [&STOP, &KEEP], 1)
        }
        (true, true) if context.is(Workload::Interrupt) => {
            Judgement::warn("irqbalance runs and may move the interrupts of the interfaces")
        }
        (true, true) => Judgement::pass("irqbalance runs, and no manually placed interrupt is known"),
    }
    .see_as(if runs { "irqbalance" } else { "no irqbalance" }, source)
    .alone()
}

fn banned(facts: &Facts, context: &Context) -> Judged {
    if !runs(facts)? {
        return Err(Skip::not_applicable("irqbalance does not run"));
    }
    let isolated = &context.isolated.value;
    let settings = &facts.services.irqbalance;
    let given = settled(settings)?;
    let value = |name: &str| given.and_then(|all| all.get(name)).map(String::as_str);
    let parsed = match (value("IRQBALANCE_BANNED_CPULIST"), value("IRQBALANCE_BANNED_CPUS")) {
        (Some(""), _) => Some(("an empty list", Ok(CpuSet::new()))),
        (Some(list), _) => Some((list, CpuSet::parse_list(list))),
        (None, Some(mask)) if !mask.is_empty() => Some((mask, CpuSet::parse_mask(mask))),
        _ => None,
    };
    if let Some((text, cpus)) = parsed {
        let cpus = cpus.map_err(|error| Skip::unknown(format!("{}: {text}: {error}", settings.source())))?;
        let left = isolated.difference(&cpus);
        return match left.is_empty() {
            true => Judgement::pass_for(isolated, format!("its settings ban CPUs {cpus}")),
            false => Judgement::fail_for(
                left,
                "its settings do not ban them, and these settings disable its own detection of isolated CPUs",
            ),
        }
        .see_as(text, settings.source())
        .alone();
    }
    let by_itself = known(&facts.cpus.isolated)?.union(settled(&facts.cpus.nohz_full)?.unwrap_or(&CpuSet::new()));
    let left = isolated.difference(&by_itself);
    match left.is_empty() {
        true => Judgement::pass_for(isolated, "it bans them by itself"),
        false => Judgement::warn_for(left, "they are in neither isolcpus= nor nohz_full=, and no setting bans them"),
    }
    .see(&facts.cpus.isolated)
    .see(&facts.cpus.nohz_full)
    .see_as("no banned CPUs", settings.source())
    .alone()
}

fn unmovable(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    known(&facts.irqs.list)?;
    let managed: Vec<(&Irq, &CpuSet)> = facts
        .irqs
        .iter()
        .filter(|irq| irq.managed.get() == Some(true))
        .filter_map(|irq| Some((irq, irq.affinity.value()?)))
        .collect();
    if managed.is_empty() {
        return match facts.irqs.iter().find(|irq| irq.managed.is_unknown()) {
            Some(irq) => Err(Skip::of(&irq.managed)),
            None => Err(Skip::not_applicable("no interrupt is managed by the kernel")),
        };
    }
    let stuck: Vec<&Irq> =
        managed.iter().filter(|(_, cpus)| !cpus.is_empty() && cpus.is_subset(isolated)).map(|(irq, _)| *irq).collect();
    let hits = if stuck.is_empty() { None } else { hits(facts, isolated) };
    let devices = hits.iter().flat_map(|hits| &hits.list).filter(|hit| hit.kind == HitKind::Device);
    let counts: BTreeMap<&str, u64> = devices.map(|hit| (hit.label.as_str(), hit.total)).collect();
    let count = |irq: &Irq| counts.get(irq.number.to_string().as_str()).copied();
    let came: Vec<String> =
        stuck.iter().filter_map(|irq| Some(format!("{} (IRQ {}): {}", irq.name(), irq.number, count(irq)?))).collect();
    let source = "/proc/irq/*/smp_affinity_list, /proc/interrupts";
    let span = || span(hits.as_ref().and_then(|hits| hits.during));
    let of = match owners(&stuck) {
        Some(owners) => format!(", of {owners}"),
        None => String::new(),
    };
    let judgement = match (stuck.len(), came.len()) {
        (0, _) => {
            Judgement::pass_for(isolated, format!("each of {} managed interrupts can go elsewhere", managed.len()))
                .see_as(format!("{} managed interrupts", managed.len()), source)
        }
        (n, 0) if hits.is_none() => {
            let reason = format!(
                "{n} managed interrupts are bound to these CPUs alone; whether they have fired is not recorded"
            );
            return Err(Skip::unknown(reason));
        }
        (n, 0) => {
            let none = if n == 1 { "it has not fired" } else { "none has fired" };
            let found = format!("{n} managed interrupts are bound to these CPUs alone; {none} {}", span());
            Judgement::pass_for(isolated, found)
                .see_as(format!("{n} of {} managed interrupts{of}", managed.len()), source)
        }
        (n, came) => {
            let fired = match (n, came) {
                (1, _) => "it has fired".to_owned(),
                (_, 1) => "1 of them has fired".to_owned(),
                _ => format!("{came} of them have fired"),
            };
            let found = format!("{n} managed interrupts are bound to these CPUs alone; {fired} {}", span());
            // isolcpus=managed_irq has no effect on a mask that contains only isolated CPUs.
            Judgement::warn_for(isolated, found)
                .see_as(format!("{n} of {} managed interrupts{of}", managed.len()), source)
        }
    };
    came.into_iter().take(NAMED).fold(judgement, |judgement, line| judgement.see_as(line, "/proc/interrupts")).alone()
}

/// The devices to which these interrupts belong, if their names show it: `nvme0` for `nvme0q3`, `virtio3` for
/// `virtio3-req.5`, `megasas1` for `megasas1-msix8`.
fn owners(irqs: &[&Irq]) -> Option<String> {
    let device = |irq: &&Irq| {
        let name = irq.name();
        let device = match name.split_once("-req.").or_else(|| name.split_once("-msix")) {
            Some((device, queue)) if queue.parse::<u32>().is_ok() => device,
            _ => name.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('q')?,
        };
        device.ends_with(|c: char| c.is_ascii_digit()).then(|| device.to_owned())
    };
    let devices: BTreeSet<String> = irqs.iter().map(device).collect::<Option<_>>()?;
    let devices: Vec<String> = devices.into_iter().collect();
    (1..=MOST_OWNERS).contains(&devices.len()).then(|| enumerated(&devices))
}

/// Maximum number of devices that are listed. A longer list would not help the reader.
const MOST_OWNERS: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rules::scheduling::samples::{put, task};
    use crate::testing::{Case, Host, host};

    fn with(settings: &str) -> Host {
        host()
            .isolated("2-7")
            .file("/etc/sysconfig/irqbalance", settings)
            .file("/sys/devices/system/cpu/isolated", "2-3\n")
            .file("/sys/devices/system/cpu/nohz_full", "2-7\n")
            .edit(|facts| put(facts, vec![task(9, "irqbalance", "0-1")]))
    }

    fn nvme(mask: &str, hits: u64) -> Host {
        host().isolated("2-7").file("/proc/irq/61/smp_affinity_list", mask).file(
            "/proc/interrupts",
            &format!("      CPU0 CPU1 CPU2 CPU3\n 61: 0 0 0 {hits} PCI-MSIX-0000:04:00.0 3-edge nvme0q3\n"),
        )
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("irq.irqbalance-running", || host().edit(|f| put(f, vec![task(9, "bash", "0-7")]))),
        Case::warn("irq.irqbalance-running", || {
            host().workload(Workload::Interrupt).edit(|f| put(f, vec![task(9, "irqbalance", "0-7")]))
        }),
        Case::disagree("irq.irqbalance-running", || with("")),
        Case::warn("irq.irqbalance-running", || with("").workload(Workload::Poll)),
        Case::unknown("irq.irqbalance-running", host),
        Case::pass("irq.irqbalance-banned", || with("")),
        Case::pass("irq.irqbalance-banned", || with("IRQBALANCE_BANNED_CPULIST=2-7\n")),
        Case::pass("irq.irqbalance-banned", || with("IRQBALANCE_BANNED_CPUS=000000fc\n")),
        Case::fail("irq.irqbalance-banned", || with("IRQBALANCE_BANNED_CPULIST=2-3\n")),
        Case::fail("irq.irqbalance-banned", || with("IRQBALANCE_BANNED_CPULIST=\n")),
        Case::warn("irq.irqbalance-banned", || with("").file("/sys/devices/system/cpu/nohz_full", "2-3\n")),
        Case::unknown("irq.irqbalance-banned", || host().isolated("2-7")),
        Case::pass("irq.unmovable", || nvme("0-3", 9)),
        Case::pass("irq.unmovable", || nvme("3", 0)),
        Case::warn("irq.unmovable", || nvme("3", 9)),
        Case::unknown("irq.unmovable", || host().isolated("2-7")),
    ];

    /// Red Hat's irqbalance does not read /etc/default, and a running one reads its settings only when it starts.
    #[test]
    fn the_ban_reaches_the_irqbalance_of_every_distribution() {
        let fix = crate::rules::find("irq.irqbalance-banned").unwrap().fix.runtime.unwrap();
        for part in ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance", "systemctl restart irqbalance"] {
            assert!(fix.contains(part), "{fix}");
        }
    }

    #[test]
    fn what_came_is_counted() {
        let judgements = nvme("2-3", 71).judge("irq.unmovable");
        assert_eq!(judgements[0].evidence[1].value, "nvme0q3 (IRQ 61): 71");
        assert_eq!(judgements[0].evidence[0].value, "1 of 1 managed interrupts, of nvme0");
    }

    /// telco-master: 48 queues have no housekeeping CPU to go to, and no interrupt came: title and sentence say the
    /// same.
    #[test]
    fn a_pass_says_what_its_title_says() {
        assert_eq!(
            crate::rules::find("irq.unmovable").unwrap().title,
            "No managed interrupt fires on an application CPU"
        );
        let found = |hits| crate::wording::singular(&nvme("3", hits).judge("irq.unmovable")[0].found);
        assert_eq!(found(0), "1 managed interrupt is bound to these CPUs alone; it has not fired since boot");
        assert_eq!(found(9), "1 managed interrupt is bound to these CPUs alone; it has fired since boot");
        let two = |hits: u64| {
            let rows = format!(
                "      CPU0 CPU1 CPU2 CPU3\n 61: 0 0 0 {hits} PCI-MSIX-0000:04:00.0 3-edge nvme0q3\n 62: 0 0 0 0 PCI-MSIX-0000:05:00.0 3-edge nvme1q3\n"
            );
            let host = nvme("3", 0).file("/proc/interrupts", &rows).file("/proc/irq/62/smp_affinity_list", "3");
            host.judge("irq.unmovable").remove(0).found
        };
        assert_eq!(two(0), "2 managed interrupts are bound to these CPUs alone; none has fired since boot");
        assert_eq!(two(9), "2 managed interrupts are bound to these CPUs alone; 1 of them has fired since boot");
    }
}

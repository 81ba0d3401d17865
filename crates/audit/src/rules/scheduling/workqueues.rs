//! Rules on workqueues.

use host::Facts;
use units::Nanos;

use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

const WORKQUEUE: &str = "Linux Documentation/core-api/workqueue.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "wq.global-cpumask",
        cause: Cause::KernelWork,
        title: "Unbound kernel work stays on the housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: global_cpumask,
        why: "Work that is not bound to a CPU runs wherever the global mask of workqueues allows. On a CPU of the \
         application it occupies the CPU for as long as it takes, and restarts the tick.",
        magnitude: Magnitude::untimed(
            "microseconds to milliseconds per piece of work",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::runtime("echo {housekeeping-mask} > /sys/devices/virtual/workqueue/cpumask"),
        cost: "The housekeeping CPUs do all of this work.",
        references: &[WORKQUEUE, "tuned profile cpu-partitioning"],
    },
    Rule {
        id: "wq.per-wq",
        cause: Cause::KernelWork,
        title: "Workqueues with their own mask stay on the housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: each_cpumask,
        why: "Some workqueues show a mask in sysfs: writeback flushes dirty pages, efi_runtime calls the firmware with \
              preemption off. The kernel uses the mask together with the global one.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "writeback runs for milliseconds at a time; an EFI call can stop its CPU for as long",
            "Linux Documentation/core-api/real-time/hardware.rst for efi_runtime; the milliseconds are an estimate",
        ),
        fix: Fix::runtime("echo {housekeeping-mask} > /sys/devices/virtual/workqueue/writeback/cpumask"),
        cost: "The housekeeping CPUs do all of this work.",
        references: &[
            WORKQUEUE,
            "Linux Documentation/core-api/real-time/hardware.rst",
            "tuned profile cpu-partitioning",
        ],
    },
];

fn global_cpumask(facts: &Facts, context: &Context) -> Judged {
    let mask = &facts.workqueues.cpumask;
    let stray = known(mask)?.intersection(&context.isolated.value);
    match stray.is_empty() {
        true => Judgement::pass("unbound work stays off the isolated CPUs").see(mask),
        false => Judgement::warn_for(stray.clone(), format!("unbound work may run on isolated CPUs {stray}")).see(mask),
    }
    .alone()
}

fn each_cpumask(facts: &Facts, context: &Context) -> Judged {
    let global = known(&facts.workqueues.cpumask)?;
    let isolated = &context.isolated.value;
    let mut judgements = Vec::new();
    for (name, mask) in &facts.workqueues.each {
        let Some(own) = mask.value() else { continue };
        // CPUs that the global mask already excludes are not a problem (workqueue.rst, "Affinity Scopes").
        let stray = own.intersection(global).intersection(isolated);
        let place = format!("/sys/devices/virtual/workqueue/{name}/cpumask");
        let subject = Subject::Named(format!("workqueue {name}"));
        judgements.push(match stray.is_empty() {
            true => Judgement::pass_for(subject, format!("{name} stays off the isolated CPUs")).see(mask),
            false => Judgement::warn_for(subject, format!("{name} may run on isolated CPUs {stray}"))
                .see(mask)
                .now(format!("echo {{housekeeping-mask}} > {place}")),
        });
    }
    match judgements.is_empty() {
        true => Err(Skip::unknown("/sys/devices/virtual/workqueue: no workqueue with a mask of its own is known")),
        false => Ok(judgements),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    fn with(mask: &str) -> Host {
        host().isolated("2-7").file("/sys/devices/virtual/workqueue/cpumask", mask)
    }

    fn writeback(global: &str, own: &str) -> Host {
        with(global).file("/sys/devices/virtual/workqueue/writeback/cpumask", own)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("wq.global-cpumask", || with("03\n")),
        Case::warn("wq.global-cpumask", || with("ff\n")),
        Case::unknown("wq.global-cpumask", || host().isolated("2-7")),
        Case::not_applicable("wq.global-cpumask", || host().file("/sys/devices/virtual/workqueue/cpumask", "ff")),
        Case::pass("wq.per-wq", || writeback("ff", "03")),
        Case::pass("wq.per-wq", || writeback("03", "ff")),
        Case::warn("wq.per-wq", || writeback("ff", "ff")),
        Case::unknown("wq.per-wq", || with("ff")),
    ];

    #[test]
    fn the_stray_cpus_are_named() {
        let judgements = with("0f\n").judge("wq.global-cpumask");
        assert_eq!(judgements[0].found, "unbound work may run on isolated CPUs 2-3");
        let judgements = writeback("ff", "0f").judge("wq.per-wq");
        assert_eq!(judgements[0].now, ["echo {housekeeping-mask} > /sys/devices/virtual/workqueue/writeback/cpumask"]);
    }
}

//! Rules on control groups: partitions and quotas.

use host::Facts;
use host::facts::{Cgroup, Task};
use units::Nanos;

use super::application;
use crate::advice::shell_word;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known, settled};

const CGROUP: &str = "Linux Documentation/admin-guide/cgroup-v2.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "usr.cpuset-partition",
        cause: Cause::SchedulerIsolation,
        title: "Cpuset partitions are valid",
        applies: Applies::LINUX,
        judge: partitions,
        why: "A cpuset partition takes its CPUs out of the scheduler's domains while the host runs. The kernel makes \
              it invalid, without reporting an error, when its CPUs are not exclusive or its parent loses them: then \
              the CPUs are balanced again.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "other threads run for a time slice of up to 3 ms",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice (0.70 or 0.75 ms by version, times 1 + log2 of the CPUs, at most 4)",
        ),
        fix: Fix::for_good(
            "fix the cause that the group's cpuset.cpus.partition names, then write isolated to it again",
        ),
        cost: "The scheduler moves no threads onto these CPUs any more: each thread must be pinned there explicitly.",
        references: &[CGROUP, "Linux Documentation/admin-guide/cpu-isolation.rst"],
    },
    Rule {
        id: "usr.cpu-quota",
        cause: Cause::Quotas,
        title: "No CPU quota stops the application",
        applies: Applies::LINUX,
        judge: quotas,
        why: "A group that has used up its quota does not run until the period ends. A polling thread uses all its time, \
         so it is stopped in every period.",
        magnitude: Magnitude::late(
            Nanos::from_millis(100),
            "the rest of the period: up to 100 ms with the default period, less the quota",
            "Linux Documentation/scheduler/sched-bwc.rst (default period 100 ms)",
        ),
        fix: Fix::for_good("unit of the service: CPUQuota= (empty)"),
        cost: "The group can use all its CPUs.",
        references: &["Linux Documentation/scheduler/sched-bwc.rst", CGROUP],
    },
];

fn partitions(facts: &Facts, context: &Context) -> Judged {
    if *known(&facts.cgroups.version)? == 1 {
        return Err(Skip::not_applicable("control groups version 1 have no partitions"));
    }
    let groups = known(&facts.cgroups.groups)?;
    if groups.iter().all(|group| !group.partition.is_known()) && groups.iter().any(|group| group.partition.is_unknown())
    {
        return Err(Skip::unknown("/sys/fs/cgroup/**/cpuset.cpus.partition was not recorded"));
    }
    let mut judgements = Vec::new();
    for group in groups {
        let Some(state) = group.partition.value().filter(|state| *state != "member" && group.path != "/") else {
            continue;
        };
        let subject = Subject::Named(format!("group {}", group.path));
        judgements.push(
            match (state.contains("invalid"), group.effective.value()) {
                (true, _) => {
                    Judgement::fail_for(subject, format!("the partition is not in force: {state}")).now(format!(
                        "echo isolated > {} # after the reason is gone",
                        shell_word(group.partition.source().as_str())
                    ))
                }
                (false, Some(cpus))
                    if !context.isolated.value.is_empty() && !cpus.intersects(&context.isolated.value) =>
                {
                    Judgement::warn_for(subject, format!("its CPUs {cpus} are none of the isolated ones"))
                }
                (false, Some(cpus)) => {
                    Judgement::pass_for(subject, format!("the partition ({state}) holds CPUs {cpus}"))
                }
                (false, None) => Judgement::pass_for(subject, format!("the partition is in force: {state}")),
            }
            .see(&group.partition),
        );
    }
    match judgements.is_empty() {
        true => Err(Skip::not_applicable("no control group is a partition")),
        false => Ok(judgements),
    }
}

/// Whether a control group belongs to Kubernetes. The rules on containers judge such groups.
pub(crate) fn is_of_kubernetes(group: &Cgroup) -> bool {
    group.path.contains("kubepods")
}

/// How long a quota stops a control group in each period if the group never idles.
pub(crate) fn stop(quota_us: u64, period_us: u64) -> Nanos {
    Nanos::from_micros(period_us.saturating_sub(quota_us))
}

fn quotas(facts: &Facts, context: &Context) -> Judged {
    judge_quotas(facts, context, |group| !is_of_kubernetes(group))
}

/// Judges the quotas of those control groups that contain threads of the application, or that their quota has stopped.
pub(crate) fn judge_quotas(facts: &Facts, context: &Context, wanted: impl Fn(&Cgroup) -> bool) -> Judged {
    let groups: Vec<&Cgroup> = known(&facts.cgroups.groups)?.iter().filter(|group| wanted(group)).collect();
    if groups.is_empty() {
        return Err(Skip::not_applicable("the host has no control group of the kind"));
    }
    // Version 1 has a file for the quota alone, in which -1 is no quota (scheduler/sched-bwc.rst).
    let (unlimited, file) =
        if facts.cgroups.version.get() == Some(1) { ("-1", "cpu.cfs_quota_us") } else { ("max", "cpu.max") };
    let applications: Vec<&Task> = application(facts, context).collect();
    let mut judgements = Vec::new();
    let (mut with_quota, mut open) = (0, 0);
    for group in groups.iter().filter(|group| group.path != "/") {
        let (quota, period) = match settled(&group.quota) {
            Ok(Some((Some(quota), period))) => (*quota, *period),
            Ok(_) => continue,
            Err(_) => {
                open += 1;
                continue;
            }
        };
        with_quota += 1;
        let below = |path: &String| {
            path == &group.path || path.strip_prefix(&group.path).is_some_and(|rest| rest.starts_with('/'))
        };
        let own = applications.iter().filter(|task| task.cgroup.is(below) == Some(true)).count();
        let stopped = group.throttled.value().filter(|(times, _)| *times > 0);
        if own == 0 && stopped.is_none() {
            continue;
        }
        let subject = Subject::Named(format!("group {}", group.path));
        let history = match stopped {
            Some((times, us)) => format!(", and was stopped {times} times for {} together", Nanos::from_micros(*us)),
            None => String::new(),
        };
        let found = format!("it may use {quota} us of CPU time in each {period} us{history}");
        let judgement = match own {
            0 => Judgement::warn_for(subject, found),
            n => Judgement::fail_for(subject, format!("{found}; {n} threads of the application are in it")),
        };
        judgements.push(
            judgement
                .takes(stop(quota, period))
                .see_as(format!("{quota} {period}"), group.quota.source())
                .now(format!("echo {unlimited} > {}", shell_word(group.quota.source().as_str()))),
        );
    }
    if judgements.is_empty() && open == groups.len() {
        return Err(Skip::unknown("the quotas of control groups were not recorded"));
    }
    if judgements.is_empty() {
        let found =
            format!("no group with a quota was stopped or holds the application; {with_quota} groups have a quota");
        judgements.push(Judgement::pass(found).see_as(format!("{} groups", groups.len()), file));
    }
    Ok(judgements)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::samples::{put, task};
    use super::*;
    use crate::testing::{Case, Host, host};

    fn unified() -> Host {
        host().isolated("2-7").file("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n")
    }

    fn partition(state: &str) -> Host {
        unified()
            .file("/sys/fs/cgroup/rt/cpuset.cpus.partition", state)
            .file("/sys/fs/cgroup/rt/cpuset.cpus.effective", "2-3\n")
    }

    fn quota(max: &str, stopped: u64) -> Host {
        unified()
            .file("/sys/fs/cgroup/app.slice/cpu.max", max)
            .file("/sys/fs/cgroup/app.slice/cpu.stat", &format!("nr_throttled {stopped}\nthrottled_usec 70\n"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("usr.cpuset-partition", || partition("isolated\n")),
        Case::fail("usr.cpuset-partition", || partition("isolated invalid (Cpu list in cpuset.cpus not exclusive)\n")),
        Case::warn("usr.cpuset-partition", || partition("isolated\n").isolated("6-7")),
        Case::unknown("usr.cpuset-partition", || host().isolated("2-7")),
        Case::not_applicable("usr.cpuset-partition", || partition("member\n")),
        Case::pass("usr.cpu-quota", || quota("max 100000\n", 0)),
        Case::pass("usr.cpu-quota", || quota("50000 100000\n", 0)),
        Case::warn("usr.cpu-quota", || quota("50000 100000\n", 3)),
        Case::fail("usr.cpu-quota", || {
            quota("50000 100000\n", 0).edit(|facts| {
                let mut own = task(9, "l1app", "3");
                own.cgroup = host::Fact::known("/app.slice/l1.service".into(), "/proc/9/cgroup");
                put(facts, vec![own]);
            })
        }),
        Case::unknown("usr.cpu-quota", || host().isolated("2-7")),
    ];

    /// Version 1 has no cpu.max, and systemd's names have backslashes.
    #[test]
    fn a_quota_is_removed_in_the_file_that_has_it() {
        let now = |host: Host| host.judge("usr.cpu-quota").remove(0).now;
        assert_eq!(now(quota("25000 100000\n", 3)), ["echo max > /sys/fs/cgroup/app.slice/cpu.max"]);
        for (mount, group, word) in [
            ("cpu", "app.slice", "/sys/fs/cgroup/cpu/app.slice/cpu.cfs_quota_us"),
            ("cpu,cpuacct", r"a\x2db.slice", r"'/sys/fs/cgroup/cpu,cpuacct/a\x2db.slice/cpu.cfs_quota_us'"),
        ] {
            let place = format!("/sys/fs/cgroup/{mount}/{group}");
            let host = host()
                .file(&format!("/sys/fs/cgroup/cpuset/{group}/cpuset.cpus"), "0-7\n")
                .file(&format!("{place}/cpu.cfs_quota_us"), "25000\n")
                .file(&format!("{place}/cpu.cfs_period_us"), "100000\n")
                .file(&format!("{place}/cpu.stat"), "nr_periods 9\nnr_throttled 3\nthrottled_time 70000\n");
            assert_eq!(now(host), [format!("echo -1 > {word}")]);
        }
    }

    #[test]
    fn the_stop_is_the_rest_of_the_period() {
        let judgements = quota("25000 100000\n", 3).judge("usr.cpu-quota");
        assert_eq!(judgements[0].effect, Some(crate::Effect::Late(Nanos::from_millis(75))));
        assert_eq!(stop(200_000, 100_000), Nanos::ZERO, "two CPUs' worth of time stops no single thread");
    }
}

//! Services: which are running, which start at boot, and the settings of services that affect latency.

use std::collections::{BTreeMap, BTreeSet};

use super::boot::unquoted;
use crate::facts::{Cgroups, Context, CpuSet, Fact, Root, Services, Source};

/// Maximum number of files that are read from a directory of settings.
const MAX_FILES: usize = 512;

pub(super) fn read(context: &Context, cgroups: &Cgroups) -> Services {
    let root = context.root;
    Services {
        running: running(root, cgroups),
        enabled: enabled(root),
        irqbalance: first(root, &["etc/sysconfig/irqbalance", "etc/default/irqbalance"]).map(|text| assignments(&text)),
        tuned_profile: root.text("etc/tuned/active_profile"),
        systemd_cpu_affinity: cpu_affinity(root),
        kubelet: first(root, &["etc/kubernetes/kubelet.conf", "var/lib/kubelet/config.yaml"])
            .map(|text| top_level(&text)),
        cpu_manager: root.text("var/lib/kubelet/cpu_manager_state").parse(|text| cpu_manager(&text)),
        limits: limits(root),
    }
}

fn first(root: &Root, paths: &[&str]) -> Fact<String> {
    let mut fact = root.text(paths[0]);
    for path in &paths[1..] {
        fact = fact.or_else(|| root.text(path));
    }
    fact
}

/// The running services: those whose control group has processes. If the control groups are unknown, they come from the
/// output of systemctl in a recording.
fn running(root: &Root, cgroups: &Cgroups) -> Fact<BTreeSet<String>> {
    let from_groups = cgroups.groups.as_ref().and_then(|groups| {
        let alive: BTreeSet<String> = groups
            .iter()
            .filter(|group| group.populated.get() == Some(true))
            .flat_map(|group| group.path.split('/'))
            .filter(|name| name.ends_with(".service"))
            .map(str::to_owned)
            .collect();
        let source = Source::new("/sys/fs/cgroup/**/cgroup.procs");
        // Without any control group of systemd, either systemd does not run here, or its groups were not recorded.
        let any = groups.iter().any(|group| group.path.contains(".slice") || group.path.contains(".service"));
        if any { Fact::known(alive, source) } else { Fact::not_recorded(source) }
    });
    from_groups.or_else(|| old_hierarchy(root)).or_else(|| {
        let list = root.command("systemctl list-units --all").or_else(|| root.command("systemctl list-units"));
        list.map(|text| units(&text)).or_else(|| without_systemd(root))
    })
}

/// Finds the running services on hosts with version 1 control groups, in systemd's own hierarchy.
fn old_hierarchy(root: &Root) -> Fact<BTreeSet<String>> {
    let place = "sys/fs/cgroup/systemd/system.slice";
    root.directories(place).map(|names| {
        let runs = |name: &String| {
            name.ends_with(".service")
                && root.text(&format!("{place}/{name}/cgroup.procs")).is(|t| !t.is_empty()) == Some(true)
        };
        names.into_iter().filter(runs).collect()
    })
}

/// The fact for a host without known services. The directory `/run/systemd/system` exists only on hosts that run
/// systemd (sd_booted(3)): if it exists, the services were not recorded.
fn without_systemd(root: &Root) -> Fact<BTreeSet<String>> {
    match root.list("run/systemd/system") {
        Fact::Known { source, .. } => Fact::not_recorded(source),
        missing => missing.map(|_| BTreeSet::new()),
    }
}

/// Parses the output of `systemctl list-units`: `  irqbalance.service   loaded active running   irqbalance daemon`.
/// Lines of failed units begin with a dot.
fn units(text: &str) -> BTreeSet<String> {
    let unit = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !word.contains('.'));
        let (name, state) = (words.next()?, [words.next()?, words.next()?, words.next()?]);
        (name.ends_with(".service") && state == ["loaded", "active", "running"]).then(|| name.to_owned())
    };
    text.lines().filter_map(unit).collect()
}

/// Finds the links that start units at boot (systemd.unit(5), `*.wants/`, `*.requires/`).
fn enabled(root: &Root) -> Fact<BTreeSet<String>> {
    let place = "etc/systemd/system";
    root.directories(place).map(|folders| {
        let wanted = folders.into_iter().filter(|name| name.ends_with(".wants") || name.ends_with(".requires"));
        let units = |folder: String| root.list(&format!("{place}/{folder}")).into_value().unwrap_or_default();
        wanted.take(MAX_FILES).flat_map(units).collect()
    })
}

/// Parses `NAME=value` lines as a shell would.
pub(super) fn assignments(text: &str) -> BTreeMap<String, String> {
    let assignment = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        (!name.starts_with('#')).then(|| (name.trim().to_owned(), unquoted(value.trim())))
    };
    text.lines().filter_map(assignment).collect()
}

/// Reads `CPUAffinity=` of /etc/systemd/system.conf and its drop-ins. The sets of several lines are merged; an empty
/// line resets the set (systemd-system.conf(5)).
fn cpu_affinity(root: &Root) -> Fact<CpuSet> {
    let main = root.text("etc/systemd/system.conf");
    let folder = "etc/systemd/system.conf.d";
    let drop_ins = root.list(folder).into_value().unwrap_or_default();
    let drop_ins = drop_ins.iter().filter(|name| name.ends_with(".conf")).take(MAX_FILES);
    let mut files = vec![main.clone()];
    files.extend(drop_ins.map(|name| root.text(&format!("{folder}/{name}"))));
    let mut result: Option<Fact<CpuSet>> = None;
    for file in &files {
        let Some(text) = file.value() else { continue };
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("CPUAffinity=")) {
            let so_far = result.as_ref().and_then(Fact::value).cloned().unwrap_or_default();
            let list = line.split([' ', ',']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
            result = Some(match (list.as_str(), CpuSet::parse_list(&list)) {
                ("", _) => Fact::absent(file.source().clone()),
                (_, Ok(set)) => Fact::known(so_far.union(&set), file.source().clone()),
                (_, Err(error)) => Fact::malformed(error.to_string(), file.source().clone()),
            });
        }
    }
    result.unwrap_or_else(|| main.and_then(|_| Fact::absent("/etc/systemd/system.conf CPUAffinity=")))
}

/// Parses the top-level `key: value` pairs of a YAML file. This also works for JSON, which is part of YAML. Only plain
/// words and numbers are kept, so no secret is kept.
fn top_level(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let indented = line.starts_with([' ', '\t', '-', '#']) && !line.trim_start().starts_with('"');
        let (key, value) = line.trim().trim_end_matches(',').split_once(':')?;
        let clean = |text: &str| text.trim().trim_matches('"').to_owned();
        let value = clean(value);
        let plain = value.len() < 64 && value.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.,/%".contains(&c));
        (!indented && plain && !value.is_empty()).then(|| (clean(key), value))
    };
    text.lines().filter_map(pair).collect()
}

/// Parses the kubelet's CPU manager state: `{"policyName":"static","defaultCpuSet":"0-3,40-43",…}`.
fn cpu_manager(text: &str) -> Result<(String, CpuSet), String> {
    let value = |key: &str| {
        let (_, rest) = text.split_once(&format!("\"{key}\""))?;
        rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()
    };
    let policy = value("policyName").ok_or("no policyName")?;
    let set = CpuSet::parse_list(value("defaultCpuSet").unwrap_or_default()).map_err(|error| error.to_string())?;
    Ok((policy.to_owned(), set))
}

/// Reads the lines about locked memory and real-time priority in limits.conf and limits.d.
fn limits(root: &Root) -> Fact<Vec<String>> {
    let folder = "etc/security/limits.d";
    let names = root.list(folder).into_value().unwrap_or_default();
    let main = root.text("etc/security/limits.conf");
    let mut texts: Vec<String> = main.value().cloned().into_iter().collect();
    texts.extend(names.iter().take(MAX_FILES).filter_map(|name| root.text(&format!("{folder}/{name}")).into_value()));
    let wanted = |line: &&str| !line.starts_with('#') && (line.contains("memlock") || line.contains("rtprio"));
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim).filter(wanted).map(str::to_owned).collect();
    main.map(|_| lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn what_runs_by_groups_or_by_systemctl() {
        let by_groups = Facts::read(&Root::given([
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs", "71\n"),
            ("sys/fs/cgroup/system.slice/tuned.service/cgroup.procs", ""),
        ]));
        let running: Vec<_> = by_groups.services.running.value().unwrap().iter().collect();
        assert_eq!(running, ["irqbalance.service"]);
        let text = "  a.service loaded active running A\n● b.service loaded failed failed B\n  c.service loaded active exited C\n";
        let by_list = Facts::read(&Root::given([("commands/systemctl_list-units", text)]));
        assert_eq!(by_list.services.running.value().unwrap().iter().collect::<Vec<_>>(), ["a.service"]);
        assert!(Facts::read(&Root::given([("proc/cmdline", "")])).services.running.is_unknown());
    }

    #[test]
    fn settings_of_services() {
        let services = Facts::read(&Root::given([
            ("etc/sysconfig/irqbalance", "# IRQBALANCE_ONESHOT=yes\nIRQBALANCE_BANNED_CPULIST=\"2-7\"\n"),
            ("etc/systemd/system.conf", "[Manager]\n#CPUAffinity=1\nCPUAffinity=0 1\n"),
            ("etc/systemd/system.conf.d/x.conf", "CPUAffinity=40-41\n"),
            (
                "etc/kubernetes/kubelet.conf",
                "cpuManagerPolicy: static\nstaticPodPath: \"/x\"\nnested:\n  topologyManagerPolicy: no\ntoken: a b\n",
            ),
            ("var/lib/kubelet/cpu_manager_state", "{\"policyName\":\"static\",\"defaultCpuSet\":\"0-1\"}"),
            ("etc/security/limits.conf", "#x memlock 1\n@rt - rtprio 99\n* soft nofile 5\n"),
            ("etc/systemd/system/timers.target.wants/fwupd-refresh.timer", ""),
        ]))
        .services;
        assert_eq!(services.irqbalance.value().unwrap()["IRQBALANCE_BANNED_CPULIST"], "2-7");
        assert_eq!(services.irqbalance.value().unwrap().len(), 1);
        assert_eq!(services.systemd_cpu_affinity.value(), Some(&CpuSet::from([0, 1, 40, 41])));
        let kubelet = services.kubelet.value().unwrap();
        assert_eq!((kubelet["cpuManagerPolicy"].as_str(), kubelet.len()), ("static", 2));
        assert_eq!(services.cpu_manager.value(), Some(&("static".into(), CpuSet::from([0, 1]))));
        assert_eq!(services.limits.value().unwrap().as_slice(), ["@rt - rtprio 99"]);
        assert!(services.enabled.value().unwrap().contains("fwupd-refresh.timer"));
    }
}

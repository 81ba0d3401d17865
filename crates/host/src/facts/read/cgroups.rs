//! Control groups, version 2 (Documentation/admin-guide/cgroup-v2.rst) and 1 (cgroup-v1/cpusets.rst).

use crate::facts::{Cgroup, Cgroups, Context, CpuSet, Fact, Root};

/// Maximum number of groups that are read. The rest, which are the deepest groups, are left out.
const MAX_GROUPS: usize = 5_000;
const MAX_DEPTH: usize = 16;
const UNIFIED: &str = "sys/fs/cgroup";
const CPUSET: &str = "sys/fs/cgroup/cpuset";
const CPU: [&str; 2] = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"];

pub(super) fn read(context: &Context) -> Cgroups {
    let root = context.root;
    let controllers = root.text(&format!("{UNIFIED}/cgroup.controllers"));
    let cpusets = root.list(CPUSET);
    let (version, groups) = if controllers.is_known() {
        let groups = walk(root, UNIFIED).into_iter().map(|path| unified(root, path)).collect();
        (controllers.map(|_| 2), Fact::known(groups, "/sys/fs/cgroup"))
    } else if cpusets.is_known() {
        let groups = walk(root, CPUSET).into_iter().map(|path| divided(root, path)).collect();
        (cpusets.map(|_| 1), Fact::known(groups, "/sys/fs/cgroup/cpuset"))
    } else {
        (controllers.map(|_| 2), cpusets.map(|_| Vec::new()))
    };
    Cgroups { version, groups }
}

/// Paths of all groups in the hierarchy mounted at `mount`, parents before children.
fn walk(root: &Root, mount: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        if path.matches('/').count() >= MAX_DEPTH {
            continue;
        }
        // The subdirectories are the child groups.
        for name in root.directories(&format!("{mount}{path}")).into_value().unwrap_or_default() {
            if paths.len() >= MAX_GROUPS {
                return paths;
            }
            paths.push(format!("{path}/{name}"));
        }
    }
    paths
}

fn unified(root: &Root, path: String) -> Cgroup {
    let place = format!("{UNIFIED}{path}");
    let set = |name: &str| root.cpu_list(&format!("{place}/{name}"));
    Cgroup {
        cpus: set("cpuset.cpus"),
        effective: set("cpuset.cpus.effective"),
        exclusive: set("cpuset.cpus.exclusive"),
        isolated: set("cpuset.cpus.isolated"),
        partition: root.text(&format!("{place}/cpuset.cpus.partition")),
        mems: set("cpuset.mems"),
        load_balance: Fact::absent("cpuset.sched_load_balance"),
        quota: root.text(&format!("{place}/cpu.max")).parse(|text| quota(&text)),
        throttled: root
            .text(&format!("{place}/cpu.stat"))
            .and_then(|text| throttled(&text, &place, "throttled_usec", 1)),
        populated: populated(root, &place),
        path: named(path),
    }
}

fn divided(root: &Root, path: String) -> Cgroup {
    let place = format!("{CPUSET}{path}");
    let set = |name: &str| root.cpu_list(&format!("{place}/{name}"));
    let bandwidth = |name: &str| {
        let [first, second] = CPU.map(|mount| format!("{mount}{path}/{name}"));
        root.text(&first).or_else(|| root.text(&second))
    };
    let quota = bandwidth("cpu.cfs_quota_us").zip(bandwidth("cpu.cfs_period_us"));
    Cgroup {
        cpus: set("cpuset.cpus"),
        effective: set("cpuset.effective_cpus"),
        exclusive: Fact::absent("cpuset.cpus.exclusive"),
        isolated: Fact::absent("cpuset.cpus.isolated"),
        partition: Fact::absent("cpuset.cpus.partition"),
        mems: set("cpuset.mems"),
        load_balance: root.switch(&format!("{place}/cpuset.sched_load_balance")),
        quota: quota.parse(|(quota, period)| {
            let limit: i64 = quota.parse()?;
            Ok::<_, std::num::ParseIntError>((u64::try_from(limit).ok(), period.parse()?))
        }),
        throttled: bandwidth("cpu.stat").and_then(|text| throttled(&text, &place, "throttled_time", 1_000)),
        populated: populated(root, &place),
        path: named(path),
    }
}

fn named(path: String) -> String {
    if path.is_empty() { "/".into() } else { path }
}

fn populated(root: &Root, place: &str) -> Fact<bool> {
    root.text(&format!("{place}/cgroup.procs")).map(|text| !text.is_empty())
}

/// Parses a CPU quota and its period in microseconds: `50000 100000`, or `max 100000` for no quota.
pub(crate) fn quota(text: &str) -> Result<(Option<u64>, u64), String> {
    let error = || format!("{text:?} is not QUOTA PERIOD");
    let (quota, period) = text.split_once(' ').ok_or_else(error)?;
    let quota = match quota {
        "max" => None,
        number => Some(number.parse().map_err(|_| error())?),
    };
    Ok((quota, period.trim().parse().map_err(|_| error())?))
}

/// Parses the number of throttled periods (`nr_throttled 3`) and the throttled time, which is in the line that begins
/// with `time`. Returns the time in microseconds. `divisor` is the number of the file's time units per microsecond.
fn throttled(text: &str, place: &str, time: &str, divisor: u64) -> Fact<(u64, u64)> {
    let value =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok());
    let source = format!("/{place}/cpu.stat");
    match (value("nr_throttled"), value(time)) {
        (Some(times), Some(time)) => Fact::known((times, time / divisor), source.as_str()),
        // The kernel prints these lines only if a quota is set.
        _ => Fact::absent(source.as_str()),
    }
}

impl Cgroups {
    /// The CPUs of all valid isolated cpuset partitions.
    pub fn isolated(&self) -> CpuSet {
        let groups = self.groups.value().into_iter().flatten();
        let isolated = groups.filter(|group| group.partition.is(|state| state == "isolated") == Some(true));
        isolated.filter_map(|group| group.effective.value()).fold(CpuSet::new(), |all, set| all.union(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn the_unified_hierarchy() {
        let root = Root::given([
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n"),
            ("sys/fs/cgroup/app.slice/rt.scope/cpuset.cpus.effective", "2-3\n"),
            ("sys/fs/cgroup/app.slice/rt.scope/cpuset.cpus.partition", "isolated\n"),
            ("sys/fs/cgroup/app.slice/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/app.slice/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 70\n"),
            ("sys/fs/cgroup/app.slice/cgroup.procs", ""),
            ("sys/fs/cgroup/bad/cpuset.cpus.partition", "isolated invalid (Cpu list in cpuset.cpus not exclusive)\n"),
            ("sys/fs/cgroup/bad/cpuset.cpus.effective", "5\n"),
        ]);
        let cgroups = Facts::read(&root).cgroups;
        assert_eq!(cgroups.version.get(), Some(2));
        let paths: Vec<_> = cgroups.groups.value().unwrap().iter().map(|group| group.path.as_str()).collect();
        assert_eq!(paths, ["/", "/app.slice", "/bad", "/app.slice/rt.scope"]);
        let app = &cgroups.groups.value().unwrap()[1];
        assert_eq!((app.quota.get(), app.throttled.get()), (Some((Some(50000), 100000)), Some((3, 70))));
        assert_eq!(app.populated.get(), Some(false));
        assert_eq!(cgroups.isolated(), CpuSet::from([2, 3]));
    }

    #[test]
    fn the_old_hierarchy() {
        let root = Root::given([
            ("sys/fs/cgroup/cpuset/rt/cpuset.cpus", "2-3\n"),
            ("sys/fs/cgroup/cpuset/rt/cpuset.sched_load_balance", "0\n"),
            ("sys/fs/cgroup/cpu,cpuacct/rt/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/rt/cpu.cfs_period_us", "100000\n"),
        ]);
        let cgroups = Facts::read(&root).cgroups;
        assert_eq!(cgroups.version.get(), Some(1));
        let rt = &cgroups.groups.value().unwrap()[1];
        assert_eq!((rt.load_balance.get(), rt.quota.get()), (Some(false), Some((None, 100000))));
    }

    #[test]
    fn quotas() {
        assert_eq!(quota("max 100000"), Ok((None, 100000)));
        assert!(quota("100000").is_err() && quota("x 1").is_err());
        assert!(Facts::read(&Root::given([("proc/cmdline", "")])).cgroups.groups.is_unknown());
    }
}

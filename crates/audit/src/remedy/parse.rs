//! Parses the commands in which rules write their fixes, and determines which of them `apus tune` can apply.

use host::facts::CpuSet;

use super::setting::{
    Bound, DEFAULT_AFFINITY, OfCpus, OfInterrupts, OfMemory, OfNetwork, OfWorkqueues, Place, Setting,
};

/// The settings that a command makes. `None` if `apus tune` cannot make all of them.
pub(super) fn settings(command: &str) -> Option<Vec<Setting>> {
    if let Some((_, rest)) = command.split_once("echo IRQBALANCE_BANNED_CPULIST=") {
        let cpus: CpuSet = rest.split(' ').next()?.parse().ok()?;
        let place = Place::Interrupts(OfInterrupts::Banned);
        return Some(vec![Setting { place, value: cpus.to_string() }]);
    }
    if command.starts_with("for ") {
        return per_item(command);
    }
    if command.contains(['$', '*', '`', '|', '&', ';', '<', '{', '(', '\'', '"']) {
        return None;
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["sysctl", "-w", rest @ ..] | ["sysctl", rest @ ..] if !rest.is_empty() => rest
            .iter()
            .map(|word| {
                let (name, value) = word.split_once('=')?;
                Some(Setting { place: Place::Sysctl(name.to_owned()), value: value.to_owned() })
            })
            .collect(),
        ["echo", value, ">", path] => Some(vec![file(path, value)?]),
        ["cpupower", "-c", cpus, "frequency-set", rest @ ..] => {
            let cpus: CpuSet = cpus.parse().ok()?;
            pairs(rest)?
                .into_iter()
                .map(|(option, value)| {
                    let what = match option {
                        "-g" => OfCpus::Governor,
                        "-d" => OfCpus::MinFrequency,
                        "-u" => OfCpus::MaxFrequency,
                        _ => return None,
                    };
                    Some(Setting { place: Place::Cpus(cpus.clone(), what), value: value.to_owned() })
                })
                .collect()
        }
        ["ethtool", option, interface, rest @ ..] => {
            let group = OfNetwork::of_option(option)?;
            let one = |(field, value): (&str, &str)| {
                let value = match (group, value) {
                    // netlink's values, which a profile uses.
                    (OfNetwork::Coalesce, "on") => "1",
                    (OfNetwork::Coalesce, "off") => "0",
                    (_, "on" | "off") => value,
                    (_, number) => number.parse::<u32>().ok().map(|_| number)?,
                };
                let place = Place::Network((*interface).to_owned(), group, field.to_owned());
                Some(Setting { place, value: value.to_owned() })
            };
            pairs(rest)?.into_iter().map(one).collect()
        }
        _ => None,
    }
}

/// Groups words into pairs. `None` if there are no words, or an odd number of words.
fn pairs<'a>(words: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let pairs = words.chunks(2).map(|pair| match pair {
        [name, value] => Some((*name, *value)),
        _ => None,
    });
    pairs.collect::<Option<Vec<_>>>().filter(|pairs| !pairs.is_empty())
}

/// Parses `echo VALUE > PATH`.
fn file(path: &str, value: &str) -> Option<Setting> {
    if !path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:".contains(c)) {
        return None;
    }
    let set = |place| Some(Setting { place, value: value.to_owned() });
    let mask = |place| Some(Setting { place, value: CpuSet::parse_mask(value).ok()?.to_string() });
    if let Some(what) = OfMemory::ALL.into_iter().find(|what| what.names().0 == path) {
        return set(Place::Memory(what));
    }
    if let Some(what) = OfWorkqueues::ALL.into_iter().find(|what| what.names().0 == path) {
        return mask(Place::Workqueues(what));
    }
    if path == DEFAULT_AFFINITY {
        return mask(Place::Interrupts(OfInterrupts::Default));
    }
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        return set(Place::Sysctl(name.replace('/', ".")));
    }
    // Control groups come and go, and tracing is only for diagnosis.
    let plain = path.starts_with("/sys/")
        && !["/sys/fs/cgroup/", "/sys/fs/resctrl/", "/sys/kernel/tracing/", "/sys/kernel/debug/"]
            .iter()
            .any(|folder| path.starts_with(folder));
    if plain { set(Place::File(path.to_owned())) } else { None }
}

/// Parses a loop over CPUs, interrupts, or domains of the uncore, in the form that the module `setting` writes.
fn per_item(command: &str) -> Option<Vec<Setting>> {
    const CPU: &str = "/sys/devices/system/cpu/cpu$n";
    let (items, rest) = command.strip_prefix("for ")?.split_once("; do ")?;
    let body = rest.strip_suffix("; done")?;
    let (variable, items) = items.split_once(" in ")?;
    let one = |place, value: &str| Some(vec![Setting { place, value: value.to_owned() }]);
    if let Some((value, "$i/smp_affinity_list")) = body.strip_prefix("echo ").and_then(|body| body.split_once(" > ")) {
        let all = variable == "i" && items == "/proc/irq/[0-9]*" && value.parse::<CpuSet>().is_ok();
        return if all { one(Place::Interrupts(OfInterrupts::All), value) } else { None };
    }
    if items == "/sys/devices/system/cpu/intel_uncore_frequency/*/" {
        let (from, to) = body.strip_prefix("cat $n/initial_")?.split_once("_freq_khz > $n/")?;
        let bound = match to {
            "min_freq_khz" => Bound::Lowest,
            "max_freq_khz" => Bound::Highest,
            _ => return None,
        };
        return if matches!(from, "min" | "max") { one(Place::Uncore(bound), from) } else { None };
    }
    let cpus = cpus_of(items).filter(|_| variable == "n")?;
    let (value, path) = body.strip_prefix("echo ")?.split_once(" > ")?;
    match path.strip_prefix(CPU)? {
        "/cpufreq/energy_performance_preference" => one(Place::Cpus(cpus, OfCpus::Preference), value),
        "/power/pm_qos_resume_latency_us" => {
            let limit = host::knob::ResumeLatency::of_file(value)?.to_string();
            one(Place::Cpus(cpus, OfCpus::ResumeLatency), &limit)
        }
        _ => None,
    }
}

/// Parses the list of words in a loop over CPUs: `2 3 $(seq 8 31)`.
fn cpus_of(words: &str) -> Option<CpuSet> {
    let list = words.replace("$(seq ", "$").replace(')', "");
    let mut cpus = CpuSet::new();
    let mut words = list.split(' ');
    while let Some(word) = words.next() {
        match word.strip_prefix('$') {
            Some(first) => {
                let (first, last): (u32, u32) = (first.parse().ok()?, words.next()?.parse().ok()?);
                cpus = cpus.union(&CpuSet::parse_list(&format!("{first}-{last}")).ok()?);
            }
            None => cpus = cpus.union(&CpuSet::parse_list(&word.parse::<u32>().ok()?.to_string()).ok()?),
        }
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::commands;

    #[test]
    fn a_setting_is_read_from_a_command_and_written_as_one() {
        for (command, toml) in [
            ("sysctl -w vm.swappiness=10", "[sysctl] \"vm.swappiness\" = 10"),
            ("sysctl -w vm.dirty_ratio=10 vm.dirty_background_ratio=3", "[sysctl] \"vm.dirty_ratio\" = 10"),
            ("echo 1 > /sys/kernel/rcu_normal", "[sysfs] \"/sys/kernel/rcu_normal\" = 1"),
            ("echo never > /sys/kernel/mm/transparent_hugepage/enabled", "[memory] transparent_huge_pages = \"never\""),
            ("echo f,00000003 > /proc/irq/default_smp_affinity", "[interrupts] default = \"0-1,32-35\""),
            ("echo 3 > /sys/devices/virtual/workqueue/cpumask", "[workqueues] cpus = \"0-1\""),
            ("ethtool -C eth0 adaptive-rx off rx-usecs 0", "[network.\"eth0\".coalesce] \"adaptive-rx\" = 0"),
            ("ethtool -K eth0 lro off", "[network.\"eth0\".features] \"lro\" = \"off\""),
            ("ethtool -A eth0 autoneg off rx off", "[network.\"eth0\".pause] \"autoneg\" = \"off\""),
            ("cpupower -c 2-7 frequency-set -g performance", "[cpus.\"2-7\"] governor = \"performance\""),
            (
                "for n in 2 $(seq 8 31); do echo n/a > /sys/devices/system/cpu/cpu$n/power/pm_qos_resume_latency_us; done",
                "[cpus.\"2,8-31\"] resume_latency = \"0us\"",
            ),
            ("for i in /proc/irq/[0-9]*; do echo 0-1 > $i/smp_affinity_list; done", "[interrupts] all = \"0-1\""),
        ] {
            let all = settings(command).unwrap_or_else(|| panic!("{command}"));
            let (section, key, value) = all[0].toml();
            assert_eq!(format!("[{section}] {key} = {value}"), toml);
            assert_eq!(commands(&all), [command]);
        }
        let all = settings("echo 0-1 > /proc/sys/kernel/watchdog_cpumask").unwrap();
        assert_eq!(commands(&all), ["sysctl -w kernel.watchdog_cpumask=0-1"]);
    }

    #[test]
    fn what_cannot_be_rolled_back_or_is_a_diagnosis_is_no_setting() {
        for left in [
            "for i in /proc/irq/*; do echo 1 > $i; done",
            "systemctl stop irqbalance",
            "echo max > /sys/fs/cgroup/system.slice/cpu.max",
            "echo 1 > /sys/kernel/tracing/events/sched/sched_switch/enable",
            "ethtool -C eth0",
            "ethtool -G eth0 rx many",
            "ethtool -X eth0 equal 4",
        ] {
            assert_eq!(settings(left), None, "{left}");
        }
    }
}

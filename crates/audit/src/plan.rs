//! Findings as a profile for `apus tune`: what can be changed while the host runs, and taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use host::facts::CommandLine;

use crate::{Context, Finding, Level, Report};

/// A profile made of findings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The profile, as TOML.
    pub text: String,
    /// How many findings it mends.
    pub mends: usize,
    /// How many it leaves to people; they stand in it as comments.
    pub left: usize,
}

/// A key of the profile: its section and its name.
type Key = (String, String);

/// Makes a profile of the warnings and failures that no baseline accepts: of their own commands where those are
/// `sysctl`, `echo … >` or `ethtool`, and of their kernel parameters. What is neither stands as a comment behind it.
/// Findings that are choices are left out: whoever chooses, sets them.
pub fn plan(report: &Report) -> Plan {
    let context = &report.context;
    let mut keys: BTreeMap<Key, (String, BTreeSet<&'static str>)> = BTreeMap::new();
    let mut arguments: BTreeMap<String, (String, BTreeSet<&'static str>)> = BTreeMap::new();
    let (mut mends, mut left) = (0, Vec::new());
    for finding in report.at_least(Level::Warn) {
        let id = finding.rule.id;
        let mendable = !FOR_PEOPLE.contains(&id);
        let settings = if mendable { settings(finding, context) } else { Vec::new() };
        let words = if mendable && settings.is_empty() { parameters(finding) } else { Vec::new() };
        if settings.is_empty() && words.is_empty() {
            left.push(finding);
            continue;
        }
        mends += 1;
        for (section, name, value) in settings {
            // The first one stays: findings come with the worst first.
            keys.entry((section, name)).or_insert_with(|| (value, BTreeSet::new())).1.insert(id);
        }
        for (name, word) in words {
            arguments.entry(name).or_insert_with(|| (word, BTreeSet::new())).1.insert(id);
        }
    }
    let text = written(&keys, &arguments, &left, mends);
    Plan { text, mends, left: left.len() }
}

fn written(
    keys: &BTreeMap<Key, (String, BTreeSet<&'static str>)>,
    arguments: &BTreeMap<String, (String, BTreeSet<&'static str>)>,
    left: &[&Finding],
    mends: usize,
) -> String {
    let ids = |ids: &BTreeSet<&'static str>| ids.iter().copied().collect::<Vec<_>>().join(", ");
    let mut text = format!("summary = \"What apus audit found: {mends} findings\"\n");
    let mut last = "";
    // What is written to a String arrives.
    for ((section, name), (value, from)) in keys {
        if section != last {
            let _ = writeln!(text, "\n[{section}]");
            last = section;
        }
        let _ = writeln!(text, "{name} = {value} # {}", ids(from));
    }
    if !arguments.is_empty() {
        text.push_str("\n[kernel]\narguments = [\n");
        for (word, from) in arguments.values() {
            let _ = writeln!(text, "    {}, # {}", quoted(word), ids(from));
        }
        text.push_str("]\n");
    }
    if !left.is_empty() {
        text.push_str("\n# Left to people, for it is no setting that can be taken back:\n");
    }
    for finding in left {
        let _ = writeln!(text, "# {}: {}", finding.key(), plain(&finding.judgement.found));
        for command in finding.fix.runtime.iter().chain(&finding.fix.persistent) {
            let _ = writeln!(text, "#     {}", plain(command));
        }
    }
    text
}

/// One line, without what would end a comment.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A TOML string (TOML 1.0, basic strings).
fn quoted(text: &str) -> String {
    let mut safe = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => safe.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(safe, "\\u{:04X}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe.push('"');
    safe
}

/// A number as it is, all else as a string.
fn scalar(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => quoted(text),
    }
}

/// What needs somebody's number or eye, whatever its commands look like.
const FOR_PEOPLE: [&str; 9] = [
    "cmd.hugepages",
    "cmd.duplicate",
    "cmd.contradiction",
    "cmd.unknown-name",
    "cmd.unknown-value",
    "cpu.turbo",
    "mem.hugepages-node",
    "net.udp-drops",
    "nic.pause-frames",
];

/// The settings of a finding: section, key and value of the profile.
fn settings(finding: &Finding, context: &Context) -> Vec<(String, String, String)> {
    let own = by_rule(finding.rule.id, context);
    if !own.is_empty() {
        return own;
    }
    let commands: Vec<&str> = finding.fix.runtime.iter().map(String::as_str).collect();
    let translated: Vec<_> = commands.iter().map(|command| translated(command)).collect();
    // Half of a fix is none.
    match translated.iter().all(Option::is_some) {
        true => translated.into_iter().flatten().flatten().collect(),
        false => Vec::new(),
    }
}

/// Where a profile has a word of its own for what a rule asks.
fn by_rule(id: &str, context: &Context) -> Vec<(String, String, String)> {
    let cpus = if context.isolated.value.is_empty() { "cpus.all" } else { "cpus.isolated" };
    let one = |section: &str, name: &str, value: &str| (section.to_owned(), name.to_owned(), quoted(value));
    match id {
        "cpu.governor" => vec![one(cpus, "governor", "performance")],
        "cpu.epp" | "cpu.hwp-request" => vec![one(cpus, "preference", "performance")],
        "cpu.freq-span" | "cpu.pstate-transition-gen" => {
            vec![one(cpus, "min_frequency", "max"), one(cpus, "max_frequency", "max")]
        }
        "idle.states" | "idle.usage-delta" => {
            vec![one(cpus, "idle_latency", &context.budget().min(Context::DEFAULT_BUDGET).to_string())]
        }
        "unc.sysfs-range" => vec![one("power", "uncore_min", "max"), one("power", "uncore_max", "max")],
        "irq.on-iso" | "irq.hits-iso" | "irq.softirq-iso" => vec![one("interrupts", "all", "housekeeping")],
        "irq.default-affinity" => vec![one("interrupts", "default", "housekeeping")],
        "irq.irqbalance-banned" => vec![one("interrupts", "banned", "isolated")],
        "wq.global-cpumask" => vec![one("workqueues", "cpus", "housekeeping")],
        _ => Vec::new(),
    }
}

/// What a command says, as settings of a profile; `None` if it is none that a profile can hold.
fn translated(command: &str) -> Option<Vec<(String, String, String)>> {
    // A command with a comment asks for somebody's judgement, unless the comment only names what else there is.
    let command = command.split(" #").next()?.trim();
    if command.contains(['$', '*', '`', '|', '&', ';', '<', '{', '(', '\'']) {
        return None;
    }
    // A word in capitals stands for what is not known, as does the end of cpuN.
    let mut names = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_open = |name: &str| {
        let capitals = name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == '-');
        let ends = name.strip_suffix(['N', 'X']).is_some_and(|rest| rest.ends_with(|c: char| c.is_ascii_lowercase()));
        (capitals && name.starts_with(|c: char| c.is_ascii_uppercase())) || ends
    };
    if names.any(|name| name == "N" || is_open(name)) {
        return None;
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["sysctl", "-w", rest @ ..] | ["sysctl", rest @ ..] if !rest.is_empty() => rest
            .iter()
            .map(|word| {
                let (name, value) = word.split_once('=')?;
                Some(("sysctl".to_owned(), quoted(name), scalar(value)))
            })
            .collect(),
        ["echo", value, ">", path] => file(path, value).map(|setting| vec![setting]),
        ["ethtool", flag, nic, rest @ ..] => ethtool(flag, nic, rest),
        _ => None,
    }
}

/// A file of /proc/sys or /sys.
fn file(path: &str, value: &str) -> Option<(String, String, String)> {
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:".contains(c));
    // A word in capitals stands for what is not known.
    let is_open = |text: &str| {
        text.split(['/', '='])
            .any(|part| !part.is_empty() && part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()))
            || text == "N"
    };
    if !is_plain || is_open(path) || is_open(value) {
        return None;
    }
    let memory = |name: &str| Some(("memory".to_owned(), name.to_owned(), scalar(value)));
    match path {
        "/sys/kernel/mm/transparent_hugepage/enabled" => memory("transparent_huge_pages"),
        "/sys/kernel/mm/transparent_hugepage/defrag" => memory("defrag"),
        "/sys/kernel/mm/ksm/run" => memory("same_page_merging"),
        "/sys/devices/virtual/workqueue/writeback/cpumask" => {
            Some(("workqueues".to_owned(), "writeback".to_owned(), quoted("housekeeping")))
        }
        _ => match path.strip_prefix("/proc/sys/") {
            Some(name) => Some(("sysctl".to_owned(), quoted(&name.replace('/', ".")), scalar(value))),
            None if path.starts_with("/sys/") && !path.starts_with("/sys/fs/cgroup/") => {
                Some(("sysfs".to_owned(), quoted(path), scalar(value)))
            }
            None => None,
        },
    }
}

/// `ethtool -C eth0 rx-usecs 0 adaptive-rx off`.
fn ethtool(flag: &str, nic: &str, rest: &[&str]) -> Option<Vec<(String, String, String)>> {
    let table = match flag {
        "-C" => "coalesce",
        "-G" => "rings",
        "-K" => "features",
        "-A" => "pause",
        _ => return None,
    };
    let pairs: Option<Vec<(&str, String)>> = rest
        .chunks(2)
        .map(|pair| match pair {
            [name, value] => {
                let switch = flag == "-C";
                Some((
                    *name,
                    match *value {
                        "on" if switch => "1".to_owned(),
                        "off" if switch => "0".to_owned(),
                        "on" | "off" => quoted(value),
                        number => number.parse::<u32>().ok()?.to_string(),
                    },
                ))
            }
            _ => None,
        })
        .collect();
    let pairs = pairs.filter(|pairs| !pairs.is_empty())?;
    let section = format!("network.{}.{table}", quoted(nic));
    Some(pairs.into_iter().map(|(name, value)| (section.clone(), name.to_owned(), value)).collect())
}

/// The kernel parameters of a fix for good that is nothing but parameters of the table.
fn parameters(finding: &Finding) -> Vec<(String, String)> {
    if !finding.fix.reboot {
        return Vec::new();
    }
    let mut all = Vec::new();
    for text in &finding.fix.persistent {
        let line = CommandLine::parse(text);
        let is_known = |name: &str| crate::cmdline::table::find(name).is_some();
        let is_whole = |word: &str| {
            !word.contains(['{', '}', '…', ';', '('])
                && !word.contains("LIST")
                && !word.contains("-CPUS")
                && !word.ends_with("=N")
        };
        if line.parameters.is_empty() || !line.parameters.iter().all(|p| is_known(&p.name) && is_whole(&p.to_string()))
        {
            return Vec::new();
        }
        all.extend(line.parameters.iter().map(|parameter| (parameter.name.clone(), parameter.to_string())));
    }
    all
}

#[cfg(test)]
mod tests {
    use host::profile::Layer;

    use super::*;
    use crate::testing::{Host, host};
    use crate::{Intent, audit};

    fn planned(host: &Host) -> Plan {
        let intent = Intent { isolated: Some("2-7".parse().unwrap()), ..Intent::default() };
        let plan = plan(&audit(&host.facts(), &intent));
        let parsed = Layer::parse("audit.toml", None, &plan.text);
        assert!(parsed.is_ok(), "{parsed:?}\n{}", plan.text);
        plan
    }

    #[test]
    fn findings_become_settings_and_the_rest_comments() {
        let plan = planned(
            &host()
                .cmdline("quiet isolcpus=managed_irq,2-7")
                .file("/proc/sys/kernel/timer_migration", "1\n")
                .file("/proc/sys/kernel/nmi_watchdog", "1\n")
                .file("/sys/devices/virtual/workqueue/cpumask", "ff")
                .file("/proc/irq/55/effective_affinity_list", "3")
                .file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
        );
        for line in [
            "[sysctl]\n\"kernel.nmi_watchdog\" = 0 # cmd.nmi-watchdog",
            "[workqueues]\ncpus = \"housekeeping\" # wq.global-cpumask",
            "[interrupts]\nall = \"housekeeping\" # irq.on-iso",
            "transparent_huge_pages = ",
        ] {
            assert!(plan.text.contains(line), "{line:?} is not in\n{}", plan.text);
        }
        assert!(!plan.text.contains("timer_migration"), "a choice is nobody's finding\n{}", plan.text);
        assert!(plan.mends >= 4 && plan.left > 0, "{plan:?}");
    }

    #[test]
    fn no_pages_are_reserved_and_no_ticks_stopped_unasked() {
        let planned = |config: &str| {
            let host = host().cmdline("quiet").workload(crate::Workload::Poll);
            let host = host.file("/proc/sys/kernel/osrelease", "6.12.0\n").file("/boot/config-6.12.0", config);
            let host = host.file("/sys/devices/system/cpu/nohz_full", "(null)\n");
            let workloads = Some(vec![crate::Workload::Poll]);
            let intent = Intent { isolated: Some("2-7".parse().unwrap()), workloads, ..Intent::default() };
            plan(&audit(&host.facts(), &intent)).text
        };
        let arguments = |text: &str| text.split_once("arguments = [").unwrap().1.split(']').next().unwrap().to_owned();
        let with = planned("CONFIG_NO_HZ_FULL=y\n");
        assert!(arguments(&with).contains("nohz_full=2-7"), "{with}");
        assert!(with.contains("hugepages=N") && !arguments(&with).contains("hugepages"), "{with}");
        let without = planned("# CONFIG_NO_HZ_FULL is not set\n");
        assert!(!arguments(&without).contains("nohz_full") && arguments(&without).contains("rcu_nocbs"), "{without}");
    }

    #[test]
    fn what_is_not_known_is_written_by_nobody() {
        let host = host().cmdline("isolcpus=managed_irq,domain,0-7 nohz_full=0-7 nmi_watchdog=0");
        let text = plan(&audit(&host.facts(), &Intent::default())).text;
        let arguments = text.split_once("arguments = [").map_or("", |(_, rest)| rest.split(']').next().unwrap());
        assert!(!arguments.contains("irqaffinity") && text.contains("irqaffinity=HOUSEKEEPING-CPU"), "{text}");
    }

    #[test]
    fn of_nothing_nothing_is_made() {
        let plan = plan(&audit(&host::Facts::default(), &Intent::default()));
        assert_eq!((plan.mends, plan.left), (0, 0));
        assert!(Layer::parse("audit.toml", None, &plan.text).is_ok(), "{}", plan.text);
    }

    #[test]
    fn commands_are_translated_or_left() {
        let one = |command| translated(command).map(|settings| settings[0].clone());
        let setting = |a: &str, b: &str, c: &str| Some((a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(one("sysctl -w vm.swappiness=10"), setting("sysctl", "\"vm.swappiness\"", "10"));
        assert_eq!(one("echo 1 > /sys/kernel/rcu_normal"), setting("sysfs", "\"/sys/kernel/rcu_normal\"", "1"));
        assert_eq!(
            one("echo 0-1 > /proc/sys/kernel/watchdog_cpumask"),
            setting("sysctl", "\"kernel.watchdog_cpumask\"", "\"0-1\"")
        );
        assert_eq!(
            one("ethtool -C eth0 adaptive-rx off rx-usecs 0"),
            setting("network.\"eth0\".coalesce", "adaptive-rx", "0")
        );
        for left in [
            "for i in /proc/irq/*; do echo 1 > $i; done",
            "systemctl stop irqbalance",
            "echo max > /sys/fs/cgroup/GROUP/cpu.max",
            "echo {housekeeping-mask} > /sys/x",
            "ethtool -G eth0 rx N",
            "sysctl -w net.core.netdev_budget=N # twice what it is",
            "ethtool -C NIC rx-usecs 0",
            "echo 0 > /sys/devices/system/cpu/cpuN/online # for each sibling",
            "echo on > /sys/bus/pci/devices/PCI-ADDRESS/power/control",
            "echo HOUSEKEEPING-CPU-MASK > /sys/devices/virtual/workqueue/cpumask",
        ] {
            assert_eq!(translated(left), None, "{left}");
        }
    }
}

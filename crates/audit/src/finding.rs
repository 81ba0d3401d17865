//! A finding: a judgement with its rule, and its fix with concrete values.

use host::facts::CpuSet;
use units::Nanos;

use crate::wording::singular;
use crate::{Context, Effect, Judgement, Rule, Subject, Verdict};

/// A judgement with its rule, and its fix with concrete values.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// What was judged, how, and on what grounds.
    pub judgement: Judgement,
    /// What mends it, with values and paths filled in; empty for what needs no mending.
    pub fix: Remedy,
    /// How long one packet waits for it; `None` where nothing waits ([`Self::slower`]) or no size is known.
    pub effect: Option<Nanos>,
    /// Does the work on a packet take longer, although none waits?
    pub slower: bool,
    /// Is it a known one that a baseline accepts?
    pub accepted: bool,
}

/// What mends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remedy {
    /// Commands for the running host.
    pub runtime: Vec<String>,
    /// Settings for good.
    pub persistent: Vec<String>,
    /// Do the settings act from the next boot only?
    pub reboot: bool,
}

impl Finding {
    /// Completes a judgement.
    pub(crate) fn new(rule: &'static Rule, mut judgement: Judgement, context: &Context, housekeeping: &CpuSet) -> Self {
        judgement.found = singular(&judgement.found);
        for evidence in judgement.evidence.iter_mut().filter(|evidence| evidence.value.starts_with("1 ")) {
            evidence.value = singular(&evidence.value);
        }
        let wrong = judgement.verdict.weight() >= Verdict::SourcesDisagree.weight();
        let fill = |text: &str| filled(text, &judgement.subject, context, housekeeping);
        let lines = |own: &[String], general: Option<&str>| -> Vec<String> {
            match own {
                [] => general.into_iter().flat_map(str::lines).map(fill).collect(),
                own => own.to_vec(),
            }
        };
        let fix = match wrong {
            true => Remedy {
                runtime: lines(&judgement.now, rule.fix.runtime),
                persistent: lines(&judgement.for_good, rule.fix.persistent),
                reboot: rule.fix.reboot,
            },
            false => Remedy::default(),
        };
        let effect = if wrong { judgement.effect.unwrap_or(rule.magnitude.effect) } else { Effect::Unsized };
        Self { rule, judgement, fix, effect: effect.lateness(), slower: effect == Effect::Slower, accepted: false }
    }

    /// Takes the parameters of full dynamic ticks out of what mends it for good: this kernel does not have them.
    pub(crate) fn without_full_ticks(&mut self) {
        const OF_TICKS: [&str; 2] = ["nohz_full=", "rcutree.nohz_full_patience_delay="];
        for text in &mut self.fix.persistent {
            let words: Vec<&str> = text.split_whitespace().collect();
            let is_tick = |word: &str| OF_TICKS.iter().any(|name| word.starts_with(name));
            if !words.iter().copied().any(is_tick) || !words.iter().all(|word| word.contains('=')) {
                continue;
            }
            let rest: Vec<&str> = words.iter().copied().filter(|word| !is_tick(word)).collect();
            *text = if rest.is_empty() { "a kernel with CONFIG_NO_HZ_FULL=y".to_owned() } else { rest.join(" ") };
        }
    }

    /// What it does to a packet, in documents: `late` or `slower`; `None` where no size is known.
    pub fn effect_name(&self) -> Option<&'static str> {
        let effect = match (self.effect, self.slower) {
            (Some(time), _) => Effect::Late(time),
            (None, true) => Effect::Slower,
            (None, false) => Effect::Unsized,
        };
        effect.name()
    }

    /// What names it from one audit to the next: rule and subject.
    pub fn key(&self) -> String {
        format!("{} {}", self.rule.id, self.judgement.subject)
    }
}

/// What stands in a fix for a value that is not known: a word in capitals, for people.
const OPEN: &[(&str, &str)] = &[
    ("{isolated}", "CPU-LIST"),
    ("{housekeeping}", "HOUSEKEEPING-CPU-LIST"),
    ("{isolated-mask}", "CPU-MASK"),
    ("{housekeeping-mask}", "HOUSEKEEPING-CPU-MASK"),
    ("{nic}", "NIC"),
    ("{cpu}", "CPU-LIST"),
    ("{cpu-words}", "CPU-LIST"),
    ("{irq}", "IRQ"),
    ("{device}", "PCI-ADDRESS"),
];

/// A template with its values; a value that is not known becomes a word in capitals, for people.
fn filled(text: &str, subject: &Subject, context: &Context, housekeeping: &CpuSet) -> String {
    if !text.contains('{') {
        return text.to_owned();
    }
    let isolated = &context.isolated.value;
    let list = |set: &CpuSet| (!set.is_empty()).then(|| set.to_string());
    let mask = |set: &CpuSet| (!set.is_empty()).then(|| set.to_mask());
    // Where no CPU is isolated, all of them matter, and all are housekeeping.
    let own = match subject {
        Subject::Cpus(cpus) => cpus,
        _ if isolated.is_empty() => housekeeping,
        _ => isolated,
    };
    let value = |name: &str| match name {
        "{isolated}" => list(isolated),
        "{housekeeping}" => list(housekeeping),
        "{isolated-mask}" => mask(isolated),
        "{housekeeping-mask}" => mask(housekeeping),
        "{nic}" => match subject {
            Subject::Link(name) => Some(name.clone()),
            _ => context.nics.value.first().cloned(),
        },
        "{cpu}" => list(own),
        "{cpu-words}" => (!own.is_empty()).then(|| words(own)),
        "{irq}" => match subject {
            Subject::Irq(number, _) => Some(number.to_string()),
            _ => None,
        },
        "{device}" => match subject {
            Subject::Device(address) => Some(address.clone()),
            _ => None,
        },
        _ => None,
    };
    OPEN.iter().fold(text.to_owned(), |text, (name, open)| match text.contains(name) {
        true => text.replace(name, &value(name).unwrap_or_else(|| (*open).to_owned())),
        false => text,
    })
}

/// CPUs as the words of a shell's loop: `2 3 4`, and `$(seq 2 31)` for many in a row.
fn words(cpus: &CpuSet) -> String {
    let list = cpus.to_string();
    let range = |part: &str| {
        let ends = part.split_once('-').and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)));
        match ends {
            Some((first, last)) if last - first >= 8 => format!("$(seq {first} {last})"),
            Some((first, last)) => (first..=last).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(" "),
            None => part.to_owned(),
        }
    };
    list.split(',').map(range).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Intended;
    use crate::testing::Host;
    use crate::{Intent, audit, rules};

    #[test]
    fn a_loop_names_the_subjects_cpus_alone() {
        let context = Context { isolated: Intended::given("2-4".parse().unwrap()), ..Context::default() };
        let one = |text: &str, subject: Subject| filled(text, &subject, &context, &CpuSet::from([0, 1]));
        assert_eq!(one("for n in {cpu-words}; do", Subject::Host), "for n in 2 3 4; do");
        let many: CpuSet = "3,8-40,50-51".parse().unwrap();
        assert_eq!(one("{cpu-words}", many.into()), "3 $(seq 8 40) 50 51");
        assert_eq!(filled("{cpu} {nic}", &Subject::Host, &Context::default(), &CpuSet::new()), "CPU-LIST NIC");
        assert_eq!(filled("{cpu}", &Subject::Host, &Context::default(), &CpuSet::from([0, 1])), "0-1");
    }

    /// Is it a line that a shell takes, beginning with a command or a comment?
    fn is_command(line: &str) -> bool {
        const COMMANDS: &[&str] = &[
            "#",
            "apus",
            "auditctl",
            "cat",
            "chrt",
            "cpupower",
            "cpuset",
            "dmesg",
            "dpdk-devbind.py",
            "echo",
            "ethtool",
            "for",
            "grep",
            "ifconfig",
            "ip",
            "ipmitool",
            "mkdir",
            "mount",
            "nft",
            "pepc",
            "perf",
            "prlimit",
            "rmmod",
            "rtla",
            "service",
            "setpci",
            "strace",
            "swapoff",
            "sysctl",
            "systemctl",
            "taskset",
            "tc",
            "tuned-adm",
            "turbostat",
            "virsh",
            "wrmsr",
            "x86_energy_perf_policy",
        ];
        let first = line.split_whitespace().next().unwrap_or_default();
        // "command, and another": prose that a shell would take for arguments.
        let command = line.split('#').next().unwrap_or_default();
        let is_prose = [", ", " (", ": "].iter().any(|mark| command.contains(mark));
        COMMANDS.contains(&first) && !is_prose
    }

    /// What a shell says of a script, if there is one.
    fn refused(script: &str) -> Option<String> {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut shell) = shell else {
            testkit::skip("there is no sh");
            return None;
        };
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn evidence_is_in_words() {
        let mut wrong = std::collections::BTreeSet::new();
        for case in rules::cases().flatten() {
            for judgement in (case.host)().judge(case.rule) {
                let texts =
                    judgement.evidence.iter().map(|evidence| evidence.value.as_str()).chain([&*judgement.found]);
                let odd = |text: &&str| {
                    matches!(*text, "true" | "false" | "")
                        || ["[]", "[\"", "Some(", "None"].iter().any(|mark| text.contains(mark))
                };
                wrong.extend(
                    texts
                        .filter(odd)
                        .filter(|_| judgement.verdict.reason().is_none())
                        .map(|text| (case.rule, text.to_owned())),
                );
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn what_mends_a_running_host_is_a_command() {
        // Each finding of each case, and of the same host where nothing is isolated.
        let mut lines = std::collections::BTreeMap::new();
        for case in rules::cases().flatten() {
            let found: Host = (case.host)();
            let facts = found.facts();
            for isolated in [None, Some("2-7".parse().unwrap())] {
                let intent = Intent { isolated, nics: Some(vec!["eth0".into()]), ..Intent::default() };
                for finding in audit(&facts, &intent).findings {
                    lines.extend(finding.fix.runtime.into_iter().map(|line| (line, finding.rule.id)));
                }
            }
            for judgement in found.judge(case.rule) {
                let rule = rules::find(case.rule).unwrap();
                let finding = Finding::new(rule, judgement, &Context::default(), &CpuSet::new());
                lines.extend(finding.fix.runtime.into_iter().map(|line| (line, case.rule)));
            }
        }
        // Rules whose cases bring commands of their own have the general one too.
        for rule in rules::all() {
            let general = rule.fix.runtime.into_iter().flat_map(str::lines);
            let fill = |line| filled(line, &Subject::Host, &Context::default(), &CpuSet::from([0, 1]));
            lines.extend(general.map(|line| (fill(line), rule.id)));
        }
        assert!(lines.len() > 150, "{}", lines.len());
        let wrong: Vec<_> = lines
            .iter()
            .filter(|(line, _)| {
                !is_command(line) || line.contains("(for CPUs") || OPEN.iter().any(|o| line.contains(o.0))
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        // One shell for all of them; where it refuses, each alone.
        let all: String = lines.keys().map(|line| format!("{line}\n")).collect();
        if refused(&all).is_some() {
            let each: Vec<_> = lines.iter().filter_map(|(line, id)| Some((id, line, refused(line)?))).collect();
            panic!("{each:#?}");
        }
    }
}

//! Combines the fixes of findings into one plan: settings for `apus tune`, one kernel command line, and work for
//! people.
//!
//! A plan only collects fixes. Contradictions between fixes were already resolved when the report was made.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use host::facts::{CommandLine, CpuSet, Parameter, same_name};

use crate::cmdline::table;
use crate::remedy::{OfCpus, Place, quoted};
use crate::{Finding, Level, Report, Setting, Subject};

/// The combined fixes for an audit's findings.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Settings that `apus tune` applies to the running host and can roll back. No setting occurs twice.
    pub settings: Vec<Planned<'a, Setting>>,
    /// Words to add to the kernel command line and to remove from it.
    pub kernel: KernelLine<'a>,
    /// Findings without a fix in `settings` or among the words that `kernel` adds.
    pub left: Vec<&'a Finding>,
    /// Number of findings with a fix in [`Self::settings`], or among the words that [`Self::kernel`] adds.
    pub mends: usize,
}

/// One change of a plan, with the findings that require it.
#[derive(Clone, Debug)]
pub struct Planned<'a, T> {
    /// The setting or kernel parameter to change.
    pub what: T,
    /// The findings that require the change, worst first. Never empty.
    pub from: Vec<&'a Finding>,
}

/// Changes to the kernel command line that fix findings.
#[derive(Clone, Debug, Default)]
pub struct KernelLine<'a> {
    /// The command line with which the host was booted. `None` if it is not known.
    pub now: Option<&'a CommandLine>,
    /// Words to add. Each replaces the words on the line that have the same name.
    pub add: Vec<Planned<'a, Parameter>>,
    /// Words to remove. A word without a value is removed whatever its value on the line is.
    pub remove: Vec<Planned<'a, Parameter>>,
    /// Words that occur several times on the line with the same value, but should occur only once.
    pub once: Vec<Planned<'a, Parameter>>,
}

/// Makes a plan that fixes warnings and failures, except those that a baseline accepts. Choices on which sources
/// disagree are left to the user.
pub fn plan(report: &Report) -> Plan<'_> {
    plan_of(report, |_| true)
}

/// Makes a plan for the findings for which `is_asked` is true.
pub(crate) fn plan_of(report: &Report, is_asked: impl Fn(&Finding) -> bool) -> Plan<'_> {
    let mut settings: Vec<Planned<'_, Setting>> = Vec::new();
    let mut kernel = KernelLine { now: report.line.as_ref(), ..KernelLine::default() };
    let (mut mends, mut left) = (0, Vec::new());
    for finding in report.at_least(Level::Warn).filter(|finding| is_asked(finding)) {
        let fix = &finding.fix;
        if let Some(word) = repeated(finding) {
            join(&mut kernel.once, &word, finding);
        }
        fix.settings().for_each(|setting| join(&mut settings, setting, finding));
        fix.adds().for_each(|word| join(&mut kernel.add, word, finding));
        fix.removes().for_each(|word| join(&mut kernel.remove, word, finding));
        match fix.settings().next().is_some() || fix.adds().next().is_some() {
            true => mends += 1,
            false => left.push(finding),
        }
    }
    Plan { settings: disjoint(settings), kernel, left, mends }
}

/// The word that the finding reports as repeated on the line with the same value. `None` for other findings.
fn repeated(finding: &Finding) -> Option<Parameter> {
    let Subject::Parameter(text) = &finding.judgement.subject else { return None };
    match &CommandLine::parse(text).parameters[..] {
        [word] if finding.rule.id == "cmd.duplicate" => Some(word.clone()),
        _ => None,
    }
}

fn join<'a, T: Clone + PartialEq>(list: &mut Vec<Planned<'a, T>>, what: &T, finding: &'a Finding) {
    match list.iter_mut().find(|planned| planned.what == *what) {
        Some(planned) => planned.from.push(finding),
        None => list.push(Planned { what: what.clone(), from: vec![finding] }),
    }
}

/// Splits the CPU sets of settings into disjoint sets. Otherwise the setting for one set could overwrite that for
/// another.
fn disjoint(settings: Vec<Planned<'_, Setting>>) -> Vec<Planned<'_, Setting>> {
    /// For each setting of one CPU: the value, and the findings that require it.
    type Wishes<'a> = BTreeMap<OfCpus, (String, Vec<&'a Finding>)>;
    let mut of_cpu: BTreeMap<u32, Wishes<'_>> = BTreeMap::new();
    let mut rest = Vec::new();
    for planned in settings {
        let Place::Cpus(cpus, what) = &planned.what.place else {
            rest.push(planned);
            continue;
        };
        for cpu in cpus.iter() {
            let wish = of_cpu.entry(cpu).or_default().entry(*what);
            wish.or_insert_with(|| (planned.what.value.clone(), Vec::new())).1.extend(&planned.from);
        }
    }
    let mut groups: Vec<(CpuSet, Wishes<'_>)> = Vec::new();
    let values = |wishes: &Wishes<'_>| -> Vec<(OfCpus, String)> {
        wishes.iter().map(|(what, (value, _))| (*what, value.clone())).collect()
    };
    for (cpu, wishes) in of_cpu {
        match groups.iter_mut().find(|(_, other)| values(other) == values(&wishes)) {
            Some((cpus, other)) => {
                cpus.insert(cpu);
                for (what, (_, from)) in wishes {
                    if let Some((_, all)) = other.get_mut(&what) {
                        let new = from.into_iter().filter(|one| !all.iter().any(|known| std::ptr::eq(*known, *one)));
                        let new: Vec<_> = new.collect();
                        all.extend(new);
                    }
                }
            }
            None => groups.push((CpuSet::from([cpu]), wishes)),
        }
    }
    for (cpus, wishes) in groups {
        for (what, (value, from)) in wishes {
            let place = Place::Cpus(cpus.clone(), what);
            rest.push(Planned { what: Setting { place, value }, from });
        }
    }
    rest.sort_by(|a, b| a.what.place.cmp(&b.what.place));
    rest
}

impl Plan<'_> {
    /// Formats the plan as a profile for `apus tune`. Parts that a profile cannot express become comments.
    pub fn toml(&self) -> String {
        let mut text = format!("summary = \"What apus audit found: {} findings\"\n", self.mends);
        let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for planned in &self.settings {
            let (section, key, value) = planned.what.toml();
            let lines = sections.entry(section).or_default();
            lines.push(format!("{key} = {value} # {}", planned.ids()));
        }
        // Writing to a String cannot fail.
        for (section, lines) in sections {
            let _ = writeln!(text, "\n[{section}]\n{}", lines.join("\n"));
        }
        if !self.kernel.add.is_empty() {
            text.push_str("\n[kernel]\narguments = [\n");
            for word in &self.kernel.add {
                let _ = writeln!(text, "    {}, # {}", quoted(&word.what.to_string()), word.ids());
            }
            text.push_str("]\n");
        }
        if !self.kernel.remove.is_empty() {
            text.push_str("\n# Remove from the kernel's command line by hand; a profile only adds to it:\n");
            for word in &self.kernel.remove {
                let _ = writeln!(text, "#     {} # {}", plain(&word.what.to_string()), word.ids());
            }
        }
        if !self.left.is_empty() {
            text.push_str("\n# Left to people, because apus tune could not roll it back or a decision is needed:\n");
        }
        for finding in &self.left {
            let _ = writeln!(text, "# {}: {}", plain(&finding.key()), plain(&finding.judgement.found));
            for step in finding.fix.steps() {
                let _ = writeln!(text, "#     {}", plain(&step.to_string()));
            }
        }
        text
    }
}

impl<T> Planned<'_, T> {
    /// The identifiers of the rules whose findings require the change, such as `cpu.epp, cpu.governor`.
    pub fn ids(&self) -> String {
        let mut ids: Vec<&str> = self.from.iter().map(|finding| finding.rule.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.join(", ")
    }
}

impl KernelLine<'_> {
    /// Whether the plan leaves the command line unchanged.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty() && self.once.is_empty()
    }

    /// Returns the whole command line after the change. Unchanged words keep their position, a replacement takes the
    /// position of the first word with its name, and new words come last. `None` if the present command line is not
    /// known.
    pub fn merged(&self) -> Option<CommandLine> {
        let words = |list: &[Planned<'_, Parameter>]| list.iter().map(|word| word.what.clone()).collect::<Vec<_>>();
        let merged = merged(self.now?, &words(&self.add), &words(&self.remove));
        let all = &merged.parameters;
        let is_again = |at: usize| {
            let word = &all[at];
            self.once.iter().any(|planned| planned.what == *word) && all[..at].contains(word)
        };
        let kept: Vec<String> = (0..all.len()).filter(|at| !is_again(*at)).map(|at| all[at].to_string()).collect();
        Some(CommandLine::parse(&kept.join(" ")))
    }
}

/// The line without the words of `remove`, and with `add` in place of the words with the same name.
pub(crate) fn merged(now: &CommandLine, add: &[Parameter], remove: &[Parameter]) -> CommandLine {
    let removed = |word: &Parameter| {
        let same = |other: &Parameter| same_name(&other.name, &word.name);
        remove.iter().any(|gone| same(gone) && (gone.value.is_none() || gone.value == word.value))
    };
    let repeats = |word: &Parameter| table::find(&word.name).is_some_and(|known| known.repeats);
    let mut left: Vec<&Parameter> = add.iter().collect();
    let mut words: Vec<String> = Vec::new();
    for word in now.parameters.iter().filter(|word| !removed(word)) {
        let replaces = |new: &&Parameter| same_name(&new.name, &word.name) && !repeats(new);
        if !add.iter().any(|new| replaces(&new)) {
            words.push(word.to_string());
        } else if let Some(at) = left.iter().position(replaces) {
            words.push(left.remove(at).to_string());
        }
    }
    words.extend(left.into_iter().map(ToString::to_string));
    CommandLine::parse(&words.join(" "))
}

/// Formats the text as one line, without characters that would end a comment.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use host::profile::Layer;

    use super::*;
    use crate::testing::{Host, host};
    use crate::{Intent, audit};

    fn planned(host: &Host) -> Report {
        let intent = Intent { isolated: Some("2-7".parse().unwrap()), ..Intent::default() };
        let report = audit(&host.facts(), &intent);
        let text = plan(&report).toml();
        let parsed = Layer::parse("audit.toml", None, &text);
        assert!(parsed.is_ok(), "{parsed:?}\n{text}");
        report
    }

    #[test]
    fn findings_become_settings_and_the_rest_comments() {
        let report = planned(
            &host()
                .cmdline("quiet isolcpus=managed_irq,2-7")
                .file("/proc/sys/kernel/timer_migration", "1\n")
                .file("/proc/sys/kernel/nmi_watchdog", "1\n")
                .file("/sys/devices/virtual/workqueue/cpumask", "ff")
                .file("/proc/irq/55/effective_affinity_list", "3")
                .file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
        );
        let plan = plan(&report);
        let text = plan.toml();
        for line in [
            "[sysctl]\n\"kernel.nmi_watchdog\" = 0 # cmd.nmi-watchdog",
            "[workqueues]\ncpus = \"0-1\" # cmd.sets-agree, wq.global-cpumask",
            "[interrupts]\nall = \"0-1\" # irq.on-iso",
            "transparent_huge_pages = ",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("timer_migration"), "a choice is nobody's finding\n{text}");
        assert!(plan.mends >= 4, "{text}");
    }

    #[test]
    fn no_pages_are_reserved_and_no_ticks_stopped_unasked() {
        let planned = |config: &str| {
            let host = host().cmdline("quiet").workload(crate::Workload::Poll);
            let host = host.file("/proc/sys/kernel/osrelease", "6.12.0\n").file("/boot/config-6.12.0", config);
            let host = host.file("/sys/devices/system/cpu/nohz_full", "(null)\n");
            let workloads = Some(vec![crate::Workload::Poll]);
            let intent = Intent { isolated: Some("2-7".parse().unwrap()), workloads, ..Intent::default() };
            plan(&audit(&host.facts(), &intent)).toml()
        };
        let arguments = |text: &str| text.split_once("arguments = [").unwrap().1.split(']').next().unwrap().to_owned();
        let with = planned("CONFIG_NO_HZ_FULL=y\n");
        assert!(arguments(&with).contains("nohz_full=2-7"), "{with}");
        assert!(with.contains("hugepages=") && !arguments(&with).contains("hugepages"), "{with}");
        let without = planned("# CONFIG_NO_HZ_FULL is not set\n");
        assert!(!arguments(&without).contains("nohz_full") && arguments(&without).contains("rcu_nocbs"), "{without}");
    }

    #[test]
    fn what_is_not_known_is_written_by_nobody() {
        let host = host().cmdline("isolcpus=managed_irq,domain,0-7 nohz_full=0-7 nmi_watchdog=0");
        let text = plan(&audit(&host.facts(), &Intent::default())).toml();
        let arguments = text.split_once("arguments = [").map_or("", |(_, rest)| rest.split(']').next().unwrap());
        assert!(!arguments.contains("irqaffinity") && !text.contains("irqaffinity="), "{text}");
    }

    #[test]
    fn of_nothing_nothing_is_made() {
        let report = audit(&host::Facts::default(), &Intent::default());
        let plan = plan(&report);
        assert_eq!((plan.mends, plan.left.len()), (0, 0));
        assert!(plan.kernel.is_empty() && plan.kernel.merged().is_none());
        assert!(Layer::parse("audit.toml", None, &plan.toml()).is_ok(), "{}", plan.toml());
    }

    /// telco-worker1: words that are on the line twice stay once, and no third copy is added.
    #[test]
    fn what_is_there_twice_stays_once() {
        let host = host().cmdline("tsc=reliable skew_tick=1 panic=1 tsc=reliable panic=2 skew_tick=1 nohz=off");
        let report = audit(&host.facts(), &Intent::default());
        let plan = plan(&report);
        assert!(plan.kernel.add.iter().all(|word| word.what.name != "tsc"), "{:?}", plan.kernel.add);
        let line = plan.kernel.merged().unwrap().raw;
        assert_eq!((line.matches("tsc=reliable").count(), line.matches("skew_tick=1").count()), (1, 1), "{line}");
        // People must decide which of two different values is right.
        assert!(line.contains("panic=1") && line.contains("panic=2"), "{line}");
    }

    #[test]
    fn words_replace_those_of_their_name_where_they_stand() {
        let line = CommandLine::parse("quiet isolcpus=2-3 idle=poll nohz_full=2-3 isolcpus=4");
        let words = |text: &str| CommandLine::parse(text).parameters;
        let new = merged(&line, &words("isolcpus=managed_irq,domain,2-7 tsc=reliable"), &words("idle=poll"));
        assert_eq!(new.raw, "quiet isolcpus=managed_irq,domain,2-7 nohz_full=2-3 tsc=reliable");
    }
}

//! What to do first: groups the findings by root cause, and derives at most five actions from them.

use std::collections::BTreeSet;

use host::facts::{CommandLine, CpuSet, Parameter};
use units::Nanos;

use crate::plan::{Planned, plan_of};
use crate::remedy::{Operator, commands};
use crate::{
    Action, Cause, Effect, Evidence, Finding, Group, Level, Plan, Report, Risk, Rule, Setting, Subject, Verdict,
};

/// What an audit advises: actions, and the findings that they fix, each in order of importance.
#[derive(Clone, Debug)]
pub struct Advice<'a> {
    /// The most effective actions, best first. At most [`Advice::MOST`].
    pub actions: Vec<Advised<'a>>,
    /// The remaining actions, best first.
    pub more: Vec<Advised<'a>>,
    /// The findings grouped by root cause, the most important first.
    pub causes: Vec<Caused<'a>>,
}

/// One action, and the findings that it fixes.
#[derive(Clone, Debug)]
pub struct Advised<'a> {
    /// What to change, and who or what changes it.
    pub step: Doing,
    /// The findings that the action fixes, worst first. Never empty.
    pub from: Vec<&'a Finding>,
}

/// A kind of action, by who or what carries it out.
#[derive(Clone, Debug)]
pub enum Doing {
    /// Settings that fix one root cause. `apus tune` applies them, and can roll them back.
    Set(Cause, Vec<Setting>),
    /// One change to the kernel command line that fixes findings of several root causes. It takes effect after a
    /// reboot.
    Boot {
        /// The whole command line after the change. `None` if the present command line is not known.
        line: Option<String>,
        /// Words to add. Each replaces the words on the line that have the same name.
        add: Vec<String>,
        /// Words to remove from the line.
        remove: Vec<String>,
        /// Words that occur several times on the line, but should occur only once.
        once: Vec<String>,
        /// The cluster operator that manages the kernel command line of this node. `None` if there is none.
        operator: Option<Operator>,
    },
    /// Work that only people can do: run commands that cannot be rolled back, change firmware settings, change cabling.
    /// The strings are the instructions.
    People(Cause, Vec<String>),
    /// A question instead of a change: the user should state what the host is for, because further advice trades power,
    /// safety or features for latency.
    Ask {
        /// Name of the recording that was audited. `None` if the running host was audited.
        recording: Option<String>,
    },
}

/// What an action gains: the largest delay that it removes.
#[derive(Clone, Debug)]
pub struct Gain<'a> {
    /// The finding that adds the largest delay.
    pub finding: &'a Finding,
    /// The delay that the finding adds to one packet. `None` if the delay is not known.
    pub effect: Option<Nanos>,
    /// How many findings of the action have the same rule and text as [`Self::finding`], counting that finding itself.
    pub alike: usize,
    /// Whether [`Self::effect`] was read from this host. If not, it is a typical value from the rule's source.
    pub of_this_host: bool,
}

/// The findings of one root cause.
#[derive(Clone, Debug)]
pub struct Caused<'a> {
    /// The root cause of the findings.
    pub cause: Cause,
    /// The findings by rule, worst first.
    pub rules: Vec<ByRule<'a>>,
}

/// The findings of one rule. All share the rule's mechanism, magnitude and cost.
#[derive(Clone, Debug)]
pub struct ByRule<'a> {
    /// The rule that made the finding.
    pub rule: &'static Rule,
    /// The findings, worst first. Findings with the same text about several subjects are combined.
    pub said: Vec<Said<'a>>,
}

/// Findings of one rule with the same text about several subjects.
#[derive(Clone, Debug)]
pub struct Said<'a> {
    /// The findings. Never empty; all have the same verdict and text.
    pub findings: Vec<&'a Finding>,
}

/// Decides what to do first, and groups the findings of at least `level` by root cause.
pub fn advise(report: &Report, level: Level) -> Advice<'_> {
    let withheld = |finding: &Finding| finding.trades() && !report.context.has_intent();
    let plan = plan_of(report, |finding| !withheld(finding));
    let mut actions = settings(&plan);
    actions.extend(boot(&plan));
    actions.extend(people(&plan, &actions));
    let asks: Vec<&Finding> = report.at_least(Level::Warn).filter(|finding| withheld(finding)).collect();
    if !asks.is_empty() {
        actions.push(Advised::new(Doing::Ask { recording: report.recording.clone() }, asks));
    }
    let importance = |action: &Advised<'_>| {
        let worst = action.from.iter().map(|finding| finding.judgement.verdict.weight()).max();
        (action.comes_before(), worst, action.gain().of_this_host, action.gain().effect)
    };
    // The sort is stable: of two equally important actions, the one that can be rolled back comes first.
    actions.sort_by_key(|action| std::cmp::Reverse(importance(action)));
    let more = actions.split_off(actions.len().min(Advice::MOST));
    Advice { actions, more, causes: causes(report.at_least(level)) }
}

/// The plan's settings, each under the root cause of the worst finding that requires it.
fn settings<'a>(plan: &Plan<'a>) -> Vec<Advised<'a>> {
    let mut all: Vec<(Cause, Vec<Setting>, Vec<&'a Finding>)> = Vec::new();
    for planned in &plan.settings {
        let Some(cause) = planned.from.first().map(|finding| finding.cause()) else { continue };
        match all.iter_mut().find(|(known, ..)| *known == cause) {
            Some((_, settings, from)) => {
                settings.push(planned.what.clone());
                add(from, &planned.from);
            }
            None => all.push((cause, vec![planned.what.clone()], planned.from.clone())),
        }
    }
    all.into_iter().map(|(cause, settings, from)| Advised::new(Doing::Set(cause, settings), from)).collect()
}

/// The step that changes the kernel command line. `None` if no change is needed.
fn boot<'a>(plan: &Plan<'a>) -> Option<Advised<'a>> {
    let kernel = &plan.kernel;
    let mut from = Vec::new();
    kernel.add.iter().chain(&kernel.remove).chain(&kernel.once).for_each(|word| add(&mut from, &word.from));
    if kernel.is_empty() || from.is_empty() {
        return None;
    }
    let words = |list: &[Planned<'_, Parameter>]| list.iter().map(|word| word.what.to_string()).collect();
    // The boot loader adds its own words again at each boot.
    let own = |word: &&Parameter| !["BOOT_IMAGE", "initrd"].contains(&word.name.as_str());
    let text =
        |line: CommandLine| line.parameters.iter().filter(own).map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let step = Doing::Boot {
        line: kernel.merged().map(text),
        add: words(&kernel.add),
        remove: words(&kernel.remove),
        once: words(&kernel.once),
        operator: kernel.now.and_then(Operator::of),
    };
    Some(Advised::new(step, from))
}

/// Work for people: fixes that are neither settings nor kernel parameters. Each root cause gets one action, the fix of
/// its worst finding that has one. Findings are left out if `actions` already fix one of the same root cause that is at
/// least as bad: otherwise the worst of all could be missing because of a trifle.
fn people<'a>(plan: &Plan<'a>, actions: &[Advised<'a>]) -> Vec<Advised<'a>> {
    let fixed: Vec<&Finding> = actions.iter().flat_map(|action| action.from.iter().copied()).collect();
    let covers = |fixed: &Finding, left: &Finding| {
        fixed.cause() == left.cause() && (std::ptr::eq(fixed, left) || fixed.importance() >= left.importance())
    };
    let mut all: Vec<(Cause, Vec<String>, Vec<&'a Finding>)> = Vec::new();
    let mut left: Vec<&Finding> =
        plan.left.iter().copied().filter(|left| !fixed.iter().any(|fixed| covers(fixed, left))).collect();
    left.sort_by_key(|finding| std::cmp::Reverse(finding.importance()));
    for finding in left {
        let steps = finding.fix.steps().filter(|step| matches!(step.action, Action::Run(_) | Action::Advise(_)));
        let lines: Vec<String> = steps.map(ToString::to_string).collect();
        match all.iter_mut().find(|(cause, ..)| *cause == finding.cause()) {
            Some((_, known, from)) => {
                if known.is_empty() {
                    *known = lines;
                }
                from.push(finding);
            }
            None => all.push((finding.cause(), lines, vec![finding])),
        }
    }
    all.retain(|(_, lines, _)| !lines.is_empty());
    all.into_iter().map(|(cause, lines, from)| Advised::new(Doing::People(cause, lines), from)).collect()
}

/// Adds the findings of `more` that are not in the list yet.
fn add<'a>(all: &mut Vec<&'a Finding>, more: &[&'a Finding]) {
    for finding in more {
        if !all.iter().any(|known| std::ptr::eq(*known, *finding)) {
            all.push(finding);
        }
    }
}

/// Groups findings by cause and rule, and the findings of one rule by their text. Preserves the order of the findings.
fn causes<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Caused<'a>> {
    let mut all: Vec<Caused<'a>> = Vec::new();
    for finding in findings {
        let cause = finding.cause();
        let caused = position(&mut all, |known| known.cause == cause, || Caused { cause, rules: Vec::new() });
        let same = |known: &ByRule<'_>| known.rule.id == finding.rule.id;
        let of_rule = position(&mut caused.rules, same, || ByRule { rule: finding.rule, said: Vec::new() });
        let alike = |said: &Said<'_>| said.first().is_like(finding);
        position(&mut of_rule.said, alike, || Said { findings: Vec::new() }).findings.push(finding);
    }
    all
}

/// Returns the first element for which `is_wanted` is true. If there is none, appends the element that `new` makes.
fn position<T>(list: &mut Vec<T>, is_wanted: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is_wanted).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}

impl Advice<'_> {
    /// Maximum number of actions in [`Advice::actions`]. People would not carry out more than a handful.
    pub const MOST: usize = 5;
}

impl<'a> Advised<'a> {
    fn new(step: Doing, mut from: Vec<&'a Finding>) -> Self {
        from.sort_by_key(|finding| std::cmp::Reverse(finding.importance()));
        Self { step, from }
    }

    /// Returns the action as a short instruction for people.
    pub fn title(&self) -> &'static str {
        match &self.step {
            Doing::Set(cause, _) | Doing::People(cause, _) => cause.action(),
            Doing::Boot { .. } => "Boot with a changed kernel command line",
            Doing::Ask { .. } => "Say what this host is for",
        }
    }

    /// How early the action must come: 2 for the question of what the host is for, 1 for the choice of isolated CPUs,
    /// and 0 for all other actions, which depend on those two.
    fn comes_before(&self) -> u8 {
        let of_set = |finding: &&Finding| finding.group == Group::CommandLine;
        match &self.step {
            Doing::Ask { .. } => 2,
            Doing::People(Cause::Siblings | Cause::Housekeeping, _) if self.from.iter().any(of_set) => 1,
            _ => 0,
        }
    }

    /// The root causes of the findings that the action fixes.
    pub fn causes(&self) -> BTreeSet<Cause> {
        self.from.iter().map(|finding| finding.cause()).collect()
    }

    /// Returns the gain of the action: the largest delay that was read from this host. If no delay was read, the
    /// typical delay of the worst finding.
    pub fn gain(&self) -> Gain<'a> {
        let own = self.from.iter().copied().filter(|finding| finding.own_delay().is_some());
        let largest = own.max_by_key(|finding| finding.own_delay());
        let finding = largest.unwrap_or(self.from[0]);
        let alike = self.from.iter().filter(|other| other.rule.id == finding.rule.id && finding.is_like(other)).count();
        Gain { finding, effect: finding.effect, alike, of_this_host: largest.is_some() }
    }

    /// Whether `apus tune` can apply the action and roll it back.
    pub fn is_rolled_back(&self) -> bool {
        matches!(self.step, Doing::Set(..))
    }

    /// Whether the action changes which CPUs are isolated. If so, the commands of later actions may be out of date:
    /// they name the CPUs that are isolated now.
    pub fn changes_isolated(&self) -> bool {
        self.comes_before() == 1
    }

    /// Whether the action only asks what the host is for, and changes nothing.
    pub fn is_ask(&self) -> bool {
        matches!(self.step, Doing::Ask { .. })
    }

    /// Whether [`Self::lines`] is the whole kernel command line rather than a list of commands.
    pub fn is_line(&self) -> bool {
        matches!(self.step, Doing::Boot { line: Some(_), operator: None, .. })
    }

    /// The changes to the kernel command line: `+word`, `-word`, `word once`. Empty for other actions.
    pub fn changes(&self) -> Vec<String> {
        match &self.step {
            Doing::Boot { add, remove, once, .. } => {
                let added = add.iter().map(|word| format!("+{word}"));
                let removed = remove.iter().map(|word| format!("-{word}"));
                added.chain(removed).chain(once.iter().map(|word| format!("{word} once"))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What the action puts at risk.
    pub fn risks(&self) -> BTreeSet<Risk> {
        let of = |own: fn(&Action) -> bool| -> BTreeSet<Risk> {
            let steps = self.from.iter().flat_map(|finding| finding.fix.steps());
            steps.filter(|step| own(&step.action)).flat_map(|step| step.risks.iter().copied()).collect()
        };
        match &self.step {
            Doing::Set(..) => of(|action| matches!(action, Action::Set(_))),
            Doing::Boot { .. } => of(|action| matches!(action, Action::Arguments { .. })),
            Doing::People(..) => of(|action| matches!(action, Action::Run(_) | Action::Advise(_))),
            Doing::Ask { .. } => BTreeSet::new(),
        }
    }

    /// The costs of the action, without repetitions: first the cost of the worst finding of each root cause, then the
    /// costs of the other findings. So every root cause is represented even if only the first costs are shown.
    pub fn costs(&self) -> Vec<&'a str> {
        if self.is_ask() {
            return Vec::new();
        }
        let mut causes = BTreeSet::new();
        let (first, more): (Vec<&Finding>, Vec<&Finding>) =
            self.from.iter().copied().partition(|finding| causes.insert(finding.cause()));
        let mut costs: Vec<&'a str> = Vec::new();
        for finding in first.iter().chain(&more) {
            if !finding.cost().is_empty() && !costs.contains(&finding.cost()) {
                costs.push(finding.cost());
            }
        }
        costs
    }

    /// The lines to carry out: commands for a shell, or instructions for people.
    pub fn lines(&self) -> Vec<String> {
        match &self.step {
            Doing::Set(_, settings) => commands(settings),
            Doing::Boot { operator: Some(operator), add, remove, once, .. } => {
                let twice = once.iter().map(|word| format!("all but one {word}"));
                operator.lines(add, &remove.iter().cloned().chain(twice).collect::<Vec<_>>())
            }
            Doing::Boot { line, add, remove, .. } => match line {
                Some(line) => vec![line.clone()],
                None => add.iter().cloned().chain(remove.iter().map(|word| format!("remove {word}"))).collect(),
            },
            Doing::People(_, lines) => lines.clone(),
            Doing::Ask { recording } => {
                let from = recording.as_ref().map(|name| format!(" --from {}", shell_word(name))).unwrap_or_default();
                [
                    "--goal p99.9=50us --workload interrupt # if packets go through the kernel's network stack; \
                     p99.9=50us is an example",
                    "--goal p99.9=50us --workload poll --isolated CPUS # if DPDK or AF_XDP runs on these CPUs",
                ]
                .map(|options| format!("apus audit{from} {options}"))
                .into()
            }
        }
    }
}

/// Formats a word for a shell, in quotes if it contains a character with a special meaning.
pub fn shell_word(word: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ',' | ':' | '@' | '=');
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl<'a> Caused<'a> {
    /// The findings of this root cause.
    pub fn findings(&self) -> impl Iterator<Item = &'a Finding> {
        self.rules.iter().flat_map(|by_rule| by_rule.said.iter()).flat_map(|said| said.findings.iter().copied())
    }

    /// The worst verdict among the findings of this root cause. `None` without findings.
    pub fn verdict(&self) -> Option<&'a Verdict> {
        self.findings().map(|finding| &finding.judgement.verdict).max_by_key(|verdict| verdict.weight())
    }
}

impl<'a> ByRule<'a> {
    /// The findings of this rule.
    pub fn findings(&self) -> impl Iterator<Item = &'a Finding> {
        self.said.iter().flat_map(|said| said.findings.iter().copied())
    }
}

impl<'a> Said<'a> {
    /// The first finding, which represents the others.
    pub fn first(&self) -> &'a Finding {
        self.findings[0]
    }

    /// The subjects of these findings as text. CPUs become one list. Other subjects are named: all if there are at most
    /// four, otherwise the first three.
    pub fn subject(&self) -> String {
        let subjects: Vec<&Subject> = self.findings.iter().map(|finding| &finding.judgement.subject).collect();
        let cpus = subjects.iter().map(|subject| match subject {
            Subject::Cpus(cpus) => Some(cpus),
            _ => None,
        });
        if let Some(all) = cpus.collect::<Option<Vec<&CpuSet>>>() {
            let together = all.iter().fold(CpuSet::new(), |sum, cpus| sum.union(cpus));
            return Subject::Cpus(together).to_string();
        }
        const SHOWN: usize = 3;
        let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        match names.len() > SHOWN + 1 {
            true => format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
            false => names.join(", "),
        }
    }

    /// The evidence of the first finding, which represents the others.
    pub fn evidence(&self) -> &'a [Evidence] {
        &self.first().judgement.evidence
    }
}

impl Finding {
    /// The root cause of the finding.
    pub fn cause(&self) -> Cause {
        self.judgement.cause.unwrap_or(self.rule.cause)
    }

    /// How long one packet waits because of the finding, as read from this host. `None` if the host does not show it.
    pub fn own_delay(&self) -> Option<Nanos> {
        self.judgement.effect.and_then(Effect::lateness).filter(|_| self.effect.is_some())
    }

    /// Orders findings by what they cost packets: first by verdict, then by delay. The greatest is the worst.
    fn importance(&self) -> (u8, Option<Nanos>) {
        (self.judgement.verdict.weight(), self.effect)
    }

    /// Whether the two findings have the same verdict and text, and both or neither are accepted. Their subjects may
    /// differ.
    fn is_like(&self, other: &Self) -> bool {
        let (a, b) = (&self.judgement, &other.judgement);
        a.verdict == b.verdict && a.found == b.found && self.accepted == other.accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;
    use crate::{Intent, audit};

    fn report(host: crate::testing::Host) -> Report {
        audit(&host.facts(), &Intent { isolated: Some("2-7".parse().unwrap()), ..Intent::default() })
    }

    /// Ten dies with the same range, and one with another range.
    fn dies() -> crate::testing::Host {
        let folder = "/sys/devices/system/cpu/intel_uncore_frequency";
        (0..11).fold(
            host().file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu\n\n"),
            |host, n| {
                let low = if n == 10 { 900_000 } else { 800_000 };
                host.file(&format!("{folder}/uncore{n:02}/min_freq_khz"), &format!("{low}\n"))
                    .file(&format!("{folder}/uncore{n:02}/max_freq_khz"), "2400000\n")
                    .file(&format!("{folder}/uncore{n:02}/initial_max_freq_khz"), "2400000\n")
            },
        )
    }

    #[test]
    fn one_sentence_of_many_subjects_is_one() {
        let report = report(dies());
        let advice = advise(&report, Level::Warn);
        let uncore = advice.causes.iter().find(|caused| caused.cause == Cause::UncoreFrequency).unwrap();
        assert_eq!(uncore.findings().count(), 11);
        let [of_rule] = &uncore.rules[..] else { panic!("{:?}", uncore.rules) };
        assert_eq!(of_rule.said.len(), 2);
        assert!(of_rule.said[0].subject().ends_with("and 7 more"), "{}", of_rule.said[0].subject());
        // "die 0 and 9 more: 800 to 2400 MHz" is not said of the die that goes from 900 to 2400 MHz.
        let all = advice.actions.iter().chain(&advice.more);
        let action = all.clone().find(|action| action.causes().contains(&Cause::UncoreFrequency)).unwrap();
        assert_eq!((action.from.len(), action.gain().alike), (11, 10));
    }

    #[test]
    fn causes_come_once_and_hold_every_finding() {
        let report = report(
            dies()
                .cmdline("quiet isolcpus=managed_irq,2-7 skew_tick=1 skew_tick=1")
                .file("/proc/irq/55/effective_affinity_list", "3")
                .file("/proc/irq/default_smp_affinity", "ff"),
        );
        let advice = advise(&report, Level::Warn);
        let causes: BTreeSet<Cause> = advice.causes.iter().map(|caused| caused.cause).collect();
        assert_eq!(causes.len(), advice.causes.len());
        let all: usize = advice.causes.iter().map(|caused| caused.findings().count()).sum();
        assert_eq!(all, report.at_least(Level::Warn).count());
        let interrupts = advice.causes.iter().find(|caused| caused.cause == Cause::DeviceInterrupts).unwrap();
        assert!(interrupts.rules.len() >= 3, "{:?}", interrupts.rules.iter().map(|r| r.rule.id).collect::<Vec<_>>());
        // There is one command line for all causes, and at most a handful of actions.
        let lines = advice.actions.iter().filter(|action| matches!(action.step, Doing::Boot { .. }));
        assert_eq!(lines.count(), 1);
        assert!(advice.actions.len() <= Advice::MOST);
        for action in &advice.actions {
            assert!(!action.lines().is_empty() && !action.costs().is_empty(), "{action:?}");
            // The first costs are of different causes, so no cause is hidden behind another.
            let of = |cost: &str| -> BTreeSet<Cause> {
                action.from.iter().filter(|finding| finding.cost() == cost).map(|finding| finding.cause()).collect()
            };
            let shown = action.costs().into_iter().take(action.causes().len());
            let named: BTreeSet<Cause> = shown.flat_map(of).collect();
            assert_eq!(named, action.causes(), "{:?}", action.costs());
        }
    }

    #[test]
    fn a_gain_is_this_hosts_own_where_it_has_one() {
        let idle = "/sys/devices/system/cpu/cpu2/cpuidle";
        let host = host().cmdline("quiet").file("/sys/devices/system/cpu/cpu2/topology/core_id", "0");
        let host =
            [("state0", "POLL", "0"), ("state1", "C6", "133")].into_iter().fold(host, |host, (n, name, latency)| {
                host.file(&format!("{idle}/{n}/name"), name)
                    .file(&format!("{idle}/{n}/latency"), latency)
                    .file(&format!("{idle}/{n}/disable"), "0")
            });
        let report = report(host);
        let advice = advise(&report, Level::Warn);
        let action = advice.actions.iter().find(|action| action.causes().contains(&Cause::IdleStates)).unwrap();
        let gain = action.gain();
        assert_eq!((gain.effect, gain.of_this_host), (Some(Nanos::from_micros(133)), true));
    }

    /// A host as delivered: what trades power or safety for latency waits until somebody says that latency matters.
    #[test]
    fn without_a_purpose_it_is_asked_for_first() {
        let delivered = || {
            let governor = |host: crate::testing::Host, n: u32| {
                host.file(&format!("/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor"), "powersave\n")
            };
            (0..8).fold(dies().cmdline("BOOT_IMAGE=/vmlinuz initrd=/i ro mce=off audit=0"), governor)
        };
        let report = audit(&delivered().facts(), &Intent::default());
        let advice = advise(&report, Level::Warn);
        let titles: Vec<_> = advice.actions.iter().map(Advised::title).collect();
        assert_eq!(titles[0], "Say what this host is for");
        assert!(!titles.iter().any(|title| title.contains("frequency")), "{titles:?}");
        assert!(advice.actions[0].from.iter().any(|finding| finding.rule.id == "cpu.governor"));
        assert!(advice.actions[0].lines().iter().all(|line| line.starts_with("apus audit --goal ")));
        // For a recording, the advice is to audit the same recording again, not the host on which the command is typed.
        let mut recorded = delivered().facts();
        (recorded.origin.kind, recorded.origin.name) = (host::facts::Kind::Snapshot, "a's host.tar.zst".into());
        let of_recording = audit(&recorded, &Intent::default());
        let asks = advise(&of_recording, Level::Warn).actions[0].lines();
        let begins = r"apus audit --from 'a'\''s host.tar.zst' --goal ";
        assert!(asks.len() == 2 && asks.iter().all(|line| line.starts_with(begins)), "{asks:?}");
        // Problems that matter on any host are listed, and the boot loader's words are left to the boot loader.
        let boot = advice.actions.iter().find(|action| action.is_line()).unwrap();
        assert_eq!(boot.lines(), ["ro audit=0 mce=ignore_ce"]);
        let goal = Some(crate::Goal { quantile: units::Quantile::P99, latency: Nanos::from_micros(50) });
        let report = audit(&delivered().facts(), &Intent { goal, ..Intent::default() });
        let advice = advise(&report, Level::Warn);
        assert!(advice.actions.iter().all(|action| !action.is_ask()));
        assert!(advice.actions.iter().any(|action| action.causes().contains(&Cause::CoreFrequency)));
    }

    /// telco-worker1: an operator writes the line, and the set of isolated CPUs must be right before it is written again.
    #[test]
    fn an_operators_line_is_changed_by_the_operator() {
        let line = "BOOT_IMAGE=/v ostree=/ostree/boot.0/rhcos/1/0 tuned.non_isolcpus=0000000e isolcpus=managed_irq,0,4-7 mce=off \
                    idle=poll skew_tick=1 skew_tick=1";
        let report = audit(&host().cmdline(line).facts(), &Intent::default());
        let advice = advise(&report, Level::Warn);
        let at = |is: fn(&Advised<'_>) -> bool| advice.actions.iter().position(is).unwrap();
        let boot = at(|action| matches!(action.step, Doing::Boot { .. }));
        let before = at(|action| action.causes().contains(&Cause::Housekeeping));
        assert!(before < boot && advice.actions[before].changes_isolated() && !advice.actions[boot].changes_isolated());
        let text = advice.actions[boot].lines().join("\n");
        assert!(
            text.contains("spec.additionalKernelArgs, add mce=ignore_ce") && !text.contains("BOOT_IMAGE"),
            "{text}"
        );
        assert!(text.contains("remove idle=poll, mce=off, all but one skew_tick=1"), "{text}");
    }

    /// vm.steal exceeded the goal by itself, but was left out because a kernel parameter fixes a trifle of the same cause.
    #[test]
    fn a_trifle_does_not_hide_the_worst_finding_of_its_cause() {
        let steal = |ticks: u64| {
            let host = host().guest().cmdline("quiet");
            host.file("/proc/stat", &format!("cpu0 9 0 9 900 0 0 0 {ticks} 0 0\nctxt 1\n"))
        };
        let goal = Some(crate::Goal { quantile: units::Quantile::P99_9, latency: Nanos::from_micros(50) });
        let intent = Intent { goal, ..Intent::default() };
        let is_there = |ticks| {
            let report = audit(&steal(ticks).facts(), &intent);
            let advice = advise(&report, Level::Warn);
            let boots =
                advice.actions.iter().any(|action| action.is_line() && action.causes().contains(&Cause::Hypervisor));
            assert!(boots, "no-kvmapf fixes a finding of this cause");
            advice.actions.iter().any(|action| {
                matches!(action.step, Doing::People(Cause::Hypervisor, _)) && action.from[0].rule.id == "vm.steal"
            })
        };
        assert!(is_there(7) && !is_there(0));
    }

    #[test]
    fn nothing_found_is_nothing_to_do() {
        let report = audit(&host::Facts::default(), &Intent::default());
        let advice = advise(&report, Level::Warn);
        assert!(advice.actions.is_empty() && advice.causes.is_empty());
    }
}

//! Runs all rules on one host, and collects the findings.

use std::collections::BTreeSet;

use host::Facts;
use host::facts::{CommandLine, Kind};
use units::Nanos;

use crate::{Context, Finding, Group, Intent, Judgement, Rule, Skip, Subject, Verdict, remedy, rules};

/// The result of an audit.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the audit assumed about the purpose of the host.
    pub context: Context,
    /// All findings, the most important first: sorted by added delay if there is a latency goal, otherwise by verdict.
    pub findings: Vec<Finding>,
    /// The command line with which the host was booted. `None` if it is not known.
    pub line: Option<CommandLine>,
    /// The name of the audited recording, as the user typed it. `None` if the running host or single files were
    /// audited.
    pub recording: Option<String>,
}

/// Selects the rules to run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The rules and groups to run. Empty means all.
    pub only: Vec<Selector>,
    /// The rules and groups to skip.
    pub skip: Vec<Selector>,
}

/// Selects a rule or a group of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector {
    /// Selects one rule.
    Rule(&'static str),
    /// Selects all rules of a group.
    Group(Group),
}

units::named! {
    /// How much attention a verdict needs.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Level {
        /// Every verdict, including pass and not applicable.
        All = "all",
        /// Unknown verdicts, choices, warnings and failures.
        Unknown = "unknown",
        /// Choices on which sources disagree, warnings and failures.
        Choice = "choice",
        /// Warnings and failures.
        Warn = "warn",
        /// Failures.
        Fail = "fail",
    }
}

/// Number of findings with each verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Tally {
    pub pass: u32,
    pub warn: u32,
    pub fail: u32,
    pub unknown: u32,
    pub not_applicable: u32,
    pub sources_disagree: u32,
    /// Number of findings that the baseline accepts. They are not included in the other counts.
    pub accepted: u32,
}

impl Tally {
    /// Number of findings with a verdict: neither unknown nor not applicable.
    pub fn judged(&self) -> u32 {
        self.pass + self.warn + self.fail + self.sources_disagree + self.accepted
    }

    /// Whether so little was judged (less than one in twenty of what applies) that the audit says nothing about the host.
    pub fn says_nothing(&self) -> bool {
        self.unknown > 19 * self.judged()
    }
}

/// Audits a host with all rules.
pub fn audit(facts: &Facts, intent: &Intent) -> Report {
    audit_with(facts, intent, &Selection::default())
}

/// Audits a host with the selected rules only.
pub fn audit_with(facts: &Facts, intent: &Intent, selection: &Selection) -> Report {
    let context = Context::of(facts, intent);
    let housekeeping = rules::free(facts, &context);
    let mut findings = Vec::new();
    for (group, rule) in rules::by_group().filter(|(group, rule)| selection.has(*group, rule)) {
        for judgement in judge(rule, facts, &context) {
            findings.push(Finding::new(group, rule, judgement, &context, &housekeeping, facts));
        }
    }
    let recording = match facts.origin.kind {
        Kind::Live | Kind::Given => None,
        Kind::Recording | Kind::Snapshot | Kind::SosReport => Some(facts.origin.name.clone()),
    };
    let mut report = Report { context, findings, line: facts.cmdline.value().cloned(), recording };
    report.sort();
    remedy::agree(&mut report.findings, report.line.as_ref(), !rules::no_full_ticks(facts));
    remedy::name_needs(&mut report.findings, facts);
    remedy::name_boot_cpu(&mut report.findings, facts);
    report
}

/// Runs one rule on a host.
pub(crate) fn judge(rule: &Rule, facts: &Facts, context: &Context) -> Vec<Judgement> {
    match rule.applies.check(facts, context).and_then(|()| (rule.judge)(facts, context)) {
        Ok(judgements) if judgements.is_empty() => {
            vec![Judgement::skipped(Subject::Host, Skip::not_applicable("the host has none of these"))]
        }
        Ok(judgements) => judgements,
        Err(skip) => vec![Judgement::skipped(Subject::Host, skip)],
    }
}

impl Report {
    /// The findings at `level` or above that no baseline accepts.
    pub fn at_least(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| !finding.accepted && finding.level() >= level)
    }

    /// Counts the findings of a group of rules by verdict. `None` counts all groups.
    pub fn tally(&self, group: Option<Group>) -> Tally {
        let mut tally = Tally::default();
        let of_group = |finding: &&Finding| group.is_none_or(|group| finding.group == group);
        for finding in self.findings.iter().filter(of_group) {
            let count = match (&finding.judgement.verdict, finding.accepted) {
                (_, true) => &mut tally.accepted,
                (Verdict::Pass, _) => &mut tally.pass,
                (Verdict::Warn, _) => &mut tally.warn,
                (Verdict::Fail, _) => &mut tally.fail,
                (Verdict::Unknown(_), _) => &mut tally.unknown,
                (Verdict::NotApplicable(_), _) => &mut tally.not_applicable,
                (Verdict::SourcesDisagree, _) => &mut tally.sources_disagree,
            };
            *count += 1;
        }
        tally
    }

    /// Marks the findings whose keys are in the baseline as accepted. Returns the keys of the baseline that match no
    /// finding.
    pub fn accept(&mut self, baseline: &BTreeSet<String>) -> Vec<String> {
        let mut unused: BTreeSet<&String> = baseline.iter().collect();
        for finding in &mut self.findings {
            let key = finding.key();
            if finding.level() > Level::Unknown && baseline.contains(&key) {
                finding.accepted = true;
                unused.remove(&key);
            }
        }
        unused.into_iter().cloned().collect()
    }

    /// Returns the warnings and failures that add a known delay, each with its delay per packet, in descending order.
    /// Accepted findings are left out.
    pub fn budget(&self) -> Vec<(&Finding, Nanos)> {
        let mut takes: Vec<(&Finding, Nanos)> =
            self.at_least(Level::Warn).filter_map(|finding| Some((finding, finding.effect?))).collect();
        takes.sort_by_key(|(_, effect)| std::cmp::Reverse(*effect));
        takes
    }

    fn sort(&mut self) {
        let by_budget = self.context.goal.is_some();
        self.findings.sort_by_key(|finding| {
            let weight = std::cmp::Reverse(finding.judgement.verdict.weight());
            let effect = std::cmp::Reverse(finding.effect);
            let first = match by_budget {
                // Findings without a known delay come after those with one, but before results that are no finding.
                true if finding.level() >= Level::Choice => (effect, std::cmp::Reverse(1), weight),
                true => (std::cmp::Reverse(None), std::cmp::Reverse(0), weight),
                false => (std::cmp::Reverse(None), weight, std::cmp::Reverse(0)),
            };
            let last = if by_budget { std::cmp::Reverse(None) } else { effect };
            (first, last, finding.group)
        });
    }
}

impl Finding {
    /// How much attention the finding needs.
    pub fn level(&self) -> Level {
        match self.judgement.verdict {
            Verdict::Pass | Verdict::NotApplicable(_) => Level::All,
            Verdict::Unknown(_) => Level::Unknown,
            Verdict::SourcesDisagree => Level::Choice,
            Verdict::Warn => Level::Warn,
            Verdict::Fail => Level::Fail,
        }
    }
}

impl Selection {
    /// Whether the selection includes `rule` of `group`.
    pub fn has(&self, group: Group, rule: &Rule) -> bool {
        let named = |list: &[Selector]| list.iter().any(|selector| selector.names(group, rule));
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

impl Selector {
    /// The name that a user types: the rule's identifier, or the group's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rule(id) => id,
            Self::Group(group) => group.name(),
        }
    }

    fn names(self, group: Group, rule: &Rule) -> bool {
        match self {
            Self::Rule(id) => rule.id == id,
            Self::Group(selected) => group == selected,
        }
    }
}

impl std::str::FromStr for Selector {
    type Err = String;

    /// Parses the identifier of a rule, or the name of a group.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(group) = Group::ALL.into_iter().find(|group| group.name() == text) {
            return Ok(Self::Group(group));
        }
        match rules::find(text) {
            Some(rule) => Ok(Self::Rule(rule.id)),
            None => {
                let groups: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
                Err(format!("no rule and no group; the groups are {}", groups.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    fn facts() -> Facts {
        host()
            .file("/sys/devices/virtual/workqueue/cpumask", "ff")
            .file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")
            .facts()
    }

    fn intent() -> Intent {
        Intent { isolated: Some("2-7".parse().unwrap()), ..Intent::default() }
    }

    fn ids(report: &Report, level: Level) -> Vec<&'static str> {
        report.at_least(level).map(|finding| finding.rule.id).collect()
    }

    #[test]
    fn fixes_have_their_values() {
        let only = vec![Selector::Rule("wq.global-cpumask")];
        let report = audit_with(&facts(), &intent(), &Selection { only, skip: vec![] });
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        let shown: Vec<String> = finding.fix.runtime.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["echo 3 > /sys/devices/virtual/workqueue/cpumask"]);
        assert_eq!(finding.key(), "wq.global-cpumask CPUs 2-7");
    }

    #[test]
    fn the_worst_come_first_and_with_a_goal_the_costliest() {
        let selection = "clk.source".parse().and_then(|a| Ok(vec![a, "wq.global-cpumask".parse()?])).unwrap();
        let selection = Selection { only: selection, skip: vec![] };
        let report = audit_with(&facts(), &intent(), &selection);
        assert_eq!(ids(&report, Level::Warn), ["clk.source", "wq.global-cpumask"]);
        assert_eq!(ids(&report, Level::Fail), ["clk.source"]);
        // A slow clock makes work slower, but no packet waits: neither rule has a delay to add up.
        assert!(report.budget().is_empty());
        assert!(report.findings.iter().any(|finding| finding.slower));
        let goal = crate::Goal { quantile: units::Quantile::P99, latency: Nanos::from_micros(50) };
        let report = audit_with(&facts(), &Intent { goal: Some(goal), ..intent() }, &selection);
        assert_eq!(ids(&report, Level::Warn), ["clk.source", "wq.global-cpumask"]);
    }

    #[test]
    fn a_baseline_accepts_what_it_names_and_says_what_is_gone() {
        let mut report = audit(&facts(), &intent());
        let baseline = BTreeSet::from(["clk.source host".to_owned(), "clk.gone host".to_owned()]);
        assert_eq!(report.accept(&baseline), ["clk.gone host"]);
        assert!(!ids(&report, Level::Choice).contains(&"clk.source"));
        assert_eq!(report.tally(None).accepted, 1);
    }

    #[test]
    fn selectors_are_rules_or_groups() {
        assert_eq!("clock".parse(), Ok(Selector::Group(Group::Clock)));
        assert!("clk.sourc".parse::<Selector>().is_err());
    }
}

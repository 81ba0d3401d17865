//! A finding: a judgement with its rule, and its fix with concrete values.

use host::Facts;
use host::facts::CpuSet;
use units::Nanos;

use crate::remedy::{Remedy, Values};
use crate::wording::singular;
use crate::{Context, Effect, Group, Judgement, Rule, Step, Verdict};

/// A judgement, its rule, and its fix for this host.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The group of the rule in the report.
    pub group: Group,
    /// The rule that made the finding.
    pub rule: &'static Rule,
    /// What was judged, the verdict, and the evidence.
    pub judgement: Judgement,
    /// The fix, with this host's values and paths. Empty if nothing needs fixing.
    pub fix: Remedy,
    /// How long one packet waits because of the finding. `None` if no packet waits (see [`Self::slower`]), or if the
    /// time is not known.
    pub effect: Option<Nanos>,
    /// Whether the finding makes the work on each packet slower, without making packets wait.
    pub slower: bool,
    /// Whether a baseline lists the finding as known and accepted.
    pub accepted: bool,
}

impl Finding {
    /// Creates a finding from a judgement.
    pub(crate) fn new(
        group: Group,
        rule: &'static Rule,
        mut judgement: Judgement,
        context: &Context,
        housekeeping: &CpuSet,
        facts: &Facts,
    ) -> Self {
        judgement.found = singular(&judgement.found);
        for evidence in judgement.evidence.iter_mut().filter(|evidence| evidence.value.starts_with("1 ")) {
            evidence.value = singular(&evidence.value);
        }
        let wrong = judgement.verdict.weight() >= Verdict::SourcesDisagree.weight();
        let values = Values::new(&judgement.subject, context, housekeeping, facts);
        let fix = if wrong { Remedy::new(rule, &judgement, &values) } else { Remedy::default() };
        let effect = if wrong { judgement.effect.unwrap_or(rule.magnitude.effect) } else { Effect::Unsized };
        Self {
            group,
            rule,
            judgement,
            fix,
            effect: effect.lateness(),
            slower: effect == Effect::Slower,
            accepted: false,
        }
    }

    /// Whether the fix for the finding gives up power, safety or a feature for a lower latency.
    pub fn trades(&self) -> bool {
        self.rule.fix.trade || self.cause().trades()
    }

    /// What the fix of the finding costs and risks. Empty if there is nothing to fix, or if no fix is possible.
    pub fn cost(&self) -> &str {
        let is_idle = self.fix.steps().count() > 0 && self.fix.steps().all(Step::is_nothing);
        if is_idle || self.judgement.verdict.weight() < Verdict::SourcesDisagree.weight() {
            return "";
        }
        self.judgement.cost.as_deref().unwrap_or(self.rule.cost)
    }

    /// Returns the delay that the finding's mechanism adds, in words, and the source of the numbers.
    pub fn magnitude(&self) -> (String, String) {
        let general = &self.rule.magnitude;
        match self.judgement.also {
            Some((text, source)) => (format!("{}; {text}", general.text), format!("{}; {source}", general.source)),
            None => (general.text.to_owned(), general.source.to_owned()),
        }
    }

    /// Sources that recommend the opposite of the fix: those of the rule, and that of this judgement.
    pub fn conflicts(&self) -> impl Iterator<Item = &'static str> {
        self.rule.fix.conflicts.iter().copied().chain(self.judgement.against)
    }

    /// Returns the key that identifies the finding across audits: rule and subject, as in a baseline file.
    pub fn key(&self) -> String {
        format!("{} {}", self.rule.id, self.judgement.subject)
            .replace(|c: char| c == '\n' || units::acts(c), "\u{fffd}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::is_command;
    use crate::testing::Host;
    use crate::{Action, Intended, Intent, Step, Subject, audit, rules};

    #[test]
    fn a_loop_names_the_subjects_cpus_alone() {
        let context = Context { isolated: Intended::given("2-4".parse().unwrap()), ..Context::default() };
        let none = Context::default();
        let two = CpuSet::from([0, 1]);
        let one = |text: &str, subject: Subject| Values::new(&subject, &context, &two, &Facts::default()).fill(text);
        assert_eq!(one("for n in {cpu-words}; do", Subject::Host).unwrap(), "for n in 2 3 4; do");
        let many: CpuSet = "3,8-40,50-51".parse().unwrap();
        assert_eq!(one("{cpu-words}", many.into()).unwrap(), "3 $(seq 8 40) 50 51");
        let open = |text| Values::new(&Subject::Host, &none, &two, &Facts::default()).fill(text);
        assert_eq!(open("{cpu}").unwrap(), "0-1");
        assert!(open("{nic}").unwrap_err().contains("--nic"));
        assert!(open("{isolated}").unwrap_err().contains("--isolated"));
        assert!(open("{housekeeping-mask}").unwrap_err().contains("--isolated"));
    }

    /// The error message of the shell for a script. `None` if the shell accepts it.
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

    /// Deep idle states that the goal allows: nobody is to change them, and so nothing costs anything.
    #[test]
    fn what_is_as_it_should_be_costs_nothing() {
        let mut seen = (0, 0);
        for case in rules::cases().flatten() {
            let (group, rule) = rules::by_group().find(|(_, rule)| rule.id == case.rule).unwrap();
            let host = (case.host)();
            for judgement in host.judge(case.rule) {
                let is_wrong = judgement.verdict.weight() >= Verdict::SourcesDisagree.weight();
                let finding = Finding::new(group, rule, judgement, &Context::default(), &CpuSet::new(), &host.facts());
                let can_do = finding.fix.steps().count() == 0 || finding.fix.steps().any(|step| !step.is_nothing());
                assert_eq!(!finding.cost().is_empty(), is_wrong && can_do, "{}: {:?}", rule.id, finding.judgement);
                seen = if is_wrong { (seen.0 + 1, seen.1) } else { (seen.0, seen.1 + 1) };
            }
        }
        assert!(seen.0 > 100 && seen.1 > 100, "{seen:?}");
    }

    /// clx2s0: `cpu.hwp-request` took up to 1500 MHz without a word.
    #[test]
    fn a_ceiling_names_turbo_in_its_cost() {
        let mut ceilings = 0;
        for case in rules::cases().flatten() {
            let host = (case.host)().workload(crate::Workload::Rt).isolated("2-7");
            let intent = Intent {
                isolated: Some("2-7".parse().unwrap()),
                workloads: Some(vec![crate::Workload::Rt]),
                ..Intent::default()
            };
            for finding in audit(&host.facts(), &intent).findings {
                if finding.fix.steps().any(|step| step.to_string().contains(" -u ")) {
                    ceilings += 1;
                    let cost = finding.cost().to_lowercase();
                    assert!(cost.contains("turbo"), "{}: {cost}", finding.rule.id);
                }
            }
        }
        assert!(ceilings > 5, "{ceilings}");
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
        // All findings of all cases, and those of the same hosts without isolated CPUs.
        let mut lines = std::collections::BTreeMap::new();
        let mut add = |finding: Finding| {
            let fix = &finding.fix;
            let shown = |step: &Step| !matches!(step.action, Action::Rerun(_) | Action::Advise(_));
            let commands = fix.runtime.iter().filter(|step| shown(step)).map(ToString::to_string);
            let looks = fix.look.iter().filter(|line| !line.starts_with("run this audit again ")).cloned();
            lines.extend(commands.chain(looks).map(|line| (line, finding.rule.id)));
        };
        for case in rules::cases().flatten() {
            let found: Host = (case.host)();
            let facts = found.facts();
            for isolated in [None, Some("2-7".parse().unwrap())] {
                let intent = Intent { isolated, nics: Some(vec!["eth0".into()]), ..Intent::default() };
                audit(&facts, &intent).findings.into_iter().for_each(&mut add);
            }
            for judgement in found.judge(case.rule) {
                let (group, rule) = rules::by_group().find(|(_, rule)| rule.id == case.rule).unwrap();
                add(Finding::new(group, rule, judgement, &Context::default(), &CpuSet::new(), &facts));
            }
        }
        assert!(lines.len() > 100, "{}", lines.len());
        let wrong: Vec<_> = lines.iter().filter(|(line, _)| !is_command(line)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        // Check all lines with one shell; if it rejects them, check each line alone.
        let all: String = lines.keys().map(|line| format!("{line}\n")).collect();
        if refused(&all).is_some() {
            let each: Vec<_> = lines.iter().filter_map(|(line, id)| Some((id, line, refused(line)?))).collect();
            panic!("{each:#?}");
        }
    }
}

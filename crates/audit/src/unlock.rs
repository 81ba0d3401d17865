//! Finds options that would let an audit give more verdicts.

use host::Facts;
use host::facts::CpuSet;

use crate::report::judge;
use crate::{Context, Finding, How, Intent, Report, Verdict, Workload, rules};

/// An option of `apus audit` that would let more rules give a verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unlock {
    /// The option: `--isolated`, `--nic` or `--workload`.
    pub option: &'static str,
    /// The value of the option, as a placeholder (`CPUS`) or a list of alternatives (`poll|interrupt`).
    pub value: String,
    /// Number of rules that give no verdict without the option, but would with it.
    pub rules: usize,
}

/// Finds the options that the user did not give and that would let more rules give a verdict. To find out, runs the
/// rules without a verdict again, with a plausible value of the option.
pub fn unlocks(facts: &Facts, intent: &Intent, report: &Report) -> Vec<Unlock> {
    let now = |id: &str| -> Vec<&Finding> { report.findings.iter().filter(|finding| finding.rule.id == id).collect() };
    let count = |trial: &Intent| {
        let context = Context::of(facts, trial);
        let asked = rules::all().filter(|rule| {
            let said = now(rule.id);
            !said.is_empty() && said.iter().all(|finding| is_open(&finding.judgement.verdict))
        });
        asked.filter(|rule| judge(rule, facts, &context).iter().any(|said| !is_open(&said.verdict))).count()
    };
    let mut all = Vec::new();
    let mut offer = |option, value: String, rules| {
        if rules > 0 {
            all.push(Unlock { option, value, rules });
        }
    };
    if report.context.isolated.value.is_empty() {
        // Any set will do, because whether a rule can be judged does not depend on which CPUs are isolated.
        let cpus = facts.cpus.all();
        let upper: CpuSet = cpus.iter().skip(cpus.len().div_ceil(2)).collect();
        if !upper.is_empty() {
            let rules = count(&Intent { isolated: Some(upper), ..intent.clone() });
            offer("--isolated", "CPUS".to_owned(), rules);
        }
    }
    let links: Vec<String> = facts.links.value().into_iter().flatten().map(|link| link.name.clone()).collect();
    if report.context.nics.value.is_empty() && !links.is_empty() {
        let rules = count(&Intent { nics: Some(links), ..intent.clone() });
        offer("--nic", "INTERFACE".to_owned(), rules);
    }
    if report.context.workloads.how != How::Given {
        // A host that forwards packets either polls or is interrupted; the other uses can be seen on the host.
        let uses = [Workload::Poll, Workload::Interrupt];
        let counts = uses.map(|one| (count(&Intent { workloads: Some(vec![one]), ..intent.clone() }), one));
        let most = counts.into_iter().map(|(rules, _)| rules).max().unwrap_or(0);
        let names: Vec<&str> = uses.iter().map(|one| one.name()).collect();
        offer("--workload", names.join("|"), most);
    }
    all
}

/// Whether the rule might give a better verdict with an option. This includes choices, because a stated workload can
/// decide them.
fn is_open(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Unknown(_) | Verdict::NotApplicable(_) | Verdict::SourcesDisagree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit;
    use crate::testing::host;

    fn offered(facts: &Facts, intent: &Intent) -> Vec<&'static str> {
        unlocks(facts, intent, &audit(facts, intent)).into_iter().map(|unlock| unlock.option).collect()
    }

    #[test]
    fn what_is_given_or_shows_is_not_asked_for() {
        let facts = host().file("/sys/devices/virtual/workqueue/cpumask", "ff").facts();
        assert!(offered(&facts, &Intent::default()).contains(&"--isolated"));
        let given = Intent { isolated: Some("2-7".parse().unwrap()), ..Intent::default() };
        assert!(!offered(&facts, &given).contains(&"--isolated"));
    }

    #[test]
    fn nothing_is_offered_that_would_tell_nothing() {
        assert!(offered(&Facts::default(), &Intent::default()).is_empty());
    }
}

//! Converts a report into the JSON document of `apus audit`.

use audit::{Advised, Caused, Doing, Goal, How, Intended, Level, Report, Unlock, advise};
use host::Facts;
use tester::document::Name;

use crate::documents::VERSION;
use crate::documents::audit::{
    self as documents, ActionKind, Document, EffectKind, Evidence, Finding, Fix, Group, Host, Intent, SCHEMA, Step,
};

/// Builds the JSON document of a report, with the findings of `level` and above.
pub(super) fn of(facts: &Facts, report: &Report, unlocks: &[Unlock], level: Level, unused: Vec<String>) -> Document {
    let advice = advise(report, Level::Warn);
    let findings = report.findings.iter().filter(|finding| finding.level() >= level);
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        host: with_notes(host(facts), report),
        intent: intent(report),
        do_first: advice.actions.iter().map(action).collect(),
        do_later: advice.more.len() as u64,
        unlocks: unlocks.iter().map(unlock).collect(),
        causes: advice.causes.iter().filter_map(cause).collect(),
        findings: findings.map(finding).collect(),
        groups: audit::Group::ALL.into_iter().filter_map(|one| group(report, one)).collect(),
        baseline_unused: unused,
    }
}

/// Adds notes on what was declared about the host and what was not read.
fn with_notes(mut host: Host, report: &Report) -> Host {
    host.notes.extend(report.context.notes.iter().cloned());
    host
}

/// Describes the judged host.
pub(super) fn host(facts: &Facts) -> Host {
    let cpus = facts.cpus.all().len() as u64;
    let bsd = facts.freebsd.value().and_then(|bsd| bsd.release.value());
    Host {
        name: facts.origin.name.clone(),
        release: bsd.or(facts.kernel.release.value()).cloned(),
        cpu_model: facts.cpus.model_name.value().cloned(),
        cpus: (cpus > 0).then_some(cpus),
        taken: facts.origin.taken.clone(),
        notes: facts.origin.notes.clone(),
    }
}

fn intent(report: &Report) -> Intent {
    let context = &report.context;
    let isolated = &context.isolated;
    Intent {
        isolated: (!isolated.value.is_empty()).then(|| isolated.value.to_string()),
        isolated_from: from(isolated),
        nics: context.nics.value.clone(),
        nics_from: from(&context.nics),
        workloads: context.workloads.value.iter().map(Name::of).collect(),
        workloads_from: from(&context.workloads),
        goal: context.goal.map(show),
    }
}

/// How one part of the intended use is known: `given` by the user, or the facts from which it was inferred. `None` if
/// it is unknown.
pub(super) fn from<T>(intended: &Intended<T>) -> Option<String> {
    match &intended.how {
        How::Given => Some("given".to_owned()),
        How::Inferred(from) => Some(from.clone()),
        How::Nowhere => None,
    }
}

/// Formats a goal, such as `p99.9=50us`.
pub(super) fn show(goal: Goal) -> String {
    format!("{}={}", goal.quantile, goal.latency)
}

fn group(report: &Report, group: audit::Group) -> Option<Group> {
    let tally = report.tally(Some(group));
    (tally != audit::Tally::default()).then(|| Group {
        group: group.into(),
        pass: tally.pass,
        warn: tally.warn,
        fail: tally.fail,
        unknown: tally.unknown,
        not_applicable: tally.not_applicable,
        sources_disagree: tally.sources_disagree,
        accepted: tally.accepted,
    })
}

fn action(action: &Advised<'_>) -> documents::Action {
    let gain = action.gain();
    documents::Action {
        title: action.title().to_owned(),
        kind: match action.step {
            Doing::Set(..) => ActionKind::Set,
            Doing::Boot { .. } => ActionKind::Boot,
            Doing::People(..) => ActionKind::People,
            Doing::Ask { .. } => ActionKind::Ask,
        }
        .into(),
        causes: action.causes().into_iter().map(Name::from).collect(),
        lines: action.lines(),
        changes: action.changes(),
        gain: documents::Gain {
            text: super::wording::gain(&gain),
            effect_ns: gain.effect.map(units::Nanos::as_nanos),
            of_this_host: gain.of_this_host,
            finding: gain.finding.key(),
        },
        risks: action.risks().iter().map(Name::of).collect(),
        costs: action.costs().into_iter().map(str::to_owned).collect(),
        findings: action.from.iter().map(|finding| finding.key()).collect(),
    }
}

fn unlock(unlock: &Unlock) -> documents::Unlock {
    documents::Unlock { option: unlock.option.to_owned(), value: unlock.value.clone(), rules: unlock.rules as u64 }
}

fn cause(caused: &Caused<'_>) -> Option<documents::Cause> {
    let said = caused.rules.iter().flat_map(|by_rule| &by_rule.said);
    Some(documents::Cause {
        cause: caused.cause.into(),
        problem: caused.cause.problem().to_owned(),
        verdict: caused.verdict()?.into(),
        said: said
            .map(|said| documents::Said {
                id: said.first().rule.id.to_owned(),
                verdict: (&said.first().judgement.verdict).into(),
                subject: said.subject(),
                found: said.first().judgement.found.clone(),
                findings: said.findings.iter().map(|finding| finding.key()).collect(),
            })
            .collect(),
    })
}

/// Converts one line of a fix.
fn step(step: &audit::Step) -> Step {
    Step { text: step.to_string(), action: (&step.action).into(), risks: step.risks.iter().map(Name::of).collect() }
}

/// Converts one finding.
pub(super) fn finding(finding: &audit::Finding) -> Finding {
    let (rule, judgement) = (finding.rule, &finding.judgement);
    let (magnitude, magnitude_source) = finding.magnitude();
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Finding {
        id: rule.id.to_owned(),
        group: finding.group.into(),
        cause: finding.cause().into(),
        title: rule.title.to_owned(),
        verdict: (&judgement.verdict).into(),
        reason: judgement.verdict.reason().map(str::to_owned),
        subject_kind: (&judgement.subject).into(),
        subject: judgement.subject.to_string(),
        found: judgement.found.clone(),
        evidence: judgement
            .evidence
            .iter()
            .map(|evidence| Evidence { value: evidence.value.clone(), source: evidence.source.clone() })
            .collect(),
        why: rule.why.to_owned(),
        magnitude,
        magnitude_source,
        effect: EffectKind::of(finding).map(Name::from),
        effect_ns: finding.effect.map(units::Nanos::as_nanos),
        effect_of_this_host: finding.own_delay().is_some(),
        fix: Fix {
            look: finding.fix.look.clone(),
            runtime: finding.fix.runtime.iter().map(ToString::to_string).collect(),
            persistent: finding.fix.persistent.iter().map(ToString::to_string).collect(),
            reboot: finding.fix.reboot && !finding.fix.persistent.is_empty(),
            steps: finding.fix.steps().map(step).collect(),
            risks: finding.fix.risks().iter().map(Name::of).collect(),
        },
        cost: finding.cost().to_owned(),
        references: texts(rule.references),
        conflicts: finding.conflicts().map(str::to_owned).collect(),
        accepted: finding.accepted,
        key: finding.key(),
    }
}

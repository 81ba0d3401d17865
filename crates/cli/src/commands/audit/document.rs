//! A report as a document.

use audit::{Advised, Caused, Doing, Goal, How, Intended, Level, Report, Unlock, advise};
use host::Facts;

use crate::documents::VERSION;
use crate::documents::audit::{self as documents, Document, Evidence, Finding, Fix, Group, Host, Intent, SCHEMA, Step};

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
        do_later: advice.more as u64,
        unlocks: unlocks.iter().map(unlock).collect(),
        causes: advice.causes.iter().map(cause).collect(),
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
        workloads: context.workloads.value.iter().map(ToString::to_string).collect(),
        workloads_from: from(&context.workloads),
        goal: context.goal.map(show),
    }
}

/// Says how a part of the intent is known: `given`, or what it was inferred from.
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
        group: group.name().to_owned(),
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
            Doing::Set(..) => "set",
            Doing::Boot { .. } => "boot",
            Doing::People(..) => "people",
            Doing::Ask => "ask",
        }
        .to_owned(),
        causes: action.causes().into_iter().map(|cause| cause.name().to_owned()).collect(),
        lines: action.lines(),
        changes: action.changes(),
        gain: documents::Gain {
            text: super::text::gain(&gain),
            effect_ns: gain.effect.map(units::Nanos::as_nanos),
            of_this_host: gain.of_this_host,
            finding: gain.finding.key(),
        },
        risks: action.risks().iter().map(ToString::to_string).collect(),
        costs: action.costs().into_iter().map(str::to_owned).collect(),
        findings: action.from.iter().map(|finding| finding.key()).collect(),
    }
}

fn unlock(unlock: &Unlock) -> documents::Unlock {
    documents::Unlock { option: unlock.option.to_owned(), value: unlock.value.clone(), rules: unlock.rules as u64 }
}

fn cause(caused: &Caused<'_>) -> documents::Cause {
    let said = caused.rules.iter().flat_map(|by_rule| &by_rule.said);
    documents::Cause {
        cause: caused.cause.name().to_owned(),
        problem: caused.cause.problem().to_owned(),
        verdict: caused.verdict().map_or("", audit::Verdict::name).to_owned(),
        said: said
            .map(|said| documents::Said {
                id: said.first().rule.id.to_owned(),
                verdict: said.first().judgement.verdict.name().to_owned(),
                subject: said.subject(),
                found: said.first().judgement.found.clone(),
                findings: said.findings.iter().map(|finding| finding.key()).collect(),
            })
            .collect(),
    }
}

/// Converts one line of a fix.
fn step(step: &audit::Step) -> Step {
    Step {
        text: step.to_string(),
        action: step.action.name().to_owned(),
        risks: step.risks.iter().map(ToString::to_string).collect(),
    }
}

/// Converts one finding.
pub(super) fn finding(finding: &audit::Finding) -> Finding {
    let (rule, judgement) = (finding.rule, &finding.judgement);
    let (magnitude, magnitude_source) = finding.magnitude();
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Finding {
        id: rule.id.to_owned(),
        group: rule.group.name().to_owned(),
        cause: finding.cause().name().to_owned(),
        title: rule.title.to_owned(),
        verdict: judgement.verdict.name().to_owned(),
        reason: judgement.verdict.reason().map(str::to_owned),
        subject_kind: judgement.subject.kind().to_owned(),
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
        effect: finding.effect_name().map(str::to_owned),
        effect_ns: finding.effect.map(units::Nanos::as_nanos),
        effect_of_this_host: finding.own_delay().is_some(),
        fix: Fix {
            look: finding.fix.look.clone(),
            runtime: finding.fix.runtime.iter().map(ToString::to_string).collect(),
            persistent: finding.fix.persistent.iter().map(ToString::to_string).collect(),
            reboot: finding.fix.reboot && !finding.fix.persistent.is_empty(),
            steps: finding.fix.steps().map(step).collect(),
            risks: finding.fix.risks().iter().map(ToString::to_string).collect(),
        },
        cost: finding.cost().to_owned(),
        references: texts(rule.references),
        conflicts: finding.conflicts().map(str::to_owned).collect(),
        accepted: finding.accepted,
        key: finding.key(),
    }
}

//! Writes a report as SARIF (Static Analysis Results Interchange Format 2.1.0, OASIS Standard, 27 March 2020).

use audit::{Finding, Level, Report, Step, Verdict};
use serde_json::{Value, json};

use crate::documents::VERSION;

/// Converts a report to one SARIF run, with the findings of `level` and above.
pub(super) fn of(report: &Report, level: Level) -> Value {
    let findings: Vec<&Finding> = report.findings.iter().filter(|finding| finding.level() >= level).collect();
    let mut rules: Vec<&Finding> = Vec::new();
    let mut results = Vec::new();
    for finding in findings {
        let index = rules.iter().position(|first| first.rule.id == finding.rule.id).unwrap_or_else(|| {
            rules.push(finding);
            rules.len() - 1
        });
        results.push(result(finding, index));
    }
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "apus audit",
                "semanticVersion": VERSION,
                "rules": rules.into_iter().map(rule).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

/// Describes the rule of a finding.
fn rule(finding: &Finding) -> Value {
    let rule = finding.rule;
    json!({
        "id": rule.id,
        "shortDescription": { "text": rule.title },
        "fullDescription": { "text": rule.why },
        "help": { "text": format!("{}\nDelay: {}\nCost of the fix: {}\nReferences: {}",
            rule.why, rule.magnitude.text, rule.cost, rule.references.join("; ")) },
        "properties": { "tags": [finding.group.name()] },
    })
}

fn result(finding: &Finding, index: usize) -> Value {
    let judgement = &finding.judgement;
    // A level other than "none" needs the kind "fail" (3.27.9, 3.27.10).
    let (kind, level) = match judgement.verdict {
        Verdict::Fail => ("fail", "error"),
        Verdict::Warn => ("fail", "warning"),
        Verdict::SourcesDisagree => ("review", "none"),
        Verdict::Unknown(_) => ("open", "none"),
        Verdict::Pass => ("pass", "none"),
        Verdict::NotApplicable(_) => ("notApplicable", "none"),
    };
    let text = match judgement.verdict.reason() {
        Some(reason) => reason,
        None => &judgement.found,
    };
    let mut result = json!({
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        "kind": kind,
        "level": level,
        "message": { "text": format!("{}: {text}", judgement.subject) },
        "locations": [location(finding)],
        "partialFingerprints": { "apusKey/v1": finding.key() },
        "properties": {
            "evidence": judgement.evidence.iter().map(|e| format!("{} ({})", e.value, e.source)).collect::<Vec<_>>(),
            "fixNow": texts(&finding.fix.runtime),
            "fixForGood": texts(&finding.fix.persistent),
            "fixRisks": finding.fix.risks().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "effectNs": finding.effect.map(units::Nanos::as_nanos),
        },
    });
    if finding.accepted {
        result["suppressions"] = json!([{ "kind": "external", "justification": "accepted by the baseline" }]);
    }
    result
}

fn texts(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

/// The SARIF location of a finding: its subject, and the file with the evidence if there is one.
fn location(finding: &Finding) -> Value {
    let subject = &finding.judgement.subject;
    let mut location = json!({
        "logicalLocations": [{ "name": subject.to_string(), "kind": subject.name() }],
    });
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    let file = finding.judgement.evidence.iter().map(|evidence| evidence.source.as_str());
    if let Some(path) = file.into_iter().find(|source| source.starts_with('/') && source.chars().all(plain)) {
        location["physicalLocation"] = json!({ "artifactLocation": { "uri": format!("file://{path}") } });
    }
    location
}

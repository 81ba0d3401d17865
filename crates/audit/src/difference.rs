//! What two audits say differently.

use std::collections::BTreeMap;

use crate::{Finding, Level, Report};

/// One thing that two audits say differently.
#[derive(Clone, Debug)]
pub struct Difference<'a> {
    /// Rule and subject.
    pub key: String,
    /// How.
    pub kind: DifferenceKind,
    /// What the first says; `None` if it says nothing of the subject.
    pub before: Option<&'a Finding>,
    /// What the second says.
    pub after: Option<&'a Finding>,
}

/// How two audits differ in one thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DifferenceKind {
    /// The second has a finding that the first does not have, or a worse one.
    Worse,
    /// The same verdict, of another value.
    Changed,
    /// What one of them knows is unknown to the other, or does not apply there.
    Unclear,
    /// The second has no finding, or a milder one.
    Better,
}

impl DifferenceKind {
    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Changed => "changed",
            Self::Unclear => "unclear",
            Self::Better => "better",
        }
    }
}

/// What two audits say differently, what got worse first. Of passes with other values nothing is said.
pub fn difference<'a>(before: &'a Report, after: &'a Report) -> Vec<Difference<'a>> {
    let by_key = |report: &'a Report| -> BTreeMap<String, &'a Finding> {
        report.findings.iter().map(|finding| (finding.key(), finding)).collect()
    };
    let (first, second) = (by_key(before), by_key(after));
    let mut keys: Vec<&String> = first.keys().chain(second.keys()).collect();
    keys.sort();
    keys.dedup();
    let one = |key: &String| {
        let (a, b) = (first.get(key).copied(), second.get(key).copied());
        Some(Difference { key: key.clone(), kind: kind(a, b)?, before: a, after: b })
    };
    let mut differences: Vec<Difference<'a>> = keys.into_iter().filter_map(one).collect();
    differences.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
    differences
}

fn kind(before: Option<&Finding>, after: Option<&Finding>) -> Option<DifferenceKind> {
    let is_finding = |finding: &Finding| finding.level() >= Level::Choice;
    match (before, after) {
        (None, None) => None,
        (None, Some(only)) => is_finding(only).then_some(DifferenceKind::Worse),
        (Some(only), None) => is_finding(only).then_some(DifferenceKind::Better),
        (Some(a), Some(b)) => {
            let open = |finding: &Finding| finding.judgement.verdict.reason().is_some();
            match (open(a), open(b)) {
                (true, true) => None,
                (true, false) | (false, true) => {
                    let known = if open(a) { b } else { a };
                    is_finding(known).then_some(DifferenceKind::Unclear)
                }
                (false, false) if b.level() > a.level() => Some(DifferenceKind::Worse),
                (false, false) if b.level() < a.level() => Some(DifferenceKind::Better),
                (false, false) => {
                    let changed = is_finding(a) && a.judgement.found != b.judgement.found;
                    changed.then_some(DifferenceKind::Changed)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;
    use crate::{Intent, audit};

    fn report(source: &str) -> Report {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        audit(&host().file(path, source).facts(), &Intent::default())
    }

    #[test]
    fn better_worse_changed_and_nothing() {
        let (good, bad, other) = (report("tsc"), report("hpet"), report("acpi_pm"));
        let one = |a: &Report, b: &Report| difference(a, b).iter().map(|d| (d.key.clone(), d.kind)).collect::<Vec<_>>();
        let key = "clk.source host".to_owned();
        assert!(one(&good, &bad).contains(&(key.clone(), DifferenceKind::Worse)));
        assert!(one(&bad, &good).contains(&(key.clone(), DifferenceKind::Better)));
        assert!(one(&bad, &other).contains(&(key, DifferenceKind::Changed)));
        assert!(one(&bad, &bad).is_empty());
    }
}

//! The differences between two audits.

use std::collections::BTreeMap;

use crate::{Finding, Level, Report, Subject};

/// One difference between two audits.
#[derive(Clone, Debug)]
pub struct Difference<'a> {
    /// Rule and subject of the compared findings. If the two subjects differ, for example because the hosts have
    /// different CPUs, the key contains both.
    pub key: String,
    /// The kind of difference.
    pub kind: DifferenceKind,
    /// The finding of the first audit. `None` if it has no finding to compare with `after`.
    pub before: Option<&'a Finding>,
    /// The finding of the second audit. `None` if it has no finding to compare with `before`.
    pub after: Option<&'a Finding>,
}

units::named! {
    /// How two audits differ in one finding.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum DifferenceKind {
        /// The second audit has a finding that the first audit lacks, or its finding is more severe.
        Worse = "worse",
        /// Both audits have the same verdict, but the value in the finding differs.
        Changed = "changed",
        /// One audit has a verdict; in the other, the verdict is unknown or not applicable.
        Unclear = "unclear",
        /// The second audit lacks a finding that the first audit has, or its finding is less severe.
        Better = "better",
    }
}

/// Compares two audits and returns the differences, those that got worse first. A differing value is no difference if
/// both audits passed.
///
/// Findings of the same rule on the same subject are paired first. The remaining findings of a rule are paired more
/// loosely: first CPUs with other CPUs, and a kernel parameter with another value of it; then the only remaining
/// finding of the rule on each host.
pub fn difference<'a>(before: &'a Report, after: &'a Report) -> Vec<Difference<'a>> {
    let mut left: (Vec<&Finding>, Vec<&Finding>) = (before.findings.iter().collect(), after.findings.iter().collect());
    let mut pairs = Vec::new();
    pair(&mut left, &mut pairs, |finding| Some(finding.key()), None);
    pair(&mut left, &mut pairs, alike, None);
    pair(&mut left, &mut pairs, |finding| Some(finding.rule.id.to_owned()), Some(comparable));
    pairs.extend(left.0.into_iter().map(|finding| (Some(finding), None)));
    pairs.extend(left.1.into_iter().map(|finding| (None, Some(finding))));
    let one = |(a, b): (Option<&'a Finding>, Option<&'a Finding>)| {
        Some(Difference { key: key(a, b), kind: kind(a, b)?, before: a, after: b })
    };
    let mut differences: Vec<Difference<'a>> = pairs.into_iter().filter_map(one).collect();
    differences.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
    differences
}

type Pair<'a> = (Option<&'a Finding>, Option<&'a Finding>);

/// Pairs findings of the two audits for which `name` returns the same string, worst first, and moves them from `left`
/// to `pairs`. With `alone`, pairs two findings only if their name is unique in each audit and `alone` accepts them.
fn pair<'a>(
    left: &mut (Vec<&'a Finding>, Vec<&'a Finding>),
    pairs: &mut Vec<Pair<'a>>,
    name: impl Fn(&Finding) -> Option<String>,
    alone: Option<fn(&Finding, &Finding) -> bool>,
) {
    let mut named: BTreeMap<String, (Vec<&Finding>, Vec<&Finding>)> = BTreeMap::new();
    let mut rest = (Vec::new(), Vec::new());
    for finding in std::mem::take(&mut left.0) {
        match name(finding) {
            Some(name) => named.entry(name).or_default().0.push(finding),
            None => rest.0.push(finding),
        }
    }
    for finding in std::mem::take(&mut left.1) {
        match name(finding) {
            Some(name) => named.entry(name).or_default().1.push(finding),
            None => rest.1.push(finding),
        }
    }
    for (mut first, mut second) in named.into_values() {
        let common = first.len().min(second.len());
        let fits = match (alone, first.as_slice(), second.as_slice()) {
            (None, ..) => true,
            (Some(comparable), [a], [b]) => comparable(a, b),
            (Some(_), ..) => false,
        };
        if fits {
            let worst_first = |finding: &&Finding| std::cmp::Reverse(finding.level());
            first.sort_by_key(worst_first);
            second.sort_by_key(worst_first);
            pairs.extend(first.drain(..common).map(Some).zip(second.drain(..common).map(Some)));
        }
        rest.0.extend(first);
        rest.1.extend(second);
    }
    *left = rest;
}

/// A name for loose pairing: the rule, and the subject without its CPU numbers or parameter value. `None` if the
/// subject is neither CPUs nor a parameter.
fn alike(finding: &Finding) -> Option<String> {
    match &finding.judgement.subject {
        Subject::Cpus(_) => Some(format!("{} CPUs", finding.rule.id)),
        Subject::Parameter(word) => Some(format!("{} {}", finding.rule.id, word.split('=').next().unwrap_or(word))),
        _ => None,
    }
}

/// Whether two findings of a rule can be compared: their subjects are of the same kind, or one subject is the whole
/// host. Two kernel parameters cannot be compared.
fn comparable(a: &Finding, b: &Finding) -> bool {
    let (a, b) = (&a.judgement.subject, &b.judgement.subject);
    let same = a.name() == b.name() && !matches!(a, Subject::Parameter(_));
    same || matches!(a, Subject::Host) || matches!(b, Subject::Host)
}

fn key(before: Option<&Finding>, after: Option<&Finding>) -> String {
    match (before, after) {
        (Some(a), Some(b)) if a.judgement.subject != b.judgement.subject => {
            format!("{} {} → {}", a.rule.id, a.judgement.subject, b.judgement.subject)
        }
        (one, other) => one.or(other).map(Finding::key).unwrap_or_default(),
    }
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
    fn hosts_with_other_cpus_are_compared() {
        let report = |isolated: &str, mask: &str| {
            let cpus = if isolated == "2-7" { "0-7" } else { "0-15" };
            let host =
                host().file("/sys/devices/system/cpu/online", cpus).file("/sys/devices/system/cpu/present", cpus);
            let host = host.file("/sys/devices/virtual/workqueue/cpumask", mask);
            audit(&host.facts(), &Intent { isolated: Some(isolated.parse().unwrap()), ..Intent::default() })
        };
        let (small, large, mended) = (report("2-7", "ff"), report("2-15", "ffff"), report("2-15", "3"));
        let of = |a: &Report, b: &Report| {
            let all = difference(a, b).into_iter().filter(|one| one.key.starts_with("wq.global-cpumask"));
            all.map(|one| (one.key, one.kind, one.before.is_some() && one.after.is_some())).collect::<Vec<_>>()
        };
        let key = "wq.global-cpumask CPUs 2-7 → CPUs 2-15".to_owned();
        assert_eq!(of(&small, &large), [(key.clone(), DifferenceKind::Changed, true)]);
        assert!(matches!(of(&small, &mended)[..], [(_, DifferenceKind::Better, true)]), "{:?}", of(&small, &mended));
        assert_eq!(of(&large, &large), []);
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

//! A baseline: the list of findings that are known and accepted, one key per line.

use std::collections::BTreeSet;

use crate::{Level, Report};

/// Reads the keys of a baseline, one per line. Empty lines and lines that begin with `#` are ignored.
pub fn read_baseline(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Writes a baseline that accepts all findings of a report that are at [`Level::Choice`] or above.
pub fn write_baseline(report: &Report) -> String {
    let mut text = String::from("# Accepted findings: rule and subject, one per line. Written by apus audit.\n");
    let known = report.findings.iter().filter(|finding| finding.level() >= Level::Choice);
    let keys: BTreeSet<String> = known.map(crate::Finding::key).collect();
    for key in keys {
        text.push_str(&key);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;
    use crate::{Intent, audit};

    #[test]
    fn what_is_written_accepts_everything() {
        let facts = host().file("/sys/devices/virtual/workqueue/cpumask", "ff").facts();
        let intent = Intent { isolated: Some("2".parse().unwrap()), ..Intent::default() };
        let mut report = audit(&facts, &intent);
        assert!(report.at_least(Level::Choice).count() > 0);
        let baseline = read_baseline(&write_baseline(&report));
        assert_eq!(report.accept(&baseline), Vec::<String>::new());
        assert_eq!(report.at_least(Level::Choice).count(), 0);
    }

    #[test]
    fn a_subjects_name_adds_no_line() {
        let facts = host().file("/sys/devices/virtual/workqueue/cpumask", "ff").facts();
        let intent = Intent { isolated: Some("2".parse().unwrap()), ..Intent::default() };
        let mut report = audit(&facts, &intent);
        let known = write_baseline(&report).lines().count();
        let finding = report.findings.iter_mut().find(|finding| finding.rule.id == "wq.global-cpumask").unwrap();
        finding.judgement.subject = crate::Subject::Named("a\nclk.source host\u{1b}[2J".into());
        let baseline = write_baseline(&report);
        assert_eq!(baseline.lines().count(), known);
        assert!(!baseline.contains(units::acts) && !read_baseline(&baseline).contains("clk.source host"), "{baseline}");
        assert_eq!(report.accept(&read_baseline(&baseline)), Vec::<String>::new());
    }
}

//! This machine, as whoever runs the tests.

use std::collections::BTreeSet;

use audit::{Intent, Level, Workload, audit};
use host::facts::{CpuSet, Facts, Reading, Root};
use units::Nanos;

/// Baselines, comparisons and viewers of SARIF know a finding by its rule and subject.
#[test]
fn each_finding_has_a_key_of_its_own() {
    let reading = Reading { interval: Some(Nanos::from_millis(300)), ..Reading::default() };
    let facts = Facts::read_with(&Root::live(), reading);
    // One CPU is taken for the application's, so that the rules on isolation speak too.
    let intent = Intent { isolated: facts.cpus.all().last().map(|cpu| CpuSet::from([cpu])), ..Intent::default() };
    let report = audit(&facts, &intent);
    let mut seen = BTreeSet::new();
    for finding in report.at_least(Level::Choice) {
        assert!(seen.insert(finding.key()), "{} is there twice", finding.key());
    }
}

#[test]
fn nothing_that_is_not_there_is_a_finding() {
    let facts = Facts::read(&Root::live());
    let report = audit(&facts, &Intent::default());
    println!("{:?}", report.tally(None));
    let has_states = facts.cpus.list.iter().any(|cpu| cpu.idle_states.is_known());
    let has_frequency = facts.cpus.list.iter().any(|cpu| cpu.frequency.governor.is_known());
    for finding in report.at_least(Level::Warn) {
        let (id, judgement) = (finding.rule.id, &finding.judgement);
        assert!(!judgement.evidence.is_empty(), "{id} rests on nothing: {judgement:?}");
        assert!(has_states || !id.starts_with("idle."), "{id}: {judgement:?}");
        assert!(has_frequency || !(id == "cpu.governor" || id == "cpu.freq-span" || id == "cpu.epp"), "{id}");
        // No register was read, so none is judged.
        assert!(!judgement.evidence.iter().any(|evidence| evidence.source.starts_with("MSR ")), "{id}: {judgement:?}");
    }
    if facts.virtualisation.guest.get() == Some(true) {
        assert!(report.context.is(Workload::Guest));
    }
}

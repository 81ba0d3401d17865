//! What findings claim on every recorded host with several intents: nothing beyond what is recorded, nothing twice, and in
//! words that an engineer would write.

use audit::{Advised, Doing, Finding, Level, Report, Verdict, advise};

use crate::fixes::each;

/// A claim, and the rule that knows whether the fact behind it was recorded: where that one says unknown, the claim is no
/// failure and says of what it depends.
const SIBLINGS: &[(&str, &str, &str, &str)] = &[
    ("cmd.isolcpus", "", "usr.cpuset-partition", "partition"),
    ("cmd.isolcpus-flags", "without domain", "usr.cpuset-partition", "partition"),
    ("cmd.companions", "the scheduler balances other work", "usr.cpuset-partition", "partition"),
    ("cmd.companions", "new interrupts", "irq.default-affinity", "unless"),
    ("cmd.companions", "RCU callbacks", "kcfg.rcu-nocb", "CONFIG_RCU_NOCB_CPU_DEFAULT_ALL"),
    ("cmd.rcu-nocbs", "RCU callbacks", "kcfg.rcu-nocb", "CONFIG_RCU_NOCB_CPU_DEFAULT_ALL"),
];

fn of<'a>(report: &'a Report, id: &str) -> impl Iterator<Item = &'a Finding> {
    report.findings.iter().filter(move |finding| finding.rule.id == id)
}

fn is_unknown(report: &Report, id: &str) -> bool {
    assert!(audit::rules::find(id).is_some(), "{id} is no rule");
    of(report, id).all(|finding| matches!(finding.judgement.verdict, Verdict::Unknown(_)))
}

#[test]
fn what_a_sibling_does_not_know_is_not_claimed() {
    let mut hedged = 0;
    each(|about, facts, report| {
        for (id, claim, sibling, hedge) in SIBLINGS {
            // The kernel's own list and the line prove what the sibling cannot.
            let counted = facts.cpus.isolated.is_known() && *sibling == "usr.cpuset-partition";
            if !is_unknown(report, sibling) || counted {
                continue;
            }
            let claims = of(report, id).filter(|finding| finding.level() >= Level::Warn);
            for finding in claims.filter(|finding| finding.judgement.found.contains(claim)) {
                let found = &finding.judgement.found;
                let stray = found.contains("not meant for the application");
                // A line that names some CPUs overrides the build's default.
                let named = facts.cmdline.is(|line| line.has("rcu_nocbs") || line.has("nohz_full")) == Some(true);
                if stray || named && claim.starts_with("RCU") {
                    continue;
                }
                assert!(found.contains(hedge), "{about}: {id} claims {found:?}, and {sibling} does not know");
                assert!(finding.level() < Level::Fail, "{about}: {id} fails, and {sibling} does not know");
                assert_eq!(finding.effect, None, "{about}: {id} adds a delay, and {sibling} does not know");
                hedged += 1;
            }
        }
    });
    assert!(hedged > 20, "{hedged} claims were looked at");
}

/// No line is proof of full dynamic ticks that are off: where the line asks for none, nothing is unknown.
#[test]
fn a_line_without_full_ticks_is_proof() {
    each(|about, facts, report| {
        let none = facts.cmdline.is(|line| !line.has("nohz_full") && !line.has("isolcpus")) == Some(true);
        if none && facts.kernel.version.is_known() && !report.context.isolated.value.is_empty() {
            assert!(!is_unknown(report, "cmd.nohz-full"), "{about}");
        }
    });
}

/// Phrases that a native engineer would not write, all of which were there once.
const NOT_ENGLISH: &[&str] = &[
    "is meant",
    "are meant to be",
    "declared use asks",
    "nobody has mounted",
    "allot",
    "is there to be used",
    "no real-time one",
    "is asked for",
    "are asked for",
    "is the goal",
    "0 is none",
    "does not show",
    "that it is asked",
    "asks for\"",
    "after input",
    "hardly stop",
    "nobody changes it",
    "open eyes",
    "it is given",
    "they came",
    "seen no ",
    "an error: managed",
    "nobody else's",
    "Those of each",
    "Which slots",
    "at its worst",
    "loses queues",
    "No saving when idle",
    "for times are kept",
    "C1 stays C1",
    "each of 1 ",
    "one a second is left",
    "no setting is known",
    "timers fired",
    "loses CPUs 15:",
];

fn texts(finding: &Finding) -> Vec<String> {
    let (rule, judgement) = (finding.rule, &finding.judgement);
    let evidence = judgement.evidence.iter().map(|seen| seen.value.clone());
    let fixed = [rule.title, rule.why, rule.magnitude.text, finding.cost()].map(str::to_owned);
    let said = [judgement.found.clone(), judgement.verdict.reason().unwrap_or_default().to_owned()];
    let steps = finding.fix.steps().map(ToString::to_string);
    fixed.into_iter().chain(said).chain(evidence).chain(steps).collect()
}

#[test]
fn findings_are_in_words_of_the_field() {
    let mut wrong = std::collections::BTreeSet::new();
    each(|_, _, report| {
        for finding in &report.findings {
            for text in texts(finding) {
                let odd = NOT_ENGLISH.iter().filter(|phrase| text.contains(**phrase));
                wrong.extend(odd.map(|phrase| (finding.rule.id, *phrase, text.clone())));
            }
        }
    });
    for rule in audit::rules::all() {
        let texts = [rule.title, rule.why, rule.cost, rule.magnitude.text];
        let odd = texts.into_iter().flat_map(|text| {
            NOT_ENGLISH.iter().filter(move |phrase| text.contains(**phrase)).map(move |phrase| (*phrase, text))
        });
        wrong.extend(odd.map(|(phrase, text)| (rule.id, phrase, text.to_owned())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `tsc=reliable tsc=reliable: tsc=reliable tsc=reliable: given twice`, `290us = 290us`, `1 nodes`.
#[test]
fn no_sentence_says_a_thing_twice() {
    each(|about, _, report| {
        for finding in report.at_least(Level::Choice) {
            let (subject, found) = (finding.judgement.subject.to_string(), &finding.judgement.found);
            assert!(!found.starts_with(&format!("{subject}:")), "{about}: {subject}: {found}");
            assert!(!found.starts_with(&format!("missing {subject}")), "{about}: {subject}: {found}");
            let words: Vec<&str> = found.split(' ').collect();
            for at in 1..words.len().saturating_sub(1) {
                let same = words[at] == "=" && words[at - 1] == words[at + 1].trim_end_matches([',', ';']);
                assert!(!same || words[..at].contains(&"+"), "{about}: {found}");
                let pair = words[at - 1] == words[at] && words[at].contains('=');
                assert!(!pair, "{about}: {found}");
            }
        }
    });
}

/// A new command line is one that can be pasted: nothing of the boot loader's, nothing twice that was there once, and
/// where an operator writes it, no line at all.
#[test]
fn a_changed_line_can_be_pasted_or_says_who_writes_it() {
    let mut seen = (0, 0);
    each(|about, _, report| {
        for action in advise(report, Level::Warn).actions {
            let Doing::Boot { line, operator, once, .. } = &action.step else { continue };
            let Some(line) = line else { continue };
            assert!(!line.contains("BOOT_IMAGE=") && !line.contains("initrd="), "{about}: {line}");
            for word in once {
                assert_eq!(line.split(' ').filter(|other| other == word).count(), 1, "{about}: {line}");
            }
            match operator {
                Some(_) => {
                    seen.0 += 1;
                    assert!(
                        action
                            .lines()
                            .iter()
                            .all(|text| text.contains("OpenShift")
                                || text.starts_with("in ") && text.contains(", remove ")),
                        "{about}: {:?}",
                        action.lines()
                    );
                }
                None => seen.1 += 1,
            }
        }
    });
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
}

/// Who said nothing of a host's purpose is asked for it before power, safety or features are traded for latency.
#[test]
fn nothing_is_traded_before_somebody_wants_latency() {
    let mut asked = 0;
    each(|about, _, report| {
        let has_intent = report.context.has_intent();
        for action in advise(report, Level::Warn).actions {
            let is_ask = action.is_ask();
            asked += usize::from(is_ask);
            assert!(!is_ask || !has_intent, "{about}");
            let traded = |action: &Advised<'_>| action.from.iter().all(|finding| finding.trades());
            assert!(is_ask || has_intent || !traded(&action), "{about}: {}", action.title());
        }
    });
    assert!(asked > 5, "{asked}");
}

/// skld0, icx2s0, spr1, emr0, gnr0, adl0: a ceiling would take turbo away for nothing.
#[test]
fn no_ceiling_takes_turbo_where_sources_disagree_on_it() {
    each(|about, facts, report| {
        let stops = facts.cpus.generation.get() == Some(host::facts::Generation::CascadeLake);
        if stops || report.context.is(audit::Workload::Rt) {
            return;
        }
        for finding in report.at_least(Level::Warn) {
            for step in finding.fix.steps() {
                let text = step.to_string();
                assert!(
                    !text.contains("frequency-set") || !text.contains(" -u "),
                    "{about}: {}: {text}",
                    finding.rule.id
                );
            }
        }
    });
}

/// clx2s0, adl0: whoever gives up turbo is told so.
#[test]
fn a_ceiling_says_that_it_takes_turbo() {
    let mut ceilings = 0;
    each(|about, _, report| {
        for finding in report.at_least(Level::Choice) {
            let holds = finding.fix.steps().any(|step| step.to_string().contains(" -u "));
            ceilings += usize::from(holds);
            assert!(
                !holds || finding.cost().to_lowercase().contains("turbo"),
                "{about}: {}: {}",
                finding.rule.id,
                finding.cost()
            );
        }
    });
    assert!(ceilings > 20, "{ceilings}");
}

/// skld0, genoa0: what the guide says of other processors is not printed of these.
#[test]
fn what_a_source_says_of_one_generation_is_not_said_of_others() {
    use host::facts::Generation::{CascadeLake, IceLake};
    let mut said = (0, 0);
    each(|about, facts, report| {
        let generation = facts.cpus.generation.get();
        for finding in report.at_least(Level::Choice) {
            let (stops, fine) = (
                finding.magnitude().0.contains("core of Cascade Lake"),
                finding.conflicts().any(|text| text.contains("frequency scaling is fine")),
            );
            said = (said.0 + usize::from(stops), said.1 + usize::from(fine));
            assert!(!stops || generation == Some(CascadeLake), "{about}: {}", finding.rule.id);
            assert!(!fine || generation == Some(IceLake), "{about}: {}", finding.rule.id);
        }
    });
    assert!(said.0 > 0 && said.1 > 0, "{said:?}");
}

/// bdwde0, icx2s3: CPUs that housekeeping needs are neither kept idle nor given away.
#[test]
fn nobody_keeps_the_boot_cpu_or_all_of_housekeeping_idle() {
    let mut offered = (0, 0);
    each(|about, facts, report| {
        for id in ["smt.state", "cmd.smt-siblings-split"] {
            for step in of(report, id).flat_map(|finding| finding.fix.steps()) {
                let text = step.to_string();
                let Some((_, list)) = text.split_once("keep CPU") else {
                    offered.0 += 1;
                    continue;
                };
                let list = list.trim_start_matches('s').trim_start().split(' ').next().unwrap_or_default();
                let idle: host::facts::CpuSet = list.trim_end_matches(',').parse().unwrap();
                let left = facts.cpus.all().difference(&report.context.isolated.value).difference(&idle);
                assert!(!idle.contains(0) && !left.is_empty(), "{about}: {id}: {text}");
                offered.1 += 1;
            }
        }
    });
    assert!(offered.0 > 0, "{offered:?}");
}

/// skld0: the guide says of one generation that a change of frequency stops its core, and no finding says it of another.
#[test]
fn a_stop_is_said_of_the_generation_that_the_source_names() {
    let mut said = 0;
    each(|about, facts, report| {
        let is_named = facts.cpus.generation.get() == Some(host::facts::Generation::CascadeLake);
        for finding in &report.findings {
            let found = &finding.judgement.found;
            let claims = found.contains("each change stops") || found.contains("change of frequency takes");
            said += usize::from(claims);
            assert!(!claims || is_named, "{about}: {}: {found}", finding.rule.id);
        }
    });
    assert!(said > 0, "{said}");
}

//! Ranks the likely causes of a symptom (low throughput, high latency, drops), from what was observed while the load
//! ran.
//!
//! ```text
//! Facts (each end) ── End::of ──► End: numbers alone ─┐
//! Symptom: what, measured, expected ──────────────────┼─► CAUSES: each judges ─► Diagnosis: ranked, or nothing found
//! audit's findings ── suspects ───────────────────────┘
//! ```
//!
//! [`CAUSES`] is a table like that of the rules: each cause has a judge, an explanation and a source. A judge sees both
//! ends, or the one that was observed. To give a high likelihood, a judge needs two things: a setting or state that can
//! do harm, and counters that show this harm. A setting alone proves nothing, so its likelihood stays below
//! [`THRESHOLD`]. Likelihoods grade the evidence; they are not measured probabilities. `benches/diagnose.py` measures
//! how often the first cause is the right one (SPEC.md).
//!
//! **Unknown** is not evidence: a judge returns `None` if it lacks a number, and [`Diagnosis::unknown`] lists what
//! could not be observed.

mod causes;
mod end;
mod freebsd;
mod symptom;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use host::Facts;
use units::Nanos;

use crate::{Level, Report};

pub use causes::CAUSES;
pub use end::{Drops, End, Hog, Load, QueueShare, Socket};
pub use symptom::{Reference, Symptom, SymptomKind};

/// Minimum likelihood, in percent, of a cause that counts as found.
pub const THRESHOLD: u8 = 50;
/// Maximum number of audit findings that a diagnosis lists as suspects.
const MOST_SUSPECTS: usize = 20;

/// A possible cause of a symptom: one entry of [`CAUSES`].
#[derive(Clone, Copy)]
pub struct PossibleCause {
    /// Identifier in kebab case, such as `slow-app`.
    pub id: &'static str,
    /// Explanation, in full sentences, of how the cause makes packets slow, late or lost.
    pub why: &'static str,
    /// Title of the document that describes the cause.
    pub reference: &'static str,
    /// The cause's judge: grades the evidence for the cause. Returns `None` if there is no evidence, or if a number
    /// that it needs is unknown.
    pub judge: fn(&Case) -> Option<Hit>,
}

impl std::fmt::Debug for PossibleCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PossibleCause").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The input of the judges: the symptom, and what was observed at the ends.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Case {
    /// The symptom that the user noticed.
    pub symptom: Symptom,
    /// The observations of this host and, if it was watched too, of the other end.
    pub ends: Vec<End>,
}

/// The evidence that a judge found for its cause.
#[derive(Clone, PartialEq, Debug)]
pub struct Hit {
    /// Grade of the evidence, 0 to 99; not a measured probability.
    pub likelihood_percent: u8,
    /// Name of the end at which the cause lies. `None` if it lies between the ends.
    pub end: Option<String>,
    /// The problem in one sentence, with the number that shows it.
    pub headline: String,
    /// The observations that support the cause, each with its source.
    pub evidence: Vec<Seen>,
    /// An experiment that would prove or disprove the cause.
    pub experiment: Experiment,
}

/// One observation that supports a cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The observation, with its number.
    pub text: String,
    /// File, counter or field from which the observation was taken.
    pub source: String,
}

/// A change that would prove or disprove a cause.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Experiment {
    /// Instructions: what to change, and what to measure afterwards.
    pub text: String,
    /// The experiment as a factor for a plan of `apus experiment`, in lines of TOML. `None` if Apus cannot make this
    /// change.
    pub factor: Option<String>,
}

/// A cause with the evidence for it, as ranked in a [`Diagnosis`].
#[derive(Clone, PartialEq, Debug)]
pub struct Ranked {
    /// Identifier of the cause ([`PossibleCause::id`]).
    pub id: &'static str,
    /// How the cause makes packets slow, late or lost ([`PossibleCause::why`]).
    pub why: &'static str,
    /// Title of the document that describes the cause ([`PossibleCause::reference`]).
    pub reference: &'static str,
    /// The evidence for the cause.
    pub hit: Hit,
}

/// The result of a diagnosis: ranked causes, suspects, and what could not be observed.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnosis {
    /// The causes, most likely first. Those with a likelihood of at least [`THRESHOLD`] count as found.
    pub causes: Vec<Ranked>,
    /// Audit findings that could cause the symptom, although no observation confirms them. They show where to look
    /// next.
    pub suspects: Vec<Suspect>,
    /// Messages about what could not be observed, with the reasons.
    pub unknown: Vec<String>,
}

/// An audit finding that could explain the symptom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspect {
    /// Name of the end at which the audit made the finding.
    pub end: String,
    /// Identifier of the audit rule, such as `cmd.isolcpus`.
    pub rule: &'static str,
    /// Text of the finding.
    pub found: String,
    /// Delay that the finding can add to a packet. `None` if no delay is known.
    pub adds: Option<Nanos>,
}

impl Diagnosis {
    /// The causes whose likelihood is at least [`THRESHOLD`], the most likely first.
    pub fn found(&self) -> impl Iterator<Item = &Ranked> {
        self.causes.iter().filter(|cause| cause.hit.likelihood_percent >= THRESHOLD)
    }
}

impl Hit {
    fn new(likelihood: f64, end: Option<&End>, headline: impl Into<String>, experiment: Experiment) -> Self {
        Self {
            likelihood_percent: likelihood.clamp(0.0, 99.0).round() as u8,
            end: end.map(|end| end.name.clone()),
            headline: headline.into(),
            evidence: Vec::new(),
            experiment,
        }
    }

    fn see(mut self, text: impl Into<String>, source: impl Into<String>) -> Self {
        self.evidence.push(Seen { text: text.into(), source: source.into() });
        self
    }
}

impl Experiment {
    fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), factor: None }
    }

    fn with(self, factor: Option<String>) -> Self {
        Self { factor, ..self }
    }
}

impl Case {
    /// Judges each end, and returns the hit with the highest likelihood.
    fn worst(&self, judge: impl Fn(&End, Option<&End>) -> Option<Hit>) -> Option<Hit> {
        let other = |n: usize| self.ends.iter().enumerate().find(|(m, _)| *m != n).map(|(_, end)| end);
        let hits = self.ends.iter().enumerate().filter_map(|(n, end)| judge(end, other(n)));
        hits.max_by_key(|hit| hit.likelihood_percent)
    }
}

/// The position of `number` between `harmless` (0) and `harmful` (1), limited to this range.
fn grade(number: f64, harmless: f64, harmful: f64) -> f64 {
    ((number - harmless) / (harmful - harmless)).clamp(0.0, 1.0)
}

/// Ranks the possible causes of the symptom in `case` by the evidence for each.
pub fn diagnose(case: &Case) -> Diagnosis {
    let judged = CAUSES.iter().flat_map(|table| table.iter()).filter_map(|cause| {
        let hit = (cause.judge)(case)?;
        (hit.likelihood_percent > 0).then_some(Ranked { id: cause.id, why: cause.why, reference: cause.reference, hit })
    });
    let mut causes: Vec<Ranked> = judged.collect();
    // Causes with the same likelihood keep the order of the table.
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.hit.likelihood_percent));
    let unknown = case.ends.iter().flat_map(|end| end.unknown.iter().map(|what| format!("{}: {what}", end.name)));
    Diagnosis { causes, suspects: Vec::new(), unknown: unknown.collect() }
}

/// Returns the failures of the audit `report` as suspects: the largest delay first, and at most one per rule. `name` is
/// the name of the audited end.
pub fn suspects(name: &str, report: &Report) -> Vec<Suspect> {
    let all = report
        .at_least(Level::Fail)
        .map(|finding| Suspect {
            end: name.to_owned(),
            rule: finding.rule.id,
            found: finding.judgement.found.clone(),
            adds: finding.effect,
        })
        .collect();
    largest_of_each_rule(all)
}

fn largest_of_each_rule(mut all: Vec<Suspect>) -> Vec<Suspect> {
    all.sort_by_key(|suspect| std::cmp::Reverse(suspect.adds));
    let mut rules = BTreeSet::new();
    all.retain(|suspect| rules.insert(suspect.rule));
    all.truncate(MOST_SUSPECTS);
    all
}

/// Extracts what was observed at one end from the facts of its host. `name` is the end's name in messages. `interface`
/// is the interface to examine; `None` means the busiest one.
pub fn end_of(name: &str, facts: &Facts, interface: Option<&str>) -> End {
    let mut end = match facts.freebsd.value() {
        Some(host) => freebsd::end(name, host, interface),
        None => End::of(name, facts, interface),
    };
    // Such as the one that the recording is truncated.
    end.unknown.extend(facts.origin.notes.iter().cloned());
    end
}

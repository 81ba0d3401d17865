//! Why is it slow? A symptom and what was seen while the load ran in, causes out, ranked.
//!
//! ```text
//! Facts (each end) ── End::of ──► End: numbers alone ─┐
//! Symptom: what, measured, expected ──────────────────┼─► CAUSES: each judges ─► Diagnosis: ranked, or nothing found
//! audit's findings ── suspects ───────────────────────┘
//! ```
//! [`CAUSES`] is a table like that of the rules: a cause has its judge, its mechanism, its source, and, next to it, its
//! cases. A judge sees both ends (or the one that is known), and says how likely its cause is from two things together:
//! a setting or a state that can do harm, and the mark that the harm leaves in the counters. A setting alone proves
//! nothing, and stays below [`THRESHOLD`]. The likelihoods are grades of evidence, not measured probabilities; how often the first
//! one is right is measured (SPEC.md, `benches/diagnose.py`).
//!
//! **Unknown** is no evidence: a judge that lacks a number returns `None`, and [`Diagnosis::unknown`] says what was not seen.

mod causes;
mod end;
mod freebsd;
mod symptom;
#[cfg(test)]
mod tests;

use host::Facts;
use units::Nanos;

use crate::{Level, Report};

pub use causes::CAUSES;
pub use end::{Drops, End, Hog, Load, QueueShare, Socket};
pub use symptom::{Reference, Symptom, SymptomKind};

/// A cause is named as found from this likelihood on. Below, nothing that was seen explains the symptom.
pub const THRESHOLD: u8 = 50;
/// No more findings of the audit than these are passed on.
const MOST_SUSPECTS: usize = 20;

/// A possible cause.
#[derive(Clone, Copy)]
pub struct PossibleCause {
    /// Its name, in kebab case.
    pub id: &'static str,
    /// The mechanism: how it makes packets slow, late or lost.
    pub why: &'static str,
    /// Where the mechanism is described.
    pub reference: &'static str,
    /// Judges it. `None` if nothing speaks for it, or what it needs is not known.
    pub judge: fn(&Case) -> Option<Hit>,
}

impl std::fmt::Debug for PossibleCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PossibleCause").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What the judges see.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Case {
    /// What the user noticed.
    pub symptom: Symptom,
    /// This end, and the other if it is known.
    pub ends: Vec<End>,
}

/// What speaks for a cause.
#[derive(Clone, PartialEq, Debug)]
pub struct Hit {
    /// 0 to 100.
    pub likelihood_percent: u8,
    /// The name of the end at which it is. `None` if it is between the ends.
    pub end: Option<String>,
    /// The problem in plain words with its number.
    pub headline: String,
    /// What was seen, each with where.
    pub evidence: Vec<Seen>,
    /// The experiment that would prove it.
    pub experiment: Experiment,
}

/// A piece of evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The number, in words.
    pub text: String,
    /// Where it was read.
    pub source: String,
}

/// One change that proves or clears a cause.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Experiment {
    /// What to do and what to look at.
    pub text: String,
    /// A factor of `apus experiment`, as lines of TOML, if a knob of Apus does it.
    pub factor: Option<String>,
}

/// A cause with what speaks for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranked {
    /// Its name.
    pub id: &'static str,
    /// Its mechanism.
    pub why: &'static str,
    /// Where the mechanism is described.
    pub reference: &'static str,
    /// What speaks for it.
    pub hit: Hit,
}

/// The result.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnosis {
    /// The causes, the most likely first. Those of at least [`THRESHOLD`] are found.
    pub causes: Vec<Ranked>,
    /// Findings of the audit that nothing seen confirms: where to look next.
    pub suspects: Vec<Suspect>,
    /// What was not seen, and why.
    pub unknown: Vec<String>,
}

/// A finding of the audit that may matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspect {
    /// The end that has it.
    pub end: String,
    /// The rule.
    pub rule: &'static str,
    /// What the rule found.
    pub found: String,
    /// How much later it can make a packet. `None` if the rule has no number.
    pub adds: Option<Nanos>,
}

impl Diagnosis {
    /// The causes that were found.
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

    fn with(mut self, factor: impl Into<String>) -> Self {
        self.factor = Some(factor.into());
        self
    }
}

impl Case {
    /// The more likely of both ends' hits.
    fn worst(&self, judge: impl Fn(&End, Option<&End>) -> Option<Hit>) -> Option<Hit> {
        let other = |n: usize| self.ends.iter().enumerate().find(|(m, _)| *m != n).map(|(_, end)| end);
        let hits = self.ends.iter().enumerate().filter_map(|(n, end)| judge(end, other(n)));
        hits.max_by_key(|hit| hit.likelihood_percent)
    }
}

/// How far a number is from `harmless` to `harmful`: 0 to 1.
fn grade(number: f64, harmless: f64, harmful: f64) -> f64 {
    ((number - harmless) / (harmful - harmless)).clamp(0.0, 1.0)
}

/// Ranks the causes of a symptom.
pub fn diagnose(case: &Case) -> Diagnosis {
    let judged = CAUSES.iter().flat_map(|table| table.iter()).filter_map(|cause| {
        let hit = (cause.judge)(case)?;
        (hit.likelihood_percent > 0).then_some(Ranked { id: cause.id, why: cause.why, reference: cause.reference, hit })
    });
    let mut causes: Vec<Ranked> = judged.collect();
    // Of equally likely ones, the order of the table.
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.hit.likelihood_percent));
    let unknown = case.ends.iter().flat_map(|end| end.unknown.iter().map(|what| format!("{}: {what}", end.name)));
    Diagnosis { causes, suspects: Vec::new(), unknown: unknown.collect() }
}

/// The audit's findings that a symptom makes interesting, the largest delay first.
pub fn suspects(name: &str, report: &Report) -> Vec<Suspect> {
    let mut all: Vec<Suspect> = report
        .at_least(Level::Fail)
        .map(|finding| Suspect {
            end: name.to_owned(),
            rule: finding.rule.id,
            found: finding.judgement.found.clone(),
            adds: finding.effect,
        })
        .collect();
    all.sort_by_key(|suspect| std::cmp::Reverse(suspect.adds));
    all.dedup_by(|a, b| a.rule == b.rule);
    all.truncate(MOST_SUSPECTS);
    all
}

/// The numbers of a host. `interface` is the one to look at; `None` takes the busiest.
pub fn end_of(name: &str, facts: &Facts, interface: Option<&str>) -> End {
    match facts.freebsd.value() {
        Some(host) => freebsd::end(name, host, interface),
        None => End::of(name, facts, interface),
    }
}
